"""What tasks wait for, hand over and leave behind: everything about a task that depends on those around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aneforge.codegen.dialect import Dialect
from aneforge.codegen.plan import TaskBuffer, TaskPlan, Waits
from aneforge.codegen.stream import is_indexed

_SOURCE_OF_MAC, _RESULT_OF_MAC, _SOURCE_OF_PLANAR, _RESULT_OF_PLANAR = 0x10, 0x20, 0x100000, 0x400000
Region = tuple[int, int]


def region_of(buffer: TaskBuffer) -> Region:
    """Where a tensor lies in scratch."""
    place = buffer.scratch
    return place.base, place.base + max(place.row, place.depth) * buffer.height


@dataclass
class Ran:
    """What the last task of each engine had in scratch; None where no task of it ran."""

    mac: tuple[Region, Region] | None = None
    planar: tuple[Region, Region] | None = None


class Hazards:
    """Which earlier tasks use the places in scratch that a task reads and writes.

    Published programs set a bit for each engine's last source and result: a source that comes from memory, and a
    result, must wait for both of the other engine; a source that lies there waits for the task that made it.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.ran = Ran()
        self.last = ""
        self.count = 0

    def waits(self, plan: TaskPlan) -> Waits:
        """The bits of a task, which then counts as the last one of its engine."""
        first = self.count == 0
        waits = Waits() if first else self._waits(plan)
        regions = region_of(plan.source), region_of(plan.result)
        if plan.engine == "mac":
            self.ran.mac = regions
        else:
            self.ran.planar = regions
        self.count += 1
        self.last = plan.engine
        bits = waits.source | waits.second | waits.result
        if not first and plan.engine == "mac" and bits & (_SOURCE_OF_PLANAR | _RESULT_OF_PLANAR):
            self.ran.planar = None  # waited for once, it has ended for all that follow
        return waits

    def _waits(self, plan: TaskPlan) -> Waits:
        source = self._of(plan.source, plan.engine, plan.source.in_memory)
        second = 0 if plan.second is None else self._of(plan.second, plan.engine, plan.second.in_memory)
        result = self._of(plan.result, plan.engine, True)
        if source & (_SOURCE_OF_PLANAR | _RESULT_OF_PLANAR):
            result &= ~_SOURCE_OF_PLANAR  # the source has waited for it
        if not self.dialect.configures_second:
            source |= second
        if not is_indexed(self.dialect.generation) and self.ran.mac is None:
            unknown = _SOURCE_OF_MAC | _RESULT_OF_MAC
            source |= unknown if plan.source.in_memory else 0
            result |= unknown if plan.result.in_memory or plan.engine == "mac" else 0
        return Waits(source, second, result)

    def _of(self, buffer: TaskBuffer, engine: str, is_written: bool) -> int:
        bits = 0
        place = region_of(buffer)
        sides = (
            ("mac", self.ran.mac, _SOURCE_OF_MAC, _RESULT_OF_MAC),
            ("planar", self.ran.planar, _SOURCE_OF_PLANAR, _RESULT_OF_PLANAR),
        )
        for name, regions, of_source, of_result in sides if self.last == "mac" else sides[::-1]:
            if regions is None or (bits and not is_written):  # what lies there is of the task that ran last
                continue
            source, result = regions
            if is_written and name == engine:
                continue
            if _overlap(place, result):
                bits |= of_result
            if is_written and _overlap(place, source) and not (name == "planar" and bits & of_result):
                bits |= of_source
        return bits


def _overlap(one: Region, other: Region) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def finished(plans: Sequence[TaskPlan], dialect: Dialect) -> list[TaskPlan]:
    """The plans of a program with what depends on the tasks around them."""
    hazards, last_use = Hazards(dialect), _last_uses(plans)
    alive: dict[int, Region] = {}
    done: list[TaskPlan] = []
    for place, plan in enumerate(plans):
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
