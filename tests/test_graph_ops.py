"""Every op of the graph language against NumPy written here from the definition of the op, loops and all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import aneforge as af
from aneforge.graph import definitions
from aneforge.graph import layer_forms as native
from aneforge.graph.node import make

RNG = np.random.default_rng(20240607)


def rand(*shape):
    return RNG.standard_normal(shape)


def half(*shape):
    """Random constants that fp16 holds exactly, since that is how weights are stored."""
    return rand(*shape).astype(np.float16).astype(np.float64)


def per_channel(vector, x):
    return np.asarray(vector).reshape([1, -1] + [1] * (x.ndim - 2))


@dataclass
class Case:
    op: str
    build: Callable[..., Any]
    expect: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]


CASES: list[Case] = []


def case(op, build, expect, *arrays):
    CASES.append(Case(op, build, expect, arrays))


def evaluated(build, arrays):
    inputs = [af.input(array.shape) for array in arrays]
    out = build(*inputs)
    return out, af.evaluate(out, dict(zip(inputs, arrays, strict=True)))


# Arithmetic and comparisons, with broadcasting on either side.

BROADCASTS = [((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((3, 1), (2, 1, 4)), ((1,), (2, 1, 3, 1, 2))]
BINARY = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "real_div": (lambda a, b: a / b, lambda a, b: a / b),
    "floor_div": (lambda a, b: a // b, lambda a, b: np.floor(a / b)),
    "mod": (lambda a, b: a % b, lambda a, b: a - b * np.floor(a / b)),
    "maximum": (af.maximum, lambda a, b: np.where(a > b, a, b)),
    "minimum": (af.minimum, lambda a, b: np.where(a < b, a, b)),
    "atan2": (af.atan2, lambda a, b: np.angle(b + 1j * a)),
    "equal": (lambda a, b: a == b, lambda a, b: a == b),
    "not_equal": (lambda a, b: a != b, lambda a, b: a != b),
    "less": (lambda a, b: a < b, lambda a, b: a < b),
    "less_equal": (lambda a, b: a <= b, lambda a, b: a <= b),
    "greater": (lambda a, b: a > b, lambda a, b: a > b),
    "greater_equal": (lambda a, b: a >= b, lambda a, b: a >= b),
}
for _name, (_build, _expect) in BINARY.items():
    for _a, _b in BROADCASTS:
        case(_name, _build, _expect, rand(*_a), rand(*_b))
for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    _ties = RNG.integers(-1, 2, (4, 5)).astype(float), RNG.integers(-1, 2, (4, 5)).astype(float)
    case(_name, *BINARY[_name], *_ties)
for _a, _b in BROADCASTS:
    case("pow", lambda a, b: a**b, lambda a, b: np.exp(b * np.log(a)), np.abs(rand(*_a)) + 0.1, rand(*_b))
case("pow", lambda a: 2.0**a, lambda a: np.exp(a * math.log(2)), rand(3))
case("pow", lambda a: a.pow(3), lambda a: a * a * a, rand(3))
case("add", lambda a: np.arange(3.0) + a.adds(1.5), lambda a: np.arange(3) + a + 1.5, rand(2, 3))
case("sub", lambda a: np.arange(3.0) - (2.0 - a), lambda a: np.arange(3) - 2 + a, rand(2, 3))
case("mul", lambda a: -a * np.float32(0.5), lambda a: -0.5 * a, rand(2, 3))
case("real_div", lambda a: 1.0 / a / 4, lambda a: 0.25 / a, rand(2, 3))

LOGICAL = {
    "logical_and": (lambda a, b: (a > 0) & (b > 0), lambda a, b: np.logical_and(a > 0, b > 0)),
    "logical_or": (lambda a, b: (a > 0) | (b > 0), lambda a, b: np.logical_or(a > 0, b > 0)),
    "logical_xor": (lambda a, b: (a > 0) ^ (b > 0), lambda a, b: (a > 0) != (b > 0)),
}
for _name, (_build, _expect) in LOGICAL.items():
    case(_name, _build, _expect, rand(3, 4), rand(4))
case("logical_not", lambda a: ~(a > 0), lambda a: a <= 0, rand(3, 4))
case("select", lambda c, a, b: af.where(c > 0, a, b), lambda c, a, b: np.choose(c > 0, [b, a]), *[rand(3, 4)] * 3)
case("select", lambda c, a: af.select(c > 0, a, 2.0), lambda c, a: np.where(c > 0, a, 2), rand(3, 1), rand(2, 1, 4))
case("cast", lambda a: (a > 0).cast(), lambda a: np.where(a > 0, 1.0, 0.0), rand(3, 4))

# Pointwise functions, by another formula than NumPy's own function where there is one.


def erf(x):
    """The integral itself, by Gauss-Legendre."""
    points, weights = np.polynomial.legendre.leggauss(60)
    t = (points + 1) / 2
    return 2 / math.sqrt(math.pi) * x * (np.exp(-np.square(x[..., None] * t)) * weights / 2).sum(-1)


WIDE = np.concatenate([rand(20) * 3, [0.0, 0.5, -0.5, 1.5, 2.5, 6.0, 7.0, -7.0]])
POSITIVE = np.abs(rand(4, 5)) + 0.05
INSIDE = np.tanh(rand(4, 5))
UNARY = {
    "relu": (lambda x: x * (x > 0), WIDE),
    "relu6": (lambda x: np.minimum(x * (x > 0), 6), WIDE),
    "gelu": (lambda x: x * (1 + erf(x / math.sqrt(2))) / 2, WIDE),
    "silu": (lambda x: x * (0.5 + 0.5 * np.tanh(x / 2)), WIDE),
    "sigmoid": (lambda x: 0.5 + 0.5 * np.tanh(x / 2), WIDE),
    "tanh": (lambda x: 1 - 2 / (np.exp(2 * x) + 1), WIDE),
    "exp": (lambda x: math.e**x, WIDE),
    "exp2": (lambda x: 2**x, WIDE),
    "sqrt": (lambda x: x**0.5, POSITIVE),
    "abs": (lambda x: np.maximum(x, -x), WIDE),
    "square": (lambda x: x * x, WIDE),
    "sin": (lambda x: np.exp(1j * x).imag, WIDE),
    "cos": (lambda x: np.exp(1j * x).real, WIDE),
    "tan": (lambda x: np.sin(x) / np.cos(x), INSIDE),
    "asin": (lambda x: np.arctan(x / np.sqrt(1 - x * x)), INSIDE),
    "acos": (lambda x: math.pi / 2 - np.arctan(x / np.sqrt(1 - x * x)), INSIDE),
    "atan": (lambda x: np.angle(1 + 1j * x), WIDE),
    "sinh": (lambda x: (np.exp(x) - np.exp(-x)) / 2, WIDE),
    "cosh": (lambda x: (np.exp(x) + np.exp(-x)) / 2, WIDE),
    "asinh": (lambda x: np.log(x + np.sqrt(x * x + 1)), POSITIVE),
    "acosh": (lambda x: np.log(x + np.sqrt(x * x - 1)), POSITIVE + 1),
    "atanh": (lambda x: 0.5 * np.log((1 + x) / (1 - x)), INSIDE),
    "erf": (erf, WIDE / 2),
    "softplus": (lambda x: np.log(1 + np.exp(x)), WIDE),
    "softsign": (lambda x: np.where(x > 0, x / (1 + x), x / (1 - x)), WIDE),
    "floor": (lambda x: x // 1, WIDE),
    "ceil": (lambda x: -((-x) // 1), WIDE),
    "round": (lambda x: np.array([float(round(v)) for v in x]), WIDE),
    "sign": (lambda x: (x > 0) * 1.0 - (x < 0) * 1.0, WIDE),
}
for _name, (_expect, _points) in UNARY.items():
    case(_name, lambda x, name=_name: getattr(x, name)(), _expect, _points)

SCALED = {
    "log": [((0.0,), POSITIVE, lambda x, e: np.log2(x) * math.log(2)), ((0.5,), POSITIVE, lambda x, e: np.log(x + e))],
    "rsqrt": [((0.0,), POSITIVE, lambda x, e: x**-0.5), ((0.25,), POSITIVE, lambda x, e: (x + e) ** -0.5)],
    "inverse": [((0.0,), POSITIVE, lambda x, e: x**-1), ((0.1,), POSITIVE, lambda x, e: (x + e) ** -1)],
    "elu": [((0.7,), WIDE, lambda x, a: np.where(x > 0, x, a * np.exp(x) - a))],
    "leaky_relu": [((0.1,), WIDE, lambda x, a: np.maximum(x, a * x))],
    "clip": [((-0.5, 1.25), WIDE, lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi))],
    "scaled_tanh": [((1.7, 0.6), WIDE, lambda x, a, b: a * (1 - 2 / (np.exp(2 * b * x) + 1)))],
    "threshold": [((0.3,), WIDE, lambda x, a: np.where(x < a, a, x))],
    "thresholded_relu": [((0.5,), WIDE, lambda x, a: x * (x >= a))],
    "clamped_relu": [((0.2, 1.5), WIDE, lambda x, a, b: np.minimum(np.where(x < 0, a * x, x), b))],
    "sigmoid_hard": [((0.3, 0.4), WIDE, lambda x, a, b: np.minimum(np.maximum(a * x + b, 0), 1))],
    "linear_activation": [((1.3, -0.2), WIDE, lambda x, a, b: a * x + b)],
}
for _name, _rows in SCALED.items():
    for _values, _points, _expect in _rows:
        case(
            _name,
            lambda x, name=_name, values=_values: getattr(x, name)(*values),
            lambda x, expect=_expect, values=_values: expect(x, *values),
            _points,
        )
case("clip", lambda x: x.clamp(lo=0.0, hi=math.inf), lambda x: x * (x > 0), WIDE)


def away(value):
    """The nearest whole number, halves away from zero."""
    return math.copysign(math.floor(abs(value) + 0.5), value)


def coded(x, scale, zero, low, high):
    return np.array([min(max(away(v / scale) + zero, low), high) for v in x.reshape(-1)]).reshape(x.shape)


_SPREAD = np.linspace(-55.0, 61.0, 24)
_HALVES = np.array([[-80.0, -0.75, -0.25, -0.2, 0.0], [0.25, 0.3, 0.75, 63.4, 90.0]])
case("quantize", lambda x: af.quantize(x, 0.5), lambda x: coded(x, 0.5, 0, -128, 127), _HALVES)
case("quantize", lambda x: af.quantize(x, 0.3, 7), lambda x: coded(x, 0.3, 7, -128, 127), _SPREAD.reshape(3, 4, 2))
case("quantize", lambda x: af.quantize(x, 0.5, 128, "uint8"), lambda x: coded(x, 0.5, 128, 0, 255), _HALVES)
case(
    "dequantize",
    lambda x: af.dequantize(af.quantize(x, 0.25, 3), 0.25, 3),
    lambda x: (coded(x, 0.25, 3, -128, 127) - 3) * 0.25,
    _SPREAD.reshape(1, 3, 4, 2),
)
case("dequantize", lambda x: af.dequantize(x, 0.5, 2), lambda x: (x - 2) * 0.5, np.arange(-6.0, 6.0).reshape(3, 4))
_alpha = half(3)
case("prelu", lambda x: x.prelu(_alpha), lambda x: np.where(x < 0, x * _alpha[:, None], x), rand(2, 3, 5))
case(
    "prelu", lambda x, a: x.prelu(a), lambda x, a: np.where(x < 0, x * per_channel(a, x), x), rand(2, 3, 2, 2), rand(3)
)

# Reductions.


def folded(function, x, axes):
    """Reduce by moving the axes to the end and calling a function of a flat list."""
    axes = [axis % x.ndim for axis in axes]
    rest = [axis for axis in range(x.ndim) if axis not in axes]
    moved = x.transpose([*rest, *axes]).reshape([x.shape[axis] for axis in rest] + [-1])
    flat = moved.reshape(-1, moved.shape[-1])
    result = np.array([function(row.tolist()) for row in flat])
    return result.reshape([1 if axis in axes else size for axis, size in enumerate(x.shape)])


REDUCTIONS = {
    "sum": math.fsum,
    "mean": lambda row: math.fsum(row) / len(row),
    "amax": max,
    "amin": min,
    "sum_square": lambda row: math.fsum(v * v for v in row),
    "l1_norm": lambda row: math.fsum(abs(v) for v in row),
    "log_sum": lambda row: math.log(math.fsum(row)),
    "reduce_log_sum_exp": lambda row: math.log(math.fsum(math.exp(v) for v in row)),
    "prod": math.prod,
}
for _name, _function in REDUCTIONS.items():
    _points = np.abs(rand(2, 3, 4)) + 0.1 if _name == "log_sum" else rand(2, 3, 4)
    for _axes in (None, 1, -1, [0, 2], (-3, 1), [2, 1, 0]):
        _listed = (0, 1, 2) if _axes is None else (_axes,) if isinstance(_axes, int) else _axes
        case(
            _name,
            lambda x, name=_name, axes=_axes: getattr(x, name)(axes),
            lambda x, function=_function, axes=_listed: folded(function, x, axes),
            _points,
        )
for _axis in (0, 1, -1):
    case(
        "cumsum",
        lambda x, axis=_axis: x.cumsum(axis),
        lambda x, axis=_axis: np.moveaxis(
            np.array([np.moveaxis(x, axis, 0)[: i + 1].sum(0) for i in range(x.shape[axis])]), 0, axis
        ),
        rand(2, 3, 4),
    )

# Products and convolutions.


def naive_conv(x, w, b=None, stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1), groups=1):
    n, _, height, width = x.shape
    out, per, kh, kw = w.shape
    rows = (height + pad[0] + pad[1] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    columns = (width + pad[2] + pad[3] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    y = np.zeros((n, out, rows, columns))
    for i, o, r, c in itertools.product(range(n), range(out), range(rows), range(columns)):
        total = 0.0 if b is None else b[o]
        for k, u, v in itertools.product(range(per), range(kh), range(kw)):
            row = r * stride[0] - pad[0] + u * dilation[0]
            column = c * stride[1] - pad[2] + v * dilation[1]
            if 0 <= row < height and 0 <= column < width:
                total += x[i, o // (out // groups) * per + k, row, column] * w[o, k, u, v]
        y[i, o, r, c] = total
    return y


def naive_conv_transpose(x, w, b=None, stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1), groups=1):
    n, channels, height, width = x.shape
    _, per, kh, kw = w.shape
    rows = (height - 1) * stride[0] + dilation[0] * (kh - 1) + 1 - pad[0] - pad[1]
    columns = (width - 1) * stride[1] + dilation[1] * (kw - 1) + 1 - pad[2] - pad[3]
    y = np.zeros((n, per * groups, rows, columns))
    for i, k, r, c in itertools.product(range(n), range(channels), range(height), range(width)):
        for o, u, v in itertools.product(range(per), range(kh), range(kw)):
            row = r * stride[0] + u * dilation[0] - pad[0]
            column = c * stride[1] + v * dilation[1] - pad[2]
            if 0 <= row < rows and 0 <= column < columns:
                y[i, k // (channels // groups) * per + o, row, column] += x[i, k, r, c] * w[k, o, u, v]
    return y if b is None else y + np.reshape(b, (1, -1, 1, 1))


CONVOLUTIONS = [  # x, weight of conv, weight of conv_transpose, settings
    ((2, 3, 5, 6), (4, 3, 3, 2), (3, 4, 3, 2), {}),
    ((1, 4, 7, 6), (6, 2, 3, 3), (4, 3, 3, 3), {"stride": (2, 1), "pad": (1, 2, 0, 1), "groups": 2}),
    ((1, 3, 9, 8), (3, 1, 2, 3), (3, 1, 2, 3), {"stride": (3, 2), "dilation": (2, 2), "groups": 3}),
    ((2, 2, 6, 5), (3, 2, 4, 1), (2, 3, 4, 1), {"pad": (2, 0, 1, 1), "dilation": (1, 3)}),
]
for _x, _w, _t, _settings in CONVOLUTIONS:
    _wide = {"stride": (1, 1), "pad": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1, **_settings}
    _kernel, _bias = half(*_w), half(_w[0])
    _back, _offset = half(*_t), half(_t[1] * _wide["groups"])
    case(
        "conv",
        lambda x, w=_kernel, b=_bias, s=_wide: af.conv(x, w, bias=b, **s),
        lambda x, w=_kernel, b=_bias, s=_wide: naive_conv(x, w, b, **s),
        rand(*_x),
    )
    case(
        "dynamic_conv",
        lambda x, w, s=_wide: af.dynamic_conv(x, w, **s),
        lambda x, w, s=_wide: naive_conv(x, w, **s),
        rand(1, *_x[1:]),
        rand(*_w),
    )
    case(
        "conv_transpose",
        lambda x, w=_back, b=_offset, s=_wide: af.conv_transpose(x, w, bias=b, **s),
        lambda x, w=_back, b=_offset, s=_wide: naive_conv_transpose(x, w, b, **s),
        rand(*_x),
    )
case(
    "conv",
    lambda x, w: af.conv(x, w, 2, 1),
    lambda x, w: naive_conv(x, w, None, (2, 2), (1,) * 4),
    *[rand(2, 2, 3, 3)] * 2,
)

for _a, _b in (((3, 4), (4, 2)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((3, 4), (2, 2, 4, 1))):
    case(
        "matmul",
        lambda a, b: a @ b,
        lambda a, b: (a[..., :, :, None] * b[..., None, :, :]).sum(-2),
        rand(*_a),
        rand(*_b),
    )
_stored = half(3, 4, 2)
case("matmul", lambda a: a.bmm_weight(_stored), lambda a: np.einsum("bmk,bkn->bmn", a, _stored), rand(3, 5, 4))
case("matmul", lambda a: _stored[0].T @ a, lambda a: np.einsum("km,kn->mn", _stored[0], a), rand(4, 3))
_matrix, _row = half(5, 4), half(5)
case("linear", lambda x: x.linear(_matrix, _row), lambda x: np.einsum("abk,ok->abo", x, _matrix) + _row, rand(2, 3, 4))
case("linear", af.linear, lambda x, w: np.einsum("k,ok->o", x, w), rand(4), rand(5, 4))
case(
    "einsum",
    lambda a, b: af.einsum_native("nchw, nwhu -> nchu", a, b),
    lambda a, b: np.array([[[a[n, c, h] @ b[n, :, h] for h in range(4)] for c in range(3)] for n in range(2)]),
    rand(2, 3, 4, 5),
    rand(2, 5, 4, 6),
)

# Softmax and the normalisations.


def centred(x, axes, eps):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axes, keepdims=True) + eps)


GAIN, OFFSET, MEAN, VAR = half(4), half(4), half(4), np.array([0.5, 1.25, 2.0, 0.75])
for _axis in (0, 1, -1):
    case(
        "softmax",
        lambda x, axis=_axis: x.softmax(axis),
        lambda x, axis=_axis: np.exp(x) / np.exp(x).sum(axis, keepdims=True),
        rand(2, 3, 4),
    )
    case(
        "l2_norm",
        lambda x, axis=_axis: x.l2_norm(axis, 0.25),
        lambda x, axis=_axis: x / np.sqrt((x * x).sum(axis, keepdims=True) + 0.25),
        rand(2, 3, 4),
    )
case("softmax", lambda x: x.softmax(), lambda x: np.array([1.0, 0.0, 0.0]), np.array([900.0, -900.0, 0.0]))
for _shape in ((4,), (3, 4), (2, 3, 4)):
    case(
        "layer_norm",
        lambda x: x.layer_norm(GAIN, OFFSET, 1e-3),
        lambda x: centred(x, -1, 1e-3) * GAIN + OFFSET,
        rand(*_shape),
    )
    case(
        "rms_norm",
        lambda x: x.rms_norm(GAIN[None], 1e-3),
        lambda x: GAIN * x / np.sqrt(np.mean(x**2, -1, keepdims=True) + 1e-3),
        rand(*_shape),
    )
for _shape in ((3, 4), (2, 4, 3), (2, 4, 3, 2), (1, 4, 2, 3, 2)):
    case(
        "channel_layer_norm",
        lambda x: x.channel_layer_norm(GAIN, OFFSET),
        lambda x: centred(x, 1, 1e-5) * per_channel(GAIN, x) + per_channel(OFFSET, x),
        rand(*_shape),
    )
    case(
        "batch_norm",
        lambda x: af.batch_norm(x, GAIN, OFFSET, MEAN, VAR, 1e-3),
        lambda x: (
            (x - per_channel(MEAN, x)) / np.sqrt(per_channel(VAR, x) + 1e-3) * per_channel(GAIN, x)
            + per_channel(OFFSET, x)
        ),
        rand(*_shape),
    )
    case(
        "local_response_norm",
        lambda x: af.local_response_norm(x, 3, 0.5, 0.75, 2.0),
        lambda x: np.stack(
            [x[:, c] / (2 + 0.5 / 3 * (x[:, max(0, c - 1) : c + 2] ** 2).sum(1)) ** 0.75 for c in range(x.shape[1])],
            axis=1,
        ),
        rand(*_shape),
    )
for _shape in ((2, 4, 3), (2, 4, 3, 2)):
    case(
        "instance_norm",
        lambda x: af.instance_norm(x, GAIN, OFFSET),
        lambda x: centred(x, tuple(range(2, x.ndim)), 1e-5) * per_channel(GAIN, x) + per_channel(OFFSET, x),
        rand(*_shape),
    )
    for _groups in (1, 2, 4):
        case(
            "group_norm",
            lambda x, groups=_groups: x.group_norm(GAIN, OFFSET, groups),
            lambda x, groups=_groups: (
                np.concatenate(
                    [centred(part, tuple(range(1, x.ndim)), 1e-5) for part in np.split(x, groups, axis=1)], axis=1
                )
                * per_channel(GAIN, x)
                + per_channel(OFFSET, x)
            ),
            rand(*_shape),
        )
case(  # an even window reaches further forward (ONNX's rule)
    "local_response_norm",
    lambda x: af.local_response_norm(x, 2, 1.0, 0.5, 1.0),
    lambda x: np.stack([x[:, c] / (1 + 0.5 * (x[:, c : c + 2] ** 2).sum(1)) ** 0.5 for c in range(4)], axis=1),
    rand(2, 4, 3),
)

# Shape ops.

for _to, _want in (((6, 4), (6, 4)), ((-1,), (24,)), ((2, -1, 2), (2, 6, 2)), (([4, 3, 2],), (4, 3, 2))):
    case(
        "reshape",
        lambda x, to=_to: x.reshape(*to),
        lambda x, want=_want: np.array(x.ravel()).reshape(want),
        rand(2, 3, 4),
    )
for _perm in itertools.permutations(range(3)):
    case(
        "transpose",
        lambda x, perm=_perm: x.transpose([axis - 3 for axis in perm]),
        lambda x, perm=_perm: np.einsum(x, [0, 1, 2], list(perm)),
        rand(2, 3, 4),
    )
case("transpose", lambda x: x.T, lambda x: np.moveaxis(x, [0, 1, 2], [2, 1, 0]), rand(2, 3, 4))
case("transpose", lambda x: x.mT, lambda x: x.swapaxes(1, 2), rand(2, 3, 4))
for _axes, _want in ((0, (1, 2, 3)), (-1, (2, 3, 1)), ([0, 2], (1, 2, 1, 3)), ([-1, 0], (1, 2, 3, 1))):
    case("expand_dims", lambda x, axes=_axes: x.expand_dims(axes), lambda x, want=_want: x.reshape(want), rand(2, 3))
for _axes, _want in ((0, (3, 1, 2)), (-2, (1, 3, 2)), ([0, 2], (3, 2)), ([-2, 0], (3, 2))):
    case("squeeze", lambda x, axes=_axes: x.squeeze(axes), lambda x, want=_want: x.reshape(want), rand(1, 3, 1, 2))
case("squeeze", lambda x: x.squeeze([0, 1]), lambda x: x.reshape(1), rand(1, 1))
for _axis, _want in ((0, (1, 24)), (1, (2, 12)), (2, (6, 4)), (3, (24, 1)), (-1, (6, 4))):
    case("flatten2d", lambda x, axis=_axis: x.flatten2d(axis), lambda x, want=_want: x.reshape(want), rand(2, 3, 4))
for _axis in (0, 1, -1):
    case(
        "concat",
        lambda a, b, axis=_axis: af.concat([a, b, a], axis),
        lambda a, b, axis=_axis: np.moveaxis(
            np.array([*np.moveaxis(a, axis, 0), *np.moveaxis(b, axis, 0), *np.moveaxis(a, axis, 0)]), 0, axis
        ),
        rand(2, 3, 2),
        rand(2, 3, 2),
    )
    case(
        "stack",
        lambda a, b, axis=_axis: af.stack([a, b], axis),
        lambda a, b, axis=_axis: np.moveaxis(np.array([a, b]), 0, axis),
        rand(2, 3, 4),
        rand(2, 3, 4),
    )
    case(
        "reverse",
        lambda x, axis=_axis: x.reverse([axis]),
        lambda x, axis=_axis: np.moveaxis(np.moveaxis(x, axis, 0)[::-1], 0, axis),
        rand(2, 3, 4),
    )
    case(
        "gather",
        lambda x, axis=_axis: af.gather(x, [1, -1, 0, 1], axis),
        lambda x, axis=_axis: np.stack(
            [np.moveaxis(x, axis, 0)[i] for i in (1, x.shape[axis] - 1, 0, 1)], axis=axis % 3
        ),
        rand(2, 3, 4),
    )
case("concat", lambda a, b: af.concat([a, b]), lambda a, b: np.hstack([a, b]), rand(2, 3), rand(2, 1))
case("concat", lambda a: af.concat([a > 0, a < 1], 0), lambda a: np.vstack([a > 0, a < 1]), rand(2, 3))
case("reverse", lambda x: x.reverse((0, -1)), lambda x: x[::-1, :, ::-1], rand(2, 3, 4))
case("tile", lambda x: x.tile([2, 1, 3]), lambda x: np.concatenate([np.concatenate([x] * 3, 2)] * 2, 0), rand(2, 3, 2))
case("tile", lambda x: x.tile(3), lambda x: np.concatenate([x] * 3), rand(4))
case("slice_by_size", lambda x: x.slice_by_size([1, 0, 2], [2, 3, 1]), lambda x: x[1:3, 0:3, 2:3], rand(4, 3, 4))
case("slice_by_size", lambda x: af.split(x, 3, -1)[1], lambda x: x[:, 2:4], rand(2, 6))
case("slice_by_index", lambda x: x[1::2, ::3], lambda x: x[[1, 3]][:, [0, 3]], rand(5, 6))
case(
    "pad",
    lambda x: x.pad([(1, 2), (0, 3)], value=1.5),
    lambda x: np.block([[np.full((1, 6), 1.5)], [np.hstack([x, np.full((2, 3), 1.5)])], [np.full((2, 6), 1.5)]]),
    rand(2, 3),
)
_order = {"reflect": [2, 1, 0, 1, 2, 3, 2], "replicate": [0, 0, 0, 1, 2, 3, 3], "symmetric": [1, 0, 0, 1, 2, 3, 3]}
for _mode, _places in _order.items():
    case(
        "pad",
        lambda x, mode=_mode: af.pad(x, [(0, 0), (2, 1)], mode),
        lambda x, places=_places: x[:, places],
        rand(2, 4),
    )
case("crop", lambda x: af.crop(x, 1, 0, 2, 1), lambda x: x[:, :, [1, 2]][:, :, :, [2, 3]], rand(2, 2, 3, 5))

# Space.


def naive_pool(x, kernel, stride, pad, ceil, reduce):
    """A list of the real elements of each window, the count of those and padding, and a rule for both."""
    sizes = []
    for i in range(2):
        length = x.shape[2 + i] + pad[2 * i] + pad[2 * i + 1] - kernel[i]
        steps = math.ceil(length / stride[i]) if ceil else length // stride[i]
        sizes.append(steps + 1 - (steps * stride[i] >= x.shape[2 + i] + pad[2 * i]))
    y = np.zeros((*x.shape[:2], *sizes))
    for n, c, r, q in itertools.product(*(range(size) for size in y.shape)):
        top, left = r * stride[0] - pad[0], q * stride[1] - pad[2]
        rows = range(top, min(top + kernel[0], x.shape[2] + pad[1]))
        columns = range(left, min(left + kernel[1], x.shape[3] + pad[3]))
        inside = [x[n, c, i, j] for i in rows for j in columns if 0 <= i < x.shape[2] and 0 <= j < x.shape[3]]
        y[n, c, r, q] = reduce(inside, len(rows) * len(columns))
    return y


POOLS = [
    ((2, 3, 6, 4), (2, 2), (2, 2), (0, 0, 0, 0)),
    ((1, 2, 7, 8), (3, 2), (2, 3), (1, 1, 0, 1)),
    ((1, 2, 8, 7), (3, 3), (2, 2), (1, 0, 1, 1)),
    ((1, 1, 6, 6), (4, 4), (3, 3), (2, 2, 2, 2)),
]
for _x, _kernel, _stride, _pad in POOLS:
    for _ceil in (False, True):
        case(
            "max_pool",
            lambda x, k=_kernel, s=_stride, p=_pad, c=_ceil: x.max_pool(k, s, p, c),
            lambda x, k=_kernel, s=_stride, p=_pad, c=_ceil: naive_pool(x, k, s, p, c, lambda v, n: max(v)),
            rand(*_x),
        )
        for _exclude in (False, True):
            case(
                "avg_pool",
                lambda x, k=_kernel, s=_stride, p=_pad, c=_ceil, e=_exclude: x.avg_pool(k, s, p, c, e),
                lambda x, k=_kernel, s=_stride, p=_pad, c=_ceil, e=_exclude: naive_pool(
                    x, k, s, p, c, lambda v, n: sum(v) / (len(v) if e else n)
                ),
                rand(*_x),
            )
case("max_pool", lambda x: x.max_pool(2), lambda x: x.reshape(1, 1, 2, 2, 3, 2).max((3, 5)), rand(1, 1, 4, 6))
case(
    "upsample_nearest_neighbor",
    lambda x: x.upsample((2, 3)),
    lambda x: np.kron(x, np.ones((1, 1, 2, 3))),
    rand(2, 2, 3, 4),
)


def naive_bilinear(x, height, width, align):
    y = np.zeros((*x.shape[:2], height, width))
    for r, c in itertools.product(range(height), range(width)):
        spots = []
        for i, size, out in ((r, x.shape[2], height), (c, x.shape[3], width)):
            if align:
                spot = i * (size - 1) / (out - 1) if out > 1 else 0.0
            else:
                spot = min(max((i + 0.5) * size / out - 0.5, 0), size - 1)
            spots.append(spot)
        for u, v in itertools.product(range(x.shape[2]), range(x.shape[3])):
            share = max(0, 1 - abs(spots[0] - u)) * max(0, 1 - abs(spots[1] - v))
            y[:, :, r, c] += share * x[:, :, u, v]
    return y


for _align in (False, True):
    case(
        "upsample_bilinear",
        lambda x, a=_align: af.upsample_bilinear(x, (2, 3), a),
        lambda x, a=_align: naive_bilinear(x, 6, 12, a),
        rand(1, 2, 3, 4),
    )
    for _h, _w in ((5, 7), (2, 3), (1, 1), (3, 4)):
        case(
            "resize_bilinear",
            lambda x, h=_h, w=_w, a=_align: af.resize_bilinear(x, h, w, a),
            lambda x, h=_h, w=_w, a=_align: naive_bilinear(x, h, w, a),
            rand(2, 1, 3, 4),
        )
for _h, _w in ((6, 8), (2, 3), (5, 7)):
    case(
        "resize_nearest_neighbor",
        lambda x, h=_h, w=_w: af.resize_nearest_neighbor(x, h, w),
        lambda x, h=_h, w=_w: np.stack(
            [np.stack([x[:, :, r * 3 // h, c * 4 // w] for c in range(w)], -1) for r in range(h)], -2
        ),
        rand(2, 2, 3, 4),
    )


def naive_affine(x, transform, height, width, align):
    """Every output pixel looks up a place; every input pixel within one of it gives its share."""
    n, _, h, w = x.shape
    y = np.zeros((*x.shape[:2], height, width))
    for i, r, c in itertools.product(range(n), range(height), range(width)):
        if align:
            u, v = 2 * c / (width - 1) - 1, 2 * r / (height - 1) - 1
        else:
            u, v = (2 * c + 1) / width - 1, (2 * r + 1) / height - 1
        gx, gy = transform[i].reshape(2, 3) @ (u, v, 1)
        px, py = (((gx + 1) * w - 1) / 2, ((gy + 1) * h - 1) / 2)
        if align:
            px, py = (gx + 1) / 2 * (w - 1), (gy + 1) / 2 * (h - 1)
        for a, b in itertools.product(range(h), range(w)):
            y[i, :, r, c] += x[i, :, a, b] * max(0, 1 - abs(py - a)) * max(0, 1 - abs(px - b))
    return y


for _align in (False, True):
    case(
        "affine",
        lambda x, t, a=_align: af.affine(x, t, 4, 5, a),
        lambda x, t, a=_align: naive_affine(x, t, 4, 5, a),
        rand(2, 2, 3, 4),
        np.array([[1.0, 0, 0, 0, 1, 0], [0.9, -0.3, 0.2, 0.4, 0.7, -0.1]]),
    )


def naive_to_space(x, r, block_first):
    """``block_first`` is TensorFlow's order (block, then channel), else PyTorch's (channel, then block)."""
    n, c, h, w = x.shape
    out = c // (r * r)
    y = np.zeros((n, out, h * r, w * r))
    for o, i, j in itertools.product(range(out), range(r), range(r)):
        source = (i * r + j) * out + o if block_first else o * r * r + i * r + j
        y[:, o, i::r, j::r] = x[:, source]
    return y


def naive_to_depth(x, r, block_first):
    n, c, h, w = x.shape
    y = np.zeros((n, c * r * r, h // r, w // r))
    for o, i, j in itertools.product(range(c), range(r), range(r)):
        y[:, (i * r + j) * c + o if block_first else o * r * r + i * r + j] = x[:, o, i::r, j::r]
    return y


for _name, _block_first in (("pixel_shuffle", False), ("depth_to_space", True), ("channel_to_space", True)):
    for _r in (2, 3):
        case(
            _name,
            lambda x, name=_name, r=_r: getattr(af, name)(x, r),
            lambda x, r=_r, b=_block_first: naive_to_space(x, r, b),
            rand(2, 2 * _r * _r, 2, 3),
        )
for _name, _block_first in (("pixel_unshuffle", False), ("space_to_depth", True), ("space_to_channel", True)):
    for _r in (2, 3):
        case(
            _name,
            lambda x, name=_name, r=_r: getattr(af, name)(x, r),
            lambda x, r=_r, b=_block_first: naive_to_depth(x, r, b),
            rand(2, 3, 2 * _r, 3 * _r),
        )


def naive_space_to_batch(x, bh, bw):
    return np.concatenate([x[:, :, i::bh, j::bw] for i in range(bh) for j in range(bw)])


def naive_batch_to_space(x, bh, bw):
    n, c, h, w = x.shape
    y = np.zeros((n // (bh * bw), c, h * bh, w * bw))
    for number, (i, j) in enumerate(itertools.product(range(bh), range(bw))):
        y[:, :, i::bh, j::bw] = x[number * len(y) : (number + 1) * len(y)]
    return y


case("space_to_batch", lambda x: af.space_to_batch(x, 2, 3), lambda x: naive_space_to_batch(x, 2, 3), rand(2, 2, 4, 6))
case(
    "batch_to_space", lambda x: af.batch_to_space(x, 2, 3), lambda x: naive_batch_to_space(x, 2, 3), rand(12, 2, 2, 3)
)

# Native layers.


def naive_attention(q, k, v, scale, mask=None, causal=False):
    y = np.zeros((*q.shape[:3], v.shape[3]))
    for h, s in itertools.product(range(q.shape[1]), range(q.shape[2])):
        scores = np.array([q[0, h, s] @ k[0, h, t] * scale for t in range(k.shape[2])])
        if mask is not None:
            scores = scores + mask[0, 0, s]
        weights = np.exp(scores)
        if causal:
            weights[s + 1 :] = 0
        y[0, h, s] = weights / weights.sum() @ v[0, h]
    return y


_q, _k, _v, _mask = rand(1, 2, 4, 3), rand(1, 2, 5, 3), rand(1, 2, 5, 3), half(1, 1, 4, 5)
case("sdpa", af.sdpa, lambda q, k, v: naive_attention(q, k, v, 3**-0.5), _q, _k, _v)
case("sdpa", lambda q, k, v: af.sdpa(q, k, v, 0.3), lambda q, k, v: naive_attention(q, k, v, 0.3), _q, _k, _v)
for _causal in (False, True):
    case(
        "sdpa",
        lambda q, k, v, c=_causal: af.sdpa(q, k, v, is_causal=c, attn_mask=_mask),
        lambda q, k, v, c=_causal: naive_attention(q, k, v, 3**-0.5, _mask, c),
        _q,
        _k,
        _v,
    )
case(  # as many or more queries than keys: the first query sees the first key, none sees nothing
    "sdpa",
    lambda q, k, v: af.sdpa(q, k, v, is_causal=True),
    lambda q, k, v: naive_attention(q, k, v, 3**-0.5, None, True),
    _k,
    _q,
    _q,
)
for _largest in (True, False):
    case(
        "topk",
        lambda x, largest=_largest: af.topk(x, 3, largest),
        lambda x, largest=_largest: np.array([sorted(row, reverse=largest)[:3] for row in x.tolist()]),
        rand(4, 6),
    )
    case(
        "sort",
        lambda x, down=_largest: af.sort(x, down),
        lambda x, down=_largest: np.array([sorted(row, reverse=down) for row in x.tolist()]),
        rand(4, 6),
    )
    case(
        "sort",
        lambda x, down=_largest: af.sort(x, down, return_indices=True),
        lambda x, down=_largest: np.array(
            [sorted(range(6), key=lambda i: -row[i] if down else row[i]) for row in x.tolist()]
        ),
        np.round(rand(4, 6)),
    )
case("argmax", lambda x: x.argmax(), lambda x: np.array([[row.index(max(row))] for row in x.tolist()]), rand(4, 6))
case("argmax", lambda x: x.argmax(0), lambda x: np.array([[col.index(max(col)) for col in x.T.tolist()]]), rand(4, 6))
case(
    "cross_product",
    af.cross_product,
    lambda a, b: np.linalg.det(np.stack([np.eye(3), np.tile(a.ravel(), (3, 1)), np.tile(b.ravel(), (3, 1))], 1)),
    rand(3),
    rand(1, 3),
)
case(
    "cross_correlation",
    af.cross_correlation,
    lambda x, t: naive_conv(x[None, None], t[None, None])[0, 0],
    rand(5, 6),
    rand(2, 3),
)
case(
    "cost_volume",
    lambda a, r: af.cost_volume(a, r, 2),
    lambda a, r: np.array([[abs(a[i] - r[i + d]) for i in range(4)] for d in range(3)]),
    rand(4),
    rand(7),
)


def naive_fps(points, k):
    chosen = [0]
    while len(chosen) < k:
        spread = [min(math.dist(p, points[c]) for c in chosen) for p in points]
        chosen.append(spread.index(max(spread)))
    return points[chosen]


case("fps", lambda p: af.fps(p, 5), lambda p: naive_fps(p, 5), rand(12, 3))
case(
    "radius_search",
    lambda p, c: af.radius_search(p, c, 1.5),
    lambda p, c: np.array([[float(math.dist(a, b) <= 1.5) for b in c] for a in p]),
    rand(8, 3),
    rand(3, 3),
)
for _name, _axis in (("Width", 3), ("Height", 2), ("Channel", 1)):
    case(
        "minmax_norm",
        lambda x, name=_name: af.minmax_norm(x, name, 0.25),
        lambda x, a=_axis: (x - x.min(a, keepdims=True)) / (np.ptp(x, a, keepdims=True) + 0.25),
        rand(2, 3, 4, 5),
    )
case(
    "lrn",
    lambda x: af.lrn(x, 2.0, 0.75, 1.5),
    lambda x: np.stack(
        [x[:, c] / (1.5 + 2.0 * (x[:, max(0, c - 1) : c + 3] ** 2).sum(1)) ** 0.75 for c in range(4)], axis=1
    ),
    rand(2, 4, 2, 3),
)
case("flatten", af.flatten, np.ravel, rand(2, 3, 4))
case("input_view", lambda x: af.input_view(x, 5, 7), lambda x: x.ravel()[5:12], rand(4, 5))
case("dynamic_slice", lambda x: af.dynamic_slice(x, 3), lambda x: x.ravel()[3:5], rand(4, 5))
_kinds = {"Add": lambda x, z: 1.5 * x + 1.5 * z, "Mult": lambda x, z: x * z}
_kinds |= {"Min": lambda x, z: 1.5 * np.where(x < z, x, z), "Max": lambda x, z: 1.5 * np.where(x > z, x, z)}
for _name, _expect in _kinds.items():
    case(
        "scaled_elementwise", lambda x, z, name=_name: af.scaled_elementwise(x, z, name, 1.5), _expect, *rand(2, 3, 4)
    )

# Native layers that only a type and its parameters reach.


def image_plane(x):
    """A plane of halves, which are read as they are."""
    return make(definitions()["image_plane"], (x,), {"dtype": "fp16", "format": "&RhA", "plane": 0})


SPARE = np.random.default_rng(20)


def drawn(*shape):
    """Numbers of a stream of their own, so that what other tests draw stays as it is."""
    return SPARE.standard_normal(shape)


for _largest in (True, False):
    case(
        "global_arg",
        lambda x, largest=_largest: native.global_arg(x, largest, 1),
        lambda x, largest=_largest: (x.argmax(1) if largest else x.argmin(1))[:, None],
        drawn(1, 6, 2, 3),
    )
case(
    "arg_min_max",
    lambda x: native.arg_min_max(x, "SpatialArgMin", (2, 3), (1, 2)),
    lambda x: np.array(
        [[[[x[0, c, i : i + 2, 2 * j : 2 * j + 3].argmin() for j in range(2)] for i in range(3)] for c in range(2)]]
    ),
    drawn(1, 2, 4, 6),
)
case(
    "arg_min_max", lambda x: native.arg_min_max(x, "ChannelArgMax"), lambda x: x.argmax(1)[:, None], drawn(2, 5, 2, 3)
)
case(
    "gather_places",
    lambda x: native.gather_places(x, [[1, 0, 2], [0, 3, 1]], (1, 2, 3)),
    lambda x: np.array([x[0, 1, 0, 2], x[0, 0, 3, 1]]).reshape(1, 2, 1, 1),
    drawn(1, 2, 4, 3),
)
case(
    "gather_places",
    lambda x: native.gather_places(x, [[3, 0], [0, 1], [2, 2]], (2, 3)),
    lambda x: np.stack([x[0, :, 3, 0], x[0, :, 0, 1], x[0, :, 2, 2]]).reshape(1, 3, 1, 2),
    drawn(1, 2, 4, 3),
)
case(
    "input_view",
    lambda x: af.input_view(x, 4, 3, step=-2, axis=1),
    lambda x: np.stack([x[:, 4], x[:, 2], x[:, 0]], axis=1),
    drawn(1, 5, 2, 3),
)
case("input_view", lambda x: af.input_view(x, 1, 4, step=3), lambda x: x.ravel()[[1, 4, 7, 10]], drawn(3, 4))
case(
    "dynamic_slice",
    lambda x, at: native.slice_from(x, at, [2, 3], [1, 3]),
    lambda x, at: x[:, 1:3, :, 2:5],
    drawn(1, 4, 2, 6),
    np.array([1.0, 2.0]),
)
for _start, _begin in ((-3.0, 0), (2.0, 2), (9.0, 9), (77.0, 9)):  # kept inside (U92)
    case(
        "dynamic_slice",
        lambda x, at: af.dynamic_slice(x, at, 3),
        lambda x, at, begin=_begin: x.ravel()[begin : begin + 3],
        drawn(3, 4),
        np.array([_start]),
    )


def layer(name):
    return getattr(native, name) if hasattr(native, name) else getattr(af, name)


for _name, _direction in (("native_pixel_shuffle", True), ("channel_to_space", False)):
    case(
        _name,
        lambda x, name=_name: layer(name)(x, (2, 3)),
        lambda x, major=_direction: np.array(
            [
                [
                    [x[0, c * 6 + y % 2 * 3 + w % 3 if major else (y % 2 * 3 + w % 3) * 2 + c, y // 2, w // 3]
                     for w in range(6)]
                    for y in range(4)
                ]
                for c in range(2)
            ]
        )[None],
        drawn(1, 12, 2, 2),
    )  # fmt: skip
for _name, _inverse in (("native_pixel_unshuffle", "native_pixel_shuffle"), ("space_to_channel", "channel_to_space")):
    case(
        _name,
        lambda x, name=_name, back=_inverse: layer(back)(layer(name)(x, (2, 3)), (2, 3)),
        lambda x: x,
        drawn(1, 2, 4, 6),
    )
case(
    "native_unflatten",
    lambda x: native.native_unflatten(x, 2, 3, 4),
    lambda x: x.reshape(1, 2, 3, 4),
    drawn(1, 24, 1, 1),
)
case("kernel_rasterizer", native.kernel_rasterizer, lambda x: x, drawn(1, 3, 4, 5))
case(
    "cross_correlation",
    lambda x, t: af.cross_correlation(x, t, pad=(1, 0, 2, 1), groups=2),
    lambda x, t: np.concatenate(
        [naive_conv(np.pad(x[:, g : g + 2], ((0, 0), (0, 0), (1, 0), (2, 1))), t[:, g : g + 2]) for g in (0, 2)],
        axis=1,
    ),
    drawn(1, 4, 5, 6),
    drawn(1, 4, 2, 3),
)
case(
    "cost_volume",
    lambda a, r: af.cost_volume(a, r, 1),
    lambda a, r: np.abs(np.stack([a[0, 0] - r[0, 0, :, :4], a[0, 0] - r[0, 0, :, 1:5]]))[None],
    drawn(1, 1, 2, 4),
    drawn(1, 1, 2, 6),
)
case("fps", lambda p: af.fps(p, 4), lambda p: naive_fps(p[0, :, 0].T, 4).T[None, :, None], drawn(1, 3, 1, 9))
case(
    "radius_search",
    lambda p, c: af.radius_search(p, c, 1.5),
    lambda p, c: np.array([[float(math.dist(a, b) <= 1.5) for b in c[0, :, 0].T] for a in p[0, :, 0].T])[
        None, :, None
    ],
    drawn(1, 3, 1, 8),
    drawn(1, 3, 1, 3),
)
case(
    "cross_product",
    af.cross_product,
    lambda a, b: np.cross(a.ravel(), b.ravel()).reshape(1, 3, 1, 1),
    drawn(1, 3, 1, 1),
    drawn(1, 3, 1, 1) + 1,
)
case(
    "lrn",
    lambda x: af.lrn(x, 2.0, 0.75, 1.5, channels=2),
    lambda x: np.stack(
        [x[:, c] / (1.5 + 2.0 * (x[:, c : c + 2] ** 2).sum(1)) ** 0.75 if c < 2 else x[:, c] for c in range(5)], axis=1
    ),
    drawn(1, 5, 2, 3),
)
case(
    "sort",
    lambda x: native.sort_vectors(x, axis=3, lanes=1, keys=[1]),
    lambda x: x[..., np.argsort(x[0, 1, 0], kind="stable")],
    drawn(1, 3, 1, 6),
)
case(
    "sort",
    lambda x: native.sort_vectors(x, axis=3, lanes=1, keys=[0, 2], descending=True, indices=True),
    lambda x: np.array(sorted(range(6), key=lambda i: (-x[0, 0, 0, i], -x[0, 2, 0, i]))).reshape(1, 1, 1, 6),
    np.round(drawn(1, 3, 1, 6)),
)
case(
    "topk",
    lambda x: native.topk_vectors(x, 5, axis=2, lanes=3, keys=[1], largest=False),
    lambda x: np.stack([x[0, c][np.argsort(x[0, c, :, 1], kind="stable")[:5]] for c in range(2)])[None],
    drawn(1, 2, 7, 2),
)
case("live_state", lambda: af.live_state((1, 2, 1, 3), "cache"), lambda: np.zeros((1, 2, 1, 3)))
case(
    "ring_write",
    lambda x: af.ring_write(x, af.live_state((1, 2, 1, 5), "cache"), 4),
    lambda x: np.concatenate([x[..., 1:], np.zeros((1, 2, 1, 3)), x[..., :1]], axis=3),
    drawn(1, 2, 1, 2),
)
case(
    "ring_read",
    lambda x: af.ring_read(af.ring_write(x, af.live_state((1, 2, 1, 5), "cache")), 3, 4),
    lambda x: x[..., [3, 4, 0, 1]],
    drawn(1, 2, 1, 5),
)


DOUBLED = np.array([[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]])
"""Two elements as four, at half-pixel places."""


def naive_sample(x, row, column):
    """Bilinear, zero outside, one element at a time."""
    total = np.zeros(x.shape[1])
    for r in (math.floor(row), math.floor(row) + 1):
        for c in (math.floor(column), math.floor(column) + 1):
            if 0 <= r < x.shape[2] and 0 <= c < x.shape[3]:
                total += x[0, :, r, c] * (1 - abs(row - r)) * (1 - abs(column - c))
    return total


case(
    "native_resample",
    native.native_resample,
    lambda x, g: np.array(
        [[naive_sample(x, g[0, 1, i, j], g[0, 0, i, j]) for j in range(3)] for i in range(2)]
    ).transpose(2, 0, 1)[None],
    drawn(1, 2, 4, 5),
    drawn(1, 2, 2, 3) + 1.5,
)
case(
    "resample",
    af.resample,
    lambda x, g: np.array(
        [[naive_sample(x, g[0, i, j, 1] * 2 + 1.5, g[0, i, j, 0] * 2.5 + 2) for j in range(3)] for i in range(2)]
    ).transpose(2, 0, 1)[None],
    drawn(1, 2, 4, 5),
    drawn(1, 2, 3, 2),
)
case(
    "crop_resize",
    lambda x, boxes: af.crop_resize(x, boxes, 2, 3, sampling_mode="ALIGN_CORNERS"),
    lambda x, boxes: np.stack(
        [
            np.stack([[naive_sample(x, y, z) for z in np.linspace(left, right, 3)] for y in (top, bottom)]).transpose(
                2, 0, 1
            )
            for top, left, bottom, right in boxes
        ]
    ),
    drawn(1, 2, 4, 5),
    np.array([[0.0, 1.0, 3.0, 4.0], [0.5, 1.0, 2.25, 1.0]]),
)
case(
    "native_crop_resize",
    lambda x, boxes: native.native_crop_resize(x, boxes, (2, 2), (4, 4)),
    lambda x, boxes: np.concatenate(
        [
            np.einsum("yh,nchw,xw->ncyx", DOUBLED, x[:, :, top : top + 2, left : left + 2], DOUBLED)
            for top, left in boxes.astype(int)
        ]
    ),
    drawn(1, 2, 4, 5),
    np.array([[0.0, 1.0], [2.0, 3.0]]),
)

case("image_plane", image_plane, lambda a: a, drawn(1, 4, 2, 2))
case(
    "conv3d",
    lambda x: af.conv3d(x, np.arange(12.0).reshape(2, 1, 2, 3, 1) / 8, (1, 1, 2), (1, 0, 0, 1, 0, 0)),
    lambda x: np.array(
        [
            [
                [
                    [
                        sum(
                            x[0, 0, d + i - 1, h + j, 2 * w] * (o * 6 + i * 3 + j) / 8
                            for i in range(2)
                            for j in range(3)
                            if d + i >= 1 and h + j < 4
                        )
                        for w in range(2)
                    ]
                    for h in range(3)
                ]
                for d in range(2)
            ]
            for o in range(2)
        ]
    )[None],
    drawn(1, 1, 2, 4, 3),
)

# Ops that no engine has.

case("one_hot", lambda x: af.one_hot(x, 4), lambda x: np.eye(4)[x.astype(int)], np.array([[0.0, 3.0], [2.0, 1.0]]))
case(
    "one_hot",
    lambda x: af.one_hot(x, 3, 2.0, -1.0),
    lambda x: np.array([[-1.0, 2.0, -1.0], [-1.0] * 3]),
    np.array([1.0, 5.0]),
)
for _low, _high in ((0, 0), (1, 0), (-1, 0), (0, -1), (1, 2), (-1, -1)):
    case(
        "band_part",
        lambda x, low=_low, high=_high: af.band_part(x, low, high),
        lambda x, low=_low, high=_high: np.array(
            [
                [
                    [m[i, j] * ((low < 0 or i - j <= low) and (high < 0 or j - i <= high)) for j in range(5)]
                    for i in range(4)
                ]
                for m in x
            ]
        ),
        rand(2, 4, 5),
    )
case(
    "reverse_sequence",
    lambda x: af.reverse_sequence(x, [3, 0, 4]),
    lambda x: np.array([[*x[0, 2::-1], x[0, 3]], x[1], x[2, ::-1]]),
    rand(3, 4, 2),
)
case(
    "reverse_sequence",
    lambda x: af.reverse_sequence(x, [2, 3], seq_axis=0, batch_axis=-1),
    lambda x: np.stack([x[[1, 0, 2], :, 0], x[[2, 1, 0], :, 1]], axis=2),
    rand(3, 4, 2),
)
case(
    "scatter",
    lambda x, u: af.scatter(x, [2, 0], u),
    lambda x, u: np.array([u[1], x[1], u[0]]),
    rand(3, 4),
    rand(2, 4),
)
case(
    "scatter",
    lambda x, u: af.scatter(x, [1, 1, 3], u, axis=-1, mode="add"),
    lambda x, u: np.column_stack([x[:, 0], x[:, 1] + u[:, 0] + u[:, 1], x[:, 2], x[:, 3] + u[:, 2]]),
    rand(2, 4),
    rand(2, 3),
)
case("dropout", lambda x: af.dropout(x, 0.0, 7), lambda x: x, rand(3, 4))
case(
    "random_uniform",
    lambda: af.random_uniform((3, 4), -1, 2, 9),
    lambda: np.random.default_rng(9).uniform(-1, 2, (3, 4)),
)
case("random_normal", lambda: af.random_normal((3, 4), 1, 2, 9), lambda: np.random.default_rng(9).normal(1, 2, (3, 4)))


def logistic(x):
    return 0.5 + 0.5 * np.tanh(x / 2)


def naive_rnn(x, w, r, b, h):
    out = []
    for t in range(len(x)):
        h = np.tanh(np.array([[w[u] @ x[t, n] + r[u] @ h[n] + b[u] for u in range(len(r))] for n in range(len(h))]))
        out.append(h)
    return np.array(out)


def naive_lstm(x, w, r, b, h, c):
    size, out = r.shape[1], []
    for t in range(len(x)):
        z = np.einsum("nf,gf->gn", x[t], w) + np.einsum("nh,gh->gn", h, r) + b[:, None]
        z = z.reshape(4, size, -1).transpose(0, 2, 1)
        c = logistic(z[1]) * c + logistic(z[0]) * np.tanh(z[2])
        h = logistic(z[3]) * np.tanh(c)
        out.append(h)
    return np.array(out)


def naive_gru(x, w, r, b, h):
    size, out = r.shape[1], []
    for t in range(len(x)):
        zx = (np.einsum("nf,gf->gn", x[t], w) + b[:, None]).reshape(3, size, -1).transpose(0, 2, 1)
        zh = np.einsum("nh,gh->gn", h, r).reshape(3, size, -1).transpose(0, 2, 1)
        update = logistic(zx[1] + zh[1])
        h = update * h + (1 - update) * np.tanh(zx[2] + logistic(zx[0] + zh[0]) * zh[2])
        out.append(h)
    return np.array(out)


for _name, _gates, _naive, _states in (("rnn", 1, naive_rnn, 1), ("gru", 3, naive_gru, 1), ("lstm", 4, naive_lstm, 2)):
    _weights = half(_gates * 3, 4), half(_gates * 3, 3), half(_gates * 3)
    case(
        _name,
        lambda x, *s, name=_name, w=_weights: getattr(af, name)(x, *w, *s),
        lambda x, *s, naive=_naive, w=_weights: naive(x, *w, *s),
        rand(5, 2, 4),
        *rand(_states, 2, 3),
    )
    case(
        _name,
        lambda x, name=_name, w=_weights: getattr(af, name)(x, *w),
        lambda x, naive=_naive, w=_weights, n=_states: naive(x, *w, *np.zeros((n, 1, 3))),
        rand(3, 1, 4),
    )


@pytest.mark.parametrize("each", CASES, ids=[f"{each.op}-{number}" for number, each in enumerate(CASES)])
def test_reference(each):
    out, found = evaluated(each.build, each.arrays)
    expected = np.asarray(each.expect(*each.arrays))
    assert each.op in {node.op for node in out.graph()}
    assert found.shape == out.shape == expected.shape
    assert found.dtype == (bool if out.dtype == "bool" else np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", sorted(definitions()))
def test_every_op_has_a_case(name):
    if definitions()[name].reference is None:
        assert name in {"input", "parameter", "const"}, f"{name} has no reference evaluation"
    elif name != "host":  # tests/test_onnx.py and its like: the evaluators come with the frontends
        assert name in {each.op for each in CASES}, f"add a case for {name} to this file"


def test_every_op_is_documented():
    assert [name for name, declared in definitions().items() if not declared.doc or "\n" in declared.doc] == []


# Randomness: a seed fixes the values.


def test_dropout_keeps_the_mean_and_follows_its_seed():
    x = af.input((100, 100))
    values = np.ones((100, 100))
    first, again, other = af.evaluate(
        [af.dropout(x, 0.25, 1), af.dropout(x, 0.25, 1), af.dropout(x, 0.25, 2)], [values]
    )
    assert set(np.unique(first)) == {0.0, 1 / 0.75}
    assert abs(first.mean() - 1) < 0.02
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_random_numbers_follow_their_law():
    flat, bell = af.evaluate([af.random_uniform((200, 200), -2, 4, 3), af.random_normal((200, 200), 5, 2, 3)])
    assert flat.min() >= -2
    assert flat.max() < 4
    assert abs(flat.mean() - 1) < 0.05
    assert abs(bell.mean() - 5) < 0.05
    assert abs(bell.std() - 2) < 0.05


# einsum against NumPy's.

EINSUMS = [
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ij->j", (3, 4)),
    ("ii->i", (4, 4)),
    ("ii->", (4, 4)),
    ("iij->ji", (3, 3, 2)),
    ("iji->j", (3, 2, 3)),
    ("iiji->ij", (2, 2, 3, 2)),
    ("ba", (3, 4)),
    ("...ij->...ji", (2, 3, 4, 5)),
    ("i...->...", (3, 2, 4)),
    ("...ii->...i", (2, 3, 3)),
    ("...", (2, 3)),
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ij,kj->ik", (3, 4), (5, 4)),
    ("ij,jk->ki", (3, 4), (4, 5)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("ij,ij->", (3, 4), (3, 4)),
    ("ij,ij->i", (3, 4), (3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("i,j->ji", (3,), (4,)),
    ("i,i->", (3,), (3,)),
    ("i,j->", (3,), (4,)),
    ("ij,k->k", (2, 3), (4,)),
    ("ij,k->i", (2, 3), (4,)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("bhqk,bhkd->bqhd", (2, 2, 3, 5), (2, 2, 5, 4)),
    ("abc,cd->abd", (2, 3, 4), (4, 5)),
    ("abc,dc->dba", (2, 3, 4), (5, 4)),
    ("abc,bad->dc", (2, 3, 4), (3, 2, 5)),
    ("ii,ij->j", (3, 3), (3, 4)),
    ("iik,kjj->ij", (2, 2, 3), (3, 4, 4)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (6, 2, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (1, 3, 4, 5)),
    ("...ij,jk->...ik", (2, 2, 3, 4), (4, 5)),
    ("...i,...i->...", (2, 3), (3,)),
    ("i...,i...->...", (3, 2), (3, 2)),
    ("ij,jk->ik", (3, 1), (4, 5)),
    (" i j , j k -> i k ", (3, 4), (4, 5)),
]


@pytest.mark.parametrize("row", EINSUMS, ids=[f"{row[0]} {row[1:]}" for row in EINSUMS])
def test_einsum(row):
    equation, *shapes = row
    arrays = [rand(*shape) for shape in shapes]
    out, found = evaluated(lambda *xs: af.einsum(equation, *xs), arrays)
    expected = np.einsum(equation, *arrays)
    np.testing.assert_allclose(found, expected if expected.ndim else expected.reshape(1), rtol=1e-10, atol=1e-12)
    assert out.shape == found.shape


def test_einsum_takes_a_stored_array():
    w = half(4, 5)
    _, found = evaluated(lambda x: af.einsum("ij,jk->ik", x, w), [_eye := rand(3, 4)])
    np.testing.assert_allclose(found, _eye @ w, rtol=1e-12)


# Basic indexing against NumPy's.

INDICES = [
    np.s_[0],
    np.s_[-1],
    np.s_[1, 2],
    np.s_[1, 2, 3],
    np.s_[:],
    np.s_[...],
    np.s_[1:],
    np.s_[:-1],
    np.s_[-2:],
    np.s_[::2],
    np.s_[1::2, ::3],
    np.s_[::-1],
    np.s_[::-2, 1],
    np.s_[:, :, ::-1],
    np.s_[3:0:-1],
    np.s_[..., 0],
    np.s_[0, ...],
    np.s_[0, ..., 1],
    np.s_[None],
    np.s_[:, None],
    np.s_[..., None],
    np.s_[None, 1, :, None, 2],
    np.s_[0, None, ..., None, 1:3],
    np.s_[np.int64(2), np.int32(-1)],
    np.s_[:100],
    np.s_[-100:2],
    np.s_[5:1:-2, 4:0:-3, 1:2],
]


@pytest.mark.parametrize("key", INDICES, ids=str)
def test_indexing(key):
    x = rand(4, 5, 6)
    out, found = evaluated(lambda t: t[key], [x])
    expected = x[key]
    np.testing.assert_array_equal(found, expected if expected.ndim else expected.reshape(1))
    assert out.shape == found.shape


def test_indexing_of_bools_and_iteration():
    x = rand(3, 4)
    _, found = evaluated(lambda t: (t > 0)[::2, 1:], [x])
    np.testing.assert_array_equal(found, (x > 0)[::2, 1:])
    tensor = af.input((3, 4))
    assert len(tensor) == 3
    first, second, third = af.evaluate(list(tensor), [x])
    np.testing.assert_array_equal([first, second, third], x)


def test_split_gives_every_part():
    x = rand(4, 6)
    tensor = af.input((4, 6))
    for parts, axis in ((2, 0), (3, 1), (6, -1), (1, 0)):
        found = af.evaluate(af.split(tensor, parts, axis), [x])
        for part, expected in zip(found, np.split(x, parts, axis), strict=True):
            np.testing.assert_array_equal(part, expected)


# Blocks.


def heads(x, count):
    return np.stack(np.split(x, count, axis=1))


def attention(q, k, v, count, mask=0.0):
    scores = np.einsum("hsd,htd->hst", heads(q, count), heads(k, count)) / math.sqrt(q.shape[1] // count) + mask
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    return np.concatenate(list(weights @ heads(v, count)), axis=1)


@pytest.mark.parametrize("masked", [False, True])
def test_mha(masked):
    wq, wk, wv, wo = (half(8, 8) for _ in range(4))
    bq, bk, bv, bo = (half(8) for _ in range(4))
    mask = half(5, 5) if masked else None
    x = rand(5, 8)
    _, found = evaluated(lambda t: af.mha(t, wq, bq, wk, bk, wv, bv, wo, bo, 2, mask), [x])
    mixed = attention(x @ wq.T + bq, x @ wk.T + bk, x @ wv.T + bv, 2, 0.0 if mask is None else mask)
    np.testing.assert_allclose(found, mixed @ wo.T + bo, rtol=1e-9)


@pytest.mark.parametrize("biased", [False, True])
def test_cross_attention(biased):
    wq, wk, wv, wo = half(8, 8), half(8, 6), half(8, 6), half(7, 8)
    bq, bk, bv, bo = (half(n) for n in (8, 8, 8, 7))
    biases = (bq, bk, bv, bo) if biased else ()
    x, context = rand(5, 8), rand(4, 6)
    _, found = evaluated(lambda t, c: af.cross_attention(t, c, wq, wk, wv, wo, 2, *biases), [x, context])
    if not biased:
        bq = bk = bv = bo = 0.0
    mixed = attention(x @ wq.T + bq, context @ wk.T + bk, context @ wv.T + bv, 2)
    np.testing.assert_allclose(found, mixed @ wo.T + bo, rtol=1e-9)


def test_geglu():
    rng = np.random.default_rng(3)  # its own: the reference loses digits where a gate is far below zero
    w, b = (rng.normal(0, 1, shape).astype(np.float16).astype(np.float64) for shape in ((10, 4), (10,)))
    x = rng.normal(0, 1, (3, 4))
    _, found = evaluated(lambda t: af.geglu(t, w, b), [x])
    value, gate = np.split(x @ w.T + b, 2, axis=1)
    np.testing.assert_allclose(found, value * gate * (1 + erf(gate / math.sqrt(2))) / 2, rtol=1e-9)


@pytest.mark.parametrize("shape", [(5, 8), (2, 5, 8), (1, 3, 5, 8)])
def test_rope(shape):
    angle = np.outer(np.arange(5), 10000.0 ** (-np.arange(4) / 4))
    cos, sin = (
        np.hstack([part, part]).astype(np.float16).astype(np.float64) for part in (np.cos(angle), np.sin(angle))
    )
    x = rand(*shape)
    _, found = evaluated(lambda t: af.rope(t, cos, sin), [x])
    one, two = x[..., :4], x[..., 4:]
    expected = np.concatenate([one * cos[:, :4] - two * sin[:, :4], two * cos[:, 4:] + one * sin[:, 4:]], axis=-1)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("pad", [0, 1, (2, 0, 1, 3)])
def test_conv2d_equals_conv(pad):
    w, x = half(4, 3, 3, 2), rand(2, 3, 5, 4)
    _, found = evaluated(lambda t: af.conv2d(t, af.conv_param(w), pad=pad), [x])
    sides = (pad,) * 4 if isinstance(pad, int) else pad
    np.testing.assert_allclose(found, naive_conv(x, w, None, (1, 1), sides), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("pool", [0, 2])
def test_conv_block(pool):
    w, gamma, beta, x = half(4, 3, 3, 3), half(1, 4, 1, 1), half(1, 4, 1, 1), rand(2, 3, 4, 4)
    _, found = evaluated(
        lambda t: af.conv_block(t, af.conv_param(w), af.parameter(gamma), af.parameter(beta), 2, pool), [x]
    )
    y = naive_conv(x, w, None, (1, 1), (1, 1, 1, 1))
    y = np.concatenate([centred(part, (1, 2, 3), 1e-5) for part in np.split(y, 2, axis=1)], axis=1) * gamma + beta
    y = np.maximum(y, 0)
    if pool:
        y = naive_pool(y, (2, 2), (2, 2), (0, 0, 0, 0), False, lambda v, n: max(v))
    np.testing.assert_allclose(found, y, rtol=1e-8, atol=1e-10)


def test_group_norm_train_equals_group_norm():
    gamma, beta, x = half(4), half(4), rand(3, 4, 2, 2)
    tensor = af.input(x.shape)
    trained = af.group_norm_train(
        tensor, af.parameter(gamma.reshape(1, 4, 1, 1)), af.parameter(beta.reshape(1, 4, 1, 1)), 2
    )
    found, expected = af.evaluate([trained, tensor.group_norm(gamma, beta, 2)], [x])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_image_input_dequantises():
    image = af.image_input((1, 3, 2, 2), scale=[0.5, 0.25, 2.0], bias=[1.0, -1.0, 0.0], name="photo")
    pixels = RNG.integers(0, 256, (1, 3, 2, 2))
    found = af.evaluate(image, {"photo": pixels})
    expected = pixels * per_channel([0.5, 0.25, 2.0], pixels) + per_channel([1.0, -1.0, 0.0], pixels)
    np.testing.assert_allclose(found, expected)
    plain = af.image_input((1, 1, 2, 2), scale=1 / 256)
    np.testing.assert_allclose(af.evaluate(plain, [pixels[:, :1]]), pixels[:, :1] / 256)
    assert plain.graph().inputs[0].dtype == "uint8"
