"""Native layers by their type and parameters, as ops of the graph."""

from __future__ import annotations

from aneforge.authoring.build import AuthoringError, Unit, build_layer

__all__ = ["AuthoringError", "Unit", "build_layer"]
