"""The folder of a kit: written, loaded back, and run against a Core ML that is a stand-in."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections import namedtuple
from pathlib import Path

import kit_standin as standin
import numpy as np
import pytest

import aneforge as af
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.reports.kit.experiments import PROGRAM, chosen, experiments
from aneforge.reports.kit.judge import CONFIRMS, judged
from aneforge.reports.kit.predict import KitSetting
from aneforge.reports.kit.results import results_of
from aneforge.reports.kit.verify import verified
from aneforge.reports.kit.write import write_kit
from aneforge.study.model import build

pytest.importorskip("coremltools")
ABOUT = ["X01", "X06", "X13", "X33", "X50", "X54", "X61"]


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kit") / "kit"
    return write_kit(folder, chosen(ABOUT), ["M3", "M5"])


def manifest(kit):
    return json.loads((kit.path / "manifest.json").read_text())


def test_the_folder_says_what_it_is(kit):
    names = {path.name for path in kit.path.iterdir()}
    assert names == {"IOS.md", "README.md", "inputs", "manifest.json", "packages", "programs", "run.py", "run.swift"}
    readme = (kit.path / "README.md").read_text()
    for words in (
        "Nothing is sent anywhere",
        "How long it takes",
        "results.json",
        "python3 run.py",
        "swift run.swift",
    ):
        assert words in readme
    assert "{" not in readme.replace("{plist} {target} {out}", "")


def test_the_manifest_has_every_prediction(kit):
    document = manifest(kit)
    assert [row["id"] for row in document["experiments"]] == ABOUT
    for row in document["experiments"]:
        assert set(row["predictions"]) == {"M3", "M5"}
        assert [said["hypothesis"] for said in row["predictions"]["M3"]] == [
            hypothesis.name for hypothesis in experiments()[row["id"]].hypotheses
        ]
    json.loads((kit.path / "manifest.json").read_text(), parse_constant=pytest.fail)  # Swift reads no Infinity
    words = document["experiments"][0]["predictions"]["M3"]
    assert len({said["predicted"][0]["y"]["sha256"] for said in words}) == len(words)


def test_the_same_kit_has_the_same_bytes(kit, tmp_path):
    again = write_kit(tmp_path / "kit", chosen(["X01", "X61"]), ["M3"])
    one, two = manifest(kit)["files"], manifest(again)["files"]
    shared = [name for name in two if name in one and name != "README.md"]
    assert {name: one[name] for name in shared} == {name: two[name] for name in shared}
    assert len(shared) > 5


def test_packages_are_loaded_back(kit, tmp_path):
    """By coremltools, whose types they pass, and by the house's reader, whose simulation gives the same words."""
    import shutil

    import coremltools

    for case in manifest(kit)["cases"]:
        if "package" not in case or case["package"].endswith(".zip"):
            continue
        package = Path(shutil.copytree(kit.path / case["package"], tmp_path / Path(case["package"]).name))
        description = coremltools.models.MLModel(str(package), skip_model_load=True).get_spec().description
        assert {port.name for port in description.input} == set(case["inputs"])
        assert set(case["outputs"]) <= {port.name for port in description.output}
        graph = af.load(str(package))
        assert {graph.names()[node.uid] for node in graph.inputs} == set(case["inputs"])


def test_a_folder_that_exists_stays(kit):
    with pytest.raises(AneforgeError, match="it exists"):
        write_kit(kit.path, chosen(["X01"]), ["M3"])


# The runner, against a stand-in for Core ML that simulates one chip.

Usage = namedtuple("Usage", "preferred_compute_device supported_compute_devices")


Output, Operation = namedtuple("Output", "name"), namedtuple("Operation", "operator_name outputs")


class MLNeuralEngineComputeDevice:
    pass


class MLCPUComputeDevice:
    pass


def fake_coreml(chip, change=None, off=()):
    """coremltools as run.py uses it. ``change`` damages a result by name; operations in ``off`` are on the CPU."""
    devices = [MLCPUComputeDevice(), MLNeuralEngineComputeDevice()]

    class MLModel:
        def __init__(self, path, compute_units):
            assert compute_units in ("CPU_ONLY", "CPU_AND_NE")
            self.graph = af.load(path)
            on_engine = compute_units == "CPU_AND_NE"
            self.model = build(self.graph, chip) if on_engine else self.on_the_cpu

        def on_the_cpu(self, *arrays):
            """No numbers of the CPU are looked at."""
            return [np.zeros(node.shape, np.float16) for node in self.graph.outputs]

        def predict(self, arrays):
            names = self.graph.names()
            results = self.model(*(arrays[names[port.uid]] for port in self.graph.inputs))
            listed = results if isinstance(results, (list, tuple)) else [results]
            outputs = {names[node.uid]: np.asarray(a) for node, a in zip(self.graph.outputs, listed, strict=True)}
            return {name: change(self.graph, name, a) if change else a for name, a in outputs.items()}

    class Plan:
        def __init__(self, path):
            graph = af.load(path)
            names = graph.names()
            self.operations = [
                Operation(f"ios18.{node.op}", [Output(names[node.uid])])
                for node in graph.nodes
                if not node.definition.leaf
            ]
            block = types.SimpleNamespace(operations=self.operations)
            function = types.SimpleNamespace(block=block)
            program = types.SimpleNamespace(functions={"main": function})
            self.model_structure = types.SimpleNamespace(program=program)

        @staticmethod
        def load_from_path(path, compute_units):
            return Plan(path)

        def get_compute_device_usage_for_mlprogram_operation(self, operation):
            away = operation.outputs[0].name in off
            return Usage(devices[0], devices[:1]) if away else Usage(devices[1], devices)

    tools = types.ModuleType("coremltools")
    tools.__version__ = "9.9"
    tools.ComputeUnit = types.SimpleNamespace(CPU_ONLY="CPU_ONLY", CPU_AND_NE="CPU_AND_NE")
    utils = types.SimpleNamespace(compile_model=lambda path: path)
    tools.models = types.ModuleType("coremltools.models")
    tools.models.MLModel, tools.models.utils = MLModel, utils
    plans = types.ModuleType("coremltools.models.compute_plan")
    plans.MLComputePlan = Plan
    return {"coremltools": tools, "coremltools.models": tools.models, "coremltools.models.compute_plan": plans}


ANSWERS = {
    "machdep.cpu.brand_string": "Apple M3",
    "hw.model": "Mac15,3",
    "hw.memsize": str(16 << 30),
    "-productVersion": "26.1",
    "-buildVersion": "25B78",
    "H11ANEIn": '"ANEDevicePropertyTypeANEArchitectureTypeStr" = "h15"',
    "batt": "Now drawing from 'AC Power'",
}


def loaded_runner(folder, monkeypatch, chip="m3", change=None, off=()):
    """The run.py of a kit's folder, as a module with a Mac around it."""
    spec = importlib.util.spec_from_file_location("kit_run", folder / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "asked", lambda command: next((ANSWERS[w] for w in command if w in ANSWERS), ""))
    monkeypatch.setattr(module, "LONG", 6)
    monkeypatch.setattr(sys, "platform", "darwin")
    for name, fake in fake_coreml(chip, change, off).items():
        monkeypatch.setitem(sys.modules, name, fake)
    return module


def ran(folder, out, monkeypatch, *words, **settings):
    module = loaded_runner(folder, monkeypatch, **settings)
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(out), *words])
    module.main()
    return json.loads(Path(out).read_text())


def test_the_runner_writes_what_contribute_reads(kit, tmp_path, monkeypatch):
    document = ran(kit.path, tmp_path / "r.json", monkeypatch)
    monkeypatch.undo()
    statuses = {row["id"]: row["status"] for row in document["results"]}
    assert statuses == {**dict.fromkeys(ABOUT, "ran"), "X61": "skipped"}
    findings = judged(results_of(document, "r.json"))
    assert {row.experiment.id for row in findings.outcomes if row.status == CONFIRMS} >= {"X01", "X06", "X13"}
    assert document["machine"]["engine_names"] == ["h15"]
    assert document["machine"]["power"] == "mains"
    assert "home" not in json.dumps(document["machine"]).lower()


def test_the_runner_reads_the_plan_back(kit, tmp_path, monkeypatch):
    document = ran(kit.path, tmp_path / "r.json", monkeypatch, "X01", off=("y",))
    monkeypatch.undo()
    row = next(row for row in judged(results_of(document, "r")).outcomes if row.experiment.id == "X01")
    assert row.says == "Core ML kept it off the engine"


def test_one_failure_does_not_stop_the_others(kit, tmp_path, monkeypatch):
    def broken(graph, name, array):
        if any(node.op == "tanh" for node in graph.nodes):
            raise RuntimeError("E5RT encountered an error")
        return array

    document = ran(kit.path, tmp_path / "r.json", monkeypatch, "X01", "X06", change=broken)
    monkeypatch.undo()
    assert [(row["id"], row["status"]) for row in document["results"]] == [("X01", "ran"), ("X06", "failed")]
    assert "E5RT" in document["results"][1]["message"]
    results_of(document, "r.json")


def test_a_damaged_kit_is_not_run(kit, tmp_path, monkeypatch):
    import shutil

    folder = tmp_path / "kit"
    shutil.copytree(kit.path, folder)
    next((folder / "inputs").iterdir()).write_bytes(b"\0\0")
    with pytest.raises(SystemExit, match="not as the kit was written"):
        ran(folder, tmp_path / "r.json", monkeypatch)


def test_a_tool_for_programs_is_called(kit, tmp_path, monkeypatch):
    """A tool that writes a program; here one of ours without the section that says so."""
    rows = standin.results("M3", only={"X61"})["results"]
    tool = tmp_path / "tool.py"
    source = [row["program"] for row in rows]
    (tmp_path / "programs.json").write_text(json.dumps(source))
    tool.write_text(
        "import base64, json, pathlib, sys, zlib\n"
        "rows = json.loads(pathlib.Path(__file__).with_name('programs.json').read_text())\n"
        "assert pathlib.Path(sys.argv[1]).is_file()\n"
        "place = ['h13', 'h16', 'h18'].index(sys.argv[2])\n"
        "pathlib.Path(sys.argv[3]).write_bytes(zlib.decompress(base64.b64decode(rows[place])))\n"
    )
    command = f"{sys.executable} {tool} {{plist}} {{target}} {{out}}"
    document = ran(kit.path, tmp_path / "r.json", monkeypatch, "X61", "--compiler", command)
    monkeypatch.undo()
    assert {row["status"] for row in document["results"]} == {"ran"}
    findings = judged(results_of(document, "r.json"))
    assert next(row for row in findings.outcomes if row.experiment.id == "X61").status == CONFIRMS
    assert all(entry.kind == PROGRAM for entry in chosen(["programs"]))


def test_elsewhere_the_runner_says_that_it_needs_a_mac(kit):
    import subprocess

    answer = subprocess.run([sys.executable, str(kit.path / "run.py")], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "it needs macOS" in answer.stderr


# A model of the user's own.


def small_model():
    x = af.input((1, 16, 8, 8), name="x")
    weight = np.linspace(-1, 1, 16 * 16).reshape(16, 16, 1, 1)
    first = af.conv(x, weight).named("first")
    second = first.tanh().named("second")
    return Graph.of((second * 2.0).named("third"))


def run_with(monkeypatch, **settings):
    def run(folder):
        with monkeypatch.context() as patch:
            return ran(folder, folder / "results.json", patch, **settings)

    return run


def test_verify_shows_that_all_agrees(monkeypatch):
    answer = verified(small_model(), KitSetting("M3"), runner=run_with(monkeypatch))
    assert answer.same_words
    assert answer.difference is None
    assert answer.document["kind"] == "aneforge kit results"
    assert {row[0] for row in answer.rows} == {"first", "second", "third"}


def test_verify_names_the_first_operation_that_differs(monkeypatch):
    """The stand-in reads the other table of tanh: what stands before it agrees, all behind it differs."""
    answer = verified(small_model(), KitSetting("M3"), runner=run_with(monkeypatch, chip="m5", off=("first",)))
    assert not answer.same_words
    assert answer.difference is not None
    assert (answer.difference.node, answer.difference.op) == ("second", "tanh")
    assert 0 < answer.difference.equal < 1
    assert [row[0] for row in answer.misplaced if row[3] == "CPU"] or answer.rows[0][2] == "CPU"
    assert "first difference: second (tanh)" in str(answer)
    assert not answer.to_json()["agrees"]


def test_verify_says_why_core_ml_refused(monkeypatch):
    def broken(graph, name, array):
        raise RuntimeError("no")

    with pytest.raises(AneforgeError, match="Core ML: RuntimeError: no"):
        verified(small_model(), KitSetting("M3"), runner=run_with(monkeypatch, change=broken))
