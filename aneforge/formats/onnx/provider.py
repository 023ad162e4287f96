"""What ONNX Runtime's Core ML provider takes of a file, and in how many parts.

The provider turns the nodes that it takes into Core ML models, one for each connected part, and leaves the rest to
ONNX Runtime's own CPU kernels. It writes one of two forms: ``NeuralNetwork``, its default, and ``MLProgram``. Nodes
whose results are known when the file is read are left out, as ONNX Runtime folds them first. While a file is read,
its nodes are only noted; they are judged when somebody asks about this runtime.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aneforge.formats.onnx.node import OnnxNode
from aneforge.formats.onnx.provider_rules import ML_PROGRAM, PROVIDERS, Asked, Input, Node, operators, reason_left
from aneforge.formats.records import ValueType
from aneforge.graph.encoding import Encoded
from aneforge.graph.origins import Declined, Taken
from aneforge.graph.tensor import Tensor

_SUBGRAPHS = ("If", "Loop", "Scan")
_REMOVED = ("Identity", "Dropout")
"""Nodes that ONNX Runtime removes before it asks a provider."""
_KEPT = ("DequantizeLinear", "QuantizeLinear")
"""Nodes that it does not fold although all they read is known."""
_SHORT = 64  # numbers of a constant that a constraint may ask for


class Provider:
    """The nodes of a file as they are walked, and what the provider takes of them."""

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        self._dtypes = dtypes
        """Element types of inputs and weights by name."""
        self._nodes: list[Node] = []

    @property
    def count(self) -> int:
        """How many nodes are noted."""
        return len(self._nodes)

    def note(self, number: int, node: OnnxNode, results: Sequence[Any], begin: int) -> None:
        """One node behind its results. What was noted since ``begin`` the reader put in its place."""
        if node.kind not in _KEPT and all(isinstance(value, (np.ndarray, Encoded)) for value in results):
            return
        proto = node.proto
        inner = self._nodes[begin:]
        del self._nodes[begin:]
        inputs = tuple(map(_input, node.inputs, node.types))
        covers = tuple(covered for each in inner for covered in (each.number, *each.covers)) if inner else ()
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        gives = tuple(filter(None, proto.output))
        self._nodes.append(
            Node(number, node.kind, domain, node.opset, node.attrs, tuple(proto.input), gives, inputs, covers)
        )

    def summary(self) -> tuple[dict[str, Taken], Declined]:
        """How much each form takes, and who declines which node of the file, with the reason."""
        nodes, asked = self._asked()
        taken: dict[str, Taken] = {}
        declined: dict[int, dict[str, str]] = {}
        trivial = {node.number for node in nodes if operators().get(("", node.kind), {}).get("trivial")}
        for name, form in PROVIDERS.items():
            left = {each.node.number: reason for each in asked[form] if (reason := _reason(each))}
            parts = partitions([(node.number, node.reads, node.gives) for node in nodes], left)
            for part in parts:
                if trivial.issuperset(part):
                    left |= dict.fromkeys(part, "it would be a part of its own that only moves numbers (OG08)")
            kept = [part for part in parts if not trivial.issuperset(part)]
            taken[name] = Taken(len(nodes), sum(map(len, kept)), len(kept))
            for each in asked[form]:
                reason = left.get(each.node.number) or _off_engine(each)
                if reason:
                    for number in (each.node.number, *each.node.covers):
                        declined.setdefault(number, {})[name] = reason
        return taken, declined

    def _asked(self) -> tuple[list[Node], dict[str, list[Asked]]]:
        """The nodes that count, and each as it is seen in either form, with the types that follow from the inputs."""
        dtypes = dict(self._dtypes)
        makers: dict[str, str] = {}
        decoded: set[str] = set()
        same: dict[str, str] = {}
        nodes: list[Node] = []
        asked: dict[str, list[Asked]] = {form: [] for form in PROVIDERS.values()}
        for noted in self._nodes:
            node = noted._replace(reads=tuple(same.get(name, name) for name in noted.reads))
            own = [_dtype(given, dtypes.get(name, "")) for given, name in zip(node.inputs, node.reads, strict=True)]
            dtypes |= dict.fromkeys(node.gives, _result_type(node, own))
            makers |= dict.fromkeys(node.gives, node.kind)
            if node.kind in _REMOVED and not node.domain:
                same |= dict.fromkeys(node.gives[:1], node.reads[0])
                continue
            places = frozenset(place for place, name in enumerate(node.reads) if name in decoded)
            if node.kind in _KEPT and not any(given is not None and given.computed for given in node.inputs):
                decoded.update(node.gives)
            maker = makers.get(node.reads[0], "") if node.reads else ""
            for form, line in asked.items():
                line.append(Asked(node, form, own, maker, places))
            nodes.append(node)
        return nodes, asked


def _input(value: Any, kind: Any) -> Input | None:
    if value is None:
        return None
    if isinstance(value, Tensor):
        is_single = isinstance(kind, ValueType) and kind.shape == ()
        return Input(() if is_single else value.shape, "", True)
    if not isinstance(value, np.ndarray):
        return Input(tuple(value.shape), "", False)
    name = str(value.dtype.name)
    return Input(value.shape, _TYPES.get(name, name), False, value if value.size <= _SHORT else None)


def _dtype(given: Input | None, stated: str) -> str:
    return "" if given is None else given.dtype or stated


def _reason(asked: Asked) -> str:
    if asked.node.kind in _SUBGRAPHS:
        return "nodes of If, Loop and Scan stay with ONNX Runtime (OG07)"
    try:
        return reason_left(asked)
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return "its attributes or inputs are not as the provider expects"


def _off_engine(asked: Asked) -> str:
    """Why a node that is taken is not on the engine, by the type that it keeps."""
    first = next((dtype for dtype in asked.dtypes if dtype.startswith("fp")), "")
    if asked.form != ML_PROGRAM or first != "fp32":
        return ""
    return "it stays in float32 as the file has it, and the engine computes in float16 (OG15)"


_TYPES = {"float32": "fp32", "float16": "fp16", "float64": "fp64"}
_GIVES_BOOL = (
    "And",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "Not",
    "Or",
    "Xor",
)
_GIVES_INT64 = ("ArgMax", "ArgMin", "NonZero", "Shape", "Size")
_CAST_NAMES = {1: "fp32", 6: "int32", 7: "int64", 9: "bool", 10: "fp16", 11: "fp64"}
_TYPE_OF = {"Where": 1, "DequantizeLinear": 1}
"""Ops whose result has the type of another input than the first."""


def _result_type(node: Node, dtypes: Sequence[str]) -> str:
    """The element type of a result."""
    if node.kind == "Cast":
        return _CAST_NAMES.get(node.attrs.get("to", 0), "")
    if node.kind in _GIVES_BOOL:
        return "bool"
    if node.kind in _GIVES_INT64:
        return "int64"
    place = _TYPE_OF.get(node.kind, 0)
    return dtypes[place] if place < len(dtypes) else ""


def partitions(nodes: Iterable[tuple[int, Sequence[str], Sequence[str]]], left: Mapping[int, str]) -> list[list[int]]:
    """The parts that the nodes make which are not left, each to run in one go: a part grows until every node that
    could be next is left, or waits for one that is. A node is its number, the values that it reads, and those that it
    gives."""
    listed = list(nodes)
    maker = {name: number for number, _, gives in listed for name in gives}
    readers: dict[int, list[int]] = {number: [] for number, _, _ in listed}
    waits: dict[int, int] = {}
    for number, reads, _ in listed:
        before = {maker[name] for name in reads if name in maker}
        waits[number] = len(before)
        for other in before:
            readers[other].append(number)
    ready, later = deque(number for number, count in waits.items() if not count), deque[int]()
    parts: list[list[int]] = []
    part: list[int] = []
    border: set[int] = set()
    while ready or later or part:
        if not ready:
            if part:
                parts.append(part)
            part, border = [], set()
            ready, later = later, ready
            continue
        number = ready.popleft()
        if number in left and number in border:
            later.append(number)  # it reads what this part gives, so it comes behind it
            continue
        if number not in left:
            part.append(number)
        for reader in readers[number]:
            if number not in left:
                border.add(reader)
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    return parts
