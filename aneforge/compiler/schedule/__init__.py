"""Phase 3: one execution order for the layers, carved into partitions that fit on chip."""

from __future__ import annotations

from aneforge.compiler.schedule import chains, co_issue, engines, order, partitions

__all__ = ["SCHEDULE", "chains", "co_issue", "engines", "order", "partitions"]

SCHEDULE = (
    "assign-engines",
    "schedule-layers",
    "discover-chains",
    "discover-co-issue",
    "close-partitions",
)
"""The passes of phase 3 in order."""
