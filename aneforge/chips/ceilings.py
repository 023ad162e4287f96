"""What one program, one process or one app may hold: published ceilings as numbers, each with its facts (U280)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact
from aneforge.errors import DataError

CHOICE = "U280"
QUANTITIES = {
    "weight_bytes": "bytes of weights",
    "mapped_bytes": "bytes that it maps",
    "weight_files": "weight files",
    "programs": "programs",
    "app_bytes": "bytes of the app",
    "head_rows": "rows",
    "history": "places",
    "state_axis": "numbers",
}
"""What a ceiling counts, in words."""


@dataclass(frozen=True)
class Ceiling:
    """One ceiling: the most that was seen to work, or the number that a size must be a multiple of."""

    id: str
    quantity: str
    most: float
    """Of a multiple, the number itself."""
    says: str
    """What it is about."""
    hint: str
    facts: tuple[str, ...]
    evidence: Fact[Any]
    effect: str = "fails"
    """``fails``, or ``unsure`` where sources disagree or nobody tried what lies between."""
    is_multiple: bool = False
    rule: str = ""
    """The rule of the gate that it is a record of, where it is one."""

    def allows(self, amount: float) -> bool:
        """Whether a program with this amount is at or below it."""
        return amount % self.most == 0 if self.is_multiple else amount <= self.most

    @property
    def label(self) -> str:
        """The facts or the rule, and the evidence."""
        names = ", ".join(self.facts) or self.rule
        return f"{names} {self.evidence.label()}"

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "quantity": self.quantity, "most": self.most, "multiple": self.is_multiple,
            "says": self.says, "effect": self.effect, "facts": list(self.facts), "rule": self.rule,
            "source": list(self.evidence.source), "confidence": self.evidence.confidence,
            "choice": self.evidence.conflict_id, "do": self.hint,
        }  # fmt: skip


@cache
def class_of(product: str) -> str:
    """``phone`` or ``mac``, of a chip by the name of its product."""
    return store.load("products")["products"].get(product, {}).get("class", "mac")


def ceilings(quantity: str, chip: Target, product: str, runtime: str) -> tuple[Ceiling, ...]:
    """The ceilings of a quantity that apply to a chip in a product by a runtime, the lowest first."""
    if quantity not in QUANTITIES:
        raise DataError(f"program_ceilings.json: {quantity!r} is not a quantity; it has {', '.join(QUANTITIES)}")
    found = (_ceiling(row) for row in _rows(quantity) if _applies(row, chip, product, runtime))
    return tuple(sorted(found, key=lambda ceiling: ceiling.most))


def all_ceilings() -> Iterator[tuple[Ceiling, Mapping[str, Any]]]:
    """Every ceiling with its record."""
    for row in store.load("program_ceilings")["ceilings"]:
        yield _ceiling(row), row


def _rows(quantity: str) -> Iterator[Mapping[str, Any]]:
    return (row for row in store.load("program_ceilings")["ceilings"] if row["quantity"] == quantity)


def _applies(row: Mapping[str, Any], chip: Target, product: str, runtime: str) -> bool:
    return (
        runtime in row.get("runtimes", (runtime,))
        and class_of(product) in row.get("classes", (class_of(product),))
        and chip.td_generation in row.get("generations", (chip.td_generation,))
    )


def _ceiling(row: Mapping[str, Any]) -> Ceiling:
    most = row.get("v", row.get("multiple_of"))
    evidence = Fact(most, tuple(row["src"]), row["conf"], row["says"], row.get("note"), CHOICE)
    return Ceiling(
        row["id"], row["quantity"], most, row["says"], row["hint"], tuple(row["facts"]), evidence, row["effect"],
        "multiple_of" in row,
    )  # fmt: skip
