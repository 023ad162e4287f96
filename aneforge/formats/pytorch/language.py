# pyright: reportMissingImports=false
"""How the importer reads exported programs: ATen ops with the shapes and types that PyTorch gives them.

Known values are PyTorch tensors, so that ATen computes with them; rules get them as arrays.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_map_only

from aneforge.errors import LoadError, first_line
from aneforge.formats.forms import truth
from aneforge.formats.importer.calls import called
from aneforge.formats.importer.importer import Importer
from aneforge.formats.importer.language import INTEGERS, Control, Language, Scope
from aneforge.formats.importer.op import FileOp
from aneforge.formats.pytorch.calls import Operand, as_arrays, host_nodes, in_fp16, numbers_of, order_arguments
from aneforge.formats.pytorch.host import DRAWS, HOSTED, refusal
from aneforge.formats.pytorch.naming import ModuleNames, place_of
from aneforge.formats.pytorch.sizes import Sizes
from aneforge.formats.pytorch.table import ENCODES, INDEXING, MOVES, plain_name, row_for
from aneforge.formats.records import Block, Operation, Ref, Type, ValueType
from aneforge.formats.rows import Row
from aneforge.formats.values import NoForm, shaped
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

_LARGE = 1 << 18
_RUNTIME_CHECKS = ("_assert", "sym_constrain_range")
_UNSET = ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided")
"""Memory whose numbers nobody reads: one zero stands for all of them, however many there are."""
_TURNS = ("alias", "clone", "detach", "permute", "t", "transpose")
"""Ops that change the order of axes at most."""
_READS_NO_ELEMENTS = ("zeros_like", "ones_like", "full_like", "new_", "empty_like", "alias", "clone", "detach")
_READS_NO_ELEMENTS += ("contiguous", "lift")
"""Ops that read no elements, so they work on integers too."""
_STORAGE = ("device", "layout", "memory_format", "non_blocking", "pin_memory")
"""Options that say where and how a tensor is stored, which decides nothing here."""


@dataclass
class _Call:
    """One call of an op with its arguments bound."""

    fx: Any
    args: Any
    kwargs: Any
    name: str = ""
    results: list[ValueType] = field(default_factory=list)
    """Types of the results; none where the call is not read by a row."""
    operands: list[Operand] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The op as PyTorch writes it: ``aten.add.Tensor``."""
        return str(self.fx.target)

    @property
    def computed(self) -> bool:
        return any(isinstance(leaf, Tensor) for leaf in tree_leaves((self.args, self.kwargs)))

    @property
    def used_results(self) -> frozenset[int]:
        """Positions of the results that are read."""
        if not isinstance(self.fx.meta.get("val"), (tuple, list)):
            return frozenset([0])
        return frozenset(user.args[1] for user in self.fx.users if user.target is operator.getitem and user.users)


class Torch(Language):
    def __init__(self, sizes: Sizes, names: ModuleNames, release: Callable[[], None] | None) -> None:
        self.sizes, self.names, self._release = sizes, names, release
        self.shared: dict[Any, Any] = {}
        self.importer: Importer | None = None
        self.output_names: list[str] = []
        self.renamed: dict[str, str] = {}

    def release(self) -> None:
        if self._release is not None:
            self._release()

    # Records.

    def block(self, module: Any) -> Block:
        """Return the calls of a graph. A getitem becomes the name of one result."""
        self.names.record_last_ops(module.graph.nodes)
        operations: list[Operation] = []
        outputs: list[str] = []
        inputs: list[tuple[str, Any]] = []
        for fx in module.graph.nodes:
            if fx.op == "placeholder":
                inputs.append((fx.name, None))
            elif fx.op == "get_attr":
                value = operator.attrgetter(fx.target)(module)
                constant = value.detach() if isinstance(value, torch.Tensor) else value
                operations.append(Operation("get_attr", {}, [(fx.name, None)], name=fx.name, source=constant))
            elif fx.op == "output":
                results = fx.args[0] if isinstance(fx.args[0], (list, tuple)) else [fx.args[0]]
                for place, result in enumerate(results):
                    if isinstance(result, torch.fx.Node):
                        outputs.append(_key(result))
                    else:  # a number or None
                        name = f"{fx.name}.{place}"
                        operations.append(Operation("get_attr", {}, [(name, None)], name=name, source=result))
                        outputs.append(name)
            elif fx.op != "call_function":
                raise LoadError(f"{fx.name} ({fx.op}): the node is not a call of an op; export the program again")
            elif fx.target is not operator.getitem and (
                fx.users or fx.target is torch.ops.aten._local_scalar_dense.default
            ):
                reads: list[Any] = [Ref(_key(node)) for node in fx.all_input_nodes]
                names = [(name, None) for name in _result_keys(fx)]
                operations.append(Operation(str(fx.target), {"": reads}, list(names), name=fx.name, source=fx))
        return Block(inputs, outputs, operations)

    # Arguments, and ops that are settled while the model is read.

    def bind(self, importer: Importer, operation: Operation, scope: Scope) -> _Call:
        self.importer = importer
        if operation.kind == "get_attr":
            return _Call(None, (), {})
        fx = operation.source

        def value_of(node: Any) -> Any:
            keys = _result_keys(node) if node.target is not operator.getitem else [_key(node)]
            results = [scope[key] for key in keys]
            return results if isinstance(node.meta.get("val"), (list, tuple)) and len(keys) != 1 else results[0]

        args, kwargs = map_arg((fx.args, fx.kwargs), value_of)
        call = _Call(fx, args, kwargs)
        encodes = isinstance(fx.target, torch._ops.OpOverload) and plain_name(str(fx.target))[0] in ENCODES
        if (call.computed or encodes) and self.control_for(operation) is None:
            if fx.target is torch.ops.aten.index.Tensor:
                self._bind_selected_size(fx, args)
            call.name = operation.name = self.names.name_for(fx)
            call.results = self.sizes.types(fx.meta.get("val"))
            for operand in fx.all_input_nodes:
                call.operands.append((value_of(operand), self._type(operand)))
        return call

    def control_for(self, operation: Operation) -> Control | None:
        if operation.kind == "get_attr":
            return lambda importer, operation, op, scope: [operation.source]
        fx = operation.source
        if isinstance(fx.target, torch._ops.HigherOrderOperator):
            return self._inline
        if self.sizes.value(fx.meta.get("val")) is not None:
            return lambda importer, operation, op, scope: [self.sizes.value(fx.meta.get("val"))]
        if not isinstance(fx.target, torch._ops.OpOverload):
            return _arithmetic
        if plain_name(str(fx.target))[0].startswith(_RUNTIME_CHECKS):
            return lambda importer, operation, op, scope: [None] * len(operation.outputs)
        if fx.target is torch.ops.aten._local_scalar_dense.default:
            return self._read_number
        return None

    def _read_number(self, importer: Importer, operation: Operation, op: _Call, scope: Scope) -> list[Any]:
        """Read the only element of a tensor, as a size or an index."""
        if isinstance(op.args[0], Tensor):
            raise LoadError(
                "a computed number is used as a size or an index; the engine needs fixed ones. Fix the input that it "
                "comes from (fixed={...}), or index with a tensor or a mask"
            )
        number = numbers_of(op.args[0]).reshape(-1)[0].item()
        self.sizes.bind(op.fx.meta.get("val"), number)
        return [number]

    def _inline(self, importer: Importer, operation: Operation, op: _Call, scope: Scope) -> list[Any]:
        """Inline a wrapped part of a program (no_grad, autocast), or the known branch of a cond."""
        name, args = str(op.fx.target), op.args
        modules = [place for place, argument in enumerate(args) if isinstance(argument, torch.nn.Module)]
        if name == "cond" and not isinstance(args[0], Tensor):
            chosen, operands = args[1] if bool(args[0]) else args[2], args[3]
        elif name.startswith("wrap") and len(modules) == 1:
            chosen, operands = args[modules[0]], args[modules[0] + 1 :]
        else:
            raise LoadError("the branch that runs depends on the data; the engine needs a fixed program")
        return importer.inline("", self.block(chosen), None, list(operands))

    def _bind_selected_size(self, fx: Any, args: Any) -> None:
        """Bind the size of a result that a known mask selects; the program leaves it open."""
        masks = [index for index in args[1] if isinstance(index, torch.Tensor) and index.dtype == torch.bool]
        extents = getattr(fx.meta.get("val"), "shape", ())
        if masks and not any(isinstance(index, Tensor) for index in args[1]):
            count = int(torch.stack([mask.sum() for mask in masks]).max())
            for extent in extents:
                if self.sizes.value(extent) is None:
                    self.sizes.bind(extent, count)

    # Known values.

    def is_known(self, op: _Call) -> bool:
        return not op.results

    def fold(self, op: _Call) -> Sequence[Any]:
        """Compute a node of known inputs with the op itself on the CPU."""
        target, args = op.fx.target, op.args
        if _draws(target, args, op.kwargs):
            raise LoadError(DRAWS)
        base = plain_name(op.kind)[0]
        if args and isinstance(args[0], Encoded) and base in _TURNS:
            return [_turned(target, *args)]
        if base in _UNSET:
            promised = op.fx.meta["val"]
            return [torch.zeros((), dtype=promised.dtype).expand(promised.shape)]
        self._charge(op.fx)
        positional = tree_map_only(Encoded, lambda weight: torch.from_numpy(weight.decode()).float(), args)
        options = {name: None if name == "pin_memory" else value for name, value in op.kwargs.items()}
        positional, keyword_only = tree_map_only(torch.device, lambda _: torch.device("cpu"), (positional, options))
        try:
            with torch.no_grad():
                computed = target(*positional, **keyword_only)
        except Exception as error:
            raise LoadError(f"a known value could not be computed: {first_line(error)}") from None
        return list(computed) if isinstance(op.fx.meta.get("val"), (tuple, list)) else [computed]

    def _charge(self, fx: Any) -> None:
        assert self.importer is not None
        if not fx.target.is_view:
            count = sum(math.prod(kind.static or ()) for kind in self.sizes.types(fx.meta.get("val")))
            self.importer.folding.charge(count, count, f"{self.importer.file}: {fx.name} ({fx.target})")

    # Rows and the host.

    def rule(self, op: _Call) -> Callable[[_Call], Any]:
        return self._apply

    def _apply(self, call: _Call) -> Any:
        """What the row of an op gives, or the host's results where the engine has no form."""
        base, full = plain_name(call.kind)
        refused = refusal(base, full)
        if refused is not None:
            raise LoadError(refused)
        if any("complex" in kind.dtype for kind in (*call.results, *(kind for _, kind in call.operands))):
            raise LoadError("complex numbers are not supported; the engine takes real numbers only")
        row = row_for(call.kind)
        if row is None and base not in HOSTED:
            raise LoadError(f"op {call.kind!r} is not supported; see docs/torch.md for the ops that the reader has")
        positional, keyword_only = order_arguments(call.fx.target, call.args, call.kwargs)
        operands = call.operands
        if row is not None and base not in INDEXING and _computes_floats(base, call):
            positional = [self._in_fp16(argument) for argument in positional]
            operands = [(self._in_fp16(value), kind) for value, kind in operands]
        reason = _why_on_host(base, call, operands)
        try:
            if row is not None and reason is None:
                return self._by_row(row, call, positional, keyword_only)
        except NoForm as no_form:
            reason = str(no_form)
        finally:
            if any(math.prod(kind.static or ()) > _LARGE for _, kind in operands):
                self.release()
        return host_nodes(call.kind, call.results, call.used_results, positional, keyword_only, operands, str(reason))

    def _by_row(self, row: Row, call: _Call, positional: Sequence[Any], keyword_only: Mapping[str, Any]) -> Any:
        options = {name: value for name, value in keyword_only.items() if name not in _STORAGE}
        bound = row.bind(as_arrays(positional), as_arrays(options))
        return called(row.function, bound, lambda: self._op(row, call, bound), row.shown)

    def _op(self, row: Row, call: _Call, bound: Mapping[str, Any]) -> FileOp:
        """The call with the types that PyTorch states, for functions that read them."""
        arguments = {name: value if isinstance(value, list) else [value] for name, value in bound.items()}

        def type_of(node: Any) -> Any:
            return self._type(node)

        stated = order_arguments(call.fx.target, *map_arg((call.fx.args, call.fx.kwargs), type_of))[0]
        types: dict[str, list[Type | None]] = {}
        for operand, kinds in zip(row.operands, stated, strict=False):
            listed = kinds if isinstance(kinds, (list, tuple)) else [kinds]
            types[operand.lstrip("*")] = [kind if isinstance(kind, ValueType) else None for kind in listed]
        examples = (node.meta.get("val") for node in call.fx.all_input_nodes)
        first = next((example for example in examples if isinstance(example, torch.Tensor)), None)
        strides = () if first is None else self.sizes.shape(first.stride())
        outputs: list[tuple[str, Type | None]] = [(str(place), kind) for place, kind in enumerate(call.results)]
        return FileOp(
            call.kind,
            call.name,
            arguments,
            types,
            outputs,
            {"shared": self.shared, "strides": strides},
            is_read=lambda name: int(name) in call.used_results,
        )

    def _type(self, node: Any) -> ValueType:
        return self.sizes.types(node.meta.get("val"))[0]

    def _in_fp16(self, value: Any) -> Any:
        """Convert integers next to floats to fp16 on the host, so that the op itself stays on the engine."""
        if isinstance(value, (list, tuple)):
            return [self._in_fp16(element) for element in value]
        if not isinstance(value, Tensor) or value.dtype != "int32":
            return value
        if ("fp16", value.uid) not in self.shared:
            self.shared["fp16", value.uid] = in_fp16(value)
        return self.shared["fp16", value.uid]

    def checked(self, op: _Call, place: int, value: Any) -> Any:
        """Return the result of a row in the shape and kind that PyTorch states."""
        if place >= len(op.results) or value is None or isinstance(value, Encoded):
            return value
        if isinstance(value, np.ndarray):
            return torch.from_numpy(np.array(value))
        stated, shape = op.results[place], op.results[place].static or ()
        if value.size != math.prod(shape):
            raise LoadError(
                f"the result has shape {list(value.shape)}, expected {list(shape)}; please report this bug"
            )
        value = shaped(value, shape)
        if (stated.dtype == "bool") != (value.dtype == "bool"):
            return truth(value) if stated.dtype == "bool" else value.cast() if value.dtype == "bool" else value
        return value

    # Results.

    def place_of(self, operation: Operation) -> tuple[str, str]:
        """Return the path of the module that ran a call, and the line of the model's own code."""
        return place_of(operation.source) if hasattr(operation.source, "meta") else ("", "")

    def output_value(self, importer: Importer, place: int, label: str, value: Any) -> tuple[str, Any]:
        """Return a result with the name that the user asked for, or its own name."""
        if not isinstance(value, Tensor):
            value = np.asarray(numbers_of(value), np.float64)
        name = None
        if isinstance(value, Tensor):
            name = value.name or next((origin.name for origin in value.origins), None)
        chosen_name = self.output_names[place] if place < len(self.output_names) else self.renamed.get(name or "")
        if chosen_name and chosen_name != name:
            return self.names.unique(chosen_name), value
        leaf = not isinstance(value, Tensor) or value.definition.leaf
        return (self.names.unique(f"output_{place}") if leaf or not name else name), value


def _result_keys(fx: Any) -> list[str]:
    """Return the names of the results of a call."""
    value = fx.meta.get("val")
    return [f"{fx.name}.{place}" for place in range(len(value))] if isinstance(value, (list, tuple)) else [fx.name]


def _key(fx: Any) -> str:
    """Return the name of a value: of a call, or of one of its results."""
    if fx.op == "call_function" and fx.target is operator.getitem:
        source, place = fx.args
        return f"{_key(source)}.{place}"
    return fx.name


def _arithmetic(importer: Importer, operation: Operation, op: _Call, scope: Scope) -> list[Any]:
    """Compute with sizes, which are known numbers."""
    if any(isinstance(argument, Tensor) for argument in op.args):
        raise LoadError("Python arithmetic on a computed tensor is not supported; use a PyTorch op")
    try:
        return [op.fx.target(*op.args, **op.kwargs)]
    except Exception as error:
        raise LoadError(first_line(error)) from None


def _turned(target: Any, weight: Encoded, *rest: Any) -> Encoded:
    """Return an encoded weight with its axes in another order, still encoded."""
    order = list(target(torch.empty(*range(weight.ndim)), *rest).shape)  # the extents 0, 1, 2... move with their axes
    return weight if order == sorted(order) else weight.transpose(order)


def _computes_floats(base: str, call: _Call) -> bool:
    """Whether an op of mixed operands computes in floats: its result is float, or it compares with floats."""
    mixed = any("float" in kind.dtype for value, kind in call.operands if isinstance(value, Tensor))
    gives = call.results[0].dtype
    return ("float" in gives and base != "_to_copy") or (mixed and gives == "bool")


def _draws(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call draws random numbers: ops that only may drop elements do not, if nothing is to be dropped."""
    if torch.Tag.nondeterministic_seeded not in target.tags or "dropout" in str(target).split(".")[1]:
        return False
    for place, argument in enumerate(target._schema.arguments):
        if argument.name == "dropout_p":
            given = args[place] if place < len(args) else kwargs.get("dropout_p", argument.default_value)
            return bool(given)
    return True


def _why_on_host(base: str, call: _Call, operands: Sequence[Operand]) -> str | None:
    """Return why the host computes an op: because of its kind or its operands; None if the engine may."""
    if base in HOSTED:
        return HOSTED[base]
    if base.startswith(_READS_NO_ELEMENTS) or base.startswith("quantized_decomposed"):
        return None
    read = operands[:1] if base in INDEXING else operands
    data = [(value, kind.dtype) for value, kind in read if isinstance(value, Tensor)]
    if any(value.dtype == "int32" for value, _ in data):
        return INTEGERS
    integers = any("int" in kind and value.dtype == "fp16" for value, kind in data)
    if integers and base not in MOVES and any("int" in kind.dtype for kind in call.results):
        return INTEGERS
    return None
