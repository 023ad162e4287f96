"""``af.compile_all``: one model as a program for each chip; the report that ``aneforge compile`` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from aneforge.arguments import Chips, Source, chips_of, graph_of
from aneforge.compiler.compile import Compiled, programs_for
from aneforge.compiler.listing import human_bytes
from aneforge.compiler.passes import PASSES
from aneforge.compiler.pipeline import PHASES
from aneforge.compiler.program import Program
from aneforge.output import text
from aneforge.targets.assumed import fact_label
from aneforge.targets.chip import Target, compiler_target

__all__ = ["Programs", "compile_all", "program_text"]

_WIDTH = 116


def compile_all(
    model: Source,
    target: Chips = "all",
    route: str | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Programs:
    """Compile one model for many chips at once. Chips whose facts agree share the work.

    ``target`` is all 28 targets where it is left out. A chip that refuses the model is in ``.refused`` with its
    reason; it does not stop the others. ``route`` is as for ``af.compile``.
    """
    chips = list({chip.name: chip for chip in chips_of(target, "all").values()}.values())
    return Programs.of(programs_for(graph_of(model, dims, function), chips, route=route))


class Programs(Compiled):
    """Programs by target name, and why the rest was refused. ``print`` shows the one program, or how many distinct
    programs there are and what each phase did for them."""

    @classmethod
    def of(cls, compiled: Compiled) -> Programs:
        return cls(dict(compiled), compiled.refused, compiled.asked)

    @property
    def ok(self) -> bool:
        """Whether no chip refused the model."""
        return not self.refused

    def to_json(self) -> dict[str, Any]:
        """The same shape for one chip and for several: whole programs by target, and why others were refused."""
        return {
            "distinct": self.distinct,
            "groups": self.groups(),
            "programs": {name: program.to_json() for name, program in self.items()},
            "refused": {
                name: {
                    "refused_by": error.refused_by,
                    "reason": error.reason,
                    "nodes": list(error.sources),
                    "says": error.reject,
                }
                for name, error in self.refused.items()
            },
            "passes": [
                {
                    "pass": known.name,
                    "phase": known.phase,
                    "purpose": known.purpose,
                    "reads": [fact_label(key) for key in known.reads],
                }
                for known in PASSES.values()
            ],
        }

    def __str__(self) -> str:
        if len(self) == 1 and not self.refused:
            return program_text(next(iter(self.values())))
        return "\n\n".join(self._parts())

    def _parts(self) -> Iterator[str]:
        named = dict(zip(_letters(), self.groups(), strict=False))
        lines = [_table(self, named)] if named else []
        for letter, names in named.items():
            lines.append(textwrap.fill(f"{letter}: {_chips(names)}", _WIDTH, subsequent_indent="   "))
        if lines:
            yield "\n".join(lines)
        counts = f"{_count(len(self), 'target')}, {_count(len(named), 'distinct program')}"
        direct = [name for name, program in self.items() if program.route == "direct"]
        if direct:
            counts += f"\nbuilt by the direct route (authored layers, no conversion): {', '.join(direct)}"
        yield counts
        for letters, lines in self._phases(named):
            head = f"program{'s' if len(letters) > 1 else ''} {', '.join(letters)}, what each phase did:"
            yield f"{head}\n{textwrap.indent(chr(10).join(lines), '  ')}"
        for names, reason in self._refusals():
            filled = textwrap.fill(reason, _WIDTH, initial_indent="  ", subsequent_indent="  ")
            yield f"refused by {', '.join(names)}:\n{filled}"

    def _phases(self, named: Mapping[str, list[str]]) -> list[tuple[list[str], list[str]]]:
        """What the phases did, once for all programs for which they did the same."""
        letters_by_lines: dict[tuple[str, ...], list[str]] = {}
        for letter, names in named.items():
            letters_by_lines.setdefault(tuple(_phase_lines(self[names[0]])), []).append(letter)
        return [(letters, list(lines)) for lines, letters in letters_by_lines.items()]

    def _refusals(self) -> list[tuple[list[str], str]]:
        """Targets by the reason they give."""
        targets_by_reason: dict[str, list[str]] = {}
        for name, error in self.refused.items():
            where = f"{', '.join(error.sources)}: " if error.sources else ""
            quote = (
                f'; the compiler says "{error.reject}"' if error.reject and error.reject not in error.reason else ""
            )
            reason = f"{where}{error.reason}{quote} (pass {error.refused_by})"
            targets_by_reason.setdefault(reason, []).append(name)
        return [(names, reason) for reason, names in targets_by_reason.items()]


def program_text(program: Program) -> str:
    """One program in full: what each phase did, what is assumed, and the listing."""
    return "\n".join([*_phase_lines(program), _assumptions(program), str(program).rstrip("\n")])


def _phase_lines(program: Program) -> list[str]:
    """What each phase did: the passes that changed something."""
    lines = []
    for number, name in enumerate(PHASES):
        changed = [f"{entry.name} {entry.changes}" for entry in program.log if entry.phase == number and entry.changes]
        line = f"phase {number} ({name}): {', '.join(changed) or 'no changes'}"
        lines += textwrap.wrap(line, _WIDTH, subsequent_indent="  ")
    return lines


def _assumptions(program: Program) -> str:
    """Our own choices behind a program, each once."""
    keys_by_choice: dict[str, list[str]] = {}
    for _, key, fact in program.assumptions:
        keys = keys_by_choice.setdefault(fact.conflict_id or "", [])
        if key not in keys:
            keys.append(key)
    if not keys_by_choice:
        return "rests on published facts only"
    choices = "; ".join(f"{choice} ({', '.join(keys)})" for choice, keys in sorted(keys_by_choice.items()))
    return "\n".join(textwrap.wrap(f"assumed where nothing is published: {choices}", _WIDTH, subsequent_indent="  "))


def _table(compiled: Compiled, named: Mapping[str, list[str]]) -> str:
    rows = []
    for letter, names in named.items():
        stats = compiled[names[0]].stats
        sizes = (human_bytes(stats[key]) for key in ("kernel_bytes", "peak_l2", "memory_bytes"))
        counts = (stats[key] for key in ("segments", "task_groups", "layers", "chained", "co_issued"))
        rows.append((letter, len(names), *counts, *sizes))
    heads = ("program", "targets", "segments", "task groups", "layers", "chained", "pairs")
    return text.columns((*heads, "weights", "on chip", "memory"), rows)


def _letters() -> list[str]:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [*alphabet, *(one + two for one in alphabet for two in alphabet)]


def _chips(names: list[str]) -> str:
    return ", ".join(_with_product(compiler_target(name)) for name in names)


def _with_product(target: Target) -> str:
    return f"{target.name} ({target.chips[0]})" if target.chips else target.name


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
