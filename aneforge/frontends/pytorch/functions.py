"""ATen ops of numbers and shapes of which more must be decided than a row can say."""

from __future__ import annotations

import numpy as np

from aneforge.frontends import LoadError, forms
from aneforge.frontends.importer.op import Op
from aneforge.frontends.ops import OPS
from aneforge.frontends.records import is_whole
from aneforge.frontends.values import Numeric, Value, axis_of, shaped
from aneforge.graph.tensor import Tensor

_STRAIGHT = 10.0  # at this input softplus is 5e-5 above its asymptote


def stated_shape(op: Op) -> tuple[int, ...]:
    """The shape of the result in the graph, which has no rank 0: a single number has shape (1,)."""
    return op.out_shape() or (1,)


def stated_dtype(op: Op) -> str:
    stated = op.out_type()
    return "" if stated is None else stated.dtype


def gives_truths(op: Op) -> bool:
    return stated_dtype(op) == "bool"


def typed(op: Op, value: Value | float) -> Tensor:
    """An operand in the type of the result."""
    return forms.truth(value) if gives_truths(op) else forms.as_number(value)


def refuse_training(is_training: bool, what: str) -> None:
    if is_training:
        raise LoadError(f"training mode {what}; use module.eval() before exporting")


# Arithmetic and activations.


def _times_alpha(value: Value | float, alpha: float) -> Value | float:
    if alpha == 1.0:
        return value
    return alpha * value if isinstance(value, (int, float)) else forms.scaled(forms.as_number(value), alpha)


def plus(op: Op, a: Value | float, b: Value | float, alpha: float = 1.0) -> Tensor:
    """a + alpha * b; a sum of truth values is their or."""
    return OPS["logical_or"](a, b) if gives_truths(op) else forms.added(a, _times_alpha(b, alpha))


def minus(a: Value | float, b: Value | float, alpha: float = 1.0) -> Tensor:
    return forms.subtracted(a, _times_alpha(b, alpha))


def times(op: Op, a: Value | float, b: Value | float) -> Tensor:
    return OPS["logical_and"](a, b) if gives_truths(op) else forms.multiplied(a, b)


def choose(op: Op, mask: Value, yes: Value, no: Value) -> Tensor:
    return forms.chosen(mask, yes, no, gives_truths(op))


def softplus_above(x: Numeric, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Above the threshold PyTorch returns x. At _STRAIGHT and above, softplus and x are equal in fp16."""
    if threshold < _STRAIGHT:
        raise LoadError(f"softplus with threshold {threshold:g} is not supported; it must be at least {_STRAIGHT:g}")
    return forms.softplus(x, 1 / beta, beta)


def rrelu(x: Numeric, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    refuse_training(training, "draws a random slope in every run")
    return forms.leaky_relu(x, (lower + upper) / 2)


def dropout(x: Value, ratio: float = 0.5, training: bool = False) -> list[Value]:
    refuse_training(training and ratio > 0, "drops elements at random")
    return OPS["dropout"](x)


# Shapes.


def view(op: Op, x: Tensor) -> Tensor:
    """A view, a squeeze or a flatten: the same elements in the shape that PyTorch states."""
    return shaped(x, stated_shape(op))


def expand(op: Op, x: Value) -> Tensor:
    return forms.broadcast_to(typed(op, x), stated_shape(op))


def convert(op: Op, x: Tensor) -> Tensor:
    return OPS["cast"](forms.as_number(x) if x.dtype == "uint8" else x, stated_dtype(op), op)


def filled(op: Op, value: Value | float = 0.0) -> Value:
    """A tensor of one number, known or computed."""
    if isinstance(value, Tensor):
        return forms.broadcast_to(forms.as_number(value), stated_shape(op))
    kind = bool if gives_truths(op) else np.int64 if is_whole(stated_dtype(op)) else np.float32
    return np.full(op.out_shape() or (), float(np.asarray(value)), kind)


def split_as_stated(op: Op, x: Tensor, axis: int = 0) -> list[Tensor]:
    along = axis_of(axis, x.ndim)
    return forms.parts(x, along, [kind.shape[along] for _, kind in op.outputs])  # type: ignore[union-attr,misc]


def unbind(x: Tensor, axis: int = 0) -> list[Tensor]:
    along = axis_of(axis, x.ndim)
    return forms.parts(x, along, [1] * x.shape[along])


def select_place(x: Tensor, axis: int, index: int) -> Tensor:
    along = axis_of(axis, x.ndim)
    place = index % x.shape[along]
    return forms.sliced(x, along, place, place + 1)


def narrow(x: Tensor, axis: int, start: int, length: int) -> Tensor:
    return forms.sliced(x, axis_of(axis, x.ndim), start, start + length)


def windows_last(x: Tensor, axis: int, size: int, step: int) -> Tensor:
    """Sliding windows along an axis, as a new last axis."""
    along = axis_of(axis, x.ndim)
    return OPS["move_axes"](OPS["sliding_windows"](x, along, size, step), [along + 1], [-1])


def pad_last(x: Numeric, pad: list[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """PyTorch lists pads from the last axis: before, after, before, after."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))
    return forms.padded(
        x, [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1], "wrap" if mode == "circular" else mode, value
    )


def extreme_place(x: Numeric, axis: int | None = None, largest: bool = True) -> Tensor:
    """Without an axis, the place in the flattened tensor."""
    if axis is None:
        return forms.position(x.reshape(x.size), 0, True, largest)
    return forms.position(x, axis_of(axis, x.ndim), True, largest)
