"""The common ops: one name and one set of arguments for what several formats call differently.

An op is a function whose parameters are its arguments (``importer.calls``); it returns tensors or known arrays. The
table of a format (its rows) says which common op each of its own ops is, and which argument is which. ``known``
computes the same ops on known values. An op that is valid but has no form on the engine raises ``NoForm``; an error in
the file raises ``LoadError``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aneforge.formats.ops import (
    compressed,
    elementwise,
    images,
    indexing,
    movement,
    norms,
    products,
    recurrent,
    reductions,
    spatial,
)

__all__ = ["MOVEMENT", "OF_SHAPES", "OPS", "PLACES"]

_MODULES = (elementwise, products, norms, spatial, images, reductions, movement, indexing, recurrent, compressed)
OPS: dict[str, Callable[..., Any]] = {name: function for module in _MODULES for name, function in module.OPS.items()}


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OF_SHAPES = _words("fill_like shape")
"""Ops that read the shape of a tensor but not its numbers."""

MOVEMENT = _words(
    "cast concat dequantize expand_dims fill_like flatten2d gather gather_along_axis gather_nd identity one_hot pad "
    "quantize reshape reshape_like reverse reverse_sequence shape slice_by_index slice_by_size slice_update "
    "sliding_windows split squeeze stack tile transpose"
)
"""Ops that move numbers without changing them: integers that fp16 holds stay exact."""

PLACES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_words("gather gather_along_axis gather_nd scatter scatter_along_axis scatter_nd"), ("indices",)),
    **dict.fromkeys(_words("slice_by_index slice_by_size slice_update"), ("begin", "end", "size", "stride")),
    "reverse_sequence": ("lengths",),
}
"""Arguments that are positions, not data."""
