"""Native layers by their type and parameters, as ops of the graph; and any function of one number by its knots."""

from __future__ import annotations

from aneforge.engine.authoring.bridge import bridge
from aneforge.engine.authoring.build import AuthoringError, Unit, build_layer
from aneforge.engine.authoring.pwl import pwl

__all__ = ["AuthoringError", "Unit", "bridge", "build_layer", "pwl"]
