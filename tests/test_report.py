"""The report of a model: rows that agree with the answers they come from, and every format written from them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.advice.estimates import estimate_all
from aneforge.errors import AneforgeError
from aneforge.reports.gather import report
from aneforge.reports.markdown import markdown
from aneforge.reports.tables import layers_csv, summary_csv
from aneforge.study.checking import check

EXAMPLES = Path(__file__).parents[1] / "examples"
CHIPS = "m1,m2,m5,h12"


@pytest.fixture(scope="module")
def detector():
    pytest.importorskip("onnx")
    return report(EXAMPLES / "detector.onnx", CHIPS)


def test_verdicts_and_times_are_those_of_check_and_estimate(detector):
    checked, estimates = check(EXAMPLES / "detector.onnx", CHIPS), estimate_all(EXAMPLES / "detector.onnx", CHIPS)
    for chip in detector.chips:
        assert chip.verdict == checked.verdicts[chip.name]
        assert chip.us == pytest.approx(estimates[chip.name].us, rel=1e-3)
        assert chip.counts == {grade: count for grade, count in checked[chip.name].counts.items() if count}
        assert len(chip.layer_us) == len(chip.layer_bounds) == len(detector.programs[chip.program].layers)


def test_every_op_of_every_reason_is_marked_on_its_chips(detector):
    letters = {"reject": "r", "oversize": "o", "risk": "k", "decompose": "d"}
    places = {chip.name: place for place, chip in enumerate(detector.chips)}
    assert {row.grade for row in detector.findings} >= {"reject", "decompose"}
    for row in detector.findings:
        for number in row.nodes:
            for chip in row.chips:
                assert detector.ops[number].statuses[places[chip]] in (letters[row.grade], "r", "o", "k", "h")


def test_findings_keep_their_ids_from_run_to_run(detector):
    again = report(EXAMPLES / "detector.onnx", CHIPS)
    assert [row.id for row in again.findings] == [row.id for row in detector.findings]
    assert len({row.id for row in again.findings}) == len(again.findings)


def test_the_bytes_on_chip_are_those_of_the_task_groups(detector):
    for chip in detector.chips:
        assert max(detector.programs[chip.program].on_chip) <= chip.peak_l2 <= chip.l2_bytes


def test_layers_name_the_ops_they_came_from(detector):
    for program in detector.programs:
        known = {number for layer in program.layers for number in layer.sources}
        placed = {number for region in program.regions if region.device == "engine" for number in region.ops}
        assert known <= placed


def test_the_json_is_plain_and_small(detector):
    document = json.loads(json.dumps(detector.to_json(), allow_nan=False))
    assert document["schema"] == 2
    assert document["passes"].keys() >= {
        step["pass_"] for program in document["programs"] for step in program["steps"]
    }


def test_tables_have_a_line_for_each_chip_and_layer(detector):
    chips = list(csv.DictReader(io.StringIO(summary_csv(detector))))
    assert [row["chip"] for row in chips] == CHIPS.split(",")
    layers = list(csv.DictReader(io.StringIO(layers_csv(detector))))
    assert len(layers) == sum(len(chip.layer_us) for chip in detector.chips)


def test_a_name_that_a_spreadsheet_would_run_is_quoted():
    x = af.input((1, 8), name="x")
    told = report(x.sigmoid().named("=cmd()"), "m1")
    assert "'=cmd()" in layers_csv(told)


def test_markdown_starts_with_the_answer(detector):
    text = markdown(detector)
    assert text.splitlines()[2].startswith("**Ship after one change:** move topk and 2 more ops out of the model")
    assert "| M1 | in part | 21 of 22 |" in text
    assert "`op-route`" in text


def test_files_by_suffix(detector, tmp_path):
    assert [path.name for path in detector.save(tmp_path / "a.csv")] == ["a.csv", "a.layers.csv"]
    detector.save(tmp_path / "b.txt", "md")
    assert (tmp_path / "b.txt").read_text().startswith("## detector.onnx on")
    with pytest.raises(AneforgeError, match="not a format"):
        detector.save(tmp_path / "c.docx")
    assert not (tmp_path / "c.docx").exists()


def test_a_chip_that_runs_nothing_says_why():
    x = af.input((4, 8), name="x")
    told = report(af.topk(x, 2), "m1")
    assert told.chips[0].verdict == "no"
    assert told.chips[0].refused
    assert "no" in markdown(told)


def test_chips_name_other_products_of_their_engine_and_who_says_so():
    x = af.input((1, 8, 4, 4), name="x")
    told = report(x.relu(), "m4,t8103,u1,a18 pro,m5", changes=0)
    rows = {row.name: row for row in told.chips}
    assert rows["m4"].also == ("M4 Pro", "M4 Max")
    assert rows["m4"].engines[0].startswith("M4 is h16g [measured")
    assert rows["m4"].engines[1].startswith("M4 Pro is h16g [inferred")
    assert rows["t8103"].engines[0].startswith("T8103 has M1, which is h13 [inferred")
    assert (rows["u1"].also, rows["u1"].engines) == ((), ())
    assert rows["a18 pro"].also == ("A18",)  # and not with the M5, which has the same engine
    assert rows["m5"].also == ()


def test_a_model_without_operations_has_a_report_and_runs(tmp_path):
    x = af.input((1, 8, 4, 4), name="x")
    told = report(x, "m1,m5", changes=0)
    assert [chip.verdict for chip in told.chips] == ["yes", "yes"]
    assert told.programs[0].layers == ()
    for suffix in ("html", "md", "csv", "json", "trace.json", "sarif"):
        told.save(tmp_path / f"r.{suffix}")
    assert "all 0 operations run" in (tmp_path / "r.md").read_text(encoding="utf-8")
    given = np.arange(128, dtype=np.float16).reshape(1, 8, 4, 4)
    assert np.array_equal(af.run(x, "m1", inputs={"x": given}).only.outputs["x"], given)


def test_what_no_engine_runs_is_said_in_one_sentence(tmp_path):
    told = report(af.input((1, 1, 1, 70000), name="x").relu(), "m1,m5", changes=0)
    told.save(tmp_path / "r.html")
    assert "nothing of it runs on the Neural Engine of M1 and M5" in (tmp_path / "r.html").read_text(encoding="utf-8")
