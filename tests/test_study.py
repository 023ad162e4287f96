"""One study: every answer about a model from one place, worked out once, and the same by every command."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cli_kit import run

import aneforge as af
from aneforge.advice.estimates import Estimates
from aneforge.advice.form_search import search
from aneforge.advice.stored import stored_everywhere
from aneforge.chips import target
from aneforge.compiler.compression import CompressionOptions, compressed
from aneforge.compiler.draft import Draft
from aneforge.errors import AneforgeError
from aneforge.graph import Graph
from aneforge.reports import report
from aneforge.reports.baseline.observe import observe
from aneforge.study.answers import Answers, content_of
from aneforge.study.checking import Check
from aneforge.study.plan import compute_plan
from aneforge.study.study import Study

DETECTOR = "examples/detector.onnx"
ENCODER = "examples/tiny_encoder.onnx"


@pytest.fixture
def runs(monkeypatch):
    """The content of every graph that the compiler's passes are started on."""
    seen = []
    real = Draft.of.__func__

    def counted(cls, graph, *rest):
        seen.append(content_of(graph))
        return real(cls, graph, *rest)

    monkeypatch.setattr(Draft, "of", classmethod(counted))
    return seen


def small():
    x = af.input((1, 16, 8, 8), name="x")
    return af.conv(x, np.ones((16, 16, 1, 1), np.float32)).relu().named("y")


# Questions that once had several answers.


def test_every_command_says_how_much_of_the_detector_an_m1_runs():
    study = Study(DETECTOR, "m1")
    in_part = "in part: 21 of 22 ops on the engine, numbers can be wrong"
    assert Check(study).verdicts == {"m1": in_part}
    assert study.partition().verdict == in_part
    assert len(Estimates(study, changes=0)["m1"].parts) == 3
    assert af.run(DETECTOR, "m1").only.partition.verdict == in_part
    assert report(DETECTOR, "m1").chips[0].verdict == in_part
    record = observe(DETECTOR, ["h13"]).baseline.targets["h13"]
    assert (record.verdict.engine, record.verdict.on_engine) == ("in part", 21)
    assert record.program is not None
    assert record.numerics is not None
    assert record.estimate is not None
    assert record.estimate.us == round(study.estimates()[0]["m1"].us, 3)


def test_a_stored_form_has_one_time_by_core_ml():
    """The estimate of a model with blocks of scales, and the row of the report's table of stored forms."""
    x = af.input((64, 256), name="x")
    study = Study(x.linear(np.random.default_rng(0).normal(0, 0.1, (256, 256)).astype(np.float32)), "m5")
    rows = {form.name: form for form in stored_everywhere(study, ["blockwise"])}
    graph, _ = compressed(study.graph, study.targets[0], CompressionOptions.of(False, "blockwise"))
    known, refused = study.with_graph(graph).estimates()
    shown = rows["blockwise"].placement("m5")
    assert (known["m5"].us if known else None) == shown.us
    assert bool(refused) == (shown.us is None)


def test_functions_and_commands_give_the_same_time(monkeypatch, capsys):
    model = "examples/vit.py"
    us = af.estimate(model, target="m1")
    shown = json.loads(run(f"estimate {model} --target m1 --changes 0 --json", monkeypatch, capsys)[1])
    assert shown["estimates"]["m1"]["us"] == us
    assert af.compile(model, target="m1").estimate().us == us
    assert observe(model, ["h13"]).baseline.targets["h13"].estimate.us == round(us, 3)
    small_us = af.estimate("examples/small.py", target="m1")
    assert search(Study("examples/small.py", "m1").graph, "m1").untouched.us == small_us


def test_what_the_engine_can_take_and_what_it_is_given_are_two_columns_everywhere(monkeypatch, capsys):
    study = Study(ENCODER, "m1", dims={"batch": 1})
    split = study.partition()
    assert (split.verdict, split.likely) == ("in part: 52 of 53 ops on the engine", "none")
    row = report(ENCODER, "m1", dims={"batch": 1}).chips[0]
    assert (row.verdict, row.likely) == (split.verdict, split.likely)
    plan = compute_plan(ENCODER, "m1", dims={"batch": 1})
    assert set(plan.counts()) == {"cpu"}
    assert split.says in plan.notes[0].casefold() or split.says.casefold() in plan.notes[0].casefold()
    for command in ("check", "estimate", "partition", "plan"):
        text = run(f"{command} {ENCODER} --dim batch=1 --target m1", monkeypatch, capsys)[1]
        flat = re.sub(r"\s+", " ", text)
        assert "in part: 52 of 53" in flat, command
        assert "none" in flat, command


def test_one_default_scope_and_one_default_set_of_chips(monkeypatch):
    assert list(Study(small()).chips) == ["m1", "m2", "m3", "m4", "m5", "m6"]
    monkeypatch.setenv("ANEFORGE_TARGETS", "m2,a17 pro")
    assert list(Study(small()).chips) == ["m2", "a17 pro"]
    assert list(af.check(small())) == list(af.estimate_all(small(), changes=0)) == ["m2", "a17 pro"]
    assert list(af.run(small())) == ["m2"]
    monkeypatch.setenv("ANEFORGE_TARGETS", "m1,q9")
    with pytest.raises(AneforgeError, match="q9"):
        af.check(small())


# Worked out once.


def test_a_report_starts_the_compiler_seldom(runs):
    """It took 72 starts when every part of the report began with the graph. The stories of programs are three of the
    starts: they run the passes again, to watch them. Four are a form of the weights that Core ML keeps off, which
    leaves regions of their own."""
    report(DETECTOR, "m1,m2")
    assert len(runs) <= 26


def test_further_questions_about_a_graph_compile_nothing(runs):
    graph = Graph.of(small())
    af.check(graph, "m1,m5").to_json()
    af.estimate_all(graph, "m1,m5", changes=0).to_json()
    count = len(runs)
    af.check(graph, "m1,m5").to_json()
    af.partition(graph, "m1,m5").to_json()
    af.estimate_all(graph, "m1", changes=0).to_json()
    af.run(graph, "m5")
    af.compile_all(graph, "m1,m5")
    assert len(runs) == count


def test_a_changed_graph_shares_the_regions_that_did_not_change(runs):
    def model(factor):
        x = af.input((1, 16, 8, 8), name="x")
        scores = af.conv(x, np.ones((16, 16, 1, 1), np.float32)).relu().named("first").reshape(1, 1024)
        return (af.topk(scores, 3) * factor).exp().named("last")

    study = Study(model(2.0), "m1")
    study.estimates()
    assert len(study.partition().regions) == 3
    before = len(runs)
    same = study.with_graph(Graph.of(model(2.0)))
    assert same.estimates() == study.estimates()
    assert len(runs) == before
    other = study.with_graph(Graph.of(model(3.0)))
    other.estimates()
    assert content_of(study.partition().graph_of(0)) not in runs[before:]
    assert content_of(other.partition().graph_of(2)) in runs[before:]


def test_old_answers_are_forgotten_and_the_newest_stay():
    answers = Answers(most_nodes=8)
    graphs = [Graph.of(small()) for _ in range(4)]
    shelves = [answers.about(graph) for graph in graphs]
    assert shelves[0] is shelves[1]  # they say the same
    for width in range(8, 40, 8):
        answers.about(Graph.of(af.input((1, width), name="x").relu().tanh().exp()))
    assert len(answers._shelves) <= 3


def test_two_threads_ask_one_study(runs):
    graph = Graph.of(small())
    with ThreadPoolExecutor(4) as pool:
        times = list(pool.map(lambda _: Study(graph, "m1,m2,m5").estimates()[0]["m5"].us, range(8)))
    assert len(set(times)) == 1
    assert len(runs) == 1


# A model that is refused, or empty.


def test_a_model_that_no_engine_runs_gives_every_question_its_reason():
    ids = af.input((1, 8), dtype="int32", name="ids")
    study = Study(ids.reshape(8, 1).named("y"), "m1")
    assert study.partition().verdict == "no"
    reason = str(study.partition().nothing_runs())
    known, refused = study.estimates()
    assert not known
    assert str(refused["m1"]) == reason
    with pytest.raises(AneforgeError, match="nothing of it runs on the engine"):
        af.estimate(study, target="m1")


def test_a_study_stands_for_its_model():
    study = Study(small(), "m1,m5")
    assert af.check(study)["m5"].ok
    assert list(af.check(study)) == ["m1", "m5"]
    assert af.estimate(study, target="m5") == study.estimates()[0]["m5"].us
    assert study.with_chips(["m5"]).targets == [target("m5")]
