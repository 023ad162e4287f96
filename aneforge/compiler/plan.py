"""What the phases decide about a module, as objects: segments, task groups, buffers and stored weights.

Each part is written once, by the pass that decides it, and read unchanged by :class:`Program` and everything after it.
What is decided about one layer is on the layer (:class:`~aneforge.compiler.schedule.layers.Layer`). Labels in the text
are the printed form of all this: :meth:`Plan.labels` writes them, :mod:`aneforge.compiler.labels` reads them back.

Objects name a layer by the number that its ops carry and a port by its name. They refer to no op, so they are never
changed in place and the clones of a module share them. A program shows the same objects with each layer named by its
place in the schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aneforge.engine.ir import Module, Op
from aneforge.errors import AneforgeError
from aneforge.graph.weights import Weight

if TYPE_CHECKING:
    from aneforge.compiler.memory.allocation import Liveness
    from aneforge.compiler.schedule.layers import LayerGraph
    from aneforge.compiler.shown import Schedule

Name = int | str
"""A layer by its number, or a port by its name."""


@dataclass(frozen=True)
class Segment:
    """One dispatch: compute between two cuts, or one native layer. The pass ``cut-segments`` decides its layers."""

    number: int
    kind: str
    """``compute`` or ``native``."""
    layers: tuple[int, ...]
    inputs: tuple[Name, ...] = ()
    """What it reads from outside, in the order of the schedule; known once buffers are laid out, like ``outputs``."""
    outputs: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, **{name: list(getattr(self, name)) for name in ("layers", "inputs", "outputs")}}

    def at_places(self, places: Mapping[int, int]) -> Segment:
        """The same with each layer by its place in the schedule."""
        inputs = tuple(_placed(name, places) for name in self.inputs)
        outputs = tuple(places[number] for number in self.outputs)
        return replace(
            self, layers=tuple(sorted(places[number] for number in self.layers)), inputs=inputs, outputs=outputs
        )


@dataclass(frozen=True)
class TaskGroup:
    """Layers that run before the on-chip memory is emptied, under one working-set budget. The seed documents call this
    a task-descriptor partition. The pass ``close-task-groups`` decides its layers."""

    number: int
    segment: int
    layers: tuple[int, ...]
    peak: int
    """The most bytes in L2 at one step: first as the scheduler counts them, then as the buffers are laid out."""
    budget: int

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "layers": list(self.layers)}

    def at_places(self, places: Mapping[int, int]) -> TaskGroup:
        """The same with each layer by its place in the schedule."""
        return replace(self, layers=tuple(places[number] for number in self.layers))


class Buffer(NamedTuple):
    """One stretch of memory: where it lies, its strides, and from which step to which it is needed.
    The pass ``lay-out-buffers`` decides it. (A tuple, because nearly every layer of a program has one.)"""

    number: int
    space: str
    """``l2``, ``dram``, or ``port`` where the caller owns it."""
    address: int | None
    bytes: int
    channel_stride: int
    """Bytes from one channel to the next: in L2 beside each other in a row, in memory a plane of rows."""
    row_stride: int
    live: tuple[int, int]
    task_group: int | None
    """The task group whose L2 it lies in; None outside L2."""
    values: tuple[Name, ...]
    """The layers whose results lie in it, and the program's inputs by name."""

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "live": list(self.live), "values": list(self.values)}

    def at_places(self, places: Mapping[int, int]) -> Buffer:
        """The same with each layer by its place in the schedule."""
        return Buffer(*self[:-1], tuple([_placed(name, places) for name in self.values]))


class StoredWeight(NamedTuple):
    """One stored constant: which layers read it, how large it is, and how it reaches the engine. The pass
    ``pack-kernels`` decides it."""

    key: str
    sources: tuple[str, ...]
    shape: tuple[int, ...]
    encoding: str
    bytes: int
    stored_bytes: int
    """What it takes where it is packed, with its table and scales: one copy on every chip."""
    address: int
    flow: str | None
    """``stream`` or ``fold`` for kernels, None for biases, gains and other coefficients."""
    path: str | None
    """``per core``: each core builds the part of its own output channels; or ``shared`` (listing 35.2)."""
    folded_from: str | None = None
    """The form that the model has it in, where the chip does not stream that form in this layer."""
    numbers: Weight | None = None
    """What it stands for, in fp16; None where code came as text without its weights."""

    @property
    def streams(self) -> bool:
        """Whether it reaches the engine in the form that the model has it in, sized against the streamed cap; False
        for a form that was folded to fp16, and for weights that are no kernels."""
        return self.flow == "stream" and self.folded_from is None

    def decode(self) -> np.ndarray:
        """The numbers that it stands for, in fp16 and in the shape of the model's weight."""
        if self.numbers is None:
            names = ", ".join(self.sources)
            raise AneforgeError(f"{names}: the code came without the numbers of this weight. Use a compiled program.")
        return self.numbers.array

    def to_json(self) -> dict[str, Any]:
        record = {name: value for name, value in self._asdict().items() if name != "numbers"}
        return {**record, "sources": list(self.sources), "shape": list(self.shape)}


class Plan:
    """All that is decided about one module so far; None where no pass has decided it yet."""

    __slots__ = ("buffers", "graph", "live", "segments", "shown", "steps", "task_groups", "weights")

    def __init__(self) -> None:
        self.graph: LayerGraph | None = None
        """The layers as objects, for as long as the module keeps its list of ops."""
        self.live: Liveness | None = None
        """When each buffer is needed. The first pass of phase 4 that asks creates it; it is dropped once all are
        placed."""
        self.shown: Schedule | None = None
        """The same as programs show it; created by the first that asks."""
        self.segments: tuple[Segment, ...] | None = None
        self.steps: tuple[tuple[int, ...], ...] | None = None
        """The schedule as steps: one layer, or two that are issued together."""
        self.task_groups: tuple[TaskGroup, ...] | None = None
        self.buffers: tuple[Buffer, ...] | None = None
        """Ports first, then in the order of the schedule."""
        self.weights: tuple[StoredWeight, ...] | None = None
        """In the order in which they are packed."""

    def clone(self, module: Module) -> Plan:
        """A copy for a clone of the module. It shares the objects; the layers are those of the clone."""
        copy = Plan()
        if self.graph is not None:
            copy.graph = self.graph.copied(module)
        copy.segments, copy.steps, copy.task_groups = self.segments, self.steps, self.task_groups
        copy.buffers, copy.weights = self.buffers, self.weights
        return copy

    def forget_order(self) -> None:
        """Drop what was decided along the old order of layers, because the order has changed."""
        self.steps = self.task_groups = self.buffers = self.live = self.shown = None

    def drop_layers(self, numbers: set[int]) -> None:
        """Remove these layers, and drop the layout, which no longer fits."""
        self.live = self.buffers = self.shown = None
        if self.segments is not None:
            self.segments = tuple(replace(old, layers=_without(old.layers, numbers)) for old in self.segments)
        if self.task_groups is not None:
            self.task_groups = tuple(replace(old, layers=_without(old.layers, numbers)) for old in self.task_groups)
        if self.steps is not None:
            self.steps = tuple(left for step in self.steps if (left := _without(step, numbers)))

    def labels(self, module: Module) -> dict[Op, dict[str, Any]]:
        """What is decided so far, as it is printed beside each op of the module."""
        from aneforge.compiler.labels import printed_labels

        return printed_labels(module, self)

    def is_complete(self, module: Module) -> bool:
        """Whether every part is decided, and for exactly the ops that the module has now."""
        parts = (self.segments, self.steps, self.task_groups, self.buffers, self.weights)
        return self.graph is not None and self.graph.describes(module) and None not in parts


def plan_of(module: Module) -> Plan:
    """The plan that a module carries; an empty one where it has none yet."""
    if not isinstance(module.plan, Plan):
        module.plan = Plan()
    return module.plan


def with_peaks(task_groups: Sequence[TaskGroup], buffers: Sequence[Buffer]) -> tuple[TaskGroup, ...]:
    """The task groups with the most bytes that lie in L2 at one step."""
    changes: dict[int, dict[int, int]] = {}
    for buffer in buffers:
        if buffer.task_group is not None:
            steps = changes.setdefault(buffer.task_group, {})
            first, last = buffer.live
            steps[first] = steps.get(first, 0) + buffer.bytes
            steps[last + 1] = steps.get(last + 1, 0) - buffer.bytes
    return tuple(replace(old, peak=_peak(changes.get(old.number, {}))) for old in task_groups)


def _peak(changes: Mapping[int, int]) -> int:
    total = peak = 0
    for step in sorted(changes):
        total += changes[step]
        peak = max(peak, total)
    return peak


def _without(layers: tuple[int, ...], numbers: set[int]) -> tuple[int, ...]:
    return tuple(number for number in layers if number not in numbers)


def _placed(name: Name, places: Mapping[int, int]) -> Name:
    return name if isinstance(name, str) else places[name]
