"""What a rule is given: one operation with its operands, known or computed, and the types that the file says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreai_rules.records import NUMPY, Block, Type
from aneforge.frontends.forms import as_number
from aneforge.frontends.values import Value, axis_of, known, number, whole_numbers
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["Handle", "Held", "Op", "Rule", "Token", "shaped"]


@dataclass(frozen=True)
class Token:
    """What handles hold after the reads and writes that led here; others hold what they came with."""

    written: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Handle:
    """A state of the program: its name and the graph's input for it."""

    name: str
    value: Tensor


Held = Value | Token | Handle


def _alone(place: int) -> Op | None:
    return None


@dataclass
class Op:
    kind: str
    name: str
    given: list[Held]
    types: list[Type]
    results: list[Type]
    attributes: dict[str, str] = field(default_factory=dict)
    regions: Sequence[Block] = ()
    maker: Callable[[int], Op | None] = _alone
    """The operation that gave an operand, if nothing else reads it."""

    def value(self, place: int) -> Value:
        if place >= len(self.given):
            raise LoadError(f"it has {len(self.given)} operands, not {place + 1}")
        found = self.given[place]
        if isinstance(found, (Token, Handle)):
            raise LoadError(f"operand {place} is a {type(found).__name__.lower()}")
        return found

    def tensor(self, place: int = 0) -> Tensor:
        """An operand as numbers of the graph; truth values as 0 and 1."""
        return as_number(self.value(place))

    def known(self, place: int, what: str) -> np.ndarray:
        return known(self.value(place), what)

    def numbers(self, place: int, what: str) -> list[int]:
        return whole_numbers(self.value(place), what)

    def whole(self, place: int, what: str) -> int:
        return int(number(self.value(place), what))

    def number(self, place: int, what: str) -> float:
        return number(self.value(place), what)

    def axis(self, place: int, rank: int | None = None) -> int:
        return axis_of(self.whole(place, "the axis"), self.rank(0) if rank is None else rank)

    def axes(self, place: int) -> list[int]:
        return [axis_of(each, self.rank(0)) for each in self.numbers(place, "the axes")]

    def rank(self, place: int) -> int:
        """As the file counts: a single number has no axes there, and one here."""
        return len(self.types[place].shape)

    def text(self, name: str, default: str = "") -> str:
        return self.attributes.get(name, default)

    @property
    def dtype(self) -> str:
        return self.results[0].dtype

    @property
    def numpy(self) -> type[np.generic]:
        if self.dtype not in NUMPY:
            raise LoadError(f"numbers of type {self.dtype}")
        return NUMPY[self.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first result."""
        found = self.results[0].static
        if found is None:
            raise LoadError(f"it gives {self.results[0]}, whose shape is only known while the program runs")
        return found


Rule = Callable[[Op], Value | Sequence[Value]]


def shaped(value: Value, shape: Sequence[int]) -> Value:
    """The same numbers under another shape; a weight keeps its stored form if it only gains axes at its end."""
    wanted = tuple(shape)
    if isinstance(value, Tensor):
        from aneforge.frontends.forms import reshaped

        return value if value.shape == (wanted or (1,)) else reshaped(value, wanted)
    if isinstance(value, Encoded):
        rest = wanted[value.ndim :]
        if wanted[: value.ndim] == value.shape and all(extent == 1 for extent in rest):
            for axis in range(value.ndim, len(wanted)):
                value = value.expand_dims(axis)
            return value
        return value.decoded().reshape(wanted)
    return np.asarray(value).reshape(wanted)
