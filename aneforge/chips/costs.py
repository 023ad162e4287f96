"""The compiler's own cost tables, and what is published about a program around its calls: loading, waking, power."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from aneforge.chips import store
from aneforge.chips.chip import Target, compiler_target
from aneforge.chips.evidence import Fact, fact, unknown, with_losers
from aneforge.chips.families import Family8
from aneforge.chips.names import target as find_target
from aneforge.errors import AneforgeError, UnknownNameError


@dataclass(frozen=True)
class CostCurve:
    """Clock points of one target (MHz), its core count and per-cycle divisor in the cost model."""

    ne_mhz: tuple[int, ...]
    dma_mhz: tuple[int, ...]
    dram_mhz: tuple[int, ...]
    ne_to_l2_mhz: tuple[tuple[int, int], ...]
    cores: int
    divisor: int
    multiplier: int
    max_mhz: float
    operating_mhz: float
    effective_mhz: float
    relative_to_m1: float

    def effective(self, mhz: float) -> float:
        """The effective (on-chip memory) clock at an engine clock, between the published points."""
        points = self.ne_to_l2_mhz
        clocks = [point[0] for point in points]
        if mhz <= clocks[0]:
            return points[0][1] * mhz / clocks[0]
        if mhz >= clocks[-1]:
            return points[-1][1] * mhz / clocks[-1]
        upper = bisect_left(clocks, mhz)
        (x0, y0), (x1, y1) = points[upper - 1], points[upper]
        return y0 + (y1 - y0) * (mhz - x0) / (x1 - x0)

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def cost_curve(target: Target) -> Fact[CostCurve]:
    """The clock curve of a target; unpublished ones come from the family's representative (C28)."""
    document = store.load("cost_model")
    about = f"cost curve of {target.name}"
    row = document["curves"].get(target.name)
    if row is not None:
        return fact({"v": _curve(row), "e": row["e"]}, document["evidence"], about=about)
    stand_in = _representative(target)
    if stand_in is None or stand_in not in document["curves"]:
        return unknown(about)
    curve = cost_curve(compiler_target(stand_in))
    note = "no curve is published for this target"
    return replace(curve, confidence="inferred", about=about, note=note, conflict_id="C28", taken_from=stand_in)


def cost_cores(target: Target) -> Fact[int]:
    """The core count that the cost model multiplies by: of the target's own curve row, else of its HAL table.

    A stand-in gives its clocks, not its cores: core counts are published for nearly every target.
    """
    about, curve, own = f"cost-model cores of {target.name}", cost_curve(target), target["cores"]
    if curve.known and curve.taken_from is None:
        cores = Fact(curve.value.cores, curve.source, curve.confidence, about)
        disputed = store.load("cost_model")["curves"][target.name].get("conflict")
        return with_losers(cores, replace(own, losers=(), conflict_id=None), conflict_id=disputed)
    if own.known:
        return replace(own, about=about)
    if curve.known:
        note = "no core count is published for this target"
        return Fact(curve.value.cores, curve.source, "inferred", about, note, "C28", taken_from=curve.taken_from)
    return unknown(about)


def _representative(target: Target) -> str | None:
    family = target.family5
    if family is None:
        return None
    return store.load("targets")["family5_representative"]["v"].get(family.name)


def _curve(row: dict[str, Any]) -> CostCurve:
    return CostCurve(
        ne_mhz=tuple(row["ne_mhz"]),
        dma_mhz=tuple(row["dma_mhz"]),
        dram_mhz=tuple(row["dram_mhz"]),
        ne_to_l2_mhz=tuple((ne, l2) for ne, l2 in row["ne_to_l2_mhz"]),
        cores=row["cores"],
        divisor=row["divisor"],
        multiplier=row["mult"],
        max_mhz=row["max_mhz"],
        operating_mhz=row["op_mhz"],
        effective_mhz=row["op_eff_mhz"],
        relative_to_m1=row["rel_m1_compute"],
    )


@dataclass(frozen=True)
class DeviceInfo:
    """One arm of ``getDeviceInfo``: bandwidth clamps by size bucket, and the setup ramp."""

    arm: str
    buckets: tuple[int, ...]
    clamps: Fact[tuple[float, ...]]
    setup_ramp: Fact[tuple[float, float]]
    constant: float

    def bucket(self, size: float) -> int:
        """Which bucket a size falls in; there is one more bucket than thresholds."""
        if not size >= 0:  # also refuses NaN
            raise AneforgeError(f"size {size!r} is not valid; it must be zero or more")
        return bisect_left(self.buckets, size)

    def bandwidth_clamp(self, size: float) -> Fact[float]:
        """The clamp for a size; cells past the published sequence are inferred (U12)."""
        number, published = self.bucket(size), self.clamps.value
        if number < len(published):
            return Fact(published[number], self.clamps.source, self.clamps.confidence, self.clamps.about)
        beyond = published[-1]
        if self.arm.startswith("default"):
            beyond *= 2 ** (number - len(published) + 1)
        return Fact(beyond, self.clamps.source, "inferred", self.clamps.about, conflict_id="U12")

    def to_json(self) -> dict[str, Any]:
        return {
            "arm": self.arm,
            "buckets": list(self.buckets),
            "clamps": self.clamps.to_json(),
            "setup_ramp": self.setup_ramp.to_json(),
            "constant": self.constant,
        }


def device_info(family: Family8) -> DeviceInfo:
    """The device-info arm of a compiler family (table 35.7)."""
    document = store.load("cost_model")
    table = document["get_device_info"]
    rows = table["table_35_7"]
    row = next((record for record in rows if family.name in _words_of(record["family"])), rows[-1])
    about = f"device info of {family.name}"
    clamps = fact({"v": tuple(row["clamp"]), "e": row["e"]}, document["evidence"], about=about)
    ramp = fact({"v": tuple(row["setup"]), "e": row["e"]}, document["evidence"], about=about)
    return DeviceInfo(row["family"], tuple(table["size_buckets"]), clamps, ramp, table["const_0x30"])


def _words_of(text: str) -> set[str]:
    return set(text.replace("(", " ").replace(")", " ").replace(",", " ").split())


# What is published about the life of a program around its calls: waking the engine, compiling at the first load, and
# watts by the data it computes on. Each was measured on few chips; of the others it is unknown.


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
