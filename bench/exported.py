"""Networks of other libraries, from every exporter: whether they load, where they run, and how right they are.

``python tests/models/exporters.py FOLDER NAME...`` writes files of architectures. ``python bench/exported.py FOLDER``
reads them and prints a line for each architecture: the files that load, the ops that stay on the host and the regions
of an M1, how far estimates of the formats are apart, and the error of a simulated M1 beside that of
PyTorch's half precision. ``--markdown`` prints docs/reference/networks.md; ``--jobs`` works on several at a time.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import aneforge as af

FORMATS = {"pt2": "exported.pt2", "script": "script.onnx", "dynamo": "dynamo.onnx", "coreml": "coreml.mlpackage"}
CHIPS = ("m1", "m5")
LEAST_ERROR, TIMES_HALF = 0.02, 3.0
"""An output is right that is within this, or within so many times the error of PyTorch in half precision."""


def measured(folder: Path) -> dict[str, Any]:
    """Everything about the files of one architecture."""
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"name": folder.name, "files": {}}
    example = np.load(folder / "example.npz")
    for kind, file in FORMATS.items():
        if (folder / file).exists():
            try:
                found["files"][kind] = _of_file(folder / file, example)
            except af.AneforgeError as error:
                found["files"][kind] = {"refused": str(error).splitlines()[0]}
    return found


def _of_file(path: Path, example: Any) -> dict[str, Any]:
    graph = af.load(path)
    record: dict[str, Any] = {"nodes": len(graph.nodes)}
    for chip in CHIPS:
        split = af.partition(graph, chip).only
        programs = [model.estimate() for model in split.models.values()]
        record[chip] = {
            "regions": len(split.regions),
            "host": len(split.reasons),
            "us": sum(estimate.us for estimate in programs),
        }
        if chip == "m1":
            record["error"] = _error(split, graph, example)
    return record


def _error(split: Any, graph: af.Graph, example: Any) -> float | None:
    """The largest relative error of the outputs of a simulated M1, in the fast mode."""
    feeds = [example[key] for key in example.files if key.startswith("input")]
    names = [str(port.name) for port in graph.inputs]
    outputs = split.runner("fast").run(dict(zip(names, feeds, strict=True))).outputs
    return max(_apart(value, example[f"output{place}"]) for place, value in enumerate(outputs.values()))


def _apart(found: Any, wanted: Any) -> float:
    one, two = (np.asarray(array, np.float64).reshape(-1) for array in (found, wanted))
    return float(np.linalg.norm(one - two) / (np.linalg.norm(two) or 1.0))


def half_error(folder: Path) -> float | None:
    """That of PyTorch in half precision on the CPU."""
    example = np.load(folder / "example.npz")
    halves = [key for key in example.files if key.startswith("half")]
    errors = [_apart(example[key], example[key.replace("half", "output")]) for key in halves]
    return max(errors) if errors and np.isfinite(errors).all() else None


def _times(record: dict[str, Any], chip: str) -> list[float]:
    return [file[chip]["us"] for file in record["files"].values() if chip in file]


def spread(record: dict[str, Any]) -> float:
    """The slowest format over the fastest, on the chip where they differ most."""
    return max(
        (max(times) / min(times) for chip in CHIPS if (times := _times(record, chip)) and min(times)), default=1
    )


def row(record: dict[str, Any], half: float | None) -> list[str]:
    files = record["files"]
    read = [kind for kind, file in files.items() if "refused" not in file]
    first = files[read[0]] if read else {}
    errors = [files[kind]["error"] for kind in read]
    host, regions = (first["m1"]["host"], first["m1"]["regions"]) if first else ("-", "-")
    return [
        record["name"],
        f"{len(read)} of {len(files)}",
        str(first.get("nodes", "-")),
        str(host),
        str(regions),
        f"{spread(record):.2f}",
        f"{100 * max(errors):.2f} %" if errors and np.isfinite(errors).all() else "not finite",
        "-" if half is None else f"{100 * half:.2f} %",
    ]


HEADINGS = (
    "network",
    "files read",
    "nodes",
    "host ops",
    "regions",
    "spread",
    "M1 error",
    "torch half",
)


def summary(records: list[dict[str, Any]], halves: list[float | None]) -> str:
    files = [file for record in records for file in record["files"].values()]
    read = [file for file in files if "refused" not in file]
    apart = sum(spread(record) > 1.05 for record in records)
    loud = sum(
        not max(file["error"] for file in record["files"].values() if "error" in file)
        <= max(LEAST_ERROR, TIMES_HALF * (half or 0.0))
        for record, half in zip(records, halves, strict=True)
        if any("error" in file for file in record["files"].values())
    )
    unread = sum(all("refused" in file for file in record["files"].values()) for record in records)
    return (
        f"{len(records)} networks in {len(files)} files: {len(read)} files are read; {unread} networks load from no "
        f"format; {apart} networks have estimates that differ by more than 5 % between formats; "
        f"{loud} are further than 2 % and three times PyTorch's half precision from float32 on a simulated M1."
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one record a line")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--kept", type=Path, help="records of an earlier run (--json), which are not measured again")
    chosen = parser.parse_args(arguments)
    folders = sorted(path.parent for path in chosen.folder.glob("*/example.npz"))
    lines = chosen.kept.read_text().splitlines() if chosen.kept else []
    kept = {record["name"]: record for record in map(json.loads, lines)}
    left = [folder for folder in folders if folder.name not in kept]
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:
        for number, record in enumerate(pool.map(measured, left), 1):
            kept[record["name"]] = record
            print(f"\r{number} of {len(left)} {record['name']:40}", end="", file=sys.stderr)
    print(file=sys.stderr)
    records = [kept[folder.name] for folder in folders]
    halves = [half_error(folder) for folder in folders]
    if chosen.json:
        print("\n".join(json.dumps(record) for record in records))
        return
    if chosen.markdown:
        print(_GENERATED)
        print("\n# Networks of other libraries\n")
        print(_INTRODUCTION)
        print(summary(records, halves) + "\n")
        print(f"| {' | '.join(HEADINGS)} |\n| {' | '.join('---' for _ in HEADINGS)} |")
        for record, half in zip(records, halves, strict=True):
            print(f"| {' | '.join(row(record, half))} |")
        return
    widths = (30, 11, 6, 9, 8, 7, 11, 11)
    for cells in [list(HEADINGS), *(row(record, half) for record, half in zip(records, halves, strict=True))]:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    for record in records:
        for kind, file in record["files"].items():
            if "refused" in file:
                print(f"{record['name']} from {kind}: {file['refused']}")
    print(summary(records, halves))


_GENERATED = "<!-- Generated by `python bench/exported.py FOLDER --markdown`: change its source, not this page. -->"
_INTRODUCTION = """Architectures of timm, torchvision, transformers, diffusers and ultralytics with random weights, as
PyTorch's export, both of its ONNX exporters and coremltools write them (`tests/models/catalogue.py`; the depth of
language models is cut). The weights are not trained, so activations are often small, where the engine's tables of
gelu and silu are worst. `spread` is the slowest format over the fastest, by estimates of what runs on the engine of an
M1 and an M5. What a whole call takes, with the host's part, `aneforge estimate` says. `half` is the error of PyTorch
in half precision.
"""


if __name__ == "__main__":
    main(sys.argv[1:])
