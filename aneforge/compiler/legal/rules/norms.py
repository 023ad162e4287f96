"""Normalisation: the layer-norm affine on A13 and A14, long rows, response and range normalisation."""

from __future__ import annotations

from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import Limit, rule


def _rank4_body(query: Query) -> bool:
    """Whether scale and shift act on the [R, D, 1, 1] form, between two reshapes (our default lowering)."""
    form = query.attrs.get("form")
    if form is not None:
        return form == "rank-4"
    gamma = query.const.get("gamma")
    return gamma is None or len(gamma) != 2


@rule("layer-norm-affine", "layer_norm", chains=False)
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
