"""``aneforge plan``: the compute plan of a model as a Mac would likely report it."""

from __future__ import annotations

from aneforge import text
from aneforge.cli import say
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile, require_file
from aneforge.files import write_whole
from aneforge.study.plan import compute_plan


def run(model: str | ModelFile, chip: str, out: str | None, as_json: bool, everything: bool) -> None:
    """Print the plan, or write it where a file is named."""
    file = ModelFile.of(model)
    require_file(out)
    with working(f"planning {file.name} on {chip}"):
        plan = compute_plan(file.path, chip, **file.options)
        answer = text.as_json(plan.to_json()) if as_json or out is not None else plan.text(everything)
    if out is not None:
        write_whole(out, f"{answer}\n")
        say.note(f"wrote {out}")
        return
    print(answer)
