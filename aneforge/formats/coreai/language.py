"""Core AI's language: its rows over the common ops, and operations that compute nothing themselves: constants,
branches, loops, calls and states.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.coreai.table import COMPARED, KNOWN, MOVED, REFUSED
from aneforge.formats.importer.control import branch, while_loop
from aneforge.formats.importer.importer import Importer
from aneforge.formats.importer.language import CommonLanguage, Control, Scope
from aneforge.formats.importer.op import FileOp, LiveState
from aneforge.formats.records import Function, Operation, StateType, ValueType
from aneforge.formats.values import Value
from aneforge.graph.graph import Graph


@dataclass(frozen=True)
class Token:
    """The values of states that were written before this point; other states still have their first value. So reads
    and writes need no separate order."""

    written: dict[str, Value] = field(default_factory=dict)


def _constant(importer: Importer, operation: Operation, op: FileOp, scope: Scope) -> list[Any]:
    value = operation.attributes.get("value")
    if not isinstance(value, np.ndarray):
        raise LoadError("the constant has no value")
    return [value]


def _if(importer: Importer, operation: Operation, op: FileOp, scope: Scope) -> list[Any]:
    return branch(importer, operation.label, op.value("operands"), operation.blocks, scope)


def _while(importer: Importer, operation: Operation, op: FileOp, scope: Scope) -> list[Any]:
    test, body = operation.blocks
    return while_loop(importer, operation.label, test, body, scope, op.operands(), passes=True)


def _group(importer: Importer, operation: Operation, op: FileOp, scope: Scope) -> list[Any]:
    """Operations that a tool grouped for one processor; here each is read by itself."""
    return importer.inline(operation.label, operation.blocks[0], scope, op.operands())


def _as_token(operand: Any) -> Token:
    if not isinstance(operand, Token):
        raise LoadError("every operand must be a token")
    return operand


def _state(operand: Any) -> LiveState:
    if not isinstance(operand, LiveState):
        raise LoadError("operand 0 must be the handle of a state")
    return operand


def _read(importer: Importer, operation: Operation, op: FileOp, scope: Scope) -> list[Any]:
    state, token = op.operands()
    return [_as_token(token).written.get(_state(state).name, state.value), token]


def _write(importer: Importer, operation: Operation, op: FileOp, scope: Scope) -> list[Any]:
    state, value, token = op.operands()
    if (tuple(value.shape) or (1,)) != tuple(_state(state).value.shape):
        raise LoadError(f"state {state.name!r} is {list(state.value.shape)}, but its new value is {list(value.shape)}")
    return [Token({**_as_token(token).written, state.name: value})]


def _join(importer: Importer, operation: Operation, op: FileOp, scope: Scope) -> list[Any]:
    written: dict[str, Value] = {}
    for operand in op.operands():
        for name, value in _as_token(operand).written.items():
            if name in written and written[name] is not value:
                raise LoadError(
                    f"state {name!r} is written twice in no stated order; make one write depend on the other"
                )
            written[name] = value
    return [Token(written)]


CONTROL: dict[str, Control] = {
    "constant": _constant,
    "create_token": lambda importer, operation, op, scope: [Token()],
    "if": _if,
    "invoke": lambda importer, operation, op, scope: importer.call(
        operation.attributes.get("callee", ""), op.operands(), operation.label
    ),
    "isolated_group": _group,
    "join_token": _join,
    "read_handle": _read,
    "while": _while,
    "write_handle": _write,
}


class _CoreAI(CommonLanguage):
    runtime = "coreai"

    def is_output(self, importer: Importer, value: Any) -> bool:
        """A token among the results holds the last values of the states."""
        if not isinstance(value, Token):
            return super().is_output(importer, value)
        for name, new_value in value.written.items():
            importer.states[name].value, importer.states[name].written = new_value, True
        return False


def import_function(file: str, functions: Mapping[str, Function], name: str) -> Graph:
    function = functions[name]
    for label, kind in function.inputs:
        wrapped = kind.wrapped if isinstance(kind, StateType) else kind
        if isinstance(wrapped, ValueType) and wrapped.static is None:
            raise LoadError(
                f"{file}: input {label!r} is {kind}; its shape must be fixed. Fix it before you save the asset "
                "(AIProgram.set_static_shape_config)"
            )
    language = _CoreAI(CONTROL, KNOWN, REFUSED, MOVED, COMPARED)
    return Importer(file, language, function, functions=functions).graph()


# The offsets of an asset's weights in its program file, so that they are mapped from disk instead of copied.


MAGIC = b"ML\xefR"

_STRINGS, _RESOURCES, _OFFSETS = 0, 5, 6
_BLOB = 0
_MOST_ENTRIES = 1 << 22


class _LayoutError(Exception):
    """The bytes do not have the expected layout: the caller asks the package instead."""


@dataclass
class _Bytes:
    """A reader of the file: the position of the next byte, and the end."""

    data: np.ndarray
    position: int
    end: int

    def byte(self) -> int:
        if self.position >= self.end:
            raise _LayoutError
        self.position += 1
        return int(self.data[self.position - 1])

    def number(self) -> int:
        """An integer of varying length. The zero bits at the low end of the first byte count the bytes that follow; a
        first byte of 0 means eight."""
        head = self.byte()
        if head & 1:
            return head >> 1
        more = 8 if head == 0 else (head & -head).bit_length() - 1
        tail = self.take(more)
        if head == 0:
            return int.from_bytes(tail, "little")
        return int.from_bytes(bytes([head]) + tail, "little") >> (more + 1)

    def take(self, count: int) -> bytes:
        if count > self.end - self.position:
            raise _LayoutError
        self.position += count
        return self.data[self.position - count : self.position].tobytes()

    def count(self) -> int:
        number = self.number()
        if number > _MOST_ENTRIES:
            raise _LayoutError
        return number

    def align(self, alignment: int) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise _LayoutError
        self.position += -self.position % alignment

    def text(self) -> None:
        while self.byte():
            pass


def mapped_blobs(file: Path) -> dict[str, np.ndarray]:
    """The bytes of each stored constant by its key; empty if the layout of the file is not as expected."""
    try:
        data = np.memmap(file, np.uint8, "r")
        return _blobs(data)
    except (_LayoutError, OSError, ValueError, OverflowError):
        return {}


def _blobs(data: np.ndarray) -> dict[str, np.ndarray]:
    sections = _sections(data)
    if _RESOURCES not in sections or _OFFSETS not in sections or _STRINGS not in sections:
        return {}
    names = _strings(sections[_STRINGS])
    table, position = sections[_OFFSETS], sections[_RESOURCES].position
    blobs: dict[str, np.ndarray] = {}
    outer = table.count()  # groups without a dialect come first
    while table.position < table.end:
        table.number()  # the owner of the group
        for _ in range(table.count()):
            key, size, kind = table.number(), table.number(), table.byte()
            if key >= len(names) or position + size > sections[_RESOURCES].end:
                raise _LayoutError
            if kind == _BLOB and outer <= 0:
                blobs[names[key]] = _blob(_Bytes(data, position, position + size))
            position += size
        outer -= 1
    return blobs


def _blob(entry: _Bytes) -> np.ndarray:
    alignment, size = entry.number(), entry.number()
    entry.align(alignment)
    if size > entry.end - entry.position:
        raise _LayoutError
    return entry.data[entry.position : entry.position + size]


def _sections(data: np.ndarray) -> dict[int, _Bytes]:
    reader = _Bytes(data, 0, len(data))
    if reader.take(len(MAGIC)) != MAGIC:
        raise _LayoutError
    reader.number()  # the version of the format
    reader.text()  # who wrote it
    sections: dict[int, _Bytes] = {}
    while reader.position < reader.end:
        head, size = reader.byte(), reader.number()
        if head & 0x80:
            reader.align(reader.number())
        if size > reader.end - reader.position:
            raise _LayoutError
        sections[head & 0x7F] = _Bytes(data, reader.position, reader.position + size)
        reader.position += size
    return sections


def _strings(section: _Bytes) -> list[str]:
    """The lengths from last to first, then the strings, each with a zero byte at its end."""
    lengths = [section.number() for _ in range(section.count())][::-1]
    return [section.take(length)[:-1].decode("utf-8", "replace") for length in lengths]
