"""Phase 4: lay out the buffers and streams that the task groups read and write."""

from __future__ import annotations

from aneforge.compiler.memory import allocation, kernels, layout

__all__ = ["MEMORY", "allocation", "kernels", "layout"]

MEMORY = (
    "fold-padding",
    "join-widths",
    "assign-allocations",
    "lay-out-buffers",
    "dedicate-buffers",
    "pack-kernels",
)
"""The passes of phase 4 in order; bank conflicts are settled by the strides that the whole phase measures with."""
