"""Where native layers cut a program: what each of them reads and gives, and the dispatches around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aneforge.compiler.plan import Segment
from aneforge.compiler.program import Program
from aneforge.engine.ir import Op
from aneforge.engine.layers import layer_of
from aneforge.engine.traits import Trait


@dataclass(frozen=True)
class SegmentCrossing:
    """One value that goes from a dispatch to another, or through a port."""

    name: str
    """The port, or the user's nodes behind the value."""
    shape: tuple[int, ...]
    """As the engine has it: N, D, C, H, W."""

    def __str__(self) -> str:
        return f"{self.name} {'x'.join(map(str, self.shape))}"


@dataclass(frozen=True)
class SegmentCut:
    """One native layer, which is a segment of its own."""

    segment: int
    layer: str
    """The type of the layer, as a netplist names it."""
    nodes: tuple[str, ...]
    """The user's nodes that it is for."""
    reads: tuple[SegmentCrossing, ...]
    gives: tuple[SegmentCrossing, ...]
    before: tuple[int, ...]
    """The segments that it reads; empty where it reads ports only."""
    behind: tuple[int, ...]
    """The segments that read it; empty where its result leaves the program."""

    def to_json(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "reads": [str(value) for value in self.reads],
            "gives": [str(value) for value in self.gives],
        }

    def __str__(self) -> str:
        source = f" of {_segments(self.before)}" if self.before else ""
        target = f" for {_segments(self.behind)}" if self.behind else ""
        reads, gives = (", ".join(map(str, values)) or "nothing" for values in (self.reads, self.gives))
        nodes = ", ".join(self.nodes) or "the compiler"
        return f"cut {self.segment}: {self.layer} ({nodes}) reads {reads}{source}; gives {gives}{target}"


def _segments(numbers: tuple[int, ...]) -> str:
    return f"segment{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def cuts_of(program: Program) -> tuple[SegmentCut, ...]:
    """Every native layer of a program, in the order of its segments."""
    segment_of = {layer: segment.number for segment in program.segments for layer in segment.layers}
    readers: dict[int, list[int]] = {}
    for segment in program.segments:
        for name in segment.inputs:
            if isinstance(name, int):
                readers.setdefault(name, []).append(segment.number)
    return tuple(
        _cut(program, segment, segment_of, readers) for segment in program.segments if segment.kind == "native"
    )


def _cut(program: Program, segment: Segment, segment_of: dict[int, int], readers: dict[int, list[int]]) -> SegmentCut:
    ports = {port.name: port.ndchw_shape for port in program.inputs}
    layer = program.layers[segment.layers[0]]
    named = layer_of(layer.ops[0])
    reads = tuple(
        SegmentCrossing(name, ports.get(name, ()))
        if isinstance(name, str)
        else SegmentCrossing(_origin(program.layers[name].ops[-1], layer.sources), program.layers[name].shape)
        for name in segment.inputs
    )
    before = dict.fromkeys(segment_of[name] for name in segment.inputs if isinstance(name, int))
    behind = dict.fromkeys(number for place in segment.outputs for number in readers.get(place, ()))
    gives = [program.layers[place] for place in segment.outputs]
    return SegmentCut(
        segment=segment.number,
        layer=layer.op if named is None else named.type,
        nodes=layer.sources,
        reads=reads,
        gives=tuple(SegmentCrossing("+".join(given.sources) or given.op, given.shape) for given in gives),
        before=tuple(before),
        behind=tuple(behind),
    )


def _origin(op: Op, nodes: tuple[str, ...]) -> str:
    """The user's name for a value that was only laid out for the nodes of a cut: what it was before."""
    while set(op.sources) <= set(nodes) and op.is_a(Trait.MOVEMENT) and op.operands:
        op = op.operands[0]
    return op.attrs["name"] if op.is_a(Trait.INPUT) else "+".join(op.sources) or op.kind
