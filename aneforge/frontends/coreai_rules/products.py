"""Matrix products and convolutions, with what the file writes around them: padding before, a bias behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aneforge.frontends.coreai_rules.op import Op, Rule
from aneforge.frontends.coreai_rules.spatial import unpadded
from aneforge.frontends.forms import as_number, convolution, linear, matmul, transposed_convolution
from aneforge.frontends.values import Value
from aneforge.graph.encoding import Encoded
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "biased"]


def _matrix(value: Value) -> np.ndarray | Encoded | None:
    """A known operand that is one matrix, whatever batch it was spread over."""
    if isinstance(value, Tensor):
        return None
    if value.ndim == 2:
        return value
    if isinstance(value, Encoded):
        return None
    same = all(extent == 1 or step == 0 for extent, step in zip(value.shape[:-2], value.strides[:-2], strict=True))
    return value[(0,) * (value.ndim - 2)] if same else None


def _batch_matmul(op: Op, bias: np.ndarray | None = None) -> Tensor:
    matrix = _matrix(op.value(1))
    if matrix is None:
        return matmul(_number(op.value(0)), _number(op.value(1)))
    found = linear(op.tensor(0), matrix.T, bias)
    return found if op.results[0].static in (None, found.shape) else matmul(op.tensor(0), op.value(1))


def _number(value: Value) -> Value:
    return as_number(value) if isinstance(value, Tensor) else value


def _convolution(op: Op, bias: np.ndarray | None = None) -> Tensor:
    x, pads = unpadded(op, lambda fill: fill == 0)
    stride, dilation = op.numbers(2, "the strides"), op.numbers(3, "the dilation")
    groups = op.whole(4, "the number of groups")
    return convolution(x, _number(op.value(1)), bias, stride=stride, pads=pads, dilation=dilation, groups=groups)


def _transposed(op: Op, bias: np.ndarray | None = None) -> Tensor:
    x, rank = op.tensor(0), op.rank(0) - 2
    return transposed_convolution(
        x,
        _number(op.value(1)),
        bias,
        stride=op.numbers(2, "the strides"),
        pads=_pairs(op.numbers(3, "the padding"), rank),
        dilation=op.numbers(4, "the dilation"),
        output_padding=op.numbers(5, "the padding of the result"),
        groups=op.whole(6, "the number of groups"),
    )


def _pairs(flat: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """Before and after each axis; one number for both where only so many are told."""
    if len(flat) == rank:
        return [(each, each) for each in flat]
    return list(zip(flat[::2], flat[1::2], strict=True))


_BIASED = {
    "batch_matmul": (_batch_matmul, -1),
    "conv2d": (_convolution, 1),
    "conv3d": (_convolution, 1),
    "conv_transpose2d": (_transposed, 1),
    "conv_transpose3d": (_transposed, 1),
}
"""Ops that have a bias on the engine, and the axis along which it lies."""


def biased(op: Op, product: int, bias: int) -> Tensor | None:
    """An addition of known numbers, one for each channel, to a product that nothing else reads."""
    made = op.maker(product)
    if made is None or made.kind not in _BIASED or made.results[0].static != op.shape:
        return None
    rule, axis = _BIASED[made.kind]
    if made.kind == "batch_matmul" and _matrix(made.value(1)) is None:
        return None
    line = _line(op.value(bias), op.shape, axis)
    return None if line is None or isinstance(made.value(1), Tensor) else rule(made, line).named(made.name)


def _line(value: Value, shape: tuple[int, ...], axis: int) -> np.ndarray | None:
    """One number for each place of an axis, if that is all that a known operand says."""
    if isinstance(value, (Tensor, Encoded)) or value.ndim > len(shape):
        return None
    place = axis % len(shape)
    spread = value.reshape((1,) * (len(shape) - value.ndim) + value.shape)
    line = spread[tuple(slice(None) if i == place else slice(0, 1) for i in range(len(shape)))]
    if not (spread == line).all():
        return None
    return np.broadcast_to(line.reshape(-1), (shape[place],))


RULES: dict[str, Rule] = {kind: rule for kind, (rule, _) in _BIASED.items()}
