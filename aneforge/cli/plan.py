"""``aneforge plan``: the compute plan of a model as a Mac would likely report it."""

from __future__ import annotations

from pathlib import Path

from aneforge.cli import say
from aneforge.cli.model_file import ModelFile
from aneforge.errors import AneforgeError
from aneforge.output import text
from aneforge.output.files import write_whole
from aneforge.plans.predict import compute_plan

__all__ = ["run"]


def run(model: str | ModelFile, chip: str, out: str | None, as_json: bool, everything: bool) -> None:
    """Print the plan, or write it where a file is named."""
    file = ModelFile.of(model)
    if out is not None and Path(out).is_dir():
        raise AneforgeError(f"--out {out}: a folder; give the name of a file, as {Path(out) / 'plan.json'}")
    plan = compute_plan(file.path, chip, **file.options)
    if out is not None:
        write_whole(out, f"{text.as_json(plan.to_json())}\n")
        say.note(f"wrote {out}")
        return
    print(text.as_json(plan.to_json()) if as_json else plan.text(everything))
