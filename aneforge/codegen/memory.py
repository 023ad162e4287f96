"""What lies where while a program runs: the reader of a container follows values by their places."""

from __future__ import annotations

from typing import Generic, TypeVar

from aneforge.codegen.reading import Place

Value = TypeVar("Value")


class Memory(Generic[Value]):
    """The newest value of each place, with its views."""

    def __init__(self) -> None:
        self._values: dict[Place, list[tuple[tuple[int, ...], Value]]] = {}

    def write(self, place: Place, value: Value, shape: tuple[int, ...]) -> None:
        """A value takes the place of what lay there."""
        self._values[place] = [(shape, value)]

    def view(self, place: Place, value: Value, shape: tuple[int, ...]) -> None:
        """The same bytes in another shape."""
        self._values.setdefault(place, []).append((shape, value))

    def read(self, place: Place, shape: tuple[int, ...]) -> Value | None:
        """The value of a shape at a place; None where there is none."""
        return next((value for known, value in reversed(self._values.get(place, [])) if known == shape), None)
