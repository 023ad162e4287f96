"""What only a sequence of ops shows: depth of a program, weights of a block, state, and patterns known to fail."""

from __future__ import annotations

import re
from functools import cache
from math import prod
from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import ANY, Limit, rule


@rule("chain-depth", ANY, oversize=True)
def chain_depth(query: Query, limit: Limit) -> Any:
    """{op}: {extent} layers in one program; the compiler for {chip} overflows its stack above {limit} ({string})."""
    repeat = query.attrs.get("repeat")
    return repeat if isinstance(repeat, int) and repeat > limit.value else None


@rule("ffn-weights", "ffn", oversize=True)
def ffn_weights(query: Query, limit: Limit) -> Any:
    """{op}: a layer's weights take {extent} bytes and {chip} streams at most {limit} a layer on this path."""
    weight = query.weight_shape
    size = 2 * prod(weight) if weight else 0
    return size if size > limit.value else None


@rule("state-width", "read_state", "write_state", "coreml_update_state")
def state_width(query: Query, limit: Limit) -> Any:
    """{op}: a state {extent} columns wide; the engine wants a multiple of {limit}."""
    shape = query.shape()
    return shape[-1] if shape and shape[-1] % limit.value else None


@rule("cache-rank", "kv_cache")
def cache_rank(query: Query, limit: Limit) -> Any:
    """{op}: cache tensors of rank {extent}; rank {limit} compiles ("{string}")."""
    shape = query.shape()
    held = query.attrs.get("cache_rank", len(shape) if shape else 0)
    return held if isinstance(held, int) and held > limit.value else None


@rule("square-tiling", "square")
def square_tiling(query: Query, limit: Limit) -> Any:
    """{op}: width {extent} modulo 128 is above 64, where a square followed by a nonlinearity fails ({limit})."""
    shape = query.shape()
    if not query.is_chain or not shape or "square, then" not in query.graph_text:
        return None
    tiling = limit.value
    return shape[-1] if shape[-1] % tiling["modulus"] > tiling["most"] else None


@cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


@rule("chain-pattern", ANY)
def chain_pattern(query: Query, limit: Limit) -> Any:
    """{op}: {what}."""
    if not query.is_chain:
        return None
    return query.graph_text if _pattern(limit.value).search(query.graph_text) else None
