"""How much kernel memory a weight needs, and which cap applies to it (listing 24.3). Phase 4 uses the same rules."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.compiler.facts import Facts
from aneforge.compiler.legalise.pieces import output_axis
from aneforge.compiler.lower.builder import reject_string
from aneforge.compiler.refusal import Refused

__all__ = [
    "KERNELS",
    "exceeds_kernel_memory",
    "is_streamable",
    "kernel_cap",
    "kernel_demand",
    "kernel_passes",
    "outputs_at_once",
    "stored_size",
]

KERNELS = kinds_with(Trait.STORED_KERNEL)
"""Ops whose stored weight lies in kernel memory as a whole; the engine tiles the right-hand side of a matmul."""


def is_streamable(op: Op, working_set: int) -> bool:
    """Whether an op's weight meets the conditions of a stream: unit stride, no dilation, no tile overlap, immutable.

    compression.json ``stream_conditions``; fp16 is a format like the others (U28). Whether the chip streams at all
    is a matter of the cap (:func:`kernel_cap`).
    """
    if len(op.operands) < 2 or op.operands[1].kind != "const_in":
        return False
    steps = (*op.attrs.get("strides", ()), *op.attrs.get("dilation_rates", ()))
    return all(step == 1 for step in steps) and not _tiles_overlap(op, working_set)


def _tiles_overlap(op: Op, working_set: int) -> bool:
    """U24: a tile more for every working set of the larger side; kernels taller than their stride overlap."""
    if "kernel_sizes" not in op.attrs or op.attrs["kernel_sizes"][1] <= op.attrs["strides"][1]:
        return False
    larger = max(side.type.bytes for side in (op.operands[0], op) if side.type is not None)
    return larger // working_set + 1 > 1


def kernel_cap(chip: Facts, streams: bool) -> int:
    """The streamed cap where the weight streams and the chip's streaming master is set, else the dense one."""
    return chip["kmem_cap_streamed"] if streams and chip["kernel_stream_master"] else chip["kmem_cap_dense"]


def kernel_demand(op: Op) -> int:
    """The bytes of an op's whole stored weight; 0 where none is stored."""
    if op.kind not in KERNELS or op.operands[1].kind != "const_in":
        return 0
    stored = op.operands[1].type
    return 0 if stored is None else stored.bytes


def exceeds_kernel_memory(op: Op, chip: Facts) -> bool:
    """Whether a weight is too large for one layer: any above the streamed cap, streamed or not (chapter 24)."""
    return kernel_demand(op) > chip["kmem_cap_streamed"]


def kernel_passes(op: Op, chip: Facts) -> int:
    """How often the input passes the engine: once where the weight streams or fits, else once for every part of the
    output channels that kernel memory holds.

    Each lane builds the coefficients of its own share of the output channels, and that share is what the dense cap
    is compared with (chapter 35, U28): 64 KB a lane, not 64 KB a layer.
    """
    demand = kernel_demand(op)
    if demand == 0 or kernel_cap(chip, is_streamable(op, chip["max_operand_bytes"])) != chip["kmem_cap_dense"]:
        return 1
    outputs = op.shape[output_axis(op)]
    share = -(-outputs // chip["kernel_lanes"])
    return -(-share // outputs_at_once(op, chip["kmem_cap_dense"]))


def outputs_at_once(op: Op, cap: int) -> int:
    """How many output channels a stretch of kernel memory holds; a single one that exceeds it cannot be cut."""
    single = kernel_demand(op) // op.shape[output_axis(op)]
    if single > cap:
        reason = f"the kernel of one output channel takes {single} bytes; kernel memory holds {cap}"
        raise Refused(op, "kernel-memory", reason, reject_string("MatrixMult", "can not fit"))
    return max(1, cap // max(1, single))


def stored_size(module: Module, op: Op) -> int:
    """The bytes of one stored constant in the form it is packed in."""
    assert op.type is not None
    if op.type.dtype != "f16" or op.labels.get("encoding", "fp16") == "fp16":
        return op.type.bytes
    encoded = module.weights[op.attrs["weight"]].encoded
    assert encoded is not None
    return encoded.stored_bytes
