"""The counts of the last ``make fuzz`` and ``make soak`` that were recorded, for the page of reliability."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parents[1] / "bench" / "reliability.json"


def recorded() -> dict[str, Any]:
    """What each of the two last printed."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def record(name: str, counts: Mapping[str, Any]) -> None:
    """Keep the counts of one of them."""
    KEPT.write_text(json.dumps({**recorded(), name: dict(counts)}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
