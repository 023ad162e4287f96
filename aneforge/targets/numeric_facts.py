"""Numeric behaviour by fact id (``N18``): what the engine's arithmetic was seen to do, and where."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from aneforge.errors import UnknownNameError, nearest
from aneforge.targets import store
from aneforge.targets.evidence import Fact, fact
from aneforge.targets.families import as_family


@cache
def _facts() -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in store.load("numerics")["facts"]}


def numeric_record(number: str) -> Mapping[str, Any]:
    """The whole record of one numeric fact."""
    record = _facts().get(number)
    if record is None:
        near = ", ".join(nearest(number, _facts())) or "N01"
        raise UnknownNameError(f"{number!r}: not a numeric fact; nearest: {near}")
    return record


def numeric_fact(number: str) -> Fact[Any]:
    """The value of one numeric fact with its evidence."""
    record = numeric_record(number)
    evidence = store.load("numerics")["evidence"]
    return fact({**record, "note": record["fact"]}, evidence, key="value", about=f"numeric fact {number}")


def activation_tables(name: str) -> Mapping[str, Any]:
    """The records of one set of activation tables (``m6``, ``m1``), by activation (U40, U41)."""
    sets = store.load("choices")["activation_tables"]
    if name not in sets:
        raise UnknownNameError(f"set of activation tables {name!r} is unknown; choose one: {', '.join(sets)}")
    return sets[name]


FP16_SLICE_SAT = 4094.0
"""The largest number on the fixed-point crop data path: the fp16 maximum over its gain of 16 (N18)."""


def slice_saturates(family: int | str) -> Fact[bool]:
    """Whether a width-offset slice on this family clamps magnitudes above 4094 (N18, C22)."""
    member = as_family(family)
    record = numeric_record("N18")
    behaviour = record["families"].get(member.name)
    about = f"width-offset slice on {member.name}"
    value = None if behaviour is None else behaviour.startswith("saturates")
    confidence = "predicted" if behaviour and "predicted" in behaviour else "measured"
    source = store.load("numerics")["evidence"][record["e"]][0]
    choice = "U16" if confidence == "predicted" else record["conflict"]
    return fact({"v": value, "src": source, "conf": confidence, "conflict": choice, "note": behaviour}, about=about)
