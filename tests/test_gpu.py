"""The kernels of a GPU, from the same source, run on the CPU: their bits are those of the CPU's own forms.

``bench/gpu.py`` runs the same comparisons, and larger ones, on a GPU.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.errors import AneforgeError
from aneforge.sim.gpu import plan as plans
from aneforge.sim.gpu.device import CudaDevice, GpuMemoryError
from aneforge.sim.gpu.emulated import EmulatedDevice
from aneforge.sim.gpu.plan import DevicePlan

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import gpu as bench

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
RNG = np.random.default_rng(5)


def half(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (RNG.standard_normal(shape) * scale).astype(np.float16)


@needs_compiler
@pytest.mark.parametrize("name", bench.DRAWN)
def test_products_and_the_winograd_form_have_the_bits_of_the_cpu(name, monkeypatch):
    """Any bits, ties, dropped products, sums that pass the ceiling and come back."""
    monkeypatch.setattr(bench, "DRAWN", {name: bench.DRAWN[name]})
    rows = list(bench.equal(EmulatedDevice(), ((3, 17, 9), (66, 290, 131))))
    assert len(rows) == 3
    assert [(what, differ) for what, differ, _ in rows if differ] == []


def test_the_comparison_can_fail(monkeypatch):
    wrong = np.float16(np.inf)

    class Broken(EmulatedDevice):
        def download(self, buffer, shape, dtype):
            array = super().download(buffer, shape, dtype)
            array.reshape(-1)[0] = 1 if array.reshape(-1)[0] == wrong else wrong
            return array

    if shutil.which("c++"):
        monkeypatch.setattr(bench, "DRAWN", {"normal": bench.DRAWN["normal"]})
        assert all(differ == 1 for _, differ, _ in bench.equal(Broken(), ((3, 17, 9),)))


def convolutions() -> af.Graph:
    x = af.input((1, 6, 11, 10), name="x")
    y = af.conv(x, half(16, 6, 3, 3, scale=0.3), pad=1, bias=half(16)).relu()
    y = y.max_pool(3, 2, pad=1)
    y = af.conv(y, half(16, 1, 3, 3, scale=0.4), pad=1, groups=16, bias=half(16))
    y = af.conv(y, half(24, 16, 1, 1, scale=0.3)).silu()
    y = af.conv(y, half(20, 12, 3, 3, scale=0.2), stride=2, pad=1, groups=2)
    return af.Graph.of(af.pad(y, ((0, 0), (0, 0), (1, 0), (0, 2)))[:, 2:18].mean((2, 3)))


def attention() -> af.Graph:
    x = af.input((1, 12, 32), name="x")
    q, k, v = (af.linear(x, half(32, 32, scale=0.2), half(32)).reshape((1, 12, 4, 8)) for _ in range(3))
    scores = af.matmul(q.transpose((0, 2, 1, 3)), k.transpose((0, 2, 3, 1))) * 0.35
    mixed = af.matmul(scores.softmax(-1), v.transpose((0, 2, 1, 3))).transpose((0, 2, 1, 3)).reshape((1, 12, 32))
    y = (x + mixed).layer_norm(half(32), half(32))
    return af.Graph.of(y + af.linear(af.linear(y, half(48, 32, scale=0.2)).gelu(), half(32, 48, scale=0.2)))


def turned() -> af.Graph:
    """A matrix that lies by its channels, by a stored one: the layout of a language model's wide layer."""
    x = af.input((32, 24), name="x")
    y = af.linear(x.softmax(0).transpose((1, 0)), half(48, 32, scale=0.2), half(48))
    return af.Graph.of(y.gelu())


def rows() -> af.Graph:
    """Long rows that lie one behind the other, whose groups are added by threads of their own, and spread operands."""
    x = af.input((6, 96), name="x")
    y = x.softmax(-1) * 80.0 + x.layer_norm(half(96), half(96))
    y = af.concat([y, y - y.amax(-1), y * half(6, 1)], 0)
    across = af.concat([y, y * -0.75, y + 0.1, y - 3.0], 0)[:64]  # along an axis that is not the last
    return af.Graph.of(af.concat([across.mean(0), across.sum(0), across.amin(0)], 0))


def large() -> af.Graph:
    """Where an M1 loses digits in its four-lane tiles, and sums pass the ceiling."""
    x = af.input((1, 40, 6, 6), name="x")
    y = af.conv(x * 60.0, half(9, 40, 1, 1, scale=20)).relu()
    return af.Graph.of(af.concat([y, af.minimum(y, 4.0), y.mean((2,)).reshape((1, 9, 1, 6))], 2))


@needs_compiler
@pytest.mark.parametrize("chip", ["m1", "m2", "m5"])
@pytest.mark.parametrize("build", [convolutions, attention, turned, rows, large])
def test_networks_have_the_bits_of_the_cpu(build, chip):
    graph = build()
    model = af.compile(graph, target=chip)
    (port,) = model.program.inputs
    samples = [half(*port.user_shape) for _ in range(3)]
    samples[1].reshape(-1)[:4] = [np.inf, -np.inf, 65504, 6e-8]
    plan = DevicePlan(model._plan, EmulatedDevice())
    done = list(plan.run_each((model._feeds({"x": sample}) for sample in samples), batch=2))
    assert len(done) == 3
    for sample, run in zip(samples, done, strict=True):
        want = model.run({"x": sample}).outputs
        have = model._in_user_shapes(run).outputs
        for name, value in want.items():
            assert np.array_equal(have[name].view(np.uint16), value.view(np.uint16)), name
    if chip == "m1" and build not in (turned, rows):  # an infinity, read as a number there, may lose digits in a tile
        assert plan.on_cpu["convolution"]
    else:
        assert not plan.on_cpu


@needs_compiler
@pytest.mark.parametrize("form", ["int8", "int4"])
@pytest.mark.parametrize("chip", ["m1", "m5"])
def test_stored_weights_have_the_bits_of_the_cpu(form, chip):
    x = af.input((1, 8, 5, 5), name="x")
    y = af.conv(x, half(16, 8, 3, 3, scale=0.3), pad=1, bias=half(16))
    model = af.compile(af.linear(y.reshape((1, 400)), half(7, 400, scale=0.1)), target=chip, compress=form)
    plan = DevicePlan(model._plan, EmulatedDevice())
    sample = half(1, 8, 5, 5, scale=30)
    (run,) = plan.run_each([model._feeds({"x": sample})])
    assert np.array_equal(model._in_user_shapes(run).outputs["linear_0"], model.run({"x": sample}).outputs["linear_0"])


@needs_compiler
def test_what_has_no_kernel_is_done_on_the_cpu_and_counted():
    x = af.input((1, 3, 6, 6), name="x")
    model = af.compile(af.upsample_bilinear(x.relu(), 2), target="m5")
    plan = DevicePlan(model._plan, EmulatedDevice())
    sample = half(1, 3, 6, 6)
    (run,) = plan.run_each([model._feeds({"x": sample})])
    want = model.run({"x": sample}).outputs
    assert sum(plan.on_cpu.values()) == 1
    for name, value in model._in_user_shapes(run).outputs.items():
        assert np.array_equal(value, want[name])


def test_a_batch_on_a_device(monkeypatch):
    if shutil.which("c++") is None:
        pytest.skip("needs a C++ compiler")
    monkeypatch.setattr(plans, "_opened", [EmulatedDevice()])
    model = af.compile(convolutions(), target="m5")
    x = half(5, 1, 6, 11, 10)
    have = [run.outputs for run in model.batch({"x": x}, device="cuda")]
    want = [run.outputs for run in model.batch({"x": x})]
    for one, two in zip(have, want, strict=True):
        assert all(np.array_equal(one[name], two[name]) for name in two)
    labels = np.arange(5) % 4
    data = {"x": x[:, 0], "labels": labels}
    on_gpu = af.evaluate_model(model.graph, data, "m1,m5", "cosine", device="cuda")
    assert on_gpu.to_json() == af.evaluate_model(model.graph, data, "m1,m5", "cosine").to_json()


@needs_compiler
def test_a_batch_that_memory_does_not_hold_is_run_in_parts():
    class Small(EmulatedDevice):
        def empty(self, size):
            if size > self.room:
                raise GpuMemoryError("device cuda: out of memory: one sample does not fit. Choose --device cpu.")
            return super().empty(size)

    device, x = Small(), af.input((1, 12, 32), name="x")
    device.room = 1 << 20
    model = af.compile((x * 2.0).relu(), target="m5")
    plan, samples = DevicePlan(model._plan, device), [half(1, 12, 32) for _ in range(7)]
    feeds = [model._feeds({"x": sample}) for sample in samples]
    device.room = 2 * samples[0].nbytes
    for sample, run in zip(samples, plan.run_each(iter(feeds), batch=7), strict=True):
        want = model.run({"x": sample}).outputs
        assert all(np.array_equal(model._in_user_shapes(run).outputs[name], want[name]) for name in want)
    device.room = samples[0].nbytes - 1
    with pytest.raises(GpuMemoryError, match="one sample does not fit"):
        list(plan.run_each(iter(feeds), batch=7))


def test_a_device_that_is_not_there_is_one_line():
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has a GPU")
    with pytest.raises(AneforgeError, match=r"^device cuda: .*(--device cpu|Install)"):
        CudaDevice()


def test_what_a_device_does_not_run_is_refused(monkeypatch):
    graph = convolutions()
    model = af.compile(graph, target="m5", mode="fast")
    with pytest.raises(AneforgeError, match="'tpu' is not a device; choose one: cpu, cuda"):
        model.batch({"x": half(2, 1, 6, 11, 10)}, device="tpu")
    monkeypatch.setattr(plans, "_opened", [EmulatedDevice()])
    with pytest.raises(AneforgeError, match="a GPU runs the exact mode"):
        list(model.batch({"x": half(2, 1, 6, 11, 10)}, device="cuda"))
    with pytest.raises(AneforgeError, match="a GPU keeps no trace"):
        af.compile(graph, target="m5").batch({"x": half(2, 1, 6, 11, 10)}, trace=True, device="cuda")
