"""The header of a task: its place in the program, what it waits for, and how long the vendor's compiler expects it to
take."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from aneforge.codegen.dialect import Dialect
from aneforge.codegen.plan import TaskPlan
from aneforge.codegen.sharing import CORES, active_cores
from aneforge.codegen.stream import is_indexed
from aneforge.codegen.tasks import header_values

_SCRATCH_BAR, _CONSTANT_BAR = 3, 1
_COMPLETE, _ON_CHIP_HANDED = 0x9000, 0x4000
_FROM_MEMORY, _FROM_HANDED, _TO_MEMORY, _ALL_FROM_MEMORY = 0x10000000, 0x2000, 0x20000000, 0x800
_TENSOR_KERNEL, _REDUCES = 0x01000000, 0x100
_ENGINE, _BASE_USED = 24, 0x20
_TABLE_RATE = 34.239
"""Bytes of scratch a nanosecond that a table reads."""
_NS_OF_ROW, _NS_OF_NUMBER = 2.0, 0.0455
"""Of a reduction that takes a row at a time: what fits five published programs; others would, too (U271)."""
_LINE = 1 << 16
"""Bytes of on-chip memory that a bit of the header stands for, from h14 on."""


@dataclass(frozen=True)
class Following:
    """Where the next task of a chain lies, and how many words it has."""

    place: int = 0
    words: int = 1


def header_of(plan: TaskPlan, dialect: Dialect, body: int, following: Following) -> list[int]:
    """The words of a header. ``body`` is how many words of commands follow it."""
    generation = dialect.generation
    planar = plan.engine == "planar"
    cores = 0 if planar else 1 + (sum(plan.dealt) or active_cores(plan.outputs))
    waits = plan.kernel_task is not None
    words = {"TID": plan.number, "ExeCycles": cycles(plan, dialect), "TSR": 1, "ENE": cores, "TDE": int(waits)}
    if is_indexed(generation):
        header = header_values(generation, words)
        header[0] |= (len(header) + waits + body) << 16
        header[-2] |= _needed(plan)
        header[-1] |= dialect.result_mark if plan.result.in_memory and plan.is_last else 0
    else:
        header = header_values(generation, words | _chain(plan, following))
        header[6] = _moves(plan)
        header[8] = _bases(plan) | cores << _ENGINE | (0 if plan.is_last else 1 << 23)
        bar = _CONSTANT_BAR if plan.kernel_bar is None else plan.kernel_bar
        header[9] = bar | _BASE_USED if plan.has_kernel else 0
    place = "single" if plan.count == 1 else "first" if plan.is_first else "last" if plan.is_last else "middle"
    events, flags = dialect.events, dialect.flags
    which = ("single", "first", "middle", "last").index(place)
    header[2] = events[which]
    header[4] = flags[which] | _engine_flags(plan, dialect)
    return header if plan.kernel_task is None else [*header, plan.kernel_task]


def _engine_flags(plan: TaskPlan, dialect: Dialect) -> int:
    """Nothing for a copy or a turn by the MAC engine."""
    if plan.engine == "mac" and plan.operation == "bypass" and plan.activation == "none":
        return 0
    if plan.table in dialect.waiting_tables and plan.source.channels > 1:
        return dialect.flags_of_waiting_table
    return 0xFFF800


def _chain(plan: TaskPlan, following: Following) -> dict[str, int]:
    return {
        "LNID": int(not plan.is_first),
        "EON": int(plan.is_last),
        "NextSize": following.words - 1,
        "NextPointer": following.place,
    }


def _moves(plan: TaskPlan) -> int:
    """What a task of h13 reads from memory and writes to it."""
    word = 0
    resident = [tensor for tensor in (plan.source, plan.second) if tensor is not None and not tensor.in_memory]
    if plan.source.in_memory or (plan.second is not None and plan.second.in_memory):
        word |= _FROM_MEMORY | (0 if resident else _ALL_FROM_MEMORY)
    elif plan.source_is_handed:
        word |= _FROM_HANDED | _ALL_FROM_MEMORY
    if plan.result.in_memory:
        word |= _TO_MEMORY
    if plan.is_last or plan.result_is_awaited:
        word |= _COMPLETE
    if plan.kernel_task is not None:
        word |= _TENSOR_KERNEL
    if plan.is_reduction:
        word |= _REDUCES
    if plan.result_is_handed:
        word |= _COMPLETE | _ON_CHIP_HANDED
    return word


def _bases(plan: TaskPlan) -> int:
    """The base-address registers of a task of h13: first source, second source, result."""
    word = 0
    sides = (
        (plan.source, plan.source_is_handed),
        (plan.second, False),
        (plan.result, plan.result_is_handed),
    )
    for place, (tensor, is_handed) in enumerate(sides):
        if tensor is None or not (tensor.in_memory or is_handed):
            continue
        bar = _SCRATCH_BAR if tensor.bar is None else tensor.bar
        word |= (bar | _BASE_USED) << 6 * place
    return word


def _needed(plan: TaskPlan) -> int:
    """The parts of the on-chip memory that are still needed behind the task."""
    if plan.is_last:
        return 0
    word = 0
    for start, end in plan.kept:
        for part in range(start // _LINE, -(-end // _LINE)):
            word |= 1 << part
    return word


def cycles(plan: TaskPlan, dialect: Dialect) -> int:
    """Microseconds that the vendor's compiler expects: the longest of moving memory, reading channels of one number
    each, and multiplying."""
    times = [plan.memory_bytes / plan.rate]
    sources = [tensor for tensor in (plan.source, plan.second) if tensor is not None and tensor.in_memory]
    if plan.operation != "convolution" and plan.source.extents[1:] == (1, 1):
        times.append(sum(tensor.total for tensor in sources) / dialect.flat_rate)
    if plan.operation == "convolution" and dialect.products_rate and not plan.kernel.is_depthwise:
        window = plan.kernel.height * plan.kernel.width
        times.append(prod(plan.result.extents) * plan.source.channels * window / dialect.products_rate / CORES)
    if plan.is_biased and dialect.biased_rate and plan.source.in_memory:
        times.append(plan.source.total / dialect.biased_rate)
    if plan.operation == "bypass" and plan.activation != "none" and not plan.source.in_memory:
        times.append(plan.source.scratch.row * plan.source.height / _TABLE_RATE)
    if plan.is_reduction and plan.whole.height == 1:
        rows = plan.images * plan.whole.channels
        times.append(rows * (_NS_OF_ROW + _NS_OF_NUMBER * plan.whole.width))
    return int(max(times) / 1000)
