# pyright: reportMissingImports=false
"""ONNX: a file walked node by node, static values as NumPy arrays, everything else as tensors of the graph.

A node whose inputs are all known is computed by the ONNX reference evaluator, so shape computations and folded
constants need no rules here. Rules for the rest are in ``onnx_rules``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError, GraphError
from aneforge.frontends import LoadError
from aneforge.frontends.onnx_node import Node, Value
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor

__all__ = ["read"]

_FIRST_OPSET = 7
_MOST_ELEMENTS = 1 << 31
_MOST_DEPTH = 8  # functions within functions


def read(file: Path, dims: Mapping[str, int], fixed: Mapping[str, Any]) -> Graph:
    """The graph of an ONNX file."""
    try:
        import onnx
    except ImportError:
        raise LoadError(f"{file.name}: reading ONNX needs the onnx package: pip install 'aneforge[onnx]'") from None
    try:
        model = onnx.load(str(file), load_external_data=False)
    except Exception as error:
        raise LoadError(f"{file.name}: not an ONNX model ({type(error).__name__}: {_line(error)})") from None
    if not model.HasField("graph") or not model.graph.output:
        raise LoadError(f"{file.name}: not an ONNX model: it has no graph with outputs")
    return _Reader(onnx, model, file, dims, fixed).graph()


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else "no message"


def _hand_over(node: Any, attributes: Mapping[str, Any]) -> None:
    """Attributes of a function's node that stand for those of the call; one that the call lacks is left out."""
    kept = []
    for each in node.attribute:
        if not each.ref_attr_name:
            kept.append(each)
        elif each.ref_attr_name in attributes:
            given = type(each)()
            given.CopyFrom(attributes[each.ref_attr_name])
            given.name = each.name
            kept.append(given)
    del node.attribute[:]
    node.attribute.extend(kept)


class _Reader:
    def __init__(self, onnx: Any, model: Any, file: Path, dims: Mapping[str, int], fixed: Mapping[str, Any]) -> None:
        self.onnx, self.model, self.file, self.dims, self.fixed = onnx, model, file, dims, fixed
        self.opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 0)
        self.values: dict[str, Value] = {}
        self.told: set[int] = set()  # uids of tensors that carry a name of the file
        self.used_dims: set[str] = set()

    def graph(self) -> Graph:
        newest = self.onnx.defs.onnx_opset_version()
        if not _FIRST_OPSET <= self.opset <= newest:
            raise LoadError(
                f"{self.file.name}: opset {self.opset}; read are {_FIRST_OPSET} to {newest} (onnx "
                f"{self.onnx.__version__}): convert the model, or install a newer onnx"
            )
        for tensor in self.model.graph.initializer:
            self.values[tensor.name] = self._stored(tensor)
        for port in self.model.graph.input:
            if port.name in self.fixed:
                self.values[port.name] = np.asarray(self.fixed[port.name])
            elif port.name not in self.values:
                self.values[port.name] = self._port(port)
        absent = [name for name in self.fixed if name not in self.values]
        if absent:
            raise LoadError(f"{self.file.name}: no input {absent[0]!r} to fix")
        unknown = [name for name in self.dims if name not in self.used_dims]
        if unknown:
            known = ", ".join(sorted(self.used_dims)) or "none"
            raise LoadError(f"{self.file.name}: no symbolic dimension {unknown[0]!r}; the inputs have {known}")
        for place, proto in enumerate(self.model.graph.node):
            self._node(proto, place)
        return Graph([self._output(port.name) for port in self.model.graph.output])

    def _output(self, name: str) -> Tensor:
        if name not in self.values:
            raise LoadError(f"{self.file.name}: output {name!r} is made by no node")
        value = self.values[name]
        made = self._lifted(value, f"output {name!r}") if isinstance(value, np.ndarray) else value
        return made.named(name) if made.op != "input" and made.name != name else made

    # Leaves.

    def _port(self, port: Any) -> Tensor:
        kind = port.type.tensor_type
        element = self.onnx.TensorProto.DataType.Name(kind.elem_type) if kind.elem_type else "UNDEFINED"
        if element not in ("FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"):
            raise LoadError(
                f"{self.file.name}: input {port.name!r} is {element.lower()}; the engine's ports hold fp16: keep "
                "look-ups of integers on the host, and start from what they give"
            )
        if not kind.HasField("shape"):
            raise LoadError(f"{self.file.name}: input {port.name!r} has no shape: the engine needs fixed ones")
        shape = tuple(self._extent(port.name, place, dim) for place, dim in enumerate(kind.shape.dim))
        if int(np.prod(shape, dtype=object)) > _MOST_ELEMENTS:
            raise LoadError(
                f"{self.file.name}: input {port.name!r} of {list(shape)} has more elements than a tensor can"
            )
        return graph_input(shape, name=port.name)

    def _extent(self, port: str, place: int, dim: Any) -> int:
        if dim.HasField("dim_value") and dim.dim_value > 0:
            return int(dim.dim_value)
        name = dim.dim_param or f"{port}[{place}]"
        self.used_dims.add(name)
        if name not in self.dims:
            raise LoadError(
                f"{self.file.name}: dimension {place} of input {port!r} is {name!r}, not a number; give it a value: "
                f"af.load(..., dims={{{name!r}: 1}}), or --dim {name}=1"
            )
        return int(self.dims[name])

    def _stored(self, tensor: Any) -> np.ndarray:
        """The numbers of an initializer; those of another file are mapped, not read, and lie in this folder."""
        external = self.onnx.TensorProto.EXTERNAL
        if tensor.data_location != external:
            try:
                return self.onnx.numpy_helper.to_array(tensor)
            except (ValueError, TypeError) as error:
                raise LoadError(f"{self.file.name}: weight {tensor.name!r}: {_line(error)}") from None
        told = {entry.key: entry.value for entry in tensor.external_data}
        folder = self.file.resolve().parent
        place = (folder / told.get("location", "")).resolve()
        if not place.is_relative_to(folder) or not told.get("location"):
            raise LoadError(
                f"{self.file.name}: weight {tensor.name!r} points outside the model's folder, which is refused: "
                f"{told.get('location')!r}"
            )
        if not place.is_file():
            raise LoadError(f"{self.file.name}: weight {tensor.name!r} lies in {place.name!r}, which is not there")
        kind = self.onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        shape = tuple(tensor.dims)
        try:
            offset = int(told.get("offset", 0))
            return np.memmap(place, dtype=kind, mode="r", offset=offset, shape=shape) if shape else np.zeros(())
        except (ValueError, OSError) as error:
            raise LoadError(f"{self.file.name}: weight {tensor.name!r} in {place.name!r}: {_line(error)}") from None

    def _lifted(self, value: Value, what: str) -> Tensor:
        """A known value as a constant of the graph."""
        if isinstance(value, Tensor):
            return value
        numbers = np.asarray(value)
        if numbers.dtype == bool or numbers.dtype.kind in "iu":
            numbers = numbers.astype(np.float64)
        try:
            return const(numbers)
        except GraphError as error:
            raise LoadError(f"{self.file.name}: {what}: {_line(error)}") from None

    # Nodes.

    def _node(self, proto: Any, place: int, depth: int = 0) -> None:
        from aneforge.frontends.onnx_rules import RULES

        node = Node(proto.op_type, proto.name or f"{proto.op_type}_{place}", self.opset, outputs=len(proto.output))
        where = f"{self.file.name}: {node.name} ({node.kind})"
        if proto.domain not in ("", "ai.onnx"):
            raise LoadError(f"{where}: the domain {proto.domain!r} is not read")
        given = [self._input(name, where) for name in proto.input]
        if node.kind == "If" and isinstance(given[0], np.ndarray):
            self._branch(proto, node, bool(given[0].reshape(-1)[0]), depth)
            return
        if all(each is None or isinstance(each, np.ndarray) for each in given):
            results: Sequence[Value] = self._folded(proto, given, where)
        elif node.kind in RULES:
            node.attrs = {each.name: self._attribute(each) for each in proto.attribute}
            results = self._made(RULES[node.kind], node, given, where)
        else:
            body = self._body(proto, given) if depth < _MOST_DEPTH else None
            if body is None:
                raise LoadError(f"{where}: no rule for this op; it would have to run on the host")
            self._inlined(body, proto, node, depth)
            return
        for name, value in zip(proto.output, self._named(results, node), strict=False):
            if name:
                self.values[name] = value

    def _made(self, rule: Callable[..., Any], node: Node, given: Sequence[Value | None], where: str) -> list[Value]:
        try:
            made = rule(node, *given)
        except (AneforgeError, ValueError, TypeError, KeyError, IndexError) as error:
            raise LoadError(f"{where}: {_line(error)}") from None
        return [made] if isinstance(made, (np.ndarray, Tensor)) else list(made)

    def _branch(self, proto: Any, node: Node, condition: bool, depth: int) -> None:
        """The branch that a known condition takes, in place of the choice."""
        wanted = "then_branch" if condition else "else_branch"
        branch = next(each.g for each in proto.attribute if each.name == wanted)
        own = {name for inner in branch.node for name in inner.output} | {each.name for each in branch.initializer}
        names: dict[str, str] = {name: f"{node.name}/{name}" for name in own if name}
        for tensor in branch.initializer:
            self.values[names[tensor.name]] = self._stored(tensor)
        for place, inner in enumerate(branch.node):
            copy = self.onnx.NodeProto()
            copy.CopyFrom(inner)
            copy.name = f"{node.name}/{inner.name or inner.op_type}_{place}"
            for field_ in (copy.input, copy.output):
                field_[:] = [names.get(name, name) for name in field_]
            self._node(copy, place, depth + 1)
        for name, result in zip(proto.output, branch.output, strict=True):
            made = str(result.name)
            self.values[name] = self.values[names.get(made, made)]

    # Ops that the standard itself writes in terms of others.

    def _body(self, proto: Any, given: Sequence[Value | None]) -> Any:
        """The standard's own definition of an op as a function, where it has one."""
        try:
            schema = self.onnx.defs.get_schema(proto.op_type, self.opset, proto.domain)
        except self.onnx.defs.SchemaError:
            return None
        if schema.has_function:
            return schema.function_body
        if not schema.has_context_dependent_function:
            return None
        types = [self._type(value).SerializeToString() for value in given]
        body = self.onnx.FunctionProto()
        body.ParseFromString(schema.get_context_dependent_function(proto.SerializeToString(), types))
        return body if body.node else None

    def _type(self, value: Value | None) -> Any:
        helper = self.onnx.helper
        if value is None:
            return self.onnx.TypeProto()
        kind = np.dtype(np.float32) if isinstance(value, Tensor) else value.dtype
        element = self.onnx.TensorProto.BOOL if kind.kind == "b" else helper.np_dtype_to_tensor_dtype(kind)
        return helper.make_tensor_type_proto(element, value.shape)

    def _inlined(self, body: Any, proto: Any, node: Node, depth: int) -> None:
        """The nodes of a function in place of its call: formal names become the caller's, others get its name."""
        names = dict(zip(body.input, proto.input, strict=False))
        names |= dict.fromkeys(body.input[len(proto.input) :], "")
        names |= dict(zip(body.output, proto.output, strict=False))
        handed = {each.name: each for each in (*body.attribute_proto, *proto.attribute)}
        before = self.opset
        self.opset = next((each.version for each in body.opset_import if each.domain in ("", "ai.onnx")), before)
        for place, inner in enumerate(body.node):
            copy = self.onnx.NodeProto()
            copy.CopyFrom(inner)
            copy.name = f"{node.name}/{inner.name or inner.op_type}_{place}"
            for field_ in (copy.input, copy.output):
                field_[:] = [names.get(name, f"{node.name}/{name}") if name else "" for name in field_]
            _hand_over(copy, handed)
            self._node(copy, place, depth + 1)
        self.opset = before

    def _named(self, results: Sequence[Value], node: Node) -> Iterator[Value]:
        """The last op of a node carries the node's name, so that every later message speaks it."""
        for place, value in enumerate(results):
            if isinstance(value, np.ndarray) or value.op in ("input", "const") or value.uid in self.told:
                yield value
                continue
            named = value.named(node.name if len(results) == 1 else f"{node.name}.{place}")
            self.told.add(named.uid)
            yield named

    def _attribute(self, proto: Any) -> Any:
        value = self.onnx.helper.get_attribute_value(proto)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if proto.type == self.onnx.AttributeProto.TENSOR:
            return self._stored(value)
        return value

    def _input(self, name: str, where: str) -> Value | None:
        if not name:
            return None
        if name not in self.values:
            raise LoadError(f"{where}: reads {name!r}, which no input, weight or earlier node gives")
        return self.values[name]

    def _folded(self, proto: Any, given: list[Any], where: str) -> list[np.ndarray]:
        """A node of known inputs, computed by the reference evaluator."""
        from onnx.reference import ReferenceEvaluator

        helper = self.onnx.helper
        names = [name for name in dict.fromkeys(proto.input) if name]
        arrays = {name: np.asarray(self.values[name]) for name in names}
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in proto.output if name]
        graph = helper.make_graph([proto], "folded", ports, outputs)
        model = helper.make_model(graph, opset_imports=self.model.opset_import)
        try:
            found = iter(ReferenceEvaluator(model).run(None, arrays))
        except Exception as error:
            raise LoadError(f"{where}: a static value could not be computed: {_line(error)}") from None
        return [np.asarray(next(found)) if name else np.zeros(0) for name in proto.output]
