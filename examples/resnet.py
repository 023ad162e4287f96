"""ResNet-18 at 224 x 224, with batch norms as a trained network has them. ``aneforge check examples/resnet.py``"""

from __future__ import annotations

import numpy as np

import aneforge as af

rng = np.random.default_rng(18)


def conv_norm(x: af.Tensor, channels: int, kernel: int, stride: int) -> af.Tensor:
    fan_in = x.shape[1] * kernel * kernel
    weight = rng.normal(0, (2 / fan_in) ** 0.5, (channels, x.shape[1], kernel, kernel))
    y = af.conv(x, weight, stride=stride, pad=kernel // 2)
    gamma, beta = 1 + 0.1 * rng.normal(size=channels), 0.1 * rng.normal(size=channels)
    return af.batch_norm(y, gamma, beta, 0.1 * rng.normal(size=channels), 1 + rng.random(channels))


def block(x: af.Tensor, channels: int, stride: int) -> af.Tensor:
    y = conv_norm(conv_norm(x, channels, 3, stride).relu(), channels, 3, 1)
    shortcut = x if stride == 1 and x.shape[1] == channels else conv_norm(x, channels, 1, stride)
    return (y + shortcut).relu()


def build() -> af.Tensor:
    x = af.image_input((1, 3, 224, 224), name="image")
    y = conv_norm(x, 64, 7, 2).relu().max_pool(3, 2, pad=1)
    for stage, channels in enumerate((64, 128, 256, 512)):
        y = block(y, channels, 1 if stage == 0 else 2)
        y = block(y, channels, 1)
    features = y.avg_pool(7, 7).reshape(1, 512)
    return features.linear(rng.normal(0, 0.02, (1000, 512)), np.zeros(1000)).named("logits")


out = build()
