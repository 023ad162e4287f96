"""What a form of a graph costs on a target, at its place alone, and what the gate warns of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from aneforge.cost.estimate import Estimate
from aneforge.rewrites.rewrite import Rewrite, Site
from aneforge.study.partition import Partition
from aneforge.study.study import Study
from aneforge.targets.families import Family
from aneforge.tuning.places import places_of, price
from aneforge.tuning.records import Figure

__all__ = ["Change", "changes_of", "figure", "in_order", "joined", "risks_by_chip", "timed_whole"]


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


def timed_whole(study: Study) -> tuple[Partition, Estimate]:
    """The partition and the estimate of the one chip of a study; raises the reason where there is no figure."""
    known, refused = study.estimates()
    for error in refused.values():
        raise error
    ((name, estimate),) = known.items()
    return study.timed()[name], estimate


def changes_of(study: Study, rewrites: Iterable[Rewrite]) -> list[Change]:
    """Every form that fits somewhere on the one chip of a study, priced; the one that gains most first. None where the
    chip refuses the place before or after."""
    (chip,) = study.chips
    chosen = list(rewrites)
    changes = []
    for places in places_of(study, chosen):
        price(study, places)
        if chip in places.before and chip in places.after:
            count = len(places.sites)
            times = ((places.before[chip],) * count, (places.after[chip],) * count)
            changes.append(Change(places.rewrite, tuple(places.sites), *times))
    return in_order(changes, chosen)


def in_order(changes: Iterable[Change], rewrites: Sequence[Rewrite]) -> list[Change]:
    """What gains most first; equals as the rewrites and the nodes stand."""
    order = {rewrite.name: place for place, rewrite in enumerate(rewrites)}

    def rank(change: Change) -> tuple[float, int, int]:
        return -change.gain, order[change.rewrite.name], change.sites[0].node.uid

    return sorted(changes, key=rank)


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


def risks_by_chip(study: Study) -> dict[str, dict[str, str]]:
    """What is known to go wrong with the numbers on each real chip, by rule, though the simulator is right. Nothing is
    known of chips below the floor of the rules."""
    asked = [name for name, chip in study.chips.items() if chip.family5 not in (None, Family.OLDER)]
    reports = study.with_chips(asked).preflights() if asked else {}
    return {
        name: {finding.rule: finding.message for _, finding in reports[name].defects} if name in reports else {}
        for name in study.chips
    }
