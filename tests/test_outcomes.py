"""The verdict on a whole model: the same words in every report, and a yes that also means right numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli_kit import run

import aneforge as af
from aneforge.compiler.legal.findings import PlacementFinding
from aneforge.graph.graph import Graph
from aneforge.reports import report
from aneforge.study.outcomes import GRADES, Outcome, grade_of
from aneforge.study.study import Study


def shifted(max_abs=None):
    """A slice that begins inside the width, whose copies end at 4094 on an M1 and an M2 (C22)."""
    x = af.input((1, 4, 8, 64), name="x", max_abs=max_abs)
    return x.slice_by_size((0, 0, 0, 8), (1, 4, 8, 32)).relu()


def deep(layers):
    """Steps of attention with one query each, one behind another."""
    x = af.input((1, 1, 64), name="x")
    keys, values = (af.input((1, 64, 16), name=name) for name in ("keys", "values"))
    for _ in range(layers):
        x = (x[:, :, :64] @ keys).softmax(-1) @ values.reshape(1, 16, 64)
    return x


def test_a_yes_says_that_numbers_can_be_wrong():
    checked = af.check(shifted(), "m2,m5")
    assert checked.verdicts == {"m2": "yes, numbers can be wrong", "m5": "yes"}
    assert checked.failed == ["m2"]
    assert checked.outcomes["m2"].grade == "wrong"


@pytest.mark.parametrize(("bound", "verdict"), [(4094.0, "yes"), (4096.0, "yes, numbers can be wrong")])
def test_what_inputs_are_decides_whether_numbers_can_be_wrong(bound, verdict):
    assert af.check(shifted(), "m2", max_abs=bound).verdicts == {"m2": verdict}
    assert af.check(shifted(bound), "m2").verdicts == {"m2": verdict}


def test_an_input_that_promises_less_keeps_its_promise():
    assert af.check(shifted(4094.0), "m2", max_abs=60000).verdicts == {"m2": "yes"}


def test_the_command_fails_unless_the_range_is_said(tmp_path, monkeypatch, capsys):
    path = tmp_path / "net.af"
    Graph([shifted()]).save(path)
    status, text, _ = run(f"check {path} --target m2", monkeypatch, capsys)
    assert status == 1
    assert "yes, numbers can be wrong" in text
    assert "fails on risk: M2" in text
    assert run(f"check {path} --target m2 --max-abs 100", monkeypatch, capsys)[0] == 0
    assert run(f"check {path} --target m2 --fail-on reject", monkeypatch, capsys)[0] == 0


def test_every_view_of_one_study_says_the_same(tmp_path, monkeypatch, capsys):
    path = tmp_path / "net.af"
    Graph([shifted()]).save(path)
    words = "yes, numbers can be wrong"
    assert af.partition(str(path), "m2").verdict == words
    assert [chip.verdict for chip in report(str(path), "m2").chips] == [words]
    assert (
        json.loads(run(f"partition {path} --target m2 --json", monkeypatch, capsys)[1])["targets"]["m2"]["verdict"]
        == words
    )
    assert json.loads(run(f"check {path} --target m2 --json", monkeypatch, capsys)[1])["verdicts"] == {"m2": words}


def test_a_report_is_ok_only_where_numbers_hold():
    assert not report(shifted(), "m2,m5").ok
    assert report(shifted(100.0), "m2,m5").ok


def test_what_is_too_large_for_one_program_is_several():
    split = af.partition(deep(62), "m5")
    assert [region.device for region in split.regions] == ["engine"] * 3
    assert split.outcome == Outcome("yes", split.ops, split.ops, programs=3)
    assert not split.reasons
    # each program takes what the one before it gives
    assert [crossing.source.number for crossing in split.crossings] == [0, 1]


def test_several_programs_give_the_numbers_of_one(monkeypatch):
    graph = Graph([deep(5)])
    feeds = {port.name: np.linspace(-1, 1, port.size, dtype=np.float16).reshape(port.shape) for port in graph.inputs}
    whole = af.partition(graph, "m5").run(feeds)
    cut = _cut_after(graph, 2)
    assert len(cut.regions) == 3
    for name, values in cut.run(feeds).items():
        np.testing.assert_array_equal(values, whole[name])


def _cut_after(graph, most):
    """The partition that a chip would have which takes fewer steps in a program."""
    from aneforge.study.partition import Partitioning
    from aneforge.study.placement import runtime_of_scope

    study = Study(graph, "m5")
    steps = [node.uid for node in study.graph.nodes if node.op == "softmax"]
    way = Partitioning(study.answers, study.shelf, None, runtime_of_scope("program"), lambda _: None)
    cut = way._cut(frozenset(), frozenset(steps[most::most]))
    return way._partition(cut, study.targets[0], "rules", {})


def test_an_op_that_is_too_large_alone_goes_to_the_host():
    from aneforge.compiler.refusal import Refusal
    from aneforge.study.partition import _Attempt

    attempt = _Attempt(Study(deep(1), "m5").targets[0], {})
    refusal = Refusal("w", "program-size", "too large", oversize=True)
    assert attempt.add({7: refusal})
    assert (attempt.starts, attempt.moved) == ({7}, {})
    assert attempt.add({7: refusal})
    assert attempt.moved == {7: refusal}


@pytest.mark.parametrize("grade", GRADES)
def test_words_and_grades_belong_together(grade):
    outcomes = {
        "yes": Outcome("yes", 3, 3),
        "wrong": Outcome("yes", 3, 3, wrong=1),
        "programs": Outcome("yes", 3, 3, programs=2, wrong=1),
        "unknown": Outcome("unknown", 3, 3),
        "part": Outcome("in part", 2, 3, wrong=1),
        "no": Outcome("no", 0, 3),
    }
    outcome = outcomes[grade]
    assert outcome.grade == grade_of(outcome.words) == grade
    assert outcome.to_json()["verdict"] == str(outcome)


def test_an_unknown_is_no_yes(monkeypatch):
    """A finding that nobody can decide is a verdict of its own, and fails."""
    from aneforge.chips.evidence import Fact
    from aneforge.compiler.legal import check as legal

    finding = PlacementFinding("test", "nobody knows", Fact(None), effect="unknown")
    monkeypatch.setattr(
        legal, "_types", lambda graph, chip: iter([legal.Judgement(graph.outputs[0], (finding,), True)])
    )
    checked = af.check(af.input((1, 4, 8, 8), name="x").relu(), "m5")
    assert checked.verdicts == {"m5": "unknown"}
    assert checked.failed == ["m5"]
