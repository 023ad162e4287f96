"""What single layers that are authored directly refuse or compute wrongly, beyond the checks of ``validators.py``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import ANY, Limit, OneOf, Over, rule
from aneforge.compiler.legal.rules.validators import is_checked
from aneforge.native.schema import layer_types

_SDPA = ("SDPA", "sdpa", "scaled_dot_product_attention")


@cache
def _named() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """The listed names of each layer's parameters, by layer name and by netplist type. Listed numbers are envelopes,
    which the records of ``validators.json`` state."""
    by_name: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for layer in layer_types():
        listed = {
            param.key: param.values
            for param in layer.params.values()
            if param.values and isinstance(param.values[0], str)
        }
        by_name |= dict.fromkeys((layer.name, layer.tag), listed)
    return by_name


@rule("layer-parameter", ANY, chains=False, elsewhere="netplist")
def layer_parameter(query: Query, limit: Limit) -> Any:
    """{op}: parameter {extent}; the layer has {limit} ("{string}")."""
    for key, listed in _named().get(query.op, {}).items():
        value = query.attrs.get(key)
        if isinstance(value, str) and value not in listed and not is_checked(query.op, key, value):
            return Over(f"{key} = {value}", OneOf(tuple(listed)))
    return None


@rule("sdpa-value-width", *_SDPA, elsewhere="graph language")
def sdpa_value_width(query: Query, limit: Limit) -> Any:
    """{op}: queries {extent} wide and values {limit} wide; the two must agree ("{string}")."""
    queries, values = query.shape(), query.shape(2)
    if not queries or not values:
        return None
    return Over(queries[-1], values[-1]) if queries[-1] != values[-1] else None


@rule("sdpa-length", *_SDPA, effect="wrong_result")
def sdpa_length(query: Query, limit: Limit) -> Any:
    """{op}: {extent} queries and keys; with both at {limit} or more the fused layer returns wrong numbers (N50)."""
    queries, keys = query.shape(), query.shape(1)
    if queries is None or keys is None or len(queries) < 2 or len(keys) < 2:
        return None
    return (queries[-2], keys[-2]) if min(queries[-2], keys[-2]) >= limit.value else None


@rule("sdpa-mask", *_SDPA, effect="wrong_result", elsewhere="graph language")
def sdpa_mask(query: Query, limit: Limit) -> Any:
    """{op}: a mask of {extent} planes; the layer uses {limit} plane for all heads."""
    mask = query.shape(4)
    planes = mask[-3] if mask is not None and len(mask) >= 3 else query.attrs.get("mask_planes", limit.value)
    return planes if planes > limit.value else None


@rule("sdpa-subtract-max", *_SDPA, effect="wrong_result", elsewhere="netplist")
def sdpa_subtract_max(query: Query, limit: Limit) -> Any:
    """{op}: SubtractMax is {extent}, so exp overflows for scores above 11 (N28, N29)."""
    return "off" if query.attrs.get("SubtractMax") is False else None


@rule("scaled-mult-scale", "ScaledElementWise", "scaled_elementwise", effect="wrong_result")
def scaled_mult_scale(query: Query, limit: Limit) -> Any:
    """{op}: a scale of {extent} is ignored when the type is Mult; only {limit} gives the right result."""
    if query.attrs.get("Type") != "Mult":
        return None
    scale = query.values.get("scale", query.attrs.get("Scale", limit.value))
    return scale if scale != limit.value else None


@rule("fps-metric", "FurthestPointSampling", effect="wrong_result", elsewhere="netplist")
def fps_metric(query: Query, limit: Limit) -> Any:
    """{op}: metric {extent} is accepted and ignored; distances are always Euclidean ({limit})."""
    metric = query.attrs.get("DistanceMetric", "L2")
    return metric if metric not in limit.value else None


@rule("rasterizer-identity", "KernelRasterizer", elsewhere="netplist")
def rasterizer_identity(query: Query, limit: Limit) -> Any:
    """{op}: {extent} output channels; only the configuration that changes nothing compiles."""
    shape, channels = query.shape(), query.attrs.get("OutputChannels")
    if channels is None or shape is None or len(shape) < 3:
        return None
    return channels if channels != shape[-3] else None


@rule("resample-method", "Resample", elsewhere="netplist")
def resample_method(query: Query, limit: Limit) -> Any:
    """{op}: sampling method {extent} fails code generation when authored; {limit} compiles."""
    method = query.attrs.get("Method", query.attrs.get("SamplingMethod"))
    return method if method is not None and method not in limit.value else None
