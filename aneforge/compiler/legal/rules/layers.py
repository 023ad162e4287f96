"""What single layers that are authored directly refuse or compute wrongly, beyond the checks of ``validators.py``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import ANY, Limit, OneOf, Over, rule
from aneforge.compiler.legal.rules.validators import is_checked
from aneforge.engine.native import layer_types

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


@rule("resample-method", "Resample", "resample")
def resample_method(query: Query, limit: Limit) -> Any:
    """{op}: sampling method {extent} fails code generation when authored; {limit} compiles."""
    stated = query.attrs.get("Method", query.attrs.get("SamplingMethod", query.attrs.get("sampling_mode")))
    method = {"bilinear": "Linear", "nearest": "NearestNeighbor"}.get(str(stated), stated)
    return method if method is not None and method not in limit.value else None


# Selecting and moving data: gather, slices with runtime offsets, arg reductions, top-k, rearrangements.


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


# Normalisation: the layer-norm affine on A13 and A14, long rows, response normalisation.


def _rank4_body(query: Query) -> bool:
    """Whether scale and shift act on the [R, D, 1, 1] form, between two reshapes (our default lowering)."""
    form = query.attrs.get("form")
    if form is not None:
        return form == "rank-4"
    gamma = query.const.get("gamma")
    return gamma is None or len(gamma) != 2


@rule("layer-norm-affine", "layer_norm", chains=False, every_record=True)
def layer_norm_affine(query: Query, limit: Limit) -> Any:
    """{op}: {extent} rows and columns with a scale or shift that is not uniform do not compile on {chip} in the
    rank-4 form ({string})."""
    shape = query.shape()
    uniform = query.weights.get("gamma_uniform"), query.weights.get("beta_uniform")
    if shape is None or len(shape) != 2 or False not in uniform or not _rank4_body(query):
        return None
    # A fit, not a decoded rule: see the record's note. The reduction goes in chunks of HAL 0x3f0 (192 here, 384 from
    # A15, where the fault is gone), and a short last chunk is what fails: 512 x 1024 does, 512 x 2048 does not.
    rows, width = shape
    fit = limit.record
    large = rows >= fit["rows"] and rows * width >= fit["elements"]
    return shape if large and 0 < width % limit.value <= fit["remainder"] else None


@rule("layer-norm-width", "layer_norm", oversize=True, chains=False)
def layer_norm_width(query: Query, limit: Limit) -> Any:
    """{op}: rows of {extent} compile and fail when they run; {limit} is the longest that ran."""
    shape = query.shape()
    return shape[-1] if shape and len(shape) == 2 and shape[-1] > limit.value else None


@rule("lrn-partial", "LocalResponseNormalization", "LRN", effect="wrong_result", elsewhere="netplist")
def lrn_partial(query: Query, limit: Limit) -> Any:
    """{op}: KernelChannel is {extent}; only that many channels are normalised, not {limit}."""
    shape, channels = query.shape(), query.attrs.get("KernelChannel")
    if shape is None or len(shape) < 3 or channels is None:
        return None
    return channels if channels < shape[-3] else None
