"""The op declarations, by group. Importing this package declares every op."""

from __future__ import annotations

from aneforge.graph.ops import (  # noqa: F401 - importing them declares their ops
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
    volume,
)
