# pyright: reportMissingImports=false
"""What importing once saves: ``python bench/cache.py``.

A network of about 1,000 nodes (convolutions, then attention) is written as ONNX and, where torch is installed, as an
exported program. Each is loaded, checked for all chips and estimated for M1 in processes of their own: without the
cache, the first time, and from the cache. Prints seconds, their ratio, and the peak memory (without that of the
reader's library) over the bytes of the weights. Figures only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

IMAGE_BLOCKS, TOKEN_BLOCKS = 100, 32
CHANNELS, WIDTH, HEADS = 128, 512, 8


def onnx_model(file: Path) -> tuple[int, int]:
    """Write the network; returns its nodes and the bytes of its weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes: list[Any] = []
    stored: list[Any] = []

    def weight(*shape: int) -> str:
        name = f"w{len(stored)}"
        scale = 0.5 / np.sqrt(np.prod(shape[1:]) or 1)
        stored.append(numpy_helper.from_array((rng.standard_normal(shape) * scale).astype(np.float32), name))
        return name

    def shape(*extents: int) -> str:
        name = f"w{len(stored)}"
        stored.append(numpy_helper.from_array(np.array(extents), name))
        return name

    def node(kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    x = node("Conv", "image", weight(CHANNELS, 3, 4, 4), strides=[4, 4])
    for _ in range(IMAGE_BLOCKS):
        h = node("Relu", node("Conv", x, weight(CHANNELS, CHANNELS, 3, 3), pads=[1, 1, 1, 1]))
        x = node("Add", x, node("Conv", h, weight(CHANNELS, CHANNELS, 1, 1)))
    x = node("Conv", x, weight(WIDTH, CHANNELS, 4, 4), strides=[4, 4])
    x = node("Transpose", node("Reshape", x, shape(1, WIDTH, 196)), perm=[0, 2, 1])
    for _ in range(TOKEN_BLOCKS):
        n = node("LayerNormalization", x, weight(WIDTH), weight(WIDTH))
        heads = []
        for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
            part = node("MatMul", n, weight(WIDTH, WIDTH))
            part = node("Reshape", part, shape(1, 196, HEADS, WIDTH // HEADS))
            heads.append(node("Transpose", part, perm=list(order)))
        q, k, v = heads
        attended = node("MatMul", node("Softmax", node("MatMul", q, k), axis=-1), v)
        joined = node("Reshape", node("Transpose", attended, perm=[0, 2, 1, 3]), shape(1, 196, WIDTH))
        x = node("Add", x, node("MatMul", joined, weight(WIDTH, WIDTH)))
    port = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])
    graph = helper.make_graph(nodes, "bench", [port], [onnx.ValueInfoProto(name=x)], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(file))
    return len(nodes), sum(len(tensor.raw_data) for tensor in stored)


def torch_model(file: Path) -> tuple[int, int]:
    """The convolutions of the network as an exported program; returns its nodes and the bytes of its weights."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, CHANNELS, 4, 4)
            self.wide = torch.nn.ModuleList(
                torch.nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2 * IMAGE_BLOCKS)
            )
            self.flat = torch.nn.ModuleList(torch.nn.Conv2d(CHANNELS, CHANNELS, 1) for _ in range(2 * IMAGE_BLOCKS))

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            x = self.stem(image)
            for wide, flat in zip(self.wide, self.flat, strict=True):
                x = x + flat(torch.relu(wide(x)))
            return x

    exported = torch.export.export(Net().eval(), (torch.zeros(1, 3, 224, 224),))
    torch.export.save(exported, file)
    nodes = sum(node.op == "call_function" for node in exported.graph.nodes)
    return nodes, sum(value.numel() * 4 for value in exported.state_dict.values())


def _measure(file: str, library: str) -> None:
    """In a process of its own: what each step takes, and the most memory that was held."""
    if not file:  # only what the reader's library itself holds
        before = _highest()
        import_module(library)
        print(json.dumps({"peak": _highest() - before}))
        return
    start = time.perf_counter()
    import aneforge as af

    _ = af.load, af.check, af.estimate
    imported = time.perf_counter()
    before = _highest()
    graph = af.load(file)
    loaded = time.perf_counter()
    af.check(graph, "all")
    checked = time.perf_counter()
    af.estimate(graph, target="m1")
    done = time.perf_counter()
    steps = {"import": imported - start, "load": loaded - imported, "check": checked - loaded, "m1": done - checked}
    print(json.dumps({**steps, "answer": done - imported, "nodes": len(graph.nodes), "peak": _highest() - before}))


def _highest() -> int:
    """The most bytes this process has held so far; pages of mapped files count while they are held."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def measured(file: Path | str, library: str = "", **variables: str) -> dict[str, float]:
    words = [sys.executable, __file__, "--measure", str(file), library]
    environment = {**os.environ, **variables}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)  # noqa: S603 - this script
    return json.loads(done.stdout)


def compare(name: str, library: str, file: Path, nodes: int, size: int, folder: Path) -> None:
    os.environ["ANEFORGE_CACHE_DIR"] = str(folder / "cache")
    runs = {
        "no cache": measured(file, ANEFORGE_NO_CACHE="1"),
        "first": measured(file),
        "cached": measured(file),
    }
    held = measured("", library)["peak"]
    print(f"{name}: {nodes} nodes, {size / 1e6:.0f} MB of weights; {library} itself holds {held / 1e6:.0f} MB")
    for label, run in runs.items():
        own = run["peak"] - (0 if label == "cached" else held)
        steps = ", ".join(f"{step} {run[step]:.2f} s" for step in ("load", "check", "m1"))
        print(f"  {label:9s} {run['answer']:.2f} s ({steps}), memory {own / size:.2f} times the weights")
    load, answer = (runs["no cache"][step] / runs["cached"][step] for step in ("load", "answer"))
    print(f"  from the cache: load {load:.0f} times faster, load, check and estimate {answer:.1f} times faster")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        _measure(*asked.measure)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        compare("ONNX", "onnx", folder / "net.onnx", *onnx_model(folder / "net.onnx"), folder)
        if find_spec("torch") is not None:
            compare("exported program", "torch", folder / "net.pt2", *torch_model(folder / "net.pt2"), folder)


if __name__ == "__main__":
    main()
