# pyright: reportMissingImports=false
"""ONNX: a file walked node by node, static values as NumPy arrays, everything else as tensors of the graph.

A node whose inputs are all known is computed by the ONNX reference evaluator, so shape computations and folded
constants need no rules here. Rules for the rest are in ``onnx_rules``; what has no form on the engine but a fixed
meaning becomes an op of the host (``onnx_host``), with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.budgets import spend
from aneforge.errors import AneforgeError, GraphError, first_line, install_hint, shown
from aneforge.frontends import LoadError
from aneforge.frontends.folding import Folding, onnx_cost
from aneforge.frontends.forms import truth
from aneforge.frontends.onnx_control import CONTROL, function, names_read
from aneforge.frontends.onnx_file import StoredWeights, open_model
from aneforge.frontends.onnx_host import Typed, alone, hosted, result_types
from aneforge.frontends.onnx_node import Node, Rule, Value
from aneforge.frontends.values import as_tensor
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import cast
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor

__all__ = ["read", "read_model"]

_FIRST_OPSET = 7
_MOST_ELEMENTS = 1 << 31
_MOST_NUMBER = 1 << 31
_LOOKED_AT = 64 << 20  # bytes of mapped weights after which their memory is given back
_REMEDY = "check the file with onnx.checker"
_INVALID = (ArithmeticError, AssertionError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
_STANDARD = ("", "ai.onnx")
_CONTRIB = "com.microsoft"
_OF_SHAPES = ("Shape", "Size")  # what they read of a tensor is known, whatever it holds
_CHANGES_TYPE = frozenset(("ArgMax", "ArgMin", "Cast", "QLinearConv", "QLinearMatMul", "QuantizeLinear", "TopK"))


def read(file: Path, dims: Mapping[str, int], fixed: Mapping[str, Any]) -> Graph:
    """The graph of an ONNX file."""
    onnx = _package(file.name)
    reader = _Reader(onnx, open_model(onnx, file), file.name, file.parent, dims, fixed)
    reader.folding = Folding(file.stat().st_size)
    return reader.graph()


def read_model(model: Any, dims: Mapping[str, int], fixed: Mapping[str, Any], folder: Path | None = None) -> Graph:
    """The graph of a model in memory; weights outside it are looked for in ``folder``, and nowhere without one."""
    name = model.graph.name if isinstance(model.graph.name, str) else ""
    reader = _Reader(_package("model"), model, shown(name)[:80] or "model", folder, dims, fixed)
    reader.folding = Folding(model.ByteSize())
    return reader.graph()


def _package(name: str) -> Any:
    try:
        import onnx
    except ImportError:
        raise LoadError(f"{name}: reading ONNX needs the onnx package: {install_hint('onnx')}") from None
    import onnx.shape_inference

    return onnx


class _Reader:
    def __init__(
        self,
        onnx: Any,
        model: Any,
        name: str,
        folder: Path | None,
        dims: Mapping[str, int],
        fixed: Mapping[str, Any],
    ) -> None:
        self.onnx, self.model, self.name, self.dims, self.fixed = onnx, model, name, dims, fixed
        self.weights = StoredWeights(onnx, name, folder)
        self.folding = Folding(0)
        self.walked = 0
        self.opsets = {"" if each.domain == "ai.onnx" else each.domain: each.version for each in model.opset_import}
        self.functions = {(each.domain, each.name): each for each in model.functions}
        self.values: dict[str, Value] = {}
        self.elements: dict[str, int] = {}  # what the file says computed values are made of, where not of floats
        self.scalars: set[str] = set()  # computed values that are single numbers in the file, lines of one here
        self.told: set[int] = set()  # uids of tensors that carry a name of the file
        self.used_dims: set[str] = set()
        self.looked_at = 0

    @property
    def opset(self) -> int:
        return self.opsets.get("", 0)

    def graph(self) -> Graph:
        newest = self.onnx.defs.onnx_opset_version()
        if "" not in self.opsets:
            domains = ", ".join(sorted(self.opsets)) or "none"
            raise LoadError(f"{self.name}: no ops of the standard, only of {domains}: nothing for this engine")
        if not _FIRST_OPSET <= self.opset <= newest:
            raise LoadError(
                f"{self.name}: opset {self.opset}; read are {_FIRST_OPSET} to {newest} (onnx "
                f"{self.onnx.__version__}): convert the model, or install a newer onnx"
            )
        graph = self.model.graph
        self._check_names(graph)
        if graph.sparse_initializer:
            raise LoadError(f"{self.name}: sparse weights are not read: store them densely")
        for tensor in graph.initializer:
            self.values[tensor.name] = self.weights.array(tensor)
        for port in graph.input:
            if port.name in self.fixed:
                self.values[port.name] = np.asarray(self.fixed[port.name])
            elif port.name not in self.values:
                self.values[port.name] = self._port(port)
        self._check_arguments()
        readers = Counter(name for node in graph.node for name in names_read(node))
        readers.update(port.name for port in graph.output)
        for place, proto in enumerate(graph.node):
            self.node(proto, place)
            self._forget(proto, readers)
        found = Graph([self._output(port.name) for port in graph.output])
        self.weights.release()
        return found

    def _check_names(self, graph: Any) -> None:
        """What the standard asks of names: they are text, and each value is made once."""
        made = [
            *(each.name for each in graph.input),
            *(name for node in graph.node for name in node.output if name),
        ]
        for name in (*made, *(each.name for each in (*graph.initializer, *graph.output))):
            if not isinstance(name, str):
                raise LoadError(f"{self.name}: the name {name!r} is not text (UTF-8); the file is damaged")
        for what, names in (("value", made), ("output", [each.name for each in graph.output])):
            repeated = [name for name, count in Counter(names).items() if count > 1]
            if repeated:
                raise LoadError(
                    f"{self.name}: {what} {repeated[0]!r} is defined more than once; ONNX wants each name once: "
                    "rename one of them"
                )

    def _check_arguments(self) -> None:
        absent = [name for name in self.fixed if name not in self.values]
        if absent:
            raise LoadError(f"{self.name}: no input {absent[0]!r} to fix")
        unknown = [name for name in self.dims if name not in self.used_dims]
        if unknown:
            known = ", ".join(sorted(self.used_dims)) or "none"
            raise LoadError(f"{self.name}: no symbolic dimension {unknown[0]!r}; the inputs have {known}")

    def _forget(self, proto: Any, readers: Counter[str]) -> None:
        """Values that no later node reads, so that memory holds the graph's weights and not the file's too."""
        for name in names_read(proto):
            readers[name] -= 1
            if not readers[name]:
                value = self.values.pop(name, None)
                self.looked_at += value.nbytes if isinstance(value, np.ndarray) else 0
        if self.looked_at > _LOOKED_AT:
            self.weights.release()
            self.looked_at = 0

    def _output(self, name: str) -> Tensor:
        if name not in self.values:
            raise LoadError(f"{self.name}: output {name!r} is made by no node")
        made = self._lifted(self.values[name], f"output {name!r}")
        return made.named(name) if made.op != "input" and made.name != name else made

    # Leaves.

    def _port(self, port: Any) -> Tensor:
        if not port.type.HasField("tensor_type"):
            kind = port.type.WhichOneof("value") or "of no type"
            raise LoadError(f"{self.name}: input {port.name!r} is {kind}; programs of the engine take tensors")
        kind = port.type.tensor_type
        element = self.onnx.TensorProto.DataType.Name(kind.elem_type) if kind.elem_type else "UNDEFINED"
        if not kind.HasField("shape"):
            raise LoadError(f"{self.name}: input {port.name!r} has no shape: the engine needs fixed ones")
        shape = tuple(self._extent(port.name, place, dim) for place, dim in enumerate(kind.shape.dim))
        if int(np.prod(shape, dtype=object)) > _MOST_ELEMENTS:
            raise LoadError(f"{self.name}: input {port.name!r} of {list(shape)} has more elements than a tensor can")
        if not shape:
            self.scalars.add(port.name)
        return self._typed_port(port.name, element, kind.elem_type, shape or (1,))

    def _typed_port(self, name: str, element: str, number: int, shape: tuple[int, ...]) -> Tensor:
        """Floats and bytes enter the engine; whole numbers and truth values are for the host."""
        if element in ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"):
            return graph_input(shape, name=name)
        self.elements[name] = number
        if element == "UINT8":
            return cast(graph_input(shape, "uint8", name=name))
        if element == "BOOL":
            return truth(graph_input(shape, name=name))
        if element.startswith(("INT", "UINT")):
            return graph_input(shape, "int32", name=name)
        raise LoadError(f"{self.name}: input {name!r} is {element.lower()}; the engine's ports hold numbers")

    def _extent(self, port: str, place: int, dim: Any) -> int:
        if dim.HasField("dim_value") and dim.dim_value > 0:
            return int(dim.dim_value)
        if dim.HasField("dim_value") and dim.dim_value == 0:
            raise LoadError(f"{self.name}: input {port!r} is empty: axis {place} has size 0; export it with a size")
        name = dim.dim_param or f"{port}[{place}]"
        self.used_dims.add(name)
        if name not in self.dims:
            raise LoadError(
                f"{self.name}: dimension {place} of input {port!r} is {name!r}, not a number; give it a value: "
                f"af.load(..., dims={{{name!r}: 1}}), or --dim {name}=1"
            )
        return int(self.dims[name])

    def _lifted(self, value: Value, what: str) -> Tensor:
        """A known value as a constant of the graph."""
        try:
            return as_tensor(value)
        except GraphError as error:
            raise LoadError(f"{self.name}: {what}: {first_line(error)}") from None

    # Nodes.

    def node(self, proto: Any, place: int, depth: int = 0) -> None:
        """One node: a block of nodes in its place, a value that is known, a rule's tensors, or an op of the host."""
        words = (proto.op_type, proto.domain, proto.name, *proto.input, *proto.output)
        if not all(isinstance(each, str) for each in words):
            raise LoadError(f"{self.name}: node {place}: a name in it is no text; the file is damaged")
        name = proto.name or f"{proto.op_type}_{place}"
        node = Node(proto.op_type, name, self.opset, outputs=len(proto.output))
        where = f"{self.name}: {name} ({node.kind})"
        spend("depth", depth, where)
        self.walked += 1
        spend("nodes", self.walked, where)
        self._check_numbers(proto, where)
        given = [self._input(each, where) for each in proto.input]
        if self._as_block(proto, node, given, depth, where):
            return
        results = self._results(proto, node, given, where)
        if results is None:
            full = self._with_defaults(proto)
            body = self._body(full, given)
            if body is not None:
                function(self, body, full, node, depth)
                return
            results = self._on_host(proto, node, "the graph language has no form for it", where)
        for each, value in zip(proto.output, results, strict=False):
            if each:
                self.values[each] = value
        self._note_types(proto)

    def _check_numbers(self, proto: Any, where: str) -> None:
        """Numbers that the onnx package's own inference does not survive are refused before it sees them."""
        for each in proto.attribute:
            beyond = [number for number in (each.i, *each.ints) if abs(number) >= _MOST_NUMBER]
            if beyond and each.name not in ("starts", "ends"):  # a slice to the end is often written so
                raise LoadError(f"{where}: its attribute {each.name!r} of {beyond[0]} is beyond any size")
            if proto.op_type == "Split" and each.name == "num_outputs" and each.i != len(proto.output):
                raise LoadError(f"{where}: num_outputs is {each.i} for {len(proto.output)} outputs")

    def _check_attributes(self, proto: Any, where: str) -> None:
        """What the standard says: each attribute once, of its type and finite; inputs and outputs by their number."""
        schema = self._schema(proto)
        types = self.onnx.AttributeProto.AttributeType
        seen: set[str] = set()
        for each in proto.attribute:
            if each.name in seen:
                raise LoadError(f"{where}: attribute {each.name!r} is given twice")
            seen.add(each.name)
            if each.ref_attr_name:
                raise LoadError(f"{where}: attribute {each.name!r} refers to a function's, outside of a function")
            wanted = schema.attributes.get(each.name) if schema is not None else None
            if wanted is not None and int(wanted.type.value) != each.type:
                held = types.Name(each.type) if each.type in types.values() else f"type {each.type}"
                raise LoadError(f"{where}: attribute {each.name!r} is {held}; ONNX wants {wanted.type.name}")
            bound = each.name.startswith("value") or each.name in ("min", "max")  # these may well be infinite
            if not bound and not np.isfinite([each.f, *each.floats]).all():
                raise LoadError(f"{where}: attribute {each.name!r} is not finite")
        if schema is None:
            return
        for what, count, least, most in (
            ("inputs", len(proto.input), schema.min_input, schema.max_input),
            ("outputs", len(proto.output), schema.min_output, schema.max_output),
        ):
            if not least <= count <= most:
                span = f"{least}" if least == most else f"{least} to {most}" if most < 1 << 30 else f"{least} or more"
                raise LoadError(f"{where}: {count} {what}; ONNX wants {span}")

    def _as_block(self, proto: Any, node: Node, given: Sequence[Value | None], depth: int, where: str) -> bool:
        """Whether other nodes stand for this one: a branch, the rounds of a loop, or a function of the file."""
        called = self.functions.get((proto.domain, proto.op_type))
        if called is not None:
            function(self, called, proto, node, depth)
        elif proto.domain in _STANDARD and node.kind in CONTROL:
            try:
                CONTROL[node.kind](self, proto, node, given, depth)
            except LoadError as error:
                told = str(error)
                raise LoadError(told if told.startswith(f"{self.name}: ") else f"{where}: {told}") from None
            except _INVALID as error:
                raise LoadError(f"{where}: invalid body or inputs: {first_line(error)}; {_REMEDY}") from None
        else:
            return False
        return True

    def _results(self, proto: Any, node: Node, given: list[Value | None], where: str) -> Sequence[Value] | None:
        """What a node gives, or None where only a function of the standard can say."""
        from aneforge.frontends.onnx_tables import CONTRIB, DRAWN, PREFERRED, RULES, SCALAR_RULES, STATIC_RULES

        standard = proto.domain in _STANDARD
        if not standard and proto.domain != _CONTRIB:
            if self._schema(proto) is None:
                raise LoadError(f"{where}: the domain {proto.domain!r} is not read")
            return None
        rules = RULES if standard else CONTRIB
        self._check_attributes(proto, where)
        node.attrs = {each.name: self._attribute(each) for each in proto.attribute}
        if node.kind in DRAWN and standard:
            raise LoadError(f"{where}: numbers that every run draws anew; make them an input")
        computed = [each for each in given if isinstance(each, Tensor)]
        if not computed:
            self._charge(node, given, where)
            made = self._tried(STATIC_RULES[node.kind], node, given, where) if node.kind in STATIC_RULES else None
            return self._folded(proto, where) if made is None or isinstance(made, LoadError) else made
        if self._counts(proto, node.kind):
            return self._on_host(proto, node, "the engine computes no integers", where)
        if standard and node.kind in PREFERRED:
            made = self._tried(PREFERRED[node.kind], node, given, where)
            if not isinstance(made, LoadError):
                return list(self._named(made, node))
        if node.kind not in rules:
            return None
        if node.kind not in SCALAR_RULES and any(name in self.scalars for name in proto.input):
            return self._on_host(proto, node, "a single number where the engine has only tensors", where)
        made = self._tried(rules[node.kind], node, given, where)
        if isinstance(made, LoadError):
            return self._on_host(proto, node, str(made), where)
        return list(self._named(made, node))

    def _charge(self, node: Node, given: Sequence[Value | None], where: str) -> None:
        try:
            size, work = onnx_cost(node.kind, given, node.attrs)
        except _INVALID as error:
            raise LoadError(f"{where}: invalid attributes or inputs: {first_line(error)}") from None
        self.folding.charge(size, work, where)

    def _counts(self, proto: Any, kind: str) -> bool:
        """Whether a node would compute with whole numbers; to move some that fp16 holds is no computation."""
        from aneforge.frontends.onnx_tables import MOVES

        for name in proto.input:
            value = self.values.get(name)
            if not isinstance(value, Tensor) or kind in _OF_SHAPES:
                continue
            if value.dtype == "int32" or (self._is_whole(name) and kind not in MOVES):
                return True
        return False

    def _is_whole(self, name: str) -> bool:
        held = self.elements.get(name)
        return held is not None and self.onnx.TensorProto.DataType.Name(held).startswith(("INT", "UINT"))

    def _tried(self, rule: Rule, node: Node, given: Sequence[Value | None], where: str) -> list[Value] | LoadError:
        """What a rule makes, or why it refuses; a node that no rule can even look at is wrong in itself."""
        try:
            made = rule(node, *given)
        except AneforgeError as error:
            return LoadError(first_line(error))
        except _INVALID as error:
            raise LoadError(f"{where}: invalid attribute or input: {first_line(error)}; {_REMEDY}") from None
        return [made] if isinstance(made, (np.ndarray, Tensor, Encoded)) else list(made)

    # Ops of the host, and what the file says of types.

    def _typed(self, names: Iterable[str]) -> dict[str, Typed]:
        found = {}
        for name in dict.fromkeys(names):
            if not name:
                continue
            value = self.values[name]
            if isinstance(value, np.ndarray):
                element = int(self.onnx.helper.np_dtype_to_tensor_dtype(value.dtype))
            else:
                default = {"bool": self.onnx.TensorProto.BOOL, "int32": self.onnx.TensorProto.INT64}
                kind = "fp16" if isinstance(value, Encoded) else value.dtype
                element = int(self.elements.get(name) or default.get(kind) or self.onnx.TensorProto.FLOAT)
            found[name] = Typed(value, element, () if name in self.scalars else tuple(value.shape))
        return found

    def _opset_imports(self) -> list[Any]:
        return [self.onnx.helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]

    def _on_host(self, proto: Any, node: Node, reason: str, where: str) -> list[Value]:
        made = None
        if proto.domain in _STANDARD and not any(each.HasField("g") for each in proto.attribute):
            made = hosted(self.onnx, proto, self._typed(proto.input), self._opset_imports(), reason)
        if made is None:
            raise LoadError(f"{where}: {reason}")
        for name, each in zip(proto.output, made, strict=True):
            self.elements[name] = each.element
            if name and not each.shape:
                self.scalars.add(name)
        return list(self._named([each.value for each in made], node))

    def _note_types(self, proto: Any) -> None:
        """Which results are single numbers in the file, or whole numbers: asked of the standard where it matters."""
        lines = [
            name
            for name in proto.output
            if name
            and isinstance(value := self.values.get(name), Tensor)
            and value.op != "host"
            and value.shape == (1,)
        ]
        if proto.domain in _STANDARD and (lines or proto.op_type in _CHANGES_TYPE):
            model, _ = alone(self.onnx, proto, self._typed(proto.input), self._opset_imports())
            for name, (element, shape) in (result_types(self.onnx, model) or {}).items():
                self.elements[name] = element
                if not shape and name in lines:
                    self.scalars.add(name)

    def alias(self, source: str, target: str) -> None:
        """A second name for a value."""
        self.values[target] = self.values[source]
        if source in self.scalars:
            self.scalars.add(target)
        if source in self.elements:
            self.elements[target] = self.elements[source]

    def weight(self, tensor: Any) -> np.ndarray:
        return self.weights.array(tensor)

    # Ops that the standard itself writes in terms of others.

    def _body(self, proto: Any, given: Sequence[Value | None]) -> Any:
        """The standard's own definition of an op as a function, where it has one."""
        schema = self._schema(proto)
        if schema is None:
            return None
        if schema.has_function:
            return schema.function_body
        if not schema.has_context_dependent_function:
            return None
        types = [self._type(value).SerializeToString() for value in given]
        body = self.onnx.FunctionProto()
        body.ParseFromString(schema.get_context_dependent_function(proto.SerializeToString(), types))
        return body if body.node else None

    def _with_defaults(self, proto: Any) -> Any:
        """The node with the attributes that it leaves to the standard, which a function's nodes refer to."""
        schema = self._schema(proto)
        if schema is None:
            return proto
        full = self.onnx.NodeProto()
        full.CopyFrom(proto)
        told = {each.name for each in proto.attribute}
        for name, each in schema.attributes.items():
            if name not in told and each.default_value.name:
                full.attribute.add().CopyFrom(each.default_value)
        return full

    def _schema(self, proto: Any) -> Any:
        try:
            return self.onnx.defs.get_schema(proto.op_type, self.opsets.get(proto.domain, 1), proto.domain)
        except self.onnx.defs.SchemaError:
            return None

    def _type(self, value: Value | None) -> Any:
        helper = self.onnx.helper
        if value is None:
            return self.onnx.TypeProto()
        truths = isinstance(value, Tensor) and value.dtype == "bool"
        kind = value.dtype if isinstance(value, np.ndarray) else np.dtype(bool if truths else np.float32)
        element = self.onnx.TensorProto.BOOL if kind.kind == "b" else helper.np_dtype_to_tensor_dtype(kind)
        return helper.make_tensor_type_proto(element, value.shape)

    def _named(self, results: Sequence[Value], node: Node) -> Iterator[Value]:
        """The last op of a node carries the node's name, so that every later message speaks it."""
        for place, value in enumerate(results):
            if not isinstance(value, Tensor) or value.op in ("input", "const") or value.uid in self.told:
                yield value
                continue
            named = value.named(node.name if len(results) == 1 else f"{node.name}.{place}")
            self.told.add(named.uid)
            yield named

    def _attribute(self, proto: Any) -> Any:
        try:
            value = self.onnx.helper.get_attribute_value(proto)
        except ValueError:
            raise LoadError(f"{self.name}: attribute {proto.name!r} has no type; the file is damaged") from None
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if proto.type == self.onnx.AttributeProto.TENSOR:
            return self.weights.array(value)
        return value

    def _input(self, name: str, where: str) -> Value | None:
        if not name:
            return None
        if name not in self.values:
            raise LoadError(f"{where}: reads {name!r}, which no input, weight or earlier node gives")
        return self.values[name]

    def _folded(self, proto: Any, where: str) -> list[np.ndarray]:
        """A node of known inputs, computed by the reference evaluator."""
        from onnx.reference import ReferenceEvaluator

        helper = self.onnx.helper
        names = [name for name in dict.fromkeys(proto.input) if name]
        arrays = {name: _plain(self.values[name]) for name in names}
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in proto.output if name]
        graph = helper.make_graph([proto], "folded", ports, outputs)
        model = helper.make_model(graph, opset_imports=self._opset_imports())
        try:
            found = iter(ReferenceEvaluator(model).run(None, arrays))
        except Exception as error:
            raise LoadError(f"{where}: a static value could not be computed: {first_line(error)}") from None
        return [np.asarray(next(found)) if name else np.zeros(0) for name in proto.output]


def _plain(value: Value) -> np.ndarray:
    """A known value as numbers, whatever form it is stored in."""
    return value.decoded().astype(np.float32) if isinstance(value, Encoded) else np.asarray(value)
