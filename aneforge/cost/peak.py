"""``af.project_peak``: how fast a chip could be by its cores and clocks, projected from one measured rate.

A ceiling for comparing generations, not a promise: :func:`peak_evidence` says what each number rests on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from aneforge.chips import store
from aneforge.chips.chip import Target, compiler_target
from aneforge.chips.costs import CostCurve, cost_cores, cost_curve
from aneforge.chips.evidence import Fact, fact, unknown, with_losers
from aneforge.chips.names import target as find_target

_RESULT = ("tflops", "rel_m1", "cores", "ghz")
_CAVEAT_CHIP = "h17s"  # the chip that the seed page calls M5; a base M5 is h17 here (C03)


@dataclass(frozen=True)
class PeakEvidence:
    """What a projected peak rests on, number by number."""

    target: Target
    anchor: Fact[float]
    """The one measured rate that everything is scaled from, in TFLOPS, and whose it is."""
    curve: Fact[CostCurve]
    cores: Fact[int]
    ghz: Fact[float]
    """The operating engine clock: 0.8 of the top one."""
    effective_ghz: Fact[float]
    """The clock that counts: the on-chip memory's at the operating point."""
    rel_m1: Fact[float]
    projected_speedup: Fact[float]
    """What the seed page says that this projection gives for an M5 over an M1."""
    measured_speedup: Fact[str]
    """What was measured end to end between the two."""
    readings: dict[str, float]
    """What the published curves give for the same pair, read in the ways we tried."""

    @property
    def tflops(self) -> Fact[float]:
        return self._rate(self.rel_m1)

    def _rate(self, ratio: Fact[Any]) -> Fact[Any]:
        if not ratio.known:
            return ratio
        lost = tuple(self._rate(loser) for loser in ratio.losers)
        return replace(ratio, value=round(self.anchor.value * ratio.value, 3), losers=lost)

    @property
    def own_curve(self) -> bool:
        """Whether the clocks are the target's own and not a stand-in's."""
        return self.curve.known and self.curve.taken_from is None

    @property
    def caveat(self) -> str:
        projected, got = (
            self.projected_speedup.value,
            ", ".join(f"{name} {v:.3f}" for name, v in self.readings.items()),
        )
        return (
            f"a peak ceiling: the seed page projects an M5 ({_CAVEAT_CHIP}) to about {projected} times an M1, "
            "where calls "
            f"measured end to end are {self.measured_speedup.value} faster; the published curves did not "
            f"give {projected} in the readings tried ({got}; U171)"
        )

    def to_json(self) -> dict[str, Any]:
        names = (*_RESULT, "effective_ghz", "anchor", "projected_speedup", "measured_speedup")
        whose = (self.curve.taken_from or self.target.name) if self.curve.known else None
        return {
            "target": self.target.name,
            "own_curve": self.own_curve,
            "curve_of": whose,
            **{name: getattr(self, name).to_json() for name in names},
            "readings": dict(self.readings),
            "caveat": self.caveat,
        }

    def __str__(self) -> str:
        lines = [f"{self.target.name}: {name} {getattr(self, name)}" for name in _RESULT]
        return "\n".join([*lines, f"anchor {self.anchor}", self.caveat])


class Peak(dict[str, Any]):
    """``{"tflops", "rel_m1", "cores", "ghz"}``; as text with the evidence of the ratio, and what it was not (U171)."""

    def __init__(self, evidence: PeakEvidence) -> None:
        super().__init__({name: getattr(evidence, name).value for name in _RESULT})
        self.evidence = evidence

    def __str__(self) -> str:
        return f"{dict(self)} rel_m1 {self.evidence.rel_m1.label()}"


def project_peak(arch: str | int | Target) -> Peak:
    """The projected fp16 peak of a chip: ``{"tflops", "rel_m1", "cores", "ghz"}``, with its ``evidence``.

    ``arch`` is the chip, by any of its names.
    ``rel_m1`` is cores times effective clock over the M1's; ``tflops`` is that many times the rate measured on the M1,
    ``ghz`` the operating engine clock. A value that nobody has published is ``None``.

    This is a peak ceiling, for the shape of the generations and not as a promised speedup: the seed page projects an
    M5 to about 5.5 times an M1, where calls measured end to end are 2.3 to 3.3 times faster, because the cost of a
    dispatch holds real work below the ceiling. The published curves give 4.942 for that pair (U171);
    :func:`peak_evidence` has the sources.
    """
    return Peak(peak_evidence(arch))


def peak_evidence(arch: str | int | Target) -> PeakEvidence:
    """The evidence behind :func:`project_peak`: the anchor, whose curve, which cores, and the published caveat."""
    target = find_target(arch)
    document = store.load("cost_model")
    curve = cost_curve(target)
    base, anchor = _anchor(document)
    speedup = document["validation"]
    pair = "speedup of an M5 over an M1"
    projected = fact({"v": speedup["m5_speedup_vs_m1"]["projected_peak"], "e": speedup["e"]}, document["evidence"])
    measured = fact({"v": speedup["m5_speedup_vs_m1"]["measured_latency"], "e": speedup["e"]}, document["evidence"])
    readings = _readings(cost_curve(compiler_target(_CAVEAT_CHIP)).require(), cost_curve(base).require())
    relative = _relative(target, curve, cost_curve(base).require())
    if target.name == _CAVEAT_CHIP:
        relative = with_losers(relative, projected, conflict_id="U171")
    return PeakEvidence(
        target=target,
        anchor=anchor,
        curve=curve,
        cores=cost_cores(target),
        ghz=_clock(curve, "operating_mhz"),
        effective_ghz=_clock(curve, "effective_mhz"),
        rel_m1=relative,
        projected_speedup=replace(projected, confidence="predicted", about=f"projected {pair}"),
        measured_speedup=replace(measured, about=f"measured {pair}"),
        readings=readings,
    )


def _anchor(document: dict[str, Any]) -> tuple[Target, Fact[float]]:
    """The one chip whose anchor has a headline rate: the M1."""
    name, row = next((name, row) for name, row in document["anchors"].items() if "headline_peak_tflops" in row)
    about = f"TFLOPS of {name}, convolutions end to end"
    anchor = fact(row, document["evidence"], key="headline_peak_tflops", about=about)
    return compiler_target(name), replace(anchor, taken_from=name)


def _clock(curve: Fact[CostCurve], field: str) -> Fact[Any]:
    return replace(curve, value=round(getattr(curve.value, field) / 1000, 4)) if curve.known else curve


def _relative(target: Target, curve: Fact[CostCurve], base: CostCurve) -> Fact[Any]:
    """Cores times effective clock over the M1's: as published, or from a stand-in's clocks and the target's cores."""
    document = store.load("cost_model")
    table, about, cores = document["project_peak"], f"compute of {target.name} relative to M1", cost_cores(target)
    if not curve.known:
        return unknown(about)
    points = curve.value
    if target.name in table["rel_m1"]:
        relative = fact({"v": table["rel_m1"][target.name], "e": table["e"]}, document["evidence"], about=about)
        disputed = [replace(loser, value=_ratio(points, loser.value, base)) for loser in cores.losers]
        return with_losers(relative, *disputed, conflict_id=cores.conflict_id)
    whole = replace(curve, value=points.relative_to_m1, note="cores of the stand-in too")
    note = f"clocks of {curve.taken_from}; cores {cores.label()}"
    return with_losers(replace(curve, value=_ratio(points, cores.value, base), about=about, note=note), whole)


def _ratio(points: CostCurve, cores: int, base: CostCurve) -> float:
    return round(cores * points.effective_mhz / (base.cores * base.effective_mhz), 3)


def _readings(chip: CostCurve, base: CostCurve) -> dict[str, float]:
    """Ways to read the two curves, beside the ratio that the seed page prints: none of these gives it."""
    cores = chip.cores / base.cores
    return {
        "cores x effective clock": chip.relative_to_m1,
        "at the top clock": round(cores * chip.effective(chip.max_mhz) / base.effective(base.max_mhz), 3),
        "cores x engine clock": round(cores * chip.operating_mhz / base.operating_mhz, 3),
    }
