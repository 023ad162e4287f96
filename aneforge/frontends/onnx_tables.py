"""All rules of the ONNX reader in one place: by op, by domain, and by what is known of the inputs."""

from __future__ import annotations

from aneforge.frontends.onnx_node import Rule
from aneforge.frontends.onnx_rules import RULES as PLAIN
from aneforge.frontends.onnx_rules import elementwise, quantised

__all__ = ["CONTRIB", "RULES", "SCALAR_RULES", "STATIC_RULES"]

RULES: dict[str, Rule] = {**PLAIN, **quantised.RULES}
STATIC_RULES = quantised.STATIC_RULES
SCALAR_RULES = frozenset((*elementwise.RULES, "CastLike", "Dropout", "Expand", "Identity", "Reshape"))
"""Ops that take a single number as they take a line of one."""
CONTRIB: dict[str, Rule] = {**quantised.CONTRIB}
