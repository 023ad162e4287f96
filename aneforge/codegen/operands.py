"""The words of a task by meaning, with what a register holds where a task does not write it, and where tensors lie."""

from __future__ import annotations

from dataclasses import dataclass

from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.dialect import dialect_of, meaning_of, resolved, written_generations
from aneforge.codegen.memory import SCRATCH, Layout, Place
from aneforge.codegen.registers import register_map
from aneforge.codegen.stream import is_indexed
from aneforge.codegen.tasks import Task

_HALF_ONE, _SINGLE_ONE, _NUMBERS = 0x3C00, 0x3F800000, 0x3C000000
_ONES = (
    *("in.depth", "out.depth", "kernel.width", "kernel.height", "kernel.stride_x", "kernel.stride_y"),
    *("groups", "unicast.channels"),
)
_ELEMENT = 2


@dataclass(frozen=True)
class Operand:
    """A tensor that a task reads or writes: its place, and how it lies there."""

    place: Place
    layout: Layout

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape


class TaskRegisters:
    """The words of one task by meaning. Generations to h13 write every register; later ones leave out what a register
    holds by itself. A word that is missing and has no known default is an error that names it."""

    def __init__(self, task: Task) -> None:
        self.task = task
        if task.generation not in written_generations():
            known = written_generations()
            raise self.error(f"is of {task.generation}; programs of {known[0]} to {known[-1]} are read back to ops")
        self.dialect = dialect_of(task.generation)
        self.is_sparse = is_indexed(task.generation)
        self._bars = {command.places[0]: command for command in task.commands if command.bar is not None}

    def __getitem__(self, meaning: str) -> int:
        value = meaning_of(self.task, meaning)
        if value is None:
            value = self._default(meaning)
        if value is None:
            raise self.error(f"does not write {meaning}")
        return value

    def _default(self, meaning: str) -> int | None:
        if meaning in ("planar.bias_scale", "planar.scale", "mac.scale", *_ONES):
            known = {"planar.bias_scale": _NUMBERS, "planar.scale": _SINGLE_ONE, "mac.scale": _HALF_ONE}
            return known.get(meaning, 1)
        if not self.is_sparse and resolved(self.task.generation, meaning) is not None:
            return None
        side, _, axis = meaning.partition(".")
        if side in ("in", "out"):
            return self.dialect.default_channels if axis == "channels" else self.dialect.default_width
        return self.dialect.default_lanes if meaning == "outputs_per_core" else 0

    def word(self, block: str, name: str) -> int:
        value = self.task.word(register_map(self.task.generation).register(block, name).address)
        if value is None and not self.is_sparse:
            raise self.error(f"does not write {block}.{name}")
        return value or 0

    def error(self, message: str) -> ContainerError:
        return ContainerError(self.task.offset, f"task {self.task.header.get('TID')} {message}")

    # Where tensors lie.

    def memory_place(self, side: str) -> Place:
        """The base-address register of a tensor in memory, and the offset there."""
        if not self.is_sparse:
            named = {"source": "RBase0", "second": "RBase1", "result": "WBase"}[side]
            return self.task.header[named], self[f"{side}.base"]
        place = self._relocated(f"{side}.base")
        if place is None:
            raise self.error(f"moves its {side} and adds no base address to it")
        return place

    def kernel_place(self) -> Place | None:
        """The base-address register of the coefficients, and the offset there; None for a task without."""
        if not self.is_sparse:
            return self.task.header["KBase0"], 0
        return self._relocated("constants.base")

    def table_place(self) -> Place | None:
        return self._relocated("table.base") if self.is_sparse else None

    def _relocated(self, meaning: str) -> Place | None:
        found = resolved(self.task.generation, meaning)
        command = None if found is None or found[0].address is None else self._bars.get(found[0].address)
        return None if command is None or command.bar is None else (command.bar, command.values[0])

    def operand(self, side: str, shape: tuple[int, ...]) -> Operand:
        """A tensor of [images, depth, channels, rows, columns] that a task reads or writes."""
        if self.is_in_memory(side):
            place = self.memory_place(side)
            parts = [self[f"{side}.{part}"] for part in ("group", "depth", "plane", "row")]
            return Operand(place, Layout(shape, (*parts, _ELEMENT)))
        return self.in_scratch(side, shape)

    def in_scratch(self, side: str, shape: tuple[int, ...]) -> Operand:
        """Where a tensor lies in the engine's own memory, also one that comes from memory."""
        base = self.word("L2", "ResultBase") if side == "result" else self[f"scratch.{side}.base"]
        parts = [self[f"scratch.{side}.{part}"] for part in ("group", "depth", "channel", "row")]
        return Operand((SCRATCH, base), Layout(shape, (*parts, _ELEMENT)))

    def is_in_memory(self, side: str) -> bool:
        """Whether memory brings or takes a tensor; h13 says so of the second source by other bits."""
        if self.is_sparse:
            return self._relocated(f"{side}.base") is not None
        return bool(self[f"{side}.config"] & (_SECOND_OF_H13 if side == "second" else 1))


_SECOND_OF_H13 = 0x30000
