"""From a graph to programs; ``aneforge.study.model`` puts one of them into a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aneforge.chips.chip import Target
from aneforge.chips.families import supports_mil
from aneforge.chips.host import host_target
from aneforge.chips.names import target as find_target
from aneforge.chips.ops import ROUTES
from aneforge.compiler.draft import Draft
from aneforge.compiler.facts import facts_of
from aneforge.compiler.legal.check import check_reads, program_route
from aneforge.compiler.pipeline import Branch, Watcher, run_pipeline, run_rest
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import CompileError
from aneforge.compiler.survey import Surveyed
from aneforge.errors import AneforgeError
from aneforge.files import write_folder
from aneforge.graph.graph import Graph
from aneforge.process import quiet_collector


def resolve_target(target: str | int | Target | None) -> Target:
    """A compile target by any name; None is this machine's, or the H13 floor with a warning."""
    if isinstance(target, Target):
        return target
    return host_target() if target is None else find_target(target)


def compile_target(
    graph: Graph, target: Target, watch: Watcher | None = None, route: str | None = None, overlap: bool = True
) -> Program:
    """One program; raises the reason why there is none."""
    compiled = programs_for(graph, [target], watch, route, overlap)[target.name]
    if isinstance(compiled, CompileError):
        raise compiled
    return compiled


def programs_for(
    graph: Graph,
    targets: Sequence[Target],
    watch: Watcher | None = None,
    route: str | None = None,
    overlap: bool = True,
) -> dict[str, Program | CompileError]:
    """The program of each target by name, or why there is none. Targets whose facts agree share the work."""
    if route is not None and route not in ROUTES:
        raise AneforgeError(f"compile: route {route!r} is unknown; choose one: {', '.join(ROUTES)}, or leave it out")
    route = route or graph.route
    compiled: dict[str, Program | CompileError] = {}
    with quiet_collector():
        for branch in run_pipeline(lambda: Draft.of(graph, route), targets, watch, overlap=overlap):
            for target in branch.targets:
                if branch.error is None:
                    compiled[target.name] = Program.of(target, branch.draft, branch.log)
                else:
                    compiled[target.name] = branch.error.on(target.name, _route_to_name(target, route))
    return {target.name: compiled[target.name] for target in targets}


def finished(surveyed: Surveyed) -> dict[str, Program]:
    """The programs of targets that refuse nothing, from where a survey of the graph ended."""
    assert surveyed.draft is not None
    first = Branch(surveyed.draft, surveyed.targets, surveyed.log)
    with quiet_collector():
        return {
            target.name: Program.of(target, branch.draft, branch.log)
            for branch in run_rest(first, after="legalise")
            for target in branch.targets
        }


def _route_to_name(target: Target, requested: str | None) -> str:
    """The route to name in a refusal; empty where it is the usual one, which needs no mention."""
    route = program_route(facts_of(target, check_reads()), requested)
    return route if route == "direct" or not supports_conversion(target) else ""


def supports_conversion(target: Target) -> bool:
    """Whether converted programs reach the target at all: "MIL is only supported for H13+ ANE architectures"."""
    return target.family5 is None or supports_mil(target.family5)


def lowered_for(graph: Graph, target: Target) -> Draft:
    """A graph after phase 0 for one target: rewritten, checked and lowered to the engine's language."""
    branch = run_pipeline(lambda: Draft.of(graph), [target], until="legal")[0]
    if branch.error is not None:
        raise branch.error
    return branch.draft


def build_files(program: Program) -> dict[str, str]:
    """The files of a build by name: the listing, the program as JSON and the backend code."""
    import json

    return {
        "program.txt": str(program),
        "program.json": json.dumps(program.to_json(), default=list) + "\n",
        "program.mlir": program.mlir,
    }


def write_build(program: Program, folder: str | Path) -> None:
    """The files of a build, in a folder of their own."""
    write_folder(folder, build_files(program))


OPT_LEVELS: dict[Any, bool] = {"routes": True, 1: True, 0: False, None: False}
"""What ``opt`` may be, and whether layers may overlap at that level."""


def overlap_of(opt: str | int | None) -> bool:
    """Whether layers may overlap at an ``opt`` level."""
    try:
        return OPT_LEVELS[opt]
    except (KeyError, TypeError):
        levels = ", ".join(repr(level) for level in OPT_LEVELS)
        raise AneforgeError(f"compile: opt {opt!r} is unknown; choose one: {levels}") from None
