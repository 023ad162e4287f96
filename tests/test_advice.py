"""What ``estimate`` says a person can do: every change that is told was worked out, and helps."""

from __future__ import annotations

import json

import numpy as np
import pytest
from split_kit import encoder
from study_kit import partition_for

import aneforge as af
from aneforge.advice import PricedChange, advise
from aneforge.advice.changes import batched
from aneforge.advice.forms import query_tiles
from aneforge.advice.proposals import LEAST_GAIN, Workbench, context_on
from aneforge.chips.names import target
from aneforge.compiler.storage import streamed_storages
from aneforge.cost.parts import host_band
from aneforge.graph.forms import applied
from aneforge.graph.graph import Graph
from aneforge.graph.layer_forms import stored_layers
from aneforge.study.regions import HOST
from aneforge.study.study import Study

SCOPE = "coreml_call"


def dense_layers(rows: int = 1, width: int = 1024, depth: int = 4) -> Graph:
    """One row through large layers: nearly all time is reading weights."""
    rng = np.random.default_rng(0)
    x = af.input((rows, width), name="x")
    for number in range(depth):
        x = x.linear(rng.normal(0, 0.03, (width, width))).relu().named(f"dense{number}")
    return Graph.of(x)


def image_network(native_end: bool = False, side: int = 32) -> Graph:
    rng = np.random.default_rng(1)
    x = af.input((1, 16, side, side), name="image")
    y = af.conv(x, rng.normal(0, 0.1, (32, 16, 3, 3)), pad=1).relu().named("first")
    y = af.conv(y, rng.normal(0, 0.1, (32, 32, 3, 3)), pad=1).relu().named("second")
    if native_end:
        y = af.topk(y.mean([2, 3]).reshape(1, 32).named("features"), 5).named("best")
    return Graph.of(y)


def attention(tokens: int = 1024, heads: int = 4, width: int = 64) -> Graph:
    q, k, v = (af.input((heads, tokens, width), name=name) for name in "qkv")
    return Graph.of(((q @ k.transpose([0, 2, 1]) * width**-0.5).softmax(-1) @ v).named("mixed"))


def told(graph: Graph, chip: str, scope: str = SCOPE, count: int = 9) -> dict[str, PricedChange]:
    return {change.name: change for change in af.estimate_all(graph, chip, scope, changes=count).advice[chip].changes}


@pytest.mark.parametrize("graph", [dense_layers(), image_network(), image_network(True), attention()])
def test_every_change_that_is_told_helps_and_the_best_comes_first(graph):
    result = af.estimate_all(graph, "m1..m6")
    for chip, advice in result.advice.items():
        times = [change.us for change in advice.changes]
        assert times == sorted(times)
        assert len(times) <= 3
        assert advice.weighed >= advice.worked_out >= len(times)
        for change in advice.changes:
            assert change.before_us == result[chip].us
            assert change.us <= (1 - LEAST_GAIN) * result[chip].us
            assert change.interval[0] <= change.us <= change.interval[1]


@pytest.mark.parametrize("form", ["int8", "lut4"])
def test_the_estimate_with_stand_in_weights_is_that_of_real_ones(form):
    graph, chip = dense_layers(), target("m2")
    change = next(one for name, one in told(graph, "m2").items() if name == f"weights as {form}")
    storage = next(known for known in streamed_storages(chip) if known.encoding == form)
    sites = []
    for layer in stored_layers(graph).values():
        encoded = storage.write(layer.weight)
        sites.append(layer.stored_as(lambda encoded=encoded: encoded))
    real = partition_for(applied(graph, sites), chip).estimate(SCOPE)
    assert change.us == real.us
    assert change.interval == real.interval
    assert len(change.nodes) == len(sites)


def test_weights_are_proposed_only_in_forms_that_the_chip_streams():
    assert "weights as int8" not in told(dense_layers(), "m1")
    assert "weights as int8" in told(dense_layers(), "m2")


def test_attention_in_tiles_is_the_estimate_of_the_changed_graph():
    graph = attention()
    tiles = [name for name in told(graph, "m1") if name.startswith("query-tiles")]
    assert len(tiles) == 1, "of one kind of form a chip is told the best"
    rewrite = query_tiles(int(tiles[0].rpartition("-")[2]))
    split = partition_for(graph, target("m1"))
    site = rewrite.find(graph.outputs[0], context_on(graph, target("m1")))
    assert site is not None
    changed = partition_for(applied(graph, [site]), target("m1")).estimate(SCOPE)
    assert told(graph, "m1")[tiles[0]].us == changed.us < split.estimate(SCOPE).us


def test_a_layer_that_cuts_the_program_is_left_to_the_caller():
    graph = image_network(native_end=True)
    change = told(graph, "m5")["ends of the model outside the call"]
    assert "best" in change.nodes
    left_out = [node for node in graph.nodes if (node.name or "") in change.nodes]
    features = next(node for node in graph.nodes if node.uid == left_out[0].inputs[0].uid)
    rest = partition_for(Graph.of(features), target("m5")).estimate(SCOPE)
    assert change.us == pytest.approx(rest.us + host_band(left_out).middle)
    assert "topk" in change.what


def test_ops_of_the_host_at_the_ends_of_the_model_are_left_to_the_caller(tmp_path):
    graph = af.load(encoder(tmp_path))
    split = partition_for(graph, target("m1"))
    on_host = {split.names[node.uid] for node in split.cut.operations.counted if split.device_of[node.uid] == HOST}
    change = told(graph, "m1")["ends of the model outside the call"]
    assert on_host & set(change.nodes)
    assert "changes of device" in str(af.estimate_all(graph, "m1"))


def test_what_is_most_of_the_work_is_no_end_of_the_model():
    """An A13 Bionic lacks the softmax: it cuts this everywhere, and calls there take so long that all of it would be
    little beside them."""
    x = af.input((1, 1, 64, 256), name="x")
    rng = np.random.default_rng(0)
    for _ in range(4):
        x = x.linear(rng.normal(0, 0.1, (256, 256)).astype(np.float16)).softmax(-1)
    graph = Graph.of(x)
    chip = target("a13 bionic")
    change = told(graph, "a13 bionic").get("ends of the model outside the call")
    placed = partition_for(graph, chip).cut.operations.placed
    left_out = [] if change is None else [node for node in placed if graph.names()[node.uid] in change.nodes]
    assert host_band(left_out).middle <= 0.25 * host_band(placed).middle


def test_a_batch_is_compiled_where_the_first_axis_is_one():
    graph = image_network()
    change = told(graph, "m5")["8 inputs in one call"]
    x = af.input((8, 16, 32, 32), name="image")
    rng = np.random.default_rng(1)
    y = af.conv(x, rng.normal(0, 0.1, (32, 16, 3, 3)), pad=1).relu()
    y = af.conv(y, rng.normal(0, 0.1, (32, 32, 3, 3)), pad=1).relu()
    assert change.us == pytest.approx(partition_for(Graph.of(y), target("m5")).estimate(SCOPE).us / 8)
    assert "compiled" in change.how


def test_a_graph_without_a_batch_axis_is_not_batched():
    assert batched(Graph.of(af.input((128, 64)).relu()), 8) is None
    assert batched(Graph.of(af.input((1, 4, 8)).sum(0)), 8) is None
    grown = batched(Graph.of(af.input((1, 4, 8)).reshape(1, 32)), 8)
    assert grown is not None
    assert grown.outputs[0].shape == (8, 32)


def test_a_batch_that_cannot_be_compiled_is_counted_and_says_so():
    x = af.input((128, 64), name="x")
    change = told(Graph.of(x.linear(np.ones((64, 64), np.float32)).relu()), "m5")["8 inputs in one call"]
    assert "by the cost model" in change.how
    assert "one input" in change.how


def test_rows_that_end_inside_a_line_are_padded_for_a_call_from_python():
    graph = Graph.of(af.input((1, 64, 30, 30), name="x").relu())
    change = told(graph, "m1", "host_call")["rows of whole lines"]
    assert "x" in change.nodes
    assert "rows of whole lines" not in told(Graph.of(af.input((1, 64, 32, 32), name="x").relu()), "m1", "host_call")
    assert "rows of whole lines" not in told(graph, "m1", SCOPE)


def test_it_says_when_nothing_helps():
    rng = np.random.default_rng(0)
    x = af.input((1, 128, 64, 64), name="x")
    for _ in range(24):  # computing, and little else
        x = af.conv(x, rng.normal(0, 0.02, (128, 128, 3, 3)), pad=1).relu()
    result = af.estimate_all(x, "m1")
    assert result.advice["m1"].changes == ()
    assert "what would help: nothing" in str(result)
    assert f"{LEAST_GAIN:.0%} or more" in str(result)


def test_changes_are_worked_out_only_when_they_are_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr("aneforge.advice.estimates.advise", lambda *arguments: asked.append(arguments) or {})
    result = af.estimate_all(dense_layers(), "m2")
    assert result["m2"].us > 0
    assert not asked
    str(result)
    str(result)
    assert len(asked) == 1


def test_none_are_told_where_none_are_asked_for():
    result = af.estimate_all(dense_layers(), "m2", changes=0)
    assert result.advice == {}
    assert "what would help" not in str(result)
    assert result.to_json()["advice"] == {}
    one = af.estimate_all(dense_layers(), "m2", changes=1)
    assert len(one.advice["m2"].changes) == 1


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3"])
def test_a_count_that_is_none_is_refused(wrong):
    with pytest.raises(af.AneforgeError, match="changes"):
        af.estimate_all(dense_layers(), "m2", changes=wrong)


def test_json_has_the_changes_and_the_facts_of_the_first_call():
    record = json.loads(json.dumps(af.estimate_all(dense_layers(), "m1,m2,m3").to_json(), default=list))
    change = record["advice"]["m2"]["changes"][0]
    assert set(change) >= {"name", "cause", "what", "nodes", "us", "interval", "before_us", "how", "numbers", "saved"}
    assert record["first_call"]["m1"]["wake"]["value"] == {"idle_s": 5, "extra_ms": 260, "ramp_s": None}
    assert record["first_call"]["m3"]["wake"]["value"] is None
    assert record["estimates"]["m1"]["shares"]


def test_a_change_whose_numbers_are_known_to_be_wrong_is_not_told(monkeypatch):
    assert "weights as int8" in told(dense_layers(), "m2")
    monkeypatch.setattr(Workbench, "new_risks", lambda self, changed: dict.fromkeys(changed.chips, "wrong"))
    assert "weights as int8" not in told(dense_layers(), "m2")


def test_the_same_answer_for_one_chip_and_for_several():
    graph = dense_layers()
    together = af.estimate_all(graph, "m1,m2,m5").advice
    for chip in together:
        assert together[chip] == af.estimate_all(graph, chip).advice[chip]


def test_a_model_of_many_nodes_has_fewer_changes_worked_out(monkeypatch):
    graph = dense_layers()
    study = Study(graph, "m2", scope=SCOPE)
    every = advise(study)["m2"].worked_out
    monkeypatch.setattr("aneforge.advice.ranking._FEWEST_WORKED_OUT", 1)
    monkeypatch.setattr("aneforge.advice.ranking._NODES", 1)
    bounded = advise(study)["m2"]
    assert bounded.worked_out == 1 < every
    assert bounded.left_out == every - 1


def test_where_the_time_goes_adds_up_to_the_call():
    for graph, chip in ((dense_layers(), "m5"), (image_network(True), "m1"), (attention(), "m1")):
        estimate = af.estimate_all(graph, chip)[chip]
        assert sum(estimate.shares().values()) == pytest.approx(estimate.us)
        assert list(estimate.shares().values()) == sorted(estimate.shares().values(), reverse=True)
    assert "reading weights" in str(af.estimate_all(dense_layers(width=2048), "m5"))


def test_lines_of_the_report_fit():
    for chips in ("m1", "all"):
        text = str(af.estimate_all(image_network(True), chips))
        assert max(map(len, text.splitlines())) <= 100
        assert "what takes most of the time" in text or "where the time goes" in text
