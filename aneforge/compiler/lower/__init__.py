"""Lowering: the user's graph in the engine's language, most ops one to one (chapter 22).

A value of the user's shape is laid out as NDCHW (:func:`aneforge.anec.rank5`); an op whose operands lie otherwise
than the engine wants them gets reshapes and transposes around it, which phase 1 folds or cancels. Every op made
carries the name of the user's node. What a chip cannot run is not decided here: the rest of phase 0 comes before, the
legalisation after.
"""

from __future__ import annotations

from aneforge.compiler.lower.builder import LoweringError
from aneforge.compiler.lower.walk import Lowered, Port, lower, output_names, rewritten_ops

__all__ = ["Lowered", "LoweringError", "Port", "lower", "output_names", "rewritten_ops"]
