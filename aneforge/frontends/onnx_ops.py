"""What each ONNX op becomes: a rule takes the node and its inputs, tensors or known arrays, and gives tensors.

Layouts and paddings that the graph language lacks become equivalent graphs here. What has no static meaning in fp16 on
this engine raises ``LoadError`` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aneforge as af
from aneforge.frontends import LoadError
from aneforge.frontends.onnx_reader import Node, Value
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

Array = np.ndarray
Rule = Callable[..., "Value | Sequence[Value]"]


def _known(value: Value | None, what: str) -> Array:
    if isinstance(value, Tensor):
        raise LoadError(f"{what} is computed by the graph; the engine needs a fixed value")
    return np.asarray(value)


def _whole(value: Value | None, what: str) -> list[int]:
    return [int(each) for each in _known(value, what).reshape(-1)]


def _tensor(value: Value) -> Tensor:
    """A known value as a constant; whole numbers and truth values as numbers."""
    if isinstance(value, Tensor):
        return value
    numbers = np.asarray(value)
    return const(numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64))


def _number(value: Value | None, what: str) -> float:
    return float(_known(value, what).reshape(-1)[0])


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < max(rank, 1):
        raise LoadError(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank if rank else 0


# Elementwise.


def _unary(function: Callable[[Tensor], Tensor]) -> Rule:
    return lambda node, x, *rest: function(_tensor(x))


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return lambda node, a, b: function(_tensor(a), _tensor(b))


def _folded(function: Callable[[Any, Any], Tensor]) -> Rule:
    def rule(node: Node, *given: Value) -> Tensor:
        total = _tensor(given[0])
        for each in given[1:]:
            total = function(total, _tensor(each))
        return total

    return rule


def _mean_of(node: Node, *given: Value) -> Tensor:
    total = _folded(lambda a, b: a + b)(node, *given)
    assert isinstance(total, Tensor)
    return total * (1.0 / len(given))


def _clip(node: Node, x: Value, low: Value | None = None, high: Value | None = None) -> Tensor:
    least = node.attr("min", -65504.0) if low is None else _number(low, "the lower bound")
    most = node.attr("max", 65504.0) if high is None else _number(high, "the upper bound")
    return _tensor(x).clip(max(float(least), -65504.0), min(float(most), 65504.0))


def _gelu(node: Node, x: Value) -> Tensor:
    return _tensor(x).gelu()


def _hard_swish(node: Node, x: Value) -> Tensor:
    given = _tensor(x)
    return given * given.sigmoid_hard(1 / 6, 0.5)


def _prelu(node: Node, x: Value, slope: Value) -> Tensor:
    given = _tensor(x)
    return given.relu() - _tensor(slope) * (-given).relu()


def _power(node: Node, x: Value, exponent: Value) -> Tensor:
    if isinstance(exponent, Tensor):
        return _tensor(x).pow(exponent)
    if exponent.size == 1:
        power = float(exponent.reshape(-1)[0])
        special = {2.0: Tensor.square, 1.0: lambda t: t, 0.5: Tensor.sqrt}
        return special[power](_tensor(x)) if power in special else _tensor(x).pow(power)
    return _tensor(x).pow(_tensor(exponent))


def _cast(node: Node, x: Value, *_: Value) -> Tensor:
    """Every number is fp16 here; a cast to whole numbers cuts the fraction off."""
    given = _tensor(x)
    if node.attr("to") in (2, 3, 4, 5, 6, 7, 12, 13):
        return given.sign() * given.abs().floor()
    return given


# Products.


def _gemm(node: Node, a: Value, b: Value, c: Value | None = None) -> Tensor:
    left = _tensor(a).transpose([1, 0]) if node.attr("transA", 0) else _tensor(a)
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    if isinstance(b, np.ndarray):
        weight = b if alpha == 1.0 else np.asarray(b, np.float64) * alpha
        weight = weight if node.attr("transB", 0) else weight.T
        plain = c is None or (isinstance(c, np.ndarray) and c.size == weight.shape[0])
        bias = None if c is None or not plain else np.asarray(c, np.float64).reshape(-1) * beta
        found = left.linear(weight, bias)
        return found if plain or c is None else found + _tensor(c) * beta
    right = _tensor(b).transpose([1, 0]) if node.attr("transB", 0) else _tensor(b)
    found = left @ right
    found = found if alpha == 1.0 else found * alpha
    return found if c is None else found + (_tensor(c) if beta == 1.0 else _tensor(c) * beta)


def _matmul(node: Node, a: Value, b: Value) -> Tensor:
    left, right = _tensor(a), _tensor(b)
    if left.ndim == 1 and right.ndim == 1:
        return (left * right).sum((0,)).reshape(())
    if left.ndim == 1:
        found = left.reshape(1, left.shape[0]) @ right
        return found.squeeze([found.ndim - 2])
    if right.ndim == 1:
        found = left @ right.reshape(right.shape[0], 1)
        return found.squeeze([found.ndim - 1])
    if isinstance(b, np.ndarray) and b.ndim == 2:
        rows = left if left.ndim == 2 else left.reshape(-1, left.shape[-1])
        found = rows.linear(np.asarray(b).T)
        return found if left.ndim == 2 else found.reshape(*left.shape[:-1], b.shape[1])
    return left @ right


def _pads(node: Node, extent: Sequence[int], size: Sequence[int]) -> list[tuple[int, int]]:
    """Zeros before and after each spatial axis."""
    rank = len(size)
    stride, dilation = node.attr("strides", [1] * rank), node.attr("dilations", [1] * rank)
    mode = node.attr("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = node.attr("pads", [0] * (2 * rank))
        return [(int(pads[i]), int(pads[i + rank])) for i in range(rank)]
    if mode == "VALID":
        return [(0, 0)] * rank
    found = []
    for i in range(rank):
        reach = dilation[i] * (size[i] - 1) + 1
        total = max(0, (-(-extent[i] // stride[i]) - 1) * stride[i] + reach - extent[i])
        small = total // 2
        found.append((small, total - small) if mode == "SAME_UPPER" else (total - small, small))
    return found


def _planes(x: Tensor, rank: int) -> Tensor:
    """One spatial axis becomes two, the first of one row."""
    return x.reshape(*x.shape[:2], 1, x.shape[2]) if rank == 1 else x


def _back(x: Tensor, rank: int) -> Tensor:
    return x.squeeze([2]) if rank == 1 else x


def _flat(pads: list[tuple[int, int]]) -> tuple[int, ...]:
    whole = pads if len(pads) == 2 else [(0, 0), *pads]
    return tuple(each for pair in whole for each in pair)


def _two(values: Sequence[int]) -> tuple[int, int]:
    return (1, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))


def _convolution(node: Node, x: Value, weight: Value, bias: Value | None = None) -> Tensor:
    given, kernel = _tensor(x), _known(weight, "the kernel")
    rank = given.ndim - 2
    if rank not in (1, 2):
        raise LoadError(f"a convolution over {rank} spatial axes is not read yet")
    pads = _pads(node, given.shape[2:], kernel.shape[2:])
    kernel = kernel[:, :, None] if rank == 1 else kernel
    found = af.conv(
        _planes(given, rank),
        np.asarray(kernel, np.float64),
        stride=_two(node.attr("strides", [1] * rank)),
        pad=_flat(pads),
        dilation=_two(node.attr("dilations", [1] * rank)),
        groups=int(node.attr("group", 1)),
        bias=None if bias is None else np.asarray(_known(bias, "the bias"), np.float64),
    )
    return _back(found, rank)


def _transposed_convolution(node: Node, x: Value, weight: Value, bias: Value | None = None) -> Tensor:
    given, kernel = _tensor(x), _known(weight, "the kernel")
    rank = given.ndim - 2
    if rank not in (1, 2):
        raise LoadError(f"a transposed convolution over {rank} spatial axes is not read yet")
    if node.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or node.attr("output_shape"):
        raise LoadError("padding of a transposed convolution that follows from its result")
    if any(node.attr("output_padding", [0])):
        raise LoadError("a transposed convolution with rows added at its end")
    pads = _pads(node, given.shape[2:], kernel.shape[2:])
    kernel = kernel[:, :, None] if rank == 1 else kernel
    found = af.conv_transpose(
        _planes(given, rank),
        np.asarray(kernel, np.float64),
        stride=_two(node.attr("strides", [1] * rank)),
        pad=_flat(pads),
        dilation=_two(node.attr("dilations", [1] * rank)),
        groups=int(node.attr("group", 1)),
        bias=None if bias is None else np.asarray(_known(bias, "the bias"), np.float64),
    )
    return _back(found, rank)


def _einsum(node: Node, *given: Value) -> Tensor:
    equation = node.attr("equation").replace(" ", "")
    letters = [each for each in equation.partition("->")[0] if each.isalpha()]
    axes = equation.partition("->")[2] if "->" in equation else [each for each in letters if letters.count(each) == 1]
    if not axes:
        raise LoadError("an einsum over every axis: its result has none")
    return af.einsum(equation, *(_tensor(each) for each in given))


# Norms.


def _group_norm(node: Node, x: Value, scale: Value, bias: Value) -> Tensor:
    """Since opset 21 a scale for each channel, before for each group."""
    given, groups = _tensor(x), int(node.attr("num_groups"))
    lines = given.reshape(given.shape[0], groups, -1)
    centred = lines - lines.mean((2,))
    white = centred * centred.square().mean((2,)).rsqrt(float(node.attr("epsilon", 1e-5)))
    gains = []
    for each in (scale, bias):
        numbers = np.asarray(_known(each, "a scale"), np.float64).reshape(-1)
        numbers = numbers if numbers.size == given.shape[1] else np.repeat(numbers, given.shape[1] // groups)
        gains.append(const(numbers.reshape(1, -1, *(1,) * (given.ndim - 2))))
    return white.reshape(*given.shape) * gains[0] + gains[1]


def _lp_norm(node: Node, x: Value) -> Tensor:
    given = _tensor(x)
    axes = (_axis(int(node.attr("axis", -1)), given.ndim),)
    size = given.l1_norm(axes) if int(node.attr("p", 2)) == 1 else given.sum_square(axes).sqrt()
    return given / af.maximum(size, 2.0**-24)  # a line of zeros stays one


def _mean_variance(node: Node, x: Value) -> Tensor:
    given = _tensor(x)
    axes = tuple(_axis(int(each), given.ndim) for each in node.attr("axes", [0, 2, 3]))
    centred = given - given.mean(axes)
    return centred / (centred.square().mean(axes).sqrt() + 1e-9)


def _log_softmax(node: Node, x: Value) -> Tensor:
    given = _tensor(x)
    if node.opset >= 13:
        axes = (_axis(int(node.attr("axis", -1)), given.ndim),)
        shifted = given - given.amax(axes)
        return shifted - shifted.reduce_log_sum_exp(axes)
    axis = _axis(int(node.attr("axis", 1)), given.ndim)
    lines = given.reshape(int(np.prod(given.shape[:axis], dtype=int)), -1)
    shifted = lines - lines.amax((1,))
    return (shifted - shifted.reduce_log_sum_exp((1,))).reshape(*given.shape)


def _along_channels(values: Value | None, rank: int, what: str) -> Array:
    return np.asarray(_known(values, what), np.float64).reshape(-1)


def _batch_norm(node: Node, x: Value, *stats: Value) -> Tensor:
    given = _tensor(x)
    gamma, beta, mean, variance = (_along_channels(each, given.ndim, "a statistic") for each in stats[:4])
    if node.attr("training_mode", 0):
        raise LoadError("batch statistics of a training run: export the model for inference")
    eps = float(node.attr("epsilon", 1e-5))
    if given.ndim == 4:
        return af.batch_norm(given, gamma, beta, mean, variance, eps)
    gain = gamma / np.sqrt(variance + eps)
    shape = (1, -1, *(1,) * (given.ndim - 2))
    return given * const(gain.reshape(shape)) + const((beta - mean * gain).reshape(shape))


def _layer_norm(node: Node, x: Value, scale: Value, bias: Value | None = None) -> Tensor | list[Tensor]:
    given = _tensor(x)
    axis = _axis(int(node.attr("axis", -1)), given.ndim)
    eps = float(node.attr("epsilon", 1e-5))
    if _is_line(given, axis, scale) and node.outputs == 1:
        beta = np.zeros(given.shape[-1]) if bias is None else np.asarray(_known(bias, "the bias"), np.float64)
        return given.layer_norm(np.asarray(scale, np.float64), np.broadcast_to(beta, (given.shape[-1],)), eps)
    axes = tuple(range(axis, given.ndim))
    mean = given.mean(axes)
    centred = given - mean
    reciprocal = centred.square().mean(axes).rsqrt(eps)
    found = centred * reciprocal * _tensor(scale)
    return [found if bias is None else found + _tensor(bias), mean, reciprocal][: node.outputs]


def _is_line(x: Tensor, axis: int, scale: Value) -> bool:
    """Whether a norm runs along the last axis with a known scale for each element: an op of its own here."""
    return axis == x.ndim - 1 and isinstance(scale, np.ndarray) and scale.shape == x.shape[-1:]


def _rms_norm(node: Node, x: Value, scale: Value) -> Tensor:
    given = _tensor(x)
    axis = _axis(int(node.attr("axis", -1)), given.ndim)
    eps = float(node.attr("epsilon", 1e-5))
    if _is_line(given, axis, scale):
        return given.rms_norm(np.asarray(scale, np.float64), eps)
    axes = tuple(range(axis, given.ndim))
    return given * given.square().mean(axes).rsqrt(eps) * _tensor(scale)


def _instance_norm(node: Node, x: Value, scale: Value, bias: Value) -> Tensor:
    given = _tensor(x)
    axes = tuple(range(2, given.ndim))
    shape = (1, -1, *(1,) * len(axes))
    gamma, beta = (_along_channels(each, given.ndim, "a scale").reshape(shape) for each in (scale, bias))
    centred = given - given.mean(axes)
    return centred * centred.square().mean(axes).rsqrt(float(node.attr("epsilon", 1e-5))) * const(gamma) + const(beta)


def _softmax(node: Node, x: Value) -> Tensor:
    given = _tensor(x)
    if node.opset >= 13:
        return given.softmax(_axis(int(node.attr("axis", -1)), given.ndim))
    axis = _axis(int(node.attr("axis", 1)), given.ndim)  # everything behind the axis is one line
    lead = int(np.prod(given.shape[:axis], dtype=int))
    return given.reshape(lead, -1).softmax(-1).reshape(*given.shape)


# Activations of several steps.


def _selu(node: Node, x: Value) -> Tensor:
    alpha, gamma = float(node.attr("alpha", 1.6732632)), float(node.attr("gamma", 1.0507009))
    return _tensor(x).elu(alpha) * gamma


def _celu(node: Node, x: Value) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    alpha, given = float(node.attr("alpha", 1.0)), _tensor(x)
    return given.relu() + af.minimum((given * (1 / alpha)).exp() * alpha - alpha, 0.0)


def _mish(node: Node, x: Value) -> Tensor:
    return _tensor(x) * _tensor(x).softplus().tanh()


def _shrink(node: Node, x: Value) -> Tensor:
    bias, limit, given = float(node.attr("bias", 0.0)), float(node.attr("lambd", 0.5)), _tensor(x)
    upper = af.where(given.greater(limit), given - bias, given * 0.0)
    return af.where(given.less(-limit), given + bias, upper)


def _swish(node: Node, x: Value) -> Tensor:
    alpha, given = float(node.attr("alpha", 1.0)), _tensor(x)
    return given.silu() if alpha == 1.0 else given * (given * alpha).sigmoid()


def _thresholded(node: Node, x: Value) -> Tensor:
    """Strictly above the threshold."""
    given = _tensor(x)
    return af.where(given.greater(float(node.attr("alpha", 1.0))), given, given * 0.0)


def _trilu(node: Node, x: Value, shift: Value | None = None) -> Tensor:
    """The part that falls away is zero: a product with a known mask."""
    given = _tensor(x)
    offset = 0 if shift is None else int(_number(shift, "the diagonal"))
    ones = np.ones(given.shape[-2:])
    mask = np.triu(ones, offset) if node.attr("upper", 1) else np.tril(ones, offset)
    return given * const(mask)


def _cumulative(node: Node, x: Value, axis: Value) -> Tensor:
    """A product with a triangle of ones, along the axis."""
    given = _tensor(x)
    place = _axis(int(_number(axis, "the axis")), given.ndim)
    size = given.shape[place]
    triangle = np.tril(np.ones((size, size)), -1 if node.attr("exclusive", 0) else 0)
    triangle = triangle.T if node.attr("reverse", 0) else triangle
    return _along(given, place, triangle)


def _along(x: Tensor, axis: int, matrix: Array) -> Tensor:
    """A known matrix [out, in] applied along one axis."""
    last = x.ndim - 1
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    lines = x if axis == last else x.transpose(order)
    found = lines.reshape(-1, lines.shape[-1]).linear(matrix).reshape(*lines.shape[:-1], matrix.shape[0])
    return found if axis == last else found.transpose([order.index(i) for i in range(x.ndim)])


# Pools and reductions.


def _pool(kind: str) -> Rule:
    def rule(node: Node, x: Value) -> Tensor:
        given = _tensor(x)
        rank = given.ndim - 2
        size = node.attr("kernel_shape")
        if rank not in (1, 2):
            raise LoadError(f"a pool over {rank} spatial axes is not read yet")
        if node.outputs > 1 or any(each != 1 for each in node.attr("dilations", [1])):
            raise LoadError("positions or dilations of a pool")
        pads = _flat(_pads(node, given.shape[2:], size))
        settings: dict[str, Any] = {"stride": _two(node.attr("strides", [1] * rank)), "pad": pads}
        settings["ceil_mode"] = bool(node.attr("ceil_mode", 0))
        if kind == "max":
            return _back(_planes(given, rank).max_pool(_two(size), **settings), rank)
        settings["exclude_pad"] = not node.attr("count_include_pad", 0)
        return _back(_planes(given, rank).avg_pool(_two(size), **settings), rank)

    return rule


def _power_pool(node: Node, x: Value) -> Tensor:
    """The second norm of a window: the mean of its squares, times their number, under a root."""
    if int(node.attr("p", 2)) != 2 or any(node.attr("pads", [0])) or node.attr("auto_pad", "NOTSET") != "NOTSET":
        raise LoadError("a norm pool other than the second norm of whole windows")
    mean = _pool("average")(node, _tensor(x).square())
    assert isinstance(mean, Tensor)
    return (mean * float(np.prod(node.attr("kernel_shape")))).sqrt()


def _global_pool(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Rule:
    return lambda node, x: function(_tensor(x), tuple(range(2, _tensor(x).ndim)))


def _reduction(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Rule:
    def rule(node: Node, x: Value, axes: Value | None = None) -> Tensor:
        given = _tensor(x)
        told = node.attr("axes") if axes is None else _whole(axes, "the axes")
        if told is None or len(told) == 0:
            if node.attr("noop_with_empty_axes", 0):
                return given
            told = range(given.ndim)
        along = tuple(sorted(_axis(int(each), given.ndim) for each in told))
        found = function(given, along)
        return found if node.attr("keepdims", 1) else found.reshape(*_without(given.shape, along))

    return rule


def _position(sign: float) -> Rule:
    """Where the largest (or smallest) element of each line is, the first of equals."""

    def rule(node: Node, x: Value) -> Tensor:
        given = _tensor(x)
        if node.attr("select_last_index", 0):
            raise LoadError("the last of equal elements")
        axis = _axis(int(node.attr("axis", 0)), given.ndim)
        order = [*(i for i in range(given.ndim) if i != axis), axis]
        lines = given if axis == given.ndim - 1 else given.transpose(order)
        flat = lines.reshape(-1, lines.shape[-1])
        found = (flat if sign > 0 else -flat).argmax(-1)
        kept = [1 if i == axis else extent for i, extent in enumerate(given.shape)]
        return found.reshape(*(kept if node.attr("keepdims", 1) else _without(given.shape, (axis,))))

    return rule


def _without(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def _product_of(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return x.prod(axes)


# Resampling.


def _resize(
    node: Node, x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None
) -> Tensor:
    """Each axis on its own: a product with the weights that the reference evaluator gives for it, whatever its way of
    counting pixels is."""
    given = _tensor(x)
    if node.opset < 11:
        scales, sizes = roi, None
    if node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        raise LoadError("a resize of a region: cut the region out first")
    if node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise LoadError("a resize whose sizes follow from its proportions: give them")
    axes = [_axis(int(each), given.ndim) for each in node.attr("axes", range(given.ndim))]
    by_size = sizes is not None and _known(sizes, "the sizes").size > 0
    told = _known(sizes, "the sizes") if by_size else _known(scales, "the scales")
    for axis, each in zip(axes, told.reshape(-1).tolist(), strict=True):
        extent = given.shape[axis]
        if (by_size and int(each) == extent) or (not by_size and float(each) == 1.0):
            continue
        given = _along(given, axis, _resize_weights(node, extent, each, by_size))
    return given


def _resize_weights(node: Node, extent: int, told: float, by_size: bool) -> Array:
    """[out, in]: what the reference evaluator makes of every unit signal of a line."""
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    kept = ("mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "exclude_outside", "antialias")
    settings = {name: node.attrs[name] for name in kept if name in node.attrs}
    if node.opset < 11:
        settings |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [extent, extent])]
    told_as = np.array([extent, told], np.int64) if by_size else np.array([1.0, told], np.float32)
    stored = [helper.make_tensor("told", TensorProto.INT64 if by_size else TensorProto.FLOAT, [2], told_as)]
    inputs = ["x", "", "", "told"] if by_size else ["x", "", "told"]
    made = helper.make_node("Resize", inputs, ["y"], **settings)
    graph = helper.make_graph([made], "line", ports, [helper.make_empty_tensor_value_info("y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", max(node.opset, 13))])
    lines = ReferenceEvaluator(model).run(None, {"x": np.eye(extent, dtype=np.float32)})
    return np.asarray(next(iter(lines))).T


# Movement.


def _reshape(node: Node, x: Value, shape: Value) -> Tensor:
    given = _tensor(x)
    wanted = _whole(shape, "the shape")
    if not node.attr("allowzero", 0):
        wanted = [given.shape[i] if extent == 0 else extent for i, extent in enumerate(wanted)]
    return given.reshape(*wanted)


def _flatten(node: Node, x: Value) -> Tensor:
    given = _tensor(x)
    axis = int(node.attr("axis", 1))
    axis = axis + given.ndim if axis < 0 else axis
    return given.reshape(int(np.prod(given.shape[:axis], dtype=int)), -1)


def _transpose(node: Node, x: Value) -> Tensor:
    given = _tensor(x)
    return given.transpose(list(node.attr("perm", list(range(given.ndim))[::-1])))


def _squeeze(node: Node, x: Value, axes: Value | None = None) -> Tensor:
    given = _tensor(x)
    told = node.attr("axes") if axes is None else _whole(axes, "the axes")
    along = [i for i, extent in enumerate(given.shape) if extent == 1] if told is None else told
    return given.reshape(*_without(given.shape, [_axis(int(each), given.ndim) for each in along]))


def _unsqueeze(node: Node, x: Value, axes: Value | None = None) -> Tensor:
    given = _tensor(x)
    told = node.attr("axes") if axes is None else _whole(axes, "the axes")
    rank = given.ndim + len(told)
    places = {_axis(int(each), rank) for each in told}
    left = iter(given.shape)
    return given.reshape(*(1 if place in places else next(left) for place in range(rank)))


def _concat(node: Node, *given: Value) -> Tensor:
    parts = [_tensor(each) for each in given]
    return af.concat(parts, axis=_axis(int(node.attr("axis", 1)), parts[0].ndim))


def _split(node: Node, x: Value, sizes: Value | None = None) -> list[Tensor]:
    given = _tensor(x)
    axis = _axis(int(node.attr("axis", 0)), given.ndim)
    told = node.attr("split") if sizes is None else _whole(sizes, "the sizes")
    if told is None:
        whole = -(-given.shape[axis] // node.outputs)
        told = [min(whole, given.shape[axis] - i * whole) for i in range(node.outputs)]
    parts, first = [], 0
    for size in told:
        begin = [first if i == axis else 0 for i in range(given.ndim)]
        extent = [int(size) if i == axis else each for i, each in enumerate(given.shape)]
        parts.append(given.slice_by_size(begin, extent))
        first += int(size)
    return parts


def _slice(
    node: Node,
    x: Value,
    starts: Value | None = None,
    ends: Value | None = None,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Tensor:
    given = _tensor(x)
    first = node.attr("starts") if starts is None else _whole(starts, "the starts")
    last = node.attr("ends") if ends is None else _whole(ends, "the ends")
    along = node.attr("axes", range(len(first))) if axes is None else _whole(axes, "the axes")
    stride = [1] * len(first) if steps is None else _whole(steps, "the steps")
    found = given
    for begin, end, axis, step in zip(first, last, along, stride, strict=True):
        place = _axis(int(axis), given.ndim)
        picked = range(given.shape[place])[slice(int(begin), int(end), int(step))]
        if not len(picked):
            raise LoadError("a slice that holds nothing")
        if step == 1:
            sizes = [len(picked) if i == place else each for i, each in enumerate(found.shape)]
            found = found.slice_by_size([picked[0] if i == place else 0 for i in range(given.ndim)], sizes)
        else:
            found = af.gather(found, np.array(picked), axis=place)
    return found


def _gather(node: Node, x: Value, indices: Value) -> Tensor:
    given = _tensor(x)
    axis = _axis(int(node.attr("axis", 0)), given.ndim)
    places = _known(indices, "what is gathered")
    places = np.where(places < 0, places + given.shape[axis], places).astype(int)
    found = af.gather(given, places.reshape(-1), axis=axis)
    return found.reshape(*given.shape[:axis], *places.shape, *given.shape[axis + 1 :])


def _expand(node: Node, x: Value, shape: Value) -> Tensor:
    given = _tensor(x)
    wanted = np.broadcast_shapes(given.shape, tuple(_whole(shape, "the shape")))
    raised = given.reshape(*(1,) * (len(wanted) - given.ndim), *given.shape)
    return raised.tile([a // b for a, b in zip(wanted, raised.shape, strict=True)])


def _tile(node: Node, x: Value, repeats: Value) -> Tensor:
    return _tensor(x).tile(_whole(repeats, "the repeats"))


def _pad(
    node: Node, x: Value, pads: Value | None = None, value: Value | None = None, axes: Value | None = None
) -> Tensor:
    given = _tensor(x)
    told = list(node.attr("pads")) if pads is None else _whole(pads, "the widths")
    along = list(range(given.ndim)) if axes is None else [_axis(each, given.ndim) for each in _whole(axes, "the axes")]
    widths = [(0, 0)] * given.ndim
    for place, axis in enumerate(along):
        widths[axis] = (told[place], told[place + len(along)])
    fill = float(node.attr("value", 0.0)) if value is None else _number(value, "the fill")
    mode = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}.get(node.attr("mode", "constant"))
    if mode is None:
        raise LoadError(f"padding by {node.attr('mode')!r}")
    if any(width < 0 for pair in widths for width in pair):
        begin = [max(0, -before) for before, _ in widths]
        extent = [size - max(0, -a) - max(0, -b) for size, (a, b) in zip(given.shape, widths, strict=True)]
        given = given.slice_by_size(begin, extent)
        widths = [(max(0, a), max(0, b)) for a, b in widths]
    return af.pad(given, widths, mode, fill) if any(map(any, widths)) else given


def _where(node: Node, condition: Value, a: Value, b: Value) -> Tensor:
    chosen = condition if isinstance(condition, Tensor) else const(condition.astype(np.float64)).greater(0.5)
    return af.where(chosen, _tensor(a), _tensor(b))


def _depth_to_space(node: Node, x: Value) -> Tensor:
    """The blocks are the slowest part of the channels (DCR), or the fastest (CRD), which is a pixel shuffle."""
    given, block = _tensor(x), int(node.attr("blocksize"))
    if node.attr("mode", "DCR") != "CRD":
        given = _channels_turned(given, block * block)
    return af.pixel_shuffle(given, block)


def _space_to_depth(node: Node, x: Value) -> Tensor:
    given, block = _tensor(x), int(node.attr("blocksize"))
    found = af.pixel_unshuffle(given, block)
    return found if node.attr("mode", "DCR") == "CRD" else _channels_turned(found, given.shape[1])


def _channels_turned(x: Tensor, outer: int) -> Tensor:
    """Channels counted as outer x inner, counted as inner x outer."""
    n, c, h, w = x.shape
    return x.reshape(n, outer, c // outer, h, w).transpose([0, 2, 1, 3, 4]).reshape(n, c, h, w)


def _same(node: Node, x: Value, *_: Value) -> Value:
    return x


def _shape(node: Node, x: Value) -> Array:
    shape = np.array(_tensor(x).shape, np.int64)
    return shape[slice(node.attr("start", 0), node.attr("end"))]


def _size(node: Node, x: Value) -> Array:
    return np.array(_tensor(x).size, np.int64)


RULES: dict[str, Rule] = {
    **{
        name: _unary(function)
        for name, function in {
            "Abs": Tensor.abs,
            "Acos": Tensor.acos,
            "Acosh": Tensor.acosh,
            "Asin": Tensor.asin,
            "Asinh": Tensor.asinh,
            "Atan": Tensor.atan,
            "Atanh": Tensor.atanh,
            "Ceil": Tensor.ceil,
            "Cos": Tensor.cos,
            "Cosh": Tensor.cosh,
            "Erf": Tensor.erf,
            "Exp": Tensor.exp,
            "Floor": Tensor.floor,
            "Log": Tensor.log,
            "Not": Tensor.logical_not,
            "Reciprocal": lambda x: x.inverse(0.0),
            "Relu": Tensor.relu,
            "Round": Tensor.round,
            "Sigmoid": Tensor.sigmoid,
            "Sign": Tensor.sign,
            "Sin": Tensor.sin,
            "Sinh": Tensor.sinh,
            "Softplus": Tensor.softplus,
            "Softsign": Tensor.softsign,
            "Sqrt": Tensor.sqrt,
            "Tan": Tensor.tan,
            "Tanh": Tensor.tanh,
            "Neg": lambda x: -x,
        }.items()
    },
    **{
        name: _binary(function)
        for name, function in {
            "Add": lambda a, b: a + b,
            "Sub": lambda a, b: a - b,
            "Mul": lambda a, b: a * b,
            "Div": lambda a, b: a / b,
            "Equal": lambda a, b: a.equal(b),
            "Greater": lambda a, b: a.greater(b),
            "Less": lambda a, b: a.less(b),
            "And": af.logical_and,
            "Or": af.logical_or,
            "Xor": af.logical_xor,
            "GreaterOrEqual": lambda a, b: a.greater_equal(b),
            "LessOrEqual": lambda a, b: a.less_equal(b),
        }.items()
    },
    "ArgMax": _position(1.0),
    "ArgMin": _position(-1.0),
    "AveragePool": _pool("average"),
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "CastLike": _same,
    "Celu": _celu,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "CumSum": _cumulative,
    "DepthToSpace": _depth_to_space,
    "Dropout": _same,
    "Elu": lambda node, x: _tensor(x).elu(float(node.attr("alpha", 1.0))),
    "Einsum": _einsum,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_pool(lambda x, axes: x.mean(axes)),
    "GlobalMaxPool": _global_pool(lambda x, axes: x.amax(axes)),
    "HardSigmoid": lambda node, x: _tensor(x).sigmoid_hard(
        float(node.attr("alpha", 0.2)), float(node.attr("beta", 0.5))
    ),
    "GroupNormalization": _group_norm,
    "HardSwish": _hard_swish,
    "Identity": _same,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda node, x: _tensor(x).leaky_relu(float(node.attr("alpha", 0.01))),
    "LogSoftmax": _log_softmax,
    "LpNormalization": _lp_norm,
    "LpPool": _power_pool,
    "MatMul": _matmul,
    "Max": _folded(af.maximum),
    "MaxPool": _pool("max"),
    "Mean": _mean_of,
    "MeanVarianceNormalization": _mean_variance,
    "Min": _folded(af.minimum),
    "Mish": _mish,
    "PRelu": _prelu,
    "Pad": _pad,
    "Pow": _power,
    "RMSNormalization": _rms_norm,
    "ReduceL1": _reduction(lambda x, axes: x.l1_norm(axes)),
    "ReduceL2": _reduction(lambda x, axes: x.sum_square(axes).sqrt()),
    "ReduceLogSum": _reduction(lambda x, axes: x.log_sum(axes)),
    "ReduceLogSumExp": _reduction(lambda x, axes: x.reduce_log_sum_exp(axes)),
    "ReduceMax": _reduction(lambda x, axes: x.amax(axes)),
    "ReduceMean": _reduction(lambda x, axes: x.mean(axes)),
    "ReduceMin": _reduction(lambda x, axes: x.amin(axes)),
    "ReduceProd": _reduction(_product_of),
    "ReduceSum": _reduction(lambda x, axes: x.sum(axes)),
    "ReduceSumSquare": _reduction(lambda x, axes: x.sum_square(axes)),
    "Reshape": _reshape,
    "Resize": _resize,
    "Selu": _selu,
    "Shape": _shape,
    "Shrink": _shrink,
    "Size": _size,
    "Slice": _slice,
    "Softmax": _softmax,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sum": _folded(lambda a, b: a + b),
    "Swish": _swish,
    "ThresholdedRelu": _thresholded,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
    "Upsample": _resize,
    "Where": _where,
}
