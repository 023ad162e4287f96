"""Forms that take a refusal away: each is applied and the model is judged again, so nothing is named that does not."""

from __future__ import annotations

from collections.abc import Collection

from aneforge.advice.forms import CURES, PLAIN_FORMS, apply_form
from aneforge.errors import AneforgeError
from aneforge.graph.forms import context_of
from aneforge.graph.tensor import Tensor
from aneforge.study.cache_forms import CACHE_FORMS
from aneforge.study.caches import cache_writes
from aneforge.study.preflight import Preflight
from aneforge.study.study import Study

MOST_NODES = 2000
"""Above it nothing is tried: every form is a survey of the whole model (U262)."""


def curing_forms(study: Study, chip: str, nodes: Collection[str]) -> list[str]:
    """The forms by name that fit one of these nodes and leave fewer nodes refused, or kept off the engine, on a chip;
    those that leave the fewest first. ``aneforge tune --form`` applies one."""
    graph = study.graph
    if len(graph.nodes) > MOST_NODES:
        return []
    context = context_of(graph)
    wanted = [node for node in graph.nodes if study.names[node.uid] in nodes]
    before = refused_nodes(study.preflights()[chip])
    left: dict[str, int] = {}
    for form in (*PLAIN_FORMS, *CURES):
        if not any(form.find(node, context) is not None for node in wanted):
            continue
        try:
            changed = study.with_graph(apply_form(graph, form.name))
            after = refused_nodes(changed.preflights()[chip])
        except AneforgeError:
            continue  # the form cannot be built here
        if after < before:
            left[form.name] = after
    for form in CACHE_FORMS if _is_about_caches(study, wanted) else ():
        if form.fits(cache_writes(graph)):
            after = refused_nodes(study.with_graph(form.build(graph)).preflights()[chip])
            if after < before:
                left[form.name] = after
    return sorted(left, key=lambda name: left[name])


def _is_about_caches(study: Study, wanted: Collection[Tensor]) -> bool:
    caches = {node.uid for write in cache_writes(study.graph) for node in (write.port, write.output)}
    return any(node.uid in caches for node in wanted)


def refused_nodes(report: Preflight) -> int:
    """How many nodes the chip refuses, or a runtime keeps off its engine."""
    return len(report.reject) + len(report.oversize) + sum(entry.verdict == "cpu" for entry in report.placement)
