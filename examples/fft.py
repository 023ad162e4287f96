"""A Fourier transform of real rows, as two products with stored cosines and sines, and back again.

python examples/fft.py
"""

from __future__ import annotations

import numpy as np

import aneforge as af

SIZE = 64


def waves(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of every angle: entry [n, k] belongs to sample n and frequency k."""
    angles = 2 * np.pi * np.outer(np.arange(size), np.arange(size)) / size
    return np.cos(angles), np.sin(angles)


def rfft(x: af.Tensor) -> tuple[af.Tensor, af.Tensor]:
    """Real and imaginary part of the frequencies 0 to size / 2 of each row."""
    cosine, sine = (wave[:, : x.shape[-1] // 2 + 1] for wave in waves(x.shape[-1]))
    return x @ cosine, x @ -sine


def irfft(real: af.Tensor, imaginary: af.Tensor, size: int) -> af.Tensor:
    """Rows from their frequencies. All but the first and the last frequency stand for two."""
    cosine, sine = (wave[: size // 2 + 1] for wave in waves(size))
    share = np.where((np.arange(size // 2 + 1) % (size // 2)) == 0, 1.0, 2.0)[:, None] / size
    return real @ (cosine * share) - imaginary @ (sine * share)


x = af.input((4, SIZE), name="x")
real, imaginary = rfft(x)
out = irfft(real, imaginary, SIZE)

if __name__ == "__main__":
    signal = np.random.default_rng(0).standard_normal((4, SIZE))
    model = af.compile_multi({"real": real, "imaginary": imaginary, "again": out}, target="m2")
    found = model(signal)
    true = np.fft.rfft(signal)
    error = np.abs(found["real"] + 1j * found["imaginary"] - true).max() / np.abs(true).max()
    print(f"spectrum: {error:.1e} of the largest off; back again: {np.abs(found['again'] - signal).max():.1e} off")
