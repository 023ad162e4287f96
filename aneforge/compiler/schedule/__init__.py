"""Phase 3: one execution order for the layers, carved into task groups that fit on chip."""

from __future__ import annotations

from aneforge.compiler.schedule import chains, co_issue, engines, order, task_groups

__all__ = ["SCHEDULE", "chains", "co_issue", "engines", "order", "task_groups"]

SCHEDULE = (
    "assign-engines",
    "schedule-layers",
    "discover-chains",
    "discover-co-issue",
    "close-task-groups",
)
"""The passes of phase 3 in order."""
