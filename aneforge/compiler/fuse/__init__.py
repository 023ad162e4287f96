"""Phase 1: collapse the graph to engine layers.

Rewrites first (copies, quantisers, transposes, scales into weights, constants to gain and offset, activation pairs,
what can pass a concat), then labels: each engine op absorbs the ops that fit its seven epilogue slots, in their
fixed order (listing 22.3).
"""

from __future__ import annotations

from aneforge.compiler.fuse import layouts, moves, scales, slots

__all__ = ["FUSION", "layouts", "moves", "scales", "slots"]

FUSION = (
    "drop-copies",
    "collapse-quant-dequant",  # a dequant that loses a reader here may then stand before a concat only,
    "dequant-across-concat",
    "collapse-quant-dequant",  # and one that has crossed a concat may meet its opposite
    "dequant-into-weights",
    "collapse-transposes",
    "transposes-into-matmul",
    "bias-into-products",
    "products-to-convolutions",
    "sink-moves",
    "fold-batch-norm",
    "constants-to-gain-offset",
    "merge-gain-offset",
    "merge-activations",
    "gates-to-swish",
    "hoist-through-concat",  # pairs are one by now, and what moves onto a convolution can go into its kernel
    "fold-gain-into-weights",
    "carry-layouts",
    "straighten-moves",
    "transposes-into-matmul",
    "share-moves",
    "constants-to-gain-offset",  # a number for each feature lies along the channels by now
    "label-layers",
    "square-after-reduce",
)
"""The passes of phase 1 in order."""
