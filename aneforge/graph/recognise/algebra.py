"""Products and sums with numbers, taken apart: what a spelling is made of, whatever the order of its factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aneforge.graph.halves import FP16_MAX
from aneforge.graph.tensor import Tensor

_TOLERANCE = 2e-3  # a constant such as 1 / sqrt(2) may have been rounded to fp16 on its way


def close(value: float, wanted: float) -> bool:
    """Whether a constant of a file is this number, as fp16 has it."""
    return math.isclose(value, wanted, rel_tol=_TOLERANCE)


def number(node: Tensor) -> float | None:
    """The value of a constant that holds one number."""
    if node.op != "const" or node.weight is None or node.weight.size != 1:
        return None
    return float(node.weight.array.reshape(-1)[0])


def scaled(x: Tensor, factor: float) -> Tensor:
    """``x`` times a number. A number that fp16 holds is a constant; any other stays an attribute, which has more
    digits. A number that only the rounding of its factors keeps from being one of fp16's is that number."""
    half = float(np.float16(factor)) if abs(factor) < FP16_MAX else factor
    if math.isclose(half, factor, rel_tol=1e-6):
        return x if half == 1.0 else x * half
    return x.linear_activation(float(np.float32(factor)), 0.0)


def scale_of(node: Tensor) -> tuple[Tensor, float] | None:
    """A node that multiplies by a number: what it multiplies, and the number."""
    if node.op == "linear_activation" and node.attrs["beta"] == 0.0:
        return node.inputs[0], float(node.attrs["alpha"])
    if node.op == "mul":
        for x, other in (node.inputs, node.inputs[::-1]):
            factor = number(other)
            if factor is not None and x.shape == node.shape:
                return x, factor
    if node.op == "real_div":
        divisor = number(node.inputs[1])
        if divisor and node.inputs[0].shape == node.shape:
            return node.inputs[0], 1.0 / divisor
    return None


def _shift(node: Tensor) -> tuple[Tensor, float, float] | None:
    """A node that adds a number to a value or to its negative: the value, its sign, and the number."""
    if node.op == "add":
        for x, other in (node.inputs, node.inputs[::-1]):
            offset = number(other)
            if offset is not None and x.shape == node.shape:
                return x, 1.0, offset
    if node.op == "sub":
        left, right = node.inputs
        offset = number(right)
        if offset is not None and left.shape == node.shape:
            return left, 1.0, -offset
        offset = number(left)
        if offset is not None and right.shape == node.shape:
            return right, -1.0, offset
    if node.op == "linear_activation":
        return node.inputs[0], float(node.attrs["alpha"]), float(node.attrs["beta"])
    return None


def plus_number(node: Tensor) -> tuple[Tensor, float]:
    """A value and the number added to it; 0 where there is none."""
    found = _shift(node)
    return (found[0], found[2]) if found is not None and found[1] == 1.0 else (node, 0.0)


class Affine(NamedTuple):
    """``base * factor + offset``."""

    base: Tensor
    factor: float
    offset: float


def affine(node: Tensor) -> Affine:
    """Every product and sum with a number taken off a value."""
    factor, offset = 1.0, 0.0
    while True:
        scaled = scale_of(node)
        if scaled is not None:
            node, factor = scaled[0], factor * scaled[1]
            continue
        shifted = _shift(node)
        if shifted is None:
            return Affine(node, factor, offset)
        node, sign, added = shifted
        factor, offset = factor * sign, offset + factor * added


class Product(NamedTuple):
    """``coefficient`` times each of the factors."""

    coefficient: float
    factors: tuple[Tensor, ...]


def product(node: Tensor, most: int = 4) -> Product:
    """A product of values of one shape and numbers, with a square or a cube as equal factors."""
    coefficient, waiting, factors = 1.0, [node], []
    while waiting:
        current = waiting.pop()
        scaled = scale_of(current)
        if scaled is not None:
            coefficient *= scaled[1]
            waiting.append(scaled[0])
        elif current.op == "mul" and len(factors) + len(waiting) < most:
            waiting.extend(reversed(current.inputs))
        elif _power(current) and len(factors) + len(waiting) + _power(current) <= most + 1:
            waiting.extend([current.inputs[0]] * _power(current))
        else:
            factors.append(current)
    return Product(coefficient, tuple(factors))


def _power(node: Tensor) -> int:
    """2 or 3 where a node is such a power of its operand, otherwise 0."""
    if node.op == "square":
        return 2
    exponent = number(node.inputs[1]) if node.op == "pow" else None
    return int(exponent) if exponent in (2.0, 3.0) else 0


def square_of(node: Tensor) -> Tensor | None:
    """What a node squares."""
    if node.op == "mul" and node.inputs[0] is node.inputs[1]:
        return node.inputs[0]
    return node.inputs[0] if _power(node) == 2 else None


def mean_of(node: Tensor) -> tuple[Tensor, tuple[int, ...]] | None:
    """The value that a node averages, and the axes; a sum divided by their extent is a mean too."""
    if node.op == "mean":
        return node.inputs[0], tuple(node.attrs["axes"])
    scaled = scale_of(node)
    if scaled is None or scaled[0].op != "sum":
        return None
    x, axes = scaled[0].inputs[0], tuple(scaled[0].attrs["axes"])
    count = math.prod(x.shape[axis] for axis in axes)
    return (x, axes) if close(scaled[1] * count, 1.0) else None


# What a rule of recognition is, and what it may ask about the graph around a node.


class Scene:
    """Who reads each node: the ops of its readers, once for each time they read it, and "output"."""

    def __init__(self, nodes: Iterable[Tensor], outputs: Iterable[Tensor]) -> None:
        self._readers: dict[int, list[str]] = {}
        for node in nodes:
            for operand in node.inputs:
                self._readers.setdefault(operand.uid, []).append(node.op)
        for output in outputs:
            self._readers.setdefault(output.uid, []).append("output")

    def is_private(self, node: Tensor) -> bool:
        """Whether only one node reads this one, so that it disappears when its reader is built another way."""
        return len(self._readers.get(node.uid, ("",))) == 1

    def is_read_by(self, node: Tensor, ops: Container[str]) -> bool:
        """Whether only such ops read this node."""
        return all(reader in ops for reader in self._readers.get(node.uid, ()))

    def count(self, node: Tensor, ops: Container[str]) -> int:
        """How often such ops read this node."""
        return sum(reader in ops for reader in self._readers.get(node.uid, ()))

    def reads_instead(self, node: Tensor, before: str, now: str) -> None:
        """Say that readers of one op are about to become readers of another."""
        readers = self._readers.get(node.uid, [])
        self._readers[node.uid] = [now if reader == before else reader for reader in readers]

    def stand(self, current: Tensor, before: Tensor) -> Tensor:
        """``current``, which now has the readers of what it stands for as well as its own."""
        if current is not before and before.uid in self._readers:
            self._readers[current.uid] = [*self._readers.get(current.uid, ()), *self._readers[before.uid]]
        return current


@dataclass(frozen=True)
class SpellingRule:
    """One spelling: the ops that it ends in, and a function from its last node to the layer, or None."""

    name: str
    ends: tuple[str, ...]
    apply: Callable[[Tensor, Scene], Tensor | None]

    @property
    def doc(self) -> str:
        return " ".join((self.apply.__doc__ or "").split())
