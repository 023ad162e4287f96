"""What each type of layer becomes in the graph, and why some types become nothing."""

from __future__ import annotations

from aneforge.engine.authoring.build import Rule
from aneforge.engine.authoring.native_rules import NATIVE_RULES
from aneforge.engine.authoring.ordinary_rules import ORDINARY_RULES

RULES: dict[str, Rule] = {**ORDINARY_RULES, **NATIVE_RULES}
