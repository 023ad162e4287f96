"""Native layers by their type and parameters, as ops of the graph; and any function of one number by its knots."""

from __future__ import annotations

from aneforge.authoring.bridge import bridge
from aneforge.authoring.build import AuthoringError, Unit, build_layer
from aneforge.authoring.pwl import pwl

__all__ = ["AuthoringError", "Unit", "bridge", "build_layer", "pwl"]
