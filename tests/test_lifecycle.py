"""Bands of loading rest on points of facts, contain what was measured, and stay open where nothing was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_kit import run

import aneforge as af
from aneforge.chips import store, target
from aneforge.chips.lifecycle import NEAR, load_band, load_points
from aneforge.study.labels import label_record
from aneforge.study.lifecycle import Lifecycle
from aneforge.study.study import Study

X = af.input((1, 8, 16, 16), name="x")
SMALL = af.conv(X, np.ones((8, 8, 1, 1))).relu()


def test_every_point_has_a_number_of_its_fact():
    facts = {row["id"]: json.dumps(row["value"]) for row in store.load("lifecycle")["facts"]}
    for point, row in zip(load_points(), store.load("lifecycle_points")["points"], strict=True):
        assert 0 < point.amount[0] <= point.amount[1]
        assert point.megabytes > 0
        assert row["at"].rpartition(".")[2] in facts[row["fact"]] or row["at"][-1].isdigit()
        assert label_record(point.fact) is not None
        assert target(point.chip)


@pytest.mark.parametrize("point", load_points(), ids=lambda point: f"{point.fact}-{point.chip}-{point.stage}")
def test_the_band_at_a_measured_size_contains_what_was_measured(point):
    band = load_band(point.stage, point.runtime, target(point.chip), point.megabytes)
    assert band.near
    assert band.same_chip
    assert point.fact in band.facts
    assert band.low is not None
    assert band.high is not None
    assert band.low <= point.amount[0] * 1.0001
    assert band.high >= point.amount[1] * 0.9999


def test_a_point_outside_the_factor_bounds_one_side():
    chip = target("m5")
    sizes = [point.megabytes for point in load_points() if (point.stage, point.runtime) == ("first load", "coreai")]
    below = load_band("first load", "coreai", chip, min(sizes) / NEAR / 10)
    above = load_band("first load", "coreai", chip, max(sizes) * NEAR * 10)
    assert (below.low, above.high) == (None, None)
    assert below.high is not None
    assert above.low is not None


def test_without_points_nothing_is_known():
    band = load_band("first call", "coreml", target("m1"), 100)
    assert (band.low, band.high, band.basis) == (None, None, "nothing is published")


def test_a_larger_program_takes_no_less():
    for runtime in ("coreml", "coreai", "direct"):
        bands = [load_band("first load", runtime, target("m2"), size) for size in (300, 400, 500)]
        lows = [band.low or 0 for band in bands]
        assert lows == sorted(lows) or len({band.points for band in bands}) > 1


def test_stages_of_a_model():
    life = Lifecycle(Study(SMALL, "m1,m5"), "net.py")
    for chip in life.values():
        stages = {stage.stage: stage for stage in chip.stages}
        first, update = stages["first load, with its compile"], stages["load after a system update"]
        assert first.band == update.band
        call = stages["steady call"].band
        assert call.low is not None
        assert call.high is not None
        assert 0 < call.low <= call.high
        assert stages["disk of the cache"].words == "?"
    assert "260 ms" in str(life["m1"])
    woken = {stage.stage: stage for stage in life["m5"].stages}["call after a pause"]
    assert woken.words == "?"


def test_the_runtime_decides(monkeypatch):
    monkeypatch.setenv("ANEFORGE_RUNTIME", "coreai")
    life = Lifecycle(Study(SMALL, "m5"), "net.py")
    assert life.runtime == "coreai"
    assert {stage.stage: stage.words for stage in life["m5"].stages}["disk of the cache"] != "?"
    assert any("ahead of time" in shortcut.says for shortcut in life["m5"].shortcuts)
    monkeypatch.setenv("ANEFORGE_RUNTIME", "direct")
    direct = Lifecycle(Study(SMALL, "m5"), "net.py")
    assert direct.runtime == "direct"
    assert "load after a system update" not in str(direct)


def test_a_chip_that_runs_nothing_says_so():
    only = af.conv3d(af.input((1, 4, 8, 16, 16), name="x"), np.ones((4, 4, 3, 3, 3)))
    assert str(Lifecycle(Study(only, "m1"), "net.py")) == "M1: nothing of it runs on the engine"


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(
        "import numpy as np\nimport aneforge as af\n"
        "out = af.conv(af.input((1, 8, 4, 4), name='x'), np.ones((8, 8, 1, 1))).relu()\n"
    )
    status, out, _ = run("lifecycle net.py --target m1 --json", monkeypatch, capsys)
    record = json.loads(out)
    assert status == 0
    chip = record["targets"]["m1"]
    assert {stage["stage"] for stage in chip["stages"]} >= {"steady call", "later load"}
    for words, told in (("lifecycle missing.onnx", "missing.onnx"), ("lifecycle net.py --target m77", "m77")):
        status, out, err = run(words, monkeypatch, capsys)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert told in err


def test_estimate_shows_the_same_life(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    af.Graph([SMALL.named("y")]).save("small.aneforge")
    status, out, _ = run("lifecycle small.aneforge --target m1", monkeypatch, capsys)
    assert (status, run("estimate small.aneforge --target m1 --lifecycle", monkeypatch, capsys)[1]) == (0, out)
