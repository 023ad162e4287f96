"""Activation functions that exporters write out as formulas."""

from __future__ import annotations

import math

from aneforge.graph.node import make, ops_with
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.recognise.algebra import affine, close, number, product
from aneforge.recognise.rule import Rule, Scene

_HALF_ROOT = 1 / math.sqrt(2)
_TANH_ROOT = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715
_SCALINGS = tuple(sorted(ops_with(GraphTrait.SCALING)))


def _silu(node: Tensor, scene: Scene) -> Tensor | None:
    """``x * sigmoid(x)``, in any order, is silu."""
    if node.op != "mul":
        return None
    for x, gate in (node.inputs, node.inputs[::-1]):
        if gate.op == "sigmoid" and gate.inputs[0] is x:
            return x.silu()
    return None


def _silu_by_division(node: Tensor, scene: Scene) -> Tensor | None:
    """``x / (1 + exp(-x))`` is silu."""
    x, below = node.inputs
    inner = affine(below)
    if inner.base.op != "exp" or not (close(inner.factor, 1.0) and close(inner.offset, 1.0)):
        return None
    power = affine(inner.base.inputs[0])
    return x.silu() if power.base is x and close(power.factor, -1.0) and power.offset == 0.0 else None


def _gelu(node: Tensor, scene: Scene) -> Tensor | None:
    """``0.5 * x * (1 + erf(x / sqrt(2)))`` and the approximation by tanh are gelu, in any order of the factors."""
    found = product(node)
    if len(found.factors) != 2:
        return None
    for x, gate in (found.factors, found.factors[::-1]):
        inner = affine(gate)
        if inner.base.op not in ("erf", "tanh") or not close(inner.offset, inner.factor):
            continue
        if close(found.coefficient * inner.factor, 0.5) and _GELU_ARGUMENTS[inner.base.op](inner.base.inputs[0], x):
            return x.gelu()
    return None


def _is_root(argument: Tensor, x: Tensor) -> bool:
    inner = affine(argument)
    return inner.base is x and close(inner.factor, _HALF_ROOT) and inner.offset == 0.0


def _is_cubic(argument: Tensor, x: Tensor) -> bool:
    """``sqrt(2 / pi) * (x + 0.044715 * x ** 3)``, with the cube in a term or x in front of the bracket."""
    outer = product(argument)
    bracket = [factor for factor in outer.factors if factor is not x]
    if len(bracket) != 1 or len(outer.factors) > 2:
        return False
    if len(outer.factors) == 2:  # x * (1 + 0.044715 * x * x)
        inner = affine(bracket[0])
        squared = product(inner.base)
        ratio = inner.factor * squared.coefficient / inner.offset if inner.offset else 0.0
        fits = all(factor is x for factor in squared.factors) and len(squared.factors) == 2
        return fits and close(ratio, _TANH_CUBE) and close(outer.coefficient * inner.offset, _TANH_ROOT)
    if bracket[0].op != "add" or not close(outer.coefficient, _TANH_ROOT):
        return False
    for plain, cubic in (bracket[0].inputs, bracket[0].inputs[::-1]):
        cube = product(cubic)
        if plain is x and len(cube.factors) == 3 and all(factor is x for factor in cube.factors):
            return close(cube.coefficient, _TANH_CUBE)
    return False


_GELU_ARGUMENTS = {"erf": _is_root, "tanh": _is_cubic}


def _hard_sigmoid(node: Tensor, scene: Scene) -> Tensor | None:
    """``relu6(x + 3) / 6`` and ``clip(x / 6 + 0.5, 0, 1)`` are hard sigmoids."""
    outer = affine(node)
    bounds = _bounds(outer.base)
    if bounds is None or outer.offset != 0.0 or bounds[0] != 0.0 or not close(outer.factor * bounds[1], 1.0):
        return None
    inner = affine(outer.base.inputs[0])
    alpha, beta = inner.factor * outer.factor, inner.offset * outer.factor
    is_hard = close(alpha, 1 / 6) and close(beta, 0.5)
    return inner.base.sigmoid_hard(1 / 6, 0.5) if is_hard and inner.base.shape == node.shape else None


def _hard_swish(node: Tensor, scene: Scene) -> Tensor | None:
    """``x * relu6(x + 3) / 6``, with the division behind the product, is x times a hard sigmoid."""
    found = product(node)
    if len(found.factors) != 2 or close(found.coefficient, 1.0):
        return None
    for x, gate in (found.factors, found.factors[::-1]):
        bounds = _bounds(gate)
        if bounds is None or bounds[0] != 0.0 or not close(found.coefficient * bounds[1], 1.0):
            continue
        inner = affine(gate.inputs[0])
        if inner.base is x and close(inner.factor, 1.0) and close(inner.offset, bounds[1] / 2) and bounds[1] == 6.0:
            return x * x.sigmoid_hard(1 / 6, 0.5)
    return None


def _hard_swish_of_the_rest(node: Tensor, scene: Scene) -> Tensor | None:
    """``t * hard_sigmoid(t)`` with ``t`` zero below -3 is the same without that bound: coremltools writes it so."""
    for bounded, gate in (node.inputs, node.inputs[::-1]):
        if bounded.op != "thresholded_relu" or gate.op != "sigmoid_hard" or gate.inputs[0] is not bounded:
            continue
        lowest = -float(gate.attrs["beta"]) / float(gate.attrs["alpha"])
        if close(float(bounded.attrs["alpha"]), lowest):
            x = bounded.inputs[0]
            return x * make(gate.definition, (x,), gate.attrs)
    return None


def _bounds(node: Tensor) -> tuple[float, float] | None:
    """The bounds of a node that only cuts its operand off."""
    if node.op == "relu6":
        return 0.0, 6.0
    if node.op == "clip":
        return float(node.attrs["lo"]), float(node.attrs["hi"])
    if node.op == "minimum" and node.inputs[0].op == "relu":
        top = number(node.inputs[1])
        return None if top is None else (0.0, top)
    return None


def _softplus(node: Tensor, scene: Scene) -> Tensor | None:
    """``log(1 + exp(x))`` is softplus."""
    inner = affine(node.inputs[0])
    eps = node.attrs["eps"]
    if inner.base.op != "exp" or not (close(inner.factor, 1.0) and close(inner.offset + eps, 1.0)):
        return None
    return inner.base.inputs[0].softplus()


ACTIVATIONS = (
    Rule("silu", ("mul",), _silu),
    Rule("silu-by-division", ("real_div",), _silu_by_division),
    Rule("gelu", _SCALINGS, _gelu),
    Rule("hard-sigmoid", (*_SCALINGS, "clip"), _hard_sigmoid),
    Rule("hard-swish", _SCALINGS, _hard_swish),
    Rule("hard-swish-of-the-rest", ("mul",), _hard_swish_of_the_rest),
    Rule("softplus", ("log",), _softplus),
)
