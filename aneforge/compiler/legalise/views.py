"""Gathers and views: which engine moves the data, in which format; and where segments end."""

from __future__ import annotations

from collections.abc import Sequence

from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse.moves import pairs_of
from aneforge.compiler.legal.rules.native import is_in_h13_envelope
from aneforge.compiler.legal.translate import query_of_op
from aneforge.compiler.legalise.relabel import Relayer, Span, rewritten, typed, with_extents
from aneforge.compiler.lower.builder import reject_string
from aneforge.compiler.passes import pass_
from aneforge.compiler.plan import Segment, plan_of
from aneforge.compiler.refusal import Refused
from aneforge.engine.ir import Module, Op
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait

_BATCH, _HEIGHT, _WIDTH = 0, 3, 4
_SPACE = (_HEIGHT, _WIDTH)
_MIRRORS = {"Symmetric": 0, "Reflective": 1}
"""Modes of a pad that mirrors its edges, and how many elements at the edge the mirror leaves out."""
_EXCHANGE = pairs_of((0, 1, 2, 4, 3))  # H and W


@pass_(
    "gather-gate",
    2,
    reads=["texture_engine"],
    requires=["layers"],
    ensures=["mapped gathers"],
    only=["gather_nd", "padding"],
)
def gather_gate(module: Module, chip: Facts) -> int:
    """IsValidForH13: without a texture engine a gather fits the software envelope, or fixed indices become views.

    A pad that mirrors is a gather of that kind (table 22.5: these modes need the texture engine as well), which the
    gate calls the software data path.
    """
    texture = chip["texture_engine"]

    def gathers(op: Op) -> bool:
        if op.kind == "padding":
            return not texture and op.attrs["padding_modes"] in _MIRRORS
        return op.kind == "gather_nd" and (texture or not _in_envelope(op))

    def rewrite(walk: Relayer, op: Op) -> None:
        if texture:
            op.mark(data_path="texture")
            walk.changes += 1
            walk.keep(op)
        elif op.kind == "padding":
            walk.record(op, "mirror-views")
            walk.replace(op, _mirrored(walk, op))
        else:
            walk.record(op, "gather-views")
            walk.replace(op, _by_views(walk, op))

    return rewritten(module, gathers, rewrite)


def _in_envelope(op: Op) -> bool:
    """IsValidForH13, which is a rule of the legality table (chapter 35): without indices from outside it is not asked,
    and views are cheaper."""
    query = query_of_op(op)
    return len(op.operands) == 2 and query is not None and is_in_h13_envelope(query)


def _by_views(walk: Relayer, op: Op) -> Op:
    x, axes = op.operands[0], op.attrs["axes"]
    if len(op.operands) > 1 or len(axes) != 1 or axes[0] == _BATCH:
        problem = "indices that arrive at run time" if len(op.operands) > 1 else f"axes {list(axes)}"
        raise Refused(
            op,
            "gather-envelope",
            f"a gather with {problem} is not supported; it needs the texture engine, or three axes of one image "
            "with three index channels",
            reject_string("Gather", "Cannot decompose"),
        )
    extent = x.shape[axes[0]]
    runs = _runs([index % extent for index in op.attrs["indices"]])
    views = {run: walk.view(x, axes[0], *run, op.sources) for run in dict.fromkeys(runs)}
    return walk.joined([views[run] for run in runs], axes[0], op.sources)


def _runs(indices: Sequence[int]) -> list[Span]:
    """Runs of consecutive indices: where each starts and how long it is."""
    runs: list[Span] = []
    for index in indices:
        if runs and index == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((index, 1))
    return runs


def _mirrored(walk: Relayer, op: Op) -> Op:
    """The tensor between reversed views of itself. The columns lie on H meanwhile: a width view that does not begin at
    zero takes the crop data path, which saturates on these chips (N18)."""
    value = op.operands[0]
    for axis, (before, after) in enumerate(op.attrs["padding_sizes"]):
        if not before and not after:
            continue
        if axis == _WIDTH:
            value = _exchanged(walk, op, value)
        place = _HEIGHT if axis == _WIDTH else axis
        runs = _mirror_runs(value.shape[place], before, after, _MIRRORS[op.attrs["padding_modes"]])
        views = {run: walk.view(value, place, run[0], run[1], op.sources, run[2]) for run in dict.fromkeys(runs)}
        value = walk.joined([views[run] for run in runs], place, op.sources)
        if axis == _WIDTH:
            value = _exchanged(walk, op, value)
    return value


def _mirror_runs(extent: int, before: int, after: int, left_out: int) -> list[tuple[int, int, int]]:
    """What a line between mirrors shows: runs of its own elements, forwards and backwards in turn, each with its
    start, its length and its step. The edge element appears in both neighbours unless it is left out."""
    runs = [(0, extent, 1)]
    left_out = min(left_out, extent - 1)
    step = 1
    while before > 0:
        step = -step
        size = min(before, extent - left_out)
        last = left_out if step < 0 else extent - 1 - left_out  # next to the run behind it
        runs.insert(0, (last - step * (size - 1), size, step))
        before -= size
    step = 1
    while after > 0:
        step = -step
        size = min(after, extent - left_out)
        runs.append((left_out if step > 0 else extent - 1 - left_out, size, step))
        after -= size
    return runs


def _exchanged(walk: Relayer, op: Op, x: Op) -> Op:
    type_ = with_extents(typed(x), {_HEIGHT: x.shape[_WIDTH], _WIDTH: x.shape[_HEIGHT]})
    return walk.layer("transpose", [x], type_, {"transpose_list": _EXCHANGE}, op.sources)


@pass_(
    "crop-slices",
    2,
    reads=["slice_saturates"],
    requires=[
        "layers",
        "mapped resizes",
        "mapped gathers",
        "native strides",
        "native groups",
        "kernel modes",
        "sliced products",
        "kernel memory",
    ],
    ensures=["mapped views"],
    only=["input_view"],
)
def crop_slices(module: Module, chip: Facts) -> int:
    """SliceNeedsCropMode: a height or width view that does not begin at zero takes the crop data path.

    The trigger is the same on every family. On the width this data path stores four fractional bits where the chip
    saturates (N18); everywhere else it stores fp16.
    """
    changes = 0
    for op in module.ops:
        if op.kind != "input_view" or op.attrs["dimension"] not in _SPACE:
            continue
        if op.attrs["offset"] == 0 and op.attrs["step"] > 0:
            continue
        hazard = op.attrs["dimension"] == _WIDTH and op.attrs["offset"] != 0 and chip["slice_saturates"]
        op.mark(data_path="crop", storage="q4" if hazard else "fp16")
        changes += 1
    return changes


# Multi-segment cuts: a native layer by direct authoring, attention first of all, runs as a program of its own.


_NATIVE = kinds_with(Trait.NATIVE)


def is_bridge(op: Op) -> bool:
    """Whether an op cuts the program: native layers the user authored, attention, layers without a backend op."""
    # An activation table without a backend op of its own (atan) is an activation, not a native layer.
    return "bridge" in op.labels or (op.is_a(Trait.NATIVE) and op.attrs.get("type") != "Neuron")


@pass_("cut-segments", 2, requires=["layers"], ensures=["segments"])
def cut_segments(module: Module, chip: Facts) -> int:
    """Cut at bridges: each native layer and each attention is a segment; what lies between two of them is one.

    An op's depth is the number of cuts on the longest way to it, counted twice: even depths are compute, odd depths
    bridges. Depth never falls along a path, so segments in the order of their depth never wait for a later one.
    """
    if not any((op.labels or op.kind in _NATIVE) and is_bridge(op) for op in module.ops):
        layers = dict.fromkeys(op.layer for op in module.ops if op.layer is not None)
        return _decide(module, [Segment(0, "compute", tuple(layers))] if layers else [])
    depths: dict[Op, int] = {}
    bridges: dict[Op, int] = {}
    members: dict[int, list[Op]] = {}
    opens: dict[int, Op] = {}
    for op in module.ops:
        if op.layer is None:
            continue
        opens.setdefault(op.layer, op)
        depth = 0
        for operand in op.operands:
            above = depths.get(operand, 0)
            depth = max(depth, above)
        if is_bridge(op):
            depth += 1 + depth % 2
            bridges[op] = depth
        else:
            depth += depth % 2
            members.setdefault(depth, []).append(op)
        depths[op] = depth
    groups = [(depth, 0, ops) for depth, ops in members.items()]
    groups += [(depth, 1 + place, [op]) for place, (op, depth) in enumerate(bridges.items())]
    segments: list[Segment] = []
    for number, (depth, _, ops) in enumerate(sorted(groups, key=lambda group: group[:2])):
        layers = [op.layer for op in ops if op.layer is not None and opens[op.layer] is op]
        if layers:  # ops in the slots of a native layer run with it, not as a segment of their own
            segments.append(Segment(number, "native" if depth % 2 else "compute", tuple(layers)))
    _decide(module, segments)
    return max(0, len(groups) - 1)


def _decide(module: Module, segments: list[Segment]) -> int:
    plan = plan_of(module)
    plan.forget_order()
    plan.graph, plan.segments = None, tuple(segments)
    return 0
