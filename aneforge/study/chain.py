"""One program from the first backend code to the task words: what every phase changed, order, memory and words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aneforge import text
from aneforge.codegen.describe import raw
from aneforge.codegen.emission import emit
from aneforge.compiler.compile import compile_target
from aneforge.compiler.passes import Pass, PassLog
from aneforge.compiler.pipeline import OVERLAP, PHASES, passes_until
from aneforge.compiler.plan import Buffer
from aneforge.compiler.program import Program
from aneforge.engine.ir import Module
from aneforge.engine.text import write
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.text import human_bytes

PARTS = ("code", "schedule", "memory", "tasks")
_OP = re.compile(
    r'\s*(?P<result>%\S+ = )?"(?P<op>[\w.]+)"\([^)]*\)(?: \{(?P<attributes>.*)\})? : (?P<types>.*)', re.DOTALL
)
"""A line of the text form: ``%3 = "anec.relu"(%2) {slot = "primary"} : (types) -> type loc("relu_0")``."""
_ATTRIBUTE = re.compile(r'(\w+)(?: = (\[[^\]]*\]|"[^"]*"|[^,]+))?')


class _Snapshots:
    """Watches a pipeline and keeps the code as it is after the last pass of each phase."""

    def __init__(self, target: str, overlap: bool) -> None:
        self.target = target
        self.codes: dict[int, list[str]] = {}
        self._last = {step.phase: step.name for step in passes_until(None, overlap)}

    def __call__(self, step: Pass, entry: PassLog, module: Module) -> None:
        if self._last[step.phase] == step.name:
            self.codes[step.phase] = write(module, self.target).splitlines()


@dataclass(frozen=True)
class Chain:
    """Everything between a graph and the words of its tasks, in the order in which it comes about."""

    program: Program
    codes: dict[str, list[str]] = field(repr=False)
    """The backend code after each phase, by the phase's name, in lines. The first is where lowering ends."""

    @classmethod
    def of(cls, graph: Graph, program: Program) -> Chain:
        """Compile a graph again as ``program`` was, and keep the code after each phase."""
        overlap = any(entry.name in OVERLAP for entry in program.log)
        snapshots = _Snapshots(program.target.name, overlap)
        compiled = compile_target(graph, program.target, snapshots, program.route, overlap)
        names = list(PHASES)
        return cls(compiled, {names[phase]: code for phase, code in sorted(snapshots.codes.items())})

    def changes(self) -> dict[str, list[str]]:
        """The code after the first phase, then what each later phase changed in it as the lines of a diff."""
        diffs: dict[str, list[str]] = {}
        before: list[str] | None = None
        for phase, code in self.codes.items():
            diffs[phase] = code if before is None else list(_diff(before, code))
            before = code
        return diffs

    def schedule(self) -> list[str]:
        """Steps in order: one layer, or two that are issued together."""
        program = self.program
        rows = [
            (number, program.layers[step[0]].task_group, " beside ".join(str(program.layers[place]) for place in step))
            for number, step in enumerate(program.steps)
        ]
        return text.columns(("step", "task group", "layers"), rows).splitlines()

    def memory(self) -> list[str]:
        """Every buffer with its place, its size and the steps between which it is live."""
        rows = [_buffer_row(buffer) for buffer in self.program.buffers]
        return text.columns(("space", "address", "size", "live", "holds"), rows).splitlines()

    def tasks(self) -> list[str]:
        """The words of every task as the container holds them, or why there is no container."""
        try:
            return list(raw(emit(self.program)))
        except AneforgeError as error:
            return [f"no task words: {error}"]

    def text(self, parts: Sequence[str] = PARTS) -> str:
        """The chosen parts under their headings."""
        return "\n".join(line for part in parts for line in self._part(part))

    def _part(self, part: str) -> Iterator[str]:
        if part == "code":
            for phase, lines in self.changes().items():
                yield f"== code after phase {list(PHASES).index(phase)} ({phase})"
                yield from lines or ["no changes"]
            return
        yield f"== {part}"
        yield from {"schedule": self.schedule, "memory": self.memory, "tasks": self.tasks}[part]()

    def to_json(self, parts: Sequence[str] = PARTS) -> dict[str, Any]:
        """The chosen parts as lists of lines, the code by phase."""
        lines = {"schedule": self.schedule, "memory": self.memory, "tasks": self.tasks, "code": self.changes}
        return {"target": self.program.target.name, **{part: lines[part]() for part in parts}}

    def __str__(self) -> str:
        return self.text()


def _diff(before: list[str], after: list[str]) -> Iterator[str]:
    """What changed, line by line: an op that stays shows only the attributes that it gained, lost or changed."""
    heads = [[_head(line) for line in code] for code in (before, after)]
    matcher = difflib.SequenceMatcher(None, *heads, autojunk=False)
    for tag, first, last, start, end in matcher.get_opcodes():
        if tag == "equal":
            for old, new in zip(before[first:last], after[start:end], strict=True):
                yield from _changed_attributes(old, new)
            continue
        yield from (f"- {line.strip()}" for line in before[first:last])
        yield from (f"+ {line.strip()}" for line in after[start:end])


def _head(line: str) -> str:
    """An op without its number, its operands' numbers and its attributes."""
    match = _OP.fullmatch(line)
    return line if match is None else f"{match['op']} {match['types']}"


def _changed_attributes(old: str, new: str) -> Iterator[str]:
    left, right = _OP.fullmatch(old), _OP.fullmatch(new)
    if left is None or right is None:
        return
    were, are = (dict(_ATTRIBUTE.findall(match["attributes"] or "")) for match in (left, right))
    changes = [f"{key}{_shown(value)}" for key, value in are.items() if were.get(key) != value]
    changes += [f"without {key}" for key in were if key not in are]
    if changes:
        yield f"~ {right['result'] or ''}{right['op']}: {', '.join(changes)}"


def _shown(value: str) -> str:
    return f" = {value.replace(' : i64', '')}" if value else ""


def _buffer_row(buffer: Buffer) -> tuple[str, ...]:
    address = "-" if buffer.address is None else f"{buffer.address:#x}"
    holds = ", ".join(str(value) for value in buffer.values)
    return buffer.space, address, human_bytes(buffer.bytes), f"{buffer.live[0]}-{buffer.live[1]}", holds
