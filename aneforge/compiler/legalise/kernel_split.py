"""Weights that exceed kernel memory (table 22.1, listing 24.3)."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts
from aneforge.compiler.legalise.kernel_memory import KERNELS, exceeds, kernel_cap, kernel_demand, streamable
from aneforge.compiler.legalise.pieces import Piece, output_axis, pieces_of, split
from aneforge.compiler.legalise.relabel import rewritten
from aneforge.compiler.lower.builder import reject_string
from aneforge.compiler.passes import pass_
from aneforge.compiler.refusal import Refused


@pass_(
    "split-kernel-memory",
    2,
    reads=["kernel_stream_master", "kmem_cap_dense", "kmem_cap_streamed", "max_operand_bytes"],
    requires=["layers", "mapped resizes", "native strides", "native groups", "kernel modes"],
    ensures=["kernel memory"],
    only=KERNELS,
)
def split_kernel_memory(module: Module, chip: Facts) -> int:
    """ExceedKmemSizeLimit: a weight above its kernel-memory cap becomes pieces along the output channels.

    A streamed weight is sized against HAL 0x210, any other against 0x200. Pieces keep the pointwise epilogue of the
    layer with their share of its constants; the rest of the fusion is undone behind the joined result.
    """

    def too_large(op: Op) -> bool:
        return exceeds(op, chip) and _has_weight(module, op)

    return rewritten(module, too_large, lambda walk, op: split(walk, op, _pieces(op, chip), numbered=True))


def _has_weight(module: Module, op: Op) -> bool:
    """A text may come without its numbers; then there is nothing to cut."""
    return op.operands[1].attrs["weight"] in module.weights


def _pieces(op: Op, chip: Facts) -> list[Piece]:
    cap = kernel_cap(chip, streamable(op, chip["max_operand_bytes"]))
    outputs = op.shape[output_axis(op)]
    each = kernel_demand(op) // outputs
    if each > cap:
        reason = f"the kernel of one output channel takes {each} bytes, kernel memory holds {cap}"
        raise Refused(op, "kernel-memory", reason, reject_string("MatrixMult", "can not fit"))
    return pieces_of(outputs, op.attrs.get("groups", 1), cap // each)
