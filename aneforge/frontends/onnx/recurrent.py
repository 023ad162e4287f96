"""LSTM, GRU and RNN of ONNX: weights by direction and gate, and the activations of a node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.frontends import forms
from aneforge.frontends.forms.recurrent import Activation, Cell, by_gate, recurrence
from aneforge.frontends.values import Value, as_tensor
from aneforge.graph.tensor import Tensor

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


def _layer(kind: str) -> Callable[..., list[Tensor]]:
    def layer(
        x: Tensor,
        w: Value,
        r: Value,
        b: Value | None = None,
        lengths: list[int] | None = None,
        initial_h: Value | None = None,
        initial_c: Value | None = None,
        peepholes: Value | None = None,
        direction: str = "forward",
        layout: bool = False,
        activations: list[str] | None = None,
        activation_alpha: list[float] | None = None,
        activation_beta: list[float] | None = None,
        clip: float | None = None,
        input_forget: bool = False,
        linear_before_reset: bool = False,
    ) -> list[Tensor]:
        """Return all states and the last ones. The input is [steps, samples, features], or samples first."""
        series = forms.transposed(x, [1, 0, 2]) if layout else x
        states = (initial_h, initial_c) if kind == "LSTM" else (initial_h,)
        starts = [_start(state, layout) for state in states]
        functions = _Activations(kind, activations or [], activation_alpha or [], activation_beta or [])
        runs = []
        for place in range(w.shape[0]):
            weights = [_direction_part(value, place) for value in (w, r, b, peepholes)]
            cell = _cell(kind, place, weights, starts, series.shape[1], functions)
            cell.clip, cell.coupled, cell.reset_after = clip, input_forget, linear_before_reset
            runs.append(recurrence(cell, series, direction == "reverse" or place == 1, lengths))
        outputs = forms.stacked([outputs for outputs, _ in runs], 1)
        last_states = [forms.stacked([ends[i] for _, ends in runs], 0) for i in range(len(starts))]
        if layout:
            outputs = forms.transposed(outputs, [2, 0, 1, 3])
            last_states = [forms.transposed(state, [1, 0, 2]) for state in last_states]
        return [outputs, *last_states]

    return layer


def _start(value: Value | None, samples_first: bool) -> Tensor | None:
    if value is None:
        return None
    return forms.transposed(as_tensor(value), [1, 0, 2]) if samples_first else as_tensor(value)


def _direction_part(value: Value | None, place: int) -> Any:
    """Return the part of one direction."""
    if value is None:
        return None
    return value[place] if isinstance(value, Tensor) else np.asarray(value)[place]


def _cell(
    kind: str,
    place: int,
    weights: Sequence[Any],
    starts: Sequence[Tensor | None],
    samples: int,
    functions: _Activations,
) -> Cell:
    w, r, biases, peepholes = weights
    order = _ORDER[kind]
    bias_by_gate = by_gate(biases, order + order.upper())
    activations, names = functions.of_direction(place)
    zeros = as_tensor(np.zeros((samples, r.shape[1])))
    return Cell(
        kind,
        by_gate(w, order),
        by_gate(r, order),
        [zeros if start is None else start[place] for start in starts],
        activations,
        {gate: bias_by_gate[gate] for gate in order} if bias_by_gate else {},
        {gate: bias_by_gate[gate.upper()] for gate in order} if bias_by_gate else {},
        usual=names == _USUAL[kind],
        peepholes=by_gate(peepholes, _PEEPHOLES),
    )


@dataclass(frozen=True)
class _Activations:
    """The functions of all directions by name, and two lists with their settings."""

    kind: str
    names: Sequence[str]
    alpha: Sequence[float]
    beta: Sequence[float]

    def of_direction(self, place: int) -> tuple[list[Activation], list[str]]:
        usual = _USUAL[self.kind]
        names = [name.lower() for name in self.names] or usual
        names = names if len(names) >= len(usual) * (place + 1) else names * (place + 1)
        numbers = {"a": list(self.alpha), "b": list(self.beta)}
        functions: list[Activation] = []
        for name in names:
            if name not in _ACTIVATIONS:
                raise LoadError(f"activation {name!r} is not known; choose one: {', '.join(_ACTIVATIONS)}")
            settings = {key: float(numbers[key].pop(0)) for key in _SETTINGS.get(name, "") if numbers[key]}
            functions.append(partial(_ACTIVATIONS[name], **settings))
        direction = slice(len(usual) * place, len(usual) * (place + 1))
        return functions[direction], names[direction]


FUNCTIONS: dict[str, Callable[..., Any]] = {kind.lower() + "_layer": _layer(kind) for kind in _USUAL}
