"""Arithmetic, comparisons and pointwise functions, with broadcasting as in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import OpDef, Shape, entry, make, op
from aneforge.graph.ops.leaf import as_tensor, const
from aneforge.graph.shapes import broadcast, number, same_shape
from aneforge.graph.traits import STEP, TRUTH_VALUES
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor

_erf = np.vectorize(math.erf, otypes=[np.float64])


def summed_to(g: Tensor, shape: Shape) -> Tensor | None:
    """Undo broadcasting in a gradient: sum the stretched axes, drop the added ones. None for a plain number."""
    if g.shape == shape:
        return g
    if not shape:
        return None
    added = len(g.shape) - len(shape)
    stretched = [i for i in range(len(g.shape)) if i < added or (shape[i - added] == 1 and g.shape[i] != 1)]
    total = g.sum(stretched) if stretched else g
    return total.reshape(shape) if total.shape != shape else total


def times(x: Tensor, factor: float) -> Tensor:
    """``x`` times a number that is kept as an attribute: as a constant, 1/100000 would lose digits in fp16."""
    return scaled("linear_activation", x, factor, 0.0)


def _binary(
    name: str, doc: str, reference: Callable, derivative: Callable | None = None, *traits: T, **options: str
) -> OpDef:
    def spread(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> list[Tensor | None]:
        assert derivative is not None
        parts = derivative(g, y, a, b)
        return [None if d is None else summed_to(d, t.shape) for d, t in zip(parts, (a, b), strict=True)]

    body = {"__doc__": doc, "shape": broadcast, "reference": reference}
    if derivative is not None:
        body["derivative"] = spread
    return op(name, "a b", "", T.POINTWISE, *traits, **{"mil": f"{name} x y", **options})(type(name, (), body))


def _quiet(function: Callable) -> Callable:
    def run(*arrays: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arrays)

    return run


ADD = _binary("add", "a + b", np.add, lambda g, y, a, b: (g, g), T.ARITHMETIC, backend="add a b")
SUB = _binary(
    "sub", "a - b", np.subtract, lambda g, y, a, b: (g, -g), T.ARITHMETIC, backend="sub a b", diverges_as="add"
)
MUL = _binary(
    "mul", "a * b", np.multiply, lambda g, y, a, b: (g * b, g * a), T.ARITHMETIC, T.SCALING, backend="mult a b"
)
DIV = _binary(
    "real_div",
    "a / b",
    _quiet(np.divide),
    lambda g, y, a, b: (g / b, -(g * y) / b),
    T.ARITHMETIC,
    T.SCALING,
    backend="div a b",
    diverges_as="divide",
)
FLOOR_DIV = _binary(
    "floor_div",
    "The whole part of a / b, rounded down.",
    _quiet(np.floor_divide),
    no_derivative=STEP,
    diverges_as="divide",
)
MOD = _binary(
    "mod", "a - b * floor(a / b)", _quiet(np.mod), lambda g, y, a, b: (g, -(g * floor_div(a, b))), diverges_as="divide"
)
POW = _binary(
    "pow",
    "a to the power b",
    _quiet(np.power),
    lambda g, y, a, b: (g * b * a ** (b - 1.0), g * y * a.log()),
    backend="power a b",
)
MAXIMUM = _binary(
    "maximum",
    "The larger of a and b.",
    np.maximum,
    lambda g, y, a, b: (where(a.greater_equal(b), g, g * 0.0), where(a.greater_equal(b), g * 0.0, g)),
    T.ARITHMETIC,
    backend="max a b",
    diverges_as="compare",
)
MINIMUM = _binary(
    "minimum",
    "The smaller of a and b.",
    np.minimum,
    lambda g, y, a, b: (where(a.less_equal(b), g, g * 0.0), where(a.less_equal(b), g * 0.0, g)),
    T.ARITHMETIC,
    backend="min a b",
    diverges_as="compare",
)
ATAN2 = _binary(
    "atan2",
    "The angle of the point (b, a).",
    np.arctan2,
    lambda g, y, a, b: (g * b / (a * a + b * b), -(g * a) / (a * a + b * b)),
    mil="",
    diverges_as="divide",
)
COMPARISONS = {
    name: _binary(
        name,
        f"a {sign} b, as bool",
        function,
        dtypes="compare",
        no_derivative=TRUTH_VALUES,
        backend=f"{kind} a b",
        diverges_as="compare",
    )
    for name, sign, function, kind in (
        ("equal", "==", np.equal, "equal"),
        ("not_equal", "!=", np.not_equal, "not_equal"),
        ("less", "<", np.less, "less_than"),
        ("less_equal", "<=", np.less_equal, "less_than_equal"),
        ("greater", ">", np.greater, "greater_than"),
        ("greater_equal", ">=", np.greater_equal, "greater_than_equal"),
    )
}
LOGICAL = {
    name: _binary(
        name, f"a {word} b, of bools", function, dtypes="bool", no_derivative=TRUTH_VALUES, diverges_as="compare"
    )
    for name, word, function in (
        ("logical_and", "and", np.logical_and),
        ("logical_or", "or", np.logical_or),
        ("logical_xor", "xor", np.logical_xor),
    )
}


@op(
    "logical_not",
    "x",
    "",
    T.POINTWISE,
    dtypes="bool",
    no_derivative=TRUTH_VALUES,
    mil="logical_not x",
    diverges_as="compare",
)
class LOGICAL_NOT:
    """not x, of bools"""

    shape = same_shape
    reference = np.logical_not


@op("select", "cond a b", "", T.POINTWISE, dtypes="select", diverges_as="compare")
class SELECT:
    """a where the condition holds, else b."""

    shape = broadcast
    reference = np.where

    @staticmethod
    def derivative(g, y, cond, a, b):
        zero = g * 0.0
        return [None, summed_to(where(cond, g, zero), a.shape), summed_to(where(cond, zero, g), b.shape)]


def _unary(
    name: str,
    doc: str,
    reference: Callable,
    derivative: Callable | None = None,
    *traits: T,
    **spellings: str,
) -> OpDef:
    """A function of one tensor. MIL has it under the same name unless stated; ``backend`` is the row of its one op."""
    body = {"__doc__": doc, "shape": same_shape, "reference": _quiet(reference)}
    if derivative is not None:
        body["derivative"] = lambda g, y, x: [derivative(g, y, x)]
    options = {"mil": f"{name} x", **spellings}
    return op(name, "x", "", T.POINTWISE, *traits, no_derivative="" if derivative else STEP, **options)(
        type(name, (), body)
    )


def _step(x: Tensor, above: float = 0.0) -> Tensor:
    return x.greater(above).cast()


UNARY: dict[str, OpDef] = {
    declared.name: declared
    for declared in (
        _unary("relu", "max(x, 0)", lambda x: np.maximum(x, 0), lambda g, y, x: g * _step(x), backend="relu x"),
        _unary(
            "relu6",
            "min(max(x, 0), 6)",
            lambda x: np.clip(x, 0, 6),
            lambda g, y, x: g * _step(x) * x.less(6.0).cast(),
            backend="n_relu x | max_val=6.0",
            diverges_as="relu",
        ),
        _unary(
            "gelu",
            "x times the normal distribution at x",
            lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
            lambda g, y, x: (
                g
                * (
                    0.5 * (times(x, 1 / math.sqrt(2)).erf() + 1.0)
                    + times(x * ((x * x) * -0.5).exp(), 1 / math.sqrt(2 * math.pi))
                )
            ),
            T.FUNCTION,
            mil="gelu x | mode=EXACT",
            backend="gelu x",
        ),
        _unary(
            "silu",
            "x * sigmoid(x)",
            lambda x: x / (1 + np.exp(-x)),
            lambda g, y, x: g * (x.sigmoid() * (1.0 + x * (1.0 - x.sigmoid()))),
            T.FUNCTION,
            backend="swish x",
        ),
        _unary(
            "sigmoid",
            "1 / (1 + exp(-x))",
            lambda x: 1 / (1 + np.exp(-x)),
            lambda g, y, x: g * y * (1.0 - y),
            T.FUNCTION,
            backend="sigmoid x",
        ),
        _unary("tanh", "hyperbolic tangent", np.tanh, lambda g, y, x: g * (1.0 - y * y), T.FUNCTION, backend="tanh x"),
        _unary("exp", "e to the x", np.exp, lambda g, y, x: g * y, T.FUNCTION, backend="exp2 x | base_e=True"),
        _unary("exp2", "2 to the x", np.exp2, lambda g, y, x: times(g * y, math.log(2)), T.FUNCTION, backend="exp2 x"),
        _unary("sqrt", "square root", np.sqrt, lambda g, y, x: g * 0.5 / y, T.FUNCTION, backend="sqrt x"),
        _unary("abs", "magnitude", np.abs, lambda g, y, x: g * x.sign(), backend="abs x"),
        _unary("square", "x * x", np.square, lambda g, y, x: g * x * 2.0, backend="square x", diverges_as="mul"),
        _unary(
            "sin",
            "sine",
            np.sin,
            lambda g, y, x: g * x.cos(),
            T.FUNCTION,
            backend="sin x",
            diverges_as="trigonometric",
        ),
        _unary(
            "cos",
            "cosine",
            np.cos,
            lambda g, y, x: -(g * x.sin()),
            T.FUNCTION,
            backend="cos x",
            diverges_as="trigonometric",
        ),
        _unary(
            "erf",
            "error function",
            _erf,
            lambda g, y, x: times(g * (-(x * x)).exp(), 2 / math.sqrt(math.pi)),
            T.FUNCTION,
            backend="erf x",
        ),
        _unary(
            "softplus", "log(1 + exp(x))", lambda x: np.logaddexp(0, x), lambda g, y, x: g * x.sigmoid(), T.FUNCTION
        ),
        _unary(
            "softsign", "x / (1 + |x|)", lambda x: x / (1 + np.abs(x)), lambda g, y, x: g / (x.abs() + 1.0).square()
        ),
        _unary("atan", "arc tangent", np.arctan, lambda g, y, x: g / (x * x + 1.0)),
        _unary("floor", "round down", np.floor, backend="floor x"),
        _unary("ceil", "round up", np.ceil, backend="ceil x"),
        _unary(
            "round",
            "round to the nearest; ties to even here, away from zero on the engine",
            np.round,
            backend="round_nearest x",
        ),
        _unary("sign", "-1, 0 or 1", np.sign, backend="sign x"),
        # No chip has these natively; phase 0 of the compiler rewrites them.
        _unary("tan", "tangent", np.tan, lambda g, y, x: g * (1.0 + y * y), diverges_as="tangent"),
        _unary("asin", "arc sine", np.arcsin, lambda g, y, x: g / (1.0 - x * x).sqrt(), diverges_as="divide"),
        _unary("acos", "arc cosine", np.arccos, lambda g, y, x: -(g / (1.0 - x * x).sqrt()), diverges_as="divide"),
        _unary("sinh", "hyperbolic sine", np.sinh, lambda g, y, x: g * x.cosh(), diverges_as="tanh"),
        _unary("cosh", "hyperbolic cosine", np.cosh, lambda g, y, x: g * x.sinh()),
        _unary("asinh", "inverse hyperbolic sine", np.arcsinh, lambda g, y, x: g / (x * x + 1.0).sqrt(), mil=""),
        _unary("acosh", "inverse hyperbolic cosine", np.arccosh, lambda g, y, x: g / (x * x - 1.0).sqrt(), mil=""),
        _unary(
            "atanh", "inverse hyperbolic tangent", np.arctanh, lambda g, y, x: g / (1.0 - x * x), diverges_as="divide"
        ),
    )
}


def _scaled(
    name: str, attributes: str, doc: str, reference: Callable, derivative: Callable, *traits: T, **options: str
) -> OpDef:
    """A pointwise function with scalar attributes; behind ``>`` is what MIL calls one."""
    body = {"__doc__": doc, "shape": same_shape}
    body["reference"] = lambda x, **attrs: _quiet(lambda v: reference(v, *attrs.values()))(x)
    body["derivative"] = lambda g, y, x, **attrs: [derivative(g, y, x, *attrs.values())]
    own_names = " ".join(attribute.partition(">")[0] for attribute in attributes.split())
    return op(name, "x", own_names, T.POINTWISE, *traits, mil=f"{name} x | {attributes}", **options)(
        type(name, (), body)
    )


SCALED: dict[str, OpDef] = {
    declared.name: declared
    for declared in (
        _scaled(
            "log",
            "eps>epsilon",
            "log(x + eps)",
            lambda x, e: np.log(x + e),
            lambda g, y, x, e: g * x.inverse(e),
            T.FUNCTION,
            backend="log2 x | base_e=True eps>epsilon?=0.0",
        ),
        _scaled(
            "rsqrt",
            "eps>epsilon",
            "1 / sqrt(x + eps)",
            lambda x, e: 1 / np.sqrt(x + e),
            lambda g, y, x, e: g * y * y * y * -0.5,
            T.FUNCTION,
            backend="r_sqrt x | eps>epsilon?=0.0",
        ),
        _scaled(
            "inverse",
            "eps>epsilon",
            "1 / (x + eps)",
            lambda x, e: 1 / (x + e),
            lambda g, y, x, e: -(g * y * y),
            T.FUNCTION,
            backend="invert x | eps>epsilon?=0.0",
        ),
        _scaled(
            "elu",
            "alpha",
            "x, or alpha * (exp(x) - 1) below zero",
            lambda x, a: np.where(x > 0, x, a * np.expm1(x)),
            lambda g, y, x, a: where(x.greater(0.0), g, g * scaled("linear_activation", y, 1.0, a)),
            backend="elu x | alpha",
        ),
        _scaled(
            "leaky_relu",
            "alpha",
            "x, or alpha * x below zero",
            lambda x, a: np.where(x > 0, x, a * x),
            lambda g, y, x, a: where(x.greater(0.0), g, times(g, a)),
            backend="leaky_relu x | alpha>negative_slope",
            diverges_as="relu",
        ),
        _scaled(
            "clip",
            "lo>alpha hi>beta",
            "min(max(x, lo), hi)",
            np.clip,
            lambda g, y, x, lo, hi: g * x.greater_equal(lo).cast() * x.less_equal(hi).cast(),
            backend="clamped_relu x | lo>min_val hi>max_val",
            diverges_as="relu",
        ),
        _scaled(
            "scaled_tanh",
            "alpha beta",
            "alpha * tanh(beta * x)",
            lambda x, a, b: a * np.tanh(b * x),
            lambda g, y, x, a, b: times(g * (1.0 - times(x, b).tanh().square()), a * b),
            backend="tanh x | alpha beta",
            diverges_as="tanh",
        ),
        _scaled(
            "threshold",
            "alpha",
            "max(x, alpha)",
            np.maximum,
            lambda g, y, x, a: g * x.greater(a).cast(),
            diverges_as="relu",
        ),
        _scaled(
            "thresholded_relu",
            "alpha",
            "x where x >= alpha, else 0",
            lambda x, a: np.where(x >= a, x, 0.0),
            lambda g, y, x, a: g * x.greater_equal(a).cast(),
            diverges_as="relu",
        ),
        _scaled(
            "clamped_relu",
            "alpha beta",
            "min(beta, x), or min(beta, alpha * x) below zero",
            lambda x, a, b: np.minimum(b, np.where(x >= 0, x, a * x)),
            lambda g, y, x, a, b: where(x.greater_equal(0.0), g, times(g, a)) * y.less(b).cast(),
            diverges_as="relu",
        ),
        _scaled(
            "sigmoid_hard",
            "alpha beta",
            "alpha * x + beta, clamped to 0 and 1",
            lambda x, a, b: np.clip(a * x + b, 0, 1),
            lambda g, y, x, a, b: times(g * y.greater(0.0).cast() * y.less(1.0).cast(), a),
        ),
        _scaled(
            "linear_activation",
            "alpha beta",
            "alpha * x + beta",
            lambda x, a, b: a * x + b,
            lambda g, y, x, a, b: times(g, a),
            T.SCALING,
            backend="gain_offset_control x | alpha>gain beta>bias",
        ),
    )
}


@op("prelu", "x alpha", diverges_as="relu")
class PRELU:
    """x, or alpha of its channel times x below zero."""

    @staticmethod
    def shape(x: Shape, alpha: Shape) -> Shape:
        if len(x) < 3:
            raise GraphError(f"needs channels on axis 1 and rank 3 or more, not {list(x)}")
        if alpha != (x[1],):
            raise GraphError(f"alpha of shape {list(alpha)} must hold one value per channel ({x[1]})")
        return x

    @staticmethod
    def reference(x, alpha):
        return np.where(x > 0, x, alpha.reshape((1, -1) + (1,) * (x.ndim - 2)) * x)

    @staticmethod
    def derivative(g, y, x, alpha):
        slope = alpha.reshape((1, alpha.shape[0]) + (1,) * (x.ndim - 2))
        below = g * x * x.less(0.0).cast()
        reduced = below.sum([axis for axis in range(x.ndim) if axis != 1])
        return [where(x.greater(0.0), g, g * slope), reduced.reshape(alpha.shape)]


def binary(declared: OpDef, a: Any, b: Any) -> Tensor:
    return make(declared, (as_tensor(a), as_tensor(b)))


def scaled(name: str, x: Tensor, *values: Any) -> Tensor:
    declared = SCALED[name]
    attrs = {key: number(value, key) for key, value in zip(declared.attributes, values, strict=True)}
    return make(declared, (x,), attrs)


@entry
def maximum(a: Any, b: Any) -> Tensor:
    """The larger of two tensors, element by element."""
    return binary(MAXIMUM, a, b)


@entry
def minimum(a: Any, b: Any) -> Tensor:
    """The smaller of two tensors, element by element."""
    return binary(MINIMUM, a, b)


@entry
def mod(a: Any, b: Any) -> Tensor:
    """The remainder of a / b with the sign of b."""
    return binary(MOD, a, b)


@entry
def floor_div(a: Any, b: Any) -> Tensor:
    """a / b rounded down."""
    return binary(FLOOR_DIV, a, b)


@entry
def atan2(a: Any, b: Any) -> Tensor:
    """The angle of the point (b, a), over all four quadrants."""
    return binary(ATAN2, a, b)


@entry
def select(cond: Tensor, a: Any, b: Any) -> Tensor:
    """``a`` where the bool tensor ``cond`` holds, else ``b``."""
    return make(SELECT, (as_tensor(cond), as_tensor(a), as_tensor(b)))


where = select


@entry
def logical_and(a: Tensor, b: Tensor) -> Tensor:
    """True where both truth values are."""
    return make(LOGICAL["logical_and"], (a, b))


@entry
def logical_or(a: Tensor, b: Tensor) -> Tensor:
    """True where at least one of two truth values is."""
    return make(LOGICAL["logical_or"], (a, b))


@entry
def logical_xor(a: Tensor, b: Tensor) -> Tensor:
    """True where exactly one of two truth values is."""
    return make(LOGICAL["logical_xor"], (a, b))


def clip(x: Tensor, lo: Any, hi: Any) -> Tensor:
    low, high = number(lo, "lo"), number(hi, "hi")
    if low > high:
        raise GraphError(f"clip: lo {low:g} is above hi {high:g}")
    return scaled("clip", x, low, high)


def prelu(x: Tensor, alpha: Any) -> Tensor:
    return make(PRELU, (x, as_tensor(alpha, "alpha")))


def zeros_like(x: Tensor) -> Tensor:
    return const(np.zeros((1,) * len(x.shape)))
