"""One compiler target: name, versions, families, generation, cores, and the chips that carry it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from aneforge.chips import store
from aneforge.chips.evidence import Fact, fact, unknown, with_losers
from aneforge.chips.families import MIN_FAMILY, Family, Family8
from aneforge.errors import UnknownNameError, nearest

if TYPE_CHECKING:
    from aneforge.chips.hal import Hal

# The fields of a Target, and the key of the data record for each.
FIELDS: dict[str, str] = {
    "hardware_version": "hardware_version",
    "family8": "family8",
    "family5": "family5",
    "td_generation": "td_generation",
    "cores": "num_nes_0x238",
    "lanes": "ne_cores_per_ane_10_26_6",
    "chips": "",
    "silicon_class": "class_ch34",
    "tier": "tier_ch34",
    "constructible": "constructible",
    "device_read": "device_read",
    "image_formats": "interchange_formats",
}
# These follow the generation, so a target that inherits a table inherits them; core counts do not.
_INHERITED = ("hardware_version", "family8", "family5", "td_generation", "lanes", "image_formats")


class Target:
    """One compiler target. A dot gives the plain value, brackets give the :class:`Fact` behind it::

    >>> h16 = compiler_target("h16")
    >>> h16.hardware_version
    7
    >>> h16["hardware_version"].losers[0].value     # what the seed document printed
    8
    """

    def __init__(
        self, name: str, record: dict[str, Any], evidence: list[list[Any]], product: str | None = None
    ) -> None:
        self.name = name
        self.product = product
        """The product that was named, where one was. Programs are the same for all products of a target; times are
        not."""
        self._record = record
        self._evidence = evidence

    def of_product(self, product: str) -> Target:
        """The same target as one product carries it."""
        return _of_product(self.name, product)

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Target) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __getitem__(self, field: str) -> Fact[Any]:
        """The fact behind a field, with its sources and the values it beat."""
        if field not in FIELDS:
            near = ", ".join(nearest(field, FIELDS)) or ", ".join(FIELDS)
            raise UnknownNameError(f"{field!r}: not a field of a target; nearest: {near}")
        return self._facts[field]

    @cached_property
    def _facts(self) -> dict[str, Fact[Any]]:
        facts = {field: self._own(field, key) for field, key in FIELDS.items() if key}
        facts["chips"] = _chips(self.name)
        self._apply_choices(facts)
        return facts

    def _own(self, field: str, key: str) -> Fact[Any]:
        about = f"{field} of {self.name}"
        record = self._record.get(key)
        result = fact(record, self._evidence, about=about) if record is not None else unknown(about)
        seed = self._record.get(f"seed_{key}")
        if seed is not None:
            loser = fact(seed, self._evidence, about=about)
            # Versions and families of h16 and h17 lost to the stamps in emitted files (C01).
            result = with_losers(result, loser, conflict_id="C01" if loser.value != result.value else None)
        return result

    def _apply_choices(self, facts: dict[str, Fact[Any]]) -> None:
        """Fill in what no source gives, from the choices in names.json."""
        names = store.load("names")
        chosen = names["families"].get(self.name, {})
        for field in ("family8", "family5"):
            if not facts[field].known and field in chosen:
                facts[field] = fact(chosen, key=field, about=f"{field} of {self.name}")
        parent = names["inherits"].get(self.name)
        if parent:
            parent_target = compiler_target(parent["from"])
            for field in _INHERITED:
                if not facts[field].known and parent_target[field].known:
                    facts[field] = replace(
                        parent_target[field],
                        confidence="inferred",
                        about=f"{field} of {self.name}",
                        conflict_id=parent["conflict"],
                        losers=(),
                        taken_from=parent_target.name,
                    )

    @property
    def hardware_version(self) -> int | None:
        """The version stamp in the emitted container; key of the version-to-family map."""
        return self["hardware_version"].value

    @property
    def family8(self) -> Family8 | None:
        """The compiler's family: op floors and the cost bucket follow it. ``None`` on reference targets."""
        label = self["family8"].value
        return None if label is None else Family8[label]

    @property
    def family5(self) -> Family | None:
        """The capability tier of the public API. ``None`` on reference targets."""
        label = self["family5"].value
        return None if label is None else Family[label]

    @property
    def meets_floor(self) -> bool:
        """Whether converted programs reach it. Of what is below, arithmetic and stored forms are not published."""
        return self.family5 is not None and self.family5 >= MIN_FAMILY

    @property
    def td_generation(self) -> int | None:
        """The task-descriptor generation: every encoding decision follows it (C02)."""
        return self["td_generation"].value

    @property
    def cores(self) -> int | None:
        """The core count of the cost and split model (HAL 0x238), not the marketed one (C37)."""
        return self["cores"].value

    @property
    def lanes(self) -> int | None:
        """Physical lanes per engine, which encoding uses (C37)."""
        return self["lanes"].value

    @property
    def chips(self) -> tuple[str, ...]:
        """Products that carry this target."""
        return self["chips"].value

    @property
    def constructible(self) -> bool | None:
        """Whether a compiler build constructs this target; ``None`` where only the name is known."""
        return self["constructible"].value

    @property
    def in_28(self) -> bool:
        """One of the 28 targets of compiler build 9.509."""
        return bool(self._record.get("in_28_guide"))

    @property
    def own_table(self) -> bool:
        """A HAL class of its own, apart from the other dies of its generation (h18g, h19)."""
        return "hal_class" in self._record

    @property
    def is_reference(self) -> bool:
        """A validation profile of the compiler (u1 to u4), not silicon."""
        return self.name.startswith("u")

    @cached_property
    def hal(self) -> Hal:
        """The hardware-abstraction table of this target."""
        from aneforge.chips.hal import Hal

        return Hal(self)

    def __repr__(self) -> str:
        return f"Target({self.name!r})"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, **{field: self[field].to_json() for field in FIELDS}}


def _chips(name: str) -> Fact[tuple[str, ...]]:
    """Products of names.json that carry a target; the confidence is that of the weakest of them."""
    rows = {product: row for product, row in store.load("names")["products"].items() if row["target"] == name}
    if not rows:
        return Fact((), about=f"chips of {name}", note="no product is known to carry it")
    order = ("inferred", "predicted", "decoded", "measured")
    weakest = min((row["conf"] for row in rows.values()), key=order.index)
    source = tuple(sorted({key for row in rows.values() for key in row["src"]}))
    return Fact(tuple(rows), source, weakest, about=f"chips of {name}")


@cache
def _targets() -> dict[str, Target]:
    document = store.load("targets")
    return {row["name"]: Target(row["name"], row, document["evidence"]) for row in document["targets"]}


@cache
def _of_product(name: str, product: str) -> Target:
    plain = compiler_target(name)
    return Target(name, plain._record, plain._evidence, product)


def target_names() -> tuple[str, ...]:
    """Every compiler target string that any build recognises, the 28 first."""
    return tuple(_targets())


def all_targets(only_28: bool = False) -> Iterator[Target]:
    """All targets in generation order, or just the 28 of build 9.509."""
    return (target for target in _targets().values() if target.in_28 or not only_28)


def compiler_target(name: str) -> Target:
    """The target with exactly this compiler string; no other kind of name is accepted."""
    target = _targets().get(name)
    if target is None:
        near = ", ".join(nearest(name, _targets())) or "h13, h14g, h16s"
        raise UnknownNameError(f"{name!r}: not a compiler target; nearest: {near}")
    return target
