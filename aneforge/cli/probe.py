"""``aneforge probe``: what the simulator gives where somebody read a chip."""

from __future__ import annotations

from aneforge.compiler.refusal import CompileError
from aneforge.output import text
from aneforge.probes import Reading, readings
from aneforge.targets.chip import Target
from aneforge.targets.listed import chip_list
from aneforge.targets.names import target as find_target


def run(chips: str, as_json: bool) -> None:
    """Print every public probe beside its measured value, chip by chip."""
    asked = [find_target(each) for each in chip_list(chips)]
    found: dict[Target, list[Reading]] = {}
    refused: dict[str, str] = {}
    for target in asked:
        try:
            found[target] = list(readings(target))
        except CompileError as error:
            if len(asked) == 1:
                raise
            refused[target.name] = str(error)
    if as_json:
        records = [{"target": at.name, "probes": [each.to_json() for each in rows]} for at, rows in found.items()]
        print(text.as_json(records[0] if len(asked) == 1 else {"targets": records, "refused": refused}))
        return
    for place, (target, rows) in enumerate(found.items()):
        print("\n" * bool(place), end="")
        _print(target, rows)
    for name, why in refused.items():
        print(f"\n{name}: no program: {why}")


def _print(target: Target, found: list[Reading]) -> None:
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
