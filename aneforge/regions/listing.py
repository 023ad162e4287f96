"""A partition as text: the regions, what crosses between them and what that costs, and why ops are off the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aneforge.regions.placement import fixed_costs
from aneforge.regions.split import ENGINE

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor
    from aneforge.regions.partition import Partition
    from aneforge.regions.split import Crossing, Region

__all__ = ["partition_text"]

_MOST = 12


def partition_text(partition: Partition) -> str:
    from aneforge.output.text import columns
    from aneforge.regions.partition import WAYS

    on_engine = sum(device == ENGINE for device in partition.device_of.values())
    lines = [
        f"{partition.target.name}: {len(partition.regions)} regions, {on_engine} of {len(partition.device_of)} "
        "ops on the engine "
        f"({partition.eligible} eligible); {WAYS[partition.by]}",
        "",
        columns(
            ("region", "device", "ops", "reads", "gives"), [_row(partition, region) for region in partition.regions]
        ),
    ]
    if partition.crossings:
        rows = [
            (
                crossing.name,
                f"{crossing.tensor.dtype}{list(crossing.tensor.shape)}",
                f"{crossing.bytes:,}",
                _way(crossing.source, crossing.readers),
            )
            for crossing in partition.crossings[:_MOST]
        ]
        lines += ["", columns(("crossing", "type", "bytes", "way"), rows)]
        lines += _more(len(partition.crossings), "crossings")
    costs, evidence = fixed_costs()
    lines += [
        "",
        f"eligible by the rules: {partition.eligible} of {len(partition.device_of)} ops; placed there by Core ML, "
        "likely: "
        f"{partition.placed} [predicted from estimates of an M4: M6.disp; C30, U51]",
    ]
    parts = ", ".join(f"{name} {value:g}" for name, value in costs.items())
    lines += [f"fixed costs {partition.fixed_us:,.0f} us (each in us: {parts}) {evidence.label()}"]
    if partition.reasons:
        lines += ["", "not on the engine:"]
        lines += [f"  {partition.names[uid]}: {why}" for uid, why in list(partition.reasons.items())[:_MOST]]
        lines += _more(len(partition.reasons), "ops")
    return "\n".join(lines)


def _row(partition: Partition, region: Region) -> tuple[object, ...]:
    reads, gives = (_names(partition, tensors) for tensors in (region.inputs, region.outputs))
    return region.number, region.device, len(region.nodes), reads, gives


def _crossing(crossing: Crossing) -> tuple[str, ...]:
    kind = f"{crossing.tensor.dtype}{list(crossing.tensor.shape)}"
    return crossing.name, kind, f"{crossing.bytes:,}", _way(crossing.source, crossing.readers)


def _names(partition: Partition, tensors: tuple[Tensor, ...]) -> str:
    names = [partition.names[tensor.uid] for tensor in tensors]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _way(source: Region, readers: tuple[Region, ...]) -> str:
    return f"{source.device} {source.number} -> {', '.join(f'{reader.device} {reader.number}' for reader in readers)}"


def _more(count: int, what: str) -> list[str]:
    return [f"  and {count - _MOST} more {what} (--json lists all)"] if count > _MOST else []
