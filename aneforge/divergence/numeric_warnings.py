"""Warnings about numbers. They never stop a compile."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target
from aneforge.targets.names import chip_label
from aneforge.targets.numeric_facts import FP16_SLICE_SAT

if TYPE_CHECKING:
    from aneforge.divergence.axes import Axis
    from aneforge.divergence.verdicts import Bounds
    from aneforge.graph.graph import Graph
    from aneforge.graph.tensor import Tensor

__all__ = ["CrossChipFP16Warning", "PrecisionWarning", "warn_divergence", "warn_precision", "warn_slices"]

_NAMED = 4  # nodes that one warning names
_LARGEST = 65504.0  # of fp16 (N01)
_CEILING = 32768.0  # of a product's sum (N04)
_WIDE = 1024  # numbers in a sum from which one of unknown size is worth a warning
_SUMS = {"sum": 1, "l1_norm": 1, "log_sum": 1, "sum_square": 2}
"""Reductions whose sum is kept in fp16, and the power of the numbers they add."""
_PRODUCTS = frozenset(("conv", "linear", "matmul"))


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
    nodes_by_axis: dict[tuple[str, str], tuple[Axis, list[str]]] = {}
    names = graph.names()
    for node, verdict in graph_verdicts(graph, host, target):
        for axis in verdict.axes:
            nodes_by_axis.setdefault((node.op, axis.name), (axis, []))[1].append(names[node.uid])
    for (op, _), (axis, nodes) in nodes_by_axis.items():
        text = f"{_listed(nodes)} ({op}) can differ between {both}: {axis}. Cure: {axis.cure}"
        warnings.warn(text, CrossChipFP16Warning, stacklevel=stacklevel)
    return len(nodes_by_axis)


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
        for node, question in questions(graph)
        if question.kind in SLICE
        and question.begin
        and (question.max_abs is None or question.max_abs > FP16_SLICE_SAT)
    ]
    if nodes:
        text = (
            f"{_listed(nodes)}: on {chip_label(target.name)} a slice that starts inside the last axis goes through a "
            f"fixed-point copy with a gain of 16, so that magnitudes above {FP16_SLICE_SAT:.0f} become infinite "
            f"{clamps.label()}. Slice another axis, keep the data small, or promise it with input(max_abs=...)"
        )
        warnings.warn(text, CrossChipFP16Warning, stacklevel=stacklevel)
    return len(nodes)


def warn_precision(graph: Graph, target: Target, stacklevel: int = 2) -> int:
    """Warn where the graph shows that numbers may be lost; returns how many nodes are concerned.

    Two things are said: a sum of many numbers that nothing keeps below 65504, and a product that passes 32768 on data
    within what ``input(max_abs=...)`` promises. One pass over the graph; a graph with no such sum and no such promise
    is not walked. ``precision_risk`` says more, from the ranges of every op.
    """
    from aneforge.divergence.verdicts import Bounds

    promised = any(node.dtype == "uint8" or node.attrs["max_abs"] is not None for node in graph.inputs)
    if not promised and graph.kinds.isdisjoint(_SUMS):
        return 0
    bounds, integers = Bounds(None), bool(compile_fact(target, "int8_sums").value)
    sums: list[tuple[Tensor, str]] = []
    products: list[tuple[Tensor, str]] = []
    for node in graph.nodes:
        bounds.add(node)
        if node.op in _SUMS:
            count, bound = node.inputs[0].size // max(node.size, 1), bounds.of(node.inputs[0])
            reach = count * bound ** _SUMS[node.op]
            if reach > _LARGEST and (math.isfinite(bound) or count >= _WIDE):
                most = "" if math.isinf(bound) else f", up to {reach:.3g}"
                sums.append((node, f"{node.op} of {count} numbers{most}"))
        elif node.op not in _PRODUCTS or (integers and _multiplies_codes(node)):
            continue
        elif (reach := _largest_product(node, bounds)) >= _CEILING:
            products.append((node, f"{node.op}, up to {reach:.3g}"))
    if not sums and not products:
        return 0
    chip, names = chip_label(target.name), graph.names()

    def listed(nodes: Sequence[tuple[Tensor, str]]) -> str:
        return _listed([f"{names[node.uid]} ({what})" for node, what in nodes])

    if sums:
        text = (
            f"{listed(sums)}: the sum is kept in fp16 on {chip} and is infinite above 65504. Promise the size of the "
            "data with input(max_abs=...), scale it down, take the mean, or use af.reduce_sum_to_matmul"
        )
        warnings.warn(text, PrecisionWarning, stacklevel=stacklevel)
    if products:
        text = (
            f"{listed(products)}: a product whose sum reaches 32768 is infinite on {chip} [N04], and the promised "
            "data "
            "can reach it. Scale an operand down before the product and the result up behind it, or promise less"
        )
        warnings.warn(text, PrecisionWarning, stacklevel=stacklevel)
    return len(sums) + len(products)


def _multiplies_codes(node: Tensor) -> bool:
    """Whether both operands are 8-bit codes, whose sums may pass 32768 where they are added as integers (N16)."""
    weight = node.inputs[1].weight if node.inputs[1].op == "const" else None
    coded = weight is not None and weight.encoded is not None and weight.encoded.form == "affine"
    return coded and node.inputs[0].op == "dequantize"


def _largest_product(node: Tensor, bounds: Bounds) -> float:
    """How large a sum of products can get on bounded data; 0, and no warning, where nothing bounds it."""
    x, other = node.inputs[0], node.inputs[1]
    bound = bounds.of(x)
    if not math.isfinite(bound) or x.op == "const":
        return 0.0
    length = x.shape[-1] if node.op == "matmul" else math.prod(other.shape[1:])
    if other.op != "const" or other.weight is None:
        second = bounds.of(other)
        return bound * second * length if math.isfinite(second) else 0.0
    if bound * length * bounds.of(other) < _CEILING:
        return 0.0
    kernel = np.abs(other.weight.array.astype(np.float32))
    if node.op == "matmul":
        return bound * float(kernel.sum(axis=-2 if kernel.ndim > 1 else 0).max())
    return bound * float(kernel.reshape(len(kernel), -1).sum(axis=1).max())


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {more} more" if more > 0 else shown
