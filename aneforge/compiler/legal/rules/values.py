"""Answers that depend on the data: where the engine runs and returns infinity, zero or the wrong element."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import ANY, Limit, rule
from aneforge.graph.node import ops_with
from aneforge.graph.traits import GraphTrait

_SUMS = (*sorted(ops_with(GraphTrait.PRODUCT)), "bmm", "conv2d")


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _largest(values: Mapping[str, Any]) -> float | None:
    """The largest known input magnitude."""
    for key in ("max_abs", "x"):
        number = _number(values.get(key))
        if number is not None:
            return abs(number)
    return None


_CLIFFS = ("softplus", "round", "exp", "exp2", "square")


@rule("value-cliff", *_CLIFFS, effect="wrong_result", chains=False, elsewhere="values")
def value_cliff(query: Query, limit: Limit) -> Any:
    """{op}: inputs reach {extent}, and from {limit} on the result is wrong (N29, N30, N43)."""
    value = _number(query.values.get("x")) if query.values and limit.record.get("signed") else None
    if value is None and query.values:
        value = _largest(query.values)
    return value if value is not None and value >= limit.value else None


@rule("slice-x16", *sorted(ops_with(GraphTrait.SLICE)), effect="wrong_result", chains=False, elsewhere="values")
def slice_x16(query: Query, limit: Limit) -> Any:
    """{op}: a slice that starts inside the width takes the crop data path with gain 16 on {chip}; values up to
    {extent} occur, and everything above {limit} becomes infinite (N18)."""
    largest = _largest(query.values) if query.values else None
    return largest if largest is not None and largest > limit.value and _width_offset(query) else None


def _width_offset(query: Query) -> bool:
    """The width axis only: height, channel and batch offsets were measured clean (N20)."""
    attrs = query.attrs
    begin = attrs.get("begin")
    if isinstance(begin, (list, tuple)) and begin:
        return begin[-1] != 0
    left = attrs.get("left", attrs.get("crop_width", 0))
    return bool(left[0] if isinstance(left, (list, tuple)) and left else left)


@rule("int8-x16", "matmul", "linear", "bmm", effect="wrong_result", chains=False, elsewhere="values")
def int8_x16(query: Query, limit: Limit) -> Any:
    """{op}: with int8 weights the activations share the gain-16 encoding; values up to {extent} occur and everything
    above {limit} becomes infinite (N17)."""
    if query.weights.get("encoding") != "int8" or not query.values:
        return None
    largest = _largest(query.values)
    return largest if largest is not None and largest > limit.value else None


@rule("accumulator-range", *_SUMS, effect="wrong_result", chains=False, elsewhere="values")
def accumulator_range(query: Query, limit: Limit) -> Any:
    """{op}: a sum of {extent} leaves the accumulator, which holds magnitudes up to {limit} (N04, N05)."""
    if not query.values or query.weights.get("encoding") == "w8a8":  # N16: integer sums are scaled afterwards
        return None
    largest = _number(query.values.get("largest_output"))
    return largest if largest is not None and abs(largest) > limit.value else None


@rule("fp8-underflow", ANY, effect="wrong_result", chains=False, elsewhere="values")
def fp8_underflow(query: Query, limit: Limit) -> Any:
    """{op}: activations as fp8 codes reach {extent} at most; codes up to {limit} with a scale of one all gave 0 on
    {chip}."""
    if not str(query.weights.get("encoding", "")).startswith("fp8") or not query.values:
        return None
    largest = _largest(query.values)
    return largest if largest is not None and largest <= limit.value else None


_RESULTS = ("add", "sub", "mul", "reduce_sum", "reduce_sum_square", "pow")


@rule("fp16-range", *_RESULTS, effect="wrong_result", chains=False, elsewhere="values")
def fp16_range(query: Query, limit: Limit) -> Any:
    """{op}: a result of {extent} exceeds {limit}, the largest fp16 number, and becomes infinite (N01)."""
    largest = _number(query.values.get("largest_output")) if query.values else None
    return largest if largest is not None and abs(largest) > limit.value else None
