"""Ops that cut the model, left to the caller: the model then starts behind them, or ends before them.

A native layer or an op of the host inside a model costs a start of the engine or two changes of device. Where all that
comes before it, or all that comes behind it, is little work, the app can do that part before or after the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from aneforge.advice.change import Proposal, Question
from aneforge.advice.cuts import native_nodes
from aneforge.cost.host import host_band
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.views import plain_name
from aneforge.output.text import plural
from aneforge.study.partition import Partition
from aneforge.study.split import ENGINE, HOST, region_of
from aneforge.tuning.records import Figure

__all__ = ["ends_outside"]

Follow = Callable[[Tensor], Iterable[Tensor]]
_LITTLE = 0.25  # of a call, and of all work on the host: ends of the model that take longer there stay in the model
_HOW = "the rest compiled and estimated, what is left out at the host's assumed rates (U75)"


def ends_outside(question: Question) -> Iterator[Proposal]:
    """The ops that cut the model at its start or its end, computed by the caller."""
    readers = _readers(question.graph)
    wanted: dict[frozenset[int], dict[str, float]] = {}
    for name, split in question.splits.items():
        placed = split.cut.operations.placed
        outside = _ends(split, readers, _LITTLE * min(question.estimates[name].us, host_band(placed).middle))
        if outside and len(outside) < len(placed):
            estimate = question.estimates[name]
            most = estimate.us - max((part.us for part in estimate.parts), default=estimate.us / estimate.calls)
            wanted.setdefault(frozenset(outside), {})[name] = most
    for uids, most in wanted.items():
        nodes = [node for node in question.graph.nodes if node.uid in uids]
        cutting = {node.uid for name in most for node in _cutting(question.splits[name])}
        ops = dict.fromkeys(plain_name(node) for node in nodes if node.uid in cutting)
        yield Proposal(
            family="ends",
            name="ends of the model outside the call",
            cause="crossings",
            what=f"compute {plural(len(nodes), 'op')} before or after the call: "
            f"{', '.join(ops)} in it cut{'s' if len(ops) == 1 else ''} the model",
            nodes=tuple(question.names[node.uid] for node in nodes),
            most=most,
            after=partial(_without, question, nodes),
            how=_HOW,
            numbers="the caller computes what is left out",
        )


def _readers(graph: Graph) -> dict[int, list[Tensor]]:
    readers: dict[int, list[Tensor]] = {}
    for node in graph.nodes:
        for operand in node.inputs:
            readers.setdefault(operand.uid, []).append(node)
    return readers


def _cutting(split: Partition) -> list[Tensor]:
    """The nodes that keep a model from being one program."""
    on_host = [node for node in split.cut.operations.counted if split.device_of[node.uid] == HOST]
    return [*on_host, *native_nodes(split)]


def _ends(split: Partition, readers: dict[int, list[Tensor]], most_us: float) -> set[int]:
    """The nodes to leave out: for each that cuts, it and all before it or all behind it, whichever is less work. All
    of them together must be little work."""
    placed = {node.uid: node for node in split.cut.operations.placed}
    outside: set[int] = set()
    us = 0.0
    for node in _cutting(split):
        if node.uid in outside:
            continue
        before = _closure(node, lambda one: one.inputs, placed, most_us)
        behind = _closure(node, lambda one: readers.get(one.uid, ()), placed, most_us)
        sides = [side for side in (before, behind) if side is not None]
        if sides:
            added = min(sides, key=len) - outside
            added_us = host_band([placed[uid] for uid in added]).middle
            if us + added_us <= most_us:
                outside |= added
                us += added_us
    return outside


def _closure(node: Tensor, follow: Follow, placed: dict[int, Tensor], most_us: float) -> set[int] | None:
    """A node and all on one side of it; None where that is more than a little work on the host."""
    seen, stack, us = {node.uid}, [node], 0.0
    while stack:
        one = stack.pop()
        us += host_band([one]).middle
        if us > most_us:
            return None
        for other in follow(one):
            if other.uid in placed and other.uid not in seen:
                seen.add(other.uid)
                stack.append(other)
    return seen


def _without(question: Question, nodes: Sequence[Tensor], chips: Sequence[str]) -> dict[str, Figure]:
    """The call of the rest of the model, and the host's time for what is left out."""
    gone, band = {node.uid for node in nodes}, host_band(nodes)
    first = question.splits[chips[0]]
    rest = [node for node in first.cut.operations.placed if node.uid not in gone]
    try:
        graph = region_of(question.graph, rest, ENGINE).graph(question.names)
        estimates = question.study.with_graph(graph).with_chips(chips).estimates()[0]
    except AneforgeError:
        return {}
    return {
        name: Figure(one.us + band.middle, (one.interval[0] + band.low, one.interval[1] + band.high))
        for name, one in estimates.items()
    }
