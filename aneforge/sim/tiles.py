"""The M1's four-lane tiles: beside a term of 4096 or more, three others are added in fp16 (N02, N08, N09, C18, U45).

Nearly all products have no such term and are computed by ``aneforge.sim.mac``. The others are split: tiles that can
reach 4096, by a bound over all rows and columns, are computed here one by one, and the rest there.
"""

from __future__ import annotations

import numpy as np

from aneforge.sim.half import decoded, exponents, round_half
from aneforge.sim.mac import CEILING, STEP, Sums, accumulate, products, rounded_products

Array = np.ndarray
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
