"""Buffer layout: an address for every buffer, so that no two that are live together overlap."""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Iterable
from typing import Any

from aneforge.anec.ir import Module
from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.memory.allocation import Allocation
from aneforge.compiler.memory.liveness import Buffer, Liveness
from aneforge.compiler.passes import pass_
from aneforge.compiler.schedule.chains import chained_into
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.compiler.schedule.partitions import budget

__all__ = ["Arena", "pack"]

ALIGNMENT = 64
"""Buffers start on a cache line; nothing finer or coarser is published."""


class Arena:
    """A stretch of memory with holes: best fit, holes that touch become one."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.top = 0
        self._holes: list[tuple[int, int]] = []  # (start, end), by start

    def take(self, size: int) -> int | None:
        """An address for that many bytes, or None where no stretch is long enough."""
        size = -(-size // ALIGNMENT) * ALIGNMENT
        best = None
        for place, (start, end) in enumerate(self._holes):
            room = end - start
            if room >= size and (best is None or room < best[0]):
                best = room, place
                if room == size:
                    break
        if best is not None:
            start, end = self._holes[best[1]]
            if end - start > size:
                self._holes[best[1]] = (start + size, end)
            else:
                del self._holes[best[1]]
            return start
        start = self.top
        if self._holes and self._holes[-1][1] == self.top:  # grow the last hole instead of leaving it
            start = self._holes[-1][0]
        if self.capacity is not None and start + size > self.capacity:
            return None
        if start < self.top:
            self._holes.pop()
        self.top = start + size
        return start

    def give_back(self, start: int, size: int) -> None:
        """Free what was taken at an address."""
        end = start + -(-size // ALIGNMENT) * ALIGNMENT
        insort(self._holes, (start, end))
        at = self._holes.index((start, end))
        for neighbour in (at, at - 1):  # join with the next hole, then with the one before
            if 0 <= neighbour < len(self._holes) - 1:
                (left, middle), (again, right) = self._holes[neighbour], self._holes[neighbour + 1]
                if middle == again:
                    self._holes[neighbour : neighbour + 2] = [(left, right)]


def pack(buffers: Iterable[Buffer], capacity: int | None) -> tuple[dict[Buffer, int], list[Buffer], int]:
    """Addresses by a scan over the steps; what finds no room; and the bytes that were needed."""
    arena = Arena(capacity)
    placed: dict[Buffer, int] = {}
    homeless: list[Buffer] = []
    ending: list[tuple[int, int, Buffer]] = []
    for number, buffer in enumerate(sorted(buffers, key=lambda each: (each.first, -each.size))):
        while ending and ending[0][0] < buffer.first:
            gone = heapq.heappop(ending)[2]
            arena.give_back(placed[gone], gone.size)
        address = arena.take(buffer.size)
        if address is None:
            homeless.append(buffer)
        else:
            placed[buffer] = address
            heapq.heappush(ending, (buffer.last, number, buffer))
    return placed, homeless, arena.top


@pass_(
    "lay-out-buffers",
    4,
    reads=["max_operand_bytes", "dram_alignment", "l2_bank_align", "max_l2_dst_stride"],
    requires=["allocations"],
    ensures=["addresses"],
)
def lay_out_buffers(module: Module, chip: Facts) -> int:
    """Give every buffer its place in L2 or memory, its row stride and its live range; counts what L2 had to give up.

    Holes between buffers can keep one out of L2 although the sum of all fits; it then goes to memory.
    """
    graph = LayerGraph.of_module(module)
    footprint = Footprint(chip)
    live = Liveness(graph, footprint, budget(chip["max_operand_bytes"]))
    owners = {layer.result: layer for layer in graph.layers}
    buffers = live.buffers()
    inside: dict[int, list[Buffer]] = {}
    for buffer in buffers:
        if buffer.partition is not None and live.on_chip(buffer):
            inside.setdefault(buffer.partition, []).append(buffer)
    spilled: list[Buffer] = []
    addresses: dict[Buffer, int] = {}
    for members in inside.values():
        placed, homeless, _ = pack(members, chip["max_operand_bytes"])
        addresses |= placed
        spilled += homeless
    on_chip = set(addresses)
    memory = [buffer for buffer in buffers if buffer not in on_chip and not buffer.port]
    addresses |= pack(memory, None)[0]
    for buffer in buffers:
        space = "port" if buffer.port else "l2" if buffer in on_chip else "dram"
        for value in buffer.values:
            layer = owners.get(value)
            labels = value.labels if layer is None else layer.primary.labels
            _place(labels, buffer, space, addresses.get(buffer))
            labels["row_stride"] = footprint.row_stride(buffer.owner)
            if layer is not None and buffer in spilled:
                _evict(layer)
    return len(spilled)


def _place(labels: dict[str, Any], buffer: Buffer, space: str, address: int | None) -> None:
    labels["space"] = space
    labels["live"] = (buffer.first, buffer.last)
    if address is not None:
        labels["address"] = address + labels.get("buffer_offset", 0)


def _evict(layer: Layer) -> None:
    """A result that finds no room on chip is streamed, or rewritten in place in memory."""
    labels = layer.primary.labels
    labels.pop("chained", None)
    moved = labels["allocation"] in (Allocation.IN_PLACE, Allocation.IN_PLACE_DEPENDENT)
    labels["allocation"] = int(Allocation.IN_PLACE_MEMORY if moved else Allocation.STREAMED)
    for consumer in layer.consumers:
        state = consumer.primary.labels["allocation"]
        if state in _FREED and not chained_into(consumer):
            consumer.primary.labels["allocation"] = int(_FREED[Allocation(state)])


_FREED = {
    Allocation.DEPENDENT: Allocation.RESIDENT,
    Allocation.IN_PLACE_DEPENDENT: Allocation.IN_PLACE,
    Allocation.RING_DEPENDENT: Allocation.RING,
}
"""What a result is once its layer reads no chained one any more."""
