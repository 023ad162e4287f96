"""Softmax and the normalisations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Shape, composed, entry, make, op
from aneforge.graph.ops.leaf import as_tensor, const
from aneforge.graph.shapes import axis_of, number, positive, same_shape
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


def epsilon(value: Any) -> float:
    result = number(value, "eps")
    if result < 0:
        raise GraphError(f"eps must be zero or more, not {result:g}")
    return result


def _affine(x: Shape, size: int, what: str, **vectors: Shape) -> Shape:
    for name, vector in vectors.items():
        if vector not in ((size,), (1, size)) and vector != (1, size) + (1,) * (len(x) - 2):
            raise GraphError(f"{name} of shape {list(vector)} must hold one value per {what} ({size})")
    return x


def _channels(x: Shape) -> int:
    if len(x) < 2:
        raise GraphError(f"needs channels on axis 1, not {list(x)}")
    return x[1]


def _along(vector: np.ndarray, x: np.ndarray, axis: int) -> np.ndarray:
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return vector.reshape(shape)


def spread(vector: Tensor, x: Tensor, axis: int) -> Tensor:
    """A vector laid along one axis of ``x``."""
    shape = [1] * len(x.shape)
    shape[axis] = x.shape[axis]
    return vector.reshape(shape)


def _whiten(x: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    mean = x.mean(axis=axes, keepdims=True)
    variance = np.square(x - mean).mean(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps)


def _whiten_gradient(g: Tensor, x: Tensor, axes: list[int], eps: float) -> Tensor:
    mean = x.mean(axes)
    centred = x - mean
    inverse = centred.square().mean(axes).rsqrt(eps)
    normal = centred * inverse
    return inverse * (g - g.mean(axes) - normal * (g * normal).mean(axes))


def _gradients(
    g: Tensor, x: Tensor, gamma: Tensor, beta: Tensor, axes: list[int], eps: float, along: int = 1
) -> list[Tensor]:
    """Gradients of a normalisation over ``axes`` with gains and offsets that lie along one axis."""
    others = [axis for axis in range(x.ndim) if axis != along]
    centred = x - x.mean(axes)
    weighted, offset = g * (centred * centred.square().mean(axes).rsqrt(eps)), g
    if others:
        weighted, offset = weighted.sum(others), g.sum(others)
    gradient = _whiten_gradient(g * spread(gamma, x, along), x, axes, eps)
    return [gradient, weighted.reshape(gamma.shape), offset.reshape(beta.shape)]


@op("softmax", "x", "axis", mil="softmax x | axis")
class SOFTMAX:
    """exp(x) over its sum along one axis, the maximum subtracted."""

    shape = same_shape

    @staticmethod
    def reference(x, axis):
        shifted = np.exp(x - x.max(axis=axis, keepdims=True))
        return shifted / shifted.sum(axis=axis, keepdims=True)

    @staticmethod
    def derivative(g, y, x, axis):
        return [y * (g - (g * y).sum(axis))]


@op(
    "layer_norm",
    "x gamma beta",
    "eps",
    T.NORMALISATION,
    T.CENTRED,
    reads_values=True,
    vector_axis=-1,
    mil="layer_norm x gamma beta | axes=[-1] eps>epsilon",
)
class LAYER_NORM:
    """Normalise the last axis, then gain and offset."""

    @staticmethod
    def shape(x, gamma, beta, eps):
        return _affine(x, x[-1], "feature", gamma=gamma, beta=beta)

    @staticmethod
    def reference(x, gamma, beta, eps):
        return _whiten(x, (-1,), eps) * gamma.reshape(-1) + beta.reshape(-1)

    @staticmethod
    def derivative(g, y, x, gamma, beta, eps):
        return _gradients(g, x, gamma, beta, [x.ndim - 1], eps, along=x.ndim - 1)


@op("rms_norm", "x gamma", "eps", T.NORMALISATION, reads_values=True, vector_axis=-1)
class RMS_NORM:
    """Divide the last axis by its root mean square, then gain."""

    @staticmethod
    def shape(x, gamma, eps):
        return _affine(x, x[-1], "feature", gamma=gamma)

    @staticmethod
    def reference(x, gamma, eps):
        return x / np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + eps) * gamma.reshape(-1)

    @staticmethod
    def derivative(g, y, x, gamma, eps):
        last = x.ndim - 1
        inverse = x.square().mean(last).rsqrt(eps)
        normal = x * inverse
        scaled = g * spread(gamma, x, last)
        rows = list(range(last))
        flat = (g * normal).sum(rows) if rows else g * normal
        return [inverse * (scaled - normal * (scaled * normal).mean(last)), flat.reshape(gamma.shape)]


@op("group_norm", "x gamma beta", "num_groups eps", T.NORMALISATION, T.CENTRED, reads_values=True, vector_axis=1)
class GROUP_NORM:
    """Normalise groups of channels together with all of space, then gain and offset per channel."""

    @staticmethod
    def shape(x, gamma, beta, num_groups, eps):
        channels = _channels(x)
        if channels % num_groups:
            raise GraphError(
                f"channels {channels} are not divisible by {num_groups} groups; the number of groups must divide them"
            )
        return _affine(x, channels, "channel", gamma=gamma, beta=beta)

    @staticmethod
    def reference(x, gamma, beta, num_groups, eps):
        grouped = x.reshape(x.shape[0], num_groups, -1)
        normal = _whiten(grouped, (2,), eps).reshape(x.shape)
        return normal * _along(gamma, x, 1) + _along(beta, x, 1)

    @staticmethod
    def derivative(g, y, x, gamma, beta, num_groups, eps):
        folded = (x.shape[0], num_groups, x.size // (x.shape[0] * num_groups))
        gradient = _whiten_gradient((g * spread(gamma, x, 1)).reshape(folded), x.reshape(folded), [2], eps)
        others = [axis for axis in range(x.ndim) if axis != 1]
        centred = x.reshape(folded) - x.reshape(folded).mean(2)
        normal = (centred * centred.square().mean(2).rsqrt(eps)).reshape(x.shape)
        return [
            gradient.reshape(x.shape),
            (g * normal).sum(others).reshape(gamma.shape),
            g.sum(others).reshape(beta.shape),
        ]


@op(
    "batch_norm",
    "x gamma beta mean var",
    "eps",
    vector_axis=1,
    mil="batch_norm x gamma beta mean variance | eps>epsilon",
    diverges_as="elementwise",
)
class BATCH_NORM:
    """Inference batch norm from running statistics: a gain and an offset per channel."""

    @staticmethod
    def shape(x, gamma, beta, mean, var, eps):
        return _affine(x, _channels(x), "channel", gamma=gamma, beta=beta, mean=mean, var=var)

    @staticmethod
    def reference(x, gamma, beta, mean, var, eps):
        gain = gamma.reshape(-1) / np.sqrt(var.reshape(-1) + eps)
        return (x - _along(mean, x, 1)) * _along(gain, x, 1) + _along(beta, x, 1)

    @staticmethod
    @composed
    def derivative(x, gamma, beta, mean, var, eps):
        gain = spread(gamma, x, 1) * spread(var, x, 1).rsqrt(eps)
        return (x - spread(mean, x, 1)) * gain + spread(beta, x, 1)


@op(
    "instance_norm",
    "x gamma beta",
    "eps",
    T.NORMALISATION,
    T.CENTRED,
    reads_values=True,
    vector_axis=1,
    mil="instance_norm x gamma beta | eps>epsilon",
)
class INSTANCE_NORM:
    """Normalise each channel over space, then gain and offset per channel."""

    @staticmethod
    def shape(x, gamma, beta, eps):
        if len(x) < 3:
            raise GraphError(f"needs rank 3 or more ([N, C, ...]), not {list(x)}")
        return _affine(x, x[1], "channel", gamma=gamma, beta=beta)

    @staticmethod
    def reference(x, gamma, beta, eps):
        return _whiten(x, tuple(range(2, x.ndim)), eps) * _along(gamma, x, 1) + _along(beta, x, 1)

    @staticmethod
    def derivative(g, y, x, gamma, beta, eps):
        return _gradients(g, x, gamma, beta, list(range(2, x.ndim)), eps)


@op(
    "channel_layer_norm",
    "x gamma beta",
    "eps",
    T.NORMALISATION,
    T.CENTRED,
    gate="layer_norm",
    reads_values=True,
    vector_axis=1,
    mil="layer_norm x gamma beta | axes=[1] eps>epsilon",
    diverges_as="layer_norm",
)
class CHANNEL_LAYER_NORM:
    """Layer norm over the channel axis of [N, C, ...], the engine's own layout."""

    @staticmethod
    def shape(x, gamma, beta, eps):
        return _affine(x, _channels(x), "channel", gamma=gamma, beta=beta)

    @staticmethod
    def reference(x, gamma, beta, eps):
        return _whiten(x, (1,), eps) * _along(gamma, x, 1) + _along(beta, x, 1)

    @staticmethod
    def derivative(g, y, x, gamma, beta, eps):
        return _gradients(g, x, gamma, beta, [1], eps)


@op("l2_norm", "x", "axis eps", T.NORMALISATION)
class L2_NORM:
    """x over the square root of its sum of squares plus eps, along one axis."""

    shape = same_shape

    @staticmethod
    def reference(x, axis, eps):
        return x / np.sqrt(np.square(x).sum(axis=axis, keepdims=True) + eps)

    @staticmethod
    def derivative(g, y, x, axis, eps):
        inverse = x.sum_square(axis).rsqrt(eps)
        return [inverse * (g - y * (g * y).sum(axis))]


@op(
    "local_response_norm",
    "x",
    "size alpha beta k",
    mil="local_response_norm x | size alpha beta k",
    diverges_as="elementwise",
)
class LOCAL_RESPONSE_NORM:
    """x over a power of the sum of squares in a window of channels."""

    @staticmethod
    def shape(x, size, alpha, beta, k):
        _channels(x)
        return x

    @staticmethod
    def reference(x, size, alpha, beta, k):
        before = (size - 1) // 2
        squares = np.pad(np.square(x), ((0, 0), (before, size - 1 - before), *((0, 0),) * (x.ndim - 2)))
        total = sum(squares[:, i : i + x.shape[1]] for i in range(size))
        return x / np.power(k + alpha / size * total, beta)

    @staticmethod
    @composed
    def derivative(x, size, alpha, beta, k):
        return response_norm(x, size, alpha, beta, k)


def response_norm(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """The same from primitives: the sums over channels are a product with a band of ones."""
    n, channels = x.shape[:2]
    rows, columns = np.indices((channels, channels))
    before = (size - 1) // 2
    band = (columns >= rows - before) & (columns <= rows + size - 1 - before)
    total = const(band.astype(np.float16)) @ x.square().reshape(n, channels, x.size // (n * channels))
    power = total.linear_activation(alpha / size, k).log().linear_activation(-beta).exp()
    return x * power.reshape(x.shape)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    return make(SOFTMAX, (x,), {"axis": axis_of(axis, len(x.shape))})


def layer_norm(x: Tensor, gamma: Any, beta: Any, eps: float = 1e-5) -> Tensor:
    return make(LAYER_NORM, (x, as_tensor(gamma, "gamma"), as_tensor(beta, "beta")), {"eps": epsilon(eps)})


def rms_norm(x: Tensor, gamma: Any, eps: float = 1e-5) -> Tensor:
    return make(RMS_NORM, (x, as_tensor(gamma, "gamma")), {"eps": epsilon(eps)})


def group_norm(x: Tensor, gamma: Any, beta: Any, num_groups: int, eps: float = 1e-5) -> Tensor:
    attrs = {"num_groups": positive(num_groups, "num_groups"), "eps": epsilon(eps)}
    return make(GROUP_NORM, (x, as_tensor(gamma, "gamma"), as_tensor(beta, "beta")), attrs)


@entry
def batch_norm(x: Tensor, gamma: Any, beta: Any, mean: Any, var: Any, eps: float = 1e-5) -> Tensor:
    """Inference batch norm; the four vectors hold one value per channel."""
    vectors = {"gamma": gamma, "beta": beta, "mean": mean, "var": var}
    operands = [as_tensor(value, name) for name, value in vectors.items()]
    variance = operands[3].weight
    if variance is not None and float(variance.array.min()) < 0:
        raise GraphError("batch_norm: var holds a negative variance; variances must be 0 or more")
    return make(BATCH_NORM, (x, *operands), {"eps": epsilon(eps)})


@entry
def instance_norm(x: Tensor, gamma: Any, beta: Any, eps: float = 1e-5) -> Tensor:
    """Normalise each channel over space."""
    return make(INSTANCE_NORM, (x, as_tensor(gamma, "gamma"), as_tensor(beta, "beta")), {"eps": epsilon(eps)})


def channel_layer_norm(x: Tensor, gamma: Any, beta: Any, eps: float = 1e-5) -> Tensor:
    return make(CHANNEL_LAYER_NORM, (x, as_tensor(gamma, "gamma"), as_tensor(beta, "beta")), {"eps": epsilon(eps)})


def l2_norm(x: Tensor, axis: int = -1, eps: float = 1e-12) -> Tensor:
    return make(L2_NORM, (x,), {"axis": axis_of(axis, len(x.shape)), "eps": epsilon(eps)})


@entry
def local_response_norm(x: Tensor, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Response normalisation over a window of channels."""
    attrs = {"size": positive(size, "size"), "alpha": number(alpha, "alpha"), "beta": number(beta, "beta")}
    return make(LOCAL_RESPONSE_NORM, (x,), {**attrs, "k": number(k, "k")})
