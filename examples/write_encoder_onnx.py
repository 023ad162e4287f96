# pyright: reportMissingImports=false
"""Write ``tiny_encoder.onnx``: a BERT-shaped encoder of two layers as exporters write them, with random weights.

Token numbers and the mask are integers, shapes are computed in the graph, the batch is symbolic and the products of
the second layer are 8-bit weights. ``python examples/write_encoder_onnx.py`` needs the extra ``onnx``; then

    aneforge check examples/tiny_encoder.onnx --dim batch=1
    aneforge partition examples/tiny_encoder.onnx --dim batch=1 --target m1
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

WORDS, WIDTH, HEADS, LENGTH, LAYERS = 96, 32, 4, 16, 2


class Encoder:
    """Nodes and weights while they are collected."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, name: str, values: Any, kind: Any = np.float16) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def node(self, kind: str, inputs: list[str], name: str, **settings: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_output_0"], name, **settings))
        return f"{name}_output_0"

    def linear(self, x: str, name: str, rows: int, columns: int, quantised: bool) -> str:
        numbers = self.rng.standard_normal((columns, rows)) / np.sqrt(columns)
        if quantised:
            scale = np.abs(numbers).max(0) / 127
            codes = self.weight(f"{name}.weight_quantized", np.round(numbers / scale), np.int8)
            factor = self.weight(f"{name}.weight_scale", scale)
            zero = self.weight(f"{name}.weight_zero_point", np.zeros(rows), np.int8)
            weight = self.node("DequantizeLinear", [codes, factor, zero], f"{name}/DequantizeLinear", axis=1)
        else:
            weight = self.weight(f"{name}.weight", numbers)
        product = self.node("MatMul", [x, weight], f"{name}/MatMul")
        return self.node("Add", [product, self.weight(f"{name}.bias", np.zeros(rows))], f"{name}/Add")

    def norm(self, x: str, name: str) -> str:
        gains = [self.weight(f"{name}.weight", np.ones(WIDTH)), self.weight(f"{name}.bias", np.zeros(WIDTH))]
        return self.node("LayerNormalization", [x, *gains], f"{name}/LayerNormalization", axis=-1, epsilon=1e-5)

    def layer(self, x: str, mask: str, heads: str, flat: str, name: str, quantised: bool) -> str:
        parts = {}
        for each in ("query", "key", "value"):
            given = self.linear(x, f"{name}/attention/{each}", WIDTH, WIDTH, quantised)
            split = self.node("Reshape", [given, heads], f"{name}/attention/{each}/Reshape")
            order = [0, 2, 3, 1] if each == "key" else [0, 2, 1, 3]
            parts[each] = self.node("Transpose", [split], f"{name}/attention/{each}/Transpose", perm=order)
        scores = self.node("MatMul", [parts["query"], parts["key"]], f"{name}/attention/MatMul")
        root = self.weight(f"{name}.root", np.sqrt(WIDTH / HEADS))
        scores = self.node("Div", [scores, root], f"{name}/attention/Div")
        masked = self.node("Add", [scores, mask], f"{name}/attention/Add")
        shares = self.node("Softmax", [masked], f"{name}/attention/Softmax", axis=-1)
        mixed = self.node("MatMul", [shares, parts["value"]], f"{name}/attention/MatMul_1")
        turned = self.node("Transpose", [mixed], f"{name}/attention/Transpose", perm=[0, 2, 1, 3])
        joined = self.node("Reshape", [turned, flat], f"{name}/attention/Reshape")
        out = self.linear(joined, f"{name}/attention/output", WIDTH, WIDTH, quantised)
        x = self.norm(self.node("Add", [out, x], f"{name}/attention/residual"), f"{name}/attention/norm")
        wide = self.linear(x, f"{name}/intermediate", 2 * WIDTH, WIDTH, quantised)
        wide = self.node("Gelu", [wide], f"{name}/intermediate/Gelu")
        out = self.linear(wide, f"{name}/output", WIDTH, 2 * WIDTH, quantised)
        return self.norm(self.node("Add", [out, x], f"{name}/output/residual"), f"{name}/output/norm")

    def build(self) -> Any:
        rng = self.rng
        words = self.weight("embeddings.word.weight", rng.standard_normal((WORDS, WIDTH)) * 0.5)
        places = self.weight("embeddings.position.weight", rng.standard_normal((1, LENGTH, WIDTH)) * 0.5)
        found = self.node("Gather", [words, "input_ids"], "/embeddings/word/Gather")
        x = self.norm(self.node("Add", [found, places], "/embeddings/Add"), "/embeddings/norm")
        shape = self.node("Shape", ["input_ids"], "/Shape")
        batch = self.node("Gather", [shape, self.weight("first", [0], np.int64)], "/batch")
        sizes = self.weight("sizes", [LENGTH, HEADS, WIDTH // HEADS], np.int64)
        heads = self.node("Concat", [batch, sizes], "/heads", axis=0)
        flat = self.node("Concat", [batch, self.weight("flat", [LENGTH, WIDTH], np.int64)], "/flat", axis=0)
        mask = self.node("Unsqueeze", ["attention_mask", self.weight("axes", [1, 2], np.int64)], "/mask/Unsqueeze")
        mask = self.node("Cast", [mask], "/mask/Cast", to=TensorProto.FLOAT16)
        mask = self.node("Sub", [self.weight("one", 1.0), mask], "/mask/Sub")
        mask = self.node("Mul", [mask, self.weight("low", -10000.0)], "/mask/Mul")
        for number in range(LAYERS):
            x = self.layer(x, mask, heads, flat, f"/encoder/layer.{number}", quantised=number == 1)
        ports = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", LENGTH])
            for name in ("input_ids", "attention_mask")
        ]
        result = helper.make_tensor_value_info(x, TensorProto.FLOAT16, None)
        graph = helper.make_graph(self.nodes, "tiny_encoder", ports, [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


if __name__ == "__main__":
    target = Path(__file__).resolve().parent / "tiny_encoder.onnx"
    save(Encoder().build(), str(target))
    print(f"wrote {target.name}, {target.stat().st_size:,} bytes")
