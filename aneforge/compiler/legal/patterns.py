"""Sequences of ops that some rule knows, matched by the structure of the graph.

A pattern has a name, which records of ``gate_limits.json`` use, the ops that it can end in, and a matcher: a function
of the last node that returns the node whose sizes count, or None. A rule about sequences asks whether its
record's pattern is among ``query.patterns``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from aneforge.compiler.legal.query import CHAIN, Query
from aneforge.graph.graph import Graph
from aneforge.graph.node import Signature
from aneforge.graph.tensor import Tensor

__all__ = [
    "PATTERNS",
    "Match",
    "Pattern",
    "convolution_runs",
    "has_width_offset",
    "matched_patterns",
    "pattern_query",
]

Matcher = Callable[[Tensor], "Tensor | None"]


@dataclass(frozen=True)
class Pattern:
    """One structure of ops."""

    name: str
    about: str
    """The structure in a sentence, for the documentation."""
    ends: tuple[str, ...] = ()
    """Graph ops that can be its last node."""
    matcher: Matcher | None = None
    """None where the graph language cannot express it."""
    elsewhere: str = ""
    """The key of ``UNREACHED`` for a pattern without a matcher."""


PATTERNS: dict[str, Pattern] = {}
_BY_END: dict[str, list[Pattern]] = {}


def _pattern(name: str, *ends: str) -> Callable[[Matcher], Matcher]:
    """Declare a pattern by its matcher, whose docstring describes it."""

    def register(matcher: Matcher) -> Matcher:
        about = " ".join((matcher.__doc__ or "").split())
        PATTERNS[name] = declared = Pattern(name, about, ends, matcher)
        for end in ends:
            _BY_END.setdefault(end, []).append(declared)
        return matcher

    return register


class Match(NamedTuple):
    """A place in a graph that shows a pattern."""

    node: Tensor
    """The last node."""
    pattern: str
    subject: Tensor
    """The node whose sizes count."""


def matched_patterns(graph: Graph) -> Iterator[Match]:
    """Every match in a graph, in one walk."""
    for node in graph.nodes:
        for declared in _BY_END.get(node.op, ()):
            assert declared.matcher is not None
            subject = declared.matcher(node)
            if subject is not None:
                yield Match(node, declared.name, subject)


def pattern_query(op: str, pattern: str, subject: Signature) -> Query:
    """The query for a match that ends in ``op``."""
    weights = [shape for shape, _, storage in subject.inputs if storage]
    const = {"weight": weights[0]} if weights else {}
    return Query(CHAIN + op, (subject.shape,), const, patterns=frozenset((pattern,)))


def has_width_offset(signature: Signature) -> bool:
    """Whether a slice starts at a nonzero column; only that takes the crop data path (N20)."""
    name = signature.op.name
    if name in ("slice_by_size", "slice_by_index"):
        return bool(dict(signature.attrs)["begin"][-1])
    return name == "crop" and bool(dict(signature.attrs)["left"])


@_pattern("joined-width-slices", "concat")
def _joined_width_slices(node: Tensor) -> Tensor | None:
    """A concat of two or more slices that start inside the last axis."""
    offset = sum(has_width_offset(operand.signature) for operand in node.inputs)
    return node if offset > 1 else None


_REDUCTIONS = frozenset(
    ("sum", "mean", "amax", "amin", "sum_square", "l1_norm", "log_sum", "reduce_log_sum_exp", "prod")
)


@_pattern("reduction-times-zero", "mul")
def _reduction_times_zero(node: Tensor) -> Tensor | None:
    """A product of a reduction's result and a constant that is zero everywhere."""
    for value, factor in (node.inputs, node.inputs[::-1]):
        if value.op in _REDUCTIONS and factor.op == "const" and _is_zero(factor):
            return node
    return None


def _is_zero(constant: Tensor) -> bool:
    return constant.weight is not None and not constant.weight.array.any()


@_pattern("round-then-scale", "mul")
def _round_then_scale(node: Tensor) -> Tensor | None:
    """A product of round's result and a constant of one number."""
    for value, factor in (node.inputs, node.inputs[::-1]):
        if value.op == "round" and factor.op == "const" and factor.weight is not None and factor.weight.size == 1:
            return node
    return None


@_pattern(
    "square-before-a-function",
    *("sqrt", "rsqrt", "exp", "exp2", "log", "sigmoid", "tanh", "gelu", "silu", "erf", "softplus", "inverse"),
)
def _square_before_a_function(node: Tensor) -> Tensor | None:
    """A square that a nonlinear function reads."""
    before = node.inputs[0]
    return before if before.op == "square" else None


@_pattern("gated-feed-forward", "conv")
def _gated_feed_forward(node: Tensor) -> Tensor | None:
    """Two convolutions, silu on one of them, their product, and a convolution of that. The one with the largest
    weight counts."""
    product = node.inputs[0]
    if product.op != "mul":
        return None
    for gate, up in (product.inputs, product.inputs[::-1]):
        if gate.op == "silu" and gate.inputs[0].op == "conv" and up.op == "conv":
            return max((gate.inputs[0], up, node), key=_weight_size)
    return None


def _weight_size(conv: Tensor) -> int:
    weight = conv.inputs[1].weight
    return 0 if weight is None else weight.size


@_pattern("two-quantise-pairs-around-a-product", "mul", "quantize")
def _unlike_scales_around_a_product(node: Tensor) -> Tensor | None:
    """A product of dequantised values whose scales differ from one another, or from that of the quantiser behind."""
    product = node if node.op == "mul" else node.inputs[0]
    if product.op != "mul":
        return None
    scales = {operand.attrs["scale"] for operand in product.inputs if operand.op == "dequantize"}
    if node.op == "quantize" and scales:
        scales.add(node.attrs["scale"])
    return product if len(scales) > 1 else None


for _name, _about, _elsewhere in (
    ("cast-behind-an-fp32-input", "A program input of fp32 that is cast to fp16 at once.", "graph language"),
):
    PATTERNS[_name] = Pattern(_name, _about, elsewhere=_elsewhere)


def convolution_runs(graph: Graph, most: int) -> Iterator[tuple[Tensor, int]]:
    """Where a run of convolutions, each reading the one before it, exceeds ``most``: every node at which the run has
    to be cut, and the length of the whole run.

    A run is what was measured (M6.depth): convolutions and nothing between them.
    """
    lengths: dict[int, int] = {}
    convolutions = [node for node in graph.nodes if node.op == "conv"]
    for node in convolutions:
        lengths[node.uid] = lengths.get(node.inputs[0].uid, 0) + 1
    run_lengths: dict[int, int] = {}
    for node in reversed(convolutions):
        length = run_lengths.setdefault(node.uid, lengths[node.uid])
        before = node.inputs[0].uid
        if before in lengths:
            run_lengths[before] = max(length, run_lengths.get(before, 0))
    for node in convolutions:
        if lengths[node.uid] % (most + 1) == 0:
            yield node, run_lengths[node.uid]
