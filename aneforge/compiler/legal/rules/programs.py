"""Whole programs: how many weights and layers one holds, caches that it writes, steps of few positions."""

from __future__ import annotations

from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import ANY, Limit, Over, rule

_GB = 1e9


@rule("program-size", ANY, oversize=True, every_record=True)
def program_size(query: Query, limit: Limit) -> Any:
    """{op}: the weights of one program take {extent} GB; the ceiling is {limit} GB for {what} (C52)."""
    size = query.attrs.get("weight_bytes")
    kinds = limit.record.get("kinds")
    if not isinstance(size, (int, float)) or (kinds is not None and query.attrs.get("kind") not in kinds):
        return None
    if size <= limit.value:
        return None
    return Over(f"{size / _GB:.2f}", limit.value, words=f"{limit.value / _GB:.2f}")


@rule("decode-layers", ANY, oversize=True)
def decode_layers(query: Query, limit: Limit) -> Any:
    """{op}: {extent} attention layers of one position in one program; more than {limit} fail when they run
    ("{string}")."""
    layers = query.attrs.get("decode_layers")
    return layers if isinstance(layers, int) and layers > limit.value else None


@rule("indexed-write", ANY)
def indexed_write(query: Query, limit: Limit) -> Any:
    """{op}: a write at {extent}, such as a row of a cache, does not compile on any route of {chip}; only {limit} do
    ("{string}")."""
    return query.attrs.get("writes")


@rule("state-update", ANY)
def state_update(query: Query, limit: Limit) -> Any:
    """{op}: the program gives {extent} of an attention a new value; such models failed to load, {limit} do not
    ("{string}")."""
    return query.attrs.get("updates")


@rule("recurrent-layers", ANY, oversize=True, elsewhere="whole models")
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
