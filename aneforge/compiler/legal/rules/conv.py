"""Convolution, transposed convolution, template matching and pooling windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import Limit, Over, rule
from aneforge.graph.node import ops_with
from aneforge.graph.traits import GraphTrait

CONVS = (*sorted(ops_with(GraphTrait.CONVOLUTION)), "conv2d", "Conv")
POOLS = (*sorted(ops_with(GraphTrait.POOL)), "l2_pool", "Pooling", "Pool")


def pair(value: Any) -> tuple[int, int] | None:
    """A per-axis attribute as (height, width); one number applies to both axes, one axis is the width."""
    if isinstance(value, int):
        return value, value
    if isinstance(value, Sequence) and not isinstance(value, str) and value and isinstance(value[-1], int):
        return (value[-2], value[-1]) if len(value) > 1 else (1, value[-1])
    if value is None:
        return None
    raise ValueError(f"{value!r} is not a size per axis; expected one or two integers")


def kernel_hw(query: Query) -> tuple[int, int] | None:
    """Rows and columns of a kernel, by the shape of a weight or by the parameters of a layer."""
    for stem in ("Kernel", "Template"):
        if f"{stem}Width" in query.attrs:
            return query.attrs.get(f"{stem}Height", 1), query.attrs[f"{stem}Width"]
    if "template" in query.const:
        return pair(query.const["template"][-2:])
    kernel = query.kernel
    return pair(kernel) if kernel else None


@rule("conv-kernel-width", *CONVS, "CrossCorrelation", oversize=True, reads=("cap:conv_square_kernel",))
def conv_kernel_width(query: Query, limit: Limit) -> Any:
    """{op}: the kernel is {extent} columns wide and {chip} takes at most {limit} ("{string}")."""
    size = kernel_hw(query)
    if size is None or size[1] <= limit.value:
        return None
    # A square kernel goes one further where that was seen: 16 x 16 compiles, 1 x 16 does not (C16, M6.disp).
    square = limit.chip.get("cap:conv_square_kernel")
    if square is not None and size[0] == size[1] <= square:
        return None
    return size[1]


@rule("conv-kernel-height", *CONVS, "CrossCorrelation", oversize=True)
def conv_kernel_height(query: Query, limit: Limit) -> Any:
    """{op}: the kernel is {extent} rows high and {chip} takes at most {limit} ("{string}")."""
    size = kernel_hw(query)
    return size[0] if size is not None and size[0] > limit.value else None


@rule("conv-channels-per-group", "conv", "conv_transpose", "conv2d", "dynamic_conv", elsewhere="graph language")
def conv_channels_per_group(query: Query, limit: Limit) -> Any:
    """{op}: the weight expects {extent} input channels in all, the input has {limit}
    ("KernelChannels != InputChannels / Group", "{string}")."""
    shape, weight = query.shape(), query.weight_shape
    groups = query.attrs.get("groups", 1)
    if query.is_chain or shape is None or weight is None or len(shape) < 3 or len(weight) < 3 or groups < 1:
        return None
    if query.base == "conv_transpose":  # its weight is [C_in, C_out / groups, ...]
        return Over(weight[0], shape[1]) if weight[0] != shape[1] else None
    wanted = weight[1] * groups
    return Over(wanted, shape[1]) if wanted != shape[1] or weight[0] % groups else None


@rule("conv-stride-factors", "conv", "conv2d", "Conv", effect="decompose", elsewhere="rewrites")
def conv_stride_factors(query: Query, limit: Limit) -> Any:
    """{op}: stride {extent} is neither 1 nor one of {limit}, so the compiler takes its large-stride path."""
    strides = pair(query.attrs.get("strides", query.attrs.get("stride", 1)))
    native = (1, *limit.value)  # the fact that the pass large-strides reads
    return max(strides) if strides and any(step not in native for step in strides) else None


@rule("conv-depth", *CONVS, elsewhere="graph language")
def conv_depth(query: Query, limit: Limit) -> Any:
    """{op}: a rank-{extent} (3-D) convolution is attested by the chip table and fails lowering on {chip}
    ({string})."""
    shape = query.shape()
    if query.attrs.get("KernelDepth", 1) > 1:
        return limit.value + 1
    return len(shape) if shape is not None and len(shape) > limit.value else None


@rule("conv-dilation", "conv", "conv2d", elsewhere="Core ML placement")
def conv_dilation(query: Query, limit: Limit) -> Any:
    """{op}: dilation {extent} is not taken by {chip}, only {limit}."""
    dilation = pair(query.attrs.get("dilations", 1))
    return max(dilation) if dilation and max(dilation) > limit.value else None


@rule("deconv-stride", "conv_transpose")
def deconv_stride(query: Query, limit: Limit) -> Any:
    """{op}: strides {extent} differ between the axes and exceed {limit} on one ("{string}")."""
    strides = pair(query.attrs.get("strides", query.attrs.get("stride", 1)))
    return strides if strides and strides[0] != strides[1] and max(strides) > limit.value else None


def _runtime_weight(query: Query) -> bool:
    return query.at_run_time("weight") or query.base == "dynamic_conv"


@rule("runtime-weight-batch", "conv", "dynamic_conv", elsewhere="graph language")
def runtime_weight_batch(query: Query, limit: Limit) -> Any:
    """{op}: a weight supplied at run time with batch {extent}; only batch {limit} compiles ({string})."""
    shape = query.shape()
    return shape[0] if _runtime_weight(query) and shape and shape[0] > limit.value else None


@rule("runtime-weight-ignored", "conv", "dynamic_conv", effect="wrong_result")
def runtime_weight_ignored(query: Query, limit: Limit) -> Any:
    """{op}: {chip} was seen to ignore a weight that is supplied at run time."""
    return "runtime weight" if _runtime_weight(query) else None


def _window(query: Query) -> tuple[int, int] | None:
    attrs = query.attrs
    if "KernelWidth" in attrs:
        return attrs.get("KernelHeight", 1), attrs["KernelWidth"]
    return pair(attrs.get("kernel_sizes", attrs.get("k", attrs.get("kernel_size"))))


def _pad_known(query: Query) -> bool:
    """Whether the padding is known and is a number; "same" always makes room."""
    stated = "pad" in query.attrs or "KernelWidth" in query.attrs
    return query.attrs.get("pad_type", "custom" if stated else None) in ("valid", "custom")


def _sides(query: Query) -> tuple[int, ...]:
    """Top, bottom, left and right."""
    if "KernelWidth" in query.attrs:
        return tuple(query.parameter(f"Pad{side}") for side in ("Top", "Bot", "Left", "Right"))
    pad = query.attrs.get("pad", 0)
    if isinstance(pad, int):
        return (pad,) * 4
    return tuple(pad) if len(pad) == 4 else tuple(side for side in pad for _ in "ab")


@rule(
    "kernel-exceeds-input", "conv", "conv2d", "dynamic_conv", "Conv", *POOLS, chains=False, elsewhere="graph language"
)
def kernel_exceeds_input(query: Query, limit: Limit) -> Any:
    """{op}: a kernel of {extent} is larger than its padded input of {limit}."""
    shape, attrs = query.shape(), query.attrs
    size = _window(query) if query.base in POOLS else kernel_hw(query)
    if size is None or shape is None or len(shape) != 4 or not _pad_known(query):
        return None
    sides = _sides(query)
    reach = pair(attrs.get("dilations", attrs.get("Dilation", 1))) or (1, 1)
    span = tuple((extent - 1) * step + 1 for extent, step in zip(size, reach, strict=True))
    room = (shape[2] + sum(sides[:2]), shape[3] + sum(sides[2:]))
    return Over(span, room) if span[0] > room[0] or span[1] > room[1] else None


@rule("max-pool-width", "max_pool", "Pooling", "Pool", oversize=True, elsewhere="rewrites")
def max_pool_width(query: Query, limit: Limit) -> Any:
    """{op}: the window is {extent} columns wide and {chip} takes at most {limit} by this route (rows may be more)."""
    window = _window(query)
    return window[1] if window and window[1] > limit.value else None


@rule("pool-window", *POOLS, oversize=True)
def pool_window(query: Query, limit: Limit) -> Any:
    """{op}: the window spans {extent} and {chip} takes at most {limit} on an axis."""
    window = _window(query)
    return max(window) if window and max(window) > limit.value else None
