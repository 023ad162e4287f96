"""Proposals about layers: weights in the forms that a chip streams, and the forms that ``tune`` knows.

A place can gain no more than its layers take. The places that take most are priced alone, before and after, and the
best form of each kind is then proposed wherever it gains. Of stored weights the form, not the numbers, decides the
time: which layers can gain is worked out from their bytes, and weights of that form stand in for the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from aneforge.advice.forms import PLAIN_FORMS
from aneforge.advice.proposals import LEAST_GAIN, Places, Proposal, Workbench, places_of, price_alone
from aneforge.advice.stored import stand_in_sites
from aneforge.codecs.storages import Storage, encodable_layers, streamed_storages
from aneforge.cost.calls import CONVERTED
from aneforge.cost.columns import columns_of
from aneforge.cost.estimate import demands_of
from aneforge.cost.host import host_band
from aneforge.cost.layers import Surroundings, times_of
from aneforge.cost.work import Work
from aneforge.graph.forms import apart, covered
from aneforge.graph.layer_forms import StoredLayer
from aneforge.output.text import plural
from aneforge.study.runtimes import expands_palettes
from aneforge.study.split import HOST

_MOST_PRICED = 16  # kinds of places that are compiled by themselves, for all chips together
_Standing = dict[str, float]
"""By chip, what the layers of all places of a group take now."""


def stored_weights(bench: Workbench) -> Iterator[Proposal]:
    """For each chip the 8-bit form and the palette that can gain most."""
    layers = encodable_layers(bench.graph)
    for chip, split in bench.splits.items() if layers else ():
        best: dict[str, tuple[float, Storage, dict[str, float]]] = {}
        expands = expands_palettes(split.target, bench.study.runtime)
        for storage in streamed_storages(split.target):
            if storage.name == "sparse" or (storage.palette_bits and expands):
                continue
            gains = _gains_of_bytes(bench, chip, storage, layers)
            gain = sum(gains.values())
            family = "palette" if storage.palette_bits else "int8"
            if gain > best.get(family, (0.0,))[0]:
                best[family] = gain, storage, gains
        for family, (gain, storage, gains) in best.items():
            chosen = {name: layer for name, layer in layers.items() if name in gains}
            yield Proposal(
                name=f"weights as {storage.encoding}",
                kind="precision",
                sites=tuple(stand_in_sites(storage, chosen.values())),
                family=f"{family} weights",
                cause="weights",
                what=f"store the weights of {plural(len(chosen), 'layer')} as {storage.encoding}",
                nodes=tuple(chosen),
                numbers="rounds the weights (aneforge tune --target-error 0.01 encodes them and checks the results)",
                most={chip: gain},
            )


def _gains_of_bytes(
    bench: Workbench, chip: str, storage: Storage, layers: Mapping[str, StoredLayer]
) -> dict[str, float]:
    """Microseconds that each layer can gain by fewer bytes, where it gains anything."""
    gains: dict[str, float] = {}
    constants = bench.estimates[chip].basis.constants
    for program in bench.splits[chip].programs.values():
        kinds, kind_of = demands_of(program)
        works = [work for work, _ in kinds]
        around = Surroundings(np.array([resident for _, resident in kinds], bool), converted=bench.scope in CONVERTED)
        before, after = (
            times_of(columns_of(listed), constants, around).us
            for listed in (works, [_smaller(work, storage) for work in works])
        )
        saved = (before - after).tolist()
        for layer, kind in zip(program.layers, kind_of, strict=True):
            for source in layer.sources if saved[kind] > 0 else ():
                if source in layers and storage.fits(layers[source].weight):
                    gains[source] = gains.get(source, 0.0) + saved[kind]
    return gains


def _smaller(work: Work, storage: Storage) -> Work:
    """The work of a layer with the bytes and the form of its weight replaced."""
    if not work.weight_bytes or work.form != "fp16":
        return work
    size = work.weight_bytes / 2 * storage.bytes_each
    return replace(work, weight_bytes=size, form="palette" if storage.palette_bits else "int8")


def other_forms(bench: Workbench) -> Iterator[Proposal]:
    """For each kind of form the one that gains most on a chip."""
    standing = _worth_pricing(bench)
    for places in standing:
        price_alone(bench.study, places)
    gains = {places: _gains(places, now) for places, now in standing.items()}
    forms = dict.fromkeys(places.form for places in standing)
    for chip in bench.splits:
        best: dict[str, tuple[float, list[Places]]] = {}
        for form in forms:
            gaining = [places for places in standing if places.form is form and gains[places].get(chip, 0.0) > 0]
            gain = sum(gains[places][chip] for places in gaining)
            if gain > best.get(form.kind, (0.0,))[0]:
                best[form.kind] = gain, gaining
        for gain, gaining in best.values():
            form = gaining[0].form
            sites = apart(site for places in gaining for site in places.sites)
            yield Proposal(
                name=form.name,
                kind="rewrite",
                sites=tuple(sites),
                places=tuple(gaining),
                family=form.kind,
                what=f"{form.doc[0].lower()}{form.doc[1:].rstrip('.')}, at {plural(len(sites), 'place')}",
                nodes=tuple(bench.names[site.node.uid] for site in sites),
                numbers="same results up to rounding (aneforge tune builds it and checks them)",
                most={chip: gain},
            )


def _gains(places: Places, standing: _Standing) -> dict[str, float]:
    """By chip, what all places of a group gain. Where a chip refuses one as it is, it is on the host now, and its time
    there counts."""
    count = len(places.sites)
    return {
        chip: count * (places.before.get(chip, standing[chip] / count) - after) for chip, after in places.after.items()
    }


def _worth_pricing(bench: Workbench) -> dict[Places, _Standing]:
    """The places whose layers take most of a call on some chip: a place can gain no more than they take."""
    layer_us = {chip: _us_by_node(bench, chip) for chip in bench.splits}
    standing = {places: _standing(bench, places, layer_us) for places in places_of(bench.study, PLAIN_FORMS)}

    def share(places: Places) -> float:
        return max(us / bench.estimates[chip].us for chip, us in standing[places].items())

    able = [places for places in standing if share(places) >= LEAST_GAIN]
    return {places: standing[places] for places in sorted(able, key=lambda places: -share(places))[:_MOST_PRICED]}


def _standing(
    bench: Workbench, places: Places, layer_us: Mapping[str, Mapping[str, Mapping[int, float]]]
) -> _Standing:
    standing = dict.fromkeys(places.chips, 0.0)
    for site in places.sites:
        names = [bench.names[uid] for uid in covered(site)]
        for chip in places.chips:
            layers = {number: us for name in names for number, us in layer_us[chip].get(name, {}).items()}
            standing[chip] += sum(layers.values())
    return standing


def _us_by_node(bench: Workbench, chip: str) -> Mapping[str, Mapping[int, float]]:
    """What the layers behind each of the user's nodes take, by the number of the layer. A node of the host counts
    with the changes of device around it, under a number of its own."""
    by_node: dict[str, dict[int, float]] = {}
    estimate, split = bench.estimates[chip], bench.splits[chip]
    for layer in estimate.layers:
        for source in layer.sources:
            by_node.setdefault(source, {})[layer.number] = layer.us
    around = 2 * estimate.crossings_us / max(1, estimate.crossings)
    for node in split.cut.operations.counted:
        if split.device_of[node.uid] == HOST:
            by_node[split.names[node.uid]] = {-1 - node.uid: host_band([node]).middle + around}
    return by_node
