"""``aneforge contribute``: what a Mac gave, for a person to send in: a compute plan as rows of the silicon format,
a compiled program as a record of its words, or the results of a kit."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.chips.names import one_chip
from aneforge.cli import say
from aneforge.cli.inspect import read_container_file
from aneforge.cli.notes import working
from aneforge.cli.options import load_model, require_file
from aneforge.documents import read_json
from aneforge.errors import AneforgeError, LoadError
from aneforge.files import written_file
from aneforge.reports.kit.judge import judged
from aneforge.reports.kit.results import is_results, read_results
from aneforge.reports.kit.rows import silicon_rows
from aneforge.study.agreement import evaluate
from aneforge.study.contribute import contributed_rows, timed_row
from aneforge.study.contribute_program import program_record
from aneforge.study.plan_files import MOST_BYTES, plan_from_json


@dataclass(frozen=True)
class ContributeOptions:
    """What the rows say besides the plan, and where they go."""

    chip: str | None
    system: str | None
    out: str | None
    model: str | None
    source: str
    earlier: tuple[str, ...] = ()


def run(file: str, options: ContributeOptions, as_json: bool) -> None:
    """Write the rows, and tell how they agree with what check says."""
    require_file(options.out)
    if Path(file).suffix.casefold() == _PROGRAM:
        _program(file, _system(options), options, as_json)
        return
    document = _document(file)
    if is_results(document):
        _kit(file, options, as_json)
        return
    out = _out(options)
    plan = plan_from_json(document, file)
    system = _system(options)
    chip = options.chip or plan.chip
    if not chip:
        raise AneforgeError(f"{file}: it does not name its chip. Give --target, for instance --target m1")
    with working(f"reading {options.model or file}"):
        graph = None if options.model is None else load_model(options.model)
        rows = contributed_rows(plan, one_chip(chip), system, graph, options.source)
        timed = None if graph is None else timed_row(plan, one_chip(chip), system, graph, options.source)
    written = {out: rows}
    if timed is not None:
        written[out.with_suffix(".times.json")] = [timed]
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


def _system(options: ContributeOptions) -> str:
    """The system of what does not say it itself."""
    if options.system is None:
        raise AneforgeError("--os: it does not say which system gave it. Add it, for instance: --os 'macOS 26.1'")
    return options.system


def _out(options: ContributeOptions) -> Path:
    """Where the rows go; only results of a kit say something without them."""
    if options.out is None:
        raise AneforgeError("--out: a plan or a program becomes rows in a file. Name it, for instance: -o rows.json")
    return Path(options.out)


def _document(file: str) -> Any:
    """What a Mac gave, as JSON."""
    try:
        return read_json(file, MOST_BYTES)
    except LoadError as error:
        expected = "the results.json of a kit as it was written, or a compute plan (docs/guide/plan.md)"
        raise AneforgeError(f"{error}; expected {expected}") from None


def _kit(file: str, options: ContributeOptions, as_json: bool) -> None:
    """Say what results show, and write their rows."""
    given = {"--target": options.chip, "--os": options.system, "--model": options.model}
    for option, value in given.items():
        if value is not None:
            raise AneforgeError(f"{option}: results of a kit say it themselves; leave {option} out")
    with working(f"judging {file}"):
        findings = judged(read_results(file), [read_results(other) for other in options.earlier])
        rows = silicon_rows(findings, options.source)
    place = None if options.out is None else Path(options.out)
    written = {place.with_suffix(ending): rows[kind] for kind, ending in _KINDS.items() if place and rows[kind]}
    with ExitStack() as staged:
        for name, listed in written.items():
            key = "facts" if name.name.endswith(_KINDS["facts"]) else "rows"
            document = f"{text.as_json({'schema': 1, key: listed})}\n"
            staged.enter_context(written_file(name)).write(document.encode())
    print(text.as_json(findings.to_json()) if as_json else findings)
    if place is None:
        say.note("-o rows.json writes the rows to send in")
    else:
        say.note(f"wrote {', '.join(map(str, written)) or 'nothing'}: read them, then send them in")
    say.note("aneforge kit apply shows what would change in the data; nothing is applied without you")


_KINDS = {"verdicts": ".json", "times": ".times.json", "facts": ".facts.json"}
"""The endings of the files that rows go into."""


def _program(file: str, system: str, options: ContributeOptions, as_json: bool) -> None:
    """Write the record of a compiled program, and say what the person has to do."""
    if options.model is not None:
        raise AneforgeError("--model: a compiled program has its shapes; leave --model out")
    container = read_container_file(file)
    out = _out(options)
    record = program_record(container, options.chip, system, options.source)
    with written_file(out) as stream:
        stream.write(f"{text.as_json([record])}\n".encode())
    words = sum(len(task["words"]) for task in record["tasks"])
    if as_json:
        print(text.as_json({"id": record["id"], "tasks": len(record["tasks"]), "words": words}))
        return
    count = len(record["tasks"])
    print(f"{'1 task' if count == 1 else f'{count} tasks'} for {record['target']}, {words:,} words")
    say.note(f"wrote {out}: write the network into it (op and its numbers), then send it in")
    say.note("it holds the shapes and the kind of work of every task, and no weights and no names")
