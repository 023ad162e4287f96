# pyright: reportMissingImports=false
"""How long a model file takes to come in, and how much memory: ``python bench/load.py``.

ResNet-50 and an encoder of 12 layers as ONNX files are loaded and checked for all 28 targets, and a file of 1 GB is
loaded in a process of its own, whose peak memory is compared with the bytes of its weights. Figures only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from networks import bert_encoder, resnet50
from twins import onnx_twin

import aneforge as af

GIGABYTE = 1 << 30


def timed(file: Path) -> tuple[float, float, int]:
    """Seconds to load and to check for every target, and how many nodes there are."""
    file.read_bytes()  # the disk is no part of the figure
    start = time.perf_counter()
    graph = af.load(file)
    loaded = time.perf_counter()
    af.preflight_all(graph)
    return loaded - start, time.perf_counter() - loaded, len(graph.operations)


def large_model(file: Path, kind: str) -> int:
    """A chain of products whose weights fill a gigabyte; the bytes of its weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    dtype = np.dtype(kind)
    side = 4096
    count = GIGABYTE // (side * side * dtype.itemsize)
    rng = np.random.default_rng(0)
    nodes, stored, before = [], [], "x"
    for number in range(count):
        weight = (rng.standard_normal((side, side), np.float32) / 64).astype(dtype)
        stored.append(numpy_helper.from_array(weight, f"w{number}"))
        nodes.append(helper.make_node("Gemm", [before, f"w{number}"], [f"h{number}"], f"layer{number}", transB=1))
        before = f"h{number}"
    element = TensorProto.FLOAT16 if dtype == np.float16 else TensorProto.FLOAT
    ports = [helper.make_tensor_value_info("x", element, [1, side])]
    graph = helper.make_graph(nodes, "large", ports, [onnx.ValueInfoProto(name=before)], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, str(file), save_as_external_data=True, location=f"{file.stem}.bin", size_threshold=0)
    return count * side * side * dtype.itemsize


def peak_of_loading(file: Path) -> tuple[int, float]:
    """Bytes and seconds of a fresh process that loads a file, less what it needs before."""
    words = [sys.executable, __file__, "--peak", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)  # noqa: S603 - this very script
    size, seconds = done.stdout.split()
    return int(size), float(seconds)


def _report_peak(file: str) -> None:
    import onnx

    _ = af.load, onnx.ModelProto
    before = _highest()
    start = time.perf_counter()
    graph = af.load(file)
    seconds = time.perf_counter() - start
    assert graph.outputs
    print(_highest() - before, seconds)


def _highest() -> int:
    """The most bytes this process has held so far; pages of mapped files count while they are held."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.peak:
        _report_peak(asked.peak)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, network in (("ResNet-50", resnet50), ("encoder, 12 layers", bert_encoder)):
            file = folder / "net.onnx"
            file.write_bytes(onnx_twin(af.Graph([network()])))
            loaded, checked, nodes = timed(file)
            print(f"{name}: load {loaded:.2f} s, check for 28 targets {checked:.2f} s ({nodes} operations)")
        for kind in ("float16", "float32"):
            file = folder / f"{kind}.onnx"
            size = large_model(file, kind)
            peak, seconds = peak_of_loading(file)
            told = f"{size / GIGABYTE:.2f} GB of {kind}: loads in {seconds:.1f} s"
            print(f"{told} with {peak / size:.2f} times its weights in memory")


if __name__ == "__main__":
    main()
