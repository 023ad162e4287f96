"""The vendor's cost tables: table 35.7 through the API, projected peaks, the formula against its published check."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import seed_tables as seed

import aneforge as af
from aneforge.chips import all_targets, cost_curve, store, target
from aneforge.chips.evidence import conflict
from aneforge.cost.peak import peak_evidence, project_peak
from aneforge.cost.vendor_model import (
    coarse_us,
    layer_cycles,
    vendor_accuracy,
    vendor_device,
    vendor_estimate,
    vendor_rates,
)
from aneforge.cost.work import Work
from aneforge.errors import AneforgeError, UnknownNameError

ALL_28 = [each.name for each in all_targets(only_28=True)]
OF_FAMILY = {"A11": "h11", "A12": "h12", "A13": "h13", "A14": "h14", "A15": "h15", "A16": "h16", "A17": "h17"}
NO_CURVE = {"h12", "m9", "t0", "u1", "u2", "u3"}  # neither a curve nor, below A13, a family representative
SIZES = (1, 7, 15, 30, 50)  # one in each bucket


def conv(channels, kernel, extent, chip="h13"):
    x = af.input((1, channels, extent, extent))
    weight = np.zeros((channels, channels, kernel, kernel), np.float32)
    return af.compile_all(af.conv(x, weight, pad=kernel // 2), chip)[chip]


# Table 35.7 and the rest of the device record.


@pytest.mark.parametrize(("families", "clamps", "ramp"), seed.TABLE_35_7, ids=str)
def test_table_35_7_through_the_device(families, clamps, ramp):
    named = [name for name in OF_FAMILY if name in families]
    assert named
    for name in named:
        devices = [vendor_device(OF_FAMILY[name], size) for size in SIZES]
        assert [each.bucket for each in devices] == [0, 1, 2, 3, 4]
        assert [each.bandwidth_clamp.value for each in devices[: len(clamps)]] == clamps
        assert all(each.bandwidth_clamp.confidence == "decoded" for each in devices[: len(clamps)])
        assert all(each.bandwidth_clamp.conflict_id == "U12" for each in devices[len(clamps) :])
        assert (devices[0].setup.value, devices[-1].setup.value) == ramp
        assert {each.constant.value for each in devices} == {0.0008}
        assert all("S35" in each.setup.source for each in devices)


@pytest.mark.parametrize(
    ("size", "clamp"), [(0, 50), (6, 50), (6.5, 100), (10, 100), (11, 200), (20, 200), (21, 400), (40, 400), (41, 800)]
)
def test_bucket_edges(size, clamp):
    assert vendor_device("h13", size).bandwidth_clamp.value == clamp


@pytest.mark.parametrize("name", OF_FAMILY.values())
def test_the_ramp_rises_and_says_where_it_is_a_choice(name):
    setups = [vendor_device(name, size).setup for size in SIZES]
    values = [each.value for each in setups]
    assert values == sorted(values)
    assert [each.confidence for each in setups] == ["decoded", "inferred", "inferred", "inferred", "decoded"]
    assert all("our choice" in each.note for each in setups[1:-1])


def test_the_ramp_of_a_whole_number_of_doublings():
    assert [vendor_device("h12", size).setup.value for size in SIZES] == [1.84, 3.68, 7.36, 14.72, 14.72]
    assert [vendor_device("h13", size).setup.value for size in SIZES] == [1.84, 3.68, 7.36, 7.36, 7.36]


def test_what_is_named_but_not_published_is_unknown():
    device = vendor_device("h17s", 8)
    assert not device.throughput.known
    assert not device.scaled_pair.known
    assert "dedicated arm" in vendor_device("h15", 8).setup.note  # A15 has numbers of its own that nobody printed
    assert "dedicated arm" not in vendor_device("h14", 8).setup.note
    reference = vendor_device("u1", 8)
    assert not any(each.known for name, each in reference.facts().items() if name != "cores")


@pytest.mark.parametrize(("name", "divisor"), [("h11", 32), ("h13", 64), ("h17d", 64), ("m11", 16)])
def test_cycle_divisors(name, divisor):
    assert vendor_device(name).divisor.value == divisor


def test_the_size_is_the_core_count_by_default():
    assert vendor_device("h13").bucket == 0  # 4 cores
    assert vendor_device("h17s").bucket == 2  # 16 cores
    assert vendor_device("h17d").bucket == 4  # 64 cores
    assert vendor_device("h12").bucket is None  # no core count is published


@pytest.mark.parametrize("size", [-1, float("nan"), float("inf"), "large", True])
def test_a_size_that_is_none(size):
    with pytest.raises(AneforgeError, match=r"a size: .* is not a finite number"):
        vendor_device("h13", size)


# Projected peaks.


@pytest.mark.parametrize("name", ALL_28)
def test_project_peak_of_every_target(name):
    peak, evidence = project_peak(name), peak_evidence(name)
    assert list(peak) == ["tflops", "rel_m1", "cores", "ghz"]
    if name in NO_CURVE:
        assert peak["tflops"] is peak["rel_m1"] is peak["ghz"] is None
        assert evidence.tflops.confidence == "unknown"
        return
    curve = cost_curve(target(name)).value
    # 1.8 TFLOPS * cores * effective clock over the M1's 4 cores at 1142.4 MHz, 0.8 of its top 1428.
    ratio = peak["cores"] * curve.effective_mhz / (4 * 0.8 * 1428)
    assert peak["rel_m1"] == pytest.approx(ratio, rel=1e-4, abs=6e-4)  # published to three decimals
    assert peak["tflops"] == pytest.approx(1.8 * ratio, rel=1e-4, abs=1.6e-3)
    assert peak["ghz"] == pytest.approx(0.8 * curve.max_mhz / 1000)
    assert evidence.own_curve == (name in store.load("cost_model")["curves"])
    if not evidence.own_curve:
        assert peak["cores"] == target(name).cores
        assert (evidence.rel_m1.conflict_id, evidence.rel_m1.confidence) == ("C28", "inferred")


def test_the_published_ratios():
    """As the cost-model facts print them."""
    published = {"h11": 0.882, "h13": 1.0, "h13g": 2.05, "h14": 1.013, "h15": 1.055, "h15c": 10.074, "h16": 1.17}
    published |= {"t1": 4.0, "h16s": 4.942, "h17": 1.159, "h17s": 4.942, "h17c": 9.884, "h17d": 19.768, "m11": 0.109}
    assert {name: project_peak(name)["rel_m1"] for name in published} == published


def test_any_name_of_a_chip_will_do():
    assert project_peak("M5 Pro") == project_peak("h17s") == project_peak(target("h17s"))
    assert project_peak("M1") == {"tflops": 1.8, "rel_m1": 1.0, "cores": 4, "ghz": 1.1424}
    for wrong in ("h99", "", 3.5):
        with pytest.raises(UnknownNameError):
            project_peak(wrong)  # type: ignore[arg-type]


def test_disputed_and_lent_numbers_say_so():
    disputed = peak_evidence("t1").rel_m1
    assert disputed.conflict_id == "C05"
    assert [each.value for each in disputed.losers] == [1.0]  # 4 cores at the M1's clock
    assert [each.value for each in peak_evidence("t1").tflops.losers] == [1.8]
    lent = peak_evidence("M4")
    assert lent.curve.taken_from == "h16s"
    assert [each.value for each in lent.rel_m1.losers] == [4.942]  # with the stand-in's 16 cores
    assert lent.cores.value == 8


def test_the_caveat_is_data():
    told = peak_evidence("h17s")
    assert (told.anchor.value, told.anchor.taken_from, told.anchor.confidence) == (1.8, "h13", "measured")
    assert (told.projected_speedup.value, told.measured_speedup.value) == (5.5, "2.3-3.3x")
    # The curves give 16 x 1411.44, 16 x 1788 and 16 x 1891.2 over 4 x 1142.4, 4 x 1428 and 4 x 1142.4.
    assert list(told.readings.values()) == [4.942, pytest.approx(5.008), pytest.approx(6.622)]
    assert "5.5" in told.caveat
    assert "2.3-3.3x" in str(told)
    for name in ("h17s", "t1", "M4", "u1"):
        record = json.loads(json.dumps(peak_evidence(name).to_json()))
        assert record["caveat"] == told.caveat
        assert record["tflops"]["value"] == project_peak(name)["tflops"]


# Cycles of a layer.


def test_cycles_bound_by_compute():
    """1024 multiply-adds a cycle on 4 cores: 4 channels x 64; 44 cycles around it."""
    work = Work("conv", macs=1024 * 5000, bytes_in=1000, bytes_out=1000)
    found = layer_cycles(work, "h13")
    assert found.macs_per_cycle.value == 1024
    assert (found.compute, found.cycles, found.saturated) == (5000, 5044, False)
    assert layer_cycles(replace(work, integers=True), "h13").compute == 2500
    assert layer_cycles(work, "h13g").compute == 2500
    assert "L2 cycles" in found.missing


def test_cycles_bound_by_memory():
    """50 bytes a nanosecond at 1142.4 MHz: a million bytes are 20 us, 22848 cycles."""
    found = layer_cycles(Work("relu", bytes_in=5e5, bytes_out=5e5, elements=250_000), "h13")
    assert (found.compute, found.dma, found.cycles) == (0, 22848, 22892)


def test_the_count_saturates():
    found = layer_cycles(Work("conv", macs=1e9), "h13")
    assert (found.cycles, found.saturated) == (65535, True)


def test_a_view_takes_no_cycles_and_an_unknown_chip_has_none():
    assert layer_cycles(Work("view"), "h13").cycles == 0
    found = layer_cycles(Work("conv", macs=1e6), "h12")
    assert found.cycles is None
    assert "effective clock" in found.missing
    assert json.dumps(found.to_json())


def test_overhead_is_measured_on_one_chip_and_lent_to_the_rest():
    work = Work("conv", macs=1e6)
    assert layer_cycles(work, "h13").overhead.confidence == "measured"
    assert layer_cycles(work, "h16").overhead.taken_from == "h13"


# The formula.


@pytest.mark.parametrize(
    ("channels", "kernel", "extent", "coarse", "anchored"),
    [(256, 3, 28, 1156, 505), (512, 1, 32, 671, 511), (1024, 1, 16, 671, 569), (2048, 1, 8, 671, 1210)],
)
def test_the_published_convolutions_on_m1(channels, kernel, extent, coarse, anchored):
    """Both columns as printed: the third is 569.53 by the formula and was printed as 569."""
    name = f"{kernel}x{kernel} {channels}@{extent}"
    row = next(each for each in store.load("cost_model")["validation"]["conv_table"] if each["conv"] == name)
    assert (row["coarse"], row["anchored"]) == (coarse, anchored)
    told = vendor_estimate(conv(channels, kernel, extent))
    assert told.us == pytest.approx(anchored, abs=0.54)
    (dispatch,) = told.dispatches
    assert dispatch.flops == 2 * channels**2 * kernel**2 * extent**2
    assert dispatch.bytes == 2 * (channels**2 * kernel**2 + 2 * channels * extent**2)
    assert round(coarse_us(dispatch.flops, dispatch.bytes)) == coarse


def test_rates_scale_by_cores_and_clock():
    """h13g: 8 cores at 1171.2 MHz beside the M1's 4 at 1142.4."""
    rates = vendor_rates("h13g")
    assert rates.peak.value == pytest.approx(3.25e12 * 2 * 1171.2 / 1142.4)
    assert rates.bandwidth.value == pytest.approx(18e9)
    assert rates.floor_us.value == pytest.approx(220 * 1142.4 / 1171.2)
    assert (rates.peak.confidence, rates.peak.taken_from) == ("predicted", "h13")
    small = vendor_rates("h16")  # 4 cores at 1728 MHz, 1336.8 effective; its anchor 16 at 1891.2 and 1411.4
    assert small.peak.value == pytest.approx(8.9e12 * 4 * 1336.8 / (16 * 1411.4))
    assert small.floor_us.value == pytest.approx(110 * 1891.2 / 1728)
    assert vendor_rates("h15").anchor.value == "h14"
    assert vendor_rates("h16s").peak.value == pytest.approx(8.9e12)  # the clocks and cores of its anchor
    assert vendor_rates("h16g").peak.confidence == "inferred"


@pytest.mark.parametrize("name", ["h13", "h14", "h17s"])
def test_an_anchor_has_its_own_rates(name):
    rates, row = vendor_rates(name), store.load("cost_model")["anchors"][name]
    assert (rates.peak.value, rates.bandwidth.value, rates.floor_us.value) == (
        row["peak_flops"],
        row["bw_bytes"],
        row["floor_us"],
    )
    assert rates.peak.confidence == "measured"


def test_small_programs_reach_less_of_the_peak_where_that_was_fitted():
    rates = vendor_rates("h14")
    assert rates.compute_us(18e9) == pytest.approx(18e9 / 7.3e12 * 1e6)
    assert rates.compute_us(18e9 / 1024) == pytest.approx(18e9 / 1024 / (7.3e12 / 1024**0.38) * 1e6)
    assert rates.compute_us(0) == 0


@pytest.mark.parametrize("name", sorted(set(ALL_28) - NO_CURVE - {"h11"}))
def test_twice_the_work_takes_no_less(name):
    rates = vendor_rates(name)
    sizes = [2.0**power for power in range(10, 40)]
    for times in ([rates.program_us(size, 0) for size in sizes], [rates.program_us(0, size) for size in sizes]):
        assert times == sorted(times)
        assert times[0] >= rates.floor_us.value
    counts = [layer_cycles(Work("conv", macs=size, bytes_in=size / 8), name).cycles for size in sizes]
    assert counts == sorted(counts)
    once = Work("conv", macs=1e6, weight_bytes=1e4, bytes_in=1e4, bytes_out=1e4)
    assert layer_cycles(replace(once, repeat=2), name).cycles >= layer_cycles(once, name).cycles


def test_every_compiled_program_has_an_answer():
    x = af.input((1, 32, 16, 16))
    weight = np.zeros((32, 32, 3, 3), np.float32)
    compiled = af.compile_all(af.conv(x, weight, pad=1).softmax(1), "all")
    assert len(compiled)
    for name in compiled:
        told = vendor_estimate(compiled[name])
        record = json.loads(json.dumps(told.to_json()))
        assert record["us"] == told.us
        assert record["accuracy"]["use"].startswith("ordinal")
        assert [each["number"] for each in record["layers"]] == list(range(len(told.layers)))
        if told.rates.known:
            assert told.us >= told.rates.floor_us.value
            assert all(each.us > 0 for each in told.layers if each.flops)
            assert name in str(told)
        else:
            assert told.us is None
            assert told.cycles is None
            assert str(told).startswith("unknown")
            assert all(each.us is None for each in told.layers)


def test_every_dispatch_pays_the_floor():
    shape = (1, 4, 64, 32)
    query, key, value = (af.input(shape) for _ in range(3))
    program = af.compile_all(af.sdpa(query, key, value).relu(), "h17s")["h17s"]
    assert len(program.segments) > 1
    told = vendor_estimate(program)
    assert len(told.dispatches) == len(program.segments)
    assert told.us == pytest.approx(sum(each.us for each in told.dispatches))
    assert told.us > 110 * len(program.segments)
    assert "dispatches" in str(told)


def test_a_program_moves_its_ends_and_weights_only():
    """Two layers in one program: what lies between them stays on the chip, each alone would move it."""
    x = af.input((1, 64, 32, 32))
    weight = np.zeros((64, 64, 1, 1), np.float32)
    told = vendor_estimate(af.compile_all(af.conv(af.conv(x, weight).softmax(1), weight), "h13")["h13"])
    (dispatch,) = told.dispatches
    # One copy of the ends; the same kernel is read by both convolutions.
    assert dispatch.bytes == 2 * (2 * 64 * 32 * 32 + 2 * 64 * 64)
    assert sum(each.traffic for each in told.layers) > dispatch.bytes
    low, high = told.energy_uj.value
    assert (low, high) == (pytest.approx(dispatch.bytes * 10e-6), pytest.approx(dispatch.bytes * 50e-6))


def test_the_accuracy_comes_along():
    told = vendor_accuracy()
    assert "31% median error over 68 shapes" in told["use"]
    assert told["cycles_bias"]["activation DMA"] == "3x low"
    assert told["formula_on_m1"] == "+-17%"


def test_only_programs_are_timed():
    with pytest.raises(AneforgeError, match="takes a compiled program"):
        vendor_estimate("h13")  # type: ignore[arg-type]


def test_every_conflict_named_here_can_be_explained():
    for name in ALL_28:
        rates, device = vendor_rates(name), vendor_device(name, 50)
        facts = [rates.peak, rates.bandwidth, rates.floor_us, *device.facts().values(), peak_evidence(name).rel_m1]
        for number in {each.conflict_id for each in facts if each.conflict_id}:
            assert conflict(number).id == number
