"""A whole graph: its nodes in order, printed, written to JSON or a file, and read back."""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import IO, Any

import numpy as np

from aneforge.budgets import check_archive, regular_file
from aneforge.errors import GraphError
from aneforge.graph.encoding import Encoded
from aneforge.graph.node import Node, definition, located, make
from aneforge.graph.tensor import Tensor
from aneforge.graph.weights import Weight, intern_weight
from aneforge.output.files import write_archive

__all__ = ["FORMAT", "Graph", "load_graph"]

FORMAT = 1
_DAMAGED = (RuntimeError, zipfile.BadZipFile, zlib.error)  # RuntimeError: encrypted, or nested without end


class Graph:
    """The nodes that lead to some outputs, every operand before its user.

    ``states`` says which input is a state (a cache that lives on from run to run), and which output is its new value.
    """

    def __init__(self, outputs: Sequence[Tensor], states: Mapping[str, str] | None = None) -> None:
        if isinstance(outputs, Node) or not isinstance(outputs, Sequence):
            raise GraphError(f"a graph takes a list of tensors, not a {type(outputs).__name__} object")
        for each in outputs:
            if not isinstance(each, Node):
                raise GraphError(f"a graph is made of tensors, not of {type(each).__name__} objects")
        if not outputs:
            raise GraphError("a graph needs at least one output")
        self.outputs = tuple(outputs)
        self.nodes = _reachable(self.outputs)
        self.states: dict[str, str] = dict(states or {})
        self._check_states()

    def _check_states(self) -> None:
        before = {each.name: each for each in self.inputs}
        after = {each.name: each for each in self.outputs}
        for name, made in self.states.items():
            if name not in before or made not in after:
                raise GraphError(f"state {name!r} with new value {made!r}: no input and output of these names")
            if before[name].shape != after[made].shape:
                raise GraphError(
                    f"state {name!r} is {list(before[name].shape)}, its new value {list(after[made].shape)}"
                )

    @classmethod
    def of(cls, out: Tensor | Sequence[Tensor] | Graph) -> Graph:
        """What a user hands over as a graph: one, its outputs, or its only output."""
        if isinstance(out, Graph):
            return out
        if isinstance(out, Node):
            return cls([out])  # type: ignore[list-item]
        if not isinstance(out, Sequence):
            raise GraphError(f"a tensor, a list of tensors or a graph was expected, not a {type(out).__name__} object")
        return cls(out)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Run-time inputs, in order of creation."""
        return tuple(each for each in self.nodes if each.op == "input")

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return tuple(each for each in self.nodes if each.op == "parameter")

    @property
    def weights(self) -> dict[str, Weight]:
        """Every constant once, by content."""
        return {each.weight.key: each.weight for each in self.nodes if each.weight is not None}

    @property
    def operations(self) -> tuple[Tensor, ...]:
        """Nodes that compute something."""
        return tuple(each for each in self.nodes if not each.definition.leaf)

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The ops that occur."""
        return frozenset(each.op for each in self.nodes)

    def names(self) -> dict[int, str]:
        """A distinct name for every node: the user's own, else the op and a number."""
        used: set[str] = set()
        counters: dict[str, int] = {}
        result: dict[int, str] = {}
        for each in self.nodes:
            if each.name and each.name not in used:
                result[each.uid] = each.name
                used.add(each.name)
        for each in self.nodes:
            if each.uid in result:
                continue
            stem = each.name or each.op
            while True:
                number = counters.get(stem, 0)
                counters[stem] = number + 1
                candidate = f"{stem}_{number}"
                if candidate not in used:
                    break
            result[each.uid] = candidate
            used.add(candidate)
        return result

    def __str__(self) -> str:
        names = self.names()
        return "\n".join(_line(each, names) for each in self.nodes)

    def __repr__(self) -> str:
        outputs = ", ".join(repr(each) for each in self.outputs)
        return f"Graph({len(self.operations)} ops, {len(self.inputs)} inputs -> {outputs})"

    def to_json(self, weights: bool = True) -> dict[str, Any]:
        """A plain document; ``weights=False`` leaves the values out and keeps their keys."""
        position = {each.uid: number for number, each in enumerate(self.nodes)}
        records = []
        for each in self.nodes:
            record: dict[str, Any] = {"op": each.op}
            if each.inputs:
                record["inputs"] = [position[operand.uid] for operand in each.inputs]
            if each.signature.attrs:
                record["attrs"] = {key: _plain(value) for key, value in each.signature.attrs}
            record["shape"] = list(each.shape)
            if each.name:
                record["name"] = each.name
            if each.weight is not None:
                record["weight"] = each.weight.key
            records.append(record)
        document: dict[str, Any] = {"aneforge_graph": FORMAT, "nodes": records}
        document["outputs"] = [position[each.uid] for each in self.outputs]
        if self.states:
            document["states"] = self.states
        if weights:
            document["weights"] = {key: _encode(weight) for key, weight in self.weights.items()}
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any], weights: Mapping[str, np.ndarray | Encoded] | None = None) -> Graph:
        """The graph that :meth:`to_json` wrote; every shape is inferred again and compared."""
        return _read(document, weights)

    def save(self, path: str | Path) -> None:
        """Write one file: the graph, and each weight once. Nothing is left half-written."""
        write_archive(path, self._entries())

    def _entries(self) -> Iterator[tuple[str, Callable[[IO[bytes]], object]]]:
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
    try:
        with zipfile.ZipFile(regular_file(path, str(path))) as archive:
            check_archive(archive, str(path))
            document = json.loads(archive.read("graph.json"))
            weights: dict[str, np.ndarray | Encoded] = {
                Path(name).stem: _from_file(archive, name)
                for name in archive.namelist()
                if name.startswith("weights/")
            }
            weights |= _encoded_weights(archive)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, EOFError, MemoryError, *_DAMAGED) as error:
        raise GraphError(f"{path} is no aneforge graph file: {error}") from None
    return Graph.from_json(document, weights)


def _write_array(array: np.ndarray, stream: IO[bytes]) -> None:
    np.lib.format.write_array(stream, array, allow_pickle=False)


def _text_writer(document: Any) -> Callable[[IO[bytes]], object]:
    return lambda stream: stream.write(json.dumps(document).encode("utf-8"))


# NumPy reads the header of an array with Python's own parser, and that of Python 3.11 counts its depth for all threads
# together: two that parse at a time raise SystemError.
_header_lock = Lock()


def _from_file(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    stream = io.BytesIO(archive.read(name))
    with _header_lock:
        return np.load(stream, allow_pickle=False)


def _encoded_weights(archive: zipfile.ZipFile) -> dict[str, Encoded]:
    """Weights in a compressed form: a folder each, with the form and its arrays."""
    forms: dict[str, Any] = {}
    parts: dict[str, dict[str, np.ndarray]] = {}
    for name in archive.namelist():
        if not name.startswith("encoded/"):
            continue
        _, key, file = name.split("/")
        if file == "form.json":
            forms[key] = json.loads(archive.read(name))
        else:
            parts.setdefault(key, {})[Path(file).stem] = _from_file(archive, name)
    return {key: Encoded.from_parts(told, parts.get(key, {})) for key, told in forms.items()}


def _reachable(outputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Nodes number themselves when made, so the reachable ones in order of number are in order of use."""
    seen = {each.uid: each for each in outputs}
    stack = list(outputs)
    while stack:
        for operand in stack.pop().inputs:
            if operand.uid not in seen:
                seen[operand.uid] = operand
                stack.append(operand)
    return [seen[uid] for uid in sorted(seen)]


def _line(each: Tensor, names: dict[int, str]) -> str:
    operands = ", ".join(f"%{names[operand.uid]}" for operand in each.inputs)
    attrs = ", ".join(f"{key}={value!r}" for key, value in each.signature.attrs if key not in ("shape", "dtype"))
    settings = f" {{{attrs}}}" if attrs else ""
    where = f"  # {located(each.where)}" if each.where and not each.definition.leaf else ""
    return f"%{names[each.uid]} = {each.op}({operands}){settings} : {each.dtype}{list(each.shape)}{where}"


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        raise GraphError("an attribute is NaN")
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


def _read(document: Any, weights: Mapping[str, np.ndarray | Encoded] | None) -> Graph:
    if not isinstance(document, dict) or document.get("aneforge_graph") != FORMAT:
        found = document.get("aneforge_graph") if isinstance(document, dict) else type(document).__name__
        raise GraphError(f"no aneforge graph of format {FORMAT} (found {found!r})")
    if weights is None:
        stored = document.get("weights", {})
        if not isinstance(stored, dict):
            raise GraphError(f"the weights are a {type(stored).__name__}, not a record by key")
        weights = {key: _decode(record, key) for key, record in stored.items()}
    records, outputs = document.get("nodes"), document.get("outputs")
    if not isinstance(records, list) or not isinstance(outputs, list):
        raise GraphError("the graph needs a list of nodes and a list of outputs")
    made: list[Tensor] = []
    for number, record in enumerate(records):
        made.append(_read_node(number, record, made, weights))
    if not all(_points_into(index, len(made)) for index in outputs):
        raise GraphError(f"the graph names an output that it does not hold: {outputs} of {len(made)} nodes")
    states = document.get("states", {})
    if not isinstance(states, dict) or not all(isinstance(each, str) for each in states.values()):
        raise GraphError("the states are no record of names by name")
    return Graph([made[index] for index in outputs], states)


def _points_into(index: Any, size: int) -> bool:
    return isinstance(index, int) and not isinstance(index, bool) and 0 <= index < size


def _read_node(number: int, record: Any, made: list[Tensor], weights: Mapping[str, Any]) -> Tensor:
    if not isinstance(record, dict) or not isinstance(record.get("op"), str):
        raise GraphError(f"node {number} is no record with an 'op'")
    declared = definition(record["op"])
    what = f"node {number} ({declared.name})"
    operands, settings, name = record.get("inputs", []), record.get("attrs", {}), record.get("name")
    if not isinstance(operands, list) or not all(_points_into(index, number) for index in operands):
        raise GraphError(f"{what} uses {operands}; operands must stand before it")
    if not isinstance(settings, dict) or set(settings) != set(declared.attributes):
        raise GraphError(f"{what} needs attributes {list(declared.attributes)}, has {list(settings)}")
    if not (name is None or isinstance(name, str)):
        raise GraphError(f"{what} is named {name!r}; a name is text")
    try:
        # In the order of the declaration, whatever order the document has them in.
        attrs = {key: _tuples(settings[key]) for key in declared.attributes}
        weight = _read_weight(record.get("weight"), declared.name, weights)
        result = make(declared, [made[index] for index in operands], attrs, name=name, weight=weight)
    except GraphError as error:
        raise GraphError(f"{what}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise GraphError(f"{what} has the wrong operands or attributes: {error!r}") from None
    if weight is not None and attrs.get("shape", weight.shape) != weight.shape:
        raise GraphError(f"{what} says {list(attrs['shape'])}, its weight is {list(weight.shape)}")
    if "shape" in record and list(result.shape) != record["shape"]:
        raise GraphError(f"{what} says {record['shape']}, its operands give {list(result.shape)}")
    return result


def _read_weight(key: Any, name: str, weights: Mapping[str, Any]) -> Weight | None:
    held = name in ("const", "parameter")
    if key is None:
        if held:
            raise GraphError("it has no weight")
        return None
    if not held:
        raise GraphError("only constants and parameters hold a weight")
    if not isinstance(key, str) or key not in weights:
        raise GraphError(f"it needs weight {key}, which is missing")
    return intern_weight(weights[key], f"weight {key}")
