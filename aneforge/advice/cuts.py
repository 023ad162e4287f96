"""Another cut between the engine and the host: native layers and small regions that cost more than they compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from aneforge.advice.change import Proposal, Question
from aneforge.compiler.refusal import Refusal
from aneforge.cost.calls import Ports, call_us
from aneforge.cost.host import host_band
from aneforge.errors import AneforgeError
from aneforge.graph.tensor import Tensor
from aneforge.graph.views import plain_name
from aneforge.output.text import plural
from aneforge.study.partition import Partition
from aneforge.study.split import ENGINE
from aneforge.tuning.pricing import figure
from aneforge.tuning.records import Figure

__all__ = ["native_layers_on_host", "native_nodes", "small_regions_on_host"]

_RULE = "advice"
_HOW = "cut there, compiled and estimated, the host at assumed rates (U75)"
_NUMBERS = "the host computes in float32"


def native_layers_on_host(question: Question) -> Iterator[Proposal]:
    """A native layer is a program of its own: it cuts the model, and each part is started by itself."""
    wanted: dict[tuple[int, ...], tuple[list[Tensor], dict[str, float]]] = {}
    for name, split in question.splits.items():
        nodes = native_nodes(split)
        if not nodes:
            continue
        estimate, constants = question.estimates[name], question.estimates[name].basis.constants
        empty = Ports(0.0, 0.0)
        once, twice = (float(call_us(question.scope, 0.0, empty, constants, calls)) for calls in (1, 2))
        start = twice - once
        sources = {question.names[node.uid] for node in nodes}
        layers = sum(layer.us for layer in estimate.layers if not sources.isdisjoint(layer.sources))
        programs = len(split.programs)
        most = layers + start * (estimate.calls - programs) - host_band(nodes).low
        wanted.setdefault(tuple(node.uid for node in nodes), (nodes, {}))[1][name] = most
    for nodes, most in wanted.values():
        ops = ", ".join(dict.fromkeys(plain_name(node) for node in nodes))
        yield _on_host(question, "native layers", "native layers on the host", "calls", nodes, most,
                       f"compute {ops} on the host: as a native layer it cuts the program into parts")  # fmt: skip


def native_nodes(split: Partition) -> list[Tensor]:
    """The user's nodes that are native layers in the programs."""
    names: set[str] = set()
    for program in split.programs.values():
        for segment in program.segments:
            if segment.kind == "native":
                names |= {source for place in segment.layers for source in program.layers[place].sources}
    return [node for node in split.cut.operations.placed if split.names[node.uid] in names]


def small_regions_on_host(question: Question) -> Iterator[Proposal]:
    """Regions of the engine that take longer with their call and crossings than the host would for their ops."""
    wanted: dict[tuple[int, ...], tuple[list[Tensor], dict[str, float]]] = {}
    for name, split in question.splits.items():
        estimate = question.estimates[name]
        parts = {part.number: part for part in estimate.parts if part.device == ENGINE}
        if len(parts) < 2:
            continue
        crossing = estimate.crossings_us / max(1, estimate.crossings)
        costly: list[Tensor] = []
        most = 0.0
        for region in split.cut.on_engine:
            gain = parts[region.number].us + 2 * crossing - host_band(region.nodes).middle
            if gain > 0:
                costly += region.nodes
                most += gain
        if costly and len(costly) < sum(len(region.nodes) for region in split.cut.on_engine):
            wanted.setdefault(tuple(node.uid for node in costly), (costly, {}))[1][name] = most
    for nodes, most in wanted.values():
        yield _on_host(question, "regions", "small regions on the host", "crossings", nodes, most,
                       f"leave {plural(len(nodes), 'op')} of small regions on the host: starting "
                       "the engine takes longer than computing them there")  # fmt: skip


def _on_host(
    question: Question,
    family: str,
    name: str,
    cause: str,
    nodes: Sequence[Tensor],
    most: dict[str, float],
    what: str,
) -> Proposal:
    return Proposal(
        family=family,
        name=name,
        cause=cause,
        what=what,
        nodes=tuple(question.names[node.uid] for node in nodes),
        most=most,
        after=partial(_estimates_with, question, nodes),
        how=_HOW,
        numbers=_NUMBERS,
    )


def _estimates_with(question: Question, nodes: Sequence[Tensor], chips: Sequence[str]) -> dict[str, Figure]:
    """The estimates with some nodes on the host, for chips that still have something to compute."""
    moved = {node.uid: Refusal(question.names[node.uid], _RULE, "it is left on the host") for node in nodes}
    try:
        splits = question.study.with_chips(chips).without(moved)
    except AneforgeError:
        return {}
    return {name: figure(split.estimate(question.scope)) for name, split in splits.items() if split.runs}
