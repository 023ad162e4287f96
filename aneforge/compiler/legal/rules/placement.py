"""Where Core ML would put an eligible op: a first model of the published placement rule.

Per op there is an estimate for the engine and one for the CPU; a segment on the engine costs 0.125 ms to start, and
so does each switch and each output that the engine writes (C30). One op on its own therefore has to save a quarter
of a millisecond to move, which few do. Estimates are published for seven ops on an M4; others scale from the one
of their kind by arithmetic or by elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod
from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.extents import MATMULS, contraction
from aneforge.targets import store

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
