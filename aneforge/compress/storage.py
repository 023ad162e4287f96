"""The stored forms that people choose from, by name: how a weight is written in each, and where it streams.

This is the one place of the room that knows the encoders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.codecs import encode, flow_of
from aneforge.codecs.calibrated import Moments, calibrated_affine, calibrated_blockwise, calibrated_palette
from aneforge.codecs.calibrated_pruning import pruned
from aneforge.codecs.encoders import is_worth_encoding
from aneforge.errors import ArgumentError, nearest
from aneforge.graph.encoding import Encoded
from aneforge.targets.chip import Target
from aneforge.targets.evidence import Fact

__all__ = [
    "DEFAULT_ENCODINGS",
    "ENCODINGS",
    "Storage",
    "encode",
    "is_worth_encoding",
    "storage_of",
    "stream_evidence",
]

DEFAULT_ENCODINGS = ("int8", "int4", "sparse", "blockwise")
"""One of each kind that the published table of chips has."""
BLOCK = 32
"""Numbers that share a scale in the blockwise form."""


@dataclass(frozen=True)
class Storage:
    """One stored form: its name, and what it looks like."""

    name: str
    what: str
    bits: int = 0
    """Of a palette's index."""
    activations: bool = False
    """Whether the layer's input is 8-bit codes as well."""

    def fits(self, weight: np.ndarray) -> bool:
        """Whether a weight can have this form and has numbers enough for it."""
        if not is_worth_encoding(weight):
            return False
        return self.name != "blockwise" or (weight.ndim >= 2 and weight.shape[1] % BLOCK == 0)

    def write(self, weight: np.ndarray, moments: Moments | None = None, sparsity: float | None = None) -> Encoded:
        """A weight in this form; fitted to a layer's inputs where their moments are given."""
        if self.name == "sparse":
            return encode(weight, "sparse") if sparsity is None else pruned(weight, sparsity, moments)
        if moments is None:
            return encode(weight, "int8" if self.activations else self.name)
        if self.bits:
            return calibrated_palette(weight, moments, self.bits)
        fitted = calibrated_blockwise if self.name == "blockwise" else calibrated_affine
        return fitted(weight, moments)


ENCODINGS = {
    storage.name: storage
    for storage in (
        Storage("int8", "8-bit codes, one scale for each output"),
        Storage("int4", "a palette of 16 numbers (lut4)", 4),
        Storage("lut6", "a palette of 64 numbers", 6),
        Storage("lut8", "a palette of 256 numbers", 8),
        Storage("sparse", "a mask and the numbers that are not zero"),
        Storage("blockwise", f"8-bit codes, one scale for each {BLOCK} inputs"),
        Storage("w8a8", "8-bit codes on both sides, one scale for each output", activations=True),
    )
}


def storage_of(encoding: str) -> Storage:
    if encoding not in ENCODINGS:
        known = ", ".join(nearest(str(encoding), ENCODINGS) or ENCODINGS)
        raise ArgumentError("encodings", f"{encoding!r} is not an encoding; choose one: {known}.")
    return ENCODINGS[encoding]


def stream_evidence(storage: Storage, target: Target) -> Fact[Any]:
    """What is known of a form on a chip: the fact behind ``stream`` or ``fold``."""
    return flow_of(target, "int8" if storage.activations else storage.name).evidence[0]
