# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""Layers that keep their own axes, and recurrent ones."""

from __future__ import annotations

import math

import numpy as np
from coreml_cases_layers import sigmoid, softmax
from coreml_network_kit import case, numbers, positive

# Layers that keep their own axes.
N = numbers(2, 3, 4)
case(
    "addBroadcastable",
    lambda b: b.add_add_broadcastable("a", ["x", "z"], "y"),
    N,
    numbers(3, 1),
    expected=lambda x, z: x + z,
    exact=True,
)
case(
    "subtractBroadcastable",
    lambda b: b.add_subtract_broadcastable("a", ["x", "z"], "y"),
    N,
    numbers(4),
    expected=lambda x, z: x - z,
    exact=True,
)
case(
    "divideBroadcastable",
    lambda b: b.add_divide_broadcastable("a", ["x", "z"], "y"),
    N,
    positive(4),
    expected=lambda x, z: x / z,
    exact=True,
)
case(
    "powBroadcastable",
    lambda b: b.add_pow_broadcastable("a", ["x", "z"], "y"),
    positive(2, 3),
    numbers(3),
    expected=lambda x, z: x**z,
    exact=True,
)
case(
    "greaterThan", lambda b: b.add_greater_than("a", ["x"], "y", alpha=0.5), N, expected=lambda x: x > 0.5, exact=True
)
case(
    "transpose",
    lambda b: b.add_transpose("t", (2, 0, 1), "x", "y"),
    N,
    expected=lambda x: x.transpose(2, 0, 1),
    exact=True,
)
case("softmaxND", lambda b: b.add_softmax_nd("s", "x", "y", 1), N, expected=lambda x: softmax(x, 1), exact=True)
case(
    "concatND",
    lambda b: b.add_concat_nd("c", ["x", "z"], "y", 1),
    N,
    numbers(2, 5, 4),
    expected=lambda x, z: np.concatenate([x, z], 1),
    exact=True,
)
case(
    "stack",
    lambda b: b.add_stack("s", ["x", "z"], "y", 1),
    N,
    numbers(2, 3, 4, seed=4),
    expected=lambda x, z: np.stack([x, z], 1),
    exact=True,
)
case(
    "splitND",
    lambda b: b.add_split_nd("s", "x", ["y0", "y1"], 2, split_sizes=[1, 3]),
    N,
    expected=lambda x: [x[..., :1], x[..., 1:]],
    exact=True,
    outputs=2,
)
case(
    "reshapeStatic",
    lambda b: b.add_reshape_static("r", "x", "y", (4, -1)),
    N,
    expected=lambda x: x.reshape(4, 6),
    exact=True,
)
case("squeeze", lambda b: b.add_squeeze("s", "x", "y", [1]), numbers(2, 1, 4), expected=lambda x: x[:, 0], exact=True)
case(
    "expandDims",
    lambda b: b.add_expand_dims("s", "x", "y", [0, 2]),
    numbers(2, 4),
    expected=lambda x: x[None, :, None],
    exact=True,
)
case(
    "sliceStatic",
    lambda b: b.add_slice_static(
        "s", "x", "y", [0, 1, 0], [2, 3, 4], [1, 1, 2], [True, False, False], [True, False, False]
    ),
    N,
    expected=lambda x: x[:, 1:3, ::2],
    exact=True,
)
case("tile", lambda b: b.add_tile("t", "x", "y", [2, 1, 3]), N, expected=lambda x: np.tile(x, (2, 1, 3)), exact=True)
case(
    "reduceSum",
    lambda b: b.add_reduce_sum("r", "x", "y", axes=[1], keepdims=False),
    N,
    expected=lambda x: x.sum(1),
    exact=True,
)
case(
    "reduceMax",
    lambda b: b.add_reduce_max("r", "x", "y", reduce_all=True),
    N,
    expected=lambda x: x.max(keepdims=True),
    exact=True,
)
case("argMax", lambda b: b.add_argmax("a", "x", "y", 1, keepdims=False), N, expected=lambda x: x.argmax(1), exact=True)
case(
    "gelu",
    lambda b: b.add_gelu("g", "x", "y", "TANH_APPROXIMATION"),
    N,
    expected=lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    exact=True,
)
case("clip", lambda b: b.add_clip("c", "x", "y", -0.5, 1.0), N, expected=lambda x: np.clip(x, -0.5, 1), exact=True)
case("erf", lambda b: b.add_erf("c", "x", "y"), N, expected=np.vectorize(math.erf), exact=True)
case(
    "layerNormalization",
    lambda b: b.add_layer_normalization("l", "x", "y", [4], numbers(4), numbers(4, seed=2), 1e-3),
    N,
    expected=lambda x: (
        (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3) * numbers(4) + numbers(4, seed=2)
    ),
    exact=True,
)
case(
    "batchedMatmul",
    lambda b: b.add_batched_mat_mul("m", ["x", "z"], "y", transpose_b=True),
    N,
    numbers(2, 5, 4),
    expected=lambda x, z: x @ z.swapaxes(1, 2),
    exact=True,
)
case(
    "batchedMatmul",
    lambda b: b.add_batched_mat_mul(
        "m", ["x"], "y", weight_matrix_rows=4, weight_matrix_columns=5, W=numbers(4, 5), bias=numbers(5)
    ),
    N,
    expected=lambda x: x @ numbers(4, 5) + numbers(5),
    exact=True,
)
case("cumSum", lambda b: b.add_cumsum("c", ["x"], "y", 1), N, expected=lambda x: x.cumsum(1), exact=True)
case(
    "topK",
    lambda b: b.add_topk("t", ["x"], ["y0", "y1"], 2, 1),
    np.random.default_rng(0).permutation(12).reshape(3, 4).astype(np.float32),
    expected=lambda x: [-np.sort(-x, 1)[:, :2], np.argsort(-x, 1)[:, :2]],
    exact=True,
    outputs=2,
)
case(
    "constantPad",
    lambda b: b.add_constant_pad("p", ["x"], "y", 2.0, pad_to_given_output_size_mode=False, pad_amounts=[0, 1, 2, 0]),
    numbers(2, 3),
    expected=lambda x: np.pad(x, ((0, 1), (2, 0)), constant_values=2),
    exact=True,
)
case(
    "lowerTriangular",
    lambda b: b.add_lower_triangular("t", "x", "y", 1),
    numbers(4, 4),
    expected=lambda x: np.tril(x, 1),
    exact=True,
)
case(
    "whereBroadcastable",
    lambda b: b.add_where_broadcastable("w", ["x", "z", "w"], "y"),
    (numbers(3, 4) > 0).astype(np.float32),
    numbers(3, 4),
    numbers(3, 4, seed=7),
    expected=np.where,
    exact=True,
)


def add_gather(b):
    b.add_load_constant_nd("c", "i", np.float32([2, 0]), (2,))
    b.add_gather("g", ["x", "i"], "y", 1)


case("gather", add_gather, N, expected=lambda x: x[:, [2, 0]], exact=True)
case(
    "gather",
    lambda b: b.add_gather("g", ["x", "z"], "y", 1),
    N,
    np.float32([2, 0]),
    expected=lambda x, z: x[:, [2, 0]],
    exact=True,
)

# Recurrent layers: [sequence, batch, features, 1, 1].
SEQ = numbers(4, 2, 3, 1, 1)
WX, WH, WB = (
    [numbers(*shape, seed=i + shift) / 2 for i in range(4)] for shape, shift in (((5, 3), 0), ((5, 5), 10), ((5,), 20))
)


def lstm(x, backwards=False, all_steps=True):
    x = x[::-1, :, :, 0, 0] if backwards else x[:, :, :, 0, 0]
    h, c, out = np.zeros((2, 5)), np.zeros((2, 5)), []
    for step in x:
        i, f, o, z = (step @ WX[k].T + h @ WH[k].T + WB[k] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(z)
        h = sigmoid(o) * np.tanh(c)
        out.append(h)
    found = np.stack(out[::-1] if backwards else out)[..., None, None]
    return (found if all_steps else h[None, ..., None, None]), h[None, ..., None, None], c[None, ..., None, None]


def add_lstm(b, names=("y",), **settings):
    b.add_unilstm("l", WH, WX, WB, 5, 3, ["x"], list(names), output_all=True, **settings)


case("uniDirectionalLSTM", lambda b: add_lstm(b, ("y0", "y1", "y2")), SEQ, expected=lstm, exact=True, outputs=3)
case(
    "uniDirectionalLSTM",
    lambda b: add_lstm(b, reverse_input=True),
    SEQ,
    expected=lambda x: lstm(x, True)[0],
    exact=True,
)


def add_both(b):
    b.add_bidirlstm("l", WH, WX, WB, WH, WX, WB, 5, 3, ["x"], ["y"], output_all=True)


case(
    "biDirectionalLSTM",
    add_both,
    SEQ,
    expected=lambda x: np.concatenate([lstm(x)[0], lstm(x, True)[0]], 2),
    exact=True,
)


def gru(x):
    h, out = np.zeros((2, 5)), []
    for step in x[:, :, :, 0, 0]:
        z, r = (sigmoid(step @ WX[k].T + h @ WH[k].T + WB[k]) for k in range(2))
        o = np.tanh(step @ WX[2].T + (r * h) @ WH[2].T + WB[2])
        h = (1 - z) * o + z * h
        out.append(h)
    return np.stack(out)[..., None, None]


case(
    "gru",
    lambda b: b.add_gru(
        "g", WH[:3], WX[:3], WB[:3], 5, 3, ["x"], ["y"], activation="TANH", inner_activation="SIGMOID", output_all=True
    ),
    SEQ,
    expected=gru,
    exact=True,
)


def simple(x):
    h = np.zeros((2, 5))
    for step in x[:, :, :, 0, 0]:
        h = np.maximum(step @ WX[0].T + h @ WH[0].T + WB[0], 0)
    return h[None, ..., None, None]


case(
    "simpleRecurrent",
    lambda b: b.add_simple_rnn("s", WH[0], WX[0], WB[0], 5, 3, "RELU", ["x"], ["y"]),
    SEQ,
    expected=simple,
    exact=True,
)
