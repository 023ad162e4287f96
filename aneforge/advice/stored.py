"""A whole model with its weights in a stored form: its bytes, whether they stream, where it runs, how long it takes.

A time depends on the form and not on the numbers, so that weights of the same form can stand in for the real ones.
:func:`stored_everywhere` does so for many chips at once. How far a form is from the weights is then measured on a
sample of them, and what that does to the results is not known. ``advise_weights`` encodes all of them and simulates
the model, for a few chips.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from aneforge.advice.proposals import Figure
from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact
from aneforge.compiler.storage import DEFAULT_STORAGES, Storage, encodable_layers, flow_of, storage_of
from aneforge.graph.forms import Site, applied
from aneforge.graph.layer_forms import StoredLayer
from aneforge.graph.node import make
from aneforge.graph.ops.leaf import CONST, const
from aneforge.graph.tensor import Tensor
from aneforge.graph.weights import known_weight
from aneforge.study.partition import Partition
from aneforge.study.placement import Runtime, unknown_time
from aneforge.study.regions import sentence
from aneforge.study.study import Study

FP16 = "fp16"
"""The form that changes nothing."""
_SAMPLED = 1 << 14  # numbers of a weight that its rounding is measured on, about

Layers = Mapping[str, StoredLayer]


@dataclass(frozen=True)
class RuntimePlacement:
    """One graph by one runtime on one chip."""

    on_engine: int
    ops: int
    figure: Figure | None
    """The time of a call; None where nobody knows it."""
    why: str = ""
    """Why something is not on the engine, or why the time is not known."""
    source: str = ""
    """The rule or conflict behind ``why``."""

    @property
    def us(self) -> float | None:
        return None if self.figure is None else self.figure.us

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class StoredModel:
    """The whole model with its weights stored in one way, on one chip."""

    name: str
    forms: Mapping[str, str]
    """The encoding of each layer that has one, by layer."""
    stored_bytes: int
    """The weights of all layers that were considered, as a file stores them."""
    program_bytes: int
    """All constants of the compiled program: what folds is dense here."""
    streams: Mapping[str, bool]
    """Of each encoded layer on the engine, whether its kernel reaches it as it is stored, or as dense fp16."""
    placements: Mapping[str, RuntimePlacement]
    """By runtime."""

    @property
    def streaming(self) -> int:
        """How many of the encoded layers reach the engine as they are stored."""
        return sum(self.streams.values())

    @property
    def folding(self) -> int:
        """How many of them reach it as dense fp16, which saves nothing there."""
        return len(self.streams) - self.streaming

    @property
    def flow(self) -> str:
        """``streams``, ``folds``, or how many layers stream."""
        if not self.streams:
            return "-"
        word = "streams" if not self.folding else "folds" if not self.streaming else ""
        return word or f"{self.streaming} of {len(self.streams)} stream"


def stored_model(
    name: str,
    split: Partition,
    forms: Mapping[str, str],
    layers: Layers,
    placed: Mapping[str, RuntimePlacement],
) -> StoredModel:
    """What a compiled model with some layers in stored forms amounts to on its chip."""
    kernels: dict[str, Tensor] = {}
    layers_called: dict[str, set[str]] = {}  # by what a program may call the kernel: as its layer, or as its constant
    for node in split.graph.nodes:
        layer = split.names[node.uid]
        if layer in forms:
            kernels[layer] = node.inputs[1]
            for source in (layer, split.names[node.inputs[1].uid]):
                layers_called.setdefault(source, set()).add(layer)
    streams: dict[str, bool] = {}
    program_bytes = 0
    for constant in (weight for program in split.programs.values() for weight in program.weights):
        program_bytes += constant.stored_bytes
        kept = bool(constant.streams) and constant.encoding != FP16
        for source in constant.sources if constant.flow is not None else ():
            for layer in layers_called.get(source, ()):
                streams[layer] = streams.get(layer, True) and kept
    stored_bytes = sum(_stored_bytes(layers[layer], kernels.get(layer)) for layer in layers)
    return StoredModel(name, forms, stored_bytes, program_bytes, streams, placed)


def _stored_bytes(layer: StoredLayer, kernel: Tensor | None) -> int:
    """Of a layer's weight as a file stores it: the kernel in its place, or its own in fp16."""
    encoded = None if kernel is None or kernel.weight is None else kernel.weight.encoded
    return 2 * layer.weight.size if encoded is None else encoded.stored_bytes


def placements(
    study: Study, runtime: Runtime, fp16: Mapping[str, RuntimePlacement] | None = None
) -> dict[str, RuntimePlacement]:
    """Where each chip runs a graph by a runtime. ``fp16`` is where the model runs with fp16 weights: a runtime that
    takes a whole model off the engine for one layer does so for a layer that its stored form takes off."""
    by = study.by(runtime)
    known, _ = by.estimates()
    placed = {}
    for name, split in by.timed().items():
        why, source = _first_reason(split)
        before = (fp16 or {}).get(name)
        fewer = runtime.whole and before is not None and split.on_engine < before.on_engine
        if name in known and not fewer:
            placed[name] = RuntimePlacement(split.on_engine, split.ops, Figure.of(known[name]), why, source)
        elif split.runs and (unknown := unknown_time(by.graph, split.target, runtime)):
            placed[name] = RuntimePlacement(split.on_engine, split.ops, None, unknown, "C55")
        else:  # the whole model beside the engine, where nothing is known of its time (U119)
            gpu = f" {runtime.label} then gives the whole model to the GPU." if runtime.whole else ""
            placed[name] = RuntimePlacement(0, split.ops, None, f"{why}{gpu}", source)
    return placed


def _first_reason(split: Partition) -> tuple[str, str]:
    """Why the first op is not on the engine; what the runtime keeps off comes first, also where its call is not the
    one that is timed."""
    for uid, refusal in {**split.kept_off, **split.refusals}.items():
        return f"{split.names[uid]}: {sentence(refusal)}", refusal.rule
    return "", ""


def stream_evidence(storage: Storage, target: Target) -> Fact[Any]:
    """What is known of a form on a chip: the fact behind ``stream`` or ``fold``."""
    return flow_of(target, storage.encoding).evidence[0]


# Each form in every layer that can have it.


@dataclass(frozen=True)
class StoredForm:
    """One stored form in all layers that can have it."""

    name: str
    what: str
    layers: int
    rounding: float | None
    """How far the weights are from themselves in this form, relative to their size; None where some are not finite."""
    chips: Mapping[str, StoredModel]
    evidence: Mapping[str, str]
    """By chip, who says that it streams or folds."""
    runtime: str
    """Whose call is timed."""

    @property
    def stored_bytes(self) -> int:
        """Of the weights of all layers, those that keep fp16 among them."""
        return next(iter(self.chips.values())).stored_bytes

    def placement(self, chip: str) -> RuntimePlacement:
        return self.chips[chip].placements[self.runtime]


def stored_everywhere(study: Study, encodings: Iterable[str] = DEFAULT_STORAGES) -> list[StoredForm]:
    """What each form makes of a model on the chips that run any of it, from the family of the M1 on: nothing is
    published of stored forms below. The first is fp16, as the model is. A form that no layer can have is left out:
    blocks need inputs in blocks, and a sparse form pays from half zeros on."""
    chips = [name for name, split in study.timed().items() if split.runs and split.target.meets_floor]
    layers = encodable_layers(study.graph)
    if not layers or not chips:
        return []
    asked = study.with_chips(chips)
    runtime = study.runtime.name
    forms = [StoredForm(FP16, "as it is", len(layers), 0.0, _on_chips(asked, FP16, {}, layers), {}, runtime)]
    for storage in map(storage_of, encodings):
        paying = {name: layer for name, layer in layers.items() if storage.pays(layer.weight)}
        if not paying:
            continue
        changed = asked.with_graph(applied(study.graph, stand_in_sites(storage, paying.values())))
        models = _on_chips(changed, storage.name, dict.fromkeys(paying, storage.name), layers)
        rounding = rounding_of(storage, (layer.weight for layer in paying.values()))
        evidence = {name: stream_evidence(storage, chip).label() for name, chip in asked.chips.items()}
        forms.append(StoredForm(storage.name, storage.what, len(paying), rounding, models, evidence, runtime))
    return forms


def _on_chips(study: Study, name: str, forms: Mapping[str, str], layers: Layers) -> dict[str, StoredModel]:
    placed = placements(study, study.runtime)
    splits = study.partitions() if forms else study.timed()
    return {
        chip: stored_model(name, split, forms, layers, {study.runtime.name: placed[chip]})
        for chip, split in splits.items()
    }


def stand_in_sites(storage: Storage, layers: Iterable[StoredLayer]) -> list[Site]:
    """Layers in a form, with weights of their shapes that stand in for the real ones where only the form decides the
    time. Layers of one shape share a weight."""

    @cache
    def shared(shape: tuple[int, ...]) -> Tensor | None:
        encoded = storage.stand_in(shape)
        if encoded is None:
            return None
        return make(CONST, weight=known_weight(f"stand-in {storage.name} {shape}", None, encoded))

    def stored(layer: StoredLayer) -> Tensor:
        stand_in = shared(layer.weight.shape)
        return const(storage.write(layer.weight)) if stand_in is None else stand_in

    return [layer.stored_as(partial(stored, layer)) for layer in layers]


def rounding_of(storage: Storage, weights: Iterable[np.ndarray]) -> float | None:
    """The root mean square of what a form changes over that of the weights, for some outputs of each. None where
    nothing can be said: not all numbers are finite, or all are zero."""
    changed = size = 0.0
    for weight in weights:
        rows = weight[:: max(1, weight.size // _SAMPLED)].astype(np.float64)  # evenly apart
        if not np.isfinite(rows).all():
            return None
        changed += float(np.square(storage.write(rows.astype(np.float16)).decode() - rows).sum())
        size += float(np.square(rows).sum())
    return math.sqrt(changed / size) if size else None
