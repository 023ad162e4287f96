"""What is published about the life of a program around its calls: waking the engine, compiling at the first load, and
watts by the data it computes on. Each was measured on few chips; of the others it is unknown."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from aneforge.errors import UnknownNameError
from aneforge.targets import store
from aneforge.targets.chip import Target
from aneforge.targets.evidence import Fact, fact, unknown
from aneforge.targets.names import target as find_target

_GATING = "C62"  # how long the engine stays on, and what waking costs: another answer for each chip


class Wake(NamedTuple):
    """The first call after a pause."""

    idle_s: float
    """Seconds without a call after which the engine is off."""
    extra_ms: float
    """What the next call takes longer."""
    ramp_s: float | None
    """Seconds until full speed, where somebody says."""


class FirstLoad(NamedTuple):
    """What compiling took when a program was loaded for the first time."""

    seconds: tuple[float, float]
    megabytes: float | None
    """The weights of the program that was measured; None for a small program."""
    measured_on: str


class WattsByData(NamedTuple):
    """Watts of the engine at full load, at most: with random numbers, and with zeros."""

    random: float
    zeros: float


def wake_of(target: Target) -> Fact[Any]:
    """A :class:`Wake`, or unknown."""
    document = store.load("cost_model")
    about = f"waking the engine of {target.name}"
    for row in document["wake"]:
        if _is(row["chip"], target):
            if "after_5s_ms" in row:
                wake = Wake(5, row["after_5s_ms"], None)
            else:
                wake = Wake(row["off_after_s"], row["first_call_ms"], row.get("ramp_s"))
            return fact({"v": wake, "e": row["e"], "conflict": _GATING}, document["evidence"], about=about)
    return unknown(about)


def first_load_of(target: Target, weight_bytes: float) -> Fact[Any]:
    """A :class:`FirstLoad` of the smallest program that was measured with as many weights, or unknown."""
    about = f"compiling for {target.name} at the first load"
    for identifier, sizes in (("L03", _by_size), ("L01", _small)):
        row, evidence = _row(identifier)
        if not _is(row["chip"], target):
            continue
        for megabytes, seconds in sizes(row["value"]):
            if megabytes is None or weight_bytes <= 1e6 * megabytes:
                value = FirstLoad(seconds, megabytes, row["chip"])
                return fact({"v": value, "e": row["e"]}, evidence, about=about)
    return unknown(about)


def watts_by_data(target: Target) -> Fact[Any]:
    """:class:`WattsByData`, or unknown."""
    row, evidence = _row("L44")
    about = f"watts of {target.name}'s engine by data"
    for chip, (random, zeros) in row["value"].items():
        if _is(chip, target):
            value = WattsByData(max(_range(random)), max(_range(zeros)))
            return fact({"v": value, "e": row["e"], "note": row["fact"]}, evidence, about=about)
    return unknown(about)


def _by_size(value: dict[str, Any]) -> list[tuple[float | None, tuple[float, float]]]:
    """Seconds of one dense layer through Core ML, by megabytes of weights, the smallest first."""
    sizes = {float(key.removesuffix("MB_s")): _range(seconds) for key, seconds in value.items() if _is_one_layer(key)}
    return sorted(sizes.items())  # type: ignore[return-value]


def _is_one_layer(key: str) -> bool:
    return key.endswith("MB_s") and key.removesuffix("MB_s").replace(".", "", 1).isdigit()


def _small(value: dict[str, Any]) -> list[tuple[float | None, tuple[float, float]]]:
    """Seconds of a small program: compiled and loaded cold."""
    cold = (value["compile_ms"]["cold"] + value["load_ms"]["cold"]) / 1000
    return [(None, (cold, cold))]


def _range(value: Any) -> tuple[float, float]:
    low, high = value if isinstance(value, list) else (value, value)
    return float(low), float(high)


@cache
def _row(identifier: str) -> tuple[dict[str, Any], Any]:
    document = store.load("lifecycle")
    return next(row for row in document["facts"] if row["id"] == identifier), document["evidence"]


def _is(chip: str, target: Target) -> bool:
    """Whether a measured product is this one, or has this target where no product is named."""
    try:
        measured = find_target(chip)
    except UnknownNameError:
        return False
    return measured == target and (target.product is None or measured.product in (None, target.product))
