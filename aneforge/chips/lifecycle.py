"""How long programs took to load, and what they took of memory, by bytes of weights: what was measured, and bands for
other sizes (U263)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.chips.chip import Target
from aneforge.chips.names import target as find_target
from aneforge.errors import DataError

NEAR = 4.0
"""Sizes within this factor of a model's count as its own."""
_SCALES = {"s": 1.0, "ms": 0.001, "min": 60.0, "GB": 1.0}


@dataclass(frozen=True)
class LoadPoint:
    """One measured program."""

    stage: str
    runtime: str
    fact: str
    chip: str
    megabytes: float
    amount: tuple[float, float]
    """Seconds, or GB of memory."""
    note: str
    size_is_ours: bool
    """Whether the size is our reading of what the fact says of the model."""


@dataclass(frozen=True)
class LoadBand:
    """What a stage takes: from ``low`` to ``high``; an end that nobody knows is None."""

    low: float | None
    high: float | None
    points: tuple[LoadPoint, ...] = ()
    same_chip: bool = False
    """Whether they were measured on a product with this chip's compiler target."""
    near: bool = False
    """Whether programs of about this size were measured."""

    @property
    def facts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(point.fact for point in self.points))

    @property
    def basis(self) -> str:
        """What it rests on, in words."""
        if not self.points:
            return "nothing is published"
        chips = ", ".join(dict.fromkeys(point.chip for point in self.points))
        sizes = " and ".join(f"{size:,.0f} MB" for size in dict.fromkeys(point.megabytes for point in self.points))
        size = "programs of about this size" if self.near else f"the nearest size, {sizes},"
        return f"{size} on {chips}{'' if self.same_chip else ', other chips'} ({', '.join(self.facts)}; U263)"

    def to_json(self) -> dict[str, Any]:
        return {
            "low": self.low, "high": self.high, "facts": list(self.facts), "same_chip": self.same_chip,
            "near_size": self.near, "basis": self.basis,
        }  # fmt: skip


@cache
def load_points() -> tuple[LoadPoint, ...]:
    """Every point, with its number read from its fact."""
    facts = {row["id"]: row["value"] for row in store.load("lifecycle")["facts"]}
    return tuple(_point(row, facts) for row in store.load("lifecycle_points")["points"])


def _point(row: dict[str, Any], facts: dict[str, Any]) -> LoadPoint:
    value: Any = facts[row["fact"]]
    try:
        for key in _keys(value, row["at"]):
            value = value[key]
        numbers = [float(number) * _SCALES[row["unit"]] for number in (value if isinstance(value, list) else [value])]
    except (KeyError, IndexError, TypeError, ValueError):
        raise DataError(f"lifecycle_points.json: {row['fact']} has no number at {row['at']!r}") from None
    amount = min(numbers), max(numbers)
    is_ours = row["size"] == "ours"
    return LoadPoint(
        row["stage"], row["runtime"], row["fact"], row["chip"], row["mb"], amount, row.get("note", ""), is_ours
    )


def _keys(value: Any, at: str) -> list[Any]:
    """The keys on the way to a number; a key of a fact may itself have a dot (``33.6MB_s``)."""
    if at in value:
        return [at]
    head, _, tail = at.rpartition(".")
    return [*_keys(value, head), int(tail) if tail.isdigit() and isinstance(value[head], list) else tail]


def load_band(stage: str, runtime: str, chip: Target, megabytes: float) -> LoadBand:
    """What a stage took for programs like one of this size through a runtime, on this chip or, where nobody measured
    it there, on others."""
    points = [point for point in load_points() if (point.stage, point.runtime) == (stage, runtime)]
    own = [point for point in points if find_target(point.chip).name == chip.name]
    chosen, same_chip = (own, True) if own else (points, False)
    near = _near(chosen, megabytes)
    if not near and same_chip and (others := _near(points, megabytes)):
        near, same_chip = others, False  # another chip says more of this size than this chip of another size
    if near:
        low = min(point.amount[0] / point.megabytes for point in near) * megabytes
        high = max(point.amount[1] / point.megabytes for point in near) * megabytes
        return LoadBand(low, high, tuple(near), same_chip, True)
    return _beyond(chosen, same_chip, megabytes)


def _near(points: Sequence[LoadPoint], megabytes: float) -> list[LoadPoint]:
    return [point for point in points if 1 / NEAR <= megabytes / point.megabytes <= NEAR]


def _beyond(points: Sequence[LoadPoint], same_chip: bool, megabytes: float) -> LoadBand:
    """A band by the nearest sizes: a smaller program bounds it from below, a larger one from above."""
    below = [point for point in points if point.megabytes < megabytes]
    above = [point for point in points if point.megabytes > megabytes]
    most = max((point.megabytes for point in below), default=0.0)
    least = min((point.megabytes for point in above), default=0.0)
    lower = [point for point in below if point.megabytes == most]
    upper = [point for point in above if point.megabytes == least]
    low = min((point.amount[0] for point in lower), default=None)
    high = max((point.amount[1] for point in upper), default=None)
    return LoadBand(low, high, (*lower, *upper), same_chip)
