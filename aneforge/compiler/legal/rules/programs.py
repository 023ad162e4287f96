"""Whole programs: how many weights and layers one holds, caches that it writes, steps of few positions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any

from aneforge.chips import store
from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import ANY, Limit, Over, rule
from aneforge.compiler.legal.rules.extents import MATMULS, contraction

_GB = 1e9


@rule("program-size", ANY, oversize=True, every_record=True, of_program=True)
def program_size(query: Query, limit: Limit) -> Any:
    """{op}: the weights of one program take {extent} GB; the ceiling is {limit} GB for {what} (C52)."""
    size = query.attrs.get("weight_bytes")
    kinds = limit.record.get("kinds")
    if not isinstance(size, (int, float)) or (kinds is not None and query.attrs.get("kind") not in kinds):
        return None
    if size <= limit.value:
        return None
    return Over(f"{size / _GB:.2f}", limit.value, words=f"{limit.value / _GB:.2f}")


@rule("decode-layers", ANY, oversize=True, of_program=True)
def decode_layers(query: Query, limit: Limit) -> Any:
    """{op}: {extent} attention layers of one position in one program; more than {limit} fail when they run
    ("{string}")."""
    layers = query.attrs.get("decode_layers")
    return layers if isinstance(layers, int) and layers > limit.value else None


@rule("indexed-write", ANY)
def indexed_write(query: Query, limit: Limit) -> Any:
    """{op}: a write at {extent}, such as a row of a cache, was refused on every route that was tried but one, a single
    state that Core ML updates (C87); {limit} compile on {chip} ("{string}")."""
    return query.attrs.get("writes")


@rule("state-update", ANY)
def state_update(query: Query, limit: Limit) -> Any:
    """{op}: the program gives {extent} of an attention a new value; some such models failed to load ("{string}"), one
    ran on an M4 and an A19 Pro, and nobody has settled what decides on {chip}; {limit} load everywhere."""
    return query.attrs.get("updates")


@rule("state-count", ANY, every_record=True)
def state_count(query: Query, limit: Limit) -> Any:
    """{op}: one program updates {extent} {what}; {limit} was seen to run, and more fail when the program is called
    ("{string}")."""
    states = query.attrs.get("states")
    if not isinstance(states, int) or (limit.record.get("unlike") and not query.attrs.get("unlike")):
        return None
    return states if states > limit.value else None


@rule("recurrent-layers", ANY, oversize=True, elsewhere="whole models", of_program=True)
def recurrent_layers(query: Query, limit: Limit) -> Any:
    """{op}: {extent} layers of recurrent attention in one program; more than {limit} fail ("{string}")."""
    layers = query.attrs.get("recurrent_layers")
    return layers if isinstance(layers, int) and layers > limit.value else None


@rule("bonded-mode", ANY, elsewhere="build options")
def bonded_mode(query: Query, limit: Limit) -> Any:
    """{op}: built for two engines in mode {extent}; {chip} has one engine and takes mode {limit} ("{string}")."""
    mode = query.attrs.get("bonded_mode")
    return mode if isinstance(mode, int) and mode != limit.value else None


@rule("cache-rank", ANY, elsewhere="whole models")
def cache_rank(query: Query, limit: Limit) -> Any:
    """{op}: cache tensors of rank {extent}; rank {limit} compiles ("{string}")."""
    shape = query.shape() if query.base == "kv_cache" else None
    rank = query.attrs.get("cache_rank", len(shape) if shape else 0)
    return rank if isinstance(rank, int) and rank > limit.value else None


@rule("short-step", ANY, elsewhere="whole models")
def short_step(query: Query, limit: Limit) -> Any:
    """{op}: a step of {extent} positions; fewer than {limit} fail when the program runs ({string})."""
    shape = query.shape() if query.base == "decoder_step" else None
    positions = query.attrs.get("query_positions", shape[-1] if shape else limit.value)
    return positions if isinstance(positions, int) and positions < limit.value else None


@rule("few-queries", ANY)
def few_queries(query: Query, limit: Limit) -> Any:
    """{op}: attention with a query length of {extent}; below {limit} a program failed when it ran on {chip}
    ({string})."""
    shape = query.shape()
    if limit.pattern not in query.patterns or not shape or len(shape) < 2:
        return None
    return shape[-2] if shape[-2] < limit.value else None


# Where Core ML would put an eligible op: a first model of the published placement rule.


# Work of the published examples: multiply-adds, score elements or elements, as the kind counts.
_EXAMPLE_WORK = {
    "conv3x3 64->64 32x32": 64 * 64 * 9 * 1024,
    "conv1x1": 64 * 64 * 1024,
    "matmul 128x256x128": 128 * 256 * 128,
    "softmax/layer_norm 64x32x32": 65536,
    "sdpa 8x128x64": 8 * 128 * 128,
    "relu": 65536,
    "transpose": 65536,
}


@cache
def _model() -> Mapping[str, Any]:
    return store.load("cost_model")["placement_model_m4"]


def _example_and_work(query: Query) -> tuple[str, float]:
    """The published example to scale from, and how much work this op is in its unit."""
    base, shape = query.base, query.shape() or (1,)
    elements = float(max((prod(operand_shape) for operand_shape in query.known_shapes), default=1))
    weight = query.weight_shape
    if base in ("conv", "conv2d", "dynamic_conv") and weight is not None and len(weight) > 2:
        strides = query.attrs.get("strides", query.attrs.get("stride", 1))
        step = prod(strides) if isinstance(strides, (list, tuple)) else strides**2
        example = "conv1x1" if prod(weight[2:]) == 1 else "conv3x3 64->64 32x32"
        return example, prod(weight) * prod(shape[2:]) * shape[0] / max(step, 1)
    if query.is_chain and (kernels := [kernel for kernel in query.const.values() if len(kernel) == 4]):
        return "conv1x1", float(sum(prod(kernel) for kernel in kernels) * prod(shape[2:]) * shape[0])
    if base in MATMULS and (sizes := contraction(query)) is not None:
        return "matmul 128x256x128", float(prod(shape) * sizes[1])
    if base in ("scaled_dot_product_attention", "SDPA", "sdpa") and len(query.known_shapes) > 1:
        keys = query.known_shapes[1]
        return "sdpa 8x128x64", prod(shape[:-1]) * float(keys[-2])
    if base == "transpose":
        return "transpose", elements
    if "norm" in base or base == "softmax":
        return "softmax/layer_norm 64x32x32", elements
    return "relu", elements


def estimate_us(query: Query) -> tuple[float, float]:
    """Estimated microseconds on the engine and on the CPU, without the fixed costs."""
    repeat = query.attrs.get("repeat", 1)
    repeat = repeat if isinstance(repeat, int) else 1
    for record in store.load("gate_limits")["placement"]:
        if query.base in record["ops"]:
            elements = max((prod(shape) for shape in query.known_shapes), default=1)
            scale = repeat * elements / record["elements"]
            return record["ane_us"] * scale, record["cpu_us"] * scale
    example, work = _example_and_work(query)
    engine, cpu = _model()["estimates_us"][example]
    scale = repeat * work / _EXAMPLE_WORK[example]
    return engine * scale, cpu * scale


def placed(query: Query) -> str:
    """``ane`` or ``cpu`` for a program that holds this op alone."""
    if "fp32" in query.dtypes:
        return "cpu"  # fp32 data stays on the CPU whatever the size (VX)
    engine, cpu = estimate_us(query)
    return "ane" if engine + _start_us() < cpu else "cpu"


def is_tiny(query: Query) -> bool:
    """Whether the CPU is done in a tenth of what a start of the engine costs, so that the error of the estimates does
    not matter: 2,048 elements stayed on the CPU and a million did not (N78)."""
    return bool(query.known_shapes) and 10 * estimate_us(query)[1] < _start_us()


def _start_us() -> float:
    """What it costs to start the engine and to write one result."""
    return 1000 * (_model()["launch_ane_ms"] + _model()["output_on_ane_ms"])
