"""``af.compile_all``: one model as a program for each chip; the report that ``aneforge compile`` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.chips.assumed import fact_label
from aneforge.chips.names import chip_labels, with_label
from aneforge.chips.names import target as find_target
from aneforge.compiler.compile import build_files
from aneforge.compiler.passes import PASSES
from aneforge.compiler.pipeline import PHASES
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import CompileError
from aneforge.errors import UnknownNameError
from aneforge.files import write_folder
from aneforge.formats.arguments import Chips, Source
from aneforge.study.listing import host_reasons
from aneforge.study.partition import Partition
from aneforge.study.study import Study
from aneforge.text import WIDTH, human_bytes, wrapped

_MOST_REGIONS = 12


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
    reason; it does not stop the others, and ``.split`` has the regions that it runs. ``route`` is as for
    ``af.compile``.

    >>> import aneforge as af
    >>> programs = af.compile_all(af.input((1, 64)).relu(), "m1,m5")
    >>> list(programs), programs.ok
    (['h13', 'h17'], True)
    """
    study = Study(model, target, route=route, dims=dims, function=function)
    compiled = study.shelf.programs(study.targets, study.route)
    refusing = {chip.name: chip for chip in study.targets if isinstance(compiled[chip.name], CompileError)}
    return Programs(compiled, study.with_chips(refusing).partitions() if refusing else {})


class Programs(Mapping[str, Program]):
    """Programs by target name, and why the rest was refused. ``print`` shows the one program, or how many distinct
    programs there are and what each phase did for them."""

    def __init__(
        self, compiled: Mapping[str, Program | CompileError], split: Mapping[str, Partition] | None = None
    ) -> None:
        self.asked = tuple(compiled)
        self._programs = {name: one for name, one in compiled.items() if isinstance(one, Program)}
        self.refused = {name: one for name, one in compiled.items() if isinstance(one, CompileError)}
        self.split: Mapping[str, Partition] = split or {}
        """How the chips that refuse the model as a whole run it in regions, by target name."""

    def __getitem__(self, name: str) -> Program:
        """The program for a target, named by the target or one of its chips. Raises the refusal of a target that
        refused."""
        known = self._named(name)
        if known in self.refused:
            raise self.refused[known]
        if known not in self._programs:
            raise UnknownNameError(f"{name}: no program was compiled for it; choose one: {', '.join(self.asked)}")
        return self._programs[known]

    def __contains__(self, name: object) -> bool:
        """Whether there is a program for a target."""
        try:
            return isinstance(name, str) and self._named(name) in self._programs
        except UnknownNameError:
            return False

    def _named(self, name: str) -> str:
        return name if name in self.asked else find_target(name).name

    def __iter__(self) -> Iterator[str]:
        return iter(self._programs)

    def __len__(self) -> int:
        return len(self._programs)

    def groups(self) -> list[list[str]]:
        """Targets grouped by equal programs, in the order of the targets."""
        by_fingerprint: dict[str, list[str]] = {}
        for name, program in self._programs.items():
            by_fingerprint.setdefault(program.fingerprint, []).append(name)
        return list(by_fingerprint.values())

    @property
    def distinct(self) -> int:
        """How many different programs there are."""
        return len(self.groups())

    @property
    def ok(self) -> bool:
        """Whether every chip runs the model, as a whole or in part."""
        return all(name in self.split and self.split[name].useful for name in self.refused)

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
            "regions": {name: _regions_json(split) for name, split in self.split.items() if split.useful},
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

    def __repr__(self) -> str:
        return f"<{len(self)} programs, {self.distinct} distinct, {len(self.refused)} targets refused>"

    def __str__(self) -> str:
        if len(self) == 1 and not self.refused:
            return program_text(next(iter(self.values())))
        return "\n\n".join(self._parts())

    def _parts(self) -> Iterator[str]:
        named = dict(zip(_letters(), self.groups(), strict=False))
        lines = [_table(self, named)] if named else []
        for letter, names in named.items():
            lines.append(wrapped(f"{letter}: {chip_labels(names)}", hanging="   "))
        if lines:
            yield "\n".join(lines)
        if not len(self) and self.ok:
            counts = "no chip takes the model as one program"
        else:
            counts = f"{_count(len(self), 'target')}, {_count(len(named), 'distinct program')}"
        direct = [name for name, program in self.items() if program.route == "direct"]
        if direct:
            by_hand = "built by the direct route (authored layers, no conversion)"
            counts += "\n" + wrapped(f"{by_hand}: {chip_labels(direct)}")
        yield counts
        for letters, lines in self._phases(named):
            head = f"program{'s' if len(letters) > 1 else ''} {', '.join(letters)}, what each phase did:"
            yield f"{head}\n{textwrap.indent(chr(10).join(lines), '  ')}"
        for names, split in self._alike():
            yield f"{wrapped(f'in regions on {chip_labels(names)}:')}\n{regions_text(split)}"
        for names, reason in self._refusals():
            yield "\n".join([wrapped(f"refused by {chip_labels(names)}:"), wrapped(reason, "  ", "")])

    def _alike(self) -> list[tuple[list[str], Partition]]:
        """Chips that run the model in part, by equal regions."""
        groups: dict[tuple[int, str], tuple[list[str], Partition]] = {}
        for name, split in self.split.items():
            if split.useful:
                key = id(split.cut), str([program.fingerprint for program in split.programs.values()])
                groups.setdefault(key, ([], split))[0].append(name)
        return list(groups.values())

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
            if name in self.split and self.split[name].useful:
                continue
            where = f"{', '.join(error.sources)}: " if error.sources else ""
            quote = (
                f'; the compiler says "{error.reject}"' if error.reject and error.reject not in error.reason else ""
            )
            said = f"{where}{error.reason}{quote} (pass {error.refused_by})"
            reason = with_label(said, find_target(name), "this chip")
            targets_by_reason.setdefault(reason, []).append(name)
        return [(names, reason) for reason, names in targets_by_reason.items()]


def regions_text(split: Partition) -> str:
    """A model in regions: what is compiled of it for the engine, and which ops stay on the host and why."""
    rows = []
    for region in split.regions[:_MOST_REGIONS]:
        stats = split.programs[region.number].stats if region.number in split.programs else None
        figures = ("-", "-", "-") if stats is None else (
            stats["segments"], stats["layers"], human_bytes(stats["kernel_bytes"])
        )  # fmt: skip
        rows.append((region.number, region.device, len(region.nodes), *figures))
    lines = [f"{split.verdict}: {split.summary()}", ""]
    lines.append(text.columns(("region", "device", "ops", "segments", "layers", "weights"), rows))
    if len(split.regions) > _MOST_REGIONS:
        lines.append(f"  and {len(split.regions) - _MOST_REGIONS} more regions (aneforge partition --all lists them)")
    return "\n".join([*lines, "", "on the host:", *host_reasons(split)])


def _regions_json(split: Partition) -> dict[str, Any]:
    programs = {str(number): program.to_json() for number, program in split.programs.items()}
    return {"partition": split.to_json(), "programs": programs}


def write_regions(split: Partition, folder: str | Path) -> Sequence[str]:
    """A build for each engine region in a numbered folder, with the partition beside them; the folders' names."""
    contents = {
        "partition.txt": f"{split.text(everything=True)}\n",
        "partition.json": f"{text.as_json(split.to_json())}\n",
    }
    folders = []
    for number, program in split.programs.items():
        folders.append(f"region-{number}")
        contents |= {f"region-{number}/{name}": content for name, content in build_files(program).items()}
    write_folder(folder, contents)
    return folders


def program_text(program: Program) -> str:
    """One program in full: what each phase did, what is assumed, and the listing."""
    return "\n".join([*_phase_lines(program), _assumptions(program), str(program).rstrip("\n")])


def _phase_lines(program: Program) -> list[str]:
    """What each phase did: the passes that changed something."""
    lines = []
    for number, name in enumerate(PHASES):
        changed = [f"{entry.name} {entry.changes}" for entry in program.log if entry.phase == number and entry.changes]
        line = f"phase {number} ({name}): {', '.join(changed) or 'no changes'}"
        lines += textwrap.wrap(line, WIDTH, subsequent_indent="  ")
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
    return "\n".join(textwrap.wrap(f"assumed where nothing is published: {choices}", WIDTH, subsequent_indent="  "))


def _table(compiled: Programs, named: Mapping[str, list[str]]) -> str:
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
