"""The op declarations, by group. Importing this package declares every op."""

from __future__ import annotations

from aneforge.graph.ops import (
    blocks,
    contraction,
    elementwise,
    extra,
    host,
    layers,
    leaf,
    norm,
    quantised,
    reduction,
    shape,
    spatial,
)

__all__ = [
    "blocks",
    "contraction",
    "elementwise",
    "extra",
    "host",
    "layers",
    "leaf",
    "norm",
    "quantised",
    "reduction",
    "shape",
    "spatial",
]
