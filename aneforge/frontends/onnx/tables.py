"""All rules of the ONNX reader: by op, by domain, and for known inputs."""

from __future__ import annotations

from aneforge.frontends.onnx import attention, contrib, elementwise, movement, quantised
from aneforge.frontends.onnx.node import Rule
from aneforge.frontends.onnx.rules import RULES as PLAIN

__all__ = ["CONTRIB", "DRAWN", "MOVES", "PREFERRED", "RULES", "SCALAR_RULES", "STATIC_RULES"]

RULES: dict[str, Rule] = {**PLAIN, **quantised.RULES}
STATIC_RULES = quantised.STATIC_RULES
"""For nodes whose inputs are all known."""
PREFERRED = attention.PREFERRED
"""Tried before the standard's own definition of an op."""
CONTRIB: dict[str, Rule] = {**contrib.CONTRIB, **quantised.CONTRIB}
SCALAR_RULES = frozenset((*elementwise.RULES, "CastLike", "Dropout", "Expand", "Gemm", "Identity", "Pad", "Reshape"))
"""Ops that treat a single number like a tensor of shape (1,)."""
DRAWN = frozenset(("RandomNormal", "RandomUniform"))
"""Ops without inputs whose results are not constants."""
MOVES = frozenset((*movement.RULES, *quantised.RULES, *quantised.CONTRIB, *quantised.ON_CODES, "Cast", "TopK"))
"""Ops that move integers or handle codes: integers that fp16 represents stay exact."""
