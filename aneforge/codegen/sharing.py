"""How the work of a MAC task is spread: output channels side by side, cores in use, rows that cores share.

The rules are those of the third collection of published programs; what differs between generations is in
``task_words.json``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from aneforge.codegen.dialect import Dialect
from aneforge.codegen.plan import TaskBuffer, TaskPlan

CORES = 16
_MOST_SHARED, _MOST_TURNED, _COLUMNS_LOG = 4, 3, 7
_NARROW = 8
_MOST_ACROSS, _MOST_DOWN = 1, 3
"""The logs of how many parts of one channel cores take side by side, and below each other."""
_GROUPED = 64
"""Input channels of a group from which a window's rows are shared at least as often as at most."""


@dataclass(frozen=True)
class Sharing:
    """Rows that cores share, as logs: the most, the least and the preferred number."""

    most: int = 0
    least: int = 0
    preferred: int = 0
    is_small: bool = False
    """Whether the whole map is small: the mode of up to eight columns."""


def log_of(value: int) -> int:
    """The log of a number, rounded up to a whole one."""
    return ceil(log2(value)) if value > 1 else 0


def active_cores(outputs: int) -> int:
    """The log of the cores in use."""
    return log_of(min(CORES, max(outputs, 1)))


def _by_columns(columns: int) -> int:
    return max(0, min(_MOST_SHARED, _COLUMNS_LOG - log_of(columns)))


def shared_by_convolution(
    dialect: Dialect, channels: int, rows: int, columns: int, window: tuple[int, int], is_depthwise: bool
) -> Sharing:
    """Of a convolution with ``channels`` inputs a group, by the extents of its result."""
    is_point = window == (1, 1)
    is_small = columns <= _NARROW or rows * columns <= (dialect.small_pixels or 0)
    most = _by_columns(columns)
    if is_small and is_point and dialect.narrow_product is not None and rows == 1 and columns <= _NARROW:
        return Sharing(1, 1, 1, True)
    if is_small and not (is_point and dialect.points_share_rows):
        return Sharing(_MOST_SHARED, _MOST_SHARED, _MOST_SHARED, True)
    most = min(most, log_of(rows)) if is_point else most
    if is_small:
        return Sharing(most, most, most, True)
    repeats = not is_point and not is_depthwise and columns <= dialect.repeated_columns * (channels // _GROUPED)
    return Sharing(most, most, most) if repeats else Sharing(most)


def shared_by_product(dialect: Dialect, rows: int, columns: int) -> Sharing:
    """Of a product whose kernel is a tensor."""
    return Sharing(is_small=rows * columns <= (dialect.small_pixels or 0))


def shared_by_copy(channels: int, rows: int, columns: int) -> Sharing:
    """Of a table or a copy by the MAC engine: no more rows than a core has of all its channels together."""
    if rows == 1:
        return Sharing()
    return Sharing(min(_by_columns(columns), log_of(rows * max(1, channels // CORES))))


def shared_by_pieces(columns: int) -> Sharing:
    """Of a map whose rows are taken in pieces: the widest piece that leaves as little empty as any."""

    def filled(most: int) -> int:
        piece = 1 << _COLUMNS_LOG - most
        return -(-columns // piece) * piece

    return Sharing(min(range(_MOST_SHARED + 1), key=filled))


def shared_by_dealing(columns: int, to_memory: bool) -> Sharing:
    """Of a task whose cores take parts of one channel: two parts lie side by side in a row."""
    most = max(0, _COLUMNS_LOG + 1 - log_of(columns))
    return Sharing(most) if to_memory else Sharing(most, most, most)


def dealt_parts(sharing: Sharing, rows: int, columns: int) -> tuple[int, int]:
    """The logs of how many parts of one channel cores take side by side and below each other. A part is 128 numbers,
    as many rows as cores share."""
    part = 1 << _COLUMNS_LOG - sharing.most
    across, down = log_of(-(-columns // part)), log_of(-(-rows // (1 << sharing.most)))
    return min(across, _MOST_ACROSS), min(down, _MOST_DOWN)


def shared_across_channels(dialect: Dialect, plan: TaskPlan, is_total: bool) -> Sharing:
    """Of the largest or the total of all channels."""
    rows, columns = plan.result.height, plan.result.width
    most = min(_MOST_SHARED, max(0, _COLUMNS_LOG + 1 - log_of(columns))) if rows > 1 else 0
    if plan.result.in_memory:
        return Sharing(most)
    pixels = rows * columns
    is_small = pixels <= (dialect.small_pixels or 0) or (columns <= _NARROW and pixels <= _NARROW * _NARROW)
    return Sharing(most, most, most, is_total and is_small)


def shared_in_scratch(rows: int, columns: int) -> Sharing:
    """Of a table or a copy whose source lies in scratch."""
    most = min(_MOST_SHARED, _by_columns(columns) + log_of(rows))
    return Sharing(most, most, most)


def turning_lanes(dialect: Dialect, rows: int) -> int:
    """Rows that a core turns side by side where a matrix of ``rows`` rows is turned."""
    if not dialect.turns_in_lanes:
        return 1
    return min(8, 1 << max(0, (rows // CORES).bit_length() - 1))


def shared_by_turn(dialect: Dialect, source: TaskBuffer, to_lanes: bool = False) -> Sharing:
    """Of a task that turns a matrix or a map: channels to columns, which may lie several side by side."""
    channels, rows, columns = source.extents
    lanes = turning_lanes(dialect, channels)
    if rows > 1:
        most = shared_by_copy(channels, rows, columns).most
        least = min(_MOST_TURNED, _MOST_SHARED - log_of(lanes))
        return Sharing(_MOST_SHARED) if columns == 1 else Sharing(most, least, least)
    if lanes == 1:
        is_shared = to_lanes or (channels < CORES and (channels > 1 or dialect.one_row_turns_share))
        most = _MOST_TURNED if is_shared else 0
    else:
        most = _MOST_SHARED - log_of(lanes)
    return Sharing(most, min(most, _by_columns(columns)), most)
