"""Compute plans: which device Core ML prefers for each operation, predicted here or dumped on a Mac."""

from __future__ import annotations

from typing import Any

_HOMES = {
    "ComputePlan": "aneforge.study.plan_document",
    "PlannedOp": "aneforge.study.plan_document",
    "compute_plan": "aneforge.study.plan",
    "contributed_rows": "aneforge.plans.contribute",
    "read_plan": "aneforge.plans.files",
    "timed_row": "aneforge.plans.contribute",
}


def __getattr__(name: str) -> Any:
    """Imported when it is first used: reading a plan needs no compiler."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
