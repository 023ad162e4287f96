"""A partition as text: the regions, what crosses between them and what that costs, and why ops are off the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aneforge.chips.costs import first_load_of, wake_of, watts_by_data
from aneforge.chips.evidence import Fact
from aneforge.chips.names import chip_label, with_label
from aneforge.cost.constants import basis_of
from aneforge.cost.estimate import PARTS, Estimate
from aneforge.study.placement import fixed_costs
from aneforge.text import columns, first_of, grouped, more, short, some, wrapped

if TYPE_CHECKING:
    from aneforge.compiler.refusal import Refusal
    from aneforge.graph.tensor import Tensor
    from aneforge.study.partition import Partition
    from aneforge.study.regions import Crossing, Region


_MOST = 12
_NAME = 26  # letters of a name in a table


def partition_text(partition: Partition, everything: bool = False, label: str | None = None) -> str:
    from aneforge.study.partition import WAYS

    chip = label or chip_label(partition.target.name)
    head = f"{chip}: {len(partition.regions)} regions, {partition.on_engine:,} of {partition.ops:,} ops on the engine"
    lines = [wrapped(f"{head} ({partition.eligible:,} eligible)"), WAYS[partition.by], ""]
    shown = first_of(partition.regions, _MOST, everything)
    lines.append(columns(("region", "device", "ops", "reads", "gives"), [_row(partition, region) for region in shown]))
    lines += more(len(partition.regions), _MOST, "regions", everything)
    if partition.crossings:
        rows = [_crossing(crossing) for crossing in first_of(partition.crossings, _MOST, everything)]
        lines += ["", columns(("crossing", "type", "bytes", "way"), rows)]
        lines += more(len(partition.crossings), _MOST, "crossings", everything)
    lines += ["", *_costs(partition)]
    reasons = host_reasons(partition, everything, chip)
    if reasons:
        lines += ["", "not on the engine:", *reasons]
    return "\n".join(lines)


def host_reasons(partition: Partition, everything: bool = False, label: str | None = None) -> list[str]:
    """Why ops are not on the engine: a block for each rule and kind of op, or a line for each op."""
    chip = label or chip_label(partition.target.name)
    listed = list(partition.reasons.items())
    if everything:
        return [
            wrapped(f"{partition.names[uid]}: {with_label(why, partition.target, chip)}", "  ") for uid, why in listed
        ]
    blocks = grouped(listed, lambda entry: _kind(partition, entry[0]))
    lines = []
    for entries in list(blocks.values())[:_MOST]:
        names = [partition.names[uid] for uid, _ in entries]
        count = f"{len(names):,} ops, " if len(names) > 1 else ""
        lines.append(wrapped(f"{count}{some(names)}: {with_label(entries[0][1], partition.target, chip)}", "  "))
    return lines + more(len(blocks), _MOST, "reasons")


def _kind(partition: Partition, uid: int) -> tuple[str, str]:
    """What ops that are refused alike share: the rule, and the kind of op; of ops of the host, why they are there."""
    refusal: Refusal = partition.refusals[uid]
    node = partition.node_of(uid)
    return refusal.rule, str(node.attrs["reason"]) if node.op == "host" else node.op


def _costs(partition: Partition) -> list[str]:
    costs, evidence = fixed_costs()
    parts = ", ".join(f"{name} {value:g}" for name, value in costs.items())
    return [
        wrapped(f"{partition.says} [the latter predicted from estimates of an M4: M6.disp; C30, U51]"),
        wrapped(f"fixed costs {partition.fixed_us:,.0f} us (each in us: {parts}) {evidence.label()}"),
    ]


def _row(partition: Partition, region: Region) -> tuple[object, ...]:
    counted = sum(node.uid not in partition.cut.operations.views for node in region.nodes)
    reads, gives = (_names(partition, tensors) for tensors in (region.inputs, region.outputs))
    return region.number, region.device, counted, reads, gives


def _crossing(crossing: Crossing) -> tuple[str, ...]:
    kind = f"{crossing.tensor.dtype}{list(crossing.tensor.shape)}"
    return short(crossing.name, _NAME), kind, f"{crossing.bytes:,}", _way(crossing.source, crossing.readers)


def _names(partition: Partition, tensors: tuple[Tensor, ...]) -> str:
    """What a region reads or gives; of a view of an input, the input."""
    named = dict.fromkeys(short(partition.names[_behind_views(partition, tensor).uid], _NAME) for tensor in tensors)
    return some(list(named), 1)


def _behind_views(partition: Partition, tensor: Tensor) -> Tensor:
    while tensor.uid in partition.cut.operations.port_views:
        tensor = tensor.inputs[0]
    return tensor


def _way(source: Region, readers: tuple[Region, ...]) -> str:
    return f"{source.device} {source.number} -> {some([f'{reader.device} {reader.number}' for reader in readers], 2)}"


# What estimates say besides the table: where the time goes, the first call, and energy.


def _label(name: str) -> str:
    """The product whose times a name stands for."""
    return basis_of(name).label


def time_text(estimates: Mapping[str, Estimate]) -> str:
    """Where the time goes: of one chip in full, of several by what takes most."""
    if len(estimates) == 1:
        ((name, estimate),) = estimates.items()
        parts = [f"{us / estimate.us:.0%} {PARTS[part]}" for part, us in estimate.shares().items()]
        shown = [part for part in parts if not part.startswith("0%")]
        return wrapped(f"where the time goes on {_label(name)}: {', '.join(shown)}{_longest(estimate)}")
    lines = ["what takes most of the time:"]
    for part, names in grouped(estimates, lambda name: next(iter(estimates[name].shares()))).items():
        chips = [f"{_label(name)} {estimates[name].shares()[part] / estimates[name].us:.0%}" for name in names]
        lines.append(wrapped(f"{PARTS[part]}: {', '.join(chips)}", "  "))
    return "\n".join(lines)


def _longest(estimate: Estimate) -> str:
    """The layer that takes longest, if it takes a good part of the engine's time."""
    layer = max(estimate.layers, key=lambda one: one.us, default=None)
    if layer is None or layer.us < 0.1 * estimate.engine_us:
        return ""
    return f"; longest layer: {layer.op} of {some([short(name) for name in layer.sources], 2)}, {layer.us:,.1f} us"


def first_call_texts(estimates: Mapping[str, tuple[Estimate, float | None]]) -> Iterator[str]:
    """The first call after a pause and after a first load, and energy by data, for the chips where they are known."""
    lines: list[str] = []
    unknown: list[str] = []
    for name, (estimate, weight_bytes) in estimates.items():
        sentences = [*_wake(wake_of(estimate.basis.target))]
        if weight_bytes is not None:
            sentences += _first_load(first_load_of(estimate.basis.target, weight_bytes))
        lines += [wrapped(f"{_label(name)}: {sentence}", "  ") for sentence in sentences]
        if not sentences:
            unknown.append(_label(name))
    if lines:
        more = [wrapped(f"{', '.join(unknown)}: ? (nothing is published)", "  ")] if unknown else []
        yield "\n".join(["the first call:", *lines, *more])
    energy = [sentence for name, (estimate, _) in estimates.items() for sentence in _energy(name, estimate)]
    if energy:
        yield "\n".join(["energy of the engine by data:", *energy])


def _wake(wake: Fact[Any]) -> Iterator[str]:
    if wake.known:
        ramp = f", and full speed {wake.value.ramp_s:g} s later" if wake.value.ramp_s else ""
        yield f"after {wake.value.idle_s:g} s without a call: +{wake.value.extra_ms:g} ms{ramp} {wake.label()}"


def _first_load(load: Fact[Any]) -> Iterator[str]:
    if load.known:
        low, high = load.value.seconds
        took = f"{low:.2g} s" if low == high else f"{low:.2g} to {high:.2g} s"
        megabytes, chip = load.value.megabytes, load.value.measured_on
        size = "a small program" if megabytes is None else f"a layer with {megabytes:g} MB of weights"
        yield f"at the first load: compiling took {took} for {size} on {chip} {load.label()}"


def _energy(name: str, estimate: Estimate) -> Iterator[str]:
    by_data, watts = estimate.energy_by_data_mj, watts_by_data(estimate.basis.target)
    if by_data is not None:
        zeros, random = by_data
        range_mj = f"{zeros:.2f} mJ if all were zeros, {random:.2f} mJ with random numbers"
        rates = f"at the {watts.value.zeros:g} and {watts.value.random:g} W of an int8 convolution"
        yield wrapped(f"{_label(name)}: {range_mj}, {rates} {watts.label()}", "  ")


def first_call_json(estimate: Estimate, weight_bytes: float | None) -> dict[str, Any]:
    """The facts of the first call with their evidence; unknown ones have no value."""
    wake = wake_of(estimate.basis.target)
    record = {"wake": {**wake.to_json(), "value": wake.value._asdict() if wake.known else None}}
    if weight_bytes is not None:
        load = first_load_of(estimate.basis.target, weight_bytes)
        record["first_load"] = {**load.to_json(), "value": load.value._asdict() if load.known else None}
    return record
