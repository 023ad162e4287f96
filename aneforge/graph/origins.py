"""Where the nodes of a graph come from: the nodes of a model file behind each of them.

The importer stamps what it makes of a file's node. Whoever builds nodes in the place of others (recognition, rewrites)
stamps what it made with the origins of what it replaced. Rules never see origins. Names for display are derived.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

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
    declined: tuple[tuple[str, str], ...] = ()
    """The runtimes that leave it on the CPU for what the file says of it, each with the reason."""


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


@dataclass
class FileNodes:
    """All nodes of a model file, and why some are behind no node of the graph."""

    nodes: list[Origin] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    """By the number of a node, what became of it."""
    runtime: str = ""
    """Who runs such a file (``coreml``, ``coreai``); empty where it has to be converted first."""
    providers: dict[str, Taken] = field(default_factory=dict)
    """By the name of a runtime that reads the file and hands parts of it on, how much it takes."""

    def decline(self, declined: Mapping[int, tuple[tuple[str, str], ...]], graph_nodes: Iterable[Tensor]) -> None:
        """Note who declines nodes, by their numbers, also with those that nodes of the graph come from."""
        if not declined:
            return
        changed = {
            origin.number: origin._replace(declined=declined[origin.number])
            for origin in self.nodes
            if origin.number in declined
        }
        self.nodes = [changed.get(origin.number, origin) for origin in self.nodes]
        for node in graph_nodes:
            if any(origin.number in changed for origin in node.origins):
                node.origins = tuple(changed.get(origin.number, origin) for origin in node.origins)

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
        providers = {name: list(taken) for name, taken in self.providers.items()}
        nodes = [list(origin) for origin in self.nodes]
        return {"nodes": nodes, "reasons": reasons, "runtime": self.runtime, "providers": providers}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FileNodes:
        nodes = [_read(record) for record in document["nodes"]]
        reasons = {int(number): str(reason) for number, reason in document["reasons"].items()}
        providers = {str(name): Taken(*map(int, counts)) for name, counts in document.get("providers", {}).items()}
        return cls(nodes, reasons, str(document.get("runtime", "")), providers)


def _read(record: Sequence[Any]) -> Origin:
    number, name, kind, *more = record
    module, line, dtype = map(str, (*more, "", "", "")[:3])
    declined = more[3] if len(more) > 3 else ()
    pairs = tuple((str(runtime), str(reason)) for runtime, reason in declined)
    return Origin(int(number), str(name), str(kind), module, line, dtype, pairs)


def kept_type(origins: Origins) -> str:
    """The type that a file binds the runtime to for a node of these origins; empty where the engine's own will do."""
    return next((origin.dtype for origin in origins if origin.dtype), "")


def declined_by(origins: Origins) -> dict[str, str]:
    """The runtimes that leave a node of these origins on the CPU, each with its first reason."""
    if not any(origin.declined for origin in origins):
        return {}
    return dict(reversed([pair for origin in origins for pair in origin.declined]))


def bound_by_file(origins: Origins) -> tuple[str, tuple[str, ...]] | None:
    """What the file decides about a node beside its meaning: its type, and who leaves it on the CPU. Nodes that differ
    in it have other verdicts. None where it decides nothing."""
    kept, declined = kept_type(origins), tuple(declined_by(origins))
    return (kept, declined) if kept or declined else None


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
