"""Every question has an answer for a model that is only in part on the engine; one that fits is the case of one
region."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pytest
from split_kit import encoder, half, many_refusals, whole
from study_kit import partition_for, partitions_for
from typer.testing import CliRunner

import aneforge as af
from aneforge.advice.form_search import search
from aneforge.chips import store
from aneforge.chips import target as chip_named
from aneforge.cli.app import app
from aneforge.compiler.compile import compile_target
from aneforge.cost.estimate import estimate_program
from aneforge.cost.parts import host_band
from aneforge.errors import AneforgeError
from aneforge.study import answers
from aneforge.study import partition as partitioning
from aneforge.study import regions as reasons
from aneforge.study.placement import fixed_costs
from aneforge.study.regions import ENGINE, HOST
from aneforge.study.study import Study

M1, M5 = chip_named("m1"), chip_named("m5")


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


# What counts as an op.


def test_views_of_ids_are_neither_ops_nor_regions(tmp_path):
    split = partition_for(af.load(encoder(tmp_path)), M1)
    assert [region.device for region in split.regions] == [HOST, ENGINE, HOST, ENGINE]
    assert [node.name for node in split.regions[0].nodes] == ["embed"]
    assert split.ops == split.on_engine + 2  # the embedding and the determinant
    assert not [name for uid, name in split.names.items() if uid in split.reasons and name.startswith("ids/")]
    assert "ids" in str(split)  # the region reads the input, not its view
    assert "ids/cast" not in str(split)


def test_a_run_looks_through_the_views(tmp_path):
    reference = pytest.importorskip("onnx.reference")
    file = encoder(tmp_path)
    feeds = {"ids": np.random.default_rng(0).integers(0, 40, (2, 10))}
    found = af.run(str(file), "m1", feeds).outputs["y"]
    want = reference.ReferenceEvaluator(str(file)).run(None, feeds)[0]
    np.testing.assert_allclose(found, want, rtol=2e-2, atol=2e-3)


# Check.


def test_verdicts(tmp_path):
    split = partition_for(af.load(encoder(tmp_path)), M1)
    report = af.check(str(encoder(tmp_path)), "m1,m5")
    in_part = f"in part: {split.on_engine} of {split.ops} ops on the engine"
    assert report.verdicts == {"m1": in_part, "m5": in_part}
    assert f"in part: {split.on_engine} of {split.ops}" in str(report)
    assert not report.ok
    assert af.check(whole(), "m1").verdicts == {"m1": "yes"}
    alone = af.Graph([af.topk(af.input((4, 64)), 8)])
    assert af.check(alone, "m1,m5").verdicts == {"m1": "no", "m5": "yes"}
    moved = af.Graph([af.topk(af.input((64, 4)).transpose((1, 0)), 8)])
    assert af.check(moved, "m1").verdicts == {"m1": "no"}  # a transpose alone is not worth the engine


def test_the_exit_status_of_check(tmp_path):
    """A part that is refused is refused: a verdict in part fails unless the user allows it."""
    file = encoder(tmp_path)
    assert run("check", file, "--target", "m1").exit_code == 1
    assert run("check", file, "--target", "m1", "--fail-on", "none").exit_code == 0
    told = json.loads(run("check", file, "--target", "m1", "--json").stdout)
    assert told["verdicts"]["m1"].startswith("in part: ")


def test_check_and_partition_count_alike():
    """The verdict is that of the partition, whichever way it was found."""
    graph = many_refusals(5)
    assert af.check(graph, "m1").verdicts["m1"] == af.partition(graph, "m1").only.verdict
    assert af.check(graph, "m1").partitions["m1"].on_engine == af.partition(graph, "m1").only.on_engine == 5


# Finding the partition.


def test_a_model_that_fits_is_the_case_of_one_region():
    graph = whole()
    split = partition_for(graph, M1)
    assert split.whole
    assert split.graph_of(0) is graph
    assert split.programs[0].fingerprint == compile_target(graph, M1).fingerprint
    assert split.estimate() == estimate_program(split.programs[0])


def test_all_refusals_are_found_in_one_attempt(monkeypatch):
    """Twenty refused ops, two looks: at the whole, and at each region once."""
    looked = []
    real = answers.survey
    monkeypatch.setattr(answers, "survey", lambda graph, *rest: looked.append(graph) or real(graph, *rest))
    split = partition_for(many_refusals(20), M1)
    assert sum(node.op == "topk" for node in split.graph.nodes) == len(split.reasons) == 20
    assert len(looked) == 1 + len(split.cut.on_engine)


def test_chips_that_refuse_the_same_share_a_cut():
    splits = partitions_for(many_refusals(2), {"m1": M1, "m1 max": chip_named("m1 max"), "m5": M5})
    assert splits["m1"].cut is splits["m1 max"].cut
    assert splits["m5"].cut is not splits["m1"].cut
    assert splits["m5"].whole


def test_a_region_that_stays_refused_goes_to_the_host_whole(monkeypatch):
    """However often a region is refused, there is an answer."""
    real = partitioning.refused_in_regions

    def stubborn(cut, targets, whole_regions):
        """A compiler that refuses the first op of every engine region."""
        refused = real(cut, targets, whole_regions)
        for region in cut.on_engine:
            nodes = region.nodes if whole_regions else region.nodes[:1]
            for target in targets:
                for node in nodes:
                    refused[target.name][node.uid] = reasons.Refusal(cut.names[node.uid], "stubborn", "it is refused")
        return refused

    monkeypatch.setattr(partitioning, "refused_in_regions", stubborn)
    x = af.input((4, 64), name="x")
    for _ in range(40):
        x = x.relu() + 1.0
    split = partition_for(af.Graph([af.topk(x, 8)]), M1)
    assert {region.device for region in split.regions} == {HOST}
    assert len(split.reasons) == split.ops


def test_a_region_that_only_moves_numbers_joins_the_host():
    x = af.input((4, 64), name="x")
    out = af.topk(af.topk(x, 32).reshape(8, 16).transpose((1, 0)), 4).relu()
    split = partition_for(af.Graph([out]), M1)
    assert [region.device for region in split.regions] == [HOST, ENGINE]
    assert {split.refusals[uid].rule for uid in split.reasons} >= {reasons.IDLE}


def test_parameters_and_random_numbers_stay_in_their_region():
    x = af.input((4, 64), name="x")
    out = af.topk(x * af.parameter(half(4, 64)) + af.random_uniform((4, 64), seed=3), 8) * 2.0
    split = partition_for(af.Graph([out.named("y")]), M1)
    data = half(4, 64)
    want = af.evaluate(out, {"x": data})
    np.testing.assert_allclose(split.run({"x": data})["y"], want, rtol=5e-3, atol=5e-3)


# Estimate.


def test_an_estimate_is_the_sum_of_its_parts(tmp_path):
    split = partition_for(af.load(encoder(tmp_path)), M1)
    found = split.estimate("coreml_call")
    engine = [estimate_program(program, "coreml_call") for program in split.programs.values()]
    host = [host_band(region.nodes) for region in split.regions if region.device == HOST]
    costs, _ = fixed_costs()
    crossings = 3 * costs["switch"] + costs["output"]  # one tensor leaves the engine for the host
    assert found.crossings_us == crossings
    assert found.us == pytest.approx(sum(e.us for e in engine) + sum(b.middle for b in host) + crossings)
    assert found.interval[0] == pytest.approx(sum(e.interval[0] for e in engine) + sum(b.low for b in host))
    high = sum(e.interval[1] for e in engine) + sum(b.high for b in host) + crossings
    assert found.interval[1] == pytest.approx(high)
    assert [part.device for part in found.parts] == [HOST, ENGINE, HOST, ENGINE]
    assert len(found.layers) == sum(len(e.layers) for e in engine)
    assert [layer.number for layer in found.layers] == list(range(len(found.layers)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert af.estimate(split.graph, target="m1", scope="coreml_call") == found.us


def test_the_host_is_a_band_of_assumed_rates():
    """Bytes or arithmetic, whichever is longer; a look-up does not read its whole table."""
    x = af.input((512, 512), name="x")
    weight = half(512, 512)
    small, large = host_band([x.relu()]), host_band([x.linear(weight)])
    assert 0 < small.low < small.high
    assert large.high > 3 * small.high
    rates = store.load("choices")["constants"]
    start = rates["host_op_us"]["v"]
    assert small.low == pytest.approx(start[0] + 2 * 4 * 512 * 512 / rates["host_bytes_per_us"]["v"][1])
    assert large.high == pytest.approx(start[1] + 2 * 512**3 / rates["host_product_flops_per_us"]["v"][0])
    names = ("host_bytes_per_us", "host_flops_per_us", "host_product_flops_per_us", "host_op_us")
    assert all(rates[name]["choice"] == "U75" for name in names)
    assert "U75" in store.load("choices")["choices"]


def test_the_size_of_a_table_costs_nothing(tmp_path):
    split = partition_for(af.load(encoder(tmp_path)), M1)
    embed = split.regions[0].nodes[0]
    rates = store.load("choices")["constants"]
    rows, ids = 4 * 16 * 32, 4 * 16  # bytes
    assert max(np.prod(operand.shape) for operand in embed.inputs) == 400 * 32
    low = rates["host_op_us"]["v"][0] + (2 * rows + ids) / rates["host_bytes_per_us"]["v"][1]
    assert host_band([embed]).low == pytest.approx(low)


def test_the_command_says_what_the_time_is_made_of(tmp_path):
    file = encoder(tmp_path)
    told = run("estimate", file, "--target", "m1,m5")
    assert told.exit_code == 0
    assert "M1: 2 regions on the engine, 2 on the host: " in told.stdout
    record = json.loads(run("estimate", file, "--target", "m1", "--json").stdout)["estimates"]["m1"]
    assert [part["device"] for part in record["parts"]] == [HOST, ENGINE, HOST, ENGINE]
    assert record["host_us"][0] < record["host_us"][1]
    assert record["crossings_us"] > 0
    assert "parts" not in run("estimate", file, "--target", "m1").stdout


def test_a_chip_that_runs_nothing_has_no_estimate():
    alone = af.topk(af.input((4, 64)), 8)
    found = af.estimate_all(alone, "m1,m5")
    assert list(found) == ["m5"]
    assert "nothing of it runs on the engine of M1" in str(found.refused["m1"])
    for question in (af.estimate, af.tune, af.precision_risk):
        with pytest.raises(AneforgeError, match="nothing of it runs on the engine of M1"):
            question(alone, target="m1")
    with pytest.raises(AneforgeError, match="nothing of it runs on the engine of M1"):
        af.diverges(alone, "m1,m5")


# Compile.


def test_a_build_for_each_region(tmp_path):
    file, out = encoder(tmp_path), tmp_path / "build"
    told = run("compile", file, "--target", "m1", "--out", out)
    assert told.exit_code == 0, told.stderr
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()) == [
        "partition.json",
        "partition.txt",
        *(f"region-{number}/program.{kind}" for number in (1, 3) for kind in ("json", "mlir", "txt")),
    ]
    split = partition_for(af.load(file), M1)
    assert (out / "region-1" / "program.mlir").read_text() == split.programs[1].mlir
    assert "Det runs on the host" in (out / "partition.txt").read_text()
    assert "on the host:" in told.stdout
    assert "region 3" in told.stdout


def test_a_failed_write_leaves_no_part_of_a_build(tmp_path, monkeypatch):
    from pathlib import Path

    real = Path.write_bytes

    def full(self, content):
        if self.name == "program.mlir":
            raise OSError(28, "No space left on device")
        return real(self, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    told = run("compile", encoder(tmp_path), "--target", "m1", "--out", tmp_path / "build")
    assert "cannot be written" in str(told.exception)
    assert not (tmp_path / "build").exists()


def test_compile_for_several_chips_names_the_regions(tmp_path):
    graph = many_refusals(2)
    graph.save(tmp_path / "net.aneforge")
    told = run("compile", tmp_path / "net.aneforge", "--target", "m1,m5")
    assert told.exit_code == 0
    assert "in regions on M1:" in told.stdout
    assert "1 target, 1 distinct program" in told.stdout
    record = json.loads(run("compile", tmp_path / "net.aneforge", "--target", "m1,m5", "--json").stdout)
    assert set(record["regions"]) == {"h13"}
    assert set(record["programs"]) == {"h17"}
    assert set(record["refused"]) == {"h13"}


def test_explain_looks_into_the_regions(tmp_path):
    file = encoder(tmp_path)
    told = run("compile", file, "--target", "m1", "--explain", "layer0/relu")
    assert told.exit_code == 0
    assert "layer0/relu" in told.stdout
    assert "det: on the host" in str(run("compile", file, "--target", "m1", "--explain", "det").exception)
    assert "nowhere: not a node" in str(run("compile", file, "--target", "m1", "--explain", "nowhere").exception)


def test_the_function_still_refuses_and_names_the_way_out(tmp_path):
    """One program is asked for, and there is none; the words name the command that splits the model."""
    with pytest.raises(af.CompileError, match="aneforge partition"):
        af.compile(af.load(encoder(tmp_path)), target="m1")


def test_a_chip_that_runs_nothing_is_refused(tmp_path):
    af.Graph([af.topk(af.input((4, 64)), 8)]).save(tmp_path / "net.aneforge")
    assert run("compile", tmp_path / "net.aneforge", "--target", "m1").exit_code == 1


# Run and compare.


def test_modes_batches_and_traces(tmp_path):
    file = str(encoder(tmp_path))
    feeds = np.random.default_rng(1).integers(0, 40, (3, 2, 10))
    one = af.run(file, "m1", {"ids": feeds[0]})
    fast = af.run(file, "m1", {"ids": feeds[0]}, mode="fast", trace=True)
    np.testing.assert_allclose(one.outputs["y"], fast.outputs["y"], rtol=1e-2, atol=1e-3)
    layers = [entry.layer for entry in fast.only.trace or ()]
    assert layers == sorted(layers)
    split = one.only.partition
    assert split is not None
    assert layers[-1] == sum(len(program.layers) for program in split.programs.values()) - 1
    batch = af.run(file, "m1", {"ids": feeds}, batch=True)
    np.testing.assert_array_equal(batch.outputs["y"][0], one.outputs["y"])
    assert batch.only.batch == 3


def test_compare_takes_each_chip_as_it_runs_the_model(tmp_path):
    file = str(encoder(tmp_path))
    feeds = {"ids": np.random.default_rng(1).integers(0, 40, (2, 10))}
    found = af.compare(file, "m1,m5,float64", feeds)
    assert set(found.in_part) == {"m1", "m5"}
    kinds = {node.node: node.op for node in found["m5"].nodes}
    assert kinds["det"] == kinds["embed"] == "host"
    assert kinds["layer0/matmul"] != "host"
    np.testing.assert_array_equal(found.first_sample["m1"]["y"], af.run(file, "m1", feeds).outputs["y"])
    assert found.float64["m1"]["y"].relative < 0.02
    assert "in part: " in str(found)


def test_chips_with_different_regions_are_compared():
    """A top-k is of the host on an M1 and of the engine on an M5; both pick the same numbers."""
    found = af.compare(many_refusals(1), "m1,m5", {"x": half(4, 64)})
    assert found.same
    assert list(found.in_part) == ["m1"]


# Risks and differences.


def test_the_numbers_of_a_table_bound_what_an_embedding_gives(tmp_path):
    """64 products of at most 0.2 x 6 are far from the ceiling; with a table of thousands they are not."""
    calm = af.risks(str(encoder(tmp_path)), "m1").only
    wild = af.risks(str(encoder(tmp_path, table_scale=3000.0)), "m1").only
    assert "layer0/matmul" not in {risk.node for risk in calm}
    assert ("layer0/matmul", "accumulator") in {(risk.node, risk.rule) for risk in wild}
    assert calm.in_part.startswith("in part: ")
    assert calm.in_part in str(calm)


def test_data_narrow_the_ranges_of_regions(tmp_path):
    """Behind the determinant nothing is known but by data."""
    file = str(encoder(tmp_path))
    feeds = {"ids": np.random.default_rng(1).integers(0, 40, (2, 10))}
    unknown, seen = af.risks(file, "m1").only, af.risks(file, "m1", inputs=feeds).only
    assert len(seen) <= len(unknown)


def test_what_lies_behind_a_difference_is_not_called_equal():
    """The first region can differ between the chips; what the second reads through the host can differ too."""
    x = af.input((4, 64), name="x", max_abs=4)
    deep = x.linear(half(64, 64)).tanh().named("first")
    out = (af.topk(deep, 8) * 2.0).named("second")
    found = af.diverges(af.Graph([out]), "m1,m5").only
    assert "first" in {entry.node for entry in found.real}
    assert found.unbounded == ("second",)
    assert not af.diverges(af.Graph([out]), "m1,m5").same
    assert "second" in str(found)


def test_a_common_cut_takes_the_refusals_of_both():
    graph = many_refusals(3)
    splits = Study.on(graph, {chip.name: chip for chip in (M1, M5)}).cut_alike()
    assert splits["h13"].cut is splits["h17"].cut
    assert len(splits["h17"].refusals) == 3


# Tune.


def test_tuning_looks_at_the_regions():
    x = af.input((1, 8, 64, 32), name="x")
    query, key, value = (x.linear(half(32, 32)) for _ in range(3))
    deep = af.sdpa(query, key, value)
    graph = af.Graph([(af.topk(deep.reshape(8, 2048), 8) * 2.0).named("y")])
    found = search(graph, "m1")
    assert found.in_part.startswith("in part: ")
    assert found.best.us <= found.untouched.us == pytest.approx(partition_for(graph, M1).estimate().us)
    assert partition_for(found.graph, M1).estimate().us == pytest.approx(found.best.us)
    with pytest.raises(AneforgeError, match=r"af\.tune gives one program"):
        af.tune(graph, target="m1")


# Plots.


@pytest.mark.parametrize("kind", ["timeline", "chips", "roofline"])
def test_pictures_show_the_host(tmp_path, kind):
    out = tmp_path / "x.svg"
    told = run("plot", encoder(tmp_path), kind, "--target", "m1", "--out", out)
    assert told.exit_code == 0
    assert re.search("host", out.read_text(encoding="utf-8"))


# Readable at size.


def lines_of(*words):
    return run(*words).stdout.splitlines()


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    file = tmp_path_factory.mktemp("large") / "net.aneforge"
    many_refusals(96).save(file)
    return file


def test_many_refusals_are_one_block(large):
    told = run("check", large, "--target", "m1").stdout
    assert told.count("TopK passes its validator") == 1
    assert "96 ops of topk (" in told
    assert "block0/topk, block1/topk, block2/topk and 93 more" in told
    assert len(told.splitlines()) < 20
    everything = run("check", large, "--target", "m1", "--all").stdout
    assert "block95/topk" in everything
    split = run("partition", large, "--target", "m1").stdout
    assert split.count("TopK passes its validator") == 1
    assert "96 ops, block0/topk" in split
    assert run("partition", large, "--target", "m1", "--all").stdout.count("TopK passes its validator") == 96


@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("check", "--all"),
        ("partition",),
        ("partition", "--all"),
        ("estimate", "--layers", "--basis"),
        ("risks", "--max-abs", "4"),
        ("risks", "--max-abs", "60000", "--all"),
    ],
)
def test_lines_fit_and_name_products(large, words):
    lines = lines_of(words[0], large, "--target", "m1", *words[1:])
    assert lines
    assert max(map(len, lines)) <= 100
    assert not [line for line in lines if re.search(r"\bh13\b|%z?[sdu]\b", line)]
    assert any("M1" in line for line in lines)


def test_differences_are_grouped(large):
    lines = lines_of("compare", large, "--any-input", "--target", "m1,m5", "--max-abs", "4")
    assert max(map(len, lines)) <= 100
    assert len(lines) < 40


def test_few_numbers_between_ops_of_the_host_stay_there(tmp_path):
    """A mask that is computed from token ids for a sort: a start of the engine takes longer than it."""
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node
    nodes = [
        node("Equal", ["ids", "pad"], ["is_pad"], "is_pad"),
        node("Cast", ["is_pad"], ["mask"], "mask", to=1),
        node("Sigmoid", ["mask"], ["small"], "small"),
        node("TopK", ["small", "two"], ["best", "places"], "best"),
        node("Exp", ["best"], ["large"], "large"),
    ]
    ports = [onnx.helper.make_tensor_value_info("ids", 7, [1, 16])]
    results = [onnx.helper.make_tensor_value_info("large", 1, None)]
    stored = [onnx.numpy_helper.from_array(np.array([number]), name) for name, number in (("pad", 1), ("two", 2))]
    made = onnx.helper.make_graph(nodes, "net", ports, results, stored)
    onnx.save(onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    split = af.partition(tmp_path / "m.onnx", "m1").only
    devices = {name: split.device_of[uid] for uid, name in split.names.items() if uid in split.device_of}
    assert devices["small"] == "host"
    assert devices["large"] == "engine"
    assert "few numbers between ops of the host" in " ".join(split.reasons.values())
