"""Models that are only in part on the engine, small ones for tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aneforge as af

RNG = np.random.default_rng(11)


def half(*shape: int, scale: float = 0.2) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(np.float16).astype(np.float32)


def encoder(folder: Path, table_scale: float = 0.2) -> Path:
    """Token ids that are reshaped, cut and cast, an embedding, two layers, a determinant of the host, a softmax."""
    onnx = pytest.importorskip("onnx")
    helper, numpy_helper, kinds = onnx.helper, onnx.numpy_helper, onnx.TensorProto
    node = helper.make_node
    weights = {
        "table": half(400, 32, scale=table_scale),
        "w1": half(32, 64),
        "flat": np.array([1, 20]),
        "start": np.array([0]),
        "end": np.array([16]),
        "axis": np.array([1]),
        "squares": np.array([4, 16, 4, 4]),
    }
    nodes = [
        node("Reshape", ["ids", "flat"], ["i0"], "ids/reshape"),
        node("Slice", ["i0", "start", "end", "axis"], ["i1"], "ids/slice"),
        node("Cast", ["i1"], ["i2"], "ids/cast", to=kinds.INT32),
        node("Gather", ["table", "i2"], ["e"], "embed"),
        node("MatMul", ["e", "w1"], ["h"], "layer0/matmul"),
        node("Relu", ["h"], ["r"], "layer0/relu"),
        node("Reshape", ["r", "squares"], ["q"], "to_squares"),
        node("Det", ["q"], ["d"], "det"),
        node("Softmax", ["d"], ["s"], "softmax", axis=-1),
        node("Add", ["s", "s"], ["y"], "double"),
    ]
    stored = [numpy_helper.from_array(np.asarray(array), key) for key, array in weights.items()]
    ports = [helper.make_tensor_value_info("ids", kinds.INT64, [2, 10])]
    graph = helper.make_graph(nodes, "net", ports, [onnx.ValueInfoProto(name="y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    file = folder / "encoder.onnx"
    onnx.save(model, str(file))
    return file


def many_refusals(count: int) -> af.Graph:
    """A chain in which an M1 refuses ``count`` ops of one kind: a top-k has no program there."""
    x = af.input((4, 64), name="x")
    for number in range(count):
        x = (af.topk(x, 64).named(f"block{number}/topk") * 0.5).named(f"block{number}/scale")
    return af.Graph([x.named("y")])


def whole() -> af.Graph:
    """One region on every chip."""
    x = af.input((1, 8, 16, 16), name="x")
    return af.Graph([af.conv(x, half(8, 8, 3, 3), pad=1).relu().named("y")])
