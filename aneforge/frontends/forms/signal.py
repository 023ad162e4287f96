"""Fourier transforms as products with known matrices. The last axis holds the real and imaginary parts."""

from __future__ import annotations

import math

import numpy as np

from aneforge.frontends.forms.movement import gathered, sliced
from aneforge.frontends.forms.products import linear
from aneforge.frontends.values import Array, NoForm, axis_of
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["dft", "stft"]

_MOST_WEIGHTS = 1 << 24
_MOST_SLICES = 32


def dft(
    signal: Tensor, axis: int = -2, size: int | None = None, inverse: bool = False, onesided: bool = False
) -> Tensor:
    place = axis_of(axis, signal.ndim)
    if place == signal.ndim - 1:
        raise NoForm(f"axis {axis} is the axis of real and imaginary parts; choose another axis")
    extent, parts = signal.shape[place], signal.shape[-1]
    size = size or (2 * (extent - 1) if inverse and onesided else extent)
    matrix = _dft_matrix(size, extent, parts, inverse, onesided)
    order = [*(i for i in range(signal.ndim - 1) if i != place), place, signal.ndim - 1]
    lines = signal if order == sorted(order) else signal.transpose(order)
    lead = lines.shape[:-2]
    flat = lines.reshape(math.prod(lead), extent * parts).linear(matrix.reshape(matrix.shape[0] * matrix.shape[1], -1))
    spectrum = flat.reshape(*lead, *matrix.shape[:2])
    return spectrum if order == sorted(order) else spectrum.transpose([order.index(i) for i in range(signal.ndim)])


def _dft_matrix(size: int, extent: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """Return the matrix [out, out parts, in, in parts]. An input of another length is zero-padded or cut."""
    if parts not in (1, 2):
        raise NoForm(f"the last axis has {parts} elements; it must have 1 (real numbers) or 2 (complex numbers)")
    if 4 * size * extent > _MOST_WEIGHTS:
        raise NoForm(
            f"a transform of {extent} elements to {size} needs a matrix of {4 * size * extent:,} weights; the limit "
            f"is {_MOST_WEIGHTS:,}"
        )
    phases = np.exp((2j if inverse else -2j) * np.pi / size * np.outer(np.arange(size), np.arange(extent)))
    phases[:, size:] = 0.0
    phases = phases / size if inverse else phases
    if inverse and onesided:  # the missing half mirrors the given one; the result is real
        phases = np.where((np.arange(extent) == 0) | (2 * np.arange(extent) == size), 1.0, 2.0) * phases
        phases[:, size // 2 + 1 :] = 0.0
    elif onesided:
        phases = phases[: size // 2 + 1]
    real, imaginary = np.real(phases), np.imag(phases)
    rows = [[real, -imaginary], [imaginary, real]]
    rows = rows[:1] if inverse and onesided else rows
    return np.stack([np.stack(row[:parts], axis=-1) for row in rows], axis=1)


def stft(
    signal: Tensor, step: int, window: Array | None = None, size: int | None = None, onesided: bool = True
) -> Tensor:
    """Weight and transform the frames of a signal with one product. A convolution would need kernels wider than the
    engine's limit."""
    if size is None:
        if window is None:
            raise NoForm("frame_length and window are missing; one of them must be given")
        size = window.size
    pairs = signal if signal.ndim == 3 else signal.reshape(*signal.shape, 1)
    matrix = _dft_matrix(size, size, pairs.shape[2], False, onesided)
    matrix = matrix if window is None else matrix * window.reshape(-1)[:, None]
    frames = _split_frames(pairs, size, step)
    spectrum = linear(frames, matrix.reshape(matrix.shape[0] * 2, -1))
    return spectrum.reshape(*spectrum.shape[:2], matrix.shape[0], 2)


def _split_frames(x: Tensor, size: int, step: int) -> Tensor:
    """Reshape [samples, places, parts] to [samples, frames, size * parts]. The block is the common divisor of size and
    step, so each frame is a concatenation of shifted blocks."""
    samples, places, parts = x.shape
    if not 0 < size <= places or step < 1:
        raise NoForm(
            f"frames of {size} elements with step {step} do not fit a signal of {places}; the length must be 1 to "
            f"{places} and the step 1 or more"
        )
    frames, block = (places - size) // step + 1, math.gcd(size, step)
    if size // block > _MOST_SLICES:
        if frames * size > _MOST_WEIGHTS // 16:
            raise NoForm(
                f"{frames} frames of {size} elements need {frames * size:,} indices; the limit is "
                f"{_MOST_WEIGHTS // 16:,}"
            )
        positions = np.arange(frames)[:, None] * step + np.arange(size)
        return gathered(x, 1, positions).reshape(samples, frames, size * parts)
    full = sliced(x, 1, 0, places // block * block)
    blocks = full.reshape(samples, places // block, block * parts)
    stride = step // block
    reach = (frames - 1) * stride + 1
    taps = [blocks[:, tap : tap + reach : stride] for tap in range(size // block)]
    return taps[0] if len(taps) == 1 else af.concat(taps, axis=2)
