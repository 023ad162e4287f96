"""Whole networks: published latencies against estimates, by family and chip.

``python bench/models.py FACTS`` builds every network of ``silicon/models_train.json`` whose code is in a library,
keeps it as a small file (a graph without its large weights, under ``.networks`` or ``--kept FOLDER``), estimates it
and prints measured against estimated. What is built is not built again, so that a run can be stopped and resumed.
Building needs the libraries of ``make test-models`` (``--python`` names that environment's Python); the rest does not.
``--json`` prints every row.

The figures are those of the shipped constants, which were fitted to these rows among others. The column "left out" is
the factor when all networks of the family were left out of the fit, as ``tools/fit_cost.py`` recorded it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cost_samples as samples
from cost_samples import Sample

from aneforge import text
from aneforge.cost.constants import basis_of

HERE = Path(__file__).resolve().parent
MOST_MINUTES = 20


def built(facts: Path, kept: Path, python: str) -> Iterator[str]:
    """Build what is missing, each network in a process of its own; yields a line for each that cannot be built."""
    rows = {samples.key_of(row): row for row in samples.network_rows(facts)}
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}  # that environment need not have this package
    missing = {key: row for key, row in rows.items() if not (kept / f"{key}.sketch").exists()}
    for number, (key, row) in enumerate(missing.items(), 1):
        print(f"\r{number} of {len(missing)}: {row['constructor'][:60]:60}", end="", file=sys.stderr, flush=True)
        order = json.dumps([row["constructor"], row["inputs"]])
        command = [python, str(HERE / "published.py"), order, str(kept / f"{key}.sketch")]
        try:
            done = subprocess.run(  # noqa: S603 - this repository's own script
                command, check=False, capture_output=True, text=True, env=environment, timeout=60 * MOST_MINUTES
            )
        except subprocess.TimeoutExpired:
            yield f"{row['constructor']}: not built in {MOST_MINUTES} minutes"
            continue
        if done.returncode:
            yield f"{row['constructor']}: {(done.stderr.strip().splitlines() or ['failed'])[-1][:200]}"
    if missing:
        print(file=sys.stderr)


def estimated(sample: Sample) -> float:
    """Microseconds with the shipped constants."""
    return float(samples.Timed([sample], [sample.chip], {}).shipped(basis_of(sample.chip).constants)[0])


def groups(rows: Iterable[dict[str, Any]], *keys: str) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    found: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return dict(sorted(found.items()))


def typical(rows: Sequence[dict[str, Any]], key: str) -> str:
    """The typical factor, and whether estimates are too slow or too fast."""
    logs = [math.log(row[key]) for row in rows if row[key]]
    if not logs:
        return "-"
    middle = math.exp(sum(logs) / len(logs))
    lean = "" if 0.95 < middle < 1.05 else " slow" if middle > 1 else " fast"
    return f"{math.exp(sum(map(abs, logs)) / len(logs)):.2f}{lean}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Published latencies of whole networks against estimates.")
    parser.add_argument("facts", type=Path, help="the folder that holds silicon/models_train.json")
    parser.add_argument("--kept", type=Path, default=HERE.parent / ".networks", help="where built networks are kept")
    parser.add_argument("--python", default=sys.executable, help="a Python that has timm, torchvision and the others")
    parser.add_argument("--no-build", action="store_true", help="take only what is built already")
    parser.add_argument("--json", action="store_true", help="print every row as JSON")
    chosen = parser.parse_args()
    if not (chosen.facts / "silicon" / "models_train.json").is_file():
        parser.error(f"{chosen.facts}: no silicon/models_train.json in this folder")
    chosen.kept.mkdir(parents=True, exist_ok=True)
    refused = [] if chosen.no_build else list(built(chosen.facts, chosen.kept, chosen.python))
    known = samples.read_errors()
    rows = []
    for sample in samples.networks(chosen.facts, chosen.kept):
        error = known[sample.id].by_way.get("families") if sample.id in known else None
        row = {key: getattr(sample, key) for key in ("id", "family", "chip", "source", "quality", "fitted", "regions")}
        row |= {"model": sample.name, "ms": sample.us / 1000, "factor": estimated(sample) / sample.us}
        rows.append(row | {"left_out": math.exp(error) if error is not None else None})
    if chosen.json:
        print(json.dumps({"rows": rows, "refused": refused}))
    else:
        _print(rows, refused)
    return 0


def _print(rows: Sequence[dict[str, Any]], refused: Sequence[str]) -> None:
    certain = [row for row in rows if row["fitted"]]
    table = [
        (family, chip, len(mine), typical(mine, "factor"), typical(mine, "left_out"))
        for (family, chip), mine in groups(certain, "family", "chip").items()
    ]
    print(text.columns(("family", "chip", "rows", "factor", "left out"), table))
    cells = [cell for cell in groups(certain, "family", "chip").values() if any(row["left_out"] for row in cell)]
    print(
        f"\n{len(certain)} rows of {len(rows)} are certain and whole on the engine; the others are listed by --json."
    )
    print(
        f"typical factor with families left out: {_mean(certain):.3f} by row, {_by_cell(cells):.3f} by family and chip"
    )
    worst = sorted(by_family(certain).items(), key=lambda item: -item[1])[:5]
    print("families that are furthest off when left out: " + ", ".join(f"{name} {value:.2f}" for name, value in worst))
    for line in refused:
        print(line)


def by_family(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The typical factor of each family that was left out, over its chips."""
    return {name[0]: _by_cell(list(groups(mine, "chip").values())) for name, mine in groups(rows, "family").items()}


def _mean(rows: Sequence[dict[str, Any]]) -> float:
    logs = [abs(math.log(row["left_out"])) for row in rows if row["left_out"]]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def _by_cell(cells: Sequence[Sequence[dict[str, Any]]]) -> float:
    return math.exp(sum(math.log(_mean(cell)) for cell in cells) / len(cells)) if cells else math.nan


if __name__ == "__main__":
    sys.exit(main())
