"""The forms that tuning and advice try on a weight: those that a chip streams, written without calibration data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from aneforge.codecs.encoding import encode as encode_array
from aneforge.codecs.flows import flow_of
from aneforge.graph.encoding import Encoded
from aneforge.targets.chip import Target

__all__ = ["Encoder", "encode", "encoders_for", "is_mostly_zeros", "is_worth_encoding", "stand_in"]

_LEAST = 1024  # numbers: below that a table and its look-up cost more than they save
_MOST_KEPT = 0.5  # a sparse form pays from half zeros on (compression.json auto_threshold)
_BLOCK = 32


@dataclass(frozen=True)
class Encoder:
    """One form: its name, how a weight is written in it, and which weights it pays for."""

    name: str
    write: Callable[[np.ndarray], Encoded]
    """A weight [outputs, ...] of fp16 to its form."""
    pays: Callable[[np.ndarray], bool] = lambda weight: True
    """Whether a weight has what the form needs."""
    bits: int = 0
    """Of a palette's index, which a chip must read too."""
    stand_in: Callable[[tuple[int, ...]], Encoded] | None = None
    """A weight of a shape in this form with other numbers, for estimates, which depend on the form only; None where
    they depend on the numbers."""


def _int8_stand_in(shape: tuple[int, ...]) -> Encoded:
    return Encoded.affine(np.ones(shape, np.int8), np.ones(shape[0], np.float16), axis=0)


def _blockwise_stand_in(shape: tuple[int, ...]) -> Encoded:
    outputs, inputs, *rest = shape
    scale = np.ones((outputs, inputs // _BLOCK, *(1,) * len(rest)), np.float16)
    return Encoded.blockwise(np.ones(shape, np.int8), scale)


def _palette_stand_in(shape: tuple[int, ...], bits: int) -> Encoded:
    return Encoded.palette(np.ones(shape, np.uint8), np.arange(1 << bits, dtype=np.float16), bits)


def _in_blocks(weight: np.ndarray) -> bool:
    return weight.ndim >= 2 and weight.shape[1] % _BLOCK == 0


def is_mostly_zeros(weight: np.ndarray) -> bool:
    """Whether a sparse form pays: at least half of the numbers are zero."""
    return int(np.count_nonzero(weight)) <= _MOST_KEPT * weight.size


def _palette(bits: int) -> Encoder:
    name = f"lut{bits}"
    return Encoder(
        name, partial(encode_array, encoding=name), bits=bits, stand_in=partial(_palette_stand_in, bits=bits)
    )


_ENCODERS = (
    Encoder("int8", partial(encode_array, encoding="int8"), stand_in=_int8_stand_in),
    *(_palette(bits) for bits in (8, 6, 4)),
    Encoder(
        "blockwise",
        partial(encode_array, encoding="blockwise", block_size=_BLOCK),
        _in_blocks,
        stand_in=_blockwise_stand_in,
    ),
    Encoder("sparse", partial(encode_array, encoding="sparse"), is_mostly_zeros),
)


def encoders_for(target: Target) -> tuple[Encoder, ...]:
    """The forms that a chip streams without folding them to fp16, in a layer that meets the conditions of a stream; a
    target outside the families has none."""
    if target.family5 is None:
        return ()
    return tuple(encoder for encoder in _ENCODERS if flow_of(target, encoder.name).streams)


def stand_in(encoding: str, shape: tuple[int, ...]) -> Encoded | None:
    """A weight of a shape in a form, with other numbers than any real one; None where its bytes depend on them."""
    name = {"int4": "lut4"}.get(encoding, encoding)
    write = next(encoder.stand_in for encoder in _ENCODERS if encoder.name == name)
    return None if write is None else write(shape)


def encode(weight: np.ndarray, encoder: Encoder) -> Encoded | None:
    """A weight in one form, or None where that form does not pay for it."""
    return encoder.write(weight) if weight.size >= _LEAST and encoder.pays(weight) else None


def is_worth_encoding(weight: np.ndarray) -> bool:
    """Whether a weight has enough numbers for a compressed form."""
    return weight.size >= _LEAST
