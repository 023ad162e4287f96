"""The banks of the on-chip memory: 64 of 16 bytes each (fusion.json ``bank``)."""

from __future__ import annotations

from math import gcd

__all__ = ["BANK_BYTES", "bank", "conflict_depth", "row_stride"]

BANK_BYTES = 16


def bank(address: int, banks: int = 64) -> int:
    """The bank that holds a byte."""
    return address // BANK_BYTES % banks


def conflict_depth(rows: int, stride: int, banks: int = 64) -> int:
    """How many of the first ``rows`` rows meet in one bank; one means no conflict."""
    distinct = banks // gcd(stride // BANK_BYTES, banks)
    return -(-rows // distinct)


def row_stride(row_bytes: int, rows: int, granule: int, banks: int = 64, widest: int | None = None) -> int:
    """The smallest stride with the fewest conflicts among the rows that are read side by side (U34).

    ``granule`` is the width granule of the chip, ``widest`` the bound of the search. An odd multiple of 16 bytes
    visits every bank, so the search ends after one step or is not needed at all.
    """
    step = max(granule, BANK_BYTES)
    stride = -(-row_bytes // step) * step
    side_by_side = min(rows, banks)
    best, depth = stride, conflict_depth(side_by_side, stride, banks)
    while depth > 1:
        stride += step
        if stride - best > banks * BANK_BYTES or (widest is not None and stride > widest):
            break
        conflicts = conflict_depth(side_by_side, stride, banks)
        if conflicts < depth:
            best, depth = stride, conflicts
    return best
