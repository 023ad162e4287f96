"""Where a form of a graph fits, and what it gains there: for every part that proposes changes.

A form is priced on a graph of its place alone, before and after, once for all places that are alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aneforge.errors import AneforgeError
from aneforge.rewrites.rewrite import Rewrite, Site, alone, covered, likeness, scene_of
from aneforge.study.study import Study

__all__ = ["Places", "apart", "places_of", "price"]


@dataclass(eq=False)
class Places:
    """Equal places for one form, and what one of them takes on the engine of each chip."""

    rewrite: Rewrite
    chips: list[str]
    """The chips whose working set the form fits."""
    sites: list[Site] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)
    """By chip, in microseconds; a chip that refuses the place as it is has none, nor one that was not priced."""
    after: dict[str, float] = field(default_factory=dict)


def places_of(study: Study, rewrites: Iterable[Rewrite]) -> list[Places]:
    """Every place that a form fits, in the order of the graph, by form and likeness. What fits depends on a chip's
    working set."""
    chosen = list(rewrites)
    scenes: dict[float, list[str]] = {}
    for name, chip in study.chips.items():
        scenes.setdefault(scene_of(study.graph, chip).working_set, []).append(name)
    groups: dict[tuple[object, ...], Places] = {}
    for chips in scenes.values():
        scene = scene_of(study.graph, study.chips[chips[0]])
        for node in study.graph.nodes:
            for rewrite in () if node.definition.leaf else chosen:
                site = rewrite.find(node, scene)
                if site is not None:
                    key = (rewrite.name, scene.working_set, *likeness(site))
                    groups.setdefault(key, Places(rewrite, chips)).sites.append(site)
    return list(groups.values())


def price(study: Study, places: Places) -> None:
    """What one of the places takes before and after. A shape that the other form cannot have has no price."""
    try:
        parts = alone(places.sites[0])
        if parts is None:
            return
        asked = study.with_chips(places.chips)
        before, after = (asked.with_graph(graph).engine_us() for graph in parts[:2])
    except AneforgeError:
        return
    places.before, places.after = before, after


def apart(sites: Sequence[Site]) -> list[Site]:
    """Sites that share no node: of two that do, the first."""
    taken: set[int] = set()
    free: list[Site] = []
    for site in sites:
        nodes = covered(site)
        if not nodes & taken:
            taken |= nodes
            free.append(site)
    return free
