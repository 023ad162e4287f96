"""What a task of the planar engine does: two sources element by element, numbers, reductions and pools."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from aneforge.codegen.forms import TURNED
from aneforge.codegen.memory import Layout
from aneforge.codegen.operands import Operand, TaskRegisters
from aneforge.codegen.task_work import TaskParts, TaskReading, TaskWork
from aneforge.engine.windows import effective_padding

_ELEMENTWISE = {0: "add", 1: "mult", 2: "max", 3: "min"}
_REDUCED = {0: "reduce_sum", 2: "reduce_max", 3: "reduce_min"}
_POOLED = {1: "average_pool", 2: "max_pool"}
_COPY, _TWO_SOURCES, _VECTOR, _REDUCTION, _REDUCTION_OF_TWO = 2, 3, 4, 5, 6
_ABSOLUTE, _RELU, _SECOND, _NEGATED = 0x1C0, 0x20, 2, 3
_TILE, _FIRST_IS_STRETCHED = 0x20, 0xF
"""A copy of a stretched source; the code is that which the map calls a relu (U272)."""
_INVERSE, _SQUARES, _MINUS_FIRST = 0x1000, 0x2010, 0x90000
"""Of a reduction: one through the sum; one through the root of the sum of squares with an epsilon; and the second
source minus the first in front of it."""
_TURNED = {"source": 0x100, "second": 0x200, "result": 0x400}
"""Bits of the mask: one number for each channel lies as a row."""
_STRETCHED = ((4, 0x1, 0x10), (3, 0x2, 0x20), (1, 0x4, 0x40), (2, 0x8, 0x80))
"""Axes, and the bits that stretch the first and the second source over them."""
_SECOND_BEHIND_RELU = 0x10
_HALF_ONE = 0x3C00
_ROW = 2


def read_planar(
    words: TaskRegisters, into: tuple[int, ...], out: tuple[int, ...], constants: Mapping[int, bytes]
) -> TaskReading:
    """The reading of a task of the planar engine."""
    source = _operand(words, "source", _shrunk(into, words["planar.mask"], 1))
    parts = _parts(words, into, out, constants)
    shape = parts.work[-1].shape if parts.work else out
    result = _operand(words, "result", shape)
    if not parts.work:
        result = replace(result, layout=in_lanes(into, lanes_of(words)))
    operands, work = [source, *parts.operands], parts.work
    staged = [
        (number, words.in_scratch(side, operand.shape))
        for number, (side, operand) in enumerate(zip(("source", "second"), operands, strict=False))
        if words.is_in_memory(side) and operand.place[0] not in constants
    ]
    if words["task.type"] in (_REDUCTION, _REDUCTION_OF_TWO) and work[0].kind not in _POOLED.values():
        if _is_one_row(source) and not words.is_in_memory("source"):
            operands, work = [_one_row(operand) for operand in operands], [_work_of_a_row(one) for one in work]
            source = operands[0]
        places = _places(source if parts.operands == [] else parts.operands[0])
        operands, result = [_moved(operand, places) for operand in operands], _moved(result, places)
        staged = [(number, _moved(operand, places)) for number, operand in staged]
        work = [_moved_work(one, places) for one in work]
        if words["planar.mask"] & _TURNED["result"] and result.shape[3] > 1:  # a row of numbers for each row
            result, shape = _turned(result), work[-1].shape
            work = [*work, TaskWork("transpose", {"transpose_list": TURNED}, (*shape[:2], *shape[:1:-1]))]
    twice = bool(words["scratch.config"] & _SECOND_BEHIND_RELU)
    return TaskReading(tuple(operands), result, tuple(work), twice, tuple(staged))


def _shrunk(shape: tuple[int, ...], mask: int, which: int) -> tuple[int, ...]:
    """A shape without the axes over which a source is stretched."""
    axes = {entry[0] for entry in _STRETCHED if mask & entry[which]}
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))


def _operand(words: TaskRegisters, side: str, shape: tuple[int, ...]) -> Operand:
    """A tensor of a planar task. A turned one has a number for each channel, side by side."""
    operand = words.operand(side, shape)
    if not words["planar.mask"] & _TURNED[side] or prod(shape[3:]) > 1:
        return operand
    return replace(operand, layout=Layout(shape, (*operand.layout.strides[:2], _ROW, _ROW, _ROW)))


def _parts(
    words: TaskRegisters, into: tuple[int, ...], out: tuple[int, ...], constants: Mapping[int, bytes]
) -> TaskParts:
    kind, config = words["task.type"], words["planar.config"]
    relu = [TaskWork("relu", {}, out)] if config & _RELU else []
    plain = config & ~_RELU
    if kind in (_REDUCTION, _REDUCTION_OF_TWO):
        return _reduction(words, plain, into, out, relu)
    if into != out:
        raise words.error(f"reads {into[2:]} and gives {out[2:]}, which no planar work of type {kind} does")
    operation, second = plain >> 2 & 7, plain >> 18
    if kind == _TWO_SOURCES and operation in _ELEMENTWISE and plain:
        if second == _NEGATED and operation:
            raise words.error(f"negates its second source in operation {operation}, which has no published meaning")
        name = "sub" if second == _NEGATED else _ELEMENTWISE[operation]
        operands = []
        if not words["scratch.config"] & _SECOND_BEHIND_RELU:
            operands = [_operand(words, "second", _second_shape(words, into))]
        return TaskParts([TaskWork(name, {}, out), *_behind(words, out), *relu], operands)
    if kind == _VECTOR and operation == 0:
        return _by_rows(words, into, out, constants)
    if kind == _COPY and config == _TILE and words["planar.mask"] & _FIRST_IS_STRETCHED:
        return TaskParts([TaskWork("broadcast", {"shape": out}, out)])
    if kind == _COPY and plain == _ABSOLUTE:
        return TaskParts([TaskWork("abs", {}, out)])
    if kind == _COPY and not config and numbers_of(words) != (0.0, 1.0):
        return TaskParts(_behind(words, out))
    if kind == _COPY and not config and lanes_of(words) > 1:
        return TaskParts([])
    raise words.error(f"has planar work {config:#x} of type {kind}, which has no published meaning")


def _second_shape(words: TaskRegisters, into: tuple[int, ...]) -> tuple[int, ...]:
    """A second source that is the same for all images has no stride from one to the next."""
    shape = _shrunk(into, words["planar.mask"], 2)
    if into[0] > 1 and not words["second.group" if words.is_in_memory("second") else "scratch.second.group"]:
        return (1, *shape[1:])
    return shape


def _by_rows(
    words: TaskRegisters, into: tuple[int, ...], out: tuple[int, ...], constants: Mapping[int, bytes]
) -> TaskParts:
    """Numbers for each channel, or for all of them: a row of what is added or taken away, and a row of factors."""
    negates = words["planar.config"] >> 18 == _NEGATED
    if not negates and words["planar.mask"] == _TURNED["second"]:
        rows = words.operand("second", (1, 1, 1, 2, into[2]))
        return TaskParts([TaskWork("gain_offset_control", {}, out, from_second=True)], [rows])
    if not negates or words.is_in_memory("second"):
        raise words.error(
            f"has planar work {words['planar.config']:#x} of two rows in memory, which has no published meaning"
        )
    first = _operand(words, "second", _shrunk((1, 1, into[2], 1, 1), words["planar.mask"], 2))
    step = words["scratch.second.row"]
    other = replace(first, place=(first.place[0], first.place[1] + step))
    return TaskParts([TaskWork("sub", {}, out, reads=(0, 1)), TaskWork("mult", {}, out, reads=(2,))], [first, other])


def in_lanes(shape: tuple[int, ...], lanes: int) -> Layout:
    """A matrix in the order in which it is read as a kernel."""
    _, _, rows, _, columns = shape
    return Layout((1, 1, rows, 1, columns), (0, 0, 2 * columns, 0, 2), lanes)


def lanes_of(words: TaskRegisters) -> int:
    """Rows of the result that lie side by side."""
    if not words.is_in_memory("result"):
        return 1
    return (words["result.format"] - words.dialect.result_format >> words.dialect.lanes_bit) + 1


def numbers_of(words: TaskRegisters) -> tuple[float, float]:
    """What is added, and what is multiplied with."""
    if words.dialect.halves_of_numbers:
        halves = np.array([words["planar.bias_scale"] & 0xFFFF, words["planar.bias_scale"] >> 16], np.uint16)
        return float(halves.view(np.float16)[0]), float(halves.view(np.float16)[1])
    return _from_single(words["planar.bias"]), _from_single(words["planar.factor"] or _single(1.0))


def _behind(words: TaskRegisters, out: tuple[int, ...]) -> list[TaskWork]:
    """The numbers that follow the work."""
    numbers = numbers_of(words)
    if numbers == (0.0, 1.0):
        return []
    offset, gain = (np.full(1, number, np.float16) for number in numbers)
    return [TaskWork("gain_offset_control", {}, out, (gain, offset))]


def _reduction(
    words: TaskRegisters, config: int, into: tuple[int, ...], out: tuple[int, ...], relu: list[TaskWork]
) -> TaskParts:
    """A reduction states the extents that it reads twice and no window; a pool has one of them different."""
    size, stride = window_of(words)
    if (size, stride) != ((1, 1), (1, 1)) or into != out:
        if config & 3 not in _POOLED or config >> 2 or into[0] > 1:
            raise words.error(f"has planar work {config:#x} of a window, which has no published meaning")
        return TaskParts([_pool(words, _POOLED[config & 3], into, out), *relu])
    axes = tuple(axis for axis in (1, 3, 4) if into[axis] > 1)
    count = prod(into[axis] for axis in axes)
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(into))
    is_mean = words["planar.scale"] != _single(1.0)
    if is_mean and words["planar.scale"] != _single(1 / count):
        found, mean = words["planar.scale"], _single(1 / count)
        raise words.error(f"scales its result by {found:#010x}; a mean of {count} has {mean:#010x}")
    total = "reduce_avg" if is_mean else "reduce_sum"
    attrs = {"axes": axes}
    of_two = words["task.type"] == _REDUCTION_OF_TWO
    if config == (_MINUS_FIRST | _SQUARES if of_two else _SQUARES):
        operands = [_operand(words, "second", _shrunk(into, words["planar.mask"], 2))] if of_two else []
        work = [TaskWork("sub", {}, out, reads=(1, 0))] if of_two else []
        epsilon = np.array([words["planar.pre_scale"] & 0xFFFF], np.uint16).view(np.float16)[0]
        root = TaskWork("r_sqrt", {"epsilon": float(epsilon)}, kept)
        return TaskParts([*work, TaskWork("square", {}, out), TaskWork(total, attrs, kept), root], operands)
    if of_two or (config & ~_INVERSE) not in _REDUCED or (config == _INVERSE and is_mean):
        raise words.error(f"has planar work {config:#x} of a reduction, which has no published meaning")
    kind = _REDUCED[config & ~_INVERSE]
    if is_mean and kind != "reduce_sum":
        raise words.error("scales a largest or smallest number, which has no published meaning")
    inverse = [TaskWork("invert", {"epsilon": 0.0}, kept)] if config & _INVERSE else []
    return TaskParts([TaskWork(total if kind == "reduce_sum" else kind, attrs, kept), *inverse, *relu])


def _pool(words: TaskRegisters, kind: str, into: tuple[int, ...], out: tuple[int, ...]) -> TaskWork:
    size, stride = window_of(words)
    padding = effective_padding(into, out, size, stride, (words["kernel.top"], words["kernel.left"]))
    attrs: dict[str, Any] = {"ksize": (1, *size), "padding": padding, "stride": (1, *stride)}
    if kind == "average_pool":
        attrs["inc_pad"] = True
    return TaskWork(kind, attrs, out)


def _single(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


def _from_single(bits: int) -> float:
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])


def window_of(words: TaskRegisters) -> tuple[tuple[int, int], tuple[int, int]]:
    """Height and width of a window, and its steps down and across."""
    size = words["kernel.height"], words["kernel.width"]
    stride = words["kernel.stride_y"], words["kernel.stride_x"]
    if not all((*size, *stride)):
        raise words.error(f"has a window of {size} with strides {stride}")
    return size, stride


# Reductions read rows as images, or rows of channels as depths: back to the axes of the tensor.


def _is_one_row(operand: Operand) -> bool:
    """Whether rows lie end to end, as pieces of one row do."""
    shape, strides = operand.layout.shape, operand.layout.strides
    return shape[3] > 1 and shape[1] == 1 and strides[3] == shape[4] * strides[4]


def _one_row(operand: Operand) -> Operand:
    shape, strides = operand.layout.shape, operand.layout.strides
    layout = Layout((*shape[:3], 1, shape[3] * shape[4]), (*strides[:3], 0, strides[4]))
    return replace(operand, layout=layout)


def _work_of_a_row(work: TaskWork) -> TaskWork:
    """The same work on the row that the pieces are of."""
    shape = (*work.shape[:3], 1, work.shape[3] * work.shape[4])
    attrs = dict(work.attrs)
    if "axes" in attrs:
        attrs["axes"] = tuple(axis for axis in attrs["axes"] if axis != 3)
    return replace(work, attrs=attrs, shape=shape)


def _places(operand: Operand) -> dict[int, int]:
    """Where each axis of what a reduction reads belongs. Images of one row are rows; where the depth is used, axes
    come in the order of memory."""
    shape, strides = operand.layout.shape, operand.layout.strides
    same = {axis: axis for axis in range(5)}
    if shape[1] > 1:
        order = sorted(range(4), key=lambda axis: -strides[axis] if shape[axis] > 1 else 0)
        moved = [axis for axis in order if shape[axis] > 1]
        rest = [axis for axis in range(4) if shape[axis] == 1]
        if len(moved) <= 3:
            return dict(zip((*rest, *moved), range(4), strict=True)) | {4: 4}
    return same | {0: 3, 3: 0} if shape[0] > 1 and shape[3] == 1 else same


def _moved(operand: Operand, places: dict[int, int]) -> Operand:
    layout = operand.layout
    return replace(
        operand, layout=replace(layout, shape=_placed(layout.shape, places), strides=_placed(layout.strides, places))
    )


def _turned(operand: Operand) -> Operand:
    """With channels and columns exchanged."""
    shape, strides = operand.layout.shape, operand.layout.strides
    layout = Layout((*shape[:2], *shape[:1:-1]), (*strides[:2], *strides[:1:-1]))
    return replace(operand, layout=layout)


def _moved_work(work: TaskWork, places: dict[int, int]) -> TaskWork:
    attrs = dict(work.attrs)
    if "axes" in attrs:
        attrs["axes"] = tuple(sorted(places[axis] for axis in attrs["axes"]))
    return replace(work, attrs=attrs, shape=_placed(work.shape, places))


def _placed(values: tuple[int, ...], places: dict[int, int]) -> tuple[int, ...]:
    placed = [0] * 5
    for axis, place in places.items():
        placed[place] = values[axis]
    return tuple(placed)
