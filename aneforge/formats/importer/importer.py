"""The walk: operation by operation, values that are known as arrays, everything else as tensors of the graph."""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError, LoadError, first_line
from aneforge.files import spend
from aneforge.formats.importer.language import Language, Scope
from aneforge.formats.importer.many_axes import with_few_axes
from aneforge.formats.importer.op import (
    FilePort,
    Listed,
    LiveState,
    PortSizes,
    input_tensor,
    output_tensor,
    with_states,
)
from aneforge.formats.records import (
    Block,
    Function,
    Operation,
    Ref,
    StateType,
    StoredValue,
    Type,
    ValueType,
    names_read,
)
from aneforge.formats.values import NoForm
from aneforge.graph.graph import Graph
from aneforge.graph.node import many_axes, newest_node
from aneforge.graph.origins import HANDS_ON, FileNodes, Origin, Providers, nodes_since
from aneforge.graph.tensor import Tensor

_LOOKED_AT = 64 << 20  # bytes of mapped weights after which their memory is given back
_FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
"""What a rule meets in a file that breaks the rules of its format."""


class Folding:
    """The cost of the constants of one model so far."""

    def __init__(self, file_bytes: int) -> None:
        self.free = 8 * file_bytes  # a large model may compute with each of its weights
        self.bytes = self.work = 0

    def charge(self, size: int, work: int, where: str) -> None:
        """Add a cost; raise before the work is done if it is over a budget."""
        self.bytes += 8 * size
        self.work += work
        spend("folded_bytes", self.bytes, f"{where}: computing constants", self.free)
        spend("folded_work", self.work, f"{where}: computing constants", self.free)


class _LocatedError(LoadError):
    """A refusal that names the operation it is about."""


class Importer:
    """One function of a file on its way to a graph."""

    def __init__(
        self,
        file: str,
        language: Language,
        function: Function,
        *,
        dims: Mapping[str, int] | None = None,
        fixed: Mapping[str, Any] | None = None,
        ports: Mapping[str, FilePort] | None = None,
        constants: Mapping[str, Any] | None = None,
        weights: Any = None,
        functions: Mapping[str, Function] | None = None,
        file_bytes: int = 0,
    ) -> None:
        self.file, self.language, self.function = file, language, function
        self.fixed, self.ports = dict(fixed or {}), dict(ports or {})
        self.constants, self.weights = dict(constants or {}), weights
        self.functions = dict(functions or {})
        self.sizes = PortSizes(file, dims or {})
        self.folding = Folding(file_bytes)
        self.states: dict[str, LiveState] = {}
        self.types: dict[str, Type | None] = {}
        self.makers: dict[str, Any] = {}
        self.returned_types: Sequence[Type | None] | None = None
        """Of what the last block gave, where an operation stands for a block."""
        self.prefix: list[str] = []
        self.calls: list[str] = []
        self.nodes = FileNodes(runtime=language.runtime, providers=Providers(language.provider))
        self._walked = self._depth = self._looked_at = 0

    # The whole.

    def graph(self) -> Graph:
        with many_axes():
            graph = with_few_axes(self._graph(), self.file, self.nodes)
        if not self.language.runtime and self._states_fp32():
            self.nodes.stated = "fp32"
        graph.file = self.nodes
        graph.name_by_origins()
        return graph

    def _graph(self) -> Graph:
        scope: Scope = ChainMap(dict(self.constants))
        for name, kind in self.function.inputs:
            if name not in scope:
                scope[name] = self._input(name, kind)
        inputs = [name for name, _ in self.function.inputs]
        absent = [name for name in self.fixed if name not in inputs]
        if absent:
            there = ", ".join(inputs) or "none"
            raise LoadError(f"{self.file}: no input {absent[0]!r} to fix; the inputs are {there}")
        self.sizes.check_all_used()
        results = self.block(self.function.block, scope)
        labels = self.function.outputs or self.function.block.outputs
        outputs: list[Tensor] = []
        for key, label, value in zip(self.function.block.outputs, labels, results, strict=True):
            kind = self.types.get(key)
            if key in self.function.states:
                state = self.function.states[key]
                self.states[state] = LiveState(state, ValueType("fp32", tuple(value.shape)), value, written=True)
            elif isinstance(kind, ValueType) and kind.dtype == "string":
                continue  # labels of classes are text: they stay with the host
            elif self.language.is_output(self, value):
                name, tensor = self.language.output_value(self, len(outputs), label, value)
                outputs.append(output_tensor(self.file, name, tensor, outputs))
        self.language.release()
        return with_states(self.file, outputs, list(self.states.values()))

    def _states_fp32(self) -> bool:
        """Whether an input or a weight of the file is in fp32; lines of numbers may be settings of an op."""
        kinds = (kind for _, kind in self.function.inputs)
        if any(isinstance(kind, ValueType) and kind.dtype == "fp32" for kind in kinds):
            return True
        stored = (value for value in self.constants.values() if isinstance(value, np.ndarray) and value.ndim > 1)
        return any(value.dtype == np.float32 for value in stored)

    def _input(self, name: str, kind: Type) -> Any:
        wrapped = kind.wrapped if isinstance(kind, StateType) else kind
        self.types[name] = wrapped
        if not isinstance(wrapped, ValueType) or wrapped.dtype == "string":
            raise LoadError(f"{self.file}: input {name!r} is {kind}; the graph's inputs are tensors of numbers")
        if name in self.fixed:
            value = np.asarray(self.fixed[name])
            if len(wrapped.shape) != value.ndim:
                raise LoadError(f"{self.file}: input {name!r} is {kind}; the fixed value has {list(value.shape)}")
            return self.language.entered(self, name, value)
        port = self.ports.get(name, FilePort())
        shape = self.sizes.extents(name, wrapped.shape, port)
        self.types[name] = ValueType(wrapped.dtype, shape)
        tensor = input_tensor(self.file, name, wrapped.dtype, shape, port.label, image=port.image)
        if not isinstance(kind, StateType):
            return self.language.entered(self, name, tensor)
        self.states[name] = LiveState(name, ValueType(wrapped.dtype, shape), tensor)
        return self.states[name]

    # Blocks.

    def block(
        self, block: Block, scope: Scope, operands: Sequence[Any] = (), types: Sequence[Type | None] = ()
    ) -> list[Any]:
        """What a block gives; names that it makes are its own."""
        inner: ChainMap[str, Any] = ChainMap({}, scope)
        if block is not self.function.block:
            if len(block.inputs) != len(operands):
                raise LoadError(f"a block of {len(block.inputs)} inputs was given {len(operands)}")
            for place, ((name, kind), value) in enumerate(zip(block.inputs, operands, strict=True)):
                inner[name] = value
                self.types[name] = types[place] if kind is None and place < len(types) else kind
                self.makers.pop(name, None)
        unread = names_read(list(block.operations)) + Counter(block.outputs) if self.language.forgets else None
        for operation in block.operations:
            self._operation(operation, inner)
            if unread is not None:
                self._forget(operation, inner, scope, unread)
        missing = [name for name in block.outputs if name and name not in inner]
        if missing:
            raise LoadError(f"{self.file}: output {missing[0]!r} is made by no operation; it must be a result")
        return [inner[name] if name else None for name in block.outputs]

    def inline(
        self,
        name: str,
        block: Block,
        scope: Scope | None,
        operands: Sequence[Any] = (),
        types: Sequence[Type | None] = (),
    ) -> list[Any]:
        """A block in the place of one operation; the names of its operations stand behind that one's. Without a scope
        it is a function, which sees no names but its own."""
        self.prefix.append(name)
        self._depth += 1
        spend("depth", self._depth, f"{self.file}: {'/'.join(self.prefix)}")
        outer_types = self.types
        self.types = {} if scope is None else outer_types
        try:
            results = self.block(block, {} if scope is None else scope, operands, types)
            self.returned_types = [self.types.get(name) for name in block.outputs]
            return results
        finally:
            self.types = outer_types
            self._depth -= 1
            self.prefix.pop()

    def run(self, block: Block, scope: Scope) -> None:
        """The operations of a block among those around them: what they make is seen behind them."""
        self._depth += 1
        spend("depth", self._depth, f"{self.file}: blocks within blocks")
        for operation in block.operations:
            self._operation(operation, scope)
        self._depth -= 1

    def call(self, name: str, operands: Sequence[Any], caller: str) -> list[Any]:
        """Another function of the file in the place of its call."""
        if name not in self.functions:
            raise LoadError(f"calls {name!r}, which the file does not define; add the function to the file")
        if name in self.calls:
            raise LoadError(f"function {name!r} calls itself; the engine has no such calls")
        self.calls.append(name)
        try:
            return self.inline(caller, self.functions[name].block, None, operands)
        finally:
            self.calls.pop()

    def _forget(self, operation: Operation, inner: ChainMap[str, Any], outer: Scope, unread: Counter[str]) -> None:
        """Values that no later operation reads, so that memory holds the graph's weights and not the file's too."""
        for name, count in names_read([operation]).items():
            unread[name] -= count
            if unread[name] > 0:
                continue
            if name in inner.maps[0]:
                value = inner.maps[0].pop(name)
            elif self._depth == 0 and isinstance(outer, ChainMap):
                value = outer.maps[0].pop(name, None)
            else:
                continue
            self._looked_at += value.nbytes if isinstance(value, np.ndarray) else 0
        if self._looked_at > _LOOKED_AT:
            self.language.release()
            self._looked_at = 0

    # Operations.

    def label(self, operation: Operation) -> str:
        return "/".join([*(part for part in self.prefix if part), operation.label])

    def where(self, operation: Operation) -> str:
        line = f", line {operation.line}" if operation.line else ""
        return f"{self.file}: {self.label(operation)} ({operation.kind}{line})"

    def _operation(self, operation: Operation, scope: Scope) -> None:
        self._walked += 1
        spend("nodes", self._walked, self.where(operation))
        number = self._walked
        try:
            op = self.language.bind(self, operation, scope)  # which may name it
            origin = Origin(number, self.label(operation), operation.kind, *self.language.place_of(operation))
            origin = origin._replace(dtype=self.language.bound_type(operation))
            self.nodes.nodes.append(origin)
            self.returned_types = None
            newest = newest_node()
            results = self._keep(operation, op, self._results(operation, op, scope), scope)
            self.language.noted(number, op, results)
            self._stamp(origin, newest, results)
        except _LocatedError:
            raise  # an operation of an inner block has named itself
        except AneforgeError as error:
            reason = first_line(error).removeprefix(f"{self.file}: ")
            raise _LocatedError(f"{self.where(operation)}: {reason}") from None
        except _FAULTS as error:
            remedy = f"; {self.language.remedy}" if self.language.remedy else ""
            reason = f"invalid attribute or argument: {first_line(error)}{remedy}"
            raise _LocatedError(f"{self.where(operation)}: {reason}") from None
        except RecursionError:
            raise _LocatedError(f"{self.where(operation)}: nested too deep") from None
        except MemoryError:
            raise _LocatedError(f"{self.where(operation)}: its values do not fit this machine's memory") from None

    def _results(self, operation: Operation, op: Any, scope: Scope) -> Sequence[Any]:
        """The order of decisions, for every format: settled now, known, the host's, a rule's, or other operations."""
        language = self.language
        control = language.control_for(operation)
        if control is not None:
            return control(self, operation, op, scope)
        if language.is_known(op):
            return language.fold(op)
        reason = language.why_on_host(op)
        if reason is None:
            rule = language.rule(op)
            if rule is not None:
                try:
                    results = rule(op)
                    return results if isinstance(results, (list, tuple)) else [results]
                except NoForm as no_form:
                    reason = str(no_form)
            if rule is None or language.is_defined_otherwise(op):
                definition = language.definition(op)
                if definition is not None:
                    return self.inline(operation.label, definition[0], None, *definition[1:])
            reason = reason or language.refusal(op)
        hosted = language.on_host(op, reason)
        if hosted is None:
            raise LoadError(reason)
        return hosted

    def _keep(self, operation: Operation, op: Any, results: Sequence[Any], scope: Scope) -> list[Any]:
        unmade = [name for name, _ in operation.outputs[len(results) :] if name and self.is_read(name)]
        if unmade:
            raise LoadError(f"gives {len(results)} results; the file names {len(operation.outputs)}")
        checked = [self.language.checked(op, place, value) for place, value in enumerate(results)]
        kinds = self.language.result_types(op, checked) if self.returned_types is None else self.returned_types
        for place, ((name, stated), value) in enumerate(zip(operation.outputs, checked, strict=False)):
            if not name:
                continue
            scope[name] = value
            self.types[name] = stated or (kinds[place] if place < len(kinds) else None)
            self.makers[name] = op
        return checked

    def _stamp(self, origin: Origin, newest: int, results: Sequence[Any]) -> None:
        """Say of every tensor that an operation made where it comes from; what an inner block made is its own."""
        values = [self.language.tensor_in(value) for value in results]
        tensors = [value for value in values if isinstance(value, Tensor)]
        if not tensors:
            self.nodes.reasons[origin.number] = "its value is known when the file is read"
        elif all(tensor.uid <= newest for tensor in tensors):
            self.nodes.reasons[origin.number] = HANDS_ON
        built = nodes_since(newest, tensors)
        if built and all(tensor.origins for tensor in built):
            self.nodes.reasons[origin.number] = "the operations of its blocks stand for it"
        for tensor in built:
            tensor.origins = tensor.origins or (origin,)

    # What an operation asks about its surroundings.

    def bound(self, binding: Any, scope: Scope) -> Any:
        if isinstance(binding, Ref):
            if binding.name not in scope:
                raise LoadError(
                    f"reads {binding.name!r}, which no input, weight or earlier operation gives; correct it"
                )
            return scope[binding.name]
        if isinstance(binding, StoredValue):
            return self.stored(binding)
        if binding is None or isinstance(binding, np.ndarray):
            return binding
        return Listed(tuple(value for value in binding if isinstance(value, np.ndarray)))

    def stored(self, value: StoredValue) -> np.ndarray:
        shape = value.type.static
        if shape is None:
            raise LoadError(f"stores {value.type}, whose shape is open; a stored value must have a fixed shape")
        return self.weights.array(value.path, value.offset, value.type.dtype, shape)

    @cached_property
    def _reads(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        others = [function for function in self.functions.values() if function is not self.function]
        for function in (self.function, *others):
            counts.update(names_read(list(function.block.operations)))
            counts.update(function.block.outputs)
        return counts

    def is_read(self, name: str) -> bool:
        return self._reads[name] > 0

    def only_reader_of(self, name: str) -> Any:
        """The op that made a value which is read once."""
        return self.makers.get(name) if self._reads[name] == 1 else None
