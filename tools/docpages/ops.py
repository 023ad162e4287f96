"""The pages of the operations, of their spellings and rewrites, and of the passes."""

from __future__ import annotations

from aneforge.chips import op_routes
from aneforge.chips.assumed import fact_label
from aneforge.chips.families import Family
from aneforge.compiler.legal.table import REWRITES
from aneforge.compiler.passes import PASSES
from aneforge.compiler.pipeline import PHASES
from aneforge.graph import definitions
from aneforge.graph.recognise.table import ALL_RULES

__all__ = ["derivatives", "operations", "passes", "rewrites", "spellings"]


def operations() -> str:
    families = [family for family in Family if family > Family.OLDER]
    chips = {"A13": "M1", "A14": "M2", "A15": "M3", "A16": "M4, M5, M6"}
    headings = " | ".join(chips[family.name] for family in families)
    parts = [
        "# The operations of the graph language",
        "",
        "Which ops can a graph use, and what does each chip do with them? `native` ops are emitted as they are,",
        "`decompose` ops are rewritten for the chip ([rewrites.md](rewrites.md)), `reject` means no program. A chip",
        "can still refuse a `native` op for its size, values or attributes ([rules.md](rules.md)).",
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


def derivatives() -> str:
    """Which ops pass a gradient, and why the others do not."""
    declared = {name: each for name, each in sorted(definitions().items()) if not each.leaf}
    with_one = [name for name, each in declared.items() if each.derivative is not None]
    without = [each for each in declared.values() if each.derivative is None]
    parts = [
        "# Ops with and without a derivative",
        "",
        "Which ops can stand between a loss and a parameter? Training ([the guide](../guide/train.md)) needs a",
        "derivative of each of them. Asking for one that an op does not have is an error that names the op and its",
        "line. Every derivative is checked against differences of the float64 reference.",
        "",
        f"## Without ({len(without)})",
        "",
        "| op | what it does | why no gradient passes |",
        "| --- | --- | --- |",
    ]
    for each in without:
        doc = each.doc.splitlines()[0].replace("|", "\\|") if each.doc else ""
        parts.append(f"| `{each.name}` | {doc} | {each.no_derivative} |")
    parts += [
        "",
        "`quantize` is a step too; it passes the gradient of what it rounds, within its range, as PyTorch's fake",
        "quantisers do. The condition of `select` only chooses, so no gradient flows through it.",
        "",
        f"## With ({len(with_one)})",
        "",
    ]
    line = ""
    for name in with_one:
        word = f"`{name}`"
        if len(line) + len(word) + 2 > 110:
            parts.append(f"{line},")
            line = ""
        line = f"{line}, {word}" if line else word
    return "\n".join([*parts, f"{line}."]) + "\n"


def rewrites() -> str:
    parts = [
        "# How ops are rewritten for chips that lack them",
        "",
        "An op that a chip lacks is replaced by ops that it has. This table says which, on which chip, and with what",
        "error. It is `aneforge/compiler/legal/table.py`, the one place that decides this. A native op is never",
        "replaced. Phase 0 applies the rows with a graph op, phase 2 those with a backend op (`anec.`). The fact of",
        "the chip in the third column decides.",
        "",
        "The error in ulp is the largest distance from the correctly rounded result over every fp16 argument of the",
        "domain. Every node of the rewrite is rounded to fp16 in three ways: half to even, half away from zero, and",
        "the double rounding of small results that chips show. The engine's own exp, log, sqrt, atan and tanh count",
        "as correctly rounded.",
        "",
        "| op | rewrite | decided by | pass | into | error |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in REWRITES.values():
        cells = [f"`{row.op}`", f"`{row.name}`", fact_label(row.because), f"`{row.run_by}`", row.into, str(row.bound)]
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(parts) + "\n"


def spellings() -> str:
    parts = [
        "# Spellings that are recognised",
        "",
        "Exporters write the same layer in many ways. Every model file becomes a graph in one spelling, whatever its",
        "format, before anything else looks at it: `aneforge/graph/recognise/table.py` holds the rules. A graph that",
        "is written in Python, or read from a netplist, stays as it is.",
        "",
        "| rule | ends in | what it does |",
        "| --- | --- | --- |",
    ]
    for rule in ALL_RULES:
        ends = ", ".join(f"`{end}`" for end in rule.ends)
        parts.append(f"| `{rule.name}` | {ends} | {rule.doc} |".replace("|x|", "\\|x\\|"))
    return "\n".join(parts) + "\n"


def passes() -> str:
    """The pipeline, pass by pass."""
    lines = [
        "# The passes of the compiler",
        "",
        "The compiler runs these passes in this order. A pass reads only the facts of its target that the last column",
        "names, so targets on which these facts agree share its run. `aneforge opt` prints the same list.",
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
