"""A partition as text: the regions, what crosses between them and what that costs, and why ops are off the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aneforge.output.grouped import first_of, grouped, more, short, some, wrapped
from aneforge.output.text import columns
from aneforge.study.placement import fixed_costs
from aneforge.targets.names import chip_label, with_label

if TYPE_CHECKING:
    from aneforge.compiler.refusal import Refusal
    from aneforge.graph.tensor import Tensor
    from aneforge.study.partition import Partition
    from aneforge.study.split import Crossing, Region

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
