"""Rows of the engine's own memory: how far they lie apart, so that rows read together fall on different banks.

A bank is 16 bytes wide and banks repeat after 64 of them. A task reads several rows at once; a row is made longer by
the smallest multiple of 16 bytes that keeps those rows a given number of banks apart, either way round. How many rows
and how far apart depends on the work (``task_words.json`` spread).
"""

from __future__ import annotations

from itertools import pairwise

BANK, BANKS = 16, 64
PERIOD = BANK * BANKS
_ROWS_OF_MAC, _ROWS_OF_PLANAR, _ROWS_OF_LARGEST = 8, 4, 16
_OF_CONVOLUTION = {2: 5, 3: 3, 4: 3}
_OF_COPY = {2: 5, 3: 3, 4: 2}
_OF_PLANAR = 2
_OF_CUT, _APART = 5, 8
_WIDEST_SPREAD_PATCH = 5
"""The log of the widest patch of a planar task whose rows are spread: 32 columns."""
_CLEAR = 0x40
"""How far a second source begins from a multiple of the period."""


def pad_of(line: int, rows: int, distance: int, step: int = 1) -> int:
    """What a row of ``line`` bytes is made longer by, so that ``rows`` rows, ``step`` apart, lie ``distance`` banks
    from each other; 0 where no pad does."""
    if not distance:
        return 0
    for pad in range(0, PERIOD, BANK):
        places = sorted(row * step * (line + pad) // BANK % BANKS for row in range(rows))
        gaps = [after - before for before, after in pairwise(places)]
        if min([*gaps, places[0] + BANKS - places[-1]]) >= distance:
            return pad
    return 0


def convolution_pad(line: int, shared: int, step: int) -> int:
    return pad_of(line, _ROWS_OF_MAC, _OF_CONVOLUTION.get(shared, 0), step)


def copy_pad(line: int, shared: int) -> int:
    """Of a table, or of a copy by the MAC engine."""
    return pad_of(line, _ROWS_OF_MAC, _OF_COPY.get(shared, 0))


def cut_pads(line: int, shared: int) -> tuple[int, int]:
    """Of a source and a result of the MAC engine whose rows are taken in pieces: rows of the result lie eight banks
    from the next, and as many rows as cores share lie apart from each other."""
    rows = 1 << shared
    pads = (pad for pad in range(0, PERIOD, BANK) if not pad_of(line + pad, 2, _APART))
    behind = next((pad for pad in pads if not pad_of(line + pad, rows, 2)), 0)
    return pad_of(line, _ROWS_OF_MAC, _OF_CUT), behind


def planar_pad(line: int, patch: int) -> int:
    """``patch`` is the log of the columns that a planar task takes at once."""
    return pad_of(line, _ROWS_OF_PLANAR, _OF_PLANAR if patch <= _WIDEST_SPREAD_PATCH else 0)


def stay_pad(line: int, across_channels: bool) -> int:
    """Of a source that a task of each engine reads: the MAC engine's goes over all channels of 16 rows, or turns."""
    pads = (pad for pad in range(0, PERIOD, BANK) if not pad_of(line + pad, _ROWS_OF_PLANAR, _OF_PLANAR))
    return next((pad for pad in pads if not across_channels or not pad_of(line + pad, _ROWS_OF_LARGEST, 1)), 0)


def cleared(place: int) -> int:
    """Where a second source goes that would begin at ``place``: on, until it is clear of a multiple of the period."""
    while min(place % PERIOD, PERIOD - place % PERIOD) < _CLEAR:
        place += BANK
    return place


def turned_pitch(columns: int) -> int:
    """Bytes from one row of a turned matrix to the next: an odd number of banks."""
    pitch = -(-2 * columns // BANK) * BANK
    return pitch if pitch // BANK % 2 else pitch + BANK
