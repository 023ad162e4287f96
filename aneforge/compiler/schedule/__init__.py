"""Phase 3: one execution order for the layers, carved into task groups that fit on chip."""

from __future__ import annotations

from aneforge.compiler.schedule import groups as chains
from aneforge.compiler.schedule import groups as co_issue
from aneforge.compiler.schedule import groups as engines
from aneforge.compiler.schedule import groups as task_groups
from aneforge.compiler.schedule import order

__all__ = ["SCHEDULE", "chains", "co_issue", "engines", "order", "task_groups"]

SCHEDULE = (
    "assign-engines",
    "schedule-layers",
    "discover-chains",
    "discover-co-issue",
    "close-task-groups",
)
"""The passes of phase 3 in order."""
