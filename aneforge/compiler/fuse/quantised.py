"""Quantised values: steps that undo each other, and kernels that stay as they are stored (table 22.3, dequantize)."""

from __future__ import annotations

from typing import NamedTuple

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.scales import keeps_digits, stored_weight
from aneforge.compiler.passes import Rewriter, is_const, merged_sources, pass_, rewrite_by_kind
from aneforge.graph.weights import Weight, intern_weight

_BYTES = {"si8": (-128, 127), "ui8": (0, 255)}
_PALETTE = 256  # entries that an index of one byte can name (compression.json palette)
# Where a kernel's table is named: the two layers of listing 22.2 and the product spell it differently.
TABLES = {"convolution": "kernel_palettized_LUT", "deconvolution": "kernel_palettized_LUT", "linear": "kernel_lut"}


def _step(op: Op) -> tuple[float, int]:
    """The step and the zero of a quantised value."""
    return op.attrs["scale"], op.attrs["zero_point"]


@pass_("collapse-quant-dequant", 1, requires=["no copies"], ensures=["single quantisers"], only=["quant"])
def collapse_quant_dequant(module: Module, chip: Facts) -> int:
    """CollapseQuantDequant: a quant of a dequant with the same scale and zero point is the stored value itself.

    Exact: wherever fp16 holds (q - z) * s to its 11 bits, that is nearer to q than half a step. The other way round,
    a dequant of a quant, rounds and saturates, and stays.
    """
    return rewrite_by_kind(module, {"quant": _undone})


def _undone(walk: Rewriter, op: Op) -> Op | None:
    before = op.operands[0]
    return before.operands[0] if _undoes(op, before) else None


def _undoes(op: Op, before: Op) -> bool:
    """Whether a quant gives back what the op before it read: whole numbers of the same type."""
    if before.kind != "dequant" or _step(before) != _step(op) or op.type is None:
        return False
    return op.type.dtype == op.attrs["to"] in _BYTES and before.operands[0].type == op.type and _step(op)[0] != 0.0


@pass_("dequant-across-concat", 1, requires=["single quantisers"], ensures=["joined quantisers"], only=["dequant"])
def dequant_across_concat(module: Module, chip: Facts) -> int:
    """DeduplicateStandaloneDequantGOCsAcrossConcat: equal dequants in front of a concat become one behind it."""
    return rewrite_by_kind(module, {"concat": _joined_dequants})


def _joined_dequants(walk: Rewriter, op: Op) -> Op | None:
    if not _equal_dequants(op):
        return None
    assert op.type is not None
    first, packed = op.operands[0], [dequant.operands[0] for dequant in op.operands]
    assert packed[0].type is not None
    joined = walk.emit("anec.concat", packed, TensorType(op.shape, packed[0].type.dtype), op.attrs, op.sources)
    return walk.emit("anec.dequant", [joined], op.type, first.attrs, merged_sources(*op.operands))


def _equal_dequants(concat: Op) -> bool:
    first = concat.operands[0]
    if first.kind != "dequant" or first.operands[0].type is None:
        return False
    stored = first.operands[0].type.dtype
    return all(
        dequant.kind == "dequant"
        and dequant.only_user is concat
        and _step(dequant) == _step(first)
        and dequant.operands[0].type is not None
        and dequant.operands[0].type.dtype == stored
        for dequant in concat.operands
    )


class Packed(NamedTuple):
    """A kernel as it is stored, and the constants that unpack it."""

    kernel: Op
    scale: Weight | None = None
    zero_point: Weight | None = None
    table: Weight | None = None


@pass_("dequant-into-weights", 1, ensures=["packed kernels"], rounds=True, only=["dequant", "gather_nd"])
def dequant_into_weights(module: Module, chip: Facts) -> int:
    """Table 22.3: the dequantize of a stored kernel is the weight path's own, kernel_scale or kernel_palettized_LUT.

    The scale becomes a stored constant and so an fp16 number; one that fp16 cannot hold to 11 bits stays outside.
    Whether a chip then streams the kernel or unpacks it ahead of time is a matter of the weight path (N51).
    """
    changes = 0
    for op in module.ops:
        table_name = TABLES.get(op.kind)
        packed = (
            None if table_name is None or any(name in op.attrs for name in op.spec.stored) else _packed(module, op)
        )
        if table_name is None or packed is None:
            continue
        op.sources = merged_sources(op.operands[1], op)
        op.set_operand(1, packed.kernel)
        parts = {"kernel_scale": packed.scale, "kernel_zero_point": packed.zero_point, table_name: packed.table}
        stored = {name: weight for name, weight in parts.items() if weight is not None}
        module.weights |= {weight.key: weight for weight in stored.values()}
        op.attrs = {**op.attrs, **{name: weight.key for name, weight in stored.items()}}
        changes += 1
    module.sweep()
    return changes


def _packed(module: Module, op: Op) -> Packed | None:
    """What unpacks the kernel of a convolution or product, if a dequant or a look-up of stored bytes does."""
    unpacking = op.operands[1]
    if unpacking.kind == "dequant":
        return _affine(module, unpacking)
    if unpacking.kind == "gather_nd":
        return _palette(module, unpacking)
    return None


def _is_packed(module: Module, op: Op) -> bool:
    return is_const(op) and op.type is not None and op.type.dtype in _BYTES and stored_weight(module, op) is not None


def _affine(module: Module, op: Op) -> Packed | None:
    """(q - zero point) * scale, both singular as the op has them."""
    kernel, (scale, zero) = op.operands[0], _step(op)
    if not _is_packed(module, kernel) or not keeps_digits(scale):
        return None
    assert kernel.type is not None
    low, high = _BYTES[kernel.type.dtype]
    if not low <= zero <= high:
        return None
    return Packed(kernel, intern_weight(scale), intern_weight(float(zero)) if zero else None)


def _palette(module: Module, op: Op) -> Packed | None:
    """A gather along the one axis of a stored line of numbers, by stored bytes laid out as the kernel is."""
    if len(op.operands) != 2 or len(op.attrs["axes"]) != 1:
        return None
    line, index = op.operands
    table = stored_weight(module, line)
    if table is None or not _is_packed(module, index) or index.shape != op.shape:
        return None
    size = line.shape[op.attrs["axes"][0]]
    if table.shape != (size,) or size > _PALETTE or index.type is None or index.type.dtype != "ui8":
        return None
    return Packed(index, table=table)
