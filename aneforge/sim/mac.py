"""The multiply-accumulate path, exact: fixed-point sums of rounded products (N03, N04, N11, N12, N14).

Every product is rounded half away from zero to 2^-16, or dropped when the exponents of its operands sum to -17 or
less. The accumulator starts at the bias, adds exactly, and stays infinite once its magnitude reaches 2^15. One
rounding, half away, gives the fp16 result.

``accumulate_plain`` is the NumPy form, whose bits any faster form must equal; ``accumulate`` uses the native one
(``aneforge.sim.native``) where it was built.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aneforge.sim.half import decoded, exponents, round_half

Array = np.ndarray
STEP = 2.0**-16
CEILING = 2.0**15
_DROPPED = -17
_UNITS = CEILING / STEP


@dataclass
class Sums:
    """Accumulators in units of 2^-16. ``lost`` has the infinity of those that left the range, and 0 for the others."""

    units: Array
    lost: Array

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.units + other.units, np.where(self.lost != 0, self.lost, other.lost))

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.units - other.units, np.where(self.lost != 0, self.lost, -other.lost))

    def settled(self) -> Array:
        """The fp16 results: one rounding, half away; a sum of zero is +0 (N33)."""
        from aneforge.sim import native

        return native.settled(self) if native.available() else self.settled_plain()

    def settled_plain(self) -> Array:
        """The same in NumPy."""
        units = np.where(np.abs(self.units) >= _UNITS, np.copysign(np.inf, self.units), self.units)
        rounded = round_half(units * STEP) + 0.0
        return np.where(self.lost != 0, self.lost, rounded).astype(np.float16)


def products(a: Array, b: Array, bias: Array | None = None, flush_subnormals: bool = False) -> Array:
    """``a @ b + bias`` for fp16 ``a`` [rows, depth] and ``b`` [depth, columns], as the engine gives it (fp16)."""
    from aneforge.sim import native

    if native.available():
        return native.products(a, b, bias, flush_subnormals)
    return accumulate_plain(a, b, bias, flush_subnormals).settled_plain()


def accumulate(a: Array, b: Array, bias: Array | None = None, flush_subnormals: bool = False) -> Sums:
    """The sums of a product before their last rounding.

    Terms are added in the order of the depth; that matters only for a sum that leaves the range on its way.
    """
    from aneforge.sim import native

    form = native.accumulate if native.available() else accumulate_plain
    return form(a, b, bias, flush_subnormals)


def accumulate_plain(a: Array, b: Array, bias: Array | None = None, flush_subnormals: bool = False) -> Sums:
    """The same in NumPy, term by term: the model of what the engine does."""
    sums = start_values(a.shape[0], b.shape[1], bias)
    total, lost = sums.units, sums.lost
    if total.size == 0:
        return sums
    left, right = decoded(a, flush_subnormals), decoded(b, flush_subnormals)
    ea, eb = exponents(a), exponents(b)
    watched = not _stays_inside(left / STEP, right, total)
    kept = ea.min(axis=0) + eb.min(axis=1) > _DROPPED  # no product of such a term is dropped
    for term in range(a.shape[1]):
        powers = None if kept[term] else ea[:, term, None] + eb[term]
        total += rounded_products(left[:, term, None], right[term], powers)
        if watched:
            fresh = (np.abs(total) >= _UNITS) & (lost == 0)
            lost[fresh] = np.copysign(np.inf, total[fresh])
    return Sums(total, lost)


def rounded_products(left: Array, right: Array, powers: Array | None = None) -> Array:
    """Products of decoded operands in units of 2^-16; ``powers`` are the sums of their exponents, where some may be
    dropped for them."""
    parts = _away(left * right / STEP)
    return parts if powers is None else np.where(powers <= _DROPPED, 0.0, parts)


def start_values(rows: int, columns: int, bias: Array | None) -> Sums:
    """Accumulators before the first term: the bias, which spreads over rows and columns as NumPy spreads it."""
    sums = Sums(np.zeros((rows, columns)), np.zeros((rows, columns)))
    if bias is not None:
        start = _away(decoded(bias) / STEP)
        sums.units += start
        sums.lost += np.where(np.abs(start) >= _UNITS, np.copysign(np.inf, start), 0.0)
    return sums


def _away(values: Array) -> Array:
    """Whole numbers, ties away from zero; exact below 2^52."""
    return np.trunc(values + np.copysign(0.5, values))


def _stays_inside(left: Array, right: Array, start: Array) -> bool:
    """Whether no partial sum can reach the ceiling, by the sum of all magnitudes with room for every rounding."""
    most = np.abs(start).max(initial=0.0) + 0.5 * left.shape[1]
    rows, columns = np.abs(left).max(axis=0), np.abs(right).max(axis=1)
    return bool(most + float(rows @ columns) < _UNITS)


# The M1's four-lane tiles: beside a term of 4096 or more, three others are added in fp16 (N02, N08, N09, C18, U45).


LANES = 4
LOSSY_FROM = 4096.0


def products_in_tiles(a: Array, b: Array, bias: Array | None = None, flush_subnormals: bool = False) -> Array:
    """``a @ b + bias`` where tiles that reach 4096 add their terms in fp16."""
    lossy = _lossy_terms(a, b)
    if not lossy.any():
        return products(a, b, bias, flush_subnormals)
    sums = accumulate(a[:, ~lossy], b[~lossy], bias, flush_subnormals)
    for first in np.flatnonzero(lossy[::LANES]).tolist():
        terms = slice(LANES * first, LANES * (first + 1))
        _add_tile(sums, a[:, terms], b[terms], flush_subnormals)
    return sums.settled()


def _lossy_terms(a: Array, b: Array) -> Array:
    """The terms of every tile whose partial sums could reach 4096."""
    depth = a.shape[1]
    if _peak(a) * _peak(b) * LANES < LOSSY_FROM:
        return np.zeros(depth, bool)
    most = _largest(a, 0) * _largest(b, 1)
    tiles = np.add.reduceat(most, np.arange(0, depth, LANES)) if depth else most
    return np.repeat(tiles >= LOSSY_FROM, LANES)[:depth]


def _peak(halves: Array) -> float:
    """The largest magnitude of all. The bits of positive and of negative numbers are compared separately."""
    if halves.size == 0:
        return 0.0
    bits = max(int(halves.view(np.int16).max()), int(halves.view(np.uint16).max()) & 0x7FFF)
    return float(decoded(np.array([bits], np.uint16).view(np.float16))[0])


def _largest(halves: Array, axis: int) -> Array:
    """The largest magnitude along an axis, found in the bits, which have the same order as the magnitudes."""
    bits = (halves.view(np.uint16) & 0x7FFF).max(axis=axis, initial=0)
    return np.abs(decoded(bits.astype(np.uint16).view(np.float16)))


def _add_tile(sums: Sums, a: Array, b: Array, flush_subnormals: bool) -> None:
    """One tile: exact, or in fp16 where a term or a partial sum reaches 4096. A partial sum at 2^15 stays infinite."""
    left, right = decoded(a, flush_subnormals), decoded(b, flush_subnormals)
    ea, eb = exponents(a), exponents(b)
    exact = narrow = np.zeros(sums.units.shape)
    reached = np.zeros(exact.shape, bool)
    for term in range(a.shape[1]):
        part = rounded_products(left[:, term, None], right[term], ea[:, term, None] + eb[term]) * STEP
        exact, narrow = exact + part, round_half(narrow + part)
        reached |= (np.abs(part) >= LOSSY_FROM) | (np.abs(exact) >= LOSSY_FROM)
        total = sums.units * STEP + np.where(reached, narrow, exact)
        fresh = (np.abs(total) >= CEILING) & (sums.lost == 0)
        sums.lost[fresh] = np.copysign(np.inf, total[fresh])
    with np.errstate(invalid="ignore"):
        sums.units += np.where(reached, np.where(np.isfinite(narrow), narrow, 0.0), exact) / STEP
