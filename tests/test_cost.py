"""The cost model: what it reads, how it behaves, and how far it is from the public measurements."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from evidence_kit import evidence

import aneforge as af
from aneforge.chips import all_targets, store
from aneforge.chips.names import chip_label
from aneforge.cost import layers
from aneforge.cost.constants import CallShares, basis_of
from aneforge.cost.estimate import LayerEstimate, _side_by_side
from aneforge.cost.evaluate import NOT_FITTED, figures, predict, read_rows
from aneforge.cost.layers import columns_of
from aneforge.cost.program import work_of_program
from aneforge.cost.work import RowError, Work, work_of_row
from aneforge.errors import AneforgeError
from aneforge.graph.encoding import Encoded

SILICON = Path(__file__).resolve().parent.parent.parent / "shared" / "facts" / "silicon" / "train.json"
LINEAR = {"op": "linear", "m": 64, "k": 1024, "n": 1024}
ROW = {
    "chip": "M5 Pro",
    "target": "h17s",
    "scope": "host_call",
    "layers": [LINEAR],
    "inputs": [[64, 1024]],
    "outputs": [[64, 1024]],
    "weight_enc": "fp16",
}


def row(**changes):
    return {**ROW, **changes}


# One layer alone.


def alone(work, known):
    times = layers.times_of(columns_of([work]), known)
    return times.us[0], times.bounds()[0]


def compute_us(work, known, engines=1):
    return layers.compute_us(columns_of([work]), known, np.array([engines]))[0]


def passes(work, known):
    return layers.passes_of(columns_of([work]), known)[0]


def reread_us(work, known):
    return layers.reread_us(columns_of([work]), known, np.array([1]))[0]


def weights_us(work, known, marginal=False):
    return layers.weights_us(columns_of([work]), known, marginal)[0]


@pytest.mark.skipif(not SILICON.is_file(), reason="the measurements lie beside a checkout, not in it")
def test_the_public_measurements():
    """The figures of the fit; bench/cost.py validates by leaving sources and chips out."""
    rows = [each for each in read_rows(SILICON) if each["quality"] not in NOT_FITTED]
    found = figures(rows)
    assert found.median < 7
    assert found.mape < 12
    assert found.p90 < 25
    assert found.rank > 0.94


def test_nothing_measured_is_read():
    """Rows without their measured fields and identifiers give the same times."""
    hidden = {"id", "latency_us", "lat_min_us", "sustained_us", "p10_us", "p50_us", "gbps", "tflops", "pkg_w", "ane_w"}
    hidden |= {"source", "notes", "stat", "quality", "host", "workload", "op_class", "compile_s", "flops"}
    for each in read_rows(evidence("times.json", "silicon/train.json"))[::7]:
        assert predict({key: value for key, value in each.items() if key not in hidden}) == predict(each)


# Properties.


@pytest.mark.parametrize("target", ["h13", "h14g", "h16g", "h17s", "h18g"])
@pytest.mark.parametrize("key", ["m", "k", "n"])
def test_more_work_never_takes_less(target, key):
    times = [
        predict(row(chip=None, target=target, layers=[{**LINEAR, key: size}])) for size in (16, 64, 256, 1024, 2048)
    ]
    assert times == sorted(times)


@pytest.mark.parametrize("target", ["h13", "h14g", "h17s", "h18g"])
def test_repeats_add_up(target):
    once, twice, four = (
        predict(
            row(chip=None, target=target, scope="slope", inputs=[], outputs=[], layers=[{**LINEAR, "repeat": count}])
        )
        for count in (1, 2, 4)
    )
    assert twice == pytest.approx(2 * once)
    assert four == pytest.approx(4 * once)


def test_a_call_costs_more_than_its_layers():
    bare = {"inputs": [], "outputs": []}
    slope = predict(row(scope="slope", **bare))
    assert all(
        predict(row(scope=scope)) > slope for scope in ("host_call", "coreml_call", "direct_call", "device_task")
    )


def test_weights_in_fewer_bytes_take_less_where_they_are_streamed():
    """One row of activations: the time is that of the weights."""
    one = {"op": "linear", "m": 1, "k": 4096, "n": 4096}
    times = [
        predict(row(chip="M6", target="h18g", weight_enc=enc, layers=[one])) for enc in ("fp16", "int8", "int4lut")
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.5 * times[2]


def test_what_bounds_a_layer():
    known = basis_of("M6").constants
    wide = Work("linear", macs=1e9, weight_bytes=1e3, contraction=512, channels=(512, 512), positions=4096)
    heavy = Work("linear", macs=1e6, weight_bytes=1e8, contraction=512, channels=(512, 512), positions=1)
    assert alone(wide, known)[1] == "compute"
    assert alone(heavy, known)[1] == "weights"
    assert alone(Work("ew", elements=16), known)[1] == "dispatch"


def test_inputs_that_stay_on_the_chip_pass_it_for_nothing():
    """The published pair: 128 and 256 rows over 4096 x 4096 weights, 1 and 2 MB; the second takes thrice as long."""
    known = basis_of("M5 Pro").constants
    narrow, wide = (work_of_row({"layers": [{"op": "linear", "m": m, "k": 4096, "n": 4096}]})[0] for m in (128, 256))
    assert passes(narrow, known) == passes(wide, known) == 64  # 512 KiB hold 64 outputs of 4096 halves
    assert reread_us(narrow, known) == 0
    assert reread_us(wide, known) == pytest.approx(64 * 2**21 / known.chip["reread"])
    assert alone(wide, known)[1] == "activations"


@pytest.mark.parametrize(("contraction", "expected"), [(16, 1), (1024, 4), (4096, 16), (6144, 32), (10**6, 64)])
def test_passes_by_kernel_memory(contraction, expected):
    """1024 outputs: a power of two of them at a time, as many as 512 KiB hold, at least the lanes."""
    work = Work("linear", macs=1.0, contraction=contraction, channels=(contraction, 1024))
    assert passes(work, basis_of("M1").constants) == expected


def test_passes_of_the_compiler_are_not_counted_twice():
    """The fit holds how often an input is read again; a layer in passes is issued once."""
    x = af.input((1, 256, 14, 14), name="x")
    model = af.compile(af.conv(x, np.full((512, 256, 3, 3), 0.001), stride=2, pad=1), target="m1")
    (layer,) = model.program.layers
    assert layer.passes == 3
    (in_passes,) = work_of_program(model.program)
    layer.ops[0].unmark(["passes"])
    (at_once,) = work_of_program(model.program)
    assert in_passes == at_once
    assert in_passes.weight_bytes == 512 * 256 * 9 * 2


def test_shared_weights_stay_as_long_as_they_fit():
    known = basis_of("M6").constants
    fits, beyond = (Work("conv", 8, weight_bytes=size, shared=True) for size in (2.0**19, 2.0**19 + 2))
    assert weights_us(fits, known) == pytest.approx(weights_us(beyond, known) / 8, rel=1e-4)
    assert weights_us(fits, known, marginal=True) == 0


def test_winograd_is_for_dense_kernels_of_three_in_unit_steps():
    known = basis_of("M6").constants

    def time(**changes):
        kernel = {"op": "conv", "n": 1, "cin": 64, "cout": 64, "h": 16, "w": 8, "kh": 3, "kw": 3, "pad": [1, 1]}
        (work,) = work_of_row({"layers": [{**kernel, **changes}]})
        return compute_us(work, known) / work.macs

    gain = known.shared["winograd"]
    assert time() * gain == pytest.approx(time(kh=5, kw=5, pad=[2, 2]))
    assert time(stride=2) == pytest.approx(gain * time())
    assert time(wenc="sparse", sparsity=0.0) == pytest.approx(gain * time())
    assert not basis_of("M1").constants.winograd


def test_channels_are_taken_in_lanes():
    known = basis_of("M1").constants
    base = {"op": "conv", "n": 1, "cin": 16, "cout": 16, "h": 32, "w": 32, "kh": 1, "kw": 1}
    full, ragged, depthwise = (
        compute_us(work_of_row({"layers": [{**base, **changes}]})[0], known)
        for changes in ({}, {"cin": 3, "cout": 17}, {"groups": 16})
    )
    assert ragged == pytest.approx(2 * full)
    assert depthwise == pytest.approx(full * known.shared["group_lanes"] / 16)


def test_an_activation_behind_a_product_rides_along():
    product = {"op": "bmm", "b": 2, "m": 8, "k": 8, "n": 8}
    scale = {"op": "ew", "fn": "scale", "shape": [2, 8, 8], "n_in": 1}
    kinds = [each.kind for each in work_of_row({"layers": [scale, product, scale, {**scale, "n_in": 2}]})]
    assert kinds == ["ew", "bmm", "absorbed", "ew"]
    assert alone(Work("absorbed"), basis_of("M1").constants)[0] == 0


def test_a_row_with_totals_only():
    """Two TFLOP of multiply-adds on an M5 Pro take as long as its rate says."""
    told = {"target": "h17s", "scope": "slope", "layers": None, "flops": 2e12, "weight_bytes": 0, "act_bytes": 0}
    assert predict(told) == pytest.approx(1e12 / basis_of("h17s").constants.chip["macs"])
    assert predict({**told, "scope": "app"}) == predict({**told, "scope": "host_call"})
    with pytest.raises(RowError, match="totals as numbers"):
        predict({**told, "act_bytes": "many"})


# Constants and their evidence.


def test_every_constant_has_its_evidence():
    """What the model reads is in the data, and each says where it comes from."""
    for chip in ("M1", "M3", "M4", "M5", "M6", "A15 Bionic", "m11"):
        found = basis_of(chip)
        coefficients = {key: value for key, value in found.constants.shared.items() if key not in found.constants.chip}
        told = {name: each.value for name, each in found.evidence.items() if not name.startswith("law of ")}
        assert {**found.constants.chip, **coefficients} == told
        assert all(fact.note or fact.source for fact in found.evidence.values())
    lent = basis_of("M4 Max").evidence
    assert lent["norms"].taken_from == basis_of("M4 Max").taken_from
    assert "by the common law" in lent["macs"].note
    assert basis_of("m11").constants.chip["macs"] == pytest.approx(
        0.109 * basis_of("A14 Bionic").constants.chip["macs"]
    )


def test_a_name_means_its_product_and_a_target_the_first_of_its_products():
    phone, mac, target = basis_of("A14 Bionic"), basis_of("M1"), basis_of("h13")
    assert (phone.chip, mac.chip, target.chip) == ("A14 Bionic", "M1", "M1")
    assert target.constants.chip == mac.constants.chip
    for each in all_targets(only_28=True):
        assert basis_of(each).label == chip_label(each.name)
    assert phone.constants.chip["coreml_call"] > 1.3 * mac.constants.chip["coreml_call"]
    assert af.compile(network(), target="m1").estimate().basis.chip == "M1"
    assert af.compile(network(), target="a14 bionic").estimate().basis.chip == "A14 Bionic"
    both = af.estimate_all(network(), "m1,a14 bionic")
    assert {name: each.basis.chip for name, each in both.items()} == {"m1": "M1", "a14 bionic": "A14 Bionic"}


@pytest.mark.parametrize(
    "chips",
    [
        ("M4", "M4 Pro", "M4 Max"),
        ("M5 Pro", "M5 Max"),
        ("product:A18", "A18 Pro"),
        ("M3", "M3 Pro", "M3 Max"),
        ("A19", "A19 Pro"),
    ],
)
def test_more_operations_and_bandwidth_are_never_slower(chips):
    works = [
        {"op": "conv", "n": 1, "cin": 64, "cout": 64, "h": 56, "w": 56, "kh": 3, "kw": 3, "pad": [1, 1]},
        {
            "op": "conv",
            "n": 1,
            "cin": 96,
            "cout": 96,
            "h": 112,
            "w": 112,
            "kh": 3,
            "kw": 3,
            "pad": [1, 1],
            "groups": 96,
        },
        {"op": "linear", "m": 1, "k": 4096, "n": 4096},
        {"op": "linear", "m": 512, "k": 4096, "n": 4096},
        {"op": "softmax", "shape": [12, 1500, 1500]},
        {"op": "transpose", "shape": [197, 768]},
        {"op": "ew", "shape": [1, 64, 112, 112], "n_in": 2},
    ]
    for work in works:
        times = [predict(row(chip=chip, target=None, layers=[work], scope="slope")) for chip in chips]
        assert all(one >= other * (1 - 1e-9) for one, other in itertools.pairwise(times)), work


def test_energy_where_watts_are_published():
    model = af.compile(network(), target="m6")
    assert model.estimate().energy_mj == pytest.approx(10.8 * model.estimate().engine_us / 1000)
    assert model.estimate().basis.watts.source == ("M6.pwr",)
    assert af.compile(network(), target="m4").estimate().energy_mj is None


def test_every_target_with_a_generation_has_a_basis():
    for each in all_targets():
        if not each.constructible:
            continue
        found = basis_of(each)
        assert all(
            width.factor(CallShares(share, share / 2)) > 1
            for width in found.widths.values()
            for share in (0.0, 0.5, 1.0)
        )
        assert found.rule
        assert found.fitted == (found.chip in store.load("cost_fit")["chips"] and "one core" not in found.rule)
    measured, other = basis_of("M5 Pro"), basis_of("M3 Pro")
    (low, high), (least, most) = (each.interval(1.0, "host_call", CallShares(0.5, 0.1)) for each in (measured, other))
    assert least < low < high < most
    assert other.rule.endswith("with the measured factors of the M3")


def test_the_constants_are_plausible():
    """In the units that they claim: GB/s, TFLOPS and microseconds that the sources print."""
    for name in store.load("cost_fit")["chips"]:
        chip = basis_of(name).constants.chip
        assert 3 < 2 * chip["macs"] / 1e6 < 25, name  # TFLOPS
        assert 15 < chip["weights"] / 1e3 < 250, name  # GB/s
        assert 50 < chip["host_call"] < 300, name
        assert 50 < chip["coreml_call"] < 4500, name


# Programs.


def network(width=64):
    x = af.input((1, 16, 32, 32), name="x")
    y = af.conv(x, np.full((width, 16, 3, 3), 0.01), pad=1).relu().named("stem")
    y = af.conv(y, np.full((width, width, 1, 1), 0.01)) + y
    return y.mean((2, 3)).reshape(1, width).linear(np.full((10, width), 0.01)).softmax(-1)


def time_of(out, chip):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", af.DispatchFloorWarning)
        return af.estimate(out, target=chip)


@pytest.mark.parametrize("chip", ["m1", "m2", "m3 pro", "m4", "m5", "m6"])
def test_a_program_has_an_estimate_by_layers(chip):
    model = af.compile(network(), target=chip)
    found = model.estimate()
    assert found.us == pytest.approx(time_of(network(), chip))
    assert found.interval[0] < found.us < found.interval[1]
    assert len(found.layers) == len(model.program.layers)
    assert sum(found.bounds().values()) == pytest.approx(found.engine_us)
    assert found.us > found.engine_us > 0
    assert any("stem" in each.sources for each in found.layers)
    assert json.dumps(found.to_json())
    assert found.basis.fitted == (chip != "m3 pro")


def test_a_program_and_a_row_of_the_same_layer_agree():
    """One convolution: the work that the compiled program has is the work that a row describes."""
    out = af.conv(af.input((1, 64, 32, 32)), np.full((64, 64, 1, 1), 0.01))
    told = work_of_row({"layers": [{"op": "conv", "n": 1, "cin": 64, "cout": 64, "h": 32, "w": 32, "kh": 1, "kw": 1}]})
    (made,) = work_of_program(af.compile(out, target="m5").program)
    assert made == told[0]


def test_larger_networks_take_longer_and_every_chip_has_a_time():
    small, large = (af.estimate(network(width), target="m1") for width in (64, 512))
    assert small < large
    assert af.estimate_provenance("M4 Max")["taken_from"] == "M4 Pro"
    with pytest.raises(AneforgeError, match="'dream' is not a scope"):
        af.compile(network(), target="m1").estimate("dream")


def test_encoded_weights_take_less_where_the_chip_streams_them():
    codes = np.zeros((2048, 2048), np.int8)
    plain, stored = (
        af.input((1, 2048)).linear(weight)
        for weight in (np.full((2048, 2048), 0.01), Encoded.affine(codes, np.float16(0.01)))
    )
    assert af.estimate(stored, target="m6") < af.estimate(plain, target="m6")
    assert af.estimate(stored, target="m1") == pytest.approx(af.estimate(plain, target="m1"))


def test_native_layers_are_programs_of_their_own():
    """The attention layer cuts the graph in three; each is started, and it goes by heads and products."""
    q, k, v = (af.input((1, 8, places, 64), name=name) for name, places in (("q", 48), ("k", 80), ("v", 80)))
    found = af.compile(af.sdpa(q, k, v), target="M5 Pro").estimate("host_call")
    assert found.calls == 3
    layer = next(each for each in found.layers if each.op == "sdpa")
    shared = found.basis.constants.shared
    macs = 2 * 8 * 48 * 80 * 64
    told = 8 * shared["attention_head"] + macs / shared["attention_macs"] + found.basis.constants.chip["layer"]
    assert layer.us == pytest.approx(told)
    assert layer.flops == 2 * macs
    alone = (found.us - found.engine_us) / found.basis.constants.chip["host_call"]
    assert 3 < alone < 3.5  # three starts and the copies


def test_layers_that_run_side_by_side_count_once():
    layers = [LayerEstimate(i, "op", (), us, "compute", 0.0, 0.0) for i, us in enumerate((5.0, 7.0, 2.0))]
    found = _side_by_side(layers, [(0, 1), (2,)])
    assert [each.us for each in found] == [0.0, 7.0, 2.0]
    assert [each.beside for each in found] == [1, None, None]


def test_a_small_call_is_told():
    with pytest.warns(af.DispatchFloorWarning, match="give it more work"):
        af.estimate(af.input((1, 8)).relu(), target="m1")


# Bad input.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": None}, "row: it needs its layers"),
        ({"layers": [{"m": 1}]}, "layer 0 is not a record with an 'op'"),
        ({"layers": [{"op": "linear", "m": 1}]}, r"layer 0 \(linear\): 'k' is missing"),
        ({"layers": [{"op": "softmax"}]}, r"layer 0 \(softmax\)"),
        ({"layers": [{**LINEAR, "repeat": -1}]}, "repeat -1"),
        ({"scope": "dream"}, "'dream' is not a scope"),
        ({"target": "M77", "chip": None}, "no chip or target 'M77'"),
        ({"target": None, "chip": None}, "needs its chip"),
    ],
)
def test_rows_that_describe_nothing(changes, message):
    with pytest.raises(AneforgeError, match=message):
        predict(row(**changes))
    assert issubclass(RowError, AneforgeError)


CONV = {"op": "conv", "n": 1, "cin": 64, "cout": 64, "h": 56, "w": 56, "kh": 3, "kw": 3, "stride": 1, "pad": [1, 1]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": -1e308}, r"layer 0 \(conv\): n -10.*: not a size"),
        ({"n": 10**200, "cin": 10**200}, "too large"),
        ({"cin": -64, "cout": -64}, "cin -64: not a size"),
        ({"wbytes": -1}, "too large, or below zero"),
        ({"kh": None}, "not a size"),
        ({"stride": 0.5}, "not a size"),
    ],
)
def test_sizes_that_no_layer_has(changes, message):
    """Each is one short line: found by make fuzz as a sum that no float holds, and as a time below zero."""
    with pytest.raises(RowError, match=message) as caught:
        work_of_row({"layers": [{**CONV, **changes}]})
    assert len(str(caught.value)) < 200


def test_pairs_of_equal_flops():
    """Only pairs of one source whose times are apart count; a tie is not in order."""
    rows = [
        {"source": "a", "chip": "M5", "scope": "slope", "flops": 8.0, "latency_us": us, "guess": guess}
        for us, guess in ((10.0, 1.0), (10.5, 0.5), (20.0, 2.0), (40.0, 2.0))
    ]
    rows += [{**rows[0], "source": "b"}, {**rows[0], "flops": 9.0}, {**rows[0], "flops": None}]
    found = figures(rows, lambda each: each["guess"])
    assert found.pairs == (4, 5)


def test_layers_in_numbers():
    (found,) = work_of_row({"layers": [{"op": "conv", "n": 2, "cin": 8, "cout": 16, "h": 8, "w": 8, "kh": 3, "kw": 3,
                                        "stride": 2, "pad": [1, 1], "groups": 2}]})  # fmt: skip
    assert (found.positions, found.macs) == (2 * 16, 2 * 16 * 16 * 4 * 9)
    assert (found.weight_bytes, found.channels, found.unit_steps) == (2 * 16 * 4 * 9, (4, 16), False)


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "aneforge", *words], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_command(tmp_path):
    file = tmp_path / "rows.json"
    rows = [{**ROW, "latency_us": predict(ROW) * factor, "quality": "ok", "op_class": "gemm"} for factor in (1.0, 1.1)]
    rows.append({**rows[0], "latency_us": 1e9, "quality": "noisy"})
    file.write_text(json.dumps({"schema": 1, "rows": rows}))
    told = run("measure", "cost", str(file))
    assert told.returncode == 0, told.stderr
    assert "1 rows left out" in told.stdout
    found = json.loads(run("measure", "cost", str(file), "--json").stdout)
    assert found["all"]["rows"] == 2
    assert found["all"]["median"] == pytest.approx(100 * (1 - 1 / 1.1) / 2, abs=0.01)
    for content, message in (
        ("junk", "not JSON"),
        ('{"rows": 1}', "expected an object with a list of 'rows'"),
        ('{"rows": [{}]}', "row 0 has no"),
    ):
        file.write_text(content)
        refused = run("measure", "cost", str(file))
        assert refused.returncode == 2
        assert message in refused.stderr
    assert "rows.txt" in run("measure", "cost", str(tmp_path / "rows.txt")).stderr
