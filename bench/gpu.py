"""The simulator on a GPU: whether its bits are the CPU's, and how fast it is. Figures only, nothing is asserted.

``python bench/gpu.py`` prints, on the machine with the GPU (this package, NumPy, the driver and NVRTC are enough):

* equal: every kernel on random and special numbers (subnormals, infinities, ties, sums at the ceiling, dropped
  products), bits that differ from the CPU's exact form;
* products: large exact products in TFLOP/s (two operations a multiply-add);
* networks: images or sequences a second of ResNet-50 and BERT-base, and bits that differ from the CPU's;
* kernels: what each kernel takes of a batch of these networks, one launch after the other;
* dataset: ResNet-50 on drawn images under M1 and M5 arithmetic, from bytes to scores, in seconds.

The exit status is 1 if any bit differs. ``--only`` chooses parts, ``--emulated`` runs the kernels on the CPU (small
shapes: equal alone).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import networks
import numpy as np

import aneforge as af
from aneforge.graph import Graph
from aneforge.sim.convolution import winograd, winograd_kernels
from aneforge.sim.engine import Engine
from aneforge.sim.gpu.device import CudaDevice
from aneforge.sim.gpu.emulated import EmulatedDevice
from aneforge.sim.gpu.kernels import Kernels, Values
from aneforge.sim.gpu.plan import DevicePlan
from aneforge.sim.gpu.products import ProductOperand, StoredProduct, WinogradProduct
from aneforge.sim.mac import products

Array = np.ndarray
SIZES = ((4096, 4096, 4096), (2048, 4096, 8192), (768, 3072, 8192), (256, 2304, 12544))
ENGINE = Engine.of(af.target("m5"))


def special_numbers(rng: np.random.Generator, *shape: int) -> Array:
    """Any bits at all: subnormals, infinities, what other machines call NaN."""
    return rng.integers(0, 1 << 16, shape, dtype=np.uint16).view(np.float16)


def ties(rng: np.random.Generator, *shape: int) -> Array:
    """Few significant bits and small exponents: products half way between two units, and dropped ones."""
    return (rng.integers(-7, 8, shape) * 2.0 ** rng.integers(-14, -4, shape)).astype(np.float16)


def near_ceiling(rng: np.random.Generator, *shape: int) -> Array:
    """Sums that reach 2^15 on their way, and come back or do not."""
    return (rng.standard_normal(shape) * 24).astype(np.float16)


def small(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.standard_normal(shape) * 0.02).astype(np.float16)


DRAWN: dict[str, Callable[..., Array]] = {
    "any bits": special_numbers,
    "ties": ties,
    "near the ceiling": near_ceiling,
    "small": small,
    "normal": lambda rng, *shape: rng.standard_normal(shape).astype(np.float16),
    "large": lambda rng, *shape: (rng.standard_normal(shape) * 300).astype(np.float16),
}


def device_product(device: Any, a: Array, b: Array, bias: Array | None) -> Array:
    """``a @ b + bias`` on the device; the second matrix is one sample."""
    rows, depth = a.shape
    columns = b.shape[1]
    operand = ProductOperand(
        np.arange(depth) * columns, np.arange(columns), np.arange(columns), np.arange(depth), columns, False
    )
    product = StoredProduct(ENGINE, device, a[None], operand, 0, (0, columns), (1, 1, rows, 1, columns))
    given = None if bias is None else Values(device.upload(bias), bias.shape, True)
    result = product(Kernels(device, 1), Values(device.upload(b), b.shape), given)
    assert result is not None
    return device.download(result.buffer, (rows, columns), np.float16)


def differing(one: Array, two: Array) -> int:
    return int((one.view(np.uint16) != two.view(np.uint16)).sum())


def equal(device: Any, shapes: tuple[tuple[int, int, int], ...]) -> Iterator[tuple[str, int, int]]:
    """What was computed, how many numbers differ, of how many."""
    rng = np.random.default_rng(7)
    for name, draw in DRAWN.items():
        for rows, depth, columns in shapes:
            a, b, bias = draw(rng, rows, depth), draw(rng, depth, columns), draw(rng, rows)
            have, want = device_product(device, a, b, bias), products(a, b, bias[:, None])
            yield f"product of {name} {rows} x {depth} x {columns}", differing(have, want), want.size
        x, kernel = draw(rng, 6, 9, 10), draw(rng, 10, 6, 3, 3)
        form = WinogradProduct(ENGINE, device, kernel, 1, (1, 1, 6, 9, 10), (1, 1, 10, 7, 8))
        result = form(Kernels(device, 1), Values(device.upload(x), (1, 1, 6, 9, 10)), None)
        assert result is not None
        have = device.download(result.buffer, (10, 7, 8), np.float16)
        yield f"Winograd form of {name}", differing(have, winograd(x, winograd_kernels(kernel))), have.size


def rate(device: CudaDevice, rows: int, depth: int, columns: int) -> float:
    """TFLOP/s of one product with weights as a layer has them."""
    rng = np.random.default_rng(0)
    a = (rng.standard_normal((rows, depth)) / depth**0.5).astype(np.float16)
    b = rng.standard_normal((depth, columns)).astype(np.float16)
    operand = ProductOperand(
        np.arange(depth) * columns, np.arange(columns), np.arange(columns), np.arange(depth), columns, False
    )
    product = StoredProduct(ENGINE, device, a[None], operand, 0, (0, columns), (1, 1, rows, 1, columns))
    kernels, x = Kernels(device, 1), Values(device.upload(b), b.shape)
    product(kernels, x, None)
    device.wait()
    repeats = 10
    start = time.perf_counter()
    for _ in range(repeats):
        product(kernels, x, None)
    device.wait()
    return 2.0 * rows * depth * columns * repeats / (time.perf_counter() - start) / 1e12


def network(
    device: CudaDevice, name: str, chip: str, batch: int, checked: int
) -> tuple[float, int, int, dict[str, int]]:
    """Samples a second, bits that differ from the CPU's, of how many, and the ops that the CPU did."""
    graph = Graph.of(networks.NETWORKS[name]())
    model, rng = af.compile(graph, target=chip), np.random.default_rng(1)
    names = graph.names()
    samples = [
        {names[port.uid]: rng.standard_normal(port.shape, np.float32).astype(np.float16) for port in graph.inputs}
        for _ in range(batch)
    ]
    plan = DevicePlan(model._plan, device)
    feeds = [model._feeds(sample) for sample in samples]
    done = list(plan.run_each(feeds, batch))
    fallen = dict(plan.on_cpu)
    start = time.perf_counter()
    for _ in range(3):
        done = list(plan.run_each(feeds, batch))
    seconds = (time.perf_counter() - start) / 3
    differ = size = 0
    for number in range(checked):
        want = model.run(samples[number]).outputs
        have = model._in_user_shapes(done[number]).outputs
        differ += sum(differing(have[key], want[key]) for key in want)
        size += sum(value.size for value in want.values())
    return batch / seconds, differ, size, fallen


class TimedDevice(CudaDevice):
    """Waits for each kernel, so that its time is known: a whole batch takes longer than without."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}
        self.launches: Counter[str] = Counter()

    def launch(self, kernel: str, job: Any, grid: Any) -> None:
        self.wait()
        start = time.perf_counter()
        super().launch(kernel, job, grid)
        self.wait()
        self.seconds[kernel] = self.seconds.get(kernel, 0.0) + time.perf_counter() - start
        self.launches[kernel] += 1


def kernel_times(name: str, chip: str, batch: int) -> Iterator[str]:
    """Milliseconds of each kernel in a batch that is not the first, the longest first."""
    graph, device = Graph.of(networks.NETWORKS[name]()), TimedDevice()
    model, rng = af.compile(graph, target=chip), np.random.default_rng(1)
    plan, names = DevicePlan(model._plan, device), graph.names()
    feeds = [
        model._feeds({names[port.uid]: rng.standard_normal(port.shape, np.float32) for port in graph.inputs})
        for _ in range(batch)
    ]
    list(plan.run_each(feeds, batch))
    device.seconds.clear()
    device.launches.clear()
    list(plan.run_each(feeds, batch))
    for kernel, seconds in sorted(device.seconds.items(), key=lambda item: -item[1]):
        yield f"{name} {chip}: {1e3 * seconds:8.2f} ms in {device.launches[kernel]:4} launches: {kernel}"


class DrawnImages:
    """Images that are drawn as they are read, with labels."""

    identity = "drawn images 2"

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = np.random.default_rng(2).standard_normal((256, 3, 224, 224), np.float32).astype(np.float16)

    def __len__(self) -> int:
        return self._count

    def name(self, number: int) -> str:
        return f"image {number}"

    def image(self, number: int) -> Array:
        return np.roll(self._pool[number % 256], number // 256, axis=2)[None]

    def read(self, number: int) -> tuple[dict[str, Array], int]:
        return {"x": self.image(number)}, number * 7 % 1000


def dataset(count: int, checked: int) -> Iterator[tuple[str, int]]:
    """The accuracy of ResNet-50 on many images under two chips' arithmetic; some samples also on the CPU."""
    graph = Graph.of(networks.NETWORKS["resnet50"]())
    data = DrawnImages(count)
    (name,) = (graph.names()[port.uid] for port in graph.inputs)
    start = time.perf_counter()

    def named(sample: dict[str, Array]) -> dict[str, Array]:
        return {name: sample["x"]}

    result = af.evaluate_model(graph, data, "m1,m5", "top1", "none", preprocess=named, device="cuda", explain=False)
    seconds = time.perf_counter() - start
    yield f"{count} images under m1 and m5: {seconds:.1f} s, {2 * count / seconds:.0f} runs a second", 0
    yield str(result), 0
    numbers = [place * (count - 1) // max(1, checked - 1) for place in range(checked)]
    for chip in ("m1", "m5"):
        model = af.compile(graph, target=chip)
        samples = [{name: data.image(number)} for number in numbers]
        have = [next(iter(run.outputs.values())) for run in model.batch(iter(samples), device="cuda")]
        want = [next(iter(run.outputs.values())) for run in model.batch(iter(samples))]
        differ = sum(differing(one, two) for one, two in zip(have, want, strict=True))
        record = {row.sample: row.classes[chip] for row in result.records}
        same = sum(record[n] == int(array.reshape(-1).argmax()) for n, array in zip(numbers, want, strict=True))
        yield f"{chip}: {differ} bits differ on {checked} images, {same} have the class of the CPU", differ


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="equal,products,networks,dataset")
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--checked", type=int, default=3)
    options = parser.parse_args()
    parts = options.only.split(",")
    device: Any = EmulatedDevice() if options.emulated else CudaDevice()
    print(f"device: {device.name}")
    bad = 0
    if "equal" in parts:
        shapes = ((5, 40, 30), (70, 300, 130)) if options.emulated else ((5, 40, 30), (70, 300, 130), (200, 1111, 513))
        for what, differ, size in equal(device, shapes):
            bad += differ
            print(f"{differ:6} of {size:7} differ: {what}", flush=True)
    if "products" in parts:
        for shape in SIZES:
            print(f"{' x '.join(map(str, shape))}: {rate(device, *shape):.2f} TFLOP/s", flush=True)
    if "networks" in parts:
        for name, chip in (("resnet50", "m1"), ("resnet50", "m5"), ("bert_encoder", "m1"), ("bert_encoder", "m5")):
            speed, differ, size, fallen = network(device, name, chip, 64, options.checked)
            bad += differ
            print(
                f"{name} {chip}: {speed:.0f} a second; {differ} of {size} bits differ; on the CPU: {fallen}",
                flush=True,
            )
    if "kernels" in parts:
        for name in ("bert_encoder", "resnet50"):
            for line in kernel_times(name, "m5", 64):
                print(line, flush=True)
    if "dataset" in parts:
        for line, differ in dataset(options.images, options.checked):
            bad += differ
            print(line, flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
