"""Recurrent layers by the common names. All gates are in one weight; each op fixes their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aneforge.errors import LoadError
from aneforge.formats.forms.recurrent import USUAL, Cell, by_gate, recurrence
from aneforge.formats.ops.elementwise import ACTIVATIONS
from aneforge.formats.values import Array, NoForm
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

_ORDER = {"RNN": "n", "GRU": "rnz", "LSTM": "ifog"}
_DIRECTIONS = {"forward": [False], "reverse": [True], "backward": [True], "bidirectional": [False, True]}


def _cell(
    kind: str, weights: Mapping[str, Array | None], names: Sequence[str], start: Sequence[Tensor], clip: float | None
) -> Cell:
    unknown = [name for name in names if name not in ACTIVATIONS]
    if unknown:
        raise LoadError(f"activation {unknown[0]!r} is not supported; choose one: {', '.join(ACTIVATIONS)}")
    bias, peepholes = weights["bias"], weights["peephole"]
    bias = bias.sum(axis=0) if bias is not None and bias.ndim == 2 else bias
    w, r, b = (by_gate(values, _ORDER[kind]) for values in (weights["weight_ih"], weights["weight_hh"], bias))
    return Cell(
        kind,
        w,
        r,
        start,
        [ACTIVATIONS[name] for name in names],
        b,
        usual=list(names) == USUAL[kind],
        peepholes=by_gate(peepholes if peepholes is not None and peepholes.any() else None, "ifo"),
        cell_clip=clip,
    )


def _layer(
    kind: str,
    x: Tensor,
    starts: Sequence[Tensor],
    weights: Sequence[Mapping[str, Array | None]],
    names: Sequence[str],
    direction: str,
    output_sequence: bool,
    clip: float | None = None,
) -> list[Tensor]:
    if direction not in _DIRECTIONS:
        raise LoadError(f"direction is {direction!r}; choose one: {', '.join(_DIRECTIONS)}")
    directions = _DIRECTIONS[direction]
    hidden = weights[0]["weight_hh"]
    assert hidden is not None
    runs = []
    for place, backwards in enumerate(directions):
        if weights[place]["weight_ih"] is None or weights[place]["weight_hh"] is None:
            raise LoadError("the weights of the second direction are missing; the op needs them")
        states, size = starts, hidden.shape[1]
        if len(directions) > 1:
            states = [start.slice_by_size([0, place * size], [start.shape[0], size]) for start in starts]
        runs.append(recurrence(_cell(kind, weights[place], names, states, clip), x, backwards))
    final_states = [_side_by_side([ends[i] for _, ends in runs]) for i in range(len(starts))]
    sequence = _side_by_side([outputs for outputs, _ in runs])
    return [sequence if output_sequence else final_states[0].expand_dims(0), *final_states]


def _side_by_side(values: Sequence[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else af.concat(list(values), axis=values[0].ndim - 1)


def _rnn(
    x: Tensor,
    initial_h: Tensor,
    weight_ih: Array,
    weight_hh: Array,
    bias: Array | None = None,
    direction: str = "forward",
    output_sequence: bool = False,
    activation: str = "tanh",
) -> list[Tensor]:
    weights = {"weight_ih": weight_ih, "weight_hh": weight_hh, "bias": bias, "peephole": None}
    return _layer("RNN", x, [initial_h], [weights], [activation], direction, output_sequence)


def _gru(
    x: Tensor,
    initial_h: Tensor,
    weight_ih: Array,
    weight_hh: Array,
    bias: Array | None = None,
    input_bias: Array | None = None,
    direction: str = "forward",
    output_sequence: bool = False,
    recurrent_activation: str = "sigmoid",
    activation: str = "tanh",
    reset_after: bool = False,
) -> list[Tensor]:
    if reset_after:
        raise NoForm("reset_after is not supported: no source says where its two biases are added; set it to false")
    if input_bias is not None:
        bias = input_bias if bias is None else (bias.sum(axis=0) if bias.ndim == 2 else bias) + input_bias
    weights = {"weight_ih": weight_ih, "weight_hh": weight_hh, "bias": bias, "peephole": None}
    return _layer("GRU", x, [initial_h], [weights], [recurrent_activation, activation], direction, output_sequence)


def _lstm(
    x: Tensor,
    initial_h: Tensor,
    initial_c: Tensor,
    weight_ih: Array,
    weight_hh: Array,
    bias: Array | None = None,
    peephole: Array | None = None,
    weight_ih_back: Array | None = None,
    weight_hh_back: Array | None = None,
    bias_back: Array | None = None,
    peephole_back: Array | None = None,
    direction: str = "forward",
    output_sequence: bool = False,
    recurrent_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    activation: str = "tanh",
    clip: float | None = None,
) -> list[Tensor]:
    forth = {"weight_ih": weight_ih, "weight_hh": weight_hh, "bias": bias, "peephole": peephole}
    back = {"weight_ih": weight_ih_back, "weight_hh": weight_hh_back, "bias": bias_back, "peephole": peephole_back}
    names = [recurrent_activation, cell_activation, activation]
    return _layer("LSTM", x, [initial_h, initial_c], [forth, back], names, direction, output_sequence, clip)


OPS: dict[str, Callable[..., object]] = {"gru": _gru, "lstm": _lstm, "rnn": _rnn}
