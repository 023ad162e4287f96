"""Sums, means and extremes over axes: one task where an engine reads the axes where they lie, with turns elsewhere."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from aneforge.codegen.building import TaskBuilder, copy_of, plain
from aneforge.codegen.forms import Form
from aneforge.codegen.plan import Scratch, TaskBuffer, TaskPlan
from aneforge.codegen.scratch_tensors import (
    cut_row,
    cuts,
    end_of,
    in_scratch,
    one_image,
    rows_for_channels,
    turned_copy,
)

_RESULT_TURNED = 0x400


def reduction(builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> None:
    """The tasks of a reduction."""
    count = prod(before for before, after in zip(source.extents, result.extents, strict=True) if before != after)
    is_map = source.extents[1:] != (1, 1)
    if form.axes == (3,):
        _of_rows(builder, form, source, result, count)
    elif form.axes == (2,) and is_map and form.operation == "reduce_max":
        builder.add(replace(copy_of(source, result), operation="largest"))
    elif form.axes == (2,) and is_map:
        _of_channels(builder, form, source, result, count)
    else:
        plan = _one_task(form, source, result, count)
        is_row = form.axes == (4,) and not source.in_memory and plan.source.height == 1
        cut = is_row and cuts(builder.site.dialect, source.width)
        builder.add(replace(plan, source=cut_row(plan.source)) if cut else plan)


def _of_channels(builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer, count: int) -> None:
    """Channels become columns; a row of numbers for each row of the map comes out."""
    turned = turned_copy(builder.cursor, source, spread=not cuts(builder.site.dialect, source.channels))
    builder.cursor = end_of(turned)
    builder.add(replace(copy_of(source, turned), transposes_result=True))
    numbers = replace(result, channels=turned.channels, width=1, height=turned.height)
    whole, images = turned, 1
    if turned.height > 1:
        whole, numbers, images = one_image(turned), _image_of(numbers), turned.height
    if cuts(builder.site.dialect, whole.width):
        whole = cut_row(whole)
    plan = replace(plain(form, whole, numbers), images=images, mask=_RESULT_TURNED, mean_of=count)
    builder.add(replace(plan, result_in_strides=result.in_memory))


def _of_rows(builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer, count: int) -> None:
    """Rows become columns, and what comes out is turned back: the channels are rows on the way."""
    channels, _, width = source.extents
    start = builder.cursor
    turned = turned_copy(start, rows_for_channels(source))
    builder.cursor = end_of(turned)
    builder.add(replace(copy_of(rows_for_channels(source), turned), transposes_result=True))
    small = in_scratch(end_of(turned), channels, width, 1, pad=0)
    place = turned.scratch
    rows = replace(turned, channels=channels, height=1)
    rows = replace(rows, scratch=Scratch(place.base, place.row, place.row * channels, place.row, place.channel))
    plan = plain(form, rows, one_image(small, width))
    builder.add(replace(plan, images=width, mean_of=count))
    builder.cursor = end_of(small)
    place = small.scratch
    back = replace(small, channels=width, height=channels, scratch=Scratch(place.base, place.row, place.channel, 0))
    whole = replace(result, channels=1, height=channels, row=result.plane, plane=result.total)
    if not result.in_memory:
        place = result.scratch
        whole = replace(whole, scratch=Scratch(place.base, place.row, place.channel, place.row))
    builder.add(replace(copy_of(back, whole), transposes_result=True))


def _image_of(tensor: TaskBuffer) -> TaskBuffer:
    """One image of a result whose images are its rows."""
    if not tensor.in_memory:
        return one_image(tensor, tensor.height)
    return replace(tensor, height=1, total=tensor.row)


def _one_task(form: Form, source: TaskBuffer, result: TaskBuffer, count: int) -> TaskPlan:
    """One planar task. Rows of one channel count as channels, rows of several channels as images, channels of one
    number each as rows; the result has the layout of what was read."""
    images = 1
    if form.axes == (2, 3, 4):
        depth, step = source.height, source.row
        rows = replace(source, channels=1, height=source.channels, row=source.plane)
        return replace(plain(form, rows, result), mean_of=count, depth=depth, depth_step=step)
    if form.axes == (2,):
        source, result = (_as_rows(tensor) for tensor in (source, result))
    elif form.axes == (4,) and source.height > 1:
        if source.channels == 1:
            source, result = (_rows_as_channels(tensor) for tensor in (source, result))
        else:
            images = source.height
            source, result = (_one_row(tensor) for tensor in (source, result))
    return replace(plain(form, source, result), images=images, mean_of=count)


def _as_rows(tensor: TaskBuffer) -> TaskBuffer:
    return replace(tensor, channels=1, height=tensor.channels, row=tensor.plane, plane=tensor.total)


def _rows_as_channels(tensor: TaskBuffer) -> TaskBuffer:
    return replace(tensor, channels=tensor.height, height=1, plane=tensor.row, total=tensor.row * tensor.height)


def _one_row(tensor: TaskBuffer) -> TaskBuffer:
    return replace(tensor, height=1, total=tensor.row)
