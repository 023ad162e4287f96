"""``aneforge.codecs.encode``: one array to one stored form."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.codecs.affine import affine, blockwise
from aneforge.codecs.palettes import METHODS, VECTOR_SIZES, palette, sparse_palette
from aneforge.errors import ArgumentError, GraphError, UnknownNameError, nearest
from aneforge.graph.encoding import Encoded
from aneforge.graph.fp8 import FP8, fp8_codes

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
