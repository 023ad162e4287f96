"""Inputs, outputs and states of a graph: their sizes, types and names, by the same rules for every format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aneforge.errors import AneforgeError, LoadError, first_line
from aneforge.frontends.forms.numbers import truth
from aneforge.frontends.importer.op import State
from aneforge.frontends.records import is_float, is_whole
from aneforge.frontends.values import as_tensor
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import cast
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor

MOST_ELEMENTS = 1 << 31
"""Of one tensor."""


@dataclass
class Port:
    """What a file says of an input beside its type."""

    shape: tuple[int, ...] = ()
    """The default."""
    ranges: tuple[tuple[int, int], ...] = ()
    """The least and the most of each extent; -1 is no bound."""
    choices: tuple[tuple[int, ...], ...] = ()
    image: bool = False
    labels: Mapping[int, str] = field(default_factory=dict)
    """Names that the file gives to open axes; the others are called ``input[axis]``."""
    label: str = ""
    """What users call the input, where that is not its name in the file."""

    def may_change(self, axis: int) -> bool:
        if axis < len(self.ranges):
            return self.ranges[axis][0] != self.ranges[axis][1]
        return len({shape[axis] for shape in self.choices if axis < len(shape)}) > 1


@dataclass
class Sizes:
    """Open dimensions of a file, and the values that the user gives them."""

    file: str
    dims: Mapping[str, int]
    asked: set[str] = field(default_factory=set)

    def extents(self, name: str, shape: Sequence[int | None], port: Port) -> tuple[int, ...]:
        """The shape of an input: as the file states it, with open dimensions as the user gives them."""
        extents = [self._extent(name, axis, extent, len(shape), port) for axis, extent in enumerate(shape)]
        self._check_allowed(name, port, extents)
        check_size(f"{self.file}: input {name!r}", extents)
        return tuple(extents)

    def _extent(self, name: str, axis: int, extent: int | None, rank: int, port: Port) -> int:
        label = port.labels.get(axis, f"{name}[{axis}]")
        is_open = extent is None or port.may_change(axis)
        if is_open:
            self.asked.add(label)
        if is_open and label in self.dims:
            return int(self.dims[label])
        stated = port.shape[axis] if extent is None and len(port.shape) == rank else extent
        if stated is None or stated < 0:
            raise LoadError(
                f"{self.file}: dimension {axis} of input {name!r} is {label!r}, not a number; give it a value: "
                f"af.load(..., dims={{{label!r}: 1}}), or --dim {label}=1"
            )
        if stated == 0:
            raise LoadError(
                f"{self.file}: input {name!r} is empty: axis {axis} has size 0; export the model with a size there"
            )
        return int(stated)

    def _check_allowed(self, name: str, port: Port, shape: list[int]) -> None:
        if port.choices and tuple(shape) not in port.choices:
            listed = ", ".join(str(list(choice)) for choice in port.choices[:8])
            raise LoadError(f"{self.file}: input {name!r} of {shape}; the model allows {listed}")
        for axis, ((least, most), extent) in enumerate(zip(port.ranges, shape, strict=False)):
            if extent < least or (most >= 0 and extent > most):
                bound = f"{least} to {most}" if most >= 0 else f"{least} or more"
                raise LoadError(f"{self.file}: {name}[{axis}] is {extent}; the model allows {bound}")

    def check_all_used(self) -> None:
        unknown = [name for name in self.dims if name not in self.asked]
        if unknown:
            there = ", ".join(sorted(self.asked)) or "none"
            raise LoadError(f"{self.file}: no symbolic dimension {unknown[0]!r}; the inputs have {there}")


def check_size(what: str, shape: Sequence[int]) -> None:
    if any(extent < 1 for extent in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise LoadError(f"{what} has shape {list(shape)}; a tensor has 1 to {MOST_ELEMENTS:,} elements")


def input_tensor(
    file: str, name: str, dtype: str, shape: Sequence[int], label: str = "", *, image: bool = False
) -> Tensor:
    """Floats and bytes enter the engine; other integers are for the host, truth values come as 0 and 1."""
    shown, extents = label or name, tuple(shape) or (1,)
    try:
        if is_float(dtype):
            return graph_input(extents, name=shown, max_abs=255.0 if image else None)
        if dtype == "uint8":
            return cast(graph_input(extents, "uint8", name=shown))
        if dtype == "bool":
            return truth(graph_input(extents, name=shown))
        if is_whole(dtype):
            return graph_input(extents, "int32", name=shown)
    except AneforgeError as error:
        raise LoadError(f"{file}: input {name!r}: {first_line(error)}") from None
    raise LoadError(f"{file}: input {name!r} is {dtype}; the engine's inputs are floats, integers or truth values")


def output_tensor(file: str, name: str, value: Any, others: Sequence[Tensor]) -> Tensor:
    """A result under the file's name for it. Another name for an input or for another output is a view of it."""
    if isinstance(value, State):
        raise LoadError(f"{file}: output {name!r} is a state; an output must be a tensor")
    try:
        tensor = as_tensor(value)
        if tensor.name == name and tensor.op != "input":
            return tensor
        taken = tensor.op == "input" or any(tensor is other for other in others)
        if taken and tensor.dtype != "int32":
            tensor = tensor.reshape(*tensor.shape)
        return tensor if tensor.op == "input" else tensor.named(name)
    except AneforgeError as error:
        raise LoadError(f"{file}: output {name!r}: {first_line(error)}") from None


def with_states(file: str, outputs: list[Tensor], states: Sequence[State]) -> Graph:
    """The graph of these outputs; the new value of each state that was written is an output too."""
    pairs: dict[str, str] = {}
    for state in states:
        if not state.written:
            continue
        tensor = as_tensor(state.value)
        names = {output.name for output in outputs}
        if tensor.definition.leaf or (any(tensor is output for output in outputs) and not tensor.name):
            tensor = tensor.reshape(*tensor.shape)
        if not any(tensor is output for output in outputs):
            label = f"{state.name}_out"
            while label in names:
                label += "_"
            tensor = tensor.named(label)
            outputs.append(tensor)
        pairs[state.name] = str(tensor.name)
    if not outputs:
        raise LoadError(f"{file}: the model gives no outputs; a graph needs at least one")
    try:
        return Graph(outputs, states=pairs) if pairs else Graph(outputs)
    except AneforgeError as error:
        raise LoadError(f"{file}: {first_line(error)}") from None
