"""Products, attention and windows in one spelling; sums and products that do nothing are removed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aneforge.graph import builders as af
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import make, ops_with
from aneforge.graph.ops.leaf import const
from aneforge.graph.recognise.algebra import Scene, SpellingRule, number, scale_of, scaled
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

_SCALINGS = tuple(sorted(ops_with(GraphTrait.SCALING)))
_MOST_PRODUCT_AXES = 4  # the rule "products of rank 5" refuses more
_SMALLEST = 2.0**-24  # of fp16: a factor below it, or above its end, is several products


def _nothing(node: Tensor, scene: Scene) -> Tensor | None:
    """A sum with zeros and a product with ones are their other operand."""
    neutral = 0 if node.op == "add" else 1
    for x, other in (node.inputs, node.inputs[::-1]):
        if x.shape != node.shape or x.dtype != node.dtype or x.op == "const":
            continue
        if other.op == "const" and other.weight is not None and bool((other.weight.array == neutral).all()):
            return x
    return None


def _bias(node: Tensor, scene: Scene) -> Tensor | None:
    """A sum behind a dense layer or a convolution without bias, one number for each output, is its bias."""
    for layer, constant in (node.inputs, node.inputs[::-1]):
        if "bias?" not in layer.definition.operands or len(layer.inputs) > 2 or layer.shape != node.shape:
            continue
        if constant.op != "const" or constant.weight is None or not scene.is_private(layer):
            continue
        assert layer.definition.vector_axis is not None
        axis = layer.definition.vector_axis % layer.ndim
        shape = (*(1,) * (layer.ndim - constant.ndim), *constant.shape)
        if shape[axis] == layer.shape[axis] == constant.weight.size:
            bias = const(np.asarray(constant.weight.array).reshape(-1))
            return make(layer.definition, (*layer.inputs, bias), layer.attrs, name=layer.name)
    return None


def _scale_before_moves(node: Tensor, scene: Scene) -> Tensor | None:
    """A product with a number behind a move is done before it, next to the layer that makes the value."""
    inner = scale_of(node)
    if (
        inner is None
        or not (inner[0].is_a(GraphTrait.VIEW) or inner[0].op == "transpose")
        or not scene.is_private(inner[0])
    ):
        return None
    moved, factor = inner
    return make(moved.definition, (scaled(moved.inputs[0], factor),), moved.attrs)


def _one_scale(node: Tensor, scene: Scene) -> Tensor | None:
    """Two products with numbers, one behind the other, are one."""
    outer = scale_of(node)
    inner = None if outer is None else scale_of(outer[0])
    if outer is None or inner is None or not scene.is_private(outer[0]):
        return None
    factor = inner[1] * outer[1]
    return scaled(inner[0], factor) if _SMALLEST < abs(factor) < FP16_MAX else None


def _features_norm(node: Tensor, scene: Scene) -> Tensor | None:
    """A batch norm of [rows, features, 1, ...] is one of [rows, features]."""
    x = node.inputs[0]
    if x.op != "reshape" or node.ndim < 3 or any(extent != 1 for extent in node.shape[2:]):
        return None
    rows = x.reshape(*x.shape[:2])
    return make(node.definition, (rows, *node.inputs[1:]), node.attrs).reshape(*node.shape)


def _product_of_few_axes(node: Tensor, scene: Scene) -> Tensor | None:
    """A product of five axes, which no chip takes, is one of fewer: neighbouring axes of the batch that both factors
    have are one."""
    left, right = node.inputs
    if node.ndim <= _MOST_PRODUCT_AXES or left.ndim != right.ndim:
        return None
    batch = [(a, b) for a, b in zip(left.shape[:-2], right.shape[:-2], strict=True) if (a, b) != (1, 1)]
    merged: list[tuple[int, int]] = []
    for a, b in batch:
        if merged and (a == b) == (merged[-1][0] == merged[-1][1]) and a == b:
            merged[-1] = (merged[-1][0] * a, merged[-1][1] * b)
        else:
            merged.append((a, b))
    if len(merged) > _MOST_PRODUCT_AXES - 2:
        return None
    merged = [(1, 1)] * (_MOST_PRODUCT_AXES - 2 - len(merged)) + merged
    first = left.reshape(*(a for a, _ in merged), *left.shape[-2:])
    second = right.reshape(*(b for _, b in merged), *right.shape[-2:])
    return (first @ second).reshape(*node.shape)


def _softmax_before_view(node: Tensor, scene: Scene) -> Tensor | None:
    """A softmax along the last axis of a reshaped tensor that has the same last axis is done before the reshape."""
    view = node.inputs[0]
    if view.op != "reshape" or node.attrs["axis"] != node.ndim - 1 or not scene.is_private(view):
        return None
    x = view.inputs[0]
    return x.softmax(-1).reshape(*node.shape) if x.shape[-1] == view.shape[-1] else None


PRODUCTS = (
    SpellingRule("nothing-added", ("add", "mul"), _nothing),
    SpellingRule("bias", ("add",), _bias),
    SpellingRule("one-scale", _SCALINGS, _one_scale),
    SpellingRule("scale-before-moves", _SCALINGS, _scale_before_moves),
    SpellingRule("product-of-few-axes", ("matmul",), _product_of_few_axes),
    SpellingRule("softmax-before-view", ("softmax",), _softmax_before_view),
    SpellingRule("features-norm", ("batch_norm",), _features_norm),
)


# Attention: the scale goes onto the queries, where it is cheapest, wherever an exporter has put it.


def _without_scale(x: Tensor, scene: Scene) -> tuple[Tensor, float]:
    """A value without the number that it, or what it is moved from, is multiplied with; and that number."""
    moves: list[Tensor] = []
    inner = x
    while (inner.is_a(GraphTrait.VIEW) or inner.op == "transpose") and scene.is_private(inner):
        moves.append(inner)
        inner = inner.inputs[0]
    found = scale_of(inner)
    if found is None or found[1] <= 0.0 or not scene.is_private(inner):
        return x, 1.0
    base, factor = found
    for move in reversed(moves):
        base = make(move.definition, (base,), move.attrs)
    return base, factor


def _scale_of_keys(node: Tensor, scene: Scene) -> Tensor | None:
    """A product of two computed values, of which the second is scaled: the scale goes to the first."""
    queries, keys = node.inputs
    bare, factor = _without_scale(keys, scene)
    return None if factor == 1.0 else _times(queries, factor, scene) @ bare


def _times(queries: Tensor, factor: float, scene: Scene) -> Tensor:
    """Queries with a further scale; a scale that they have already takes it up."""
    bare, own = _without_scale(queries, scene)
    return scaled(bare, own * factor)


def _scale_of_scores(node: Tensor, scene: Scene) -> Tensor | None:
    """``softmax(q k' * scale + mask)``: the scale goes to the queries."""
    axis, scores, mask = node.attrs["axis"], node.inputs[0], None
    found = _scaled_product(scores, scene)
    if found is None and scores.op == "add" and scene.is_private(scores):
        for value, other in (scores.inputs, scores.inputs[::-1]):
            found = _scaled_product(value, scene)
            if found is not None:
                mask = other
                break
    if found is None:
        return None
    product, factor = found
    moved = _times(product.inputs[0], factor, scene) @ product.inputs[1]
    return (moved if mask is None else moved + mask).softmax(axis)


def _scaled_product(node: Tensor, scene: Scene) -> tuple[Tensor, float] | None:
    found = scale_of(node)
    if found is None or found[0].op != "matmul" or found[1] <= 0.0 or not scene.is_private(found[0]):
        return None
    return found if all(operand.op != "const" for operand in found[0].inputs) else None


def _needless_guard(node: Tensor, scene: Scene) -> Tensor | None:
    """Zero in place of a softmax that is not a number: needless where no row is masked as a whole."""
    condition, zero, soft = node.inputs
    if soft.op != "softmax" or number(zero) != 0.0:
        return None
    if condition.op != "not_equal" or condition.inputs[0] is not soft or condition.inputs[1] is not soft:
        return None
    scores = soft.inputs[0]
    masks = [operand for operand in scores.inputs if operand.op == "const"] if scores.op == "add" else []
    product = next((operand for operand in scores.inputs if operand.op == "matmul"), None) if masks else scores
    if product is None or product.op != "matmul":
        return None
    axis = soft.attrs["axis"]
    return soft if all(_leaves_something(mask, soft, axis) for mask in masks) else None


def _leaves_something(mask: Tensor, soft: Tensor, axis: int) -> bool:
    """Whether every row along the axis has a finite number."""
    if mask.weight is None:
        return False
    numbers = np.asarray(mask.weight.array).reshape(*(1,) * (soft.ndim - mask.ndim), *mask.shape)
    return bool(np.isfinite(numbers).any(axis=axis).all())


ATTENTION = (
    SpellingRule("attention-scale-of-keys", ("matmul",), _scale_of_keys),
    SpellingRule("attention-scale-of-scores", ("softmax",), _scale_of_scores),
    SpellingRule("needless-guard", ("select",), _needless_guard),
)


# Sliding windows of an image that an exporter picks row by row and column by column.


def _steps(indices: Sequence[int], size: int, count: int) -> int | None:
    """The stride of windows of ``size`` at ``count`` places, where the indices list them offset by offset."""
    if len(indices) != size * count or count < 2:
        return None
    stride = indices[1] - indices[0]
    wanted = [offset + stride * place for offset in range(size) for place in range(count)]
    return stride if stride > 0 and list(indices) == wanted else None


def _windows(node: Tensor, scene: Scene) -> Tensor | None:
    """Windows of an image, gathered along both axes and put before the places, are a convolution by channel whose
    kernels pick one pixel each: what the reader of PyTorch makes of ``unfold``."""
    lines = node.inputs[0]
    if node.attrs["perm"] != (0, 2, 1, 3) or lines.op != "reshape" or lines.inputs[0].op != "gather":
        return None
    columns = lines.inputs[0]
    rows = columns.inputs[0]
    if columns.attrs["axis"] != 4 or rows.op != "reshape" or rows.ndim != 5 or rows.inputs[0].op != "gather":
        return None
    picked = rows.inputs[0]
    image = picked.inputs[0]
    if picked.attrs["axis"] != 2 or image.ndim != 4 or image.shape[0] != 1:
        return None
    channels, size = image.shape[1], (rows.shape[2], lines.shape[2])
    places = (rows.shape[3], lines.shape[3])
    if rows.shape[:2] != (1, channels) or lines.shape[:2] != (channels * size[0], places[0]):
        return None
    stride = _steps(picked.attrs["indices"], size[0], places[0]), _steps(columns.attrs["indices"], size[1], places[1])
    if stride[0] is None or stride[1] is None:
        return None
    kernel = np.tile(np.eye(size[0] * size[1]).reshape(-1, 1, *size), (channels, 1, 1, 1))
    source, pad = _before_pad(image, size, (stride[0], stride[1]), places)
    return af.conv(source, kernel, stride=stride, pad=pad, groups=channels).reshape(*node.shape)


def _before_pad(
    image: Tensor, size: tuple[int, int], stride: tuple[int, int], places: tuple[int, int]
) -> tuple[Tensor, tuple[int, int, int, int]]:
    """What is padded with zeros, and how far the windows reach into the padding on each side."""
    ends = [extent + step * (count - 1) for extent, step, count in zip(size, stride, places, strict=True)]
    widths = image.attrs["widths"] if image.op == "pad" and image.attrs["mode"] == "constant" else ()
    if not widths or image.attrs["value"] != 0.0 or any(side for pair in widths[:2] for side in pair):
        trimmed = image.slice_by_size([0, 0, 0, 0], [*image.shape[:2], *ends])
        return (image if trimmed.shape == image.shape else trimmed), (0, 0, 0, 0)
    source = image.inputs[0]
    (top, _), (left, _) = widths[2:]
    below, right = ends[0] - top - source.shape[2], ends[1] - left - source.shape[3]
    if below < 0 or right < 0:
        source = source.slice_by_size(
            [0] * 4, [*source.shape[:2], min(source.shape[2], ends[0] - top), min(source.shape[3], ends[1] - left)]
        )
    return source, (top, max(0, below), left, max(0, right))


WINDOWS = (SpellingRule("windows", ("transpose",), _windows),)
