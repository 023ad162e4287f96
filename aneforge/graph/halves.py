"""Single precision to fp16, ties to even, several times faster than NumPy's own cast, and with the same bits."""

from __future__ import annotations

import numpy as np

__all__ = ["round_to_half"]

_SIZE = np.uint32(0x7FFFFFFF)
_SIGN = np.uint32(0x8000)
_HALF_DIGITS = np.uint32(13)  # digits of single precision that fp16 drops
_TO_HALF = np.uint32((0xFFF - (112 << 23)) & 0xFFFFFFFF)  # just under half a unit, and the difference of the biases
_NORMAL, _TOO_LARGE = np.uint32(113 << 23), np.uint32(143 << 23)  # 2^-14 and 2^16 as bits


def round_to_half(numbers: np.ndarray, out: np.ndarray) -> None:
    """Round float32 numbers into an fp16 array of the same shape; both are contiguous.

    The normal numbers of fp16 are rounded in their bits: adding half a unit carries into the exponent where it must.
    The others, and what rounds to infinity, go through NumPy's cast.
    """
    flat, half = numbers.reshape(-1), out.reshape(-1)
    bits = flat.view(np.uint32)
    size = bits & _SIZE
    odd = np.flatnonzero((size - _NORMAL) >= (_TOO_LARGE - _NORMAL))  # below normal (wraps), or too large, or NaN
    work = size >> _HALF_DIGITS
    work &= np.uint32(1)
    work += size
    work += _TO_HALF
    work >>= _HALF_DIGITS
    np.right_shift(bits, np.uint32(16), out=size)
    size &= _SIGN
    work |= size
    np.copyto(half.view(np.uint16), work, casting="unsafe")
    if odd.size:
        with np.errstate(over="ignore"):
            half[odd] = flat[odd].astype(np.float16)
