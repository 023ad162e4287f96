"""Fold scales and batch norms into what they scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import Rewriter, merged_sources, pass_, rewrite_by_kind
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
