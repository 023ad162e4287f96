"""Which kernel-memory cap a weight is sized against (listing 24.3); phase 4 asks the same when it packs weights."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.compiler.facts import Facts

__all__ = ["KERNELS", "exceeds", "kernel_cap", "kernel_demand", "stored_size", "streamable"]

KERNELS = ("convolution", "deconvolution", "linear")
"""Ops whose stored weight lies in kernel memory as a whole; the engine tiles the right-hand side of a matmul."""


def streamable(op: Op, working_set: int) -> bool:
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
    """The bytes of an op's whole stored weight (U28); 0 where none is stored."""
    if op.kind not in KERNELS or op.operands[1].kind != "const_in":
        return 0
    stored = op.operands[1].type
    return 0 if stored is None else stored.bytes


def exceeds(op: Op, chip: Facts) -> bool:
    """ExceedKmemSizeLimit: whether a layer's weight has to be split."""
    demand = kernel_demand(op)
    return demand > 0 and kernel_cap(chip, streamable(op, chip["max_operand_bytes"])) < demand


def stored_size(module: Module, op: Op) -> int:
    """The bytes of one stored constant in the form it is packed in."""
    assert op.type is not None
    if op.type.dtype != "f16" or op.labels.get("encoding", "fp16") == "fp16":
        return op.type.bytes
    encoded = module.weights[op.attrs["weight"]].encoded
    assert encoded is not None
    return encoded.bytes
