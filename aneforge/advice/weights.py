"""Stored weights in the forms that a chip streams as they are.

The form, not the numbers, decides the time: which layers gain is worked out by the cost model with their bytes and
form replaced, and the whole model is then compiled with weights of that form that stand in for the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial

import numpy as np

from aneforge.advice.change import Proposal, Question, estimated_graph
from aneforge.codecs.encoders import Encoder, encoders_for, is_worth_encoding
from aneforge.cost.calls import CONVERTED
from aneforge.cost.columns import columns_of
from aneforge.cost.constants import Basis
from aneforge.cost.estimate import demands_of
from aneforge.cost.layers import Surroundings, times_of
from aneforge.cost.work import Work
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor
from aneforge.output.text import plural
from aneforge.rewrites.rewrite import applied
from aneforge.rewrites.stored import Dense, Kernel, stored_layers
from aneforge.study.partition import Partition
from aneforge.study.runtimes import expands_palettes
from aneforge.tuning.stored_forms import stored_site

__all__ = ["stored_weights"]

_BYTES = {"int8": 1.0, "blockwise": 1.0 + 2 / 32, "lut8": 1.0, "lut6": 0.75, "lut4": 0.5}
"""Of one number in each form."""
_NUMBERS = "rounds the weights (aneforge tune --target-error 0.01 encodes them and checks the results)"

Layers = Mapping[str, tuple[Tensor, Dense | Kernel]]


def stored_weights(question: Question) -> Iterator[Proposal]:
    """For each chip the 8-bit form and the palette that gain most by the cost model."""
    layers = _layers(question)
    if not layers:
        return
    wanted: dict[tuple[str, frozenset[str]], dict[str, float]] = {}
    encoders: dict[str, Encoder] = {}
    for name, split in question.splits.items():
        by_family: dict[str, tuple[float, str, frozenset[str]]] = {}
        basis = question.estimates[name].basis
        for encoder in encoders_for(split.target):
            if encoder.stand_in is None or (encoder.bits and expands_palettes(split.target, question.study.runtime)):
                continue
            encoders[encoder.name] = encoder
            gains = _gains(split, basis, question.scope, encoder, layers)
            family = "palette" if encoder.bits else "int8"
            offer = sum(gains.values()), encoder.name, frozenset(gains)
            if gains and offer[0] > by_family.get(family, (0.0,))[0]:
                by_family[family] = offer
        for gain, form, nodes in by_family.values():
            wanted.setdefault((form, nodes), {})[name] = gain
    for (form, nodes), most in wanted.items():
        encoder = encoders[form]
        chosen = {node: layers[node] for node in layers if node in nodes}
        count = plural(len(chosen), "layer")
        yield Proposal(
            family=f"{'palette' if encoder.bits else 'int8'} weights",
            name=f"weights as {form}",
            cause="weights",
            what=f"store the weights of {count} as {form}",
            nodes=tuple(chosen),
            most=most,
            after=estimated_graph(question, partial(_encoded, question.graph, encoder, chosen)),
            numbers=_NUMBERS,
        )


def _layers(question: Question) -> dict[str, tuple[Tensor, Dense | Kernel]]:
    """Layers with a stored weight of fp16, by name."""
    listed = ((node, layer) for node, layer in stored_layers(question.graph) if is_worth_encoding(layer.weight))
    return {question.names[node.uid]: (node, layer) for node, layer in listed}


def _gains(split: Partition, basis: Basis, scope: str, encoder: Encoder, layers: Layers) -> dict[str, float]:
    """Microseconds that each node gains, where its layers gain anything."""
    gains: dict[str, float] = {}
    for program in split.programs.values():
        kinds, kind_of = demands_of(program)
        stored = [_stored(work, encoder) for work, _ in kinds]
        around = Surroundings(np.array([resident for _, resident in kinds], bool), converted=scope in CONVERTED)
        was, now = (
            times_of(columns_of(works), basis.constants, around).us for works in ([work for work, _ in kinds], stored)
        )
        saved = (was - now).tolist()
        for layer, kind in zip(program.layers, kind_of, strict=True):
            if saved[kind] > 0:
                for source in layer.sources:
                    if source in layers and (encoder.name != "blockwise" or encoder.pays(layers[source][1].weight)):
                        gains[source] = gains.get(source, 0.0) + saved[kind]
    return gains


def _stored(work: Work, encoder: Encoder) -> Work:
    """A layer with the bytes and the form of its weight replaced."""
    if not work.weight_bytes or work.form != "fp16":
        return work
    size = work.weight_bytes / 2 * _BYTES[encoder.name]
    return replace(work, weight_bytes=size, form="palette" if encoder.bits else "int8")


def _encoded(graph: Graph, encoder: Encoder, layers: Layers) -> Graph:
    write = encoder.stand_in
    assert write is not None

    @cache
    def weight(shape: tuple[int, ...]) -> Tensor:
        return const(write(shape))  # layers of one shape have one weight between them

    return applied(
        graph, [stored_site(node, layer, partial(weight, layer.weight.shape)) for node, layer in layers.values()]
    )
