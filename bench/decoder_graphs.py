"""Decoders of six families as graphs, small ones with random weights for the simulator and real ones without memory.

The blocks are written from the families' published layouts (norms, heads, rotations, gates, caps); no checkpoint is
read. ``graph_of`` gives a decoder for some new tokens and a cache of some length, kept in one of several ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

import aneforge as af
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

CACHES = ("state", "in-out", "rows", "masked", "none")
"""``state`` writes rows into a state, ``in-out`` shifts an input into an output, ``rows`` hands the new rows out,
``masked`` blends them in where a mask says, ``none`` has no cache: a prompt alone."""


@dataclass(frozen=True)
class Family:
    """What the blocks of a family are like."""

    norm: str = "rms"
    normed_heads: bool = False
    rotary: float = 1.0
    """The share of a head's features that is turned."""
    unturned_every: int = 0
    """Every so many layers nothing is turned."""
    gate: str = "silu"
    """Of the feed-forward part; empty where it has none."""
    parallel: bool = False
    """Attention and feed-forward part read the same norm and are added together."""
    biases: bool = False
    fused: bool = False
    """One product gives queries, keys and values."""
    post_norms: bool = False
    cap: float = 0.0
    """Logits are kept within this by a tanh."""
    window_every: int = 0
    """All layers but every so many look at a window, by a mask of their own."""


FAMILIES = {
    "gpt2": Family(norm="layer", rotary=0.0, gate="", biases=True, fused=True),
    "llama": Family(),
    "qwen3": Family(normed_heads=True),
    "gemma": Family(normed_heads=True, gate="gelu", post_norms=True, cap=30.0, window_every=6),
    "smollm": Family(unturned_every=4),
    "phi": Family(norm="layer", rotary=0.5, gate="", parallel=True, biases=True),
}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a decoder."""

    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int

    @property
    def kind(self) -> Family:
        return FAMILIES[self.family]


REAL = {
    "GPT-2": Sizes("gpt2", 12, 768, 12, 12, 64, 3072, 50257),
    "Llama-3.1-8B": Sizes("llama", 32, 4096, 32, 8, 128, 14336, 128256),
    "Qwen3-0.6B": Sizes("qwen3", 28, 1024, 16, 8, 128, 3072, 151936),
    "Qwen3-4B": Sizes("qwen3", 36, 2560, 32, 8, 128, 9728, 151936),
    "Qwen3-8B": Sizes("qwen3", 36, 4096, 32, 8, 128, 12288, 151936),
    "Gemma-3-1B": Sizes("gemma", 26, 1152, 4, 1, 256, 6912, 262144),
    "SmolLM3-3B": Sizes("smollm", 36, 2048, 16, 4, 128, 11008, 128256),
    "Phi-2": Sizes("phi", 32, 2560, 32, 32, 80, 10240, 51200),
}
"""Sizes of public checkpoints."""

SMALL = {
    family: Sizes(family, 7 if family == "gemma" else 4, 32, 4, 4 if family in ("gpt2", "phi") else 2, 8, 64, 160)
    for family in FAMILIES
}
"""One of each family that the simulator runs in a moment."""


@dataclass
class Weights:
    """Where the numbers come from: random ones, or one number for each weight, which takes no memory."""

    random: np.random.Generator | None = None
    scale: float = 1.0
    count: int = field(default=0, init=False)

    def matrix(self, *shape: int) -> Tensor:
        self.count += 1
        if self.random is not None:
            spread = self.scale / np.sqrt(shape[-1])
            return const((self.random.standard_normal(shape) * spread).astype(np.float16))
        return const(np.broadcast_to(np.float16(0.01 + self.count * 2.0**-14), shape))

    def vector(self, size: int, around: float = 1.0) -> np.ndarray:
        self.count += 1
        if self.random is None:
            return np.full(size, around + self.count * 2.0**-10, np.float16)
        return (around + 0.1 * self.random.standard_normal(size)).astype(np.float16)


def graph_of(sizes: Sizes, rows: int, context: int, cache: str = "state", seed: int | None = None) -> Graph:
    """A decoder for ``rows`` new tokens and a cache of ``context`` places; its weights are drawn where there is a
    seed. Its inputs are the embedded tokens, masks and angles; its outputs logits and caches."""
    weights = Weights(None if seed is None else np.random.default_rng(seed))
    model = _Decoder(sizes, rows, context, cache, weights)
    return model.graph()


class _Decoder:
    def __init__(self, sizes: Sizes, rows: int, context: int, cache: str, weights: Weights) -> None:
        self.sizes, self.rows, self.context, self.cache, self.weights = sizes, rows, context, cache, weights
        self.keys = {"none": rows, "rows": context + rows}.get(cache, context)
        self.shared: dict[str, Tensor] = {}
        self.kept: list[Tensor] = []
        self.states: dict[str, str] = {}

    def port(self, name: str, *shape: int) -> Tensor:
        """An input that several layers read."""
        if name not in self.shared:
            self.shared[name] = af.input(shape, name=name)
        return self.shared[name]

    def graph(self) -> Graph:
        sizes = self.sizes
        x = af.input((self.rows, sizes.width), name="x")
        for number in range(sizes.layers):
            x = self.block(x, number)
        last = x[self.rows - 1 :] if self.rows > 1 else x
        logits = self.norm(last).linear(self.weights.matrix(sizes.vocabulary, sizes.width))
        cap = sizes.kind.cap
        if cap:
            logits = (logits * (1 / cap)).tanh() * cap
        return Graph([logits.named("logits"), *self.kept], self.states)

    def dense(self, x: Tensor, outputs: int) -> Tensor:
        bias = self.weights.vector(outputs, 0.0) if self.sizes.kind.biases else None
        return x.linear(self.weights.matrix(outputs, x.shape[-1]), bias)

    def norm(self, x: Tensor) -> Tensor:
        gain = self.weights.vector(x.shape[-1])
        if self.sizes.kind.norm == "rms":
            return x.rms_norm(gain, 1e-6)
        return x.layer_norm(gain, self.weights.vector(x.shape[-1], 0.0), 1e-5)

    def block(self, x: Tensor, number: int) -> Tensor:
        kind = self.sizes.kind
        after: Callable[[Tensor], Tensor] = self.norm if kind.post_norms else lambda y: y
        y = self.norm(x)
        if kind.parallel:
            return x + self.attention(y, number) + self.feed_forward(y)
        x = x + after(self.attention(y, number))
        return x + after(self.feed_forward(self.norm(x)))

    def feed_forward(self, x: Tensor) -> Tensor:
        sizes, gate = self.sizes, self.sizes.kind.gate
        if not gate:
            return self.dense(self.dense(x, sizes.inner).gelu(), sizes.width)
        first = self.dense(x, sizes.inner)
        first = first.silu() if gate == "silu" else first.gelu()
        return self.dense(first * self.dense(x, sizes.inner), sizes.width)

    def heads(self, x: Tensor, count: int) -> Tensor:
        split = x.reshape(self.rows, count, self.sizes.head).transpose([1, 0, 2])
        return split

    def turned(self, x: Tensor, number: int) -> Tensor:
        kind, size = self.sizes.kind, self.sizes.head
        every = kind.unturned_every
        if not kind.rotary or (every and number % every == every - 1):
            return x
        width = int(size * kind.rotary) // 2 * 2
        part = x if width == size else x[:, :, :width]
        other = af.concat([-part[:, :, width // 2 :], part[:, :, : width // 2]], axis=2)
        cosines, sines = (self.port(name, self.rows, width) for name in ("cosines", "sines"))
        part = part * cosines + other * sines
        return part if width == size else af.concat([part, x[:, :, width:]], axis=2)

    def attention(self, x: Tensor, number: int) -> Tensor:
        sizes, rows = self.sizes, self.rows
        groups = sizes.heads // sizes.kv_heads
        counts = (sizes.heads, sizes.kv_heads, sizes.kv_heads)
        if sizes.kind.fused:
            joint, ends = self.dense(x, sum(counts) * sizes.head), np.cumsum([0, *counts]) * sizes.head
            parts = [joint[:, int(a) : int(b)] for a, b in pairwise(ends)]
        else:
            parts = [self.dense(x, count * sizes.head) for count in counts]
        q, k, v = (self.heads(part, count) for part, count in zip(parts, counts, strict=True))
        if sizes.kind.normed_heads:
            q, k = self.norm(q), self.norm(k)
        q, k = self.turned(q, number), self.turned(k, number)
        keys, values = self.kept_with(f"keys_{number}", k), self.kept_with(f"values_{number}", v)
        q = q * sizes.head**-0.5
        scores = q.reshape(sizes.kv_heads, groups * rows, sizes.head) @ keys.mT
        every = sizes.kind.window_every
        mask = "window" if every and number % every != every - 1 else "mask"
        scores = scores.reshape(sizes.heads, rows, self.keys) + self.port(mask, 1, rows, self.keys)
        probabilities = scores.softmax(-1).reshape(sizes.kv_heads, groups * rows, self.keys)
        mixed = (probabilities @ values).reshape(sizes.heads, rows, sizes.head)
        return self.dense(mixed.transpose([1, 0, 2]).reshape(rows, sizes.heads * sizes.head), sizes.width)

    def kept_with(self, name: str, new: Tensor) -> Tensor:
        """The keys or values of all places: those that are kept, and the new rows."""
        rows, context, way = self.rows, self.context, self.cache
        if way == "none":
            return new
        cached = af.input((self.sizes.kv_heads, context, self.sizes.head), name=name)
        if way == "rows":
            self.kept.append((new * 1.0).named(f"{name}_new"))
            return af.concat([cached, new], axis=1)
        if way == "masked":
            place = self.port("place", 1, context, 1)
            assert rows == 1, "a mask blends in one row"
            after = cached * (1.0 - place) + new * place
        elif way == "in-out":
            after = af.concat([cached[:, rows:], new], axis=1)
        else:
            place = min(context // 2, context - rows - 1)
            after = af.concat([cached[:, :place], new, cached[:, place + rows :]], axis=1)
        self.kept.append(after.named(f"{name}_out"))
        if way == "state":
            self.states[name] = f"{name}_out"
        return after


def feeds_of(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of a decoder: caches and tokens around zero, masks of zeros and large negative numbers, angles."""
    random = np.random.default_rng(seed)
    feeds = {}
    for port in graph.inputs:
        name, array = str(port.name), random.standard_normal(port.shape) * 0.5
        if name in ("mask", "window"):
            array = np.where(np.arange(port.shape[-1]) % 4 == 3, -1e4, 0.0) * np.ones(port.shape)
        elif name == "place":
            array = (np.arange(port.size) == 1).reshape(port.shape)
        elif name in ("cosines", "sines"):
            array = np.cos(array) if name == "cosines" else np.sin(array)
        feeds[name] = array.astype(np.float16)
    return feeds
