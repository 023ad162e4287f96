"""Codes with scales: whole numbers that stand for ``(code - zero point) * scale``."""

from __future__ import annotations

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.encoding import SMALLEST_NORMAL, Encoded

_AT_ONCE = 1 << 17  # numbers that are encoded at a time: what the processor's cache holds


def affine(weight: np.ndarray, bits: int, axis: int | None = 0, symmetric: bool = True) -> Encoded:
    """One scale for each place along ``axis``, or one for the whole weight.

    Symmetric codes reach as far below zero as above it (-127 to 127 in 8 bits) and have no zero point, which is the
    only kind that an M1 knows (N51); the others use the whole range between the least and the largest number.
    """
    lines = weight.reshape(1, -1) if axis is None else np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)
    zero = None
    if symmetric:
        scale = _scale(_peaks(lines), (1 << (bits - 1)) - 1)
    else:
        low, high = _bounds(lines)
        scale = _scale(high - low, (1 << bits) - 1)
        least = -(1 << (bits - 1))
        zero = np.clip(np.rint(least - low / scale.astype(np.float64)), least, -least - 1).astype(np.int8)
    if axis is None:
        every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
        table = _codes(np.where(np.isfinite(every), every, np.float16(0))[None], scale, zero, bits)[0]
        codes = table[weight.view(np.uint16)]  # one code for each fp16 number
        return Encoded.affine(codes, scale[0], None if zero is None else zero[0], bits=bits)
    codes = _codes(lines, scale, zero, bits)
    moved = [weight.shape[axis], *(extent for place, extent in enumerate(weight.shape) if place != axis % weight.ndim)]
    whole = np.ascontiguousarray(np.moveaxis(codes.reshape(moved), 0, axis))
    return Encoded.affine(whole, scale, zero, axis=axis, bits=bits)


def blockwise(weight: np.ndarray, bits: int, block_size: int, axis: int, name: str) -> Encoded:
    """Symmetric codes with one scale for each run of ``block_size`` numbers along ``axis`` of each output."""
    if weight.ndim < 2:
        raise GraphError(f"{name} {list(weight.shape)}: blockwise needs outputs and inputs; encode it as int8")
    axis %= weight.ndim
    extent = weight.shape[axis]
    if extent % block_size:
        raise GraphError(
            f"{name} {list(weight.shape)}: {extent} numbers along axis {axis} do not divide into blocks of "
            f"{block_size}; choose a block_size that divides {extent}, or another encoding for this weight"
        )
    front = np.moveaxis(weight, axis, -1)
    lines = np.ascontiguousarray(front).reshape(-1, block_size)
    shared = [place for place in range(weight.ndim) if place not in (0, axis)]
    scale = _scale(_peaks(lines), (1 << (bits - 1)) - 1).reshape(*front.shape[:-1], extent // block_size)
    scale = np.moveaxis(scale, -1, axis)
    if shared:  # one scale for all places of a kernel's window
        scale = scale.max(axis=tuple(shared), keepdims=True)
    spread = np.broadcast_to(
        scale, tuple(extent // block_size if i == axis else n for i, n in enumerate(weight.shape))
    )
    line_scale = np.ascontiguousarray(np.moveaxis(spread, axis, -1)).reshape(-1)
    codes = _codes(lines, line_scale, None, bits).reshape(front.shape)
    return Encoded.blockwise(np.ascontiguousarray(np.moveaxis(codes, -1, axis)), scale, bits=bits)


def _peaks(lines: np.ndarray) -> np.ndarray:
    """The largest magnitude of each line. Without its sign bit an fp16 number orders like the integer of its bits."""
    bits = np.ascontiguousarray(lines).view(np.uint16) & np.uint16(0x7FFF)
    return bits.max(axis=1).view(np.float16).astype(np.float64)


def _bounds(lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest number of each line, and zero. With all bits but the sign turned over, a negative fp16
    number orders like a negative integer."""
    bits = np.ascontiguousarray(lines).view(np.int16)
    keys = bits ^ ((bits >> np.int16(15)) & np.int16(0x7FFF))
    ends = []
    for key in (keys.min(axis=1), keys.max(axis=1)):
        turned = key ^ ((key >> np.int16(15)) & np.int16(0x7FFF))
        ends.append(turned.view(np.float16).astype(np.float64))
    return np.minimum(ends[0], 0), np.maximum(ends[1], 0)


def _scale(ranges: np.ndarray, steps: int) -> np.ndarray:
    """A scale that fp16 holds to all its digits; one of zeros only has the least such scale."""
    return np.maximum(ranges / steps, SMALLEST_NORMAL).astype(np.float16)


def _codes(lines: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, bits: int) -> np.ndarray:
    """The nearest code of each number, worked out in single precision."""
    codes = np.empty(lines.shape, np.int8)
    factors = scale.astype(np.float32)[:, None]
    shift = None if zero is None else zero.astype(np.float32)[:, None]
    most = (1 << (bits - 1)) - 1
    least = -most if zero is None else -most - 1
    step = max(1, _AT_ONCE // max(1, lines.shape[1]))
    for first in range(0, len(lines), step):
        rows = slice(first, first + step)
        quotients = np.divide(lines[rows], factors[rows], dtype=np.float32)
        np.rint(quotients, out=quotients)
        if shift is not None:
            quotients += shift[rows]
        np.clip(quotients, least, most, out=quotients)
        codes[rows] = quotients
    return codes
