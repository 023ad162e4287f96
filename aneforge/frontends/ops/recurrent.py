"""Recurrent layers by the common names. All gates are in one weight; each op fixes their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends.forms.recurrent import Cell, by_gate, recurrence
from aneforge.frontends.importer.op import Op, Rule
from aneforge.frontends.ops.elementwise import ACTIVATIONS
from aneforge.frontends.values import NoForm
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES", "SETTINGS"]

_ORDER = {"RNN": "n", "GRU": "rnz", "LSTM": "ifog"}
SETTINGS = {
    "RNN": [("activation", "tanh")],
    "GRU": [("recurrent_activation", "sigmoid"), ("activation", "tanh")],
    "LSTM": [("recurrent_activation", "sigmoid"), ("cell_activation", "tanh"), ("activation", "tanh")],
}
"""The arguments that name activations, and their defaults."""

_DIRECTIONS = {"forward": [False], "reverse": [True], "backward": [True], "bidirectional": [False, True]}


def _weights(op: Op, tail: str) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    bias = op.known(f"bias{tail}") if op.has(f"bias{tail}") else None
    bias = bias.sum(axis=0) if bias is not None and bias.ndim == 2 else bias
    if op.has("input_bias"):
        bias = op.known("input_bias") if bias is None else bias + op.known("input_bias")
    return op.known(f"weight_ih{tail}"), op.known(f"weight_hh{tail}"), bias


def _cell(op: Op, kind: str, tail: str, start: Sequence[Tensor]) -> Cell:
    names = [op.text(*setting) for setting in SETTINGS[kind]]
    unknown = [name for name in names if name not in ACTIVATIONS]
    if unknown:
        raise LoadError(f"activation {unknown[0]!r} is not supported; choose one: {', '.join(ACTIVATIONS)}")
    w, r, b = (by_gate(values, _ORDER[kind]) for values in _weights(op, tail))
    peepholes = op.known(f"peephole{tail}") if op.has(f"peephole{tail}") else None
    return Cell(
        kind,
        w,
        r,
        start,
        [ACTIVATIONS[name] for name in names],
        b,
        usual=names == [usual for _, usual in SETTINGS[kind]],
        peepholes=by_gate(peepholes if peepholes is not None and peepholes.any() else None, "ifo"),
        cell_clip=op.number("clip") if op.has("clip") else None,
    )


def _layer(kind: str) -> Rule:
    states = ["initial_h", "initial_c"] if kind == "LSTM" else ["initial_h"]

    def rule(op: Op) -> list[Tensor]:
        if kind == "GRU" and op.truth("reset_after"):
            raise NoForm(
                "reset_after is not supported: no source says where its two biases are added; set it to false"
            )
        direction = op.text("direction", "forward")
        if direction not in _DIRECTIONS:
            raise LoadError(f"direction is {direction!r}; choose one: {', '.join(_DIRECTIONS)}")
        directions = _DIRECTIONS[direction]
        starts = [op.tensor(name) for name in states]
        hidden = op.known("weight_hh").shape[1]
        runs = []
        for place, backwards in enumerate(directions):
            initial_states = [
                start if len(directions) == 1 else _state_of_direction(start, place, hidden) for start in starts
            ]
            runs.append(recurrence(_cell(op, kind, "_back" if place else "", initial_states), op.tensor(), backwards))
        final_states = [_side_by_side([ends[i] for _, ends in runs]) for i in range(len(states))]
        sequence = _side_by_side([outputs for outputs, _ in runs])
        return [sequence if op.truth("output_sequence") else final_states[0].expand_dims(0), *final_states]

    return rule


def _state_of_direction(state: Tensor, place: int, hidden: int) -> Tensor:
    return state.slice_by_size([0, place * hidden], [state.shape[0], hidden])


def _side_by_side(values: Sequence[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else af.concat(list(values), axis=values[0].ndim - 1)


RULES: dict[str, Rule] = {"gru": _layer("GRU"), "lstm": _layer("LSTM"), "rnn": _layer("RNN")}
