"""Limits per family, the limit that applies to an op class and axis, and numeric facts by id (``N18``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.chips.evidence import Fact, fact, unknown
from aneforge.chips.families import Family, as_family
from aneforge.errors import UnknownNameError, nearest

# The five names of the seed API, and the row of limits.json that answers each.
SEED_NAMES = {
    "max_tensor_dim": "spatial_extent",
    "channel_extent": "channel_extent",
    "transpose_extent": "transpose_extent_offset_field",
    "conv_kw_max": "conv_kernel_w_fp16",
    "reduction_transpose_extent": "reduce_transpose_extent",
}

# Which row caps an axis of an op class (the seed page: channel cap on axis 1 of rank 4, the wide offset
# field for transposes, spatial elsewhere).
_SPATIAL = {"width": "spatial_extent", "height": "spatial_extent"}
_COMMON = {**_SPATIAL, "channel": "channel_extent", "batch": "batch_extent", "depth": "depth_extent"}
OP_CLASSES: dict[str, dict[str, str]] = {
    "spatial": _COMMON,
    "contraction": {**_COMMON, "contraction": "contraction_extent", "width": "contraction_extent"},
    "transpose": dict.fromkeys(_COMMON, "transpose_extent_offset_field"),
    "native_transpose": dict.fromkeys(_SPATIAL, "transpose_native_hw"),
    "conv_kernel": {"width": "conv_kernel_w_fp16", "height": "conv_kernel_h", "depth": "conv_kernel_d"},
    "conv_kernel_8bit": {"width": "conv_kernel_w_default_large", "height": "conv_kernel_h", "depth": "conv_kernel_d"},
    "pool_window": dict.fromkeys(_SPATIAL, "pool_window"),
    "arg_reduce": {"reduced": "arg_reduce_axis"},
    "transposed_reduction": {"reduced": "reduce_transpose_extent"},
}
AXES = ("batch", "depth", "channel", "height", "width", "contraction", "reduced")


@cache
def _rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in store.load("limits")["per_family"]}


def limit_names() -> tuple[str, ...]:
    """The names :func:`limit` answers to: the five of the seed API, then every row of the data."""
    return (*SEED_NAMES, *(name for name in _rows() if name not in SEED_NAMES))


def limit(name: str, family: int | str) -> Any:
    """A limit of a five-tier family: ``limit("max_tensor_dim", Family.A13) == 16384``."""
    return limit_fact(name, family).require()


def limit_fact(name: str, family: int | str) -> Fact[Any]:
    """The same with its evidence; unknown where no value is published."""
    member = as_family(family)
    row = _rows().get(SEED_NAMES.get(name, name))
    if row is None:
        near = ", ".join(nearest(name, limit_names())) or ", ".join(SEED_NAMES)
        raise UnknownNameError(f"{name!r}: not a limit; nearest: {near}")
    return _limit(row, member)


def _limit(row: Mapping[str, Any], family: Family) -> Fact[Any]:
    about = f"limit {row['name']} on {family.name}"
    evidence = store.load("limits")["evidence"]
    losers = [loser for loser in row.get("alt", ()) if family.name in loser]
    record = {**row, "v": row["values"].get(family.name), "alt": []}
    family_limit = fact(record, evidence, about=about, family=family.name)
    beaten = tuple(fact(loser, evidence, key=family.name, about=about) for loser in losers)
    chosen = store.load("choices")["limits"].get(row["name"], {}).get(family.name)
    if chosen and not family_limit.known:
        family_limit = replace(family_limit, value=chosen["v"], confidence="inferred", conflict_id=chosen["choice"])
    elif not family_limit.known:
        return replace(unknown(about), losers=beaten)
    elif not beaten:
        family_limit = replace(family_limit, conflict_id=None)
    return replace(family_limit, losers=beaten)


def axis_limit(op_class: str, axis: str, family: int | str) -> Fact[Any]:
    """The extent cap that applies to one axis of an op class on a family."""
    if op_class not in OP_CLASSES:
        near = ", ".join(nearest(op_class, OP_CLASSES)) or ", ".join(OP_CLASSES)
        raise UnknownNameError(f"{op_class!r}: not an op class; nearest: {near}")
    axes = OP_CLASSES[op_class]
    if axis not in axes:
        raise UnknownNameError(f"op class {op_class}: no limit on axis {axis!r}; choose one: {', '.join(axes)}")
    return limit_fact(axes[axis], family)


def global_limit(name: str) -> Fact[Any]:
    """A limit that holds on every chip, such as ``rank_max``."""
    document = store.load("limits")
    row = next((record for record in document["global"] if record["name"] == name), None)
    if row is None:
        names = [record["name"] for record in document["global"]]
        near = ", ".join(nearest(name, names)) or ", ".join(names[:5])
        raise UnknownNameError(f"{name!r}: not a global limit; nearest: {near}")
    return fact(row, document["evidence"], about=f"limit {name}")


# Numeric behaviour by fact id (``N18``): what the engine's arithmetic was seen to do, and where.


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
    """The records of one set of activation tables (``m6``, ``m1``), by activation (U40)."""
    sets = store.load("choices")["activation_tables"]
    if name not in sets:
        raise UnknownNameError(f"set of activation tables {name!r} is unknown; choose one: {', '.join(sets)}")
    return sets[name]


def published_table(activation: str) -> Mapping[str, Any]:
    """The table of an activation as published programs hold it, the same on every chip (C72, U41)."""
    return store.load("choices")["published_tables"][activation]


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
