"""What each MIL op becomes: a rule takes the op with its arguments and gives tensors, or known arrays.

Layouts and paddings that the graph language lacks become equivalent graphs. What has a meaning but no form on the
engine raises ``OnHost``; what has none here raises ``LoadError`` with the reason.
"""

from __future__ import annotations

from aneforge.frontends.coreml.op import Rule
from aneforge.frontends.coreml.rules import (
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

__all__ = ["RULES"]

RULES: dict[str, Rule] = {
    name: rule
    for room in (
        elementwise,
        products,
        norms,
        spatial,
        images,
        reductions,
        movement,
        indexing,
        recurrent,
        compressed,
    )
    for name, rule in room.RULES.items()
}
