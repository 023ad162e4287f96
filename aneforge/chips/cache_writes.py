"""Which ways of writing a cache inside a program run: one table by form, chip, runtime and system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aneforge.chips import store
from aneforge.chips.ceilings import CHOICE
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact
from aneforge.chips.systems import applies_to

FORMS = {
    "rows": "new rows as outputs",
    "slice": "slice update",
    "shift": "concat and shift",
    "blend": "select with a mask",
    "indexed": "scatter at a computed place",
    "grow": "joined behind, longer in each call",
    "other": "another form",
}
"""How a cache gets its new rows, in words."""
KEPT = {"state": "a state of the program", "port": "an input and an output"}
"""Where a cache lies between calls."""


@dataclass(frozen=True)
class WriteVerdict:
    """What is known of one form on one chip."""

    form: str
    kept: str
    verdict: str
    """``runs``, ``fails``, ``unsure`` or ``unknown``."""
    says: str
    facts: tuple[str, ...]
    evidence: Fact[Any]

    def __str__(self) -> str:
        label = f" ({', '.join(self.facts)} {self.evidence.label()})" if self.facts else ""
        of = "" if self.form == "rows" else f" of {KEPT[self.kept]}"
        return f"{FORMS[self.form]}{of}: {self.verdict}; {self.says}{label}"

    def to_json(self) -> dict[str, Any]:
        return {
            "form": self.form, "kept": self.kept, "verdict": self.verdict, "says": self.says,
            "facts": list(self.facts), "source": list(self.evidence.source), "confidence": self.evidence.confidence,
        }  # fmt: skip


def write_verdict(form: str, kept: str, chip: Target, runtime: str, os: str) -> WriteVerdict:
    """What is known of a form on a chip by a runtime and system; the first row that applies decides."""
    for row in store.load("program_ceilings")["cache_writes"]:
        if _applies(row, form, kept, chip, runtime, os):
            evidence = Fact(row["verdict"], tuple(row["src"]), row["conf"], row["says"], None, CHOICE)
            return WriteVerdict(form, kept, row["verdict"], row["says"], tuple(row["facts"]), evidence)
    return WriteVerdict(form, kept, "unknown", "nobody has published whether it runs", (), Fact(None))


def _applies(row: Mapping[str, Any], form: str, kept: str, chip: Target, runtime: str, os: str) -> bool:
    return (
        row.get("form", form) == form
        and row["kept"] == kept
        and runtime in row.get("runtimes", (runtime,))
        and chip.td_generation in row.get("generations", (chip.td_generation,))
        and applies_to(row.get("since", ""), os)
    )


def table(chip: Target, runtime: str, os: str) -> Iterator[WriteVerdict]:
    """Every form with its verdict on a chip."""
    for form in FORMS:
        for kept in KEPT if form not in ("rows", "grow", "other") else ("port",):
            if form not in ("grow", "other"):
                yield write_verdict(form, kept, chip, runtime, os)
