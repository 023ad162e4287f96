"""``aneforge opt``: run passes on backend code in text form."""

from __future__ import annotations

import sys
from pathlib import Path

from aneforge import text
from aneforge.chips.assumed import fact_label
from aneforge.chips.names import one_chip
from aneforge.chips.names import target as find_target
from aneforge.cli import say
from aneforge.cli.notes import working
from aneforge.cli.options import require_file
from aneforge.compiler.passes import PASSES, Pass, run_passes
from aneforge.compiler.pipeline import PHASES, PIPELINE
from aneforge.engine.text import read, write
from aneforge.engine.verify import verify
from aneforge.errors import AneforgeError
from aneforge.files import write_whole


def list_passes(as_json: bool) -> None:
    """Every pass with its phase, purpose and the table fields it reads."""
    records = [
        {
            "pass": known.name,
            "phase": known.phase,
            "purpose": known.purpose,
            "reads": [fact_label(key) for key in known.reads],
        }
        for known in sorted(PASSES.values(), key=_place)
    ]
    if as_json:
        print(text.as_json(records))
        return
    rows = [(record["phase"], record["pass"], record["purpose"], record["reads"]) for record in records]
    print(text.columns(("phase", "pass", "purpose", "reads"), rows))


def _place(known: Pass) -> tuple[int, int]:
    """By phase, then in the order of the pipeline."""
    return known.phase, PIPELINE.index(known.name) if known.name in PIPELINE else len(PIPELINE)


def pass_names(passes: str) -> tuple[list[str], list[str]]:
    """The passes that were asked for, phases spelled out; they are taken to run on code that is ready for them."""
    names: list[str] = []
    for part in (part.strip() for part in passes.split(",")):
        names += PHASES.get(part, (part,) if part else ())
    graphs = [name for name in names if name in PHASES["legal"]]
    if graphs:
        raise AneforgeError(
            f"{graphs[0]}: a pass over graphs, and this is backend code; choose passes of phases 1 to 4"
        )
    return names, [fact for known in PASSES.values() for fact in known.ensures]


def run(file: str, passes: str, target: str | None, out: str | None, as_json: bool) -> None:
    """Parse, run, verify, print."""
    require_file(out)
    source = _read(file)
    module, named = read(source)
    verify(module)
    name = named if target is None else one_chip(target)
    if name is None:
        raise AneforgeError("--target: the text names no chip. Give one, for instance --target h13.")
    chip = find_target(name)
    names, ensured = pass_names(passes)
    with working(f"running {passes or 'no passes'} on {file}"):
        entries = run_passes(module, chip, names, ensured)
    show_code(write(module, chip.name), chip.name, [], [str(entry) for entry in entries], out, as_json)


def show_code(code: str, target: str, rewritten: list[str], log: list[str], out: str | None, as_json: bool) -> None:
    """Backend code on stdout or in a file; with ``-v``, what was done to it on stderr."""
    for line in [*(f"rewritten {step}" for step in rewritten), *log]:
        say.detail(f"// {line}")
    if out is not None:
        write_whole(out, code)
        say.note(f"wrote {out}")
    if as_json:
        record = {"target": target, "rewritten": rewritten, "passes": log}
        print(text.as_json({**record, "out": out} if out is not None else {**record, "code": code}))
    elif out is None:
        print(code, end="")


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AneforgeError(f"{file}: cannot be read ({error})") from None
