"""Tables for palettes: which few numbers, or short runs of numbers, a weight is made of.

A table of single numbers is made from how often each of the 65,536 fp16 numbers occurs, so that the work does not grow
with the weight. Nothing is drawn without a fixed seed: the same weight has the same table.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.encoding import Encoded

METHODS = ("kmeans", "uniform")
VECTOR_SIZES = (1, 2, 4, 5)
"""How many numbers an entry may hold (compression.json ``palette``, mask 0x36)."""
_ROUNDS = 60
_VECTOR_ROUNDS = 15
_SAMPLES = 1 << 16  # vectors that a table is made from; all vectors are then assigned
_AT_ONCE = 1 << 15


def palette(
    weight: np.ndarray,
    bits: int,
    method: str = "kmeans",
    vector_size: int = 1,
    group_size: int | None = None,
    axis: int = 0,
    importance: np.ndarray | None = None,
    name: str = "weight",
) -> Encoded:
    """A weight as places in one table, or in one for each ``group_size`` places along ``axis``.

    An entry holds ``vector_size`` numbers that follow each other along ``axis``. ``importance`` says how much the
    error of each number counts.
    """
    axis %= weight.ndim
    groups = _groups(weight, group_size, axis, name)
    if vector_size != 1:
        return _vectors(weight, bits, vector_size, groups, axis, importance, method, name)
    if groups == 1:
        codes, table = _single(weight, bits, method, importance)
        return Encoded.palette(codes, table, bits)
    codes = np.empty(weight.shape, np.uint8)
    tables = np.empty((groups, 1 << bits), np.float16)
    size = weight.shape[axis] // groups
    for number in range(groups):
        part = (slice(None),) * axis + (slice(number * size, (number + 1) * size),)
        codes[part], tables[number] = _single(weight[part], bits, method, _share(importance, part, weight.shape))
    grouped = [1] * weight.ndim
    grouped[axis] = groups
    return Encoded.palette(codes, tables.reshape(*grouped, 1 << bits, 1), bits)


def sparse_palette(
    weight: np.ndarray, bits: int, method: str = "kmeans", importance: np.ndarray | None = None
) -> Encoded:
    """The zeros of a weight as a mask, and what is kept as places in a table."""
    mask = (weight.view(np.uint16) & np.uint16(0x7FFF)) != 0
    kept = weight.reshape(-1).compress(mask.reshape(-1))
    if not kept.size:
        return Encoded.sparse(mask, np.zeros(0, np.uint8), np.zeros(1 << bits, np.float16), bits)
    counts = None if importance is None else np.broadcast_to(importance, weight.shape)[mask]
    codes, table = _single(kept, bits, method, counts)
    return Encoded.sparse(mask, codes, table, bits)


def _groups(weight: np.ndarray, group_size: int | None, axis: int, name: str) -> int:
    if group_size is None:
        return 1
    extent = weight.shape[axis]
    if group_size < 1 or extent % group_size:
        raise GraphError(
            f"{name} {list(weight.shape)}: {extent} places along axis {axis} do not divide into groups of "
            f"{group_size}; choose a group_size that divides {extent}"
        )
    return extent // group_size


def _share(importance: np.ndarray | None, part: tuple[slice, ...], shape: tuple[int, ...]) -> np.ndarray | None:
    return None if importance is None else np.broadcast_to(importance, shape)[part]


# Tables of single numbers.


def _single(
    weight: np.ndarray, bits: int, method: str, importance: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The place of every number in a table, and the table in fp16."""
    patterns = np.ascontiguousarray(weight).view(np.uint16).reshape(-1)
    table = palette_table(weight, bits, method, importance)
    order, values = _finite_halves()
    nearest = np.zeros(1 << 16, np.uint8)
    nearest[order] = np.searchsorted((table[1:] + table[:-1]) / 2, values)
    return nearest[patterns].reshape(weight.shape), table.astype(np.float16)


def palette_table(
    weight: np.ndarray, bits: int, method: str = "kmeans", importance: np.ndarray | None = None
) -> np.ndarray:
    """The table of an fp16 weight, in order, as numbers that fp16 holds."""
    patterns = np.ascontiguousarray(weight, np.float16).view(np.uint16).reshape(-1)
    count = np.bincount(patterns, minlength=1 << 16)
    order, values = _finite_halves()
    present = count[order] > 0
    plain = _table(values[present], count[order][present].astype(np.float64), 1 << bits, method)
    if importance is None or method == "uniform":
        return plain
    counted = np.broadcast_to(importance, weight.shape).reshape(-1)
    often = np.bincount(patterns, weights=counted, minlength=1 << 16)
    # From the plain table as well: the weighted one is then never worse than it.
    return _table(values[present], often[order][present], 1 << bits, method, plain)


@cache
def _finite_halves() -> tuple[np.ndarray, np.ndarray]:
    """The bit patterns of every finite fp16 number in the order of their values, and the values."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    values = patterns.view(np.float16).astype(np.float64)
    order = np.argsort(values, kind="stable")  # infinities at the ends, NaN behind them
    order = order[np.isfinite(values[order])]
    return order, values[order]


def _table(
    values: np.ndarray, often: np.ndarray, entries: int, method: str, known: np.ndarray | None = None
) -> np.ndarray:
    """Entries in order that fp16 holds, for the numbers that occur and how much each counts."""
    distinct, first = np.unique(values, return_index=True)  # the two zeros are one number
    often = np.add.reduceat(often, first)
    if not often.any():
        often = np.ones_like(often)
    if distinct.size <= entries:
        return np.concatenate([distinct, np.full(entries - distinct.size, distinct[-1])])
    even = np.linspace(distinct[0], distinct[-1], entries)
    if method == "uniform":
        return _rounded(even)
    heads, sums = (np.concatenate([[0.0], np.cumsum(part)]) for part in (often, often * distinct))
    shares = np.searchsorted(heads[1:] / heads[-1], (np.arange(entries) + 0.5) / entries)
    crowded = distinct[np.minimum(shares, distinct.size - 1)]
    starts = (even, crowded) if known is None else (even, crowded, known)
    tables = [_rounded(_moved(start, distinct, heads, sums)) for start in starts]
    return min(tables, key=lambda table: _error(table, distinct, often))


def _moved(table: np.ndarray, values: np.ndarray, heads: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Each entry again and again at the mean of the numbers nearest to it."""
    for _ in range(_ROUNDS):
        edges = np.searchsorted(values, (table[1:] + table[:-1]) / 2)
        edges = np.concatenate([[0], edges, [values.size]])
        many = np.diff(heads[edges])
        means = np.diff(sums[edges]) / np.where(many > 0, many, 1)
        following = np.sort(np.where(many > 0, means, table))
        if np.array_equal(following, table):
            break
        table = following
    return table


def _rounded(table: np.ndarray) -> np.ndarray:
    return table.astype(np.float16).astype(np.float64)


def _error(table: np.ndarray, values: np.ndarray, often: np.ndarray) -> float:
    nearest = table[np.searchsorted((table[1:] + table[:-1]) / 2, values)]
    return float(np.sum(often * (values - nearest) ** 2))


# Tables of short runs of numbers.


def _vectors(
    weight: np.ndarray,
    bits: int,
    size: int,
    groups: int,
    axis: int,
    importance: np.ndarray | None,
    method: str,
    name: str,
) -> Encoded:
    if method != "kmeans":
        raise GraphError(f"{name}: a palette of vectors has no {method} table; use method='kmeans'")
    extent = weight.shape[axis] // groups
    if extent % size:
        raise GraphError(
            f"{name} {list(weight.shape)}: {extent} places along axis {axis} do not divide into vectors of {size}; "
            f"choose a vector_size that divides them: {', '.join(map(str, VECTOR_SIZES))}"
        )
    lines = _in_vectors(weight, size, axis).astype(np.float32)
    counts = None
    if importance is not None:
        spread = np.broadcast_to(importance, weight.shape)
        counts = _in_vectors(spread, size, axis).astype(np.float32).mean(axis=-1).reshape(groups, -1)
    moved = lines.shape[:-1]
    lines = lines.reshape(groups, -1, size)
    found = [_of_vectors(lines[number], bits, None if counts is None else counts[number]) for number in range(groups)]
    codes = np.moveaxis(np.stack([codes for codes, _ in found]).reshape(moved), 0, axis)
    grouped = [1] * weight.ndim
    grouped[axis] = groups
    tables = np.stack([table for _, table in found]).reshape(*grouped, 1 << bits, size)
    return Encoded.palette(np.ascontiguousarray(codes), tables, bits, vector_axis=axis)


def _in_vectors(array: np.ndarray, size: int, axis: int) -> np.ndarray:
    """[vectors along the axis, the other axes..., numbers of a vector]."""
    front = np.moveaxis(array, axis, 0)
    return np.moveaxis(front.reshape(front.shape[0] // size, size, *front.shape[1:]), 1, -1)


def _of_vectors(lines: np.ndarray, bits: int, importance: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    entries, step = 1 << bits, max(1, math.ceil(len(lines) / _SAMPLES))
    samples = lines[::step]
    counts = np.ones(len(samples), np.float32) if importance is None else importance[::step]
    table = _start(samples, entries)
    for _ in range(_VECTOR_ROUNDS):
        nearest = _nearest(samples, table)
        many = np.bincount(nearest, weights=counts, minlength=entries)
        sums = np.stack([np.bincount(nearest, weights=counts * column, minlength=entries) for column in samples.T], 1)
        following = np.where(many[:, None] > 0, sums / np.where(many > 0, many, 1)[:, None], table).astype(np.float32)
        if np.array_equal(following, table):
            break
        table = following
    table = table.astype(np.float16)
    return _nearest(lines, table.astype(np.float32)).astype(np.uint8), table


def _start(samples: np.ndarray, entries: int) -> np.ndarray:
    """Samples far from each other: each is drawn by its distance from those before it, with a fixed seed."""
    random = np.random.default_rng(0)
    chosen = [samples[len(samples) // 2]]
    distance = np.sum((samples - chosen[0]) ** 2, axis=1, dtype=np.float64)
    while len(chosen) < entries:
        total = np.cumsum(distance)
        place = int(np.searchsorted(total, random.random() * total[-1])) if total[-1] > 0 else 0
        chosen.append(samples[min(place, len(samples) - 1)])
        distance = np.minimum(distance, np.sum((samples - chosen[-1]) ** 2, axis=1, dtype=np.float64))
    return np.stack(chosen)


def _nearest(lines: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The nearest entry of each vector; the first of several that are equally near."""
    lengths = np.sum(table * table, axis=1) / 2
    places = np.empty(len(lines), np.int64)
    for first in range(0, len(lines), _AT_ONCE):
        part = lines[first : first + _AT_ONCE]
        places[first : first + _AT_ONCE] = np.argmax(part @ table.T - lengths, axis=1)
    return places
