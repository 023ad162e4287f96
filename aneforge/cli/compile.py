"""``aneforge compile``: a model as a program for one chip, or as programs for many."""

from __future__ import annotations

import sys
import textwrap
from typing import Any

from aneforge.cli.model_file import ModelFile, load_model
from aneforge.cli.warned import warnings_on_stderr
from aneforge.compiler.compile import Compiled, compile_all
from aneforge.compiler.listing import human_bytes
from aneforge.compiler.passes import PASSES
from aneforge.compiler.pipeline import PHASES
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import CompileError
from aneforge.cost.estimate import DispatchFloorWarning
from aneforge.errors import AneforgeError
from aneforge.model import Model
from aneforge.model import compile as compile_model
from aneforge.output import text
from aneforge.targets.assumed import fact_label
from aneforge.targets.chip import compiler_target
from aneforge.targets.listed import chip_list


def run(
    model: str | ModelFile,
    chips: str,
    explain: str | None,
    out: str | None,
    validate: bool,
    as_json: bool,
    route: str | None = None,
) -> int:
    """Print the program, the story of a node, or the table of all targets; 1 if a target refuses the model."""
    graph = load_model(model)
    asked = chip_list(chips)
    if len(asked) == 1:
        try:
            with warnings_on_stderr(DispatchFloorWarning):  # times are for aneforge estimate
                compiled_model = compile_model(graph, build_dir=out, validate=validate, target=asked[0], route=route)
            _one(compiled_model, explain, as_json)
        except CompileError as error:  # as with several targets: nothing was wrong with what was asked
            print(f"aneforge: {error}", file=sys.stderr)
            return 1
        return 0
    if explain or out or validate:
        raise AneforgeError("--explain, --out and --validate take one target, for instance --target m1")
    compiled = compile_all(graph, asked, route)
    if as_json:
        print(text.as_json(_record(compiled)))
    else:
        _table(compiled)
    return 1 if compiled.refused else 0


def _one(model: Model, explain: str | None, as_json: bool) -> None:
    if explain:
        told = model.explain(None if explain == "all" else explain)
        print(text.as_json(told.to_json()) if as_json else str(told).rstrip())
    elif as_json:
        import json

        print(json.dumps(model.program.to_json(), indent=2, default=list))
    else:
        print("\n".join(phase_lines(model.program)))
        print(assumed(model.program))
        print(str(model.program), end="")


def phase_lines(program: Program) -> list[str]:
    """What each phase did: the passes that changed something."""
    lines = []
    for number, name in enumerate(PHASES):
        done = [f"{each.name} {each.changes}" for each in program.log if each.phase == number and each.changes]
        told = f"phase {number} ({name}): {', '.join(done) or 'no changes'}"
        lines += textwrap.wrap(told, 116, subsequent_indent="  ")
    return lines


def assumed(program: Program) -> str:
    """Our own choices behind a program, each once."""
    found: dict[str, list[str]] = {}
    for _, key, fact in program.assumptions:
        keys = found.setdefault(fact.conflict_id or "", [])
        if key not in keys:
            keys.append(key)
    if not found:
        return "rests on published facts only"
    told = "; ".join(f"{choice} ({', '.join(keys)})" for choice, keys in sorted(found.items()))
    return "\n".join(textwrap.wrap(f"assumed where nothing is published: {told}", 116, subsequent_indent="  "))


def _table(compiled: Compiled) -> None:
    named = dict(zip(_letters(), compiled.groups(), strict=False))
    rows = []
    for letter, names in named.items():
        stats = compiled[names[0]].stats
        sizes = (human_bytes(stats[key]) for key in ("kernel_bytes", "peak_l2", "memory_bytes"))
        counts = (stats[key] for key in ("segments", "task_groups", "layers", "chained", "co_issued"))
        rows.append((letter, len(names), *counts, *sizes))
    heads = (
        "program",
        "targets",
        "segments",
        "task groups",
        "layers",
        "chained",
        "pairs",
        "weights",
        "on chip",
        "memory",
    )
    print(text.columns(heads, rows))
    for letter, names in named.items():
        print(textwrap.fill(f"{letter}: {_chips(names)}", 116, subsequent_indent="   "))
    print(f"\n{_count(len(compiled), 'target')}, {_count(len(named), 'distinct program')}")
    if direct := _direct(compiled):
        print(direct)
    for letters, lines in _phases(compiled, named):
        print(f"\nprogram{'s' if len(letters) > 1 else ''} {', '.join(letters)}, what each phase did:")
        print(textwrap.indent("\n".join(lines), "  "))
    for names, reason in _refusals(compiled):
        print(f"\nrefused by {', '.join(names)}:")
        print(textwrap.fill(reason, 116, initial_indent="  ", subsequent_indent="  "))


def _phases(compiled: Compiled, named: dict[str, list[str]]) -> list[tuple[list[str], list[str]]]:
    """What the phases did, once for all programs for which they did the same."""
    found: dict[tuple[str, ...], list[str]] = {}
    for letter, names in named.items():
        found.setdefault(tuple(phase_lines(compiled[names[0]])), []).append(letter)
    return [(letters, list(lines)) for lines, letters in found.items()]


def _letters() -> list[str]:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [*alphabet, *(one + two for one in alphabet for two in alphabet)]


def _chips(names: list[str]) -> str:
    told = []
    for name in names:
        chips = compiler_target(name).chips
        told.append(f"{name} ({chips[0]})" if chips else name)
    return ", ".join(told)


def _direct(compiled: Compiled) -> str:
    names = [name for name, program in compiled.items() if program.route == "direct"]
    return f"built by the direct route (authored layers, no conversion): {', '.join(names)}" if names else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _refusals(compiled: Compiled) -> list[tuple[list[str], str]]:
    """Targets by the reason they give."""
    found: dict[str, list[str]] = {}
    for name, error in compiled.refused.items():
        where = f"{', '.join(error.sources)}: " if error.sources else ""
        said = f'; the compiler says "{error.reject}"' if error.reject and error.reject not in error.reason else ""
        found.setdefault(f"{where}{error.reason}{said} (pass {error.refused_by})", []).append(name)
    return [(names, reason) for reason, names in found.items()]


def _record(compiled: Compiled) -> dict[str, Any]:
    return {
        "distinct": compiled.distinct,
        "groups": compiled.groups(),
        "routes": {name: program.route for name, program in compiled.items()},
        "programs": {name: program.stats for name, program in compiled.items()},
        "refused": {
            name: {
                "refused_by": error.refused_by,
                "reason": error.reason,
                "nodes": list(error.sources),
                "says": error.reject,
            }
            for name, error in compiled.refused.items()
        },
        "passes": [
            {
                "pass": each.name,
                "phase": each.phase,
                "purpose": each.purpose,
                "reads": [fact_label(key) for key in each.reads],
            }
            for each in PASSES.values()
        ],
    }
