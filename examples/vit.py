"""ViT-Tiny/16 at 224 x 224. Chips before the A16 tier run its 16-wide patch kernel as blocks of pixels.

``aneforge check examples/vit.py``
"""

from __future__ import annotations

import numpy as np

import aneforge as af

rng = np.random.default_rng(16)
DIM, HEADS, DEPTH, PATCH = 192, 3, 12, 16


def dense(rows: int, columns: int) -> np.ndarray:
    return rng.normal(0, columns**-0.5, (rows, columns))


def norm(x: af.Tensor) -> af.Tensor:
    return x.layer_norm(1 + 0.1 * rng.normal(size=DIM), 0.1 * rng.normal(size=DIM))


def layer(x: af.Tensor) -> af.Tensor:
    zeros = np.zeros(DIM)
    attended = af.mha(
        norm(x), dense(DIM, DIM), zeros, dense(DIM, DIM), zeros, dense(DIM, DIM), zeros, dense(DIM, DIM), zeros, HEADS
    )
    x = x + attended
    hidden = norm(x).linear(dense(4 * DIM, DIM), np.zeros(4 * DIM)).gelu()
    return x + hidden.linear(dense(DIM, 4 * DIM), zeros)


def build() -> af.Tensor:
    image = af.image_input((1, 3, 224, 224), name="image")
    patches = af.conv(image, rng.normal(0, 0.02, (DIM, 3, PATCH, PATCH)), stride=PATCH)
    tokens = patches.reshape(DIM, 196).T
    token = af.const(rng.normal(0, 0.02, (1, DIM)))
    x = af.concat([token, tokens], axis=0) + rng.normal(0, 0.02, (197, DIM))
    for _ in range(DEPTH):
        x = layer(x)
    return norm(x)[0:1].linear(dense(1000, DIM)).softmax().named("probabilities")


out = build()
