"""The page of what is not known: our choices, and table cells and limits without a published value."""

from __future__ import annotations

from aneforge.chips import store
from aneforge.chips.chip import all_targets
from aneforge.chips.families import Family
from aneforge.chips.hal import hal_fields
from aneforge.chips.limits import limit_fact, limit_names
from aneforge.reports.kit.reach import bearing_on

__all__ = ["unknowns"]


def choices() -> list[str]:
    lines = []
    for number, row in store.load("choices")["choices"].items():
        lines += [f"### {number}: {row['subject']}", ""]
        lines.append(f"- **Chosen:** {row['choice']}.")
        lines.append(f"- **Because:** {row['because']}.")
        if row["instead"]:
            lines.append(f"- **Could also be:** {'; '.join(row['instead'])}.")
        if row["conflict"]:
            lines.append(f"- **See also:** conflict {row['conflict']} (`aneforge explain {row['conflict']}`).")
        lines.append(f"- **To settle it:** {row['settle']}.")
        bearing = ", ".join(entry.id for entry in bearing_on(number))
        lines += [f"- **In the kit:** {bearing} (`aneforge kit -o FOLDER --about {number}`)."] if bearing else []
        for entry in row.get("seen", []):
            where = f"{entry['chip']}, {entry['os']} ({entry['experiment']}, {entry['src']})"
            lines.append(f"- **Seen** on {where}: {entry['reading']}.")
        lines.append("")
    return lines


def unpublished_fields() -> list[str]:
    """HAL fields with a known offset and meaning for which no target has a published value."""
    silicon = [each for each in all_targets(only_28=True) if not each.is_reference]
    lines = ["| offset | field | published for |", "| --- | --- | --- |"]
    for field in sorted(hal_fields().by_name.values(), key=lambda field: field.offset or 0):
        if field.offset is None or field.dead:
            continue
        known = [each.name for each in silicon if each.hal[field.name].known]
        if len(known) < len(silicon):
            shown = "nothing" if not known else f"{len(known)} of {len(silicon)} targets"
            missing = [each.name for each in silicon if each.name not in known]
            if known and len(missing) <= 8:
                shown = f"all but {', '.join(missing)}"
            lines.append(f"| `{field.where}` | {field.name} | {shown} |")
    return lines


def unpublished_limits() -> list[str]:
    lines = []
    for name in limit_names():
        missing = [family.name for family in Family if not limit_fact(name, family).known]
        if missing:
            lines.append(f"- `{name}`: {', '.join(missing)}")
    return lines


def unknowns() -> str:
    parts = [
        "# What is not known",
        "",
        "Do you have one of the chips? Each entry says what we assume, why, and the cheapest experiment that would",
        "replace the assumption by a measurement. `aneforge explain U08` prints one entry. The page is made from the",
        "data files that the package reads.",
        "",
        "## Choices",
        "",
        *choices(),
        "## Table fields without a published value",
        "",
        "The offset and the meaning of these fields are decoded; the contents are not published. To settle a row,",
        "dump the table that the compiler builds for the target and read the bytes at the offset (build 9.509).",
        "",
        *unpublished_fields(),
        "",
        "## Limits without a published value",
        "",
        *unpublished_limits(),
    ]
    return "\n".join(parts) + "\n"
