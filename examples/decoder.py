"""A decoder of the usual kind as a graph, for one new token: ``graph`` is small, ``large`` has 4 billion weights.

Its caches are inputs and outputs: the new row is joined behind, and the oldest falls out. The weights are not trained:
those of ``graph`` are random, and each of ``large`` repeats one number, so that it takes no memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

import aneforge as af

RNG = np.random.default_rng(0)
ROWS = 1  # new tokens


@dataclass
class Decoder:
    """Norms, grouped attention with rotated positions, gated layers, and a head over a vocabulary."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    size: int
    inner: int
    vocabulary: int
    context: int
    is_small: bool
    weights: int = 0
    kept: list[af.Tensor] = field(default_factory=list)

    def dense(self, x: af.Tensor, outputs: int) -> af.Tensor:
        self.weights += 1
        shape = (outputs, x.shape[-1])
        if self.is_small:
            return x.linear((RNG.standard_normal(shape) / np.sqrt(shape[1])).astype(np.float16))
        return x.linear(np.broadcast_to(np.float16(0.01 + self.weights * 2.0**-14), shape))

    def norm(self, x: af.Tensor) -> af.Tensor:
        return x.rms_norm(np.ones(x.shape[-1], np.float16), 1e-6)

    def turned(self, x: af.Tensor, cosines: af.Tensor, sines: af.Tensor) -> af.Tensor:
        half = self.size // 2
        return x * cosines + af.concat([-x[:, :, half:], x[:, :, :half]], axis=2) * sines

    def cached(self, name: str, new: af.Tensor) -> af.Tensor:
        before = af.input((self.kv_heads, self.context, self.size), name=name)
        after = af.concat([before[:, ROWS:], new], axis=1).named(f"{name}_out")
        self.kept.append(after)
        return after

    def layer(self, x: af.Tensor, number: int, mask: af.Tensor, *angles: af.Tensor) -> af.Tensor:
        y, groups = self.norm(x), self.heads // self.kv_heads
        counts = (self.heads, self.kv_heads, self.kv_heads)
        q, k, v = (self.dense(y, n * self.size).reshape(ROWS, n, self.size).transpose([1, 0, 2]) for n in counts)
        q, k = self.turned(self.norm(q), *angles), self.turned(self.norm(k), *angles)
        keys, values = self.cached(f"keys_{number}", k), self.cached(f"values_{number}", v)
        q = (q * self.size**-0.5).reshape(self.kv_heads, groups * ROWS, self.size)
        scores = (q @ keys.mT).reshape(self.heads, ROWS, self.context) + mask
        shares = scores.softmax(-1).reshape(self.kv_heads, groups * ROWS, self.context)
        mixed = (shares @ values).reshape(self.heads, ROWS, self.size).transpose([1, 0, 2])
        x = x + self.dense(mixed.reshape(ROWS, self.heads * self.size), self.width)
        y = self.norm(x)
        return x + self.dense(self.dense(y, self.inner).silu() * self.dense(y, self.inner), self.width)

    def build(self) -> af.Graph:
        x = af.input((ROWS, self.width), name="x", max_abs=8.0)
        cosines, sines = (af.input((ROWS, self.size), name=name) for name in ("cosines", "sines"))
        mask = af.input((1, ROWS, self.context), name="mask")
        for number in range(self.layers):
            x = self.layer(x, number, mask, cosines, sines)
        return af.Graph([self.dense(self.norm(x), self.vocabulary).named("logits"), *self.kept])


def graph() -> af.Graph:
    """Four layers that the simulator runs in a moment."""
    return Decoder(4, 64, 4, 2, 32, 128, 512, 32, True).build()


def large() -> af.Graph:
    """36 layers and 4 billion weights, with a cache of 2,048 tokens."""
    return Decoder(36, 2560, 32, 8, 128, 9728, 151936, 2048, False).build()
