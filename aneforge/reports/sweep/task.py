"""One task of a sweep: one model on all targets. It runs in a process of its own, here or on another machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aneforge.chips.names import chip_label
from aneforge.errors import line_of
from aneforge.formats.arguments import graph_of
from aneforge.formats.cache import files_read, off
from aneforge.formats.cache.keys import digest_of
from aneforge.graph.graph import Graph
from aneforge.process import quiet_collector
from aneforge.reports.sweep.imports import own_files_read
from aneforge.reports.worker_process import kind_of
from aneforge.study.checking import GRADES, Check
from aneforge.study.partition import Partition
from aneforge.study.study import Study

FUNCTION = "aneforge.reports.sweep.task:run"
"""What a worker calls."""
NEEDED = "rows"
"""The answer of the parent that asks for the rows of a graph; else another model has given them, or will."""
ABSENT = ""
"""Instead of a digest: the model asked for a file that is not there."""


def run(task: Mapping[str, Any], ask: Callable[[Any], Any]) -> dict[str, Any]:
    """The rows of a model by target, or why it is refused (``refused``), with the digests of the other files that it
    was read from (``beside``). ``ask`` is given the key of its graph, and says whether the rows are needed."""
    place = Path(task["place"])
    if not place.exists():
        return {"missing": True}  # the plan was made where it is
    result: dict[str, Any] = {}
    files: set[Path] = set()
    try:
        with off(), _files_of(place) as files:  # a model is read once in a sweep: nothing is gained by storing it
            graph = graph_of(task["file"], task["dims"], task["function"])
        result["graph"] = graph_key(graph)
        if ask(result["graph"]) == NEEDED:
            result["rows"] = rows_of(graph, task["targets"], task["scope"])
    except Exception as error:
        if kind_of(error) != "input":
            raise
        result = {"refused": line_of(error)}
    return {**result, "beside": _digests(files, place)}


@contextmanager
def _files_of(place: Path) -> Iterator[set[Path]]:
    """The files that a model is read from, in a set that is whole when the block has ended."""
    with files_read() as files:
        if place.suffix != ".py":
            yield files
            return
        with own_files_read(files):
            yield files


def _digests(files: Iterable[Path], place: Path) -> dict[str, str]:
    """By path from the model's folder, where they are in it. What lies in a model that is a folder is part of it, and
    what is no regular file has no content that stays."""
    model = place.resolve()
    digests = {}
    for file in sorted(files):  # not resolved: a link may lead elsewhere next time
        is_file = file.is_file()
        if file.resolve().is_relative_to(model) or (file.exists() and not is_file):
            continue
        name = file.relative_to(model.parent) if file.is_relative_to(model.parent) else file
        digests[name.as_posix()] = digest_of(file)[0] if is_file else ABSENT
    return digests


def graph_key(graph: Graph) -> str:
    """The same for graphs that differ in names only: rows hold no names."""
    document = graph.to_json(weights=False)
    for record in document["nodes"]:
        record.pop("name", None)
    document["states"] = len(graph.states)
    return hashlib.blake2b(json.dumps(document, default=str).encode(), digest_size=20).hexdigest()


def rows_of(graph: Graph, targets: Mapping[str, str], scope: str | None) -> list[dict[str, Any]]:
    """One row for each target, in their order."""
    study = Study(graph, list(targets), scope=scope)
    with quiet_collector():
        checked, (estimates, _) = Check(study), study.estimates()
        splits, timed = study.judged(), study.timed()
        rows = []
        for name, split in splits.items():
            row: dict[str, Any] = {
                "target": name,
                "chip": chip_label(name),
                "verdict": split.outcome.words,
                "likely_ops": split.placed,
                "ops": split.ops,
                "engine_ops": split.on_engine,
                "host_ops": split.ops - split.on_engine,
                "rules": _rules(checked, name),
            }
            if name in estimates:
                estimate = estimates[name]
                low, high = estimate.interval
                row |= {"us": estimate.us, "us_low": low, "us_high": high, "energy_mj": estimate.energy_mj}
                row |= _memory(timed[name])
            rows.append(row)
    return rows


def _rules(checked: Check, name: str) -> list[str]:
    """The rules that something of the model meets, each once with its grade, the gravest first."""
    met = (f"{grade}:{entry.rule or entry.op}" for grade in GRADES for entry in getattr(checked[name], grade))
    return list(dict.fromkeys(met))


def _memory(split: Partition) -> dict[str, int]:
    stats = [program.stats for program in split.programs.values()]
    return {
        "weight_bytes": sum(stat["weight_bytes"] for stat in stats),
        "memory_bytes": max((stat["memory_bytes"] for stat in stats), default=0),
        "peak_l2": max((stat["peak_l2"] for stat in stats), default=0),
    }
