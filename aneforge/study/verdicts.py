"""Every op of a graph on two chips, by the published facts and the range analysis of both programs; the warnings."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

from aneforge.chips.chip import Target
from aneforge.chips.divergence_axes import REDUCE_THEN_SQUARE, REDUCTION, Axis, Question
from aneforge.chips.names import chip_label
from aneforge.compiler.fuse.slots import SQUARE
from aneforge.errors import CrossChipFP16Warning
from aneforge.graph.graph import Graph
from aneforge.graph.node import ops_with
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.numerics.analysis import Analysis, listed
from aneforge.numerics.divergence import Chip, DivergenceVerdict, kind_of, magnitude, verdict_on, with_table
from aneforge.study.study import Study


def warn_divergence(graph: Graph, host: Target, target: Target, stacklevel: int = 2) -> int:
    """One warning for each op and axis on which two chips can differ, with the nodes it concerns; how many there were.

    ``stacklevel`` counts as in ``warnings.warn``: 2 is the caller's line.
    """
    both = f"{chip_label(host.name)} and {chip_label(target.name)}"
    nodes_by_axis: dict[tuple[str, str], tuple[Axis, list[str]]] = {}
    names = graph.names()
    for node, verdict in graph_verdicts(graph, host, target):
        for axis in verdict.axes:
            nodes_by_axis.setdefault((node.op, axis.name), (axis, []))[1].append(names[node.uid])
    for (op, _), (axis, nodes) in nodes_by_axis.items():
        text = f"{listed(nodes)} ({op}) can differ between {both}: {axis}. Cure: {axis.cure}"
        warnings.warn(text, CrossChipFP16Warning, stacklevel=stacklevel)
    return len(nodes_by_axis)


def graph_verdicts(
    out: Tensor | Sequence[Tensor] | Graph, a: Chip, b: Chip, max_abs: float | None = None
) -> list[tuple[Tensor, DivergenceVerdict]]:
    """Every op of a graph with its verdict between two chips, ``a`` and ``b``, in order; nothing is compiled.

    ``max_abs`` is a promise about every number that is computed. Without it the range analysis of both chips' programs
    says how large numbers get. A verdict is about the op's own numbers: what it inherits from ops before it is for
    ``diverges`` to follow.
    """
    one, other = with_table(a), with_table(b)
    promised = magnitude("max_abs", max_abs)
    study = Study(out, [one, other])
    graph, analyses = study.graph, [report.analysis for report in study.preflights().values()]

    def size_of(node: Tensor) -> float:
        sizes = [math.inf if found is None else found.size_of(node) for found in analyses]
        most = _peak(node) if node.op == "const" else max(sizes)
        return most if promised is None else min(most, promised)

    squared = {name for found in analyses if found is not None for name in _squared(found)}
    return [(node, verdict_on(question, one, other)) for node, question in _questions(graph, size_of, squared)]


def _questions(
    graph: Graph, size_of: Callable[[Tensor], float], squared: Set[str]
) -> Iterator[tuple[Tensor, Question]]:
    """What is asked about each op of a graph: kind, geometry, and a bound on the numbers that it reads. ``squared``
    are the nodes that some program squares in the layer that reduces them."""
    names = graph.names()
    for node in graph.nodes:
        kind = kind_of(node.op)
        if node.definition.leaf and kind == "move":
            continue
        if kind in REDUCTION | REDUCE_THEN_SQUARE:
            kind = "reduce_square" if names[node.uid] in squared else kind if kind in REDUCTION else "reduce"
        if node.op == "mul" and any(_gates(*pair) for pair in (node.inputs, node.inputs[::-1])):
            kind = "gate"
        # Constants count only where there is nothing else, and are read only then.
        live = [operand for operand in node.inputs if operand.op != "const"] or node.inputs
        question = Question(kind, node.shape, max_abs=max(map(size_of, live), default=math.inf))
        yield node, _DETAILS[node.op](node, question) if node.op in _DETAILS else question


def _gates(x: Tensor, gate: Tensor) -> bool:
    """Whether one operand is the sigmoid of the other: some chips read one table for the product (C77)."""
    return gate.op == "sigmoid" and gate.inputs[0] is x


def _squared(analysis: Analysis) -> Iterator[str]:
    """The nodes whose reduction a program squares in one layer (the seed page's reduce-then-square)."""
    for op in analysis.walk.module.ops:
        if op.slot == SQUARE:
            yield from op.operands[0].sources


def _peak(node: Tensor) -> float:
    """The largest magnitude of a constant; a parameter may become anything."""
    if node.op != "const" or node.weight is None:
        return math.inf
    return float(node.weight.row_peaks.max(initial=0.0))


def _viewed(node: Tensor, question: Question) -> Question:
    """A view of the elements as one line, or along the last axis, starts inside that axis."""
    axis, rank = node.attrs["along"], len(node.inputs[0].shape)
    return replace(question, begin=int(node.attrs["offset"]) if axis in (None, rank - 1) else 0)


def _sliced(node: Tensor, question: Question) -> Question:
    return replace(question, begin=int(node.attrs["begin"][-1]))


def _reversed(node: Tensor, question: Question) -> Question:
    """A reversed axis is read from its end."""
    last = len(node.shape) - 1
    return replace(question, begin=node.shape[-1] - 1 if last in node.attrs["axes"] else 0)


def _stored(node: Tensor, question: Question) -> Question:
    """How a product's constant operand is stored and how large it gets; nothing where both are computed."""
    stored = next((operand for operand in node.inputs[:2] if operand.weight is not None), None)
    if stored is None or stored.weight is None:
        return question
    question = replace(question, activations="int8") if _is_of_bytes(node.inputs[0]) else question
    # Only a promise makes the peak matter, and to find it every number is read once.
    most = _peak(stored) if math.isfinite(question.max_abs or 0.0) else math.inf
    encoded = stored.weight.encoded
    scaled = encoded is not None and encoded.form == "palette" and encoded.scale is not None
    return replace(question, weights="scaled palette" if scaled else stored.weight.encoding, weight_max=most)


def _is_of_bytes(node: Tensor) -> bool:
    """Whether a value is the dequantised form of codes that lie in 8 bits."""
    if node.op != "dequantize":
        return False
    codes = node.inputs[0]
    return codes.op == "quantize" or codes.dtype == "uint8"


def _convolved(node: Tensor, question: Question) -> Question:
    attrs = node.attrs
    return replace(
        _stored(node, question),
        kernel=tuple(node.inputs[1].shape[2:]),
        stride=tuple(attrs["stride"]),
        dilation=tuple(attrs["dilation"]),
        channels=node.inputs[0].shape[1] // attrs["groups"],
    )


def _multiplied(node: Tensor, question: Question) -> Question:
    return replace(_stored(node, question), channels=node.inputs[0].shape[-1])


def _recurrent(node: Tensor, question: Question) -> Question:
    """Gates multiply the step's input and the state; either may have one feature."""
    return replace(question, channels=min(node.inputs[0].shape[-1], node.inputs[-1].shape[-1]))


def _by_weights_within_one(node: Tensor, question: Question) -> Question:
    return replace(question, weight_max=1.0)


def _dropped(node: Tensor, question: Question) -> Question:
    return question if node.attrs["rate"] else replace(question, kind="elementwise")


_DETAILS: dict[str, Callable[[Any, Question], Question]] = {
    "slice_by_size": _sliced,
    "slice_by_index": _sliced,
    "crop": lambda node, question: replace(question, begin=int(node.attrs["left"])),
    "input_view": _viewed,
    "reverse": _reversed,
    **dict.fromkeys(ops_with(GraphTrait.CONVOLUTION), _convolved),
    **dict.fromkeys(ops_with(GraphTrait.PRODUCT) - ops_with(GraphTrait.CONVOLUTION), _multiplied),
    "conv3d": lambda node, question: replace(
        _stored(node, question), channels=node.inputs[0].shape[1] // node.attrs["groups"]
    ),
    **dict.fromkeys(ops_with(GraphTrait.RECURRENT), _recurrent),
    **dict.fromkeys(("cumsum", *ops_with(GraphTrait.RESIZE)), _by_weights_within_one),
    "dropout": _dropped,
}
