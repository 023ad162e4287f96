"""Where each element of a moved value comes from, however the moves are composed.

A chip that lacks a gather copies by slices, tiles and joins; another has the op. Both give the same numbers. To see
that, every element gets a code that says which channel it comes from (by the channel's digest) and where it lay in it;
the moves are then applied to the codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from aneforge.chips.limits import FP16_SLICE_SAT
from aneforge.engine.interpret import named_constants, rule_of
from aneforge.engine.ir import Op
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait
from aneforge.numerics.causes import adds_on_the_planar_path
from aneforge.numerics.products import arithmetic
from aneforge.numerics.ranges import numbers_of, remembered
from aneforge.numerics.rules import is_clamped_copy
from aneforge.numerics.transfer import Walk
from aneforge.sim.rules.contraction import is_decoded_on_host
from aneforge.sim.rules.planar import TABLES
from aneforge.sim.tables import differs_by_set

Digest = bytes
_CHANNELS = 2
_DIGEST_SIZE = 16  # that of every digest of a channel
_MOST = 1 << 22  # elements of a move that is followed; larger ones are compared step by step
_STEP = np.uint64(0x9E3779B97F4A7C15)  # from one element to the next: odd, so that all codes of a channel differ
_MOVES = kinds_with(Trait.MOVEMENT) - {
    *("padding", "select"),  # add numbers of their own, or choose by a value
    *("ring_buffer_reader", "ring_buffer_writer", "tensor_buffer_to_tensor", "tensor_to_tensor_buffer"),
}


class Origins:
    """The origins of the moved values of one program.

    A code has 64 bits: a hash of the channel's digest and shape, and from there a step for each element. Two elements
    of different origin share a code by chance only, one in 2^64.
    """

    def __init__(self) -> None:
        self._codes: dict[Op, np.ndarray] = {}
        self._channels: dict[int, tuple[Digest, bytes]] = {}
        """The digest and shape of each channel that something was moved from, by the code of its first element."""

    def follows(self, op: Op) -> bool:
        """Whether an op only hands elements on, and is small enough to look at each of them."""
        if op.kind not in _MOVES or int(np.prod(op.shape)) > _MOST:
            return False
        return op.kind != "gather_nd" or len(op.operands) == 1

    def digests(self, op: Op, read: list[tuple[Digest, ...]]) -> tuple[Digest, ...]:
        """The digest of each channel of a move; a channel that is handed on as it was keeps its digest."""
        operands = [self._of(operand, channels) for operand, channels in zip(op.operands, read, strict=True)]
        self._codes[op] = np.asarray(rule_of(op)(op, *operands)).reshape(op.shape)
        rows = np.moveaxis(self._codes[op], _CHANNELS, 0).reshape(op.shape[_CHANNELS], -1)
        in_order = (rows == rows[:, :1] + _counting(rows.shape[1])).all(axis=1)
        shape = _shape_of_channel(op)
        return tuple(self._digest(row, shape, bool(whole)) for row, whole in zip(rows, in_order.tolist(), strict=True))

    def _of(self, op: Op, channels: tuple[Digest, ...]) -> np.ndarray:
        """The codes of a value: its own where it was moved itself, else new ones by channel."""
        if op not in self._codes:
            n, d, _, h, w = op.shape
            shape = _shape_of_channel(op)
            starts = np.array([self._start(digest, shape) for digest in channels], np.uint64)
            inside = _counting(n * d * h * w).reshape(n, d, 1, h, w)
            self._codes[op] = inside + starts.reshape(1, 1, -1, 1, 1)
        return self._codes[op]

    def _start(self, digest: Digest, shape: bytes) -> int:
        """The first code of a channel. Channels of one digest and of several shapes are not mixed up."""
        start = int.from_bytes(blake2b(digest + shape, digest_size=8).digest(), "little")
        self._channels[start] = digest, shape
        return start

    def _digest(self, codes: np.ndarray, shape: bytes, in_order: bool) -> Digest:
        if in_order:
            digest, known = self._channels.get(int(codes[0]), (b"", b""))
            if known == shape:
                return digest
        return blake2b(shape + codes.tobytes(), digest_size=_DIGEST_SIZE).digest()


def _counting(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint64) * _STEP


def _shape_of_channel(op: Op) -> bytes:
    n, d, _, h, w = op.shape
    return repr((n, d, h, w)).encode()


# Whether two programs compute a value by the same steps from the same numbers, channel by channel.


Digests = dict[Op, tuple[Digest, ...]]
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
    if differs_by_set(op.kind) or op.kind == "unit":
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
