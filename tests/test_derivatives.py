"""Every declared derivative against central differences of the float64 reference."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from test_graph_ops import image_plane

import aneforge as af
from aneforge.graph import definitions
from aneforge.graph import layer_forms as native
from aneforge.graph.ops.host import host
from aneforge.graph.reference import gradients

STEP = 1e-5


def rand(*shape):
    return np.random.default_rng(zlib.crc32(repr(shape).encode())).standard_normal(shape)


def half(*shape):
    return rand(*shape).astype(np.float16).astype(np.float64)


def apart(*shape):
    """Distinct values that are far from each other and from whole numbers: no kink within a step."""
    count = int(np.prod(shape))
    order = np.random.default_rng(count).permutation(count)
    return ((order - count / 2) * (2.5 / count) + 0.031).reshape(shape)


def positive(*shape):
    return np.abs(rand(*shape)) + 0.3


@dataclass
class Case:
    op: str
    build: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]
    rtol: float = 1e-6


CASES: list[Case] = []


def case(op, build, *arrays, rtol=1e-6):
    CASES.append(Case(op, build, arrays, rtol))


PAIRS = [((2, 3), (2, 3)), ((2, 1, 3), (4, 1)), ((3,), (2, 1)), ((1, 1), (2, 3))]
for _a, _b in PAIRS:
    case("add", lambda a, b: a + b, rand(*_a), rand(*_b))
    case("sub", lambda a, b: a - b, rand(*_a), rand(*_b))
    case("mul", lambda a, b: a * b, rand(*_a), rand(*_b))
    case("real_div", lambda a, b: a / b, rand(*_a), positive(*_b))
    case("pow", lambda a, b: a**b, positive(*_a), rand(*_b))
    case("mod", lambda a, b: a % b, rand(*_a) * 3 + 0.01, positive(*_b) + 1)
    case("atan2", af.atan2, rand(*_a), positive(*_b))
    case("maximum", af.maximum, rand(*_a), rand(*_b) + 0.1)
    case("minimum", af.minimum, rand(*_a), rand(*_b) + 0.1)
    case("select", lambda a, b: af.where(a > 0, a * 2, b), rand(*_a), rand(*_b))
case("mul", lambda a: a * a * a, rand(3))
case("dequantize", lambda a: af.dequantize(a, 0.75, 3) * a, rand(2, 3))
case("cast", lambda a: a.cast() * a, rand(3))
case("image_plane", lambda a: image_plane(a) * a, rand(1, 1, 2, 2))
case("conv3d", lambda x, w: af.conv3d(x, w, (1, 2, 1), (1, 0, 0, 1, 0, 0)), rand(2, 2, 3, 4, 3), rand(3, 2, 2, 2, 2))

UNARY = "relu relu6 gelu silu sigmoid tanh exp exp2 abs square sin cos tan atan sinh cosh asinh erf softplus softsign"
for _name in UNARY.split():
    case(_name, lambda x, name=_name: getattr(x, name)(), apart(3, 4))
for _name in ("asin", "acos", "atanh"):
    case(_name, lambda x, name=_name: getattr(x, name)(), apart(3, 4) * 0.6)
case("sqrt", lambda x: x.sqrt(), positive(5))
case("acosh", lambda x: x.acosh(), positive(5) + 1)
case("relu6", lambda x: x.relu6(), apart(4, 4) * 10)
for _eps in (0.0, 0.3, 1e-12):
    case("log", lambda x, e=_eps: x.log(e), positive(5))
    case("rsqrt", lambda x, e=_eps: x.rsqrt(e), positive(5))
    case("inverse", lambda x, e=_eps: x.inverse(e), positive(5))
case("elu", lambda x: x.elu(0.7), apart(3, 4))
case("leaky_relu", lambda x: x.leaky_relu(0.1), apart(3, 4))
case("clip", lambda x: x.clip(-0.7, 0.9), apart(3, 4))
case("scaled_tanh", lambda x: x.scaled_tanh(1.7, 0.6), apart(3, 4))
case("threshold", lambda x: x.threshold(0.2), apart(3, 4))
case("thresholded_relu", lambda x: x.thresholded_relu(0.4), apart(3, 4))
case("clamped_relu", lambda x: x.clamped_relu(0.2, 0.8), apart(3, 4))
case("sigmoid_hard", lambda x: x.sigmoid_hard(0.6, 0.5), apart(3, 4))
case("linear_activation", lambda x: x.linear_activation(1.3, -0.1), apart(3, 4))
case("prelu", lambda x, a: x.prelu(a), apart(2, 3, 4), rand(3))

for _name in ("sum", "mean", "amax", "amin", "sum_square", "l1_norm", "log_sum", "reduce_log_sum_exp", "prod"):
    for _axes in (None, -1, [0, 2]):
        _points = positive(2, 3, 4) if _name in ("log_sum", "prod") else apart(2, 3, 4)
        case(_name, lambda x, name=_name, axes=_axes: getattr(x, name)(axes), _points)
for _axis in (0, -1):
    case("cumsum", lambda x, axis=_axis: x.cumsum(axis), rand(2, 3))
    case("softmax", lambda x, axis=_axis: x.softmax(axis), rand(2, 3))
    case("l2_norm", lambda x, axis=_axis: x.l2_norm(axis, 0.1), rand(2, 3))
    case("stack", lambda a, b, axis=_axis: af.stack([a, b, a], axis), rand(2, 3), rand(2, 3))
    case("concat", lambda a, b, axis=_axis: af.concat([a, b, a], axis), rand(2, 2), rand(2, 2))
    case("reverse", lambda x, axis=_axis: x.reverse(axis), rand(2, 3))
    case("gather", lambda x, axis=_axis: af.gather(x, [1, 0, 1, -1], axis), rand(3, 2))

# Convolutions: to the input, to a computed kernel and to the bias.
SETTINGS = [
    ((2, 2, 4, 5), (3, 2, 3, 2), (2, 3, 3, 2), {}),
    ((1, 4, 6, 5), (4, 2, 3, 2), (4, 2, 3, 2), {"stride": (2, 3), "pad": (1, 2, 0, 1), "groups": 2}),
    ((1, 2, 7, 6), (2, 1, 2, 2), (2, 1, 2, 2), {"stride": 3, "dilation": (2, 3), "groups": 2}),
]
for _x, _w, _t, _more in SETTINGS:
    _out = _t[1] * _more.get("groups", 1)
    case("conv", lambda x, w, b, s=_more: af.conv(x, w, bias=b, **s), rand(*_x), rand(*_w), rand(_w[0]))
    case("conv", lambda x, w=_w, s=_more: af.conv(x, half(*w), **s), rand(*_x))
    case("dynamic_conv", lambda x, w, s=_more: af.dynamic_conv(x, w, **s), rand(1, *_x[1:]), rand(*_w))
    case(
        "conv_transpose",
        lambda x, w, b, s=_more: af.conv_transpose(x, w, bias=b, **s),
        rand(*_x),
        rand(*_t),
        rand(_out),
    )
for _a, _b in (((2, 3), (3, 4)), ((2, 2, 3), (3, 2)), ((2, 1, 2, 3), (2, 3, 1))):
    case("matmul", lambda a, b: a @ b, rand(*_a), rand(*_b))
case("linear", lambda x, w, b: x.linear(w, b), rand(2, 3, 4), rand(5, 4), rand(5))
case("linear", lambda x, w: x.linear(w), rand(4), rand(5, 4))
case("einsum", lambda a, b: af.einsum_native("nchw,nwhu->nchu", a, b), rand(2, 2, 3, 2), rand(2, 2, 3, 2))
case("matmul", lambda a, b: af.einsum("bij,jbk->kb", a, b), rand(2, 3, 2), rand(2, 2, 3))

_gain, _offset = rand(4) + 1, rand(4)
for _shape in ((4,), (3, 4), (2, 3, 4)):
    case("layer_norm", lambda x, g, b: x.layer_norm(g, b, 0.1), rand(*_shape), _gain, _offset)
    case("rms_norm", lambda x, g: x.rms_norm(g, 0.1), rand(*_shape), _gain)
for _shape in ((2, 4, 3), (2, 4, 2, 2)):
    case("group_norm", lambda x, g, b: x.group_norm(g, b, 2, 0.1), rand(*_shape), _gain, _offset)
    case("instance_norm", lambda x, g, b: af.instance_norm(x, g, b, 0.1), rand(*_shape), _gain, _offset)
    case("channel_layer_norm", lambda x, g, b: x.channel_layer_norm(g, b, 0.1), rand(*_shape), _gain, _offset)
    case(
        "batch_norm",
        lambda x, g, b, m, v: af.batch_norm(x, g, b, m, v, 0.1),
        rand(*_shape),
        _gain,
        _offset,
        rand(1, 4)[0],
        positive(4),
    )
    case("local_response_norm", lambda x: af.local_response_norm(x, 3, 0.5, 0.75, 2.0), rand(*_shape))
case("local_response_norm", lambda x: af.local_response_norm(x, 2, 0.5, 0.6, 2.0), rand(2, 3, 2))

case("reshape", lambda x: x.reshape(3, 2), rand(2, 3))
case("transpose", lambda x: x.transpose([2, 0, 1]), rand(2, 3, 4))
case("expand_dims", lambda x: x.expand_dims([0, 2]), rand(2, 3))
case("squeeze", lambda x: x.squeeze([0, 2]), rand(1, 3, 1))
case("flatten2d", lambda x: x.flatten2d(2), rand(2, 3, 2))
case("tile", lambda x: x.tile([2, 1, 3]), rand(2, 1, 3))
case("slice_by_size", lambda x: x.slice_by_size([1, 0], [2, 2]), rand(4, 3))
case("slice_by_index", lambda x: x[1::2, ::3], rand(5, 4))
case("slice_by_index", lambda x: x[::-2], rand(5, 2))
case("pad", lambda x: x.pad([(1, 2), (0, 1)], value=2.0), rand(2, 3))
for _mode in ("reflect", "replicate", "symmetric"):
    case("pad", lambda x, mode=_mode: x.pad([(1, 0), (2, 1)], mode), rand(2, 3))
case("crop", lambda x: af.crop(x, 1, 0, 1, 1), rand(1, 2, 3, 4))

POOLS = [((2, 2), None, 0), ((3, 2), (2, 1), (1, 0, 1, 1)), ((2, 3), (3, 3), 0), ((3, 3), (2, 2), 1)]
for _kernel, _stride, _pad in POOLS:
    for _ceil in (False, True):
        case("max_pool", lambda x, k=_kernel, s=_stride, p=_pad, c=_ceil: x.max_pool(k, s, p, c), apart(2, 2, 6, 4))
        case("max_pool", lambda x, k=_kernel, s=_stride, p=_pad, c=_ceil: x.max_pool(k, s, p, c), apart(1, 2, 5, 6))
        for _out in (False, True):
            case(
                "avg_pool",
                lambda x, k=_kernel, s=_stride, p=_pad, c=_ceil, e=_out: x.avg_pool(k, s, p, c, e),
                rand(2, 2, 5, 4),
            )
case("avg_pool", lambda x: x.avg_pool((2, 3)), rand(1, 2, 4, 6))
case("upsample_nearest_neighbor", lambda x: x.upsample((2, 3)), rand(1, 2, 2, 3))
for _align in (False, True):  # mixtures are stored in fp16
    case("upsample_bilinear", lambda x, a=_align: af.upsample_bilinear(x, 2, a), rand(1, 2, 3, 2), rtol=2e-3)
    case("resize_bilinear", lambda x, a=_align: af.resize_bilinear(x, 5, 3, a), rand(1, 2, 3, 4), rtol=2e-3)
case("resize_nearest_neighbor", lambda x: af.resize_nearest_neighbor(x, 5, 2), rand(1, 2, 3, 4))
for _name in ("pixel_shuffle", "depth_to_space", "channel_to_space"):
    case(_name, lambda x, name=_name: getattr(af, name)(x, 2), rand(1, 8, 2, 1))
for _name in ("pixel_unshuffle", "space_to_depth", "space_to_channel"):
    case(_name, lambda x, name=_name: getattr(af, name)(x, 2), rand(1, 2, 2, 4))
case("space_to_batch", lambda x: af.space_to_batch(x, 2, 3), rand(1, 2, 2, 6))
case("batch_to_space", lambda x: af.batch_to_space(x, 2, 1), rand(4, 2, 2, 1))

_q, _k, _v, _mask = rand(1, 2, 3, 2), rand(1, 2, 4, 2), rand(1, 2, 4, 2) + 1, rand(1, 1, 3, 4)
case("sdpa", lambda q, k, v, m: af.sdpa(q, k, v, 0.7, attn_mask=m), _q, _k, _v, _mask)
case("sdpa", lambda q, k, v: af.sdpa(q, k, v, is_causal=True), _q, _k, _v)
case("sdpa", lambda x: af.sdpa(x, x, x), _q)
case("sdpa", lambda x: af.sdpa(x, x * 2, (x * 2).tanh()), _q)
case("cross_product", af.cross_product, rand(3), rand(1, 3))
case("cross_correlation", af.cross_correlation, rand(4, 5), rand(2, 3))
case("cost_volume", lambda a, r: af.cost_volume(a, r, 2), rand(4), rand(7))
for _name in ("Width", "Height", "Channel"):
    case("minmax_norm", lambda x, name=_name: af.minmax_norm(x, name, 0.3), apart(1, 2, 3, 4))
case("lrn", lambda x: af.lrn(x, 2.0, 0.75, 1.5), rand(2, 4, 1, 2))
case("flatten", af.flatten, rand(2, 3))
case("input_view", lambda x: af.input_view(x, 1, 3), rand(2, 3))
case("dynamic_slice", lambda x: af.dynamic_slice(x, 3, 2), rand(2, 3))
case("input_view", lambda x: af.input_view(x, 2, 2, step=-2, axis=1), rand(2, 3, 2))
case("dynamic_slice", lambda x: native.slice_from(x, [1.0, 0.0], [2, 1], [3, 1]), rand(1, 2, 2, 4))
case("cross_product", af.cross_product, rand(1, 3, 1, 1), rand(1, 3, 1, 1) + 1)
case("cross_correlation", lambda x, t: af.cross_correlation(x, t, 1, 2), rand(1, 4, 3, 4), rand(1, 4, 2, 3))
case("cost_volume", lambda a, r: af.cost_volume(a, r, 2), rand(1, 1, 2, 4), rand(1, 1, 2, 6))
case("lrn", lambda x: af.lrn(x, 2.0, 0.75, 1.5, 3), rand(2, 4, 1, 2))
case("gather_places", lambda x: native.gather_places(x, [[1, 2], [0, 1], [1, 2]], (1, 2)), rand(1, 2, 3, 2))
case("native_unflatten", lambda x: native.native_unflatten(x, 1, 2, 3), rand(2, 6, 1, 1))
case("kernel_rasterizer", native.kernel_rasterizer, rand(1, 2, 3, 2))
case("native_pixel_shuffle", lambda x: native.native_pixel_shuffle(x, (2, 3)), rand(1, 6, 2, 1))
case("native_pixel_unshuffle", lambda x: native.native_pixel_unshuffle(x, (2, 3)), rand(1, 1, 2, 6))
case("ring_write", lambda x: af.ring_write(x, af.live_state((1, 2, 1, 4), "cache"), 3), rand(1, 2, 1, 3))
case(
    "ring_read",
    lambda x: af.ring_read(af.ring_write(x, af.live_state((1, 2, 1, 4), "cache"), 2), 3, 2),
    rand(1, 2, 1, 3),
)
case("sdpa", lambda q, k, v: native.attention(q, k, v, 0.5, subtract_max=False), _q, _k, _v)
for _name in ("Add", "Mult", "Min", "Max"):
    case(
        "scaled_elementwise",
        lambda x, z, n=_name: af.scaled_elementwise(x, z, n, 1.3),
        rand(2, 3),
        rand(2, 3) * 2 + 0.1,
    )

case("dropout", lambda x: af.dropout(x, 0.4, 3), rand(3, 4))
case("band_part", lambda x: af.band_part(x, 1, 0), rand(3, 4))
case("reverse_sequence", lambda x: af.reverse_sequence(x, [2, 3]), rand(2, 3, 2))
case("scatter", lambda x, u: af.scatter(x, [2, 0], u), rand(3, 2), rand(2, 2))
case("scatter", lambda x, u: af.scatter(x, [1, 1], u, -1, "add"), rand(2, 3), rand(2, 2))
for _name, _gates, _states in (("rnn", 1, 1), ("gru", 3, 1), ("lstm", 4, 2)):
    case(
        _name,
        lambda *operands, name=_name: getattr(af, name)(*operands),
        rand(3, 2, 2),
        rand(_gates * 2, 2),
        rand(_gates * 2, 2) * 0.5,
        rand(_gates * 2),
        *[rand(2, 2)] * _states,
    )
case("lstm", lambda x: af.lstm(x, half(8, 2), half(8, 2), half(8)), rand(3, 1, 2))


# The same on random shapes and settings: each builder draws a case from a generator.


def _shape(draw, least=1, most=4, longest=4):
    return tuple(int(extent) for extent in draw.integers(1, longest + 1, draw.integers(least, most + 1)))


def _broadcastable(draw, shape):
    kept = shape[draw.integers(0, len(shape)) :]
    return tuple(1 if draw.random() < 0.3 else extent for extent in kept)


def _random_binary(draw, name, build):
    shape = _shape(draw)
    shapes = [shape, _broadcastable(draw, shape)]
    draw.shuffle(shapes)
    return Case(name, build, (positive(*shapes[0]), positive(*shapes[1]) + 0.05))


def _random_reduction(draw, name):
    shape = _shape(draw)
    axes = sorted(draw.permutation(len(shape))[: draw.integers(1, len(shape) + 1)].tolist())
    points = positive(*shape) if name in ("log_sum", "prod") else apart(*shape)
    return Case(name, lambda x: getattr(x, name)(axes), (points,))


def _random_conv(draw, name):
    groups = int(draw.integers(1, 3))
    inward, outward = (groups * int(draw.integers(1, 3)) for _ in range(2))
    kernel = draw.integers(1, 4, 2).tolist()
    settings = {
        "stride": tuple(draw.integers(1, 4, 2).tolist()),
        "dilation": tuple(draw.integers(1, 3, 2).tolist()),
        "pad": tuple(draw.integers(0, 3, 4).tolist()),
        "groups": groups,
    }
    size = (draw.integers(1, 3), inward, *(draw.integers(5, 8, 2)))
    if name == "conv":
        weight = (outward, inward // groups, *kernel)
        return Case(name, lambda x, w: af.conv(x, w, **settings), (rand(*map(int, size)), rand(*weight)))
    settings["pad"] = 0
    weight = (inward, outward // groups, *kernel)
    return Case(name, lambda x, w: af.conv_transpose(x, w, **settings), (rand(*map(int, size)), rand(*weight)))


def _random_pool(draw, name):
    kernel, stride = (tuple(draw.integers(1, 4, 2).tolist()) for _ in range(2))
    pad = tuple(int(draw.integers(0, 1 + kernel[side // 2] // 2)) for side in range(4))
    size = (int(draw.integers(1, 3)), int(draw.integers(1, 3)), *draw.integers(4, 7, 2).tolist())
    return Case(name, lambda x: getattr(x, name)(kernel, stride, pad), (apart(*size),))


def _random_move(draw, name):
    shape = _shape(draw, least=2)
    rank = len(shape)
    begin = [int(draw.integers(0, extent)) for extent in shape]
    size = [int(draw.integers(1, extent - first + 1)) for first, extent in zip(begin, shape, strict=True)]
    order = draw.permutation(rank).tolist()
    widths = draw.integers(0, 3, (rank, 2)).tolist()
    repeats = draw.integers(1, 3, rank).tolist()
    build = {
        "transpose": lambda x: x.transpose(order),
        "slice_by_size": lambda x: x.slice_by_size(begin, size),
        "pad": lambda x: x.pad([tuple(width) for width in widths]),
        "tile": lambda x: x.tile(repeats),
        "reverse": lambda x: x.reverse(order[0]),
        "concat": lambda x: af.concat([x, x * 2.0, x], order[0]),
        "reshape": lambda x: x.reshape(-1, shape[-1]),
        "gather": lambda x: af.gather(x, [place % shape[order[0]] for place in (0, 3, 1)], order[0]),
    }[name]
    return Case(name, build, (rand(*shape),))


def _random_norm(draw, name):
    shape = _shape(draw, least=2, most=3)
    build = {
        "softmax": lambda x: x.softmax(-1),
        "layer_norm": lambda x, g, b: x.layer_norm(g, b, 0.1),
        "rms_norm": lambda x, g: x.rms_norm(g, 0.1),
        "matmul": lambda x, g: x @ g.reshape(shape[-1], 1),
    }[name]
    count = {"softmax": 0, "layer_norm": 2, "rms_norm": 1, "matmul": 1}[name]
    return Case(name, build, (rand(*shape), *(rand(shape[-1]) + place for place in range(count))))


BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "real_div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "atan2": af.atan2,
}
RANDOM: dict[str, Callable[..., Case]] = {
    **{name: lambda draw, n=name: _random_binary(draw, n, BINARY[n]) for name in BINARY},
    **{
        name: lambda draw, n=name: Case(n, lambda x: getattr(x, n)(), (apart(*_shape(draw)) * 0.6,))
        for name in (*UNARY.split(), "asin", "acos", "atanh")
    },
    **{
        name: lambda draw, n=name: _random_reduction(draw, n)
        for name in ("sum", "mean", "amax", "amin", "sum_square", "l1_norm", "log_sum", "reduce_log_sum_exp", "prod")
    },
    **{name: lambda draw, n=name: _random_conv(draw, n) for name in ("conv", "conv_transpose")},
    **{name: lambda draw, n=name: _random_pool(draw, n) for name in ("max_pool", "avg_pool")},
    **{
        name: lambda draw, n=name: _random_move(draw, n)
        for name in ("transpose", "slice_by_size", "pad", "tile", "reverse", "concat", "reshape", "gather")
    },
    **{name: lambda draw, n=name: _random_norm(draw, n) for name in ("softmax", "layer_norm", "rms_norm", "matmul")},
}


def differences(out, inputs, arrays, cotangent):
    """Central differences of sum(out * cotangent) for every element of every input."""
    found = []
    for number, array in enumerate(arrays):
        slope = np.zeros(array.shape)
        for place in np.ndindex(*array.shape):
            values = []
            for sign in (1, -1):
                moved = [each.copy() for each in arrays]
                moved[number][place] += sign * STEP
                values.append((af.evaluate(out, dict(zip(inputs, moved, strict=True))) * cotangent).sum())
            slope[place] = (values[0] - values[1]) / (2 * STEP)
        found.append(slope)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", RANDOM)
def test_derivative_on_random_shapes(name, seed):
    check(RANDOM[name](np.random.default_rng([seed, zlib.crc32(name.encode())])))


@pytest.mark.parametrize("each", CASES, ids=[f"{each.op}-{number}" for number, each in enumerate(CASES)])
def test_derivative(each):
    check(each)


def check(each: Case) -> None:
    """The declared derivatives of a case against differences."""
    inputs = [af.input(array.shape) for array in each.arrays]
    out = each.build(*inputs)
    assert each.op in {node.op for node in out.graph()}
    seed = af.input(out.shape)
    cotangent = half(*out.shape, 1)[..., 0]
    parts = gradients(out, inputs, seed=seed)
    assert [part.shape for part in parts] == [array.shape for array in each.arrays]
    feeds = {**dict(zip(inputs, each.arrays, strict=True)), seed: cotangent}
    held = [{key: feeds[key] for key in part.graph().inputs} for part in parts]
    found = [af.evaluate(part, values) for part, values in zip(parts, held, strict=True)]
    for part, expected in zip(found, differences(out, inputs, each.arrays, cotangent), strict=True):
        np.testing.assert_allclose(part, expected, rtol=each.rtol, atol=max(1e-7, each.rtol * np.abs(expected).max()))


@pytest.mark.parametrize("name", [name for name, each in definitions().items() if each.derivative is not None])
def test_every_derivative_has_a_case(name):
    if name not in STRAIGHT_THROUGH:
        assert name in {each.op for each in CASES}, f"add a case for {name} to this file"


STEPS_IN = np.array([-0.5, -0.2, 0.0, 0.3])
STRAIGHT_THROUGH = {"quantize"}
"""Steps, whose differences are zero or infinite: they have the derivative of what they round."""


@pytest.mark.parametrize(("dtype", "zero"), [("int8", 0), ("int8", -20), ("uint8", 100)])
def test_a_quantiser_passes_gradients_within_its_range(dtype, zero):
    """As PyTorch's fake quantisers do: that of x / scale where the code is not held to the range, zero beyond."""
    x, scale, low, high = af.input((9,)), 0.5, *((-128, 127) if dtype == "int8" else (0, 255))
    edges = np.array([(low - zero) * scale, (high - zero) * scale])
    given = np.array([*(edges[0] + STEPS_IN), 0.1, *(edges[1] - STEPS_IN[::-1])])
    (codes,) = gradients(af.quantize(x, scale, zero, dtype), [x])
    (numbers,) = gradients(af.dequantize(af.quantize(x, scale, zero, dtype), scale, zero), [x])
    inside = np.array([0, 1, 1, 1, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(af.evaluate(codes, {x: given}), inside / scale)
    np.testing.assert_array_equal(af.evaluate(numbers, {x: given}), inside)


WITHOUT: dict[str, Callable[..., Any]] = {
    "floor_div": lambda x: x // 2.0,
    "floor": lambda x: x.floor(),
    "ceil": lambda x: x.ceil(),
    "round": lambda x: x.round(),
    "sign": lambda x: x.sign(),
    "one_hot": lambda x: af.one_hot(x, 3),
    "topk": lambda x: af.topk(x, 2),
    "sort": lambda x: af.sort(x),  # noqa: PLW0108
    "argmax": lambda x: x.argmax(),
    "arg_min_max": lambda x: native.arg_min_max(x.reshape(1, 1, 3, 3), "SpatialArgMax", 2),
    "global_arg": native.global_arg,
    "native_resample": lambda x: native.native_resample(x.reshape(1, 1, 3, 3), np.zeros((1, 2, 2, 2))),
    "resample": lambda x: af.resample(x.reshape(1, 1, 3, 3), np.zeros((1, 2, 2, 2))),
    "crop_resize": lambda x: af.crop_resize(x.reshape(1, 1, 3, 3), np.zeros((1, 4)), 2, 3),
    "native_crop_resize": lambda x: native.native_crop_resize(x.reshape(1, 1, 3, 3), np.zeros((1, 2)), 2, 3),
    "fps": lambda x: af.fps(x, 2),
    "radius_search": lambda x: af.radius_search(x, x, 1.0),
    "affine": lambda x: af.affine(x.reshape(1, 1, 3, 3), [[1, 0, 0, 0, 1, 0]], 2, 2),
    "equal": lambda x: (x == 1.0).cast(),
    "not_equal": lambda x: (x != 1.0).cast(),
    "less": lambda x: (x < 1.0).cast(),
    "less_equal": lambda x: (x <= 1.0).cast(),
    "greater": lambda x: (x > 1.0).cast(),
    "greater_equal": lambda x: (x >= 1.0).cast(),
    "logical_and": lambda x: ((x > 1.0) & (x < 1.0)).cast(),
    "logical_or": lambda x: ((x > 1.0) | (x < 1.0)).cast(),
    "logical_xor": lambda x: ((x > 1.0) ^ (x < 1.0)).cast(),
    "logical_not": lambda x: (~(x > 1.0)).cast(),
    "host": lambda x: host([x], language="onnx", kind="Det", body="", shape=(1,), reason="no form"),
}


@pytest.mark.parametrize(
    "name", [name for name, each in definitions().items() if each.derivative is None and not each.leaf]
)
def test_no_derivative_is_said_so(name):
    x = af.input((3, 3))
    out = WITHOUT[name](x)
    assert name in {node.op for node in out.graph()}
    with pytest.raises(af.GraphError, match="has no derivative") as caught:
        gradients(out, [x])
    assert name in str(caught.value)
    assert "test_derivatives.py:" in str(caught.value)


def test_exactly_the_ops_without_a_derivative_say_why():
    assert {name for name, each in definitions().items() if each.no_derivative} == set(WITHOUT)


def test_reductions_spread_their_gradient_without_stored_ones():
    x = af.input((4, 64, 64))
    for name in ("sum", "mean", "log_sum"):
        (part,) = gradients(getattr(x, name)([1, 2]), [x])
        graph = part.graph()
        assert "tile" in graph.kinds
        assert max((weight.array.size for weight in graph.weights.values()), default=0) <= 4


@pytest.mark.parametrize("windows", ["slices", "kernel"])
@pytest.mark.parametrize(("stride", "pad"), [(1, 0), (1, 1), (2, 1), (3, (0, 2, 1, 0))])
def test_a_trained_convolution_is_a_convolution_with_its_gradients(windows, stride, pad):
    x, kernel = af.input((2, 3, 6, 7)), half(4, 3, 3, 2)
    weight = af.conv_param(kernel)
    out, expected = af.conv2d(x, weight, stride, pad, windows), af.conv(x, af.parameter(kernel), stride, pad)
    values = rand(2, 3, 6, 7)
    np.testing.assert_allclose(af.evaluate(out, [values]), af.evaluate(expected, [values]), rtol=1e-12, atol=1e-12)
    seed = half(*out.shape)
    trained = gradients(out, [x, weight], seed=af.const(seed))
    plain = gradients(expected, [x, expected.inputs[1]], seed=af.const(seed))
    by_input, by_weight = (af.evaluate(part, [values] if part.graph().inputs else []) for part in trained)
    np.testing.assert_allclose(by_input, af.evaluate(plain[0]), rtol=1e-10, atol=1e-10)
    matrix = af.evaluate(plain[1], [values]).transpose(1, 2, 3, 0).reshape(by_weight.shape)
    np.testing.assert_allclose(by_weight, matrix, rtol=1e-10, atol=1e-10)


def test_the_route_by_a_stored_kernel_has_no_slice_in_either_direction():
    x = af.input((1, 2, 6, 6))
    for windows, expected in (("slices", True), ("kernel", False)):
        weight = af.conv_param(half(2, 2, 3, 3))
        out = af.conv2d(x, weight, pad=1, windows=windows)
        parts = gradients(out, [x, weight])
        assert bool(af.Graph([out, *parts]).kinds & {"slice_by_size", "slice_by_index"}) == expected
    with pytest.raises(af.GraphError, match="windows 'rows' is unknown; choose one: slices, kernel"):
        af.conv2d(x, weight, windows="rows")


def test_a_stored_kernel_has_no_derivative():
    x, w = af.input((1, 2, 3, 3)), af.const(half(2, 2, 1, 1))
    with pytest.raises(
        af.GraphError, match=r"conv at test_derivatives.py:\d+: the op has no derivative for <const fp16"
    ):
        gradients(af.conv(x, w), [w])


def test_parameters_get_gradients():
    x, w = af.input((2, 3)), af.parameter(half(4, 3))
    (part,) = gradients(x.linear(w), [w])
    values = rand(2, 3)
    np.testing.assert_allclose(af.evaluate(part, {x: values}), np.tile(values.sum(0), (4, 1)))


def test_conv2d_and_conv_block_train():
    x = af.input((1, 2, 4, 4))
    w, gamma, beta = af.conv_param(half(2, 2, 3, 3)), af.parameter(half(1, 2, 1, 1)), af.parameter(half(1, 2, 1, 1))
    loss = (af.conv_block(x, w, gamma, beta, 1, pool=2) * 1.0).square().sum()
    image = apart(1, 2, 4, 4)
    for parameter in (w, gamma, beta):
        (part,) = gradients(loss, [parameter])
        start = parameter.weight.array.astype(np.float64)
        found = af.evaluate(part, {x: image})
        place = tuple(size - 1 for size in start.shape)
        moved = []
        for sign in (1, -1):
            value = start.copy()
            value[place] += sign * STEP
            moved.append(af.evaluate(loss, {x: image, parameter: value}).item())
        np.testing.assert_allclose(found[place], (moved[0] - moved[1]) / (2 * STEP), rtol=1e-4, atol=1e-6)


def test_a_tensor_used_twice_adds_its_parts_up():
    x = af.input((3,))
    (part,) = gradients(x * x + x.sin() * x, [x])
    v = rand(3)
    np.testing.assert_allclose(af.evaluate(part, [v]), 2 * v + np.sin(v) + v * np.cos(v), rtol=1e-12)


def test_what_does_not_depend_has_no_gradient():
    x, other = af.input((3,)), af.input((3,))
    assert gradients(x.exp(), [other]) == [None]


def test_stop_cuts_the_flow():
    x = af.input((3,))
    middle = x.exp()
    out = middle * x
    (part,) = gradients(out, [x], stop=[middle])
    v = rand(3)
    np.testing.assert_allclose(af.evaluate(part, [v]), np.exp(v), rtol=1e-12)


def test_mean_over_many_elements_keeps_its_gradient():
    """1 / 262144 would be lost as an fp16 constant."""
    x = af.input((512, 512))
    (part,) = gradients(x.mean(), [x])
    np.testing.assert_allclose(af.evaluate(part), np.full((512, 512), 1 / 512**2), rtol=1e-12)


def test_a_long_chain_has_a_gradient():
    x = af.input((1,))
    y = x
    for _ in range(5000):
        y = y + 1.0
    (part,) = gradients(y, [x])
    assert af.evaluate(part) == 1.0
