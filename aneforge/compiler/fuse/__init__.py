"""Phase 1: collapse the graph to engine layers.

Rewrites first (copies, transposes, scales into weights, constants to gain and offset, activation pairs), then
labels: each engine op absorbs the ops that fit its seven epilogue slots, in their fixed order (listing 22.3).
"""

from __future__ import annotations

from aneforge.compiler.fuse import activations, copies, gain_offset, products, scales, slots, transposes

__all__ = ["FUSION", "activations", "copies", "gain_offset", "products", "scales", "slots", "transposes"]

FUSION = (
    "drop-copies",
    "collapse-transposes",
    "transposes-into-matmul",
    "products-to-convolutions",
    "sink-transposes",
    "collapse-transposes",
    "fold-batch-norm",
    "constants-to-gain-offset",
    "fold-gain-into-weights",
    "merge-gain-offset",
    "merge-activations",
    "label-layers",
)
"""The passes of phase 1 in order."""
