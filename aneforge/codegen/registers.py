"""The registers of each generation: blocks of words, their names and bit-fields (``registers.json``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

from aneforge.chips import store
from aneforge.errors import UnknownNameError


@dataclass(frozen=True)
class Field:
    """Bits of a word."""

    name: str
    lsb: int
    width: int
    meaning: str = ""

    @property
    def mask(self) -> int:
        """Its bits, in place."""
        return ((1 << self.width) - 1) << self.lsb

    def read(self, word: int) -> int:
        return (word >> self.lsb) & ((1 << self.width) - 1)

    def write(self, word: int, value: int) -> int:
        """The word with this field set; a value that has no room is an error."""
        if not 0 <= value < 1 << self.width:
            raise UnknownNameError(f"{self.name}: {value} has no room in {self.width} bits")
        return (word & ~self.mask) | (value << self.lsb)


@dataclass(frozen=True, eq=False)
class Register:
    """One word of a block."""

    name: str
    block: str
    address: int | None
    """The byte address that the stream states; None where the block's base is not published."""
    fields: tuple[Field, ...]
    confidence: str
    note: str = ""
    label: str = ""
    """Its name, with the offset behind it where the block has several words of that name."""

    @property
    def is_known(self) -> bool:
        """Whether anything is known of it besides its place."""
        return bool(self.fields)

    @property
    def unknown_bits(self) -> int:
        """The bits that belong to no field."""
        known = 0
        for field in self.fields:
            known |= field.mask
        return ~known & 0xFFFFFFFF

    def field(self, name: str) -> Field:
        return next(field for field in self.fields if field.name == name)


@dataclass(frozen=True, eq=False)
class RegisterBlock:
    """A run of registers."""

    name: str
    base: int | None
    registers: tuple[Register, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Register]:
        return {register.name: register for register in self.registers}


@dataclass(frozen=True, eq=False)
class RegisterMap:
    """All registers of one generation."""

    generation: str
    cpusubtype: int
    descriptor: int
    """The number of the task-descriptor form (``td_isa``)."""
    blocks: Mapping[str, RegisterBlock]
    order: tuple[str, ...]
    """The blocks as a stream writes them."""

    @cached_property
    def by_address(self) -> Mapping[int, Register]:
        return {
            register.address: register
            for block in self.blocks.values()
            for register in block.registers
            if register.address is not None
        }

    def register(self, block: str, name: str) -> Register:
        return self.blocks[block].by_name[name]


def generations() -> tuple[str, ...]:
    """The generations whose registers are published, oldest first."""
    return tuple(store.load("registers")["generations"])


def generation_of(cpusubtype: int) -> str | None:
    """The generation that a container's header names; None for an unknown number."""
    return _by_number().get(cpusubtype)


@cache
def _by_number() -> Mapping[int | None, str]:
    return {row["cpusubtype"]: row["generation"] for row in store.load("programs")["container"]["targets"]}


@cache
def register_map(generation: str) -> RegisterMap:
    """The registers of a generation (``h13``)."""
    document = store.load("registers")
    facts = document["generations"].get(generation)
    if facts is None:
        raise UnknownNameError(
            f"{generation}: its registers are not published; choose one: {', '.join(generations())}"
        )
    blocks = {record["name"]: _block(generation, record, document) for record in facts["blocks"]}
    order = tuple(name for name in facts.get("stream_block_order", blocks) if name in blocks)
    return RegisterMap(generation, facts["cpusubtype"], facts["td_isa"], blocks, order)


def _block(generation: str, record: Mapping[str, Any], document: Mapping[str, Any]) -> RegisterBlock:
    base = None if record["base"] is None else int(record["base"], 16)
    rows = document["registers"][f"{generation} {record['name']}"]
    counts = Counter(row["name"] for row in rows)
    registers = [_register(row, record["name"], base, counts[row["name"]] > 1) for row in rows]
    return RegisterBlock(record["name"], base, tuple(registers))


def _register(row: Mapping[str, Any], block: str, base: int | None, repeated: bool) -> Register:
    offset = int(row["offset"], 16)
    label = f"{row['name']}_{offset:#x}" if repeated else row["name"]
    fields = _apart([Field(*field) for field in row["fields"]])
    address = None if base is None else base + offset
    return Register(row["name"], block, address, fields, row["confidence"], row.get("note", ""), label)


def _apart(fields: Sequence[Field]) -> tuple[Field, ...]:
    """Fields that share no bit. Where published positions overlap, the lower field ends below the next (U110); its
    meaning keeps what was published."""
    ordered = sorted(fields, key=lambda field: field.lsb)
    cut: dict[str, Field] = {}
    for field, above in pairwise(ordered):
        if field.lsb + field.width > above.lsb:
            last = field.lsb + field.width - 1
            published = f"published as bits {field.lsb} to {last}, of which {above.name} has those from {above.lsb}"
            meaning = f"{field.meaning}; {published}" if field.meaning else published
            cut[field.name] = Field(field.name, field.lsb, above.lsb - field.lsb, f"{meaning} (U110)")
    return tuple(cut.get(field.name, field) for field in fields)
