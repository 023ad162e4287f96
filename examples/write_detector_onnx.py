# pyright: reportMissingImports=false
"""Write ``detector.onnx``, a small sound-event detector as exporters write one, and ``clip.npz``, an input for it.

The weights are random. The demo and the tutorial use it, because chips treat four of its parts differently:

- the pre-emphasis filter slices the samples from 1 on, which older chips move through fixed point,
- the bilinear Resize is native from the M2 on,
- the 3 x 3 convolutions are computed in another way from the M5 on,
- TopK exists from the M2 on, so on an M1 the host has to do it.

The clip is half a second of a tone that grows to 12,000 of the 32,767 that 16 bits hold, in overlapping frames.

``python examples/write_detector_onnx.py`` needs the extra ``onnx``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

FRAMES, SAMPLES, HOP, RATE, EVENTS, BEST = 128, 257, 64, 16000, 8, 5


class Detector:
    """Nodes and weights while they are collected."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(11)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, name: str, values: Any, kind: Any = np.float16) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def node(self, kind: str, inputs: list[str], name: str, **settings: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [f"{name}_out"], name, **settings))
        return f"{name}_out"

    def crop(self, x: str, name: str, start: int, end: int) -> str:
        places = {"starts": [start], "ends": [end], "axes": [3]}
        inputs = [self.weight(f"{name}.{what}", value, np.int64) for what, value in places.items()]
        return self.node("Slice", [x, *inputs], name)

    def conv(self, x: str, name: str, shape: tuple[int, int, int, int], **settings: Any) -> str:
        numbers = self.rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        inputs = [self.weight(f"{name}.weight", numbers), self.weight(f"{name}.bias", np.zeros(shape[0]))]
        return self.node("Conv", [x, *inputs], name, kernel_shape=shape[2:], **settings)

    def relu6(self, x: str, name: str) -> str:
        limits = [self.weight(f"{name}.min", 0.0), self.weight(f"{name}.max", 6.0)]
        return self.node("Clip", [x, *limits], name)

    def build(self) -> Any:
        ahead = self.crop("samples", "next", 1, SAMPLES)
        behind = self.node("Mul", [self.crop("samples", "this", 0, SAMPLES - 1), self.weight("memory", 0.97)], "decay")
        clear = self.node("Sub", [ahead, behind], "emphasis")
        small = self.node("Mul", [clear, self.weight("unit", 2.0**-12)], "level")
        bank = self.conv(small, "bank", (16, 1, 1, 9), strides=[1, 4], pads=[0, 4, 0, 4])
        bank = self.relu6(bank, "bank_relu")
        low = self.relu6(self.conv(bank, "down", (64, 16, 3, 3), strides=[2, 2], pads=[1] * 4), "down_relu")
        low = self.relu6(self.conv(low, "deep", (64, 64, 3, 3), pads=[1] * 4), "deep_relu")
        scales = self.weight("up.scales", [1, 1, 2, 2], np.float32)
        up = self.node("Resize", [low, "", scales], "up", mode="linear", coordinate_transformation_mode="half_pixel")
        both = self.node("Concat", [up, bank], "skip", axis=1)
        fine = self.relu6(self.conv(both, "fine", (64, 80, 3, 3), pads=[1] * 4), "fine_relu")
        scores = self.node("Sigmoid", [self.conv(fine, "score", (EVENTS, 64, 1, 1))], "score_sigmoid")
        axes = self.weight("axes", [2, 3], np.int64)
        mean = self.node("ReduceMean", [scores, axes], "mean", keepdims=0)
        best = self.weight("best.count", [BEST], np.int64)
        self.nodes.append(helper.make_node("TopK", [mean, best], ["best_out", ""], "best", axis=1))
        sharp = self.node("Mul", ["best_out", self.weight("temperature", 16.0)], "sharpen")
        self.nodes.append(helper.make_node("Softmax", [sharp], ["confidence"], "confidence", axis=1))
        samples = helper.make_tensor_value_info("samples", TensorProto.FLOAT16, [1, 1, FRAMES, SAMPLES])
        result = helper.make_tensor_value_info("confidence", TensorProto.FLOAT16, [1, BEST])
        graph = helper.make_graph(self.nodes, "detector", [samples], [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def clip() -> np.ndarray:
    """A tone that fades in, cut into the frames that the detector reads."""
    time = np.arange((FRAMES - 1) * HOP + SAMPLES) / RATE
    wave = np.round(12000 * (time / time[-1]) ** 2 * np.sin(2 * np.pi * 440 * time))
    frames = [wave[HOP * frame : HOP * frame + SAMPLES] for frame in range(FRAMES)]
    return np.stack(frames).astype(np.float16)[None, None]


if __name__ == "__main__":
    folder = Path(__file__).resolve().parent
    save(Detector().build(), str(folder / "detector.onnx"))
    np.savez_compressed(folder / "clip.npz", samples=clip())
    for name in ("detector.onnx", "clip.npz"):
        print(f"wrote {name}, {(folder / name).stat().st_size:,} bytes")
