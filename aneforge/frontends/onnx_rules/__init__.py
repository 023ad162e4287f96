"""What each ONNX op becomes: a rule takes the node and its inputs, tensors or known arrays, and gives tensors.

Layouts and paddings that the graph language lacks become equivalent graphs here. What has no static meaning in fp16 on
this engine raises ``LoadError`` with the reason.
"""

from __future__ import annotations

from aneforge.frontends.onnx_node import Rule
from aneforge.frontends.onnx_rules import elementwise, movement, norms, products, reductions, spatial

__all__ = ["RULES"]

RULES: dict[str, Rule] = {
    name: rule
    for room in (elementwise, products, norms, spatial, reductions, movement)
    for name, rule in room.RULES.items()
}
