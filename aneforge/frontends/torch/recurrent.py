"""LSTM, GRU and plain recurrences: whole layers, both directions, and their last states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.forms import linear
from aneforge.frontends.torch.node import Node, Rule
from aneforge.frontends.torch.products import stored
from aneforge.frontends.torch.values import numeric
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

Step = Callable[[Tensor, list[Tensor]], list[Tensor]]
"""What a cell makes of its input, already multiplied by the input weights, and of its state."""


def _steps(x: Tensor) -> list[Tensor]:
    """[steps, batch, features], one by one."""
    size = (1, *x.shape[1:])
    return [x.slice_by_size([i, 0, 0], size).reshape(*x.shape[1:]) for i in range(x.shape[0])]


def _gates(z: Tensor, count: int) -> list[Tensor]:
    return af.split(z, count, axis=1)


class _Cell:
    """The weights of one layer in one direction: input, recurrent, and the two biases, which PyTorch adds."""

    def __init__(self, weights: Sequence[Any]) -> None:
        if any(isinstance(each, Tensor) for each in weights):
            raise LoadError("recurrent weights that the graph computes")
        self.w, self.r = (stored(each) for each in weights[:2])
        self.b, self.c = (stored(each) for each in weights[2:4]) if len(weights) == 4 else (None, None)

    def both(self) -> np.ndarray:
        """The biases as one."""
        zeros = np.zeros(self.w.shape[0])
        return np.asarray(zeros if self.b is None else self.b, np.float64) + (0.0 if self.c is None else self.c)


def _lstm_cell(cell: _Cell) -> Step:
    def step(x: Tensor, state: list[Tensor]) -> list[Tensor]:
        h, c = state
        i, f, g, o = _gates(x + linear(h, cell.r), 4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return [o.sigmoid() * c.tanh(), c]

    return step


def _gru_cell(cell: _Cell) -> Step:
    """The reset gate works on the recurrent product with its bias."""

    def step(x: Tensor, state: list[Tensor]) -> list[Tensor]:
        (h,) = state
        (xr, xz, xn), (hr, hz, hn) = _gates(x, 3), _gates(linear(h, cell.r, cell.c), 3)
        update = (xz + hz).sigmoid()
        fresh = (xn + (xr + hr).sigmoid() * hn).tanh()
        return [fresh + update * (h - fresh)]

    return step


def _plain_cell(function: Callable[[Tensor], Tensor]) -> Callable[[_Cell], Step]:
    def made(cell: _Cell) -> Step:
        return lambda x, state: [function(x + linear(state[0], cell.r))]

    return made


def _layers(
    x: Tensor,
    starts: Sequence[Tensor],
    weights: Sequence[Any],
    biases: bool,
    count: int,
    both: bool,
    made: Callable[[_Cell], Step],
) -> tuple[Tensor, list[list[Tensor]]]:
    """All layers over a sequence; the result, and for each state its last value by layer and direction."""
    width, ways = 4 if biases else 2, 2 if both else 1
    lasts: list[list[Tensor]] = [[] for _ in starts]
    for layer in range(count):
        results = []
        for way in range(ways):
            place = layer * ways + way
            cell = _Cell(weights[place * width : (place + 1) * width])
            step = made(cell)
            state = [
                each.slice_by_size([place, 0, 0], [1, *each.shape[1:]]).reshape(*each.shape[1:]) for each in starts
            ]
            inputs = _steps(linear(x, cell.w, cell.b if made is _gru_cell else cell.both()))
            outputs, state = _run(step, inputs[:: -1 if way else 1], state)
            results.append(af.stack(outputs[:: -1 if way else 1], axis=0))
            for found, last in zip(lasts, state, strict=True):
                found.append(last)
        x = results[0] if len(results) == 1 else af.concat(results, axis=2)
    return x, lasts


def _run(step: Step, inputs: Sequence[Tensor], state: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    outputs = []
    for each in inputs:
        state = step(each, state)
        outputs.append(state[0])
    return outputs, state


def _recurrence(made: Callable[[_Cell], Step], states: int) -> Rule:
    def rule(
        node: Node,
        x: Any,
        start: Any,
        weights: Sequence[Any],
        biases: bool,
        layers: int,
        dropout: Any,
        train: bool,
        both: bool,
        batch_first: bool = False,
    ) -> list[Any]:
        if (isinstance(start, (list, tuple)) and len(start) != states) or len(weights) % (2 * int(layers)):
            raise LoadError("a packed sequence or a projected state")
        if train and float(dropout or 0.0) > 0:
            raise LoadError("dropout between layers: call module.eval() before exporting")
        if len(weights) != layers * (2 if both else 1) * (4 if biases else 2):
            raise LoadError("a recurrence with projected states")
        given = numeric(x)
        given = given.transpose([1, 0, 2]) if batch_first else given
        starts = [numeric(each) for each in (start if isinstance(start, (list, tuple)) else [start])]
        found, lasts = _layers(given, starts, weights, bool(biases), int(layers), bool(both), made)
        ends = [af.stack(last, axis=0) if k + 1 in node.wanted else None for k, last in enumerate(lasts)]
        return [found.transpose([1, 0, 2]) if batch_first else found, *ends]

    return rule


RULES: dict[str, Rule] = {
    "gru.input": _recurrence(_gru_cell, 1),
    "lstm.input": _recurrence(_lstm_cell, 2),
    "rnn_relu.input": _recurrence(_plain_cell(Tensor.relu), 1),
    "rnn_tanh.input": _recurrence(_plain_cell(Tensor.tanh), 1),
}
