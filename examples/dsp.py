"""Filter a signal and measure its spectrum: a FIR filter as a convolution, windows as strided slices of it.

python examples/dsp.py
"""

from __future__ import annotations

import numpy as np

import aneforge as af

SAMPLES, FRAME = 512, 64


def lowpass(cutoff: float, taps: int = 31) -> np.ndarray:
    """A windowed sinc. ``cutoff`` is a share of the sampling rate."""
    place = np.arange(taps) - (taps - 1) / 2
    kernel = np.sinc(2 * cutoff * place) * np.hamming(taps)
    return kernel / kernel.sum()


def filtered(x: af.Tensor, kernel: np.ndarray) -> af.Tensor:
    """A signal [1, 1, 1, samples] through a FIR filter, of the same length. (taps are symmetric)"""
    half = len(kernel) // 2
    return af.conv(x, kernel.reshape(1, 1, 1, -1), pad=(0, 0, half, half))


def power(x: af.Tensor, frame: int) -> af.Tensor:
    """The power of each frequency in each window of half a frame's step: [1, frequencies, 1, windows]."""
    angles = 2 * np.pi * np.outer(np.arange(frame // 2 + 1), np.arange(frame)) / frame
    waves = np.concatenate([np.cos(angles), np.sin(angles)]) * np.hanning(frame)
    parts = af.conv(x, waves[:, None, None, :] / frame, stride=(1, frame // 2))
    real, imaginary = af.split(parts, 2, axis=1)
    return real * real + imaginary * imaginary


x = af.input((1, 1, 1, SAMPLES), name="signal")
out = power(filtered(x, lowpass(0.1)), FRAME)

if __name__ == "__main__":
    time = np.arange(SAMPLES)
    signal = np.sin(2 * np.pi * time / 16) + np.sin(2 * np.pi * time / 4)  # below and above the cutoff
    spectrum = af.compile(out, target="m2")(signal.reshape(x.shape)).mean(3).reshape(-1)
    exact = af.evaluate(out, [signal.reshape(x.shape)]).mean(3).reshape(-1)
    print(f"kept: {spectrum[FRAME // 16]:.4f}, removed: {spectrum[FRAME // 4]:.1e}")
    print(f"largest error: {np.abs(spectrum - exact).max():.1e}")
