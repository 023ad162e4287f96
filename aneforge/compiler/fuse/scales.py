"""Scales and batch norms become part of what they scale."""

from __future__ import annotations

import numpy as np

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.compiler.passes import Rewriter, merged_sources, pass_
from aneforge.targets.chip import Target

KERNELS = ("convolution", "deconvolution")


def stored(module: Module, op: Op) -> np.ndarray | None:
    """The values of a stored constant, in float64; None for anything else, and where the text came without values."""
    held = module.weights.get(op.attrs["weight"]) if op.kind == "const_in" else None
    return None if held is None else held.array.astype(np.float64)


def fits_fp16(values: np.ndarray) -> bool:
    return bool(np.abs(values).max(initial=0.0) <= 65504.0)


@pass_("fold-batch-norm", 1, ensures=["no batch norms"])
def fold_batch_norm(module: Module, target: Target) -> int:
    """An inference batch norm with stored statistics is a gain and an offset per channel (FoldScale)."""
    walk = Rewriter(module)
    for op in module.ops:
        values = [stored(module, each) for each in op.operands[1:]] if op.kind == "batch_norm" else []
        vectors = [each for each in values if each is not None]
        if len(vectors) != 4:
            walk.keep(op)
            continue
        gamma, beta, mean, variance = (vector.reshape(-1) for vector in vectors)
        gain = gamma / np.sqrt(variance + op.attrs["epsilon"])
        offset = beta - mean * gain
        if not fits_fp16(gain) or not fits_fp16(offset):
            walk.keep(op)
            continue
        channels = TensorType((1, 1, len(gain), 1, 1))
        scale = walk.constant(gain, channels, op.sources)
        shift = walk.constant(offset, channels, op.sources)
        assert op.type is not None
        walk.replace(
            op, walk.emit("anec.gain_offset_control", [op.operands[0], scale, shift], op.type, None, op.sources)
        )
    return walk.finish()


@pass_("fold-gain-into-weights", 1, requires=["gain and offset"])
def fold_gain_into_weights(module: Module, target: Target) -> int:
    """FoldWeightsWithScale: the gain after a convolution with a stored kernel goes into the kernel.

    Only where the convolution has no other reader; the offset (or bias) stays as the gain-offset unit's offset.
    """
    walk = Rewriter(module)
    for op in module.ops:
        if op.kind != "gain_offset_control" or not _fold(module, walk, op):
            walk.keep(op)
    return walk.finish()


def _fold(module: Module, walk: Rewriter, op: Op) -> bool:
    producer = op.operands[0]
    if producer.kind != "convolution" or len(producer.users) != 1 or len(op.operands) != 3:
        return False
    kernel, gain, offset = (
        stored(module, producer.operands[1]),
        stored(module, op.operands[1]),
        stored(module, op.operands[2]),
    )
    bias = stored(module, producer.operands[2]) if len(producer.operands) > 2 else np.zeros(1)
    if kernel is None or gain is None or offset is None or bias is None or gain.size not in (1, kernel.shape[0]):
        return False
    wide = gain.reshape(-1) if gain.size > 1 else np.full(kernel.shape[0], float(gain.reshape(-1)[0]))
    scaled = kernel * wide.reshape(-1, *(1,) * (kernel.ndim - 1))
    shifted = bias.reshape(-1) * wide + offset.reshape(-1)
    if not fits_fp16(scaled) or not fits_fp16(shifted):
        return False
    sources = merged_sources(producer, op)
    assert producer.operands[1].type is not None
    assert op.type is not None
    weight = walk.constant(scaled, producer.operands[1].type, sources)
    shift = walk.constant(shifted, TensorType((1, 1, kernel.shape[0], 1, 1)), sources)
    fused = walk.emit("anec.convolution", [producer.operands[0], weight, shift], op.type, producer.attrs, sources)
    walk.replace(op, fused)
    return True
