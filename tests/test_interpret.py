"""The float64 meaning of every backend op, on small arrays against loops and closed forms written here."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from aneforge.engine.interpret import interpret, interpreted_names
from aneforge.engine.interpret_units import UNITS
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.spec import spec_names, structural_names
from aneforge.engine.tensor_type import Params
from aneforge.engine.text import parse
from aneforge.engine.verify import verify
from aneforge.graph.weights import intern_weight

RNG = np.random.default_rng(94)
X = np.round(RNG.standard_normal((1, 1, 4, 4, 6)) * 4) / 2  # halves, with zeros and ties among them
Y = np.abs(RNG.standard_normal((1, 1, 4, 1, 6))) + 0.25
POS = np.abs(X) + 0.25


def run(kind, arrays, shape, attrs=None, dtype="f16", check=True):
    ports = [Op("anec.live_in", (), TensorType(a.shape), {"name": f"x{i}"}) for i, a in enumerate(arrays)]
    op = Op(f"anec.{kind}", ports, TensorType(shape, dtype), attrs)
    out = Op("anec.live_out", [op], None, {"names": ("y",)})
    module = Module([*ports, op, out])
    if check:
        verify(module)
    return interpret(parse(str(module)), list(arrays))["y"]


def sigmoid(x):
    return 0.5 + 0.5 * np.tanh(x / 2)


def erf(x):
    return np.array([math.erf(v) for v in x.ravel()]).reshape(x.shape)


POINTWISE = [
    ("add", (X, Y), {}, X + Y),
    ("sub", (X, Y), {}, X - Y),
    ("mult", (X, Y), {}, X * Y),
    ("div", (X, Y), {}, X / Y),
    ("max", (X, Y), {}, np.where(X > Y, X, Y)),
    ("min", (X, Y), {}, np.where(X < Y, X, Y)),
    ("power", (POS, Y), {}, np.exp(Y * np.log(POS))),
    ("scaled_elementwise", (X, X), {"mode": "Add", "scale": 0.5}, X),
    ("scaled_elementwise", (X, X), {"mode": "Mult", "scale": 0.5}, X * X),
    ("scaled_elementwise", (X, -X), {"mode": "Max", "scale": 2.0}, 2 * np.abs(X)),
    ("scaled_elementwise", (X, -X), {"mode": "Min", "scale": 2.0}, -2 * np.abs(X)),
    ("gain_offset_control", (X,), {"gain": 2.0, "bias": -1.0}, 2 * X - 1),
    ("gain_offset_control", (X, Y), {"bias": 1.0}, X * Y + 1),
    ("gain_offset_control", (X, Y, Y), {}, X * Y + Y),
    ("abs", (X,), {}, np.sqrt(X * X)),
    ("sign", (X,), {}, (X > 0) * 1.0 - (X < 0)),
    ("square", (X,), {}, X * X),
    ("sqr", (X,), {}, X * X),
    ("sqrt", (POS,), {}, POS**0.5),
    ("ceil", (X,), {}, -((-X) // 1)),
    ("floor", (X,), {}, X // 1),
    ("trunc", (X,), {}, np.where(X < 0, -((-X) // 1), X // 1)),
    ("round_nearest", (X,), {}, np.array([round(v) for v in X.ravel()]).reshape(X.shape)),
    ("sin", (X,), {}, np.exp(1j * X).imag),
    ("cos", (X,), {}, np.exp(1j * X).real),
    ("erf", (X,), {}, erf(X)),
    ("relu", (X,), {}, X * (X > 0)),
    ("sigmoid", (X,), {}, sigmoid(X)),
    ("high_precision_sigmoid", (X,), {}, sigmoid(X)),
    ("degamma", (np.full((1, 1, 1, 1, 1), 0.5),), {}, np.full((1, 1, 1, 1, 1), 0.21404114048223255)),
    ("dirac", (X,), {}, (X == 0) * 1.0),
    ("gelu", (X,), {}, X * (1 + erf(X / math.sqrt(2))) / 2),
    ("gelu", (X,), {"approximation": "sigmoid"}, X * sigmoid(1.702 * X)),
    ("gelu", (X,), {"approximation": "tanh"}, X * sigmoid(2 * math.sqrt(2 / math.pi) * (X + 0.044715 * X**3))),
    ("swish", (X,), {}, X * sigmoid(X)),
    ("swish", (X,), {"hard": True}, X * np.minimum(np.maximum(X + 3, 0), 6) / 6),
    ("leaky_relu", (X,), {"negative_slope": 0.1}, np.maximum(X, 0.1 * X)),
    ("leaky_relu", (X, Y), {}, np.where(X < 0, X * Y, X)),
    ("clamped_relu", (X,), {"min_val": -0.5, "max_val": 1.0}, np.minimum(np.maximum(X, -0.5), 1)),
    ("n_relu", (X,), {"max_val": 6.0}, np.minimum(np.maximum(X, 0), 6)),
    ("elu", (X,), {"alpha": 0.5}, np.where(X > 0, X, 0.5 * (np.exp(X) - 1))),
    ("tanh", (X,), {}, 2 * sigmoid(2 * X) - 1),
    ("tanh", (X,), {"alpha": 3.0, "beta": 0.5}, 3 * (2 * sigmoid(X) - 1)),
    ("r_sqrt", (POS,), {"epsilon": 0.5}, (POS + 0.5) ** -0.5),
    ("invert", (POS,), {}, POS**-1),
    ("log2", (POS,), {}, np.log(POS) / math.log(2)),
    ("log2", (POS,), {"base_e": True, "epsilon": 1.0}, np.log1p(POS)),
    ("exp2", (X,), {}, 2**X),
    ("exp2", (X,), {"base_e": True}, math.e**X),
    ("cast", (X,), {"to": "f16"}, X),
    ("dequant", (X,), {"scale": 0.25, "zero_point": 3}, (X - 3) / 4),
]
COMPARED = [
    ("equal", (X, X.round()), X % 1 == 0),
    ("not_equal", (X, X.round()), X % 1 != 0),
    ("less_than", (X, Y), X < Y),
    ("less_than_equal", (X, X.round()), ~(X.round() < X)),
    ("greater_than", (X, Y), X > Y),
    ("greater_than_equal", (X, X.round()), ~(X.round() > X)),
    ("equal_zero", (X,), X == 0),
    ("not_equal_zero", (X,), X != 0),
    ("less_than_zero", (X,), X < 0),
    ("less_than_equal_zero", (X,), X <= 0),
    ("greater_than_zero", (X,), X > 0),
    ("greater_than_equal_zero", (X,), X >= 0),
]
N, D, Cc, Hh, Ww = 2, 2, 8, 4, 6
V = RNG.standard_normal((N, D, Cc, Hh, Ww))
PLANE = V[:1, :1]


def rearranged(factors, channel_major):
    z, y, u = factors
    out = np.zeros((N, D // z, Cc * z * y * u, Hh // y, Ww // u))
    for n, d, c, h, w in np.ndindex(V.shape):
        place = ((d % z) * y + h % y) * u + w % u
        channel = c * z * y * u + place if channel_major else place * Cc + c
        out[n, d // z, channel, h // y, w // u] = V[n, d, c, h, w]
    return out


UNSHUFFLED, TO_CHANNEL = rearranged((1, 2, 2), True), rearranged((2, 2, 3), False)
TO_BATCH = np.zeros((N * 6, D, Cc, 2, 2))
for _n, _d, _c, _h, _w in np.ndindex(V.shape):
    TO_BATCH[((_h % 2) * 3 + _w % 3) * N + _n, _d, _c, _h // 2, _w // 3] = V[_n, _d, _c, _h, _w]

MOVED = [
    ("reshape", (V,), {"shape": (1, 1, N * D, Cc, Hh * Ww)}, V.reshape(1, 1, N * D, Cc, Hh * Ww)),
    ("broadcast", (Y,), {"shape": (2, 1, 4, 3, 6)}, np.stack([np.repeat(Y[0], 3, axis=2)] * 2)),
    ("transpose", (V,), {"transpose_list": ((2, 4), (4, 2))}, np.einsum("ndchw->ndwhc", V)),
    ("transpose", (V,), {"transpose_list": ((1, 2), (2, 3), (3, 1))}, np.einsum("ndchw->nchdw", V)),
    ("concat", (V, V[:, :, :3]), {"axis": 2}, np.concatenate([V, V[:, :, :3]], 2)),
    ("concat", (V, 2 * V), {"axis": 2, "interleave": True}, np.repeat(V, 2, 2) * np.tile([1, 2], Cc)[:, None, None]),
    ("tile", (V,), {"multiples": (1, 1, 2, 1, 3)}, np.concatenate([np.concatenate([V] * 3, 4)] * 2, 2)),
    ("input_view", (V,), {"dimension": 2, "offset": 1, "size": 3, "step": 2}, V[:, :, 1:6:2]),
    ("input_view", (V,), {"dimension": 4, "offset": 5, "size": 6, "step": -1}, V[..., ::-1]),
    ("gather_nd", (V,), {"axes": (3,), "indices": (3, 0, 0)}, V[:, :, :, [3, 0, 0]]),
    ("gather_nd", (V, np.array([1.0, 0.0]).reshape(1, 1, 1, 1, 2)), {"axes": (4,)}, V[..., [1, 0]]),
    (
        "gather_nd",
        (PLANE, np.array([[1.0, 3.0], [2.0, 0.0]]).reshape(1, 1, 2, 2, 1)),
        {"axes": (2, 4)},
        np.stack([PLANE[0, 0, 1, :, 2], PLANE[0, 0, 3, :, 0]]).reshape(1, 1, 2, 4, 1),
    ),
    ("flatten", (V,), {"flatten_mode": "NCHW"}, V.reshape(N, D, -1, 1, 1)),
    ("flatten", (V,), {"flatten_mode": "NHWC"}, np.einsum("ndchw->ndhwc", V).reshape(N, D, -1, 1, 1)),
    ("pixel_unshuffle", (V,), {"factors": (1, 2, 2)}, UNSHUFFLED),
    ("pixel_shuffle", (UNSHUFFLED,), {"factors": (1, 2, 2)}, V),
    ("space_to_channel", (V,), {"factors": (2, 2, 3)}, TO_CHANNEL),
    ("channel_to_space", (TO_CHANNEL,), {"factors": (2, 2, 3)}, V),
    ("space_to_batch", (V,), {"factors": (1, 2, 3)}, TO_BATCH),
    ("batch_to_space", (TO_BATCH,), {"factors": (1, 2, 3)}, V),
    ("ring_buffer_reader", (V,), {"offset": 4, "size": 3}, V[..., [4, 5, 0]]),
    ("ring_buffer_writer", (V[..., :2] * 2, V), {"offset": 5}, np.concatenate([V[..., 1:2] * 2, V[..., 1:5],
                                                                              V[..., :1] * 2], 4)),
    ("tensor_buffer_to_tensor", (V,), {}, V),
    ("tensor_to_tensor_buffer", (V,), {}, V),
]  # fmt: skip
for _mode in ("NCHW", "NHWC"):
    _flat = run("flatten", (V,), (N, D, Cc * Hh * Ww, 1, 1), {"flatten_mode": _mode})
    MOVED.append(("unflatten", (_flat,), {"flatten_mode": _mode, "destination_size": (Cc, Hh, Ww)}, V))
_SIZES = ((0, 0), (0, 0), (0, 0), (0, 0), (2, 1))
_PLACES = {"Replication": [0, 0, *range(6), 5], "Symmetric": [1, 0, *range(6), 5], "Reflective": [2, 1, *range(6), 4]}
for _mode, _places in _PLACES.items():
    MOVED.append(
        ("padding", (V,), {"padding_modes": _mode, "padding_sizes": _SIZES, "background_value": 0.0}, V[..., _places])
    )
for _mode, _fill in (("Zero", 0.0), ("Background", 1.5)):
    _edges = [np.full((N, D, Cc, Hh, n), _fill) for n in (2, 1)]
    MOVED.append(
        (
            "padding",
            (V,),
            {"padding_modes": _mode, "padding_sizes": _SIZES, "background_value": 1.5},
            np.concatenate([_edges[0], V, _edges[1]], 4),
        )
    )


def folded(function, axes, x=V):
    kept = np.stack([np.asarray(v) for v in map(function, lines(x, axes))])
    return kept.reshape([1 if i in axes else n for i, n in enumerate(x.shape)])


def lines(x, axes):
    rest = [i for i in range(5) if i not in axes]
    size = math.prod(x.shape[i] for i in axes)
    return x.transpose(*rest, *axes).reshape(-1, size)


def white(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


ARG = {"stride_values": (1, 1), "pad_values": (0, 0, 0, 0)}
CHANNEL = np.arange(1.0, 9.0).reshape(1, 1, 8, 1, 1)
REDUCED = [
    ("reduce_sum", (V,), {"axes": (4,)}, folded(math.fsum, (4,))),
    ("reduce_sum", (V,), {"axes": (2, 3), "square_input": True}, folded(lambda r: math.fsum(r * r), (2, 3))),
    ("reduce_avg", (V,), {"axes": (0, 1)}, folded(np.mean, (0, 1))),
    ("reduce_max", (V,), {"axes": (3,)}, folded(max, (3,))),
    ("reduce_min", (V,), {"axes": (2, 3, 4)}, folded(min, (2, 3, 4))),
    ("softmax", (V,), {"axes": (2, 4)}, np.exp(V) / np.exp(V).sum((2, 4), keepdims=True)),
    ("layer_norm", (V,), {"axes": (2,), "epsilon": 0.5}, white(V, (2,), 0.5)),
    (
        "layer_norm",
        (V[:, :1], CHANNEL, CHANNEL),
        {"axes": (2, 3, 4), "epsilon": 0.5, "groups": 2},
        np.concatenate([white(V[:, :1, i : i + 4], (2, 3, 4), 0.5) for i in (0, 4)], 2) * CHANNEL + CHANNEL,
    ),
    ("instance_norm", (V, CHANNEL), {"axes": (3, 4), "epsilon": 0.5}, white(V, (3, 4), 0.5) * CHANNEL),
    (
        "batch_norm",
        (V, CHANNEL, CHANNEL, CHANNEL, CHANNEL),
        {"epsilon": 0.5},
        (V - CHANNEL) / np.sqrt(CHANNEL + 0.5) * CHANNEL + CHANNEL,
    ),
    ("global_arg_min_max", (V,), {"axis": 4, "mode": "Max"}, folded(lambda r: list(r).index(max(r)), (4,))),
    ("global_arg_min_max", (V,), {"axis": 2, "mode": "Min"}, folded(lambda r: list(r).index(min(r)), (2,))),
    (
        "arg_min_max",
        (V,),
        {**ARG, "axes": (2,), "kernel_size": (1, 1), "mode": "ChannelArgMin"},
        folded(lambda r: list(r).index(min(r)), (2,)),
    ),
    (
        "arg_min_max",
        (V,),
        {**ARG, "axes": (3, 4), "kernel_size": (4, 6), "mode": "SpatialArgMax"},
        folded(lambda r: list(r).index(max(r)), (3, 4)),
    ),
]  # fmt: skip


def naive_conv(x, w, stride, dilation, pads, groups):
    n, d, _, h, width = x.shape
    out, kd, per, kh, kw = w.shape
    sizes = [
        (s + pads[2 * i] + pads[2 * i + 1] - dilation[i] * (k - 1) - 1) // stride[i] + 1
        for i, (s, k) in enumerate(((d, kd), (h, kh), (width, kw)))
    ]
    y = np.zeros((n, sizes[0], out, *sizes[1:]))
    for i, z, o, r, q in np.ndindex(y.shape):
        for a, k, u, v in itertools.product(range(kd), range(per), range(kh), range(kw)):
            at = (z * stride[0] - pads[0] + a * dilation[0], r * stride[1] - pads[2] + u * dilation[1],
                  q * stride[2] - pads[4] + v * dilation[2])  # fmt: skip
            if all(0 <= p < s for p, s in zip(at, (d, h, width), strict=True)):
                y[i, z, o, r, q] += x[i, at[0], o // (out // groups) * per + k, at[1], at[2]] * w[o, a, k, u, v]
    return y


CONVOLUTIONS = [
    ((1, 1, 1), (1, 1, 1), (0,) * 6, 1, (3, 1, 2, 2, 3)),
    ((1, 2, 1), (1, 1, 2), (0, 0, 2, 0, 0, 1), 2, (4, 1, 1, 3, 2)),
    ((2, 1, 2), (1, 1, 1), (1, 0, 0, 0, 1, 1), 1, (2, 2, 2, 1, 2)),
]
SMALL = RNG.standard_normal((2, 2, 2, 5, 6))


def conv_attrs(stride, dilation, pads, groups, kernel):
    return {
        "strides": stride,
        "dilation_rates": dilation,
        "explicit_padding": pads,
        "groups": groups,
        "kernel_sizes": (kernel[1], kernel[3], kernel[4]),
    }


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution_in_three_dimensions(case):
    *settings, kernel = case
    w, bias = RNG.standard_normal(kernel), RNG.standard_normal((1, 1, kernel[0], 1, 1))
    want = naive_conv(SMALL, w, *settings) + bias
    got = run("convolution", (SMALL, w, bias), want.shape, conv_attrs(*settings, kernel))
    np.testing.assert_allclose(got, want, atol=1e-12)


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_deconvolution_is_the_gradient_of_convolution(case):
    *settings, kernel = case
    w = RNG.standard_normal(kernel)
    y = naive_conv(SMALL, w, *settings)
    g = RNG.standard_normal(y.shape)
    full = run("deconvolution", (g, w), back_shape(g, kernel, settings), conv_attrs(*settings, kernel))
    padded = np.zeros(SMALL.shape)  # where strides did not reach, the gradient is zero
    padded[tuple(slice(0, n) for n in full.shape)] = full
    np.testing.assert_allclose((g * y).sum(), (padded * SMALL).sum(), rtol=1e-9)


def back_shape(g, kernel, settings):
    stride, dilation, pads, groups = settings
    sizes = [
        (s - 1) * stride[i] + dilation[i] * (k - 1) + 1 - pads[2 * i] - pads[2 * i + 1]
        for i, (s, k) in enumerate(zip((g.shape[1], *g.shape[3:]), (kernel[1], *kernel[3:]), strict=True))
    ]
    return (g.shape[0], sizes[0], kernel[2] * groups, *sizes[1:])


def test_replicated_borders_of_a_convolution():
    w = np.ones((1, 1, 2, 3, 3))
    attrs = {**conv_attrs((1, 1, 1), (1, 1, 1), (0, 0, 1, 1, 1, 1), 1, w.shape), "padding_mode": "Replication"}
    got = run("convolution", (np.ones((1, 1, 2, 4, 4)), w), (1, 1, 1, 4, 4), attrs)
    np.testing.assert_allclose(got, 18.0)
    with pytest.raises(AnecError, match="Symmetric"):
        run("convolution", (np.ones((1, 1, 2, 4, 4)), w), (1, 1, 1, 4, 4), {**attrs, "padding_mode": "Symmetric"})


def test_matmul_of_listing_22_1():
    a, b = RNG.standard_normal((2, 1, 3, 4, 5)), RNG.standard_normal((1, 1, 5, 4, 6))
    want = np.einsum("nzmhk,azkhp->nzmhp", a, b)
    np.testing.assert_allclose(run("matmul", (a, b), (2, 1, 3, 4, 6)), want)
    flags = {"transpose_lhs": True, "transpose_rhs": True}
    turned = run("matmul", (a.swapaxes(2, 4), b.swapaxes(2, 4), np.ones((1, 1, 1, 1, 6))), (2, 1, 3, 4, 6), flags)
    np.testing.assert_allclose(turned, want + 1)
    with pytest.raises(AnecError, match="depth > 1 is not supported for MatMult"):
        run("matmul", (np.ones((1, 2, 3, 1, 5)), b), (1, 2, 3, 4, 6), check=False)


def test_linear_contracts_the_width():
    w, bias = RNG.standard_normal((1, 1, 3, 1, 6)), RNG.standard_normal((1, 1, 1, 1, 3))
    want = np.einsum("ndchw,ow->ndcho", V, w[0, 0, :, 0]) + bias
    np.testing.assert_allclose(run("linear", (V, w, bias), want.shape), want)


def packed(kind, x, kernel, shape, attrs, check=True, **constants):
    """A convolution or product whose kernel is unpacked by stored constants."""
    port = Op("anec.live_in", (), TensorType(x.shape), {"name": "x"})
    names = {name: intern_weight(np.asarray(value, np.float64)) for name, value in constants.items()}
    stored = intern_weight(kernel)
    dtype = "ui8" if any("lut" in name.lower() for name in constants) else "si8"
    weight = Op("anec.const_in", (), TensorType(kernel.shape, dtype), {"weight": stored.key})
    attrs = {**attrs, **{name: each.key for name, each in names.items()}}
    op = Op(f"anec.{kind}", [port, weight], TensorType(shape), attrs)
    out = Op("anec.live_out", [op], None, {"names": ("y",)})
    weights = {each.key: each for each in (stored, *names.values())}
    module = Module([port, weight, op, out], weights)
    if check:
        verify(module)
    return interpret(module, [x])["y"]


PER_CHANNEL = np.array([0.5, 2.0, 0.25])
TABLE = np.arange(16) / 8 - 1


@pytest.mark.parametrize(
    ("constants", "unpack"),
    [
        ({"kernel_scale": 0.5}, lambda q: q * 0.5),
        ({"kernel_scale": 0.5, "kernel_zero_point": 3.0}, lambda q: (q - 3) * 0.5),
        ({"kernel_scale": PER_CHANNEL}, lambda q: q * PER_CHANNEL.reshape(3, 1, 1, 1, 1)),
        ({"kernel_scale": PER_CHANNEL.reshape(3, 1, 1, 1)}, lambda q: q * PER_CHANNEL.reshape(3, 1, 1, 1, 1)),
        ({"kernel_palettized_LUT": TABLE}, lambda q: TABLE[q.astype(int)]),
        ({"kernel_palettized_LUT": TABLE, "kernel_scale": 2.0}, lambda q: 2 * TABLE[q.astype(int)]),
    ],
    ids=("scale", "scale and zero", "per channel", "rank 4", "table", "table and scale"),
)
def test_a_stored_kernel_is_unpacked(constants, unpack):
    case = ((1, 1, 1), (1, 1, 1), (0,) * 6, 1)
    kernel = RNG.integers(0, 16, (3, 1, 2, 2, 3)).astype(np.float64)
    want = naive_conv(SMALL, unpack(kernel), *case)
    got = packed("convolution", SMALL, kernel, want.shape, conv_attrs(*case, kernel.shape), **constants)
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_a_stored_product_is_unpacked():
    kernel = RNG.integers(0, 16, (1, 1, 3, 1, 6)).astype(np.float64)
    want = np.einsum("ndchw,ow->ndcho", V, (kernel[0, 0, :, 0] - 1) * PER_CHANNEL[:, None])
    got = packed("linear", V, kernel, want.shape, {}, kernel_scale=PER_CHANNEL, kernel_zero_point=1.0)
    np.testing.assert_allclose(got, want)
    got = packed("linear", V, kernel, want.shape, {}, kernel_lut=TABLE)
    np.testing.assert_allclose(got, np.einsum("ndchw,ow->ndcho", V, TABLE[kernel[0, 0, :, 0].astype(int)]))


def test_a_kernel_that_nothing_says_how_to_unpack_is_a_fault():
    kernel = np.ones((1, 1, 3, 1, 6))
    for constants, words in (
        ({"kernel_lut": TABLE.reshape(4, 4)}, "table of rank 2"),
        ({"kernel_scale": np.ones((3, 1, 1, 2))}, r"a kernel scale of shape \[3, 1, 1, 2\] is not supported"),
    ):
        with pytest.raises(AnecError, match=words):
            packed("linear", V, kernel, (*V.shape[:4], 3), {}, check=False, **constants)
    turned = conv_attrs((1, 1, 1), (1, 1, 1), (0,) * 6, 1, (2, 1, 3, 1, 1))
    with pytest.raises(
        AnecError, match=r"a kernel scale of shape \[3\] is not supported"
    ):  # nobody says along which axis
        packed("deconvolution", SMALL, np.ones((2, 1, 3, 1, 1)), (2, 2, 3, 5, 6), turned, kernel_scale=PER_CHANNEL)
    port = Op("anec.live_in", (), TensorType(V.shape), {"name": "x"})
    weight = Op("anec.const_in", (), TensorType(kernel.shape, "si8"), {"weight": intern_weight(kernel).key})
    op = Op("anec.linear", [port, weight], TensorType((*V.shape[:4], 3)), {"kernel_scale": "lost"})
    out = Op("anec.live_out", [op], None, {"names": ("y",)})
    module = Module([port, weight, op, out], {intern_weight(kernel).key: intern_weight(kernel)})
    with pytest.raises(AnecError, match=r"anec.linear.*refers to weight 'lost'"):
        verify(module)
    with pytest.raises(AnecError, match="weight 'lost' is missing from the module"):
        interpret(module, [V])


@pytest.mark.parametrize("subtract", [True, False])
def test_attention_has_the_sequence_on_channels(subtract):
    q, k, v = (RNG.standard_normal((1, 1, n, 2, 4)) for n in (3, 5, 5))
    mask, scale = RNG.standard_normal((1, 1, 3, 1, 5)), np.full((1, 1, 1, 1, 1), 0.3)
    want = np.zeros((1, 1, 3, 2, 4))
    for h in range(2):
        scores = np.exp(q[0, 0, :, h] @ k[0, 0, :, h].T * 0.3 + mask[0, 0, :, 0])
        want[0, 0, :, h] = scores / scores.sum(1, keepdims=True) @ v[0, 0, :, h]
    attrs = {"subtract_max": True} if subtract else {}
    np.testing.assert_allclose(run("sdpa", (q, k, v, scale, mask), want.shape, attrs), want)


def window_lists(x, attrs):
    pads = attrs["padding"]
    sizes = [(s + pads[2 * i] + pads[2 * i + 1] - attrs["ksize"][i]) // attrs["stride"][i] + 1
             for i, s in enumerate((x.shape[1], *x.shape[3:]))]  # fmt: skip
    y = np.empty((x.shape[0], sizes[0], x.shape[2], *sizes[1:]), dtype=object)
    for n, d, c, h, w in np.ndindex(y.shape):
        starts = [i * s - p for i, s, p in zip((d, h, w), attrs["stride"], pads[::2], strict=True)]
        y[n, d, c, h, w] = [
            x[n, at[0], c, at[1], at[2]]
            for at in itertools.product(*(range(s, s + k) for s, k in zip(starts, attrs["ksize"], strict=True)))
            if all(0 <= p < m for p, m in zip(at, (x.shape[1], *x.shape[3:]), strict=True))
        ]
    return y


@pytest.mark.parametrize(
    "attrs",
    [
        {"ksize": (1, 2, 2), "padding": (0,) * 6, "stride": (1, 2, 2)},
        {"ksize": (2, 3, 2), "padding": (0, 1, 1, 1, 0, 1), "stride": (1, 2, 3)},
    ],
)
def test_pools(attrs):
    lists = window_lists(V, attrs)

    def want(function):
        return np.vectorize(function, otypes=[float])(lists)

    shape = lists.shape
    np.testing.assert_allclose(run("max_pool", (V,), shape, attrs), want(max))
    np.testing.assert_allclose(run("average_pool", (V,), shape, attrs), want(np.mean))
    area = math.prod(attrs["ksize"])
    np.testing.assert_allclose(
        run("average_pool", (V,), shape, {**attrs, "inc_pad": True}), want(lambda v: sum(v) / area)
    )
    np.testing.assert_allclose(run("l2norm_pool", (V,), shape, attrs), want(lambda v: math.hypot(*v)))


GRID = {  # where an axis of four is read for two and for eight outputs
    "UnalignedCorners": ([0.5, 2.5], [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]),
    "StrictAlignedCorners": ([0, 3], [3 * i / 7 for i in range(8)]),
    "AlignedCorners": ([0, 3], [3 * i / 7 for i in range(8)]),
    "OffsetCorners": ([0.75, 2.25], [3 / 16 + 3 / 8 * i for i in range(8)]),
    "Default": ([0, 2], [0, 0.5, 1, 1.5, 2, 2.5, 3, 3]),
}


@pytest.mark.parametrize("mode", GRID)
def test_resize_samples_a_ramp_at_the_grid(mode):
    ramp = np.arange(4.0).reshape(1, 1, 1, 4, 1) + 10 * np.arange(4.0)
    for out, places in zip((2, 8), GRID[mode], strict=True):
        attrs = {"height": out, "width": out, "sampling_methods": "Linear", "sampling_modes": mode}
        want = np.add.outer(np.array(places), 10 * np.array(places))[None, None, None]
        np.testing.assert_allclose(run("resize", (ramp,), want.shape, attrs), want)


def test_resize_by_the_nearest_neighbour():
    ramp = np.arange(3.0).reshape(1, 1, 1, 1, 3)
    attrs = {"height": 1, "width": 7, "sampling_methods": "NearestNeighbor", "sampling_modes": "Default"}
    np.testing.assert_array_equal(run("resize", (ramp,), (1, 1, 1, 1, 7), attrs).ravel(), [0, 0, 0, 1, 1, 2, 2])
    attrs = {**attrs, "width": 1, "sampling_modes": "AlignedCorners"}
    assert run("resize", (ramp,), (1, 1, 1, 1, 1), attrs) == 1
    assert run("resize", (ramp,), (1, 1, 1, 1, 1), {**attrs, "sampling_modes": "StrictAlignedCorners"}) == 0
    with pytest.raises(AnecError, match="OffsetDefault"):
        run("resize", (ramp,), (1, 1, 1, 1, 1), {**attrs, "sampling_modes": "OffsetDefault"})


def test_crops_are_stacked_along_the_batch():
    boxes = np.array([[0.0, 1.0], [2.0, 3.0]]).reshape(1, 1, 2, 1, 2)
    attrs = {
        "output_dims": (2, 2),
        "crop_dims": (2, 2),
        "sampling_method": "Linear",
        "sampling_mode": "StrictAlignedCorners",
    }
    got = run("crop_resize", (PLANE, boxes), (2, 1, 8, 2, 2), attrs)
    np.testing.assert_allclose(got, np.concatenate([PLANE[..., 0:2, 1:3], PLANE[..., 2:4, 3:5]]))


def test_resample_reads_columns_then_rows():
    grid = np.array([[[0.0, 2.5]], [[1.0, 1.0]]])[None, None]
    attrs = {
        "coordinate_mode": "NonNormalized",
        "sampling_method": "Linear",
        "sampling_mode": "Default",
        "background_value": 7.0,
    }
    got = run("resample", (PLANE, grid), (1, 1, 8, 1, 2), attrs)
    want = np.stack([PLANE[..., 1, 0], (PLANE[..., 1, 2] + PLANE[..., 1, 3]) / 2], -1)[:, :, :, None]
    np.testing.assert_allclose(got, want)
    outside = run("resample", (PLANE, grid + 100), (1, 1, 8, 1, 2), attrs)
    np.testing.assert_allclose(outside, 7.0)
    corner = run("resample", (PLANE, np.ones((1, 1, 2, 1, 1))), (1, 1, 8, 1, 1), {**attrs, "coordinate_mode":
                 "NormalizedSymmetric", "sampling_method": "NearestNeighbor"})  # fmt: skip
    np.testing.assert_allclose(corner, PLANE[..., -1:, -1:])


@pytest.mark.parametrize("case", POINTWISE + MOVED + REDUCED, ids=lambda case: case[0])
def test_meaning(case):
    kind, arrays, attrs, want = case
    np.testing.assert_allclose(run(kind, arrays, want.shape, attrs), want, rtol=1e-9, atol=1e-12)


def test_quant_gives_bytes():
    attrs = {"scale": 0.25, "zero_point": 3, "to": "ui8"}
    np.testing.assert_array_equal(run("quant", (X,), X.shape, attrs, "ui8"), np.clip(np.round(4 * X) + 3, 0, 255))


@pytest.mark.parametrize("case", COMPARED, ids=lambda case: case[0])
def test_comparisons_are_bool(case):
    kind, arrays, want = case
    got = run(kind, arrays, want.shape, dtype="i1")
    assert got.dtype == bool
    np.testing.assert_array_equal(got, want)


APART = {  # tested by name above or below
    *("convolution", "deconvolution", "matmul", "linear", "sdpa", "average_pool", "max_pool", "l2norm_pool"),
    *("resize", "crop_resize", "resample", "state", "live_in", "live_out", "const_in", "select", "unit", "quant"),
}


def test_every_op_has_a_meaning_and_a_test():
    names = {*spec_names(), *structural_names()}
    assert interpreted_names() == names
    tested = {case[0] for case in [*POINTWISE, *COMPARED, *MOVED, *REDUCED]} | APART
    assert {f"anec.{name}" for name in tested} == names


# Programs.


def test_states_constants_and_select():
    weight = intern_weight([1.0, 2.0, 3.0])
    module = parse(
        f"""%0 = "anec.state"() {{name = "s"}} : () -> tensor<1x1x1x1x3xf16>
        %1 = "anec.const_in"() {{weight = "{weight.key}"}} : () -> tensor<1x1x1x1x3xf16>
        %2 = "anec.live_in"() {{name = "c"}} : () -> tensor<1x1x1x1x3xi1>
        %3 = "anec.select"(%2, %0, %1) : (tensor<1x1x1x1x3xi1>, tensor<1x1x1x1x3xf16>, tensor<1x1x1x1x3xf16>)
          -> tensor<1x1x1x1x3xf16>
        "anec.live_out"(%3, %2) {{names = ["y", "c"]}} : (tensor<1x1x1x1x3xf16>, tensor<1x1x1x1x3xi1>) -> ()"""
    )
    cond = np.array([True, False, False]).reshape(1, 1, 1, 1, 3)
    with pytest.raises(AnecError, match="is missing from the module"):
        interpret(module, [cond])
    module.weights[weight.key] = weight
    result = interpret(verify(module), {"c": cond})
    np.testing.assert_array_equal(result["y"].ravel(), [0, 2, 3])
    assert result["c"].dtype == bool
    fed = interpret(module, {"c": cond, "s": np.full((1, 1, 1, 1, 3), 9.0)})
    np.testing.assert_array_equal(fed["y"].ravel(), [9, 2, 3])
    with pytest.raises(AnecError, match="input c has no value"):
        interpret(module, {})
    with pytest.raises(AnecError, match="1 inputs, but 2 values were passed"):
        interpret(module, [cond, cond])
    with pytest.raises(AnecError, match=r"c: input has shape \[1, 1, 1, 1, 2\]; expected \[1, 1, 1, 1, 3\]"):
        interpret(module, [cond[..., :2]])


def test_faults_name_the_op():
    with pytest.raises(AnecError, match=r"anec.relu: gave shape \[1, 1, 4, 4, 6\], its type says"):
        run("relu", (X,), (1, 1, 4, 4, 7), check=False)
    with pytest.raises(AnecError, match=r"anec\.concat"):
        run("concat", (X, V), X.shape, {"axis": 2}, check=False)
    with pytest.raises(AnecError, match="InvalidInputViewSize"):
        run("input_view", (X,), X.shape, {"dimension": 4, "offset": 1, "size": 6, "step": 1}, check=False)
    with pytest.raises(AnecError, match="'Nothing'"):
        run("unit", (X,), X.shape, {"type": "Nothing", "params": Params()})
    with pytest.raises(AnecError, match="backend op of its own"):
        run("unit", (X,), X.shape, {"type": "Neuron", "params": Params({"Type": "ReLU"})})
    assert "TopK" in UNITS


def test_dead_values_are_freed():
    """Live memory stays at a few arrays however long the program is."""
    import tracemalloc

    size = (1, 1, 64, 32, 32)
    ops = [Op("anec.live_in", (), TensorType(size), {"name": "x"})]
    for _ in range(60):
        ops.append(Op("anec.relu", [ops[-1]], TensorType(size)))
    ops.append(Op("anec.live_out", [ops[-1]], None, {"names": ("y",)}))
    x = np.ones(size)
    interpret(Module(ops), [x])
    tracemalloc.start()
    interpret(Module(ops), [x])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * x.nbytes
