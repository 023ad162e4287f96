"""Proposals about layers and about the call: stored forms, other forms of layers, other cuts, batches, ports.

A place can gain no more than its layers take. The places that take most are priced alone, before and after, and the
best form of each kind is then proposed wherever it gains. Of stored weights the form, not the numbers, decides the
time: which layers can gain is worked out from their bytes, and weights of that form stand in for the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, fsum, prod
from typing import Any

import numpy as np

from aneforge.advice.forms import ERRATUM_FORM, PLAIN_FORMS
from aneforge.advice.proposals import LEAST_GAIN, Places, Proposal, Workbench, places_of, price_alone
from aneforge.advice.stored import stand_in_sites
from aneforge.compiler.storage import Storage, encodable_layers, streamed_storages
from aneforge.cost.calls import CONVERTED, Constants, Ports, call_us
from aneforge.cost.errata import errata_of
from aneforge.cost.estimate import demands_of, ports_of
from aneforge.cost.layers import Surroundings, columns_of, times_of
from aneforge.cost.parts import host_band
from aneforge.cost.work import Work
from aneforge.errors import AneforgeError
from aneforge.graph.forms import OtherForm, Site, apart, covered
from aneforge.graph.graph import Graph
from aneforge.graph.layer_forms import StoredLayer, layer_of
from aneforge.graph.node import make
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.views import plain_name
from aneforge.study.partition import Partition
from aneforge.study.placement import expands_palettes
from aneforge.study.regions import ENGINE, HOST
from aneforge.text import plural

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
            gain = fsum(gains.values())
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
            gain = fsum(gains[places][chip] for places in gaining)
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
                what=_in_words(form, sites, bench.estimates[chip].basis.constants),
                nodes=tuple(bench.names[site.node.uid] for site in sites),
                numbers="same results up to rounding (aneforge tune builds it and checks them)",
                most={chip: gain},
            )


def _in_words(form: OtherForm, sites: Sequence[Site], known: Constants) -> str:
    """What a form does; of the form that avoids slow spots of the engine, which ones."""
    if form.name == ERRATUM_FORM:
        layers = [layer for site in sites if (layer := layer_of(site.node)) is not None]
        shapes = [layer.weight.shape for layer in layers]
        causes = [cause for n, k, *kernel in shapes for cause in errata_of(n, k, prod(kernel), known)]
        if causes:
            return f"the input axis of {plural(len(sites), 'layer')} in pieces: {'; '.join(dict.fromkeys(causes))}"
    return f"{form.doc[0].lower()}{form.doc[1:].rstrip('.')}, at {plural(len(sites), 'place')}"


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
            standing[chip] += fsum(layers.values())
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


# Proposals about the call: another cut between the engine and the host, the ends of the model left to the caller,
# several inputs in one call, and ports whose rows are whole lines.


Follow = Callable[[Tensor], Iterable[Tensor]]
_COUNT = 8  # inputs in one call
_LINE = 32  # numbers of fp16 in a line of 64 bytes
_LITTLE = 0.25  # of a call, and of all work on the host: ends of the model that take longer there stay in the model
_ON_HOST = "cut there, compiled and estimated, the host at assumed rates (U75)"
_OUTSIDE = "the rest compiled and estimated, what is left out at the host's assumed rates (U75)"


# Another cut.


def native_layers_on_host(bench: Workbench) -> Iterator[Proposal]:
    """A native layer is a program of its own: it cuts the model, and each part is started by itself."""
    for chip, split in bench.splits.items():
        nodes = _native_nodes(split)
        if not nodes:
            continue
        estimate = bench.estimates[chip]
        empty, constants = Ports(0.0, 0.0), estimate.basis.constants
        once, twice = (float(call_us(bench.scope, 0.0, empty, constants, calls)) for calls in (1, 2))
        sources = {bench.names[node.uid] for node in nodes}
        layers = fsum(layer.us for layer in estimate.layers if not sources.isdisjoint(layer.sources))
        starts = (twice - once) * (estimate.calls - len(split.programs))
        ops = ", ".join(dict.fromkeys(plain_name(node) for node in nodes))
        yield Proposal(
            name="native layers on the host",
            kind="cut",
            on_host=tuple(nodes),
            family="native layers",
            cause="calls",
            what=f"compute {ops} on the host: as a native layer it cuts the program into parts",
            nodes=tuple(bench.names[node.uid] for node in nodes),
            how=_ON_HOST,
            numbers="the host computes in float32",
            most={chip: layers + starts - host_band(nodes).low},
        )


def _native_nodes(split: Partition) -> list[Tensor]:
    """The user's nodes that are native layers in the programs."""
    names: set[str] = set()
    for program in split.programs.values():
        for segment in program.segments:
            if segment.kind == "native":
                names |= {source for place in segment.layers for source in program.layers[place].sources}
    return [node for node in split.cut.operations.placed if split.names[node.uid] in names]


def small_regions_on_host(bench: Workbench) -> Iterator[Proposal]:
    """Regions of the engine that take longer with their call and crossings than the host would for their ops."""
    for chip, split in bench.splits.items():
        estimate, regions = bench.estimates[chip], split.cut.on_engine
        parts = {part.number: part for part in estimate.parts if part.device == ENGINE}
        if len(parts) < 2:
            continue
        crossing = estimate.crossings_us / max(1, estimate.crossings)
        nodes: list[Tensor] = []
        most = 0.0
        for region in regions:
            gain = parts[region.number].us + 2 * crossing - host_band(region.nodes).middle
            if gain > 0:
                nodes += region.nodes
                most += gain
        if nodes and len(nodes) < sum(len(region.nodes) for region in regions):
            yield Proposal(
                name="small regions on the host",
                kind="cut",
                on_host=tuple(nodes),
                family="regions",
                cause="crossings",
                what=f"leave {plural(len(nodes), 'op')} of small regions on the host: starting the engine takes "
                "longer than computing them there",
                nodes=tuple(bench.names[node.uid] for node in nodes),
                how=_ON_HOST,
                numbers="the host computes in float32",
                most={chip: most},
            )


# The ends of the model, left to the caller.


def ends_outside(bench: Workbench) -> Iterator[Proposal]:
    """The ops that cut the model at its start or its end, computed by the caller."""
    readers: dict[int, list[Tensor]] = {}
    for node in bench.graph.nodes:
        for operand in node.inputs:
            readers.setdefault(operand.uid, []).append(node)
    for chip, split in bench.splits.items():
        estimate, placed = bench.estimates[chip], split.cut.operations.placed
        left_out = _ends(split, readers, _LITTLE * min(estimate.us, host_band(placed).middle))
        if not left_out or len(left_out) == len(placed):
            continue
        nodes = [node for node in bench.graph.nodes if node.uid in left_out]
        cutting = {node.uid for node in _cutting(split)}
        ops = dict.fromkeys(plain_name(node) for node in nodes if node.uid in cutting)
        longest = max((part.us for part in estimate.parts), default=estimate.us / estimate.calls)
        yield Proposal(
            name="ends of the model outside the call",
            kind="cut",
            outside=tuple(nodes),
            family="ends",
            cause="crossings",
            what=f"move {_and_more(list(ops), len(nodes))} out of the model: the app computes "
            f"{'it' if len(nodes) == 1 else 'them'} before or after the call",
            nodes=tuple(bench.names[node.uid] for node in nodes),
            how=_OUTSIDE,
            numbers="the caller computes what is left out",
            most={chip: estimate.us - longest},
        )


def _and_more(ops: Sequence[str], count: int) -> str:
    """The kinds of ops that cut, and how many other ops go with them."""
    others = count - len(ops)
    return ", ".join(ops) if others <= 0 else f"{', '.join(ops)} and {plural(others, 'more op')}"


def _cutting(split: Partition) -> list[Tensor]:
    """The nodes that keep a model from being one program."""
    on_host = [node for node in split.cut.operations.counted if split.device_of[node.uid] == HOST]
    return [*on_host, *_native_nodes(split)]


def _ends(split: Partition, readers: dict[int, list[Tensor]], most_us: float) -> set[int]:
    """The nodes to leave out: for each that cuts, it and all before it or all behind it, whichever is less work. All
    of them together must be little work."""
    placed = {node.uid: node for node in split.cut.operations.placed}
    outside: set[int] = set()
    us = 0.0
    for node in _cutting(split):
        if node.uid in outside:
            continue
        before = _closure(node, lambda one: one.inputs, placed, most_us)
        behind = _closure(node, lambda one: readers.get(one.uid, ()), placed, most_us)
        sides = [side for side in (before, behind) if side is not None]
        if sides:
            added = min(sides, key=len) - outside
            added_us = host_band([placed[uid] for uid in added]).middle
            if us + added_us <= most_us:
                outside |= added
                us += added_us
    return outside


def _closure(node: Tensor, follow: Follow, placed: dict[int, Tensor], most_us: float) -> set[int] | None:
    """A node and all on one side of it; None where that is more than a little work on the host."""
    seen, stack, us = {node.uid}, [node], 0.0
    while stack:
        one = stack.pop()
        us += host_band([one]).middle
        if us > most_us:
            return None
        for other in follow(one):
            if other.uid in placed and other.uid not in seen:
                seen.add(other.uid)
                stack.append(other)
    return seen


# The call itself.


def several_inputs(bench: Workbench) -> Iterator[Proposal]:
    """Eight inputs in one call, where starting it takes a good part of the time."""
    whole = {chip: estimate for chip, estimate in bench.estimates.items() if not estimate.parts}
    if not whole or bench.graph.states:
        return  # a call needs the state that the one before left
    most = {chip: (1 - 1 / _COUNT) * (estimate.us - estimate.engine_us) for chip, estimate in whole.items()}
    able = any(us >= LEAST_GAIN * whole[chip].us for chip, us in most.items())
    graph = batched(bench.graph, _COUNT) if able else None

    def ports(chip: str) -> Ports:
        return Ports(*(_COUNT * part for part in ports_of(bench.splits[chip].programs[0])))

    yield Proposal(
        name=f"{_COUNT} inputs in one call",
        kind="call",
        graph=None if graph is None else lambda: graph,
        inputs=_COUNT,
        ports=ports if graph is None else None,
        family="calls",
        cause="calls",
        what=f"give {_COUNT} inputs to one call (batch {_COUNT})",
        how=f"by the cost model, each layer counted {_COUNT} times; the time is that of one input"
        if graph is None
        else "the batch was compiled and estimated; the time is that of one input",
        numbers="same results",
        most=most,
    )


def batched(graph: Graph, count: int) -> Graph | None:
    """The graph with a first axis of ``count`` in place of one; None where the first axis is not that of a batch.

    Every value that depends on an input must come out ``count`` times as long along its first axis and else the same.
    """
    names = graph.names()
    copies: dict[int, Tensor] = {}
    try:
        for node in graph.nodes:
            if node.is_a(GraphTrait.PORT):
                if not node.shape or node.shape[0] != 1 or node.weight is not None:
                    return None
                copies[node.uid] = graph_input((count, *node.shape[1:]), node.dtype, name=names[node.uid])
            elif any(operand.uid in copies for operand in node.inputs):
                operands = [copies.get(operand.uid, operand) for operand in node.inputs]
                copy = make(node.definition, operands, _attrs(node, count), name=node.name, weight=node.weight)
                if not node.shape or node.shape[0] != 1 or copy.shape != (count, *node.shape[1:]):
                    return None
                copies[node.uid] = copy
        return Graph([copies[output.uid] for output in graph.outputs])
    except (AneforgeError, KeyError):
        return None  # an op that counts its inputs, or an output that depends on none


def _attrs(node: Tensor, count: int) -> dict[str, Any]:
    """The attributes of a node, with a stated result shape as long as the batch."""
    longer = (count, *node.shape[1:])
    return {name: longer if value == node.shape else value for name, value in node.attrs.items()}


def aligned_ports(bench: Workbench) -> Iterator[Proposal]:
    """Inputs and outputs whose rows end inside a line of 64 bytes are copied row by row."""

    def ports(chip: str) -> Ports:
        program = bench.splits[chip].programs[0]
        return Ports.of(*([_padded(port.user_shape) for port in group] for group in (program.inputs, program.outputs)))

    for chip, estimate in bench.estimates.items():
        if estimate.parts:
            continue
        program = bench.splits[chip].programs[0]
        both = (*program.inputs, *program.outputs)
        proposal = Proposal(
            name="rows of whole lines",
            kind="call",
            ports=ports,
            family="ports",
            cause="calls",
            what=f"pad the last axis of the inputs and outputs to a multiple of {_LINE}",
            nodes=tuple(port.name for port in both if _padded(port.user_shape) != port.user_shape),
            how="by the cost model, with the padded bytes",
            numbers="same results",
        )
        proposal.most[chip] = estimate.us - bench.price(proposal, [chip])[chip].us
        if proposal.most[chip] > 0:
            yield proposal


def _padded(shape: Sequence[int]) -> tuple[int, ...]:
    return (*shape[:-1], ceil(shape[-1] / _LINE) * _LINE) if shape else ()
