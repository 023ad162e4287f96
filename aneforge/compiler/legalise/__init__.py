"""Phase 2: make the fused graph legal on the target.

Forms that a family lacks come first, then strides, groups and kernels, the capacity splits, and the data paths of
what only moves. The checks at the end refuse everything that no pass could make legal.
"""

from __future__ import annotations

from aneforge.compiler.legalise import encodings, extents, floors, kernels, resizes, strides, views

__all__ = ["LEGALISATION", "encodings", "extents", "floors", "kernels", "resizes", "strides", "views"]

LEGALISATION = (
    "expand-encodings",
    "legacy-forms",
    "resize-strategies",
    "gather-gate",
    "large-strides",
    "block-factors",
    "group-convolutions",
    "large-kernels",
    "slice-products",
    "split-kernel-memory",
    "multi-pass-transposes",
    "crop-slices",
    "check-floors",
    "check-extents",
    "cut-segments",
    "check-program-size",
)
"""The passes of phase 2 in order."""
