"""What ONNX Runtime's Core ML provider takes of a file, and in how many parts.

The provider turns the nodes that it takes into Core ML models, one for each connected part, and leaves the rest to
ONNX Runtime's own CPU kernels. It writes one of two forms: ``NeuralNetwork``, its default, and ``MLProgram``. Nodes
whose results are known when the file is read are left out, as ONNX Runtime folds them first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.formats.onnx.node import OnnxNode
from aneforge.formats.onnx.provider_rules import ML_PROGRAM, PROVIDERS, Asked, operators, reason_left
from aneforge.graph.encoding import Encoded
from aneforge.graph.origins import Taken
from aneforge.graph.tensor import Tensor

_SUBGRAPHS = ("If", "Loop", "Scan")
_REMOVED = ("Identity", "Dropout")
"""Nodes that ONNX Runtime removes before it asks a provider."""
_KEPT = ("DequantizeLinear", "QuantizeLinear")
"""Nodes that it does not fold although all they read is known."""


@dataclass(frozen=True, eq=False)
class _Seen:
    number: int
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    left: Mapping[str, str]
    trivial: bool
    keeps_fp32: bool
    covers: tuple[int, ...] = ()
    """Numbers of nodes that the reader put in its place."""


class Provider:
    """What the provider takes of the nodes that an importer walks."""

    def __init__(self, dtypes: Mapping[str, str]) -> None:
        self._dtypes = dict(dtypes)
        """Element types by the names of values."""
        self._makers: dict[str, str] = {}
        self._decoded: set[str] = set()
        """Values that nodes give which ONNX Runtime does not fold."""
        self._seen: list[_Seen] = []

    @property
    def count(self) -> int:
        return len(self._seen)

    def note(self, number: int, node: OnnxNode, results: Sequence[Any], begin: int, stands_alone: bool) -> None:
        """One node behind its results. Since ``begin``, nodes may have been noted that the reader put in its place:
        its own ones where it is a function of the file, which ONNX Runtime unfolds too; else they count as it."""
        proto = node.proto
        gives = tuple(name for name in proto.output if name)
        dtypes = [self._dtype(name, value) for name, value in zip(proto.input, node.inputs, strict=True)]
        for name, value in zip(proto.output, results, strict=False):
            self._dtypes[name] = _result_type(node, dtypes, value)
            self._makers[name] = node.kind
        is_known = not node.computed or all(isinstance(value, (np.ndarray, Encoded)) for value in results)
        if is_known and node.kind in _KEPT:
            self._decoded.update(gives)
        elif is_known or not stands_alone or (node.kind in _REMOVED and not proto.domain):
            return
        inner = self._seen[begin:]
        del self._seen[begin:]
        decoded = frozenset(place for place, name in enumerate(proto.input) if name in self._decoded)
        maker = self._makers.get(proto.input[0], "") if proto.input else ""
        left = {name: self._reason(Asked(node, form, dtypes, maker, decoded)) for name, form in PROVIDERS.items()}
        computed = (place for place, value in enumerate(node.inputs) if isinstance(value, Tensor) or place in decoded)
        self._seen.append(
            _Seen(
                number,
                tuple(proto.input[place] for place in computed),
                gives,
                left,
                bool(operators().get(("", node.kind), {}).get("trivial")),
                keeps_fp32=next((dtype for dtype in dtypes if dtype.startswith("fp")), "") == "fp32",
                covers=tuple(covered for seen in inner for covered in (seen.number, *seen.covers)),
            )
        )

    def _reason(self, asked: Asked) -> str:
        if asked.node.kind in _SUBGRAPHS:
            return "nodes of If, Loop and Scan stay with ONNX Runtime (OG07)"
        try:
            return reason_left(asked)
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
            return "its attributes or inputs are not as the provider expects"

    def _dtype(self, name: str, value: Any) -> str:
        if isinstance(value, np.ndarray):
            return _stored_type(value)
        return "" if value is None else self._dtypes.get(name, "")

    def summary(self) -> tuple[dict[str, Taken], dict[int, tuple[tuple[str, str], ...]]]:
        """How much each form takes, and who declines which node of the file."""
        taken: dict[str, Taken] = {}
        declined: dict[int, list[tuple[str, str]]] = {}
        for name, form in PROVIDERS.items():
            left = {seen.number: seen.left[name] for seen in self._seen if seen.left[name]}
            parts = partitions([(seen.number, seen.reads, seen.gives) for seen in self._seen], left)
            trivial = {seen.number for seen in self._seen if seen.trivial}
            for part in parts:
                if trivial.issuperset(part):
                    left |= dict.fromkeys(part, "it would be a part of its own that only moves numbers (OG08)")
            kept = [part for part in parts if not trivial.issuperset(part)]
            taken[name] = Taken(len(self._seen), sum(map(len, kept)), len(kept))
            for seen in self._seen:
                reason = left.get(seen.number, "")
                if not reason and form == ML_PROGRAM and seen.keeps_fp32:
                    reason = "it stays in float32 as the file has it, and the engine computes in float16 (OG15)"
                if reason:
                    for number in (seen.number, *seen.covers):
                        declined.setdefault(number, []).append((name, reason))
        return taken, {number: tuple(pairs) for number, pairs in declined.items()}


_TYPES = {"float32": "fp32", "float16": "fp16", "float64": "fp64"}


def _stored_type(value: np.ndarray) -> str:
    name = str(value.dtype.name)
    return _TYPES.get(name, name)


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


def _result_type(node: OnnxNode, dtypes: Sequence[str], value: Any) -> str:
    """The element type of a result, as the standard has it for ops that do not keep that of an input."""
    if isinstance(value, np.ndarray):
        return _stored_type(value)
    if node.kind == "Cast":
        return _CAST_NAMES.get(node.attr("to", 0), "")
    if node.kind in _GIVES_BOOL:
        return "bool"
    if node.kind in _GIVES_INT64:
        return "int64"
    places = {"Where": 1, "DequantizeLinear": 1}
    place = places.get(node.kind, 0)
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
