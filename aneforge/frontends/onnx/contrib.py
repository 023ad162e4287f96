"""Ops of the domain com.microsoft: fused ops that exporters and ONNX Runtime's optimiser write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aneforge.frontends import forms
from aneforge.frontends.forms.pointwise import UNARY
from aneforge.frontends.importer.op import Op
from aneforge.frontends.onnx.attention import with_bias
from aneforge.frontends.onnx.node import Node
from aneforge.frontends.ops import OPS
from aneforge.frontends.values import NoForm, Value, as_tensor
from aneforge.graph.tensor import Tensor

# Products and activations.


def fused_matmul(
    x: Tensor,
    y: Value,
    alpha: float = 1.0,
    transpose_x: bool = False,
    transpose_y: bool = False,
    transpose_batch: bool = False,
) -> Tensor:
    if transpose_batch:
        raise NoForm("transBatchA and transBatchB are not supported; use a Transpose node")
    return forms.scaled(OPS["matmul"](x, y, transpose_x, transpose_y), alpha)


def bias_gelu(x: Value, bias: Value | None = None, mode: str = "none") -> Tensor:
    return forms.gelu(with_bias(x, bias), mode)


_ACTIVATIONS: dict[str, Callable[[Tensor, list[float]], Tensor]] = {
    "": lambda x, settings: x,
    "Relu": lambda x, settings: UNARY["relu"](x),
    "Sigmoid": lambda x, settings: UNARY["sigmoid"](x),
    "Tanh": lambda x, settings: UNARY["tanh"](x),
    "LeakyRelu": lambda x, settings: forms.leaky_relu(x, *settings[:1]),
    "Clip": lambda x, settings: forms.clamped(x, settings[0], settings[1]),
    "HardSigmoid": lambda x, settings: forms.hard_sigmoid(x, *(settings or [0.2, 0.5])),
}
_ACTIVATION = ("activation", "activation_params", "activation_alpha", "activation_beta")


def _activate(node: Node, x: Tensor) -> Tensor:
    """The activation that ONNX Runtime fused behind an op, by four attributes of the node."""
    kind = str(node.attr("activation", ""))
    if kind not in _ACTIVATIONS:
        raise NoForm(
            f"fused activation {kind!r} is not supported; the reader has {', '.join(filter(None, _ACTIVATIONS))}"
        )
    settings = [float(setting) for setting in node.attr("activation_params", [])]
    separate = [node.attr("activation_alpha"), node.attr("activation_beta")]
    return _ACTIVATIONS[kind](x, settings or [float(setting) for setting in separate if setting is not None])


def _plain(node: Node, kind: str, inputs: Sequence[Value | None]) -> Tensor:
    """The op of the standard without what ONNX Runtime fused to it."""
    attrs = {name: value for name, value in node.attrs.items() if name not in _ACTIVATION}
    return node.result_of(kind, inputs, attrs)


def fused_conv(node: Node) -> Tensor:
    """A fourth input is added to the result."""
    result = _plain(node, "Conv", node.inputs[:3])
    addend = node.inputs[3] if len(node.inputs) > 3 else None
    return _activate(node, result if addend is None else forms.added(result, addend))


def fused_gemm(node: Node) -> Tensor:
    return _activate(node, _plain(node, "Gemm", node.inputs))


def nhwc_conv(node: Node) -> Tensor:
    """Input and output have channels last; the kernel has the usual layout."""
    x, *others = node.inputs
    image = as_tensor(x)
    inner, outer = _channel_orders(image.ndim)
    result = _plain(node, "Conv", [forms.transposed(image, inner), *others])
    return forms.transposed(_activate(node, result), outer)


def _channel_orders(rank: int) -> tuple[list[int], list[int]]:
    """Return the axis orders from channels last to channels first, and back."""
    return [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]


# Norms.


def skip_layer_norm(
    op: Op,
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    epsilon: float = 1e-12,
) -> list[Value]:
    total = with_bias(with_bias(x, skip), bias)
    axes = (total.ndim - 1,)
    if not any(op.used(place) for place in (1, 2)):
        return [forms.layer_norm(total, axes, gamma, beta, epsilon), total, total, total]
    return [*forms.layer_norm_with_statistics(total, axes, gamma, beta, epsilon), total]


def skip_rms_norm(
    op: Op, x: Value, skip: Value, gamma: Value, bias: Value | None = None, epsilon: float = 1e-6
) -> list[Value]:
    total = with_bias(with_bias(x, skip), bias)
    axes = (total.ndim - 1,)
    result = forms.rms_norm(total, axes, gamma, epsilon)
    if not any(op.used(place) for place in (1, 2)):
        return [result, total, total, total]
    return [result, *forms.root_mean_square(total, axes, epsilon), total]


def rms_norm_of(op: Op, x: Tensor, gamma: Value, axis: int = -1, epsilon: float = 1e-5) -> Tensor:
    if op.used(1):
        raise NoForm("a second output is not supported; the engine gives the norm only. Remove the output")
    return OPS["rms_norm"](x, gamma, axis, epsilon)


def group_norm_of(
    x: Tensor,
    gamma: Value,
    beta: Value,
    groups: int,
    epsilon: float = 1e-5,
    channels_last: bool = True,
    activation: bool = False,
) -> Tensor:
    """Channels are last unless channels_last is 0; a swish may follow."""
    inner, outer = _channel_orders(x.ndim)
    result = forms.group_norm(forms.transposed(x, inner) if channels_last else x, groups, gamma, beta, epsilon)
    result = forms.swish(result) if activation else result
    return forms.transposed(result, outer) if channels_last else result
