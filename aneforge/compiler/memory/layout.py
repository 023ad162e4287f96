"""Buffer layout: an address for every buffer, so that no two that are live together overlap."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import MEMORY_LINE, Footprint, in_memory
from aneforge.compiler.memory.allocation import Allocation, LiveBuffer, Liveness
from aneforge.compiler.passes import merged_sources, pass_
from aneforge.compiler.plan import Buffer, Name, plan_of, with_peaks
from aneforge.compiler.schedule.groups import budget, chained_into
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.engine.ir import Module, Op

ALIGNMENT = 64
"""Buffers start on a cache line; nothing finer or coarser is published."""


class Arena:
    """A stretch of memory with holes: best fit, holes that touch become one."""

    def __init__(self, capacity: int | None = None) -> None:
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


@dataclass
class Packing:
    """Addresses, what found no room, and the bytes that were needed."""

    addresses: dict[LiveBuffer, int] = field(default_factory=dict)
    homeless: list[LiveBuffer] = field(default_factory=list)
    top: int = 0


def pack(
    buffers: Iterable[LiveBuffer],
    capacity: int | None = None,
    size_of: Callable[[LiveBuffer], int] = attrgetter("size"),
) -> Packing:
    """Addresses by a scan over the steps."""
    arena, packing = Arena(capacity), Packing()
    ending: list[tuple[int, int, LiveBuffer]] = []
    for number, buffer in enumerate(sorted(buffers, key=lambda buffer_: (buffer_.first, -size_of(buffer_)))):
        while ending and ending[0][0] < buffer.first:
            ended = heapq.heappop(ending)[2]
            arena.give_back(packing.addresses[ended], size_of(ended))
        address = arena.take(size_of(buffer))
        if address is None:
            packing.homeless.append(buffer)
        else:
            packing.addresses[buffer] = address
            heapq.heappush(ending, (buffer.last, number, buffer))
    packing.top = arena.top
    return packing


def pack_on_chip(buffers: Sequence[LiveBuffer], capacity: int) -> Packing:
    """Addresses in L2: the largest buffer first, each at the lowest place that is free for as long as it lives. So lie
    the matrices of published feed-forward parts.

    That takes time by how many buffers live together. Where these are very many, the order is that of the steps.
    """
    steps = 1 + max(buffer.last for buffer in buffers) - min(buffer.first for buffer in buffers)
    if sum(buffer.last + 1 - buffer.first for buffer in buffers) > _MOST_TOGETHER * steps:
        return pack(buffers, capacity)
    packing = Packing()
    alive: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # start and end of what is placed, by step
    begun: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # of what begins to live in a step
    for buffer in sorted(buffers, key=lambda buffer_: (-buffer_.size, buffer_.first)):
        size, start = -(-buffer.size // ALIGNMENT) * ALIGNMENT, 0
        later = (place for step in range(buffer.first + 1, buffer.last + 1) for place in begun.get(step, ()))
        for first, end in sorted((*alive.get(buffer.first, ()), *later)):
            if start + size <= first:
                break
            start = max(start, end)
        if start + size > capacity:
            packing.homeless.append(buffer)
            continue
        packing.addresses[buffer] = start
        packing.top = max(packing.top, start + size)
        begun[buffer.first].append((start, start + size))
        for step in range(buffer.first, buffer.last + 1):
            alive[step].append((start, start + size))
    return packing


_MOST_TOGETHER = 64
"""Buffers that live at the same time, on average, up to which the largest comes first."""


@pass_(
    "lay-out-buffers",
    4,
    reads=["max_operand_bytes", "dram_alignment", "l2_bank_align"],
    requires=["allocations"],
    ensures=["addresses"],
)
def lay_out_buffers(module: Module, chip: Facts) -> int:
    """Give every buffer its place in L2 or memory, its strides and its live range; counts what L2 had to give up.

    Holes between buffers can keep one out of L2 although the sum of all fits; it then goes to memory. Rows in memory
    are whole lines of 64 bytes; in L2 the channels of a row lie side by side.
    """
    plan, graph = plan_of(module), LayerGraph.of_module(module)
    live = Liveness.of_module(module, Footprint(chip), budget(chip["max_operand_bytes"]))
    buffers = live.buffers()
    spilled = _find_places(live, buffers, chip["max_operand_bytes"])
    plan.buffers = _records(live)
    _place_results(live)
    for buffer in spilled:
        for value in buffer.values:
            _evict(graph.of[value])
    plan.task_groups = with_peaks(plan.task_groups or (), plan.buffers)
    plan.segments = graph.with_borders(plan.segments or ())
    plan.shown = None
    plan.live = None  # every buffer has its place; a pass that changes that starts again
    return len(spilled)


def _find_places(live: Liveness, buffers: list[LiveBuffer], capacity: int) -> list[LiveBuffer]:
    """Give every buffer its space, address and strides; returns those that find no room in L2."""
    inside: dict[int, list[LiveBuffer]] = {}
    outside: list[LiveBuffer] = []
    for buffer in buffers:
        if buffer.task_group is not None and live.on_chip(buffer):
            inside.setdefault(buffer.task_group, []).append(buffer)
            buffer.space, buffer.strides = "l2", live.footprint.on_chip(buffer.owner)
        else:
            outside.append(buffer)
    spilled: list[LiveBuffer] = []
    for members in inside.values():
        packing = pack_on_chip(members, capacity)
        for buffer, address in packing.addresses.items():
            buffer.address = address
        spilled += packing.homeless
    if spilled:
        homeless_ones = set(spilled)
        outside = [buffer for buffer in buffers if buffer in homeless_ones or buffer.space != "l2"]
    for buffer in outside:
        buffer.space = "port" if buffer.port else "dram"
        buffer.strides = in_memory(buffer.owner, _line(buffer))
    in_dram = [buffer for buffer in outside if buffer.space == "dram"]
    for buffer, address in pack(in_dram, size_of=_memory_bytes).addresses.items():
        buffer.address = address
    return spilled


def _memory_bytes(buffer: LiveBuffer) -> int:
    assert buffer.strides is not None
    return buffer.strides.bytes


def _line(buffer: LiveBuffer) -> int:
    """What rows in memory are rounded up to. Views with rows of another length need rows without gaps: where whole
    lines would leave some, the rows lie end to end, which no task can read (U104)."""
    rows = {value.shape[4] * value.type.element_bytes for value in buffer.values if value.type is not None}
    return MEMORY_LINE if len(rows) == 1 or not any(size % MEMORY_LINE for size in rows) else 1


def _records(live: Liveness) -> tuple[Buffer, ...]:
    """Every buffer as an object: those of ports first, then in the order in which layers first write to them."""
    graph, of = live.graph, live.of
    names: dict[LiveBuffer, list[Name]] = {}
    for op in graph.module.inputs:
        if op in of:
            names.setdefault(of[op], []).append(op.attrs["name"])
    for layer in graph.layers:
        names.setdefault(of[layer.result], []).append(layer.number)
    records = []
    for number, (buffer, values) in enumerate(names.items()):
        assert buffer.strides is not None
        channel, row, size = buffer.strides
        task_group = buffer.task_group if buffer.space == "l2" else None
        needed = buffer.first, buffer.last
        records.append(
            Buffer(number, buffer.space, buffer.address, size, channel, row, needed, task_group, tuple(values))
        )
    return tuple(records)


def _place_results(live: Liveness) -> None:
    """Where the result of a layer lies inside a buffer that is not its own. A view has strides of its own."""
    for layer in live.graph.layers:
        layer.buffer_offset = layer.strides = None
        if layer.inside is not None:
            joined = live.graph.numbered[layer.inside].primary
            layer.buffer_offset = _offset(layer.result, joined, live.of[layer.result])
        elif layer.is_view:
            buffer = live.of[layer.result]
            on_chip = buffer.space == "l2"
            own = live.footprint.on_chip(layer.result) if on_chip else in_memory(layer.result, _line(buffer))
            layer.strides = own.channel, own.row


def _offset(value: Op, joined: Op, buffer: LiveBuffer) -> int:
    """Where a result lies inside the buffer of another layer: behind the pieces before it, if a concat joins them."""
    if joined.kind != "concat" or value not in joined.operands:
        return 0
    assert joined.type is not None
    assert buffer.strides is not None
    axis, before = joined.attrs["axis"], joined.operands[: joined.operands.index(value)]
    at = sum(operand.shape[axis] for operand in before)
    return buffer.strides.start(axis, at, joined.type.shape, joined.type.element_bytes)


def _evict(layer: Layer) -> None:
    """A result that finds no room on chip is streamed, or rewritten in place in memory."""
    layer.chained = False
    moved = layer.allocation in (Allocation.IN_PLACE, Allocation.IN_PLACE_DEPENDENT)
    layer.allocation = int(Allocation.IN_PLACE_MEMORY if moved else Allocation.STREAMED)
    for consumer in layer.consumers:
        if consumer.allocation in _FREED and not chained_into(consumer):
            consumer.allocation = int(_FREED[Allocation(consumer.allocation)])


_FREED = {
    Allocation.DEPENDENT: Allocation.RESIDENT,
    Allocation.IN_PLACE_DEPENDENT: Allocation.IN_PLACE,
    Allocation.RING_DEPENDENT: Allocation.RING,
}
"""What a result is once its layer reads no chained one any more."""


# Width concat and its kin: operands written where they belong, so that joining them costs nothing.


_BATCH, _WIDTH = 0, 4


@pass_(
    "join-widths",
    4,
    reads=["max_operand_bytes", "dram_alignment", "l2_bank_align"],
    requires=["task groups", "folded pads"],
    ensures=["joined concats"],
    only=["concat"],
)
def join_widths(module: Module, chip: Facts) -> int:
    """Width concat: layers that only a concat reads write into its buffer; the concat itself does nothing.

    Along the width each operand must start on the DMA granule (0x1c0). On chip the whole buffer is then held from
    the first operand on, which has to stay within the task group's budget.
    """
    graph = LayerGraph.of_module(module)
    footprint = Footprint(chip)
    most = budget(chip["max_operand_bytes"])
    live = Liveness.of_module(module, footprint, most)
    pressure = _Pressure(live)
    joined = 0
    for layer in graph.layers:
        pieces = _pieces(graph, layer, chip["dram_alignment"])
        if pieces and _affordable(live, pressure, layer, pieces, most):
            layer.engine = "view"
            whole = live.of[layer.result]
            for piece in pieces:
                piece.inside = layer.number
                live.share(piece.result, whole)
            joined += 1
    return joined


def _pieces(graph: LayerGraph, layer: Layer, granule: int) -> list[Layer]:
    """The layers that make a concat's operands, if each of them may write into its buffer."""
    op = layer.primary
    if op.kind != "concat" or op.attrs.get("interleave") or op.attrs["axis"] == _BATCH or len(layer.ops) > 1:
        return []
    pieces = [graph.of.get(operand) for operand in op.operands]
    producers = [piece for piece in pieces if piece is not None]
    if len(producers) < len(pieces) or len(set(producers)) < len(producers):
        return []
    for piece in producers:
        busy = piece.engine == "view" or piece.is_output or piece.is_ring or piece.inside is not None
        if busy or len(piece.consumers) > 1 or piece.segment != layer.segment:
            return []
    if op.attrs["axis"] == _WIDTH and any(_row_bytes(operand) % granule for operand in op.operands[:-1]):
        return []
    return producers


def _row_bytes(operand: Op) -> int:
    assert operand.type is not None
    return operand.type.shape[_WIDTH] * operand.type.element_bytes


class _Pressure:
    """Bytes on chip at every step."""

    def __init__(self, live: Liveness) -> None:
        changes = np.zeros(max(live.step, default=0) + 2, np.int64)
        for buffer in live.buffers():
            if live.on_chip(buffer):
                changes[buffer.first] += buffer.size
                changes[buffer.last + 1] -= buffer.size
        self.at = np.cumsum(changes)


def _affordable(live: Liveness, pressure: _Pressure, layer: Layer, pieces: list[Layer], most: int) -> bool:
    """In memory always; on chip if holding the whole buffer early stays within the budget."""
    whole = live.of[layer.result]
    if not live.on_chip(whole):
        return True
    if any(piece.task_group != layer.task_group for piece in pieces):
        return False
    parts = [live.of[piece.result] for piece in pieces]
    first, last = min(part.first for part in parts), live.step[layer.place]
    with_whole = pressure.at[first : last + 1].copy()
    with_whole[: last - first] += whole.size
    for part in parts:
        with_whole[part.first - first : part.last - first + 1] -= part.size
    if with_whole.max() > most:
        return False
    pressure.at[first : last + 1] = with_whole
    return True


# Pad folding: a pad before a window becomes the window's own padding.


_ROWS, _COLUMNS = 3, 4


@pass_("fold-padding", 4, requires=["task groups"], ensures=["folded pads"], only=["padding"])
def fold_padding(module: Module, chip: Facts) -> int:
    """Pad optimisation: a zero pad that only one convolution reads goes into its explicit_padding.

    An average pool takes it likewise if it has no padding of its own: then every zero counts, as ``inc_pad`` says.
    The map that is read instead is smaller than the padded one, so no task group's peak grows.
    """
    gone: set[int] = set()
    graph = LayerGraph.of_module(module)
    for op in module.ops:
        reader = op.only_user
        if op.kind != "padding" or reader is None or not _takes(graph, op, reader):
            continue
        # The layer is removed, so nothing is chained into it or runs beside it any more.
        layer = graph.of[op]
        for producer in layer.producers:
            producer.chained = False
        if layer.co_issue is not None:
            graph.numbered[layer.co_issue].co_issue = None
        rows, columns = op.attrs["padding_sizes"][_ROWS], op.attrs["padding_sizes"][_COLUMNS]
        added = (0, 0, *rows, *columns)
        name = "explicit_padding" if reader.kind == "convolution" else "padding"
        own = reader.attrs[name]
        padding = tuple(before + extra for before, extra in zip(own, added, strict=True))
        counted = {"inc_pad": True} if reader.kind == "average_pool" else {}
        reader.attrs = {**reader.attrs, name: padding, **counted}
        reader.set_operand(0, op.operands[0])
        reader.sources = merged_sources(op, reader)
        gone.add(graph.of[op].number)
    if gone:
        module.sweep()
        plan_of(module).drop_layers(gone)
    return len(gone)


def _takes(graph: LayerGraph, op: Op, reader: Op) -> bool:
    # Ops in the slots of the pad's layer are work of its own.
    if (
        op.attrs["padding_modes"] != "Zero"
        or reader.operands[0] is not op
        or any(user.layer == op.layer for user in op.users)
    ):
        return False
    own_layer, other = graph.of[op], graph.of.get(reader)
    if other is None or (own_layer.segment, own_layer.task_group) != (other.segment, other.task_group):
        return False
    kernel = _kernel(reader)
    sizes = op.attrs["padding_sizes"]
    if any(map(any, sizes[:_ROWS])):
        return False  # a window has no padding along the batch, the depth or the channels
    if kernel is None:
        return False
    own = reader.attrs["explicit_padding" if reader.kind == "convolution" else "padding"]
    rows, columns = (
        tuple(before + extra for before, extra in zip(sizes[axis], own[2 * axis - 4 : 2 * axis - 2], strict=True))
        for axis in (_ROWS, _COLUMNS)
    )
    # Padding as wide as the kernel would give windows that see nothing else.
    return max(rows) < kernel[0] and max(columns) < kernel[1]


def _kernel(reader: Op) -> tuple[int, int] | None:
    """Rows and columns of the window that the padding has to stay below, if the reader can take padding."""
    if reader.kind == "convolution" and reader.attrs.get("padding_mode", "Zero") == "Zero":
        kernel, dilation = reader.attrs["kernel_sizes"], reader.attrs["dilation_rates"]
        return (kernel[1] - 1) * dilation[1] + 1, (kernel[2] - 1) * dilation[2] + 1
    if reader.kind == "average_pool" and not any(reader.attrs["padding"]):
        return reader.attrs["ksize"][1], reader.attrs["ksize"][2]
    return None
