"""The words of a task about the engine's own memory: where its operands lie there, and what they wait for."""

from __future__ import annotations

from aneforge.codegen.plan import TaskBuffer, TaskPlan
from aneforge.codegen.task_words import TaskWords

_INTERLEAVED = 0x100
_KEPT, _FROM_MEMORY, _TO_MEMORY, _IN_MEMORY_FORMAT, _TWO = 0x1, 0x2, 0xA, 0x40, 0x01000000
_LARGEST = 0x4


def put_scratch(words: TaskWords, plan: TaskPlan) -> None:
    """Everything about scratch."""
    _configure(words, plan)
    for side, tensor in (("source", plan.source), ("second", plan.second)):
        if tensor is not None:
            _operand(words, side, tensor)
    _result(words, plan)
    if plan.operation in ("reduce_max", "largest"):
        words.put("scratch.config", _LARGEST)


def _configure(words: TaskWords, plan: TaskPlan) -> None:
    dialect, source, second = words.dialect, plan.source, plan.second
    two = second is not None and second.in_memory and source.in_memory
    config = _INTERLEAVED | plan.waits.source
    if source.in_memory:
        config |= (
            (_KEPT if plan.source_stays else _FROM_MEMORY)
            | _IN_MEMORY_FORMAT
            | (_TWO if two and dialect.marks_two_sources else 0)
        )
    elif plan.source_is_handed:
        config |= _IN_MEMORY_FORMAT
    _put_config(words, "source", config)
    if dialect.configures_second:
        beside = _INTERLEAVED | plan.waits.second
        if second is not None and second.in_memory:
            beside |= _FROM_MEMORY | _IN_MEMORY_FORMAT
        _put_config(words, "second", beside)
    outcome = _INTERLEAVED * plan.result_lanes | plan.waits.result
    if plan.result.in_memory:
        outcome |= (_FROM_MEMORY if plan.result_in_strides else _TO_MEMORY) | _IN_MEMORY_FORMAT
    elif dialect.writes_every_register or plan.engine == "mac":
        outcome |= _IN_MEMORY_FORMAT
    _put_config(words, "result", outcome)


def _put_config(words: TaskWords, side: str, value: int) -> None:
    if words.dialect.writes_every_register or value != _INTERLEAVED:
        words.put(f"scratch.{side}.config", value)


def _operand(words: TaskWords, side: str, tensor: TaskBuffer) -> None:
    """Of what lies there already, later generations write the strides of axes with several elements only."""
    place, in_full = tensor.scratch, words.dialect.writes_every_register
    every = tensor.in_memory or in_full
    if place.base or in_full:
        words.put(f"scratch.{side}.base", place.base)
    if in_full or ((every or tensor.channels > 1) and place.channel):
        words.put(f"scratch.{side}.channel", place.channel)
    if every or tensor.height > 1:
        words.put(f"scratch.{side}.row", place.row)
    if every:
        words.put(f"scratch.{side}.depth", place.depth)
    if tensor.in_memory:
        words.put(f"scratch.{side}.group", place.group or place.depth)
    elif place.group:
        words.put(f"scratch.{side}.group", place.group)


def _result(words: TaskWords, plan: TaskPlan) -> None:
    result, in_full = plan.result, words.dialect.writes_every_register
    strided = plan.result_in_strides
    if not result.in_memory or strided:
        if in_full or strided or (result.channels > 1 and result.scratch.channel):
            words.put("scratch.result.channel", result.scratch.channel)
        if in_full or strided or result.height > 1:
            words.put("scratch.result.row", result.scratch.row)
        if in_full or strided:
            words.put("scratch.result.depth", result.scratch.depth)
        if strided:
            words.put("scratch.result.group", result.scratch.depth)
        elif result.scratch.group:
            words.put("scratch.result.group", result.scratch.group)
    if result.scratch.base:
        words.put_register("L2", "ResultBase", result.scratch.base)
