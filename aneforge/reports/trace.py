"""A report as a trace in the Chrome JSON format, which Perfetto opens: chips as processes, engines as threads.

The layers lie one after the other as the estimate counts them. A layer that another engine hides takes no time of its
own, and is shown as an instant where its partner begins. What a call costs around the layers (starting it, copying,
changing devices) has a track of its own, so that the last event ends when the call does.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from aneforge.reports.document import Report
from aneforge.reports.rows import BOUNDS, ChipRow, LayerRow, ProgramRow, RegionRow
from aneforge.version import __version__

_AROUND = "around"
_THREADS = ("NE", "PE", "TE", "DMA", "view", "host", _AROUND)
"""Engines in the order of their tracks, and what is around them."""
_NAMES = {"call": "starting the call", "copies": "copying inputs and outputs", "crossing": "changing devices"}


class TraceSlot(NamedTuple):
    """A piece of a call at its time: a layer, or what :class:`aneforge.reports.rows.SpanRow` says."""

    start: float
    us: float
    layer: LayerRow | None
    kind: str = "layer"
    region: RegionRow | None = None


def slots(program: ProgramRow, chip: ChipRow) -> Iterator[TraceSlot]:
    """What a call consists of on a chip, in order and from time 0 on."""
    regions = {region.number: region for region in program.regions}
    waiting = deque(chip.spans)
    start = 0.0
    for place in range(len(program.layers) + 1):
        while waiting and waiting[0].before <= place:
            span = waiting.popleft()
            region = None if span.region is None else regions.get(span.region)
            yield TraceSlot(start, span.us, None, span.kind, region)
            start += span.us
        if place < len(program.layers):
            yield TraceSlot(start, chip.layer_us[place], program.layers[place])
            start += chip.layer_us[place]


def trace_json(report: Report) -> str:
    """The trace of every chip that runs any of the model."""
    events = [event for number, chip in enumerate(report.chips, 1) for event in _chip_events(report, chip, number)]
    document = {
        "displayTimeUnit": "ns",
        "otherData": {
            "model": report.model["name"],
            "written_by": f"aneforge {__version__}",
            "times": "estimates of each layer, in microseconds",
        },
        "traceEvents": events,
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"


def _chip_events(report: Report, chip: ChipRow, process: int) -> Iterator[dict[str, Any]]:
    if chip.program is None:
        return
    program = report.programs[chip.program]
    yield _named("process_name", process, 0, f"{chip.label} ({chip.target})")
    used = {layer.engine for layer in program.layers} | {region.device for region in program.regions} | {_AROUND}
    for thread, engine in enumerate(_THREADS, 1):
        if engine in used:
            yield _named("thread_name", process, thread, engine)
    step = -1
    for slot in slots(program, chip):
        yield _event(report, chip, slot, process)
        if slot.layer is not None and slot.layer.step != step:
            step = slot.layer.step
            yield {
                "name": "bytes on chip",
                "ph": "C",
                "pid": process,
                "ts": round(slot.start, 4),
                "args": {"bytes": program.on_chip[step]},
            }


def _named(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _event(report: Report, chip: ChipRow, slot: TraceSlot, process: int) -> dict[str, Any]:
    layer = slot.layer
    track = layer.engine if layer is not None else "host" if slot.kind == "host" else _AROUND
    place = {"pid": process, "tid": 1 + _THREADS.index(track), "ts": round(slot.start, 4)}
    if layer is None and track == _AROUND:
        return {"name": _NAMES[slot.kind], "ph": "X", "dur": slot.us, **place}
    if layer is None:
        if slot.region is None:
            return {"name": "host", "ph": "X", "dur": slot.us, **place}
        names = [report.ops[number].name for number in slot.region.ops[:8]]
        about = {"operations": len(slot.region.ops), "first": ", ".join(names)}
        return {"name": f"host region {slot.region.number}", "ph": "X", "dur": slot.us, "args": about, **place}
    about = {
        "layer": layer.number,
        "from": ", ".join(report.ops[number].name for number in layer.sources),
        "shape": "x".join(map(str, layer.shape)),
        "bound": BOUNDS[chip.layer_bounds[layer.number]],
        "operations": layer.flops,
        "bytes moved": layer.traffic,
        "result in": layer.space,
    }
    name = " + ".join((layer.op, *layer.fused))
    if slot.us == 0:  # hidden behind a layer of another engine, or nothing to do
        return {"name": name, "ph": "i", "s": "t", "args": about, **place}
    return {"name": name, "ph": "X", "dur": slot.us, "args": about, **place}
