"""Native layers that are authored directly: attention, scaled elementwise, sampling, rasteriser."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import ANY, Limit, Over, rule
from aneforge.targets import store

_SDPA = ("SDPA", "sdpa", "scaled_dot_product_attention")


@cache
def _enumerated() -> Mapping[str, Mapping[str, tuple[Any, ...]]]:
    """The listed values of each layer's parameters, by layer name and by netplist type."""
    document = store.load("layers")
    by_name: dict[str, dict[str, tuple[Any, ...]]] = {}
    for row in (*document["layers"], *document["unit_types_without_exported_validator"]):
        listed = {
            parameter["key"]: tuple(parameter["values"]) for parameter in row["params"] if parameter.get("values")
        }
        for name in (row.get("name"), row["type_tag"]):
            if name and listed:
                by_name[name] = listed
    return by_name


@rule("layer-parameter", ANY, chains=False)
def layer_parameter(query: Query, limit: Limit) -> Any:
    """{op}: parameter {extent}; the layer has {limit}."""
    for key, listed in _enumerated().get(query.op, {}).items():
        value = query.attrs.get(key)
        if value is not None and not isinstance(value, (list, tuple)) and value not in listed:
            return Over(f"{key} = {value}", listed)
    return None


@rule("dropout-rate", "Dropout", elsewhere="netplist")
def dropout_rate(query: Query, limit: Limit) -> Any:
    """{op}: a rate of {extent}; {chip} has no random source (0x4a9) and runs only rate {limit}, the identity
    ("{string}")."""
    rate = query.attrs.get("Rate", query.attrs.get("rate", "not given"))
    return rate if rate != limit.value else None


@rule("cross-product-shape", "CrossProduct", "cross_product")
def cross_product_shape(query: Query, limit: Limit) -> Any:
    """{op}: operands of {extent}; the layer takes one vector, channels, height and width {limit}."""
    return next((shape for shape in query.known_shapes if len(shape) == 4 and list(shape[1:]) != limit.value), None)


@rule("cost-volume-width", "CostVolume", "cost_volume")
def cost_volume_width(query: Query, limit: Limit) -> Any:
    """{op}: a reference {extent} columns wide; it must reach {limit}, the width of the other plus the range."""
    auxiliary, reference = query.shape(), query.shape(1)
    if not auxiliary or not reference:
        return None
    wanted = auxiliary[-1] + query.attrs.get("DisparityRange", 1)
    return Over(reference[-1], wanted) if reference[-1] < wanted else None


@rule("sdpa-operands", *_SDPA, elsewhere="graph language")
def sdpa_operands(query: Query, limit: Limit) -> Any:
    """{op}: keys {extent} and values {limit} differ in shape ("4 or 5 bottoms must be present for SDPA")."""
    keys, values = query.shape(1), query.shape(2)
    if keys is None or values is None:
        return None
    return Over(keys, values) if keys[:-1] != values[:-1] else None


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
    mask = query.shape(3)
    planes = mask[-3] if mask is not None and len(mask) >= 3 else query.attrs.get("mask_planes", limit.value)
    return planes if planes > limit.value else None


@rule("sdpa-subtract-max", *_SDPA, effect="wrong_result", elsewhere="netplist")
def sdpa_subtract_max(query: Query, limit: Limit) -> Any:
    """{op}: SubtractMax is {extent}, so exp overflows for scores above 11 (N28, N29)."""
    return "off" if query.attrs.get("SubtractMax") is False else None


@rule("scaled-elementwise-type", "ScaledElementWise", "scaled_elementwise", elsewhere="graph language")
def scaled_elementwise_type(query: Query, limit: Limit) -> Any:
    """{op}: type {extent} is refused; the layer has {limit}."""
    type_name = query.attrs.get("Type")
    return type_name if type_name is not None and type_name not in limit.value else None


@rule("scaled-mult-scale", "ScaledElementWise", "scaled_elementwise", effect="wrong_result")
def scaled_mult_scale(query: Query, limit: Limit) -> Any:
    """{op}: a scale of {extent} is ignored when the type is Mult; only {limit} gives the right result."""
    if query.attrs.get("Type") != "Mult":
        return None
    scale = query.values.get("scale", query.attrs.get("Scale", limit.value))
    return scale if scale != limit.value else None


@rule("fps-size", "FurthestPointSampling", "fps", oversize=True)
def fps_size(query: Query, limit: Limit) -> Any:
    """{op}: {extent} centroids and points; the layer takes at most {limit}."""
    shape = query.shape()
    count, points = query.attrs.get("CentroidCount", 0), max(shape) if shape else 0
    return (count, points) if count > limit.value["centroids"] or points > limit.value["points"] else None


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
