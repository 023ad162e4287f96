"""A model on this Mac's own engine, beside what was predicted: placement, numbers and time.

The work is the kit's: a folder with one package, its inputs and the runner, which is called as it is. Where numbers
differ, the model is cut at its operations until the first one is found whose numbers differ.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aneforge import text
from aneforge.documents import typed
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.reports.kit.predict import SCOPE, KitSetting, digest_of, words_of
from aneforge.reports.kit.results import CaseResult, KitResults
from aneforge.reports.kit.write import SCHEMA, copy_runners, package_of, port_of
from aneforge.sim.inputs import samples_of
from aneforge.study.model import build
from aneforge.study.partition import Partition
from aneforge.study.plan import plan_of_partition
from aneforge.study.plan_files import device_label, plan_from_json
from aneforge.study.study import Study
from aneforge.version import __version__

Runner = Callable[[Path], Any]
"""Runs the kit in a folder and gives the document that it wrote."""
_MOST_SECONDS = 600


@dataclass(frozen=True)
class FirstDifference:
    """The first operation whose numbers differ."""

    node: str
    op: str
    equal: float
    """The share of words that are the same."""
    largest: float
    """The largest difference of two numbers."""

    def __str__(self) -> str:
        return (
            f"{self.node} ({self.op}): {self.equal:.1%} of the words are the same, largest difference {self.largest:g}"
        )


@dataclass(frozen=True)
class Verification:
    """Predicted and real, beside each other."""

    chip: str
    rows: tuple[tuple[str, str, str, str], ...]
    """Each operation: name, kind, predicted device, real device."""
    same_words: bool
    difference: FirstDifference | None
    us: float
    estimated_us: float
    interval: tuple[float, float]
    document: Mapping[str, Any]
    """What the runner wrote."""

    @property
    def misplaced(self) -> list[tuple[str, str, str, str]]:
        """Operations that are elsewhere than was predicted."""
        return [row for row in self.rows if row[2] != row[3]]

    @property
    def agrees(self) -> bool:
        low, high = self.interval
        return not self.misplaced and self.same_words and low <= self.us <= high

    def __str__(self) -> str:
        low, high = self.interval
        placed = f"{len(self.rows) - len(self.misplaced)} of {len(self.rows)} operations are where they were predicted"
        table = text.columns(("operation", "kind", "predicted", "real"), self.misplaced, fit=True)
        inside = "inside" if low <= self.us <= high else "outside"
        words = "the numbers are those of the simulator" if self.same_words else "the numbers differ"
        lines = [f"{self.chip}: {placed}", *([table] if self.misplaced else []), words]
        lines += [f"first difference: {self.difference}"] if self.difference else []
        lines.append(
            f"time: {self.us:,.0f} us; estimated {self.estimated_us:,.0f} ({low:,.0f} to {high:,.0f}): {inside}"
        )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        names = ("operation", "kind", "predicted", "real")
        return {
            "chip": self.chip,
            "operations": [dict(zip(names, row, strict=True)) for row in self.rows],
            "same_words": self.same_words,
            "first_difference": None if self.difference is None else self.difference.__dict__,
            "us": self.us,
            "estimated_us": self.estimated_us,
            "interval": list(self.interval),
            "agrees": self.agrees,
            "results": dict(self.document),
        }


def verified(graph: Graph, setting: KitSetting, inputs: Any = None, runner: Runner | None = None) -> Verification:
    """Run a graph on this machine and hold it against what is predicted of the chip."""
    arrays = next(iter(samples_of(graph, inputs)))
    wrong = [port.name for port in graph.inputs if port.dtype != "fp16"]
    if wrong:
        raise AneforgeError(f"{wrong[0]}: verify takes models with fp16 inputs. Export the part behind this input.")
    run = runner or run_here
    document = _run(graph, arrays, run)
    row = _row(document)
    (split,) = Study(graph, setting.name, runtime="coreml").judged().values()
    rows = _placements(split, setting, row)
    names = [split.names[node.uid] for node in graph.outputs]
    said = _simulated(graph, arrays, setting)
    same = all(_is_same(row, place, words) for place, words in enumerate(said))
    difference = None if same else _first_difference(graph, arrays, setting, run, names)
    estimate = split.estimate(SCOPE)
    return Verification(setting.chip, rows, same, difference, row.us, estimate.us, estimate.interval, document)


def run_here(folder: Path) -> Any:
    """Call the runner of a kit on this Mac."""
    out = folder / "results.json"
    command = [sys.executable, str(folder / "run.py"), "--out", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_SECONDS, check=False)  # noqa: S603
    if ran.returncode or not out.is_file():
        raise AneforgeError(f"run.py: {(ran.stderr or ran.stdout).strip().splitlines()[-1:] or ['it failed']}")
    return json.loads(out.read_text(encoding="utf-8"))


def _run(graph: Graph, arrays: Mapping[str, np.ndarray], runner: Runner) -> Any:
    """A kit of one model, run."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        names = package_of(graph, folder / "packages" / "model.mlpackage")
        called = graph.names()
        inputs = {
            names[name]: port_of(folder, f"model.{number}", np.asarray(array, np.float16))
            for number, (name, array) in enumerate(arrays.items())
        }
        case = {
            "id": "V01",
            "case": 0,
            "part": "model",
            "asked": "verify",
            "units": "cpuAndNeuralEngine",
            "timed": True,
            "package": "packages/model.mlpackage",
            "inputs": inputs,
            "outputs": [names[called[node.uid]] for node in graph.outputs],
        }
        kit = {"version": __version__, "seed": 0, "digest": "verify"}
        manifest = {"schema": SCHEMA, "kind": "aneforge kit", "kit": kit, "cases": [case], "files": {}}
        (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        copy_runners(folder)
        return runner(folder)


def _row(document: Any) -> CaseResult:
    results: KitResults = typed(KitResults, document)
    (row,) = results.results
    if row.status != "ran":
        raise AneforgeError(f"Core ML: {row.message or row.status}")
    return row


def _placements(split: Partition, setting: KitSetting, row: CaseResult) -> tuple[tuple[str, str, str, str], ...]:
    """Every operation that both plans have."""
    real = {op.name: op.preferred for op in plan_from_json({"operations": list(row.plan)}).operations}
    plan = plan_of_partition(split, setting.name)
    return tuple(
        (op.name, op.op, device_label(op.preferred), device_label(real[op.name]))
        for op in plan.operations
        if real.get(op.name) is not None
    )


def _simulated(graph: Graph, arrays: Mapping[str, np.ndarray], setting: KitSetting) -> list[np.ndarray]:
    results = build(graph, setting.target)(*arrays.values())
    listed = results if isinstance(results, (list, tuple)) else [results]
    return [words_of(array) for array in listed]


def _is_same(row: CaseResult, place: int, words: np.ndarray) -> bool:
    return list(row.outputs.values())[place].sha256 == digest_of(words)


def _first_difference(
    graph: Graph, arrays: Mapping[str, np.ndarray], setting: KitSetting, runner: Runner, outputs: list[str]
) -> FirstDifference:
    """The first operation, in the order of the graph, whose numbers differ: by halving, a run for each half."""
    nodes = [node for node in graph.nodes if not node.definition.leaf]
    low, high, known = 0, len(nodes) - 1, None
    while low <= high:
        middle = (low + high) // 2
        difference = _at(nodes[middle], arrays, setting, runner)
        if difference is None:
            low = middle + 1
        else:
            known, high = difference, middle - 1
    return known or FirstDifference(", ".join(outputs), "the whole model", 0.0, float("nan"))


def _at(node: Tensor, arrays: Mapping[str, np.ndarray], setting: KitSetting, runner: Runner) -> FirstDifference | None:
    """How the numbers of a node differ where the model is cut behind it; None where they are the same."""
    cut = Graph.of(node)
    called = cut.names()
    used = {called[port.uid]: arrays[called[port.uid]] for port in cut.inputs}
    row = _row(_run(cut, used, runner))
    (words,) = _simulated(cut, used, setting)
    if _is_same(row, 0, words):
        return None
    (out,) = row.outputs.values()
    real, said = out.array, words[: len(out.array)]
    apart = np.abs(real.view(np.float16).astype(np.float64) - said.view(np.float16).astype(np.float64))
    return FirstDifference(called[node.uid], node.op, float((real == said).mean()), float(np.nanmax(apart)))
