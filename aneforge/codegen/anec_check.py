"""A file of the Linux driver, field by field: what the driver reads from the header against what the tasks do.

The fields and the roles of base-address registers are those of ``programs.json`` (anec): 0 the program, 1 its
constants, 3 scratch, from 4 on the outputs and then the inputs. Nothing here was tried on hardware.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aneforge.codegen.anec import SCRATCH_BAR, TILE, Anec
from aneforge.codegen.tasks import Task

_CONSTANTS, _FP16 = 1, 2
_READS = (("RBase0", "RBE0"), ("RBase1", "RBE1"))
_WRITES = (("WBase", "WBE"),)
_KERNELS = tuple((f"KBase{number}", f"KBE{number}") for number in range(4))


@dataclass(frozen=True)
class FieldCheck:
    """One field of the header, or one role of a register."""

    field: str
    stated: str
    expected: str

    @property
    def agrees(self) -> bool:
        return self.stated == self.expected

    def __str__(self) -> str:
        return f"{self.field}: {self.stated}" + ("" if self.agrees else f", expected {self.expected}")


def check_fields(program: Anec) -> list[FieldCheck]:
    """Every field that the driver reads, with what the tasks and tensors of the file make it."""
    return [*_sizes(program), *_tensors(program), *_roles(program)]


def driver_lines(program: Anec) -> Iterator[str]:
    """Whether the fields agree, and each that does not."""
    checks = check_fields(program)
    wrong = [check for check in checks if not check.agrees]
    if not wrong:
        yield f"driver: all {len(checks)} fields and registers agree with the tasks"
        return
    yield f"driver: {len(wrong)} of {len(checks)} fields and registers do not agree with the tasks"
    yield from (f"  {check}" for check in wrong)


def _sizes(program: Anec) -> Iterator[FieldCheck]:
    tasks = program.tasks
    sizes = [4 * (len(task.header_words) + sum(1 + len(each.values) for each in task.commands)) for task in tasks]
    first = sizes[0] if sizes else 0
    yield _number("bytes of the first task", program.first_task_bytes, first)
    yield _number("tasks", program.task_count, len(tasks))
    ends = [task.header.get("EON", 0) for task in tasks]
    yield FieldCheck("last task", f"marked in {ends}", f"marked in {[0] * (len(tasks) - 1) + [1]}")
    places = [task.header.get("NextPointer", 0) for task in tasks]
    yield FieldCheck("next tasks", str(places), str([*(task.offset for task in tasks[1:]), 0]))
    size = len(program.text) + len(program.padding) + len(program.constants)
    yield _number("constants at a multiple of 16", (len(program.text) + len(program.padding)) % 16, 0)
    yield _number("tiles of the program", program.tiles[0], _tiles(size))


def _tensors(program: Anec) -> Iterator[FieldCheck]:
    for port in program.ports:
        n, c, h, w = port.shape
        yield _at_least(f"{port.name}: row of {w} halves", port.row_bytes, _FP16 * w)
        yield _at_least(f"{port.name}: plane of {h} rows", port.plane_bytes, port.row_bytes * h)
        yield _at_least(f"{port.name}: tiles", port.tiles, _tiles(n * c * port.plane_bytes))


def _roles(program: Anec) -> Iterator[FieldCheck]:
    """Which registers tasks read and write, by their roles."""
    roles = {port.bar: port.role for port in program.ports} | {_CONSTANTS: "constants", SCRATCH_BAR: "scratch"}
    read, written = set[int](), set[int]()
    for number, task in enumerate(program.tasks):
        for what, fields, allowed in (
            ("reads", _READS, ("input", "output", "scratch", "constants")),
            ("writes", _WRITES, ("output", "scratch")),
            ("reads kernels from", _KERNELS, ("constants", "scratch", "input", "output")),
        ):
            for bar in _named(task, fields):
                role = roles.get(bar, "no tensor")
                expected = role if role in allowed else " or ".join(allowed)
                yield FieldCheck(f"task {number} {what} BAR {bar}", role, expected)
                (written if what == "writes" else read).add(bar)
    for port in program.ports:
        used = port.bar in (written if port.role == "output" else read)
        yield FieldCheck(port.name, "used" if used else "not used", "used")
    scratch = SCRATCH_BAR in read | written
    if scratch and any(_moves_scratch(task) for task in program.tasks):
        yield _at_least("tiles of scratch", program.scratch_tiles, 1)


def _moves_scratch(task: Task) -> bool:
    """Whether memory brings or takes what the task has in scratch; two tasks can hand it over on the chip instead."""
    return bool(task.header["WBE"] and task.header["WBase"] == SCRATCH_BAR)


def _named(task: Task, fields: tuple[tuple[str, str], ...]) -> Iterator[int]:
    for name, enable in fields:
        if task.header[enable]:
            yield task.header[name]


def _tiles(size: int) -> int:
    return -(-size // TILE)


def _number(field: str, stated: int, expected: int) -> FieldCheck:
    return FieldCheck(field, f"{stated:,}", f"{expected:,}")


def _at_least(field: str, stated: int, least: int) -> FieldCheck:
    return FieldCheck(field, f"{stated:,}", f"{stated:,}" if stated >= least else f"{least:,} or more")
