"""Numbers as 8-bit codes and back, as quantised models have them between their layers.

A code is a whole number from -128 to 255, which fp16 holds exactly, so a tensor of codes is an fp16 tensor of the
graph and any op can read it. The compiler stores it in 8 bits, and a convolution or product of dequantised codes with
a stored weight of bytes is summed in integers on the chips that have such sums (N16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.encoding import Encoded
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import Shape, entry, make, op
from aneforge.graph.ops.elementwise import times
from aneforge.graph.ops.leaf import as_tensor, const
from aneforge.graph.shapes import number, same_shape, whole_number
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor

CODE_RANGES = {"int8": (-128, 127), "uint8": (0, 255)}
"""The types that a quantiser of the engine gives, and their smallest and largest code."""


@op("quantize", "x", "scale zero_point to", T.QUANTISER, diverges_as="elementwise")
class QUANTIZE:
    """x / scale, rounded half away from zero, plus the zero point, clamped to int8 or uint8."""

    @staticmethod
    def shape(x: Shape, scale: float, zero_point: int, to: str) -> Shape:
        if to not in CODE_RANGES:
            raise GraphError(f"codes of type {to!r} are not supported; choose one: {', '.join(CODE_RANGES)}")
        low, high = CODE_RANGES[to]
        _check_step(scale, zero_point)
        if not low <= zero_point <= high:
            raise GraphError(f"zero point {zero_point} is outside the codes of {to}, {low} to {high}")
        return x

    @staticmethod
    def reference(x, scale, zero_point, to):
        steps = x / scale
        return np.clip(np.trunc(steps + np.copysign(0.5, steps)) + zero_point, *CODE_RANGES[to])

    @staticmethod
    def derivative(g, y, x, scale, zero_point, to):
        """Straight through: rounding counts as the identity; a value clamped to the range has no gradient."""
        low, high = CODE_RANGES[to]
        least, most = (min(max((end - zero_point) * scale, -FP16_MAX), FP16_MAX) for end in (low - 0.5, high + 0.5))
        return [times(g * x.greater_equal(least).cast() * x.less_equal(most).cast(), 1 / scale)]


@op("dequantize", "x", "scale zero_point dtype", T.QUANTISER, dtypes="attribute", diverges_as="elementwise")
class DEQUANTIZE:
    """(x - zero point) * scale, of 8-bit codes."""

    @staticmethod
    def shape(x: Shape, scale: float, zero_point: int, dtype: str) -> Shape:
        if dtype != "fp16":
            raise GraphError(f"gives fp16 numbers, not {dtype}")
        _check_step(scale, zero_point)
        return same_shape(x)

    @staticmethod
    def reference(x, scale, zero_point, dtype):
        return (x.astype(np.float64) - zero_point) * scale

    @staticmethod
    def derivative(g, y, x, scale, zero_point, dtype):
        return [times(g, scale) if x.dtype == "fp16" else None]


def _check_step(scale: Any, zero_point: Any) -> None:
    """Check what a file may contain but a builder never passes."""
    if not isinstance(scale, (int, float)) or not 0 < scale < float("inf"):
        raise GraphError(f"scale is {scale!r}; it must be a number above zero")
    if not isinstance(zero_point, int) or not -128 <= zero_point <= 255:
        raise GraphError(f"zero point is {zero_point!r}; it must be a whole number from -128 to 255")


def _single_number(value: Any, what: str) -> Any:
    """One number; several are refused with advice, since models often have one scale for each channel."""
    numbers = np.asarray(value) if hasattr(value, "__array__") or isinstance(value, (list, tuple)) else None
    if numbers is None:
        return value
    if numbers.size != 1:
        raise GraphError(
            f"{what} has {numbers.size} values; a quantiser of the engine has one for the whole tensor. Multiply by "
            "the scales instead, or store a weight with af.Encoded.affine(codes, scale, axis=...)"
        )
    return numbers.reshape(-1)[0].item()


@entry
def quantize(x: Tensor, scale: float, zero_point: int = 0, dtype: str = "int8") -> Tensor:
    """The 8-bit codes of ``x``: x / scale, rounded half away from zero (N77), plus the zero point, clamped to the
    range of ``dtype`` (int8 or uint8). The result is an fp16 tensor of whole numbers, stored in 8 bits where it can
    be.

    Its derivative is straight through: that of x / scale where the code is within the range, zero elsewhere.
    """
    attrs = {
        "scale": number(_single_number(scale, "scale"), "scale"),
        "zero_point": whole_number(_single_number(zero_point, "zero point"), "zero point"),
    }
    return make(QUANTIZE, (as_tensor(x, "x"),), {**attrs, "to": dtype})


@entry
def dequantize(q: Any, scale: float, zero_point: int = 0) -> Tensor:
    """The numbers that 8-bit codes mean: (q - zero_point) * scale.

    ``q`` is what :func:`quantize` gave, a uint8 input, or any tensor of codes. An array of whole numbers is a stored
    weight: it keeps its codes, as ``Encoded.affine`` does.
    """
    step, zero = (
        number(_single_number(scale, "scale"), "scale"),
        whole_number(_single_number(zero_point, "zero point"), "zero point"),
    )
    if isinstance(q, np.ndarray) and q.dtype in (np.int8, np.uint8):
        _check_step(step, zero)
        return const(Encoded.affine(q, step, zero or None))
    codes = as_tensor(q, "q")
    if codes.dtype not in ("fp16", "uint8"):
        raise GraphError(f"needs codes in fp16 or uint8, not {codes.dtype}")
    return make(DEQUANTIZE, (codes,), {"scale": step, "zero_point": zero, "dtype": "fp16"})
