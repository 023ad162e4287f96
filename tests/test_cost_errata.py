"""Slow spots of the engine in the cost model, the change that avoids one, and what a machine's copies do to a time."""

from __future__ import annotations

import itertools
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.advice.forms import apply_form
from aneforge.cost.constants import basis_of
from aneforge.cost.elsewhere import unit_bands, where_to_run
from aneforge.cost.errata import errata_of, pieces_at_full_rate
from aneforge.cost.evaluate import predict
from aneforge.cost.layers import columns_of, compute_us
from aneforge.cost.work import Work
from aneforge.errors import AneforgeError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))
intervals = import_module("cost_intervals")


def one_token(inputs, outputs, chip, encoding="fp16"):
    """A dense layer on one row, as the engine alone takes it."""
    layer = {"op": "conv", "n": 1, "cin": inputs, "cout": outputs, "h": 1, "w": 1, "kh": 1, "kw": 1}
    ends = {"inputs": [[1, inputs, 1, 1]], "outputs": [[1, outputs, 1, 1]]}
    return predict({"chip": chip, "scope": "coreml_call", "layers": [layer], "weight_enc": encoding, **ends})


@pytest.mark.parametrize("chip", ["M3", "M4", "M5", "A17 Pro"])
def test_weights_stream_slowly_on_multiples_of_1_mib(chip):
    """The one place where less work takes longer: the 1 MiB erratum (C69; which chips have it: U220)."""
    slow, fast = one_token(4096, 2048, chip), one_token(4224, 2048, chip)
    assert slow > 1.25 * fast
    assert one_token(4096, 2048, chip, "int8") < fast, "stored in fewer bytes the share is another"


@pytest.mark.parametrize("chip", ["M1", "M2 Pro", "M4 Max", "M5 Max", "M6", "A16 Bionic"])
def test_other_chips_do_not_have_the_erratum(chip):
    assert one_token(4096, 2048, chip) <= one_token(4224, 2048, chip)


def test_pieces_that_take_a_layer_off_the_notch():
    assert pieces_at_full_rate(2048, 4096) == 2
    assert pieces_at_full_rate(2048, 8192) == 4, "two pieces of 1 MiB each would still be slow"
    assert pieces_at_full_rate(4096, 14336) == 2, "half of 7 MiB is no multiple"
    assert pieces_at_full_rate(2048, 2048) is None
    assert pieces_at_full_rate(2048, 4224) is None
    assert pieces_at_full_rate(2048, 8400) == 2, "a sum over more than 8,192 numbers"
    assert pieces_at_full_rate(512, 2048, area=9) == 4


@pytest.mark.parametrize(
    ("chip", "outputs", "inputs", "words"),
    [
        ("m4", 2048, 8192, ["2 MiB of weights for each core stream slowly (C69)"]),
        ("m4", 4096, 14336, ["7 MiB of weights for each core", "sums over 14,336 numbers run at half rate (C74)"]),
        ("m5", 1024, 12288, []),
        ("m4", 1024, 12288, ["sums over 12,288 numbers"]),
        ("m1", 2048, 8192, []),
    ],
)
def test_a_report_names_the_cause_that_a_chip_has(chip, outputs, inputs, words):
    found = errata_of(outputs, inputs, 1, basis_of(chip).constants)
    assert len(found) == len(words)
    assert all(text.startswith(word) for text, word in zip(found, words, strict=True))


def test_the_estimate_of_a_slow_projection_says_why_and_what_helps():
    (change,) = [
        change
        for change in af.estimate_all(projection(), "m4").advice["m4"].changes
        if change.name == "split-input-axis"
    ]
    assert change.what == "the input axis of 1 layer in pieces: 1 MiB of weights for each core stream slowly (C69)"
    assert change.us < 0.8 * change.before_us


def projection(inputs=4096, outputs=2048):
    random = np.random.default_rng(3)
    x = af.input((1, inputs), name="x", max_abs=4)
    return x.linear(random.normal(size=(outputs, inputs)) / 64).named("q_proj")


def test_split_input_axis_is_faster_where_the_erratum_is_and_gives_the_numbers(tmp_path):
    out = projection()
    graph = apply_form(out, "split-input-axis")
    before, after = (af.estimate(each, target="m4", scope="coreml_call") for each in (out, graph))
    assert after < before / 1.2
    free, changed = (af.estimate(each, target="m5-max", scope="coreml_call") for each in (out, graph))
    assert changed >= free
    feeds = {"x": np.random.default_rng(5).normal(size=(1, 4096))}
    (one,), (other,) = (list(af.run(each, "m4", feeds).only.outputs.values()) for each in (out, graph))
    assert np.abs(one - other).max() <= 0.005 * np.abs(one).max()


def test_a_deep_layer_is_split_too():
    """9,216 numbers a sum run at half rate on an M4 (C74); pieces of 3,072 do not."""
    x, weight = af.input((1, 1024, 32, 32), name="x"), np.ones((256, 1024, 3, 3)) / 64
    out = af.conv(x, weight, pad=1)
    graph = apply_form(out, "split-input-axis")
    before, after = (af.estimate(each, target="m4", scope="device_task") for each in (out, graph))
    assert after < before / 1.3
    free, changed = (af.estimate(each, target="m5", scope="device_task") for each in (out, graph))
    assert changed >= free


def test_tune_finds_the_split():
    tuning = af.tune(projection(), target="m4", min_lossy_speedup=1.05).tuning
    assert "split-input-axis" in str(tuning)


def test_stored_width_counts_in_the_passes_of_the_m5():
    """512 columns of 5120 -> 34816 on an M5 Max: int8 takes about half of fp16 there, and not on an M4 (C70)."""
    layer = {"op": "conv", "n": 1, "cin": 5120, "cout": 34816, "h": 1, "w": 512, "kh": 1, "kw": 1}

    def ratio(chip):
        times = [
            predict({"chip": chip, "scope": "direct_call", "layers": [layer], "weight_enc": encoding})
            for encoding in ("int8", "fp16")
        ]
        return times[0] / times[1]

    assert ratio("M5 Max") == pytest.approx(0.5, abs=0.1)
    assert ratio("M4") > 0.9


def test_long_sums_halve_the_rate_on_an_m4_only():
    def rate(inputs, chip):
        work = Work("conv", macs=inputs * 64.0 * 64, contraction=inputs, channels=(inputs, 64), positions=64)
        return inputs / compute_us(columns_of([work]), basis_of(chip).constants, np.array([1]))[0]

    assert rate(8208, "M4") == pytest.approx(0.5 * rate(8192, "M4"))
    assert rate(8208, "M5") == pytest.approx(rate(8192, "M5"))


def test_a_sum_over_channels_turns_the_map():
    shape = [1, 4, 2560, 32]
    channels, height = (
        predict(
            {
                "chip": "M5 Max",
                "scope": "direct_call",
                "layers": [{"op": "reduce_sum", "shape": shape, "out_shape": out, "repeat": 8}],
            }
        )
        for out in ([1, 1, 2560, 32], [1, 4, 1, 32])
    )
    assert channels > 3 * height


def test_e4m3_on_both_sides_counts_as_one_byte_without_the_winograd_form():
    def us(kernel, encoding, dtype):
        layer = {"op": "conv", "n": 1, "cin": 512, "cout": 512, "h": 64, "w": 64, "kh": kernel, "kw": kernel}
        row = {"chip": "A19 Pro", "scope": "slope", "layers": [{**layer, "wenc": encoding}], "dtype": dtype}
        return predict(row)

    assert us(1, "w8a8", "int8") == pytest.approx(us(1, "fp8", "fp8"), rel=0.1)
    assert us(1, "fp8", "fp8") < 0.8 * us(1, "fp16", "fp16")
    assert us(3, "w8a8", "int8") < 0.8 * us(3, "fp8", "fp8"), "int8 has the Winograd form, e4m3 has not"


def test_time_grows_with_every_size_off_the_erratum():
    for chip in ("M1", "M5 Max", "A15 Bionic"):
        times = [one_token(inputs, 2048, chip) for inputs in range(1024, 9000, 512)]
        assert all(one <= other for one, other in itertools.pairwise(times)), chip


# The machine around the engine.


def test_a_rate_of_copies_replaces_the_assumed_one():
    x = af.input((1, 64, 256, 256), name="x")
    out = x.relu()
    slow, fast = (af.estimate_all(out, "m4", changes=0, copy_gbs=rate)["m4"] for rate in (2, 20))
    assert slow.us > 4 * fast.us
    assert "2 GB/s, as given" in slow.basis.rule
    named = af.estimate_all(out, "m4", changes=0, machine="m4 (macbook air)")["m4"]
    assert named.us == af.estimate_all(out, "m4", changes=0, copy_gbs=8)["m4"].us
    plain = af.estimate_all(out, "m3", "host_call", changes=0)["m3"]
    known = af.estimate_all(out, "m3", "host_call", changes=0, copy_gbs=8)["m3"]
    assert known.interval[1] / known.us < plain.interval[1] / plain.us, "what is known of the host narrows it"
    assert "copying" in plain.width_says
    for wrong in (0, -1, float("nan"), True):
        with pytest.raises(AneforgeError, match="is not a rate"):
            af.estimate_all(out, "m4", copy_gbs=wrong)
    with pytest.raises(AneforgeError, match="choose one"):
        af.estimate_all(out, "m4", machine="abacus")
    with pytest.raises(AneforgeError, match="Give one of them"):
        af.estimate_all(out, "m4", machine="M5", copy_gbs=3)


@pytest.mark.parametrize("chip", ["M1", "M2 Pro", "M3", "M4", "M4 Pro", "M5", "M5 Max", "M6", "A15 Bionic"])
def test_a_program_without_a_framework_is_never_slower(chip):
    constants = basis_of(chip).constants.chip
    assert constants["direct_call"] <= constants["coreml_call"]
    model = af.compile(projection().layer_norm(np.ones(2048), np.zeros(2048)), target=chip)
    assert model.estimate("direct_call").us <= model.estimate("coreml_call").us


# Intervals.


def test_a_group_has_no_part_in_its_own_interval():
    random = np.random.default_rng(0)
    groups = [f"source {number // 20}" for number in range(400)]
    engine, attention, host = random.dirichlet((1.0, 1.0, 1.0), 400).T
    errors = random.normal(size=400) * np.sqrt((0.1 * engine) ** 2 + (0.3 * attention) ** 2 + (0.5 * host) ** 2)
    shares = np.stack([engine + attention, attention], axis=1)
    width = intervals.widths(errors, shares)
    assert width["host"] > width["attention"] > 1.5 * width["engine"]
    assert 0.76 <= np.mean(intervals.inside(errors, shares, groups)) <= 0.84
    errors[:20] = 50.0
    assert not intervals.inside(errors, shares, groups)[:20].any()


# Engine or GPU.


def test_where_it_should_run():
    random = np.random.default_rng(7)
    x = af.input((1, 256, 56, 56), name="x")
    y = x
    for _ in range(4):
        y = af.conv(y, random.normal(size=(256, 256, 3, 3)) / 50, pad=1).relu()
    estimates = af.estimate_all(y, "m1,m5 max,m3 pro,a17 pro", changes=0)
    bands = {name: {band.unit: band for band in unit_bands(estimate)} for name, estimate in estimates.items()}
    assert set(bands["a17 pro"]) == {"CPU"}, "nobody has published its GPU"
    assert all(band.low < band.high for units in bands.values() for band in units.values())
    assert bands["m5 max"]["GPU"].high < bands["m1"]["GPU"].high
    assert where_to_run(estimates["m1"]).startswith("run it on the engine")
    assert "M1: run it on the engine" in str(estimates)
    assert set(estimates.to_json()["other_units"]["m3 pro"]) == {"gpu", "cpu"}


def test_a_published_network_lies_in_the_band_of_its_unit():
    """DistilBERT and MiniLM on the GPU and the CPU of an M4 and an M4 Pro (third collection)."""
    for rows, chip, unit, ms in ((128, "M4", "CPU", 1.68), (128, "M4", "GPU", 2.08)):
        x = af.input((rows, 384), name="x")
        for _ in range(6):
            x = _encoder_block(x, 384, 12)
        bands = {band.unit: band for band in unit_bands(af.estimate_all(x, chip, changes=0)[chip])}
        assert bands[unit].low < 1000 * ms < bands[unit].high


def _encoder_block(x, width, heads):
    random = np.random.default_rng(3)

    def linear(value, outputs):
        return af.linear(value, (random.normal(size=(outputs, value.shape[-1])) / 20).astype(np.float16))

    q, k, v = (linear(x, width).reshape(-1, heads, width // heads).transpose((1, 0, 2)) for _ in range(3))
    scores = (q @ k.transpose((0, 2, 1))).softmax(-1) @ v
    x = (x + linear(scores.transpose((1, 0, 2)).reshape(-1, width), width)).layer_norm(np.ones(width), np.zeros(width))
    return (x + linear(linear(x, 4 * width).gelu(), width)).layer_norm(np.ones(width), np.zeros(width))
