"""Speed of the simulator: figures only, nothing is asserted.

``python bench/sim.py`` prints, in one run:

* kernels: square products and convolutions as the engine computes them, to the bit, with the native kernel and with
  the plain NumPy form, in GFLOP/s (two operations a multiply-add, those of the direct convolution for Winograd too)
  beside NumPy's float32 matmul of the same shapes;
* networks: ResNet-50, a BERT-base encoder, one step of a decoder and MobileNetV2, exact and fast, in milliseconds and
  as ratios to onnxruntime in float32 on the same graph, run in turn with it; how far the fast mode lies from the exact
  one; and the memory a run adds to the compiled program, over its live tensors (weights and the most activations at a
  time);
* what an op costs besides its arithmetic: a graph of small ops.

One core and all of them; every group in a process of its own, because the number of threads of NumPy's library is
fixed when it starts. ``pip install 'aneforge-compiler[bench]'`` brings onnxruntime; without it those columns stay
empty.
"""

# pyright: reportMissingImports=false
# onnxruntime is an extra (bench), which style and type checks do not need.
from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import networks
import numpy as np
import twins

import aneforge as af
from aneforge.graph import Graph
from aneforge.sim import native
from aneforge.sim.engine import Engine
from aneforge.sim.half import Window
from aneforge.sim.stored import convolution_form, matrix_form

CUBES = (512, 1024, 2048)
MAPS = ((64, 56), (256, 14))
PLAIN_SECONDS = 8.0  # the plain form is timed on a part of the rows if all of them would take longer
PLAIN_RATE = 0.15e9  # roughly, to choose that part
REPEATS = 5
TURNS = 15
FORMS = (("exact m1", "m1", "exact"), ("exact m5", "m5", "exact"), ("fast", "m5", "fast"))
TIMED = ("resnet50", "bert_encoder", "decoder_step", "mobilenetv2")
SMALL_OPS = 4000


def fastest(call: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def rates(exact: Callable[[int], object], single: Callable[[], object], rows: int, work: float) -> dict[str, float]:
    """GFLOP/s of the native, the plain and NumPy's float32 form; ``exact`` takes how many rows to compute."""
    found = {}
    _native(True)
    if native.available():
        exact(rows)
        found["native"] = work / fastest(lambda: exact(rows), REPEATS) / 1e9
    found["float32"] = work / fastest(single, REPEATS + 1) / 1e9  # after it: its threads go on looking for work
    _native(False)
    part = max(1, min(rows, int(rows * PLAIN_SECONDS * PLAIN_RATE / work)))
    found["plain"] = work * part / rows / fastest(lambda: exact(part), 2) / 1e9
    return found


def _native(on: bool) -> None:
    os.environ["ANEFORGE_NATIVE"] = "1" if on else "0"
    native.settings.cache_clear()


def gemm(size: int) -> dict[str, float]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((size, size), np.float32) / np.float32(np.sqrt(size)) for _ in range(2))
    left, right = a.astype(np.float16), b.astype(np.float16)
    forms = {}

    def stored(rows: int) -> object:
        if native.available() not in forms:
            forms[native.available()] = matrix_form(Engine.of(af.target("m2")), np.ascontiguousarray(right.T))
        return forms[native.available()](left[:rows], None)

    return rates(stored, lambda: a @ b, size, 2.0 * size**3)


def convolved(form: str, channels: int, extent: int) -> dict[str, float]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((channels, extent, extent)).astype(np.float16)
    kernel = (rng.standard_normal((channels, channels, 3, 3)) * np.sqrt(2 / (9 * channels))).astype(np.float16)
    patches = rng.standard_normal((9 * channels, extent * extent), np.float32)
    weights = kernel.reshape(channels, -1).astype(np.float32)
    window, engine = Window((3, 3), before=(1, 1), after=(1, 1)), Engine.of(af.target("m2"))
    forms: dict[tuple[bool, int], Callable[..., object]] = {}

    def stored(outputs: int) -> object:
        key = native.available(), outputs
        if key not in forms:
            forms[key] = convolution_form(engine, kernel[:outputs], window, 1, form == "winograd")
        return forms[key](x, None)

    return rates(stored, lambda: weights @ patches, channels, 18.0 * channels**2 * extent**2)


def kernels() -> dict[str, dict[str, float]]:
    found = {f"gemm {size}": gemm(size) for size in CUBES}
    for channels, extent in MAPS:
        for form in ("direct", "winograd"):
            found[f"{form} {channels} x {extent} x {extent}"] = convolved(form, channels, extent)
    return found


def network(name: str) -> dict[str, float]:
    """Milliseconds of every form, run in turn so that a busy machine slows all alike, and how far they lie apart."""
    graph = Graph.of(networks.NETWORKS[name]())
    names, rng = graph.names(), np.random.default_rng(0)
    feeds = {names[node.uid]: rng.standard_normal(node.shape, np.float32) for node in graph.inputs}
    calls: dict[str, Callable[[], object]] = {}
    outputs = {}
    for label, chip, mode in FORMS:
        model = af.compile(graph, target=chip, mode=mode)
        outputs[label] = next(iter(model.run(feeds).outputs.values())).astype(np.float64)
        calls[label] = lambda model=model: model.run(feeds)
    with contextlib.suppress(ImportError):
        calls["onnxruntime"] = with_onnxruntime(graph, feeds)
    seconds = dict.fromkeys(calls, float("inf"))
    for _ in range(TURNS):
        for label, call in calls.items():
            seconds[label] = min(seconds[label], fastest(call, 1))
    single = twins.numpy_twin(graph)(feeds)[0].astype(np.float64)
    found = {label: 1e3 * second for label, second in seconds.items()}
    found["fast - exact"] = relative(outputs["fast"], outputs["exact m5"])
    found["exact - float32"] = relative(outputs["exact m5"], single)
    return found


def relative(found: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(found - want) / np.linalg.norm(want))


def with_onnxruntime(graph: Graph, feeds: dict[str, np.ndarray]) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = native.threads()
    session = onnxruntime.InferenceSession(twins.onnx_twin(graph), options, providers=["CPUExecutionProvider"])
    named = dict(zip((port.name for port in session.get_inputs()), feeds.values(), strict=True))
    session.run(None, named)
    return lambda: session.run(None, named)


def memory(name: str, mode: str) -> dict[str, float]:
    """MB of the live tensors of a run, and what it adds at most to the process that holds the compiled program: while
    weights are decoded and laid out, which happens once, and while it runs."""
    graph = Graph.of(networks.NETWORKS[name]())
    model = af.compile(graph, target="m5", mode=mode)
    names, rng = graph.names(), np.random.default_rng(0)
    feeds = {names[node.uid]: rng.standard_normal(node.shape, np.float32) for node in graph.inputs}
    before = _resident()
    with _Peak() as first:
        model.run(feeds)
    with _Peak() as later:
        model.run(feeds)
    added = {"first": first.most - before, "later": later.most - before}
    return {"live": live_bytes(model) / 1e6, **{name: each / 1e6 for name, each in added.items()}}


def live_bytes(model: af.Model) -> int:
    """fp16 bytes of the weights and of the most values at a time, each from where it is made to its last reader."""
    ops = model.program.module.ops
    size = {op: 2 * int(np.prod(op.shape)) for op in ops if op.type is not None}
    last = {operand: place for place, op in enumerate(ops) for operand in op.operands}
    weights = sum(size[op] for op in ops if op.kind == "const_in")
    held = most = 0
    ends: dict[int, int] = {}
    for place, op in enumerate(ops):
        if op.type is None or op.kind == "const_in":
            continue
        held += size[op]
        end = last.get(op, place)
        ends[end] = ends.get(end, 0) + size[op]
        most = max(most, held)
        held -= ends.pop(place, 0)
    return weights + most


def _resident() -> int:
    with open("/proc/self/statm") as held:
        return int(held.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class _Peak:
    """The most memory that a process holds, looked up every millisecond."""

    def __enter__(self) -> _Peak:
        self.most, self._on = _resident(), True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while self._on:
            self.most = max(self.most, _resident())
            time.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        self._on = False
        self._thread.join()


def overhead() -> dict[str, float]:
    """Microseconds an op in a graph of small ones: 32 channels of 8 x 8, 1 x 1 kernels."""
    graph = Graph.of(networks.synthetic(SMALL_OPS))
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 32, 8, 8))}
    found = {}
    for mode in ("exact", "fast"):
        model = af.compile(graph, target="m5", mode=mode)
        model.run(feeds)
        found[mode] = 1e6 * fastest(lambda model=model: model.run(feeds), REPEATS) / model.n_ops
    return found


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    "kernels": kernels,
    "network": network,
    "memory": memory,
    "overhead": overhead,
}


def in_process(cores: int, *words: str) -> dict[str, Any]:
    count = str(cores)
    limits = {"OPENBLAS_NUM_THREADS": count, "OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count}
    limits |= {"VECLIB_MAXIMUM_THREADS": count, "ANEFORGE_THREADS": count}
    command = [sys.executable, __file__, "--measure", *words]
    done = subprocess.run(command, env=os.environ | limits, check=True, capture_output=True, text=True)  # noqa: S603
    return json.loads(done.stdout)


def report_kernels(cores: int) -> None:
    title = f"{cores} core{'s' * (cores > 1)}, GFLOP/s"
    print(f"\n{title:26} {'native':>8} {'plain':>8} {'float32':>8}  native/plain  native/float32")
    for name, each in in_process(cores, "kernels").items():
        fast = each.get("native", float("nan"))
        ratios = f"{fast / each['plain']:>13.0f} {fast / each['float32']:>15.2f}"
        print(f"{name:26} {fast:>8.1f} {each['plain']:>8.2f} {each['float32']:>8.1f} {ratios}")


def report_networks(cores: int, one_core: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Prints a line for each network; with several cores also how many times faster than one each form is."""
    labels = [label for label, _, _ in FORMS]
    title = f"{cores} core{'s' * (cores > 1)}, ms"
    heads = "".join(f"{label:>10}" for label in (*labels, "ort"))
    ratios = "".join(f"{f'{label}/ort':>14}" for label in labels)
    gains = "".join(f"{f'{label} x':>12}" for label in (*labels, "ort")) if one_core else ""
    print(f"\n{title:16}{heads}{ratios}{'fast - exact':>14}{'exact - fp32':>14}{gains}")
    all_times = {}
    for name in TIMED:
        each = all_times[name] = in_process(cores, "network", name)
        other = each.setdefault("onnxruntime", float("nan"))
        times = "".join(f"{each[label]:>10.1f}" for label in labels) + f"{other:>10.1f}"
        over = "".join(f"{each[label] / other:>14.2f}" for label in labels)
        line = f"{name:16}{times}{over}{each['fast - exact']:>14.2e}{each['exact - float32']:>14.2e}"
        if one_core:
            line += "".join(f"{one_core[name][label] / each[label]:>12.2f}" for label in (*labels, "onnxruntime"))
        print(line, flush=True)
    return all_times


def report_memory() -> None:
    print(f"\n{'memory, MB':24}{'live tensors':>14}{'first run':>12}{'later runs':>12}{'later/live':>12}")
    for name in (*TIMED, "unet"):
        for mode in ("exact", "fast"):
            each = in_process(1, "memory", name, mode)
            figures = f"{each['live']:>14.1f}{each['first']:>12.1f}{each['later']:>12.1f}"
            print(f"{f'{name}, {mode}':24}{figures}{each['later'] / each['live']:>12.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="+", help="print the figures of one group in this process as JSON")
    asked = parser.parse_args().measure
    if asked:
        print(json.dumps(MEASURES[asked[0]](*asked[1:])))
        return
    print(native.why_not() or f"native path: {os.environ.get('ANEFORGE_NATIVE_PATH') or native.paths()[-1]}")
    cpus = native.threads()
    times: dict[str, dict[str, float]] = {}
    for cores in (1, cpus) if cpus > 1 else (1,):
        report_kernels(cores)
        times = report_networks(cores, times)
    report_memory()
    each = in_process(1, "overhead")
    print(f"\nan op of a small graph: {each['exact']:.1f} us exact, {each['fast']:.1f} us fast, arithmetic included")


if __name__ == "__main__":
    main()
