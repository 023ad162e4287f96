"""The numbers that a stored weight stands for: exactly in float64, or rounded to fp16 once on a fast path.

Every fast path has the bits of the slow one. A code of at most 13 bits times an fp16 scale has at most 24 digits, and
so has the product of two fp16 numbers: both are exact in float32, so that the rounding to fp16 is the only one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from aneforge.graph.fp8 import FP8, fp8_values
from aneforge.graph.halves import round_to_half

if TYPE_CHECKING:
    from aneforge.graph.encoding import Encoded

_AT_ONCE = 1 << 17  # numbers that are decoded at a time: what the processor's cache holds
_CODES = 256
_LONG_ROW = 512  # codes: a table for each row pays where a row is longer than the table


def decoded(weight: Encoded) -> np.ndarray:
    """The numbers in float64, before any rounding."""
    if weight.form == "sparse":
        numbers = np.zeros(weight.shape)
        assert weight.mask is not None
        numbers[weight.mask] = _kept(weight).astype(np.float64)
        return numbers
    if weight.form in FP8:
        numbers = fp8_values(weight.form).astype(np.float64)[weight.codes]
        return numbers if weight.scale is None else numbers * spread(weight.scale, weight.shape).astype(np.float64)
    if weight.form == "palette":
        entries = _looked_up(weight).astype(np.float64)
        return entries if weight.scale is None else entries * spread(weight.scale, weight.shape).astype(np.float64)
    assert weight.scale is not None
    numbers = weight.codes.astype(np.float64)
    if weight.zero_point is not None:
        numbers = numbers - spread(weight.zero_point, weight.shape).astype(np.float64)
    return numbers * spread(weight.scale, weight.shape).astype(np.float64)


def decoded_halves(weight: Encoded) -> np.ndarray:
    """The numbers rounded to fp16 once, ties to even: the bits of ``decoded(weight).astype(float16)``."""
    if weight.form == "sparse":
        assert weight.mask is not None
        values, mask = _kept_halves(weight), np.ascontiguousarray(weight.mask).reshape(-1)
        numbers, used = np.zeros(mask.size, np.float16), 0
        for first in range(0, mask.size, _AT_ONCE):
            places = np.flatnonzero(mask[first : first + _AT_ONCE])
            numbers[first : first + _AT_ONCE][places] = values[used : used + places.size]
            used += places.size
        return numbers.reshape(weight.shape)
    if weight.form in FP8 and weight.scale is None:
        return _by_bytes(weight.codes, fp8_values(weight.form))
    if weight.form == "palette" and weight.scale is None:
        assert weight.table is not None
        table = _as_halves(weight.table)
        if table.size <= _CODES and table.shape[-2] == table.size and weight.codes.dtype == np.uint8:
            return _by_bytes(weight.codes, table.reshape(-1))
        return _by_groups(weight, table)
    if weight.form in ("affine", "blockwise") and weight.shape and _is_exact_in_single(weight):
        return _scaled(weight)
    with np.errstate(over="ignore"):
        return decoded(weight).astype(np.float16)


def spread(blocks: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """A number for each block, at every place of the block."""
    for axis, (have, want) in enumerate(zip(blocks.shape, shape, strict=True)):
        if have not in (1, want):
            blocks = np.repeat(blocks, want // have, axis)
    return np.broadcast_to(blocks, shape)


def _as_halves(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float16, copy=False)


def _kept(weight: Encoded) -> np.ndarray:
    """The kept values of a sparse weight, in order."""
    if weight.table is None:
        return weight.codes
    return weight.table.reshape(-1)[weight.codes]


def _kept_halves(weight: Encoded) -> np.ndarray:
    if weight.table is None or weight.codes.dtype != np.uint8:
        return _as_halves(_kept(weight))
    return _by_bytes(weight.codes, _as_halves(weight.table.reshape(-1)))


def _by_bytes(codes: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Look up two codes at a time, in a table of all pairs."""
    padded = np.zeros(_CODES, np.uint16)
    padded[: table.size] = np.ascontiguousarray(table).view(np.uint16)
    flat = np.ascontiguousarray(codes).reshape(-1)
    result = np.empty(flat.size, np.uint16)
    even = flat.size // 2 * 2
    if even > 1 << 16:
        pairs = np.empty((_CODES, _CODES, 2), np.uint16)
        pairs[:, :, 0], pairs[:, :, 1] = padded, padded[:, None]  # the first code is the low byte
        _take(pairs.view(np.uint32).reshape(-1), flat[:even].view("<u2"), result[:even].view(np.uint32))
    else:
        even = 0
    result[even:] = padded[flat[even:]]
    return result.view(np.float16).reshape(codes.shape)


def _take(table: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    wide = np.empty(min(_AT_ONCE, places.size), np.intp)
    for first in range(0, places.size, _AT_ONCE):
        part = places[first : first + _AT_ONCE]
        index = wide[: part.size]
        np.copyto(index, part)
        np.take(table, index, out=out[first : first + _AT_ONCE], mode="clip")


def _looked_up(weight: Encoded, table: np.ndarray | None = None) -> np.ndarray:
    """The entries of a palette, from the weight's own table or the same in another type."""
    table = weight.table if table is None else table
    assert table is not None
    *groups, entries, numbers = table.shape
    lines = table.reshape(-1, numbers)
    group = spread(np.arange(math.prod(groups)).reshape(groups), weight.codes.shape)
    looked_up = lines[group * entries + weight.codes.astype(np.int64)]  # [*codes, numbers]
    if numbers == 1:
        return looked_up[..., 0]
    return np.moveaxis(looked_up, -1, weight.vector_axis + 1).reshape(weight.shape)


def _by_groups(weight: Encoded, table: np.ndarray) -> np.ndarray:
    """Entries of a table for each run of rows, number by number of an entry."""
    *groups, _, numbers = table.shape
    if math.prod(groups[1:]) > 1 or not groups:
        return np.ascontiguousarray(_looked_up(weight, table))
    axis, rows = weight.vector_axis, weight.codes.shape[0] // groups[0]
    shape = weight.codes.shape
    result = np.empty((*shape[: axis + 1], numbers, *shape[axis + 1 :]), np.float16)
    by_number = np.moveaxis(result, axis + 1, 0)
    for group, lines in enumerate(table.reshape(groups[0], -1, numbers)):
        part = slice(group * rows, (group + 1) * rows)
        for number in range(numbers):
            by_number[number, part] = np.ascontiguousarray(lines[:, number])[weight.codes[part]]
    return result.reshape(weight.shape)


def _is_exact_in_single(weight: Encoded) -> bool:
    """Whether codes and scales are narrow enough for exact products in float32."""
    scale, zero = weight.scale, weight.zero_point
    narrow = weight.codes.dtype.itemsize == 1 and (zero is None or zero.dtype.itemsize == 1)
    return narrow and scale is not None and scale.dtype == np.float16


def _scaled(weight: Encoded) -> np.ndarray:
    """(code - zero point) * scale of codes of one byte."""
    assert weight.scale is not None
    codes = np.ascontiguousarray(weight.codes)
    if math.prod(weight.scale.shape[1:]) > 1 or codes[0].size < _LONG_ROW:
        return _scaled_by_blocks(weight)
    return _scaled_by_rows(weight, codes)


def _scaled_by_rows(weight: Encoded, codes: np.ndarray) -> np.ndarray:
    """One scale along the first axis: a table of 256 numbers for each row."""
    assert weight.scale is not None
    rows, length = codes.shape[0], codes[0].size
    scale = _by_row(weight.scale, rows)
    numbers = np.arange(_CODES, dtype=np.uint8).view(codes.dtype).astype(np.float32)
    if weight.zero_point is not None:
        if math.prod(weight.zero_point.shape[1:]) > 1:
            return _scaled_by_blocks(weight)
        numbers = numbers - _by_row(weight.zero_point, rows)
    with np.errstate(over="ignore"):
        tables = np.broadcast_to(numbers * scale, (rows, _CODES)).astype(np.float16)
    unsigned, result = codes.view(np.uint8).reshape(rows, length), np.empty((rows, length), np.float16)
    step = max(1, _AT_ONCE // length)
    starts = (np.arange(step) * _CODES)[:, None]
    for first in range(0, rows, step):
        part = unsigned[first : first + step]
        index = part + starts[: len(part)]
        np.take(tables[first : first + step].reshape(-1), index, out=result[first : first + step], mode="clip")
    return result.reshape(weight.shape)


def _by_row(part: np.ndarray, rows: int) -> np.ndarray:
    line = part.astype(np.float32).reshape(-1)
    return np.repeat(line, rows // line.size)[:, None]


def _scaled_by_blocks(weight: Encoded) -> np.ndarray:
    """Any blocks: part by part along the first axis."""
    assert weight.scale is not None
    scale, zero = weight.scale.astype(np.float32), weight.zero_point
    result = np.empty(weight.shape, np.float16)
    parts = list(_parts(weight.shape, scale.shape[0]))
    most = max(part.stop - part.start for part in parts)
    buffer = np.empty((most, *weight.shape[1:]), np.float32)
    scratch = np.empty(buffer.size, np.uint32), np.empty(buffer.size, np.uint32)
    for part in parts:
        numbers = buffer[: part.stop - part.start]
        np.copyto(numbers, weight.codes[part])
        if zero is not None:
            numbers -= spread(_share(zero, weight.shape, part), numbers.shape)
        _multiply(numbers, _share(scale, weight.shape, part))
        round_to_half(numbers, result[part], scratch)
    return result


def _parts(shape: tuple[int, ...], blocks: int) -> Iterator[slice]:
    """Runs of rows that hold whole blocks along the first axis."""
    block = shape[0] // blocks
    row = max(1, math.prod(shape[1:]) * block)
    step = max(1, _AT_ONCE // row) * block
    for first in range(0, shape[0], step):
        yield slice(first, min(first + step, shape[0]))


def _share(part: np.ndarray, shape: tuple[int, ...], rows: slice) -> np.ndarray:
    """The constants of a run of rows."""
    if part.shape[0] == 1:
        return part
    block = shape[0] // part.shape[0]
    if rows.start % block or (rows.stop % block and rows.stop != shape[0]):
        return np.repeat(part, block, 0)[rows]
    return part[rows.start // block : -(-rows.stop // block)]


def _multiply(numbers: np.ndarray, scale: np.ndarray) -> None:
    """Multiply in place, with the blocks of the last axis that differ as an axis of their own, so that nothing is
    repeated where one axis has blocks."""
    split = [axis for axis, (have, want) in enumerate(zip(scale.shape, numbers.shape, strict=True)) if 1 < have < want]
    if len(split) != 1:
        numbers *= spread(scale, numbers.shape)
        return
    axis = split[0]
    have = scale.shape[axis]
    shape = (*numbers.shape[:axis], have, numbers.shape[axis] // have, *numbers.shape[axis + 1 :])
    view = numbers.reshape(shape)
    view *= np.expand_dims(scale, axis + 1)
