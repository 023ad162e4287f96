"""Whether two programs compute a value by the same steps from the same numbers, channel by channel.

Every channel of every result has a digest of all that decides its bits: the op, its attributes, the digests of what
it reads, its own rows of the stored weights, and of the chip's arithmetic what this op depends on, given what its
operands can be. Equal digests are equal bits. Compilers cut layers along their output channels where a chip's memory
asks for it; since digests are by channel, such pieces put together again equal the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from aneforge.anec.interpret import named_constants
from aneforge.anec.ir import Op
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.numerics.causes import BY_SET, adds_on_the_planar_path
from aneforge.numerics.movement import Origins
from aneforge.numerics.products import arithmetic
from aneforge.numerics.rules import is_clamped_copy
from aneforge.numerics.stored import numbers_of, remembered
from aneforge.numerics.transfer import Walk
from aneforge.sim.rules.contraction import is_decoded_on_host
from aneforge.sim.rules.planar import TABLES
from aneforge.targets.numeric_facts import FP16_SLICE_SAT

Digest = bytes
Digests = dict[Op, tuple[Digest, ...]]
_CHANNELS = 2
_WHOLE = {"power", "scaled_elementwise", "degamma", "dirac", "batch_norm"}  # digested over all channels together
_BY_CHANNEL = (kinds_with(Trait.POINTWISE) - kinds_with(Trait.COMPARISON) - _WHOLE) | {
    *("max_pool", "average_pool", "resize")
}
"""Ops whose channels do not meet: each result is of the same channel of what is read, or of the only one."""


def digests(walk: Walk) -> Digests:
    """Of every op of a program."""
    known: Digests = {}
    origins = Origins()
    for op in walk.module.ops:
        if op.kind != "live_out":
            known[op] = _digest(walk, op, known, origins)
    return known


def _hash(*parts: Any) -> Digest:
    state = blake2b(digest_size=16)
    for part in parts:
        state.update(part if isinstance(part, bytes) else repr(part).encode())
        state.update(b"\0")
    return state.digest()


def _joined(parts: Iterable[Digest]) -> Digest:
    """Of digests alone, which need no repr: there is one for each channel of each op, so this has to be quick."""
    return blake2b(b"\0".join(parts), digest_size=16).digest()


def _digest(walk: Walk, op: Op, known: Digests, origins: Origins) -> tuple[Digest, ...]:
    channels = op.shape[_CHANNELS]
    if op.kind == "const_in":
        return _constant(walk, op)
    if op.is_a(Trait.INPUT):
        return tuple(_hash(op.attrs["name"], channel) for channel in range(channels))
    read = [known[operand] for operand in op.operands]
    if origins.follows(op) and all(map(len, read)) and not _is_clamped(walk, op):
        return origins.digests(op, read)
    if op.kind == "concat" and op.attrs["axis"] == _CHANNELS and not op.attrs.get("interleave"):
        return tuple(digest for part in read for digest in part)
    steps = _steps(walk, op)
    if op.kind == "input_view" and op.attrs["dimension"] == _CHANNELS:
        places = [op.attrs["offset"] + op.attrs["step"] * i for i in range(op.attrs["size"])]
        return tuple(read[0][place] for place in places)
    if op.kind in _BY_CHANNEL and all(len(part) in (1, channels) for part in read):
        parts = [(_hash(*steps),) * channels, *(part if len(part) == channels else part * channels for part in read)]
        return tuple(map(_joined, zip(*parts, strict=True)))
    if op.kind == "convolution" and op.operands[1].kind == "const_in":
        return _outputs(walk, op, steps, read)
    whole = _hash(*steps, *(digest for part in read for digest in part))
    return tuple(_hash(whole, channel) for channel in range(channels))


def _constant(walk: Walk, op: Op) -> tuple[Digest, ...]:
    if op.users and all(user.kind == "convolution" and user.operands[1] is op for user in op.users):
        return ()  # a kernel: its readers digest it row by row
    key = ("channels", op.attrs["weight"], op.shape)
    return remembered(key, lambda: _digests_of(np.moveaxis(numbers_of(walk.module, op), _CHANNELS, 0)))


def _digests_of(rows: np.ndarray) -> tuple[Digest, ...]:
    return tuple(_hash(row.shape, np.ascontiguousarray(row).tobytes()) for row in rows)


def _outputs(walk: Walk, op: Op, steps: tuple[Any, ...], read: Sequence[tuple[Digest, ...]]) -> tuple[Digest, ...]:
    """A convolution: each output of its own row of the kernel, and of its group of the map."""
    kernel = op.operands[1]
    groups, outputs = op.attrs["groups"], kernel.shape[0]
    rows = remembered(
        ("rows", kernel.attrs["weight"], kernel.shape), lambda: _digests_of(numbers_of(walk.module, kernel))
    )
    named = [np.ascontiguousarray(numbers) for _, numbers in sorted(named_constants(walk.module, op).items())]
    inputs = len(read[0]) // groups
    maps = [_joined(read[0][group * inputs : (group + 1) * inputs]) for group in range(groups)]
    shared = [_hash(*steps, group) for group in maps]
    results = []
    for output in range(outputs):
        parts = [shared[output * groups // outputs], rows[output]]
        parts += [_hash(_row(numbers, output, outputs).tobytes()) for numbers in named]
        parts += [part[output if len(part) == outputs else 0] for part in read[2:]]
        results.append(_joined(parts))
    return tuple(results)


def _row(numbers: np.ndarray, output: int, outputs: int) -> np.ndarray:
    """What an output has of a scale or a table: its own row, or all of it."""
    axis = next((i for i, extent in enumerate(numbers.shape) if extent == outputs), None)
    return np.ascontiguousarray(numbers if axis is None else np.take(numbers, output, axis=axis))


def _steps(walk: Walk, op: Op) -> tuple[Any, ...]:
    """The op, its attributes, and what of the chip's arithmetic decides its bits."""
    skipped = {"groups"} if op.kind == "convolution" else set()
    if op.is_a(Trait.STORED_KERNEL):
        skipped |= set(op.spec.stored)  # names of constants, whose numbers are digested instead
    attrs = sorted((name, value) for name, value in op.attrs.items() if name not in skipped)
    size = () if op.kind in ("convolution", *_BY_CHANNEL) else op.shape
    on_host = op.is_a(Trait.STORED_KERNEL) and is_decoded_on_host(op)
    return op.kind, attrs, size, on_host, _of_chip(walk, op)


def _of_chip(walk: Walk, op: Op) -> tuple[object, ...]:
    engine, values = walk.engine, [walk.values[operand] for operand in op.operands]
    sums = (engine.reduction_transpose_extent,) if adds_on_the_planar_path(op) else ()
    if op.is_a(Trait.CONTRACTION) or op.kind == "sdpa":
        return *sums, *arithmetic(engine, op, values[0], values[1] if len(values) > 1 else None)
    if op.kind in (*BY_SET, "unit"):
        return (engine.tables,)
    if sums:
        return sums
    if op.kind == "div":
        return (engine.reciprocal_divide,)
    if op.kind == "gain_offset_control":  # in front of a table the accumulators add, which end at 2^15
        return (any(user.layer == op.layer and user.kind in TABLES for user in op.users),)
    return ("q4",) if _is_clamped(walk, op) else ()


def _is_clamped(walk: Walk, op: Op) -> bool:
    """Whether a copy goes through fixed point, and what it reads can pass its ceiling."""
    if not is_clamped_copy(op):
        return False
    value = walk.values[op.operands[0]]
    return value.special or value.size > FP16_SLICE_SAT
