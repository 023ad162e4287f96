"""What a program changes in place: a write into a state moves the rows that it writes, not the whole of it.

Model files spell such a write as the state's parts before and behind the rows, joined with them. The parts lie where
they lay, so only the rows move. That a state stays in its buffer is what published rates of decoders show; that nobody
reads the old value behind a write is assumed (U228).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import prod
from typing import NamedTuple

from aneforge.compiler.legal.check import is_indexed_write
from aneforge.compiler.program import Program
from aneforge.compiler.schedule.layers import Layer
from aneforge.engine.ir import Op
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor


class StatePart(NamedTuple):
    """A part of a state's elements: which state, the first element, and extent and step along each axis. An axis of
    one element has no step."""

    state: str
    size: int
    """Elements of the whole state."""
    offset: int
    shape: tuple[int, ...]
    steps: tuple[int | None, ...]

    @staticmethod
    def whole(state: str, shape: tuple[int, ...]) -> StatePart:
        steps = [1]
        for extent in reversed(shape[1:]):
            steps.append(steps[-1] * extent)
        return StatePart(state, prod(shape), 0, shape, _known(shape, reversed(steps)))

    @property
    def fits(self) -> bool:
        """Whether each element has a place of its own inside the state."""
        axes = sorted((step, extent) for extent, step in zip(self.shape, self.steps, strict=True) if step is not None)
        reach = 1
        for step, extent in axes:
            if step < reach:
                return False
            reach = step * (extent - 1) + reach
        return 0 <= self.offset <= self.size - reach


def writes_in_place(program: Program) -> dict[int, tuple[Op, ...]]:
    """By layer number, the operands that a layer moves where the rest of its result lies in place already."""
    states = {port.name for port in program.inputs if port.is_state}
    if not states:
        return {}
    boxes: dict[Op, StatePart] = {}
    moved: dict[int, tuple[Op, ...]] = {}
    layers = program.schedule.graph.layers
    for layer in layers:
        op = layer.primary
        for operand in op.operands:
            if operand.kind == "live_in" and operand.attrs["name"] in states:
                boxes[operand] = StatePart.whole(operand.attrs["name"], operand.shape)
        box = _box(op, boxes) if len(layer.ops) == 1 else None
        if box is not None:
            boxes[op] = box
            if op.kind == "concat":
                moved[layer.number] = tuple(operand for operand in op.operands if operand not in boxes)
    views = (layer for layer in layers if layer.primary.kind == "input_view")
    return moved | {layer.number: () for layer in views if _is_only_kept(layer, boxes, moved)}


def values_of_states(graph: Graph) -> set[int]:
    """The nodes, by uid, that are a state or what a write at computed places makes of it: they stay in its buffer."""
    held = {port.uid for port in graph.inputs if port.name in graph.states}
    for node in graph.nodes if held else ():
        if is_indexed_write(str(node.attrs.get("kind", ""))) and kept_operand(node, held) is not None:
            held.add(node.uid)
    return held


def kept_operand(node: Tensor, held: Collection[int]) -> Tensor | None:
    """The state that a write changes."""
    return next((operand for operand in node.inputs if operand.uid in held and operand.shape == node.shape), None)


def _known(shape: Sequence[int], steps: Iterable[int]) -> tuple[int | None, ...]:
    return tuple(step if extent > 1 else None for extent, step in zip(shape, steps, strict=True))


def _box(op: Op, boxes: dict[Op, StatePart]) -> StatePart | None:
    """Where a value lies in a state, if it does."""
    if op.kind == "concat":
        return _joined(op, boxes)
    source = boxes.get(op.operands[0]) if op.operands else None
    if source is None:
        return None
    if op.kind == "input_view" and op.attrs["step"] == 1:
        axis = op.attrs["dimension"]
        steps = tuple(None if extent == 1 else step for extent, step in zip(op.shape, source.steps, strict=True))
        offset = source.offset + op.attrs["offset"] * (source.steps[axis] or 0)
        return source._replace(offset=offset, shape=op.shape, steps=steps)
    return _reshaped(source, op.shape) if op.kind == "reshape" else None


def _joined(op: Op, boxes: dict[Op, StatePart]) -> StatePart | None:
    """The box of a concatenation whose known operands lie where they belong, one behind the other."""
    axis, place = op.attrs["axis"], 0
    parts: list[tuple[int, StatePart]] = []
    for operand in op.operands:
        if operand in boxes:
            parts.append((place, boxes[operand]))
        place += operand.shape[axis]
    if not parts or len({part.state for _, part in parts}) > 1:
        return None
    known = [{part.steps[i] for _, part in parts} - {None} for i in range(len(op.shape))]
    if any(len(steps) > 1 for steps in known):
        return None
    (first_place, first), (last_place, last) = parts[0], parts[-1]
    if not known[axis] and len(parts) > 1:  # rows of one element each: their places tell the step
        known[axis] = {(last.offset - first.offset) // (last_place - first_place)}
    steps = tuple(next(iter(steps), None) for steps in known)
    along = steps[axis]
    if along is None or any(first.offset - first_place * along != part.offset - at * along for at, part in parts):
        return None
    box = first._replace(offset=first.offset - first_place * along, shape=op.shape, steps=steps)
    return box if box.fits else None


def _reshaped(box: StatePart, shape: Sequence[int]) -> StatePart | None:
    """The box under another shape, where no element has to move."""
    runs: list[tuple[int, int]] = []  # extent and innermost step of axes that lie behind each other
    for extent, step in zip(box.shape, box.steps, strict=True):
        if step is None:
            continue
        if runs and runs[-1][1] == extent * step:
            runs[-1] = runs[-1][0] * extent, step
        else:
            runs.append((extent, step))
    steps: list[int] = []
    for extent in reversed(shape):
        if extent == 1:
            steps.append(0)
            continue
        if not runs or runs[-1][0] % extent:
            return None
        left, step = runs.pop()
        steps.append(step)
        if left > extent:
            runs.append((left // extent, step * extent))
    return None if runs else box._replace(shape=tuple(shape), steps=_known(shape, reversed(steps)))


def _is_only_kept(layer: Layer, boxes: dict[Op, StatePart], moved: dict[int, tuple[Op, ...]]) -> bool:
    """Whether a view is read by nothing but writes, which leave it where it is."""
    if layer.primary not in boxes or layer.is_output or not layer.consumers:
        return False
    readers = list(layer.consumers)
    for reader in readers:
        if reader.primary.kind == "reshape" and reader.primary in boxes:
            readers += reader.consumers
        elif reader.primary.kind == "input_view" and reader.primary in boxes:
            pass  # the part of a part: it is looked at by itself
        elif reader.number not in moved:
            return False
    return True
