"""``aneforge contribute``: a Mac's compute plan as rows of the silicon format, for a person to send in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aneforge.cli import say
from aneforge.cli.model_file import load_model
from aneforge.errors import AneforgeError
from aneforge.gate.evaluate import evaluate
from aneforge.output import text
from aneforge.output.files import write_whole
from aneforge.plans.contribute import contributed_rows
from aneforge.plans.files import read_plan
from aneforge.targets.listed import one_chip

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options:
    """What the rows say besides the plan, and where they go."""

    chip: str | None
    system: str
    out: str
    model: str | None
    source: str


def run(file: str, options: Options, as_json: bool) -> None:
    """Write the rows, and tell how they agree with what check says."""
    if Path(options.out).is_dir():
        raise AneforgeError(f"--out {options.out}: a folder; give the name of a file, as rows.json")
    plan = read_plan(file)
    chip = options.chip or plan.chip
    if not chip:
        raise AneforgeError(f"{file}: it does not name its chip. Give --target, for instance --target m1")
    graph = None if options.model is None else load_model(options.model)
    rows = contributed_rows(plan, one_chip(chip), options.system, graph, options.source)
    write_whole(options.out, f"{text.as_json({'schema': 1, 'rows': rows})}\n")
    agreement = evaluate(rows)
    shaped = sum(row["shapes"] is not None for row in rows)
    if as_json:
        print(text.as_json({"rows": len(rows), "with_shapes": shaped, "agreeing": agreement.exact}))
        return
    print(f"{len(rows)} rows, {shaped} with shapes; aneforge check gives the same answer to {agreement.exact:.0%}")
    if shaped < len(rows):
        say.note("rows without shapes help little; name the model with --model")
    say.note(f"wrote {options.out}: read it, then send it in")
