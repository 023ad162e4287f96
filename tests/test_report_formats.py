"""The other formats of a report, and what happens where it cannot be written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import aneforge as af
from aneforge.cli.app import app
from aneforge.errors import AneforgeError
from aneforge.graph.codecs.encoding import encode
from aneforge.reports import gather, html, pages
from aneforge.reports import gather as whatif
from aneforge.reports.annotated import ops_of_nodes
from aneforge.reports.document import format_of
from aneforge.reports.gather import report
from aneforge.reports.programs import size_of
from aneforge.reports.rows import STATUSES
from aneforge.reports.saved import read_report, report_from_json
from aneforge.reports.trace import slots, trace_json

EXAMPLES = Path(__file__).parents[1] / "examples"
DETECTOR = str(EXAMPLES / "detector.onnx")
onnx = pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def detector():
    return report(DETECTOR, "m1,m5,h12", changes=1)


def run(*words):
    return CliRunner().invoke(app, list(words))


def refused(*words):
    done = run(*words)
    assert isinstance(done.exception, AneforgeError), done.output
    return str(done.exception)


# Traces.


def test_a_trace_has_a_process_for_each_chip_and_every_layer_in_its_place(detector):
    events = json.loads(trace_json(detector))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert [names[place] for place in sorted(names)] == [f"{chip.label} ({chip.target})" for chip in detector.chips]
    for place, chip in enumerate(detector.chips, 1):
        layers = [event for event in events if event["pid"] == place and "layer" in event.get("args", {})]
        assert len(layers) == len(chip.layer_us)
        assert sum(event.get("dur", 0.0) for event in layers) == pytest.approx(chip.engine_us, rel=1e-2)
        threads = {event["tid"]: event["args"]["name"] for event in events
                   if event["pid"] == place and event["name"] == "thread_name"}  # fmt: skip
        program = detector.programs[chip.program]
        assert all(threads[event["tid"]] == program.layers[event["args"]["layer"]].engine for event in layers)


def test_tracks_of_a_trace_do_not_overlap_and_counters_stay_below_the_memory(detector):
    events = json.loads(trace_json(detector))["traceEvents"]
    for place, chip in enumerate(detector.chips, 1):
        ends: dict[int, float] = {}
        for event in (event for event in events if event["pid"] == place and event["ph"] == "X"):
            assert event["ts"] >= ends.get(event["tid"], 0.0) - 1e-3
            ends[event["tid"]] = event["ts"] + event["dur"]
        counted = [event["args"]["bytes"] for event in events if event["pid"] == place and event["ph"] == "C"]
        assert max(counted) == max(detector.programs[chip.program].on_chip)


def test_the_host_has_its_own_track(detector):
    chip = detector.chips[0]  # TopK is refused on the M1
    hosts = [slot for slot in slots(detector.programs[chip.program], chip) if slot.kind == "host"]
    assert [detector.ops[number].name for slot in hosts for number in slot.region.ops] == ["best"]


# Annotated ONNX.


def test_annotated_nodes_tell_status_layer_and_time(detector, tmp_path):
    (path,) = detector.save(tmp_path / "notes.onnx")
    model = onnx.load(path)
    notes = {node.name: {prop.key: prop.value for prop in node.metadata_props} for node in model.graph.node}
    place = next(op.number for op in detector.ops if op.name == "best")
    for column, chip in enumerate(detector.chips):
        words = notes["best"][f"aneforge.{chip.name}"]
        assert words.startswith(f"{chip.label}: {STATUSES[detector.ops[place].statuses[column]]}")
    assert re.search(r"layer \d+ NE convolution [\d.]+ us", notes["deep"]["aneforge.m1"])
    for node in model.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
    assert model == onnx.load(DETECTOR)  # nothing else is changed


def test_operations_count_for_every_node_that_they_come_from(detector):
    nodes = [(node.name, tuple(node.output)) for node in onnx.load(DETECTOR).graph.node]
    owned = ops_of_nodes(detector, nodes)
    assert {number for numbers in owned.values() for number in numbers} == set(range(len(detector.ops)))
    mean = next(op.number for op in detector.ops if op.name == "mean.mean")
    (place,) = [place for place, numbers in owned.items() if mean in numbers]
    assert nodes[place][0] == "mean"
    assert [detector.ops[number].name for number in owned[place]] == ["mean.mean", "mean"]


def test_only_onnx_can_be_annotated(tmp_path):
    told = report(af.input((1, 8), name="x").relu(), "m1", changes=0)
    with pytest.raises(AneforgeError, match="not an ONNX file"):
        told.save(tmp_path / "x.onnx")
    assert list(tmp_path.iterdir()) == []


# SARIF.


def test_sarif_ids_are_the_ids_of_the_rules(detector, tmp_path):
    detector.save(tmp_path / "x.sarif")
    (only,) = json.loads((tmp_path / "x.sarif").read_text())["runs"]
    assert [result["ruleId"] for result in only["results"]] == [row.rule or row.grade for row in detector.findings]
    ids = [rule["id"] for rule in only["tool"]["driver"]["rules"]]
    assert [ids[result["ruleIndex"]] for result in only["results"]] == [each["ruleId"] for each in only["results"]]
    assert {result["partialFingerprints"]["aneforgeFinding/v1"] for result in only["results"]} == {
        row.id for row in detector.findings
    }


# Saved reports.


def test_a_saved_report_comes_back_whole(detector, tmp_path):
    (path,) = detector.save(tmp_path / "r.json")
    again = read_report(path)
    assert json.loads(json.dumps(again.to_json())) == json.loads(json.dumps(detector.to_json()))
    assert again.chips == detector.chips
    assert again.programs == detector.programs
    done = run("report", str(path), "-o", str(tmp_path / "r.md"), "-q")
    assert done.exit_code == 0, done.output
    detector.save(tmp_path / "direct.md")
    assert (tmp_path / "r.md").read_text() == (tmp_path / "direct.md").read_text()


def test_a_saved_report_holds_no_path_of_this_machine(detector):
    assert str(EXAMPLES) not in json.dumps(detector.to_json())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda document: document.pop("chips"), "no 'chips' in it"),
        (lambda document: document.update(schema=99), "its schema is 99"),
        (lambda document: document["ops"][0].update(extra=1), "'ops[0]' has 'extra', which is not known"),
        (lambda document: document.update(ops=3), "'ops' is 3, not a list"),
    ],
)
def test_a_damaged_report_is_refused(detector, change, told, tmp_path):
    document = json.loads(json.dumps(detector.to_json()))
    change(document)
    with pytest.raises((ValueError, TypeError, KeyError), match=re.escape(told)):
        report_from_json(document)
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(document))
    with pytest.raises(AneforgeError, match="not a saved report"):
        read_report(file)


# The page.


def test_many_rows_are_packed_and_few_are_not(detector, monkeypatch):
    monkeypatch.setattr(pages, "_PACKED_FROM", 10_000_000)
    plain = html.page(detector)
    assert '<script type="application/json" id="data">' in plain
    monkeypatch.setattr(pages, "_PACKED_FROM", 1000)
    packed = html.page(detector)
    assert '<script type="application/gzip" id="data">' in packed
    assert len(packed) < len(plain)


def test_a_name_cannot_leave_the_data_of_the_page():
    x = af.input((1, 8), name="x")
    page = html.page(report(x.relu().named("</script><script>alert(1)</script>"), "m1", changes=0))
    assert "alert(1)</script>" not in page
    assert page.count("<script") == 2


def test_the_page_asks_nothing_of_a_network(detector):
    page = html.page(detector)
    assert not re.search(r"(src|href)=.?https?:", page)
    assert "default-src 'none'" in page


# Where it cannot be written.


def test_suffixes():
    assert format_of("a/b.TRACE.json") == "perfetto"
    assert format_of("b.json") == "json"
    assert format_of("b.txt") is None


def test_a_folder_a_missing_folder_and_the_model_itself_are_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(gather, "Study", lambda *words, **named: pytest.fail("the work began"))
    assert "a folder; give the name of a file" in refused("report", DETECTOR, "-o", str(tmp_path))
    assert "does not exist" in refused("report", DETECTOR, "-o", str(tmp_path / "no" / "x.html"))
    assert "not a format" in refused("report", DETECTOR, "-o", str(tmp_path / "x.docx"))
    assert "this is the model itself" in refused("report", DETECTOR, "-o", DETECTOR, "--format", "onnx")
    assert "not a format here" in refused("report", DETECTOR, "--format", "pdf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/self").exists(), reason="root may write everywhere")
def test_an_unwritable_place_leaves_nothing(detector):
    with pytest.raises(AneforgeError, match="cannot be written"):
        detector.save("/proc/self/report.html")


def test_ctrl_c_leaves_the_old_files(detector, tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("old")

    def interrupted(told):
        raise KeyboardInterrupt

    monkeypatch.setattr("aneforge.reports.tables.layers_csv", interrupted)
    with pytest.raises(KeyboardInterrupt):
        detector.save(tmp_path / "a.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "old"


def test_ctrl_c_in_the_middle_of_the_work_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*words, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(gather, "Estimates", interrupted)
    done = run("report", DETECTOR, "--target", "m1", "-o", str(tmp_path / "x.html"))
    assert done.exit_code != 0
    assert list(tmp_path.iterdir()) == []


# What is in it besides.


def test_facts_of_a_program_are_those_of_its_chip(detector):
    chip = detector.chips[0]
    facts = {fact.name: fact for fact in detector.programs[chip.program].facts}
    reads = {name for entry in detector.to_json()["passes"].values() for name in entry["reads"]}
    assert facts.keys() <= reads
    hal = facts["max_operand_bytes (0x1b8)"] if "max_operand_bytes (0x1b8)" in facts else next(iter(facts.values()))
    assert re.match(r"\[(measured|decoded|predicted|inferred|unknown)", hal.evidence)


def test_divergences_are_those_of_diverges(detector):
    assert "the other chips compute as one of these" in detector.divergence_note
    (first,) = {row.reference for row in detector.divergences}
    for other in {chip for row in detector.divergences for chip in row.chips}:
        listed = {entry.node for entry in af.diverges(DETECTOR, f"{first},{other}")[other]}
        told = {detector.ops[node].name for row in detector.divergences if other in row.chips for node in row.nodes}
        alone = {
            detector.ops[node].name for row in detector.divergences if row.chips == (other,) for node in row.nodes
        }
        assert alone <= listed <= told


def test_chips_of_one_arithmetic_are_not_compared():
    told = report(af.input((1, 8), name="x").relu(), "m1,m1 max", changes=0)
    assert told.divergences == ()
    assert "the same arithmetic" in told.divergence_note


def test_a_chip_whose_arithmetic_is_not_published_is_not_called_the_same():
    told = report(af.input((1, 8), name="x").relu(), "m1,h12", changes=0)
    assert told.divergences == ()
    assert "same arithmetic" not in told.divergence_note
    assert "not published: A13 Bionic" in told.divergence_note


def test_a_model_is_as_large_as_its_layers():
    """One operation that becomes many layers: a recurrence is unrolled."""
    rng = np.random.default_rng(0)
    x = af.input((64, 1, 8), name="x")
    w, r, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((32, 8), (32, 8), (32,)))
    split = af.partition(af.lstm(x, w, r, b), "m2").only
    assert size_of({"m2": split}) == sum(len(program.layers) for program in split.programs.values()) > 10 * split.ops


def test_forms_of_a_large_model_that_were_not_tried_are_named(monkeypatch):
    x = af.input((1, 512), name="x")
    model = af.linear(x, np.random.default_rng(0).standard_normal((512, 512)).astype(np.float16))
    assert report(model, "m2", changes=0).stored_note == ""
    monkeypatch.setattr(whatif, "_COMPILED", 1)
    told = report(model, "m2", changes=0)
    assert [row.name for row in told.stored] == ["fp16", "int8"]
    assert told.stored_note.endswith("large: int4, sparse, blockwise.")


def test_chips_of_one_family_and_of_two_arithmetics_are_compared():
    x = af.input((1, 8), name="x")
    told = report(x / (x.abs() + 1.0), "m4,m5", changes=0, max_abs=4.0)
    assert [(row.reference, row.chips) for row in told.divergences] == [("m4", ("m5",))]
    assert told.risk_chips == ("m4", "m5")


def test_a_target_goes_by_the_product_whose_times_it_has():
    x = af.input((1, 8, 16, 16), name="x")
    told = report(af.conv(x, np.ones((8, 8, 1, 1))), "h13,m1,a14 bionic", changes=0)
    assert [chip.label for chip in told.chips] == ["M1", "M1", "A14 Bionic"]
    assert told.chips[0].us == told.chips[1].us != told.chips[2].us


def test_macs_come_before_phones_and_phones_before_names_of_the_compiler():
    told = report(af.input((1, 8), name="x").relu(), "u1,a15 bionic,m5,h11,m1", changes=0)
    assert [chip.name for chip in told.chips] == ["m1", "m5", "h11", "a15 bionic", "u1"]


# What if, and one reason for many shapes.


def test_what_one_rule_refuses_on_the_same_chips_is_one_reason():
    x = af.input((1, 4, 6, 8), name="x")
    told = report([x.reshape((1, 6, 4, 8)), x.reshape((1, 8, 6, 4)), x.relu()], "m1,h11", changes=0)
    rules = [{told.findings[place].rule for place in places} for places in told.reasons]
    assert sorted(place for places in told.reasons for place in places) == list(range(len(told.findings)))
    assert all(len(rule) == 1 for rule in rules)
    assert any(len(places) > 1 for places in told.reasons)


def test_risks_of_one_reason_are_one_row():
    x = af.input((1, 64), name="x")
    w = np.full((64, 64), 0.5, np.float16)
    told = report([af.linear(x, w), af.linear(x, w * 2)], "m1,m5", changes=0)
    (row,) = told.risks
    assert len(row.nodes) == 2
    assert row.chips == ("m1", "m5")
    assert row.worst in row.nodes
    assert row.lost


def test_stored_forms_have_the_bytes_and_times_of_a_model_that_was_compiled_so():
    x = af.input((1, 512), name="x")
    w = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float16)
    told = report(af.linear(x, w), "m1,m2", changes=0)
    forms = {row.name: row for row in told.stored}
    assert list(forms) == ["fp16", "int8", "int4", "blockwise"]  # no half of the weights is zero
    for chip in ("m1", "m2"):
        for form in ("int8", "int4"):
            model = af.compile(af.linear(x, w), target=chip, compress=form)
            (weight,) = [each for each in model.program.weights if each.flow is not None]
            assert (forms[form].streaming[chip] == 1) is weight.streams
            assert forms[form].us[chip] == pytest.approx(model.estimate().us, rel=1e-3)
        assert forms["fp16"].us[chip] == told.chips[0 if chip == "m1" else 1].us
    assert forms["int4"].bytes < forms["int8"].bytes < forms["fp16"].bytes == 2 * w.size
    assert "m1" in forms["blockwise"].why


def test_stored_forms_say_how_much_they_round():
    x = af.input((1, 512), name="x")
    w = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float16)
    forms = {row.name: row for row in report(af.linear(x, w), "m2", changes=0).stored}
    assert forms["fp16"].rounding == 0
    for name in ("int8", "int4", "blockwise"):
        whole = encode(w, name).decode() - w.astype(np.float64)
        exact = np.linalg.norm(whole) / np.linalg.norm(w.astype(np.float64))
        assert forms[name].rounding == pytest.approx(exact, rel=0.1)  # from one row of sixteen
    broken = np.where(np.arange(512) == 7, np.inf, w).astype(np.float16)
    rows = report(af.linear(x, broken), "m2", changes=0).stored
    assert {row.rounding for row in rows if row.name != "fp16"} == {None}


def test_the_cut_that_core_ml_would_make_is_a_what_if():
    model = af.load(DETECTOR)
    told = report(model, "m1,h12", changes=0)
    (row,) = [row for row in told.changes if row.name == "likely cut"]
    likely = af.partition(model, "m1,h12", by="placement")
    assert row.kind == "cut"
    assert row.us
    for chip, us in row.us.items():
        assert us == pytest.approx(likely[chip].estimate().us, rel=1e-3)
    moved = {told.ops[node].name for node in row.nodes}
    rules = af.partition(model, "m1,h12")
    assert moved == {
        likely[chip].names[uid]
        for chip in row.us
        for uid, device in likely[chip].device_of.items()
        if rules[chip].device_of[uid] != device
    }
