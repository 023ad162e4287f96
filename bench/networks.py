"""Networks of real size for the benchmarks of the compiler: what people compile, with weights drawn from a seed.

``python bench/networks.py`` builds each one and prints its nodes, its weights, what the gate says, and what lowering
and phase 1 make of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle

import numpy as np

import aneforge as af

Array = np.ndarray
CHIPS = ("h13", "h17s")


class Draw:
    """Weights from one seeded generator, fp16 from the start."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = 1.0, mean: float = 0.0) -> Array:
        drawn = self._rng.standard_normal(shape, np.float32)
        drawn *= scale
        if mean:
            drawn += mean
        return drawn.astype(np.float16)

    def positive(self, *shape: int) -> Array:
        return (0.5 + self._rng.random(shape, np.float32)).astype(np.float16)

    def dense(self, rows: int, columns: int) -> Array:
        return self.normal(rows, columns, scale=columns**-0.5)

    def kernel(self, outputs: int, inputs: int, size: int) -> Array:
        return self.normal(outputs, inputs, size, size, scale=(2 / (inputs * size * size)) ** 0.5)


def _conv_norm(draw: Draw, x: af.Tensor, channels: int, size: int, stride: int = 1, gain: float = 1.0) -> af.Tensor:
    y = af.conv(x, draw.kernel(channels, x.shape[1], size), stride=stride, pad=size // 2)
    beta, mean = draw.normal(channels, scale=0.1), draw.normal(channels, scale=0.1)
    return af.batch_norm(y, draw.normal(channels, scale=0.1, mean=gain), beta, mean, draw.positive(channels))


def _bottleneck(draw: Draw, x: af.Tensor, channels: int, stride: int) -> af.Tensor:
    y = _conv_norm(draw, x, channels, 1).relu()
    y = _conv_norm(draw, y, channels, 3, stride).relu()
    y = _conv_norm(draw, y, 4 * channels, 1, gain=0.25)  # a trained network adds little to what it hands on
    same = stride == 1 and x.shape[1] == 4 * channels
    return (y + (x if same else _conv_norm(draw, x, 4 * channels, 1, stride))).relu()


def resnet50() -> af.Tensor:
    """ResNet-50 at 224 x 224 with its batch norms, 1000 classes."""
    draw = Draw(50)
    x = af.input((1, 3, 224, 224), name="image")
    y = _conv_norm(draw, x, 64, 7, 2).relu().max_pool(3, 2, pad=1)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            y = _bottleneck(draw, y, 64 << stage, 2 if stage and not block else 1)
    features = y.mean((2, 3)).reshape(1, 2048)
    return features.linear(draw.dense(1000, 2048), draw.normal(1000, scale=0.01)).softmax().named("probabilities")


def _inverted(draw: Draw, x: af.Tensor, channels: int, stride: int, expansion: int) -> af.Tensor:
    inner = x.shape[1] * expansion
    y = x if expansion == 1 else _conv_norm(draw, x, inner, 1).relu6()
    kernel = draw.normal(inner, 1, 3, 3, scale=2**0.5 / 3)
    y = af.conv(y, kernel, stride=stride, pad=1, groups=inner)
    beta, mean = draw.normal(inner, scale=0.1), draw.normal(inner, scale=0.1)
    y = af.batch_norm(y, draw.normal(inner, scale=0.1, mean=1.0), beta, mean, draw.positive(inner)).relu6()
    y = _conv_norm(draw, y, channels, 1)
    return y + x if stride == 1 and x.shape[1] == channels else y


def mobilenetv2() -> af.Tensor:
    """MobileNetV2 at 224 x 224: depthwise convolutions between 1 x 1 ones, 1000 classes."""
    draw = Draw(2)
    y = _conv_norm(draw, af.input((1, 3, 224, 224), name="image"), 32, 3, 2).relu6()
    stages = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expansion, channels, blocks, stride in stages:
        for block in range(blocks):
            y = _inverted(draw, y, channels, 1 if block else stride, expansion)
    features = _conv_norm(draw, y, 1280, 1).relu6().mean((2, 3)).reshape(1, 1280)
    return features.linear(draw.dense(1000, 1280), draw.normal(1000, scale=0.01)).softmax().named("probabilities")


def _heads(x: af.Tensor, heads: int) -> af.Tensor:
    rows, width = x.shape
    return x.reshape(rows, heads, width // heads).transpose([1, 0, 2])


def _attention(draw: Draw, x: af.Tensor, heads: int, mask: af.Tensor | None, bias: bool) -> af.Tensor:
    """Scaled dot products from products and a softmax: the native layer would cut the program."""
    rows, width = x.shape
    q, k, v = (_dense(draw, x, width, bias) for _ in range(3))
    scores = (_heads(q, heads) @ _heads(k, heads).mT) * (width // heads) ** -0.5
    weights = (scores if mask is None else scores + mask).softmax(-1)
    mixed = (weights @ _heads(v, heads)).transpose([1, 0, 2]).reshape(rows, width)
    return _dense(draw, mixed, width, bias)


def _dense(draw: Draw, x: af.Tensor, width: int, bias: bool) -> af.Tensor:
    return x.linear(draw.dense(width, x.shape[1]), draw.normal(width, scale=0.02) if bias else None)


def bert_encoder(layers: int = 12, width: int = 768, heads: int = 12, sequence: int = 128) -> af.Tensor:
    """The encoder of BERT-base from its embeddings on: layer norms behind each half, gelu."""
    draw = Draw(12)

    def norm(x: af.Tensor) -> af.Tensor:
        return x.layer_norm(draw.normal(width, scale=0.1, mean=1.0), draw.normal(width, scale=0.02), 1e-5)

    x = norm(af.input((sequence, width), name="embeddings"))
    for _ in range(layers):
        x = norm(x + _attention(draw, x, heads, None, bias=True))
        hidden = _dense(draw, x, 4 * width, bias=True).gelu()
        x = norm(x + _dense(draw, hidden, width, bias=True))
    return x.named("hidden")


def decoder(layers: int = 24, width: int = 1024, heads: int = 16, sequence: int = 128) -> af.Tensor:
    """A decoder-only language model without its vocabulary: rms norms in front, a causal mask, a gated silu."""
    draw = Draw(24)
    inner = 128 * -(-8 * width // (3 * 128))  # two thirds of four times the width, in whole rows of 128
    causal = af.const(np.triu(np.full((sequence, sequence), -10000.0, np.float16), 1))

    def norm(x: af.Tensor) -> af.Tensor:
        return x.rms_norm(draw.normal(width, scale=0.1, mean=1.0), 1e-5)

    x = af.input((sequence, width), name="tokens")
    for _ in range(layers):
        x = x + _attention(draw, norm(x), heads, causal, bias=False)
        y = norm(x)
        gated = _dense(draw, y, inner, bias=False).silu() * _dense(draw, y, inner, bias=False)
        x = x + _dense(draw, gated, width, bias=False)
    return norm(x).named("hidden")


def decoder_step(layers: int = 24, width: int = 1024, heads: int = 16, context: int = 128) -> af.Tensor:
    """One token through the same model: a product of one row with every weight, and the keys and values so far."""
    draw = Draw(25)
    inner = 128 * -(-8 * width // (3 * 128))
    size = width // heads

    def norm(x: af.Tensor) -> af.Tensor:
        return x.rms_norm(draw.normal(width, scale=0.1, mean=1.0), 1e-5)

    def attention(x: af.Tensor, layer: int) -> af.Tensor:
        q, k, v = (_heads(_dense(draw, x, width, bias=False), heads) for _ in range(3))
        keys = af.concat([af.input((heads, context, size), name=f"keys_{layer}"), k], axis=1)
        values = af.concat([af.input((heads, context, size), name=f"values_{layer}"), v], axis=1)
        weights = ((q @ keys.mT) * size**-0.5).softmax(-1)
        return _dense(draw, (weights @ values).transpose([1, 0, 2]).reshape(1, width), width, bias=False)

    x = af.input((1, width), name="token")
    for layer in range(layers):
        x = x + attention(norm(x), layer)
        y = norm(x)
        gated = _dense(draw, y, inner, bias=False).silu() * _dense(draw, y, inner, bias=False)
        x = x + _dense(draw, gated, width, bias=False)
    return norm(x).named("hidden")


def unet(size: int = 256, widths: Sequence[int] = (64, 128, 256, 512)) -> af.Tensor:
    """A U-Net of four levels: two convolutions a level, pooled on the way down, enlarged and joined on the way up."""
    draw = Draw(4)

    def level(x: af.Tensor, channels: int) -> af.Tensor:
        for _ in range(2):
            x = _conv_norm(draw, x, channels, 3).relu()
        return x

    y = level(af.input((1, 3, size, size), name="image"), widths[0])
    skips = []
    for channels in widths[1:]:
        skips.append(y)
        y = level(y.max_pool(2), channels)
    for skip in reversed(skips):
        up = _conv_norm(draw, y.upsample(2), skip.shape[1], 3).relu()
        y = level(af.concat([skip, up], axis=1), skip.shape[1])
    return af.conv(y, draw.kernel(2, widths[0], 1), bias=draw.normal(2)).sigmoid().named("mask")


def synthetic(ops: int = 10_000) -> af.Tensor:
    """About ``ops`` nodes of everything: 1 x 1 kernels on small maps, residuals, diamonds, concats, constants.

    A block takes a dozen kernels and vectors in turn, so the memory does not grow with the graph.
    """
    draw, channels = Draw(0), 32
    full = cycle([af.const(draw.kernel(channels, channels, 1)) for _ in range(6)])
    half = cycle([af.const(draw.kernel(channels // 2, channels, 1)) for _ in range(6)])
    gains = cycle([af.const(draw.normal(1, channels, 1, 1, scale=0.1, mean=0.5)) for _ in range(5)])
    shifts = cycle([af.const(draw.normal(1, channels, 1, 1, scale=0.1)) for _ in range(5)])
    x = af.input((1, channels, 8, 8), name="x")
    for _ in range(max(1, -(-ops // 16))):  # 16 nodes a block
        left = (af.conv(x, next(full)) + next(shifts)).relu()
        right = (x * next(gains)).tanh()
        diamond = af.conv(left, next(full)) + right
        parts = [af.conv(diamond, next(half)), af.conv(diamond.sigmoid(), next(half))]
        joined = af.concat(parts, axis=1).relu()
        x = (x + joined * next(gains)) * 0.5
    return x.named("y")


NETWORKS: dict[str, Callable[[], af.Tensor]] = {
    "resnet50": resnet50,
    "mobilenetv2": mobilenetv2,
    "bert_encoder": bert_encoder,
    "decoder": decoder,
    "decoder_step": decoder_step,
    "unet": unet,
    "synthetic": synthetic,
}


def main() -> None:
    from aneforge.compiler.fuse import FUSION
    from aneforge.compiler.lower import lower
    from aneforge.compiler.passes import run_passes
    from aneforge.graph import Graph

    print(f"{'network':14}{'nodes':>8}{'ops':>8}{'weights':>9}{'MB':>8}{'build s':>9}")
    for name, make in NETWORKS.items():
        start = time.perf_counter()
        out = make()
        built = time.perf_counter() - start
        graph = Graph([out])
        held = graph.weights
        size = 2 * sum(weight.size for weight in held.values()) / 1e6
        print(f"{name:14}{len(graph):>8,}{len(graph.operations):>8,}{len(held):>9,}{size:>8,.1f}{built:>9.2f}")
        for chip in CHIPS:
            verdict = "ok" if af.preflight(out, chip).ok else "refused"
            start = time.perf_counter()
            module = lower(out).module
            lowered, before = time.perf_counter() - start, len(module)
            start = time.perf_counter()
            run_passes(module, af.target(chip), FUSION)
            fused = time.perf_counter() - start
            layers = len({op.layer for op in module if op.layer is not None})
            told = f"{before:,} ops in {lowered:.2f} s, {layers:,} layers in {fused:.2f} s"
            print(f"  {chip:6} gate {verdict}, {told}")


if __name__ == "__main__":
    main()
