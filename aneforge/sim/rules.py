"""What each backend op gives on an engine: fp16 in, fp16 out, every rounding where the engine has one.

An op without a rule of its own takes its float64 meaning, rounded once; whether that is exact (it only moves or
compares numbers) or a model is part of its entry.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.anec.interpret import rule_of
from aneforge.anec.ir import Op
from aneforge.sim.convolution import direct, winograd, winograd_fits
from aneforge.sim.engine import Engine
from aneforge.sim.half import round_half, round_half_twice
from aneforge.sim.mac import products
from aneforge.sim.tables import activation, look_up
from aneforge.targets.numeric_facts import FP16_SLICE_SAT

__all__ = ["MOVES", "computed"]

Array = np.ndarray
Rule = Callable[..., Array]

# Ops that hand on, pick, place, compare or clamp numbers: their float64 meaning is theirs to the bit.
MOVES = frozenset(
    (
        *("reshape", "flatten", "unflatten", "transpose", "concat", "input_view", "gather_nd", "broadcast", "tile"),
        *("padding", "pixel_shuffle", "pixel_unshuffle", "space_to_channel", "channel_to_space", "space_to_batch"),
        *("batch_to_space", "ring_buffer_reader", "ring_buffer_writer", "tensor_buffer_to_tensor", "cast", "select"),
        *("tensor_to_tensor_buffer", "relu", "n_relu", "clamped_relu", "abs", "max", "min", "max_pool", "equal"),
        *("not_equal", "less_than", "less_than_equal", "greater_than", "greater_than_equal", "equal_zero"),
        *("not_equal_zero", "less_than_zero", "less_than_equal_zero", "greater_than_zero", "reduce_max", "reduce_min"),
        *("greater_than_equal_zero", "arg_min_max", "global_arg_min_max"),
    )
)


def computed(engine: Engine, op: Op, operands: list[Array], named: dict[str, Array]) -> Array:
    """The result of one op, as the engine stores it."""
    rule = _RULES.get(op.kind)
    if rule is not None and not named:
        return rule(engine, op, *operands)
    wide = [_read(each) for each in operands]
    with np.errstate(all="ignore"):
        found = np.asarray(rule_of(op)(op, *wide, **named))
    return stored(op, found)


def stored(op: Op, values: Array) -> Array:
    """Numbers as fp16 (one rounding; an indeterminate form is +0, N32); truth values as they are."""
    if op.type is not None and op.type.dtype == "i1":
        return values.astype(bool)
    if op.kind in MOVES and op.labels.get("storage") == "q4":
        values = np.where(np.abs(values) > FP16_SLICE_SAT, np.copysign(np.inf, values), values)
    clean = np.where(np.isnan(values), 0.0, values)
    return round_half(clean).astype(np.float16)


def _read(values: Array) -> Array:
    """Operands of planar work: a NaN is read as +infinity (N31)."""
    if values.dtype == bool:
        return values
    wide = values.astype(np.float64)
    return np.where(np.isnan(wide), np.inf, wide)


# Multiply-accumulate.


def _convolution(engine: Engine, op: Op, x: Array, kernel: Array, bias: Array | None = None) -> Array:
    attrs = op.attrs
    if attrs.get("padding_mode", "Zero") != "Zero" or attrs["kernel_sizes"][0] != 1:
        wide = [each.astype(np.float64) for each in (x, kernel, *(() if bias is None else (bias,)))]
        return stored(op, rule_of(op)(op, *wide))
    pads = attrs["explicit_padding"]
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), tuple(pads[2:4]), tuple(pads[4:6])))
    weights = np.ascontiguousarray(kernel[:, 0])
    start = None if bias is None else bias.reshape(-1)
    stride, dilation = attrs["strides"][1:], attrs["dilation_rates"][1:]
    planes = []
    for image in padded.reshape(-1, *padded.shape[2:]):  # every image and depth on its own
        if engine.winograd and winograd_fits(tuple(weights.shape[2:]), stride, dilation):
            planes.append(winograd(image, weights, start, attrs["groups"]))
        else:
            planes.append(direct(image, weights, start, stride, dilation, attrs["groups"], engine.flush_subnormals))
    return np.stack(planes).reshape(op.shape)


def _deconvolution(engine: Engine, op: Op, x: Array, kernel: Array, bias: Array | None = None) -> Array:
    """The convolution of the map with holes between its elements and the kernel turned round: holes add nothing."""
    attrs = op.attrs
    if attrs["kernel_sizes"][0] != 1:
        wide = [each.astype(np.float64) for each in (x, kernel, *(() if bias is None else (bias,)))]
        return stored(op, rule_of(op)(op, *wide))
    stride, dilation = attrs["strides"][1:], attrs["dilation_rates"][1:]
    sizes, pads, groups = attrs["kernel_sizes"][1:], attrs["explicit_padding"][2:], attrs["groups"]
    start = None if bias is None else bias.reshape(-1)
    weights = _turned_kernel(kernel[:, 0], groups)
    planes = []
    for image in x.reshape(-1, *x.shape[2:]):
        spread = _with_holes(image, stride)
        for axis in (0, 1):
            reach = dilation[axis] * (sizes[axis] - 1)
            spread = _edged(spread, axis + 1, reach - pads[2 * axis], reach - pads[2 * axis + 1])
        planes.append(direct(spread, weights, start, (1, 1), dilation, groups, engine.flush_subnormals))
    return np.stack(planes).reshape(op.shape)


def _turned_kernel(kernel: Array, groups: int) -> Array:
    """[inputs, outputs per group, rows, columns] as a convolution's [outputs, inputs per group, rows, columns]."""
    inputs, outputs = kernel.shape[0] // groups, kernel.shape[1]
    split = kernel[..., ::-1, ::-1].reshape(groups, inputs, outputs, *kernel.shape[2:])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(groups * outputs, inputs, *kernel.shape[2:]))


def _with_holes(image: Array, stride: tuple[int, int]) -> Array:
    channels, rows, columns = image.shape
    spread = np.zeros((channels, (rows - 1) * stride[0] + 1, (columns - 1) * stride[1] + 1), np.float16)
    spread[:, :: stride[0], :: stride[1]] = image
    return spread


def _edged(x: Array, axis: int, before: int, after: int) -> Array:
    """Zeros around an axis, or elements cut from it where the count is negative."""
    grown = np.pad(x, [(max(0, before), max(0, after)) if i == axis else (0, 0) for i in range(x.ndim)])
    cut = slice(max(0, -before), grown.shape[axis] - max(0, -after))
    return grown[tuple(cut if i == axis else slice(None) for i in range(x.ndim))]


def _linear(engine: Engine, op: Op, x: Array, weight: Array, bias: Array | None = None) -> Array:
    rows = np.ascontiguousarray(x.reshape(-1, x.shape[4]))
    start = None if bias is None else bias.reshape(-1)
    kernel = np.ascontiguousarray(weight[0, 0, :, 0, :].T)
    return products(rows, kernel, start, engine.flush_subnormals).reshape(op.shape)


def _matmul(engine: Engine, op: Op, a: Array, b: Array, bias: Array | None = None) -> Array:
    left, right = _matrices(a, "transpose_lhs" in op.attrs), _matrices(b, "transpose_rhs" in op.attrs)
    n, h = max(left.shape[0], right.shape[0]), max(left.shape[1], right.shape[1])
    start = None if bias is None else bias.reshape(-1)
    result = np.empty((n, h, left.shape[2], right.shape[3]), np.float16)
    for i in range(n):
        for j in range(h):
            one = left[i % left.shape[0], j % left.shape[1]]
            two = right[i % right.shape[0], j % right.shape[1]]
            result[i, j] = products(
                np.ascontiguousarray(one), np.ascontiguousarray(two), start, engine.flush_subnormals
            )
    return result.transpose(0, 2, 1, 3)[:, None]


def _matrices(x: Array, turned: bool) -> Array:
    rows = x[:, 0].transpose(0, 2, 1, 3)
    return rows.swapaxes(2, 3) if turned else rows


# Planar work.


def rounded(values: Array) -> Array:
    """One elementwise result: half away from zero, twice below 2^-14 (N53); an indeterminate form is +0 (N32)."""
    return round_half_twice(np.where(np.isnan(values), 0.0, values))


def _elementwise(function: Callable[..., Array]) -> Rule:
    def rule(engine: Engine, op: Op, *operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return rounded(function(*(_read(each) for each in operands))).astype(np.float16)

    return rule


def _softmax(engine: Engine, op: Op, x: Array) -> Array:
    return _weighed(_read(x), op.attrs["axes"]).astype(np.float16)


def _weighed(wide: Array, axes: tuple[int, ...]) -> Array:
    """The maximum is subtracted in fp16, powers come from the table, the sum is exact, the quotient rounded (N61)."""
    with np.errstate(all="ignore"):
        shifted = rounded(wide - wide.max(axis=axes, keepdims=True)).astype(np.float16)
        powers = look_up(activation("exp2", (("base_e", 1.0),)), shifted).astype(np.float64)
        return rounded(powers / powers.sum(axis=axes, keepdims=True))


def _norm(engine: Engine, op: Op, x: Array, gamma: Array | None = None, beta: Array | None = None) -> Array:
    """Mean, difference, square, mean, epsilon, reciprocal root, product, gain and offset, each rounded to fp16."""
    wide = _read(x)
    axes, groups = op.attrs["axes"], op.attrs.get("groups", 1)
    if groups > 1:
        n, d, c, h, w = wide.shape
        wide = wide.reshape(n, d, groups, c // groups, h, w)
        axes = tuple(axis + (axis >= 2) for axis in axes)
    with np.errstate(all="ignore"):
        centred = rounded(wide - rounded(wide.mean(axis=axes, keepdims=True)))
        spread = rounded(rounded(np.square(centred)).mean(axis=axes, keepdims=True))
        shifted = rounded(spread + op.attrs["epsilon"]).astype(np.float16)
        found = rounded(centred * look_up(activation("r_sqrt"), shifted).astype(np.float64)).reshape(x.shape)
        found = found if gamma is None else rounded(found * _read(gamma))
        found = found if beta is None else rounded(found + _read(beta))
    return found.astype(np.float16)


def _sdpa(engine: Engine, op: Op, q: Array, k: Array, v: Array, scale: Array, mask: Array | None = None) -> Array:
    """Two products in the accumulators, and between them scale, mask and softmax in fp16."""
    result = np.empty((q.shape[0], q.shape[3], q.shape[2], v.shape[4]), np.float16)
    keys, values = _matrices(k, True), _matrices(v, False)
    for i, j in np.ndindex(result.shape[:2]):
        query, key = np.ascontiguousarray(_matrices(q, False)[i, j]), np.ascontiguousarray(keys[i, j])
        scores = rounded(_read(products(query, key, None, engine.flush_subnormals)) * float(scale.reshape(())))
        if mask is not None:
            plane = _matrices(mask, False)
            scores = rounded(scores + _read(plane[i % plane.shape[0], j % plane.shape[1]]))
        weights = _weighed(scores, (1,)).astype(np.float16)
        result[i, j] = products(weights, np.ascontiguousarray(values[i, j]), None, engine.flush_subnormals)
    return result.transpose(0, 2, 1, 3)[:, None]


def _table(engine: Engine, op: Op, x: Array) -> Array:
    settings = {name: float(value) for name, value in op.attrs.items() if isinstance(value, (int, float))}
    return look_up(activation(op.kind, tuple(sorted(settings.items()))), x)


def _swish(engine: Engine, op: Op, x: Array) -> Array:
    """The table has the plain form; the hard one is its float64 meaning, rounded."""
    return stored(op, rule_of(op)(op, _read(x))) if op.attrs.get("hard") else look_up(activation("swish"), x)


_TABLES = (
    *("sigmoid", "high_precision_sigmoid", "tanh", "erf", "exp2", "log2", "sqrt", "r_sqrt", "invert", "gelu"),
    *("sin", "cos", "elu", "floor", "ceil", "trunc", "round_nearest", "sign"),
)

_RULES: dict[str, Rule] = {
    "convolution": _convolution,
    "deconvolution": _deconvolution,
    "linear": _linear,
    "matmul": _matmul,
    "sdpa": _sdpa,
    "add": _elementwise(np.add),
    "sub": _elementwise(np.subtract),
    "mult": _elementwise(np.multiply),
    "div": _elementwise(np.divide),
    "square": _elementwise(np.square),
    "softmax": _softmax,
    "layer_norm": _norm,
    "instance_norm": _norm,
    "swish": _swish,
    **dict.fromkeys(_TABLES, _table),
}


def has_own_rule(kind: str) -> bool:
    """Whether an op follows the engine's steps and not just its meaning, rounded."""
    return kind in _RULES
