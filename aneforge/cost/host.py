"""The host's part of a split model as a band: what its ops take at least and at most on a CPU.

Nobody measured these ops. The band is bytes moved or arithmetic, whichever is longer, at a fast and at a slow rate,
and a start for each op. The rates are an assumption (``choices.json``, U75) and no measurement of any Mac.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log2, prod, sqrt
from typing import NamedTuple

from aneforge.graph.node import DTYPES
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.views import does, plain_name
from aneforge.targets.assumed import constant

CHOICE = "U75"
"""The choice that explains the rates."""

_FLOAT = 4  # bytes: the host computes in float32


class Band(NamedTuple):
    """Microseconds, at least and at most."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Where a single figure is wanted: as many times the low end as the high end is of it."""
        return sqrt(self.low * self.high)


def host_band(nodes: Iterable[Tensor]) -> Band:
    """What the host takes for some ops, one after the other."""
    bytes_per_us, flops_per_us, product_flops_per_us, start = (
        constant(name)
        for name in ("host_bytes_per_us", "host_flops_per_us", "host_product_flops_per_us", "host_op_us")
    )
    low = high = 0.0
    for node in nodes:
        moved, flops = _bytes(node), _flops(node)
        # A library for linear algebra computes products with the matrix units of the CPU.
        rates = product_flops_per_us if does(node, GraphTrait.PRODUCT) else flops_per_us
        low += start[0] + max(moved / bytes_per_us[1], flops / rates[1])
        high += start[1] + max(moved / bytes_per_us[0], flops / rates[0])
    return Band(low, high)


def _bytes(node: Tensor) -> float:
    """Read and written. A look-up reads the rows that it gives, not the table."""
    written = _size(node)
    read = [_size(operand) for operand in node.inputs]
    if does(node, GraphTrait.PICK):
        read = [min(size, written) for size in read]
    return float(written + sum(read))


def _size(tensor: Tensor) -> int:
    return prod(tensor.shape) * (_FLOAT if tensor.dtype == "fp16" else DTYPES[tensor.dtype])


def _flops(node: Tensor) -> float:
    """Two for a multiply-add, one for each element of anything else; a sort compares each element log n times."""
    name, shapes = plain_name(node), [operand.shape for operand in node.inputs if operand.dtype != "int32"]
    elements = max(map(prod, [node.shape, *shapes]))
    if does(node, GraphTrait.PICK):
        return 0.0
    if does(node, GraphTrait.CONVOLUTION):
        return 2.0 * prod(node.shape) * prod(shapes[1][1:]) if len(shapes) > 1 else float(elements)
    if does(node, GraphTrait.PRODUCT) and shapes and shapes[0]:
        return 2.0 * prod(node.shape) * shapes[0][-1]
    if name == "sdpa" or "attention" in name:
        return 4.0 * prod(node.shape) * _keys(shapes)
    if does(node, GraphTrait.SORT):
        return elements * max(1.0, log2(max(2, elements)))
    return float(elements)


def _keys(shapes: Sequence[Sequence[int]]) -> int:
    return shapes[1][-2] if len(shapes) > 1 and len(shapes[1]) > 1 else 1
