"""State that lives from call to call: a buffer, and what writes and reads it around its end (U90)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.node import Shape, composed, entry, make, op
from aneforge.graph.ops.leaf import shape_of
from aneforge.graph.ops.shape import concat, gather
from aneforge.graph.shapes import extent, positive
from aneforge.graph.traits import GraphTrait as T

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


_BUFFER = "a buffer of the engine; make the state an input and an output"


@op("live_state", "", "size name", T.LEAF, gate="state", no_mil=_BUFFER, backend="state | name")
class LIVE_STATE:
    """A buffer that a program keeps between calls; zeros before the first one."""

    @staticmethod
    def shape(*, size, name):
        return size

    @staticmethod
    def reference(*, size, name):
        return np.zeros(size)


def _written(x: Shape, state: Shape, offset: int) -> list[int]:
    """The columns of the state, then those of x, in the order of the result."""
    width = state[-1]
    places = list(range(width))
    for i in range(x[-1]):
        places[(offset + i) % width] = width + i
    return places


@op(
    "ring_write", "x state", "offset", gate="ring_buffer_writer", native_layer=True, no_mil=_BUFFER, diverges_as="move"
)
class RING_WRITE:
    """The state with the columns of x put from an offset on, around its end."""

    @staticmethod
    def shape(x, state, offset):
        if x[:-1] != state[:-1] or x[-1] > state[-1]:
            raise GraphError(f"x {list(x)} does not fit the state {list(state)}; all axes but the last must be equal")
        return state

    @staticmethod
    def reference(x, state, offset):
        both = np.concatenate([state, x], axis=-1)
        return np.take(both, _written(x.shape, state.shape, offset), axis=-1)

    @staticmethod
    @composed
    def derivative(x, state, offset):
        return gather(concat([state, x], axis=-1), _written(x.shape, state.shape, offset), axis=-1)


def _read(state: Shape, offset: int, size: int) -> list[int]:
    return [(offset + i) % state[-1] for i in range(size)]


@op("ring_read", "state", "offset size", gate="ring_buffer_reader", no_mil=_BUFFER, diverges_as="move")
class RING_READ:
    """Columns of a state from an offset on, around its end."""

    @staticmethod
    def shape(state, offset, size):
        if size > state[-1]:
            raise GraphError(f"{size} columns were asked for; the state has {state[-1]}")
        return (*state[:-1], size)

    @staticmethod
    def reference(state, offset, size):
        return np.take(state, _read(state.shape, offset, size), axis=-1)

    @staticmethod
    @composed
    def derivative(state, offset, size):
        return gather(state, _read(state.shape, offset, size), axis=-1)


def _check_buffer(state: Tensor) -> None:
    if state.op not in ("live_state", "ring_write"):
        raise GraphError(f"the buffer comes from {state.op}; it must be af.live_state(...) or what ring_write gives")


@entry
def live_state(shape: Sequence[int], name: str) -> Tensor:
    """A buffer that a model keeps between its calls. It starts with zeros; ``ring_write`` changes it."""
    if not isinstance(name, str) or not name:
        raise GraphError(f"name is {name!r}; give the state a name")
    return make(LIVE_STATE, (), {"size": shape_of(shape), "name": name}, name=name)


@entry
def ring_write(x: Tensor, state: Tensor, offset: int = 0) -> Tensor:
    """The state with ``x`` written from column ``offset`` on. The next call starts with the result."""
    _check_buffer(state)
    return make(RING_WRITE, (x, state), {"offset": extent(offset, "offset")})


@entry
def ring_read(state: Tensor, offset: int, size: int) -> Tensor:
    """``size`` columns of a state from ``offset`` on; those behind the last are the first."""
    _check_buffer(state)
    return make(RING_READ, (state,), {"offset": extent(offset, "offset"), "size": positive(size, "size")})
