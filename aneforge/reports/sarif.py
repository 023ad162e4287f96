"""SARIF 2.1.0, which code hosts and editors show at the line of a file: the document around rules and results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from aneforge.reports.document import Report
from aneforge.reports.rows import FindingRow

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_document(
    version: str, rules: Sequence[dict[str, Any]], results: Sequence[dict[str, Any]], **run: Any
) -> str:
    """The text of a file with one run of this tool; ``run`` are further fields of it."""
    driver = {"name": "aneforge", "version": version, "rules": list(rules)}
    whole = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", **run, "results": list(results)}
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [whole]}
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


# The reasons of a report as SARIF 2.1.0: a result's rule is the id that the page, ``check`` and the docs show.


_LEVELS = {
    "reject": "error",
    "oversize": "error",
    "unknown": "warning",
    "risk": "warning",
    "placement": "warning",
    "decompose": "note",
}


def sarif_text(report: Report) -> str:
    """Every reason once, with its operations and chips."""
    rules = list(dict.fromkeys(row.rule or row.grade for row in report.findings))
    results = [_result(report, row, rules.index(row.rule or row.grade)) for row in report.findings]
    return sarif_document(report.version, [{"id": rule} for rule in rules], results)


def _result(report: Report, row: FindingRow, place: int) -> dict[str, Any]:
    names = [report.ops[number].name for number in row.nodes]
    file = {"artifactLocation": {"uri": str(report.model["name"])}}
    operations = [{"name": name, "kind": "function"} for name in names]
    labels = {chip.name: chip.label for chip in report.chips}
    about = f"On {', '.join(labels[name] for name in row.chips)}. {row.evidence}"
    return {
        "ruleId": row.rule or row.grade,
        "ruleIndex": place,
        "level": _LEVELS[row.grade],
        "message": {"text": " ".join(part for part in (row.message, row.hint, about) if part)},
        "locations": [{"physicalLocation": file, "logicalLocations": operations}],
        "partialFingerprints": {"aneforgeFinding/v1": row.id},
    }
