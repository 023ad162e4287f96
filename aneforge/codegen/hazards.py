"""What tasks wait for, hand over and leave behind: everything about a task that depends on those around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aneforge.codegen.dialect import Dialect
from aneforge.codegen.plan import TaskBuffer, TaskPlan, Waits
from aneforge.codegen.stream import is_indexed

_SOURCE_OF_MAC, _RESULT_OF_MAC, _SOURCE_OF_PLANAR, _RESULT_OF_PLANAR = 0x10, 0x20, 0x100000, 0x400000
_BITS = {"mac": (_SOURCE_OF_MAC, _RESULT_OF_MAC), "planar": (_SOURCE_OF_PLANAR, _RESULT_OF_PLANAR)}
_FOLLOWS_MAC, _FOLLOWS_PLANAR, _SECOND_OVER_COLUMNS = 0x4, 0x8, 0x10
Region = tuple[int, int]


def region_of(buffer: TaskBuffer) -> Region:
    """Where a tensor lies in scratch."""
    place = buffer.scratch
    return place.base, place.base + max(place.row, place.depth) * buffer.height


def _staged(plan: TaskPlan) -> Region:
    """Where the result of a task lies in scratch; one with rows side by side is staged by two steps."""
    base, end = region_of(plan.result)
    return base, base + 2 * plan.result.row if plan.result_lanes > 1 else end


@dataclass(frozen=True)
class Ran:
    """What the last task of an engine had in scratch."""

    source: Region
    result: Region
    source_stays: bool
    hands_on: bool
    """Whether its result follows its source number by number, so that a reader need not wait for the whole."""


class Hazards:
    """Which earlier tasks use the places in scratch that a task reads and writes.

    Published programs set a bit for each engine's last source and result: a source that comes from memory, and a
    result, must wait for both of the other engine; a source that lies there waits for the task that made it. A MAC
    task that reads what the planar engine made number by number follows it, and so does a sum over what the MAC engine
    made (and, where a generation follows rows, a planar task of one row): other bits, without a wait for the whole.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.ran: dict[str, Ran] = {}
        """By engine; not of one whose end a task of the other has waited for."""
        self.followed: Region | None = None
        """What the MAC engine last made number by number, in place, and no planar task has read yet."""
        self.last = ""
        self.count = 0

    def waits(self, plan: TaskPlan) -> Waits:
        """The bits of a task, which then counts as the last one of its engine."""
        first = self.count == 0
        waits = Waits() if first else self._waits(plan)
        bits = waits.source | waits.second | waits.result
        other = "planar" if plan.engine == "mac" else "mac"
        if not first and bits & _BITS[other][0] | bits & _BITS[other][1]:
            self.ran.pop(other, None)  # waited for once, it has ended for all that follow
        is_bypass = plan.operation == "bypass" and not plan.transposes_result and not plan.source.in_memory
        follows = plan.engine == "planar" and not plan.is_reduction
        result = _staged(plan)
        self.ran[plan.engine] = Ran(region_of(plan.source), result, plan.source_stays, is_bypass or follows)
        ran = self.ran.get(other)
        if plan.engine == "planar":
            self.followed = None
            if bits & _FOLLOWS_MAC:
                self.ran.pop(other, None)
        elif is_bypass:
            self.followed = result if plan.source.height == 1 else None
            if ran is not None and ran.result == result:
                self.ran.pop(other)  # it lies there no more
        self.count += 1
        self.last = plan.engine
        return waits

    def _waits(self, plan: TaskPlan) -> Waits:
        source = self._of(plan, plan.source, plan.source.in_memory)
        second = 0 if plan.second is None else self._of(plan, plan.second, plan.second.in_memory)
        result = self._of(plan, plan.result, True)
        both = source = source | (0 if self.dialect.configures_second else second)
        for engine, (of_source, of_result) in _BITS.items():
            if both & (of_source | of_result) and engine != plan.engine:
                result &= ~(of_source | (both & of_result))  # the source has waited for it
        if both & _FOLLOWS_PLANAR:
            result &= ~(_SOURCE_OF_PLANAR | _RESULT_OF_PLANAR)
        if plan.engine == "mac" and plan.source.in_memory and not is_indexed(self.dialect.generation):
            source |= _SOURCE_OF_MAC | _RESULT_OF_MAC  # whatever it was
            result |= _SOURCE_OF_MAC | _RESULT_OF_MAC
        return Waits(source, second, result)

    def _of(self, plan: TaskPlan, buffer: TaskBuffer, is_written: bool) -> int:
        bits = 0
        place = region_of(buffer)
        if self.dialect.follows_rows and not is_written and plan.engine == "planar" and plan.whole.height == 1:
            followed = self._follows(plan, place)
            if followed:
                return followed
        engines = ("mac", "planar") if self.last == "mac" else ("planar", "mac")
        for engine in engines:
            ran = self.ran.get(engine)
            if ran is None or (bits and not is_written):  # what lies there is of the task that ran last
                continue
            of_source, of_result = _BITS[engine]
            if is_written and engine == plan.engine:
                continue
            if _overlap(place, ran.result):
                bits |= self._read(plan, engine, ran) if not is_written else of_result
            if is_written and _overlap(place, ran.source) and not (engine == "planar" and bits & of_result):
                bits |= of_source
            if not is_written and ran.source_stays and engine != plan.engine and place[0] == ran.source[0]:
                bits |= of_source
        return bits

    def _follows(self, plan: TaskPlan, place: Region) -> int:
        """The bits of a planar task of one row that follows a table of the MAC engine, or a sum of its own."""
        if self.followed is not None and _overlap(place, self.followed):
            return _FOLLOWS_MAC | (_RESULT_OF_PLANAR if plan.is_reduction else 0)
        own = self.ran.get("planar")
        is_sum = plan.behind_reduction and plan.operation == "mul"
        return _FOLLOWS_PLANAR if is_sum and own is not None and _overlap(place, own.result) else 0

    def _read(self, plan: TaskPlan, engine: str, ran: Ran) -> int:
        """The bits of a task that reads the last result of an engine in scratch."""
        if plan.engine == "mac" and ran.hands_on and (engine == "planar" or plan.operation == "total"):
            return _FOLLOWS_PLANAR if engine == "planar" else _FOLLOWS_MAC
        if plan.in_pieces:
            return _FOLLOWS_MAC
        numbers = plan.engine == "planar" and plan.mask & _SECOND_OVER_COLUMNS
        if numbers and engine == "mac" and ran.hands_on and self.dialect.cuts_reductions:
            return _FOLLOWS_MAC
        return _BITS[engine][1]


def _overlap(one: Region, other: Region) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def finished(plans: Sequence[TaskPlan], dialect: Dialect) -> list[TaskPlan]:
    """The plans of a program with what depends on the tasks around them."""
    hazards, last_use = Hazards(dialect), _last_uses(plans)
    alive: dict[int, Region] = {}
    done: list[TaskPlan] = []
    for place, bare in enumerate(plans):
        plan = replace(bare, behind_reduction=bool(done) and done[-1].is_reduction)
        behind = plans[place + 1] if place + 1 < len(plans) else None
        if not plan.result.in_memory:
            alive[plan.result.scratch.base] = region_of(plan.result)
        read = [region_of(tensor) for tensor in (plan.source, plan.second) if tensor and not tensor.in_memory]
        alive = {start: part for start, part in alive.items() if last_use.get(start, -1) > plan.number}
        done.append(
            replace(
                plan,
                count=len(plans),
                result_is_handed=not is_indexed(dialect.generation) and _hands_over(plan, behind, last_use),
                source_is_handed=bool(done) and done[-1].result_is_handed,
                waits=hazards.waits(plan),
                kept=(*alive.values(), *read),
            )
        )
    return done


def _last_uses(plans: Sequence[TaskPlan]) -> dict[int, int]:
    """By the place of a tensor in scratch: the last task that reads it there."""
    uses: dict[int, int] = {}
    for plan in plans:
        for tensor in (plan.source, plan.second):
            if tensor is not None and not tensor.in_memory:
                uses[tensor.scratch.base] = plan.number
    return uses


def _hands_over(plan: TaskPlan, behind: TaskPlan | None, last_use: dict[int, int]) -> bool:
    """Whether a task gives its result to the next one by the queue of memory (U243)."""
    if behind is None or not plan.is_first or not plan.engine == behind.engine == "mac" or not plan.source.in_memory:
        return False
    start = plan.result.scratch.base
    if plan.result.in_memory or behind.source.in_memory or behind.source.scratch.base != start:
        return False
    return last_use.get(start) == behind.number or behind.operation == "convolution"
