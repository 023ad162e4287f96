"""One model on many chips in one place: ``report`` gathers it, and what it returns is written in any format."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Imported when it is first used: pictures of estimates need none of it."""
    if name == "report":
        from aneforge.report.gather import report

        return report
    if name == "Report":
        from aneforge.report.document import Report

        return Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
