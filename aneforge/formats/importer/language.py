"""What a format adds to the importer: which rule an op has, and who computes what is known or stays on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import ops
from aneforge.formats.forms.reductions import EXACT
from aneforge.formats.importer.host import on_host
from aneforge.formats.importer.op import INTEGERS, FileOp, Listed, Rule
from aneforge.formats.ops.known import WITHOUT_FORM, KnownOps
from aneforge.formats.records import Block, Operation, Ref, StoredValue, Type, ValueType, is_float, is_whole
from aneforge.formats.rows import apply
from aneforge.graph.encoding import Encoded
from aneforge.graph.origins import HandsOn
from aneforge.graph.tensor import Tensor

if TYPE_CHECKING:
    from aneforge.formats.importer.importer import Importer

Scope = MutableMapping[str, Any]
Control = Callable[["Importer", Operation, Any, Scope], Sequence[Any]]
"""Settles an operation about values as such (a branch, a loop, a state) while the model is read."""


class Language:
    """The hooks of the importer, in the order in which it asks them."""

    control: Mapping[str, Control] = {}
    remedy = ""
    """What to do about a file that breaks the format's own rules."""
    runtime = ""
    """Who runs files of this format as they are; empty where they are converted first."""
    forgets = False
    """Whether values that nothing reads any more are dropped while the model is walked."""

    def control_for(self, operation: Operation) -> Control | None:
        return self.control.get(operation.kind)

    def bind(self, importer: Importer, operation: Operation, scope: Scope) -> Any:
        """The operation with its arguments, for the rules of this format."""
        raise NotImplementedError

    def is_known(self, op: Any) -> bool:
        return not op.computed

    def fold(self, op: Any) -> Sequence[Any]:
        """The results of an op whose arguments are all known."""
        raise NotImplementedError

    def why_on_host(self, op: Any) -> str | None:
        """Why the host computes this op before any rule is asked; None if the engine may."""
        return None

    def rule(self, op: Any) -> Callable[[Any], Any] | None:
        raise NotImplementedError

    def definition(self, op: Any) -> tuple[Block, list[Any], list[Type | None]] | None:
        """Operations that mean the same as an op without a rule, and what they are given, with its types."""
        return None

    def is_defined_otherwise(self, op: Any) -> bool:
        """Whether the operations that mean the same are used where the rule of an op has no form for it."""
        return False

    def refusal(self, op: Any) -> str:
        """Why an op without a rule is refused."""
        return "this op is not supported"

    def on_host(self, op: Any, reason: str) -> Sequence[Any] | None:
        """The results as ops of the host, or None where the host cannot compute them."""
        return None

    def checked(self, op: Any, place: int, value: Any) -> Any:
        """A result as the file states it: its shape and type hold, or the rule or the file is wrong."""
        return value

    def entered(self, importer: Importer, name: str, value: Any) -> Any:
        """An input as the rules of this format hold it."""
        return value

    def tensor_in(self, value: Any) -> Any:
        """The tensor of a value."""
        return value

    def place_of(self, operation: Operation) -> tuple[str, str]:
        """The module and the line of the model's own code that an operation comes from, where the file says so."""
        return "", ""

    def bound_type(self, operation: Operation) -> str:
        """The type that a runtime computes an operation in because the file says so, where it is not the engine's."""
        return ""

    @property
    def provider(self) -> HandsOn | None:
        """What is asked later about a runtime that hands parts of the file on."""
        return None

    def noted(self, number: int, op: Any, results: Sequence[Any]) -> None:
        """Keep what a later question about an operation needs, behind its results."""

    def output_value(self, importer: Importer, place: int, label: str, value: Any) -> tuple[str, Any]:
        """A result of the whole, and its name."""
        return label, value

    def is_output(self, importer: Importer, value: Any) -> bool:
        """Whether a result of the whole is a tensor of the graph."""
        return not isinstance(value, Listed)

    def result_types(self, op: Any, results: Sequence[Any]) -> Sequence[Type | None]:
        """Types of results that the file does not state."""
        return []

    def release(self) -> None:
        """Give back the memory of weights that were read through a map."""


_HANDS_OVER = ("cast", "const", "read_state", "write_state", "coreml_update_state")
"""Operations that compute nothing in the type that they state."""


class CommonLanguage(Language):
    """A format whose operations have names for their arguments, and a table of rows over the common ops."""

    def bound_type(self, operation: Operation) -> str:
        """fp32 where an operation gives it: a conversion keeps the types that a file of this kind states."""
        kind = operation.kind.rpartition(".")[2]
        if kind in _HANDS_OVER or kind.startswith("constexpr"):
            return ""
        stated = (kind.dtype for _, kind in operation.outputs if isinstance(kind, ValueType))
        return next((dtype for dtype in stated if dtype in ("fp32", "fp64")), "")

    def __init__(
        self,
        control: Mapping[str, Control],
        known: KnownOps,
        refused: Mapping[str, str] | None = None,
        moves: frozenset[str] = frozenset(),
        compares: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.control, self.known, self.rows = control, known, known.rows
        self.refused = dict(refused or {})
        self.moves = ops.MOVEMENT | moves
        self.compares = dict(compares or {})
        self.importer: Importer | None = None

    def bind(self, importer: Importer, operation: Operation, scope: Scope) -> FileOp:
        self.importer = importer
        bound: dict[str, list[Any]] = {}
        types: dict[str, list[Type | None]] = {}
        for key, bindings in operation.inputs.items():
            bound[key] = [importer.bound(binding, scope) for binding in bindings]
            pairs = zip(bindings, bound[key], strict=True)
            types[key] = [_type_of(importer, binding, value) for binding, value in pairs]
        return FileOp(
            operation.kind,
            importer.label(operation),
            bound,
            types,
            operation.outputs,
            operation.attributes,
            operation.blocks,
            importer.is_read,
            lambda name: _maker(importer, operation, name),
        )

    def fold(self, op: FileOp) -> Sequence[Any]:
        operands = op.operands()
        if isinstance(operands[0] if operands else None, Encoded) and (weight := _still_encoded(op)) is not None:
            return [weight]
        if op.kind in self.known and not any(isinstance(operand, Listed) for operand in operands):
            results = self.known.results(op)
            assert self.importer is not None
            read = sum(operand.size for operand in operands if isinstance(operand, np.ndarray))
            computed = sum(result.size for result in results if 0 not in result.strides)  # a broadcast copies none
            self.importer.folding.charge(computed, read + computed, f"{self.importer.file}: {op.name} ({op.kind})")
            return results
        rule = self.rule(op)
        if rule is None:
            raise LoadError(self.refusal(op))
        results = rule(op)
        return results if isinstance(results, (list, tuple)) else [results]

    def why_on_host(self, op: FileOp) -> str | None:
        """Computing with integers is the host's. Moving and comparing those that fp16 holds is exact on the engine."""
        if op.kind not in self.known:
            return None
        for name, operands in op.arguments.items():
            if name in ops.PLACES.get(op.kind, ()):
                continue  # its rule says why it cannot take places that are computed
            stated = op.types.get(name) or []
            for place, operand in enumerate(operands):
                kind = stated[place] if place < len(stated) else None
                whole = isinstance(kind, ValueType) and is_whole(kind.dtype)
                if isinstance(operand, Tensor):
                    if operand.dtype == "int32" and op.kind not in ops.OF_SHAPES:
                        return INTEGERS
                    if whole and op.kind not in self.moves:
                        return INTEGERS
                elif whole and name in self.compares.get(op.kind, ()) and _beyond_fp16(operand):
                    return INTEGERS
        return None

    def rule(self, op: FileOp) -> Rule | None:
        row = self.rows.get(op.kind)
        return None if row is None or op.kind in WITHOUT_FORM else partial(apply, row)

    def refusal(self, op: FileOp) -> str:
        if op.kind in self.refused:
            return self.refused[op.kind]
        if op.kind in self.known:
            return "its arguments are computed while the program runs; the engine needs fixed ones"
        return f"op {op.kind!r} is not supported"

    def on_host(self, op: FileOp, reason: str) -> Sequence[Tensor] | None:
        hosts = op.kind in self.known and op.kind not in self.refused
        return on_host(op, reason, self.known) if hosts else None

    def checked(self, op: FileOp, place: int, value: Any) -> Any:
        kind = op.out_type(place)
        if kind is None or kind.dtype == "string" or not isinstance(value, (np.ndarray, Encoded, Tensor)):
            return value
        shape = tuple(value.shape)
        if kind.shape == () and shape in ((), (1,)):
            return value
        if len(shape) != len(kind.shape) or any(
            want is not None and have != want for have, want in zip(shape, kind.shape, strict=True)
        ):
            raise LoadError(f"gives {list(shape)}, but the file states {kind}")
        return value


def _type_of(importer: Importer, binding: Any, value: Any) -> Type | None:
    if isinstance(binding, Ref):
        return importer.types.get(binding.name)
    if isinstance(binding, StoredValue):
        return binding.type
    if not isinstance(value, np.ndarray):
        return None
    return ValueType({"f": "fp32", "b": "bool", "U": "string"}.get(value.dtype.kind, "int32"), value.shape)


def _maker(importer: Importer, operation: Operation, name: str) -> FileOp | None:
    bindings = operation.inputs.get(name) or [None]
    binding = bindings[0]
    return importer.only_reader_of(binding.name) if isinstance(binding, Ref) else None


def _beyond_fp16(value: Any) -> bool:
    """Known integers of which fp16 keeps not every one."""
    return isinstance(value, np.ndarray) and value.size > 0 and max(int(value.max()), -int(value.min())) > EXACT


def _still_encoded(op: FileOp) -> Encoded | None:
    """What keeps a compressed weight compressed: copies, turns, and further axes of one place at the end."""
    weight = op.operands()[0]
    assert isinstance(weight, Encoded)
    if op.kind == "identity":
        return weight
    if op.kind == "cast":
        return weight if is_float(op.text("dtype")) else None
    if op.kind == "transpose":
        return weight.transpose([axis % weight.ndim for axis in op.numbers("perm")])
    shape = op.out_shape() if op.kind in ("reshape", "expand_dims") else None
    if shape is None or shape[: weight.ndim] != weight.shape or any(extent != 1 for extent in shape[weight.ndim :]):
        return None
    for axis in range(weight.ndim, len(shape)):
        weight = weight.expand_dims(axis)
    return weight
