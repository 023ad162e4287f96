"""Each stored form in every layer that can have it, on many chips at once: its bytes, whether it streams, the call.

A time depends on the form and not on the numbers, so weights of that form stand in for the real ones. How far a form
is from the weights is measured on a sample of them; what that does to the results is not known here. ``advise``
encodes all of them and simulates the model, for a few chips.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from aneforge.codecs.encoders import is_mostly_zeros, stand_in
from aneforge.compress.layers import Layer, layers_of
from aneforge.compress.placements import placements
from aneforge.compress.records import FP16
from aneforge.compress.storage import DEFAULT_ENCODINGS, Storage, is_worth_encoding, storage_of, stream_evidence
from aneforge.compress.streaming import streams_of
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.leaf import const
from aneforge.rewrites.rewrite import applied
from aneforge.study.partition import Partition
from aneforge.study.study import Study
from aneforge.tuning.stored_forms import stored_site

__all__ = ["ChipForm", "StoredForm", "rounding_of", "stored_everywhere"]

_SAMPLED = 1 << 14  # numbers of a weight that its rounding is measured on, about


@dataclass(frozen=True)
class ChipForm:
    """A model with one stored form on one chip."""

    streaming: int
    """Layers whose kernel the chip reads as it is stored."""
    folding: int
    """Layers whose kernel is expanded to fp16 first, which saves nothing there."""
    program_bytes: int
    us: float | None
    """Of a call; None where nobody knows it."""
    on_engine: int
    why: str
    """Why the time is not known, or why something is not on the engine."""
    evidence: str
    """Who says that it streams or folds."""


@dataclass(frozen=True)
class StoredForm:
    """One stored form in all layers that can have it."""

    name: str
    what: str
    layers: int
    stored_bytes: int
    """Of the weights of all layers, those that keep fp16 among them."""
    rounding: float | None
    """How far the weights are from themselves in this form, relative to their size; None where some are not finite."""
    chips: Mapping[str, ChipForm]


def stored_everywhere(study: Study, encodings: Iterable[str] = DEFAULT_ENCODINGS) -> list[StoredForm]:
    """What each form makes of a model on the chips that run any of it, from the family of the M1 on: nothing is
    published of stored forms below. The first is fp16, as the model is. A form that no layer can have is left out:
    blocks need inputs in blocks, and a sparse form pays from half zeros on."""
    chips = [name for name, split in study.timed().items() if split.runs and split.target.meets_floor]
    layers = layers_of(study.graph, is_worth_encoding)
    if not layers or not chips:
        return []
    asked = study.with_chips(chips)
    forms = [_as_it_is(asked, layers)]
    for storage in map(storage_of, encodings):
        encoded = _encoded(storage, layers)
        if encoded:
            shared = cache(const)  # layers of one shape have one weight between them
            sites = [stored_site(layer.node, layer.form, partial(shared, weight)) for layer, weight in encoded]
            forms.append(_on_chips(asked.with_graph(applied(study.graph, sites)), storage, layers, encoded))
    return forms


def _as_it_is(study: Study, layers: Sequence[Layer]) -> StoredForm:
    """What the other forms are compared with."""
    known = study.estimates()[0]
    chips = {
        name: ChipForm(
            len(layers), 0, _program_bytes(split), known[name].us if name in known else None, split.on_engine, "", ""
        )
        for name, split in study.timed().items()
    }
    return StoredForm(FP16, "as it is", len(layers), sum(2 * layer.weight.size for layer in layers), 0.0, chips)


def rounding_of(storage: Storage, weights: Iterable[np.ndarray]) -> float | None:
    """The root mean square of what a form changes over that of the weights, for some outputs of each. None where
    nothing can be said: not all numbers are finite, or all are zero."""
    changed = size = 0.0
    for weight in weights:
        rows = _some_rows(weight).astype(np.float64)
        if not np.isfinite(rows).all():
            return None
        changed += float(np.square(storage.write(rows.astype(np.float16)).decode() - rows).sum())
        size += float(np.square(rows).sum())
    return math.sqrt(changed / size) if size else None


def _some_rows(weight: np.ndarray) -> np.ndarray:
    """Outputs that are evenly apart, with about so many numbers in all."""
    return weight[:: max(1, weight.size // _SAMPLED)]


def _program_bytes(split: Partition) -> int:
    return sum(weight.stored_bytes for program in split.programs.values() for weight in program.weights)


def _encoded(storage: Storage, layers: Sequence[Layer]) -> list[tuple[Layer, Encoded]]:
    """The layers that can have a form, each with a weight in it."""
    shared = cache(partial(stand_in, storage.name))
    encoded = []
    for layer in layers:
        if storage.fits(layer.weight) and (storage.name != "sparse" or is_mostly_zeros(layer.weight)):
            encoded.append((layer, shared(layer.weight.shape) or storage.write(layer.weight)))
    return encoded


def _on_chips(
    study: Study,
    storage: Storage,
    layers: Sequence[Layer],
    encoded: Sequence[tuple[Layer, Encoded]],
) -> StoredForm:
    splits, placed = study.partitions(), placements(study, study.runtime)
    sizes = {layer.name: weight.stored_bytes for layer, weight in encoded}
    on_chips = {}
    for name, split in splits.items():
        streams = streams_of(split, sizes)
        streaming, place = sum(streams.values()), placed[name]
        on_chips[name] = ChipForm(
            streaming=streaming,
            folding=len(streams) - streaming,
            program_bytes=_program_bytes(split),
            us=place.us,
            on_engine=place.on_engine,
            why=place.why,
            evidence=stream_evidence(storage, split.target).label(),
        )
    total = sum(sizes.get(layer.name, 2 * layer.weight.size) for layer in layers)
    rounding = rounding_of(storage, (layer.weight for layer, _ in encoded))
    return StoredForm(storage.name, storage.what, len(encoded), total, rounding, on_chips)
