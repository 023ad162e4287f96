"""Ops that move, place, pick, compare or clamp numbers: no rounding, so their meaning is exact.

Moves work on the stored fp16 bits, whatever the numbers are. Picks compare numbers as integers: with the bits of
negative numbers inverted, fp16 numbers have the order of 16-bit integers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from aneforge.chips.limits import FP16_SLICE_SAT
from aneforge.engine.interpret import rule_of
from aneforge.engine.ir import Op
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait
from aneforge.sim import native
from aneforge.sim.half import Window, has_special, narrowed, widened

Array = np.ndarray
_INFINITY = 0x7C00

MOVES = kinds_with(Trait.MOVEMENT)
"""Their float64 meaning is exact to the bit."""

UNITS = frozenset(("Sort", "TopK", "DynamicSlice", "KernelRasterizer"))
"""Native layers that only move or pick; positions come back as fp16 numbers (N45)."""


def moving(op: Op) -> Callable[..., Array]:
    """A move by the op's meaning, on fp16. Indices are read as numbers, and a fixed-point data path has a ceiling."""
    rule = rule_of(op)
    indexed = op.kind == "gather_nd"
    clamped = op.labels.get("storage") == "q4"
    dtype = bool if op.type is not None and op.type.dtype == "i1" else np.float16

    def call(*operands: Array) -> Array:
        inputs = [operands[0], *map(widened, operands[1:])] if indexed else operands
        result = np.asarray(rule(op, *inputs))
        result = result if result.dtype == dtype else result.astype(dtype)  # a fill value comes as a Python number
        return q4(result) if clamped else result

    return call


def q4(values: Array) -> Array:
    """fp16 numbers through the fixed point with four fraction bits: above 4094 infinite (N17, N18)."""
    limit = np.float16(FP16_SLICE_SAT).view(np.uint16)
    if not ((values.view(np.uint16) & 0x7FFF) > limit).any():
        return values
    bits = without_nan(values).view(np.uint16)
    lost = (bits & 0x7FFF) > limit
    return np.where(lost, (bits & 0x8000) | _INFINITY, bits).astype(np.uint16).view(np.float16)


def without_nan(values: Array) -> Array:
    """A NaN is read as +infinity (N31)."""
    if values.dtype == bool or not has_special(values):
        return values
    return np.where(np.isnan(values), np.float16(np.inf), values)


def _keys(values: Array) -> Array:
    """16-bit integers in the order of the numbers; applying it twice gives the bits back."""
    bits = without_nan(values).view(np.int16)
    return bits ^ ((bits >> 15) & 0x7FFF)


def _numbers(keys: Array) -> Array:
    return (keys ^ ((keys >> 15) & 0x7FFF)).view(np.float16)


def _larger(op: Op, a: Array, b: Array) -> Array:
    return _numbers(np.maximum(_keys(a), _keys(b)))


def _smaller(op: Op, a: Array, b: Array) -> Array:
    return _numbers(np.minimum(_keys(a), _keys(b)))


def _relu(op: Op, x: Array) -> Array:
    """Bits of negative numbers are negative integers. A NaN can only come from a port, by moves."""
    if native.available():
        return native.clamped(x, (0, _INFINITY), (0, _INFINITY))
    source = op.operands[0]
    read = without_nan(x) if source.is_a(Trait.MOVEMENT) or source.kind == "live_in" else x
    return np.maximum(read.view(np.int16), 0).view(np.float16)


def clamping(op: Op) -> Callable[[Array], Array]:
    """Between the ends of a clamp. A zero of either sign stays what it is at an end of zero."""
    ends = narrowed(np.array([op.attrs.get("min_val", 0.0), op.attrs["max_val"]]))
    if not ends[0] <= ends[1]:
        return lambda x: _by_meaning(op, x)
    low, high = _keys(np.where(ends == 0, np.array([-0.0, 0.0]), ends).astype(np.float16)).tolist()
    first, last = ends.view(np.uint16).tolist()

    def call(x: Array) -> Array:
        return native.clamped(x, (low, high), (first, last)) if native.available() else _by_meaning(op, x)

    return call


def _abs(op: Op, x: Array) -> Array:
    return np.minimum(x.view(np.uint16) & np.uint16(0x7FFF), np.uint16(_INFINITY)).view(np.float16)


def _largest(op: Op, x: Array) -> Array:
    return (
        _by_meaning(op, x)
        if op.attrs.get("square_input")
        else _numbers(_keys(x).max(axis=op.attrs["axes"], keepdims=True))
    )


def _smallest(op: Op, x: Array) -> Array:
    return (
        _by_meaning(op, x)
        if op.attrs.get("square_input")
        else _numbers(_keys(x).min(axis=op.attrs["axes"], keepdims=True))
    )


def _by_meaning(op: Op, x: Array) -> Array:
    return narrowed(np.asarray(rule_of(op)(op, widened(x))))


def _max_pool(op: Op, x: Array) -> Array:
    """The maximum of shifted maps, one per element of the kernel."""
    size, stride, pads = op.attrs["ksize"], op.attrs["stride"], op.attrs["padding"]
    if size[0] != 1 or stride[0] != 1:
        return _by_meaning(op, x)
    window = Window(tuple(size[1:]), tuple(stride[1:]), (1, 1), (pads[2], pads[4]), (pads[3], pads[5]))
    rows, columns = window.outputs(x.shape[3:])
    lowest = _keys(np.full(1, -np.inf, np.float16))[0]
    around = ((0, 0), pads[0:2], (0, 0), pads[2:4], pads[4:6])
    keys = np.pad(_keys(x), around, constant_values=lowest)
    largest = None
    for i, j in np.ndindex(*window.size):
        part = keys[..., i : i + rows * stride[1] : stride[1], j : j + columns * stride[2] : stride[2]]
        part = part[..., :rows, :columns]
        largest = part.copy() if largest is None else np.maximum(largest, part, out=largest)
    assert largest is not None
    return _numbers(largest)


CLAMPS = frozenset(("n_relu", "clamped_relu"))
"""Their ends are attributes."""

PICKS: dict[str, Callable[..., Array]] = {
    "relu": _relu,
    "abs": _abs,
    "max": _larger,
    "min": _smaller,
    "reduce_max": _largest,
    "reduce_min": _smallest,
    "max_pool": _max_pool,
}
