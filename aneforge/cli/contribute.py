"""``aneforge contribute``: what a Mac gave, for a person to send in: a compute plan as rows of the silicon format,
or a compiled program as a record of its words."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from aneforge import text
from aneforge.chips.names import one_chip
from aneforge.cli import say
from aneforge.cli.inspect import read_container_file
from aneforge.cli.notes import working
from aneforge.cli.options import load_model, require_file
from aneforge.errors import AneforgeError
from aneforge.files import written_file
from aneforge.study.agreement import evaluate
from aneforge.study.contribute import contributed_rows, timed_row
from aneforge.study.contribute_program import program_record
from aneforge.study.plan_files import read_plan


@dataclass(frozen=True)
class ContributeOptions:
    """What the rows say besides the plan, and where they go."""

    chip: str | None
    system: str
    out: str
    model: str | None
    source: str


def run(file: str, options: ContributeOptions, as_json: bool) -> None:
    """Write the rows, and tell how they agree with what check says."""
    require_file(options.out)
    if Path(file).suffix.casefold() == _PROGRAM:
        _program(file, options, as_json)
        return
    plan = read_plan(file)
    chip = options.chip or plan.chip
    if not chip:
        raise AneforgeError(f"{file}: it does not name its chip. Give --target, for instance --target m1")
    with working(f"reading {options.model or file}"):
        graph = None if options.model is None else load_model(options.model)
        rows = contributed_rows(plan, one_chip(chip), options.system, graph, options.source)
        timed = None if graph is None else timed_row(plan, one_chip(chip), options.system, graph, options.source)
    written = {Path(options.out): rows}
    if timed is not None:
        written[Path(options.out).with_suffix(".times.json")] = [timed]
    with ExitStack() as staged:  # both take their places, or none
        for place, listed in written.items():
            document = f"{text.as_json({'schema': 1, 'rows': listed})}\n"
            staged.enter_context(written_file(place)).write(document.encode())
    with working(f"checking {len(rows)} rows"):
        agreement = evaluate(rows)
    shaped = sum(row["shapes"] is not None for row in rows)
    if as_json:
        print(text.as_json({"rows": len(rows), "with_shapes": shaped, "agreeing": agreement.exact}))
        return
    print(f"{len(rows)} rows, {shaped} with shapes; aneforge check gives the same answer to {agreement.exact:.0%}")
    if shaped < len(rows):
        say.note("rows without shapes help little; name the model with --model")
    say.note(f"wrote {', '.join(map(str, written))}: read it, then send it in")


_PROGRAM = ".hwx"


def _program(file: str, options: ContributeOptions, as_json: bool) -> None:
    """Write the record of a compiled program, and say what the person has to do."""
    if options.model is not None:
        raise AneforgeError("--model: a compiled program has its shapes; leave --model out")
    container = read_container_file(file)
    record = program_record(container, options.chip, options.system, options.source)
    with written_file(Path(options.out)) as stream:
        stream.write(f"{text.as_json([record])}\n".encode())
    words = sum(len(task["words"]) for task in record["tasks"])
    if as_json:
        print(text.as_json({"id": record["id"], "tasks": len(record["tasks"]), "words": words}))
        return
    count = len(record["tasks"])
    print(f"{'1 task' if count == 1 else f'{count} tasks'} for {record['target']}, {words:,} words")
    say.note(f"wrote {options.out}: write the network into it (op and its numbers), then send it in")
    say.note("it holds the shapes and the kind of work of every task, and no weights and no names")
