"""Activation functions and norms that exporters write out as formulas."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from aneforge.graph import builders as af
from aneforge.graph.node import make, ops_with
from aneforge.graph.recognise.algebra import (
    Scene,
    SpellingRule,
    affine,
    close,
    mean_of,
    number,
    plus_number,
    product,
    square_of,
)
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

_HALF_ROOT = 1 / math.sqrt(2)
_TANH_ROOT = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715
_SCALINGS = tuple(sorted(ops_with(GraphTrait.SCALING)))


def _silu(node: Tensor, scene: Scene) -> Tensor | None:
    """``x * sigmoid(x)``, in any order, is silu (N85). ``x / (1 + exp(-x))`` is a cure of its table's error: it stays
    (C77)."""
    if node.op != "mul":
        return None
    for x, gate in (node.inputs, node.inputs[::-1]):
        if gate.op == "sigmoid" and gate.inputs[0] is x:
            return x.silu()
    return None


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
    SpellingRule("silu", ("mul",), _silu),
    SpellingRule("gelu", _SCALINGS, _gelu),
    SpellingRule("hard-sigmoid", (*_SCALINGS, "clip"), _hard_sigmoid),
    SpellingRule("hard-swish", _SCALINGS, _hard_swish),
    SpellingRule("hard-swish-of-the-rest", ("mul",), _hard_swish_of_the_rest),
    SpellingRule("softplus", ("log",), _softplus),
)


# Normalisations that exporters write out: mean, variance, square root, quotient, and gains behind them.


class _Whitened(NamedTuple):
    """``x`` over the root of its mean square along some axes, about its mean where it is ``centred``."""

    x: Tensor
    axes: tuple[int, ...]
    eps: float
    centred: bool


def _root(node: Tensor) -> tuple[Tensor, float] | None:
    """``sqrt(value + eps)``."""
    if node.op != "sqrt":
        return None
    value, eps = plus_number(node.inputs[0])
    return (value, eps) if eps >= 0.0 else None


def _reciprocal_root(node: Tensor) -> tuple[Tensor, float] | None:
    """``1 / sqrt(value + eps)`` in one op or two."""
    if node.op == "rsqrt":
        value, added = plus_number(node.inputs[0])
        eps = added + float(node.attrs["eps"])
        return (value, eps) if eps >= 0.0 else None
    if node.op == "inverse" and node.attrs["eps"] == 0.0:
        return _root(node.inputs[0])
    if node.op == "real_div" and number(node.inputs[0]) == 1.0:
        return _root(node.inputs[1])
    return None


def _whitened(node: Tensor) -> _Whitened | None:
    if node.op == "real_div":
        top, root = node.inputs[0], _root(node.inputs[1])
        return None if root is None else _over_its_spread(top, *root)
    if node.op == "mul":
        for top, other in (node.inputs, node.inputs[::-1]):
            root = _reciprocal_root(other)
            if root is not None:
                return _over_its_spread(top, *root)
    return None


def _over_its_spread(top: Tensor, spread: Tensor, eps: float) -> _Whitened | None:
    mean = mean_of(spread)
    if mean is None or square_of(mean[0]) is not top:
        return None
    axes = tuple(sorted(mean[1]))
    if top.op == "sub":
        x, centre = top.inputs
        about = mean_of(centre)
        if about is not None and about[0] is x and tuple(sorted(about[1])) == axes:
            return _Whitened(x, axes, eps, centred=True)
    return _Whitened(top, axes, eps, centred=False)


def _norm(node: Tensor, scene: Scene) -> Tensor | None:
    """Mean, variance and quotient along the last axis, the channels, all of space or everything but the samples are a
    layer norm, a channel layer norm, an instance norm or a group norm; without the mean an rms norm."""
    found = _whitened(node)
    if found is None:
        return None
    x, axes, eps, rank = found.x, found.axes, found.eps, found.x.ndim
    if not found.centred:
        return x.rms_norm(np.ones(x.shape[-1]), eps) if axes == (rank - 1,) else None
    if axes == (rank - 1,):
        return x.layer_norm(np.ones(x.shape[-1]), np.zeros(x.shape[-1]), eps)
    if rank != 4:
        return None
    ones, zeros = np.ones(x.shape[1]), np.zeros(x.shape[1])
    if axes == (1,):
        return x.channel_layer_norm(ones, zeros, eps)
    if axes == (2, 3):
        return af.instance_norm(x, ones, zeros, eps)
    return x.group_norm(ones, zeros, 1, eps) if axes == (1, 2, 3) else None


def _group_norm(node: Tensor, scene: Scene) -> Tensor | None:
    """A norm of groups of channels between two reshapes is a group norm."""
    found = _grouped_norm(node.inputs[0])
    return None if found is None else _group_norm_of(found[0], node.shape, found[1])


def _group_norm_at_once(node: Tensor, scene: Scene) -> Tensor | None:
    """A norm of groups of channels behind a reshape of an image is a group norm of the image."""
    found = _grouped_norm(node)
    if found is None or found[0].inputs[0].ndim != 4:
        return None
    result = _group_norm_of(found[0], found[0].inputs[0].shape, found[1])
    return None if result is None else result.reshape(*node.shape)


def _group_norm_of(grouped: Tensor, shape: tuple[int, ...], eps: float) -> Tensor | None:
    """The group norm of what is reshaped to [samples, groups, ...], as a tensor of [samples, channels, ...]."""
    if len(shape) < 3 or grouped.shape[0] != shape[0]:
        return None
    channels, groups = shape[1], grouped.shape[1]
    if channels % groups or channels == groups:
        return None
    x = grouped.inputs[0]
    planes = (*shape[:2], math.prod(shape[2:-1]), shape[-1])
    image = x if x.shape == planes else x.reshape(*planes)
    result = image.group_norm(np.ones(channels), np.zeros(channels), groups, eps)
    return result if shape == planes else result.reshape(*shape)


def _grouped_norm(node: Tensor) -> tuple[Tensor, float] | None:
    """The reshape that a node without gains of its own normalises along all axes behind the second, and its eps."""
    if node.op == "instance_norm" or (node.op == "layer_norm" and node.ndim == 3):
        found = (node.inputs[0], float(node.attrs["eps"])) if _has_no_gains(node) else None
    else:
        white = _whitened(node)
        every = white is not None and white.centred and white.axes == tuple(range(2, white.x.ndim))
        found = (white.x, white.eps) if white is not None and every else None
    return found if found is not None and found[0].op == "reshape" and found[0].ndim > 2 else None


def _has_no_gains(node: Tensor) -> bool:
    gamma = node.inputs[1].weight
    beta = node.inputs[2].weight if len(node.inputs) > 2 else None
    if gamma is None or (len(node.inputs) > 2 and beta is None):
        return False
    return bool((gamma.array == 1).all()) and (beta is None or not beta.array.any())


def _takes(node: Tensor, vector: str) -> bool:
    """Whether a node is a norm with gains (gamma) or offsets (beta)."""
    return node.is_a(GraphTrait.NORMALISATION) and vector in node.definition.operands


def _axis(node: Tensor) -> int:
    """The axis of a norm along which its gains lie."""
    assert node.definition.vector_axis is not None
    return node.definition.vector_axis % node.ndim


def _along(constant: Tensor, node: Tensor) -> np.ndarray | None:
    """The numbers of a constant that lies along the axis of a norm's gains."""
    if constant.op != "const" or constant.weight is None:
        return None
    shape = (*(1,) * (node.ndim - constant.ndim), *constant.shape)
    axis = _axis(node)
    others = [extent for place, extent in enumerate(shape) if place != axis]
    if len(shape) != node.ndim or any(extent != 1 for extent in others) or shape[axis] != node.shape[axis]:
        return None
    return np.asarray(constant.weight.array, np.float64).reshape(-1)


def _gain(node: Tensor, scene: Scene) -> Tensor | None:
    """A factor behind a norm that has none yet is its gain."""
    for norm, constant in (node.inputs, node.inputs[::-1]):
        if not _takes(norm, "gamma") or norm.shape != node.shape or not scene.is_private(norm):
            continue
        if _has_no_gains(norm):
            factor = _along(constant, norm)
            if factor is not None:
                return _with_vectors(norm, factor, None)
    return None


def _offset(node: Tensor, scene: Scene) -> Tensor | None:
    """A summand behind a norm that has none yet is its offset."""
    for norm, constant in (node.inputs, node.inputs[::-1]):
        if not _takes(norm, "beta") or norm.shape != node.shape or not scene.is_private(norm):
            continue
        beta = norm.inputs[2].weight
        summand = _along(constant, norm)
        if summand is not None and beta is not None and not beta.array.any():
            return _with_vectors(norm, None, summand)
    return None


def _batch_norm(node: Tensor, scene: Scene) -> Tensor | None:
    """A batch norm behind a norm of channels that has no gains yet is its gain and its offset: converters join the two
    into one."""
    norm, *vectors = node.inputs
    if not _takes(norm, "beta") or _axis(norm) != 1 or not scene.is_private(norm):
        return None
    if not _has_no_gains(norm) or any(vector.weight is None for vector in vectors):
        return None
    gamma, beta, mean, variance = (
        np.asarray(vector.weight.array, np.float64).reshape(-1) for vector in vectors if vector.weight is not None
    )
    gain = gamma / np.sqrt(variance + float(node.attrs["eps"]))
    return _with_vectors(norm, gain, beta - mean * gain)


def _with_vectors(norm: Tensor, gamma: np.ndarray | None, beta: np.ndarray | None) -> Tensor:
    operands = list(norm.inputs)
    if gamma is not None:
        operands[1] = af.const(gamma)
    if beta is not None:
        operands[2] = af.const(beta)
    return make(norm.definition, operands, norm.attrs, name=norm.name)


NORMS = (
    SpellingRule("group-norm", ("reshape",), _group_norm),
    SpellingRule("group-norm-at-once", ("real_div", "mul", "instance_norm"), _group_norm_at_once),
    SpellingRule("norm", ("real_div", "mul"), _norm),
    SpellingRule("norm-gain", ("mul",), _gain),
    SpellingRule("norm-offset", ("add",), _offset),
    SpellingRule("norm-batch-norm", ("batch_norm",), _batch_norm),
)
