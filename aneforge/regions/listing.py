"""A partition as text: the regions, what crosses between them and what that costs, and why ops are off the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aneforge.regions.placement import fixed_costs
from aneforge.regions.split import ENGINE

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor
    from aneforge.regions.partition import Partition
    from aneforge.regions.split import Crossing, Region

__all__ = ["told"]

_MOST = 12


def told(found: Partition) -> str:
    from aneforge.output.text import columns
    from aneforge.regions.partition import WAYS

    on_engine = sum(device == ENGINE for device in found.device_of.values())
    lines = [
        f"{found.target.name}: {len(found.regions)} regions, {on_engine} of {len(found.device_of)} ops on the engine "
        f"({found.eligible} eligible); {WAYS[found.by]}",
        "",
        columns(("region", "device", "ops", "reads", "gives"), [_row(found, each) for each in found.regions]),
    ]
    if found.crossings:
        rows = [
            (
                each.name,
                f"{each.tensor.dtype}{list(each.tensor.shape)}",
                f"{each.bytes:,}",
                _way(each.source, each.readers),
            )
            for each in found.crossings[:_MOST]
        ]
        lines += ["", columns(("crossing", "type", "bytes", "way"), rows)]
        lines += _more(len(found.crossings), "crossings")
    costs, evidence = fixed_costs()
    lines += [
        "",
        f"eligible by the rules: {found.eligible} of {len(found.device_of)} ops; placed there by Core ML, likely: "
        f"{found.placed} [predicted from estimates of an M4: M6.disp; C30, U51]",
    ]
    parts = ", ".join(f"{name} {value:g}" for name, value in costs.items())
    lines += [f"fixed costs {found.fixed_us:,.0f} us (each in us: {parts}) {evidence.label()}"]
    if found.reasons:
        lines += ["", "not on the engine:"]
        lines += [f"  {found.names[uid]}: {why}" for uid, why in list(found.reasons.items())[:_MOST]]
        lines += _more(len(found.reasons), "ops")
    return "\n".join(lines)


def _row(found: Partition, region: Region) -> tuple[object, ...]:
    reads, gives = (_names(found, each) for each in (region.inputs, region.outputs))
    return region.number, region.device, len(region.nodes), reads, gives


def _crossing(each: Crossing) -> tuple[str, ...]:
    kind = f"{each.tensor.dtype}{list(each.tensor.shape)}"
    return each.name, kind, f"{each.bytes:,}", _way(each.source, each.readers)


def _names(found: Partition, tensors: tuple[Tensor, ...]) -> str:
    names = [found.names[each.uid] for each in tensors]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _way(source: Region, readers: tuple[Region, ...]) -> str:
    return f"{source.device} {source.number} -> {', '.join(f'{each.device} {each.number}' for each in readers)}"


def _more(count: int, what: str) -> list[str]:
    return [f"  and {count - _MOST} more {what} (--json lists all)"] if count > _MOST else []
