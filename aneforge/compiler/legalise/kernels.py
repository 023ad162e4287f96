"""Kernels beyond the small mode of the convolution."""

from __future__ import annotations

from functools import partial

import numpy as np

from aneforge.anec.ir import Module, Op, TensorType
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.scales import stored_weight
from aneforge.compiler.legalise.pieces import stored_names
from aneforge.compiler.legalise.relabel import Relayer, rewritten, typed, with_extents
from aneforge.compiler.passes import pass_
from aneforge.graph.weights import Weight, moved_weight

_REWRITTEN = range(9, 16)  # fusion.json conv_kernel_rewrite: widths 9 to 15


@pass_(
    "large-kernels",
    2,
    reads=["max_f16_conv_kernel_dim_x", "limit:conv_kernel_h", "large_kernel_rewrite"],
    requires=["layers", "native strides", "native groups"],
    ensures=["kernel modes"],
    only=sorted(kinds_with(Trait.CONVOLUTION)),
)
def large_kernels(module: Module, chip: Facts) -> int:
    """GetMaxSmallKernelWidth: a kernel beyond HAL 0x38 takes the large mode, or stride two with twice the outputs.

    The rewrite is that of fusion.json ``conv_kernel_rewrite``, on the targets that were seen to use it (U26): two
    copies of the weights, one shifted by a column, give the even and the odd columns.
    """
    widest, tallest = chip["max_f16_conv_kernel_dim_x"], min(chip["limit:conv_kernel_h"])

    def large(op: Op) -> bool:
        if not op.is_a(Trait.CONVOLUTION):
            return False
        _, height, width = op.attrs["kernel_sizes"]
        return (height > tallest or width > widest) and _stored_fp16(op)

    def rewrite(walk: Relayer, op: Op) -> None:
        tall = op.attrs["kernel_sizes"][1] > tallest
        convolution = op
        if chip["large_kernel_rewrite"] and _rewritable(op) and stored_weight(module, op.operands[1]) is not None:
            walk.record(op, "wide-kernel-even-odd")
            convolution = _to_stride_two(walk, op)
        else:
            walk.keep(op)
            walk.changes += 1
        if tall or convolution is op:
            convolution.mark(large_kernel=True)

    return rewritten(module, large, rewrite)


def _stored_fp16(op: Op) -> bool:
    kernel = op.operands[1]
    return not stored_names(op) and kernel.kind == "const_in" and typed(kernel).dtype == "f16"


def _rewritable(op: Op) -> bool:
    sizes = op.attrs["kernel_sizes"]
    unit = op.attrs["strides"][2] == op.attrs["dilation_rates"][2] == 1
    return op.kind == "convolution" and sizes[2] in _REWRITTEN and sizes[0] == 1 and unit


def _to_stride_two(walk: Relayer, op: Op) -> Op:
    attrs = dict(op.attrs)
    depth, height, width = attrs["kernel_sizes"]
    n, d, c, h, w = op.shape
    wide, half = width + 1 + (width + 1) % 2, -(-w // 2)
    left = attrs["explicit_padding"][4]
    right = 2 * (half - 1) + wide - op.operands[0].shape[4] - left
    attrs["kernel_sizes"] = (depth, height, wide)
    attrs["strides"] = (*attrs["strides"][:2], 2)
    attrs["explicit_padding"] = (*attrs["explicit_padding"][:4], left, right)
    attrs.pop("channel_wise", None)
    # A group's outputs lie together, so with groups the two copies of a channel do; else those of all channels.
    together = attrs["groups"] > 1
    x, weight, *bias = op.operands
    operands = [x, _two_kernels(walk, weight, wide, together), *(_twice(walk, vector, together) for vector in bias)]
    kept = walk.recut(op)
    type_ = TensorType((n, d, 2 * c, h, half), typed(op).dtype)
    wider = walk.layer(op.kind, operands, type_, attrs, op.sources)
    wider.labels = op.labels
    last = walk.again(kept, wider, lambda constant: _twice(walk, constant, together))
    rearrange = "pixel_shuffle" if together else "channel_to_space"
    factors = {"factors": (1, 1, 2)}
    value = walk.layer(rearrange, [last], with_extents(typed(last), {2: c, 4: 2 * half}), factors, op.sources)

    def spread(parts: list[Op]) -> Op:
        type_ = with_extents(typed(parts[0]), {2: c, 4: 2 * half})
        return walk.ghost_view(walk.emit(f"anec.{rearrange}", parts, type_, factors), 4, 0, w)

    walk.settle(op, kept, walk.view(value, 4, 0, w, op.sources), [last], spread)
    return wider


def _two_kernels(walk: Relayer, kernel: Op, wide: int, together: bool) -> Op:
    outputs, _, inputs, height, width = kernel.shape
    shape = (2 * outputs, inputs, height, wide)
    source = (outputs, inputs, height, width)
    recipe = f"two copies a column apart, {wide} wide, {'by channel' if together else 'one after the other'}"
    weight = _require_weight(walk, kernel)
    two_kernels = moved_weight(recipe, weight, shape, partial(_shifted, source=source, shape=shape, together=together))
    return walk.stored(two_kernels, TensorType((2 * outputs, 1, inputs, height, wide)), kernel.sources)


def _shifted(kernel: np.ndarray, source: tuple[int, ...], shape: tuple[int, ...], together: bool) -> np.ndarray:
    outputs, inputs, height, width = source
    copies = np.zeros((2, outputs, inputs, height, shape[3]), kernel.dtype)
    for shift in (0, 1):
        copies[shift, ..., shift : shift + width] = kernel.reshape(source)
    return (copies.swapaxes(0, 1) if together else copies).reshape(shape)


def _twice(walk: Relayer, constant: Op, together: bool) -> Op:
    """A constant per channel for twice the channels; a single number serves all of them."""
    channels = constant.shape[2]
    if channels == 1:
        return walk.part(constant, {})
    weight = _require_weight(walk, constant)
    recipe = "each entry twice" if together else "all entries twice"
    repeat = partial(np.repeat, repeats=2) if together else partial(np.tile, reps=2)
    doubled = moved_weight(recipe, weight, (2 * channels,), lambda vector: repeat(vector.reshape(-1)))
    return walk.stored(doubled, with_extents(typed(constant), {2: 2 * channels}), constant.sources)


def _require_weight(walk: Relayer, constant: Op) -> Weight:
    weight = stored_weight(walk.module, constant)
    assert weight is not None
    return weight
