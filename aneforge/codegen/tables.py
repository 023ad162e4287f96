"""Activation tables as the constants hold them: 64 halfwords, the knots being those of the simulator.

=========  ===================================================================
halfword   meaning (enums.json, ``lut``)
=========  ===================================================================
0, 1       x at which the lower and the upper tail end, fp16 as all up to 40
2, 3       value below and value above them
4 to 36    33 knots
37 to 40   slope and start of the line below the knots, and of that above them
41, 42     whole numbers: knots for each unit of x as a power of two, and how x
           leads to the knots (U103)
43 to 63   zero
=========  ===================================================================

The sigmoid, gelu and swish have their published hashes. The last two halfwords of every other table are our reading,
and so are most ends and tails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from aneforge.chips import target
from aneforge.chips.assumed import compile_fact
from aneforge.chips.limits import published_table
from aneforge.codegen.dialect import dialect_of
from aneforge.codegen.forms import ActivationTable
from aneforge.errors import UnknownNameError
from aneforge.sim.tables import PUBLISHED, knots_of, tabulated

_KNOTS = 33
_FIRST_KNOT = 4
_WORDS = 64
_HALVES = 41
"""Halfwords that are fp16 numbers, up to the tails."""
_FORMS = ("unknown", "direct", "odd", "exp2", "log2", "sqrt", "r_sqrt", "invert", "sin", "cos")
"""How x leads to the knots; the place in this list is halfword 42, of which only the 1 of sigmoid is read (U103)."""
_ODD = ("tanh", "erf")
_SAME_TABLE = {"high_precision_sigmoid": "sigmoid"}


@dataclass(frozen=True)
class TableBytes:
    """A table of the constants; ``evidence`` is ``hash``, ``formula`` or ``sampled``, as for packed weights."""

    data: bytes
    evidence: str


def table_bytes(activation: str, generation: str) -> TableBytes:
    """The table of an activation for a generation (``h13``)."""
    if activation not in tabulated():
        raise UnknownNameError(
            f"{activation}: no knots of its table are known; choose one: {', '.join(sorted(tabulated()))}"
        )
    name = _SAME_TABLE.get(activation, activation)
    words = _words(name, _table_set(generation))
    dialect = dialect_of(generation)
    evidence = dialect.table_evidence if name == "sigmoid" else "sampled"
    if name in PUBLISHED:
        evidence = "hash" if generation in published_table(name)["targets"] else "formula"
    return TableBytes(words + bytes(dialect.table_bytes - len(words)), evidence)


def bounds_bytes(table: ActivationTable) -> bytes:
    """The table of a clamp or of a slope below zero, as published programs of all generations have it. A clamp is the
    smaller with a number, or the larger, or both (both is our inference)."""
    halves = np.zeros(_WORDS, np.float16)
    bits = halves.view(np.uint16)
    if table.slope is not None:
        halves[:2], halves[37] = (-np.inf, np.inf), table.slope
    else:
        halves[:4] = table.low, table.high, table.low, table.high
        halves[_FIRST_KNOT : _FIRST_KNOT + _KNOTS] = table.low if np.isfinite(table.low) else 0
        halves[37] = 1
    halves[39] = 1
    bits[41], bits[42] = 0x0040, 1
    return halves.tobytes()


def bounds_of(data: bytes) -> ActivationTable | None:
    """What a table of :func:`bounds_bytes` does; None for any other table."""
    if len(data) < 2 * _WORDS:
        return None
    halves = np.frombuffer(data[: 2 * _WORDS], np.float16)
    low, high = float(halves[2]), float(halves[3])
    for table in (ActivationTable(slope=float(halves[37])), ActivationTable(low, high)):
        if bounds_bytes(table) == data[: 2 * _WORDS]:
            return table
    return None


def activation_of(data: bytes, generation: str) -> str | None:
    """The activation that a table is; None for one that we do not know. Tables are compared by their ends and knots,
    and among equals by all of their bytes: sine and cosine have the same knots."""
    table, tables = data[: 2 * _WORDS], _table_set(generation)
    if len(table) < 2 * _WORDS or any(data[2 * _WORDS :]):
        return None
    names = [name for name in tabulated() if name not in _SAME_TABLE]
    equals = [name for name in names if _ends_and_knots(_words(name, tables)) == _ends_and_knots(table)]
    return next((name for name in equals if _words(name, tables) == table), equals[0] if equals else None)


@cache
def _table_set(generation: str) -> str:
    return str(compile_fact(target(generation), "table_set").value)


@cache
def _words(activation: str, tables: str) -> bytes:
    knots = knots_of(activation, tables)
    halves = np.full(_HALVES, knots.values[-1], np.float16)  # a shorter table stays at its last knot
    halves[:4] = knots.below.end, knots.above.end, knots.below.value, knots.above.value
    halves[_FIRST_KNOT : _FIRST_KNOT + len(knots.values)] = knots.values
    halves[37:] = knots.below.slope, knots.below.start, knots.above.slope, knots.above.start
    words = np.zeros(_WORDS, np.uint16)
    words[:_HALVES] = halves.view(np.uint16)
    words[41] = round(math.log2((len(knots.values) - 1) / (knots.last - knots.first)))
    words[42] = _FORMS.index(_form(activation))
    return words.tobytes()


def _form(activation: str) -> str:
    if activation in _ODD:
        return "odd"
    return activation if activation in _FORMS else "direct"


def _ends_and_knots(table: bytes) -> bytes:
    return table[:4] + table[2 * _FIRST_KNOT : 2 * (_FIRST_KNOT + _KNOTS)]
