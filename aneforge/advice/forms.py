"""The forms that ``tune`` knows: attention, tiles, and layers by another op.

A place can gain no more than its layers take. The places that take most are priced alone, before and after, and the
best form of each kind is then applied wherever it gains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from aneforge.advice.change import LEAST_GAIN, Proposal, Question, estimated_graph
from aneforge.compiler.compile import programs_for
from aneforge.cost.estimate import estimate_program
from aneforge.cost.host import host_band
from aneforge.errors import AneforgeError
from aneforge.output.text import plural
from aneforge.regions.split import HOST
from aneforge.rewrites.forms import OP_FORMS
from aneforge.rewrites.rewrite import Rewrite, Site, alone, applied, covered, likeness, scene_of
from aneforge.targets.chip import Target
from aneforge.tuning.attention import ATTENTION_FORMS
from aneforge.tuning.tiling import TILING_FORMS

__all__ = ["other_forms"]

_FORMS = (*ATTENTION_FORMS, *TILING_FORMS, *OP_FORMS)
_MOST_PRICED = 16  # kinds of places that are compiled by themselves, for all chips together


@dataclass(eq=False)
class _Places:
    """Equal places for one form, and what their layers take on each chip."""

    rewrite: Rewrite
    sites: list[Site] = field(default_factory=list)
    us: dict[str, float] = field(default_factory=dict)
    gain: dict[str, float] = field(default_factory=dict)
    """By chip, of all of these places together, by the price of one of them alone."""


def other_forms(question: Question) -> Iterator[Proposal]:
    """For each kind of form the one that gains most on a chip."""
    places = _worth_pricing(question, _places(question))
    targets = question.chips
    for group in places:
        _price(group, targets, question.scope)
    chosen: dict[tuple[str, tuple[int, ...]], tuple[Rewrite, list[Site], dict[str, float]]] = {}
    for chip in question.splits:
        best: dict[str, tuple[float, Rewrite, list[Site]]] = {}
        for rewrite in {group.rewrite.name: group.rewrite for group in places}.values():
            gaining = [group for group in places if group.rewrite is rewrite and group.gain.get(chip, 0.0) > 0]
            gain = sum(group.gain[chip] for group in gaining)
            if gain > best.get(rewrite.kind, (0.0,))[0]:
                best[rewrite.kind] = gain, rewrite, _apart([site for group in gaining for site in group.sites])
        for gain, rewrite, sites in best.values():
            key = rewrite.name, tuple(site.node.uid for site in sites)
            chosen.setdefault(key, (rewrite, sites, {}))[2][chip] = gain
    for rewrite, sites, most in chosen.values():
        nodes = tuple(question.names[site.node.uid] for site in sites)
        doc = rewrite.doc.rstrip(".")
        yield Proposal(
            family=rewrite.kind,
            name=rewrite.name,
            cause="layers",
            what=f"{doc[0].lower()}{doc[1:]}, at {plural(len(sites), 'place')}",
            nodes=nodes,
            most=most,
            after=estimated_graph(question, partial(applied, question.graph, sites)),
            numbers="same results up to rounding (aneforge tune builds it and checks them)",
        )


def _apart(sites: Sequence[Site]) -> list[Site]:
    """Sites that share no node: of two that do, the first."""
    taken: set[int] = set()
    free: list[Site] = []
    for site in sites:
        nodes = covered(site)
        if not nodes & taken:
            taken |= nodes
            free.append(site)
    return free


def _places(question: Question) -> list[_Places]:
    """Every place that a form fits, by form and likeness. What fits depends on a chip's working set."""
    groups: dict[tuple[object, ...], _Places] = {}
    scenes: dict[float, list[str]] = {}
    for name, chip in question.chips.items():
        scenes.setdefault(scene_of(question.graph, chip).working_set, []).append(name)
    layer_us = {name: _us_by_node(question, name) for name in question.splits}
    for chips in scenes.values():
        scene = scene_of(question.graph, question.chips[chips[0]])
        for node in question.graph.nodes:
            if node.definition.leaf or not any(question.names[node.uid] in layer_us[chip] for chip in chips):
                continue
            for rewrite in _FORMS:
                site = rewrite.find(node, scene)
                if site is None:
                    continue
                group = groups.setdefault((rewrite.name, *likeness(site)), _Places(rewrite))
                if all(site.node is not known.node for known in group.sites[-1:]):
                    group.sites.append(site)
                names = [question.names[uid] for uid in covered(site)]
                for chip in chips:
                    layers = {number: us for name in names for number, us in layer_us[chip].get(name, {}).items()}
                    group.us[chip] = group.us.get(chip, 0.0) + sum(layers.values())
    return list(groups.values())


def _us_by_node(question: Question, chip: str) -> Mapping[str, Mapping[int, float]]:
    """What the layers behind each of the user's nodes take, by the number of the layer. A node of the host counts
    with the changes of device around it, under a number of its own."""
    by_node: dict[str, dict[int, float]] = {}
    estimate, split = question.estimates[chip], question.splits[chip]
    for layer in estimate.layers:
        for source in layer.sources:
            by_node.setdefault(source, {})[layer.number] = layer.us
    around = 2 * estimate.crossings_us / max(1, estimate.crossings)
    for node in split.cut.operations.counted:
        if split.device_of[node.uid] == HOST:
            by_node[split.names[node.uid]] = {-1 - node.uid: host_band([node]).middle + around}
    return by_node


def _worth_pricing(question: Question, places: list[_Places]) -> list[_Places]:
    """The places that take most of a call on some chip."""

    def share(group: _Places) -> float:
        return max(us / question.estimates[chip].us for chip, us in group.us.items())

    able = [group for group in places if group.us and share(group) >= LEAST_GAIN]
    return sorted(able, key=lambda group: -share(group))[:_MOST_PRICED]


def _price(group: _Places, targets: Mapping[str, Target], scope: str) -> None:
    """What the places gain, by one of them before and after on the engine alone. Where a chip refuses it as it is, it
    is on the host now, and its time there counts."""
    try:
        parts = alone(group.sites[0])
        if parts is None:
            return
        chips = [targets[name] for name in group.us]
        before, after = (programs_for(graph, chips) for graph in parts[:2])
    except AneforgeError:
        return  # a shape that the other form cannot have
    for name, us in group.us.items():
        target = targets[name]
        if target.name not in after:
            continue
        was, now = (
            estimate_program(programs[target.name], scope, target).engine_us if target.name in programs else None
            for programs in (before, after)
        )
        if now is not None:
            group.gain[name] = len(group.sites) * ((us / len(group.sites) if was is None else was) - now)
