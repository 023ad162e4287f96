"""A small encoder, and which stored form of its weights each chip streams.

    python examples/compress_encoder.py
    aneforge compress examples/compress_encoder.py --target m1,m2,m3

On an M1 int4 and sparse weights stream and int8 folds to fp16; int8 streams from the M2 on, blockwise from the M3 on.
"""

from __future__ import annotations

import numpy as np

import aneforge as af

WIDTH, LENGTH, HEADS = 256, 32, 4


def encoder() -> af.Graph:
    """Two layers of attention and a network of four times the width, with weights from a seed."""
    rng = np.random.default_rng(22)

    def dense(x: af.Tensor, outputs: int) -> af.Tensor:
        inputs = x.shape[-1]
        return x.linear(rng.normal(0, inputs**-0.5, (outputs, inputs)), np.zeros(outputs))

    def heads(x: af.Tensor) -> af.Tensor:
        return x.reshape(1, LENGTH, HEADS, WIDTH // HEADS).transpose([0, 2, 1, 3])

    def norm(x: af.Tensor) -> af.Tensor:
        return x.layer_norm(np.ones(WIDTH), np.zeros(WIDTH))

    x = af.input((1, LENGTH, WIDTH), name="tokens")
    for _ in range(2):
        q, k, v = (heads(dense(x, WIDTH)) for _ in range(3))
        mixed = ((q @ k.mT) * (WIDTH // HEADS) ** -0.5).softmax(-1) @ v
        x = norm(x + dense(mixed.transpose([0, 2, 1, 3]).reshape(1, LENGTH, WIDTH), WIDTH))
        x = norm(x + dense(dense(x, 4 * WIDTH).gelu(), WIDTH))
    return x.graph()


graph = encoder

if __name__ == "__main__":
    from aneforge.advice import advise_weights

    advice = advise_weights(encoder(), "m1,m2,m3,m5", runtimes="direct")
    for chip, options in advice.items():
        print(chip, {option.name: option.flow for option in options.options})
    print(advice)
