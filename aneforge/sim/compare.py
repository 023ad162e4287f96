"""Where two chips give other numbers: traces of the same graph, laid side by side by the user's nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.sim.executor import TraceEntry
from aneforge.sim.half import has_special

__all__ = ["Difference", "by_node", "differences", "steps_apart"]

Array = np.ndarray


@dataclass(frozen=True)
class Difference:
    """One node on two chips."""

    node: str
    op: str
    elements: int
    changed: int
    """Elements with other bits."""
    most_steps: int
    """The largest distance, in steps of fp16."""
    largest: float
    """The largest difference between finite results."""
    relative: float
    """The norm of the difference over that of the first chip's result, where both are finite."""
    lost: int
    """Elements that are finite on the first chip only."""

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def by_node(trace: Sequence[TraceEntry]) -> dict[str, TraceEntry]:
    """What each of the user's nodes gave: the last op that ends in it, in the order of the program."""
    found: dict[str, TraceEntry] = {}
    for entry in trace:
        if entry.sources and entry.value.dtype != bool:
            found.pop(entry.sources[-1], None)
            found[entry.sources[-1]] = entry
    return found


def differences(first: Sequence[TraceEntry], second: Sequence[TraceEntry]) -> list[Difference]:
    """Every node that both programs show with one size, in the first one's order, and how far apart it is.

    Chips fuse and lay out differently: a node that is inside a fused step of either, or is held in another order of
    axes, has no values to compare.
    """
    other = by_node(second)
    pairs = ((node, one, other[node]) for node, one in by_node(first).items() if node in other)
    return [_difference(node, one, two) for node, one, two in pairs if one.value.shape == two.value.shape]


def _difference(node: str, one: TraceEntry, two: TraceEntry) -> Difference:
    a, b = np.ascontiguousarray(one.value), np.ascontiguousarray(two.value)
    apart = steps_apart(a, b)
    finite = np.ones(a.shape, bool)
    lost = 0
    if has_special(a) or has_special(b):
        lost = int((np.isfinite(a) & ~np.isfinite(b)).sum())
        finite = np.isfinite(a) & np.isfinite(b)
    wide = a[finite].astype(np.float64)
    gap = np.abs(wide - b[finite].astype(np.float64))
    size = float(np.linalg.norm(wide))
    return Difference(
        node,
        one.op,
        elements=a.size,
        changed=int((a.view(np.uint16) != b.view(np.uint16)).sum()),
        most_steps=int(apart.max(initial=0)),
        largest=float(gap.max(initial=0.0)),
        relative=float(np.linalg.norm(gap)) / size if size else 0.0,
        lost=lost,
    )


def steps_apart(a: Array, b: Array) -> Array:
    """How many fp16 numbers lie between two arrays, element by element; both zeros are one."""
    return np.abs(_rank(a) - _rank(b))


def _rank(values: Array) -> Array:
    bits = values.view(np.uint16).astype(np.int32)
    return np.where(bits & 0x8000, -(bits & 0x7FFF), bits)
