"""The rules by op class. Importing this package registers them all."""

from __future__ import annotations

from aneforge.compiler.legal.rules import (  # noqa: F401 - importing them registers their rules
    chains,
    conv,
    dtypes,
    extents,
    layers,
    native,
    programs,
    validators,
    values,
)
from aneforge.compiler.legal.rules.base import RULES, Limit, Rule, applicable

__all__ = ["RULES", "Limit", "Rule", "applicable"]
