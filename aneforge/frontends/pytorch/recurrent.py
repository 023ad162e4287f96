"""LSTM, GRU and RNN of PyTorch: all layers and directions, and their last states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aneforge.errors import LoadError
from aneforge.frontends.forms.recurrent import Cell, by_gate, recurrence
from aneforge.frontends.pytorch.node import Node, Rule
from aneforge.frontends.pytorch.products import stored
from aneforge.frontends.pytorch.values import numeric
from aneforge.frontends.values import NoForm
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

_ORDER = {"RNN": "n", "GRU": "rzn", "LSTM": "ifgo"}


def _layer(kind: str, activations: Sequence[Callable[[Tensor], Tensor]], usual: bool = True) -> Rule:
    states = 2 if kind == "LSTM" else 1

    def cell(weights: Sequence[Any], start: Sequence[Tensor]) -> Cell:
        if any(isinstance(weight, Tensor) for weight in weights):
            raise NoForm("the weights of the recurrent layer are computed; the engine needs fixed weights")
        gates = [by_gate(stored(weight), _ORDER[kind]) for weight in weights]
        b, c = gates[2:4] if len(gates) == 4 else ({}, {})
        return Cell(kind, gates[0], gates[1], start, activations, b, c, usual=usual, reset_after=True)

    def rule(
        node: Node,
        x: Any,
        start: Any,
        weights: Sequence[Any],
        biases: bool,
        layers: int,
        dropout: Any,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> list[Any]:
        starts = [numeric(state) for state in (start if isinstance(start, (list, tuple)) else [start])]
        directions, width = 2 if bidirectional else 1, 4 if biases else 2
        if len(starts) != states or len(weights) != int(layers) * directions * width:
            raise NoForm(
                "packed sequences and projected states are not supported; export the layer with padded sequences and "
                "proj_size=0"
            )
        if train and float(dropout or 0.0) > 0:
            raise LoadError("training mode drops elements between layers; use module.eval() before exporting")
        series = numeric(x).transpose([1, 0, 2]) if batch_first else numeric(x)
        lasts: list[list[Tensor]] = [[] for _ in starts]
        for layer in range(int(layers)):
            outputs = []
            for direction in range(directions):
                place = layer * directions + direction
                layer_cell = cell(weights[place * width : (place + 1) * width], [state[place] for state in starts])
                output, ends = recurrence(layer_cell, series, backwards=bool(direction))
                outputs.append(output)
                for last, end in zip(lasts, ends, strict=True):
                    last.append(end)
            series = outputs[0] if len(outputs) == 1 else af.concat(outputs, axis=2)
        ends = [af.stack(last, axis=0) if k + 1 in node.used_results else None for k, last in enumerate(lasts)]
        return [series.transpose([1, 0, 2]) if batch_first else series, *ends]

    return rule


RULES: dict[str, Rule] = {
    "gru.input": _layer("GRU", [Tensor.sigmoid, Tensor.tanh]),
    "lstm.input": _layer("LSTM", [Tensor.sigmoid, Tensor.tanh, Tensor.tanh]),
    "rnn_relu.input": _layer("RNN", [Tensor.relu], usual=False),
    "rnn_tanh.input": _layer("RNN", [Tensor.tanh]),
}
