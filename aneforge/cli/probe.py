"""``aneforge probe``: what the simulator gives where somebody read a chip."""

from __future__ import annotations

from aneforge.output import text
from aneforge.probes import Reading, readings
from aneforge.targets.names import target as find_target


def run(chip: str, as_json: bool) -> None:
    """Print every public probe beside its measured value."""
    target = find_target(chip)
    found = readings(target)
    if as_json:
        print(text.as_json({"target": target.name, "probes": [each.to_json() for each in found]}))
        return
    rows = [
        (each.probe.name, each.probe.fact, _value(each.simulated), _value(each.measured), _verdict(each), _where(each))
        for each in found
    ]
    print(f"{target.name} ({', '.join(target.chips) or 'no product known'})")
    print(text.columns(("probe", "fact", "simulated", "measured", "holds", "measured on"), rows))
    known = [each for each in found if each.holds is not None]
    print(f"\n{sum(bool(each.holds) for each in known)} of {len(known)} measured probes hold on this generation")


def _value(value: float | None) -> str:
    return "-" if value is None else f"{value:.13g}"


def _verdict(reading: Reading) -> str:
    return {True: "yes", False: "no", None: "not measured"}[reading.holds]


def _where(reading: Reading) -> str:
    return ", ".join(reading.chips) or "-"
