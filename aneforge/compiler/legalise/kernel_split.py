"""Weights that exceed kernel memory (table 22.1, listing 24.3)."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.legalise.kernel_memory import (
    KERNELS,
    exceeds_kernel_memory,
    kernel_demand,
    kernel_passes,
    outputs_at_once,
)
from aneforge.compiler.legalise.pieces import Piece, output_axis, pieces_of, split
from aneforge.compiler.legalise.relabel import Relayer, rewritten
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused, RefusedOps


@pass_(
    "split-kernel-memory",
    2,
    reads=["kernel_stream_master", "kmem_cap_dense", "kmem_cap_streamed", "kernel_lanes", "max_operand_bytes"],
    requires=["layers", "mapped resizes", "native strides", "native groups", "kernel modes"],
    ensures=["kernel memory"],
    only=KERNELS,
)
def split_kernel_memory(module: Module, chip: Facts) -> int:
    """ExceedKmemSizeLimit: a weight above its cap runs in passes; one above the streamed cap becomes several layers.

    Above HAL 0x210 (16 MB) a layer is split into pieces along the output channels. Pieces keep the pointwise epilogue
    of the layer with their share of its constants; the rest of the fusion is undone behind the joined result. A weight
    that does not stream and of which one lane's share exceeds HAL 0x200 (64 KB) stays one layer: the engine takes the
    output channels in parts and reads the input again for each (U28).
    """

    def too_large(op: Op) -> bool:
        return op.kind in KERNELS and exceeds_kernel_memory(module, op, chip) and _has_weight(module, op)

    def cut(walk: Relayer, op: Op) -> None:
        split(walk, op, _pieces(module, op, chip), numbered=True)

    return rewritten(module, too_large, cut) + _count_passes(module, chip)


def _count_passes(module: Module, chip: Facts) -> int:
    """Say how often the input of each layer passes; returns how many pass more than once."""
    changes, refused = 0, []
    for op in module.ops:
        if op.kind not in KERNELS:
            continue
        try:
            passes = kernel_passes(module, op, chip)
        except Refused as refusal:
            refused.append(refusal)
            continue
        if passes > 1:
            op.mark(passes=passes)
            changes += 1
    if refused:
        raise RefusedOps(refused)
    return changes


def _has_weight(module: Module, op: Op) -> bool:
    """Whether the weight's numbers are known. Code from text may come without them; then nothing can be cut."""
    return op.operands[1].attrs["weight"] in module.weights


def _pieces(module: Module, op: Op, chip: Facts) -> list[Piece]:
    at_once = outputs_at_once(op, kernel_demand(module, op), chip["kmem_cap_streamed"])
    return pieces_of(op.shape[output_axis(op)], op.attrs.get("groups", 1), at_once)
