"""Recurrent cells, unrolled: the input product of all steps at once, then one small product per gate and step."""

from __future__ import annotations

from collections.abc import Callable

from aneforge.compiler.legal.rewrites.context import Context
from aneforge.compiler.legal.rewrites.pieces import joined
from aneforge.graph.ops.contraction import linear
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor


def _gates(weight: Tensor, gates: int) -> list[Tensor]:
    """Equal parts along the first axis; parts of a constant are constants."""
    rows = weight.shape[0] // gates
    if weight.op == "const" and weight.weight is not None:
        values = weight.weight.array
        return [const(values[i * rows : (i + 1) * rows]) for i in range(gates)]
    if weight.ndim == 1:  # cut along an axis that is not the last
        column = weight.reshape(weight.shape[0], 1)
        return [column.slice_by_size([i * rows, 0], [rows, 1]).reshape(rows) for i in range(gates)]
    return [weight.slice_by_size([i * rows, 0], [rows, weight.shape[1]]) for i in range(gates)]


def _steps(x: Tensor) -> list[Tensor]:
    """[steps, batch, features] as one [batch, features] per step."""
    _, batch, features = x.shape
    return [x.slice_by_size([i, 0, 0], [1, batch, features]).reshape(batch, features) for i in range(x.shape[0])]


def _unrolled(context: Context, gates: int, cell: Callable[..., tuple[Tensor, ...]]) -> Tensor:
    x, w, r, b, *states = context.inputs
    weights, biases = _gates(w, gates), _gates(b, gates)
    input_parts = [_steps(linear(x, weight, bias)) for weight, bias in zip(weights, biases, strict=True)]
    recurrent = _gates(r, gates)
    outputs = []
    for parts in zip(*input_parts, strict=True):
        states = list(cell(parts, recurrent, *states))
        outputs.append(states[0].expand_dims(0))
    return joined(outputs, 0)


def rnn(context: Context) -> Tensor:
    """tanh(input part + recurrent part), step after step."""

    def cell(parts: tuple[Tensor, ...], r: list[Tensor], h: Tensor) -> tuple[Tensor, ...]:
        return ((parts[0] + linear(h, r[0])).tanh(),)

    return _unrolled(context, 1, cell)


def lstm(context: Context) -> Tensor:
    """Gates input, forget, cell, output as sigmoid and tanh of sums, step after step."""

    def cell(parts: tuple[Tensor, ...], r: list[Tensor], h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        i, f, g, o = (part + linear(h, weight) for part, weight in zip(parts, r, strict=True))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    return _unrolled(context, 4, cell)


def gru(context: Context) -> Tensor:
    """Gates reset, update, new; the reset multiplies the recurrent product."""

    def cell(parts: tuple[Tensor, ...], r: list[Tensor], h: Tensor) -> tuple[Tensor, ...]:
        reset = (parts[0] + linear(h, r[0])).sigmoid()
        update = (parts[1] + linear(h, r[1])).sigmoid()
        fresh = (parts[2] + reset * linear(h, r[2])).tanh()
        return ((1.0 - update) * fresh + update * h,)

    return _unrolled(context, 3, cell)
