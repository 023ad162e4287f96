"""The stored forms that people choose from and advice tries, by name: how a weight is written in each, what it needs
of a weight, and which chips stream it. The one table of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from aneforge.codecs.calibrated import Moments, calibrated_affine, calibrated_blockwise, calibrated_palette
from aneforge.codecs.calibrated_pruning import pruned
from aneforge.codecs.encoding import encode
from aneforge.codecs.flows import flow_of
from aneforge.errors import ArgumentError, nearest
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.layer_forms import StoredLayer, stored_layers
from aneforge.targets.chip import Target

_LEAST = 1024  # numbers: below that a table and its look-up cost more than they save
_MOST_KEPT = 0.5  # a sparse form pays from half zeros on (compression.json auto_threshold)
_BLOCK = 32  # numbers that share a scale in the blockwise form


@dataclass(frozen=True)
class Storage:
    """One stored form."""

    name: str
    """What people call it."""
    what: str
    bytes_each: float
    """Bytes of one number; of the sparse form, of one that is not zero."""
    palette_bits: int = 0
    """Of the places in a palette; 0 where there is none."""
    activations: bool = False
    """Whether the layer's input is 8-bit codes as well."""

    @property
    def encoding(self) -> str:
        """The name of the codec."""
        return f"lut{self.palette_bits}" if self.palette_bits else "int8" if self.activations else self.name

    def fits(self, weight: np.ndarray) -> bool:
        """Whether a weight can have this form and has numbers enough for it."""
        in_blocks = self.name != "blockwise" or (weight.ndim >= 2 and weight.shape[1] % _BLOCK == 0)
        return in_blocks and is_worth_encoding(weight)

    def pays(self, weight: np.ndarray) -> bool:
        """Whether a weight that keeps its zeros gains by this form."""
        return self.fits(weight) and (self.name != "sparse" or is_mostly_zeros(weight))

    def write(self, weight: np.ndarray, moments: Moments | None = None, sparsity: float | None = None) -> Encoded:
        """A weight, outputs first, in this form; fitted to a layer's inputs where their moments are given. The sparse
        form makes so many zeros."""
        if self.name == "sparse":
            return encode(weight, "sparse") if sparsity is None else pruned(weight, sparsity, moments)
        if moments is None:
            return encode(weight, self.encoding)
        if self.palette_bits:
            return calibrated_palette(weight, moments, self.palette_bits)
        fitted = calibrated_blockwise if self.name == "blockwise" else calibrated_affine
        return fitted(weight, moments)

    def stand_in(self, shape: tuple[int, ...]) -> Encoded | None:
        """A weight of a shape in this form with other numbers, for estimates, which depend on the form only; None
        where they depend on the numbers."""
        if self.name == "sparse":
            return None
        if self.palette_bits:
            table = np.arange(1 << self.palette_bits, dtype=np.float16)
            return Encoded.palette(np.ones(shape, np.uint8), table, self.palette_bits)
        codes = np.ones(shape, np.int8)
        if self.name == "blockwise":
            outputs, inputs, *rest = shape
            return Encoded.blockwise(codes, np.ones((outputs, inputs // _BLOCK, *(1,) * len(rest)), np.float16))
        return Encoded.affine(codes, np.ones(shape[0], np.float16), axis=0)


STORAGES = {
    storage.name: storage
    for storage in (
        Storage("int8", "8-bit codes, one scale for each output", 1.0),
        Storage("lut8", "a palette of 256 numbers", 1.0, 8),
        Storage("lut6", "a palette of 64 numbers", 0.75, 6),
        Storage("int4", "a palette of 16 numbers (lut4)", 0.5, 4),
        Storage("blockwise", f"8-bit codes, one scale for each {_BLOCK} inputs", 1.0 + 2 / _BLOCK),
        Storage("sparse", "a mask and the numbers that are not zero", 2.0),
        Storage("w8a8", "8-bit codes on both sides, one scale for each output", 1.0, activations=True),
    )
}
DEFAULT_STORAGES = ("int8", "int4", "sparse", "blockwise")
"""One of each kind that the published table of chips has."""


def storage_of(name: str) -> Storage:
    """A stored form by its name."""
    if name not in STORAGES:
        known = ", ".join(nearest(str(name), STORAGES) or STORAGES)
        raise ArgumentError("encodings", f"{name!r} is not an encoding; choose one: {known}.")
    return STORAGES[name]


def streamed_storages(target: Target) -> tuple[Storage, ...]:
    """The forms of weights alone that a chip streams without folding them to fp16, in a layer that meets the
    conditions of a stream; a target outside the families has none."""
    if target.family5 is None:
        return ()
    plain = (storage for storage in STORAGES.values() if not storage.activations)
    return tuple(storage for storage in plain if flow_of(target, storage.encoding).streams)


def is_mostly_zeros(weight: np.ndarray) -> bool:
    """Whether a sparse form pays: at least half of the numbers are zero."""
    return int(np.count_nonzero(weight)) <= _MOST_KEPT * weight.size


def is_worth_encoding(weight: np.ndarray) -> bool:
    """Whether a weight has enough numbers for a compressed form."""
    return weight.size >= _LEAST


def encodable_layers(graph: Graph) -> dict[str, StoredLayer]:
    """The layers of a graph with a weight of fp16 that is worth encoding, by name."""
    return {name: layer for name, layer in stored_layers(graph).items() if is_worth_encoding(layer.weight)}
