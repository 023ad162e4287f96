"""Rules by ONNX op. A rule takes the node and its inputs (tensors or known arrays) and returns tensors.

Layouts and paddings that the graph language lacks become equivalent graphs. A rule raises ``NoForm`` if the engine has
no form for the node, and ``LoadError`` if the file is wrong.
"""

from __future__ import annotations

from aneforge.frontends.onnx import (
    attention,
    contrib,
    elementwise,
    indexing,
    movement,
    norms,
    products,
    recurrent,
    reductions,
    refusals,
    resampling,
    signal,
    spatial,
)
from aneforge.frontends.onnx.node import Rule

__all__ = ["RULES"]

_MODULES = (
    *(elementwise, products, norms, spatial, resampling, reductions, movement, indexing, signal, recurrent),
    *(attention, contrib, refusals),
)

RULES: dict[str, Rule] = {name: rule for room in _MODULES for name, rule in room.RULES.items()}
