"""Two reports compared: rows aligned by name and structure, and only what differs is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import aneforge as af
from aneforge.cli.app import app
from aneforge.errors import AneforgeError
from aneforge.reports.against import align, compare_reports
from aneforge.reports.gather import report

WEIGHT = np.full((8, 8, 3, 3), 0.1)


def small(width=16, last="relu", extra=False, named=True):
    x = af.input((1, 8, 16, width), name="x", max_abs=4)
    y = af.conv(x, WEIGHT, pad=1)
    y = y.named("first") if named else y
    y = y.softmax(1).named("inserted") if extra else y
    y = getattr(y, last)()
    return y.named("last") if named else y


def told(out, chips="m1,m5"):
    return report(out, chips, changes=0)


def run(*words):
    return CliRunner().invoke(app, list(words))


# Alignment.


def test_names_come_first_then_structure():
    one = [("a", "conv"), ("b", "relu"), ("c", "add")]
    two = [("a", "conv"), ("z", "relu"), ("c", "mul")]
    assert align(one, two) == (((0, 0), (1, 1), (2, 2)), (), ())


def test_structure_pairs_nothing_where_the_counts_differ():
    one = [("a", "relu"), ("b", "relu")]
    two = [("x", "relu")]
    assert align(one, two) == ((), (0, 1), (0,))


ROWS = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("xy")), unique_by=lambda row: row[0], max_size=8
)


@given(ROWS, ROWS)
def test_an_alignment_has_each_place_once(one, two):
    aligned = align(one, two)
    firsts = [first for first, _ in aligned.pairs] + list(aligned.only_first)
    seconds = [second for _, second in aligned.pairs] + list(aligned.only_second)
    assert sorted(firsts) == list(range(len(one)))
    assert sorted(seconds) == list(range(len(two)))
    for first, second in aligned.pairs:
        assert one[first][0] == two[second][0] or one[first][1] == two[second][1]
    assert align(one, one).only_first == ()


# Comparisons.


def test_the_same_model_differs_in_nothing():
    comparison = compare_reports(told(small()), told(small()))
    assert comparison.same
    assert comparison.to_json()["same"] is True
    assert "Nothing differs" in comparison.written("md")


def test_nodes_without_names_are_aligned_by_structure():
    comparison = compare_reports(told(small(named=False)), told(small(named=True)))
    assert comparison.same
    assert len(comparison.aligned.pairs) == 2


def test_an_inserted_operation_is_new_and_costs_time():
    before, after = told(small()), told(small(extra=True))
    comparison = compare_reports(before, after)
    assert [(row.kind, row.name) for row in comparison.ops] == [("new", "inserted")]
    assert all(chip.ratio is not None and chip.ratio > 1 for chip in comparison.chips)
    back = compare_reports(after, before)
    assert [(row.kind, row.name) for row in back.ops] == [("gone", "inserted")]
    assert all(one.us == other.us[::-1] for one, other in zip(comparison.chips, back.chips, strict=True))


def test_new_and_gone_reasons_are_told_with_their_operations():
    before, after = told(small()), told(small(last="sin"))
    comparison = compare_reports(before, after)
    known = {(row.kind, row.nodes) for row in comparison.findings}
    assert ("new", ("last",)) in known
    assert ("gone", ("last",)) in {(row.kind, row.nodes) for row in compare_reports(after, before).findings}
    assert {row.kind for row in comparison.ops} == {"changed"}


def test_a_reason_that_concerns_another_chip_is_changed():
    before = told(small(last="sin"), "m1,m1-max")
    finding = before.findings[0]
    fewer = replace(before, findings=(replace(finding, chips=finding.chips[:1]), *before.findings[1:]))
    assert len(finding.chips) == 2
    (change,) = [row for row in compare_reports(fewer, before).findings if row.kind == "changed"]
    assert len(change.chips) == len(finding.chips) - 1
    assert change.nodes == ()


def test_layers_are_aligned_by_where_they_come_from():
    comparison = compare_reports(told(small()), told(small(width=64)))
    assert comparison.layers
    assert all(set(row.ops) <= {"first", "last"} for row in comparison.layers)
    largest = comparison.layers[0]
    assert largest.us[1] > largest.us[0]


def test_other_chips_of_the_same_model():
    comparison = compare_reports(told(small(), "m1"), told(small(), "m5"))
    assert [(chip.before, chip.after) for chip in comparison.chips] == [("M1", "M5")]
    one_to_many = compare_reports(told(small(), "m1"), told(small(), "m4,m5"))
    assert [(chip.before, chip.after) for chip in one_to_many.chips] == [("M1", "M4"), ("M1", "M5")]
    with pytest.raises(AneforgeError, match="no chip in common"):
        compare_reports(told(small(), "m1,m2"), told(small(), "m3,m4,m5"))


# The command.


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, out in (("a", "x.relu()"), ("b", "x.relu().sin()")):
        text = f"import aneforge as af\nx = af.input((1, 8, 16, 16), name='x')\nout = {out}.named('y')\n"
        Path(f"{name}.py").write_text(text, encoding="utf-8")


def test_models_saved_reports_and_chips_on_the_command_line(models):
    two = run("report", "a.py", "--compare", "b.py", "--target", "m1", "--changes", "0", "--json")
    assert two.exit_code == 0, two.output
    assert json.loads(two.stdout)["after"]["model"] == "b.py"
    assert run("report", "a.py", "--target", "m1", "--changes", "0", "-o", "a.json").exit_code == 0
    saved = run("report", "a.json", "--compare", "b.py", "--target", "m1", "--changes", "0", "--json")
    assert json.loads(saved.stdout) == json.loads(two.stdout)
    chips = run("report", "a.py", "--target", "m1", "--compare-target", "m5", "--changes", "0")
    assert chips.stdout.startswith("## a.py on M1 and on M5\n")
    both = run("report", "b.py", "--target", "m1,m2", "--compare-target", "h11,h12", "--changes", "0")
    assert "**changed** `y` (sin): M1 → A12 Bionic, M2 → A13 Bionic: " in both.stdout
    assert run("report", "a.py", "--compare", "b.py", "--target", "m1", "-o", "d.html", "-q").exit_code == 0
    assert "reason" in Path("d.html").read_text(encoding="utf-8")


def test_a_comparison_is_not_a_table_and_takes_no_measured_file(models):
    for words, message in (
        (("--format", "csv"), "Choose one: html, md, json"),
        (("-o", "d.csv"), "one of: html, md, json"),
        (("--measured", "plan.json"), "choose one"),
    ):
        done = run("report", "a.py", "--compare", "b.py", "--target", "m1", *words)
        assert isinstance(done.exception, AneforgeError)
        assert message in str(done.exception)
    assert not Path("d.csv").exists()
