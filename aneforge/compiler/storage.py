"""The stored forms that people choose from and advice tries, by name: how a weight is written in each, what it needs
of a weight, and which chips stream it. The one table of them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact
from aneforge.chips.names import target as find_target
from aneforge.chips.streams import Flow, LayerConditions, WeightForm, kmem_cap, runtime_fact, weight_flow
from aneforge.errors import ArgumentError, UnknownNameError, UnknownValueError, nearest
from aneforge.graph.codecs.calibrated import (
    Moments,
    calibrated_affine,
    calibrated_blockwise,
    calibrated_palette,
    pruned,
)
from aneforge.graph.codecs.encoding import ENCODINGS, encode
from aneforge.graph.encoding import SMALLEST_NORMAL, Encoded
from aneforge.graph.fp8 import FP8
from aneforge.graph.graph import Graph
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.layer_forms import StoredLayer, stored_layers

# ``flow_of``: whether a chip streams a weight in its stored form, or folds it to dense fp16.


def form_of(encoding: str | Encoded | None) -> WeightForm:
    """What decides the flow of a stored weight, of an encoding by name with its usual options, or of fp16 (None)."""
    if encoding is None or encoding == "fp16":
        return WeightForm("fp16")
    if isinstance(encoding, str):
        return _named(encoding)
    if encoding.form in FP8:
        return WeightForm("fp8", 8, is_e5m2=encoding.form == "fp8-e5m2")
    table = encoding.table
    return WeightForm(
        encoding.form,
        encoding.bits,
        looks_up=table is not None,
        vector_size=1 if table is None else table.shape[-1],
        tables=1 if table is None else math.prod(table.shape[:-2]),
        is_scaled=table is not None and encoding.scale is not None,
        has_zero_points=encoding.zero_point is not None,
        is_readable=_is_readable(encoding),
    )


def _is_readable(encoded: Encoded) -> bool:
    if encoded.form == "affine" or (encoded.form == "palette" and encoded.scale is not None):
        return scales_outputs(encoded)
    return encoded.form != "blockwise" or _fits_halves(encoded)


def scales_outputs(encoded: Encoded) -> bool:
    """Whether the scales of a weight lie along its outputs, and fp16 holds them to all their digits."""
    if encoded.scale is None:
        return False
    lines = [part for part in (encoded.scale, encoded.zero_point) if part is not None]
    return all(part.size in (1, part.shape[0]) for part in lines) and _fits_halves(encoded)


def _fits_halves(encoded: Encoded) -> bool:
    assert encoded.scale is not None
    sizes = np.abs(encoded.scale.astype(np.float64))
    return bool(((sizes >= SMALLEST_NORMAL) & (sizes <= FP16_MAX)).all())


@cache
def _named(name: str) -> WeightForm:
    if name not in ENCODINGS:
        near = ", ".join(nearest(name, ENCODINGS)) or ", ".join(ENCODINGS)
        raise UnknownNameError(f"{name!r}: not a weight encoding; nearest: {near}")
    if name in FP8:
        return WeightForm("fp8", 8, is_e5m2=name == "fp8-e5m2")
    if name in ("sparse", "blockwise"):
        return WeightForm(name, 16 if name == "sparse" else 8)
    if name in ("int8", "int4-affine"):
        return WeightForm("affine", 8 if name == "int8" else 4)
    bits = int(re.findall(r"\d", name)[0])
    return WeightForm("sparse" if name.startswith("sparse") else "palette", bits, looks_up=True)


@dataclass(frozen=True)
class _TargetFacts:
    """The facts of a target, for those who are not a pass."""

    target: Target

    def get(self, key: str) -> Any:
        return self.fact(key).value

    def fact(self, key: str) -> Fact[Any]:
        return compile_fact(self.target, key)


def flow_of(
    target: Target,
    encoding: str | Encoded | None,
    layer: LayerConditions | None = None,
    runtime: str = "direct",
) -> Flow:
    """Whether a chip streams a weight: in an encoding by name, or in the form that it has.

    ``layer`` says what of its layer matters; left out, the layer meets every condition of a stream. ``runtime`` is
    ``direct`` for the program that this compiler builds; ``coreml`` and ``coreai`` add what those were seen to do.
    """
    form = form_of(encoding)
    flow = weight_flow(_TargetFacts(target), form, layer)
    seen = runtime_fact(runtime, form, target.td_generation) if flow.streams else None
    if seen is None or seen.value == "streams":
        return flow
    words = {"expanded": "expands it to fp16 in every call", "refused": "refuses it"}
    return Flow(False, f"{runtime} {words[seen.value]}", (seen,), flow.cap, keeps_form=False)


def exceeds_kmem(chip: str | int | Target, demand: int, streamable: bool) -> bool:
    """Whether a weight is too large for kernel memory, as the vendor's compiler asks it (ExceedKmemSizeLimit, listing
    24.3): ``demand`` bytes against 16 MB where the weight is ``streamable`` and the ``chip`` has the master byte
    0x48f, and against 64 KB where not.

    Listing 35.2 has the same choice for weights that are shared between cores: pass them as ``streamable`` on A14 and
    later. What aneforge counts as the demand of a layer is U28.
    """
    target = find_target(chip)
    cap = kmem_cap(_TargetFacts(target), streamable)
    if cap is None:
        raise UnknownValueError(
            f"{target.name}: the size of its kernel memory is not published (U17). Choose a chip from A13 on."
        )
    return cap < demand


LEAST_ENCODED = 1024
"""Numbers of a weight: below that a table and its look-up cost more than they save."""
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

    def bytes_of(self, shape: tuple[int, ...]) -> int | None:
        """The bytes of a weight of a shape in this form; None where they depend on the numbers."""
        size = math.prod(shape)
        if self.name == "sparse":
            return None
        if self.palette_bits:
            return -(-size * self.palette_bits // 8) + 2 * (1 << self.palette_bits)
        scales = size // _BLOCK if self.name == "blockwise" else shape[0]
        return size + 2 * scales

    def stand_in(self, shape: tuple[int, ...]) -> Encoded | None:
        """A weight of a shape in this form with other numbers, for estimates, which depend on the form only; None
        where they depend on the numbers."""
        if self.name == "sparse":
            return None
        if self.palette_bits:
            table = np.arange(1 << self.palette_bits, dtype=np.float16)
            return Encoded.palette(np.broadcast_to(np.uint8(1), shape), table, self.palette_bits)
        codes = np.broadcast_to(np.int8(1), shape)  # takes no memory
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
    return weight.size >= LEAST_ENCODED


def encodable_layers(graph: Graph) -> dict[str, StoredLayer]:
    """The layers of a graph with a weight of fp16 that is worth encoding, by name."""
    return {name: layer for name, layer in stored_layers(graph).items() if is_worth_encoding(layer.weight)}
