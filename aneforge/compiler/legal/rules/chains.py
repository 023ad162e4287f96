"""What only a sequence of ops shows: depth of a program, weights of a block, state, and patterns known to fail."""

from __future__ import annotations

from math import prod
from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import ANY, Limit, rule


@rule("chain-depth", ANY, oversize=True, of_program=True)
def chain_depth(query: Query, limit: Limit) -> Any:
    """{op}: {extent} layers in one program; the compiler for {chip} overflows its stack above {limit} ({string})."""
    repeat = query.attrs.get("repeat")
    return repeat if isinstance(repeat, int) and repeat > limit.value else None


@rule("ffn-weights", ANY, oversize=True)
def ffn_weights(query: Query, limit: Limit) -> Any:
    """{op}: a weight of a gated feed-forward block takes {extent} bytes and {chip} streams at most {limit} a layer
    there."""
    if limit.pattern not in query.patterns:
        return None
    weight = query.weight_shape
    size = 2 * prod(weight) if weight else 0
    return size if size > limit.value else None


@rule("state-width", "read_state", "write_state", elsewhere="Core ML placement")
def state_width(query: Query, limit: Limit) -> Any:
    """{op}: a state {extent} columns wide; the engine wants a multiple of {limit}."""
    shape = query.shape()
    return shape[-1] if shape and shape[-1] % limit.value else None


@rule("square-tiling", ANY)
def square_tiling(query: Query, limit: Limit) -> Any:
    """{op}: the square before it is {extent} columns wide, which leaves more than 64 over a multiple of 128; such a
    square followed by a nonlinear function does not compile for {chip}."""
    shape = query.shape()
    if limit.pattern not in query.patterns or not shape:
        return None
    return shape[-1] if shape[-1] % limit.record["modulus"] > limit.value else None


@rule("joined-by-padding", ANY, oversize=True, every_record=True)
def joined_by_padding(query: Query, limit: Limit) -> Any:
    """{op}: values that are padded to {extent} channels and added; with more than {limit} channels such a sum does not
    compile for {chip}."""
    if limit.pattern not in query.patterns:
        return None
    shape = query.shape()
    channels = query.attrs.get("padded_channels", shape[1] if shape and len(shape) > 1 else 0)
    return channels if isinstance(channels, int) and channels > limit.value else None


@rule("attention-history", ANY, oversize=True, every_record=True)
def attention_history(query: Query, limit: Limit) -> Any:
    """{op}: attention over {extent} keys; with more than {limit} it does not compile for {chip}."""
    shape = query.shape()
    keys = query.attrs.get("history", shape[-1] if shape and limit.pattern in query.patterns else 0)
    return keys if isinstance(keys, int) and keys > limit.value else None


@rule("chain-pattern", ANY, every_record=True)
def chain_pattern(query: Query, limit: Limit) -> Any:
    """{op}: {what} on {chip}."""
    return limit.pattern if limit.pattern in query.patterns else None
