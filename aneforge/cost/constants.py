"""Which constants a target's times are made of: its own where it was measured, else another's by a stated rule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from aneforge.cost.device import Constants
from aneforge.errors import AneforgeError
from aneforge.targets import store
from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target
from aneforge.targets.names import target as find_target

__all__ = ["Basis", "basis_of"]


@dataclass(frozen=True)
class Basis:
    """The constants of one target and where they come from."""

    target: Target
    constants: Constants
    measured: bool
    """Rows of this very target are among those that were fitted."""
    taken_from: str
    rule: str
    rows: int
    spread: tuple[float, float]
    """Measured over predicted, its 10th and 90th percentile in validation."""

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.name,
            "measured": self.measured,
            "taken_from": self.taken_from,
            "rule": self.rule,
            "rows": self.rows,
            "spread": list(self.spread),
            "constants": dict(self.constants.chip),
            "shared": dict(self.constants.shared),
        }


def basis_of(chip: str | Target) -> Basis:
    """The basis of a chip's estimates, by any of its names."""
    found = chip if isinstance(chip, Target) else find_target(chip)
    return _basis(found.name)


@cache
def _basis(name: str) -> Basis:
    document, target = store.load("cost_fit"), find_target(name)
    own = name in document["chips"]
    rule: dict[str, Any] = {"from": name, "rule": "fitted to its own measurements"}
    if not own:
        rule = _rule(document, target)
    source = document["chips"][rule["from"]]
    values = {**source["constants"], **rule.get("constants", {})}
    for key, other in rule.get("taken", {}).items():
        values[key] = document["chips"][other]["constants"][key]
    engines = int(source["engines"]) if own else 1
    winograd = bool(compile_fact(target, "winograd").value)
    known = Constants(values, document["shared"]["constants"], engines, winograd)
    low, high = document["spread"]["measured" if own else "extrapolated"]
    return Basis(target, known, own, rule["from"], rule["rule"], source["rows"] if own else 0, (low, high))


def _rule(document: dict[str, Any], target: Target) -> dict[str, Any]:
    """The first rule of the data that speaks of a target: by name, or by descriptor generation."""
    for rule in document["extrapolation"]:
        if target.name in rule.get("targets", ()) or target.td_generation in rule.get("generations", ()):
            return rule
    raise AneforgeError(
        f"{target.name}: nobody has measured it, and no rule says from which chip to take its constants"
    )
