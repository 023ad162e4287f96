"""The printed form of a plan: its labels in the text, and the plan read back from them.

Code that comes from text has no objects yet, only what was printed beside its ops. This is the one place that reads
it; what is read is taken off the ops, so that every decision is in one place only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aneforge.compiler.legalise.encodings import decoded_kernel
from aneforge.compiler.legalise.kernels import kernel_of, side_constants_size, stored_size
from aneforge.compiler.legalise.views import is_bridge
from aneforge.compiler.plan import Buffer, Name, Plan, Segment, StoredWeight, TaskGroup, plan_of, with_peaks
from aneforge.compiler.schedule.groups import steps_of
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.engine.ir import AnecError, Module, Op

_PLACE = ("space", "live", "channel_stride", "row_stride", "buffer_offset", "address")
_PACKED = ("address", "kernel_bytes", "kernel_path")

Labels = dict[str, Any]


def printed_labels(module: Module, plan: Plan) -> dict[Op, Labels]:
    """What a plan prints beside each op, by the names of :data:`aneforge.engine.spec.LABELS`."""
    labels: dict[Op, Labels] = {}
    if plan.segments is not None or plan.graph is not None:
        graph = LayerGraph.of_module(module)
        labels = graph.labels()
        ports = {op.attrs["name"]: op for op in module.inputs}
        for buffer in plan.buffers or ():
            for name in buffer.values:
                layer = None if isinstance(name, str) else graph.numbered[name]
                op = ports[str(name)] if layer is None else layer.primary
                labels[op] = labels.get(op, {}) | _place(buffer, layer)
    constants = [op for op in module.ops if op.kind == "const_in"]
    for op, weight in zip(constants, plan.weights or (), strict=False):
        labels[op] = {"address": weight.address, "kernel_bytes": weight.stored_bytes}
        if weight.path is not None:
            labels[op]["kernel_path"] = weight.path
    return labels


def _place(buffer: Buffer, layer: Layer | None) -> Labels:
    """Where a value lies: a port, or the result of a layer."""
    channel, row = (layer and layer.strides) or (buffer.channel_stride, buffer.row_stride)
    offset = layer and layer.buffer_offset
    address = None if buffer.address is None else buffer.address + (offset or 0)
    values = (buffer.space, buffer.live, channel, row, offset, address)
    return {name: value for name, value in zip(_PLACE, values, strict=True) if value is not None}


def plan_from_labels(module: Module, budget: int) -> Plan:
    """The whole plan of a module that has been through all passes, from what was printed beside its ops."""
    plan, graph = plan_of(module), LayerGraph.of_module(module)
    schedule_from_labels(plan, graph, budget)
    plan.segments = graph.with_borders(plan.segments or ())
    if plan.buffers is None:
        plan.buffers = _buffers(graph)
    plan.task_groups = with_peaks(plan.task_groups or (), plan.buffers)
    if plan.weights is None:
        plan.weights = tuple(_weights(module))
    return plan


def spaces_of(graph: LayerGraph) -> dict[Name, str]:
    """The space of the result of each layer, by its number, and of ports; as printed where code came as text."""
    buffers = plan_of(graph.module).buffers
    if buffers is None:
        return {layer.number: layer.primary.labels["space"] for layer in graph.layers}
    return {name: buffer.space for buffer in buffers for name in buffer.values}


def schedule_from_labels(plan: Plan, graph: LayerGraph, budget: int) -> None:
    """What phases 2 and 3 decide, as far as the plan lacks it: a pass of phase 4 may be run on text alone."""
    if plan.segments is None:
        plan.segments = _segments(graph)
    if plan.steps is None:
        plan.steps = tuple(tuple(layer.number for layer in step) for step in steps_of(graph.layers))
    if plan.task_groups is None:
        plan.task_groups = _task_groups(graph, budget)


def _segments(graph: LayerGraph) -> tuple[Segment, ...]:
    members: dict[int, list[Layer]] = {}
    for layer in graph.layers:
        members.setdefault(layer.segment, []).append(layer)
    return tuple(
        Segment(
            number,
            "native" if any(is_bridge(layer.primary) for layer in layers) else "compute",
            tuple(layer.number for layer in layers),
        )
        for number, layers in sorted(members.items())
    )


def _task_groups(graph: LayerGraph, budget: int) -> tuple[TaskGroup, ...]:
    members: dict[int, list[Layer]] = {}
    for layer in graph.layers:
        if layer.task_group is None:
            raise AnecError(f"layer {layer.number} belongs to no task group; run phase 3 (schedule) first")
        members.setdefault(layer.task_group, []).append(layer)
    return tuple(
        TaskGroup(number, layers[0].segment, tuple(layer.number for layer in layers), 0, budget)
        for number, layers in sorted(members.items())
    )


def _buffers(graph: LayerGraph) -> tuple[Buffer, ...]:
    """Layers share a buffer where ``inside`` says so, or where one is a view of a port."""
    ports = {op.attrs["name"]: op for op in graph.module.inputs if op.labels}
    places: dict[Name, Labels] = {name: op.unmark(_PLACE) for name, op in ports.items()}
    members: dict[Name, list[Layer]] = {name: [] for name in ports}
    for layer in graph.layers:
        labels = places[layer.number] = layer.primary.unmark(_PLACE)
        layer.buffer_offset = labels.get("buffer_offset")
        if layer.is_view and layer.inside is None:
            layer.strides = labels["channel_stride"], labels["row_stride"]
        members.setdefault(_owner(graph, layer), []).append(layer)
    buffers: list[Buffer] = []
    for owner, layers in members.items():
        numbers = tuple(layer.number for layer in layers)
        if isinstance(owner, str):
            value, values, task_group = ports[owner], (owner, *numbers), None
        else:
            root = graph.numbered[owner]
            value, values, task_group = root.result, numbers, root.task_group
        buffers.append(_buffer(len(buffers), value, places[owner], task_group, values))
    return tuple(buffers)


def _owner(graph: LayerGraph, layer: Layer) -> Name:
    """The layer or port whose buffer holds a result."""
    while layer.inside is None:
        source = next(iter(layer.inputs), None)
        if not layer.is_view or layer.primary.kind == "concat" or source is None:
            return layer.number
        if source.kind == "live_in":
            return source.attrs["name"]
        layer = graph.of[source]
    return layer.inside


def _buffer(number: int, value: Op, labels: Labels, task_group: int | None, values: tuple[Name, ...]) -> Buffer:
    space, address = labels["space"], labels.get("address")
    channel, row = labels["channel_stride"], labels["row_stride"]
    if address is not None:
        address -= labels.get("buffer_offset", 0)
    n, d, c, h, _ = value.shape
    size = n * d * (h * row if space == "l2" else c * channel)
    within = task_group if space == "l2" else None
    return Buffer(number, space, address, size, channel, row, tuple(labels["live"]), within, values)


def _weights(module: Module) -> Iterator[StoredWeight]:
    readers = {kernel: op for op in module.ops if (kernel := kernel_of(op)) is not None}
    for op in module.ops:
        if "kernel_bytes" in op.labels:
            labels = op.unmark(_PACKED)
            yield stored_weight(module, op, readers.get(op), labels["address"], labels.get("kernel_path"))


def stored_weight(module: Module, op: Op, reader: Op | None, address: int, path: str | None) -> StoredWeight:
    """One stored constant with what its labels and the op that reads it as a kernel say."""
    assert op.type is not None
    encoding = op.labels.get("encoding", "fp16" if op.type.dtype == "f16" else op.type.dtype)
    size = stored_size(module, op)
    beside = 0 if reader is None else side_constants_size(module, reader)
    key = op.attrs["weight"]
    numbers = module.weights.get(key)
    if numbers is not None and reader is not None:
        numbers = decoded_kernel(module, reader)  # a recipe: nothing is computed before it is read
    return StoredWeight(
        key,
        op.sources,
        op.type.shape,
        encoding,
        size,
        size + beside,
        address,
        op.labels.get("weight_flow"),
        path,
        op.labels.get("folded"),
        numbers,
    )
