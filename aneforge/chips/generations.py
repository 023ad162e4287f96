"""Task-descriptor generations: which encoder a target uses and where its fields sit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.chips.evidence import Fact, fact
from aneforge.errors import UnknownNameError


@dataclass(frozen=True)
class Generation:
    """One descriptor layout. Take the number from a target, never from a family name (C02)."""

    number: int
    targets: Fact[str]
    patch_width_offset: Fact[int]
    seed_family: Fact[str] | None
    order: int | None

    @property
    def patch_capable(self) -> bool:
        """Generations with the patch-width path; the rest are legacy or not published."""
        return self.number in store.load("td_generations")["meta"]["patch_capable"]["v"]

    def to_json(self) -> dict[str, Any]:
        return {
            "generation": self.number,
            "targets": self.targets.to_json(),
            "patch_width_offset": self.patch_width_offset.to_json(),
            "patch_capable": self.patch_capable,
        }


def generation_numbers() -> tuple[int, ...]:
    return tuple(row["generation"] for row in store.load("td_generations")["generations"])


@cache
def generation(number: int) -> Generation:
    """One generation by number."""
    document = store.load("td_generations")
    row = next((record for record in document["generations"] if record["generation"] == number), None)
    if row is None:
        known = ", ".join(map(str, generation_numbers()))
        raise UnknownNameError(f"descriptor generation {number!r} is unknown; choose one: {known}")
    evidence, about = document["evidence"], f"descriptor generation {number}"
    offset = dict(row["patch_width_offset"])
    if offset["v"] is not None:
        offset["v"] = int(offset["v"].removeprefix("desc+"), 16)
    return Generation(
        number=number,
        targets=fact(row["targets"], evidence, about=f"targets of {about}"),
        patch_width_offset=fact(offset, evidence, about=f"patch-width offset of {about}"),
        seed_family=fact(row["seed_family"], evidence, about=about) if "seed_family" in row else None,
        order=store.load("targets")["td_generation_order"]["v"].get(str(number)),
    )
