"""Tasks: their headers by name, their register writes, and the chain from the first to the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

from aneforge.codegen.bounds import Bytes
from aneforge.codegen.registers import Field, Register, generations, register_map
from aneforge.codegen.stream import Command, decode, encode
from aneforge.targets import store

__all__ = ["Task", "header_fields", "read_tasks"]

_MOST_TASKS = 1 << 20  # published programs have up to 10,240 tasks


@cache
def header_fields(generation: str) -> tuple[tuple[Field, ...], ...]:
    """The fields of each word of a task's header."""
    headers = store.load("programs")["headers"]
    facts = headers[generation]
    while "same_as" in facts:
        facts = headers[facts["same_as"]]
    return tuple(tuple(Field(*field) for field in word) for word in facts["words"])


@cache
def _field(generation: str, name: str) -> tuple[int, Field] | None:
    for place, fields in enumerate(header_fields(generation)):
        for field in fields:
            if field.name == name:
                return place, field
    return None


class Task:
    """One task descriptor: the words of its header and the commands behind it."""

    def __init__(self, generation: str, header_words: Sequence[int], body: Sequence[int], offset: int = 0) -> None:
        self.generation = generation
        self.header_words = list(header_words)
        self.offset = offset
        """Where it lies in the text section, in bytes."""
        self._body = body
        self._place = offset

    @cached_property
    def commands(self) -> list[Command]:
        return decode(self._body, self.generation, self._place)

    @property
    def writes(self) -> list[tuple[int, int]]:
        """(byte address, value) of every word that the task writes, in the order of the stream."""
        return [write for command in self.commands for write in command.writes()]

    @property
    def words(self) -> list[int]:
        """The whole task."""
        return [*self.header_words, *encode(self.commands, self.generation)]

    @property
    def header(self) -> dict[str, int]:
        """The fields of the header by name; the word of a dependency as ``DTID``."""
        named = header_fields(self.generation)
        fields = {
            field.name: field.read(word)
            for word, fields in zip(self.header_words, named, strict=False)
            for field in fields
        }
        extra = self.header_words[len(named) :]
        return {**fields, **({"DTID": extra[0]} if extra else {})}

    def written(self) -> list[tuple[int, int, Register | None]]:
        """(byte address, value, register) of every write; no register where the map has none."""
        if self.generation not in generations():
            return [(address, value, None) for address, value in self.writes]
        by_address = register_map(self.generation).by_address
        if not by_address:  # of h11 the blocks have an order, and no published address
            return list(_in_order(self))
        return [(address, value, by_address.get(address)) for address, value in self.writes]

    @property
    def registers(self) -> dict[str, int]:
        """Every named field that the task writes: ``Common.InDim.Win``. A word without fields is named by its
        register, and a word that the map does not have by its address."""
        named: dict[str, int] = {}
        for address, value, register in self.written():
            if register is None:
                named[f"unknown.{address:#07x}"] = value
            elif not register.is_known:
                named[f"{register.block}.{register.name}"] = value
            else:
                for field in register.fields:
                    named[f"{register.block}.{register.name}.{field.name}"] = field.read(value)
        return named

    @cached_property
    def _by_address(self) -> dict[int, int]:
        return dict(self.writes)

    def word(self, address: int | None) -> int | None:
        """The word that the task writes at an address; None where it writes none."""
        return None if address is None else self._by_address.get(address)

    def to_json(self) -> dict[str, Any]:
        return {
            "offset": self.offset,
            "header_words": [f"{word:#010x}" for word in self.header_words],
            "header": self.header,
            "registers": self.registers,
            "writes": [[f"{address:#07x}", f"{value:#010x}"] for address, value in self.writes],
        }

    def __repr__(self) -> str:
        return f"<Task {self.header.get('TID')} of {self.generation}, {len(self.commands)} commands>"


def _in_order(task: Task) -> Any:
    """The writes of h11, whose blocks come in a fixed order: eight kernel blocks, then the others."""
    known = register_map(task.generation)
    kernel = known.blocks["KernelDMASrc"].registers
    rest = [register for name, block in known.blocks.items() if name != "KernelDMASrc" for register in block.registers]
    registers: list[Register | None] = [*(kernel * 8), *rest]
    writes = task.writes
    registers += [None] * (len(writes) - len(registers))
    return ((address, value, register) for (address, value), register in zip(writes, registers, strict=False))


def read_tasks(text: Bytes, generation: str, first: int, words: int, count: int) -> list[Task]:
    """The chain of tasks in a text section. ``first`` is where the first one lies, ``words`` its size as the program
    descriptor states it (generations to h13), ``count`` how many there are."""
    if count > _MOST_TASKS or count * 16 > len(text) + 16:
        raise text.error(0, f"the program claims {count} tasks, but its text has {len(text)} bytes")
    reader = _chained if _field(generation, "NextPointer") else _packed
    return reader(text, generation, first, words, count)


def _chained(text: Bytes, generation: str, first: int, words: int, count: int) -> list[Task]:
    """Each task says where the next one lies and how large it is."""
    tasks: list[Task] = []
    place, seen = first, set()
    while len(tasks) < count:
        if place in seen:
            raise text.error(place, f"the chain of tasks comes back to {place:#x} after {len(tasks)} tasks")
        seen.add(place)
        tasks.append(_task(text, generation, place, words))
        header = tasks[-1].header
        place, words = header["NextPointer"], header["NextSize"] + 1
        if place == 0:
            break
    if len(tasks) != count:
        raise text.error(first, f"the chain ends after {len(tasks)} tasks; the program has {count}")
    if place != 0:
        raise text.error(first, f"the chain goes on at {place:#x} behind the {count} tasks of the program")
    return tasks


def _packed(text: Bytes, generation: str, first: int, words: int, count: int) -> list[Task]:
    """Tasks lie behind each other at multiples of 16 bytes, and each says its own size."""
    known = _field(generation, "TaskWords")
    assert known is not None
    tasks: list[Task] = []
    place = first
    if not any(text.words(place, 4, "the frame in front of the first task")):
        place += 16  # published programs begin with four words of zeros
    for _ in range(count):
        size = known[1].read(text.u32(place, "a task"))
        tasks.append(_task(text, generation, place, size))
        place += -(-4 * size // 16) * 16
    return tasks


def _task(text: Bytes, generation: str, place: int, words: int) -> Task:
    named = header_fields(generation)
    if place % 4 or words < len(named):
        raise text.error(place, f"a task of {words} words at {place:#x}; a header alone has {len(named)} words")
    every = text.words(place, words, "a task")
    length = len(named) + _has_dependency(generation, every)
    if words < length:
        raise text.error(place, f"a task of {words} words has no room for its dependency")
    task = Task(generation, every[:length], every[length:], place)
    task._place = text.start + place + 4 * length
    return task


def _has_dependency(generation: str, words: Sequence[int]) -> int:
    known = _field(generation, "TDE")
    return known[1].read(words[known[0]]) if known else 0


def header_values(generation: str, fields: Mapping[str, int]) -> list[int]:
    """The words of a header from fields by name."""
    words = [0] * len(header_fields(generation))
    for name, value in fields.items():
        known = _field(generation, name)
        if known is None:
            raise ValueError(f"{name}: not a field of the header of {generation}")
        place, field = known
        words[place] = field.write(words[place], value)
    return words
