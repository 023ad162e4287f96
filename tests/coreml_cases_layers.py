# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""Layers over channels, height and width: what to build, and what it gives in plain NumPy."""

from __future__ import annotations

import numpy as np
from coreml_network_kit import case, numbers, positive

# References in plain NumPy.


def conv(x, w, b=None, stride=(1, 1), pads=((0, 0), (0, 0)), groups=1, dilation=(1, 1)):
    x = np.pad(x, ((0, 0), *pads))
    kh, kw = (w.shape[2] - 1) * dilation[0] + 1, (w.shape[3] - 1) * dilation[1] + 1
    height, width = (x.shape[1] - kh) // stride[0] + 1, (x.shape[2] - kw) // stride[1] + 1
    out = np.zeros((w.shape[0], height, width))
    each_in, each_out = x.shape[0] // groups, w.shape[0] // groups
    for o in range(w.shape[0]):
        g = o // each_out
        for i in range(height):
            for j in range(width):
                top, left = i * stride[0], j * stride[1]
                part = x[g * each_in : (g + 1) * each_in, top : top + kh : dilation[0], left : left + kw : dilation[1]]
                out[o, i, j] = (part * w[o]).sum()
    return out if b is None else out + b[:, None, None]


def pool(x, size, stride, pads, function, fill):
    x = np.pad(x, ((0, 0), *pads), constant_values=fill)
    height, width = (x.shape[1] - size) // stride + 1, (x.shape[2] - size) // stride + 1
    rows = [
        [
            function(x[:, i * stride : i * stride + size, j * stride : j * stride + size].reshape(len(x), -1))
            for j in range(width)
        ]
        for i in range(height)
    ]
    return np.array(rows).transpose(2, 0, 1)


def lines(x, grids):
    for axis, points in zip((1, 2), grids, strict=True):
        moved = np.moveaxis(x, axis, -1)
        flat = moved.reshape(-1, moved.shape[-1])
        held = np.clip(points, 0, flat.shape[1] - 1)
        found = np.stack([np.interp(held, np.arange(flat.shape[1]), line) for line in flat])
        x = np.moveaxis(found.reshape(*moved.shape[:-1], len(held)), -1, axis)
    return x


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


X = numbers(4, 6, 8)
W = numbers(3, 3, 4, 6, seed=2)  # height, width, in, out, as the builder takes it
K = W.transpose(3, 2, 0, 1)
B6 = numbers(6, seed=3)


def add_conv(b, weight=W, groups=1, bias=B6, **settings):
    told = {"stride_height": 1, "stride_width": 1, "border_mode": "valid"} | settings
    b.add_convolution(
        "conv",
        weight.shape[2],
        weight.shape[3],
        3,
        3,
        groups=groups,
        W=weight,
        b=bias,
        has_bias=bias is not None,
        input_name="x",
        output_name="y",
        **told,
    )


case("convolution", add_conv, X, expected=lambda x: conv(x, K, B6))
case(
    "convolution",
    lambda b: add_conv(b, border_mode="same", stride_height=2, stride_width=2),
    X,
    expected=lambda x: conv(x, K, B6, (2, 2), ((0, 1), (0, 1))),
)
case(
    "convolution",
    lambda b: add_conv(
        b, border_mode="same", stride_height=2, stride_width=2, same_padding_asymmetry_mode="TOP_LEFT_HEAVY"
    ),
    X,
    expected=lambda x: conv(x, K, B6, (2, 2), ((1, 0), (1, 0))),
)
case(
    "convolution",
    lambda b: add_conv(b, W[:, :, :2], 2, None, padding_top=1, padding_left=2, dilation_factors=[2, 1]),
    X,
    expected=lambda x: conv(x, K[:, :2], None, (1, 1), ((1, 0), (2, 0)), 2, (2, 1)),
)
case(
    "convolution",
    add_conv,
    numbers(2, 4, 6, 8),
    expected=lambda x: np.stack([conv(each, K, B6) for each in x]),
    exact=True,
)


def add_deconv(b, **settings):
    told = {"stride_height": 2, "stride_width": 2, "border_mode": "valid"} | settings
    b.add_convolution(
        "deconv",
        4,
        5,
        3,
        3,
        groups=1,
        W=DW,
        b=None,
        has_bias=False,
        is_deconv=True,
        input_name="x",
        output_name="y",
        **told,
    )


DW = numbers(3, 3, 4, 5, seed=4)  # height, width, in, out


def deconv(x, crop=((0, 0), (0, 0))):
    out = np.zeros((5, (x.shape[1] - 1) * 2 + 3, (x.shape[2] - 1) * 2 + 3))
    for c in range(4):
        for i in range(x.shape[1]):
            for j in range(x.shape[2]):
                out[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += x[c, i, j] * DW[:, :, c].transpose(2, 0, 1)
    (top, bottom), (left, right) = crop
    return out[:, top : out.shape[1] - bottom, left : out.shape[2] - right]


case("convolution", add_deconv, X, expected=deconv)
case("convolution", lambda b: add_deconv(b, border_mode="same"), X, expected=lambda x: deconv(x, ((0, 1), (0, 1))))
FLAT = numbers(5, 192, seed=5) / 8
case(
    "innerProduct",
    lambda b: b.add_inner_product("fc", FLAT, numbers(5), 192, 5, True, "x", "y"),
    X,
    expected=lambda x: FLAT @ x.reshape(-1) + numbers(5),
)
case(
    "innerProduct",
    lambda b: b.add_inner_product("fc", numbers(5, 8), None, 8, 5, False, "x", "y"),
    numbers(2, 3, 8),
    expected=lambda x: x @ numbers(5, 8).T,
    exact=True,
)
S4 = [positive(4), numbers(4, seed=1), numbers(4, seed=2), positive(4)]


def col(v):
    return v[:, None, None]


case(
    "batchnorm",
    lambda b: b.add_batchnorm("bn", 4, S4[0], S4[1], S4[2], S4[3], "x", "y", epsilon=1e-3),
    X,
    expected=lambda x: (x - col(S4[2])) / np.sqrt(col(S4[3]) + 1e-3) * col(S4[0]) + col(S4[1]),
)
case(
    "batchnorm",
    lambda b: b.add_batchnorm(
        "bn", 4, S4[0], S4[1], None, None, "x", "y", compute_mean_var=True, instance_normalization=True, epsilon=1e-3
    ),
    X,
    expected=lambda x: (
        (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 1e-3) * col(S4[0]) + col(S4[1])
    ),
)


def add_pool(b, kind="MAX", padding="VALID", size=3, stride=2, **settings):
    b.add_pooling("pool", size, size, stride, stride, kind, padding, "x", "y", **settings)


case("pooling", add_pool, X, expected=lambda x: pool(x, 3, 2, ((0, 0), (0, 0)), lambda w: w.max(-1), -np.inf))
case(
    "pooling",
    lambda b: add_pool(b, padding="SAME"),
    X,
    expected=lambda x: pool(x, 3, 2, ((0, 1), (0, 1)), lambda w: w.max(-1), -np.inf),
)
case(
    "pooling",
    lambda b: add_pool(b, padding="INCLUDE_LAST_PIXEL"),
    X,
    expected=lambda x: pool(x, 3, 2, ((0, 1), (0, 1)), lambda w: w.max(-1), -np.inf),
)
case(
    "pooling",
    lambda b: add_pool(b, "AVERAGE", stride=1, padding_top=1, padding_left=1, exclude_pad_area=False),
    X,
    expected=lambda x: pool(x, 3, 1, ((1, 0), (1, 0)), lambda w: w.mean(-1), 0),
)
case(
    "pooling",
    lambda b: add_pool(b, "AVERAGE", "SAME", stride=1, exclude_pad_area=True),
    X,
    expected=lambda x: pool(x, 3, 1, ((1, 1), (1, 1)), lambda w: np.nanmean(w, -1), np.nan),
)
case(
    "pooling",
    lambda b: add_pool(b, "L2", size=2),
    X,
    expected=lambda x: pool(x, 2, 2, ((0, 0), (0, 0)), lambda w: np.sqrt((w**2).sum(-1)), 0),
)
case("pooling", lambda b: add_pool(b, "AVERAGE", is_global=True), X, expected=lambda x: x.mean((1, 2)))
for mode, form, settings in (
    ("constant", "constant", {"constant_values": 2.0}),
    ("reflection", "reflect", {}),
    ("replication", "edge", {}),
):
    case(
        "padding",
        lambda b, m=mode, s=settings: b.add_padding("pad", 1, 2, 0, 3, s.get("constant_values", 0), "x", "y", m),
        X,
        expected=lambda x, f=form, s=settings: np.pad(x, ((0, 0), (0, 3), (1, 2)), mode=f, **s),
    )
case("crop", lambda b: b.add_crop("crop", 1, 2, 0, 3, [0, 0], ["x"], "y"), X, expected=lambda x: x[:, 0:3, 1:6])
case(
    "upsample", lambda b: b.add_upsample("up", 2, 3, "x", "y", "NN"), X, expected=lambda x: x.repeat(2, 1).repeat(3, 2)
)
case(
    "upsample",
    lambda b: b.add_upsample("up", 2, 2, "x", "y", "BILINEAR"),
    X,
    expected=lambda x: lines(x, [np.arange(12) / 2, np.arange(16) / 2]),
)
case(
    "upsample",
    lambda b: b.add_upsample("up", 2, 2, "x", "y", "BILINEAR", "ALIGN_CORNERS_TRUE"),
    X,
    expected=lambda x: lines(x, [np.linspace(0, 5, 12), np.linspace(0, 7, 16)]),
)
case(
    "resizeBilinear",
    lambda b: b.add_resize_bilinear("r", "x", "y", 4, 5, "STRICT_ALIGN_ENDPOINTS_MODE"),
    X,
    expected=lambda x: lines(x, [np.linspace(0, 5, 4), np.linspace(0, 7, 5)]),
)


def add_act(b, name, params=None):
    b.add_activation("act", name, "x", "y", params)


for name, params, function in (
    ("RELU", None, lambda x: np.maximum(x, 0)),
    ("LEAKYRELU", [0.25], lambda x: np.where(x > 0, x, x / 4)),
    ("THRESHOLDEDRELU", 0.5, lambda x: np.where(x >= 0.5, x, 0)),
    ("TANH", None, np.tanh),
    ("SCALED_TANH", [0.5, 2.0], lambda x: 0.5 * np.tanh(2 * x)),
    ("SIGMOID", None, sigmoid),
    ("SIGMOID_HARD", [0.25, 0.5], lambda x: np.clip(0.25 * x + 0.5, 0, 1)),
    ("ELU", 0.5, lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    ("SOFTSIGN", None, lambda x: x / (1 + np.abs(x))),
    ("SOFTPLUS", None, lambda x: np.logaddexp(0, x)),
    ("LINEAR", [0.5, 2.0], lambda x: 0.5 * x + 2),
    ("PRELU", S4[0], lambda x: np.where(x > 0, x, col(S4[0]) * x)),
    ("PARAMETRICSOFTPLUS", [S4[0], S4[3]], lambda x: col(S4[0]) * np.logaddexp(0, col(S4[3]) * x)),
):
    case("activation", lambda b, n=name, p=params: add_act(b, n, p), X, expected=function)
for name, function in {
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x + 1e-3),
    "inverse": lambda x: 1 / (x + 1e-3),
    "power": lambda x: x**1.5,
    "exp": np.exp,
    "log": np.log,
    "abs": np.abs,
    "threshold": lambda x: np.maximum(x, 1.5),
}.items():
    case(
        "unary",
        lambda b, n=name: b.add_unary("u", "x", "y", n, alpha=1.5, shift=0.5, scale=0.25, epsilon=1e-3),
        positive(4, 6, 8),
        expected=lambda x, f=function: f(0.25 * x + 0.5),
    )
case(
    "add",
    lambda b: b.add_elementwise("e", ["x", "z"], "y", "ADD"),
    X,
    numbers(4, 1, 1, seed=6),
    expected=lambda x, z: x + z,
)
case("add", lambda b: b.add_elementwise("e", ["x"], "y", "ADD", alpha=1.5), X, expected=lambda x: x + 1.5)
case(
    "multiply",
    lambda b: b.add_elementwise("e", ["x", "z"], "y", "MULTIPLY"),
    X,
    numbers(1, 6, 8, seed=6),
    expected=lambda x, z: x * z,
)
case(
    "average",
    lambda b: b.add_elementwise("e", ["x", "z"], "y", "AVE"),
    X,
    numbers(4, 6, 8, seed=6),
    expected=lambda x, z: (x + z) / 2,
)
case("max", lambda b: b.add_elementwise("e", ["x", "z"], "y", "MAX"), X, numbers(4, 6, 8, seed=6), expected=np.maximum)
case("min", lambda b: b.add_elementwise("e", ["x", "z"], "y", "MIN"), X, numbers(4, 6, 8, seed=6), expected=np.minimum)
case(
    "dot",
    lambda b: b.add_elementwise("e", ["x", "z"], "y", "DOT"),
    numbers(8),
    numbers(8, seed=6),
    expected=lambda x, z: [np.array([x @ z])],
)
case(
    "dot",
    lambda b: b.add_elementwise("e", ["x", "z"], "y", "COS"),
    numbers(8),
    numbers(8, seed=6),
    expected=lambda x, z: [np.array([x @ z / np.linalg.norm(x) / np.linalg.norm(z)])],
)
case(
    "concat",
    lambda b: b.add_elementwise("e", ["x", "z"], "y", "CONCAT"),
    X,
    numbers(2, 6, 8),
    expected=lambda x, z: np.concatenate([x, z]),
)
case(
    "scale",
    lambda b: b.add_scale("s", S4[0], S4[1], True, "x", "y", shape_scale=[4], shape_bias=[4]),
    X,
    expected=lambda x: x * col(S4[0]) + col(S4[1]),
)
case(
    "scale",
    lambda b: b.add_scale("s", numbers(1, 6, 8), None, False, "x", "y", shape_scale=[1, 6, 8]),
    X,
    expected=lambda x: x * numbers(1, 6, 8),
)
case("bias", lambda b: b.add_bias("s", S4[1], "x", "y", shape_bias=[4]), X, expected=lambda x: x + col(S4[1]))


def add_constant(b):
    b.add_load_constant("c", "k", numbers(4, 1, 1), [4, 1, 1])
    b.add_elementwise("e", ["x", "k"], "y", "ADD")


case("loadConstant", add_constant, X, expected=lambda x: x + numbers(4, 1, 1))
case("flatten", lambda b: b.add_flatten("f", 0, "x", "y"), X, expected=lambda x: x.reshape(-1))
case("flatten", lambda b: b.add_flatten("f", 1, "x", "y"), X, expected=lambda x: x.transpose(1, 2, 0).reshape(-1))
case("reshape", lambda b: b.add_reshape("r", "x", "y", (8, 4, 6), 0), X, expected=lambda x: x.reshape(8, 4, 6))
case(
    "reshape",
    lambda b: b.add_reshape("r", "x", "y", (8, 4, 6), 1),
    X,
    expected=lambda x: x.transpose(1, 2, 0).reshape(4, 6, 8).transpose(2, 0, 1),
)
case("permute", lambda b: b.add_permute("p", (0, 3, 1, 2), "x", "y"), X, expected=lambda x: x.transpose(2, 0, 1))
case("split", lambda b: b.add_split("s", "x", ["y0", "y1"]), X, expected=lambda x: [x[:2], x[2:]], outputs=2)
case(
    "reorganizeData",
    lambda b: b.add_reorganize_data("r", "x", "y", "SPACE_TO_DEPTH", 2),
    X,
    expected=lambda x: x.reshape(4, 3, 2, 4, 2).transpose(2, 4, 0, 1, 3).reshape(16, 3, 4),
)
case(
    "reorganizeData",
    lambda b: b.add_reorganize_data("r", "x", "y", "DEPTH_TO_SPACE", 2),
    numbers(8, 1, 2),
    expected=lambda x: x.reshape(2, 2, 2, 1, 2).transpose(2, 3, 0, 4, 1).reshape(2, 2, 4),
)
case("slice", lambda b: b.add_slice("s", "x", "y", "height", 1, -1, 2), X, expected=lambda x: x[:, 1:-1:2])
for mode, function in {
    "sum": np.sum,
    "avg": np.mean,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "sumsquare": lambda x, **a: (x**2).sum(**a),
    "L1": lambda x, **a: np.abs(x).sum(**a),
    "L2": lambda x, **a: np.sqrt((x**2).sum(**a)),
}.items():
    case(
        "reduce",
        lambda b, m=mode: b.add_reduce("r", "x", "y", "HW", m),
        numbers(4, 2, 3) / 2,
        expected=lambda x, f=function: f(x, axis=(1, 2)),
    )
case("reduce", lambda b: b.add_reduce("r", "x", "y", "C", "argmax"), X, expected=lambda x: x.argmax(0)[None])
case(
    "lrn",
    lambda b: b.add_lrn("l", "x", "y", 0.5, 0.75, 3, 2.0),
    X,
    expected=lambda x: (
        x / (2 + 0.5 / 3 * sum(np.pad(x**2, ((1, 1), (0, 0), (0, 0)))[i : i + 4] for i in range(3))) ** 0.75
    ),
)
case(
    "mvn",
    lambda b: b.add_mvn("m", "x", "y", False, True, 1e-3),
    X,
    expected=lambda x: (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 1e-3),
)
case("mvn", lambda b: b.add_mvn("m", "x", "y", True, False), X, expected=lambda x: x - x.mean())
case(
    "l2normalize",
    lambda b: b.add_l2_normalize("l", "x", "y", 1e-3),
    X,
    expected=lambda x: x / np.sqrt((x**2).sum() + 1e-3),
)
case("softmax", lambda b: b.add_softmax("s", "x", "y"), numbers(5), expected=lambda x: softmax(x, 0))
case(
    "embedding",
    lambda b: b.add_embedding("e", numbers(3, 50), numbers(3), 50, 3, True, "x", "y"),
    np.float32([7]),
    expected=lambda x: numbers(3, 50)[:, 7] + numbers(3),
)
case(
    "embeddingND",
    lambda b: b.add_embedding_nd("e", "x", "y", 50, 3, numbers(3, 50)),
    np.float32([[7], [49]]),
    expected=lambda x: numbers(3, 50)[:, [7, 49]].T,
    exact=True,
)
