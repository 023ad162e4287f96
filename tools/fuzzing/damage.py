"""Damage to a file, by what the file is: bytes, JSON, archives, Protocol Buffers, text.

Damage that keeps the outer form reaches far into a reader; damage to the bytes tests the form itself. Everything is
drawn from one generator, so that a seed gives the same files again.
"""

from __future__ import annotations

import io
import json
import random
import struct
import warnings
import zipfile
from typing import Any

WORDS = (0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
TEXTS = ("", " ", "x", "²", "\0", "\n", "../x", "a\x1b[31mb", "é" * 300, "`![x](y)`", "NaN", "-1", "1e999", "9" * 5000)
NUMBERS = (None, True, False, 0, -1, 1, 2, 0.5, 1e308, -1e308, 2**31, 2**63, 2**64, -(2**63), 10**30)
_PRINTED = bytes(range(32, 127)) + b"\t\n\r"
_DEEP = 3000
"""Lists within lists: more than Python's recursion takes."""


def damaged(data: bytes, chance: random.Random) -> bytes:
    """The file with one to four faults, by its kind."""
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        data = _by_kind(data, chance)
    return data


def _by_kind(data: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.2:
        return _bytes(data, chance)
    if data[:2] == b"PK":
        return _archive(data, chance)
    if data.lstrip()[:1] in (b"{", b"["):
        return _json(data, chance)
    if data[:6] == b"\x93NUMPY" or not data[:4096].translate(None, _PRINTED):
        return _text(data, chance)
    return _messages(data, chance)


def _bytes(data: bytes, chance: random.Random) -> bytes:
    """Flipped bits, awkward words, pieces that are repeated, moved or cut away."""
    changed = bytearray(data)
    if not changed:
        return chance.randbytes(8)
    place, kind = chance.randrange(len(changed)), chance.randrange(6)
    if kind == 0:
        changed[place] ^= 1 << chance.randrange(8)
    elif kind == 1 and len(changed) >= 4:
        struct.pack_into("<I", changed, min(place, len(changed) - 4), chance.choice(WORDS))
    elif kind == 2:
        other, size = chance.randrange(len(changed)), chance.randrange(1, 64)
        changed[place : place + size] = changed[other : other + size]
    elif kind == 3:
        changed[place:place] = chance.randbytes(chance.randrange(1, 16))
    elif kind == 4:
        del changed[place : place + chance.randrange(1, 64)]
    else:
        del changed[place:]
    return bytes(changed)


def _text(data: bytes, chance: random.Random) -> bytes:
    """One word or cell that is another, or a line that is doubled or gone."""
    lines = data.split(b"\n")
    place, kind = chance.randrange(len(lines)), chance.randrange(4)
    if kind == 0:
        lines.insert(place, chance.choice(lines))
    elif kind == 1:
        del lines[place]
    else:
        parts = _split(lines[place])
        if parts:
            new = chance.choice((*TEXTS, *map(str, NUMBERS)))
            parts[chance.randrange(len(parts))] = new.encode("utf-8", "surrogatepass")
        lines[place] = b"".join(parts)
    return b"\n".join(lines)


def _split(line: bytes) -> list[bytes]:
    """Words and what is between them."""
    parts: list[bytes] = []
    for letter in line:
        one = bytes([letter])
        if parts and one.isalnum() and parts[-1].isalnum():
            parts[-1] += one
        else:
            parts.append(one)
    return parts


def _json(data: bytes, chance: random.Random) -> bytes:
    """A value that is another one, another's, too deep or too long; a key that is gone or has another name."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return _bytes(data, chance)
    places = list(_places(document))
    if not places:
        return _bytes(data, chance)
    holder, key = chance.choice(places)
    kind = chance.randrange(8)
    if kind < 3:
        holder[key] = chance.choice((*NUMBERS, *TEXTS, [], {}, [[]], {"": None}))
    elif kind == 3:
        del holder[key]
    elif kind == 4:
        other, name = chance.choice(places)
        if isinstance(other, dict) is isinstance(name, str):
            holder[key] = json.loads(json.dumps(other[name]))
    elif kind == 5 and isinstance(holder, dict):
        holder[chance.choice(TEXTS)] = holder.pop(key)
    elif kind == 6:
        holder[key] = "@deep@"
    else:
        holder[key] = "@long@"
    try:
        written = json.dumps(document)
    except (ValueError, RecursionError):
        return _bytes(data, chance)
    deep, long = "[" * _DEEP + "]" * _DEEP, "9" * 5000
    return written.replace('"@deep@"', deep).replace('"@long@"', long).encode("utf-8", "surrogatepass")


def _places(document: Any) -> Any:
    """Every place of a value: what holds it, and its key."""
    waiting = [document]
    while waiting:
        holder = waiting.pop()
        items = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
        for key, value in items[:2000]:
            yield holder, key
            if isinstance(value, (dict, list)):
                waiting.append(value)


def _archive(data: bytes, chance: random.Random) -> bytes:
    """An entry that is damaged, gone, doubled, renamed or said to be encrypted; the archive itself is whole."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:
        return _bytes(data, chance)
    if not entries:
        return _bytes(data, chance)
    place, kind = chance.randrange(len(entries)), chance.randrange(8)
    name, content = entries[place]
    if kind == 0:
        del entries[place]
    elif kind == 1:
        entries.append((name, chance.choice(entries)[1]))
    elif kind == 2:
        entries[place] = chance.choice(("../x", "", "graph.json", f"{name}\0", name[::-1])), content
    else:
        entries[place] = name, _by_kind(content, chance)
    stream = io.BytesIO()
    packing = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(stream, "w", packing) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name that is there twice is meant
        for entry, inside in entries:
            archive.writestr(zipfile.ZipInfo(entry or "x"), inside)
    changed = bytearray(stream.getvalue())
    if kind == 3:
        for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
            found = changed.find(mark)
            if found >= 0:
                changed[found + offset] |= 1  # this entry is encrypted
    return bytes(changed)


def _messages(data: bytes, chance: random.Random) -> bytes:
    """A field of a Protocol Buffers message, at any depth, with another value, doubled or gone; lengths fit."""
    fields = _fields(data)
    if not fields:
        return _bytes(data, chance)
    place = chance.randrange(len(fields))
    number, wire, value = fields[place]
    if wire == 2 and len(value) > 1 and chance.random() < 0.85:
        inner = _fields(value)
        changed = _messages(value, chance) if inner else _payload(value, chance)
        fields[place] = number, wire, changed
    elif chance.random() < 0.3:
        del fields[place]
    elif chance.random() < 0.3:
        fields.insert(place, fields[place])
    elif chance.random() < 0.2:
        fields[place] = chance.randrange(1, 64), wire, value
    elif wire == 0:
        fields[place] = number, wire, chance.choice((*WORDS, 2**63, 2**64 - 1))
    else:
        fields[place] = number, wire, _payload(value, chance)
    return _joined(fields)


def _payload(value: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.4:
        return chance.choice(TEXTS).encode("utf-8", "surrogatepass")
    return _bytes(value, chance)


def _fields(data: bytes) -> list[tuple[int, int, Any]]:
    """The fields of a message, or nothing where these bytes are none."""
    fields: list[tuple[int, int, Any]] = []
    place = 0
    while place < len(data):
        tag, place = _number(data, place)
        if tag is None or not tag >> 3:
            return []
        wire = tag & 7
        if wire == 0:
            value, place = _number(data, place)
            if value is None:
                return []
        elif wire in (1, 2, 5):
            size: int | None = {1: 8, 5: 4}.get(wire)
            if size is None:
                size, place = _number(data, place)
            if size is None or place + size > len(data):
                return []
            value, place = data[place : place + size], place + size
        else:
            return []
        fields.append((tag >> 3, wire, value))
    return fields


def _number(data: bytes, place: int) -> tuple[int | None, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            return None, place
        byte, place = data[place], place + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    return None, place


def _joined(fields: list[tuple[int, int, Any]]) -> bytes:
    parts = bytearray()
    for number, wire, value in fields:
        parts += _written(number << 3 | wire)
        if wire == 0:
            parts += _written(value)
        else:
            parts += (_written(len(value)) if wire == 2 else b"") + value
    return bytes(parts)


def _written(value: int) -> bytes:
    parts = bytearray()
    while True:
        parts.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(parts)
