"""LSTM, GRU and RNN of ONNX: weights by direction and gate, and the activations of a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends.forms.recurrent import Activation, Cell, by_gate, recurrence
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import as_tensor, whole_numbers
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

_ORDER = {"RNN": "n", "GRU": "zrn", "LSTM": "iofg"}
_USUAL = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
_PEEPHOLES = "iof"

_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "affine": lambda x, a=1.0, b=0.0: x.linear_activation(a, b),
    "elu": lambda x, a=1.0: x.elu(a),
    "hardsigmoid": lambda x, a=0.2, b=0.5: x.sigmoid_hard(a, b),
    "leakyrelu": lambda x, a=0.01: x.leaky_relu(a),
    "relu": Tensor.relu,
    "scaledtanh": lambda x, a=1.0, b=1.0: x.scaled_tanh(a, b),
    "sigmoid": Tensor.sigmoid,
    "softplus": Tensor.softplus,
    "softsign": Tensor.softsign,
    "tanh": Tensor.tanh,
}
_SETTINGS = {"affine": "ab", "elu": "a", "hardsigmoid": "ab", "leakyrelu": "a", "scaledtanh": "ab"}
"""Which settings an activation takes from the node's lists, in order."""


def _recurrence(
    node: Node, x: Value, w: Value, r: Value, b: Value | None = None, *optional: Value | None
) -> list[Tensor]:
    """Return all states and the last ones. The input is [steps, samples, features], or samples first."""
    lengths, hidden_state, cell_state, peepholes = (*optional, *(None,) * (4 - len(optional)))
    samples_first = bool(node.attr("layout", 0))
    series = as_tensor(x).transpose([1, 0, 2]) if samples_first else as_tensor(x)
    known_lengths = None if lengths is None else whole_numbers(lengths, "input 'sequence_lens'")
    starts = [_start(state, samples_first) for state in (hidden_state, *([cell_state] if node.kind == "LSTM" else []))]
    runs = []
    for place in range(w.shape[0]):
        cell = _cell(
            node, place, [_direction_part(value, place) for value in (w, r, b, peepholes)], starts, series.shape[1]
        )
        backwards = node.attr("direction", "forward") == "reverse" or place == 1
        runs.append(recurrence(cell, series, backwards, known_lengths))
    outputs = af.stack([states for states, _ in runs], axis=1)
    last_states = [
        af.stack([states[i] for _, states in runs], axis=0) for i in range(min(len(starts), node.outputs - 1))
    ]
    if samples_first:
        outputs, last_states = outputs.transpose([2, 0, 1, 3]), [state.transpose([1, 0, 2]) for state in last_states]
    return [outputs, *last_states][: node.outputs]


def _start(value: Value | None, samples_first: bool) -> Tensor | None:
    if value is None:
        return None
    return as_tensor(value).transpose([1, 0, 2]) if samples_first else as_tensor(value)


def _direction_part(value: Value | None, place: int) -> Any:
    """Return the part of one direction."""
    if value is None:
        return None
    return value[place] if isinstance(value, Tensor) else np.asarray(value)[place]


def _cell(node: Node, place: int, weights: Sequence[Any], starts: Sequence[Tensor | None], samples: int) -> Cell:
    w, r, biases, peepholes = weights
    order = _ORDER[node.kind]
    bias_by_gate = by_gate(biases, order + order.upper())
    zeros = const(np.zeros((samples, r.shape[1])))
    activations, names = _activations(node, place)
    clip = node.attr("clip")
    return Cell(
        node.kind,
        by_gate(w, order),
        by_gate(r, order),
        [zeros if start is None else start[place] for start in starts],
        activations,
        {gate: bias_by_gate[gate] for gate in order} if bias_by_gate else {},
        {gate: bias_by_gate[gate.upper()] for gate in order} if bias_by_gate else {},
        usual=names == _USUAL[node.kind],
        peepholes=by_gate(peepholes, _PEEPHOLES),
        clip=None if clip is None else float(clip),
        coupled=bool(node.attr("input_forget", 0)),
        reset_after=bool(node.attr("linear_before_reset", 0)),
    )


def _activations(node: Node, place: int) -> tuple[list[Activation], list[str]]:
    """Return the activations of one direction, and their names. Two lists hold the settings of all directions."""
    usual = _USUAL[node.kind]
    stated = [name.decode() if isinstance(name, bytes) else str(name) for name in node.attr("activations", [])]
    names = [name.lower() for name in stated] or usual
    names = names if len(names) >= len(usual) * (place + 1) else names * (place + 1)
    numbers = {"a": list(node.attr("activation_alpha", [])), "b": list(node.attr("activation_beta", []))}
    functions: list[Activation] = []
    for name in names:
        if name not in _ACTIVATIONS:
            raise LoadError(f"activation {name!r} is not known; choose one: {', '.join(_ACTIVATIONS)}")
        settings = {key: float(numbers[key].pop(0)) for key in _SETTINGS.get(name, "") if numbers[key]}
        function = _ACTIVATIONS[name]
        functions.append(lambda x, function=function, settings=settings: function(x, **settings))
    direction = slice(len(usual) * place, len(usual) * (place + 1))
    return functions[direction], names[direction]


RULES: dict[str, Rule] = {"GRU": _recurrence, "LSTM": _recurrence, "RNN": _recurrence}
