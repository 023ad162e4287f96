"""When each buffer is needed, who shares it, and whether it stays on chip."""

from __future__ import annotations

from aneforge.anec.ir import Op
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.compiler.schedule.partitions import steps_of

__all__ = ["Buffer", "Liveness"]

SEVERAL = -1


class Buffer:
    """One stretch of memory and the values that lie in it."""

    __slots__ = ("first", "last", "owner", "partition", "port", "size", "values")

    def __init__(self, owner: Op, first: int) -> None:
        self.owner = owner
        """The value that gives the buffer its size; the others are views of it or pieces inside it."""
        self.values: list[Op] = [owner]
        self.first = self.last = first
        self.partition: int | None = None
        """The one partition that makes and reads it; -1 where several do."""
        self.port = owner.kind == "live_in"
        self.size = 0

    def touch(self, partition: int) -> None:
        """A layer of a partition makes or reads it."""
        if self.partition is None:
            self.partition = partition
        elif self.partition != partition:
            self.partition = SEVERAL


class Liveness:
    """The buffers of a scheduled and partitioned module. Views share the buffer of what they rename; a layer that
    carries ``inside`` has its result in another layer's buffer: a piece of a joined concat, or a rewrite in place."""

    def __init__(self, graph: LayerGraph, footprint: Footprint, most: int) -> None:
        self.graph, self.footprint, self.most = graph, footprint, most
        self.step: dict[Layer, int] = {}
        self.of: dict[Op, Buffer] = {}
        for number, step in enumerate(steps_of(graph.layers)):
            for layer in step:
                self.step[layer] = number
        self._share()
        for layer in graph.layers:
            self._read(layer)
            self._make(layer)
        for value in graph.module.output.operands:
            buffer = self.of.get(value)
            if buffer is not None:
                buffer.port = True

    def _share(self) -> None:
        """A buffer with several layers in it is needed from the first of them on."""
        numbers = {layer.number: layer for layer in self.graph.layers}
        for layer in self.graph.layers:
            inside = layer.primary.labels.get("inside")
            if inside is None:
                continue
            owner = numbers[inside].result
            buffer = self.of.get(owner)
            if buffer is None:
                buffer = self.of[owner] = Buffer(owner, self.step[layer])
                buffer.size = self.footprint.bytes(owner)
            buffer.values.append(layer.result)
            self.of[layer.result] = buffer

    def _make(self, layer: Layer) -> None:
        result = layer.result
        buffer = self.of.get(result)
        if buffer is None and layer.primary.kind == "ring_buffer_writer":  # it changes the ring that it is given
            buffer = self._buffer(layer.primary.operands[1])
            buffer.values.append(result)
        if buffer is None and layer.engine == "view":
            source = next(iter(layer.inputs), None)
            if source is not None:
                buffer = self._buffer(source)
                buffer.values.append(result)
        if buffer is None:
            buffer = Buffer(result, self.step[layer])
            buffer.size = self.footprint.bytes(result)
        self.of[result] = buffer
        buffer.port |= layer.primary.kind == "state"  # it outlives the run, so the caller owns it
        buffer.first = min(buffer.first, self.step[layer])
        buffer.last = max(buffer.last, self.step[layer])
        buffer.touch(layer.primary.labels["partition"])

    def _read(self, layer: Layer) -> None:
        for value in layer.inputs:
            buffer = self._buffer(value)
            buffer.last = max(buffer.last, self.step[layer])
            buffer.touch(layer.primary.labels["partition"])

    def _buffer(self, value: Op) -> Buffer:
        found = self.of.get(value)
        if found is None:
            found = self.of[value] = Buffer(value, 0)
        return found

    def on_chip(self, buffer: Buffer) -> bool:
        """Made and read inside one partition, and no larger than its budget."""
        return not buffer.port and buffer.partition != SEVERAL and buffer.size <= self.most

    def buffers(self) -> list[Buffer]:
        """Each buffer once, in the order in which they are first needed."""
        return sorted(dict.fromkeys(self.of.values()), key=lambda buffer: buffer.first)
