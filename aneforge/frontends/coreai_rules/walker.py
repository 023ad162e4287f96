"""A Core AI function walked operation by operation: static values as NumPy arrays, everything else as tensors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.errors import AneforgeError, first_line
from aneforge.frontends import LoadError
from aneforge.frontends.coreai_rules import INTEGERS, JOINED, REFUSED, RULES
from aneforge.frontends.coreai_rules.control import CONTROL
from aneforge.frontends.coreai_rules.host import on_host
from aneforge.frontends.coreai_rules.op import Handle, Held, Op, Token
from aneforge.frontends.coreai_rules.records import Block, Function, Operation, Type, is_float, is_whole
from aneforge.frontends.coreai_rules.static import STATIC, folded
from aneforge.frontends.forms import truth
from aneforge.frontends.forms.reductions import EXACT
from aneforge.frontends.values import Value, as_tensor
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import cast
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor

__all__ = ["Walker"]

_MOST_ELEMENTS = 1 << 31
_MOST_OPERATIONS = 1 << 20  # walked, loops and calls written out
_BROKEN = (AneforgeError, ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError)
_WHOLE = "it computes with whole numbers, which the engine does not"
_KEPT = ("cast", "transpose", "reshape", "expand_dims")  # what leaves a compressed weight compressed


@dataclass
class Walker:
    file: str
    functions: Mapping[str, Function]

    def __post_init__(self) -> None:
        self.values: dict[int, Held] = {}
        self.types: dict[int, Type] = {}
        self.makers: dict[int, Op] = {}
        self.uses: Counter[int] = Counter()
        self.handles: dict[str, Handle] = {}
        self.prefix: list[str] = []
        self.called: list[str] = []
        self.walked = 0
        for function in self.functions.values():
            self.uses.update(function.block.outputs)
            for operation in function.operations():
                self.uses.update(operation.operands)
                for region in operation.regions:
                    self.uses.update(region.outputs)

    # The whole.

    def graph(self, name: str) -> Graph:
        function = self.functions[name]
        given = [
            self._input(label, kind)
            for label, (_, kind) in zip(function.inputs, function.block.arguments, strict=True)
        ]
        results = self.block(function.block, given)
        outputs: list[Tensor] = []
        states: dict[str, Value] = {}
        for label, value, kind in zip(function.outputs, results, function.output_types, strict=True):
            if isinstance(value, Token):
                states.update(value.written)
            else:
                outputs.append(self._output(label, value, kind, outputs))
        return self._with_states(outputs, states)

    def _input(self, name: str, kind: Type) -> Held:
        where = f"{self.file}: input {name!r}"
        if kind.form not in ("tensor", "handle"):
            raise LoadError(f"{where} is {kind}; the graph's inputs are tensors")
        shape = kind.static
        if shape is None:
            raise LoadError(
                f"{where} is {kind}, whose shape is open; fix it before the asset is saved "
                "(AIProgram.set_static_shape_config)"
            )
        if any(extent < 1 for extent in shape) or math.prod(shape) > _MOST_ELEMENTS:
            raise LoadError(f"{where} of {list(shape)} is no tensor that the graph can hold")
        try:
            made = self._port(name, kind.dtype, shape or (1,))
        except AneforgeError as error:
            raise LoadError(f"{where}: {first_line(error)}") from None
        if kind.form == "tensor":
            return made
        self.handles[name] = Handle(name, made)
        return self.handles[name]

    @staticmethod
    def _port(name: str, dtype: str, shape: tuple[int, ...]) -> Tensor:
        """Floats and bytes enter the engine; whole numbers are for the host."""
        if is_float(dtype):
            return graph_input(shape, name=name)
        if dtype == "i1":
            return truth(graph_input(shape, name=name))
        if dtype == "ui8":
            return cast(graph_input(shape, "uint8", name=name))
        if is_whole(dtype):
            return graph_input(shape, "int32", name=name)
        raise LoadError(f"numbers of type {dtype}")

    def _output(self, name: str, value: Held, kind: Type, others: Sequence[Tensor]) -> Tensor:
        if isinstance(value, (Token, Handle)) or kind.form != "tensor":
            raise LoadError(f"{self.file}: output {name!r} is {kind}; the graph gives tensors")
        try:
            made = as_tensor(value)
            if made.op == "input" or any(made is each for each in others):
                made = made.reshape(*made.shape)  # another name for the same numbers
        except AneforgeError as error:
            raise LoadError(f"{self.file}: output {name!r}: {first_line(error)}") from None
        return made.named(name)

    def _with_states(self, outputs: list[Tensor], states: Mapping[str, Value]) -> Graph:
        """The new value of each state that was written is an output too."""
        pairs: dict[str, str] = {}
        taken = {each.name for each in outputs}
        for name, value in states.items():
            made = as_tensor(value)
            if made.op in ("input", "const") or any(made is each for each in outputs):
                made = made.reshape(*made.shape)
            label = f"{name}_out"
            while label in taken:
                label += "_"
            outputs.append(made.named(label))
            taken.add(label)
            pairs[name] = label
        if not outputs:
            raise LoadError(f"{self.file}: the program gives nothing")
        try:
            return Graph(outputs, states=pairs)
        except AneforgeError as error:
            raise LoadError(f"{self.file}: {first_line(error)}") from None

    # Blocks and operations.

    def block(self, block: Block, given: Sequence[Held]) -> list[Held]:
        if len(block.arguments) != len(given):
            raise LoadError(f"a block of {len(block.arguments)} arguments was given {len(given)}")
        for (place, kind), value in zip(block.arguments, given, strict=True):
            self.values[place] = value
            self.types[place] = kind
            self.makers.pop(place, None)
        for operation in block.operations:
            self._operation(operation)
        return [self.values[place] for place in block.outputs]

    def call(self, name: str, given: Sequence[Held], caller: str) -> list[Held]:
        """Another function of the file in the place of its call; its names stand behind the caller's."""
        if name not in self.functions:
            raise LoadError(f"no graph {name!r} to call")
        if name in self.called:
            raise LoadError(f"graph {name!r} calls itself; the engine has no such calls")
        self.prefix.append(caller)
        self.called.append(name)
        try:
            return self.block(self.functions[name].block, given)
        finally:
            self.prefix.pop()
            self.called.pop()

    def _operation(self, operation: Operation) -> None:
        name = "/".join([*self.prefix, operation.name])
        where = f"{self.file}: {name} ({operation.kind})"
        self.walked += 1
        if self.walked > _MOST_OPERATIONS:
            raise LoadError(f"{where}: more than {_MOST_OPERATIONS:,} operations, loops and calls written out")
        try:
            op = self._op(operation, name)
            results = self._results(operation, op)
            if len(results) != len(operation.results):
                raise LoadError(f"{len(results)} results where the file has {len(operation.results)}")
            for number, ((place, kind), value) in enumerate(zip(operation.results, results, strict=True)):
                self._as_told(kind, value)
                label = name if len(results) == 1 else f"{name}.{number}"
                self.values[place] = self._named(value, label)
                self.types[place] = kind
                self.makers[place] = op
        except _BROKEN as error:
            if isinstance(error, LoadError) and str(error).startswith(f"{self.file}: "):
                raise  # an operation of an inner block has named itself
            raise LoadError(f"{where}: {first_line(error)}") from None
        except RecursionError:
            raise LoadError(f"{where}: nested too deep") from None
        except MemoryError:
            raise LoadError(f"{where}: its values do not fit this machine's memory") from None

    def _op(self, operation: Operation, name: str) -> Op:
        unknown = [place for place in operation.operands if place not in self.values]
        if unknown:
            raise LoadError("it reads a value that no earlier operation gives")

        def maker(place: int) -> Op | None:
            read = operation.operands[place]
            return self.makers.get(read) if self.uses[read] == 1 else None

        return Op(
            operation.kind,
            name,
            [self.values[place] for place in operation.operands],
            [self.types[place] for place in operation.operands],
            [kind for _, kind in operation.results],
            operation.attributes,
            operation.regions,
            maker,
        )

    def _results(self, operation: Operation, op: Op) -> list[Held]:
        kind = op.kind
        if kind in CONTROL:
            return CONTROL[kind](self, operation, op)
        if kind not in RULES and kind not in STATIC:
            raise LoadError(REFUSED.get(kind, "no rule for this operation"))
        values = [op.value(place) for place in range(len(op.given))]
        computed = [isinstance(each, Tensor) for each in values]
        if kind in _KEPT and isinstance(values[0], Encoded) and (kept := _kept(op, values[0])) is not None:
            return [kept]
        if not any(computed) and kind in STATIC:
            return list(folded(op))
        if kind not in RULES:
            raise LoadError("its operands are computed while the program runs; the engine needs fixed ones")
        if self._counts(op):
            return list(on_host(op, _WHOLE))
        try:
            made = RULES[kind](op)
        except LoadError as error:
            return list(on_host(op, str(error)))
        return list(made) if isinstance(made, (list, tuple)) else [made]  # type: ignore[list-item]

    @staticmethod
    def _counts(op: Op) -> bool:
        """Whether an operation would compute with whole numbers. Moving and comparing some that fp16 holds is none."""
        for place, (value, kind) in enumerate(zip(op.given, op.types, strict=True)):
            if isinstance(value, Tensor):
                if value.dtype == "int32" or (is_whole(kind.dtype) and op.kind not in INTEGERS):
                    return True
            elif place in JOINED.get(op.kind, ()) and is_whole(kind.dtype) and _beyond_fp16(value):
                return True
        return False

    @staticmethod
    def _as_told(kind: Type, value: Held) -> None:
        """The file says the shape of every value: a rule that gives another one is wrong, or the file is."""
        if kind.form != "tensor" or isinstance(value, (Token, Handle)):
            return
        shape = tuple(value.shape)
        if kind.shape == () and shape in ((), (1,)):
            return
        if len(shape) != len(kind.shape) or any(
            want is not None and have != want for have, want in zip(shape, kind.shape, strict=True)
        ):
            raise LoadError(f"it gives {list(shape)}, the file says {kind}")

    @staticmethod
    def _named(value: Held, name: str) -> Held:
        """The last tensor of an operation carries its name, so that every later message speaks it."""
        if isinstance(value, Tensor) and value.op not in ("input", "const") and not value.name:
            value.named(name)
        return value


def _beyond_fp16(value: Held) -> bool:
    """Known whole numbers of which fp16 keeps not every one."""
    return isinstance(value, np.ndarray) and value.size > 0 and max(int(value.max()), -int(value.min())) > EXACT


def _kept(op: Op, value: Encoded) -> Value | None:
    if op.kind == "cast":
        return value if is_float(op.dtype) else None
    if op.kind == "transpose":
        return value.transpose(op.numbers(1, "the order"))
    rest = op.shape[value.ndim :]
    if op.shape[: value.ndim] != value.shape or any(extent != 1 for extent in rest):
        return None
    for axis in range(value.ndim, len(op.shape)):
        value = value.expand_dims(axis)
    return value
