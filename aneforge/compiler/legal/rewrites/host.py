"""Random numbers: chips without the generator get them from the host, as inputs of the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.compiler.legal.rewrites.context import Context
from aneforge.graph.node import Shape
from aneforge.graph.tensor import Tensor
from aneforge.graph.weights import Weight, derived_weight


@dataclass(frozen=True, eq=False)
class HostInput:
    """An input the host must fill before a run: what to draw, and the seed that repeats the reference."""

    tensor: Tensor
    name: str
    shape: Shape
    distribution: str
    parameters: tuple[float, ...]
    seed: int

    def values(self, seed: int | None = None) -> np.ndarray:
        """The numbers to feed: those of the op's reference, or of another seed."""
        draw = np.random.default_rng(self.seed if seed is None else seed)
        first, second = self.parameters
        if self.distribution == "uniform":
            return draw.uniform(first, second, self.shape)
        if self.distribution == "normal":
            return draw.normal(first, second, self.shape)
        return (draw.random(self.shape) >= first) * second

    def drawn(self) -> Weight:
        """The numbers of the reference, as the initial value of a port; drawn when they are first read."""
        return derived_weight(f"drawn by the host: {sorted(self.to_json().items())}", (), self.shape, self.values)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "shape": list(self.shape),
            "distribution": self.distribution,
            "parameters": list(self.parameters),
            "seed": self.seed,
        }


def dropout(context: Context) -> Tensor:
    """x times a mask of 0 and 1 / (1 - rate) that the host draws; rate 0 is x itself.

    The host scales the mask, so that the chip does one product and rounds once.
    """
    attrs = context.node.attrs
    rate = attrs["rate"]
    if rate == 0:
        return context.inputs[0]
    scale = 1 / (1 - rate)
    return context.inputs[0] * context.host("mask", context.node.shape, (rate, scale), attrs["seed"], scale)


def random_uniform(context: Context) -> Tensor:
    """An input of uniform numbers that the host draws."""
    attrs = context.node.attrs
    low, high = attrs["low"], attrs["high"]
    return context.host("uniform", context.node.shape, (low, high), attrs["seed"], max(abs(low), abs(high)))


def random_normal(context: Context) -> Tensor:
    """An input of normal numbers that the host draws."""
    attrs = context.node.attrs
    return context.host("normal", context.node.shape, (attrs["mean"], attrs["std"]), attrs["seed"], None)
