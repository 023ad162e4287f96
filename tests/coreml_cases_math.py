# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""Arithmetic, products, norms, pools and reductions of MIL: what to build, and what it gives in plain NumPy."""

from __future__ import annotations

import numpy as np
from coreml_kit import IOS16, IOS18, case, mb, numbers, positive
from coreml_references import channels, conv_nd, deconv_nd, pooled, sigmoid, softmax

X = numbers(1, 4, 6, 8)

# Elementwise.
for name in [
    "abs",
    "atan",
    "ceil",
    "cos",
    "erf",
    "exp",
    "exp2",
    "floor",
    "relu",
    "relu6",
    "round",
    "sign",
    "sin",
    "sinh",
    "cosh",
    "square",
    "tanh",
    "sigmoid",
    "softplus",
]:
    case(name, lambda x, name=name: getattr(mb, name)(x=x), X)
case("tan", lambda x: mb.tan(x=x), numbers(4, 5) / 2)
case("acos", lambda x: mb.acos(x=x), numbers(4, 5) / 4)
case("asin", lambda x: mb.asin(x=x), numbers(4, 5) / 4)
case("atanh", lambda x: mb.atanh(x=x), numbers(4, 5) / 4)
case("sqrt", lambda x: mb.sqrt(x=x), positive(3, 4))
case("rsqrt", lambda x: mb.rsqrt(x=x), positive(3, 4))
case("inverse", lambda x: mb.inverse(x=x, epsilon=np.float32(0.5)), positive(3, 4))
case("log", lambda x: mb.log(x=x), positive(3, 4))
case("log", lambda x: mb.log(x=x, epsilon=np.float32(0.25)), positive(3, 4))
case("softsign", lambda x: mb.softsign(x=x), X)
case("silu", lambda x: mb.silu(x=x), X, expected=lambda x: x * sigmoid(x))
case("gelu", lambda x: mb.gelu(x=x, mode="EXACT"), X)
case("gelu", lambda x: mb.gelu(x=x, mode="TANH_APPROXIMATION"), X)
case("gelu", lambda x: mb.gelu(x=x, mode="SIGMOID_APPROXIMATION"), X)
case("elu", lambda x: mb.elu(x=x, alpha=np.float32(0.5)), X)
case("leaky_relu", lambda x: mb.leaky_relu(x=x, alpha=np.float32(0.25)), X)
case("thresholded_relu", lambda x: mb.thresholded_relu(x=x, alpha=np.float32(0.5)), X)
case("threshold", lambda x: mb.threshold(x=x, alpha=np.float32(0.5)), X)
case("clamped_relu", lambda x: mb.clamped_relu(x=x, alpha=np.float32(0.5), beta=np.float32(1.0)), X)
case("scaled_tanh", lambda x: mb.scaled_tanh(x=x, alpha=np.float32(0.5), beta=np.float32(2.0)), X)
case("sigmoid_hard", lambda x: mb.sigmoid_hard(x=x, alpha=np.float32(0.25), beta=np.float32(0.5)), X)
case("linear_activation", lambda x: mb.linear_activation(x=x, alpha=np.float32(0.5), beta=np.float32(2.0)), X)
case("clip", lambda x: mb.clip(x=x, alpha=np.float32(-0.5), beta=np.float32(1.0)), X)
case(
    "clip",
    lambda x: mb.clip(x=x, alpha=np.float32(0.0), beta=np.float32(np.inf)),
    X,
    expected=lambda x: np.maximum(x, 0),
)
case("prelu", lambda x: mb.prelu(x=x, alpha=np.float32([0.5, 0.25, 0, 1])), X)
case(
    "softplus_parametric",
    lambda x: mb.softplus_parametric(x=x, alpha=np.float32([1, 2, 0.5, 1]), beta=np.float32([1, 0.5, 2, 1])),
    X,
)
for name in ["add", "sub", "mul", "maximum", "minimum", "mod", "floor_div", "real_div"]:
    case(name, lambda x, y, name=name: getattr(mb, name)(x=x, y=y), numbers(2, 3, 4), positive(3, 1))
case("pow", lambda x, y: mb.pow(x=x, y=y), positive(2, 3), numbers(3))
case("pow", lambda x: mb.pow(x=x, y=np.float32(2.0)), X)
for name in ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]:
    case(name, lambda x, y, name=name: getattr(mb, name)(x=x, y=y), numbers(3, 4), numbers(3, 4, seed=5))


def logic(name):
    return lambda x, y: getattr(mb, name)(x=mb.greater(x=x, y=np.float32(0)), y=mb.greater(x=y, y=np.float32(0)))


for name in ["logical_and", "logical_or", "logical_xor"]:
    case(name, logic(name), numbers(3, 4), numbers(3, 4, seed=5))
case("logical_not", lambda x: mb.logical_not(x=mb.greater(x=x, y=np.float32(0))), numbers(3, 4))
case("select", lambda x, y: mb.select(cond=mb.greater(x=x, y=y), a=x, b=y), numbers(3, 4), numbers(3, 4, seed=5))
case("select", lambda x: mb.select(cond=np.array([True, False, True]), a=x, b=np.float32([1, 2, 3])), numbers(4, 3))
case("cast", lambda x: mb.cast(x=mb.cast(x=x, dtype="int32"), dtype="fp32"), X, expected=np.trunc)
case("cast", lambda x: mb.cast(x=mb.greater(x=x, y=np.float32(0)), dtype="fp32"), X, expected=lambda x: x > 0)
case("cast", lambda x: mb.cast(x=x, dtype="bool"), X, expected=lambda x: x != 0)
case("identity", lambda x: mb.identity(x=x), X)

# Products.
W33 = numbers(6, 4, 3, 3, seed=2)
case(
    "conv",
    lambda x: mb.conv(x=x, weight=W33, bias=np.float32([0, 1, 2, 3, 4, 5]), pad_type="valid"),
    X,
    expected=lambda x: conv_nd(x, W33, np.arange(6)),
)
case(
    "conv",
    lambda x: mb.conv(x=x, weight=W33, pad_type="same", strides=[2, 2]),
    X,
    expected=lambda x: conv_nd(x, W33, stride=[2, 2], pads=[(0, 1), (0, 1)]),
)
case(
    "conv",
    lambda x: mb.conv(x=x, weight=W33, pad_type="same_lower", strides=[2, 2]),
    X,
    expected=lambda x: conv_nd(x, W33, stride=[2, 2], pads=[(1, 0), (1, 0)]),
    target=IOS16,
)
case(
    "conv",
    lambda x: mb.conv(x=x, weight=W33[:, :2], pad_type="custom", pad=[1, 0, 2, 1], groups=2, dilations=[2, 1]),
    X,
    expected=lambda x: conv_nd(x, W33[:, :2], pads=[(1, 0), (2, 1)], dilation=[2, 1], groups=2),
)
case(
    "conv",
    lambda x: mb.conv(x=x, weight=W33[..., 0], pad_type="same"),
    numbers(2, 4, 9),
    expected=lambda x: conv_nd(x, W33[..., 0], pads=[(1, 1)]),
)
case("conv", lambda x, y: mb.conv(x=x, weight=y, pad_type="valid"), X, W33, expected=conv_nd)
T33 = numbers(4, 3, 3, 3, seed=4)
case(
    "conv_transpose",
    lambda x: mb.conv_transpose(x=x, weight=T33, strides=[2, 2], bias=np.float32([1, 2, 3])),
    X,
    expected=lambda x: deconv_nd(x, T33, np.arange(1, 4), stride=[2, 2]),
)
case(
    "conv_transpose",
    lambda x: mb.conv_transpose(x=x, weight=T33, strides=[2, 1], pad_type="same"),
    X,
    expected=lambda x: deconv_nd(x, T33, stride=[2, 1], cut=[(0, 1), (1, 1)]),
)
case(
    "conv_transpose",
    lambda x: mb.conv_transpose(x=x, weight=T33, pad_type="custom", pad=[1, 0, 0, 1]),
    X,
    expected=lambda x: deconv_nd(x, T33, cut=[(1, 0), (0, 1)]),
)
case(
    "conv_transpose",
    lambda x: mb.conv_transpose(
        x=x,
        weight=T33,
        pad_type="custom",
        pad=[0, 0, 1, 1],
        strides=[2, 2],
        output_shape=[1, 3, 14, 16],
        bias=np.float32([1, 2, 3]),
    ),
    X,
    expected=lambda x: deconv_nd(x, T33, np.arange(1, 4), [2, 2], [(0, 0), (1, 1)], size=[14, 16]),
)
case(
    "conv_transpose",
    lambda x: mb.conv_transpose(x=x, weight=T33[:, :, 0], groups=2, strides=[3]),
    numbers(1, 4, 5),
    expected=lambda x: deconv_nd(x, T33[:, :, 0], stride=[3], groups=2),
)
LIN = numbers(5, 8, seed=3)
case(
    "linear",
    lambda x: mb.linear(x=x, weight=LIN, bias=np.float32([1, 2, 3, 4, 5])),
    X,
    expected=lambda x: x @ LIN.T + np.arange(1, 6),
)
case("linear", lambda x: mb.linear(x=x, weight=LIN), numbers(8), expected=lambda x: x @ LIN.T)
case("matmul", lambda x, y: mb.matmul(x=x, y=y), numbers(2, 3, 4), numbers(2, 4, 5))
case("matmul", lambda x, y: mb.matmul(x=x, y=y, transpose_x=True, transpose_y=True), numbers(2, 4, 3), numbers(5, 4))
case("matmul", lambda x: mb.matmul(x=x, y=LIN, transpose_y=True), X)
case("matmul", lambda x: mb.matmul(x=LIN, y=x), numbers(8, 3))
case(
    "einsum",
    lambda x, y: mb.einsum(values=(x, y), equation="nchw,nwhu->nchu"),
    X,
    numbers(1, 8, 6, 5),
    expected=lambda x, y: np.einsum("nchw,nwhu->nchu", x, y),
)


def attended(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e9) if mask.dtype == bool else scores + mask
    return softmax(scores) @ v


QKV = [numbers(1, 2, 5, 4, seed=i) for i in range(3)]
MASK = np.tril(np.ones((1, 1, 5, 5), bool))
case(
    "scaled_dot_product_attention",
    lambda x, y, z: mb.scaled_dot_product_attention(query=x, key=y, value=z),
    *QKV,
    expected=attended,
    target=IOS18,
)
case(
    "scaled_dot_product_attention",
    lambda x, y, z: mb.scaled_dot_product_attention(query=x, key=y, value=z, attn_mask=MASK),
    *QKV,
    expected=lambda q, k, v: attended(q, k, v, MASK),
    target=IOS18,
)
case(
    "scaled_dot_product_attention",
    lambda x, y, z, w: mb.scaled_dot_product_attention(query=x, key=y, value=z, attn_mask=w),
    numbers(2, 3, 4),
    numbers(2, 6, 4),
    numbers(2, 6, 5),
    numbers(2, 3, 6),
    expected=attended,
    target=IOS18,
)

# Norms.
C4 = [np.float32([1, 2, 0.5, 4]), np.float32([0.5, 1, 0.25, 2]), np.float32([1, -1, 0, 2]), np.float32([0, 1, 2, 3])]


case(
    "batch_norm",
    lambda x: mb.batch_norm(x=x, mean=C4[2], variance=C4[1], gamma=C4[0], beta=C4[3]),
    X,
    expected=lambda x: (x - channels(C4[2])) / np.sqrt(channels(C4[1]) + 1e-5) * channels(C4[0]) + channels(C4[3]),
)
case(
    "batch_norm",
    lambda x: mb.batch_norm(x=x, mean=C4[2], variance=C4[1]),
    numbers(2, 4, 5),
    expected=lambda x: (x - channels(C4[2], 3)) / np.sqrt(channels(C4[1], 3) + 1e-5),
)


def whitened(x, axes, eps=1e-5):
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + eps)


G8, G48 = numbers(8, seed=7), numbers(4, 8, seed=8)
case(
    "layer_norm",
    lambda x: mb.layer_norm(x=x, axes=[-1], gamma=G8, beta=G8),
    X,
    expected=lambda x: whitened(x, (3,)) * G8 + G8,
)
case(
    "layer_norm",
    lambda x: mb.layer_norm(x=x, axes=[1, 3], gamma=G48, beta=G48, epsilon=np.float32(1e-3)),
    X,
    expected=lambda x: whitened(x, (1, 3), 1e-3) * G48.reshape(1, 4, 1, 8) + G48.reshape(1, 4, 1, 8),
)
case("layer_norm", lambda x: mb.layer_norm(x=x, axes=[1]), X, expected=lambda x: whitened(x, (1,)))
case(
    "instance_norm",
    lambda x: mb.instance_norm(x=x, gamma=C4[0], beta=C4[3]),
    X,
    expected=lambda x: whitened(x, (2, 3)) * channels(C4[0]) + channels(C4[3]),
)
case("instance_norm", lambda x: mb.instance_norm(x=x), X, expected=lambda x: whitened(x, (2, 3)))
case("l2_norm", lambda x: mb.l2_norm(x=x, epsilon=np.float32(1e-3)), X)
case("l2_norm", lambda x: mb.l2_norm(x=x), numbers(2, 8, 1, 1))
case(
    "local_response_norm",
    lambda x: mb.local_response_norm(x=x, size=3, alpha=np.float32(0.5), beta=np.float32(0.75), k=np.float32(2.0)),
    X,
    expected=lambda x: (
        x / (2 + 0.5 / 3 * sum(np.pad(x**2, ((0, 0), (1, 1), (0, 0), (0, 0)))[:, i : i + 4] for i in range(3))) ** 0.75
    ),
)
case("softmax", lambda x: mb.softmax(x=x, axis=1), X, expected=lambda x: softmax(x, 1))

# Pools.
case(
    "max_pool",
    lambda x: mb.max_pool(x=x, kernel_sizes=[2, 3], strides=[2, 1], pad_type="valid"),
    X,
    expected=lambda x: pooled(x, [2, 3], [2, 1], [(0, 0), (0, 0)], lambda w: w.max(-1), -np.inf),
)
case(
    "max_pool",
    lambda x: mb.max_pool(x=x, kernel_sizes=[3, 3], strides=[2, 2], pad_type="custom", pad=[1, 1, 1, 0]),
    X,
    expected=lambda x: pooled(x, [3, 3], [2, 2], [(1, 1), (1, 0)], lambda w: w.max(-1), -np.inf),
)
case(
    "max_pool",
    lambda x: mb.max_pool(x=x, kernel_sizes=[3], strides=[2], pad_type="same"),
    numbers(1, 2, 8),
    expected=lambda x: pooled(x, [3], [2], [(0, 1)], lambda w: w.max(-1), -np.inf),
)
case(
    "avg_pool",
    lambda x: mb.avg_pool(x=x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid"),
    X,
    expected=lambda x: pooled(x, [2, 2], [2, 2], [(0, 0), (0, 0)], lambda w: w.mean(-1), 0),
)
case(
    "avg_pool",
    lambda x: mb.avg_pool(x=x, kernel_sizes=[3, 3], pad_type="custom", pad=[1, 1, 1, 1]),
    X,
    expected=lambda x: pooled(x, [3, 3], [1, 1], [(1, 1), (1, 1)], lambda w: w.mean(-1), 0),
)
case(
    "avg_pool",
    lambda x: mb.avg_pool(x=x, kernel_sizes=[3, 3], pad_type="same", exclude_padding_from_average=True),
    X,
    expected=lambda x: pooled(x, [3, 3], [1, 1], [(1, 1), (1, 1)], lambda w: np.nanmean(w, -1), np.nan),
)
case(
    "avg_pool",
    lambda x: mb.avg_pool(x=x, kernel_sizes=[3, 3], strides=[2, 2], pad_type="valid", ceil_mode=True),
    X,
    expected=lambda x: pooled(x, [3, 3], [2, 2], [(0, 1), (0, 1)], lambda w: np.nanmean(w, -1), np.nan),
)
case(
    "l2_pool",
    lambda x: mb.l2_pool(x=x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid"),
    X,
    expected=lambda x: pooled(x, [2, 2], [2, 2], [(0, 0), (0, 0)], lambda w: np.sqrt((w**2).sum(-1)), 0),
)

# Reductions.
for name in ["sum", "mean", "max", "min", "sum_square", "l1_norm", "l2_norm", "prod"]:
    case(
        f"reduce_{name}",
        lambda x, name=name: getattr(mb, f"reduce_{name}")(x=x, axes=[1, -1], keep_dims=True),
        numbers(2, 3, 4),
    )
case("reduce_log_sum", lambda x: mb.reduce_log_sum(x=x, axes=[1], keep_dims=False), positive(2, 3))
case("reduce_log_sum_exp", lambda x: mb.reduce_log_sum_exp(x=x, axes=[0], keep_dims=False), numbers(4, 3))
case("reduce_sum", lambda x: mb.reduce_sum(x=x, keep_dims=False), numbers(4, 3))
case(
    "reduce_mean",
    lambda x: mb.add(x=mb.expand_dims(x=mb.reduce_mean(x=x, keep_dims=False), axes=[0]), y=x),
    numbers(3),
    expected=lambda x: x + x.mean(),
)
case("reduce_argmax", lambda x: mb.reduce_argmax(x=x, axis=1, keep_dims=True), numbers(3, 9))
case("reduce_argmax", lambda x: mb.reduce_argmax(x=x, axis=1, keep_dims=False), numbers(2, 5, 4))
case("reduce_argmin", lambda x: mb.reduce_argmin(x=x, axis=-1, keep_dims=False), numbers(2, 5, 4))
case("cumsum", lambda x: mb.cumsum(x=x, axis=1), numbers(2, 5))
case(
    "cumsum",
    lambda x: mb.cumsum(x=x, axis=0, exclusive=True, reverse=True),
    numbers(4, 3),
    expected=lambda x: np.flip(np.cumsum(np.flip(x, 0), 0), 0) - x,
)
ORDER = np.random.default_rng(0).permutation(24).reshape(2, 3, 4).astype(np.float32)
case("argsort", lambda x: mb.argsort(x=x, axis=1, ascending=True), ORDER)
case("argsort", lambda x: mb.argsort(x=x), ORDER)
case("topk", lambda x: mb.topk(x=x, k=2, axis=1), ORDER)
case("topk", lambda x: mb.topk(x=x, k=3, axis=-1, ascending=True), ORDER)
