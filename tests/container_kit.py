"""Containers for tests: the published examples assembled, and files written byte by byte."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aneforge.codegen.assemble import CallerTensor, Parts, assemble
from aneforge.codegen.container import Container
from aneforge.codegen.tasks import Task

EXAMPLES = Path(__file__).parent / "hwx_examples"
NAMES = sorted(file.stem for file in EXAMPLES.glob("*.json"))
SUBTYPES = {"h11": 1, "h12": 3, "h13": 4, "h14": 5, "h15": 6, "h16": 7, "h17": 9, "h18": 10}


def example(name: str) -> dict[str, Any]:
    return json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))


def words_of(task: dict[str, Any]) -> list[int]:
    return [int(word, 16) for word in task["words"]]


def tasks_of(document: dict[str, Any]) -> list[Task]:
    tasks: list[Task] = []
    offset = 0
    for task in document["tasks"]:
        words, size = words_of(task), task["header"]
        tasks.append(Task(document["target"], words[:size], words[size:], offset))
        offset = tasks[-1].header.get("NextPointer", 0)
    return tasks


def parts_of(name: str, constants: bytes | None = None) -> Parts:
    """The parts of a published example. Its weights are known by size and hash only: zeros stand for them."""
    document = example(name)
    names = iter(("x", "z"))
    result = "product" if "matmul" in name else "y"
    tensors = []
    for tensor in document["tensors"]:
        is_input = tensor["role"] == "in"
        label, role = (next(names), "input") if is_input else (result, "output")
        tensors.append(CallerTensor(label, role, tuple(tensor["shape"]), row_bytes=tensor["strides"][2]))
    size = document.get("kernel_section", document["const_section"])["size"]
    if constants is None:
        constants = bytes(size) if "kernel_section" in document or size != 0x4000 else b""
    scratch = 0x4000 if name.startswith("h13__matmul") else 0
    return Parts(document["target"], tensors, tasks_of(document), constants, scratch)


def assembled(name: str, constants: bytes | None = None) -> Container:
    return assemble(parts_of(name, constants))


# Files byte by byte.


def command(code: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 8)
    return struct.pack("<II", code, 8 + len(body)) + body


def state(flavor: int, words: list[int], strings: bytes) -> bytes:
    return command(4, struct.pack(f"<II{len(words)}I", flavor, len(words), *words) + strings)


@dataclass
class Piece:
    """A section with its bytes, and the zeros or rubbish in front of it."""

    segment: str
    name: str
    data: bytes = b""
    gap: bytes = b""
    size: int = 0
    """Of a section without bytes in the file."""


@dataclass
class File:
    """A container to be written in any order."""

    generation: str
    pieces: list[Piece]
    task_count: int
    first_words: int = 0
    first_offset: int = 0
    ports: list[tuple[str, int, tuple[int, int, int, int]]] = field(default_factory=list)
    old_ports: bool = False
    extra: list[bytes] = field(default_factory=list)
    symbols: list[tuple[str, int, int]] = field(default_factory=list)
    relocations: list[int] = field(default_factory=list)
    tail: bytes = b""
    order: int = 0
    """By how much the commands are rotated."""

    def to_bytes(self) -> bytes:
        commands = self._commands(32 + len(self._commands(0)))  # their sizes do not depend on offsets
        count = self._count
        head = struct.pack("<8I", 0xBEEFFACE, 0x80, SUBTYPES[self.generation], 2, count, len(commands), 0x200000, 0)
        return head + commands + self._body

    def _commands(self, start: int) -> bytes:
        body, address = bytearray(), 0x30000000
        addresses: dict[str, int] = {}
        commands = []
        relocations = b"".join(struct.pack("<II", place, 0x05000002) for place in self.relocations)
        for piece in self.pieces:
            body += piece.gap
            offset = start + len(body) if piece.data else 0
            body += piece.data
            size = len(piece.data) or piece.size
            addresses[piece.name] = address
            moved = len(self.relocations) if piece.name == "__text" else 0
            where = start + len(body) if moved else 0
            body += relocations if moved else b""
            names = (piece.name.encode(), piece.segment.encode())
            numbers = (address, size, offset, 6, where, moved, 0x26, 0, 0, 0)
            section = struct.pack("<16s16sQQIIIIIIII", *names, *numbers)
            span = -(-max(size, 1) // 0x4000) * 0x4000
            head = struct.pack("<16sQQQQiiII", names[1], address, span, offset, len(piece.data), 5, 5, 1, 4)
            commands.append(command(0x19, head + section))
            address += span
        commands += self.extra
        commands.append(self._program(addresses))
        for name, role, shape in self.ports:
            commands += [self._binding(name, address), self._tensor(name, role, shape)]
            address += 0x4000
        if self.symbols:
            strings, entries = bytearray(b"\0"), bytearray()
            for name, kind, value in self.symbols:
                entries += struct.pack("<IBBHQ", len(strings), kind, 1, 2, value)
                strings += name.encode() + b"\0"
            where = start + len(body)
            body += entries + strings
            sizes = (where, len(self.symbols), where + len(entries), len(strings))
            commands.append(command(2, struct.pack("<IIII", *sizes)))
        self._body = bytes(body) + self.tail
        self._count = len(commands)
        turn = self.order % len(commands)
        return b"".join(commands[turn:] + commands[:turn])

    def _program(self, addresses: dict[str, int]) -> bytes:
        late = self.generation not in ("h11", "h12", "h13")
        words = [0] * (0x21E if late else 0x21A)

        def put(offset: int, value: int) -> None:
            words[(offset - 0x10) // 4] = value & 0xFFFFFFFF

        put(0x10, addresses["__text"])
        put(0x810, addresses["__text"] + self.first_offset)
        put(0x848 if late else 0x83C, 0x10 + 4 * len(words))
        put(0x830 if late else 0x81C, self.task_count)
        if late:
            put(0x824, sum(len(piece.data) for piece in self.pieces if piece.name == "__text") // 4)
        else:
            put(0x818, self.first_words - 1)
        return state(4 if late else 1, words, b"main\0")

    def _binding(self, name: str, address: int) -> bytes:
        if self.old_ports:
            return command(6, struct.pack("<III", 0x14, 0, address) + name.encode() + b"\0")
        return command(0x40, struct.pack("<IIQ", 0x18, 0, address) + name.encode() + b"\0")

    def _tensor(self, name: str, role: int, shape: tuple[int, int, int, int]) -> bytes:
        words = [0] * 0x1E
        end = 0x10 + 4 * len(words)
        values = {0x10: 3, 0x14: role, 0x18: end, 0x20: end + 5, 0x24: 5, 0x7C: end + 5}
        values |= {0x28 + 4 * place: extent for place, extent in enumerate((*shape, 1))}
        for offset, value in values.items():
            words[(offset - 0x10) // 4] = value
        return state(3, words, b"main\0" + name.encode() + b"\0")


def small_text(generation: str, count: int, body: list[int]) -> tuple[bytes, int]:
    """Tasks with the same stream behind a header of each generation, and the words of one."""
    late = generation not in ("h11", "h12", "h13")
    words = {"h11": 7, "h12": 7, "h13": 10, "h14": 8, "h15": 8}.get(generation, 9)
    size = words + len(body)
    text = bytearray(bytes(16) if late else b"")
    step = -(-4 * size // 16) * 16
    for number in range(count):
        header = [0] * words
        header[0] = number | (size << 16 if late else 0)
        if not late and number < count - 1:
            header[1] = (size - 1) << 16
            header[5 if words == 7 else 7] = len(text) + step
        text += struct.pack(f"<{size}I", *header, *body)
        text += bytes(step - 4 * size) if number < count - 1 else b""
    return bytes(text), size


def plain(address: int, values: list[int]) -> list[int]:
    """A command of generations to h13."""
    return [(len(values) - 1) << 26 | address, *values]


def indexed(address: int, values: list[int], bar: int | None = None) -> list[int]:
    """A run of h14 and later."""
    return [(0 if bar is None else 1 << 29 | bar << 23) | (len(values) - 1) << 15 | address >> 2, *values]


def stream(generation: str) -> list[int]:
    return plain(0, [1, 2, 3]) if generation in ("h11", "h12", "h13") else indexed(0, [1, 2, 3])


def small_file(generation: str, count: int = 2, **more: Any) -> File:
    text, size = small_text(generation, count, more.pop("body", stream(generation)))
    pieces = more.pop("pieces", None)
    first = [Piece("__TEXT", "__text", text)]
    rest = [Piece("__TEXT2", "__const", bytes(range(64)), b"\0" * 12)] if pieces is None else pieces
    ports = more.pop("ports", [("x", 1, (1, 4, 2, 2)), ("y", 2, (1, 4, 2, 2))])
    return File(generation, [*first, *rest], count, size, ports=ports, **more)
