"""A plan read back from labels: code that comes from text has no objects yet, only what was printed beside its ops.

This is the one place that does so. A pass writes the objects itself (:mod:`aneforge.compiler.plan`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aneforge.anec.ir import Module, Op
from aneforge.compiler.legalise.pieces import kernel_of
from aneforge.compiler.legalise.segments import is_bridge
from aneforge.compiler.plan import Buffer, Name, Plan, Segment, StoredWeight, TaskGroup, with_peaks
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.compiler.schedule.task_groups import steps_of
from aneforge.compiler.stored import stored_weight

__all__ = ["plan_from_labels", "schedule_from_labels"]


def plan_from_labels(module: Module, budget: int) -> Plan:
    """The whole plan of a module that has been through all passes, from nothing but its labels."""
    plan = Plan()
    plan.graph = LayerGraph(module)
    schedule_from_labels(plan, plan.graph, budget)
    plan.segments = plan.graph.with_borders(plan.segments or ())
    plan.buffers = _buffers(plan.graph)
    plan.task_groups = with_peaks(plan.task_groups or (), plan.buffers)
    plan.weights = tuple(_weights(module))
    return plan


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
        members.setdefault(layer.primary.labels["task_group"], []).append(layer)
    return tuple(
        TaskGroup(number, layers[0].segment, tuple(layer.number for layer in layers), 0, budget)
        for number, layers in sorted(members.items())
    )


def _buffers(graph: LayerGraph) -> tuple[Buffer, ...]:
    """Layers share a buffer where ``inside`` says so, or where one is a view of a port."""
    members: dict[Name, list[Layer]] = {op.attrs["name"]: [] for op in graph.module.inputs if op.labels}
    for layer in graph.layers:
        members.setdefault(_owner(graph, layer), []).append(layer)
    ports = {op.attrs["name"]: op for op in graph.module.inputs}
    buffers: list[Buffer] = []
    for owner, layers in members.items():
        numbers = tuple(layer.number for layer in layers)
        if isinstance(owner, str):
            port = ports[owner]
            buffers.append(_buffer(len(buffers), port, port.labels, (owner, *numbers)))
        else:
            root = graph.numbered[owner]
            buffers.append(_buffer(len(buffers), root.result, root.primary.labels, numbers))
    return tuple(buffers)


def _owner(graph: LayerGraph, layer: Layer) -> Name:
    """The layer or port whose buffer holds a result."""
    while (inside := layer.primary.labels.get("inside")) is None:
        source = next(iter(layer.inputs), None)
        if layer.engine != "view" or layer.primary.kind == "concat" or source is None:
            return layer.number
        if source.kind == "live_in":
            return source.attrs["name"]
        layer = graph.of[source]
    return inside


def _buffer(number: int, value: Op, labels: dict[str, Any], values: tuple[Name, ...]) -> Buffer:
    space, address = labels["space"], labels.get("address")
    channel, row = labels["channel_stride"], labels["row_stride"]
    if address is not None:
        address -= labels.get("buffer_offset", 0)
    n, d, c, h, _ = value.shape
    task_group = labels.get("task_group") if space == "l2" else None
    size = n * d * (h * row if space == "l2" else c * channel)
    return Buffer(number, space, address, size, channel, row, tuple(labels["live"]), task_group, values)


def _weights(module: Module) -> Iterator[StoredWeight]:
    readers = {kernel: op for op in module.ops if (kernel := kernel_of(op)) is not None}
    for op in module.ops:
        if "kernel_bytes" in op.labels:
            flow, path = op.labels.get("weight_flow"), op.labels.get("kernel_path")
            yield stored_weight(module, op, readers.get(op), op.labels["address"], flow, path)
