"""``aneforge plan``: the compute plan of a model as a Mac would likely report it."""

from __future__ import annotations

from aneforge import text
from aneforge.cli import say
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile, require_file
from aneforge.files import write_whole
from aneforge.study.plan import compute_plan
from aneforge.study.plan_files import read_plan


def run(model: str | ModelFile, chip: str, out: str | None, as_json: bool, everything: bool) -> int:
    """Print the plan, or write it where a file is named; 1 for a plan from a Mac that uses the GPU."""
    file = ModelFile.of(model)
    require_file(out)
    if file.path.casefold().endswith(".json"):
        plan = read_plan(file.path)
        print(text.as_json(plan.to_json()) if as_json else plan.text(everything))
        return 1 if plan.uses_gpu and not plan.predicted else 0
    with working(f"planning {file.name} on {chip}"):
        plan = compute_plan(file.path, chip, **file.options)
        answer = text.as_json(plan.to_json()) if as_json or out is not None else plan.text(everything)
    if out is not None:
        write_whole(out, f"{answer}\n")
        say.note(f"wrote {out}")
        return 0
    print(answer)
    return 0
