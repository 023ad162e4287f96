"""``aneforge check``: one model against one chip, several, or all of them."""

from __future__ import annotations

from aneforge import text
from aneforge.cli import say
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile
from aneforge.study.checking import check
from aneforge.study.shapes import check_shapes, open_shapes

COLORS = {
    **dict.fromkeys(("reject", "oversize"), "red"),
    **dict.fromkeys(("unknown", "risk", "placement"), "yellow"),
    "decompose": "cyan",
}


def run(
    model: str | ModelFile,
    chips: str,
    fail_on: str,
    as_json: bool,
    route: str | None = None,
    everything: bool = False,
    max_abs: float | None = None,
) -> int:
    """Print the report; 1 if a chip that was asked for does worse than allowed."""
    file = ModelFile.of(model)
    with working(f"checking {file.name} on {chips}"):
        shapes = open_shapes(file.path, file.asked, file.function)
        if shapes is None:
            report = check(file.path, chips, route, fail_on, max_abs=max_abs, **file.options)
        else:
            options = {"max_abs": max_abs, "dims": file.asked, "function": file.function}
            report = check_shapes(file.path, chips, route, fail_on, **options)
        answer = text.as_json(report.to_json()) if as_json else report.text(_painted, everything)
    print(answer)
    return 0 if report.ok else 1


def _painted(grade: str) -> str:
    return say.paint(grade, COLORS[grade])
