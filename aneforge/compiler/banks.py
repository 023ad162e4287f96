"""The banks of the on-chip memory: 64 of 16 bytes each (fusion.json ``bank``)."""

from __future__ import annotations

from math import gcd

BANK_BYTES = 16
_MOVED_ON = 2 * BANK_BYTES


def bank(address: int, banks: int = 64) -> int:
    """The bank that holds a byte."""
    return address // BANK_BYTES % banks


def conflict_depth(rows: int, stride: int, banks: int = 64) -> int:
    """How many of the first ``rows`` rows meet in one bank; one means no conflict."""
    distinct = banks // gcd(stride // BANK_BYTES, banks)
    return -(-rows // distinct)


def spread_rows(row_bytes: int, rows: int, banks: int = 64, moved_on: int = _MOVED_ON) -> int:
    """Bytes from one row to the next: neighbouring rows that would begin on the same bank are moved on (U34)."""
    return row_bytes + moved_on if rows > 1 and conflict_depth(2, row_bytes, banks) > 1 else row_bytes
