"""What is known of the inputs of a program before anybody says more: promises, and what the host hands over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from aneforge.graph.graph import Graph
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.promises import promised_range
from aneforge.graph.tensor import Tensor
from aneforge.graph.views import hands_on
from aneforge.numerics.values import OPEN, Value

_MOST = 1 << 26  # numbers of a table that is looked through


def promised_values(graph: Graph, names: Mapping[int, str]) -> dict[str, Value]:
    """What each input can be, by name; any finite number where nobody bounded it."""
    values: dict[str, Value] = {}
    for node in graph.inputs:
        ends = (0.0, 1.0) if node.dtype == "bool" else promised_range(node)
        bounded = ends is not None and ends[1] <= FP16_MAX  # a promise beyond fp16 says nothing
        values[names[node.uid]] = as_stored(*ends) if ends is not None and bounded else OPEN
    return values


def as_stored(low: float, high: float) -> Value:
    """A range as the host rounds what lies in it to fp16."""
    half = np.array([low, high]).astype(np.float16).astype(np.float64)
    return Value(min(low, float(half[0])), max(high, float(half[1])))


def handed_on(nodes: Iterable[Tensor]) -> dict[int, Value]:
    """What nodes of the host give that only pick or move numbers, as an embedding does, by uid."""
    values: dict[int, Value] = {}
    for node in nodes:
        if hands_on(node):
            read = [_ends(operand, values) for operand in node.inputs if operand.dtype == "fp16"]
            known = [value for value in read if value is not None]
            if known and len(known) == len(read):
                low, high = min(value.low for value in known), max(value.high for value in known)
                values[node.uid] = Value(low, high)
    return values


def _ends(operand: Tensor, known: Mapping[int, Value]) -> Value | None:
    if operand.weight is None or operand.weight.encoded is not None or operand.weight.size > _MOST:
        return known.get(operand.uid)
    array = np.asarray(operand.weight.array)
    return Value(float(array.min()), float(array.max())) if np.isfinite(array).all() else None
