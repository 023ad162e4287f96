"""Tasks: their headers by name, their register writes, and the chain from the first to the last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

from aneforge.chips import store
from aneforge.codegen.bounds import Bytes
from aneforge.codegen.registers import Field, Register, generations, register_map
from aneforge.codegen.stream import Command, decode, encode

_MOST_TASKS = 1 << 20  # published programs have up to 10,240 tasks
_TAKEN_FROM = {"h12": "h11"}  # U109: the header of h12 is not published; both are chains of the older form


@cache
def header_fields(generation: str) -> tuple[tuple[Field, ...], ...]:
    """The fields of each word of a task's header."""
    headers = store.load("programs")["headers"]
    facts = headers[_TAKEN_FROM.get(generation, generation)]
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

    def __init__(
        self,
        generation: str,
        header_words: Sequence[int],
        body: Sequence[int],
        offset: int = 0,
        file_offset: int | None = None,
    ) -> None:
        self.generation = generation
        self.header_words = list(header_words)
        self.offset = offset
        """Where it lies in the text section, in bytes."""
        self.end = offset + 4 * (len(header_words) + len(body))
        """The byte behind it as it was read."""
        self.file_offset = offset if file_offset is None else file_offset
        """Where it lies in the file."""
        self._body = body
        self._as_read = tuple(header_words)

    @cached_property
    def commands(self) -> list[Command]:
        return decode(self._body, self.generation, self.file_offset + 4 * len(self.header_words))

    def header_field(self, name: str) -> int:
        """One field of the header; an error if the generation has none of the name."""
        known = _field(self.generation, name)
        if known is None:
            raise KeyError(name)
        return known[1].read(self.header_words[known[0]])

    @property
    def writes(self) -> list[tuple[int, int]]:
        """(byte address, value) of every word that the task writes, in the order of the stream."""
        return [write for command in self.commands for write in command.writes()]

    @property
    def words(self) -> list[int]:
        """The whole task."""
        return [*self.header_words, *(encode(self.commands, self.generation) if self._is_decoded else self._body)]

    @property
    def _is_decoded(self) -> bool:
        """What nobody has looked at is as it was read."""
        return "commands" in vars(self)

    @property
    def may_have_changed(self) -> bool:
        """Whether its words can differ from those that it was made of."""
        return self._is_decoded or self._as_read != tuple(self.header_words)

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
            registers = _by_order(self.commands, self.generation)
            return [(*write, register) for write, register in zip(self.writes, registers, strict=True)]
        return [(address, value, by_address.get(address)) for address, value in self.writes]

    @property
    def registers(self) -> dict[str, int]:
        """Every named field that the task writes: ``Common.InDim.Win``. A word without fields is named by its
        register, bits of no field by ``unknown_bits``, and a word that the map does not have by its address."""
        named: dict[str, int] = {}
        for name, value, register in self._named():
            if register is None or not register.is_known:
                named[name] = value
                continue
            for field in register.fields:
                named[f"{name}.{field.name}"] = field.read(value)
            if value & register.unknown_bits:
                named[f"{name}.unknown_bits"] = value & register.unknown_bits
        return named

    def _named(self) -> Iterator[tuple[str, int, Register | None]]:
        """(name, value, register) of every write. Blocks that a generation repeats are numbered."""
        seen: dict[int, int] = {}
        repeats = repeated_block(self.generation)
        for address, value, register in self.written():
            if register is None:
                yield f"unknown.{address:#07x}", value, None
                continue
            number = seen[id(register)] = seen.get(id(register), -1) + 1
            copy = f"[{number}]" if register.block == repeats else ""
            yield f"{register.block}{copy}.{register.label}", value, register

    def word(self, address: int | None) -> int | None:
        """The word that the task writes at an address, the last one if it writes several; None where it writes
        none."""
        for command in reversed(self.commands):
            if address in command.places:
                return command.values[command.places.index(address)]
        return None

    def to_json(self) -> dict[str, Any]:
        return {
            "offset": self.offset,
            "header_words": [f"{word:#010x}" for word in self.header_words],
            "header": self.header,
            "registers": self.registers,
            "writes": [
                {
                    "address": f"{address:#07x}",
                    "value": f"{value:#010x}",
                    "register": None if register is None else f"{register.block}.{register.label}",
                    "confidence": "unknown" if register is None else register.confidence,
                }
                for address, value, register in self.written()
            ],
        }

    def __repr__(self) -> str:
        return f"<Task {self.header.get('TID')} of {self.generation}, {len(self.commands)} commands>"


_COPIES = 8  # of the kernel block in a stream of h11: one for each core


def repeated_block(generation: str) -> str | None:
    """The block that a stream of a generation writes once for each core; None where all blocks come once."""
    return "KernelDMASrc" if generation == "h11" else None


def _by_order(commands: Sequence[Command], generation: str) -> Iterator[Register | None]:
    """The registers of h11, whose map states an order of blocks and no addresses. A command is named as long as it
    writes whole blocks of that order; from the first that does not, words are unknown."""
    blocks = list(register_map(generation).blocks.values())
    order = [block for block in blocks for _ in range(_COPIES if block.name == repeated_block(generation) else 1)]
    place = 0
    for command in commands:
        registers: list[Register] = []
        while place < len(order) and len(registers) < len(command.values):
            registers += order[place].registers
            place += 1
        if len(registers) != len(command.values):
            place = len(order)
            yield from (None for _ in command.values)
        else:
            yield from registers


def read_tasks(text: Bytes, generation: str, first: int, words: int, count: int) -> list[Task]:
    """The chain of tasks in a text section. ``first`` is where the first one lies, ``words`` its size as the program
    descriptor states it (generations to h13), ``count`` how many there are."""
    if count > _MOST_TASKS or count * 16 > len(text) + 16:
        raise text.error(0, f"the program claims {count} tasks, but its text has {len(text)} bytes")
    chained = _field(generation, "NextPointer") is not None
    return _chained(text, generation, first, words, count) if chained else _packed(text, generation, first, count)


def _chained(text: Bytes, generation: str, first: int, words: int, count: int) -> list[Task]:
    """Each task says where the next one lies and how large it is."""
    tasks: list[Task] = []
    place, seen = first, set()
    while len(tasks) < count:
        if place in seen:
            raise text.error(place, f"the chain of tasks comes back to {place:#x} after {len(tasks)} tasks")
        seen.add(place)
        tasks.append(_task(text, generation, place, words))
        following, size = (tasks[-1].header_field(name) for name in ("NextPointer", "NextSize"))
        place, words = following, size + 1
        if place == 0:
            break
    if len(tasks) != count:
        raise text.error(first, f"the chain ends after {len(tasks)} tasks; the program has {count}")
    if place != 0:
        raise text.error(first, f"the chain goes on at {place:#x} behind the {count} tasks of the program")
    for before, behind in pairwise(sorted(tasks, key=lambda task: task.offset)):
        if before.end > behind.offset:
            raise text.error(behind.offset, f"the task overlaps the one before it, which ends at {before.end:#x}")
    return tasks


def _packed(text: Bytes, generation: str, first: int, count: int) -> list[Task]:
    """Tasks lie behind each other at multiples of 16 bytes, and each says its own size."""
    known = _field(generation, "TaskWords")
    assert known is not None
    tasks: list[Task] = []
    place = first
    if count and not any(text.words(place, 4, "the frame in front of the first task")):
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
    known = _field(generation, "TDE")
    length = len(named) + (known[1].read(every[known[0]]) if known else 0)
    if words < length:
        raise text.error(place, f"a task of {words} words has no room for its dependency")
    return Task(generation, every[:length], every[length:], place, text.start + place)


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
