"""One model on many chips in one place: ``report`` gathers it, and what it returns is written in any format."""

from __future__ import annotations

from typing import Any

from aneforge.lazy import first_use

HOMES = {"gather": "report", "document": "Report"}


def __getattr__(name: str) -> Any:
    return first_use(__name__, HOMES, name)
