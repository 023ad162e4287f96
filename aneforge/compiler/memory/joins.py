"""Width concat and its kin: operands written where they belong, so that joining them costs nothing."""

from __future__ import annotations

import numpy as np

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.memory.liveness import Liveness
from aneforge.compiler.passes import pass_
from aneforge.compiler.schedule.layers import Layer, LayerGraph
from aneforge.compiler.schedule.task_groups import budget

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
            _join(live, layer, pieces)
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


def _join(live: Liveness, layer: Layer, pieces: list[Layer]) -> None:
    layer.engine = "view"
    whole = live.of[layer.result]
    for piece in pieces:
        piece.inside = layer.number
        live.share(piece.result, whole)
