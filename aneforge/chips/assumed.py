"""The facts that a compiler reads of a target: published ones, and our labelled assumptions where none is published.

A compiler cannot stop at an unpublished cell. The assumptions are data (``choices.json``, ``cells`` and ``tables``),
each with the choice that explains it, so that every program can say which of them it depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.chips.chip import Target, compiler_target
from aneforge.chips.evidence import Fact, fact
from aneforge.chips.families import Family, Family8
from aneforge.chips.formats import image_formats
from aneforge.chips.hal import OLD_BUILD, hal_fields
from aneforge.chips.limits import axis_limit, limit_fact, slice_saturates
from aneforge.chips.ops import op_routes
from aneforge.chips.streams import stream_fact
from aneforge.chips.suppose import supposed
from aneforge.errors import DataError, UnknownNameError, UnknownValueError


@cache
def _compile_fact(name: str, key: str) -> Fact[Any]:
    target = compiler_target(name)
    about = f"{key} of {name}"
    category, _, rest = key.partition(":")
    if category == "limit":
        result = _limit(target, rest)
    elif category in _PLAIN:
        return _PLAIN[category](target, rest)
    elif key == "slice_saturates":
        result = _saturates(target)
    elif key in store.load("choices")["arithmetic"]:
        record = store.load("choices")["arithmetic"][key]
        confidence = "predicted" if target.td_generation in record.get("unread", ()) else record["conf"]
        return fact({**record, "v": _of_generation(target, record), "conf": confidence}, about=about)
    elif category == "stream":
        result = Fact(None, about=about) if target.family5 is None else stream_fact(rest, target.family5)
    else:
        result = _published(target, key)
        if not result.known:
            result = _cell(target, key)
    if result.known:
        return result
    parent = _parent(target)
    if parent is None:
        return result
    inherited = _compile_fact(parent["from"], key)
    choice = parent["choice"] if inherited.conflict_id is None else inherited.conflict_id
    return replace(
        inherited, about=about, confidence="inferred", conflict_id=choice, losers=(), taken_from=parent["from"]
    )


def compile_fact(target: Target, key: str) -> Fact[Any]:
    """One fact a pass may declare: the name of a HAL field (``max_operand_bytes``), ``limit:NAME``,
    ``stream:ENCODING``, ``family8``, ``slice_saturates``, ``large_kernel_rewrite``, ``kernel_path``,
    ``kernel_lanes``, ``palette_bits`` and the others of ``choices.json`` ``weight_forms``; the simulator asks for
    those of ``choices.json`` ``arithmetic`` (``winograd``, ``table_set``). An unpublished one is assumed where the
    data say how.

    Rules ask for ``tier`` (the five-tier family), ``generation``, ``constructible`` and ``cap:NAME``, phase 0 for
    ``op:NAME`` (native, decompose or reject) and for ``direct:NAME``, the same by direct authoring: of these an
    unpublished one stays unknown."""
    result = _compile_fact(target.name, key)
    others = supposed()
    return replace(result, value=others[key], confidence="inferred") if key in others else result


def fact_label(key: str) -> str:
    """A fact as listings name it: a table field with its offset, ``max_operand_bytes (0x1b8)``."""
    field = hal_fields(OLD_BUILD).by_name.get(key)
    return key.replace(":", " ") if field is None else f"{key} ({field.where})"


def constant(name: str) -> Any:
    """A number of the compiler that is unpublished on every chip, from ``choices.json``."""
    others = supposed()
    if name in others:
        return others[name]
    rows = store.load("choices")["constants"]
    if name not in rows:
        raise DataError(f"choices.json: constant {name!r} is missing; add it and seal the file")
    return rows[name]["v"]


def _published(target: Target, key: str) -> Fact[Any]:
    """The cell of a named field; a newer table may not name it, and some targets have no table at all."""
    field = hal_fields(OLD_BUILD).find(key)
    try:
        return target.hal[field.name]
    except (UnknownNameError, UnknownValueError):
        return Fact(None, about=f"HAL {field.where} {field.name} of {target.name}")


def _cell(target: Target, key: str) -> Fact[Any]:
    field = hal_fields(OLD_BUILD).find(key)
    about = f"HAL {field.where} {field.name} of {target.name}"
    chosen = store.load("choices")["cells"].get(field.where)
    if chosen is None:
        return Fact(None, about=about)
    value = chosen["by_target"].get(target.name, chosen["v"])
    return fact({"v": value, "src": [], "conf": "inferred", "conflict": chosen["choice"]}, about=about)


def _limit(target: Target, name: str) -> Fact[Any]:
    if target.family5 is None:
        return Fact(None, about=f"limit {name} of {target.name}")
    return limit_fact(name, target.family5)


def _kernel_path(target: Target, _: str) -> Fact[Any]:
    """How kernel data are built: by every core for itself up to A13, once for all cores from A14 (listing 35.2)."""
    document = store.load("compression")
    shared = target.family8 is not None and target.family8 >= Family8.A14
    row = next(row for row in document["kernel_data_paths"] if row["layout"].startswith("shared") == shared)
    value = "shared" if shared else "per core"
    return fact({**row, "v": value}, document["evidence"], about=f"kernel_path of {target.name}")


def _kernel_lanes(target: Target, _: str) -> Fact[Any]:
    """In how many shares of output channels a kernel reaches the engine (C37); inferred where no program was seen."""
    chosen = store.load("choices")["kernel_lanes"]
    seen = target.td_generation in chosen["generations"]
    row = chosen if seen else {**chosen, "conf": "inferred"}
    return fact(row, about=f"kernel_lanes of {target.name}")


def _of_generation(target: Target, chosen: dict[str, Any]) -> bool | str:
    """Whether a descriptor generation is listed or, where the data name alternatives, the one that lists it."""
    if "generations" in chosen:
        return target.td_generation in chosen["generations"] or target.name in chosen.get("targets", ())
    names = (name for name, listed in chosen["named"].items() if target.td_generation in listed)
    return next(names, chosen["otherwise"])


def _saturates(target: Target) -> Fact[Any]:
    if target.family5 is None:
        return Fact(None, about=f"slices of {target.name}")
    return slice_saturates(target.family5)


def _tier(target: Target, _: str) -> Fact[Any]:
    family = target.family5
    return replace(target["family5"], value=None if family is None else family.name)


def _cap(target: Target, name: str) -> Fact[Any]:
    """A limit as published for the tier; ``cap:spatial:width`` is that of an axis of an op class."""
    if target.family5 is None:
        return Fact(None, about=f"limit {name} of {target.name}")
    op_class, _, axis = name.partition(":")
    return axis_limit(op_class, axis, target.family5) if axis else limit_fact(name, target.family5)


def _op_status(target: Target, op: str) -> Fact[Any]:
    """What becomes of an op by the route that reaches the chip. Programs below A13 are authored, with the M1's
    rewrites, and the floors of phase 2 refuse what these need and the chip lacks; a reference profile has no family,
    so only what no family has is rewritten (U31)."""
    family = Family.A16 if target.family5 is None else target.family5
    return _authored_status(target, op) if family is Family.OLDER else op_routes(op).main[family]


def _authored_status(target: Target, op: str) -> Fact[Any]:
    """What becomes of an op in a program that is authored."""
    family = Family.A16 if target.family5 is None else max(target.family5, Family.A13)
    return op_routes(op).direct[family]


def _palette_bits(target: Target, _: str) -> Fact[Any]:
    """The index widths that a palette may have as it is stored: 4 and 8 up to A13, 3 and 6 too on later families."""
    palette = store.load("compression")["palette"]
    early = target.family5 is None or target.family5 <= Family.A13
    widths = palette["m1_bits"] if early else sorted({*palette["index_bits"], *palette["version_gated"]})
    return fact({**palette, "v": tuple(widths)}, store.load("compression")["evidence"], about="palette index bits")


def _weight_form(key: str) -> Callable[[Target, str], Fact[Any]]:
    """A fact about stored weights by descriptor generation (``choices.json`` ``weight_forms``)."""

    def look_up(target: Target, _: str) -> Fact[Any]:
        record = store.load("choices")["weight_forms"][key]
        value = record["by_generation"].get(str(target.td_generation), record["otherwise"])
        return fact({**record, "v": value}, about=f"{key} of {target.name}")

    return look_up


def _parent(target: Target) -> dict[str, str] | None:
    return store.load("choices")["tables"].get(target.name)


def _rewrites_large_kernels(target: Target, _: str) -> Fact[Any]:
    chosen = store.load("choices")["large_kernel_rewrite"]
    return fact({**chosen, "v": target.name in chosen["targets"]}, about=f"wide kernels of {target.name}")


def _image_tags(target: Target, _: str) -> Fact[Any]:
    """The tags of image formats that are published for a target."""
    try:
        accepted = image_formats(target)
    except UnknownNameError:
        return Fact(None, about=f"image formats of {target.name}")
    return replace(accepted.count, value=[known.tag for known in accepted.formats], note=accepted.unlisted)


_PLAIN: dict[str, Callable[[Target, str], Fact[Any]]] = {
    "tier": _tier,
    "generation": lambda target, _: target["td_generation"],
    "constructible": lambda target, _: target["constructible"],
    "family8": lambda target, _: target["family8"],
    "large_kernel_rewrite": _rewrites_large_kernels,
    "palette_bits": _palette_bits,
    "palette_vectors": _weight_form("palette_vectors"),
    "palette_tables": _weight_form("palette_tables"),
    "asymmetric_weights": _weight_form("asymmetric_weights"),
    "image_tags": _image_tags,
    "kernel_path": _kernel_path,
    "kernel_lanes": _kernel_lanes,
    "cap": _cap,
    "op": _op_status,
    "direct": _authored_status,
}
"""Facts for which nothing is assumed where they are unknown."""
