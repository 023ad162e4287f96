"""Caches: how each gets its new rows is recognised, other forms give the same numbers, and steps go on from steps."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_kit import run
from decoder_kit import onnx_decoder

import aneforge as af
from aneforge.advice.cures import curing_forms
from aneforge.chips.cache_writes import write_verdict
from aneforge.errors import AneforgeError
from aneforge.study.cache_forms import CACHE_FORMS, in_one_state, shifted, with_rows_as_outputs
from aneforge.study.caches import cache_writes, written_rows
from aneforge.study.decoding import CacheSteps
from aneforge.study.study import Study

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))
from decoder_graphs import FAMILIES, SMALL, feeds_of, graph_of

pytestmark = pytest.mark.filterwarnings("ignore")
WAYS = {
    "state": ("slice", "state"),
    "in-out": ("shift", "port"),
    "masked": ("blend", "port"),
    "rows": ("rows", "port"),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cache", WAYS)
def test_the_form_of_every_write_is_recognised(family, cache):
    writes = cache_writes(graph_of(SMALL[family], 1, 16, cache, seed=1))
    assert {(write.form, write.kept) for write in writes} == {WAYS[cache]}
    assert all(write.rows is not None for write in writes)


def test_a_write_at_a_computed_place_is_indexed(tmp_path):
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node("ScatterND", ["cache", "place", "row"], ["cache_out"]),
        helper.make_node("MatMul", ["cache_out", "w"], ["y"]),
    ]
    ports = [("cache", kinds.FLOAT, [16, 8]), ("place", kinds.INT64, [1, 1]), ("row", kinds.FLOAT, [1, 8])]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info(*port) for port in ports],
        [helper.make_tensor_value_info("y", kinds.FLOAT, [16, 4]),
         helper.make_tensor_value_info("cache_out", kinds.FLOAT, [16, 8])],
        [onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "s.onnx")
    writes = cache_writes(af.load(tmp_path / "s.onnx"))
    assert [(write.form, write.port.name) for write in writes] == [("indexed", "cache")]
    with pytest.raises(AneforgeError, match="not recognised"):
        with_rows_as_outputs(af.load(tmp_path / "s.onnx"))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cache", ["state", "in-out", "masked"])
def test_rows_that_the_host_writes_give_the_same_numbers(family, cache):
    graph = graph_of(SMALL[family], 1, 16, cache, seed=1)
    feeds = feeds_of(graph)
    want, have = (af.run(one, "m1", feeds).outputs for one in (graph, with_rows_as_outputs(graph)))
    np.testing.assert_array_equal(have["logits"], want["logits"])
    for write in cache_writes(graph):
        if write.form == "blend":
            continue
        shift = "behind" if write.form == "shift" else ""
        rows = have[str(write.output.name)]
        cache_before = np.asarray(feeds[str(write.port.name)], np.float16)
        after = written_rows(cache_before, rows, write.axis, write.begin, shift)
        np.testing.assert_array_equal(after, want[str(write.output.name)])


def test_caches_in_one_state_give_the_same_numbers():
    graph = graph_of(SMALL["qwen3"], 1, 16, "state", seed=1)
    packed, names = in_one_state(graph)
    feeds = feeds_of(graph)
    joint = {name: value for name, value in feeds.items() if name not in names}
    joint["cache"] = np.concatenate([feeds[name] for name in names])
    want, have = af.run(graph, "m1", feeds).outputs, af.run(packed, "m1", joint).outputs
    np.testing.assert_array_equal(have["logits"], want["logits"])
    parts = np.split(have["cache_out"], len(names))
    for name, part in zip(names, parts, strict=True):
        np.testing.assert_array_equal(part, want[f"{name}_out"])
    other = af.input((3, 16, 8), name="other")
    mixed = af.Graph([*graph.outputs, (other * 1.0).named("other_out")], {**graph.states, "other": "other_out"})
    with pytest.raises(AneforgeError, match="2 shapes"):
        in_one_state(mixed)


@pytest.mark.parametrize("form", CACHE_FORMS, ids=lambda form: form.name)
def test_tune_applies_every_form_of_caches_by_name(form, tmp_path):
    fits = [way for way in WAYS if form.fits(cache_writes(graph_of(SMALL["llama"], 1, 16, way, seed=1)))]
    assert fits
    for way in WAYS:
        graph = graph_of(SMALL["llama"], 1, 16, way, seed=1)
        if way not in fits:
            with pytest.raises(AneforgeError, match="fits nowhere"):
                af.apply_form(graph, form.name)
            continue
        changed = af.apply_form(graph, form.name)
        changed.save(tmp_path / "changed.aneforge")
        again = af.load_graph(tmp_path / "changed.aneforge")
        assert len(cache_writes(again)) in (1, 8)
        assert again.states == changed.states


def test_what_check_says_of_a_write_is_what_the_table_says():
    """The gate's rules and the table of forms agree where both speak about a state on a chip."""
    one = af.Graph([(af.input((1, 8), name="x") * 2.0).named("y")])
    assert not cache_writes(one)
    for chip in ("m1", "m4", "m5", "a19-pro"):
        packed, _ = in_one_state(graph_of(SMALL["llama"], 1, 32, "state", seed=1))
        study = Study(packed, chip, runtime="coreml", os="27.0")
        report = study.preflights()[chip]
        entries = (*report.of("unknown"), *report.of("reject"), *report.placement)
        rules = {finding.rule for entry in entries for finding in entry.findings}
        verdict = write_verdict("slice", "state", study.chips[chip], "coreml", "27.0").verdict
        assert ("state-update" in rules) == (verdict == "unsure"), chip


def test_a_refused_number_of_states_is_cured_by_a_form():
    graph = graph_of(SMALL["llama"], 1, 32, "state", seed=1)
    study = Study(graph, "m4", runtime="coreml")
    forms = curing_forms(study, "m4", ["keys_0"])
    assert "cache-rows-out" in forms
    changed = study.with_graph(af.apply_form(graph, "cache-rows-out"))
    assert not changed.preflights()["m4"].placement


# Steps.


def test_steps_with_a_cache_are_a_prompt_without_one():
    """Token after token with a growing cache, in float64, is one call with all tokens and a causal mask."""
    count = 6
    for way in ("in-out", "masked", "rows", "state"):
        steps = CacheSteps(graph_of(SMALL["qwen3"], 1, count, way, seed=5))
        whole = graph_of(SMALL["qwen3"], count, count, "none", seed=5)
        feeds = feeds_of(whole, 1)
        feeds["mask"] = np.triu(np.full((count, count), -1e4), 1)[None]
        want = af.evaluate(whole, feeds)
        caches, last = steps.empty(), None
        for step in range(count):
            given = {name: feeds[name][step : step + 1] for name in ("x", "cosines", "sines")}
            made = af.evaluate(steps.graph, {**steps.feeds(step, 0, given), **caches})
            outputs = dict(zip([steps.names[o.uid] for o in steps.graph.outputs], made, strict=True))
            caches = steps.handed_on(caches, outputs, step)
            last = outputs["logits"]
        np.testing.assert_allclose(last, want[0] if isinstance(want, list) else want, rtol=1e-7, atol=1e-7)


def test_the_first_step_that_differs_is_named():
    graph = graph_of(SMALL["llama"], 1, 16, "in-out", seed=1)
    decoding = af.decode_steps(graph, "m1,m5,float64", 5)
    assert decoding.reference == "m1"
    assert decoding.chips["float64"].first_bits == 1
    assert len(decoding.chips["float64"].errors) == 5
    assert decoding.chips["m5"].errors[0] <= decoding.chips["float64"].errors[0] + 0.05
    low, high = decoding.chips["m5"].of_million(5)
    assert 0 <= low < high <= 1_000_000
    assert json.loads(json.dumps(decoding.to_json()))["steps"] == 5
    assert "of a million tokens" in str(decoding)
    again = af.decode_steps(graph, "m1,m5,float64", 5)
    assert again.to_json() == decoding.to_json()
    assert af.decode_steps(graph, "m1,m5,float64", 5, seed=1).to_json() != decoding.to_json()


def test_chips_that_part_are_found_where_they_part():
    """A table of one chip that is off by a step shows from the first step on; equal chips never part."""
    graph = graph_of(SMALL["gpt2"], 1, 16, "in-out", seed=1)
    same = af.decode_steps(graph, ["m1", "m1 pro"], 3)
    assert same.same
    assert same.chips["m1 pro"].other_tokens == []


def test_inputs_of_steps_can_be_given(tmp_path):
    graph = graph_of(SMALL["llama"], 1, 16, "in-out", seed=1)
    x = np.random.default_rng(0).standard_normal((3, 1, 32))
    np.savez(tmp_path / "steps.npz", x=x)
    one = af.decode_steps(graph, "m1,float64", 3, str(tmp_path / "steps.npz"))
    assert one.to_json() == af.decode_steps(graph, "m1,float64", 3, {"x": x}).to_json()
    assert one.to_json() != af.decode_steps(graph, "m1,float64", 3).to_json()
    with pytest.raises(AneforgeError, match="not an input beside the caches"):
        af.decode_steps(graph, "m1,float64", 3, {"keys_0": x})


@pytest.mark.parametrize("way", ["masked", "rows"])
def test_a_cache_does_not_grow_without_bound(way):
    graph = graph_of(SMALL["llama"], 1, 4, way, seed=1)
    assert af.decode_steps(graph, "m1,m5", 4).steps == 4
    with pytest.raises(AneforgeError, match="Ask for 4 steps"):
        af.decode_steps(graph, "m1,m5", 5)
    assert af.decode_steps(graph_of(SMALL["llama"], 1, 4, "in-out", seed=1), "m1,m5", 6).steps == 6  # the oldest go


def test_steps_need_caches_and_a_number(tmp_path):
    with pytest.raises(AneforgeError, match="keeps no cache"):
        af.decode_steps(af.input((1, 8), name="x").relu(), "m1,m5", 2)
    with pytest.raises(AneforgeError, match="not a number of steps"):
        af.decode_steps(graph_of(SMALL["llama"], 1, 16, "in-out", seed=1), "m1,m5", 0)
    assert af.decode_steps(str(onnx_decoder(tmp_path)), "m1,m5", 2).note


def test_slice_updates_are_shifted_for_steps():
    graph = graph_of(SMALL["llama"], 1, 16, "state", seed=1)
    assert {write.form for write in cache_writes(shifted(graph))} == {"shift"}
    assert "cache-shifted" in af.decode_steps(graph, "m1,m5", 2).note


def test_the_command_decodes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = Path(__file__).resolve().parent.parent / "examples" / "decoder.py"
    Path("decoder.py").write_text(source.read_text())
    status, out, _ = run("compare decoder.py --target m1,m5 --decode 2", monkeypatch, capsys)
    assert status == 0
    assert "2 steps of 1 new token" in out
    status, _, err = run("compare decoder.py --target m1,m5 --decode 2 --samples 3", monkeypatch, capsys)
    assert status == 2
    assert "does not go with --decode" in err
    status, out, _ = run("tune decoder.py --form cache-rows-out --out changed.aneforge", monkeypatch, capsys)
    assert status == 0
    status, out, _ = run("check changed.aneforge --target m4 --runtime coreml --fail-on reject", monkeypatch, capsys)
    assert status == 0
