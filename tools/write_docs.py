"""Write the pages of ``docs/`` that are made from the data and the code: ``make docs``.

``unknowns.md``    what this project had to choose and what nobody has published, with the experiment to settle it
``rules.md``       every rule of the gate, with the sentence users read and the limits per chip and route
``operations.md``  every op of the graph language, with its status on each chip
``rewrites.md``    what stands in for an op that a chip lacks, with its domain and error
``passes.md``      every pass of the compiler in order, and the facts of a chip that it reads
``coreml.md``      how every op of Core ML's language comes in
``pictures/``      the estimates of a ResNet-18, as ``aneforge plot`` draws them

A test compares the committed pages with what this prints. ``--models`` writes those that need the packages of other
formats too: ``onnx.md`` (the standard's own tests) and ``torch.md`` (the core ATen ops).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from aneforge.compiler.legal.patterns import PATTERNS
from aneforge.compiler.legal.rules import RULES, Rule
from aneforge.compiler.legal.rules.base import UNREACHED, rule_records
from aneforge.compiler.legal.rules.raised import RAISED
from aneforge.compiler.legal.table import REWRITES
from aneforge.compiler.passes import PASSES
from aneforge.compiler.pipeline import PHASES
from aneforge.cost.estimates import Estimates, estimate_all
from aneforge.graph import definitions
from aneforge.report.plots import chips_svg, roofline_svg, timeline_svg
from aneforge.targets import op_routes, store
from aneforge.targets.assumed import fact_label
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


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("|", "\\|")


def _where(record: Mapping[str, Any]) -> str:
    generations = [f"generation {each}" for each in record.get("generations", ())]
    return ", ".join(record.get("tiers", generations)) or "all"


def rules() -> str:
    """Every rule that a graph can meet, then what is known about other routes, patterns, and rules of passes."""
    parts = [
        "# The rules of the gate",
        "",
        "Why does a chip refuse an op, or compute it wrongly? Each rule below is one answer, with the sentence that",
        "`aneforge check` prints. A record applies where its routes and tiers match; the first that matches wins.",
        "`limit` names a row of the limits table, a field of the chip's table, or a pattern of ops. Sources are keys:",
        "`aneforge explain KEY`. Written by `make docs` from `aneforge/compiler/legal/` and `gate_limits.json`.",
        "",
        "- [Rules that a graph can meet](#rules-that-a-graph-can-meet)",
        "- [Rules of names, places and passes](#rules-of-names-places-and-passes)",
        "- [Patterns of ops](#patterns-of-ops)",
        "- [Knowledge about other routes](#knowledge-about-other-routes)",
        "",
        "## Rules that a graph can meet",
        "",
    ]
    for name, rule in RULES.items():
        if not rule.elsewhere:
            parts += _rule(name, rule)
    parts += [
        "## Rules of names, places and passes",
        "",
        "These are raised by the check of a graph or by a pass of phase 2 (see [passes.md](passes.md)).",
        "",
        "| rule | raised by | what it says |",
        "| --- | --- | --- |",
        *(f"| `{rule.id}` | `{rule.raised_by}` | {rule.about} |" for rule in RAISED if not rule.elsewhere),
        "",
        "## Patterns of ops",
        "",
        "| pattern | structure | in a graph |",
        "| --- | --- | --- |",
        *(f"| `{shape.name}` | {shape.about} | {'no' if shape.elsewhere else 'yes'} |" for shape in PATTERNS.values()),
        "",
        "## Knowledge about other routes",
        "",
        "No graph reaches these rules through `aneforge check`. They answer questions that are put to",
        "`aneforge.gate.judge`, about programs that other tools build.",
        "",
        "| known from | what that means | rules |",
        "| --- | --- | --- |",
    ]
    for route, meaning in UNREACHED.items():
        named = [name for name, rule in RULES.items() if rule.elsewhere == route]
        named += [f"{rule.id} ({rule.raised_by})" for rule in RAISED if rule.elsewhere == route]
        named += [f"{shape.name} (pattern)" for shape in PATTERNS.values() if shape.elsewhere == route]
        parts.append(f"| {route} | {meaning} | {', '.join(named)} |")
    parts.append("")
    for name, rule in RULES.items():
        if rule.elsewhere:
            parts += _rule(name, rule)
    return "\n".join(parts)


def _rule(name: str, rule: Rule) -> list[str]:
    ops = "every op" if "*" in rule.ops else ", ".join(f"`{op}`" for op in rule.ops)
    kind = f"{rule.effect}{', too large' if rule.oversize else ''}"
    lines = [f"### {name}", "", f"*{kind}* for {ops}.", "", f"> {rule.template}", ""]
    lines += ["| routes | tiers | limit | do | evidence |", "| --- | --- | --- | --- | --- |"]
    for record in rule_records().get(name, ()):
        looked_up = record.get("limit") or record.get("global") or record.get("fact")
        limit = looked_up or _shown(record["v"] if "v" in record else record["pattern"])
        evidence = ", ".join(record.get("src", record.get("basis", ())))
        confidence = record.get("conf", record.get("basis_conf", "see the limits table"))
        cells = [
            ", ".join(record.get("routes", ["all"])),
            _where(record),
            limit,
            record.get("hint", ""),
            f"{confidence} {evidence}".strip(),
        ]
        lines.append("| " + " | ".join(str(cell).replace("\n", " ") for cell in cells) + " |")
    return [*lines, ""]


def operations() -> str:
    families = [family for family in Family if family > Family.OLDER]
    chips = {"A13": "M1", "A14": "M2", "A15": "M3", "A16": "M4, M5, M6"}
    headings = " | ".join(chips[family.name] for family in families)
    parts = [
        "# The operations of the graph language",
        "",
        "Written by `make docs` from the op declarations and the target database. `decompose` ops are rewritten for",
        "the chip; sizes, values and attributes can still refuse a `native` one (see [rules.md](rules.md)).",
        "",
        f"| op | operands | attributes | gradient | {headings} | what it does |",
        "| --- | --- | --- | --- | " + " | ".join("---" for _ in families) + " | --- |",
    ]
    for name, declared in sorted(definitions().items()):
        if name in ("input", "parameter", "const", "host"):
            continue
        statuses = op_routes("select" if name == "cast" else declared.gate_name).main
        cells = [statuses[family].value for family in families]
        operands = ", ".join(declared.operands) or "-"
        gradient = "yes" if declared.derivative else "no"
        doc = declared.doc.splitlines()[0].replace("|", "\\|") if declared.doc else ""
        row = [f"`{name}`", operands.replace("*", "\\*"), ", ".join(declared.attributes) or "-", gradient, *cells, doc]
        parts.append("| " + " | ".join(row) + " |")
    return "\n".join(parts) + "\n"


def rewrites() -> str:
    parts = [
        "# How ops are rewritten for chips that lack them",
        "",
        "Written by `make docs` from `aneforge/compiler/legal/table.py`, the one place that says which op is",
        "rewritten on which chip and into what. A native op is never touched. Rows with a graph op are applied by",
        "phase 0, rows with a backend op (`anec.`) by phase 2; the fact of the chip in the third column decides. The",
        "error in ulp is the largest distance from the correctly rounded result over every fp16 argument of the",
        "domain, every node of the rewrite rounded to fp16 in three ways (half to even, half away, and the double",
        "rounding of small results that silicon shows); the engine's own exp, log, sqrt, atan and tanh count as",
        "correctly rounded.",
        "",
        "| op | rewrite | decided by | pass | into | error |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in REWRITES.values():
        cells = [f"`{row.op}`", f"`{row.name}`", fact_label(row.because), f"`{row.run_by}`", row.into, str(row.bound)]
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(parts) + "\n"


def passes() -> str:
    """The pipeline, pass by pass."""
    lines = [
        "# The passes of the compiler",
        "",
        "Written by `make docs` from the code. A pass sees only the facts of its target that stand in its last",
        "column: targets on which these agree share its run. `aneforge opt` prints the same list;",
        "`aneforge opt FILE --pass NAME --target h13` runs one pass on backend code in text form.",
        "",
    ]
    for number, (phase, names) in enumerate(PHASES.items()):
        lines += [f"## Phase {number}: {phase}", "", "| pass | what it does | reads |", "| --- | --- | --- |"]
        for name in dict.fromkeys(names):
            each = PASSES[name]
            reads = ", ".join(map(fact_label, each.reads)) or "-"
            lines.append(f"| `{name}` | {each.purpose.replace('|', '/')} | {reads} |")
        lines.append("")
    return "\n".join(lines)


_HOW_READ = """*Native form*: an op of the graph language, or a weight kept as it is stored. *Equivalent*: a graph of
such ops that means the same. *Host*: the host computes it in float32, between regions of the engine (`aneforge
partition`). *Refused*: one clear error. Ops on whole numbers, and ops whose places are only known while a program
runs, go to the host wherever the table says otherwise."""


def _op_table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    counts = Counter(how for _, how, _ in rows)
    told = ", ".join(f"{counts[how]} {how}" for how in ("native form", "equivalent", "host", "refused"))
    lines = [f"{len(rows)} ops: {told}.", "", _HOW_READ, "", "| op | how | note |", "| --- | --- | --- |"]
    return lines + [f"| `{name}` | {how} | {why} |" for name, how, why in rows]


def coreml() -> str:
    from aneforge.frontends.coreml import coverage

    head = "Written by `make docs` from the reader's tables; the ops are those of the 187-op matrix and what"
    return (
        "\n".join(["# Core ML: what is read", "", head, "coremltools writes beside it.", "", *_op_table(coverage())])
        + "\n"
    )


def torch() -> str:
    from aneforge.frontends.torch.adapter import coverage

    head = "Written by `make docs-models` from the reader's tables: the core ATen ops, and others that have a rule."
    return "\n".join(["# PyTorch: what is read", "", head, "", *_op_table(coverage())]) + "\n"


def onnx() -> str:
    sys.path.insert(0, str(DOCS.parent / "bench"))
    from onnx_coverage import coverage_page  # type: ignore[import-not-found]

    return coverage_page()


MODEL_PAGES: dict[str, Callable[[], str]] = {"onnx.md": onnx, "torch.md": torch}
"""Pages that need a package of another format."""


@cache
def _resnet() -> Estimates:
    return estimate_all(str(DOCS.parent / "examples" / "resnet.py"), "macs,phones", "coreml_call")


def roofline_picture() -> str:
    chips = {name: dict(_resnet())[name] for name in ("M1", "M5")}
    return roofline_svg(chips, "ResNet-18: layers and roofline")


def timeline_picture() -> str:
    return timeline_svg(_resnet()["M1"], "ResNet-18: estimated time by layer")


def chips_picture() -> str:
    return chips_svg(_resnet().in_order(), "ResNet-18: estimated time of one call")


PAGES: dict[str, Callable[[], str]] = {
    "unknowns.md": unknowns,
    "rules.md": rules,
    "operations.md": operations,
    "rewrites.md": rewrites,
    "passes.md": passes,
    "coreml.md": coreml,
    "pictures/roofline.svg": roofline_picture,
    "pictures/timeline.svg": timeline_picture,
    "pictures/chips.svg": chips_picture,
}


def main() -> int:
    (DOCS / "pictures").mkdir(parents=True, exist_ok=True)
    pages = {**PAGES, **(MODEL_PAGES if "--models" in sys.argv else {})}
    for name, page in pages.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
    print(f"wrote {', '.join(pages)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
