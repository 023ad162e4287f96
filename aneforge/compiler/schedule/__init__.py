"""Phase 3: one execution order for the layers, carved into task groups that fit on chip."""

from __future__ import annotations

from aneforge.compiler.schedule import groups, order

__all__ = ["SCHEDULE", "groups", "order"]

SCHEDULE = (
    "assign-engines",
    "schedule-layers",
    "discover-chains",
    "discover-co-issue",
    "close-task-groups",
)
"""The passes of phase 3 in order."""
