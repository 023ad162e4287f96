"""The ceilings that a cut must keep: those of the gate's rules about whole programs, and those of the data file.

A program of a plan has amounts (bytes, states, layers that attend), and each amount its ceilings on a chip by a
runtime. What breaks one says which limit, which value and whose word it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from aneforge.chips.ceilings import Ceiling, ceilings
from aneforge.chips.chip import Target
from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.query import CHAIN
from aneforge.compiler.legal.rules.base import Limit, limits_for, rule_reads
from aneforge.cost.constants import basis_of

BYTES = ("weight_bytes", "mapped_bytes", "app_bytes")
"""Amounts that are bytes."""

_RULES: Mapping[str, tuple[str, ...]] = {
    "weight_bytes": ("program-size",),
    "decode_layers": ("decode-layers",),
    "states": ("state-count",),
    "recurrent_layers": ("recurrent-layers",),
}
"""The rules of the gate about an amount of one program."""
_FACT = re.compile(r"\b(?:LC|CF|L|T|E)\d\d\b")
_OPS = {"decode-layers": f"{CHAIN}softmax"}


@dataclass(frozen=True)
class Amounts:
    """What one program holds, or one process."""

    weight_bytes: float = 0.0
    kind: str = "layers"
    """``decoder`` (attention and a vocabulary), ``layers`` or ``convolutions``."""
    cache_bytes: float = 0.0
    decode_layers: int = 0
    """Layers that attend with one query."""
    states: int = 0
    unlike_states: bool = False
    state_axis: int = 0
    """The last axis of its states; 0 where it has none."""
    head_rows: int = 0
    """Rows of its largest product with a vocabulary in one operation."""
    history: int = 0
    """Keys of its attention where several queries are worked out in one call."""
    weight_files: int = 1
    programs: int = 0
    """Of a process."""
    app_bytes: float = 0.0
    """Of a process."""

    @property
    def mapped_bytes(self) -> float:
        return self.weight_bytes + self.cache_bytes

    def of(self, quantity: str) -> float:
        return float(getattr(self, quantity))


@dataclass(frozen=True)
class Breach:
    """An amount above its ceiling."""

    ceiling: Ceiling
    amount: float

    @property
    def words(self) -> str:
        """Which limit, which value, and who says so, in a sentence."""
        amount, most = (shown_amount(self.ceiling.quantity, value) for value in (self.amount, self.ceiling.most))
        relation = "is not a multiple of" if self.ceiling.is_multiple else "is more than"
        doubt = "" if self.ceiling.effect == "fails" else ", and nobody has settled what happens above"
        return f"{amount} {relation} {most} ({self.ceiling.says}{doubt}; {self.ceiling.label})"

    def to_json(self) -> dict[str, Any]:
        return {"amount": self.amount, **self.ceiling.to_json(), "words": self.words}


def shown_amount(quantity: str, amount: float) -> str:
    """An amount as people read it."""
    return decimal_bytes(amount) if quantity in BYTES else f"{amount:,.0f}"


def decimal_bytes(amount: float) -> str:
    """Bytes in powers of ten, as limits are published."""
    return f"{amount / 1e9:.2f} GB" if amount >= 999_500_000 else f"{amount / 1e6:.1f} MB"


@dataclass(frozen=True)
class Ceilings:
    """All ceilings of a chip in a product by a runtime."""

    chip: Target
    product: str
    runtime: str
    route: str = "conversion"

    @classmethod
    def on(cls, chip: Target, runtime: str) -> Ceilings:
        """Those of a chip: of a target that several products carry, of the one whose times are estimated."""
        return cls(chip, chip.product or basis_of(chip).chip, runtime)

    def about(self, quantity: str, kind: str = "layers", unlike: bool = False) -> tuple[Ceiling, ...]:
        """The ceilings of an amount, the lowest first."""
        return _about(self, quantity, kind, unlike)

    def breaches(self, amounts: Amounts) -> list[Breach]:
        """Every ceiling that a program, or a process, is above."""
        return list(self._breaches(amounts))

    def _breaches(self, amounts: Amounts) -> Iterator[Breach]:
        for quantity in QUANTITIES:
            amount = amounts.of(quantity)
            if amount:
                for ceiling in self.about(quantity, amounts.kind, amounts.unlike_states):
                    if not ceiling.allows(amount):
                        yield Breach(ceiling, amount)


QUANTITIES = (
    "weight_bytes", "mapped_bytes", "decode_layers", "states", "state_axis", "head_rows", "history", "weight_files",
    "programs", "app_bytes",
)  # fmt: skip
"""Every amount that has ceilings."""
_OF_RULES_ONLY = ("decode_layers", "states", "recurrent_layers")


@lru_cache(maxsize=1024)
def _about(known: Ceilings, quantity: str, kind: str, unlike: bool) -> tuple[Ceiling, ...]:
    own = () if quantity in _OF_RULES_ONLY else ceilings(quantity, known.chip, known.product, known.runtime)
    ruled = [ceiling for rule in _RULES.get(quantity, ()) for ceiling in _of_rule(known, rule, quantity, kind, unlike)]
    return tuple(sorted((*own, *ruled), key=lambda ceiling: ceiling.most))


def _of_rule(known: Ceilings, rule: str, quantity: str, kind: str, unlike: bool) -> Iterator[Ceiling]:
    facts = Facts(known.chip, rule_reads((rule,)))
    op = _OPS.get(rule, f"{CHAIN}program")
    for limit in limits_for(rule, op, facts, known.route, known.runtime):
        record = limit.record
        is_other_kind = "kinds" in record and kind not in record["kinds"]
        if not is_other_kind and (unlike or not record.get("unlike")) and isinstance(limit.value, (int, float)):
            yield _ceiling(limit, rule, quantity)


def _ceiling(limit: Limit, rule: str, quantity: str) -> Ceiling:
    record = limit.record
    says = {"decode-layers": "layers that attend with one query in one program"}.get(
        rule, f"{'weights' if quantity == 'weight_bytes' else ''} of one program: {record.get('what', rule)}".strip()
    )
    effect = "unsure" if record.get("effect") == "unknown" else "fails"
    facts = tuple(_FACT.findall(str(record.get("note", ""))))
    return Ceiling(rule, quantity, float(limit.value), says, limit.hint, facts, limit.evidence, effect, rule=rule)
