"""Normalisations, softmax, variances and vector norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.forms import power as to_power
from aneforge.frontends.forms import scaled
from aneforge.frontends.pytorch.node import Node, Rule
from aneforge.frontends.pytorch.products import stored
from aneforge.frontends.pytorch.values import axes_of, numeric, shaped
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor


def _layer_norm(node: Node, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5, *_: Any) -> Any:
    tensor = numeric(x)
    axes = list(range(tensor.ndim - len(shape), tensor.ndim))
    return forms.layer_norm(tensor, axes, stored(weight), stored(bias), float(eps))


def _native_layer_norm(node: Node, x: Any, shape: Any, weight: Any, bias: Any, eps: Any) -> list[Any]:
    return [_layer_norm(node, x, shape, weight, bias, eps), *_statistics(node, x, shape, float(eps))]


def _statistics(node: Node, x: Any, shape: Any, eps: float) -> list[Any]:
    """Return the mean and the reciprocal standard deviation; inference rarely reads them."""
    if not node.used_results & {1, 2}:
        return [None, None]
    tensor = numeric(x)
    axes = tuple(range(tensor.ndim - len(shape), tensor.ndim))
    centred = tensor - tensor.mean(axes)
    return [tensor.mean(axes), centred.square().mean(axes).rsqrt(eps)]


def _rms_norm(node: Node, x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Tensor:
    """Without an eps PyTorch uses the machine epsilon of float32."""
    tensor = numeric(x)
    axes = list(range(tensor.ndim - len(shape), tensor.ndim))
    return forms.rms_norm(tensor, axes, stored(weight), float(np.finfo(np.float32).eps) if eps is None else float(eps))


def _fused_rms_norm(node: Node, x: Any, shape: Any, weight: Any = None, eps: Any = None) -> list[Any]:
    return [_rms_norm(node, x, shape, weight, eps), None]


def _group_norm(
    node: Node, x: Any, groups: int, weight: Any = None, bias: Any = None, eps: Any = 1e-5, *_: Any
) -> Tensor:
    return forms.group_norm(numeric(x), int(groups), stored(weight), stored(bias), float(eps))


def _native_group_norm(
    node: Node, x: Any, weight: Any, bias: Any, n: Any, c: Any, area: Any, groups: int, eps: Any
) -> list[Any]:
    return [_group_norm(node, x, groups, weight, bias, eps), None, None]


def _instance_norm(
    node: Node,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    use_input: bool,
    momentum: Any,
    eps: Any,
    *_: Any,
) -> Tensor:
    if not use_input:
        return _normalise(x, weight, bias, mean, variance, eps)
    return forms.instance_norm(numeric(x), stored(weight), stored(bias), float(eps))


def _normalise(x: Any, weight: Any, bias: Any, mean: Any, variance: Any, eps: Any) -> Any:
    return forms.batch_norm(numeric(x), stored(weight), stored(bias), stored(mean), stored(variance), float(eps))


def _batch_norm(
    node: Node,
    x: Any,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: Any,
    eps: Any,
    *_: Any,
) -> Tensor:
    if training or mean is None:
        raise LoadError("training mode measures each batch; use module.eval() before exporting")
    return _normalise(x, weight, bias, mean, variance, eps)


def _batch_norm_inference(
    node: Node, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, momentum: Any, eps: Any
) -> list[Any]:
    return [_normalise(x, weight, bias, mean, variance, eps), None, None]


def _batch_norm_of_batch(node: Node, x: Any, weight: Any, bias: Any, *rest: Any) -> list[Any]:
    """Normalise by the statistics of the batch. An instance norm is decomposed into this op."""
    if node.kind.endswith(".default"):
        raise LoadError("training mode measures each batch; use module.eval() before exporting")
    tensor, eps = numeric(x), float(rest[-1])
    axes = tuple(axis for axis in range(tensor.ndim) if axis != 1)
    centred = tensor - tensor.mean(axes)
    white = centred * centred.square().mean(axes).rsqrt(eps)
    shape = (1, -1, *(1,) * (tensor.ndim - 2))
    white = white if weight is None else white * numeric(weight).reshape(*shape)
    return [white if bias is None else white + numeric(bias).reshape(*shape), None, None]


def _variance(node: Node, x: Any, dim: Any = None, *rest: Any) -> Tensor:
    """``correction`` is subtracted from the divisor; the default is 1."""
    tensor = numeric(x)
    axes = axes_of(dim if not isinstance(dim, bool) else None, tensor.ndim)
    correction = node.options.get("correction", 1)
    if rest and isinstance(rest[0], bool):
        correction = int(rest[0])
    if isinstance(dim, bool):
        correction = int(dim)
    count = math.prod(tensor.shape[axis] for axis in axes)
    subtracted = 1.0 if correction is None else float(correction)
    if count <= subtracted:
        raise LoadError(
            f"correction {subtracted:g} for {count} elements makes the divisor zero or negative; it must be less than "
            f"{count}"
        )
    centred = tensor - tensor.mean(tuple(axes))
    return scaled(centred.square().mean(tuple(axes)), count / (count - subtracted))


def _var(node: Node, x: Any, *rest: Any) -> Any:
    return shaped(_variance(node, x, *rest), node.shape)


def _std(node: Node, x: Any, *rest: Any) -> Any:
    return shaped(_variance(node, x, *rest).sqrt(), node.shape)


def _var_mean(node: Node, x: Any, dim: Any = None, *rest: Any) -> list[Any]:
    tensor = numeric(x)
    mean = tensor.mean(tuple(axes_of(dim if not isinstance(dim, bool) else None, tensor.ndim)))
    return [shaped(_variance(node, x, dim, *rest), node.shapes[0]), shaped(mean, node.shapes[1])]


def _std_mean(node: Node, x: Any, dim: Any = None, *rest: Any) -> list[Any]:
    variance, mean = _var_mean(node, x, dim, *rest)
    return [variance.sqrt(), mean]


def _vector_norm(node: Node, x: Any, order: Any = 2, dim: Any = None, *_: Any) -> Any:
    tensor = numeric(x)
    axes, power = tuple(axes_of(dim, tensor.ndim)), 2.0 if order is None else float(order)
    if power == 2.0:
        norm = tensor.sum_square(axes).sqrt()
    elif power == 1.0:
        norm = tensor.l1_norm(axes)
    elif power in (math.inf, -math.inf):
        norm = tensor.abs().amax(axes) if power > 0 else tensor.abs().amin(axes)
    elif power == 0.0:
        norm = tensor.not_equal(0.0).cast().sum(axes)
    else:
        total = to_power(tensor.abs(), power).sum(axes)
        norm = to_power(total, 1 / power)
    return shaped(norm, node.shape)


def _cosine(node: Node, a: Any, b: Any, dim: int = 1, eps: Any = 1e-8) -> Any:
    """Both lengths are at least eps."""
    left, right = numeric(a), numeric(b)
    axis = tuple(axes_of(dim, max(left.ndim, right.ndim)))
    least = max(float(eps), 6e-8)  # the smallest step of fp16
    lengths = [af.maximum(side.sum_square(axis).sqrt(), least) for side in (left, right)]
    return shaped((left * right).sum(axis) / lengths[0] / lengths[1], node.shape)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("linalg_vector_norm", "norm"), _vector_norm),
    **dict.fromkeys(("_native_batch_norm_legit", "_native_batch_norm_legit_functional"), _batch_norm_of_batch),
    "_fused_rms_norm": _fused_rms_norm,
    "_native_batch_norm_legit_no_training": _batch_norm_inference,
    "batch_norm": _batch_norm,
    "cosine_similarity": _cosine,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "native_group_norm": _native_group_norm,
    "native_layer_norm": _native_layer_norm,
    "rms_norm": _rms_norm,
    "std": _std,
    "std_mean": _std_mean,
    "var": _var,
    "var_mean": _var_mean,
}
