"""Compute plans: predicted, read from the shapes that people dump, shown beside predictions, and sent in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import aneforge as af
from aneforge.cli.app import app
from aneforge.cost.evaluate import predict, read_rows
from aneforge.errors import AneforgeError
from aneforge.graph import Graph
from aneforge.reports.gather import report
from aneforge.reports.tables import measured_csv
from aneforge.study.agreement import evaluate
from aneforge.study.contribute import contributed_rows, timed_row
from aneforge.study.plan import compute_plan, partition
from aneforge.study.plan_files import plan_from_json, read_plan

DETECTOR = str(Path(__file__).parents[1] / "examples" / "detector.onnx")
SYSTEM = "macOS 26.1"


@pytest.fixture(scope="module")
def plan():
    pytest.importorskip("onnx")
    return compute_plan(DETECTOR, "m1")


def run(*words):
    return CliRunner().invoke(app, list(words))


def refused(*words):
    done = run(*words)
    assert isinstance(done.exception, AneforgeError), done.output
    return str(done.exception)


def dumped(plan, **changes):
    """A plan as a Mac would have given it."""
    return {**plan.to_json(), "predicted": False, **changes}


# Predicted.


def test_devices_are_those_of_the_placement(plan):
    split = partition(DETECTOR, "m1", by="placement")["m1"]
    assert plan.counts()["neuralEngine"] == split.placed
    assert len(plan.operations) == split.ops
    refused_ops = {op.name for op in plan.operations if "neuralEngine" not in op.supported}
    assert refused_ops == {split.names[uid] for uid in split.reasons}
    assert all(op.preferred in op.supported for op in plan.operations)
    assert all(op.why for op in plan.operations)


def test_costs_are_parts_of_the_whole(plan):
    weights = [op.weight for op in plan.operations if op.weight is not None]
    assert sum(weights) == pytest.approx(1.0, rel=1e-2)
    assert max(plan.operations, key=lambda op: op.weight or 0).name == "fine"


def test_the_plan_says_that_it_is_a_prediction(plan):
    assert plan.predicted
    assert "not modelled" in str(plan)


def test_the_command_prints_and_writes(tmp_path):
    printed = run("plan", DETECTOR, "--target", "m1", "--json")
    assert printed.exit_code == 0, printed.output
    assert run("plan", DETECTOR, "--target", "m1", "-o", str(tmp_path / "p.json"), "-q").exit_code == 0
    assert json.loads((tmp_path / "p.json").read_text()) == json.loads(printed.stdout)
    assert "a folder" in refused("plan", DETECTOR, "-o", str(tmp_path))


# Files.


def test_a_plan_comes_back_from_its_file(plan, tmp_path):
    (tmp_path / "p.json").write_text(json.dumps(plan.to_json()))
    again = read_plan(tmp_path / "p.json")
    assert again.operations == plan.operations
    assert (again.chip, again.predicted) == ("M1", True)


ROW = {"operatorName": "ios17.conv", "outputs": [{"name": "y"}], "preferredComputeDevice": "neuralEngine",
       "supportedComputeDevices": ["cpu", "gpu", "neuralEngine"], "estimatedCost": {"weight": 0.25}}  # fmt: skip
SPELLINGS = {
    "swift": {"operations": [ROW]},
    "a list": [ROW],
    "objective-c, nested": {
        "plan": {"operations": [{**ROW, "preferredComputeDevice": "MLNeuralEngineComputeDevice"}]}
    },
    "coremltools": {
        "structure": {
            "rows": [
                {
                    "operator_type": "ios17.conv",
                    "identity": "y",
                    "preferred_compute_device": "NEURAL_ENGINE",
                    "supported_compute_devices": ["CPU", "GPU", "NEURAL_ENGINE"],
                    "estimated_cost_weight": 0.25,
                }
            ]
        }
    },
    "usage apart": {
        "operations": [
            {
                "operator_name": "conv",
                "outputs": ["y"],
                "device_usage": {"preferred": "ANE", "supported": ["CPU", "GPU", "ANE"]},
                "estimated_cost": 0.25,
            }
        ]
    },
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings_of_the_interface_are_one(name):
    (op,) = plan_from_json(SPELLINGS[name]).operations
    assert (op.name, op.op, op.preferred, op.weight) == ("y", "conv", "neuralEngine", 0.25)
    assert op.supported == ("cpu", "gpu", "neuralEngine")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"title": "report"}, "not a compute plan; expected an object with"),
        (7, "not a compute plan"),
        ({"operations": []}, "no operation has a preferred device"),
        ({"operations": [3]}, "operation 0: not an object"),
        ({"operations": [{"preferred": "cpu"}]}, "names no operator"),
        ({"operations": [{**ROW, "preferredComputeDevice": "tpu"}]}, "'tpu' is not a device"),
        ({"operations": [{**ROW, "estimatedCost": 25}]}, "expected a part of the whole"),
        ({"operations": [{**ROW, "us": -1}]}, "not a time"),
        ({"operations": [ROW], "latency_us": "fast"}, "not a time"),
        ({"kind": "compute plan", "schema": 9, "operations": [ROW]}, "this version reads 1"),
    ],
)
def test_other_documents_are_refused(document, message, tmp_path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document))
    assert message in refused("report", DETECTOR, "--target", "m1", "--measured", str(file))


def test_what_is_not_json_or_not_there_is_refused(tmp_path):
    (tmp_path / "p.json").write_bytes(b"\xff\xfe binary")
    assert "not JSON" in refused("report", DETECTOR, "--target", "m1", "--measured", str(tmp_path / "p.json"))
    assert "cannot be read" in refused("report", DETECTOR, "--target", "m1", "--measured", str(tmp_path / "none.json"))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert "not JSON" in refused("report", DETECTOR, "--target", "m1", "--measured", str(tmp_path / "deep.json"))


# Beside predictions.


def test_plan_and_measured_round_trip(plan, tmp_path):
    (tmp_path / "p.json").write_text(json.dumps(plan.to_json()))
    told = report(DETECTOR, "m1,m5", changes=0, measured=(read_plan(tmp_path / "p.json"), "p.json", None))
    table = told.measured
    assert (table.chip, len(table.rows), table.agreeing) == ("m1", len(told.ops), len(told.ops))
    assert all(row.share == row.predicted_share for row in table.rows)
    assert table.predicted
    assert json.loads(json.dumps(told.to_json()))["measured"]["file"] == "p.json"


def test_a_device_that_differs_is_told_in_every_format(plan, tmp_path):
    document = dumped(plan, latency_us=900.0, os=SYSTEM)
    place = next(at for at, op in enumerate(plan.operations) if op.name == "fine")
    document["operations"][place] |= {"preferredComputeDevice": "gpu", "us": 50.5}
    file = tmp_path / "mac.json"
    file.write_text(json.dumps(document))
    words = ("report", DETECTOR, "--target", "m1,m5", "--measured", str(file))
    assert run(*words, "-o", str(tmp_path / "r.csv"), "-q").exit_code == 0
    (line,) = [row for row in (tmp_path / "r.measured.csv").read_text().splitlines() if ",fine,conv," in row]
    assert line.startswith("m1,fine,conv,neuralEngine,gpu,")
    assert line.endswith(",50.5")
    markdown = run(*words).stdout
    assert "21 of 22 operations are on the predicted device" in markdown
    assert "| `fine` | Neural Engine | GPU |" in markdown
    assert "nothing in it was measured" not in markdown


def test_operations_are_found_by_kind_where_names_differ(plan):
    renamed = [{**row, "outputs": [{"name": f"op_{at}"}]} for at, row in enumerate(dumped(plan)["operations"])]
    told = report(DETECTOR, "m1", changes=0, measured=(plan_from_json({"operations": renamed}), "p.json", None))
    assert len(told.measured.rows) == len(told.ops)
    fewer = [row for row in renamed if row["operatorName"] != "conv"] + [renamed[5]]
    told = report(DETECTOR, "m1", changes=0, measured=(plan_from_json({"operations": fewer}), "p.json", None))
    assert {told.ops[number].op for number in told.measured.only_predicted} == {"conv"}  # which one is not guessed
    assert len(told.measured.only_measured) == 1


def test_the_chip_of_a_file_is_never_guessed(plan, tmp_path):
    document = dumped(plan)
    del document["chip"]
    file = tmp_path / "p.json"
    file.write_text(json.dumps(document))
    assert "does not name its chip" in refused("report", DETECTOR, "--target", "m1,m5", "--measured", str(file))
    assert run("report", DETECTOR, "--target", "m1,m5", "--measured", f"m5={file}").exit_code == 0
    assert "not in this report" in refused("report", DETECTOR, "--target", "m5", "--measured", f"m1={file}")
    assert "is not a chip" in refused("report", DETECTOR, "--target", "m5", "--measured", f"m77={file}")


def test_the_plan_of_another_model_is_refused(plan):
    other = af.input((1, 8), name="x").sin().named("z")
    with pytest.raises(AneforgeError, match="none of its 22 operations is one of this model's 1"):
        report(other, "m1", changes=0, measured=(plan, "p.json", None))


def test_the_table_is_empty_without_a_file():
    told = report(af.input((1, 8), name="x").relu(), "m1", changes=0)
    assert len(measured_csv(told).splitlines()) == 1


# Sent in.


def network():
    x = af.input((1, 8, 16, 16), name="secret_input")
    return af.conv(x, np.ones((8, 8, 3, 3)), pad=1).named("secret_name").relu().named("another_secret")


def test_rows_are_of_the_format_and_hold_nothing_else(tmp_path):
    graph = Graph.of(network())
    mac = plan_from_json(dumped(compute_plan(network(), "m1"), host="somebody's Mac", model="secret.mlpackage"))
    rows = contributed_rows(mac, "m1", SYSTEM, graph, "lab-7")
    assert evaluate(rows).rows == len(rows) == 2
    conv = next(row for row in rows if row["op"] == "conv")
    assert conv["shapes"] == [[1, 8, 16, 16]]
    assert conv["const"]["weight"] == [8, 8, 3, 3]
    assert (conv["chip"], conv["target"], conv["tier"], conv["os"]) == ("M1", "h13", "A13", SYSTEM)
    assert (conv["route"], conv["verdict"], conv["source"]) == ("coreml_placement", "accept", "lab-7")
    text = json.dumps(rows)
    assert "secret" not in text
    assert "somebody" not in text
    known = {"id", "op", "shapes", "const", "attrs", "dtype", "chip", "target", "tier", "route", "os", "verdict"}
    assert set().union(*rows) <= known | {"placed", "confidence", "source", "notes"}


def test_equal_cases_are_one_row_and_ids_are_stable():
    x = af.input((1, 8), name="x")
    mac = plan_from_json(dumped(compute_plan(x.relu().named("a").relu().named("b"), "m1")))
    one, two = (contributed_rows(mac, "m1", SYSTEM) for _ in range(2))
    assert one == two
    assert len(one) == 1
    assert one[0]["shapes"] is None


def test_the_time_of_a_call_is_a_row_that_measure_cost_reads(plan, tmp_path):
    graph = Graph.of(network())
    document = dumped(compute_plan(network(), "m1"))
    for row in document["operations"]:
        row["preferredComputeDevice"] = "neuralEngine"
    assert timed_row(plan_from_json(document), "m1", SYSTEM, graph) is None
    row = timed_row(plan_from_json({**document, "latency_us": 200.0}), "m1", SYSTEM, graph, "lab-7")
    assert row is not None
    assert row["flops"] == 2 * 8 * 8 * 9 * 16 * 16
    assert row["weight_bytes"] >= 2 * 8 * 8 * 9
    assert (row["inputs"], row["outputs"]) == ([[1, 8, 16, 16]], [[1, 8, 16, 16]])
    assert "secret" not in json.dumps(row)
    (tmp_path / "times.json").write_text(json.dumps({"schema": 1, "rows": [row]}))
    (again,) = read_rows(tmp_path / "times.json")
    assert predict(again) > 0
    elsewhere = {**dumped(plan), "latency_us": 200.0}  # topk is on the CPU there
    assert timed_row(plan_from_json(elsewhere), "m1", SYSTEM, graph) is None


def test_an_operation_that_the_engine_leaves_is_cpu(plan):
    rows = contributed_rows(plan_from_json(dumped(plan)), "m1", SYSTEM)
    assert {row["op"]: row["verdict"] for row in rows}["topk"] == "cpu"


def test_a_prediction_a_bad_system_and_a_bad_source_are_refused(plan, tmp_path):
    out = tmp_path / "rows.json"
    (tmp_path / "p.json").write_text(json.dumps(plan.to_json()))
    (tmp_path / "m.json").write_text(json.dumps(dumped(plan)))
    words = ("contribute", str(tmp_path / "m.json"), "-o", str(out), "--target", "m1")
    assert "is not evidence" in refused("contribute", str(tmp_path / "p.json"), "-o", str(out), "--os", SYSTEM)
    assert "write the system and its version" in refused(*words, "--os", "my laptop")
    assert "small letters" in refused(*words, "--os", SYSTEM, "--source", "Jo Smith")
    assert "a folder" in refused("contribute", str(tmp_path / "m.json"), "-o", str(tmp_path), "--os", SYSTEM)
    assert not out.exists()
    done = run(*words, "--os", SYSTEM, "--model", DETECTOR)
    assert done.exit_code == 0, done.output
    assert "with shapes; aneforge check gives the same answer to 100%" in done.stdout
    assert run("measure", "gate", str(out)).exit_code == 0
