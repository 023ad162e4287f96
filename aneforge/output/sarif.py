"""SARIF 2.1.0, which code hosts and editors show at the line of a file: the document around rules and results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_document(
    version: str, rules: Sequence[dict[str, Any]], results: Sequence[dict[str, Any]], **run: Any
) -> str:
    """The text of a file with one run of this tool; ``run`` are further fields of it."""
    driver = {"name": "aneforge", "version": version, "rules": list(rules)}
    whole = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", **run, "results": list(results)}
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [whole]}
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
