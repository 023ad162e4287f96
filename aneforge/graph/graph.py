"""A whole graph: its nodes in order, printed, written to JSON or a file, and read back."""

from __future__ import annotations

import base64
import binascii
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from aneforge.documents import parse_json
from aneforge.errors import GraphError, LoadError, first_line, shortened, shown
from aneforge.files import array_of, check_archive, entry_of, regular_file, write_archive
from aneforge.graph.encoding import Encoded
from aneforge.graph.node import Node, definition, located, make
from aneforge.graph.origins import FileNodes, Origin, Origins, derived_names
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.weights import Weight, intern_weight

FORMAT = 1
_DAMAGED = (RuntimeError, zipfile.BadZipFile, zlib.error)  # RuntimeError: encrypted, or nested without end


class Graph:
    """The nodes that lead to some outputs, every operand before its user.

    ``states`` says which input is a state (a cache that lives on from run to run), and which output is its new value.
    ``route`` is how it was made to reach a chip, where it was made for one route: a netplist is authored directly.
    """

    def __init__(
        self, outputs: Sequence[Tensor], states: Mapping[str, str] | None = None, route: str | None = None
    ) -> None:
        if isinstance(outputs, Node) or not isinstance(outputs, Sequence):
            raise GraphError(f"Graph: expected a list of tensors, not a {type(outputs).__name__} object")
        for output in outputs:
            if not isinstance(output, Node):
                raise GraphError(f"Graph: outputs must be tensors, not {type(output).__name__} objects")
        if not outputs:
            raise GraphError("Graph: at least one output is needed")
        self.outputs = tuple(outputs)
        self.nodes = _reachable(self.outputs)
        self.states: dict[str, str] = dict(states or {})
        self.route = route
        self.file: FileNodes | None = None
        """The nodes of the model file that it was read from."""
        self.kept: dict[str, Any] = {}
        """What later rooms keep about this graph; it goes when the graph goes."""
        self._check_states()

    def _check_states(self) -> None:
        if not self.states:
            return
        before = {port.name: port for port in self.inputs}
        after = {output.name: output for output in self.outputs}
        for name, new_name in self.states.items():
            if name not in before or new_name not in after:
                raise GraphError(
                    f"state {name!r} with new value {new_name!r}: the graph has no input and output of these names"
                )
            if before[name].shape != after[new_name].shape:
                raise GraphError(
                    f"state {name!r} is {list(before[name].shape)}, its new value {list(after[new_name].shape)}"
                )

    @classmethod
    def of(cls, out: Tensor | Sequence[Tensor] | Graph) -> Graph:
        """The graph of what a user passes: a graph, its outputs, or its only output."""
        if isinstance(out, Graph):
            return out
        if isinstance(out, Node):
            return cls([out])  # type: ignore[list-item]
        if not isinstance(out, Sequence):
            raise GraphError(f"expected a tensor, a list of tensors or a graph, not a {type(out).__name__} object")
        return cls(out)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Run-time inputs, in order of creation."""
        return tuple(node for node in self.nodes if node.op == "input")

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """What can be trained, in the order of the graph."""
        return tuple(node for node in self.nodes if node.op == "parameter")

    @property
    def weights(self) -> dict[str, Weight]:
        """Every constant once, by content."""
        return {node.weight.key: node.weight for node in self.nodes if node.weight is not None}

    @property
    def operations(self) -> tuple[Tensor, ...]:
        """Nodes that compute something."""
        return tuple(node for node in self.nodes if not node.definition.leaf)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The ops that occur."""
        return frozenset(node.op for node in self.nodes)

    def names(self) -> dict[int, str]:
        """A distinct name for every node: the user's own, else one from the file's nodes behind it, else the op and a
        number."""
        used: set[str] = set()
        counters: dict[str, int] = {}
        result: dict[int, str] = {}
        for node in self.nodes:
            if node.name and node.name not in used:
                result[node.uid] = node.name
                used.add(node.name)
        derived = dict.fromkeys(result, "")
        for node, name in derived_names(node for node in self.nodes if node.uid not in result):
            derived[node.uid] = name
            if name and name not in used:
                result[node.uid] = name
                used.add(name)
        for node in self.nodes:
            if node.uid in result:
                continue
            stem = node.name or derived.get(node.uid) or node.op
            while True:
                number = counters.get(stem, 0)
                counters[stem] = number + 1
                candidate = f"{stem}_{number}"
                if candidate not in used:
                    break
            result[node.uid] = candidate
            used.add(candidate)
        return result

    def name_by_origins(self) -> None:
        """Name the nodes of a file's graph by where they come from; its outputs keep the names that callers ask
        for."""
        own = {output.uid for output in self.outputs}
        named = [node for node in self.operations if node.origins and node.uid not in own]
        for node in named:
            node.name = None
        names = self.names()
        for node in named:
            node.name = names[node.uid]

    def __str__(self) -> str:
        names = self.names()
        return "\n".join(_line(node, names) for node in self.nodes)

    def __repr__(self) -> str:
        outputs = ", ".join(repr(output) for output in self.outputs)
        return f"Graph({len(self.operations)} ops, {len(self.inputs)} inputs -> {outputs})"

    def to_json(self, weights: bool = True) -> dict[str, Any]:
        """A plain document; ``weights=False`` leaves the values out and keeps their keys."""
        position = {node.uid: number for number, node in enumerate(self.nodes)}
        records = []
        for node in self.nodes:
            record: dict[str, Any] = {"op": node.op}
            if node.inputs:
                record["inputs"] = [position[operand.uid] for operand in node.inputs]
            if node.signature.attrs:
                record["attrs"] = {key: _plain(value) for key, value in node.signature.attrs}
            record["shape"] = list(node.shape)
            if node.name:
                record["name"] = node.name
            if node.weight is not None:
                record["weight"] = node.weight.key
            if node.origins and self.file is not None:
                record["origins"] = [origin.number for origin in node.origins]
            records.append(record)
        document: dict[str, Any] = {"aneforge_graph": FORMAT, "nodes": records}
        document["outputs"] = [position[output.uid] for output in self.outputs]
        if self.states:
            document["states"] = self.states
        if self.route is not None:
            document["route"] = self.route
        if self.file is not None:
            document["file"] = self.file.to_json()
        if weights:
            document["weights"] = {key: _encode(weight) for key, weight in self.weights.items()}
        return document

    @classmethod
    def from_json(
        cls, document: dict[str, Any], weights: Mapping[str, np.ndarray | Encoded | Weight] | None = None
    ) -> Graph:
        """The graph that :meth:`to_json` wrote; every shape is inferred again and compared."""
        return _read(document, weights)

    def save(self, path: str | Path) -> None:
        """Write one file: the graph, and each weight once. Nothing is left half-written."""
        write_archive(path, self.entries())

    def entries(self) -> Iterator[tuple[str, Callable[[IO[bytes]], object]]]:
        """The entries of the archive that :meth:`save` writes, each with what writes it."""
        yield "graph.json", _text_writer(self.to_json(weights=False))
        for key, weight in self.weights.items():
            if weight.encoded is None:
                yield f"weights/{key}.npy", partial(_write_array, weight.array)
                continue
            yield f"encoded/{key}/form.json", _text_writer(weight.encoded.to_json())
            for name, part in weight.encoded.parts.items():
                yield f"encoded/{key}/{name}.npy", partial(_write_array, part)


def load_graph(path: str | Path) -> Graph:
    """Read a file that :meth:`Graph.save` wrote."""
    name = Path(path).name if isinstance(path, (str, Path)) else repr(path)
    try:
        with zipfile.ZipFile(regular_file(path, name)) as archive:
            check_archive(archive, name)
            document, weights = _contents(archive, name)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, EOFError, MemoryError, *_DAMAGED) as error:
        raise GraphError(f"{name}: not an aneforge graph file ({first_line(error)})") from None
    return Graph.from_json(document, weights)


def _write_array(array: np.ndarray, stream: IO[bytes]) -> None:
    np.lib.format.write_array(stream, array, allow_pickle=False)


def _text_writer(document: Any) -> Callable[[IO[bytes]], object]:
    return lambda stream: stream.write(json.dumps(document).encode("utf-8"))


def _contents(archive: zipfile.ZipFile, name: str) -> tuple[Any, dict[str, np.ndarray | Encoded]]:
    """The document of a graph and its weights."""
    try:
        document = parse_json(entry_of(archive, "graph.json", name), name)
        weights: dict[str, np.ndarray | Encoded] = {
            Path(entry).stem: _from_file(archive, entry, name)
            for entry in archive.namelist()
            if entry.startswith("weights/")
        }
        return document, weights | _encoded_weights(archive, name)
    except LoadError as error:
        raise GraphError(f"{error}; a graph file must be what Graph.save wrote") from None


def _from_file(archive: zipfile.ZipFile, entry: str, where: str) -> np.ndarray:
    return array_of(entry_of(archive, entry, where), f"{where}: {shortened(shown(entry))}")


def _encoded_weights(archive: zipfile.ZipFile, where: str) -> dict[str, Encoded]:
    """Weights in a compressed form: one folder for each, with the form and its arrays."""
    forms: dict[str, Any] = {}
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name in archive.namelist():
        if not name.startswith("encoded/"):
            continue
        _, key, file = name.split("/")
        if file == "form.json":
            forms[key] = parse_json(entry_of(archive, name, where), where)
        else:
            parts.setdefault(key, {})[Path(file).stem] = _from_file(archive, name, where)
    return {key: Encoded.from_parts(form, parts.get(key, {})) for key, form in forms.items()}


def _reachable(outputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Nodes are numbered when they are created, so the reachable ones by number are in order of use."""
    seen = {output.uid: output for output in outputs}
    stack = list(outputs)
    while stack:
        for operand in stack.pop().inputs:
            if operand.uid not in seen:
                seen[operand.uid] = operand
                stack.append(operand)
    return [seen[uid] for uid in sorted(seen)]


def _line(node: Tensor, names: dict[int, str]) -> str:
    operands = ", ".join(f"%{names[operand.uid]}" for operand in node.inputs)
    attrs = ", ".join(f"{key}={value!r}" for key, value in node.signature.attrs if key not in ("shape", "dtype"))
    settings = f" {{{attrs}}}" if attrs else ""
    where = f"  # {located(node.where)}" if node.where and not node.definition.leaf else ""
    return f"%{names[node.uid]} = {node.op}({operands}){settings} : {node.dtype}{list(node.shape)}{where}"


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        raise GraphError("an attribute is NaN; use a number")
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _encode(weight: Weight) -> dict[str, Any]:
    if weight.encoded is None:
        return {"shape": list(weight.shape), "fp16": base64.b64encode(weight.array.tobytes()).decode("ascii")}
    parts = {
        name: {"shape": list(part.shape), "type": part.dtype.str, "data": base64.b64encode(part.tobytes()).decode()}
        for name, part in weight.encoded.parts.items()
    }
    return {**weight.encoded.to_json(), "parts": parts}


def _decode(record: dict[str, Any], key: str) -> np.ndarray | Encoded:
    try:
        if "form" in record:
            parts = {
                name: np.frombuffer(base64.b64decode(part["data"], validate=True), part["type"]).reshape(part["shape"])
                for name, part in record["parts"].items()
            }
            return Encoded.from_parts(record, parts)
        raw = base64.b64decode(record["fp16"], validate=True)
        return np.frombuffer(raw, np.float16).reshape(record["shape"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise GraphError(f"weight {key} cannot be read: {error}") from None


def _read(document: Any, weights: Mapping[str, np.ndarray | Encoded | Weight] | None) -> Graph:
    if not isinstance(document, dict) or document.get("aneforge_graph") != FORMAT:
        version = document.get("aneforge_graph") if isinstance(document, dict) else type(document).__name__
        raise GraphError(
            f"the file is not an aneforge graph of format {FORMAT} (found {version!r}); write it again with Graph.save"
        )
    if weights is None:
        stored = document.get("weights", {})
        if not isinstance(stored, dict):
            raise GraphError(f"'weights' is a {type(stored).__name__}; expected a record by key")
        weights = {key: _decode(record, key) for key, record in stored.items()}
    records, outputs = document.get("nodes"), document.get("outputs")
    if not isinstance(records, list) or not isinstance(outputs, list):
        raise GraphError("'nodes' and 'outputs' must be lists")
    file = _read_file(document.get("file"))
    origins = {} if file is None else {origin.number: origin for origin in file.nodes}
    nodes: list[Tensor] = []
    for number, record in enumerate(records):
        node = _read_node(number, record, nodes, weights)
        node.origins = _read_origins(number, record.get("origins", ()), origins)
        nodes.append(node)
    if not all(_points_into(index, len(nodes)) for index in outputs):
        raise GraphError(
            f"outputs {outputs} are not all among the {len(nodes)} nodes of the graph; "
            "write the file again with Graph.save"
        )
    states = document.get("states", {})
    if not isinstance(states, dict) or not all(isinstance(new_name, str) for new_name in states.values()):
        raise GraphError("'states' must map names of inputs to names of outputs")
    route = document.get("route")
    if route is not None and not isinstance(route, str):
        raise GraphError(f"'route' is a {type(route).__name__}; expected the name of a route")
    graph = Graph([nodes[index] for index in outputs], states, route)
    graph.file = file
    return graph


def _read_file(document: Any) -> FileNodes | None:
    try:
        return None if document is None else FileNodes.from_json(document)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise GraphError(f"'file' does not list the nodes of a model file ({first_line(error)})") from None


def _read_origins(number: int, numbers: Any, origins: Mapping[int, Origin]) -> Origins:
    if not isinstance(numbers, (list, tuple)) or not all(place in origins for place in numbers):
        raise GraphError(
            f"node {number}: origins {numbers} are not all among the nodes of the file; write it again with Graph.save"
        )
    return tuple(origins[place] for place in numbers)


def _points_into(index: Any, size: int) -> bool:
    return isinstance(index, int) and not isinstance(index, bool) and 0 <= index < size


def _read_node(number: int, record: Any, nodes: list[Tensor], weights: Mapping[str, Any]) -> Tensor:
    if not isinstance(record, dict) or not isinstance(record.get("op"), str):
        raise GraphError(f"node {number}: not a record with an 'op'")
    declared = definition(record["op"])
    label = f"node {number} ({declared.name})"
    operands, settings, name = record.get("inputs", []), record.get("attrs", {}), record.get("name")
    if not isinstance(operands, list) or not all(_points_into(index, number) for index in operands):
        raise GraphError(f"{label}: operands {operands} must all be earlier nodes")
    if not isinstance(settings, dict) or set(settings) != set(declared.attributes):
        raise GraphError(f"{label}: attributes are {list(settings)}; expected {list(declared.attributes)}")
    if not (name is None or isinstance(name, str)):
        raise GraphError(f"{label}: name {name!r} must be text")
    try:
        # In the order of the declaration, whatever order the document has them in.
        attrs = {key: _tuples(settings[key]) for key in declared.attributes}
        weight = _read_weight(record.get("weight"), declared.name, weights)
        result = make(declared, [nodes[index] for index in operands], attrs, name=name, weight=weight)
    except GraphError as error:
        raise GraphError(f"{label}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise GraphError(f"{label}: wrong operands or attributes ({error!r})") from None
    if weight is not None and attrs.get("shape", weight.shape) != weight.shape:
        raise GraphError(f"{label}: declares shape {list(attrs['shape'])}, but its weight has {list(weight.shape)}")
    if "shape" in record and list(result.shape) != record["shape"]:
        raise GraphError(f"{label}: declares shape {record['shape']}, but its operands give {list(result.shape)}")
    return result


def _read_weight(key: Any, name: str, weights: Mapping[str, Any]) -> Weight | None:
    has_weight = GraphTrait.STORED in definition(name).traits
    if key is None:
        if has_weight:
            raise GraphError("the weight is missing; a constant or parameter needs one")
        return None
    if not has_weight:
        raise GraphError("the op cannot have a weight; only constants and parameters do")
    if not isinstance(key, str) or key not in weights:
        raise GraphError(f"weight {key} is missing from the file; write it again with Graph.save")
    stored = weights[key]
    return stored if isinstance(stored, Weight) else intern_weight(stored, f"weight {key}")
