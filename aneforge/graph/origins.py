"""Where the nodes of a graph come from: the nodes of a model file behind each of them.

The importer stamps what it makes of a file's node. Whoever builds nodes in the place of others (recognition, rewrites)
stamps what it made with the origins of what it replaced. Rules never see origins. Names for display are derived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor

_FURTHEST = 512  # nodes that are looked at behind one that is replaced


class Origin(NamedTuple):
    """One node of a model file."""

    number: int
    """Its place in the file."""
    name: str
    kind: str
    """The op as the file calls it."""
    module: str = ""
    """The path of the module that wrote it, where the file says so (PyTorch)."""
    line: str = ""
    """The line of the model's own code, where the file says so."""
    dtype: str = ""
    """The type that it computes in, where the file binds the runtime to it and it is not the engine's: ``fp32``."""


Origins = tuple[Origin, ...]


HANDS_ON = "it hands on what it reads"
"""Why no node comes from a node of the file whose result is what it reads."""


class Taken(NamedTuple):
    """How much of a file a runtime takes that hands parts of it to another one."""

    nodes: int
    """Nodes that compute, before the runtime changes the graph itself."""
    taken: int
    partitions: int
    """Parts that are a model of their own there."""


Declined = Mapping[int, Mapping[str, str]]
"""By the number of a node, the runtimes that leave it on the CPU, each with the reason."""


class HandsOn(Protocol):
    """What knows how much of a file such runtimes take."""

    def summary(self) -> tuple[dict[str, Taken], Declined]: ...


class Providers:
    """What runtimes take of a file that hand parts of it on, worked out when somebody asks."""

    def __init__(self, source: HandsOn | None = None) -> None:
        self._source = source

    @cached_property
    def _known(self) -> tuple[Mapping[str, Taken], Declined]:
        return ({}, {}) if self._source is None else self._source.summary()

    @property
    def taken(self) -> Mapping[str, Taken]:
        """By the name of a runtime."""
        return self._known[0]

    def declined(self, origins: Origins, runtime: str) -> str:
        """Why a runtime leaves a node of these origins on the CPU; empty where it does not."""
        reasons = (self._known[1].get(origin.number, {}).get(runtime) for origin in origins)
        return next(filter(None, reasons), "")

    def to_json(self) -> dict[str, Any]:
        taken, declined = self._known
        return {"taken": {name: list(counts) for name, counts in taken.items()}, "declined": declined}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Providers:
        taken = {str(name): Taken(*map(int, counts)) for name, counts in document["taken"].items()}
        declined = {
            int(number): {str(name): str(reason) for name, reason in reasons.items()}
            for number, reasons in document["declined"].items()
        }
        known = cls()
        known._known = taken, declined
        return known


@dataclass
class FileNodes:
    """All nodes of a model file, and why some are behind no node of the graph."""

    nodes: list[Origin] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    """By the number of a node, what became of it."""
    runtime: str = ""
    """Who runs such a file (``coreml``, ``coreai``); empty where it has to be converted first."""
    stated: str = ""
    """``fp32`` where a file that has to be converted computes in it."""
    providers: Providers = field(default_factory=Providers, compare=False)

    def append(self, other: FileNodes | None, graph_nodes: Iterable[Tensor]) -> None:
        """Add the nodes of another part of the file behind these, and number those of its graph likewise."""
        if other is None:
            return
        before = max((origin.number for origin in self.nodes), default=0)
        moved = {origin.number: origin._replace(number=origin.number + before) for origin in other.nodes}
        self.nodes += moved.values()
        self.reasons |= {before + number: reason for number, reason in other.reasons.items()}
        for node in graph_nodes:
            node.origins = tuple(moved[origin.number] for origin in node.origins)

    def without_node(self, graph_nodes: Iterable[Tensor]) -> dict[Origin, str]:
        """The nodes of the file that no node of a graph comes from, each with the reason."""
        there = {origin.number for node in graph_nodes for origin in node.origins}
        return {
            origin: self.reasons.get(origin.number, "nothing reads its result")
            for origin in self.nodes
            if origin.number not in there
        }

    def to_json(self) -> dict[str, Any]:
        reasons = {str(number): reason for number, reason in self.reasons.items()}
        nodes, providers = [list(origin) for origin in self.nodes], self.providers.to_json()
        about = {"runtime": self.runtime, "stated": self.stated, "providers": providers}
        return {"nodes": nodes, "reasons": reasons, **about}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FileNodes:
        nodes = [_read(record) for record in document["nodes"]]
        reasons = {int(number): str(reason) for number, reason in document["reasons"].items()}
        stored = document.get("providers")
        providers = Providers() if stored is None else Providers.from_json(stored)
        return cls(nodes, reasons, str(document.get("runtime", "")), str(document.get("stated", "")), providers)


def _read(record: Sequence[Any]) -> Origin:
    number, *words = record
    return Origin(int(number), *map(str, words))


def kept_type(origins: Origins) -> str:
    """The type that a file binds the runtime to for a node of these origins; empty where the engine's own will do."""
    return next((origin.dtype for origin in origins if origin.dtype), "")


def merged(*groups: Origins) -> Origins:
    """All origins of several groups, each once, in the order of the file."""
    filled = [group for group in groups if group]
    if len(filled) < 2 or all(group is filled[0] for group in filled):
        return filled[0] if filled else ()
    return tuple(sorted({origin.number: origin for group in groups for origin in group}.values()))


def nodes_since(before: int, results: Iterable[Tensor]) -> list[Tensor]:
    """The nodes behind some results that were made after a node of this number, operands first."""
    seen = {result.uid: result for result in results if result.uid > before}
    stack = list(seen.values())
    while stack:
        for operand in stack.pop().inputs:
            if operand.uid > before and operand.uid not in seen:
                seen[operand.uid] = operand
                stack.append(operand)
    return [seen[uid] for uid in sorted(seen)]


def stamp(replaced: Tensor, built: Sequence[Tensor], result: Tensor) -> None:
    """Give new nodes the origins of those that they stand for: a node that is built again keeps its own, and the rest
    share what is left of everything between the replaced node and what the new ones read."""
    gone = passed_over(replaced, built, result)
    left = dict.fromkeys(gone)
    without: list[Tensor] = []
    for node in reversed(built):
        same = next((old for old in gone if old in left and _is_alike(old, node)), None)
        if same is None:
            without.append(node)
        else:
            node.origins = same.origins
            del left[same]
    shared = merged((), *(node.origins for node in left)) or replaced.origins
    for node in without:
        node.origins = shared
    if left and all(node.definition.leaf for node in without):
        result.origins = merged(result.origins, shared)


def _is_alike(old: Tensor, new: Tensor) -> bool:
    return old.op == new.op and old.shape == new.shape and bool(old.origins)


def passed_over(replaced: Tensor, built: Sequence[Tensor], result: Tensor) -> list[Tensor]:
    """The replaced node, the nodes on the ways from it to what the new ones read, and the constants of all these, the
    last first. Nodes are numbered as they are made, so what is older than all that is read leads to none of it."""
    own = {node.uid for node in built}
    read = {operand.uid for node in built for operand in node.inputs if operand.uid not in own}
    if result.uid not in own:
        read.add(result.uid)
    oldest = min(read, default=replaced.uid)
    seen, stack = {replaced.uid: replaced}, [replaced]
    while stack and len(seen) < _FURTHEST:
        for operand in stack.pop().inputs:
            if operand.uid >= oldest and operand.uid not in read and operand.uid not in seen:
                seen[operand.uid] = operand
                stack.append(operand)
    leading = {replaced.uid}
    for uid in sorted(seen):
        if any(operand.uid in read or operand.uid in leading for operand in seen[uid].inputs):
            leading.add(uid)
    constants = {
        operand.uid: operand
        for uid in leading
        for operand in seen[uid].inputs
        if operand.op == "const" and operand.uid not in read
    }
    passed = {**constants, **{uid: seen[uid] for uid in leading}}
    return [passed[uid] for uid in sorted(passed, reverse=True)]


# Names.


def derived_names(nodes: Iterable[Tensor]) -> Iterator[tuple[Tensor, str]]:
    """For nodes of a file's graph, the name that each is best known by. Of the nodes that go by one node of the file,
    the one that is its op, or else the last, has its name; the others have the op behind it."""
    groups: dict[Origin, list[Tensor]] = {}
    for node in nodes:
        if node.origins:
            groups.setdefault(_best(node), []).append(node)
    for origin, alike in groups.items():
        own = [node for node in alike if _is_called(node.op, origin.kind)] or alike
        for node in alike:
            yield node, origin.name if node is own[-1] else f"{origin.name}.{node.op}"


def _best(node: Tensor) -> Origin:
    """The origin that a node goes by: the last one that is its op, or else the last."""
    if len(node.origins) == 1:
        return node.origins[0]
    op = node.op
    return max(node.origins, key=lambda origin: (_is_called(op, origin.kind), origin.number))


def _is_called(op: str, kind: str) -> bool:
    """Whether an op of the graph is what a file calls this."""
    ours = op.replace("_", "")
    words = (re.sub(r"[^a-z0-9]", "", word) for word in kind.lower().split("."))
    return any(word and (ours.startswith(word) or word.startswith(ours)) for word in words)
