"""Softmax and layer norms: several tasks that hand their values on in the engine's own memory.

What published programs have in common. Numbers that stand for a whole row or for all channels (the largest, the mean)
are small, and go first in scratch where the source stays there to be read again; where a copy of the source takes its
place, the large tensors go first. Powers of two are worked out in place. What comes from memory or goes there lies
behind what is in scratch at that time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aneforge.codegen import banks
from aneforge.codegen.building import TaskBuilder, copy_of, table_of
from aneforge.codegen.dialect import Dialect
from aneforge.codegen.forms import Form
from aneforge.codegen.plan import Scratch, Streams, TaskBuffer, TaskPlan
from aneforge.codegen.scratch_tensors import (
    cut_row,
    cuts,
    end_of,
    for_groups,
    in_scratch,
    numbers_of_rows,
    one_image,
    rows_for_channels,
    spread_rows,
    turned_copy,
    up,
)

_LOG2_E = 1.4426950408889634
_FIRST_OVER = {2: 0x8, 3: 0x2, 4: 0x1}
_SECOND_OVER = {2: 0x80, 3: 0x20, 4: 0x10}
"""The bits that stretch the first and the second source over an axis."""
_FIRST_TURNED, _SECOND_TURNED, _RESULT_TURNED = 0x100, 0x200, 0x400
_NARROW = 4


@dataclass(frozen=True)
class Tables:
    """The constants of a softmax: a table of powers of two, and one of reciprocals where the MAC engine adds up."""

    powers: Streams
    inverses: Streams


def needs_inverses(form: Form, dialect: Dialect) -> bool:
    """Whether a softmax takes its reciprocals from a table: where it adds up channels, and over columns where rows are
    reduced in pieces."""
    return form.axes != (4,) or (form.name == "softmax of columns" and dialect.cuts_reductions)


def softmax(builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer, tables: Tables) -> None:
    """The tasks of a softmax over channels, rows or columns."""
    if form.axes != (4,):
        _softmax_of_channels(builder, form.axes[0], source, result, tables)
    elif source.height == 1:
        _softmax_of_a_row(builder, source, result, tables)
    elif builder.site.dialect.cuts_reductions:
        _softmax_in_pieces(builder, source, result, tables)
    else:
        _softmax_of_columns(builder, source, result, tables)


def _softmax_of_channels(
    builder: TaskBuilder, axis: int, source: TaskBuffer, result: TaskBuffer, tables: Tables
) -> None:
    """The MAC engine goes over the channels; rows are read as channels by their strides."""
    start = builder.cursor
    whole = source if axis == 2 else rows_for_channels(source)
    small = in_scratch(start, 1, whole.height, whole.width)
    powers = in_scratch(end_of(small), *whole.extents)
    builder.cursor = end_of(powers)
    largest = small
    if whole.channels == 1:  # the only number of a channel is the largest
        largest, powers = whole, replace(powers, scratch=replace(powers.scratch, base=start))
        small = in_scratch(end_of(powers), 1, whole.height, whole.width)
        builder.cursor = end_of(powers)
    else:
        task = builder.add(replace(copy_of(whole, small), operation="largest", source_stays=whole.in_memory))
        whole = _staying(task.source)
    _powers(builder, whole, largest, powers, _SECOND_OVER[2], tables.powers)
    builder.cursor = max(end_of(small), end_of(powers))
    builder.add(replace(table_of(powers, small, "invert", tables.inverses), operation="total"))
    first, second = small, powers
    if axis == 3:
        first, second = _channels_for_rows(small), _channels_for_rows(powers)
    builder.add(_times(first, second, result, _FIRST_OVER[axis]))


def _softmax_of_a_row(builder: TaskBuilder, source: TaskBuffer, result: TaskBuffer, tables: Tables) -> None:
    """One row of each channel, which the planar engine reduces from where it lies."""
    small, turned = _row_numbers(builder, source, rows=1)
    powers = in_scratch(end_of(small), *source.extents)
    builder.cursor = end_of(powers)
    task = builder.add(_reduced(source, small, "reduce_max", turned))
    second = _SECOND_OVER[4] | (_SECOND_TURNED if turned else 0)
    _powers(builder, _staying(task.source), small, powers, second, tables.powers)
    builder.add(replace(_reduced(powers, small, "reduce_sum", turned), planar_table="invert"))
    builder.add(_times(small, powers, result, _FIRST_OVER[4] | (_FIRST_TURNED if turned else 0)))


def _softmax_of_columns(builder: TaskBuilder, source: TaskBuffer, result: TaskBuffer, tables: Tables) -> None:
    start = builder.cursor
    copy = _grouped(builder, start, source)
    powers = in_scratch(end_of(copy), *source.extents)
    small = numbers_of_rows(end_of(powers), source)
    builder.cursor = end_of(copy)
    builder.add(copy_of(source, copy))
    builder.add(_of_rows(copy, small, "reduce_max"))
    _powers(builder, copy, small, powers, _SECOND_OVER[4], tables.powers)
    inverse = numbers_of_rows(start, source)
    builder.add(replace(_of_rows(powers, inverse, "reduce_sum"), planar_table="invert"))
    builder.cursor = end_of(powers)
    builder.add(_times(inverse, powers, result, _FIRST_OVER[4]))


def _softmax_in_pieces(builder: TaskBuilder, source: TaskBuffer, result: TaskBuffer, tables: Tables) -> None:
    """Over columns, from A16 on: the sums go through a table, and the powers lie where rows can be cut."""
    start, dialect = builder.cursor, builder.site.dialect
    is_cut = cuts(dialect, source.width)
    copy = in_scratch(start, *source.extents, pad=0)
    copy = copy if is_cut else for_groups(dialect, copy)
    powers = replace(copy, scratch=replace(copy.scratch, base=end_of(copy)))
    reduced = spread_rows(in_scratch(end_of(powers), *source.extents, pad=0))
    largest = numbers_of_rows(end_of(reduced), source)
    builder.cursor = end_of(copy)
    builder.add(copy_of(source, copy))
    builder.add(_of_rows(copy, largest, "reduce_max", is_cut))
    minus = _minus(copy, largest, reduced, _SECOND_OVER[4])
    builder.add(replace(minus, numbers=(0.0, _LOG2_E)))
    builder.add(table_of(reduced, powers, "exp2", tables.powers))
    total = numbers_of_rows(reduced.scratch.base, source)
    inverse = in_scratch(end_of(total), source.channels, source.height, 1)
    builder.add(_of_rows(powers, total, "reduce_sum", is_cut))
    builder.add(table_of(total, inverse, "invert", tables.inverses))
    builder.cursor = end_of(inverse)
    builder.add(_times(powers, inverse, result, _SECOND_OVER[4]))


def _powers(
    builder: TaskBuilder, source: TaskBuffer, small: TaskBuffer, powers: TaskBuffer, mask: int, table: Streams
) -> None:
    """Two to the power of (x - largest) log2 e, the second task in place."""
    builder.add(replace(_minus(source, small, powers, mask), numbers=(0.0, _LOG2_E)))
    builder.add(table_of(powers, powers, "exp2", table))


def layer_norm(builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> None:
    """The tasks of a layer norm over channels or columns, or of all numbers of one row."""
    if form.axes == (2,):
        _norm_of_channels(builder, form, source, result)
    elif source.height == 1:
        _norm_of_a_row(builder, form, source, result)
    elif source.channels == 1 and source.in_memory and result.in_memory:
        _norm_of_a_row(builder, form, _rows_as_channels(source), _rows_as_channels(result))
    else:
        _norm_of_columns(builder, form, source, result)


def _norm_of_a_row(builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> None:
    mean, turned = _row_numbers(builder, source, rows=2)
    step = mean.scratch.row
    root = replace(mean, scratch=replace(mean.scratch, base=mean.scratch.base + step))
    builder.cursor += 2 * step
    count = source.width
    task = builder.add(replace(_reduced(source, mean, "reduce_avg", turned), mean_of=count))
    whole = _staying(task.source)
    squares = _reduced(mean, root, "reduce_squares", turned)
    mask = squares.mask | _FIRST_OVER[4] | (_FIRST_TURNED if turned else 0)
    builder.add(replace(squares, second=whole, mask=mask, mean_of=count, planar_table="r_sqrt", epsilon=form.epsilon))
    mask = (_SECOND_TURNED if turned else 0) | (_SECOND_OVER[2] if 2 in form.axes else 0)
    rows = replace(mean, height=2)
    builder.cursor = end_of(whole) if source.in_memory else builder.cursor
    builder.add(replace(_minus(whole, rows, result, mask), is_vector=True))


def _norm_of_columns(builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> None:
    start = builder.cursor
    centred = in_scratch(start, *source.extents)
    copy = _grouped(builder, end_of(centred), source)
    mean = numbers_of_rows(end_of(copy), source)
    builder.cursor = end_of(copy)
    builder.add(copy_of(source, copy))
    builder.add(replace(_of_rows(copy, mean, "reduce_avg"), mean_of=source.width))
    builder.add(_minus(copy, mean, centred, _SECOND_OVER[4]))
    root = numbers_of_rows(end_of(centred), source)
    builder.add(replace(_root(_of_rows(centred, root, "reduce_squares"), form), mean_of=source.width))
    builder.cursor = end_of(root)
    builder.add(_times(centred, root, result, _SECOND_OVER[4]))


def _norm_of_channels(builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> None:
    """Channels become columns for each of the two means."""
    start = builder.cursor
    channels, height, width = source.extents
    small = in_scratch(start, 1, height, width, pad=0)
    centred = in_scratch(up(end_of(small), 64), channels, height, width)
    first = turned_copy(up(end_of(small), 64), source)
    second = turned_copy(end_of(centred), source)
    builder.cursor = end_of(second)
    task = builder.add(replace(copy_of(source, first), transposes_result=True, source_stays=source.in_memory))
    builder.add(replace(_mean_of_turned(first, small, "reduce_avg"), mean_of=channels))
    builder.add(_minus(_staying(task.source), small, centred, _SECOND_OVER[2]))
    builder.add(replace(copy_of(centred, second), transposes_result=True))
    builder.add(replace(_root(_mean_of_turned(second, small, "reduce_squares"), form), mean_of=channels))
    builder.cursor = end_of(centred)
    builder.add(_times(centred, small, result, _SECOND_OVER[2]))


# Tasks of one kind.


def _minus(first: TaskBuffer, second: TaskBuffer, result: TaskBuffer, mask: int) -> TaskPlan:
    return TaskPlan(0, 0, "planar", first, result, second, "sub", mask=mask)


def _times(first: TaskBuffer, second: TaskBuffer, result: TaskBuffer, mask: int) -> TaskPlan:
    return TaskPlan(0, 0, "planar", first, result, second, "mul", mask=mask)


def _reduced(source: TaskBuffer, result: TaskBuffer, operation: str, turned: bool) -> TaskPlan:
    mask = _RESULT_TURNED if turned else 0
    plan = TaskPlan(0, 0, "planar", replace(source), result, operation=operation, mask=mask)
    return replace(plan, source_stays=source.in_memory)


def _of_rows(source: TaskBuffer, result: TaskBuffer, operation: str, is_cut: bool = False) -> TaskPlan:
    """Rows of one channel as channels; rows of several channels as images of one row."""
    if source.channels == 1:
        place, small = source.scratch, result.scratch
        rows = replace(source, channels=source.height, height=1)
        rows = replace(rows, scratch=Scratch(place.base, place.row, place.row * source.height, place.row))
        numbers = replace(result, channels=source.height, height=1)
        numbers = replace(numbers, scratch=Scratch(small.base, small.row, small.row, small.row))
        return TaskPlan(0, 0, "planar", cut_row(rows) if is_cut else rows, numbers, operation=operation)
    image = cut_row(one_image(source)) if is_cut else one_image(source)
    return TaskPlan(0, 0, "planar", image, one_image(result, source.height), operation=operation, images=source.height)


def _mean_of_turned(source: TaskBuffer, result: TaskBuffer, operation: str) -> TaskPlan:
    """Means of the rows of a turned tensor, a row of numbers for each of its images."""
    numbers = replace(result, channels=source.channels, width=1, scratch=replace(result.scratch, channel=0))
    if source.height > 1:
        plan = TaskPlan(0, 0, "planar", one_image(source), one_image(numbers, source.height), images=source.height)
    else:
        plan = TaskPlan(0, 0, "planar", source, numbers)
    return replace(plan, operation=operation, mask=_RESULT_TURNED)


def _root(plan: TaskPlan, form: Form) -> TaskPlan:
    """One through the root of a mean of squares."""
    return replace(plan, planar_table="r_sqrt", epsilon=form.epsilon)


# Places.


def _grouped(builder: TaskBuilder, base: int, like: TaskBuffer) -> TaskBuffer:
    """A copy whose rows are read one image each."""
    return for_groups(builder.site.dialect, in_scratch(base, *like.extents, pad=0))


def _row_numbers(builder: TaskBuilder, source: TaskBuffer, rows: int) -> tuple[TaskBuffer, bool]:
    """One number for each channel, and whether they lie side by side."""
    channels, start = source.channels, builder.cursor
    turned = channels > 1 and builder.site.dialect.turns_numbers
    line = up(2 * channels, banks.BANK) if turned else banks.BANK * channels
    channel = banks.BANK if not turned else 0
    pad = banks.planar_pad(line, _NARROW) if rows > 1 else 0
    return TaskBuffer(channels, 1, 1, 0, 0, 0, Scratch(start, channel, line + pad, line)), turned


def _staying(source: TaskBuffer) -> TaskBuffer:
    """A source where its first task left it."""
    return replace(source, bar=None, offset=0)


def _channels_for_rows(tensor: TaskBuffer) -> TaskBuffer:
    place = tensor.scratch
    return replace(
        tensor,
        channels=tensor.height,
        height=tensor.channels,
        scratch=Scratch(place.base, place.row, place.channel, place.row * tensor.height),
    )


def _rows_as_channels(tensor: TaskBuffer) -> TaskBuffer:
    """The rows of one channel in memory, which are read as channels."""
    return replace(tensor, channels=tensor.height, height=1, plane=tensor.row, row=tensor.plane, total=tensor.plane)
