"""Pointwise functions: the rewrites are the functions of :mod:`aneforge.special`."""

from __future__ import annotations

from collections.abc import Callable

from aneforge import special
from aneforge.compiler.legal.bounds import TAN_OF_ENGINE
from aneforge.compiler.legal.rewrites.context import Context, Result
from aneforge.graph.tensor import Tensor


def special_function(op: str) -> Callable[[Context], Tensor]:
    """The function of that name, applied to the operands of a node."""
    function = getattr(special, op)

    def apply(context: Context) -> Tensor:
        return function(*context.inputs)

    apply.__doc__ = function.__doc__
    return apply


def tan(context: Context) -> Tensor | Result:
    """Sine over cosine: the engine's own where it has them, else of one shared range reduction."""
    x = context.inputs[0]
    if context.native("sin") and context.native("cos"):
        return Result(x.sin() / x.cos(), TAN_OF_ENGINE)
    return special.tan(x)
