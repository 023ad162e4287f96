"""Element types and weight encodings."""

from __future__ import annotations

import re
from typing import Any

from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import ANY, Limit, Over, rule
from aneforge.graph.node import ops_with
from aneforge.graph.traits import GraphTrait

_INTEGERS = ("int8", "int16", "int32", "int64", "uint16", "uint32")


_CAST_AT_ONCE = "cast-behind-an-fp32-input"


@rule("fp32-program", ANY)
def fp32_program(query: Query, limit: Limit) -> Any:
    """{op}: {extent} operands; the engine computes in fp16 and a program takes {limit}."""
    if _CAST_AT_ONCE in query.patterns or query.base == "cast":
        return None
    return next((dtype for dtype in query.dtypes if dtype in ("fp32", "fp64")), None)


@rule("fp32-input", ANY, elsewhere="graph language")
def fp32_input(query: Query, limit: Limit) -> Any:
    """{op}: a program input of {extent}, even if cast at once, was refused on {chip}; it takes {limit}."""
    return "fp32" if "fp32" in query.dtypes and limit.pattern in query.patterns else None


@rule("integer-operand", ANY, elsewhere="graph language")
def integer_operand(query: Query, limit: Limit) -> Any:
    """{op}: {extent} operands are not computed by the engine, which takes {limit}."""
    first = query.dtypes[0] if query.dtypes else "fp16"
    # int8 data enters through quantise and dequantise, which name it as an attribute; the data operand comes first,
    # and an index operand behind it does not make the op an integer one (gather_nd, M6.disp).
    return first if first in _INTEGERS and query.base not in ops_with(GraphTrait.QUANTISER) else None


@rule("image-format", "dequantize", reads=("image_tags",))
def image_format(query: Query, limit: Limit) -> Any:
    """An image port of format {extent} is not published for {chip}; the chip takes {limit}."""
    tag = query.attrs.get("format")
    if tag is None or tag in limit.value:
        return None
    return Over(tag, limit.value, words=", ".join(limit.value) or "no image surfaces")


@rule("integer-cast", "cast", elsewhere="graph language")
def integer_cast(query: Query, limit: Limit) -> Any:
    """{op}: a cast to {extent} is not done by the engine; {limit} are."""
    to = query.attrs.get("dtype", query.attrs.get("to"))
    return to if to in _INTEGERS else None


@rule("integer-weight", "matmul", "linear", "conv", elsewhere="graph language")
def integer_weight(query: Query, limit: Limit) -> Any:
    """{op}: a plain integer constant as weight is refused; {limit} type is cast to fp16."""
    return "integer" if query.weights.get("encoding") == "integer" else None


_GROUPED = ("blockwise", "int4_grouped")


@rule("grouped-scales", ANY, every_record=True)
def grouped_scales(query: Query, limit: Limit) -> Any:
    """{op}: {extent} along the input channels, or one for each group of channels, keep the op off the engine of
    {chip}, which takes {limit} ("{string}")."""
    if limit.pattern in query.patterns:
        return "weight scales or tables"
    bits = limit.record.get("bits")
    if bits is not None and query.weights.get("bits") != bits:
        return None
    # A node of a graph shows its scales, by the pattern; elsewhere the name of the encoding has to do.
    if query.weights.get("encoding") in _GROUPED and not query.attrs.get("interior"):
        return "weight scales"
    return "tables" if query.weights.get("palette_per_group") else None


@rule("vector-palette", ANY, elsewhere="Core ML placement")
def vector_palette(query: Query, limit: Limit) -> Any:
    """{op}: a palette of vectors along the {extent} channels stays off the engine of {chip}; along the {limit}
    channels it runs."""
    return "input" if query.weights.get("vectors_along") == "input" else None


@rule("element-type", ANY, elsewhere="graph language")
def element_type(query: Query, limit: Limit) -> Any:
    """{op}: {extent} numbers; {chip} reads {limit}."""
    types = (*query.dtypes, str(query.weights.get("encoding", "")))
    taken = tuple(limit.value)
    others = (name for name in types if name.startswith(_OTHER_TYPES))
    return next((name for name in others if not re.sub("[-_]", "", name).startswith(taken)), None)


_OTHER_TYPES = ("bf16", "bfloat", "fp8", "float8")
"""How the names of types begin that no chip, or not every chip, has."""


@rule("fp8-form", ANY, elsewhere="graph language")
def fp8_form(query: Query, limit: Limit) -> Any:
    """{op}: fp8 weights with {extent}; {chip} takes {limit} ("{string}")."""
    encoding = str(query.weights.get("encoding", ""))
    return "a zero point" if encoding.startswith(("fp8", "float8")) and query.weights.get("zero_point") else None


@rule("run-time-dequantise", ANY, elsewhere="model language")
def run_time_dequantise(query: Query, limit: Limit) -> Any:
    """{op}: a constant of codes behind {extent} does not compile for {chip}; {limit} does."""
    return "a dequantiser that runs in every call" if query.weights.get("dequantize") == "runtime" else None


@rule("palette-bits", ANY, effect="decompose", elsewhere="rewrites")
def palette_index_bits(query: Query, limit: Limit) -> Any:
    """{op}: a palette of {extent} index bits is expanded on {chip}, which reads {limit}."""
    bits = palette_bits(query)
    return bits if bits is not None and bits not in limit.value else None


def palette_bits(query: Query) -> int | None:
    """Index bits of a palettised weight, by the name of its encoding."""
    encoding = query.weights.get("encoding")
    return _PALETTE_BITS.get(encoding) if isinstance(encoding, str) else None


_PALETTE_BITS = {
    spelling: bits for bits in (1, 2, 3, 4, 6, 8) for spelling in (f"lut{bits}", f"int{bits}lut", f"int{bits}_lut")
}
