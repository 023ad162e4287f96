"""Selecting and moving data: gather, slices with runtime offsets, arg reductions, top-k, rearrangements."""

from __future__ import annotations

from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import Limit, rule


@rule("gather-static", "gather", chains=False, elsewhere="model language")
def gather_static(query: Query, limit: Limit) -> Any:
    """{op}: {extent} indices; by conversion the engine takes constant indices only."""
    static = "indices" in query.const or isinstance(query.attrs.get("indices"), (list, tuple))
    return None if static else "runtime"


@rule("runtime-indices", "gather", chains=False, elsewhere="model language")
def runtime_indices(query: Query, limit: Limit) -> Any:
    """{op}: indices that arrive at {extent} keep the op off the engine."""
    return "run time" if query.at_run_time("indices") else None


@rule("runtime-begin", "slice_by_size", "slice_by_index", "range_1d", chains=False, elsewhere="model language")
def runtime_begin(query: Query, limit: Limit) -> Any:
    """{op}: a bound that arrives at {extent} keeps the op off the engine."""
    return "run time" if any(query.at_run_time(name) for name in ("begin", "start", "size", "end", "step")) else None


@rule("argmax-scope", "reduce_argmax", "reduce_argmin", chains=False, elsewhere="model language")
def argmax_scope(query: Query, limit: Limit) -> Any:
    """{op}: over the {extent} it is a region op whose conversion starts above {chip}."""
    scope = query.attrs.get("scope")
    return scope if scope == limit.value.name else None


@rule("arg-extent", "ArgMinMax", "GlobalArgMinMax", "argmax", oversize=True)
def arg_extent(query: Query, limit: Limit) -> Any:
    """{op}: the reduced axis is {extent} long and the layer takes at most {limit} (indices are fp16, N45)."""
    shape = query.shape()
    if shape is None or len(shape) == 0:
        return None
    along = str(query.attrs.get("Mode", query.attrs.get("Dimension", "")))
    padded = (1, 1, *shape)  # missing leading axes are 1
    channel, height, width = padded[-3:]
    by_name = {"Channel": channel, "Height": height, "Width": width}
    reduced = next((size for name, size in by_name.items() if name in along), max(height, width))
    return reduced if reduced > limit.value else None


@rule("topk-k", "topk", "TopK")
def topk_k(query: Query, limit: Limit) -> Any:
    """{op}: k = {extent} is refused on every chip that has the layer, as are all of {limit}."""
    k = query.attrs.get("k", query.attrs.get("K"))
    return k if k in limit.value else None


@rule("pad-mode", "pad", effect="decompose", chains=False, elsewhere="rewrites", reads=("texture_engine",))
def pad_mode(query: Query, limit: Limit) -> Any:
    """{op}: mode {extent} needs the texture engine, which {chip} lacks; the compiler uses its software data path there
    ("{string}")."""
    mode = query.attrs.get("mode", "constant")
    return mode if mode not in limit.value and not limit.chip["texture_engine"] else None
