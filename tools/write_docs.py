"""Write the pages of ``docs/`` that are made from the data: ``make docs``.

``docs/unknowns.md`` lists what this project had to choose and what nobody has published, with the cheapest
experiment that would settle each. A test compares the committed page with what this prints.
"""

from __future__ import annotations

import sys
from pathlib import Path

from aneforge.targets import store
from aneforge.targets.chip import all_targets
from aneforge.targets.families import Family
from aneforge.targets.hal import hal_fields
from aneforge.targets.limits import limit_fact, limit_names

DOCS = Path(__file__).resolve().parent.parent / "docs"


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
        lines += [f"- **To settle it:** {row['settle']}.", ""]
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
        "People with the chips read this page: each entry says what we assume and the cheapest experiment that",
        "would replace the assumption by a measurement. It is written by `make docs` from the data files, so it",
        "cannot drift from what the package answers. `aneforge explain U08` prints one entry.",
        "",
        "## Choices",
        "",
        *choices(),
        "## Table fields without a published value",
        "",
        "The offset and the meaning are decoded, the contents are not. To settle a row, dump the table that the",
        "compiler builds for the target and read the bytes at the offset (build 9.509).",
        "",
        *unpublished_fields(),
        "",
        "## Limits without a published value",
        "",
        *unpublished_limits(),
    ]
    return "\n".join(parts) + "\n"


def main() -> int:
    DOCS.mkdir(exist_ok=True)
    (DOCS / "unknowns.md").write_text(unknowns(), encoding="utf-8")
    print("wrote docs/unknowns.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
