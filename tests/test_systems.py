"""The system is an axis of the study: a rule that was first seen on one version of macOS is silent on older ones."""

from __future__ import annotations

import pytest

import aneforge as af
from aneforge.chips.systems import SETTING, applies_to, known_systems, system, system_of_report
from aneforge.errors import AneforgeError, ArgumentError
from aneforge.study.study import Study


def attention(spelled_out: bool = False) -> af.Tensor:
    q, k, v = (af.input((4, 64, 32), name=name) for name in "qkv")
    scores = q @ k.transpose([0, 2, 1])
    if spelled_out:
        powers = scores.exp()
        return (powers * powers.sum(-1).inverse()) @ v
    return scores.softmax(-1) @ v


def kept_off(study: Study) -> list[str]:
    return [finding.rule for report in study.preflights()["m5"].placement for finding in report.findings]


def test_core_ai_of_macos_27_2_moves_attention_off_the_engine_of_an_m5():
    """C75: 27.2 on M5 moves it to the GPU, 27.0 keeps it; spelled as exp, sum, inverse, mul it stays."""
    study = Study(attention(), "m5", runtime="coreai", scope="coreai_call")
    assert "chain-pattern" in kept_off(study.under("27.2"))
    assert "chain-pattern" not in kept_off(study.under("27.0"))
    assert "chain-pattern" not in kept_off(Study(attention(spelled_out=True), "m5", runtime="coreai", os="27.2"))
    assert study.under("27.2").partition("runtime").refusals
    assert not study.under("27.0").partition("runtime").refusals


def test_core_ml_and_other_chips_keep_it():
    assert not Study(attention(), "m5", os="27.2").partition("runtime").refusals
    assert not Study(attention(), "m4", runtime="coreai", os="27.2").partition("runtime").refusals


def test_systems_share_what_does_not_depend_on_them():
    study = Study(attention(), "m5")
    assert study.under("27.0").shelf is study.shelf
    assert study.under("27.0").partitions()["m5"].estimate().us == study.under("27.2").partitions()["m5"].estimate().us


def test_the_newest_system_is_the_default_and_the_setting_names_another(monkeypatch):
    assert Study(attention(), "m5").os == known_systems()[-1] == "27.2"
    monkeypatch.setenv(SETTING, "macOS 27.0")
    assert Study(attention(), "m5").os == "27.0"
    assert Study(attention(), "m5", os="26.5").os == "26.5"


def test_an_unknown_system_is_refused_with_the_known_ones():
    with pytest.raises(ArgumentError, match=r"'28' is not a known system; choose one: 17, 18, 26.0, 26.5, 27"):
        system("28")


def test_an_unknown_system_in_the_setting_is_refused_by_the_name_of_the_setting(monkeypatch):
    monkeypatch.setenv(SETTING, "25")
    with pytest.raises(AneforgeError, match=r"^ANEFORGE_OS: '25' is not a known system; choose one: "):
        system()


def test_order_of_systems():
    assert applies_to("", "26.5")
    assert applies_to("27.0", "27.2")
    assert not applies_to("27.2", "27.0")


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        ("iOS 17", "17"),
        ("macOS 14.5", "17"),
        ("macOS 15", "18"),
        ("26", "26.5"),
        ("macos 27.2", "27.2"),
        ("27", "27.2"),
    ],
)
def test_systems_by_the_names_that_people_use(asked, version):
    assert system(asked) == version


@pytest.mark.parametrize("asked", ["16", "19", "26.3", "27.1", "linux", "27.2.1"])
def test_a_system_that_nobody_names_is_refused(asked):
    with pytest.raises(ArgumentError, match="is not a known system"):
        system(asked)


def test_a_sentence_about_a_measurement_leads_to_the_system_before_it():
    assert system_of_report("macOS 27.0.1 (26A434), Core AI") == "27.0"
    assert system_of_report("macOS 14 or later, private text MIL") == "17"
    assert system_of_report("") == known_systems()[-1]


def test_the_cure_of_attention_on_27_2_is_applied_and_stays(tmp_path):
    """C75: the form is saved, read again and written as a package, and each of them stays on the engine."""
    graph = af.apply_form(attention(), "softmax-spelled-out")
    assert "chain-pattern" not in kept_off(Study(graph, "m5", runtime="coreai", os="27.2"))
    graph.save(tmp_path / "cured.aneforge")
    assert Study(str(tmp_path / "cured.aneforge"), "m5", runtime="coreai", os="27.2").judged()["m5"].verdict == "yes"
    assert Study(attention(), "m5", runtime="coreai", os="27.2").judged()["m5"].verdict == "no"
    assert Study(attention(), "m5", runtime="coreai", os="27.0").judged()["m5"].verdict == "yes"


def test_a_runtime_that_is_not_known_is_refused(monkeypatch):
    with pytest.raises(ArgumentError, match="'tflite' is not a runtime; choose from: "):
        Study(attention(), "m5", runtime="tflite")
    monkeypatch.setenv("ANEFORGE_RUNTIME", "tflite")
    with pytest.raises(AneforgeError, match=r"^ANEFORGE_RUNTIME: "):
        Study(attention(), "m5")
