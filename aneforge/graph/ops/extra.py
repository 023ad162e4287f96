"""Ops that no engine has: users can write them, and phase 0 of the compiler rewrites them into ops that run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import composed, entry, make, op
from aneforge.graph.ops.leaf import as_tensor, shape_of
from aneforge.graph.shapes import axis_of, number, positive, rank_is, same_shape, whole_number
from aneforge.graph.traits import STEP
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


_DRAWN = "numbers drawn at run time: make them an input"


@op("dropout", "x", "rate seed", T.DRAWN, no_mil="numbers drawn at run time; export the model for inference")
class DROPOUT:
    """Elements zeroed at random and the rest scaled up; rate 0 is the identity."""

    shape = same_shape

    @staticmethod
    def reference(x, rate, seed):
        keep = np.random.default_rng(seed).random(x.shape) >= rate
        return x * keep / (1 - rate)

    @staticmethod
    def derivative(g, y, x, rate, seed):
        return [make(DROPOUT, (g,), {"rate": rate, "seed": seed})]  # one seed, one choice of elements


@op("random_uniform", "", "size low high seed", T.LEAF, T.DRAWN, gate="random", no_mil=_DRAWN)
class RANDOM_UNIFORM:
    """Uniform random numbers."""

    @staticmethod
    def shape(*, size, low, high, seed):
        return size

    @staticmethod
    def reference(*, size, low, high, seed):
        return np.random.default_rng(seed).uniform(low, high, size)


@op("random_normal", "", "size mean std seed", T.LEAF, T.DRAWN, no_mil=_DRAWN)
class RANDOM_NORMAL:
    """Normal random numbers."""

    @staticmethod
    def shape(*, size, mean, std, seed):
        return size

    @staticmethod
    def reference(*, size, mean, std, seed):
        return np.random.default_rng(seed).normal(mean, std, size)


@op("one_hot", "x", "depth on off", no_derivative=STEP, diverges_as="move")
class ONE_HOT:
    """Whole numbers as rows with one mark, on a new last axis."""

    @staticmethod
    def shape(x, depth, on, off):
        return (*x, depth)

    @staticmethod
    def reference(x, depth, on, off):
        return np.where(x[..., None] == np.arange(depth), on, off)


@op("band_part", "x", "lower upper", diverges_as="move")
class BAND_PART:
    """A band of diagonals of each matrix, the rest zero; -1 keeps a whole side."""

    @staticmethod
    def shape(x, lower, upper):
        if len(x) < 2:
            raise GraphError("needs matrices on the last two axes")
        return x

    @staticmethod
    def reference(x, lower, upper):
        rows, columns = np.indices(x.shape[-2:])
        below = (lower < 0) | (rows - columns <= lower)
        above = (upper < 0) | (columns - rows <= upper)
        return np.where(below & above, x, 0.0)

    @staticmethod
    def derivative(g, y, x, lower, upper):
        return [make(BAND_PART, (g,), {"lower": lower, "upper": upper})]


@op("reverse_sequence", "x", "lengths seq_axis batch_axis", dtypes="same", diverges_as="move")
class REVERSE_SEQUENCE:
    """The first elements of each sequence in opposite order, by a fixed length per sequence."""

    @staticmethod
    def shape(x, lengths, seq_axis, batch_axis):
        if seq_axis == batch_axis:
            raise GraphError("the sequence and the batch are on one axis; they must be on two")
        if len(lengths) != x[batch_axis]:
            raise GraphError(f"needs one length per sequence ({x[batch_axis]}), not {len(lengths)}")
        if any(not 0 <= n <= x[seq_axis] for n in lengths):
            raise GraphError(f"every length must be 0 to {x[seq_axis]}")
        return x

    @staticmethod
    def reference(x, lengths, seq_axis, batch_axis):
        moved = np.moveaxis(x, (batch_axis, seq_axis), (0, 1)).copy()
        for i, n in enumerate(lengths):
            moved[i, :n] = moved[i, :n][::-1]
        return np.moveaxis(moved, (0, 1), (batch_axis, seq_axis))

    @staticmethod
    def derivative(g, y, x, lengths, seq_axis, batch_axis):
        return [reverse_sequence(g, lengths, seq_axis, batch_axis)]


@op("scatter", "x updates", "indices axis mode", diverges_as="move")
class SCATTER:
    """Slices of ``x`` along one axis replaced by, or added to, ``updates`` at fixed indices."""

    @staticmethod
    def shape(x, updates, indices, axis, mode):
        expected = (*x[:axis], len(indices), *x[axis + 1 :])
        if updates != expected:
            raise GraphError(f"updates of shape {list(updates)} must be {list(expected)}")
        if any(not 0 <= i < x[axis] for i in indices):
            raise GraphError(f"every index must be 0 to {x[axis] - 1}")
        if mode == "set" and len(set(indices)) != len(indices):
            raise GraphError("an index is set twice; use mode='add' or distinct indices")
        return x

    @staticmethod
    def reference(x, updates, indices, axis, mode):
        result = np.moveaxis(x, axis, 0).copy()
        moved = np.moveaxis(updates, axis, 0)
        for position, index in enumerate(indices):
            result[index] = moved[position] if mode == "set" else result[index] + moved[position]
        return np.moveaxis(result, 0, axis)

    @staticmethod
    def derivative(g, y, x, updates, indices, axis, mode):
        from aneforge.graph.ops.shape import gather

        kept = g if mode == "add" else scatter(g, indices, np.zeros(updates.shape), axis)
        return [kept, gather(g, indices, axis)]


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _recurrent_shape(gates: int, names: str) -> Any:
    @staticmethod
    def shape(x, w, r, b, h0, *rest, **_):
        rank_is(x, 3, "input")
        hidden = r[1] if len(r) == 2 else 0
        if w != (gates * hidden, x[2]) or r != (gates * hidden, hidden):
            raise GraphError(
                f"w must be [{gates}*hidden, {x[2]}] and r [{gates}*hidden, hidden], gates in order {names}"
            )
        if b != (gates * hidden,):
            raise GraphError(f"b of shape {list(b)} must be [{gates * hidden}]")
        for state in (h0, *rest):
            if state != (x[1], hidden):
                raise GraphError(f"a start state of shape {list(state)} must be [{x[1]}, {hidden}]")
        return x[0], x[1], hidden

    return shape


def _unrolled(x: Tensor, step: Callable[..., tuple[Tensor, ...]], *state: Tensor) -> Tensor:
    """Write out every step; a step takes the input at that step and the state, and gives the next state."""
    from aneforge.graph.ops.shape import stack

    outputs = []
    for number_ in range(x.shape[0]):
        state = step(x[number_], *state)
        outputs.append(state[0])
    return stack(outputs)


def _gates(z: Tensor, count: int) -> list[Tensor]:
    from aneforge.graph.ops.shape import split

    return split(z, count, axis=1)


@op("rnn", "x w r b h0", "", T.RECURRENT)
class RNN:
    """tanh(w x + r h + b), step by step; x is [steps, batch, features]."""

    shape = _recurrent_shape(1, "h")

    @staticmethod
    def reference(x, w, r, b, h0):
        h, outputs = h0, []
        for step in x:
            h = np.tanh(step @ w.T + h @ r.T + b)
            outputs.append(h)
        return np.stack(outputs)

    @staticmethod
    @composed
    def derivative(x, w, r, b, h0):
        return _unrolled(x, lambda step, h: ((step.linear(w, b) + h.linear(r)).tanh(),), h0)


@op("lstm", "x w r b h0 c0", "", T.RECURRENT)
class LSTM:
    """Long short-term memory; gates input, forget, cell, output."""

    shape = _recurrent_shape(4, "i f g o")

    @staticmethod
    def reference(x, w, r, b, h0, c0):
        h, c, outputs = h0, c0, []
        for step in x:
            i, f, g, o = np.split(step @ w.T + h @ r.T + b, 4, axis=1)
            c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
            h = _sigmoid(o) * np.tanh(c)
            outputs.append(h)
        return np.stack(outputs)

    @staticmethod
    @composed
    def derivative(x, w, r, b, h0, c0):
        def step(now, h, c):
            i, f, g, o = _gates(now.linear(w, b) + h.linear(r), 4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c

        return _unrolled(x, step, h0, c0)


@op("gru", "x w r b h0", "", T.RECURRENT)
class GRU:
    """Gated recurrent unit; gates reset, update, new, the reset applied after the recurrent product."""

    shape = _recurrent_shape(3, "r z n")

    @staticmethod
    def reference(x, w, r, b, h0):
        h, outputs = h0, []
        wr, wz, wn = np.split(w, 3)
        rr, rz, rn = np.split(r, 3)
        br, bz, bn = np.split(b, 3)
        for step in x:
            reset = _sigmoid(step @ wr.T + h @ rr.T + br)
            update = _sigmoid(step @ wz.T + h @ rz.T + bz)
            fresh = np.tanh(step @ wn.T + bn + reset * (h @ rn.T))
            h = (1 - update) * fresh + update * h
            outputs.append(h)
        return np.stack(outputs)

    @staticmethod
    @composed
    def derivative(x, w, r, b, h0):
        def step(now, h):
            (xr, xz, xn), (hr, hz, hn) = _gates(now.linear(w, b), 3), _gates(h.linear(r), 3)
            update = (xz + hz).sigmoid()
            fresh = (xn + (xr + hr).sigmoid() * hn).tanh()
            return ((1.0 - update) * fresh + update * h,)

        return _unrolled(x, step, h0)


@entry
def dropout(x: Tensor, rate: float = 0.5, seed: int = 0) -> Tensor:
    """Zero elements at random with probability ``rate`` and scale the rest."""
    share = number(rate, "rate")
    if not 0 <= share < 1:
        raise GraphError(f"dropout: rate is {share:g}; it must be at least 0 and below 1")
    return make(DROPOUT, (x,), {"rate": share, "seed": whole_number(seed, "seed")})


@entry
def random_uniform(shape: Sequence[int], low: float = 0.0, high: float = 1.0, seed: int = 0) -> Tensor:
    """A tensor of uniform random numbers."""
    bounds = number(low, "low"), number(high, "high")
    if bounds[0] > bounds[1]:
        raise GraphError(f"random_uniform: low {bounds[0]:g} is above high {bounds[1]:g}")
    attrs = {"size": shape_of(shape), "low": bounds[0], "high": bounds[1], "seed": whole_number(seed, "seed")}
    return make(RANDOM_UNIFORM, (), attrs)


@entry
def random_normal(shape: Sequence[int], mean: float = 0.0, std: float = 1.0, seed: int = 0) -> Tensor:
    """A tensor of normal random numbers."""
    attrs = {"size": shape_of(shape), "mean": number(mean, "mean"), "std": number(std, "std")}
    return make(RANDOM_NORMAL, (), {**attrs, "seed": whole_number(seed, "seed")})


@entry
def one_hot(x: Tensor, depth: int, on: float = 1.0, off: float = 0.0) -> Tensor:
    """Whole numbers in fp16 as marks on a new last axis."""
    attrs = {"depth": positive(depth, "depth"), "on": number(on, "on"), "off": number(off, "off")}
    return make(ONE_HOT, (x,), attrs)


@entry
def band_part(x: Tensor, lower: int, upper: int) -> Tensor:
    """Keep ``lower`` diagonals below and ``upper`` above the main one; -1 keeps a whole side."""
    return make(BAND_PART, (x,), {"lower": whole_number(lower, "lower"), "upper": whole_number(upper, "upper")})


@entry
def reverse_sequence(x: Tensor, lengths: Sequence[int], seq_axis: int = 1, batch_axis: int = 0) -> Tensor:
    """Reverse the first ``lengths[i]`` elements of sequence i."""
    rank = len(x.shape)
    attrs = {"lengths": tuple(whole_number(n, "length") for n in lengths), "seq_axis": axis_of(seq_axis, rank)}
    return make(REVERSE_SEQUENCE, (x,), {**attrs, "batch_axis": axis_of(batch_axis, rank)})


@entry
def scatter(x: Tensor, indices: Sequence[int], updates: Any, axis: int = 0, mode: str = "set") -> Tensor:
    """Replace (``mode="set"``) or add to (``"add"``) slices of ``x`` at fixed indices along ``axis``."""
    if mode not in ("set", "add"):
        raise GraphError(f"scatter: mode {mode!r} is unknown; choose one: set, add")
    attrs = {"indices": tuple(whole_number(i, "index") for i in indices), "axis": axis_of(axis, len(x.shape))}
    return make(SCATTER, (x, as_tensor(updates, "updates")), {**attrs, "mode": mode})


def _recurrent(declared: Any, x: Tensor, w: Any, r: Any, b: Any, states: dict[str, Any]) -> Tensor:
    operands = [x, as_tensor(w, "w"), as_tensor(r, "r"), as_tensor(b, "b")]
    hidden = operands[2].shape[-1]
    for name, state in states.items():
        operands.append(
            as_tensor(np.zeros((x.shape[1] if x.ndim > 1 else 1, hidden)) if state is None else state, name)
        )
    return make(declared, operands)


@entry
def rnn(x: Tensor, w: Any, r: Any, b: Any, h0: Any = None) -> Tensor:
    """All hidden states of a tanh recurrence over [steps, batch, features]."""
    return _recurrent(RNN, x, w, r, b, {"h0": h0})


@entry
def lstm(x: Tensor, w: Any, r: Any, b: Any, h0: Any = None, c0: Any = None) -> Tensor:
    """All hidden states of an LSTM; w [4H, F], r [4H, H], b [4H], gates in order i f g o."""
    return _recurrent(LSTM, x, w, r, b, {"h0": h0, "c0": c0})


@entry
def gru(x: Tensor, w: Any, r: Any, b: Any, h0: Any = None) -> Tensor:
    """All hidden states of a GRU; w [3H, F], r [3H, H], b [3H], gates in order r z n."""
    return _recurrent(GRU, x, w, r, b, {"h0": h0})
