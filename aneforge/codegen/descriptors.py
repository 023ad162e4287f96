"""State records by their meaning: the program descriptor and the descriptors of the caller's tensors.

A descriptor keeps all its words; the properties name those whose meaning is published, at the offsets of their own
generation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aneforge.chips import store
from aneforge.codegen.bounds import Bytes, ContainerError
from aneforge.codegen.load_commands import StateRecord

PROGRAM_FLAVORS, TENSOR_FLAVOR = (1, 4), 3
_HEAD = 0x10  # where the words of a state record begin in its command
_ROLES = {1: "input", 2: "output"}
ELEMENT_TYPES = "symbol_type"


def element_type(code: int) -> str:
    """The name of an element code; ``code N`` for one that is not published."""
    return store.load("programs")["codes"][ELEMENT_TYPES]["values"].get(str(code), f"code {code}")


class _Record:
    """Words of a state record by their offset in the command."""

    def __init__(self, state: StateRecord) -> None:
        self.state = state

    def u32(self, offset: int) -> int:
        return self._words(offset, 1)[0]

    def u64(self, offset: int) -> int:
        low, high = self._words(offset, 2)
        return low | high << 32

    def _words(self, offset: int, count: int) -> list[int]:
        place = (offset - _HEAD) // 4
        words = self.state.words[place : place + count]
        if len(words) != count:
            raise ContainerError(
                self.state.offset, f"the state record has {len(self.state.words)} words, none of them at {offset:#x}"
            )
        return words

    def text(self, offset: int) -> str:
        """A string by its offset in the command."""
        behind = offset - _HEAD - 4 * len(self.state.words)
        start = self.state.offset + _HEAD + 4 * len(self.state.words)
        return Bytes(self.state.strings, start).text(behind, "a name in a state record")


@dataclass(frozen=True)
class _Places:
    """Where a generation keeps what the loader needs."""

    bars: int
    bar_stride: int
    first_task: int
    task_count: int
    name: int
    first_words: int | None = None
    text_words: int | None = None


_PLAIN = _Places(0x10, 8, 0x810, 0x81C, 0x83C, first_words=0x818)
_INDEXED = _Places(0x10, 16, 0x810, 0x830, 0x848, text_words=0x824)
_PLACES = {1: _PLAIN, 4: _INDEXED}
"""By the flavor of the state record."""


class ProgramDescriptor(_Record):
    """Base addresses, the first task, and how many tasks there are."""

    def __init__(self, state: StateRecord) -> None:
        super().__init__(state)
        self._places = _PLACES[state.flavor]

    @property
    def is_indexed(self) -> bool:
        """Whether it is the form of h14 and later."""
        return self._places is _INDEXED

    @property
    def bars(self) -> list[int]:
        """Every base address: the text, the constants, scratch and the caller's tensors."""
        places = self._places
        count = (places.first_task - places.bars) // places.bar_stride
        return [self.u64(places.bars + number * places.bar_stride) for number in range(count)]

    @property
    def first_task(self) -> int:
        """The address of the first task."""
        return self.u64(self._places.first_task)

    @property
    def first_words(self) -> int | None:
        """The size of the first task; None where tasks say their own."""
        place = self._places.first_words
        return None if place is None else self.u32(place) + 1

    @property
    def text_words(self) -> int | None:
        """The size of the text; None where the descriptor does not state it."""
        place = self._places.text_words
        return None if place is None else self.u32(place)

    @property
    def task_count(self) -> int:
        return self.u32(self._places.task_count)

    @property
    def name(self) -> str:
        """The name of the procedure."""
        return self.text(self.u32(self._places.name))

    def unnamed(self) -> dict[int, int]:
        """The words whose meaning is not published and that are not 0, by their offset in the command."""
        places = self._places
        bars = range(places.bars, places.first_task)
        named = {places.first_task, places.first_task + 4, places.task_count, places.name}
        named |= {place for place in (places.first_words, places.text_words) if place is not None}
        offsets = {_HEAD + 4 * number: word for number, word in enumerate(self.state.words)}
        return {place: word for place, word in offsets.items() if word and place not in named and place not in bars}

    def to_json(self) -> dict[str, Any]:
        used = {str(number): f"{address:#x}" for number, address in enumerate(self.bars) if address}
        return {"name": self.name, "task_count": self.task_count, "first_task": f"{self.first_task:#x}", "bars": used}


class TensorDescriptor(_Record):
    """One tensor of the caller."""

    @property
    def role(self) -> str:
        code = self.u32(0x14)
        return _ROLES.get(code, f"role {code}")

    @property
    def name(self) -> str:
        return self.text(self.u32(0x20))

    @property
    def procedure(self) -> str:
        return self.text(self.u32(0x18))

    @property
    def element(self) -> str:
        return element_type(self.u32(0x24))

    @property
    def element_code(self) -> int:
        return self.u32(0x24)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Batch, channels, height and width."""
        n, c, h, w = (self.u32(0x28 + 4 * place) for place in range(4))
        return n, c, h, w

    @property
    def depth(self) -> int:
        return self.u32(0x38)

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Bytes from one batch, channel, row and element to the next."""
        n, c, h, w = (self.u64(0x50 + 8 * place) for place in range(4))
        return n, c, h, w

    @property
    def total_bytes(self) -> int:
        return self.u64(0x70)

    def to_json(self) -> dict[str, Any]:
        keys = ("role", "name", "element", "depth", "total_bytes")
        return {**{key: getattr(self, key) for key in keys}, "shape": list(self.shape), "strides": list(self.strides)}
