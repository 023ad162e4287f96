"""Pointwise functions: the rewrites are the functions of :mod:`aneforge.special`."""

from __future__ import annotations

from aneforge import special
from aneforge.compiler.legal.rewrites.bounds import Bound
from aneforge.compiler.legal.rewrites.registry import Context, Result, rule
from aneforge.graph.tensor import Tensor

_NAMES = {
    "sin": "sin-horner",
    "cos": "cos-horner",
    "asin": "asin-half-angle",
    "acos": "acos-quarter-angle",
    "atan2": "atan2-octant",
    "sinh": "sinh-tanh-cosh",
    "cosh": "cosh-exp",
    "asinh": "asinh-log",
    "acosh": "acosh-log",
    "atanh": "atanh-log",
    "mod": "mod-floor",
    "logical_and": "and-min",
    "logical_or": "or-max",
    "logical_xor": "xor-not-equal",
}


def _register(op: str, name: str) -> None:
    function = getattr(special, op)

    def apply(context: Context) -> Tensor:
        return function(*context.inputs)

    apply.__doc__ = function.__doc__
    rule(op, name)(apply)


for _op, _name in _NAMES.items():
    _register(_op, _name)


_TAN_NATIVE = Bound("every finite fp16 x", 1e-12, 2)


@rule("tan", "tan-quotient")
def tan(context: Context) -> Tensor | Result:
    """Sine over cosine: the engine's own where it has them, else of one shared range reduction."""
    x = context.inputs[0]
    if context.native("sin") and context.native("cos"):
        return Result(x.sin() / x.cos(), _TAN_NATIVE)
    return special.tan(x)
