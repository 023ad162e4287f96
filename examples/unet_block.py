"""One level of a U-Net down and up, with a bilinear upsample and a time embedding of sines: texture and trig
ops that differ between chips. ``aneforge check examples/unet_block.py``"""

from __future__ import annotations

import numpy as np

import aneforge as af

rng = np.random.default_rng(64)


def conv(x: af.Tensor, channels: int) -> af.Tensor:
    weight = rng.normal(0, (2 / (9 * x.shape[1])) ** 0.5, (channels, x.shape[1], 3, 3))
    return af.conv(x, weight, pad=1, bias=np.zeros(channels))


def unit(x: af.Tensor, channels: int, time: af.Tensor) -> af.Tensor:
    y = x.group_norm(1 + 0.1 * rng.normal(size=x.shape[1]), 0.1 * rng.normal(size=x.shape[1]), 8).silu()
    y = conv(y, channels)
    shift = time.linear(rng.normal(0, 0.05, (channels, time.shape[1]))).reshape(1, channels, 1, 1)
    return conv((y + shift).silu(), channels)


def build() -> af.Tensor:
    x = af.input((1, 32, 64, 64), name="latent")
    step = af.input((1, 1), max_abs=1000.0, name="step")
    angles = step * np.exp(-np.arange(32) / 32 * np.log(1000)).reshape(1, 32)
    time = af.concat([angles.sin(), angles.cos()], axis=1)
    skip = unit(x, 32, time)
    low = unit(skip.avg_pool(2), 64, time)
    up = af.upsample_bilinear(low, 2)
    return unit(af.concat([up, skip], axis=1), 32, time).named("noise")


out = build()
