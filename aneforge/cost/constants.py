"""Which constants a target's times are made of: its own where it was measured, else another's by a stated rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from aneforge.cost.device import Constants
from aneforge.errors import AneforgeError
from aneforge.targets import store
from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target
from aneforge.targets.evidence import Fact, fact
from aneforge.targets.names import target as find_target

__all__ = ["Basis", "basis_of"]

_SOURCE = ("silicon",)  # the public measurements that the fit reads


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
    evidence: Mapping[str, Fact[float]]
    """Where each constant comes from, by name: the chip's own and the shared ones."""
    watts: Fact[Any]
    """Of the engine under full load, where somebody has published it."""

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.name,
            "measured": self.measured,
            "taken_from": self.taken_from,
            "rule": self.rule,
            "rows": self.rows,
            "spread": list(self.spread),
            "watts": self.watts.to_json(),
            "constants": {name: fact.to_json() for name, fact in self.evidence.items()},
        }


def basis_of(chip: str | Target) -> Basis:
    """The basis of a chip's estimates, by any of its names."""
    target = chip if isinstance(chip, Target) else find_target(chip)
    return _basis(target.name)


@cache
def _basis(name: str) -> Basis:
    document, target = store.load("cost_fit"), find_target(name)
    own = name in document["chips"]
    rule: dict[str, Any] = {"from": name, "rule": "fitted to its own measurements"}
    if not own:
        rule = _rule(document, target)
    source = document["chips"][rule["from"]]
    chip = {key: _fitted(document, rule["from"], key) for key in source["constants"]}
    for key, other in rule.get("taken", {}).items():
        chip[key] = _fitted(document, other, key)
    if own:
        chip = {key: replace(fact, taken_from=None) for key, fact in chip.items()}
    chip |= {key: _scaled(chip[key], factor) for key, factor in rule.get("scaled", {}).items()}
    chip |= {key: _stated(document, key, row) for key, row in rule.get("constants", {}).items()}
    shared = {key: _fitted(document, None, key) for key in document["shared"]["constants"]}
    shared |= {key: _stated(document, key, row) for key, row in document["stated"].items()}
    known = Constants(
        {key: fact.value for key, fact in chip.items()},
        {key: fact.value for key, fact in shared.items()},
        int(source["engines"]) if own else 1,
        bool(compile_fact(target, "winograd").value),
    )
    spread = tuple(source["spread"]) if own else tuple(document["spread"]["extrapolated"])
    rows = source["rows"] if own else 0
    watts = fact(document["power"].get(name, {}), document["evidence"], about=f"watts of {name}'s engine")
    low, high = spread
    return Basis(target, known, own, rule["from"], rule["rule"], rows, (low, high), {**chip, **shared}, watts)


def _fitted(document: dict[str, Any], owner: str | None, key: str) -> Fact[float]:
    """A constant of the fit: how many rows determine it; without any it is the value that the fit started from."""
    record = document["chips"][owner] if owner else document["shared"]
    informed, about = record["informed"][key], f"{key} of {owner or 'all chips'}"
    value, start = record["constants"][key], document["starts"][key]
    if not informed:
        return Fact(value, (), "inferred", about, f"no measurement determines it: {start}", taken_from=owner)
    return Fact(value, _SOURCE, "inferred", about, f"fitted to {informed} measurements", taken_from=owner)


def _scaled(lent: Fact[float], factor: dict[str, Any]) -> Fact[float]:
    value, source = lent.value * factor["v"], (*lent.source, *factor["src"])
    return replace(lent, value=value, source=source, note=f"times {factor['v']} {factor['note']}")


def _stated(document: dict[str, Any], key: str, record: dict[str, Any]) -> Fact[float]:
    """A constant that is published, or follows from what is."""
    return fact(record, document["evidence"], about=key)


def _rule(document: dict[str, Any], target: Target) -> dict[str, Any]:
    """The first rule of the data for a target: by name, or by descriptor generation."""
    for rule in document["extrapolation"]:
        if target.name in rule.get("targets", ()) or target.td_generation in rule.get("generations", ()):
            return rule
    raise AneforgeError(
        f"{target.name}: this chip was never measured, and no rule says whose constants to take. Choose another chip."
    )
