"""``af.compile_all``: from a graph to programs; ``aneforge.model`` puts one of them into a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aneforge.anec.ir import Module
from aneforge.compiler.legal.rewrites import HostInput, RejectedOp, Retargeted, retarget
from aneforge.compiler.lower import Lowered, LoweringError, lower
from aneforge.compiler.pipeline import Branch, Watcher, quiet_collector, run_pipeline
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import CompileError
from aneforge.errors import AneforgeError, UnavailableError, UnknownNameError
from aneforge.gate.preflight import preflight
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.graph.weights import Weight, derived_weight
from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target, all_targets, compiler_target
from aneforge.targets.families import Family
from aneforge.targets.host import detect_family
from aneforge.targets.names import arch_for_family
from aneforge.targets.names import target as find_target

__all__ = ["Compiled", "compile_all", "compile_target", "lowered_for", "programs_for", "resolve_target"]

# The gate rewrites these for chips without a texture engine; the compiler itself has passes for them.
LEGALISED = frozenset(
    {
        "gather",
        "resize_bilinear",
        "resize_nearest_neighbor",
        "upsample_bilinear",
        "upsample_nearest_neighbor",
    }
)


_TABLE = "max_operand_bytes"  # the working set: every table that is known holds it


class Compiled(Mapping[str, Program]):
    """One graph for several targets: programs by target name, and why the rest was refused."""

    def __init__(self, programs: dict[str, Program], refused: dict[str, CompileError], asked: Sequence[str]) -> None:
        self._programs = programs
        self.refused = refused
        self.asked = tuple(asked)

    def __getitem__(self, name: str) -> Program:
        """By target, or by any name of its chips; what was refused raises its reason."""
        known = self._named(name)
        if known in self.refused:
            raise self.refused[known]
        if known not in self._programs:
            raise UnknownNameError(f"nothing was compiled for {name}; there is {', '.join(self.asked)}")
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
        """Targets that get the very same program, in the order of the targets."""
        found: dict[str, list[str]] = {}
        for name, program in self._programs.items():
            found.setdefault(program.fingerprint, []).append(name)
        return list(found.values())

    @property
    def distinct(self) -> int:
        """How many different programs there are."""
        return len(self.groups())

    def __repr__(self) -> str:
        return f"<{len(self)} programs, {self.distinct} distinct, {len(self.refused)} targets refused>"


@dataclass
class _Start:
    """The code that the phases begin with; asked again, it is made again."""

    graph: Graph
    target: Target
    lowered: Lowered
    used: bool = False

    def __call__(self) -> Module:
        lowered = lowered_for(self.graph, self.target)[1] if self.used else self.lowered
        self.used = True
        return lowered.module


def resolve_target(target: str | int | Target | None) -> Target:
    """A compile target by any name; None is the host's family, or the H13 floor with a warning."""
    if isinstance(target, Target):
        return target
    if target is None:
        return compiler_target(arch_for_family(detect_family()))
    if isinstance(target, int):
        return compiler_target(arch_for_family(target))
    return find_target(target)


def compile_all(
    out: Tensor | Sequence[Tensor] | Graph, targets: str | Target | Iterable[str | Target] = "all"
) -> Compiled:
    """One graph for many targets at once. Targets whose facts agree share the work.

    ``targets`` is ``"all"`` (the 28 of build 9.509), names separated by commas, a target, or a list. A target that
    refuses the graph is in ``.refused`` with its reason; it does not stop the others.
    """
    chosen = _chosen(targets)
    return programs_for(Graph.of(out), chosen)


def _chosen(targets: str | Target | Iterable[str | Target]) -> list[Target]:
    if targets == "all":
        return list(all_targets(only_28=True))
    if isinstance(targets, str):
        targets = [name for name in (part.strip() for part in targets.split(",")) if name]
    elif not isinstance(targets, Iterable):
        targets = [targets]
    found = {each.name: each for each in map(resolve_target, targets)}
    if not found:
        raise AneforgeError("no target was named; say for instance 'm1,m5' or 'all'")
    return list(found.values())


def compile_target(graph: Graph, target: Target, watch: Watcher | None = None) -> Program:
    """One program, or the reason why there is none."""
    compiled = programs_for(graph, [target], watch)
    return compiled[target.name]


def programs_for(graph: Graph, targets: Sequence[Target], watch: Watcher | None = None) -> Compiled:
    """The programs of a graph, by target."""
    with quiet_collector():
        refused: dict[str, CompileError] = {}
        found: dict[str, Program] = {}
        for members, lowered in _starts(graph, targets, refused):
            start = _Start(graph, members[0], lowered)
            for branch in run_pipeline(start, members, watch):
                _collect(branch, lowered, found, refused)
    order = [target.name for target in targets]
    return Compiled({name: found[name] for name in order if name in found}, refused, order)


def _collect(branch: Branch, lowered: Lowered, found: dict[str, Program], refused: dict[str, CompileError]) -> None:
    for target in branch.targets:
        if branch.error is None:
            found[target.name] = Program(target, branch.module, lowered.inputs, lowered.outputs, branch.log)
        else:
            error = branch.error
            told = CompileError(target.name, error.refused_by, error.reason, error.sources, error.reject)
            refused[target.name] = told


def _starts(
    graph: Graph, targets: Sequence[Target], refused: dict[str, CompileError]
) -> Iterator[tuple[list[Target], Lowered]]:
    """The gate, retargeting and lowering, once for all targets that agree on what they read there."""
    groups: dict[tuple[Any, ...], list[Target]] = {}
    for target in targets:
        error = _gate(graph, target)
        if error is None:
            groups.setdefault((target.family5, _kernel_memory(target)), []).append(target)
        else:
            refused[target.name] = error
    for members in groups.values():
        try:
            yield members, lowered_for(graph, members[0])[1]
        except (RejectedOp, LoweringError) as error:
            refused |= {each.name: _refusal(each, error, graph) for each in members}


def lowered_for(graph: Graph, target: Target) -> tuple[Retargeted, Lowered]:
    """A graph rewritten for a target and in the engine's language; the gate is not asked.

    What the host has to draw, since the chip cannot, enters by a port of its own that holds the reference's numbers.
    """
    off = _off_engine(graph, target)
    if off is not None:
        raise off
    moved = retarget(graph, _rewriting_family(target), keep=LEGALISED)
    names = moved.names(graph) | {each.tensor.uid: each.name for each in moved.host_inputs} if moved.origins else None
    lowered = lower(moved.graph, target, names)
    drawn = {each.name: _drawn(each) for each in moved.host_inputs}
    lowered.inputs = tuple(replace(port, initial=drawn.get(port.name, port.initial)) for port in lowered.inputs)
    return moved, lowered


def _drawn(host: HostInput) -> Weight:
    return derived_weight(f"drawn by the host: {sorted(host.to_json().items())}", (), host.shape, host.values)


def _refusal(target: Target, error: RejectedOp | LoweringError, graph: Graph) -> CompileError:
    if isinstance(error, RejectedOp):
        sources = (graph.names()[error.node.uid],)
        return CompileError(target.name, "retarget", str(error), sources, error.words.strip('"'))
    return CompileError(target.name, "lower", str(error), error.sources, error.reject)


def _off_engine(graph: Graph, target: Target) -> CompileError | None:
    """What came in as the host's has no form in the engine's language, on no target."""
    off = next((each for each in graph.nodes if each.op == "host" or each.dtype == "int32"), None)
    if off is None:
        return None
    reason = "whole numbers and ops of the host have no place in a program; aneforge partition splits the graph"
    return CompileError(target.name, "lower", reason, (graph.names()[off.uid],))


def _gate(graph: Graph, target: Target) -> CompileError | None:
    """What preflight refuses has no program. Families below the MIL floor are reached by direct authoring only, and
    the reference profiles belong to no family: there the floors and tables of phase 2 decide alone. Of a name that
    no build constructs not even a table is known."""
    if not compile_fact(target, _TABLE).known:
        return CompileError(target.name, "gate", f"the name {target.name} is known, but no build constructs it")
    if target.family5 is None or target.family5 == Family.OLDER:
        return _off_engine(graph, target)
    report = preflight(graph, target)
    if report.ok:
        return None
    first = next(iter(report.reject), None) or next(iter(report.oversize))
    hint = f" {first.hint}" if first.hint else ""
    reason = f"{first.op} {list(first.shape)} at {first.where}: {first.message}{hint} {first.evidence.label()}"
    return CompileError(target.name, "gate", reason, (first.name,))


def _rewriting_family(target: Target) -> Family:
    """The family whose missing ops are rewritten before lowering. Older chips take the M1's rewrites; what these need
    and the chip lacks is refused at its floor in phase 2."""
    family = target.family5
    if family is None:
        return Family.A16
    return max(family, Family.A13)


def _kernel_memory(target: Target) -> Any:
    return compile_fact(target, "kmem_cap_dense").value


def write_build(program: Program, folder: str | Path) -> None:
    """The listing, the program as JSON and the backend code, in a folder of their own."""
    import json

    home = Path(folder)
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / "program.txt").write_text(str(program), encoding="utf-8")
        (home / "program.json").write_text(json.dumps(program.to_json(), default=list) + "\n", encoding="utf-8")
        (home / "program.mlir").write_text(program.mlir, encoding="utf-8")
    except OSError as error:
        raise AneforgeError(f"{home}: cannot write the build ({error})") from None


def refuse_options(int8: bool, compress: Any, opt: str) -> None:
    """Options of the public signature that this version cannot honour are refused, never ignored."""
    if int8 or compress is not None:
        raise UnavailableError("compile: int8 and compress need the weight encoder, which this version does not have")
    if opt != "routes":
        raise AneforgeError(f"compile: no opt {opt!r}; there is one pipeline, and its name is 'routes'")
