"""``aneforge targets``: the table of all targets, and everything about one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aneforge import text
from aneforge.chips.chip import FIELDS, Target, all_targets
from aneforge.chips.costs import cost_curve, device_info
from aneforge.chips.evidence import Fact
from aneforge.chips.families import MIN_FAMILY, Family
from aneforge.chips.formats import image_formats
from aneforge.chips.hal import HalField
from aneforge.chips.limits import SEED_NAMES, limit_fact, limit_names, slice_saturates
from aneforge.chips.names import Resolution, chip_list, engine_names, resolve
from aneforge.chips.ops import op_routes
from aneforge.chips.streams import encoding_names, stream_fact

HEADERS = ("target", "chips", "version", "family", "tier", "TD gen", "cores", "lanes", "texture", "image formats")


def show(names: str | None, every: bool, as_json: bool) -> None:
    """All targets, the targets of several chips, or everything about one."""
    if names is None:
        _show_table([target for target in all_targets() if every or target.constructible], as_json)
        return
    chips = chip_list(names, "CHIPS") if names.strip() else [names]
    if len(chips) == 1:
        show_one(chips[0], as_json)
    else:
        _show_table(list({at.name: at for at in (resolve(name).target for name in chips)}.values()), as_json)


def _show_table(listed: list[Target], as_json: bool) -> None:
    if as_json:
        print(text.as_json([target.to_json() for target in listed]))
        return
    print(text.columns(HEADERS, [_row(target) for target in listed]))
    print()
    print(
        "The 28 targets of compiler build 9.509, then the names that newer builds know. ? is not published;\n"
        "* rests on a conflict or a choice ('aneforge targets NAME' says which). family: the compiler's own 8,\n"
        "for op floors; tier: the public 5, for limits. cores: the cost model's count, not the marketed one."
    )


def _row(target: Target) -> tuple[Any, ...]:
    def starred(field: str) -> str:
        fact = target[field]
        return "?" if not fact.known else f"{fact.value}{'*' if fact.conflict_id else ''}"

    texture = target.hal["texture_engine"] if target.constructible else None
    return (
        target.name,
        target.chips or "-",
        starred("hardware_version"),
        starred("family8"),
        starred("family5"),
        starred("td_generation"),
        starred("cores"),
        target.lanes,
        "?" if texture is None or not texture.known else ("yes" if texture.value else "no"),
        target["image_formats"].value,
    )


def show_one(name: str, as_json: bool) -> None:
    resolution = resolve(name)
    target = resolution.target
    sections = {**_engine_sections(resolution), **dict(_sections(target))}
    if as_json:
        record = {
            "asked": name,
            "kind": resolution.kind,
            "name": resolution.name,
            "target": target.name,
            "evidence": resolution.fact.to_json(),
            **{key: {field: fact.to_json() for field, fact in section.items()} for key, section in sections.items()},
        }
        print(text.as_json(record))
        return
    print(resolution if resolution.kind != "compiler" else f"{target.name} {resolution.fact.label()}")
    for heading, section in sections.items():
        known = {field: fact for field, fact in section.items() if fact.known and fact.value != ()}
        missing = len(section) - len(known)
        print(f"\n{heading}{f' ({missing} not published)' if missing else ''}")
        print(text.pairs((field, _short(fact), fact.label()) for field, fact in known.items()))
    _print_conflicts([fact for section in sections.values() for fact in section.values()])


def _engine_sections(resolution: Resolution) -> dict[str, dict[str, Fact[Any]]]:
    """Both names of the engine: of the product that was named, or of every product that has the target."""
    product = resolution.target.product
    if product is not None:
        return {"engine names": engine_names(product)}
    return {f"engine names of {chip}": engine_names(chip) for chip in resolution.target.chips}


def _sections(target: Target) -> Iterator[tuple[str, dict[str, Fact[Any]]]]:
    """Everything the database holds on one target, by topic; a section without facts is left out."""
    yield "identity", {field: target[field] for field in FIELDS if field != "constructible"}
    if target.constructible is False:
        return
    hal = target.hal
    fields = [field for field in sorted(hal.fields(), key=_by_offset) if field.kind != "cost"]
    bytes_ = {f"{field.where} {field.name}": hal[field.name] for field in fields if field.is_capability}
    scalars = {f"{field.where} {field.name}": hal[field.name] for field in fields if not field.is_capability}
    yield "capability bytes (HAL)", bytes_
    yield "sizes and limits (HAL)", scalars
    family = target.family5
    if family is not None:
        names = [name for name in limit_names() if name not in SEED_NAMES]
        yield f"limits of tier {family.name}", {name: limit_fact(name, family) for name in names}
        if family >= MIN_FAMILY:
            yield "weight encodings", {name: stream_fact(name, family) for name in encoding_names()}
            yield "numeric hazards", {"width-offset slice saturates above 4094": slice_saturates(family)}
            yield "operations that are not native", _exceptions(family)
    formats = image_formats(target)
    listed = {layout.tag: layout.base for layout in formats.formats}
    yield "image formats", {"accepted": formats.count, **listed}
    yield "cost tables", _costs(target)


def _by_offset(field: HalField) -> tuple[bool, int, str]:
    return field.offset is None, field.offset or 0, field.name


def _exceptions(family: Family) -> dict[str, Fact[Any]]:
    from aneforge.cli.ops import listed_ops

    statuses = {name: op_routes(name).main.get(family) for names in listed_ops().values() for name in names}
    return {name: status for name, status in statuses.items() if status is not None and status.value != "native"}


def _costs(target: Target) -> dict[str, Fact[Any]]:
    curve = cost_curve(target)
    facts: dict[str, Fact[Any]] = {}
    if curve.known:
        points = curve.value
        for label, value in (
            ("engine clock, top (MHz)", points.max_mhz),
            ("engine clock, operating (MHz)", points.operating_mhz),
            ("effective clock (MHz)", points.effective_mhz),
            ("compute relative to M1", points.relative_to_m1),
        ):
            facts[label] = Fact(
                value, curve.source, curve.confidence, label, None, curve.conflict_id, (), curve.taken_from
            )
    if target.family8 is not None:
        arm = device_info(target.family8)
        facts["bandwidth clamps (table 35.7)"] = arm.clamps
        facts["setup ramp (table 35.7)"] = arm.setup_ramp
    return facts


def _short(fact: Fact[Any]) -> str:
    value = fact.value
    if isinstance(value, (list, tuple)):
        shown = ", ".join(str(item) for item in value[:6])
        return shown if len(value) <= 6 else f"{shown}, ... ({len(value)} points)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _print_conflicts(facts: list[Fact[Any]]) -> None:
    numbers = sorted({fact.conflict_id for fact in facts if fact.conflict_id})
    if numbers:
        print(f"\nbehind the labels: {', '.join(numbers)} (run aneforge explain {numbers[0]})")
