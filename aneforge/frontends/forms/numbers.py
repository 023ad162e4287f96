"""Known numbers and truth values: how a constant is rounded to fp16, and when a value is true."""

from __future__ import annotations

import numpy as np

from aneforge.frontends.values import Value, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.encoding import Encoded
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = [
    "MASKED",
    "added_mask",
    "are_truths",
    "as_fp16",
    "as_number",
    "chosen",
    "compared",
    "fp16_exact",
    "known_number",
    "single",
    "truncated",
    "truth",
]

Array = np.ndarray

"""The largest number of fp16. A finite constant beyond it is infinite on the engine."""

MASKED = -30000.0
"""Added to a score that must not count, where the file gives truth values and leaves the number to us. Far enough
below any score that its exponential is zero, and above -32768, where sums in the accumulators are infinite (N04)."""

_SURELY = FP16_MAX * 2.0**24  # its product with any fp16 number except zero is infinite


def fp16_exact(number: float) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float16(number)) == number


def single(number: float) -> float:
    """A number rounded to single precision, as files store attributes and as PyTorch computes. The last digits of a
    double would change the bits of some functions."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def known_number(value: object, rank: int) -> float | None:
    """The number that a known value of one element stands for; None for other values, and for values with more axes
    than ``rank``."""
    if isinstance(value, (bool, int, float)):
        return float(value)
    if isinstance(value, np.ndarray) and value.size == 1 and value.ndim <= rank and value.dtype.kind in "fiub":
        return float(value.reshape(-1)[0])
    return None


def as_fp16(value: Value, limit: float = FP16_MAX) -> Value:
    """A known array as the engine reads it: a finite number beyond ``limit`` becomes infinite, as in rounding to fp16.

    A user's number is never moved to another finite one: a mask of -1e9 is minus infinity to the chip, and ``risks``
    says so. ``limit`` is larger than fp16's own where the result may still be in range."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu" or not value.size:
        return value
    if max(float(value.max()), -float(value.min())) <= limit:
        return value
    wide = value.astype(np.float64)
    return np.where(np.abs(wide) > limit, np.copysign(np.inf, wide), wide)


def as_number(value: Value | bool | float, limit: float = FP16_MAX) -> Tensor:
    """A value to compute with: truth values are 0 and 1, and constants go through :func:`as_fp16`."""
    if isinstance(value, Tensor):
        return value.cast() if value.dtype in ("bool", "uint8") else value
    constant = value if isinstance(value, Encoded) else as_fp16(np.asarray(value), limit)
    return as_tensor(constant)


def as_factor(value: Value | bool | float) -> Tensor:
    """A value to multiply or divide with. A constant beyond fp16 stays as it is, because its product may be in range;
    the graph refuses it."""
    return as_number(value, _SURELY)


def truth(value: Value | bool | float) -> Tensor:
    """Anything but zero is true, as every format defines it."""
    if isinstance(value, Tensor):
        return value if value.dtype == "bool" else value.not_equal(0.0)
    return const((np.asarray(value) != 0).astype(np.float64)).not_equal(0.0)


def are_truths(*values: object) -> bool:
    """Whether one of the values, computed or known, holds truth values."""
    return any(value.dtype == ("bool" if isinstance(value, Tensor) else np.bool_)
               for value in values if isinstance(value, (Tensor, np.ndarray)))  # fmt: skip


def chosen(mask: Value, yes: Value, no: Value, truths: bool = False) -> Tensor:
    """``yes`` where the mask is true, otherwise ``no``. The engine selects only numbers, so truth values use logical
    ops."""
    condition = truth(mask)
    if not truths:
        return af.where(condition, as_number(yes), as_number(no))
    return af.logical_or(af.logical_and(condition, truth(yes)), af.logical_and(condition.logical_not(), truth(no)))


_MIRRORED = {"greater": "less", "less": "greater", "greater_equal": "less_equal", "less_equal": "greater_equal"}


def compared(name: str, a: Value | float, b: Value | float) -> Tensor:
    """A comparison by the name of the graph's op. A known number that fp16 lacks is rounded to the neighbour that
    gives the same answer for every fp16 number."""
    for x, other, kind in ((a, b, name), (b, a, _MIRRORED.get(name, name))):
        if isinstance(x, Tensor) and (bound := known_number(other, x.ndim)) is not None:
            return getattr(as_number(x), kind)(_round_bound(kind, bound))
    return getattr(as_number(a), name)(as_number(b))


def _round_bound(name: str, bound: float) -> float:
    with np.errstate(over="ignore"):
        near = np.float16(bound)
    down = name in ("greater", "less_equal")
    if np.isfinite(near) and name not in ("equal", "not_equal"):
        if down and float(near) > bound:
            near = np.nextafter(near, np.float16(-np.inf))
        elif not down and float(near) < bound:
            near = np.nextafter(near, np.float16(np.inf))
    return float(near)


def truncated(x: Tensor) -> Tensor:
    """The integer part, as a cast to an integer type gives it. It is exact: the integer part of an fp16 number is an
    fp16 number."""
    return x.sign() * x.abs().floor()


def added_mask(mask: Value) -> Tensor:
    """The mask that is added to the scores of attention. True means that a score counts; numbers are added as they
    are."""
    if isinstance(mask, Tensor) and mask.dtype == "bool":
        return af.where(mask, const(np.zeros((1,) * mask.ndim)), const(np.full((1,) * mask.ndim, MASKED)))
    if isinstance(mask, np.ndarray) and mask.dtype.kind == "b":
        return const(np.where(mask, 0.0, MASKED))
    return as_number(mask)
