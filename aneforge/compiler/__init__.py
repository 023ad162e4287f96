"""From a graph to a program: lowering and the four phases, one folder a phase, one file a pass or a few of a kind."""

from __future__ import annotations

from aneforge.compiler.lower import Lowered, LoweringError, Port, lower

__all__ = ["Lowered", "LoweringError", "Port", "lower"]
