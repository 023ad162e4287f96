"""The tasks of a layer: one, or several where a form needs a copy, a table or a turn in front of the work itself.

Every operand is staged in the engine's own memory behind what the task group keeps there: temporaries first, then the
first source, the second and the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from aneforge.codegen import banks
from aneforge.codegen.dialect import Dialect
from aneforge.codegen.forms import Form
from aneforge.codegen.hazards import region_of
from aneforge.codegen.plan import PIECE, Kernel, Scratch, Streams, TaskBuffer, TaskPlan
from aneforge.codegen.sharing import dealt_parts, shared_by_dealing
from aneforge.codegen.words import patch_of, sharing_of

_TURNED_SECOND = 0x200
_STRIP, _WIDE_PLANAR = 0x100, 0x400
"""Bytes of a row of one channel that the engine's memory holds at a time where a map is wider."""
_BUDGET = 0x1E0000
"""Bytes of a source that a MAC task holds at a time; a larger one is taken in tiles (U240)."""
_SCRATCH = 0x200000
"""Bytes of it; a copy leaves room for one row of its result."""
_ROWS_OF_WINDOWS = 8
_DEALT, _DEALT_FROM = 2048, 128
"""Numbers of a row of tiles where cores take rows of one channel, and the columns from which they do."""
_WIDEST_DEALT = 1024
"""Columns from which fewer cores take part, and rows that they then take at a time."""
_TILE_OF_NUMBERS = 16
"""Rows at a time of a map of one column that is turned."""
_NARROW_PATCH = 4
"""A reduction reads its rows as narrow patches do, however wide its map is."""
_OWN_MEMORY = 3
_PASS = 32
"""Rows that a planar task takes at a time where its rows do not fit."""


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


@dataclass(frozen=True)
class TaskSite:
    """What the tasks of a layer have in common."""

    dialect: Dialect
    cursor: int
    """Where scratch is free."""
    rate: float
    constants_bar: int | None
    reserve: Callable[[int], int]
    """Takes bytes of the program's own memory; gives where they begin."""


class TaskBuilder:
    """Builds the tasks of one layer, in order."""

    def __init__(self, site: TaskSite, number: int) -> None:
        self.site, self.number = site, number
        self.cursor = site.cursor
        self.plans: list[TaskPlan] = []

    # Places.

    def temporary(self, channels: int, height: int, width: int, planar_reader: bool = True) -> TaskBuffer:
        """A tensor between two tasks of the layer, in scratch."""
        channel = _up(2 * width, banks.BANK)
        line = channel * channels
        pad = banks.planar_pad(line, 4) if planar_reader and height > 1 else 0
        scratch = Scratch(self.cursor, channel, line + pad, line)
        self.cursor += scratch.row * height
        return TaskBuffer(channels, height, width, _up(2 * width, 64), 0, 0, scratch)

    def turned(self, rows: int, columns: int) -> TaskBuffer:
        """A turned matrix between two tasks: a channel for each column, an odd number of banks apart."""
        pitch = banks.turned_pitch(rows)
        line = pitch * columns
        scratch = Scratch(self.cursor, pitch, line, line)
        self.cursor += line
        return TaskBuffer(columns, 1, rows, _up(2 * rows, 64), _up(2 * rows, 64), _up(2 * rows, 64) * columns, scratch)

    def stays(self, source: TaskBuffer) -> TaskBuffer:
        """A tensor that a task brought into scratch, for the tasks behind it to read there."""
        self.cursor = max(self.cursor, source.scratch.base + source.scratch.row * source.height)
        return replace(source, bar=None, offset=0)

    def add(self, plan: TaskPlan) -> TaskPlan:
        """The task with its places in scratch."""
        plan = replace(
            plan,
            number=self.number + len(self.plans),
            rate=self.site.rate,
            constants_bar=self.site.constants_bar,
        )
        if plan.turns_numbers and plan.source.height > _TILE_OF_NUMBERS:
            plan = replace(plan, tile=_TILE_OF_NUMBERS)
        if self.site.dialect.spreads_rows and plan.engine == "mac":
            plan = self._dealt(plan)
        plan = self._planar_places(plan) if plan.engine == "planar" else self._mac_places(plan)
        if plan.has_kernel:
            plan = replace(plan, kernel_number=plan.number + 1)
        self.plans.append(plan)
        return plan

    def _dealt(self, plan: TaskPlan) -> TaskPlan:
        """A task of one channel whose cores take parts of it: the largest of all channels, a wide map that comes from
        memory, and a table of one column in scratch."""
        source, result = plan.source, plan.result
        if plan.operation == "largest" and result.in_memory:
            sharing = sharing_of(self.site.dialect, plan)
            return replace(plan, dealt=dealt_parts(sharing, result.height, result.width))
        if plan.operation != "bypass" or source.channels > 1 or plan.is_biased or plan.transposes_result:
            return plan
        if source.in_memory and source.width >= _DEALT_FROM and (plan.activation != "none" or not result.in_memory):
            columns = min(source.width, _STRIP)
            sharing = shared_by_dealing(columns, result.in_memory)
            rows = _DEALT // columns if result.in_memory else 1 << sharing.most
            if source.width > _WIDEST_DEALT:
                return replace(plan, tile=_WIDEST_DEALT, dealt=dealt_parts(sharing, 1, columns))
            return replace(plan, tile=rows, dealt=dealt_parts(sharing, rows, columns))
        if not source.in_memory and not result.in_memory and source.width == 1 and plan.activation != "none":
            return replace(plan, dealt=dealt_parts(sharing_of(self.site.dialect, plan), source.height, 1))
        return plan

    def _mac_places(self, plan: TaskPlan) -> TaskPlan:
        source, cursor = plan.source, self.cursor
        sharing = sharing_of(self.site.dialect, plan)
        is_cut = plan.is_cut and source.in_memory and plan.result.in_memory and plan.tile is None
        if source.in_memory:
            channel = _up(2 * source.width, banks.BANK)
            if source.height > 1 or plan.operation == "bypass" or plan.kernel_bar is not None:
                channel = min(channel, 2 * PIECE if plan.in_pieces else 2 * _STRIP if sum(plan.dealt) else _STRIP)
            line = channel * source.channels
            tile = self._tile(plan, line) if plan.tile is None else plan.tile
            if tile is not None:
                plan, pad = replace(plan, tile=tile), 0
            elif plan.kernel_bar is not None:
                pad = 0
            elif is_cut:
                pad, _ = banks.cut_pads(line, sharing.most)
            elif plan.source_stays and plan.operation != "convolution":
                pad = banks.stay_pad(line, plan.operation == "largest") if source.height > 1 else 0
            elif plan.operation == "convolution":
                pad = banks.convolution_pad(line, sharing.most, plan.kernel.stride[0])
            else:
                is_matrix = plan.transposes_result and source.height == 1
                pad = 0 if is_matrix else banks.copy_pad(line, sharing.most)
            source = replace(source, scratch=Scratch(cursor, channel, line + pad, line))
            rows = source.height
            if tile is not None:
                rows = (tile - 1) * plan.kernel.stride[0] + plan.kernel.height
            cursor += (line + pad) * rows
        result = plan.result
        if is_cut:
            line = _STRIP * result.channels
            pitch = line + banks.cut_pads(line, sharing.most)[1]
            result = replace(result, scratch=Scratch(cursor, _STRIP, pitch, line))
            plan = replace(plan, result_in_strides=True)
        elif result.in_memory and plan.result_goes_in_strides:
            pitch = _up(2 * result.width, banks.BANK)
            line = pitch * result.channels
            result, plan = (
                replace(result, scratch=Scratch(cursor, pitch, line, line)),
                replace(plan, result_in_strides=True),
            )
        elif result.in_memory:
            result = replace(result, scratch=_staged(result, cursor, _STRIP))
        return replace(plan, source=source, result=result)

    def memory(self, like: TaskBuffer, lanes: int) -> TaskBuffer:
        """A copy of a matrix in the program's own memory, some of its rows side by side."""
        step = 2 * lanes * like.width
        total = 2 * like.width * like.channels
        return replace(like, row=step, plane=step, total=total, bar=_OWN_MEMORY, offset=self.site.reserve(total))

    @property
    def overflows(self) -> bool:
        """Whether a tensor between tasks ends behind the engine's own memory."""
        return any(
            region_of(tensor)[1] > _SCRATCH
            for plan in self.plans
            for tensor in (plan.source, plan.second, plan.result)
            if tensor is not None and not tensor.in_memory
        )

    def fits(self, plan: TaskPlan) -> bool:
        """Whether the source of a MAC task lies in scratch as a whole."""
        placed = plan if not plan.source.in_memory else self._mac_places(plan)
        return placed.tile is None

    def _tile(self, plan: TaskPlan, line: int) -> int | None:
        """Rows of the result at a time; None for all. Of a window only a whole number of eight is known (U240)."""
        if plan.transposes_result:
            return None
        rows = _BUDGET // line if plan.operation != "bypass" else _SCRATCH // line - 1
        if rows >= plan.source.height:
            return None
        if plan.kernel.is_point and plan.kernel.stride == (1, 1):
            return rows
        tile = (rows - plan.kernel.height) // plan.kernel.stride[0] + 1
        return max(1, tile // _ROWS_OF_WINDOWS * _ROWS_OF_WINDOWS if tile > _ROWS_OF_WINDOWS else tile)

    def _planar_places(self, plan: TaskPlan) -> TaskPlan:
        patch = _NARROW_PATCH if plan.is_reduction else patch_of(self.site.dialect.generation, plan)[0]
        if 2 * plan.source.width > _WIDE_PLANAR and plan.source.height > _PASS:
            plan = replace(plan, tile=_PASS)
        source, second, result, cursor = plan.source, plan.second, plan.result, self.cursor
        widest = 2 * PIECE if plan.is_cut or plan.in_pieces else _WIDE_PLANAR
        rows = source.height if plan.tile is None else plan.tile
        if source.in_memory:
            place = self._planar_place(source, cursor, patch, widest)
            if plan.is_reduction and source.height == 1 and plan.source_stays:
                place = replace(place, row=place.depth)
            if plan.depth > 1:
                place = self._planar_place(replace(source, channels=plan.depth), cursor, patch, widest)
                place = replace(place, depth=place.channel, group=place.depth)
            source, cursor = replace(source, scratch=place), cursor + place.row * rows
        if second is not None and second.in_memory:
            if plan.is_vector:
                row = 2 * second.width
                place = Scratch(cursor, row, row, row)
                second, cursor = replace(second, scratch=place), cursor + row * second.height
            else:
                stretched = plan.mask & 0x10 and not plan.mask & 0x20
                start = cursor if stretched else banks.cleared(cursor)
                place = self._planar_place(second, start, patch, widest)
                second, cursor = replace(second, scratch=place), start + place.row * min(rows, second.height)
        if result.in_memory:
            result = replace(result, scratch=_staged(result, cursor, widest))
        if result.in_memory and (plan.is_cut or plan.in_pieces):
            plan = replace(plan, result_in_strides=True)
        elif result.in_memory and plan.result_in_strides:  # numbers of the channels, side by side
            pitch = _up(2 * result.channels, banks.BANK)
            result = replace(result, scratch=Scratch(cursor, pitch, pitch, pitch), plane=0)
        return replace(plan, source=source, second=second, result=result)

    def _planar_place(self, tensor: TaskBuffer, base: int, patch: int, widest: int) -> Scratch:
        channel = min(_up(2 * tensor.width, banks.BANK), widest if tensor.height > 1 else _WIDE_PLANAR)
        line = channel * tensor.channels
        return Scratch(base, channel, line + banks.planar_pad(line, patch), line)


def _staged(tensor: TaskBuffer, base: int, widest: int = _WIDE_PLANAR) -> Scratch:
    """Where a result lies on its way to memory."""
    channel = min(_up(2 * tensor.width, banks.BANK), widest)
    line = channel * tensor.channels
    return Scratch(base, channel, line, line)


def plain(form: Form, source: TaskBuffer, result: TaskBuffer, second: TaskBuffer | None = None) -> TaskPlan:
    """The task that does the work of a form, before it has places."""
    activation = form.activation if form.activation in ("none", "relu") else "table"
    return TaskPlan(
        0,
        0,
        form.engine,
        source,
        result,
        second,
        form.operation,
        form.kernel,
        activation=activation,
        table=form.activation if activation == "table" else "",
        has_bias=form.bias is not None,
        transposes_result=form.transposes,
        images=form.images,
        mask=form.mask,
        numbers=form.numbers,
        post_scale=form.post_scale,
        same_bias=form.same_bias,
        is_biased=form.operation == "bypass" and form.activation in _BIASED,
    )


_BIASED = ("r_sqrt", "invert", "log2")
"""Tables whose task adds the least epsilon that a half holds well to its source."""


def copy_of(source: TaskBuffer, result: TaskBuffer) -> TaskPlan:
    """A task of the MAC engine that brings a tensor into scratch."""
    return TaskPlan(0, 0, "mac", source, result, operation="bypass", kernel=Kernel())


def table_of(source: TaskBuffer, result: TaskBuffer, name: str, streams: Streams) -> TaskPlan:
    return TaskPlan(0, 0, "mac", source, result, operation="bypass", activation="table", table=name, streams=streams)
