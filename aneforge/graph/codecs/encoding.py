"""``aneforge.graph.codecs.encode``: one array to one stored form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.errors import ArgumentError, GraphError, UnknownNameError, nearest
from aneforge.graph.codecs.palettes import METHODS, VECTOR_SIZES, palette, sparse_palette
from aneforge.graph.encoding import SMALLEST_NORMAL, Encoded
from aneforge.graph.fp8 import FP8, fp8_codes

# Codes with scales: whole numbers that stand for ``(code - zero point) * scale``.


_AT_ONCE = 1 << 17  # numbers that are encoded at a time: what the processor's cache holds


def affine(weight: np.ndarray, bits: int, axis: int | None = 0, symmetric: bool = True) -> Encoded:
    """One scale for each place along ``axis``, or one for the whole weight.

    Symmetric codes reach as far below zero as above it (-127 to 127 in 8 bits) and have no zero point, which is the
    only kind that an M1 knows (N51); the others use the whole range between the least and the largest number.
    """
    lines = weight.reshape(1, -1) if axis is None else np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)
    zero = None
    if symmetric:
        scale = _scale(_peaks(lines), (1 << (bits - 1)) - 1)
    else:
        low, high = _bounds(lines)
        scale = _scale(high - low, (1 << bits) - 1)
        least = -(1 << (bits - 1))
        zero = np.clip(np.rint(least - low / scale.astype(np.float64)), least, -least - 1).astype(np.int8)
    if axis is None:
        every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
        table = _codes(np.where(np.isfinite(every), every, np.float16(0))[None], scale, zero, bits)[0]
        codes = table[weight.view(np.uint16)]  # one code for each fp16 number
        return Encoded.affine(codes, scale[0], None if zero is None else zero[0], bits=bits)
    codes = _codes(lines, scale, zero, bits)
    moved = [weight.shape[axis], *(extent for place, extent in enumerate(weight.shape) if place != axis % weight.ndim)]
    whole = np.ascontiguousarray(np.moveaxis(codes.reshape(moved), 0, axis))
    return Encoded.affine(whole, scale, zero, axis=axis, bits=bits)


def blockwise(weight: np.ndarray, bits: int, block_size: int, axis: int, name: str) -> Encoded:
    """Symmetric codes with one scale for each run of ``block_size`` numbers along ``axis`` of each output."""
    if weight.ndim < 2:
        raise GraphError(f"{name} {list(weight.shape)}: blockwise needs outputs and inputs; encode it as int8")
    axis %= weight.ndim
    extent = weight.shape[axis]
    if extent % block_size:
        raise GraphError(
            f"{name} {list(weight.shape)}: {extent} numbers along axis {axis} do not divide into blocks of "
            f"{block_size}; choose a block_size that divides {extent}, or another encoding for this weight"
        )
    front = np.moveaxis(weight, axis, -1)
    lines = np.ascontiguousarray(front).reshape(-1, block_size)
    shared = [place for place in range(weight.ndim) if place not in (0, axis)]
    scale = _scale(_peaks(lines), (1 << (bits - 1)) - 1).reshape(*front.shape[:-1], extent // block_size)
    scale = np.moveaxis(scale, -1, axis)
    if shared:  # one scale for all places of a kernel's window
        scale = scale.max(axis=tuple(shared), keepdims=True)
    spread = np.broadcast_to(
        scale, tuple(extent // block_size if i == axis else n for i, n in enumerate(weight.shape))
    )
    line_scale = np.ascontiguousarray(np.moveaxis(spread, axis, -1)).reshape(-1)
    codes = _codes(lines, line_scale, None, bits).reshape(front.shape)
    return Encoded.blockwise(np.ascontiguousarray(np.moveaxis(codes, -1, axis)), scale, bits=bits)


def _peaks(lines: np.ndarray) -> np.ndarray:
    """The largest magnitude of each line. Without its sign bit an fp16 number orders like the integer of its bits."""
    bits = np.ascontiguousarray(lines).view(np.uint16) & np.uint16(0x7FFF)
    return bits.max(axis=1).view(np.float16).astype(np.float64)


def _bounds(lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest number of each line, and zero. With all bits but the sign turned over, a negative fp16
    number orders like a negative integer."""
    bits = np.ascontiguousarray(lines).view(np.int16)
    keys = bits ^ ((bits >> np.int16(15)) & np.int16(0x7FFF))
    ends = []
    for key in (keys.min(axis=1), keys.max(axis=1)):
        turned = key ^ ((key >> np.int16(15)) & np.int16(0x7FFF))
        ends.append(turned.view(np.float16).astype(np.float64))
    return np.minimum(ends[0], 0), np.maximum(ends[1], 0)


def _scale(ranges: np.ndarray, steps: int) -> np.ndarray:
    """A scale that fp16 holds to all its digits; one of zeros only has the least such scale."""
    return np.maximum(ranges / steps, SMALLEST_NORMAL).astype(np.float16)


def _codes(lines: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, bits: int) -> np.ndarray:
    """The nearest code of each number, worked out in single precision."""
    codes = np.empty(lines.shape, np.int8)
    factors = scale.astype(np.float32)[:, None]
    shift = None if zero is None else zero.astype(np.float32)[:, None]
    most = (1 << (bits - 1)) - 1
    least = -most if zero is None else -most - 1
    step = max(1, _AT_ONCE // max(1, lines.shape[1]))
    for first in range(0, len(lines), step):
        rows = slice(first, first + step)
        quotients = np.divide(lines[rows], factors[rows], dtype=np.float32)
        np.rint(quotients, out=quotients)
        if shift is not None:
            quotients += shift[rows]
        np.clip(quotients, least, most, out=quotients)
        codes[rows] = quotients
    return codes


_PALETTE_BITS = (1, 2, 3, 4, 6, 8)
ENCODINGS = (
    "int8",
    "int4",
    "int4-affine",
    *(f"lut{bits}" for bits in _PALETTE_BITS),
    "sparse",
    *(f"sparse-lut{bits}" for bits in _PALETTE_BITS),
    "blockwise",
    *FP8,
)
"""Names of the forms that a weight can be written in. ``int4`` is the seed page's word for ``lut4``."""

_OPTIONS = {
    "int": ("axis", "symmetric"),
    "lut": ("method", "vector_size", "group_size", "axis", "importance"),
    "sparse-lut": ("method", "importance"),
    "sparse": (),
    "blockwise": ("block_size", "bits", "axis"),
    "fp8-e4m3": (),
    "fp8-e5m2": (),
}
_DEFAULT_AXIS = {"int": 0, "lut": 0, "blockwise": 1}


def encode(array: Any, encoding: str, *, name: str = "weight", **options: Any) -> Encoded:
    """A weight, outputs first, in a stored form; rounded to fp16 first, because that is what the engine would hold.

    ``encoding`` is one of:

    - ``int8``: codes of 8 bits with a scale for each place along ``axis`` (0, the outputs; None for one scale);
      ``symmetric=False`` adds zero points. ``int4-affine`` is the same in 4 bits.
    - ``int4`` or ``lut4``, ``lut1`` to ``lut8``: places in a table. ``method`` is ``kmeans`` or ``uniform``,
      ``vector_size`` 1, 2, 4 or 5 numbers an entry along ``axis``, ``group_size`` how many places along ``axis`` share
      a table, ``importance`` how much the error of each number counts (any shape that broadcasts to the weight).
    - ``sparse``: a mask and the numbers that are not zero; ``sparse-lut4`` keeps places in a table instead.
    - ``blockwise``: a scale for each ``block_size`` numbers along ``axis`` (1), codes of ``bits`` 8 or 4.
    - ``fp8-e4m3``, ``fp8-e5m2``: 8-bit floating point, nearest, ties to even, too large becomes the largest.

    Raises where the weight holds NaN or infinities, or does not divide into the blocks, groups or vectors asked for.
    ``name`` is what messages call the weight. An option that is None has its default.
    """
    kind, bits = _kind(encoding)
    given = {key: value for key, value in options.items() if value is not None or key == "axis"}
    _check_options(kind, encoding, given)
    weight = _finite_halves(array, name)
    if "axis" in given and given["axis"] is None and kind != "int":
        raise ArgumentError("axis", f"None is for int8 and int4-affine only, not for {encoding}. Give an axis.")
    axis = _axis(given.get("axis", _DEFAULT_AXIS.get(kind)), weight, name)
    if "importance" in given:
        given["importance"] = _importance(given["importance"], weight, name)
    given = {**given, **({"axis": axis} if kind in _DEFAULT_AXIS else {})}
    return _WRITERS[kind](weight, **{"kind": kind, "bits": bits, "name": name, **given})


def _kind(encoding: str) -> tuple[str, int]:
    """The family of a form, and the bits of its codes."""
    if encoding not in ENCODINGS:
        near = ", ".join(nearest(str(encoding), ENCODINGS)) or ", ".join(ENCODINGS)
        raise UnknownNameError(f"{encoding!r}: not a weight encoding; nearest: {near}")
    if encoding == "int4":
        return "lut", 4
    matched = re.fullmatch(r"(int|sparse-lut|lut)(\d)(-affine)?", encoding)
    return (matched[1], int(matched[2])) if matched else (encoding, 8)


def _check_options(kind: str, encoding: str, given: dict[str, Any]) -> None:
    for option in given:
        if option not in _OPTIONS[kind]:
            known = ", ".join(_OPTIONS[kind]) or "none"
            raise ArgumentError(option, f"{encoding} has no such option. Its options: {known}.")
    allowed: dict[str, tuple[Any, ...]] = {"method": METHODS, "vector_size": VECTOR_SIZES, "bits": (4, 8)}
    for option, values in allowed.items():
        if option in given and given[option] not in values:
            raise ArgumentError(option, f"{given[option]!r} is unknown; choose one: {', '.join(map(str, values))}.")
    for option in ("block_size", "group_size"):
        value = given.get(option, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ArgumentError(option, f"{value!r} is not a count. Give a whole number from 1.")


def _axis(axis: Any, weight: np.ndarray, name: str) -> int | None:
    if axis is None:
        return None
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise ArgumentError("axis", f"{axis!r} is not an axis. Give a whole number.")
    if weight.ndim and not -weight.ndim <= axis < weight.ndim and axis != _DEFAULT_AXIS["blockwise"]:
        raise ArgumentError("axis", f"{axis} is outside {name} {list(weight.shape)}.")
    return axis


def _finite_halves(array: Any, name: str) -> np.ndarray:
    """The weight in fp16; one that is not finite there is refused."""
    if isinstance(array, Encoded):
        raise GraphError(f"{name}: is stored as {array.name} already; use its decode() for an array of numbers")
    numbers = np.asarray(array)
    if numbers.dtype.kind not in "fiu" or not numbers.size or not numbers.ndim:
        raise GraphError(
            f"{name} {list(numbers.shape)} of {numbers.dtype}: not a weight; give an array of numbers with one axis "
            "or more"
        )
    if numbers.dtype == np.float16:
        half = np.ascontiguousarray(numbers)
    else:
        with np.errstate(over="ignore"):
            half = np.ascontiguousarray(numbers.astype(np.float16))
    bits = half.view(np.uint16) & np.uint16(0x7FFF)
    if int(bits.max()) >= 0x7C00:
        place = tuple(int(i) for i in np.argwhere(bits >= 0x7C00)[0])
        value = float(numbers[place])
        rule = f"beyond the fp16 range of {65504}" if math.isfinite(value) else "stored forms hold finite numbers only"
        raise GraphError(f"{name}: holds {value:g} at index {place}; {rule}. Replace it before encoding.")
    return half


def _importance(values: Any, weight: np.ndarray, name: str) -> np.ndarray:
    counts = np.asarray(values, np.float64)
    try:
        spread = np.broadcast_to(counts, weight.shape)
    except ValueError:
        raise ArgumentError(
            "importance", f"{list(counts.shape)} does not broadcast to {name} {list(weight.shape)}."
        ) from None
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise ArgumentError("importance", f"{name}: holds negative or non-finite numbers. Give numbers from 0.")
    return spread


# Writers: each gets the weight and the options of its kind.

Writer = Callable[..., Encoded]


def _write_affine(weight: np.ndarray, *, bits: int, name: str, kind: str, axis: int | None, **options: Any) -> Encoded:
    return affine(weight, bits, axis, **options)


def _write_palette(weight: np.ndarray, *, bits: int, name: str, kind: str, axis: int, **options: Any) -> Encoded:
    return palette(weight, bits, axis=axis, name=name, **options)


def _write_sparse_palette(weight: np.ndarray, *, bits: int, name: str, kind: str, **options: Any) -> Encoded:
    return sparse_palette(weight, bits, **options)


def _write_sparse(weight: np.ndarray, *, bits: int, name: str, kind: str) -> Encoded:
    """The zeros that are there already; none are made. A negative zero is a zero."""
    mask = (weight.view(np.uint16) & np.uint16(0x7FFF)) != 0
    return Encoded.sparse(mask, weight.reshape(-1).compress(mask.reshape(-1)))


def _write_blockwise(
    weight: np.ndarray, *, bits: int, name: str, kind: str, axis: int, block_size: int = 32
) -> Encoded:
    return blockwise(weight, bits, block_size, axis, name)


def _write_fp8(weight: np.ndarray, *, bits: int, name: str, kind: str) -> Encoded:
    return Encoded.fp8(fp8_codes(kind)[weight.view(np.uint16)], kind)


_WRITERS: dict[str, Writer] = {
    "int": _write_affine,
    "lut": _write_palette,
    "sparse-lut": _write_sparse_palette,
    "sparse": _write_sparse,
    "blockwise": _write_blockwise,
    **dict.fromkeys(FP8, _write_fp8),
}
