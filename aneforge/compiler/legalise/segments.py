"""Multi-segment cuts: a native layer by direct authoring, attention first of all, runs as a program of its own."""

from __future__ import annotations

from aneforge.anec.ir import Module, Op
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait
from aneforge.compiler.facts import Facts
from aneforge.compiler.passes import pass_
from aneforge.compiler.plan import Segment, plan_of

_NATIVE = kinds_with(Trait.NATIVE)


def is_bridge(op: Op) -> bool:
    """Whether an op cuts the program: native layers the user authored, attention, layers without a backend op."""
    return "bridge" in op.labels or (op.is_a(Trait.NATIVE) and not _is_activation_unit(op))


def _is_activation_unit(op: Op) -> bool:
    """Whether an op is an activation table without a backend op of its own (atan): an activation, not a native
    layer."""
    return op.attrs.get("type") == "Neuron"


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
