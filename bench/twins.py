"""The benchmark networks for others to run: as an ONNX model in float32, and in NumPy.

Only the operations that ``networks.py`` uses are here. Reading models that people hold is another matter.
"""

# pyright: reportMissingImports=false
# The makers and runners of such models are an extra (bench), which style and type checks do not need.
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aneforge.graph import Graph
from aneforge.graph.tensor import Tensor

Array = np.ndarray
OPSET = 23


def onnx_twin(graph: Graph) -> bytes:  # noqa: PLR0912, PLR0915 - one branch an op
    """The graph as a float32 ONNX model."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    names = {node.uid: f"n{place}" for place, node in enumerate(graph)}
    nodes: list[Any] = []
    stored: list[Any] = []

    def constant(array: Array, hint: str) -> str:
        stored.append(numpy_helper.from_array(array, f"{hint}_{len(stored)}"))
        return stored[-1].name

    def emit(kind: str, inputs: list[str], output: str, **attrs: Any) -> None:
        nodes.append(helper.make_node(kind, inputs, [output], **attrs))

    inputs = []
    for node in graph:
        name, attrs = names[node.uid], dict(node.signature.attrs)
        given = [names[each.uid] for each in node.inputs]
        if node.op == "input":
            inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(node.shape)))
        elif node.op == "const":
            stored.append(numpy_helper.from_array(_weight(node).astype(np.float32), name))
        elif node.op == "conv":
            top, bottom, left, right = attrs["pad"]
            emit("Conv", given, name, strides=attrs["stride"], pads=[top, left, bottom, right], group=attrs["groups"])
        elif node.op == "batch_norm":
            emit("BatchNormalization", given, name, epsilon=attrs["eps"])
        elif node.op == "relu6":
            ends = [constant(np.array(end, np.float32), "end") for end in (0, 6)]
            emit("Clip", [*given, *ends], name)
        elif node.op == "max_pool":
            top, bottom, left, right = attrs["pad"]
            shape = {"kernel_shape": attrs["kernel"], "strides": attrs["stride"], "pads": [top, left, bottom, right]}
            emit("MaxPool", given, name, **shape)
        elif node.op == "mean":
            emit("ReduceMean", [*given, constant(np.array(attrs["axes"]), "axes")], name, keepdims=1)
        elif node.op == "reshape":
            emit("Reshape", [*given, constant(np.array(attrs["to"]), "shape")], name)
        elif node.op == "linear":
            emit("Gemm", given, name, transB=1)
        elif node.op in ("layer_norm", "rms_norm"):
            kind = "LayerNormalization" if node.op == "layer_norm" else "RMSNormalization"
            emit(kind, given, name, epsilon=attrs["eps"], axis=-1)
        elif node.op == "upsample_nearest_neighbor":
            scales = constant(np.array([1, 1, *attrs["scale"]], np.float32), "scales")
            emit("Resize", [given[0], "", scales], name, **_NEAREST)
        elif node.op == "silu":
            emit("Sigmoid", given, f"{name}_s")
            emit("Mul", [given[0], f"{name}_s"], name)
        else:
            kind, extra = _PLAIN[node.op]
            emit(kind, given, name, **{to: attrs[of] for to, of in extra.items()})
    outputs = [
        helper.make_tensor_value_info(names[out.uid], TensorProto.FLOAT, list(out.shape)) for out in graph.outputs
    ]
    made = helper.make_model(
        helper.make_graph(nodes, "twin", inputs, outputs, stored), opset_imports=[helper.make_opsetid("", OPSET)]
    )
    made.ir_version = 10
    onnx.checker.check_model(made)
    return made.SerializeToString()


_NEAREST = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
_PLAIN: dict[str, tuple[str, dict[str, str]]] = {
    "relu": ("Relu", {}),
    "add": ("Add", {}),
    "mul": ("Mul", {}),
    "matmul": ("MatMul", {}),
    "softmax": ("Softmax", {"axis": "axis"}),
    "transpose": ("Transpose", {"perm": "perm"}),
    "concat": ("Concat", {"axis": "axis"}),
    "gelu": ("Gelu", {}),
    "sigmoid": ("Sigmoid", {}),
}


def _weight(node: Tensor) -> Array:
    assert node.weight is not None
    return node.weight.array


def numpy_twin(graph: Graph) -> Callable[[dict[str, Array]], list[Array]]:
    """The graph in NumPy, float32; weights are converted once."""
    names = graph.names()
    held = {node.uid: _weight(node).astype(np.float32) for node in graph if node.op == "const"}

    def run(feeds: dict[str, Array]) -> list[Array]:
        values = dict(held)
        for node in graph:
            if node.op == "input":
                values[node.uid] = feeds[names[node.uid]]
            elif node.op != "const":
                values[node.uid] = _NUMPY[node.op](dict(node.signature.attrs), *(values[i.uid] for i in node.inputs))
        return [values[out.uid] for out in graph.outputs]

    return run


def _conv(attrs: dict[str, Any], x: Array, weight: Array) -> Array:
    top, bottom, left, right = attrs["pad"]
    padded = np.pad(x[0], ((0, 0), (top, bottom), (left, right)))
    view = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axis=(1, 2))
    view = view[:, :: attrs["stride"][0], :: attrs["stride"][1]]
    rows, columns = view.shape[1:3]
    groups = attrs["groups"]
    read = view.transpose(0, 3, 4, 1, 2).reshape(groups, -1, rows * columns)
    return (weight.reshape(groups, len(weight) // groups, -1) @ read).reshape(1, -1, rows, columns)


def _batch_norm(attrs: dict[str, Any], x: Array, gamma: Array, beta: Array, mean: Array, variance: Array) -> Array:
    gain = gamma / np.sqrt(variance + np.float32(attrs["eps"]))
    return x * gain[:, None, None] + (beta - mean * gain)[:, None, None]


def _max_pool(attrs: dict[str, Any], x: Array) -> Array:
    top, bottom, left, right = attrs["pad"]
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=-np.inf)
    view = np.lib.stride_tricks.sliding_window_view(padded, attrs["kernel"], axis=(2, 3))
    return view[:, :, :: attrs["stride"][0], :: attrs["stride"][1]].max(axis=(4, 5))


def _softmax(attrs: dict[str, Any], x: Array) -> Array:
    powers = np.exp(x - x.max(axis=attrs["axis"], keepdims=True))
    return powers / powers.sum(axis=attrs["axis"], keepdims=True)


def _layer_norm(attrs: dict[str, Any], x: Array, gamma: Array, beta: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + np.float32(attrs["eps"])) * gamma + beta


def _rms_norm(attrs: dict[str, Any], x: Array, gamma: Array) -> Array:
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + np.float32(attrs["eps"])) * gamma


def _gelu(attrs: dict[str, Any], x: Array) -> Array:
    """The usual approximation: NumPy has no erf."""
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


_NUMPY: dict[str, Callable[..., Array]] = {
    "conv": _conv,
    "batch_norm": _batch_norm,
    "relu": lambda attrs, x: np.maximum(x, 0),
    "relu6": lambda attrs, x: np.clip(x, 0, 6),
    "max_pool": _max_pool,
    "add": lambda attrs, a, b: a + b,
    "mul": lambda attrs, a, b: a * b,
    "mean": lambda attrs, x: x.mean(axis=attrs["axes"], keepdims=True),
    "reshape": lambda attrs, x: x.reshape(attrs["to"]),
    "linear": lambda attrs, x, weight, *bias: x @ weight.T + (bias[0] if bias else 0),
    "softmax": _softmax,
    "transpose": lambda attrs, x: x.transpose(attrs["perm"]),
    "matmul": lambda attrs, a, b: a @ b,
    "concat": lambda attrs, *parts: np.concatenate(parts, axis=attrs["axis"]),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "gelu": _gelu,
    "silu": lambda attrs, x: x / (1 + np.exp(-x)),
}
