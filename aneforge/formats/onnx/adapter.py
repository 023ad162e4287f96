# pyright: reportMissingImports=false
"""Turn ONNX files into records: nodes, blocks, functions and ports. Checks names, types and opsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aneforge.errors import LoadError, install_hint, shown
from aneforge.formats.importer.importer import Importer
from aneforge.formats.importer.op import FilePort
from aneforge.formats.onnx.control import INITIALIZER
from aneforge.formats.onnx.file import StoredWeights, open_model
from aneforge.formats.onnx.language import Onnx
from aneforge.formats.onnx.node import element_type
from aneforge.formats.records import Binding, Block, Function, Operation, Ref, Type, ValueType
from aneforge.graph.graph import Graph

_FIRST_OPSET = 7
_STANDARD = ("", "ai.onnx")


def read(file: Path, dims: Mapping[str, int], fixed: Mapping[str, Any]) -> Graph:
    """Return the graph of an ONNX file."""
    onnx = _package(file.name)
    return _graph(onnx, open_model(onnx, file), file.name, file.parent, dims, fixed, file.stat().st_size)


def read_model(model: Any, dims: Mapping[str, int], fixed: Mapping[str, Any], folder: Path | None = None) -> Graph:
    """Return the graph of a model in memory. External weights are read from ``folder`` only."""
    name = model.graph.name if isinstance(model.graph.name, str) else ""
    label = shown(name)[:80] or "model"
    return _graph(_package("model"), model, label, folder, dims, fixed, model.ByteSize())


def input_dims(file: Path) -> list[tuple[str, list[int | str]]]:
    """The inputs of a file with their extents: numbers, or names of open dimensions (empty where there is none)."""
    from aneforge.formats.shapes import GRAPH_INPUT, MODEL_GRAPH, field_bytes

    onnx = _package(file.name)
    inputs = []
    try:
        for content in field_bytes(file, (MODEL_GRAPH, GRAPH_INPUT)):
            port = onnx.ValueInfoProto()
            port.ParseFromString(content)
            extents = port.type.tensor_type.shape.dim
            inputs.append((port.name, [int(e.dim_value) if e.HasField("dim_value") else e.dim_param for e in extents]))
    except Exception as error:  # protobuf's errors have no common class across its versions
        raise LoadError(f"{file.name}: not an ONNX model ({type(error).__name__}: {error})") from None
    return inputs


def _package(name: str) -> Any:
    try:
        import onnx
    except ModuleNotFoundError:
        raise LoadError(f"{name}: reading ONNX needs the onnx package: {install_hint('onnx')}") from None
    import onnx.shape_inference

    return onnx


def _graph(
    onnx: Any,
    model: Any,
    name: str,
    folder: Path | None,
    dims: Mapping[str, int],
    fixed: Mapping[str, Any],
    file_bytes: int,
) -> Graph:
    weights = StoredWeights(onnx, name, folder)
    records = Records(onnx, model, name)
    language = Onnx(onnx, records, weights)
    importer = Importer(
        name,
        language,
        records.main(),
        dims=dims,
        fixed=fixed,
        ports=records.ports(),
        constants={tensor.name: weights.array(tensor) for tensor in model.graph.initializer},
        weights=weights,
        file_bytes=file_bytes,
    )
    return importer.graph()


class Records:
    """A model as records. Each keeps its protobuf message, which the ONNX reference evaluator needs."""

    def __init__(self, onnx: Any, model: Any, name: str) -> None:
        self.onnx, self.model, self.name = onnx, model, name
        self.opsets = _opsets(model.opset_import, name)
        self.functions = {(function.domain, function.name): function for function in model.functions}
        newest = onnx.defs.onnx_opset_version()
        if "" not in self.opsets:
            domains = ", ".join(sorted(self.opsets)) or "none"
            raise LoadError(
                f"{name}: the opset imports are {domains}; a model needs ops of the ONNX standard (domain '')"
            )
        if not _FIRST_OPSET <= self.opsets[""] <= newest:
            raise LoadError(
                f"{name}: opset {self.opsets['']} is not supported; onnx {onnx.__version__} reads {_FIRST_OPSET} to "
                f"{newest}. Convert the model, or install a newer onnx"
            )

    def main(self) -> Function:
        graph = self.model.graph
        self._check_names(graph)
        if graph.sparse_initializer:
            raise LoadError(f"{self.name}: sparse weights are not supported; save them as dense tensors")
        stored = {tensor.name for tensor in graph.initializer}
        inputs = [(port.name, self._type(port)) for port in graph.input if port.name not in stored]
        outputs = [port.name for port in graph.output]
        return Function(inputs, Block([], outputs, self._operations(graph.node, self.opsets)))

    def ports(self) -> dict[str, FilePort]:
        """Return the names of open dimensions by input."""
        ports = {}
        for port in self.model.graph.input:
            extents = port.type.tensor_type.shape.dim
            ports[port.name] = FilePort(labels={i: e.dim_param for i, e in enumerate(extents) if e.dim_param})
        return ports

    def element_types(self) -> dict[str, str]:
        """The element types of inputs and weights by name."""
        graph = self.model.graph
        numbers = {tensor.name: tensor.data_type for tensor in graph.initializer}
        numbers |= {port.name: port.type.tensor_type.elem_type for port in graph.input}
        known = set(self.onnx.TensorProto.DataType.values())
        return {name: element_type(self.onnx, number) for name, number in numbers.items() if number in known}

    def _type(self, port: Any) -> ValueType:
        if not port.type.HasField("tensor_type"):
            kind = port.type.WhichOneof("value") or "without a type"
            raise LoadError(f"{self.name}: input {port.name!r} is {kind}; the engine takes tensors only")
        kind = port.type.tensor_type
        if not kind.HasField("shape"):
            raise LoadError(f"{self.name}: input {port.name!r} has no shape; the engine needs fixed shapes")
        extents = [int(e.dim_value) if e.HasField("dim_value") and e.dim_value >= 0 else None for e in kind.shape.dim]
        return ValueType(element_type(self.onnx, kind.elem_type), tuple(extents))

    def _check_names(self, graph: Any) -> None:
        """Check that names are text and that each value is defined once."""
        value_names = [port.name for port in graph.input] + [
            name for node in graph.node for name in node.output if name
        ]
        for name in (*value_names, *(tensor.name for tensor in (*graph.initializer, *graph.output))):
            if not isinstance(name, str):
                raise LoadError(f"{self.name}: the name {name!r} is not text (UTF-8); the file is damaged")
        for what, names in (("value", value_names), ("output", [port.name for port in graph.output])):
            repeated = [name for name, count in Counter(names).items() if count > 1]
            if repeated:
                raise LoadError(
                    f"{self.name}: {what} {repeated[0]!r} is defined more than once; names must be unique. "
                    "Rename one of them"
                )

    # Nodes.

    def _operations(self, nodes: Sequence[Any], opsets: Mapping[str, int]) -> list[Operation]:
        return [self._operation(node, place, opsets) for place, node in enumerate(nodes)]

    def _operation(self, node: Any, place: int, opsets: Mapping[str, int]) -> Operation:
        words = (node.op_type, node.domain, node.name, *node.input, *node.output)
        if not all(isinstance(word, str) for word in words):
            raise LoadError(f"{self.name}: node {place} has a name that is not text (UTF-8); the file is damaged")
        kind = node.op_type if node.domain in _STANDARD else f"{node.domain}.{node.op_type}"
        inputs: list[Binding] = [Ref(name) if name else None for name in node.input]
        blocks = {
            attribute.name: self.block(attribute.g, opsets) for attribute in node.attribute if attribute.HasField("g")
        }
        return Operation(
            kind,
            {"": inputs},
            [(name, None) for name in node.output],
            blocks,
            list(blocks.values()),
            name=node.name or f"{node.op_type}_{place}",
            version=opsets.get("", 0),
            source=(node, opsets),
        )

    def block(self, graph: Any, opsets: Mapping[str, int]) -> Block:
        """Return a branch or the body of a loop; each of its weights is a record too."""
        inputs: list[tuple[str, Type | None]] = [(port.name, None) for port in graph.input]
        stored = [Operation(INITIALIZER, {}, [(t.name, None)], name=t.name, source=t) for t in graph.initializer]
        return Block(inputs, [port.name for port in graph.output], stored + self._operations(graph.node, opsets))

    def function(self, body: Any, call: Any, opsets: Mapping[str, int]) -> Block:
        """Return the nodes of a function, with the attributes of one call."""
        attributes = {attribute.name: attribute for attribute in (*body.attribute_proto, *call.attribute)}
        nodes = []
        for node in body.node:
            copy = self.onnx.NodeProto()
            copy.CopyFrom(node)
            _bind_attributes(copy, attributes)
            nodes.append(copy)
        inputs: list[tuple[str, Type | None]] = [(name, None) for name in body.input]
        outputs = [name if used else "" for name, used in zip(body.output, call.output, strict=False)]
        return Block(inputs, outputs, self._operations(nodes, {**opsets, **_opsets(body.opset_import, self.name)}))


def _opsets(imports: Sequence[Any], name: str) -> dict[str, int]:
    if any(isinstance(opset.domain, bytes) for opset in imports):  # what protobuf gives for other bytes
        raise LoadError(f"{name}: the domain of an opset import must be UTF-8 text. Export the model again.")
    return {"" if opset.domain == "ai.onnx" else opset.domain: opset.version for opset in imports}


def _bind_attributes(node: Any, attributes: Mapping[str, Any]) -> None:
    """Replace references to function attributes by the values of the call; drop those that the call does not give."""
    bound = []
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            if attribute.HasField("g"):
                for inner in attribute.g.node:
                    _bind_attributes(inner, attributes)
            bound.append(attribute)
        elif attribute.ref_attr_name in attributes:
            copy = type(attribute)()
            copy.CopyFrom(attributes[attribute.ref_attr_name])
            copy.name = attribute.name
            bound.append(copy)
    del node.attribute[:]
    node.attribute.extend(bound)
