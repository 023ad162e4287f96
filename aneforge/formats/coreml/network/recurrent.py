"""Recurrent layers over [sequence, batch, features, 1, 1]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats import forms
from aneforge.formats.coreml.network.pointwise import activation
from aneforge.formats.coreml.network.values import Blob, NetworkLayer, numbers_of
from aneforge.formats.forms.recurrent import USUAL, Cell, recurrence
from aneforge.formats.values import Value, as_tensor, shaped
from aneforge.graph.tensor import Tensor

_BOUNDED = ("sigmoid", "tanh", "sigmoidHard", "scaledTanh", "softsign")
_REACH = 50.0  # the limit of what goes into an unbounded activation
_NO_CLIP = 50000.0  # the threshold of a cell without a limit


def _function(params: Any) -> Callable[[Tensor], Tensor]:
    """An activation. The input of an unbounded one is clipped to -50 to 50."""
    function = activation(params)
    if params.WhichOneof("NonlinearityType") in _BOUNDED:
        return function
    return lambda x: function(x.clip(-_REACH, _REACH))


def _are_usual(kind: str, params: Sequence[Any]) -> bool:
    return [function.WhichOneof("NonlinearityType") for function in params] == USUAL[kind]


def _sequence(layer: NetworkLayer, features: int) -> Tensor:
    shape = layer.x.shape
    if len(shape) != 5 or shape[2:] != (features, 1, 1):
        raise LoadError(f"the input has shape {list(shape)}; expected [sequence, batch, {features}, 1, 1]")
    return shaped(layer.x.full(), shape[:3])


def _initial_state(layer: NetworkLayer, place: int, batch: int, hidden: int) -> Tensor:
    if place < len(layer.inputs):
        return shaped(layer.inputs[place].full(), (batch, hidden))
    return as_tensor(np.zeros((batch, hidden)))


def _results(layer: NetworkLayer, runs: Sequence[tuple[Tensor, list[Tensor]]], all_steps: bool) -> list[Blob]:
    """The outputs, then the states of each direction after its last step."""
    outputs = [sequence if all_steps else states[0].expand_dims(0) for sequence, states in runs]
    joined = forms.joined(outputs, 2)
    results = [Blob(joined, (*joined.shape, 1, 1))]
    for _, states in runs:
        results += [Blob(state, (1, *state.shape, 1, 1)) for state in states]
    return results


def _by_gate(layer: Any, names: str, gates: Mapping[str, str], shape: tuple[int, ...]) -> dict[str, Value]:
    """Weights that the file stores gate by gate; ``names`` is the pattern of the field's name."""
    return {
        gate: numbers_of(getattr(layer, names.format(field)), shape, names.format(field))
        for gate, field in gates.items()
    }


_GRU_GATES = {"r": "reset", "z": "update", "n": "output"}


def _one_state(layer: NetworkLayer) -> list[Blob]:
    """A GRU, or the simplest cell."""
    features, hidden = int(layer.inputVectorSize), int(layer.outputVectorSize)
    x = _sequence(layer, features)
    b: dict[str, Value] = {}
    if layer.kind == "gru":
        kind, acts = "GRU", layer.activations
        w = _by_gate(layer, "{}GateWeightMatrix", _GRU_GATES, (hidden, features))
        r = _by_gate(layer, "{}GateRecursionMatrix", _GRU_GATES, (hidden, hidden))
        if layer.hasBiasVectors:
            b = _by_gate(layer, "{}GateBiasVector", _GRU_GATES, (hidden,))
    else:
        kind, acts = "RNN", [layer.activation]
        w = {"n": numbers_of(layer.weightMatrix, (hidden, features), "the weight")}
        r = {"n": numbers_of(layer.recursionMatrix, (hidden, hidden), "the recursion matrix")}
        if layer.hasBiasVector:
            b = {"n": numbers_of(layer.biasVector, (hidden,), "the bias")}
    start, functions = [_initial_state(layer, 1, x.shape[1], hidden)], [_function(function) for function in acts]
    cell = Cell(kind, w, r, start, functions, b, usual=_are_usual(kind, acts))
    return _results(layer, [recurrence(cell, x, layer.reverseInput)], layer.sequenceOutput)


_LSTM_GATES = {"i": "inputGate", "f": "forgetGate", "o": "outputGate", "g": "blockInput"}


def _lstm_cell(
    layer: NetworkLayer, weights: Any, acts: Sequence[Any], features: int, hidden: int, states: list[Tensor]
) -> Cell:
    settings = layer.params.params
    if len(acts) != 3:
        raise LoadError(f"the layer has {len(acts)} activations; expected 3")
    b = _by_gate(weights, "{}BiasVector", _LSTM_GATES, (hidden,)) if settings.hasBiasVectors else {}
    if settings.forgetBias:
        b = b or {gate: np.zeros(hidden) for gate in _LSTM_GATES}
        b["f"] = np.asarray(b["f"], np.float64) + 1.0
    peeped = {gate: _LSTM_GATES[gate] for gate in "ifo"} if settings.hasPeepholeVectors else {}
    clip = float(settings.cellClipThreshold)
    return Cell(
        "LSTM",
        _by_gate(weights, "{}WeightMatrix", _LSTM_GATES, (hidden, features)),
        _by_gate(weights, "{}RecursionMatrix", _LSTM_GATES, (hidden, hidden)),
        states,
        [_function(function) for function in acts],
        b,
        usual=_are_usual("LSTM", acts),
        peepholes=_by_gate(weights, "{}PeepholeVector", peeped, (hidden,)),
        cell_clip=clip if 0 < clip < _NO_CLIP else None,
        coupled=bool(settings.coupledInputAndForgetGate),
    )


def _lstm(layer: NetworkLayer) -> list[Blob]:
    features, hidden = int(layer.inputVectorSize), int(layer.outputVectorSize)
    x = _sequence(layer, features)
    bidirectional = layer.kind == "biDirectionalLSTM"
    weights = list(layer.weightParams) if bidirectional else [layer.weightParams]
    acts = [layer.activationsForwardLSTM, layer.activationsBackwardLSTM] if bidirectional else [layer.activations]
    if len(weights) != len(acts):
        raise LoadError(f"the layer has weights for {len(weights)} directions; expected {len(acts)}")
    runs = []
    for place, (direction_weights, functions) in enumerate(zip(weights, acts, strict=True)):
        states = [_initial_state(layer, 1 + 2 * place + i, x.shape[1], hidden) for i in range(2)]
        cell = _lstm_cell(layer, direction_weights, functions, features, hidden, states)
        runs.append(recurrence(cell, x, bool(place) if bidirectional else bool(layer.reverseInput)))
    return _results(layer, runs, layer.params.params.sequenceOutput)


LAYERS = {
    "biDirectionalLSTM": _lstm,
    "gru": _one_state,
    "simpleRecurrent": _one_state,
    "uniDirectionalLSTM": _lstm,
}
