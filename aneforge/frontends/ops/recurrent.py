"""Recurrent layers: an op of the graph where it says the same, else every step written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.ops.elementwise import ACTIVATIONS
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "Cell", "gru_cell", "lstm_cell", "rnn_cell", "run"]

_MOST_STEPS = 1024  # written out
Activation = Callable[[Tensor], Tensor]


@dataclass
class Cell:
    """One direction of a recurrent layer: a step from an input [b, I] and states to states, the first its output."""

    step: Callable[..., tuple[Tensor, ...]]
    states: list[Tensor]
    whole: Callable[[Tensor], Tensor] | None = field(default=None)
    """All outputs at once by an op of the graph, where there is one."""


def run(cell: Cell, x: Tensor, backwards: bool, last_states: bool) -> tuple[Tensor, list[Tensor]]:
    """All outputs [s, b, H] in the order of the input, and the states after the last step."""
    turned = x.reverse(0) if backwards else x
    if cell.whole is not None and not last_states:
        outputs = cell.whole(turned)
        states = [outputs[-1]]
    else:
        if x.shape[0] > _MOST_STEPS:
            raise LoadError(f"{x.shape[0]} steps of a recurrent layer; {_MOST_STEPS} are written out at most")
        states, made = cell.states, []
        for place in range(x.shape[0]):
            states = list(cell.step(turned[place], *states))
            made.append(states[0])
        outputs = af.stack(made, axis=0)
    return (outputs.reverse(0) if backwards else outputs), states


def _gates(x: Tensor, weight: np.ndarray, bias: np.ndarray | None) -> Tensor:
    return x.linear(weight, bias) if bias is not None and bias.any() else x.linear(weight)


def lstm_cell(
    w: np.ndarray,
    r: np.ndarray,
    b: np.ndarray | None,
    h: Tensor,
    c: Tensor,
    activations: Sequence[Activation],
    plain: bool,
    peephole: np.ndarray | None = None,
    clip: float | None = None,
) -> Cell:
    """Weights in the order input, forget, output, cell; ``plain`` says that the activations are the usual ones."""
    hidden = r.shape[1]
    inner, cell_act, outer = activations
    peeps = None if peephole is None or not peephole.any() else [const(each) for each in np.split(peephole, 3)]

    def step(x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        z = _gates(x, w, b) + h.linear(r)
        i, f, o, g = (z.slice_by_size([0, k * hidden], [z.shape[0], hidden]) for k in range(4))
        if peeps is not None:
            i, f = i + c * peeps[0], f + c * peeps[1]
        fresh = inner(f) * c + inner(i) * cell_act(g)
        fresh = fresh if clip is None else fresh.clip(-clip, clip)
        o = o if peeps is None else o + fresh * peeps[2]
        return inner(o) * outer(fresh), fresh

    order = np.r_[0 : 2 * hidden, 3 * hidden : 4 * hidden, 2 * hidden : 3 * hidden]
    bias = np.zeros(4 * hidden) if b is None else b
    usual = plain and peeps is None and clip is None
    whole = (lambda x: af.lstm(x, w[order], r[order], bias[order], h, c)) if usual else None
    return Cell(step, [h, c], whole)


def gru_cell(
    w: np.ndarray, r: np.ndarray, b: np.ndarray | None, h: Tensor, inner: Activation, outer: Activation
) -> Cell:
    """Weights in the order reset, output, update; the reset is applied before the recurrent product."""
    hidden = r.shape[1]
    gates = np.r_[0:hidden, 2 * hidden : 3 * hidden]
    recurrent, fresh_r = r[gates], r[hidden : 2 * hidden]

    def step(x: Tensor, h: Tensor) -> tuple[Tensor]:
        z = _gates(x, w, b)
        reset_x, fresh_x, update_x = (z.slice_by_size([0, k * hidden], [z.shape[0], hidden]) for k in range(3))
        held = h.linear(recurrent)
        reset_h, update_h = (held.slice_by_size([0, k * hidden], [z.shape[0], hidden]) for k in range(2))
        update = inner(update_x + update_h)
        fresh = outer(fresh_x + (inner(reset_x + reset_h) * h).linear(fresh_r))
        return ((1.0 - update) * fresh + update * h,)

    return Cell(step, [h])


def rnn_cell(
    w: np.ndarray, r: np.ndarray, b: np.ndarray | None, h: Tensor, activation: Activation, plain: bool
) -> Cell:
    bias = np.zeros(r.shape[0]) if b is None else b
    whole = (lambda x: af.rnn(x, w, r, bias, h)) if plain else None
    return Cell(lambda x, h: (activation(_gates(x, w, b) + h.linear(r)),), [h], whole)


def _activation(op: Op, name: str, default: str) -> Activation:
    told = op.text(name, default)
    if told not in ACTIVATIONS:
        raise LoadError(f"no activation {told!r} of a recurrent layer")
    return ACTIVATIONS[told]


def _weights(op: Op, tail: str = "") -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    bias = op.known(f"bias{tail}") if op.has(f"bias{tail}") else None
    bias = bias.sum(axis=0) if bias is not None and bias.ndim == 2 else bias
    return op.known(f"weight_ih{tail}"), op.known(f"weight_hh{tail}"), bias


def _directions(op: Op) -> list[bool]:
    """Whether each direction of the layer runs backwards."""
    told = op.text("direction", "forward")
    known = {"forward": [False], "reverse": [True], "backward": [True], "bidirectional": [False, True]}
    if told not in known:
        raise LoadError(f"no direction {told!r}")
    return known[told]


def _finished(op: Op, runs: Sequence[tuple[Tensor, list[Tensor]]], states: int) -> list[Tensor]:
    def joined(values: list[Tensor]) -> Tensor:
        return values[0] if len(values) == 1 else af.concat(values, axis=values[0].ndim - 1)

    last = [joined([held[place] for _, held in runs]) for place in range(min(states, len(runs[0][1])))]
    outputs = joined([each for each, _ in runs]) if op.truth("output_sequence") else last[0].expand_dims(0)
    return [outputs, *last]


def _lstm(op: Op) -> list[Tensor]:
    x = op.tensor()
    names = [op.text(*each) for each in (("recurrent_activation", "sigmoid"), ("cell_activation", "tanh"))]
    plain = [*names, op.text("activation", "tanh")] == ["sigmoid", "tanh", "tanh"]
    acts = [
        _activation(op, "recurrent_activation", "sigmoid"),
        _activation(op, "cell_activation", "tanh"),
        _activation(op, "activation", "tanh"),
    ]
    directions = _directions(op)
    h, c = op.tensor("initial_h"), op.tensor("initial_c")
    hidden = op.known("weight_hh").shape[1]
    clip = op.number("clip") if op.has("clip") else None
    runs = []
    for place, backwards in enumerate(directions):
        tail = "_back" if place else ""
        w, r, b = _weights(op, tail)
        begin, size = [0, place * hidden], [x.shape[1], hidden]
        starts = [each if len(directions) == 1 else each.slice_by_size(begin, size) for each in (h, c)]
        peephole = op.known(f"peephole{tail}") if op.has(f"peephole{tail}") else None
        cell = lstm_cell(w, r, b, starts[0], starts[1], acts, plain, peephole, clip)
        runs.append(run(cell, x, backwards, last_states=op.used(2)))
    return _finished(op, runs, 2)


def _gru(op: Op) -> list[Tensor]:
    if op.truth("reset_after"):
        raise LoadError("a GRU whose reset comes after the product: no source settles where its two biases go")
    (backwards,) = _directions(op)
    acts = _activation(op, "recurrent_activation", "sigmoid"), _activation(op, "activation", "tanh")
    w, r, b = _weights(op)
    if op.has("input_bias"):
        more = op.known("input_bias")
        b = more if b is None else b + more
    return _finished(op, [run(gru_cell(w, r, b, op.tensor("initial_h"), *acts), op.tensor(), backwards, True)], 1)


def _rnn(op: Op) -> list[Tensor]:
    (backwards,) = _directions(op)
    activation = _activation(op, "activation", "tanh")
    cell = rnn_cell(*_weights(op), op.tensor("initial_h"), activation, op.text("activation", "tanh") == "tanh")
    return _finished(op, [run(cell, op.tensor(), backwards, False)], 1)


RULES: dict[str, Rule] = {"gru": _gru, "lstm": _lstm, "rnn": _rnn}
