"""Stored weights as bytes, and back (compression.json ``stored``, U111, U112).

The sections follow each other without gaps: the mask of a sparse weight, codes or kept values, the table, the scales,
the zero points. Codes of fewer than eight bits lie in a line of bits, the first code in the lowest bits of the first
byte; that is the low nibble first for four bits. Numbers are fp16, little-endian; a mask is one bit a place, lowest
bit first; negative codes are two's complement.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aneforge.errors import GraphError

if TYPE_CHECKING:
    from aneforge.graph.encoding import Encoded

_BYTE = 8


class EncodedSection(NamedTuple):
    """One part of a stored weight: its place among the bytes, and what it holds."""

    name: str
    offset: int
    bytes: int
    shape: tuple[int, ...]
    bits: int
    """Of one number: 1 for a mask, 16 for fp16."""
    signed: bool = False
    """Of whole numbers; fp16 numbers say no."""

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "shape": list(self.shape)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> EncodedSection:
        """The section that :meth:`to_json` describes."""
        return cls(**{**record, "shape": tuple(int(extent) for extent in record["shape"])})


def sections_of(weight: Encoded) -> tuple[EncodedSection, ...]:
    """The parts in the order in which they are stored."""
    sections: list[EncodedSection] = []
    offset = 0
    for name, part, bits in _stored_parts(weight):
        size = -(-part.size * bits // _BYTE)
        sections.append(EncodedSection(name, offset, size, part.shape, bits, part.dtype.kind == "i"))
        offset += size
    return tuple(sections)


def _stored_parts(weight: Encoded) -> list[tuple[str, np.ndarray, int]]:
    parts = [] if weight.mask is None else [("mask", weight.mask, 1)]
    parts.append(("codes", weight.codes, weight.bits))
    for name, part, bits in (("table", weight.table, 16), ("scale", weight.scale, 16)):
        if part is not None:
            parts.append((name, part, bits))
    if weight.zero_point is not None:
        parts.append(("zero_point", weight.zero_point, _BYTE))
    return parts


def to_bytes(weight: Encoded) -> bytes:
    """The bytes of a weight as they are stored."""
    return b"".join(_part_bytes(name, part, bits) for name, part, bits in _stored_parts(weight))


def _part_bytes(name: str, part: np.ndarray, bits: int) -> bytes:
    if bits == 16:
        with np.errstate(over="ignore"):
            half = part.astype("<f2")
        if part.dtype != np.float16 and not np.array_equal(half.astype(np.float64), part.astype(np.float64)):
            raise GraphError(f"{name} of a weight: fp16 does not hold its numbers exactly. Use fp16 numbers.")
        return half.tobytes()
    if bits == 1 and part.dtype == bool:
        return np.packbits(part.reshape(-1), bitorder="little").tobytes()
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if part.dtype.kind == "i" else (0, (1 << bits) - 1)
    least, most = int(part.min(initial=0)), int(part.max(initial=0))
    if least < low or most > high:
        raise GraphError(f"{name} of a weight: {least} to {most} do not fit {bits} bits, which hold {low} to {high}")
    return pack_codes(part, bits)


def pack_codes(codes: np.ndarray, bits: int) -> bytes:
    """Codes in a line of bits, lowest first."""
    flat = np.ascontiguousarray(codes).reshape(-1).astype(np.uint8)
    if bits == _BYTE:
        return flat.tobytes()
    if _BYTE % bits == 0:
        many = _BYTE // bits
        lines = np.zeros((-(-flat.size // many), many), np.uint8)
        lines.reshape(-1)[: flat.size] = flat & ((1 << bits) - 1)
        packed = lines[:, 0].copy()
        for place in range(1, many):
            packed |= lines[:, place] << (bits * place)
        return packed.tobytes()
    single = np.unpackbits(flat[:, None], axis=1, count=bits, bitorder="little")
    return np.packbits(single.reshape(-1), bitorder="little").tobytes()


def unpack_codes(data: bytes, bits: int, count: int, signed: bool = False) -> np.ndarray:
    """The codes of a line of bits, as uint8 or int8."""
    stored = np.frombuffer(data, np.uint8)
    if bits == _BYTE:
        codes = stored[:count].copy()
    elif _BYTE % bits == 0:
        places = np.arange(0, _BYTE, bits, dtype=np.uint8)
        codes = ((stored[:, None] >> places) & ((1 << bits) - 1)).reshape(-1)[:count]
    else:
        line = np.unpackbits(stored, count=count * bits, bitorder="little").reshape(count, bits)
        codes = np.packbits(line, axis=1, bitorder="little").reshape(-1)
    if not signed:
        return codes
    unused = _BYTE - bits
    return (codes << unused).view(np.int8) >> unused


def part_from_bytes(section: EncodedSection, data: bytes) -> np.ndarray:
    """One part of a weight from the bytes of the whole."""
    count = math.prod(section.shape)
    size = -(-count * section.bits // _BYTE)
    part = data[section.offset : section.offset + section.bytes]
    if section.bytes != size or len(part) != size or section.offset < 0:
        raise GraphError(
            f"{section.name} of a weight: {list(section.shape)} numbers of {section.bits} bits take {size} bytes; "
            f"there are {len(part)}"
        )
    if section.bits == 16:
        return np.frombuffer(part, "<f2").reshape(section.shape).astype(np.float16)
    if section.name == "mask":
        return (
            np.unpackbits(np.frombuffer(part, np.uint8), count=count, bitorder="little")
            .astype(bool)
            .reshape(section.shape)
        )
    return unpack_codes(part, section.bits, count, section.signed).reshape(section.shape)
