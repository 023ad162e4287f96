"""What a form of a graph costs on a target, at its place alone, and what the gate warns of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from aneforge.compiler.compile import compile_target
from aneforge.cost.estimate import Estimate, estimate_program
from aneforge.errors import AneforgeError
from aneforge.gate.preflight import preflights
from aneforge.graph.graph import Graph
from aneforge.rewrites.rewrite import Rewrite, Site, alone, scene_of
from aneforge.targets.chip import Target
from aneforge.targets.families import Family
from aneforge.tuning.records import Figure

__all__ = ["Change", "changes_of", "figure", "in_order", "joined", "risks_by_chip", "risks_of"]


@dataclass(frozen=True, eq=False)
class Change:
    """A rewrite in some places, with what each of them takes before and after, on the engine alone."""

    rewrite: Rewrite
    sites: tuple[Site, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def gain(self) -> float:
        return sum(self.before) - sum(self.after)


def figure(estimate: Estimate) -> Figure:
    return Figure(estimate.us, estimate.interval)


def changes_of(graph: Graph, target: Target, rewrites: Iterable[Rewrite]) -> list[Change]:
    """Every form that fits somewhere, priced on a graph of that place alone; the one that gains most first."""
    scene = scene_of(graph, target)
    chosen = list(rewrites)
    groups: dict[tuple[object, ...], list[Site]] = {}
    priced: dict[tuple[object, ...], Change | None] = {}
    for node in graph.nodes:
        for rewrite in () if node.definition.leaf else chosen:
            site = rewrite.find(node, scene)
            parts = None if site is None else _apart(site)
            if site is None or parts is None:
                continue
            before, after, shape = parts
            key = (rewrite.name, *shape)
            if key not in priced:
                priced[key] = _priced(rewrite, before, after, target)
            groups.setdefault(key, []).append(site)
    changes = [_everywhere(price, groups[key]) for key, price in priced.items() if price is not None]
    return in_order(changes, chosen)


def in_order(changes: Iterable[Change], rewrites: Sequence[Rewrite]) -> list[Change]:
    """What gains most first; equals as the rewrites and the nodes stand."""
    order = {rewrite.name: place for place, rewrite in enumerate(rewrites)}

    def rank(change: Change) -> tuple[float, int, int]:
        return -change.gain, order[change.rewrite.name], change.sites[0].node.uid

    return sorted(changes, key=rank)


def _everywhere(one: Change, sites: Sequence[Site]) -> Change:
    """A change of one place at all places like it."""
    return replace(one, sites=tuple(sites), before=one.before * len(sites), after=one.after * len(sites))


def joined(changes: Sequence[Change]) -> list[Change]:
    """One change more for each form of weights that gains in layers of several shapes: in all of them together, since
    what one layer gains is little of a whole call."""
    all_changes = list(changes)
    for name in dict.fromkeys(change.rewrite.name for change in changes if change.rewrite.kind == "encoding"):
        alike = [change for change in changes if change.rewrite.name == name and change.gain > 0]
        if len(alike) > 1:
            sites, before, after = (tuple(chain(*parts)) for parts in zip(*map(_fields, alike), strict=True))
            all_changes.append(Change(alike[0].rewrite, sites, before, after))
    return all_changes


def _fields(change: Change) -> tuple[tuple[Site, ...], tuple[float, ...], tuple[float, ...]]:
    return change.sites, change.before, change.after


def _priced(rewrite: Rewrite, before: Graph, after: Graph, target: Target) -> Change | None:
    """A form at one place: what the layers take on the engine before and after, without the call around them. None
    where the chip refuses one of them."""
    try:
        programs = [compile_target(graph_form, target) for graph_form in (before, after)]
    except AneforgeError:
        return None
    was, will = (estimate_program(program).engine_us for program in programs)
    return Change(rewrite, (), (was,), (will,))


def _apart(site: Site) -> tuple[Graph, Graph, tuple[object, ...]] | None:
    try:
        return alone(site)
    except AneforgeError:
        return None  # a shape that the other form cannot have: the form does not fit here


def risks_of(graph: Graph, target: Target) -> dict[str, str]:
    """What the gate warns of, by rule: numbers that may be wrong on the real chip though the simulator is right."""
    return risks_by_chip(graph, {target.name: target})[target.name]


def risks_by_chip(graph: Graph, chips: Mapping[str, Target]) -> dict[str, dict[str, str]]:
    """The same for several chips, which share the work. The gate knows nothing of chips below its floor."""
    known = {name: chip for name, chip in chips.items() if chip.family5 not in (None, Family.OLDER)}
    results = preflights(graph, known, "conversion") if known else {}
    return {
        name: {report.rule: report.message for report in results[name].risk} if name in results else {}
        for name in chips
    }
