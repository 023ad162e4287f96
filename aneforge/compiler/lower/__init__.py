"""Lowering: the user's graph in the engine's language, most ops one to one (chapter 22).

A value of the user's shape is laid out as NDCHW (:func:`aneforge.engine.rank5`). An op whose operands are laid out
differently from what the engine needs gets reshapes and transposes around it, which phase 1 folds or cancels. Every op
carries the name of the user's node. Lowering does not decide what a chip can run: the rest of phase 0 comes before it,
and legalisation after it.
"""

from __future__ import annotations

from aneforge.compiler.lower.builder import LoweringError
from aneforge.compiler.lower.walk import Lowered, Port, lower, output_names, rewritten_ops

__all__ = ["Lowered", "LoweringError", "Port", "lower", "output_names", "rewritten_ops"]
