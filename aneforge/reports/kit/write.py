"""The folder of a kit: models, inputs, what every hypothesis predicts, and the runners.

A package whose files are larger than a megabyte is packed: its weights repeat a short line, so that a model of 16 MB
is a file of a few kilobytes until it is run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aneforge import text
from aneforge.chips.families import Family
from aneforge.compiler.compile import resolve_target
from aneforge.compiler.legal.passes import rewritten_for
from aneforge.errors import AneforgeError
from aneforge.files import written_folder
from aneforge.formats.exports.coreml import write_package
from aneforge.formats.exports.mil import RULES
from aneforge.formats.exports.netplist import save_netplist
from aneforge.graph.graph import Graph
from aneforge.progress import Progress
from aneforge.reports.kit.experiments import KINDS, MEASURED_TIMES, PROGRAM, SEED, Experiment, unknowns_of
from aneforge.reports.kit.forms import write_form
from aneforge.reports.kit.predict import KitSetting, predictions
from aneforge.version import __version__

SCHEMA = 1
RESULTS_KIND = "aneforge kit results"
_RUNNER = Path(__file__).with_name("runner")
_PACKED_FROM = 1 << 20
_SECONDS = {True: 8.0, False: 3.0}
"""What one model takes on a Mac, loading included: of an experiment about time, and of another one."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class WrittenKit:
    """What was written."""

    path: Path
    experiments: tuple[Experiment, ...]
    cases: int
    bytes: int
    minutes: int

    def __str__(self) -> str:
        counts = {kind: sum(entry.kind == kind for entry in self.experiments) for kind in KINDS}
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        about = unknowns_of(self.experiments)
        size = f"{text.plural(self.cases, 'model')}, {self.bytes / 1e6:.1f} MB"
        lines = [
            f"{self.path}: {text.plural(len(self.experiments), 'experiment')} ({kinds}), {size}",
            f"they bear on {text.plural(len(about), 'unknown')}: {', '.join(about)}",
            f"copy the folder to a Mac and run: python3 run.py (about {text.plural(self.minutes, 'minute')})",
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "experiments": [entry.id for entry in self.experiments],
            "unknowns": unknowns_of(self.experiments),
            "models": self.cases,
            "bytes": self.bytes,
            "minutes": self.minutes,
        }


def write_kit(
    folder: str | Path,
    experiments: Sequence[Experiment],
    chips: Sequence[str],
    overwrite: bool = False,
    progress: Progress | None = None,
) -> WrittenKit:
    """Write the folder, whole or not at all."""
    place = Path(folder)
    if place.exists() and not overwrite:
        raise AneforgeError(f"{place}: it exists. Use --overwrite to replace it.")
    with written_folder(place) as fresh:
        cases: list[dict[str, Any]] = []
        for number, experiment in enumerate(experiments):
            if progress is not None:
                progress(number, len(experiments), f"writing {experiment.id} {experiment.name}")
            cases += _cases(fresh, experiment)
        seconds = sum(_SECONDS[bool(case["timed"])] for case in cases if "package" in case)
        minutes = max(1, round(seconds / 60))
        _runners(fresh, experiments, chips, cases, minutes)
        files = {name: _digest(fresh / name) for name in _names(fresh)}
        _manifest(fresh, experiments, chips, cases, files)
        size = sum((fresh / name).stat().st_size for name in _names(fresh))
    return WrittenKit(place, tuple(experiments), len(cases), size, minutes)


def _cases(folder: Path, experiment: Experiment) -> list[dict[str, Any]]:
    """The files of an experiment, and what the runner has to know of each case."""
    cases = []
    for number, case in enumerate(experiment.cases):
        entry: dict[str, Any] = {
            "id": experiment.id,
            "case": number,
            "part": experiment.part(number),
            "asked": experiment.digest(),
            "units": experiment.units,
            "timed": experiment.kind in MEASURED_TIMES,
        }
        if experiment.kind == PROGRAM:
            entry |= {"target": case["target"], "netplist": _netplist(folder, experiment, number)}
        elif experiment.graph:
            entry |= _package(folder, experiment, number)
        cases.append(entry)
    return cases


def _package(folder: Path, experiment: Experiment, number: int) -> dict[str, Any]:
    case, part = experiment.cases[number], experiment.part(number)
    file = folder / "packages" / f"{part}.mlpackage"
    if experiment.form:
        names = write_form(experiment.form, experiment.record(case), file)
    else:
        names = package_of(experiment.package_graph(case), file)
    record = experiment.run_record(case)
    ports = {
        names[name]: _port(folder, f"{part}.{name}", recipe, array)
        for (name, recipe), array in zip(record["inputs"].items(), experiment.run_inputs(case).values(), strict=True)
    }
    if experiment.form == "fp32":
        ports = {name: {**port, "type": "<f4"} for name, port in ports.items()}
    outputs = [names[name] for name in experiment.outputs(case)]
    return {"package": _packed(folder, file), "inputs": ports, "outputs": outputs}


def package_of(graph: Graph, file: Path) -> dict[str, str]:
    """Write a graph as a Core ML package; the package's names by those of the graph."""
    file.parent.mkdir(parents=True, exist_ok=True)
    written = write_package(file, rewritten_for(graph, resolve_target(Family.A16), frozenset(RULES)), graph.states)
    return {name: own for own, name in written.names.items()}


def port_of(folder: Path, name: str, array: np.ndarray) -> dict[str, Any]:
    """An input as a file of fp16 words."""
    file = folder / "inputs" / f"{name}.f16"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(array.astype("<f2").tobytes())
    return {"shape": list(array.shape), "file": f"inputs/{file.name}"}


def _port(folder: Path, name: str, recipe: Mapping[str, Any], array: np.ndarray) -> dict[str, Any]:
    """An input: one number everywhere, or a file."""
    if "fill" in recipe:
        return {"shape": list(array.shape), "fill": float(recipe["fill"])}
    return port_of(folder, name, array)


def _netplist(folder: Path, experiment: Experiment, number: int) -> str:
    case = experiment.cases[number]
    place = folder / "programs" / experiment.part(number)
    place.mkdir(parents=True)
    save_netplist(experiment.graph_of(case), place / "network.plist")
    return _packed(folder, place)


def _packed(folder: Path, place: Path) -> str:
    """The name of a file or folder in the kit; one with large files is packed."""
    files = [file for file in sorted(place.rglob("*")) if file.is_file()]
    if sum(file.stat().st_size for file in files) < _PACKED_FROM:
        return place.relative_to(folder).as_posix()
    archive = place.with_name(f"{place.name}.zip")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as stream:
        for file in files:
            entry = zipfile.ZipInfo(file.relative_to(place.parent).as_posix(), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            stream.writestr(entry, file.read_bytes())
    shutil.rmtree(place)
    return archive.relative_to(folder).as_posix()


def _runners(
    folder: Path, experiments: Sequence[Experiment], chips: Sequence[str], cases: Sequence[Any], minutes: int
) -> None:
    copy_runners(folder)
    readme = (
        (_RUNNER / "README.md")
        .read_text(encoding="utf-8")
        .format(
            version=__version__,
            questions=len(experiments),
            experiments=", ".join(f"{entry.id} {entry.name}" for entry in experiments[:3])
            + (", ..." if len(experiments) > 3 else ""),
            chips=", ".join(chips),
            minutes=minutes,
            cases=len(cases),
            unpacked_mb=25,
        )
    )
    (folder / "README.md").write_text(readme, encoding="utf-8")


def copy_runners(folder: Path) -> None:
    """Both runners, and the note about phones."""
    for file in ("run.py", "run.swift", "IOS.md"):
        (folder / file).write_bytes((_RUNNER / file).read_bytes())


def _manifest(
    folder: Path,
    experiments: Sequence[Experiment],
    chips: Sequence[str],
    cases: Sequence[dict[str, Any]],
    files: Mapping[str, str],
) -> None:
    stated = json.dumps([dict(files), list(cases)], sort_keys=True)
    kit = {"version": __version__, "seed": SEED, "digest": hashlib.sha256(stated.encode()).hexdigest()}
    questions = [
        {
            "id": entry.id,
            "name": entry.name,
            "about": list(entry.about),
            "kind": entry.kind,
            "asks": entry.asks,
            "predictions": {chip: [row.to_json() for row in predictions(entry, KitSetting(chip))] for chip in chips},
        }
        for entry in experiments
    ]
    document = {"schema": SCHEMA, "kind": "aneforge kit", "kit": kit, "chips": list(chips), "experiments": questions}
    document |= {"cases": list(cases), "files": dict(files)}
    (folder / "manifest.json").write_text(text.as_json(document) + "\n", encoding="utf-8")


def _names(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
