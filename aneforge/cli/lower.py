"""``aneforge lower``: a model as backend code for one chip, before or after passes."""

from __future__ import annotations

import sys

from aneforge.anec.text import write
from aneforge.cli.model_file import ModelFile, load_model
from aneforge.cli.opt import pass_names
from aneforge.compiler.compile import lowered_for
from aneforge.compiler.passes import run_passes
from aneforge.targets.names import target as find_target


def run(model: str | ModelFile, chip: str, passes: str, log: bool) -> None:
    """Phase 0, then the passes that were asked for; print."""
    found = find_target(chip)
    draft = lowered_for(load_model(model), found)
    names, given = pass_names(passes)
    entries = run_passes(draft.code, found, names, given)
    print(write(draft.code, found.name), end="")
    if log:
        for record in draft.records:
            print(f"// rewritten {record}", file=sys.stderr)
        for entry in entries:
            print(f"// {entry}", file=sys.stderr)
