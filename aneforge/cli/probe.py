"""``aneforge probe``: what the simulator gives where somebody read a chip."""

from __future__ import annotations

from aneforge import text
from aneforge.cli.notes import working
from aneforge.errors import AneforgeError
from aneforge.study.probes import probe


def run(chips: str, as_json: bool) -> None:
    """Print every public probe beside its measured value, chip by chip."""
    with working(f"probing {chips}") as progress:
        report = probe(chips, progress)
    if not len(report):
        raise AneforgeError(f"--target {chips}: no probe runs there: {next(iter(report.refused.values()))}")
    print(text.as_json(report.to_json()) if as_json else report)
