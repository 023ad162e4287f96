"""Arithmetic, comparisons and activations. Operands of one element along an axis stretch, as on the engine."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aneforge.engine.ir import AnecError, Op

Array = np.ndarray

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _plain(function: Callable[..., Array]) -> Callable[..., Array]:
    """A rule that reads no attribute."""
    return lambda op, *operands: function(*operands)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _gelu(op: Op, x: Array) -> Array:
    """Exact by default; ``sigmoid`` and ``tanh`` are the two usual approximations."""
    approximation = op["approximation"]
    if approximation == "exact":
        return 0.5 * x * (1 + _erf(x / math.sqrt(2)))
    if approximation == "sigmoid":
        return x * _sigmoid(1.702 * x)
    if approximation == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    raise AnecError(f"gelu: approximation {approximation!r} is unknown; choose one: exact, sigmoid, tanh")


def _swish(op: Op, x: Array) -> Array:
    """``hard`` is x * clip(x / 6 + 1/2, 0, 1)."""
    return x * np.clip(x / 6 + 0.5, 0, 1) if op.attrs.get("hard") else x / (1 + np.exp(-x))


def _leaky(op: Op, x: Array, slope: Array | None = None) -> Array:
    return np.where(x > 0, x, (op["negative_slope"] if slope is None else slope) * x)


def _log2(op: Op, x: Array) -> Array:
    shifted = x + op["epsilon"]
    return np.log(shifted) if op.attrs.get("base_e") else np.log2(shifted)


def _degamma(x: Array) -> Array:
    """The sRGB transfer function, sign kept. The data name the op but not its curve, so this is assumed."""
    size = np.abs(x)
    return np.sign(x) * np.where(size <= 0.04045, size / 12.92, ((size + 0.055) / 1.055) ** 2.4)


def _goc(op: Op, x: Array, scale: Array | None = None, offset: Array | None = None) -> Array:
    """gain * scale * x + bias + offset: numbers as attributes, vectors as operands."""
    result = x * op["gain"]
    result = result if scale is None else result * scale
    result = result + op["bias"]
    return result if offset is None else result + offset


_SCALED = {"Add": np.add, "Mult": np.multiply, "Min": np.minimum, "Max": np.maximum}


def _scaled_elementwise(op: Op, a: Array, b: Array) -> Array:
    """A product ignores the scale, as the layer does on silicon (layers.json ScaledElementWise)."""
    result = _SCALED[op.attrs["mode"]](a, b)
    return result if op.attrs["mode"] == "Mult" else result * op.attrs["scale"]


_RANGES = {"ui8": (0, 255), "si8": (-128, 127)}


def _quant(op: Op, x: Array) -> Array:
    """Ties go away from zero, as measured on quantisers (N77)."""
    low, high = _RANGES[op.attrs["to"]]
    steps = x / op.attrs["scale"]
    return np.clip(np.trunc(steps + np.copysign(0.5, steps)) + op.attrs["zero_point"], low, high)


RULES: dict[str, Callable[..., Array]] = {
    "add": _plain(np.add),
    "sub": _plain(np.subtract),
    "mult": _plain(np.multiply),
    "div": _plain(np.divide),
    "max": _plain(np.maximum),
    "min": _plain(np.minimum),
    "power": _plain(np.power),
    "equal": _plain(np.equal),
    "not_equal": _plain(np.not_equal),
    "less_than": _plain(np.less),
    "less_than_equal": _plain(np.less_equal),
    "greater_than": _plain(np.greater),
    "greater_than_equal": _plain(np.greater_equal),
    "equal_zero": _plain(lambda x: x == 0),
    "not_equal_zero": _plain(lambda x: x != 0),
    "less_than_zero": _plain(lambda x: x < 0),
    "less_than_equal_zero": _plain(lambda x: x <= 0),
    "greater_than_zero": _plain(lambda x: x > 0),
    "greater_than_equal_zero": _plain(lambda x: x >= 0),
    "select": _plain(np.where),
    "scaled_elementwise": _scaled_elementwise,
    "gain_offset_control": _goc,
    "abs": _plain(np.abs),
    "sign": _plain(np.sign),
    "square": _plain(np.square),
    "sqr": _plain(np.square),
    "sqrt": _plain(np.sqrt),
    "ceil": _plain(np.ceil),
    "floor": _plain(np.floor),
    "trunc": _plain(np.trunc),
    "round_nearest": _plain(np.round),
    "sin": _plain(np.sin),
    "cos": _plain(np.cos),
    "erf": _plain(_erf),
    "relu": _plain(lambda x: np.maximum(x, 0)),
    "sigmoid": _plain(_sigmoid),
    "high_precision_sigmoid": _plain(_sigmoid),
    "degamma": _plain(_degamma),
    "dirac": _plain(lambda x: (x == 0).astype(np.float64)),  # one at zero: the data give the name only
    "gelu": _gelu,
    "swish": _swish,
    "leaky_relu": _leaky,
    "clamped_relu": lambda op, x: np.clip(x, op.attrs["min_val"], op.attrs["max_val"]),
    "n_relu": lambda op, x: np.clip(x, 0, op.attrs["max_val"]),
    "elu": lambda op, x: np.where(x > 0, x, op.attrs["alpha"] * np.expm1(x)),
    "tanh": lambda op, x: op["alpha"] * np.tanh(op["beta"] * x),
    "r_sqrt": lambda op, x: 1 / np.sqrt(x + op["epsilon"]),
    "invert": lambda op, x: 1 / (x + op["epsilon"]),
    "log2": _log2,
    "exp2": lambda op, x: np.exp(x) if op.attrs.get("base_e") else np.exp2(x),
    "cast": _plain(lambda x: x.astype(np.float64)),
    "quant": _quant,
    "dequant": lambda op, x: (x - op.attrs["zero_point"]) * op.attrs["scale"],
}
