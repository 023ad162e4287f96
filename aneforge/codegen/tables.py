"""Activation tables as the constants hold them: 64 halfwords of fp16, the knots being those of the simulator.

=========  ==============================================================
halfword   meaning (enums.json, ``lut``)
=========  ==============================================================
0, 1       x at the first and at the last knot
2, 3       value below and value above
4 to 36    33 knots
37 to 42   slopes and scales: here slope and start of the line below, the
           same of the line above, knots for each unit of x, and a number
           for what is done with x before and after (U103)
43 to 63   zero
=========  ==============================================================

The first 37 halfwords are published, and so is their meaning; of the six behind them only "slopes and scale constants"
is, so that no table is word-exact yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from aneforge.errors import UnknownNameError
from aneforge.sim.tables import Knots, knots_of, tabulated
from aneforge.targets import target
from aneforge.targets.assumed import compile_fact

__all__ = ["TableBytes", "activation_of", "table_bytes"]

_KNOTS = 33
_FIRST_KNOT = 4
_WORDS = 64
_LONG_TABLE = 2048
"""Bytes of a table on h13, which rounds it up; 128 on the others."""

_FORMS = ("direct", "odd", "exp2", "log2", "sqrt", "r_sqrt", "invert", "sin", "cos")
"""What is done with x before and after the table; its place in this list is halfword 42 (U103)."""
_ODD = ("tanh", "erf")
_SAME_TABLE = {"high_precision_sigmoid": "sigmoid"}


@dataclass(frozen=True)
class TableBytes:
    """A table of the constants; ``evidence`` is ``hash`` or ``sampled``, as for packed weights."""

    data: bytes
    evidence: str


def table_bytes(activation: str, generation: str) -> TableBytes:
    """The table of an activation for a generation (``h13``)."""
    if activation not in tabulated():
        raise UnknownNameError(
            f"{activation}: no knots of its table are known; choose one: {', '.join(sorted(tabulated()))}"
        )
    words = _words(_SAME_TABLE.get(activation, activation), _table_set(generation))
    return TableBytes(words + bytes(_size(generation) - len(words)), "sampled")


def activation_of(data: bytes, generation: str) -> str | None:
    """The activation that a table is; None for one that we do not know. Tables are compared by their ends and knots,
    and among equals by all of their bytes: sine and cosine have the same knots."""
    table, tables = data[: 2 * _WORDS], _table_set(generation)
    if len(table) < 2 * _WORDS or any(data[2 * _WORDS :]):
        return None
    names = [name for name in tabulated() if name not in _SAME_TABLE]
    equals = [name for name in names if _ends_and_knots(_words(name, tables)) == _ends_and_knots(table)]
    return next((name for name in equals if _words(name, tables) == table), equals[0] if equals else None)


def _size(generation: str) -> int:
    return _LONG_TABLE if generation == "h13" else 2 * _WORDS


@cache
def _table_set(generation: str) -> str:
    return str(compile_fact(target(generation), "table_set").value)


@cache
def _words(activation: str, tables: str) -> bytes:
    knots = knots_of(activation, tables)
    words = np.zeros(_WORDS, np.float16)
    words[0], words[1] = knots.first, knots.last
    words[2], words[3] = _outside(activation, knots)
    words[_FIRST_KNOT : _FIRST_KNOT + _KNOTS] = knots.values[-1]  # a shorter table stays at its last knot
    words[_FIRST_KNOT : _FIRST_KNOT + len(knots.values)] = knots.values
    words[37:41] = *knots.below, *knots.above
    words[41] = (len(knots.values) - 1) / (knots.last - knots.first)
    words[42] = _FORMS.index(_form(activation))
    return words.tobytes()


def _outside(activation: str, knots: Knots) -> tuple[float, float]:
    """What the function is far below and far above; without an end of its own, its first and last knot."""
    if activation == "sigmoid":
        return 0.0, 1.0
    if _form(activation) == "odd":
        return -1.0, 1.0
    return float(knots.values[0]), float(knots.values[-1])


def _form(activation: str) -> str:
    if activation in _ODD:
        return "odd"
    return activation if activation in _FORMS else "direct"


def _ends_and_knots(table: bytes) -> bytes:
    return table[:4] + table[2 * _FIRST_KNOT : 2 * (_FIRST_KNOT + _KNOTS)]
