"""A property list as plain values: dictionaries, lists, text, numbers and truth values, from XML or binary.

Both readers take a stranger's bytes. They walk without recursion, so that nesting costs no stack; they count every
value at every place where it is used, so that a few shared lists cannot stand for billions; and they take no entities.
What a netplist never holds (dates, data, identifiers) becomes an :class:`Other`, which later checks name.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

from aneforge.errors import AneforgeError, first_line
from aneforge.files import spend

_DEEPEST = 32  # of dictionaries and lists within each other; a netplist needs 6
_BINARY = b"bplist"


class PropertyListError(AneforgeError, ValueError):
    """Bytes that are not a property list: what is wrong, and where."""


@dataclass(frozen=True)
class Other:
    """A value of a kind that no key of a netplist takes."""

    kind: str

    def __repr__(self) -> str:
        return f"a value of type {self.kind}"


def parse(content: bytes, where: str) -> Any:
    """The value that a property list holds. ``where`` names the file in what the budgets say."""
    return _Binary(content, where).root if content.startswith(_BINARY) else _Xml(where).read(content)


class _Count:
    """How many values were read, against the budget."""

    def __init__(self, where: str) -> None:
        self.where, self.values = where, 0

    def add(self) -> None:
        self.values += 1
        if not self.values & 0xFFF:  # looking the budget up for each value would take longer than reading it
            self.check()

    def check(self) -> None:
        spend("plist_values", self.values, self.where)


# XML.

_WHOLE = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20})")
_REAL = re.compile(
    r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?|[+-]?inf(?:inity)?|nan"
)
_SCALARS = ("string", "integer", "real", "date", "data", "key")
_FLAGS = {"true": True, "false": False}


class _Xml:
    """One XML property list while it is read."""

    def __init__(self, where: str) -> None:
        self.count = _Count(where)
        self.open: list[Any] = []  # dictionaries and lists that are not closed yet, the outermost first
        self.keys: list[str | None] = []  # for each of them, the key that waits for its value
        self.text: list[str] | None = None
        self.element = ""
        self.root: Any = None
        self.started = self.finished = False
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.EntityDeclHandler = self._entity
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    def read(self, content: bytes) -> Any:
        try:
            self.parser.Parse(content, True)
        except expat.ExpatError as error:
            raise self._fail(first_line(error)) from None
        except (LookupError, ValueError) as error:  # the encoding that the file declares
            if isinstance(error, AneforgeError):
                raise
            raise self._fail(first_line(error)) from None
        if not self.finished:
            raise self._fail("the document holds no value")
        self.count.check()
        return self.root

    def _fail(self, problem: str) -> PropertyListError:
        return PropertyListError(f"not a property list (line {self.parser.CurrentLineNumber}: {problem})")

    def _doctype(self, name: str, _system: str | None, _public: str | None, has_subset: int) -> None:
        if name != "plist" or has_subset:
            raise self._fail("a DOCTYPE other than Apple's is not read; declare nothing in it")

    def _entity(self, *_: Any) -> None:
        raise self._fail("entities are not read; write out what they stand for")

    def _start(self, element: str, _attributes: dict[str, str]) -> None:
        if self.text is not None:
            raise self._fail(f"<{self.element}> must hold text only, not <{element}>")
        if element == "plist":
            if self.started:
                raise self._fail("<plist> occurs within <plist>")
            self.started = True
            return
        if not self.started:
            raise self._fail(f"the document starts with <{element}>, not <plist>")
        self.count.add()
        if element in ("dict", "array"):
            value: Any = {} if element == "dict" else []
            self._put(value)
            self.open.append(value)
            self.keys.append(None)
            if len(self.open) > _DEEPEST:
                raise self._fail(f"values are nested deeper than {_DEEPEST}")
        elif element in _SCALARS:
            self.element, self.text = element, []
        elif element in _FLAGS:
            self._put(_FLAGS[element])
        else:
            raise self._fail(f"<{element}> is not an element of property lists")

    def _characters(self, text: str) -> None:
        if self.text is not None:
            self.text.append(text)
        elif text.strip():
            raise self._fail("text stands between elements")

    def _end(self, element: str) -> None:
        if element in ("dict", "array"):
            if self.keys.pop() is not None:
                raise self._fail("the last key of a <dict> has no value")
            self.open.pop()
        elif element in _SCALARS:
            assert self.text is not None
            text, self.text = "".join(self.text), None
            self._key(text) if element == "key" else self._put(self._scalar(element, text))

    def _key(self, key: str) -> None:
        if not self.open or not isinstance(self.open[-1], dict):
            raise self._fail("<key> occurs outside a <dict>")
        if self.keys[-1] is not None:
            raise self._fail(f"key {_short(self.keys[-1])} has no value")
        if key in self.open[-1]:
            raise self._fail(f"key {_short(key)} occurs twice")
        self.keys[-1] = key

    def _scalar(self, element: str, text: str) -> Any:
        if element == "string":
            return text
        text = text.strip()
        if element == "integer":
            if not _WHOLE.fullmatch(text):
                raise self._fail(f"{_short(text)} is not an integer of 64 bits")
            sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
            return int(sign + digits, 16 if digits[:2] in ("0x", "0X") else 10)
        if element == "real":
            if not _REAL.fullmatch(text.lower()):
                raise self._fail(f"{_short(text)} is not a number")
            return float(text)
        return Other(element)

    def _put(self, value: Any) -> None:
        """A value in its place: of the key that waits for it, at the end of a list, or as the whole document."""
        if not self.open:
            if self.finished:
                raise self._fail("the document holds two values")
            self.root, self.finished = value, True
        elif isinstance(self.open[-1], list):
            self.open[-1].append(value)
        else:
            key = self.keys[-1]
            if key is None:
                raise self._fail("a value of a <dict> has no key")
            self.open[-1][key] = value
            self.keys[-1] = None


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


# Binary: a header, objects, the table of their offsets, and a trailer of 32 bytes.

_TRAILER = struct.Struct(">6xBBQQQ")
_NULL, _FALSE, _TRUE, _FILL = 0x00, 0x08, 0x09, 0x0F
_REALS = {2: ">f", 3: ">d"}


class _Binary:
    """One binary property list. Every object is decoded once; what is used in several places is counted in each."""

    def __init__(self, content: bytes, where: str) -> None:
        self.content, self.where = content, where
        if len(content) < 8 + _TRAILER.size:
            raise self._fail("the file is cut off")
        self.end = len(content) - _TRAILER.size
        offset_size, self.reference_size, objects, top, table = _TRAILER.unpack_from(content, self.end)
        if not (1 <= offset_size <= 8 and 1 <= self.reference_size <= 8):
            raise self._fail(f"integers of {offset_size} and {self.reference_size} bytes")
        if not 1 <= objects <= len(content) or table > self.end or objects * offset_size > self.end - table:
            raise self._fail(f"{objects} objects do not fit into {len(content)} bytes")
        if top >= objects:
            raise self._fail(f"object {top} of {objects} is missing")
        self.table, self.offset_size, self.objects = table, offset_size, objects
        self.taken = 0
        self.values: dict[int, Any] = {}
        self.sizes: dict[int, int] = {}  # how many values each object stands for, with all within it
        self.root = self._object(top)

    def _fail(self, problem: str) -> PropertyListError:
        return PropertyListError(f"not a property list (binary: {problem})")

    def _number(self, place: int, size: int) -> int:
        if place < 0 or place + size > self.end:
            raise self._fail(f"byte {place} is outside the file")
        return int.from_bytes(self.content[place : place + size], "big")

    def _object(self, top: int) -> Any:
        """Operands first, without recursion: an object is joined when all that it refers to is there."""
        entered: set[int] = set()
        stack: list[tuple[int, str, list[int], Iterator[int]]] = []
        waiting: int | None = top
        while waiting is not None or stack:
            if waiting is not None:
                number, waiting = waiting, None
                if number in entered:
                    raise self._fail(f"object {number} contains itself")
                value, references = self._decoded(number)
                if references is None:
                    self.values[number], self.sizes[number] = value, 1
                    continue
                entered.add(number)
                if len(entered) > _DEEPEST:
                    raise self._fail(f"values are nested deeper than {_DEEPEST}")
                stack.append((number, value, references, iter(references)))
            if stack:
                number, kind, references, rest = stack[-1]
                waiting = next((reference for reference in rest if reference not in self.values), None)
                if waiting is None:
                    stack.pop()
                    entered.discard(number)
                    self.values[number] = self._joined(number, kind, references)
        return self.values[top]

    def _take(self, place: int, size: int) -> int:
        """The first byte of some that an object is made of. Objects that overlap could stand for far more than the
        file, so that each byte is taken once."""
        if place < 0 or size > self.end - place:
            raise self._fail(f"{size} bytes at byte {place} are outside the file")
        self.taken += size
        if self.taken > len(self.content):
            raise self._fail("objects overlap")
        return place

    def _joined(self, number: int, kind: str, references: list[int]) -> Any:
        size = 1 + sum(self.sizes[reference] for reference in references)
        spend("plist_values", size, self.where)
        self.sizes[number] = size
        values = [self.values[reference] for reference in references]
        if kind == "array":
            return values
        half = len(values) // 2
        joined: dict[str, Any] = {}
        for key, value in zip(values[:half], values[half:], strict=True):
            if not isinstance(key, str):
                raise self._fail(f"a key of object {number} is not text")
            if key in joined:
                raise self._fail(f"key {_short(key)} occurs twice")
            joined[key] = value
        return joined

    def _decoded(self, number: int) -> tuple[Any, list[int] | None]:
        """A scalar and None, or the kind of a container and the objects that it refers to."""
        place = self._number(self.table + number * self.offset_size, self.offset_size) if number < self.objects else -1
        marker = self._number(place, 1)
        kind, low = marker >> 4, marker & 0xF
        if kind in (0xA, 0xC, 0xD):
            count, place = self._length(place, low)
            references = self._references(place, count * (2 if kind == 0xD else 1))
            return ("dict" if kind == 0xD else "array"), references
        return self._scalar(place, kind, low), None

    def _references(self, place: int, count: int) -> list[int]:
        size, content = self.reference_size, self.content
        self._take(place, count * size)
        return [int.from_bytes(content[at : at + size], "big") for at in range(place, place + count * size, size)]

    def _length(self, place: int, low: int) -> tuple[int, int]:
        """The length of an object, and where its content starts."""
        if low != 0xF:
            return low, place + 1
        marker = self._number(place + 1, 1)
        if marker >> 4 != 1 or marker & 0xF > 3:
            raise self._fail(f"the length at byte {place + 1} is not an integer")
        size = 1 << (marker & 0xF)
        return self._number(place + 2, size), place + 2 + size

    def _scalar(self, place: int, kind: int, low: int) -> Any:
        if kind == 0:
            if low in (_FALSE, _TRUE):
                return low == _TRUE
            if low in (_NULL, _FILL):
                return Other("null")
        elif kind == 1 and low <= 4:
            size = 1 << low
            raw = self._number(place + 1, size)
            return raw - (1 << 8 * size) if size >= 8 and raw >> (8 * size - 1) else raw
        elif kind == 2 and low in _REALS:
            size = 1 << low
            self._number(place + 1, size)
            return struct.unpack_from(_REALS[low], self.content, place + 1)[0]
        elif kind == 3:
            return Other("date")
        elif kind == 4:
            return Other("data")
        elif kind in (5, 6):
            return self._text(place, kind, low)
        elif kind == 8:
            return Other("UID")
        raise self._fail(f"byte {place} starts no object")

    def _text(self, place: int, kind: int, low: int) -> str:
        length, place = self._length(place, low)
        size = length if kind == 5 else 2 * length
        self._take(place, size)
        try:
            return self.content[place : place + size].decode("ascii" if kind == 5 else "utf-16-be")
        except UnicodeDecodeError:
            raise self._fail(f"the text at byte {place} cannot be decoded") from None
