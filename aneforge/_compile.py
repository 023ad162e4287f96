"""Compile names of existing code: ``from aneforge._compile import compile, cross_compile_check``."""

from __future__ import annotations

from typing import Any

from aneforge.chips.families import Family
from aneforge.chips.host import host_target
from aneforge.chips.names import arch_for_family, family_of_arch
from aneforge.chips.names import target as find_target
from aneforge.cost.estimate import DispatchFloorWarning
from aneforge.errors import AneforgeError, CrossChipFP16Warning, PrecisionWarning
from aneforge.study.model import Model, MultiModel, SegmentedModel, compile, compile_multi  # noqa: A004

__all__ = [
    "CrossChipFP16Warning",
    "DispatchFloorWarning",
    "Model",
    "MultiModel",
    "PrecisionWarning",
    "SegmentedModel",
    "compile",
    "compile_multi",
    "cross_compile_check",
]


def cross_compile_check(out: Any, target: str | int | Family, int8: bool = False, route: str = "conversion") -> bool:
    """True if all four phases build a program for ``target`` by ``route``, False if they refuse the graph.

    ``target`` is an architecture (``"h13"``) or a five-tier family, which stands for its representative. By conversion
    nothing is built below A13 ("MIL is only supported for H13+"), so h11 and h12 are False; ``route="direct"`` asks
    for authored layers, which is how ``af.compile`` builds for them.

    Unknown names are refused before anything else. What can differ in fp16 between this machine's engine (or the one
    that ``ANEFORGE_TARGET`` names) and the target is reported by a ``CrossChipFP16Warning`` before the compile; it
    never changes the answer.
    ``int8`` asks for the graph with its weights as int8 (``compile(compress="int8")``).
    Graphs that native layers cut into segments are out of scope and raise, as the seed page says.
    """
    from aneforge.compiler.compile import compile_target
    from aneforge.compiler.compression import CompressionOptions, compressed
    from aneforge.compiler.refusal import CompileError
    from aneforge.graph.graph import Graph
    from aneforge.study.verdicts import warn_divergence

    name = target if isinstance(target, str) else arch_for_family(target)
    family_of_arch(name)
    graph, chip = Graph.of(out), find_target(name)
    options = CompressionOptions.of(int8, None)
    if options is not None:
        graph, _ = compressed(graph, chip, options)
    warn_divergence(graph, host_target(), chip, stacklevel=3)
    try:
        program = compile_target(graph, chip, route=route)
    except CompileError:
        return False
    if any(segment.kind == "native" for segment in program.segments):
        raise AneforgeError(
            f"cross_compile_check: native layers cut the graph into {len(program.segments)} segments; it takes "
            "graphs of one segment. Use af.compile."
        )
    return True
