"""Attention: the scale goes onto the queries, where it is cheapest, wherever an exporter has put it."""

from __future__ import annotations

import numpy as np

from aneforge.graph.node import make
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.recognise.algebra import number, scale_of, scaled
from aneforge.recognise.rule import Rule, Scene


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
    Rule("attention-scale-of-keys", ("matmul",), _scale_of_keys),
    Rule("attention-scale-of-scores", ("softmax",), _scale_of_scores),
    Rule("needless-guard", ("select",), _needless_guard),
)
