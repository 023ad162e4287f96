"""Recurrent layers over [sequence, batch, features, 1, 1]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreml.network.blob import Blob, Layer
from aneforge.frontends.coreml.network.pointwise import activation
from aneforge.frontends.coreml.network.weights import numbers_of
from aneforge.frontends.ops.recurrent import Cell, gru_cell, lstm_cell, rnn_cell, run
from aneforge.frontends.values import shaped
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

__all__ = ["LAYERS"]

_BOUNDED = ("sigmoid", "tanh", "sigmoidHard", "scaledTanh", "softsign")
_REACH = 50.0  # what goes into an activation is held to


def _function(params: Any) -> Callable[[Tensor], Tensor]:
    """An activation; what goes into one that has no bounds of its own is held to -50 to 50."""
    plain = activation(params)
    if params.WhichOneof("NonlinearityType") in _BOUNDED:
        return plain
    return lambda x: plain(x.clip(-_REACH, _REACH))


def _named(params: Sequence[Any], names: tuple[str, ...]) -> bool:
    return tuple(each.WhichOneof("NonlinearityType") for each in params) == names


def _sequence(layer: Layer, features: int) -> Tensor:
    shape = layer.x.shape
    if len(shape) != 5 or shape[2:] != (features, 1, 1):
        raise LoadError(f"it takes [sequence, batch, {features}, 1, 1], not {list(shape)}")
    return shaped(layer.x.full(), shape[:3])


def _start(layer: Layer, place: int, batch: int, hidden: int) -> Tensor:
    if place < len(layer.inputs):
        return shaped(layer.inputs[place].full(), (batch, hidden))
    return const(np.zeros((batch, hidden)))


def _given(layer: Layer, runs: Sequence[tuple[Tensor, list[Tensor]]], all_steps: bool) -> list[Blob]:
    """The outputs, then the states of each direction after its last step."""
    outputs = [found if all_steps else states[0].expand_dims(0) for found, states in runs]
    joined = outputs[0] if len(outputs) == 1 else af.concat(outputs, axis=2)
    found = [Blob(joined, (*joined.shape, 1, 1))]
    for _, states in runs:
        found += [Blob(each, (1, *each.shape, 1, 1)) for each in states]
    return found


def _simple(layer: Layer) -> list[Blob]:
    features, hidden = int(layer.inputVectorSize), int(layer.outputVectorSize)
    x = _sequence(layer, features)
    w = numbers_of(layer.weightMatrix, (hidden, features), "the weight")
    r = numbers_of(layer.recursionMatrix, (hidden, hidden), "the recursion matrix")
    b = numbers_of(layer.biasVector, (hidden,), "the bias") if layer.hasBiasVector else None
    plain = _named([layer.activation], ("tanh",))
    cell = rnn_cell(w, r, b, _start(layer, 1, x.shape[1], hidden), _function(layer.activation), plain)
    return _given(layer, [run(cell, x, layer.reverseInput, False)], layer.sequenceOutput)


def _stacked(layer: Any, names: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([numbers_of(getattr(layer, name), shape, f"its {name}") for name in names])


def _gru(layer: Layer) -> list[Blob]:
    features, hidden = int(layer.inputVectorSize), int(layer.outputVectorSize)
    x = _sequence(layer, features)
    gates = ("reset", "output", "update")
    w = _stacked(layer, [f"{each}GateWeightMatrix" for each in gates], (hidden, features))
    r = _stacked(layer, [f"{each}GateRecursionMatrix" for each in gates], (hidden, hidden))
    b = _stacked(layer, [f"{each}GateBiasVector" for each in gates], (hidden,)) if layer.hasBiasVectors else None
    inner, outer = (_function(each) for each in layer.activations)
    cell = gru_cell(w, r, b, _start(layer, 1, x.shape[1], hidden), inner, outer)
    return _given(layer, [run(cell, x, layer.reverseInput, True)], layer.sequenceOutput)


def _lstm_cell(
    layer: Layer, weights: Any, acts: Sequence[Any], features: int, hidden: int, states: list[Tensor]
) -> Cell:
    told = layer.params.params
    if told.coupledInputAndForgetGate:
        raise LoadError("an LSTM whose input and forget gates are one")
    if len(acts) != 3:
        raise LoadError(f"{len(acts)} activations; an LSTM has three")
    gates = ("inputGate", "forgetGate", "outputGate", "blockInput")
    w = _stacked(weights, [f"{each}WeightMatrix" for each in gates], (hidden, features))
    r = _stacked(weights, [f"{each}RecursionMatrix" for each in gates], (hidden, hidden))
    b = _stacked(weights, [f"{each}BiasVector" for each in gates], (hidden,)) if told.hasBiasVectors else None
    if told.forgetBias:
        b = np.zeros(4 * hidden) if b is None else b.astype(np.float64)
        b[hidden : 2 * hidden] += 1.0
    peep = (
        _stacked(weights, [f"{each}PeepholeVector" for each in gates[:3]], (hidden,))
        if told.hasPeepholeVectors
        else None
    )
    clip = float(told.cellClipThreshold)
    held = clip if 0 < clip < 50000.0 else None
    functions = [_function(each) for each in acts]
    plain = _named(acts, ("sigmoid", "tanh", "tanh"))
    return lstm_cell(w, r, b, states[0], states[1], functions, plain, peep, held)


def _lstm(layer: Layer) -> list[Blob]:
    features, hidden = int(layer.inputVectorSize), int(layer.outputVectorSize)
    x = _sequence(layer, features)
    both = layer.kind == "biDirectionalLSTM"
    weights = list(layer.weightParams) if both else [layer.weightParams]
    acts = [layer.activationsForwardLSTM, layer.activationsBackwardLSTM] if both else [layer.activations]
    if len(weights) != len(acts):
        raise LoadError(f"weights of {len(weights)} directions")
    runs = []
    for place, (own, functions) in enumerate(zip(weights, acts, strict=True)):
        states = [_start(layer, 1 + 2 * place + i, x.shape[1], hidden) for i in range(2)]
        cell = _lstm_cell(layer, own, functions, features, hidden, states)
        backwards = bool(place) if both else bool(layer.reverseInput)
        runs.append(run(cell, x, backwards, last_states=layer.outputs > 1))
    return _given(layer, runs, layer.params.params.sequenceOutput)


LAYERS = {
    "biDirectionalLSTM": _lstm,
    "gru": _gru,
    "simpleRecurrent": _simple,
    "uniDirectionalLSTM": _lstm,
}
