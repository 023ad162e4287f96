"""Convolutions over volumes, and the same over their planes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import composed, entry, make, op
from aneforge.graph.ops.contraction import check_groups, conv, dynamic_conv, with_bias
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.shape import concat, gather, split
from aneforge.graph.shapes import extent, positive, rank_is, window
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


@op(
    "conv3d",
    "x weight bias?",
    "stride pad dilation groups",
    T.PRODUCT,
    vector_axis=1,
    mil="conv x weight bias | stride>strides pad_type=custom pad dilation>dilations groups",
    diverges_as="conv",
)
class CONV3D:
    """3-D convolution (cross-correlation) of NCDHW, which is attested and lowered on no backend (chapter 24, C08)."""

    @staticmethod
    def shape(x, weight, bias=None, *, stride, pad, dilation, groups):
        rank_is(x, 5, "input")
        rank_is(weight, 5, "weight")
        check_groups(x[1], weight, groups)
        if bias is not None and bias != (weight[0],):
            raise GraphError(f"bias of shape {list(bias)} must hold one value per output channel ({weight[0]})")
        space = (window(x[2 + i], weight[2 + i], stride[i], pad[2 * i], pad[2 * i + 1], dilation[i]) for i in range(3))
        return (x[0], weight[0], *space)

    @staticmethod
    def reference(x, weight, bias=None, *, stride, pad, dilation, groups):
        padded = np.pad(x, ((0, 0), (0, 0), pad[:2], pad[2:4], pad[4:]))
        reach = [dilation[i] * (weight.shape[2 + i] - 1) + 1 for i in range(3)]
        views = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=(2, 3, 4))
        steps = (slice(None, None, step) for step in (*stride, *dilation))
        windows = views[(slice(None), slice(None), *steps)]
        grouped = windows.reshape(x.shape[0], groups, -1, *windows.shape[2:])
        kernels = weight.reshape(groups, -1, *weight.shape[1:])
        result = np.einsum("ngcdhwijk,gocijk->ngodhw", grouped, kernels, optimize=True)
        result = result.reshape(x.shape[0], weight.shape[0], *result.shape[3:])
        return result if bias is None else result + bias.reshape(1, -1, 1, 1, 1)

    @staticmethod
    @composed
    def derivative(*operands, **settings):
        return over_planes(*operands, **settings)


def over_planes(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Sequence[int],
    pad: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """The same as 2-D convolutions: the planes that a kernel meets along the depth become channels, so that its depth
    is summed with the channels, in the wide accumulators of the multiplier."""
    samples, size = x.shape[0], weight.shape[2]
    widths = [(0, 0), (0, 0), tuple(pad[:2]), (0, 0), (0, 0)]
    planes, depth = taps(x.pad(widths) if any(pad[:2]) else x, size, stride[0], dilation[0])
    kernel = _folded(weight)
    settings = {
        "stride": tuple(stride[1:]),
        "pad": tuple(pad[2:]),
        "dilation": tuple(dilation[1:]),
        "groups": groups,
    }
    if weight.op in ("const", "parameter"):
        return with_depth(conv(planes, kernel, bias=bias, **settings), samples, depth)
    parts = [planes] if planes.shape[0] == 1 else split(planes, planes.shape[0], 0)
    results = [dynamic_conv(part, kernel, **settings) for part in parts]
    result = results[0] if len(results) == 1 else concat(results, axis=0)
    return with_depth(result if bias is None else result + bias.reshape(1, -1, 1, 1), samples, depth)


def _folded(weight: Tensor) -> Tensor:
    """A kernel [out, in, depth, H, W] as [out, in * depth, H, W]; a stored one stays stored."""
    shape = (weight.shape[0], weight.shape[1] * weight.shape[2], *weight.shape[3:])
    if weight.op != "const" or weight.weight is None or weight.weight.encoded is not None:
        return weight.reshape(*shape)
    return const(weight.weight.array.reshape(shape))


def taps(x: Tensor, size: int, stride: int, dilation: int) -> tuple[Tensor, int]:
    """The planes of every window along the depth, as channels [N * depth, C * size, H, W], and how many windows."""
    n, channels, planes, height, width = x.shape
    depth = window(planes, size, stride, 0, 0, dilation)
    places = [position * stride + tap * dilation for position in range(depth) for tap in range(size)]
    lines = x.reshape(n, channels, planes, height * width)
    lines = lines if places == list(range(planes)) else gather(lines, places, axis=2)
    windows = lines.reshape(n, channels, depth, size, height * width).transpose([0, 2, 1, 3, 4])
    return windows.reshape(n * depth, channels * size, height, width), depth


def with_depth(x: Tensor, samples: int, depth: int) -> Tensor:
    """Planes [N * depth, C, H, W] as [N, C, depth, H, W]."""
    _, channels, height, width = x.shape
    turned = x.reshape(samples, depth, channels, height * width).transpose([0, 2, 1, 3])
    return turned.reshape(samples, channels, depth, height, width)


def _three(value: Any, what: str) -> tuple[int, int, int]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * 3
    if len(values) != 3:
        raise GraphError(f"{what} takes one or three numbers, not {len(values)}")
    depth, height, width = (positive(step, what) for step in values)
    return depth, height, width


@entry
def conv3d(
    x: Tensor, weight: Any, stride: Any = 1, pad: Any = 0, dilation: Any = 1, groups: int = 1, bias: Any = None
) -> Tensor:
    """3-D convolution. ``weight`` is [Cout, Cin/groups, kD, kH, kW]; ``pad`` a number or (front, back, top, bottom,
    left, right). No direct route lowers it; the form ``conv3d-as-planes`` is its equivalent by 2-D convolutions."""
    sides = tuple(pad) if isinstance(pad, (tuple, list)) else (pad,) * 6
    if len(sides) != 6:
        raise GraphError(f"pad has {len(sides)} numbers; expected one, or two for each of depth, height and width")
    attrs = {
        "stride": _three(stride, "stride"),
        "pad": tuple(extent(side, "pad") for side in sides),
        "dilation": _three(dilation, "dilation"),
        "groups": positive(groups, "groups"),
    }
    return make(CONV3D, with_bias(x, weight, bias), attrs)
