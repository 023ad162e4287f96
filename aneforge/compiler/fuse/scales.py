"""Fold scales, batch norms, gain and offset, and quantisers into what they scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from aneforge.chips import store
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import Rewriter, is_const, merged_sources, pass_, rewrite_by_kind
from aneforge.engine.ir import Module, Op, TensorType
from aneforge.graph.encoding import SMALLEST_NORMAL
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.weights import Weight, derived_weight, intern_weight


def stored_values(module: Module, op: Op) -> np.ndarray | None:
    """The values of a stored constant, in float64; None for any other op, and where the text came without values."""
    weight = stored_weight(module, op)
    return None if weight is None else weight.array.astype(np.float64)


def stored_weight(module: Module, op: Op) -> Weight | None:
    """The stored constant of an op, with its numbers unread; None for any other op."""
    return module.weights.get(op.attrs["weight"]) if op.kind == "const_in" else None


def fits_fp16(values: np.ndarray) -> bool:
    return bool(np.abs(values).max(initial=0.0) <= FP16_MAX)


def keeps_digits(values: np.ndarray | float) -> bool:
    """Whether fp16 holds every number to its 11 bits: none runs over, none but zero is below the normal range."""
    sizes = np.abs(np.asarray(values, np.float64))
    return bool(((sizes == 0.0) | ((sizes >= SMALLEST_NORMAL) & (sizes <= FP16_MAX))).all())


@pass_("fold-batch-norm", 1, ensures=["no batch norms"], rounds=True, only=["batch_norm"])
def fold_batch_norm(module: Module, chip: Facts) -> int:
    """An inference batch norm with stored statistics is a gain and an offset per channel (FoldScale)."""

    def pattern(walk: Rewriter, op: Op) -> Op | None:
        vectors = [
            vector for vector in (stored_values(module, operand) for operand in op.operands[1:]) if vector is not None
        ]
        if len(vectors) != 4:
            return None
        gamma, beta, mean, variance = (vector.reshape(-1) for vector in vectors)
        gain = gamma / np.sqrt(variance + op["epsilon"])
        offset = beta - mean * gain
        if not keeps_digits(gain) or not fits_fp16(offset):
            return None
        gain, offset = np.broadcast_arrays(gain, offset)
        channels = TensorType((1, 1, len(gain), 1, 1))
        scale, shift = walk.constant(gain, channels, op.sources), walk.constant(offset, channels, op.sources)
        assert op.type is not None
        return walk.emit("anec.gain_offset_control", [op.operands[0], scale, shift], op.type, None, op.sources)

    return rewrite_by_kind(module, {"batch_norm": pattern})


@pass_(
    "fold-gain-into-weights",
    1,
    requires=["gain and offset"],
    rounds=True,
    only=["gain_offset_control"],
    loses="folded: the kernel holds the gain and offset of what reads it",
)
def fold_gain_into_weights(module: Module, chip: Facts) -> int:
    """FoldWeightsWithScale: the gain after a convolution with a stored kernel goes into the kernel.

    Of a transposed convolution only the offset does, as its bias. Only where the convolution has no other reader; the
    offset becomes its bias. A kernel stored in bytes keeps them: the gain goes into its kernel_scale, one number an
    output channel.
    """
    return rewrite_by_kind(module, {"gain_offset_control": _folded})


def _folded(walk: Rewriter, op: Op) -> Op | None:
    module = walk.module
    producer = op.operands[0]
    if len(producer.users) != 1 or not is_plain_affine(op):
        return None
    if producer.kind == "deconvolution":
        return _offset_into_deconvolution(walk, producer, op)
    if producer.kind != "convolution":
        return None
    kernel, gain = stored_weight(module, producer.operands[1]), stored_weight(module, op.operands[1])
    offset = stored_values(module, op.operands[2])
    bias = stored_values(module, producer.operands[2]) if len(producer.operands) > 2 else np.zeros(1)
    if kernel is None or gain is None or offset is None or bias is None:
        return None
    outputs = producer.operands[1].shape[0]
    if gain.size not in (1, outputs):
        return None
    factors = np.broadcast_to(gain.array.astype(np.float64).reshape(-1), outputs)
    shifted = bias.reshape(-1) * factors + offset.reshape(-1)
    sources = merged_sources(producer, op)
    if not fits_fp16(shifted):
        return None
    gained = _gained_kernel(walk, producer, kernel, gain, factors, sources)
    if gained is None:
        return None
    assert op.type is not None
    weight, attrs = gained
    shift = walk.constant(shifted, TensorType((1, 1, outputs, 1, 1)), sources)
    return walk.emit("anec.convolution", [producer.operands[0], weight, shift], op.type, attrs, sources)


def _offset_into_deconvolution(walk: Rewriter, producer: Op, op: Op) -> Op | None:
    """An offset alone is the bias of a transposed convolution that has none; a gain stays behind it."""
    gain, offset = (stored_values(walk.module, operand) for operand in op.operands[1:])
    if len(producer.operands) > 2 or gain is None or offset is None or (gain != 1).any() or not fits_fp16(offset):
        return None
    assert op.type is not None
    sources, outputs = merged_sources(producer, op), op.shape[2]
    bias = walk.constant(np.broadcast_to(offset.reshape(-1), outputs), TensorType((1, 1, outputs, 1, 1)), sources)
    return walk.emit("anec.deconvolution", [*producer.operands, bias], op.type, producer.attrs, sources)


def is_plain_affine(op: Op) -> bool:
    """A gain-offset unit with a gain and an offset, each singular or per channel, and no numbers beside them."""
    lines = [operand.shape == (1, 1, operand.shape[2], 1, 1) for operand in op.operands[1:]]
    return op.kind == "gain_offset_control" and not op.attrs and lines == [True, True]


def _keeps_rows(peaks: np.ndarray, factors: np.ndarray) -> bool:
    """Whether a gain leaves every row of a kernel inside the normal range of fp16; a gain of zero may clear one."""
    scaled = np.abs(peaks * factors)
    faded = (scaled < SMALLEST_NORMAL) & (peaks >= SMALLEST_NORMAL) & (factors != 0)
    return fits_fp16(scaled) and not faded.any()


def _gained_kernel(
    walk: Rewriter, conv: Op, kernel: Weight, gain: Weight, factors: np.ndarray, sources: tuple[str, ...]
) -> tuple[Op, Mapping[str, Any]] | None:
    """The kernel times a gain for each output channel, and the attributes of the convolution that reads it."""
    layout = conv.operands[1].type
    assert layout is not None
    if layout.dtype == "f16" and not any(name in conv.attrs for name in conv.spec.stored):
        if not _keeps_rows(kernel.row_peaks, factors):
            return None
        scaled = derived_weight("rows times a gain", (kernel, gain), kernel.shape, _scaled_rows)
        return walk.stored(scaled, layout, sources), conv.attrs
    before = walk.module.weights.get(conv.attrs.get("kernel_scale", ""))
    if before is None or "kernel_palettized_LUT" in conv.attrs or before.size not in (1, len(factors)):
        return None
    scales = before.array.astype(np.float64).reshape(-1) * factors
    if not keeps_digits(scales):
        return None
    scale = intern_weight(scales)
    walk.module.weights[scale.key] = scale
    return conv.operands[1], {**conv.attrs, "kernel_scale": scale.key}


def _scaled_rows(kernel: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return kernel * gain.reshape(-1, *(1,) * (kernel.ndim - 1))


# The gain-offset unit: an affine of one tensor with stored constants, applied at the engine's output.


AFFINE = ("add", "sub", "mult")
"""Ops that a gain and an offset can stand for."""


@pass_("constants-to-gain-offset", 1, ensures=["gain and offset"], only=AFFINE)
def constants_to_gain_offset(module: Module, chip: Facts) -> int:
    """ScaledEWOrEWWithConstInToGOC: add, sub or mult with exactly one stored constant, singular or per channel.

    The unit is an affine of one tensor, so two live operands never fuse: add(conv_a, conv_b) stays a layer.
    """
    constants: dict[tuple[str, str, bool], tuple[Op, Op]] = {}  # what each constant becomes, once for all its readers

    def pattern(walk: Rewriter, op: Op) -> Op | None:
        affine = _affine(module, op)
        if affine is None:
            return None
        live, weight, first = affine
        key = (weight.key, op.kind, first)
        if key not in constants:
            vector = weight.array.astype(np.float64).reshape(-1)
            one, zero = np.ones_like(vector), np.zeros_like(vector)
            gain, offset = {
                "mult": (vector, zero),
                "add": (one, vector),
                "sub": (-one, vector) if first else (one, -vector),
            }[op.kind]
            size = TensorType((1, 1, vector.size, 1, 1))
            constants[key] = walk.constant(gain, size, op.sources), walk.constant(offset, size, op.sources)
        assert op.type is not None
        return walk.emit("anec.gain_offset_control", [live, *constants[key]], op.type, None, op.sources)

    return rewrite_by_kind(module, dict.fromkeys(AFFINE, pattern))


def goc_guard(op: Op) -> str | None:
    """The words of the guard that keeps a sum or product a layer of its own: the rewrite takes exactly one live
    operand and one constant (table 22.3). None where the rewrite may take the op."""
    if op.kind not in AFFINE or sum(is_const(operand) for operand in op.operands) == len(op.operands) - 1 == 1:
        return None
    return store.load("fusion")["guard"]["v"]


def _affine(module: Module, op: Op) -> tuple[Op, Weight, bool] | None:
    """The live operand, the constant, and whether the constant comes first, if the op is such an affine."""
    if goc_guard(op) is not None:
        return None
    left, right = (stored_weight(module, operand) for operand in op.operands)
    constant = right if left is None else left
    if constant is None:
        return None  # a text without its numbers
    first = left is not None
    place, live = op.operands if first else reversed(op.operands)
    n, d, _, h, w = place.shape
    if (n, d, h, w) != (1, 1, 1, 1) or live.type != op.type:
        return None  # neither singular nor per channel, or the op broadcasts the live operand
    return live, constant, first


@pass_(
    "merge-gain-offset",
    1,
    requires=["gain and offset"],
    only=["gain_offset_control"],
    loses="one gain and offset with what reads it",
)
def merge_gain_offset(module: Module, chip: Facts) -> int:
    """A gain and then an offset are one unit: scale, then bias.

    Only that pair: multiplying two gains or adding two offsets would round a constant again, and rewrites such as
    the range reduction of sine rely on every product and sum as it is written.
    """

    def pattern(walk: Rewriter, op: Op) -> Op | None:
        before = op.operands[0]
        merged = _merged(module, before, op)
        if merged is None:
            return None
        gain, offset = merged
        assert op.type is not None
        size, sources = TensorType((1, 1, gain.size, 1, 1)), merged_sources(before, op)
        scale, shift = walk.constant(gain, size, sources), walk.constant(offset, size, sources)
        return walk.emit("anec.gain_offset_control", [before.operands[0], scale, shift], op.type, None, sources)

    return rewrite_by_kind(module, {"gain_offset_control": pattern})


def _merged(module: Module, before: Op, op: Op) -> tuple[np.ndarray, np.ndarray] | None:
    if len(before.users) != 1 or not is_plain_affine(before) or not is_plain_affine(op):
        return None
    values = [stored_values(module, operand) for operand in (*before.operands[1:], *op.operands[1:])]
    if any(value is None for value in values):
        return None
    gain, earlier, later, offset = (np.asarray(value).reshape(-1) for value in values)
    if earlier.any() or (later != 1.0).any():
        return None
    size = max(gain.size, offset.size)
    return np.broadcast_to(gain, size), np.broadcast_to(offset, size)


# Quantised values: steps that undo each other, and kernels that stay as they are stored (table 22.3, dequantize).


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


class PackedKernel(NamedTuple):
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


def _packed(module: Module, op: Op) -> PackedKernel | None:
    """What unpacks the kernel of a convolution or product, if a dequant or a look-up of stored bytes does."""
    unpacking = op.operands[1]
    if unpacking.kind == "dequant":
        return _affine_kernel(module, unpacking)
    if unpacking.kind == "gather_nd":
        return _palette(module, unpacking)
    return None


def _is_packed(module: Module, op: Op) -> bool:
    return is_const(op) and op.type is not None and op.type.dtype in _BYTES and stored_weight(module, op) is not None


def _affine_kernel(module: Module, op: Op) -> PackedKernel | None:
    """(q - zero point) * scale, both singular as the op has them."""
    kernel, (scale, zero) = op.operands[0], _step(op)
    if not _is_packed(module, kernel) or not keeps_digits(scale):
        return None
    assert kernel.type is not None
    low, high = _BYTES[kernel.type.dtype]
    if not low <= zero <= high:
        return None
    return PackedKernel(kernel, intern_weight(scale), intern_weight(float(zero)) if zero else None)


def _palette(module: Module, op: Op) -> PackedKernel | None:
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
    return PackedKernel(index, table=table)
