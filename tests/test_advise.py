"""The adviser: what streams and what folds on each chip, errors and times beside it, and a choice on the front."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from study_kit import partition_for
from typer.testing import CliRunner

import aneforge as af
from aneforge.advice import advise_weights
from aneforge.advice.calibration import moments_of
from aneforge.cli.app import app
from aneforge.compiler.storage import DEFAULT_STORAGES, STORAGES, encodable_layers
from aneforge.graph.codecs.calibrated import output_error
from aneforge.graph.codecs.encoding import encode
from aneforge.sim.inputs import samples_of

CHIPS = "m1,m2,m3,m5"


def small(seed=5, width=64):
    """A convolution and two dense layers."""
    rng = np.random.default_rng(seed)
    x = af.input((1, 32, 8, 8), name="x")
    h = af.conv(x, rng.normal(0, 0.06, (width, 32, 3, 3)), pad=1).relu()
    h = h.reshape(1, width, 64).linear(rng.normal(0, 0.1, (128, 64))).relu()
    return h.linear(rng.normal(0, 0.1, (64, 128)), rng.normal(size=64)).graph()


@cache
def advised(method="plain", target_error=0.01):
    return advise_weights(small(), CHIPS, method=method, target_error=target_error)


def test_the_table_of_streams_is_the_published_one():
    flows = {chip: {o.name: o.flow for o in found.options if o.name in STORAGES} for chip, found in advised().items()}
    assert flows == {
        "m1": {"int8": "folds", "int4": "streams", "sparse": "streams", "blockwise": "folds"},
        # The convolution has 32 inputs, one block for each output: that is int8 (N67), which an M2 streams.
        "m2": {"int8": "streams", "int4": "streams", "sparse": "streams", "blockwise": "1 of 3 stream"},
        "m3": {"int8": "streams", "int4": "streams", "sparse": "streams", "blockwise": "streams"},
        "m5": {"int8": "streams", "int4": "streams", "sparse": "streams", "blockwise": "streams"},
    }
    labels = {chip: found.option("int8").confidence for chip, found in advised().items()}
    assert labels == {"m1": "measured", "m2": "measured", "m3": "predicted", "m5": "measured"}


@pytest.mark.parametrize("target_error", [0.0, 0.002, 0.01, 0.05, 1.0])
def test_the_choice_is_on_the_front_and_within_the_error(target_error):
    for found in advised(target_error=target_error).values():
        for runtime, choice in found.recommended.items():
            assert choice.option in found.front(runtime)
            option = found.option(choice.option)
            assert option.check.error <= target_error
            for other in found.options:
                place = other.placements[runtime]
                if other.check.error <= target_error and place.us is not None and place.on_engine == place.ops:
                    assert choice.us <= place.us


def test_more_error_never_costs_time():
    times = [
        [advised(target_error=limit)[chip].recommended["direct"].us for limit in (0.0, 0.01, 1.0)]
        for chip in ("m1", "m2")
    ]
    assert all(a >= b >= c for a, b, c in times)
    assert all(a > c for a, _, c in times)


def test_a_folded_form_costs_and_counts_as_fp16():
    found = advised()["m1"]
    fp16, int8 = found.option("fp16"), found.option("int8")
    assert int8.stored_bytes < fp16.stored_bytes
    assert int8.program_bytes == fp16.program_bytes
    assert int8.placements["direct"].us == fp16.placements["direct"].us
    assert found.option("int4").program_bytes < 0.5 * fp16.program_bytes


def test_errors_are_those_of_the_simulator():
    graph = small()
    found = advise_weights(graph, "m2", runtimes="direct", encodings=["int4"], mode="exact", samples=1)["m2"]
    option = found.option("int4")
    feeds = next(samples_of(graph, samples=1))
    want, have = (partition_for(each, found.target).run(feeds, "exact") for each in (graph, found.graphs["int4"]))
    (a,), (b,) = want.values(), have.values()
    a, b = a.astype(float), b.astype(float)
    assert option.check.error == pytest.approx(np.abs(a - b).max() / np.abs(a).max(), rel=1e-12)
    assert option.check.cosine == pytest.approx((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b), rel=1e-12)


def test_weights_by_block_carry_the_published_warning():
    for chip, found in advise_weights(
        small(), "m1,m3,m4,m5", runtimes="coreml,direct", encodings=["blockwise"]
    ).items():
        option = found.option("blockwise")
        told = option.warning + "".join(place.why for place in option.placements.values())
        assert "C56" in told, chip
        assert option.placements["coreml"].on_engine < option.placements["coreml"].ops
        assert option.placements["direct"].on_engine == option.placements["direct"].ops
        assert found.recommended["coreml"].option != "blockwise"


def test_one_layer_by_block_takes_a_model_off_the_engine_in_core_ai():
    for chip in ("m4", "m5"):
        place = advise_weights(small(), chip, runtimes="coreai", encodings=["blockwise"])[chip].option("blockwise")
        assert (place.placements["coreai"].on_engine, place.placements["coreai"].us) == (0, None)


def test_palettes_by_core_ml_on_an_m5_have_no_known_time():
    """C55: expanded in every call there, and only there."""
    found = advised()
    assert found["m5"].option("int4").placements["coreml"].us is None
    assert "C55" in found["m5"].option("int4").placements["coreml"].why
    assert found["m5"].option("int4").placements["coreai"].us is not None
    assert found["m2"].option("int4").placements["coreml"].us is not None
    assert all(found["m5"].recommended["coreml"].option != name for name in ("int4", "lut8"))


def test_the_same_choice_as_tune_precision():
    """One question, one answer: the same forms, inputs, scope and error."""
    rng = np.random.default_rng(0)
    x = af.input((1, 1024), name="x")
    out = x.linear(rng.normal(0, 0.03, (2048, 1024))).relu().linear(rng.normal(0, 0.03, (1024, 2048)))
    inputs = {"x": rng.normal(size=(1, 1024)).astype(np.float16)}
    for error in (0.003, 0.01, 0.1):
        names = ["int8", "lut8", "lut6", "int4", "sparse"]
        chip = advise_weights(out, "m2", inputs, "direct", names, sparsity=None, target_error=error, mode="exact")[
            "m2"
        ]
        _, report = af.tune_precision(out, target_error=error, inputs=inputs, target="m2")
        chosen = chip.option(chip.recommended["direct"].option)
        kept = {node: {"lut4": "int4"}.get(c.name, c.name) for c in report.kept for node in c.nodes}
        assert dict(chosen.forms) == kept
        assert chosen.check.error == report.error


def test_calibrated_weights_are_nearer_on_samples_that_the_fit_never_saw():
    rng = np.random.default_rng(8)
    mixing = rng.normal(size=(6, 32 * 64)) * np.geomspace(0.2, 3, 32 * 64)
    samples = {"x": (rng.normal(size=(8, 6)) @ mixing + 0.05 * rng.normal(size=(8, 2048))).reshape(8, 1, 32, 8, 8)}
    errors = {
        method: {
            option.name: option.metric
            for option in advise_weights(
                small(),
                "m2",
                {"x": samples["x"][4:] if method == "plain" else samples["x"]},
                "direct",
                metric="rmse",
                method=method,
            )["m2"].options
        }
        for method in ("plain", "calibrated")
    }
    for name in ("int8", "int4", "sparse", "blockwise"):
        assert errors["calibrated"][name] < errors["plain"][name], name


def test_moments_of_a_layer_give_its_own_error():
    """The convolution with padding, stride and groups as well: what the moments say is what the outputs do."""
    rng = np.random.default_rng(2)
    x = af.input((1, 32, 9, 9), name="x")
    kernel = rng.normal(size=(64, 16, 3, 3)).astype(np.float16)
    graph = af.conv(x, kernel, stride=2, pad=(1, 0, 1, 0), groups=2).graph()
    feeds = [{"x": rng.normal(size=(1, 32, 9, 9)) * np.geomspace(0.1, 2, 32)[:, None, None]} for _ in range(2)]
    (layer,) = encodable_layers(graph).values()
    stored = encode(kernel, "int4")
    other = af.conv(x, stored.decode().astype(np.float16), stride=2, pad=(1, 0, 1, 0), groups=2).graph()
    outputs = [[af.evaluate(each, feed)[0] for feed in feeds] for each in (graph, other)]
    want, have = (np.concatenate([part.reshape(-1) for part in parts]) for parts in outputs)
    told = output_error(kernel, stored.decode(), moments_of(graph, [layer], feeds)[layer.node.uid])
    assert told == pytest.approx(np.linalg.norm(have - want) / np.linalg.norm(want), rel=1e-6)


def test_layers_tell_bytes_flow_time_and_error():
    for chip, found in advised().items():
        assert [row.shape for row in found.layers] == [(64, 32, 3, 3), (128, 64), (64, 128)]
        for row in found.layers:
            options = {option.encoding: option for option in row.options}
            assert options["int8"].streams == (chip != "m1")
            assert options["int4"].stored_bytes == row.fp16_bytes // 4 + 32
            assert 0 < options["blockwise"].error <= options["int8"].error < options["int4"].error < 1
            assert all(option.us is not None and option.us <= option.before_us for option in row.options)


def test_the_share_of_zeros_is_asked_for():
    def stored(share):
        found = advise_weights(small(), "m1", runtimes="direct", encodings="sparse", sparsity=share)
        return found["m1"].option("sparse").stored_bytes

    sizes = [stored(share) for share in (0.5, 0.9)]
    assert sizes[1] < 0.5 * sizes[0]
    untouched = advise_weights(small(), "m1", runtimes="direct", encodings="sparse", sparsity=None)["m1"].option(
        "sparse"
    )
    assert untouched.check.same_bits


def test_a_metric_of_ones_own():
    def largest(outputs, expected):
        return max(float(np.abs(a["linear_1"]).max()) for a in outputs)

    found = advise_weights(small(), "m1", runtimes="direct", encodings="int4", metric=largest)["m1"]
    assert found.option("int4").metric != found.option("fp16").metric > 0
    agreed = advise_weights(small(), "m1", runtimes="direct", encodings="int8", metric="top1")["m1"]
    assert agreed.option("fp16").metric == 1.0 >= agreed.option("int8").metric > 0.9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"encodings": ["int9"]}, "'int9' is not an encoding; choose one: "),
        ({"encodings": []}, "the list is empty"),
        ({"runtimes": "coreml,metal"}, "'metal' is not a runtime; choose from: coreml, coreai, direct"),
        ({"method": "magic"}, "'magic' is not a method; choose one: plain, calibrated"),
        ({"mode": "slow"}, "'slow' is not a mode; choose one: fast, exact"),
        ({"sparsity": 1.5}, "1.5 is not a share of zeros"),
        ({"target_error": -1}, "-1 is not an error"),
        ({"metric": "bleu"}, "'bleu' is not a metric; choose one: top1, rmse"),
        ({"metric": lambda outputs, expected: outputs[7]}, "the function failed: IndexError"),
        ({"calibration": {"y": np.ones((1, 32, 8, 8))}}, "'y' is not an input of the model"),
        ({"calibration": "nowhere.npz"}, "nowhere.npz"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(options, words):
    with pytest.raises(af.AneforgeError, match=words.replace("(", r"\(")):
        advise_weights(small(), "m1", **{"encodings": ["int8"], "runtimes": "direct", **options})


def test_a_model_without_weights_says_so():
    text = str(advise_weights(af.input((1, 8), name="x").relu(), "m1"))
    assert "there is nothing to compress" in text


def test_progress_reaches_its_end():
    seen = []
    advise_weights(small(), "m1,m2", runtimes="direct", encodings="int8", progress=lambda *step: seen.append(step))
    assert [step[0] for step in seen] == sorted(step[0] for step in seen)
    assert seen[-1][0] == seen[-1][1] == len(seen) - 1


def test_the_command(tmp_path):
    file, data, out = (str(tmp_path / name) for name in ("net.aneforge", "data.npz", "smaller.aneforge"))
    small().save(file)
    np.savez(data, x=np.random.default_rng(0).normal(size=(3, 1, 32, 8, 8)))
    words = ["compress", file, "--target", "m2", "--runtimes", "coreml", "--calibration", data]
    done = CliRunner().invoke(app, [*words, "--layers", "--target-error", "1", "--out", out])
    assert done.exit_code == 0, done.output
    assert "3 samples of the calibration" in " ".join(done.stdout.split())
    assert "linear_0" in done.stdout
    saved = af.load_graph(out)
    assert any(node.weight is not None and node.weight.encoded is not None for node in saved.nodes)
    record = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert record["seed"] is None
    assert {option["name"] for option in record["targets"]["m2"]["options"]} >= {"fp16", *DEFAULT_STORAGES}
    several = CliRunner().invoke(app, ["compress", file, "--target", "m1,m2", "--out", out])
    assert isinstance(several.exception, af.AneforgeError)
    assert "Name one chip and one runtime" in str(several.exception)
