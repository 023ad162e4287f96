"""Layers with a stored weight in one common form: dense layers, products with a constant on the right,
convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor

__all__ = ["Dense", "Kernel", "dense_of", "kernel_of", "stored_layers"]


@dataclass(frozen=True, eq=False)
class Dense:
    """``x @ weight.T + bias`` over the last axis, however the user wrote it."""

    x: Tensor
    weight: np.ndarray
    """[outputs, inputs], fp16."""
    bias: np.ndarray | None

    @property
    def rows(self) -> int:
        return self.x.size // self.x.shape[-1]


@dataclass(frozen=True, eq=False)
class Kernel:
    """A convolution with a stored kernel of fp16."""

    x: Tensor
    weight: np.ndarray
    bias: np.ndarray | None
    stride: tuple[int, int]
    pad: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int

    @property
    def pointwise(self) -> bool:
        """1 x 1 over all channels: every place by itself."""
        plain = self.stride == self.dilation == (1, 1) and not any(self.pad)
        return plain and self.groups == 1 and self.weight.shape[2:] == (1, 1)


def stored_layers(graph: Graph) -> Iterator[tuple[Tensor, Dense | Kernel]]:
    """The layers of a graph whose weight is stored in fp16, in the order of the graph."""
    for node in graph.nodes:
        layer = None if node.definition.leaf else dense_of(node) or kernel_of(node)
        if layer is not None:
            yield node, layer


def _numbers(node: Tensor) -> np.ndarray | None:
    """The numbers of a constant; None for a value that is computed, trained or stored in an encoded form."""
    if node.op != "const" or node.weight is None or node.weight.encoded is not None:
        return None
    return node.weight.array


def dense_of(node: Tensor) -> Dense | None:
    """A dense layer in fp16, or None."""
    if node.op == "linear":
        x, weight, *bias = node.inputs
        numbers, offset = _numbers(weight), _numbers(bias[0]) if bias else None
        if numbers is None or (bias and offset is None) or x.op == "const":
            return None
        return Dense(x, numbers, offset)
    if node.op == "matmul" and node.inputs[1].ndim == 2 and node.inputs[0].op != "const":
        numbers = _numbers(node.inputs[1])
        return None if numbers is None else Dense(node.inputs[0], numbers.T, None)
    return None


def kernel_of(node: Tensor) -> Kernel | None:
    """A convolution in fp16, or None."""
    if node.op != "conv" or node.inputs[0].op == "const":
        return None
    x, weight, *bias = node.inputs
    numbers, offset = _numbers(weight), _numbers(bias[0]) if bias else None
    if numbers is None or (bias and offset is None):
        return None
    attrs = node.attrs
    return Kernel(x, numbers, offset, attrs["stride"], attrs["pad"], attrs["dilation"], attrs["groups"])
