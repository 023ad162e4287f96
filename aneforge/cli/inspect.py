"""``aneforge inspect``: what a compiled program holds, and what two of them state differently."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aneforge import text
from aneforge.cli.notes import working
from aneforge.codegen.anec import Anec, read_compiled
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.container import Container
from aneforge.codegen.describe import differences, find_task, raw, task_in_full, tree
from aneforge.codegen.word_rules import rule_of
from aneforge.errors import AneforgeError, shown

_WORDS = 120  # of a value in a line


def run(file: str, other: str | None, task: int | None, words: bool, as_json: bool) -> int:
    """Print the program, or what differs from another; 1 if something does."""
    if words and (as_json or other):
        raise AneforgeError("--raw prints words as they are; leave out --json and --compare")
    if other is not None:
        return _compare(file, other, task, as_json)
    _show(_read(file), task, words, as_json)
    return 0


def _read(file: str) -> Container | Anec:
    """The program, with every task taken apart, so that an error names the file that has it."""
    try:
        with working(f"reading {Path(file).name}"):
            program = read_compiled(file)
            if isinstance(program, Container):
                _ = program.symbols, program.program.name, [port.to_json() for port in program.ports]
            for task in program.tasks:
                _ = task.commands
    except ContainerError as error:
        raise AneforgeError(f"{Path(file).name}: {error}") from None
    return program


def read_container_file(file: str) -> Container:
    """A container; a file of the driver is refused."""
    program = _read(file)
    if not isinstance(program, Container):
        raise AneforgeError(f"{Path(file).name}: not a container; give a .hwx file")
    return program


def _show(program: Container | Anec, task: int | None, words: bool, as_json: bool) -> None:
    if as_json:
        print(text.as_json(program.to_json() if task is None else find_task(program, task).to_json()))
    elif words:
        _print(raw(program, task))
    else:
        _print(tree(program) if task is None else task_in_full(program, task))


def _print(lines: Iterable[str]) -> None:
    """Names are a stranger's: nothing in them is obeyed by the terminal."""
    print("\n".join(map(shown, lines)))


def _compare(file: str, other: str, task: int | None, as_json: bool) -> int:
    programs = _read(file), _read(other)
    changes = differences(*programs, task)
    generation = programs[0].generation
    if as_json:
        rows = [
            {"name": name, "left": left, "right": right, "rule": rule_of(name, generation) or None}
            for name, left, right in changes
        ]
        print(text.as_json({"left": Path(file).name, "right": Path(other).name, "differences": rows}))
    elif changes:
        _print(line for change in changes for line in _lines(*change, generation))
    else:
        print("the programs are the same")
    return 1 if changes else 0


def _lines(name: str, left: Any, right: Any, generation: str) -> Iterable[str]:
    """What differs, and the rule that writes such a word."""
    yield f"{name}: {_value(left)} | {_value(right)}"
    rule = rule_of(name, generation)
    if rule:
        yield f"    rule: {rule}"


def _value(value: Any) -> str:
    if value is None:
        return "not stated"
    words = str(value)
    return words if len(words) <= _WORDS else f"{words[:_WORDS]} ... ({len(words)} characters)"
