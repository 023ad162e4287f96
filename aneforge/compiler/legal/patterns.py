"""Sequences of ops that some rule knows, matched by the structure of the graph.

A pattern has a name, which records of ``gate_limits.json`` use, the ops that it can end in, and a matcher: a function
of the last node that returns the node whose sizes count, or None. A rule about sequences asks whether its
record's pattern is among ``query.patterns``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aneforge.compiler.legal.query import ALL_RUNTIMES, CHAIN, Query
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.node import Signature, ops_with
from aneforge.graph.ops.layers import attention_axes
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

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
    return Query(CHAIN + op, (subject.shape,), const, patterns=frozenset((pattern,)), runtime=ALL_RUNTIMES)


def has_width_offset(signature: Signature) -> bool:
    """Whether a slice starts at a nonzero column; only that takes the crop data path (N20)."""
    if GraphTrait.SLICE not in signature.op.traits:
        return False
    attrs = dict(signature.attrs)
    return bool(attrs["left"] if signature.op.name == "crop" else attrs["begin"][-1])


@_pattern("joined-width-slices", "concat")
def _joined_width_slices(node: Tensor) -> Tensor | None:
    """A concat of two or more slices that start inside the last axis."""
    offset = sum(has_width_offset(operand.signature) for operand in node.inputs)
    return node if offset > 1 else None


@_pattern("reduction-times-zero", "mul")
def _reduction_times_zero(node: Tensor) -> Tensor | None:
    """A product of a reduction's result and a constant that is zero everywhere."""
    for value, factor in (node.inputs, node.inputs[::-1]):
        if value.is_a(GraphTrait.REDUCTION) and factor.op == "const" and _is_zero(factor):
            return node
    return None


def _is_zero(constant: Tensor) -> bool:
    return constant.weight is not None and not constant.weight.array.any()


@_pattern("round-then-scale", "mul")
def _round_then_scale(node: Tensor) -> Tensor | None:
    """A product of round's result and a constant of one number."""
    return node if _scaled_by_one_number(node) == "round" else None


@_pattern("floor-or-ceil-then-scale", "mul")
def _floor_or_ceil_then_scale(node: Tensor) -> Tensor | None:
    """A product of the result of floor or ceil and a constant of one number."""
    return node if _scaled_by_one_number(node) in ("floor", "ceil") else None


def _scaled_by_one_number(node: Tensor) -> str | None:
    """The op whose result a product multiplies with a constant of one number."""
    for value, factor in (node.inputs, node.inputs[::-1]):
        if factor.op == "const" and factor.weight is not None and factor.weight.size == 1:
            return value.op
    return None


@_pattern("square-before-a-function", *sorted(ops_with(GraphTrait.FUNCTION)))
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
    product = node if node.op == "mul" else _behind_moves(node.inputs[0])
    if product.op != "mul":
        return None
    factors = map(_behind_moves, product.inputs)
    scales = {operand.attrs["scale"] for operand in factors if operand.op == "dequantize"}
    if node.op == "quantize" and scales:
        scales.add(node.attrs["scale"])
    return product if len(scales) > 1 else None


def _behind_moves(node: Tensor) -> Tensor:
    """What a value is before reshapes and transposes, of which a file may have some in any place."""
    while node.is_a(GraphTrait.MOVEMENT) or node.is_a(GraphTrait.VIEW):
        node = node.inputs[0]
    return node


def attention_extents(node: Tensor) -> tuple[int, int] | None:
    """The queries and keys of an attention, if a node is its softmax or the engine's own layer."""
    if node.op == "sdpa":
        _, sequence = attention_axes(node.attrs["heads_first"])
        return node.shape[sequence], node.inputs[1].shape[sequence]
    if node.op != "softmax" or len(node.shape) < 2 or node.attrs["axis"] % len(node.shape) != len(node.shape) - 1:
        return None
    before = node.inputs[0]
    for _ in range(4):
        if before.op == "matmul" and not any(operand.is_a(GraphTrait.STORED) for operand in before.inputs):
            return node.shape[-2], node.shape[-1]
        computed = [value for value in before.inputs if value.op not in ("const", "input") and value.dtype == "fp16"]
        if not (before.is_a(GraphTrait.ARITHMETIC) or before.is_a(GraphTrait.VIEW) or before.op == "select"):
            return None  # only a scale, a mask or another view may stand between the product and its softmax
        if not computed:
            return None
        # A mask may be computed too, and is often smaller than the scores.
        before = next((operand for operand in computed if operand.shape == before.shape), computed[0])
    return None


@_pattern("softmax-between-products", "matmul")
def _softmax_between_products(node: Tensor) -> Tensor | None:
    """A product with the softmax of another product, none of them with a stored operand: attention, spelled out. A
    softmax that the file multiplies by an inverse is none to the runtime."""
    weights = node.inputs[0]
    if weights.op != "softmax" or any(origin.kind.casefold().endswith(_INVERSES) for origin in weights.origins):
        return None
    return node if attention_extents(weights) is not None else None


_INVERSES = ("inverse", "reciprocal")
"""How the names of ops end that files have for one over a number."""


@_pattern("attention-over-a-history", "softmax")
def _attention_over_a_history(node: Tensor) -> Tensor | None:
    """One softmax over more than 16,384 keys of an attention."""
    return node if node.shape[-1] > _LONG and attention_extents(node) is not None else None


_LONG = 16384


@_pattern("products-of-products-in-a-row", "matmul")
def _products_of_products(node: Tensor) -> Tensor | None:
    """Three products in a row, each of two computed values, with nothing but sums between them."""
    depth, step = 0, node
    while depth < _PRODUCTS and step.op == "matmul" and not any(each.is_a(GraphTrait.STORED) for each in step.inputs):
        depth += 1
        before = [_behind_sums(operand) for operand in step.inputs]
        step = next((value for value in before if value.op == "matmul"), step.inputs[0])
    return node if depth == _PRODUCTS else None


_PRODUCTS = 3


def _behind_sums(node: Tensor) -> Tensor:
    """The product behind sums with constants or other values; the node itself where there is none."""
    for _ in range(_PRODUCTS):
        if node.op not in ("add", "sub"):
            return node
        node = next((value for value in node.inputs if value.op in ("matmul", "add", "sub")), node.inputs[0])
    return node


@_pattern("padded-values-added", "add")
def _padded_values_added(node: Tensor) -> Tensor | None:
    """A sum of two values that are padded along the channels, as a way to join them."""
    pads = [operand for operand in node.inputs if operand.op == "pad" and len(operand.shape) == 4]
    return node if len(pads) == 2 and all(sum(pad.attrs["widths"][1]) for pad in pads) else None


@_pattern("attention-of-few-queries", "softmax", "sdpa")
def _attention_of_few_queries(node: Tensor) -> Tensor | None:
    """Attention with fewer queries than keys, such as a step of a decoder."""
    extents = attention_extents(node)
    return node if extents is not None and extents[0] < extents[1] else None


def _compressed(node: Tensor) -> Encoded | None:
    """The weight of a product in its stored form, if it has one; other weights are not read."""
    if len(node.inputs) < 2 or node.signature.inputs[1][2] in ("", "fp16"):
        return None
    weight = node.inputs[1].weight
    return None if weight is None else weight.encoded


def _varies_along_the_input(blocks: tuple[int, ...], node: Tensor) -> bool:
    """Whether there is more than one block along an axis that is not the output's."""
    assert node.definition.kernel_axis is not None
    output = node.definition.kernel_axis % len(blocks)
    return any(count > 1 for axis, count in enumerate(blocks) if axis != output)


def _has_grouped_scale(encoded: Encoded, node: Tensor) -> bool:
    return encoded.scale is not None and _varies_along_the_input(encoded.scale.shape, node)


@_pattern("scales-along-the-input", *ops_with(GraphTrait.STORED_KERNEL))
def _scales_along_the_input(node: Tensor) -> Tensor | None:
    """A weight with several scales for one output, or with a table for each group of channels."""
    encoded = _compressed(node)
    if encoded is None:
        return None
    grouped_table = encoded.table is not None and any(count > 1 for count in encoded.table.shape[:-2])
    return node if grouped_table or _has_grouped_scale(encoded, node) else None


@_pattern("palette-with-grouped-scales", *ops_with(GraphTrait.STORED_KERNEL))
def _palette_with_grouped_scales(node: Tensor) -> Tensor | None:
    """A palette whose numbers are multiplied by several scales for one output."""
    encoded = _compressed(node)
    return node if encoded is not None and encoded.form == "palette" and _has_grouped_scale(encoded, node) else None


@_pattern("palettes-of-codes-in-a-row", "conv")
def _palettes_of_codes_in_a_row(node: Tensor) -> Tensor | None:
    """Two convolutions with palettes of whole numbers, and a quantiser and a dequantiser between them."""
    between = node.inputs[0]
    if between.op != "dequantize" or between.inputs[0].op != "quantize":
        return None
    before = between.inputs[0].inputs[0]
    return node if before.op == "conv" and _is_palette_of_codes(before) and _is_palette_of_codes(node) else None


def _is_palette_of_codes(conv: Tensor) -> bool:
    encoded = _compressed(conv)
    if encoded is None or encoded.table is None:
        return False
    return bool((encoded.table == np.round(encoded.table)).all())


@_pattern("linear-before-hard-swish", "mul")
def _linear_before_hard_swish(node: Tensor) -> Tensor | None:
    """A product of a matrix of rank 2 and a stored weight, then a hard-swish."""
    for value, gate in (node.inputs, node.inputs[::-1]):
        if gate.op == "sigmoid_hard" and gate.inputs[0] is value:
            layer = value.inputs[0] if value.op == "add" else value
            is_kernel = layer.is_a(GraphTrait.STORED_KERNEL) and not layer.is_a(GraphTrait.CONVOLUTION)
            is_linear = is_kernel and bool(layer.signature.inputs[1][2])
            return node if is_linear and len(layer.shape) == 2 else None
    return None


@_pattern("argmax-of-channels", "argmax")
def _argmax_of_channels(node: Tensor) -> Tensor | None:
    """The position of the largest channel at each place of a map: along the first axis, or behind a transpose."""
    if node.attrs["axis"] == 0:
        return node
    before = node.inputs[0]
    while before.op == "reshape":
        before = before.inputs[0]
    return node if before.op == "transpose" else None


@_pattern("silu-by-name", "silu")
def _silu_by_name(node: Tensor) -> Tensor | None:
    """A silu that was written as one op, not as x * sigmoid(x)."""
    return node if len(node.origins) < 2 else None


@_pattern("test-for-nan", "not_equal")
def _test_for_nan(node: Tensor) -> Tensor | None:
    """A tensor that is compared with itself, which only NaN does not equal."""
    return node if node.inputs[0] is node.inputs[1] else None


for _name, _about, _elsewhere in (
    ("cast-behind-an-fp32-input", "A program input of fp32 that is cast to fp16 at once.", "graph language"),
    (
        "fp32-before-a-compressed-convolution",
        "Arithmetic in fp32, then a convolution with a compressed weight.",
        "graph language",
    ),
    (
        "fused-attention-among-other-layers",
        "The engine's attention layer in one program with the rest of a transformer block.",
        "own programs",
    ),
    ("softmax-in-blocks", "Attention in blocks of keys, joined by a running maximum.", "whole models"),
    (
        "selection-behind-a-product",
        "A product, its largest elements, and a cast of their positions.",
        "Core ML placement",
    ),
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
        if lengths[node.uid] > most and lengths[node.uid] % most == 1 % most:
            yield node, run_lengths[node.uid]
