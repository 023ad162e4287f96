"""All rules of the ONNX reader in one place: by op, by domain, and by what is known of the inputs."""

from __future__ import annotations

from aneforge.frontends.onnx import attention, contrib, elementwise, movement, quantised
from aneforge.frontends.onnx.node import Rule
from aneforge.frontends.onnx.rules import RULES as PLAIN

__all__ = ["CONTRIB", "DRAWN", "MOVES", "PREFERRED", "RULES", "SCALAR_RULES", "STATIC_RULES"]

RULES: dict[str, Rule] = {**PLAIN, **quantised.RULES}
STATIC_RULES = quantised.STATIC_RULES
"""For nodes whose inputs are all known."""
PREFERRED = attention.PREFERRED
"""Before the standard's own definition of an op by others."""
CONTRIB: dict[str, Rule] = {**contrib.CONTRIB, **quantised.CONTRIB}
SCALAR_RULES = frozenset((*elementwise.RULES, "CastLike", "Dropout", "Expand", "Gemm", "Identity", "Pad", "Reshape"))
"""Ops that take a single number as they take a line of one."""
DRAWN = frozenset(("RandomNormal", "RandomUniform"))
"""Ops without inputs whose results are nevertheless no constants."""
MOVES = frozenset((*movement.RULES, *quantised.RULES, *quantised.CONTRIB, *quantised.ON_CODES, "Cast", "TopK"))
"""Ops that move whole numbers, or know what codes are: those that fp16 holds stay exact."""
