"""An ML program walked operation by operation: static values as NumPy arrays, everything else as tensors."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError, first_line
from aneforge.frontends import LoadError
from aneforge.frontends.coreml.blobs import Weights
from aneforge.frontends.coreml.control import CONTROL, Scope
from aneforge.frontends.coreml.host import on_host
from aneforge.frontends.coreml.matrix import MOVEMENT, PLACES, REFUSED
from aneforge.frontends.coreml.op import Held, Listed, OnHost, Op, State, is_whole
from aneforge.frontends.coreml.program import (
    Binding,
    Block,
    Function,
    Operation,
    Ref,
    StateType,
    Stored,
    TensorType,
    Type,
    names_read,
)
from aneforge.frontends.coreml.rules import RULES
from aneforge.frontends.coreml.static import STATIC, folded
from aneforge.frontends.values import as_tensor
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor

__all__ = ["Port", "Walker"]

_MOST_ELEMENTS = 1 << 31
_MOST_OPERATIONS = 1 << 20  # walked, loops written out
_WHOLE = "it computes with whole numbers, which the engine does not"
_BROKEN = (OnHost, AneforgeError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError)


@dataclass
class Port:
    """What a model's description says of an input beside its type."""

    shape: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    """The least and the most of each extent; -1 is no bound."""
    choices: tuple[tuple[int, ...], ...] = ()
    image: bool = False


@dataclass
class Walker:
    file: str
    function: Function
    weights: Weights
    dims: Mapping[str, int]
    fixed: Mapping[str, Any]
    ports: Mapping[str, Port] = field(default_factory=dict)
    wanted: Sequence[str] | None = None
    """The outputs that the model's description names; all that the function gives unless it does."""

    def __post_init__(self) -> None:
        self.states: dict[str, State] = {}
        self.types: dict[str, Type | None] = {}
        self.told: set[int] = set()  # uids of tensors that carry a name of the file
        self.used_dims: set[str] = set()
        self.walked = 0

    # The whole.

    def graph(self) -> Graph:
        scope: Scope = ChainMap()
        for name, kind in self.function.inputs:
            scope[name] = self._input(name, kind)
            self.types[name] = kind.wrapped if isinstance(kind, StateType) else kind
        absent = [name for name in self.fixed if name not in scope]
        if absent:
            raise LoadError(f"{self.file}: no input {absent[0]!r} to fix; there is {', '.join(scope) or 'none'}")
        unknown = [name for name in self.dims if name not in self.used_dims]
        if unknown:
            known = ", ".join(sorted(self.used_dims)) or "none"
            raise LoadError(f"{self.file}: no open dimension {unknown[0]!r}; the inputs have {known}")
        results = self.block(self.function.block, scope)
        outputs: list[Tensor] = []
        for name, value in zip(self.function.block.outputs, results, strict=True):
            if self._is_output(name, value):
                outputs.append(self._output(name, value, outputs))
        return self._with_states(outputs)

    def _is_output(self, name: str, value: Held) -> bool:
        """Labels of classes are text: they stay with the host."""
        kind = self.types.get(name)
        text = isinstance(kind, TensorType) and kind.dtype == "string"
        return not text and not isinstance(value, Listed)

    def _output(self, name: str, value: Held, others: Sequence[Tensor]) -> Tensor:
        if isinstance(value, (State, Listed)):
            raise LoadError(f"{self.file}: output {name!r} is a {type(value).__name__.lower()}")
        try:
            made = as_tensor(value)
            taken = made.op == "input" or any(made is each for each in others)
            if taken and made.dtype != "int32":
                made = made.reshape(*made.shape)  # another name for the same numbers
        except AneforgeError as error:
            raise LoadError(f"{self.file}: output {name!r}: {first_line(error)}") from None
        return made if made.op == "input" else made.named(name)

    def _with_states(self, outputs: list[Tensor]) -> Graph:
        """The new value of each state that was written is an output too."""
        pairs: dict[str, str] = {}
        for state in self.states.values():
            if not state.written:
                continue
            value = as_tensor(state.value)
            if value.op in ("input", "const") or any(each.name == value.name for each in outputs if each is not value):
                value = value.reshape(*value.shape).named(f"{state.name}_out")
            if not value.name:
                value.named(f"{state.name}_out")
            if not any(value is each for each in outputs):
                outputs.append(value)
            pairs[state.name] = str(value.name)
        if not outputs:
            raise LoadError(f"{self.file}: the program gives nothing")
        try:
            return Graph(outputs, states=pairs)
        except AneforgeError as error:
            raise LoadError(f"{self.file}: {first_line(error)}") from None

    # Inputs.

    def _input(self, name: str, kind: Type) -> Held:
        if name in self.fixed:
            value = np.asarray(self.fixed[name])
            if isinstance(kind, TensorType) and len(kind.shape) != value.ndim:
                raise LoadError(f"{self.file}: input {name!r} is {kind}, the fixed value is {list(value.shape)}")
            return value
        if isinstance(kind, StateType):
            shape = self._extents(name, kind.wrapped)
            held = TensorType(kind.wrapped.dtype, shape)
            self.states[name] = State(name, held, graph_input(shape, name=name))
            return self.states[name]
        if not isinstance(kind, TensorType) or kind.dtype == "string":
            raise LoadError(f"{self.file}: input {name!r} is no tensor of numbers")
        shape = self._extents(name, kind) or (1,)
        if is_whole(kind.dtype):
            return graph_input(shape, dtype="int32", name=name)
        image = name in self.ports and self.ports[name].image
        made = graph_input(shape, name=name, max_abs=255.0 if image else None)
        return made.not_equal(0.0) if kind.dtype == "bool" else made

    def _extents(self, name: str, kind: TensorType) -> tuple[int, ...]:
        port = self.ports.get(name, Port())
        told: list[int] = []
        for axis, extent in enumerate(kind.shape):
            label = f"{name}[{axis}]"
            open_ = extent is None or self._may_change(port, axis)
            if open_:
                self.used_dims.add(label)
            default = port.shape[axis] if extent is None and len(port.shape) == len(kind.shape) else extent
            if label in self.dims and open_:
                default = int(self.dims[label])
            if default is None or default < 1:
                raise LoadError(
                    f"{self.file}: dimension {axis} of input {name!r} is open; give it a value: "
                    f"af.load(..., dims={{{label!r}: 1}}), or --dim {label}=1"
                )
            told.append(int(default))
        self._allowed(name, port, told)
        if int(np.prod(told, dtype=object)) > _MOST_ELEMENTS:
            raise LoadError(f"{self.file}: input {name!r} of {told} has more elements than a tensor can")
        return tuple(told)

    @staticmethod
    def _may_change(port: Port, axis: int) -> bool:
        if axis < len(port.ranges):
            return port.ranges[axis][0] != port.ranges[axis][1]
        return len({each[axis] for each in port.choices if axis < len(each)}) > 1

    def _allowed(self, name: str, port: Port, shape: list[int]) -> None:
        if port.choices and tuple(shape) not in port.choices:
            listed = ", ".join(str(list(each)) for each in port.choices[:8])
            raise LoadError(f"{self.file}: input {name!r} of {shape}; the model allows {listed}")
        for axis, ((least, most), extent) in enumerate(zip(port.ranges, shape, strict=False)):
            if extent < least or (most >= 0 and extent > most):
                bound = f"{least} to {most}" if most >= 0 else f"{least} or more"
                raise LoadError(f"{self.file}: {name}[{axis}] is {extent}; the model allows {bound}")

    # Operations.

    def block(self, block: Block, scope: Scope, given: Sequence[Held] = ()) -> list[Held]:
        """What a block gives; names that it makes are its own."""
        inner: Scope = ChainMap({}, scope)
        if len(block.inputs) != len(given) and (given or block.inputs) and block is not self.function.block:
            raise LoadError(f"a block of {len(block.inputs)} inputs was given {len(given)}")
        for (name, kind), value in zip(block.inputs, given, strict=False):
            inner[name] = value
            self.types[name] = kind
        for operation in block.operations:
            self._operation(operation, inner)
        missing = [name for name in block.outputs if name not in inner]
        if missing:
            raise LoadError(f"{self.file}: output {missing[0]!r} is made by no operation")
        return [inner[name] for name in block.outputs]

    def _operation(self, operation: Operation, scope: Scope) -> None:
        name = operation.outputs[0][0] if operation.outputs else _text(operation.attributes.get("name"))
        line = f", line {operation.line}" if operation.line else ""
        where = f"{self.file}: {name or 'operation'} ({operation.kind}{line})"
        self.walked += 1
        if self.walked > _MOST_OPERATIONS:
            raise LoadError(f"{where}: more than {_MOST_OPERATIONS:,} operations, loops written out")
        try:
            op = self._op(operation, scope, name)
            results = self._results(operation, op, scope)
            unmade = [key for key, _ in operation.outputs[len(results) :] if key in self._reads]
            if unmade:
                raise LoadError(f"{len(results)} results for {len(operation.outputs)} names")
            for (key, kind), value in zip(operation.outputs, results, strict=False):
                scope[key] = self._named(value, key)
                self.types[key] = kind
                self._as_told(kind, value)
        except _BROKEN as error:
            reason = first_line(error).removeprefix(f"{self.file}: ")
            raise LoadError(f"{where}: {reason}") from None
        except RecursionError:
            raise LoadError(f"{where}: nested too deep") from None
        except MemoryError:
            raise LoadError(f"{where}: its values do not fit this machine's memory") from None

    def _op(self, operation: Operation, scope: Scope, name: str) -> Op:
        given: dict[str, list[Held]] = {}
        types: dict[str, list[Type | None]] = {}
        arguments: dict[str, Any] = dict(operation.inputs)
        for key, value in operation.attributes.items():  # stored weights in a compressed form have them here
            if key not in ("name", "val") and key not in arguments and isinstance(value, (np.ndarray, Stored)):
                arguments[key] = [value]
        for key, bindings in arguments.items():
            given[key] = [self._bound(each, scope) for each in bindings]
            types[key] = [self._type_of(each, value) for each, value in zip(bindings, given[key], strict=True)]
        outputs: list[tuple[str, Type | None]] = list(operation.outputs)
        return Op(operation.kind, name, given, types, outputs, lambda: self._reads)

    @cached_property
    def _reads(self) -> set[str]:
        return names_read(self.function.block)

    def _bound(self, binding: Binding, scope: Scope) -> Held:
        if isinstance(binding, Ref):
            if binding.name not in scope:
                raise LoadError(f"reads {binding.name!r}, which no input or earlier operation gives")
            return scope[binding.name]
        if isinstance(binding, Stored):
            return self.stored(binding)
        if isinstance(binding, np.ndarray):
            return binding
        return Listed(tuple(each for each in binding if isinstance(each, np.ndarray)))

    def _type_of(self, binding: Binding, value: Held) -> Type | None:
        if isinstance(binding, Ref):
            return self.types.get(binding.name)
        if isinstance(binding, Stored):
            return binding.type
        if not isinstance(value, np.ndarray):
            return None
        kind = {"f": "fp32", "b": "bool", "U": "string"}.get(value.dtype.kind, "int32")
        return TensorType(kind, value.shape)

    def stored(self, value: Stored) -> np.ndarray:
        shape = value.type.static
        if shape is None or int(np.prod(shape, dtype=object)) > _MOST_ELEMENTS:
            raise LoadError(f"a stored value of {value.type}")
        return self.weights.array(value.path, value.offset, value.type.dtype, shape)

    def _results(self, operation: Operation, op: Op, scope: Scope) -> list[Held]:
        kind = op.kind
        if kind in CONTROL:
            return CONTROL[kind](self, operation, op, scope)
        if kind not in RULES and kind not in STATIC:
            raise LoadError(REFUSED.get(kind, "no rule for this op of MIL"))
        values = [each for group in op.given.values() for each in group]
        if isinstance(op.given.get("x", [None])[0], Encoded) and (kept := _kept(op)) is not None:
            return [kept]
        if kind in STATIC and all(isinstance(each, (np.ndarray, Encoded)) for each in values):
            return list(folded(op))
        if kind in STATIC and self._counts(op):
            return list(on_host(op, _WHOLE))
        if kind not in RULES:
            raise LoadError("its arguments are computed while the program runs; the engine needs fixed ones")
        try:
            made = RULES[kind](op)
        except OnHost as reason:
            return list(on_host(op, str(reason)))
        return list(made) if isinstance(made, (list, tuple)) else [made]

    @staticmethod
    def _counts(op: Op) -> bool:
        """Whether an op would compute with whole numbers. Moving some that are held as fp16 is no computation."""
        for name, values in op.given.items():
            if name in PLACES.get(op.kind, ()):
                continue  # its own rule knows why it cannot take places that are computed
            for place, value in enumerate(values):
                if not isinstance(value, Tensor):
                    continue
                if value.dtype == "int32" and op.kind not in ("shape", "fill_like"):
                    return True
                kinds = op.types.get(name) or []
                kind = kinds[place] if place < len(kinds) else None
                if isinstance(kind, TensorType) and is_whole(kind.dtype) and op.kind not in MOVEMENT:
                    return True
        return False

    @staticmethod
    def _as_told(kind: Type | None, value: Held) -> None:
        """The file says the shape of every value: a rule that gives another one is wrong, or the file is."""
        if not isinstance(kind, TensorType) or kind.dtype == "string" or isinstance(value, (State, Listed)):
            return
        shape = tuple(value.shape)
        if kind.shape == () and shape in ((), (1,)):
            return
        if len(shape) != len(kind.shape) or any(
            want is not None and have != want for have, want in zip(shape, kind.shape, strict=True)
        ):
            raise LoadError(f"it gives {list(shape)}, the file says {kind}")

    def _named(self, value: Held, name: str) -> Held:
        """The last tensor of an operation carries its name, so that every later message speaks it."""
        if isinstance(value, Tensor) and value.op not in ("input", "const") and value.uid not in self.told:
            self.told.add(value.named(name).uid)
        return value


def _kept(op: Op) -> Encoded | None:
    """What keeps a compressed weight compressed."""
    value = op.given["x"][0]
    assert isinstance(value, Encoded)
    if op.kind == "identity" or (op.kind == "cast" and op.text("dtype") in ("fp16", "fp32")):
        return value
    return value.transpose(op.numbers("perm")) if op.kind == "transpose" else None


def _text(value: Any) -> str:
    return str(value.reshape(-1)[0]) if isinstance(value, np.ndarray) and value.size else ""
