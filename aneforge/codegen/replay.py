"""Tasks one after the other as ops: each reads the values that lie at its places, and leaves its result there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from math import prod

import numpy as np

from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.memory import SCRATCH, Layout, Memory, ReadValue
from aneforge.codegen.operands import Operand
from aneforge.codegen.reading import read_task
from aneforge.codegen.task_work import TaskReading, TaskWork
from aneforge.codegen.tasks import Task
from aneforge.engine.interpret import laid_out
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.spec import spec
from aneforge.graph.weights import intern_fp16

_FIRST, _ROWS, _MOST_ROWS = 2, 3, 64
_ORDERS = [order for order in permutations(range(_FIRST, 5)) if order != (2, 3, 4)]


class Replay:
    """The values of a program while its tasks run, and the ops that give them."""

    def __init__(self, module: Module, constants: Mapping[int, bytes]) -> None:
        self.module, self.constants = module, constants
        self.memory: Memory[Op] = Memory()
        self._offset = 0
        """Of the task that runs."""

    def task(self, task: Task, sources: tuple[str, ...] = ()) -> tuple[Op, TaskReading]:
        """Adds the ops of a task; returns its result."""
        self._offset = task.offset
        reading = read_task(task, self.constants)
        operands = [self.value(operand, task.offset) for operand in reading.operands]
        for number, staged in reading.staged:
            self.memory.write(staged.place, operands[number], operands[number].shape, staged.layout)
        if reading.second_behind_relu:
            operands.append(self.emit("relu", [operands[0]], operands[0].shape, sources=sources))
        if reading.work and reading.work[0].kind == "matmul":
            operands = operands[::-1]  # the first matrix is the kernel
        value = operands[0]
        for number, work in enumerate(reading.work):
            others = [operands[place] for place in work.reads]
            value = self._work(work, [value, *others] if number else others or operands, sources)
        self.memory.write(reading.result.place, value, value.shape, reading.result.layout)
        return value, reading

    def _work(self, work: TaskWork, values: list[Op], sources: tuple[str, ...]) -> Op:
        constants = list(work.constants)
        if work.from_second:
            *values, rows = values
            offset, gain = self._rows(rows)
            constants = [gain, offset]
        return self.emit(work.kind, [*values, *map(self.constant, constants)], work.shape, work.attrs, sources)

    def _rows(self, op: Op) -> tuple[np.ndarray, np.ndarray]:
        """The offsets and the gains of a constant of two rows."""
        if op.kind != "const_in":
            raise ContainerError(0, "offsets and gains of channels are computed, which has no published meaning")
        rows = laid_out(self.module.weights[op.attrs["weight"]].array, op.shape).reshape(2, -1)
        offset, gain = (np.ascontiguousarray(row) for row in rows)
        return offset, gain

    def value(self, operand: Operand, offset: int) -> Op:
        """What lies where an operand is read; an error for a place where nothing of this form does."""
        place, layout = operand.place, operand.layout
        if place[0] in self.constants:
            return self._stored(operand, offset)
        found = self.memory.read(place, layout)
        if found is None and (other := self._turned(operand) or self._by_rows(operand, offset)) is not None:
            return other
        if found is None:
            base = "scratch" if place[0] == SCRATCH else f"base-address register {place[0]}"
            extents = " x ".join(map(str, layout.shape[2:]))
            raise ContainerError(
                offset, f"reads {extents} at {place[1]:#x} of {base}, where no task wrote such a tensor"
            )
        return self._gathered(found, layout)

    def _by_rows(self, operand: Operand, offset: int) -> Op | None:
        """A tensor whose rows were written in parts, each row by itself."""
        layout, (base, place) = operand.layout, operand.place
        if not 1 < layout.shape[_ROWS] <= _MOST_ROWS:
            return None
        row = layout.cut(_ROWS, 1)
        places = [(base, place + number * layout.strides[_ROWS]) for number in range(layout.shape[_ROWS])]
        if any(self.memory.read(one, row) is None for one in places):
            return None
        parts = [self.value(Operand(one, row), offset) for one in places]
        return self.emit("concat", parts, layout.shape, {"axis": _ROWS})

    def _turned(self, operand: Operand) -> Op | None:
        """What lies at a place and is read with its channels, rows and columns in another order."""
        layout = operand.layout
        for order in _ORDERS:
            if any(layout.shape[axis] == 1 for axis in order if order.index(axis) + _FIRST != axis):
                continue  # the same order, up to axes of one element
            axes = (0, 1, *order)
            shape, strides = (tuple(values[axis] for axis in axes) for values in (layout.shape, layout.strides))
            moved = Layout(shape, strides)
            found = self.memory.read(operand.place, moved)
            if found is not None:
                value = self._gathered(found, moved)
                back = [(axis, axes.index(axis)) for axis in range(5) if axes.index(axis) != axis]
                return self.emit("transpose", [value], layout.shape, {"transpose_list": tuple(back)})
        return None

    def _stored(self, operand: Operand, offset: int) -> Op:
        """A tensor of the constants."""
        data, start, layout = self.constants[operand.place[0]], operand.place[1], operand.layout
        ends = zip(layout.shape, layout.strides, strict=True)
        last = start + sum((extent - 1) * stride for extent, stride in ends) + 2
        if start % 2 or any(stride % 2 for stride in layout.strides) or not 0 <= start < last <= len(data):
            raise ContainerError(
                offset, f"reads constants from {start:#x} to {last:#x}; there are {len(data):#x} bytes"
            )
        halves = np.frombuffer(data, np.float16)[start // 2 :]
        strides = [0 if extent == 1 else stride for extent, stride in zip(layout.shape, layout.strides, strict=True)]
        return self.constant(np.ascontiguousarray(np.lib.stride_tricks.as_strided(halves, layout.shape, strides)))

    def _gathered(self, found: ReadValue[Op], layout: Layout) -> Op:
        parts = []
        for piece in found.pieces:
            value = piece.value
            for axis, first, count in piece.cuts:
                shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
                attrs = {"dimension": axis, "offset": first, "size": count, "step": 1}
                value = self.emit("input_view", [value], shape, attrs)
            share = prod(value.shape) * layout.shape[found.axis] // prod(layout.shape)
            parts.append(self.shaped(value, layout.cut(found.axis, share).shape))
        if len(parts) == 1:
            return parts[0]
        return self.emit("concat", parts, layout.shape, {"axis": found.axis})

    def shaped(self, value: Op, shape: tuple[int, ...]) -> Op:
        """The same elements in another shape."""
        if prod(shape) != prod(value.shape):
            raise ContainerError(0, f"{list(value.shape)} cannot be read as {list(shape)}")
        return value if value.shape == shape else self.emit("reshape", [value], shape, {"shape": shape})

    def constant(self, array: np.ndarray) -> Op:
        """A kernel of four axes, numbers for each channel, or any tensor of five axes."""
        shape = {4: (*array.shape[:1], 1, *array.shape[1:]), 1: (1, 1, array.size, 1, 1)}.get(array.ndim, array.shape)
        weight = intern_fp16(array)
        self.module.weights[weight.key] = weight
        return self.add(Op("anec.const_in", (), TensorType(shape, "f16"), {"weight": weight.key}))

    def emit(
        self,
        kind: str,
        operands: Sequence[Op],
        shape: tuple[int, ...],
        attrs: Mapping[str, object] | None = None,
        sources: tuple[str, ...] = (),
    ) -> Op:
        """One op of halves behind the others, if its result has the shape that the op gives."""
        op = Op(f"anec.{kind}", list(operands), TensorType(shape, "f16"), dict(attrs or {}), sources)
        try:
            expected = spec(op.name).type_rule(op, *(operand.type for operand in operands))
        except AnecError as error:
            raise ContainerError(self._offset, f"reads as {op.name}: {error}") from None
        if expected != op.type:
            raise ContainerError(self._offset, f"reads as {op.name} with a result of {op.type}; expected {expected}")
        return self.add(op)

    def add(self, op: Op) -> Op:
        self.module.ops.append(op)
        return op
