"""``aneforge risks``: what a chip can lose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.chips.names import DEFAULT, chip_list, one_chip
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile, require_file
from aneforge.errors import AneforgeError
from aneforge.formats.arguments import graph_of
from aneforge.numerics.causes import rewritten
from aneforge.study.risk import risks


def run(
    model: str | ModelFile,
    chips: str,
    max_abs: float | None,
    inputs: str | None,
    out: str | None,
    as_json: bool,
    everything: bool = False,
) -> bool:
    """Whether nothing can be lost on any of the chips."""
    file = ModelFile.of(model)
    if out is not None and chips == DEFAULT:
        chips = one_chip(DEFAULT)
    if out is not None and len(chip_list(chips)) > 1:
        raise AneforgeError("--out: rewrites are those of one chip. Name one, for instance --target m1.")
    if out is not None and Path(out).suffix != ".aneforge":
        raise AneforgeError(f"--out {out}: a graph is saved as NAME.aneforge. Change the name.")
    require_file(out)
    saved: dict[str, Any] = {}
    with working(f"looking for risks of {file.name} on {chips}"):
        graph = graph_of(file.path, **file.options)
        report = risks(graph, chips, max_abs, inputs)
        if out is not None:
            graph = rewritten(graph, report.only)
            graph.save(out)
            left = risks(graph, chips, max_abs, inputs)
            saved = {"saved": out, "left": len(left.only)}
        answer = text.as_json({**report.to_json(), **saved}) if as_json else report.text(everything)
    print(answer)
    if saved and not as_json:
        print(f"wrote {out}, rewritten where that is safe: {saved['left']} left")
    return report.ok
