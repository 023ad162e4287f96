"""The sentence that a report begins with: its verdict, its reason and its change are rows of the report."""

from __future__ import annotations

from pathlib import Path

import pytest

import aneforge as af
from aneforge.reports.answer import KINDS, answers
from aneforge.reports.gather import report
from aneforge.study.outcomes import GRADES

DETECTOR = Path(__file__).parents[1] / "examples" / "detector.onnx"


@pytest.fixture(scope="module")
def detector():
    pytest.importorskip("onnx")
    return report(DETECTOR, "macs,phones")


def by_key(told):
    return {answer.key: answer for answer in answers(told)}


def test_every_grade_has_a_kind():
    assert KINDS.keys() == GRADES.keys()
    assert {"runs", "numbers can be wrong", "in part", "no"} <= set(KINDS.values())


def test_groups_come_first_and_every_chip_has_a_sentence(detector):
    keys = list(by_key(detector))
    assert keys[:3] == ["all", "macs", "iphones"]
    assert keys[3:] == [chip.name for chip in detector.chips]


def test_the_change_of_the_sentence_is_about_its_reason_and_its_times_are_those_of_the_rows(detector):
    answer = by_key(detector)["macs"]
    change, reason = detector.changes[answer.change], detector.findings[answer.finding]
    chip = next(chip for chip in detector.chips if chip.name == answer.chip)
    assert answer.act == "Ship after one change"
    assert chip.grade == "part"
    assert set(change.nodes) & set(reason.nodes)
    assert f"{chip.us:,.0f} to {change.us[chip.name]:,.0f} µs on {chip.label}" in answer.sentence
    assert detector.ops[reason.nodes[0]].name in answer.sentence


def test_a_chip_that_runs_it_ships(detector):
    answer = by_key(detector)["M3"]
    assert answer.act == "Ship it"
    assert "all 22 operations" in answer.sentence
    assert answer.finding is None


def test_numbers_that_the_range_decides_ask_for_it_and_go_when_it_is_given(detector):
    assert by_key(detector)["M2"].act == "Say how large the inputs are"
    bounded = report(DETECTOR, "m2", max_abs=1.0)
    assert by_key(bounded)["m2"].act == "Ship it"


def test_old_phones_do_not_speak_for_a_group_that_has_newer_ones(detector):
    assert {chip.name for chip in detector.chips if chip.older} == {"A12 Bionic", "A13 Bionic"}
    assert not next(chip for chip in detector.chips if chip.name == by_key(detector)["iphones"].chip).older
    only_old = report(af.input((1, 8, 4, 4), name="x").softmax(1), "h11,h12", changes=0)
    assert by_key(only_old)["all"].chip in ("h11", "h12")


def test_what_nothing_runs_is_to_be_changed():
    told = report(af.input((1, 1, 1, 70000), name="x").relu(), "m1", changes=0)
    (answer,) = answers(told)
    assert answer.act == "Change it first"
    assert "M1" in answer.says


def test_what_core_ml_would_keep_on_the_cpu_is_said():
    told = report(af.input((1, 8, 4, 4), name="x").relu(), "m1,m5", changes=0)
    assert {chip.likely for chip in told.chips} == {"none"}
    assert by_key(told)["all"].act == "Core ML would likely keep it off the engine"
    told = report(af.input((1, 8, 4, 4), name="x").relu(), "m1,m5", changes=0, scope="direct_call")
    assert by_key(told)["all"].act == "Ship it"


def test_the_pieces_of_a_call_add_up(detector):
    for chip in detector.chips:
        assert sum(span.us for span in chip.spans) + sum(chip.layer_us) == pytest.approx(chip.us, rel=1e-3)
