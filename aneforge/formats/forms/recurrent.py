"""LSTM, GRU and RNN layers: an op of the graph where it means the same, otherwise every step written out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from aneforge.formats.forms.products import linear
from aneforge.formats.values import NoForm, Value, as_tensor
from aneforge.graph import builders as af
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

Activation = Callable[[Tensor], Tensor]
Gates = Mapping[str, Value]

_MOST_STEPS = 1024
GATES = {"RNN": "n", "GRU": "rzn", "LSTM": "ifgo"}
"""The gates of each kind in the order of the graph's ops: input, forget, cell, output; reset, update, new."""
USUAL = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
"""The activations of each kind in the graph's ops, and in every format where nothing else is said."""


@dataclass
class Cell:
    """One direction of one layer. Weights and biases are by gate: ``w`` [hidden, features] and ``b`` act on the input,
    ``r`` [hidden, hidden] and ``c`` on the state."""

    kind: str
    w: Gates
    r: Gates
    start: Sequence[Tensor]
    activations: Sequence[Activation]
    """The functions of the gates, of the cell's input and of its output; as many as the kind has."""
    b: Gates = field(default_factory=dict)
    c: Gates = field(default_factory=dict)
    usual: bool = True
    """Whether the activations are sigmoid and tanh, as the graph's ops have them."""
    peepholes: Gates = field(default_factory=dict)
    clip: float | None = None
    """The largest magnitude that enters an activation."""
    cell_clip: float | None = None
    """The largest magnitude of a cell's state."""
    coupled: bool = False
    """An LSTM whose forget gate is 1 minus its input gate."""
    reset_after: bool = False
    """A GRU whose reset gate multiplies the product instead of the state."""

    @property
    def hidden(self) -> int:
        return next(iter(self.r.values())).shape[0]


def by_gate(values: Value | None, order: str) -> dict[str, Value]:
    """The rows of a weight or bias for each gate, in the order of the file; empty if there are no values."""
    if values is None:
        return {}
    size = values.shape[0] // len(order)
    if isinstance(values, Tensor):
        parts = af.split(values, len(order), 0) if len(order) > 1 else [values]
        return dict(zip(order, parts, strict=True))
    array = np.asarray(values)
    return {gate: array[i * size : (i + 1) * size] for i, gate in enumerate(order)}


def recurrence(
    cell: Cell, x: Tensor, backwards: bool = False, lengths: Sequence[int] | None = None
) -> tuple[Tensor, list[Tensor]]:
    """All outputs of [steps, batch, features] in the order of the input, and the states after the last step.

    Where an op of the graph gives the outputs, the last cell state still comes from steps that are written out. They
    are removed if nothing reads it."""
    if x.shape[0] > _MOST_STEPS:
        raise NoForm(f"the sequence has {x.shape[0]:,} steps; the limit of a recurrent layer is {_MOST_STEPS:,}")
    uneven_lengths = None if lengths is None or all(length == x.shape[0] for length in lengths) else list(lengths)
    x = _reverse_steps(x, uneven_lengths) if backwards else x
    native = _native_op(cell, x) if uneven_lengths is None else None
    if native is None:
        outputs, states = _steps(cell, x, uneven_lengths)
    else:
        outputs, states = native, [native[x.shape[0] - 1]]
        if len(cell.start) > 1:
            states.append(_steps(cell, x, uneven_lengths)[1][1])
    return (_reverse_steps(outputs, uneven_lengths) if backwards else outputs), states


def _reverse_steps(x: Tensor, lengths: Sequence[int] | None) -> Tensor:
    return x.reverse([0]) if lengths is None else af.reverse_sequence(x, lengths, 0, 1)


def _native_op(cell: Cell, x: Tensor) -> Tensor | None:
    """The op of the graph for this cell; None if the op lacks something that the cell has."""
    order = GATES[cell.kind]
    special = cell.peepholes or cell.coupled or cell.clip is not None or cell.cell_clip is not None
    if special or not cell.usual:
        return None
    if cell.kind == "GRU":
        inner = cell.c.get("n")  # the op of the graph has no bias in the part that the reset gate multiplies
        if not cell.reset_after or isinstance(inner, Tensor) or (inner is not None and np.asarray(inner).any()):
            return None
    weights = [_join_gates([gates[gate] for gate in order]) for gates in (cell.w, cell.r)]
    zeros = np.zeros(cell.hidden)
    bias = _join_gates([_sum(cell.b.get(gate, zeros), cell.c.get(gate, zeros)) for gate in order])
    form = {"RNN": af.rnn, "GRU": af.gru, "LSTM": af.lstm}[cell.kind]
    return form(x, *weights, bias, *cell.start)


def _join_gates(parts: Sequence[Value]) -> Value:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    return af.concat([as_tensor(part) for part in parts], axis=0)


def _sum(a: Value, b: Value) -> Value:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return as_tensor(a) + as_tensor(b)
    return np.asarray(a, np.float64) + np.asarray(b, np.float64)


def _steps(cell: Cell, x: Tensor, lengths: Sequence[int] | None) -> tuple[Tensor, list[Tensor]]:
    """Write out every step. The part that needs no state is one product for all steps. Each gate has a product of its
    own, because a slice within a row is a lossy copy on some chips."""
    steps, samples, features = x.shape
    rows = x.reshape(steps * samples, features)
    early = {
        gate: linear(rows, cell.w[gate], _early_bias(cell, gate)).reshape(steps, samples, cell.hidden)
        for gate in GATES[cell.kind]
    }
    step = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}[cell.kind](cell)
    states, outputs = list(cell.start), []
    for index in range(steps):
        new = step({gate: part[index] for gate, part in early.items()}, *states)
        if lengths is None:
            outputs.append(new[0])
            states = list(new)
            continue
        goes_on = np.array(lengths) > index
        going, over = (const(mask.astype(np.float64).reshape(-1, 1)) for mask in (goes_on, ~goes_on))
        outputs.append(new[0] * going)
        states = [fresh * going + old * over for fresh, old in zip(new, states, strict=True)]
    return af.stack(outputs), states


def _early_bias(cell: Cell, gate: str) -> Value | None:
    """The sum of both biases of a gate, without the one that a GRU adds to the state's part of the new state."""
    biases = [cell.b.get(gate), None if cell.kind == "GRU" and gate == "n" else cell.c.get(gate)]
    present = [bias for bias in biases if bias is not None]
    return _sum(present[0], present[1]) if len(present) > 1 else present[0] if present else None


def _clip_input(cell: Cell, x: Tensor) -> Tensor:
    return x if cell.clip is None else x.clip(-cell.clip, cell.clip)


def _rnn_step(cell: Cell) -> Callable[..., tuple[Tensor, ...]]:
    (function,) = cell.activations
    return lambda early, h: (function(_clip_input(cell, early["n"] + linear(h, cell.r["n"]))),)


def _gru_step(cell: Cell) -> Callable[..., tuple[Tensor, ...]]:
    gate, new = cell.activations
    bias = cell.c.get("n")

    def step(early: Mapping[str, Tensor], h: Tensor) -> tuple[Tensor, ...]:
        update = gate(_clip_input(cell, early["z"] + linear(h, cell.r["z"])))
        reset = gate(_clip_input(cell, early["r"] + linear(h, cell.r["r"])))
        late = reset * linear(h, cell.r["n"], bias) if cell.reset_after else linear(reset * h, cell.r["n"], bias)
        return ((1.0 - update) * new(_clip_input(cell, early["n"] + late)) + update * h,)

    return step


def _lstm_step(cell: Cell) -> Callable[..., tuple[Tensor, ...]]:
    gate, enter, leave = cell.activations
    peepholes = {name: as_tensor(values) for name, values in cell.peepholes.items()}

    def add_peephole(x: Tensor, name: str, state: Tensor) -> Tensor:
        return x + peepholes[name] * state if name in peepholes else x

    def step(early: Mapping[str, Tensor], h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        z = {name: early[name] + linear(h, cell.r[name]) for name in GATES["LSTM"]}
        admit = gate(_clip_input(cell, add_peephole(z["i"], "i", c)))
        forget = 1.0 - admit if cell.coupled else gate(_clip_input(cell, add_peephole(z["f"], "f", c)))
        fresh = forget * c + admit * enter(_clip_input(cell, z["g"]))
        fresh = fresh if cell.cell_clip is None else fresh.clip(-cell.cell_clip, cell.cell_clip)
        shown = gate(_clip_input(cell, add_peephole(z["o"], "o", fresh)))
        return shown * leave(fresh), fresh

    return step
