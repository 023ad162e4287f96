"""``af.compile_all``: from a graph to programs; ``aneforge.model`` puts one of them into a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aneforge.compiler.draft import Draft
from aneforge.compiler.facts import facts_of
from aneforge.compiler.legal.check import check_reads, program_route
from aneforge.compiler.pipeline import Watcher, run_pipeline
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import CompileError
from aneforge.errors import AneforgeError, UnknownNameError
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.output.files import write_folder
from aneforge.process import quiet_collector
from aneforge.targets.chip import Target, compiler_target
from aneforge.targets.families import supports_mil
from aneforge.targets.host import detect_family
from aneforge.targets.listed import chip_list
from aneforge.targets.names import arch_for_family
from aneforge.targets.names import target as find_target
from aneforge.targets.ops import ROUTES

__all__ = ["Compiled", "compile_all", "compile_target", "lowered_for", "programs_for", "resolve_target"]


class Compiled(Mapping[str, Program]):
    """The programs of one graph by target name, and the reason for each target that refused it."""

    def __init__(self, programs: dict[str, Program], refused: dict[str, CompileError], asked: Sequence[str]) -> None:
        self._programs = programs
        self.refused = refused
        self.asked = tuple(asked)

    def __getitem__(self, name: str) -> Program:
        """The program for a target, named by the target or one of its chips. Raises the refusal of a target that
        refused."""
        known = self._named(name)
        if known in self.refused:
            raise self.refused[known]
        if known not in self._programs:
            raise UnknownNameError(f"{name}: no program was compiled for it; choose one: {', '.join(self.asked)}")
        return self._programs[known]

    def __contains__(self, name: object) -> bool:
        """Whether there is a program for a target."""
        try:
            return isinstance(name, str) and self._named(name) in self._programs
        except UnknownNameError:
            return False

    def _named(self, name: str) -> str:
        return name if name in self.asked else find_target(name).name

    def __iter__(self) -> Iterator[str]:
        return iter(self._programs)

    def __len__(self) -> int:
        return len(self._programs)

    def groups(self) -> list[list[str]]:
        """Targets grouped by equal programs, in the order of the targets."""
        by_fingerprint: dict[str, list[str]] = {}
        for name, program in self._programs.items():
            by_fingerprint.setdefault(program.fingerprint, []).append(name)
        return list(by_fingerprint.values())

    @property
    def distinct(self) -> int:
        """How many different programs there are."""
        return len(self.groups())

    def __repr__(self) -> str:
        return f"<{len(self)} programs, {self.distinct} distinct, {len(self.refused)} targets refused>"


def resolve_target(target: str | int | Target | None) -> Target:
    """A compile target by any name; None is the host's family, or the H13 floor with a warning."""
    if isinstance(target, Target):
        return target
    return compiler_target(arch_for_family(detect_family())) if target is None else find_target(target)


def compile_all(
    out: Tensor | Sequence[Tensor] | Graph,
    targets: str | Target | Iterable[str | Target] = "all",
    route: str | None = None,
) -> Compiled:
    """One graph for many targets at once. Targets whose facts agree share the work.

    ``targets`` is a target, a list, or text as on the command line: ``"all"`` (the 28 of build 9.509), ``"m1,m5"``,
    ``"m1..m6"``, ``"macs"``, ``"phones"``. A target that
    refuses the graph is in ``.refused`` with its reason; it does not stop the others. ``route`` as for ``af.compile``.
    """
    chosen = _target_list(targets)
    return programs_for(Graph.of(out), chosen, route=route)


def _target_list(targets: str | Target | Iterable[str | Target]) -> list[Target]:
    if isinstance(targets, str):
        targets = chip_list(targets, "targets") if targets.strip(" ,") else []
    elif not isinstance(targets, Iterable):
        targets = [targets]
    by_name = {target.name: target for target in map(resolve_target, targets)}
    if not by_name:
        raise AneforgeError("compile: no target is named; name one or more, for instance 'm1,m5' or 'all'")
    return list(by_name.values())


def compile_target(
    graph: Graph, target: Target, watch: Watcher | None = None, route: str | None = None, overlap: bool = True
) -> Program:
    """One program, or the reason why there is none."""
    compiled = programs_for(graph, [target], watch, route, overlap)
    return compiled[target.name]


def programs_for(
    graph: Graph,
    targets: Sequence[Target],
    watch: Watcher | None = None,
    route: str | None = None,
    overlap: bool = True,
) -> Compiled:
    """The programs of a graph, by target."""
    if route is not None and route not in ROUTES:
        raise AneforgeError(f"compile: route {route!r} is unknown; choose one: {', '.join(ROUTES)}, or leave it out")
    route = route or graph.route
    refused: dict[str, CompileError] = {}
    programs: dict[str, Program] = {}
    with quiet_collector():
        for branch in run_pipeline(lambda: Draft.of(graph, route), targets, watch, overlap=overlap):
            for target in branch.targets:
                if branch.error is None:
                    programs[target.name] = Program.of(target, branch.draft, branch.log)
                else:
                    refused[target.name] = branch.error.on(target.name, _route_to_name(target, route))
    order = [target.name for target in targets]
    return Compiled({name: programs[name] for name in order if name in programs}, refused, order)


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
