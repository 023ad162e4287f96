"""The forms that ``tune`` knows: attention, tiles, and layers by another op.

A place can gain no more than its layers take. The places that take most are priced alone, before and after, and the
best form of each kind is then applied wherever it gains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from aneforge.advice.change import LEAST_GAIN, Proposal, Question, estimated_graph
from aneforge.cost.host import host_band
from aneforge.output.text import plural
from aneforge.rewrites.forms import OP_FORMS
from aneforge.rewrites.rewrite import Rewrite, Site, applied, covered
from aneforge.study.split import HOST
from aneforge.tuning.attention import ATTENTION_FORMS
from aneforge.tuning.places import Places, apart, places_of, price
from aneforge.tuning.tiling import TILING_FORMS

__all__ = ["other_forms"]

_FORMS = (*ATTENTION_FORMS, *TILING_FORMS, *OP_FORMS)
_MOST_PRICED = 16  # kinds of places that are compiled by themselves, for all chips together
_Standing = dict[str, float]
"""By chip, what the layers of all places of a group take now."""


def other_forms(question: Question) -> Iterator[Proposal]:
    """For each kind of form the one that gains most on a chip."""
    places = _worth_pricing(question)
    for group in places:
        price(question.study, group)
    gains = {group: _gains(group, standing) for group, standing in places.items()}
    chosen: dict[tuple[str, tuple[int, ...]], tuple[Rewrite, list[Site], dict[str, float]]] = {}
    for chip in question.splits:
        best: dict[str, tuple[float, Rewrite, list[Site]]] = {}
        for rewrite in {group.rewrite.name: group.rewrite for group in places}.values():
            gaining = [group for group in places if group.rewrite is rewrite and gains[group].get(chip, 0.0) > 0]
            gain = sum(gains[group][chip] for group in gaining)
            if gain > best.get(rewrite.kind, (0.0,))[0]:
                best[rewrite.kind] = gain, rewrite, apart([site for group in gaining for site in group.sites])
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


def _gains(group: Places, standing: _Standing) -> dict[str, float]:
    """By chip, what all places of a group gain. Where a chip refuses one as it is, it is on the host now, and its time
    there counts."""
    count = len(group.sites)
    return {
        chip: count * (group.before.get(chip, standing[chip] / count) - after) for chip, after in group.after.items()
    }


def _worth_pricing(question: Question) -> dict[Places, _Standing]:
    """The places whose layers take most of a call on some chip: a place can gain no more than they take."""
    layer_us = {name: _us_by_node(question, name) for name in question.splits}
    standing = {group: _standing(question, group, layer_us) for group in places_of(question.study, _FORMS)}

    def share(group: Places) -> float:
        return max(us / question.estimates[chip].us for chip, us in standing[group].items())

    able = [group for group in standing if share(group) >= LEAST_GAIN]
    return {group: standing[group] for group in sorted(able, key=lambda group: -share(group))[:_MOST_PRICED]}


def _standing(
    question: Question, group: Places, layer_us: Mapping[str, Mapping[str, Mapping[int, float]]]
) -> _Standing:
    standing = dict.fromkeys(group.chips, 0.0)
    for site in group.sites:
        names = [question.names[uid] for uid in covered(site)]
        for chip in group.chips:
            layers = {number: us for name in names for number, us in layer_us[chip].get(name, {}).items()}
            standing[chip] += sum(layers.values())
    return standing


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
