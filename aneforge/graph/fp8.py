"""The two 8-bit floating-point formats, each as a table of its 256 numbers (N52).

E4M3 is the finite kind: bias 7, no infinities, largest number 448, one NaN of each sign (0x7f, 0xff). E5M2 is the
high byte of an fp16 number: bias 15, infinities, largest number 57344.
"""

from __future__ import annotations

from functools import cache

import numpy as np

FP8 = ("fp8-e4m3", "fp8-e5m2")
_SIGN = 0x80


@cache
def fp8_values(name: str) -> np.ndarray:
    """The number of each code, as fp16, which holds all of them exactly."""
    codes = np.arange(256, dtype=np.uint16)
    if name == "fp8-e5m2":
        values = (codes << 8).view(np.float16)
    else:
        exponent, digits = (codes >> 3 & 15).astype(int), (codes & 7).astype(np.float64)
        sizes = np.where(exponent == 0, digits * 2.0**-9, (1 + digits / 8) * 2.0 ** (exponent - 7))
        sizes[(codes & 0x7F) == 0x7F] = np.nan
        values = np.where(codes & _SIGN, -sizes, sizes).astype(np.float16)
    values.setflags(write=False)
    return values


@cache
def fp8_codes(name: str) -> np.ndarray:
    """The code of each of the 65,536 fp16 bit patterns: the nearest number, ties to the even code.

    What is beyond the largest number becomes the largest (the saturating choice of N52's overflow bit), infinities
    too; NaN stays NaN.
    """
    values = fp8_values(name).astype(np.float64)[:_SIGN]
    finite = values[np.isfinite(values)]
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    sizes = np.minimum(np.abs(halves), finite[-1])
    middles = (finite[1:] + finite[:-1]) / 2
    below, above = np.searchsorted(middles, sizes, "left"), np.searchsorted(middles, sizes, "right")
    codes = np.where(below % 2 == 0, below, above)  # they differ on ties only
    codes[np.isnan(halves)] = 0x7F
    codes |= np.where(np.signbit(halves), _SIGN, 0)
    table = codes.astype(np.uint8)
    table.setflags(write=False)
    return table
