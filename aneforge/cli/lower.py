"""``aneforge lower``: a model as backend code for one chip, before or after passes."""

from __future__ import annotations

from aneforge.chips.names import one_chip
from aneforge.chips.names import target as find_target
from aneforge.cli.notes import working
from aneforge.cli.opt import pass_names, show_code
from aneforge.cli.options import ModelFile, load_model, require_file
from aneforge.compiler.compile import lowered_for
from aneforge.compiler.passes import run_passes
from aneforge.engine.text import write


def run(model: str | ModelFile, chip: str, passes: str, out: str | None, as_json: bool) -> None:
    """Phase 0, then the passes that were asked for; print."""
    require_file(out)
    target = find_target(one_chip(chip))
    with working(f"lowering {ModelFile.of(model).name} for {chip}"):
        draft = lowered_for(load_model(model), target)
        names, ensured = pass_names(passes)
        entries = run_passes(draft.code, target, names, ensured)
        rewritten = [str(record) for record in draft.records]
        code = write(draft.code, target.name)
    show_code(code, target.name, rewritten, [str(entry) for entry in entries], out, as_json)
