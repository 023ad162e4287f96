"""Convolutions and matrix products."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Node, Shape, composed, entry, make, op
from aneforge.graph.ops.elementwise import summed_to
from aneforge.graph.ops.leaf import as_tensor, const
from aneforge.graph.shapes import broadcast, extent, pair, positive, rank_is, window
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor

Pads = tuple[int, int, int, int]


def check_groups(channels: int, weight: Shape, groups: int) -> None:
    """Listing 22.2: input and output channels divisible by groups, weight channels to match."""
    if channels % groups:
        raise GraphError(f"input channels {channels} are not divisible by groups {groups}")
    if weight[0] % groups:
        raise GraphError(f"output channels {weight[0]} are not divisible by groups {groups}")
    if weight[1] != channels // groups:
        raise GraphError(f"weight takes {weight[1]} channels per group, the input has {channels} in {groups} groups")


def _conv_shape(
    x: Shape, weight: Shape, stride: tuple[int, int], pad: Pads, dilation: tuple[int, int], groups: int
) -> Shape:
    rank_is(x, 4, "input")
    rank_is(weight, 4, "weight")
    check_groups(x[1], weight, groups)
    height = window(x[2], weight[2], stride[0], pad[0], pad[1], dilation[0])
    width = window(x[3], weight[3], stride[1], pad[2], pad[3], dilation[1])
    return x[0], weight[0], height, width


def _patches(x: np.ndarray, kernel: Shape, stride: Any, pad: Pads, dilation: Any, fill: float = 0.0) -> np.ndarray:
    """Windows of a padded input as [N, C, H, W, kH, kW], a view."""
    x = np.pad(x, ((0, 0), (0, 0), pad[:2], pad[2:]), constant_values=fill)
    reach = [dilation[i] * (kernel[i] - 1) + 1 for i in range(2)]
    views = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    return views[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


_PATCH_NUMBERS = 1 << 23
"""Of patches that are copied at a time: a large map has many gigabytes of them."""


def _conv_reference(x, weight, bias=None, *, stride, pad, dilation, groups):
    patches = _patches(x, weight.shape[2:], stride, pad, dilation)
    n, channels, h, w = patches.shape[:4]
    kernels = weight.reshape(groups, weight.shape[0] // groups, -1)
    result = np.empty((n, weight.shape[0], h, w), np.result_type(x, weight))
    rows = max(1, _PATCH_NUMBERS // (n * channels * prod(weight.shape[2:]) * w))
    for first in range(0, h, rows):
        part = patches[:, :, first : first + rows].transpose(0, 1, 4, 5, 2, 3)
        columns = part.reshape(n, groups, -1, part.shape[4] * w)
        result[:, :, first : first + rows] = (kernels @ columns).reshape(n, -1, part.shape[4], w)
    return result if bias is None else result + bias.reshape(1, -1, 1, 1)


_STORED_CONVOLUTION = (T.PRODUCT, T.CONVOLUTION, T.STORED_KERNEL)
_MIL = "x weight bias | stride>strides pad_type=custom pad dilation>dilations groups"


def _bias_shape(channels: int, bias: Shape | None) -> None:
    if bias is not None and bias != (channels,):
        raise GraphError(f"bias of shape {list(bias)} must hold one value per output channel ({channels})")


@op(
    "conv",
    "x weight bias?",
    "stride pad dilation groups",
    *_STORED_CONVOLUTION,
    kernel_axis=0,
    vector_axis=1,
    mil=f"conv {_MIL}",
)
class CONV:
    """2-D convolution (cross-correlation) of NCHW."""

    @staticmethod
    def shape(x, weight, bias=None, *, stride, pad, dilation, groups):
        result = _conv_shape(x, weight, stride, pad, dilation, groups)
        _bias_shape(result[1], bias)
        return result

    reference = _conv_reference

    @staticmethod
    def derivative(g, y, x, weight, bias=None, *, stride, pad, dilation, groups):
        settings = (stride, pad, dilation, groups)
        parts = [input_gradient(g, x, weight, *settings), _kernel_gradient(g, x, weight, *settings)]
        return parts if bias is None else [*parts, g.sum([0, 2, 3]).reshape(bias.shape)]


def taps(channels: int, kernel: Shape) -> Tensor:
    """A kernel for each channel and each place of a window; its convolution lays the windows out as channels."""
    area = kernel[0] * kernel[1]
    return const(np.tile(np.eye(area).reshape(area, 1, *kernel), (channels, 1, 1, 1)))


def _kernel_gradient(
    g: Tensor, x: Tensor, weight: Tensor, stride: Any, pad: Pads, dilation: Any, groups: int
) -> Tensor | None:
    """Each window of the input times the gradient there, summed. None for a stored kernel, which needs no gradient."""
    if weight.op == "const":
        return None
    n, channels = x.shape[:2]
    settings = {"stride": stride, "pad": pad, "dilation": dilation, "groups": channels}
    windows = make(CONV, (x, taps(channels, weight.shape[2:])), settings)
    places = g.shape[2] * g.shape[3]
    left = g.reshape(n, groups, g.shape[1] // groups, places)
    right = windows.reshape(n, groups, windows.shape[1] // groups, places)
    return (left @ right.mT).sum(0).reshape(weight.shape)


def input_gradient(g: Tensor, x: Tensor, weight: Tensor, stride: Any, pad: Pads, dilation: Any, groups: int) -> Tensor:
    """The transposed convolution, padded at the end where the strides did not reach."""
    kernel = weight.shape[2:]
    covered = [
        (g.shape[2 + i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - pad[2 * i] - pad[2 * i + 1]
        for i in range(2)
    ]
    tail = [x.shape[2 + i] - covered[i] for i in range(2)]
    crop = tuple(pad[2 * i + side] - (tail[i] if side else 0) for i in range(2) for side in range(2))
    settings = {"stride": stride, "pad": tuple(max(0, side) for side in crop), "dilation": dilation, "groups": groups}
    back = make(CONV_TRANSPOSE, (g, weight), settings)
    extra = [max(0, -side) for side in crop]
    return back.pad(((0, 0), (0, 0), (extra[0], extra[1]), (extra[2], extra[3]))) if any(extra) else back


@op(
    "dynamic_conv",
    "x weight",
    "stride pad dilation groups",
    T.PRODUCT,
    T.CONVOLUTION,
    gate="conv",
    mil=f"conv {_MIL}",
    diverges_as="conv",
)
class DYNAMIC_CONV:
    """2-D convolution whose kernel arrives at run time; batch 1 only."""

    @staticmethod
    def shape(x, weight, *, stride, pad, dilation, groups):
        if len(x) == 4 and x[0] != 1:
            raise GraphError(f"batch is {x[0]}; a runtime kernel takes batch 1 only")
        return _conv_shape(x, weight, stride, pad, dilation, groups)

    reference = _conv_reference

    @staticmethod
    def derivative(g, y, x, weight, *, stride, pad, dilation, groups):
        settings = (stride, pad, dilation, groups)
        return [input_gradient(g, x, weight, *settings), _kernel_gradient(g, x, weight, *settings)]


@op(
    "conv_transpose",
    "x weight bias?",
    "stride pad dilation groups",
    *_STORED_CONVOLUTION,
    kernel_axis=1,
    vector_axis=1,
    mil=f"conv_transpose {_MIL}",
    diverges_as="deconv",
)
class CONV_TRANSPOSE:
    """Transposed 2-D convolution; weight is [Cin, Cout/groups, kH, kW]."""

    @staticmethod
    def shape(x, weight, bias=None, *, stride, pad, dilation, groups):
        rank_is(x, 4, "input")
        rank_is(weight, 4, "weight")
        if x[1] % groups:
            raise GraphError(f"input channels {x[1]} are not divisible by groups {groups}")
        if weight[0] != x[1]:
            raise GraphError(f"weight is for {weight[0]} input channels, the input has {x[1]}")
        spatial = []
        for i in range(2):
            size = (x[2 + i] - 1) * stride[i] + dilation[i] * (weight[2 + i] - 1) + 1 - pad[2 * i] - pad[2 * i + 1]
            if size < 1:
                raise GraphError(f"padding {list(pad)} leaves nothing of spatial axis {i}")
            spatial.append(size)
        _bias_shape(weight[1] * groups, bias)
        return (x[0], weight[1] * groups, *spatial)

    @staticmethod
    def reference(x, weight, bias=None, *, stride, pad, dilation, groups):
        n, c, h, w = x.shape
        kernel = weight.shape[2:]
        full = [(s - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 for i, s in enumerate((h, w))]
        result = np.zeros((n, groups, weight.shape[1], *full))
        grouped = x.reshape(n, groups, c // groups, h, w)
        kernels = weight.reshape(groups, c // groups, *weight.shape[1:])
        for i in range(kernel[0]):
            for j in range(kernel[1]):
                part = np.einsum("ngchw,gco->ngohw", grouped, kernels[..., i, j], optimize=True)
                rows = slice(i * dilation[0], i * dilation[0] + (h - 1) * stride[0] + 1, stride[0])
                columns = slice(j * dilation[1], j * dilation[1] + (w - 1) * stride[1] + 1, stride[1])
                result[:, :, :, rows, columns] += part
        result = result.reshape(n, -1, *full)
        result = result[:, :, pad[0] : full[0] - pad[1], pad[2] : full[1] - pad[3]]
        return result if bias is None else result + bias.reshape(1, -1, 1, 1)

    @staticmethod
    def derivative(g, y, x, weight, bias=None, *, stride, pad, dilation, groups):
        settings = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
        parts = [make(CONV, (g, weight), settings), _kernel_gradient(x, g, weight, stride, pad, dilation, groups)]
        return parts if bias is None else [*parts, g.sum([0, 2, 3]).reshape(bias.shape)]


def _matmul_shape(a: Shape, b: Shape) -> Shape:
    if len(a) < 2 or len(b) < 2:
        raise GraphError("both sides need rank 2 or more; add an axis with expand_dims")
    if a[-1] != b[-2]:
        raise GraphError(f"the left has {a[-1]} columns, the right {b[-2]} rows")
    return (*broadcast(a[:-2], b[:-2]), a[-2], b[-1]) if len(a) > 2 or len(b) > 2 else (a[-2], b[-1])


@op("matmul", "a b", "", T.PRODUCT, T.STORED_KERNEL, kernel_axis=-1, mil="matmul x y")
class MATMUL:
    """Matrix product over the last two axes, the others broadcast."""

    shape = _matmul_shape
    reference = np.matmul

    @staticmethod
    def derivative(g, y, a, b):
        return [summed_to(g @ b.mT, a.shape), summed_to(a.mT @ g, b.shape)]


@op("linear", "x weight bias?", "", T.PRODUCT, T.STORED_KERNEL, kernel_axis=0, vector_axis=-1)
class LINEAR:
    """x times the transposed weight [out, in], plus bias [out]."""

    @staticmethod
    def shape(x, weight, bias=None):
        rank_is(weight, 2, "weight")
        if x[-1] != weight[1]:
            raise GraphError(f"weight takes {weight[1]} features, the input has {x[-1]}")
        if bias is not None and bias != (weight[0],):
            raise GraphError(f"bias of shape {list(bias)} must hold one value per output feature ({weight[0]})")
        return (*x[:-1], weight[0])

    @staticmethod
    def reference(x, weight, bias=None):
        result = x @ weight.T
        return result if bias is None else result + bias

    @staticmethod
    def derivative(g, y, x, weight, bias=None):
        rows = g.reshape(g.size // g.shape[-1], g.shape[-1])
        columns = x.reshape(x.size // x.shape[-1], x.shape[-1])
        parts = [(rows @ weight).reshape(x.shape), rows.mT @ columns]
        return parts if bias is None else [*parts, rows.sum(0).reshape(bias.shape)]


@op("einsum", "a b", "equation", T.PRODUCT, diverges_as="matmul")
class EINSUM_NATIVE:
    """The engine's own einsum: nchw,nwhu->nchu only."""

    @staticmethod
    def shape(a, b, equation):
        rank_is(a, 4, "the left operand")
        rank_is(b, 4, "the right operand")
        if equation.replace(" ", "") != "nchw,nwhu->nchu":
            raise GraphError(f"equation {equation!r} is not the native one, 'nchw,nwhu->nchu'; use einsum()")
        if (a[0], a[2], a[3]) != (b[0], b[2], b[1]):
            raise GraphError("n, h and w must agree: a is [n, c, h, w], b is [n, w, h, u]")
        return a[0], a[1], a[2], b[3]

    @staticmethod
    def reference(a, b, equation):
        return np.einsum("nchw,nwhu->nchu", a, b)

    @staticmethod
    @composed
    def derivative(a, b, equation):
        return (a.transpose([0, 2, 1, 3]) @ b.transpose([0, 2, 1, 3])).transpose([0, 2, 1, 3])


def pads(value: Any) -> Pads:
    """One number for all sides, or (top, bottom, left, right)."""
    if isinstance(value, (tuple, list)):
        if len(value) != 4:
            raise GraphError(f"pad has {len(value)} numbers; expected one number or (top, bottom, left, right)")
        top, bottom, left, right = (extent(side, "pad") for side in value)
        return top, bottom, left, right
    side = extent(value, "pad")
    return side, side, side, side


def _settings(stride: Any, pad: Any, dilation: Any, groups: Any) -> dict[str, Any]:
    return {
        "stride": pair(stride, "stride"),
        "pad": pads(pad),
        "dilation": pair(dilation, "dilation"),
        "groups": positive(groups, "groups"),
    }


def with_bias(x: Tensor, weight: Any, bias: Any) -> tuple[Tensor, ...]:
    operands = (x, as_tensor(weight, "weight"))
    return operands if bias is None else (*operands, as_tensor(bias, "bias"))


@entry
def conv(
    x: Tensor, weight: Any, stride: Any = 1, pad: Any = 0, dilation: Any = 1, groups: int = 1, bias: Any = None
) -> Tensor:
    """2-D convolution. ``weight`` is [Cout, Cin/groups, kH, kW]; ``pad`` a number or (top, bottom, left, right)."""
    return make(CONV, with_bias(x, weight, bias), _settings(stride, pad, dilation, groups))


@entry
def conv_transpose(
    x: Tensor, weight: Any, stride: Any = 1, pad: Any = 0, dilation: Any = 1, groups: int = 1, bias: Any = None
) -> Tensor:
    """Transposed 2-D convolution. ``weight`` is [Cin, Cout/groups, kH, kW]."""
    return make(CONV_TRANSPOSE, with_bias(x, weight, bias), _settings(stride, pad, dilation, groups))


@entry
def dynamic_conv(
    x: Tensor, weight: Tensor, stride: Any = 1, pad: Any = 0, dilation: Any = 1, groups: int = 1
) -> Tensor:
    """2-D convolution with a kernel computed at run time; batch 1 only."""
    if not isinstance(weight, Node) or weight.op == "const":
        raise GraphError("dynamic_conv: the weight is a constant; use conv for a stored kernel")
    return make(DYNAMIC_CONV, (x, weight), _settings(stride, pad, dilation, groups))


@entry
def matmul(a: Tensor, b: Any) -> Tensor:
    """Matrix product; an array on the right is a stored weight."""
    return make(MATMUL, (as_tensor(a), as_tensor(b, "weight")))


@entry
def bmm_weight(x: Tensor, weight: Any) -> Tensor:
    """Batched product with a stored weight [B, K, N]."""
    stored = as_tensor(weight, "weight")
    if len(stored.shape) != 3 or len(x.shape) != 3 or stored.shape[0] != x.shape[0]:
        raise GraphError(f"bmm_weight: [B, M, K] @ [B, K, N] with one B, not {list(x.shape)} @ {list(stored.shape)}")
    return make(MATMUL, (x, stored))


@entry
def linear(x: Tensor, weight: Any, bias: Any = None) -> Tensor:
    """``x @ weight.T + bias`` with weight [out, in]."""
    return make(LINEAR, with_bias(x, weight, bias))


@entry
def einsum_native(equation: str, a: Tensor, b: Any) -> Tensor:
    """The one equation that the engine has as an op."""
    return make(EINSUM_NATIVE, (a, as_tensor(b)), {"equation": equation})
