"""The op declarations, by group. Importing this package declares every op."""

from __future__ import annotations

from aneforge.graph.ops import (
    blocks,
    contraction,
    elementwise,
    extra,
    geometry,
    host,
    layers,
    leaf,
    norm,
    quantised,
    ranking,
    reduction,
    sampling,
    shape,
    slices,
    spatial,
    state,
)

__all__ = [
    "blocks",
    "contraction",
    "elementwise",
    "extra",
    "geometry",
    "host",
    "layers",
    "leaf",
    "norm",
    "quantised",
    "ranking",
    "reduction",
    "sampling",
    "shape",
    "slices",
    "spatial",
    "state",
]
