"""LSTM, GRU and RNN: the graph's own recurrences where they mean the same, otherwise every step written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.frontends import forms
from aneforge.frontends.onnx.node import Node, Rule, Value
from aneforge.frontends.values import NoForm, as_tensor, whole_numbers
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["RULES"]

Array = np.ndarray
Activation = Callable[[Tensor], Tensor]

_MOST_STEPS = 1024
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}

_ACTIVATIONS: dict[str, Callable[[float | None, float | None], Activation]] = {
    "affine": lambda a, b: lambda x: x.linear_activation(1.0 if a is None else a, b or 0.0),
    "elu": lambda a, b: lambda x: x.elu(1.0 if a is None else a),
    "hardsigmoid": lambda a, b: lambda x: x.sigmoid_hard(0.2 if a is None else a, 0.5 if b is None else b),
    "leakyrelu": lambda a, b: lambda x: x.leaky_relu(0.01 if a is None else a),
    "relu": lambda a, b: Tensor.relu,
    "scaledtanh": lambda a, b: lambda x: x.scaled_tanh(1.0 if a is None else a, 1.0 if b is None else b),
    "sigmoid": lambda a, b: Tensor.sigmoid,
    "softplus": lambda a, b: Tensor.softplus,
    "softsign": lambda a, b: Tensor.softsign,
    "tanh": lambda a, b: Tensor.tanh,
}


@dataclass
class _Line:
    """One direction of one layer: its weights by gate, its start and how it goes."""

    kind: str
    w: Value  # [gates * hidden, features]
    r: Value  # [gates * hidden, hidden]
    b: Value | None  # [2 * gates * hidden]: for the input, and for the state
    start: list[Tensor]
    peepholes: Value | None
    activations: list[Activation]
    plain: bool
    clip: float | None
    coupled: bool
    reset_late: bool
    lengths: list[int] | None
    backward: bool

    @property
    def hidden(self) -> int:
        return self.r.shape[1]


def _cut(value: Value, begin: int, end: int) -> Value:
    """Rows of a known array or of a tensor."""
    if isinstance(value, Tensor):
        return forms.sliced(value, 0, begin, end)
    return np.asarray(value)[begin:end]


def _joined(parts: Sequence[Value]) -> Value:
    if all(isinstance(each, np.ndarray) for each in parts):
        return np.concatenate([np.asarray(each) for each in parts])
    return af.concat([as_tensor(each) for each in parts], axis=0)


def _gates(value: Value, count: int) -> list[Value]:
    size = value.shape[0] // count
    return [_cut(value, i * size, (i + 1) * size) for i in range(count)]


def _recurrence(node: Node, x: Value, w: Value, r: Value, b: Value | None = None, *rest: Value | None) -> list[Value]:
    """[steps, samples, features] (or samples first) to all states, and the last ones."""
    lengths, first, cell, peepholes = (*rest, *(None,) * (4 - len(rest)))
    given = as_tensor(x)
    samples_first = bool(node.attr("layout", 0))
    series = given.transpose([1, 0, 2]) if samples_first else given
    if series.shape[0] > _MOST_STEPS:
        raise NoForm(f"{series.shape[0]} steps; {_MOST_STEPS} are written out")
    known_lengths = None if lengths is None else whole_numbers(lengths, "the lengths of the sequences")
    if known_lengths is not None and all(each == series.shape[0] for each in known_lengths):
        known_lengths = None
    states = [_states(each, samples_first) for each in (first, *([cell] if node.kind == "LSTM" else []))]
    found = []
    for place in range(w.shape[0]):
        line = _line(node, place, (w, r, b, peepholes), states, series.shape[1], known_lengths)
        found.append(_run(line, series, cells=node.outputs > 2))
    return _results(node, found, samples_first)


def _states(value: Value | None, samples_first: bool) -> Tensor | None:
    if value is None:
        return None
    return as_tensor(value).transpose([1, 0, 2]) if samples_first else as_tensor(value)


def _line(
    node: Node,
    place: int,
    weights: tuple[Value, Value, Value | None, Value | None],
    states: Sequence[Tensor | None],
    samples: int,
    lengths: list[int] | None,
) -> _Line:
    def own(value: Value | None) -> Value | None:
        if value is None:
            return None
        return value[place] if isinstance(value, Tensor) else np.asarray(value)[place]

    w, r, b, peepholes = (own(each) for each in weights)
    assert w is not None
    assert r is not None
    hidden, direction = r.shape[1], node.attr("direction", "forward")
    zero = af.const(np.zeros((samples, hidden)))
    activations, plain = _activations(node, place)
    clip = node.attr("clip")
    return _Line(
        node.kind,
        w,
        r,
        b,
        [zero if each is None else each[place] for each in states],
        peepholes,
        activations,
        plain,
        None if clip is None else float(clip),
        bool(node.attr("input_forget", 0)),
        bool(node.attr("linear_before_reset", 0)),
        lengths,
        direction == "reverse" or place == 1,
    )


def _activations(node: Node, place: int) -> tuple[list[Activation], bool]:
    """Those of one direction, and whether they are the usual ones."""
    usual = _DEFAULTS[node.kind]
    told = list(node.attr("activations", []))
    named = [each.decode() if isinstance(each, bytes) else str(each) for each in told] or usual * (place + 1)
    named = named if len(named) >= len(usual) * (place + 1) else named * (place + 1)
    alphas, betas = list(node.attr("activation_alpha", [])), list(node.attr("activation_beta", []))
    found = []
    for at, each in enumerate(named):
        kind = each.lower()
        if kind not in _ACTIVATIONS:
            raise NoForm(f"a recurrence with {each!r}")
        takes_a = kind in ("affine", "elu", "hardsigmoid", "leakyrelu", "scaledtanh")
        takes_b = kind in ("affine", "hardsigmoid", "scaledtanh")
        alpha = float(alphas.pop(0)) if takes_a and alphas else None
        beta = float(betas.pop(0)) if takes_b and betas else None
        if len(usual) * place <= at < len(usual) * (place + 1):
            found.append(_ACTIVATIONS[kind](alpha, beta))
    own = [each.lower() for each in named[len(usual) * place : len(usual) * (place + 1)]]
    return found, own == [each.lower() for each in usual]


def _results(node: Node, found: list[tuple[Tensor, Tensor, Tensor | None]], samples_first: bool) -> list[Value]:
    """[steps, directions, samples, hidden] and [directions, samples, hidden]."""
    whole = af.stack([each[0] for each in found], axis=1)
    last = af.stack([each[1] for each in found], axis=0)
    results = [whole, last]
    if node.outputs > 2:
        results.append(af.stack([each[2] for each in found if each[2] is not None], axis=0))
    if samples_first:
        results = [results[0].transpose([2, 0, 1, 3]), *(each.transpose([1, 0, 2]) for each in results[1:])]
    return list(results[: node.outputs])


def _run(line: _Line, x: Tensor, cells: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """All states, the last one, and the last cell where it is asked for.

    Exporters name the cell whether it is read or not; if it is not, the steps that lead to it fall away."""
    if line.backward:
        x = x.reverse([0]) if line.lengths is None else af.reverse_sequence(x, line.lengths, 0, 1)
    native = _native(line, x)
    if native is None:
        whole, state, cell = _stepped(line, x)
    else:
        whole, state, cell = native, native[x.shape[0] - 1], _stepped(line, x)[2] if cells else None
    if line.backward:
        whole = whole.reverse([0]) if line.lengths is None else af.reverse_sequence(whole, line.lengths, 0, 1)
    return whole, state, cell


def _native(line: _Line, x: Tensor) -> Tensor | None:
    """The graph's own recurrence, if there is nothing in this one that it lacks."""
    if not line.plain or line.clip is not None or line.lengths is not None or line.peepholes is not None:
        return None
    count = _GATES[line.kind]
    w, r = _gates(line.w, count), _gates(line.r, count)
    bias = [np.zeros(line.hidden)] * (2 * count) if line.b is None else _gates(line.b, 2 * count)
    if line.kind == "GRU":
        late = bias[5]  # of the new state, inside what the reset weighs: the graph's has none there
        if not line.reset_late or isinstance(late, Tensor) or np.asarray(late).any():
            return None
    elif line.coupled:
        return None
    sums = [_plus(bias[i], bias[i + count]) for i in range(count)]
    order = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 2, 3, 1]}[line.kind]
    packed = [_joined([each[i] for i in order]) for each in (w, r, sums)]
    form = {"RNN": af.rnn, "GRU": af.gru, "LSTM": af.lstm}[line.kind]
    return form(x, *packed, *line.start)


def _plus(a: Value, b: Value) -> Value:
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return as_tensor(a) + as_tensor(b)
    return np.asarray(a, np.float64) + np.asarray(b, np.float64)


def _stepped(line: _Line, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Every step written out; the part that needs no state is one product for all of them. Each gate has a product of
    its own, because a slice within a row is a lossy copy on some chips."""
    steps, samples, features = x.shape
    flat = x.reshape(steps * samples, features)
    weights, biases = _gates(line.w, _GATES[line.kind]), _early_bias(line)
    early = [
        forms.linear(flat, weight, bias).reshape(steps, samples, line.hidden)
        for weight, bias in zip(weights, biases, strict=True)
    ]
    step = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}[line.kind](line)
    states, lines = list(line.start), []
    for at in range(steps):
        new = step([each[at] for each in early], *states)
        if line.lengths is not None:
            going = af.const((np.array(line.lengths) > at).astype(np.float64).reshape(-1, 1))
            over = af.const((np.array(line.lengths) <= at).astype(np.float64).reshape(-1, 1))
            lines.append(new[0] * going)
            states = [one * going + two * over for one, two in zip(new, states, strict=True)]
        else:
            lines.append(new[0])
            states = list(new)
    return af.stack(lines), states[0], states[1] if len(states) > 1 else None


def _early_bias(line: _Line) -> list[Value | None]:
    """Both biases of every gate, less the one that a GRU adds to the state's part of the new state."""
    count = _GATES[line.kind]
    if line.b is None:
        return [None] * count
    rows = _gates(line.b, 2 * count)
    late = count - (line.kind == "GRU")
    return [_plus(rows[i], rows[i + count]) if i < late else rows[i] for i in range(count)]


def _held(line: _Line, x: Tensor) -> Tensor:
    return x if line.clip is None else x.clip(-line.clip, line.clip)


def _rnn_step(line: _Line) -> Callable[..., tuple[Tensor, ...]]:
    (f,) = line.activations
    return lambda early, h: (f(_held(line, early[0] + forms.linear(h, line.r))),)


def _gru_step(line: _Line) -> Callable[..., tuple[Tensor, ...]]:
    rz, rr, rh = _gates(line.r, 3)
    bias = None if line.b is None else _gates(line.b, 6)[5]
    f, g = line.activations

    def step(early: Sequence[Tensor], h: Tensor) -> tuple[Tensor, ...]:
        update = f(_held(line, early[0] + forms.linear(h, rz)))
        reset = f(_held(line, early[1] + forms.linear(h, rr)))
        late = reset * forms.linear(h, rh, bias) if line.reset_late else forms.linear(reset * h, rh, bias)
        return ((1.0 - update) * g(_held(line, early[2] + late)) + update * h,)

    return step


def _lstm_step(line: _Line) -> Callable[..., tuple[Tensor, ...]]:
    r = _gates(line.r, 4)
    f, g, out = line.activations
    p = None if line.peepholes is None else [as_tensor(each) for each in _gates(line.peepholes, 3)]  # i o f

    def step(early: Sequence[Tensor], h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        i, o, forget, new = (part + forms.linear(h, weight) for part, weight in zip(early, r, strict=True))
        entry = f(_held(line, i if p is None else i + p[0] * c))
        kept = 1.0 - entry if line.coupled else f(_held(line, forget if p is None else forget + p[2] * c))
        cell = kept * c + entry * g(_held(line, new))
        shown = f(_held(line, o if p is None else o + p[1] * cell))
        return shown * out(cell), cell

    return step


RULES: dict[str, Rule] = {"GRU": _recurrence, "LSTM": _recurrence, "RNN": _recurrence}
