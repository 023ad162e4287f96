"""Weights in the forms that a chip streams as they are: written from fp16, with no data to calibrate on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from aneforge.graph.encoding import SMALLEST_NORMAL, Encoded
from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target
from aneforge.targets.streams import native_streams

__all__ = ["Encoder", "encode", "encoders_for", "is_worth_encoding"]

_LEAST = 1024  # numbers: below that a table and its look-up cost more than they save
_MOST_KEPT = 0.5  # a sparse form pays from half zeros on (compression.json auto_threshold)
_BLOCK = 32
_ROUNDS = 12


@dataclass(frozen=True)
class Encoder:
    """One form: its name here, the encoding of compression.json that decides which chips stream it, and how."""

    name: str
    stream: str
    write: Callable[[np.ndarray], Encoded]
    """A weight [outputs, ...] of fp16 to its form."""
    pays: Callable[[np.ndarray], bool] = lambda weight: True
    """Whether a weight has what the form needs."""
    bits: int = 0
    """Of a palette's index, which a chip must read too."""
    stand_in: Callable[[tuple[int, ...]], Encoded] | None = None
    """A weight of a shape in this form with other numbers, for estimates, which depend on the form only; None where
    they depend on the numbers."""


def _int8(weight: np.ndarray) -> Encoded:
    """Symmetric, one scale for each output: the only form that every chip with int8 reads (N51: zero point 0)."""
    numbers = weight.astype(np.float64)
    peaks = np.abs(numbers).reshape(len(numbers), -1).max(axis=1)
    scale = np.maximum(peaks / 127, SMALLEST_NORMAL).astype(np.float16)
    spread = scale.astype(np.float64).reshape(-1, *(1,) * (numbers.ndim - 1))
    return Encoded.affine(np.clip(np.rint(numbers / spread), -127, 127).astype(np.int8), scale, axis=0)


def _blockwise(weight: np.ndarray) -> Encoded:
    """Symmetric int8, one scale for each run of 32 numbers along the second axis."""
    numbers = weight.astype(np.float64)
    outputs, inputs, *rest = numbers.shape
    blocks = numbers.reshape(outputs, inputs // _BLOCK, _BLOCK, *rest)
    peaks = np.abs(blocks).max(axis=(2, *range(3, blocks.ndim)))
    scale = np.maximum(peaks / 127, SMALLEST_NORMAL).astype(np.float16)
    scale = scale.reshape(outputs, inputs // _BLOCK, *(1,) * len(rest))
    spread = np.repeat(scale.astype(np.float64), _BLOCK, axis=1)
    return Encoded.blockwise(np.clip(np.rint(numbers / spread), -127, 127).astype(np.int8), scale)


def _int8_stand_in(shape: tuple[int, ...]) -> Encoded:
    return Encoded.affine(np.ones(shape, np.int8), np.ones(shape[0], np.float16), axis=0)


def _blockwise_stand_in(shape: tuple[int, ...]) -> Encoded:
    outputs, inputs, *rest = shape
    scale = np.ones((outputs, inputs // _BLOCK, *(1,) * len(rest)), np.float16)
    return Encoded.blockwise(np.ones(shape, np.int8), scale)


def _palette_stand_in(bits: int) -> Callable[[tuple[int, ...]], Encoded]:
    return lambda shape: Encoded.palette(np.ones(shape, np.uint8), np.arange(1 << bits, dtype=np.float16), bits)


def _palette(bits: int) -> Callable[[np.ndarray], Encoded]:
    def write(weight: np.ndarray) -> Encoded:
        patterns = np.ascontiguousarray(weight, np.float16).view(np.uint16)
        table = _table(np.bincount(patterns.reshape(-1), minlength=1 << 16), 1 << bits)
        order, values = _all_halves()
        nearest = np.zeros(1 << 16, np.uint8)
        nearest[order] = np.searchsorted((table[1:] + table[:-1]) / 2, values)
        return Encoded.palette(nearest[patterns], table.astype(np.float16), bits)

    return write


@cache
def _all_halves() -> tuple[np.ndarray, np.ndarray]:
    """The bit patterns of every finite fp16 number in the order of their values, and the values."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    values = patterns.view(np.float16).astype(np.float64)
    order = np.argsort(values, kind="stable")  # infinities at the ends, NaN behind them
    order = order[np.isfinite(values[order])]
    return order, values[order]


def _table(counts: np.ndarray, entries: int) -> np.ndarray:
    """Entries in order, from how often each fp16 number occurs: even steps over the range at first, then a few times
    each is moved to the mean of the numbers nearest to it. Nothing is drawn, so the same weight has the same table."""
    order, values = _all_halves()
    often = counts[order]
    used = np.flatnonzero(often)
    heads, sums = (np.concatenate([[0.0], np.cumsum(counts)]) for counts in (often, often * values))
    table = np.linspace(values[used[0]], values[used[-1]], entries)
    for _ in range(_ROUNDS):
        edges = np.searchsorted(values, (table[1:] + table[:-1]) / 2)
        edges = np.concatenate([[0], edges, [values.size]])
        many = np.diff(heads[edges])
        means = np.diff(sums[edges]) / np.maximum(many, 1)
        table = np.sort(np.where(many > 0, means, table))
    return table.astype(np.float16).astype(np.float64)


def _sparse(weight: np.ndarray) -> Encoded:
    """Zeros that are there already; none are made."""
    mask = weight != 0
    return Encoded.sparse(mask, weight[mask])


def _in_blocks(weight: np.ndarray) -> bool:
    return weight.ndim >= 2 and weight.shape[1] % _BLOCK == 0


def _mostly_zeros(weight: np.ndarray) -> bool:
    return int(np.count_nonzero(weight)) <= _MOST_KEPT * weight.size


_ENCODERS = (
    Encoder("int8", "int8", _int8, stand_in=_int8_stand_in),
    Encoder("lut8", "int4", _palette(8), bits=8, stand_in=_palette_stand_in(8)),
    Encoder("lut6", "int4", _palette(6), bits=6, stand_in=_palette_stand_in(6)),
    Encoder("lut4", "int4", _palette(4), bits=4, stand_in=_palette_stand_in(4)),
    Encoder("blockwise", "blockwise", _blockwise, _in_blocks, stand_in=_blockwise_stand_in),
    Encoder("sparse", "sparse", _sparse, _mostly_zeros),
)


def encoders_for(target: Target) -> tuple[Encoder, ...]:
    """The forms that a chip streams without folding them to fp16; a target outside the families has none."""
    if target.family5 is None:
        return ()
    streams, bits = native_streams(target.family5), compile_fact(target, "palette_bits").value or ()
    return tuple(
        encoder for encoder in _ENCODERS if encoder.stream in streams and (not encoder.bits or encoder.bits in bits)
    )


def encode(weight: np.ndarray, encoder: Encoder) -> Encoded | None:
    """A weight in one form, or None where that form does not pay for it."""
    return encoder.write(weight) if weight.size >= _LEAST and encoder.pays(weight) else None


def is_worth_encoding(weight: np.ndarray) -> bool:
    """Whether a weight has enough numbers for a compressed form."""
    return weight.size >= _LEAST
