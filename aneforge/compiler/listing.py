"""A program as text that a person can follow from the user's nodes to addresses."""

from __future__ import annotations

from typing import Any

from aneforge.compiler.cuts import cuts_of
from aneforge.compiler.memory.allocation import Allocation
from aneforge.compiler.program import Program, ProgramLayer, ProgramSegment
from aneforge.output.text import human_bytes

_STATES = {
    Allocation.RESIDENT: "resident",
    Allocation.STREAMED: "streamed",
    Allocation.CHAINED: "chained",
    Allocation.DEPENDENT: "resident, reads a chain",
    Allocation.IN_PLACE: "in place",
    Allocation.IN_PLACE_DEPENDENT: "in place, reads a chain",
    Allocation.RING: "ring buffer",
    Allocation.RING_DEPENDENT: "ring buffer, reads a chain",
    Allocation.IN_PLACE_MEMORY: "in place in memory",
}


def listing(program: Program) -> str:
    """Segments, task groups and layers in the order of the schedule, with where each result lies and which nodes it is
    for; then what crosses where native layers cut it."""
    stats = program.stats
    chips = ", ".join(program.target.chips) or "no product known"
    lines = [
        f"program for {program.target.name} ({chips}){_route(program)}",
        f"{_count(stats['segments'], 'segment')}, {_count(stats['task_groups'], 'task group')}, "
        f"{_count(stats['layers'], 'layer')} of {stats['ops']} ops, {stats['chained']} chained, "
        f"{_count(stats['co_issued'], 'pair')} co-issued",
        f"weights {human_bytes(stats['weight_bytes'])} (packed {human_bytes(stats['kernel_bytes'])}), "
        f"peak on chip {human_bytes(stats['peak_l2'])}, memory for intermediates {human_bytes(stats['memory_bytes'])}",
    ]
    lines += [f"input {port.name} {_shape(port.ndchw_shape)} {port.dtype}" for port in program.inputs]
    task_groups = {group.number: group for group in program.task_groups}
    weights = {weight.key: weight for weight in program.weights}
    for segment in program.segments:
        lines.append(f"segment {segment.number} ({segment.kind}){_reads(segment)}")
        current = None
        for number in segment.layers:
            layer = program.layers[number]
            if layer.task_group != current:
                current = layer.task_group
                group = task_groups[current]
                lines.append(f"  task group {current}: peak {human_bytes(group.peak)} of {human_bytes(group.budget)}")
            lines += _layer(layer, weights)
    lines += [f"output {port.name} {_shape(port.ndchw_shape)} {port.dtype}" for port in program.outputs]
    lines += map(str, cuts_of(program))
    return "\n".join(lines) + "\n"


def _route(program: Program) -> str:
    return ", built by the direct route (authored layers, no conversion)" if program.route == "direct" else ""


def _layer(layer: ProgramLayer, weights: dict[str, Any]) -> list[str]:
    absorbed = "".join(f" + {slot.op}" for slot in layer.slots)
    buffer = layer.buffer
    offset = layer.labels.get("buffer_offset", 0)
    where = buffer.space if buffer.address is None else f"{buffer.space} {buffer.address + offset:#x}"
    read = ", ".join(str(source) for source in layer.inputs)
    beside = f", beside {layer.co_issue}" if layer.co_issue is not None else ""
    notes = [text for text in (_notes(layer), _flows(layer, weights)) if text]
    work = f"{layer.op}{_window(layer)}{absorbed}"
    lines = [
        f"    {layer.number:>4} {layer.engine:<4} {work} {_shape(layer.shape)} <- {read or '-'}",
        f"              {int(layer.allocation)} {_STATES[layer.allocation]}, {where}, "
        f"live {buffer.live[0]}-{buffer.live[1]}{beside}{''.join(f'; {note}' for note in notes)}",
        f"              from {', '.join(layer.sources) or 'the compiler'}",
    ]
    return lines


def _window(layer: ProgramLayer) -> str:
    attrs = layer.attrs
    if "kernel_sizes" in attrs:
        _, height, width = attrs["kernel_sizes"]
        _, rows, columns = attrs["strides"]
        groups = f" g{attrs['groups']}" if attrs["groups"] > 1 else ""
        return f" {height}x{width}{_stride(rows, columns)}{groups}"
    if "ksize" in attrs:
        _, height, width = attrs["ksize"]
        _, rows, columns = attrs["stride"]
        return f" {height}x{width}{_stride(rows, columns)}"
    return ""


def _stride(rows: int, columns: int) -> str:
    if rows == columns == 1:
        return ""
    return f"/{rows}" if rows == columns else f"/{rows}x{columns}"


def _notes(layer: ProgramLayer) -> str:
    labels = layer.labels
    notes = []
    if "piece" in labels:
        notes.append(f"piece {labels['piece'][0] + 1} of {labels['piece'][1]}")
    if layer.passes > 1:
        notes.append(f"{layer.passes} passes")
    if "data_path" in labels:
        notes.append(f"{labels['data_path']} data path" + (f" as {labels['storage']}" if "storage" in labels else ""))
    if "large_kernel" in labels:
        notes.append("large-kernel mode")
    if "inside" in labels:
        notes.append(f"in the buffer of {layer.buffer.values[0]}" if layer.buffer.values[0] != layer.number else "")
    return ", ".join(text for text in notes if text)


def _flows(layer: ProgramLayer, weights: dict[str, Any]) -> str:
    flows = []
    for key in layer.weights:
        weight = weights.get(key)
        if weight is not None and weight.flow is not None:
            flow = "streamed" if weight.flow == "stream" else "folded"
            flow = flow if weight.folded_from is None else f"folded from {weight.folded_from}"
            flows.append(f"{human_bytes(weight.bytes)} of weights {flow}, {weight.path}")
    return ", ".join(flows)


def _reads(segment: ProgramSegment) -> str:
    return f" reads {', '.join(str(source) for source in segment.inputs)}" if segment.inputs else ""


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(str(extent) for extent in shape)


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
