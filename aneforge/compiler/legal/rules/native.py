"""The checks of validators that no record can state: how shapes and parameters of one layer fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from aneforge.chips.families import Family8
from aneforge.chips.names import first_chips
from aneforge.chips.ops import BackendOp, backend_op, backend_ops, op_routes
from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import Limit, Over, Structure, rule, rule_records
from aneforge.engine.native import dimensions

Shape = tuple[int, ...]
H13_AXES = ("Channel", "Height", "Width")


@rule("sdpa-contraction", "SDPA", validates=True, elsewhere="graph language")
def sdpa_contraction(query: Query, limit: Limit) -> Any:
    """{op}: queries of {extent} do not contract with {what}; the layer takes {limit}."""
    queries, keys, mask = query.shape(), query.shape(1), query.shape(4)
    if queries is None or keys is None or len(queries) != 4 or len(keys) != 4:
        return None
    if queries[:2] != keys[:2] or queries[3] != keys[3]:
        return Over(list(queries), limit.value, f"keys of {list(keys)}")
    if mask is None or mask[-2:] == (queries[2], keys[2]):
        return None
    fitting = (1, 1, queries[2], keys[2])
    return Over(list(queries), fitting, f"the mask of {list(mask)}", f"a mask of {list(fitting)}")


@rule("matmul-contraction", "MatrixMultiplication", "MatrixMult", validates=True, elsewhere="graph language")
def matmul_contraction(query: Query, limit: Limit) -> Any:
    """{op}: bottom 0 has {extent} columns and bottom 1 has {what} rows on its channels; the two must agree."""
    left, right = query.shape(), query.shape(1)
    if left is None or right is None:
        return None
    a, b = dimensions(left), dimensions(right)
    inner = a.channel if query.attrs.get("transpose_lhs") else a.width
    rows = b.width if query.attrs.get("transpose_rhs") else b.channel
    return None if inner == rows else Over(inner, rows, str(rows))


@rule("concat-shapes", "Concat", validates=True, elsewhere="graph language")
def concat_shapes(query: Query, limit: Limit) -> Any:
    """{op}: {what} is {extent}; its extents must be {limit}."""
    axis = str(query.attrs.get("Dimension", "")).lower()
    known = [(number, dimensions(shape)) for number, shape in enumerate(query.shapes or ()) if shape is not None]
    if not known or axis not in known[0][1]._fields:
        return None
    first = known[0][1]._replace(**{axis: 0})
    return next(
        (
            Over(tuple(dims), limit.value, f"bottom {number}")
            for number, dims in known
            if dims._replace(**{axis: 0}) != first
        ),
        None,
    )


@rule("broadcast-axis", "Broadcast", validates=True, elsewhere="graph language")
def broadcast_axis(query: Query, limit: Limit) -> Any:
    """{op}: the {what} of bottom 0 is {extent}; only an axis of {limit} can be broadcast."""
    shape = query.shape()
    if shape is None:
        return None
    for entry in query.attrs.get("BroadcastInfo", ()):
        extent = getattr(dimensions(shape), str(entry["Dimension"]).lower(), limit.value)
        if extent != limit.value:
            return Over(extent, limit.value, str(entry["Dimension"]).lower())
    return None


@rule("view-end", "InputView", validates=True, elsewhere="graph language")
def view_end(query: Query, limit: Limit) -> Any:
    """{op}: the last element of the view is at {extent}; it must lie {limit}, which has {what} ("{string}")."""
    shape, axis = query.shape(), str(query.attrs.get("Dimension", "")).lower()
    stated = [query.parameter(key) for key in ("Offset", "Size", "Step")]
    if shape is None or None in stated or not hasattr(dimensions(shape), axis):
        return None
    offset, size, step = stated
    extent, last = getattr(dimensions(shape), axis), offset + (size - 1) * step  # a view may run backwards
    return None if size < 1 or 0 <= last < extent else Over(last, limit.value, str(extent))


@rule("reshape-elements", "Reshape", validates=True, elsewhere="graph language")
def reshape_elements(query: Query, limit: Limit) -> Any:
    """{op}: the result has {extent} elements; it must have {limit}."""
    shape = query.shape()
    if shape is None or len(shape) > 5:
        return None
    kept = dimensions(shape)._replace(depth=1)  # what is not stated stays; a depth has no published key
    result = [query.attrs.get(f"Reshaped{axis.capitalize()}", extent) for axis, extent in kept._asdict().items()]
    count = prod(shape)
    return None if prod(result) == count else Over(prod(result), count, words=f"{count}, {limit.value}")


@rule("axis-set", "Softmax", validates=True, elsewhere="graph language")
def axis_set(query: Query, limit: Limit) -> Any:
    """{op}: Dimension is {extent}; the layer needs {limit}."""
    axes = query.attrs.get("Dimension")
    return "empty" if isinstance(axes, (list, tuple)) and not axes else None


@rule("transpose-moves", "Transpose", validates=True, elsewhere="graph language")
def transpose_moves(query: Query, limit: Limit) -> Any:
    """{op}: the moves {extent} are no permutation of the last four axes; they must use {limit}."""
    moves = query.attrs.get("TransposeDimensions", ())
    sources = [move["TransposeSourceDimension"] for move in moves]
    places = [move["TransposeDestinationDimension"] for move in moves]
    sound = len(set(sources)) == len(sources) and sorted(sources) == sorted(places)
    return None if sound else " and ".join(f"{a} to {b}" for a, b in zip(sources, places, strict=True))


@rule("padded-axes", "Padding", "Pad", validates=True, elsewhere="netplist")
def padded_axes(query: Query, limit: Limit) -> Any:
    """{op}: padding along {extent}; the layer pads {limit} ("{string}")."""
    sizes = query.attrs.get("PaddingSizes")
    if sizes is None:
        return None
    axes = ("Batch", "Depth", "Channel", "Height", "Width")
    padded = [axis for axis, sides in zip(axes, sizes, strict=True) if any(sides)]
    return next((axis for axis in padded if axis not in limit.value), None)


@rule("resize-target", "Resize", validates=True, elsewhere="netplist")
def resize_target(query: Query, limit: Limit) -> Any:
    """{op}: both {extent} are stated; the layer takes {limit}, not both."""
    stated = [kind for kind in ("Height", "ScaleFactorY") if kind in query.attrs]
    return " and ".join(stated) if len(stated) > 1 else None


@rule("same-across-axes", "CropResize", validates=True, elsewhere="netplist")
def same_across_axes(query: Query, limit: Limit) -> Any:
    """{op}: {what} is {extent}; it must be the same for every axis."""
    for key in limit.value:
        values = query.attrs.get(key)
        if isinstance(values, (list, tuple)) and len(set(values)) > 1:
            return Over(", ".join(map(str, values)), Structure("one value"), key)
    return None


@rule("gather-envelope", "Gather", "gather", "gather_nd", validates=True, elsewhere="netplist")
def gather_envelope(query: Query, limit: Limit) -> Any:
    """{op}: without a texture engine the software gather of {chip} takes {limit} (IsValidForH13); this one has
    {extent} ("{string}")."""
    taken = limit.record["takes"]
    stated = {key: query.attrs[key] for key in taken if key in query.attrs}  # in words of the model language
    axes = query.attrs.get("GatherNDAxes")
    if axes is not None:
        stated |= _gather_facts(axes, query.shape(), query.shape(1))
    return {key: value for key, value in stated.items() if value != taken[key]} or None


def is_in_h13_envelope(query: Query) -> bool:
    """Whether the software gather of the M1 takes a gather layer."""
    wanted = rule_records()["gather-envelope"][0]["takes"]
    stated = _gather_facts(query.attrs.get("GatherNDAxes", ()), query.shape(), query.shape(1))
    return all(stated.get(key) == value for key, value in wanted.items())


def _gather_facts(axes: Sequence[str], data: Shape | None, index: Shape | None) -> dict[str, Any]:
    """What IsValidForH13 asks of a gather: its axes, batch and depth of the data, and the extents of the indices.

    The axis pattern is not published: channel, height and width, each once, in any order, which is also the form of
    IsValidForH13GatherNCH (U94)."""
    fits = sorted(axes) == sorted(H13_AXES)
    facts: dict[str, Any] = {"axes": len(H13_AXES) if fits else ", ".join(axes) or "none"}
    if data is not None:
        facts |= {"batch": dimensions(data).batch, "depth": dimensions(data).depth}
    if index is not None:
        dims = dimensions(index)
        facts |= {"index_channels": dims.channel, "index_width": dims.width, "index_depth": dims.depth}
    return facts


@cache
def _neurons() -> Mapping[str, BackendOp]:
    """The backend op of each function, by the letters of its name."""
    return {_letters(op.name.removeprefix("anec.")): op for op in backend_ops() if op.layer == "Neuron"}


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def _is_below(floor: int | None, limit: Limit) -> bool:
    family = limit.chip.get("family8")
    return floor is not None and family is not None and Family8[family] < floor


@rule("neuron-mode", "Neuron", reads=("family8",), validates=True, elsewhere="netplist")
def neuron_mode(query: Query, limit: Limit) -> Any:
    """{op}: the function {extent} starts with the {limit}; {chip} is older ("{string}")."""
    kind = str(query.attrs.get("Type", ""))
    op = _neurons().get(_letters(kind))
    if op is None or not _is_below(op.floor.value, limit):
        return None
    return Over(kind, int(op.floor.value), words=first_chips(Family8(op.floor.value)))


@rule("neuron-bridge", "Neuron", validates=True, elsewhere="netplist")
def neuron_bridge(query: Query, limit: Limit) -> Any:
    """{op}: the function {extent} cannot be authored on any chip; only {limit} has it (chapter 26)."""
    kind = str(query.attrs.get("Type", ""))
    op = _neurons().get(_letters(kind))
    is_authored = op is None or any(status.value != "reject" for status in op_routes(op.name).direct.values())
    return None if is_authored else kind


@rule("pool-mode", "Pooling", "Pool", reads=("family8",), validates=True, elsewhere="netplist")
def pool_mode(query: Query, limit: Limit) -> Any:
    """{op}: mode {extent}; {chip} has {limit} ("{string}")."""
    kind = query.attrs.get("Type")
    if kind is None or kind in limit.value:
        return None
    floor = backend_op("l2norm_pool").floor.value if kind == "L2" else None
    return kind if floor is None or _is_below(floor, limit) else None


@rule("compression-bits", "Conv", "Linear", validates=True, elsewhere="netplist")
def compression_bits(query: Query, limit: Limit) -> Any:
    """{op}: a compressed kernel of {extent} bits an element; only kernels of at least {limit} bits can be compressed
    (IsValidForCompression)."""
    bits = query.weights.get("bits", 16)
    return bits if query.weights.get("encoding") == "sparse" and bits < limit.value else None


# The rules that are not functions of a query: what the check of a graph and the passes of phase 2 refuse by name.


@dataclass(frozen=True)
class RaisedRule:
    """A rule id, who raises it, and what it says."""

    id: str
    raised_by: str
    """``check`` for a rule about an op's name or place, or the pass of phase 2. Losses of numbers are listed with the
    range analysis (``aneforge.numerics.losses``)."""
    about: str
    elsewhere: str = ""
    """The key of ``UNREACHED`` where no graph reaches it."""
    stage: str = "validator"
    """The layer that answers, one of ``STAGES``; of rules about names, the answer says it."""


RAISED = (
    RaisedRule("host-op", "check", "An op that only the host runs, or one on integers.", stage="frontend"),
    RaisedRule(
        "target-name", "check", "A target name that the compiler knows but no build constructs.", stage="frontend"
    ),
    RaisedRule("mil-floor", "check", "Below H13 no model-language program compiles.", stage="frontend"),
    RaisedRule("op-route", "check", "The route has no such op on this chip.", stage="frontend"),
    RaisedRule("op-record", "check", "A measured answer about one op.", "rewrites"),
    RaisedRule("sweep", "check", "The op failed the sweep of the whole vocabulary on an M5.", stage="code generation"),
    RaisedRule("segmenter", "check", "Core ML's planner does not call the op eligible.", "Core ML placement"),
    RaisedRule("unknown-op", "check", "No operation of this name is known.", "op names", "frontend"),
    RaisedRule(
        "weight-fold", "check", "A weight encoding that the chip expands to fp16.", "rewrites", "code generation"
    ),
    RaisedRule("minimum-family", "check-floors", "A backend op below the family that it starts at.", stage="frontend"),
    RaisedRule("extent", "check-extents", "An axis of a backend op above the chip's cap."),
    RaisedRule("contraction-extent", "check-extents", "A contraction above the chip's cap.", "backend text"),
    RaisedRule(
        "program-size",
        "check-program-size",
        "More weights in one program than were seen to load (C52).",
        stage="code generation",
    ),
    RaisedRule("kernel-memory", "split-kernel-memory", "One output channel's kernel is larger than kernel memory."),
    RaisedRule("resize-unmapped", "resize-strategies", "A resize that no strategy fits, without a texture engine."),
    RaisedRule("gather-envelope", "gather-gate", "A gather outside what software gathers take.", "backend text"),
    RaisedRule(
        "legacy-reshape",
        "legacy-forms",
        "A reshape that is not a flatten, on the two oldest families.",
        stage="code generation",
    ),
    RaisedRule(
        "legacy-broadcast",
        "legacy-forms",
        "A broadcast of other types than fp16 there.",
        stage="code generation",
    ),
    RaisedRule(
        "legacy-divide",
        "legacy-forms",
        "A divisor that is not stored, or has no fp16 reciprocal, there.",
        stage="code generation",
    ),
)


def raised_stage(rule: str) -> str:
    """The layer that answers by a rule of this list."""
    return next((raised.stage for raised in RAISED if raised.id == rule), "validator")
