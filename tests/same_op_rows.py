# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportOptionalMemberAccess=false, reportIndexIssue=false
"""Layers that several formats have, each spelled as an ONNX node and as an op of MIL: the first is compared with the
others by tests/test_same_op_layers.py, and with PyTorch's by tests/torch/test_same_op_torch.py."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from same_op_kit import CHIPS

import aneforge as af

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

X = (1, 8, 4, 4)


def f(value: Any) -> np.ndarray:
    return np.asarray(value, np.float32)


def draw(*shape: int, seed: int = 3, positive: bool = False) -> np.ndarray:
    numbers = np.random.default_rng(seed).uniform(0.25 if positive else -1.0, 1.0, shape)
    return numbers.astype(np.float16).astype(np.float32)


def i(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@dataclass
class Layer:
    """``nodes``: (kind, operands, attributes) in order; an operand is an earlier result ``t0``, the input ``x`` or a
    known array. ``mil`` takes the builder and the input."""

    nodes: list[tuple[str, list[Any], dict[str, Any]]]
    mil: Callable[[Any, Any], Any] | None = None
    shape: tuple[int, ...] = X
    opset: int = 21
    chips: tuple[str, ...] = CHIPS
    bits_only: bool = False

    def feeds(self) -> list[np.ndarray]:
        return [draw(*self.shape, seed=7) * np.float32(4)]


def one(kind: str, *operands: Any, mil: Any = None, shape: Any = X, opset: int = 21, **attrs: Any) -> Layer:
    return Layer([(kind, ["x", *operands], attrs)], mil, shape, opset)


def truths(kind: str, mil: Any) -> Layer:
    """A logical op of two comparisons, given as numbers."""
    nodes = [
        ("Greater", ["x", f(0)], {}),
        ("Less", ["x", f(1)], {}),
        (kind, ["t0", "t1"], {}),
        ("Cast", ["t2"], {"to": 1}),
    ]
    return Layer(nodes, mil)


def both(mb: Any, x: Any, name: str) -> Any:
    pair = {"x": mb.greater(x=x, y=f(0)), "y": mb.less(x=x, y=f(1))}
    return mb.cast(x=getattr(mb, name)(**pair), dtype="fp32")


KERNEL, GROUPED, UP = draw(6, 8, 3, 3), draw(8, 2, 3, 3), draw(8, 5, 2, 2)
BIAS6, BIAS8, BIAS5 = draw(6, seed=4), draw(8, seed=5), draw(5, seed=6)
GAIN, SHIFT, MEAN, SPREAD = (draw(8, seed=n, positive=n in (10, 13)) for n in (10, 11, 12, 13))
WEIGHT, LINE = draw(5, 16), draw(5, seed=8)
W4, R4, B8 = draw(1, 12, 6), draw(1, 12, 3, seed=9), draw(1, 24, seed=14)

LAYERS: dict[str, Layer] = {
    "convolution": one(
        "Conv", KERNEL, BIAS6, pads=[1, 1, 1, 1],
        mil=lambda mb, x: mb.conv(x=x, weight=KERNEL, bias=BIAS6, pad_type="custom", pad=[1, 1, 1, 1]),
    ),
    "convolution in groups": one(
        "Conv", GROUPED, group=4, strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 1],
        mil=lambda mb, x: mb.conv(
            x=x, weight=GROUPED, groups=4, strides=[2, 1], pad_type="custom", pad=[1, 2, 0, 1], dilations=[1, 1]
        ),
    ),
    "convolution of the same size": one(
        "Conv", KERNEL, auto_pad="SAME_UPPER", strides=[2, 2],
        mil=lambda mb, x: mb.conv(x=x, weight=KERNEL, pad_type="same", strides=[2, 2]),
    ),
    "convolution along a line": one(
        "Conv", draw(4, 8, 3), shape=(1, 8, 9), mil=lambda mb, x: mb.conv(x=x, weight=draw(4, 8, 3), pad_type="valid"),
    ),
    "transposed convolution": one(
        "ConvTranspose", UP, BIAS5, strides=[2, 2],
        mil=lambda mb, x: mb.conv_transpose(x=x, weight=UP, bias=BIAS5, strides=[2, 2], pad_type="valid"),
    ),
    "average pool with zeros": one(
        "AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1,
        mil=lambda mb, x: mb.avg_pool(
            x=x, kernel_sizes=[3, 3], strides=[1, 1], pad_type="custom", pad=[1, 1, 1, 1],
            exclude_padding_from_average=False,
        ),
    ),
    "norm pool": one(
        "LpPool", kernel_shape=[2, 2], strides=[2, 2], p=2,
        mil=lambda mb, x: mb.l2_pool(x=x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid"),
    ),
    "norm pool, rounded up": one(
        "LpPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, p=2,
        mil=lambda mb, x: mb.l2_pool(
            x=x, kernel_sizes=[3, 3], strides=[2, 2], pad_type="custom", pad=[1, 1, 1, 1], ceil_mode=True
        ),
    ),
    "bilinear, half pixels": one(
        "Resize", None, f([1, 1, 2, 2]), mode="linear", coordinate_transformation_mode="half_pixel",
        mil=lambda mb, x: mb.resize_bilinear(
            x=x, target_size_height=8, target_size_width=8, sampling_mode="UNALIGN_CORNERS"
        ),
    ),
    "bilinear, aligned corners": one(
        "Resize", None, None, i(1, 8, 7, 9), mode="linear", coordinate_transformation_mode="align_corners",
        mil=lambda mb, x: mb.resize_bilinear(
            x=x, target_size_height=7, target_size_width=9, sampling_mode="STRICT_ALIGN_CORNERS"
        ),
    ),
    "nearest": one(
        "Resize", None, f([1, 1, 3, 2]), mode="nearest", coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
        mil=lambda mb, x: mb.upsample_nearest_neighbor(x=x, scale_factor_height=3, scale_factor_width=2),
    ),
    "pixel shuffle": one(
        "DepthToSpace", blocksize=2, mode="CRD", mil=lambda mb, x: mb.pixel_shuffle(x=x, upscale_factor=2)
    ),
    "joined": Layer(
        [("Relu", ["x"], {}), ("Concat", ["x", "t0"], {"axis": 1})],
        lambda mb, x: mb.concat(values=[x, mb.relu(x=x)], axis=1),
    ),
    "expanded": Layer(
        [("ReduceMean", ["x", i(2, 3)], {}), ("Expand", ["t0", i(1, 8, 4, 4)], {})],
        lambda mb, x: mb.tile(x=mb.reduce_mean(x=x, axes=[2, 3], keep_dims=True), reps=[1, 1, 4, 4]),
    ),
    "reshaped": one("Reshape", i(2, -1, 16), mil=lambda mb, x: mb.reshape(x=x, shape=[2, 4, 16])),
    "squeezed": one("Squeeze", i(0), mil=lambda mb, x: mb.squeeze(x=x, axes=[0])),
    "unsqueezed": one("Unsqueeze", i(1), shape=(8, 4), mil=lambda mb, x: mb.expand_dims(x=x, axes=[1])),
    "batch norm": one(
        "BatchNormalization", GAIN, SHIFT, MEAN, SPREAD, epsilon=1e-3,
        mil=lambda mb, x: mb.batch_norm(x=x, gamma=GAIN, beta=SHIFT, mean=MEAN, variance=SPREAD, epsilon=1e-3),
    ),
    "group norm": one("GroupNormalization", GAIN, SHIFT, num_groups=4, epsilon=1e-3),
    "rms norm": one("RMSNormalization", draw(16), axis=-1, epsilon=1e-3, shape=(2, 6, 16), opset=23),
    "local response norm": one(
        "LRN", size=3, alpha=0.01, beta=0.75, bias=1.0,
        mil=lambda mb, x: mb.local_response_norm(x=x, size=3, alpha=0.01, beta=0.75, k=1.0),
    ),
    "log softmax": one("LogSoftmax", axis=1),
    "gemm": one(
        "Gemm", WEIGHT, LINE, transB=1, shape=(4, 16), mil=lambda mb, x: mb.linear(x=x, weight=WEIGHT, bias=LINE)
    ),
    "einsum": one("Einsum", WEIGHT, equation="bi,oi->bo", shape=(4, 16)),
    "einsum without a result": one("Einsum", equation="ij->", shape=(4, 16)),
    "and": truths("And", lambda mb, x: both(mb, x, "logical_and")),
    "or": truths("Or", lambda mb, x: both(mb, x, "logical_or")),
    "xor": truths("Xor", lambda mb, x: both(mb, x, "logical_xor")),
    "where": Layer(
        [("Greater", ["x", f(0)], {}), ("Where", ["t0", "x", f(0.25)], {})],
        lambda mb, x: mb.select(cond=mb.greater(x=x, y=f(0)), a=x, b=f(0.25)),
    ),
    "fmod": one("Mod", f(1.5), fmod=1),
    "celu": one("Celu", alpha=0.7),
    "selu": one("Selu"),
    "mish": one("Mish"),
    "hard swish": one("HardSwish"),
    "lower triangle": one("Trilu", upper=0),
    "attention": Layer([("Attention", ["x", "x", "x"], {})], shape=(1, 2, 6, 8), opset=23),
    "the two largest": Layer(
        [("TopK", ["x", i(2)], {"axis": -1})], lambda mb, x: mb.topk(x=x, k=2, axis=-1)[0], (3, 12), chips=("m5",)
    ),
    "recurrence": Layer(
        [("RNN", ["x", draw(1, 3, 6), draw(1, 3, 3), draw(1, 6)], {"hidden_size": 3})], shape=(4, 1, 6), bits_only=True
    ),
    "lstm": Layer([("LSTM", ["x", W4, R4, B8], {"hidden_size": 3})], shape=(4, 1, 6), bits_only=True),
}  # fmt: skip


def onnx_graph(folder: Any, layer: Layer) -> af.Graph:
    stored: dict[str, np.ndarray] = {}
    nodes = []
    for place, (kind, operands, attributes) in enumerate(layer.nodes):
        names = []
        for operand in operands:
            if isinstance(operand, np.ndarray):
                stored[f"c{len(stored)}"] = operand
                names.append(f"c{len(stored) - 1}")
            else:
                names.append(operand or "")
        result = "y" if place == len(layer.nodes) - 1 else f"t{place}"
        nodes.append(helper.make_node(kind, names, [result], **attributes))
        if kind == "TopK":
            nodes[-1].output.append("")
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, layer.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    file = folder / "model.onnx"
    imports = [helper.make_opsetid("", layer.opset)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), str(file))
    return af.load(file)
