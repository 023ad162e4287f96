"""Warnings about numbers: heads-ups that never stop a compile."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target
from aneforge.targets.names import chip_label
from aneforge.targets.numeric_facts import FP16_SLICE_SAT

if TYPE_CHECKING:
    from aneforge.divergence.axes import Axis
    from aneforge.graph.graph import Graph

__all__ = ["CrossChipFP16Warning", "PrecisionWarning", "warn_divergence", "warn_slices"]

_NAMED = 4  # nodes that one warning names


class PrecisionWarning(UserWarning):
    """fp16 may not hold what a graph computes."""


class CrossChipFP16Warning(UserWarning):
    """The same graph can give other numbers on another chip."""


def warn_divergence(graph: Graph, host: Target, target: Target, stacklevel: int = 2) -> int:
    """One warning for each op and axis on which two chips can differ, with the nodes it concerns; how many there were.

    ``stacklevel`` counts as in ``warnings.warn``: 2 is the caller's line.
    """
    from aneforge.divergence.verdicts import graph_verdicts

    both = f"{chip_label(host.name)} and {chip_label(target.name)}"
    found: dict[tuple[str, str], tuple[Axis, list[str]]] = {}
    names = graph.names()
    for node, told in graph_verdicts(graph, host, target):
        for axis in told.axes:
            found.setdefault((node.op, axis.name), (axis, []))[1].append(names[node.uid])
    for (op, _), (axis, nodes) in found.items():
        text = f"{_listed(nodes)} ({op}) can differ between {both}: {axis}. Cure: {axis.cure}"
        warnings.warn(text, CrossChipFP16Warning, stacklevel=stacklevel)
    return len(found)


def warn_slices(graph: Graph, target: Target, stacklevel: int = 2) -> int:
    """A warning where slices that start inside the last axis clamp on the target; how many of them there are.

    Silent where the target copies fp16, and where inputs promise, or functions such as softmax imply, that no
    magnitude exceeds 4094. One pass over the graph.
    """
    clamps = compile_fact(target, "slice_saturates")
    if not clamps.value:
        return 0
    from aneforge.divergence.axes import SLICE
    from aneforge.divergence.verdicts import questions

    names = graph.names()
    nodes = [
        names[node.uid]
        for node, asked in questions(graph)
        if asked.kind in SLICE and asked.begin and (asked.max_abs is None or asked.max_abs > FP16_SLICE_SAT)
    ]
    if nodes:
        text = (
            f"{_listed(nodes)}: on {chip_label(target.name)} a slice that starts inside the last axis goes through a "
            f"fixed-point copy with a gain of 16, so that magnitudes above {FP16_SLICE_SAT:.0f} become infinite "
            f"{clamps.label()}. Slice another axis, keep the data small, or promise it with input(max_abs=...)"
        )
        warnings.warn(text, CrossChipFP16Warning, stacklevel=stacklevel)
    return len(nodes)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    told = ", ".join(names[:_NAMED])
    return f"{told} and {more} more" if more > 0 else told
