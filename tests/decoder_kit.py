"""A decoder as an ONNX file, as exporters write one: token ids, a look-up, angles from positions, repeated heads of
keys, and past keys and values that are joined with the new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


def onnx_decoder(  # noqa: PLR0915 - one graph, written out from its start to its end
    folder: Path, rows: int = 1, past: int = 16, layers: int = 3, tail: str = "", seed: int = 0
) -> Path:
    """A file with ``ids``, ``positions``, ``mask``, and past and present keys and values for each layer."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    width, heads, kv, size, inner, words = 32, 4, 2, 8, 48, 96
    random = np.random.default_rng(seed)
    stored: dict[str, np.ndarray] = {}
    nodes: list[Any] = []

    def weight(name: str, *shape: int) -> str:
        stored[name] = (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
        return name

    def const(name: str, values: Any, kind: Any = np.int64) -> str:
        stored[name] = np.array(values, kind)
        return name

    def add(op: str, inputs: list[str], output: str, **attrs: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], f"{op}:{output}", **attrs))
        return output

    def norm(x: str, name: str) -> str:
        square = add("Pow", [x, const("two", 2.0, np.float32)], f"{name}/square")
        mean = add("ReduceMean", [square, const("last", [-1])], f"{name}/mean", keepdims=1)
        root = add("Sqrt", [add("Add", [mean, const("eps", 1e-5, np.float32)], f"{name}/eps")], f"{name}/root")
        gain = const(f"{name}/gain", 1 + 0.1 * random.standard_normal(width), np.float32)
        return add("Mul", [add("Div", [x, root], f"{name}/div"), gain], f"{name}/out")

    def turned(x: str, name: str) -> str:
        for part, ends in (("low", (0, size // 2)), ("high", (size // 2, size))):
            starts, stops = const(f"{part}/from", [ends[0]]), const(f"{part}/to", [ends[1]])
            add("Slice", [x, starts, stops, const("axis3", [3])], f"{name}/{part}")
        other = add("Concat", [add("Neg", [f"{name}/high"], f"{name}/neg"), f"{name}/low"], f"{name}/other", axis=3)
        one, two = add("Mul", [x, "cos"], f"{name}/cos"), add("Mul", [other, "sin"], f"{name}/sin")
        return add("Add", [one, two], f"{name}/turned")

    def repeated(x: str, name: str, keys: int) -> str:
        raised = add("Unsqueeze", [x, const("axis2", [2])], f"{name}/raised")
        wide = add("Expand", [raised, const(f"wide{keys}", [1, kv, heads // kv, keys, size])], f"{name}/wide")
        return add("Reshape", [wide, const(f"flat{keys}", [1, heads, keys, size])], f"{name}/repeated")

    x = add("Gather", [weight("table", words, width), "ids"], "embedded")
    frequencies = const("frequencies", 1.0 / 100.0 ** (np.arange(size // 2) / (size // 2)), np.float32)
    angles = add("Mul", [add("Unsqueeze", ["positions", const("minus", [-1])], "p2"), frequencies], "angles")
    both = add("Unsqueeze", [add("Concat", [angles, angles], "both", axis=-1), const("axis1", [1])], "both4")
    add("Cos", [both], "cos"), add("Sin", [both], "sin")
    ports = [("ids", kinds.INT64, [1, rows]), ("positions", kinds.FLOAT, [1, rows]),
             ("mask", kinds.FLOAT, [1, 1, rows, past + rows])]  # fmt: skip
    results = [("logits", [1, rows, words])]
    for number in range(layers):
        at = f"layers.{number}"
        y = norm(x, f"{at}/norm1")
        made = {}
        for name, count in (("q", heads), ("k", kv), ("v", kv)):
            flat = add("MatMul", [y, weight(f"{at}/{name}", width, count * size)], f"{at}/{name}/flat")
            split = add("Reshape", [flat, const(f"to{count}", [1, rows, count, size])], f"{at}/{name}/split")
            made[name] = add("Transpose", [split], f"{at}/{name}/heads", perm=[0, 2, 1, 3])
        made["q"], made["k"] = turned(made["q"], f"{at}/q"), turned(made["k"], f"{at}/k")
        for name in ("k", "v"):
            ports.append((f"past.{number}.{name}", kinds.FLOAT, [1, kv, past, size]))
            present = add("Concat", [f"past.{number}.{name}", made[name]], f"present.{number}.{name}", axis=2)
            results.append((present, [1, kv, past + rows, size]))
            made[name] = repeated(present, f"{at}/{name}", past + rows)
        turned_keys = add("Transpose", [made["k"]], f"{at}/kt", perm=[0, 1, 3, 2])
        scores = add("MatMul", [made["q"], turned_keys], f"{at}/scores")
        scores = add("Mul", [scores, const("scale", size**-0.5, np.float32)], f"{at}/scaled")
        shares = add("Softmax", [add("Add", [scores, "mask"], f"{at}/masked")], f"{at}/shares", axis=-1)
        mixed = add("Transpose", [add("MatMul", [shares, made["v"]], f"{at}/mixed")], f"{at}/back", perm=[0, 2, 1, 3])
        flat = add("Reshape", [mixed, const("rows", [1, rows, heads * size])], f"{at}/flat")
        x = add("Add", [x, add("MatMul", [flat, weight(f"{at}/o", heads * size, width)], f"{at}/o/out")], f"{at}/x1")
        y = norm(x, f"{at}/norm2")
        gate = add("MatMul", [y, weight(f"{at}/gate", width, inner)], f"{at}/gate/out")
        gate = add("Mul", [gate, add("Sigmoid", [gate], f"{at}/sigmoid")], f"{at}/silu")
        both = add("Mul", [gate, add("MatMul", [y, weight(f"{at}/up", width, inner)], f"{at}/up/out")], f"{at}/gated")
        x = add("Add", [x, add("MatMul", [both, weight(f"{at}/down", inner, width)], f"{at}/down/out")], f"{at}/x2")
    if tail:
        x = add(tail, [x], "odd")
    add("MatMul", [norm(x, "last"), weight("head", width, words)], "logits")
    tensors = [onnx.numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in stored.items()]
    inputs = [helper.make_tensor_value_info(*port) for port in ports]
    outputs = [helper.make_tensor_value_info(name, kinds.FLOAT, shape) for name, shape in results]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    file = folder / "decoder.onnx"
    onnx.save(model, str(file))
    return file
