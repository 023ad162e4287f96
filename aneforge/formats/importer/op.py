"""What a rule sees of an operation: its arguments by name, known or computed, and the types that the file states."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError, LoadError, first_line
from aneforge.formats.forms.numbers import truth
from aneforge.formats.records import Block, Type, ValueType, is_float, is_whole
from aneforge.formats.values import NoForm, Value, as_tensor
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import cast
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor


@dataclass
class LiveState:
    """A value that lives on from run to run: what it holds at this point of the program."""

    name: str
    type: ValueType
    value: Value
    written: bool = False


@dataclass(frozen=True)
class Listed:
    """A list of tensors whose places are all known when the model is read."""

    elements: tuple[Value | None, ...]


INTEGERS = "it computes with integers, which the engine does not"
"""A reason that several formats give."""

Operand = np.ndarray | Encoded | Tensor | LiveState | Listed
Rule = Callable[["FileOp"], Any]


@dataclass
class FileOp:
    kind: str
    name: str
    arguments: dict[str, list[Any]]
    types: dict[str, list[Type | None]] = field(default_factory=dict)
    outputs: Sequence[tuple[str, Type | None]] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    blocks: Sequence[Block] = ()
    is_read: Callable[[str], bool] = lambda name: True
    """Whether anything reads the result of this name."""
    maker: Callable[[str], FileOp | None] = lambda name: None
    """The op that gave an argument, if nothing else reads it."""

    def operands(self) -> list[Any]:
        return [operand for group in self.arguments.values() for operand in group]

    @property
    def computed(self) -> bool:
        """Whether the graph computes one of its arguments."""
        return any(isinstance(operand, (Tensor, LiveState)) for operand in self.operands())

    # Arguments as they are.

    def has(self, name: str) -> bool:
        return bool(self.arguments.get(name))

    def operand(self, name: str) -> Any:
        if not self.has(name):
            raise LoadError(f"argument {name!r} is missing; the op needs it")
        return self.arguments[name][0]

    def value(self, name: str = "x") -> Value:
        operand = self.operand(name)
        if not isinstance(operand, (np.ndarray, Encoded, Tensor)):
            raise LoadError(f"argument {name!r} is a {type(operand).__name__.lower()}; give a tensor")
        return operand

    def optional(self, name: str) -> Value | None:
        return self.value(name) if self.has(name) else None

    # What is known.

    def known(self, name: str, default: Any = None) -> np.ndarray:
        if not self.has(name):
            if default is None:
                raise LoadError(f"argument {name!r} is missing; the op needs it")
            return np.asarray(default)
        value = self.value(name)
        if isinstance(value, Tensor):
            raise NoForm(f"{name!r} is computed while the program runs; the engine needs a fixed value")
        return np.asarray(value)

    def numbers(self, name: str, default: Sequence[int] | None = None) -> list[int]:
        return [int(number) for number in self.known(name, default).reshape(-1)]

    def whole(self, name: str, default: int | None = None) -> int:
        return self.numbers(name, None if default is None else [default])[0]

    def number(self, name: str, default: float | None = None) -> float:
        return float(self.known(name, default).reshape(-1)[0])

    def truth(self, name: str, default: bool = False) -> bool:
        return bool(self.known(name, default).reshape(-1)[0])

    def truths(self, name: str, count: int) -> list[bool]:
        """None of them unless the file says."""
        flags = [bool(flag) for flag in self.known(name, [False] * count).reshape(-1)] or [False] * count
        if len(flags) != count:
            raise LoadError(f"argument {name!r} has {len(flags)} values; expected {count}, one for each axis")
        return flags

    def text(self, name: str, default: str | None = None) -> str:
        if name in self.attributes:
            return str(self.attributes[name])
        return str(self.known(name, default).reshape(-1)[0])

    # Types.

    def type_of(self, name: str) -> ValueType | None:
        types = self.types.get(name) or [None]
        return types[0] if isinstance(types[0], ValueType) else None

    def dtype(self, name: str) -> str:
        stated = self.type_of(name)
        if stated is not None:
            return stated.dtype
        operand = self.arguments[name][0] if self.has(name) else None
        if isinstance(operand, np.ndarray):
            return {"f": "fp32", "b": "bool", "U": "string"}.get(operand.dtype.kind, "int32")
        return "bool" if isinstance(operand, Tensor) and operand.dtype == "bool" else "fp16"

    def shape(self, name: str = "x") -> tuple[int, ...]:
        """As the file means it: a tensor of one element that stands for a single number has no axes."""
        value = self.value(name)
        stated = self.type_of(name)
        return () if stated is not None and stated.shape == () else tuple(value.shape)

    def used(self, place: int) -> bool:
        """Whether anything reads this result."""
        return place < len(self.outputs) and self.is_read(self.outputs[place][0])

    def out_type(self, place: int = 0) -> ValueType | None:
        stated = self.outputs[place][1] if place < len(self.outputs) else None
        return stated if isinstance(stated, ValueType) else None

    def out_shape(self, place: int = 0) -> tuple[int, ...] | None:
        stated = self.out_type(place)
        return None if stated is None else stated.static


# Inputs, outputs and states of a graph: their sizes, types and names, by the same rules for every format.


MOST_ELEMENTS = 1 << 31
"""Of one tensor."""


@dataclass
class FilePort:
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
class PortSizes:
    """Open dimensions of a file, and the values that the user gives them."""

    file: str
    dims: Mapping[str, int]
    asked: set[str] = field(default_factory=set)

    def extents(self, name: str, shape: Sequence[int | None], port: FilePort) -> tuple[int, ...]:
        """The shape of an input: as the file states it, with open dimensions as the user gives them."""
        extents = [self._extent(name, axis, extent, len(shape), port) for axis, extent in enumerate(shape)]
        if port.choices and tuple(extents) not in port.choices:
            listed = ", ".join(str(list(choice)) for choice in port.choices[:8])
            raise LoadError(f"{self.file}: input {name!r} of {extents}; the model allows {listed}")
        for axis, ((least, most), extent) in enumerate(zip(port.ranges, extents, strict=False)):
            if extent < least or (most >= 0 and extent > most):
                bound = f"{least} to {most}" if most >= 0 else f"{least} or more"
                raise LoadError(f"{self.file}: {name}[{axis}] is {extent}; the model allows {bound}")
        if any(extent < 1 for extent in extents) or math.prod(extents) > MOST_ELEMENTS:
            raise LoadError(
                f"{self.file}: input {name!r} has shape {extents}; a tensor has 1 to {MOST_ELEMENTS:,} elements"
            )
        return tuple(extents)

    def _extent(self, name: str, axis: int, extent: int | None, rank: int, port: FilePort) -> int:
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

    def check_all_used(self) -> None:
        unknown = [name for name in self.dims if name not in self.asked]
        if unknown:
            there = ", ".join(sorted(self.asked)) or "none"
            raise LoadError(f"{self.file}: no symbolic dimension {unknown[0]!r}; the inputs have {there}")


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
    if isinstance(value, LiveState):
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


def with_states(file: str, outputs: list[Tensor], states: Sequence[LiveState]) -> Graph:
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
