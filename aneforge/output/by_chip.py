"""Results by chip: one object for one chip and for several, printed and written as JSON in one shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from aneforge.errors import AneforgeError, UnknownNameError

Result = TypeVar("Result")


class ByChip(Mapping[str, Result], Generic[Result]):
    """The result of each chip, by the name it was asked for, in that order.

    Where one chip was asked for, ``only`` is its result, and the result's attributes can be read from here too:
    ``af.partition(model, "m1").regions``. The JSON has the same shape for one chip and for several.
    """

    def __init__(self, results: Mapping[str, Result]) -> None:
        self._results = dict(results)

    def __getitem__(self, chip: str) -> Result:
        if chip not in self._results:
            raise UnknownNameError(f"{chip}: this chip was not asked for. Choose one: {', '.join(self._results)}.")
        return self._results[chip]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    @property
    def only(self) -> Result:
        """The result of the one chip that was asked for."""
        if len(self._results) != 1:
            raise AneforgeError(
                f"result: there are results of {len(self._results)} chips. Choose one: {', '.join(self._results)}."
            )
        return next(iter(self._results.values()))

    def __getattr__(self, name: str) -> Any:
        results = self.__dict__.get("_results", {})
        if name.startswith("_") or len(results) != 1:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}; it has results of {list(results)}")
        return getattr(next(iter(results.values())), name)

    def to_json(self) -> dict[str, Any]:
        return {"targets": {chip: result.to_json() for chip, result in self._results.items()}}  # type: ignore[attr-defined]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self._results.values()))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self._results) or 'no chip'}>"
