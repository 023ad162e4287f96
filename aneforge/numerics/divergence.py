"""Static fp16 divergence between two families, from the table fields that select a route.

Four verdicts, strongest first. Each compares one field of the two families' tables (the seed page's rules):

``saturation``  a slice with an offset on the last axis, where one side takes the Q.4 crop route (A13 and
                A14 by measurement, C22; the seed page says A13 only)
``round1``      a reduction followed by a square or product, where the fusion byte 0x494 differs
``ulp1``        a reduction, softmax or norm, where the route threshold 0x3f0 differs
``none``        no field selects another route
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aneforge.errors import AneforgeError, UnknownNameError, nearest
from aneforge.targets.chip import Target
from aneforge.targets.families import MIN_FAMILY, Family
from aneforge.targets.names import arch_for_family, target
from aneforge.targets.numeric_facts import FP16_SLICE_SAT, slice_saturates

__all__ = ["FP16_SLICE_SAT", "KINDS", "predict_fp16_divergence"]

"""Largest magnitude that survives the Q.4 crop route: the fp16 maximum 65504 divided by 16."""

SLICE = frozenset({"slice", "slice_by_size", "slice_by_index", "split", "crop", "input_view"})
REDUCE_THEN_SQUARE = frozenset({"reduce_square", "sum_square", "variance", "l2_norm", "rms_norm"})
REDUCTION = frozenset(
    [
        "reduce",
        "sum",
        "mean",
        "amax",
        "amin",
        "reduce_sum",
        "reduce_mean",
        "reduce_max",
        "reduce_min",
        "softmax",
        "layer_norm",
        "instance_norm",
        "group_norm",
        "batch_norm",
        "l1_norm",
        "log_sum",
        "reduce_log_sum_exp",
    ]
)
ROUTE_FREE = frozenset(
    ["conv", "matmul", "linear", "elementwise", "add", "mul", "relu", "gelu", "transpose", "reshape", "concat", "pool"]
)
KINDS = tuple(sorted(SLICE | REDUCE_THEN_SQUARE | REDUCTION | ROUTE_FREE))


def predict_fp16_divergence(
    kind: str,
    shape: Sequence[int],
    target_a: int | str | Target,
    target_b: int | str | Target,
    begin: Sequence[int] | int | None = None,
    max_abs: float | None = None,
) -> str:
    """How one op can differ in fp16 between two targets: saturation, round1, ulp1 or none.

    ``begin`` is the slice's start (all axes, or just the last); ``max_abs`` a bound on the data, which
    rules saturation out when it is at most 4094.
    """
    if kind not in KINDS:
        near = ", ".join(nearest(kind, KINDS)) or ", ".join(KINDS)
        raise UnknownNameError(f"no divergence kind {kind!r}; nearest: {near}")
    if any(int(extent) != extent or extent < 1 for extent in shape):
        raise AneforgeError(f"shape {tuple(shape)}: every extent is a whole number of at least 1")
    if max_abs is not None and (math.isnan(max_abs) or max_abs < 0):
        raise AneforgeError(f"max_abs is a bound on a magnitude, so zero or more, not {max_abs!r}")
    a, b = _family(target_a), _family(target_b)
    if kind in SLICE:
        return _slice_verdict(a, b, begin, max_abs)
    if kind in REDUCE_THEN_SQUARE and _differs(a, b, 0x494):
        return "round1"
    if kind in REDUCE_THEN_SQUARE | REDUCTION and _differs(a, b, 0x3F0):
        return "ulp1"
    return "none"


def _family(name: int | str | Target) -> Family:
    chip = target(name)
    if chip.family5 is None or chip.family5 < MIN_FAMILY:
        raise AneforgeError(f"no program runs on {chip.name}, so nothing can be said about its numbers")
    return chip.family5


def _differs(a: Family, b: Family, offset: int) -> bool:
    return target(arch_for_family(a)).hal.read(offset) != target(arch_for_family(b)).hal.read(offset)


def _slice_verdict(a: Family, b: Family, begin: Sequence[int] | int | None, max_abs: float | None) -> str:
    """Only a nonzero start on the last axis takes the crop route, and only large values are clamped."""
    last = begin[-1] if isinstance(begin, Sequence) and len(begin) else begin
    bounded = max_abs is not None and math.isfinite(max_abs) and max_abs <= FP16_SLICE_SAT
    if not last or bounded:
        return "none"
    return "saturation" if slice_saturates(a).require() != slice_saturates(b).require() else "none"
