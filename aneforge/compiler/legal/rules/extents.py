"""How large a tensor may be: rank, empty and symbolic axes, extents per axis, contractions, inner extents."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.query import SYMBOLIC, Query
from aneforge.compiler.legal.rules.base import ANY, Limit, Over, rule
from aneforge.compiler.legal.rules.conv import CONVS, POOLS

MATMULS = ("matmul", "linear", "bmm", "ne_matmul", "MatrixMultiplication", "Linear", "bmm_weight")
_RANK_AXES = {
    1: ("width",),
    2: ("height", "width"),
    3: ("height", "height", "width"),
    4: ("batch", "channel", "height", "width"),
    5: ("batch", "channel", "depth", "height", "width"),
}
_CHANNEL_SECOND = frozenset((*CONVS, *POOLS, "batch_norm", "instance_norm"))


@lru_cache(maxsize=4096)
def axis_caps(op_class: str, rank: int, channel_second: bool, chip: Facts) -> tuple[int | None, ...]:
    """The cap of each axis of a tensor (limits.json; an unpublished cell caps nothing)."""
    axes = _RANK_AXES[rank]
    if channel_second and rank == 3:  # 1-D convolution: [N, C, W]
        axes = ("batch", "channel", "width")
    return tuple(chip.get(f"cap:{op_class}:{axis}") for axis in axes)


@rule("rank", ANY, elsewhere="graph language")
def rank(query: Query, limit: Limit) -> Any:
    """{op}: tensor rank {extent} exceeds the ANE maximum of {limit}."""
    for shape in query.known_shapes:
        if len(shape) > limit.value:
            return len(shape)
    target = query.attrs.get("shape")
    return len(target) if isinstance(target, (list, tuple)) and len(target) > limit.value else None


@rule("matmul-rank", *MATMULS)
def matmul_rank(query: Query, limit: Limit) -> Any:
    """{op}: an operand of rank {extent}; products take at most rank {limit} ("Some ops are not supported on any of
    the specified backends", "{string}")."""
    for shape in query.known_shapes:
        if len(shape) > limit.value:
            return len(shape)
    return None


@rule("symbolic-dimension", ANY, elsewhere="graph language")
def symbolic_dimension(query: Query, limit: Limit) -> Any:
    """{op}: a size of {extent} is not a number; every axis must be known when the program is compiled."""
    return next((shape for shape in query.known_shapes if SYMBOLIC in shape), None)


@rule("zero-size", ANY, elsewhere="graph language")
def zero_size(query: Query, limit: Limit) -> Any:
    """{op}: a shape of {extent} has an empty axis."""
    for name in ("sections", "size"):  # of a split, and of a slice
        sizes = query.attrs.get(name)
        if isinstance(sizes, (list, tuple)) and 0 in sizes:
            return tuple(sizes)
    begin, end = query.attrs.get("begin"), query.attrs.get("end")
    if isinstance(begin, (list, tuple)) and isinstance(end, (list, tuple)) and not _is_masked(query):
        spans = tuple(last - first for first, last in zip(begin, end, strict=False))
        if 0 in spans:
            return spans
    return next((shape for shape in query.known_shapes if 0 in shape), None)


def _is_masked(query: Query) -> bool:
    """Whether a slice leaves out some of its begins or ends, or drops axes."""
    masks = (query.attrs.get(name) for name in ("begin_mask", "end_mask", "squeeze_mask"))
    return any(any(mask) for mask in masks if isinstance(mask, (list, tuple)))


@rule(
    "extent",
    ANY,
    oversize=True,
    reads=tuple(f"cap:{op_class}:{axis}" for op_class in ("spatial", "transpose") for axis in _RANK_AXES[5]),
)
def extent(query: Query, limit: Limit) -> Any:
    """{op}: an axis of {extent} exceeds the {limit} that {chip} takes there ("Tensor dimensions ... are not within
    supported range")."""
    base = query.base
    op_class = "transpose" if base in ("transpose", "Transpose") else "spatial"
    second = base in _CHANNEL_SECOND
    shapes = query.known_shapes
    target = query.attrs.get("shape")
    if target and base == "reshape" and all(isinstance(size, int) for size in target):
        shapes = (*shapes, tuple(target))
    for shape in shapes:
        if 0 < len(shape) <= 5:
            for size, cap in zip(shape, axis_caps(op_class, len(shape), second, limit.chip), strict=True):
                if cap is not None and size > cap:
                    return Over(size, cap)
    return None


@rule("output-channels", *CONVS, oversize=True, chains=False)
def output_channels(query: Query, limit: Limit) -> Any:
    """{op}: {extent} output channels; {chip} takes {limit}."""
    weight = query.weight_shape
    return weight[0] if weight and query.base == "conv" and weight[0] > limit.value else None


def contraction(query: Query) -> tuple[int, int] | None:
    """The contracted and the free extent of the right operand of a product."""
    left = query.shape()
    right = query.weight_shape
    if left is None or right is None or len(left) < 1 or len(right) < 2:
        return None
    turned = bool(query.attrs.get("transpose_x")) and len(left) > 1
    inner = left[len(left) - (2 if turned else 1)]
    flipped = query.base in ("linear", "Linear") or bool(query.attrs.get("transpose_y"))
    return inner, right[-2] if flipped else right[-1]


@rule("contraction-extent", *MATMULS, oversize=True)
def contraction_extent(query: Query, limit: Limit) -> Any:
    """{op}: a contraction or output extent of {extent} exceeds the {limit} that {chip} takes."""
    sizes = contraction(query)
    return max(sizes) if sizes is not None and max(sizes) > limit.value else None


@rule("matmul-runtime-contraction", "matmul", "bmm", "attention", oversize=True)
def matmul_runtime_contraction(query: Query, limit: Limit) -> Any:
    """{op}: two runtime operands contracted over {extent}; {chip} takes at most {limit} by this route."""
    keys = query.attrs.get("attended_keys")  # the product behind one softmax over all keys
    if isinstance(keys, int):
        return keys if keys > limit.value else None
    sizes = contraction(query)
    runtime = len(query.known_shapes) > 1
    return sizes[0] if sizes is not None and runtime and sizes[0] > limit.value else None


@rule("matmul-row", "matmul", "einsum", "MatrixMultiplication", "MatrixMult", oversize=True, chains=False)
def matmul_row(query: Query, limit: Limit) -> Any:
    """{op}: a row of the left operand takes {extent} bytes and kernel memory of {chip} holds {limit} ("{string}";
    listing 22.1: a row is a kernel)."""
    left = query.shape()
    size = 2 * left[-1] if left else 0
    return size if size > limit.value else None


@rule("group-norm-extent", "group_norm", oversize=True)
def group_norm_extent(query: Query, limit: Limit) -> Any:
    """{op}: its lowering makes an axis of {extent}, more than the {limit} that {chip} takes."""
    shape = query.shape()
    if shape is None or len(shape) < 3:
        return None
    groups = query.attrs.get("num_groups", query.attrs.get("groups", 1))
    if groups < 1:
        return None
    if query.attrs.get("form") == "flattened":  # [N * groups, everything else]
        longest = prod(shape[1:]) // groups
    else:  # our own, the rank-4 tiled form: [N * groups, C / groups, H * W, 1]
        longest = max(shape[1] // groups, prod(shape[2:]))
    return longest if longest > limit.value else None


@rule("narrow-surface", ANY, effect="wrong_result", chains=False)
def narrow_surface(query: Query, limit: Limit) -> Any:
    """{op}: a runtime input {extent} columns wide; {chip} returns garbage below {limit} columns on this path."""
    if query.is_chain or query.attrs.get("interior"):  # only a program's own inputs are such surfaces
        return None
    for shape in query.known_shapes:
        if len(shape) == 4 and shape[2] == 1 and 0 < shape[3] < limit.value:
            return shape[3]
    return None
