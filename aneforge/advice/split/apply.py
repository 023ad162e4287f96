"""A plan written out: the programs of one chip as graphs and Core ML packages, with a manifest that a runner reads.

The folder appears whole or not at all. Where the model is small enough, the chain of programs is first compared in the
simulator with the whole model, whose weights are stored in the same form.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge import text
from aneforge.advice.checking import distance
from aneforge.advice.forms import apply_form
from aneforge.advice.split.limits import decimal_bytes
from aneforge.advice.split.plan import HOST, Phase, PlannedProgram, Planner
from aneforge.chips.chip import Target
from aneforge.compiler.storage import Storage, encodable_layers
from aneforge.errors import AneforgeError, ArgumentError, GraphError, first_line, install_hint
from aneforge.files import write_whole, written_folder
from aneforge.formats.exports.mil import ExportError
from aneforge.graph.forms import applied
from aneforge.graph.graph import Graph
from aneforge.sim.inputs import drawn_inputs
from aneforge.study.cache_forms import in_one_state
from aneforge.study.exporting import export_coreml
from aneforge.study.study import Study

if TYPE_CHECKING:
    from aneforge.advice.split.result import ChipPlan, SplitPlan

MANIFEST = "manifest.json"
FORMAT = 1
MOST_SIMULATED = 1 << 24
"""Numbers of weights up to which the chain is compared with the whole model before it is written."""
_ROUNDING = 2.0**-10
"""Of the largest output: what one more rounding to fp16 on the way to it may change (U282)."""


@dataclass(frozen=True)
class ChainCheck:
    """The chain of programs against the whole model in the simulator."""

    error: float
    """The largest difference over the largest number."""
    bound: float
    """What it may be: nothing where the cut changes no rounding."""
    calls: int

    @property
    def words(self) -> str:
        if self.error == 0.0:
            return f"the chain gives the bits of the whole model in the simulator ({text.plural(self.calls, 'call')})"
        return (
            f"the chain differs from the whole model by {self.error:.2g} of the largest number; bound {self.bound:.2g}"
        )

    def to_json(self) -> dict[str, Any]:
        return {"error": self.error, "bound": self.bound, "calls": self.calls}


@dataclass(frozen=True)
class Applied:
    """What was written."""

    folder: Path
    programs: tuple[str, ...]
    bytes: int
    check: ChainCheck | None
    unchecked: str
    """Why nothing was compared, where that is so."""
    unwritten: tuple[str, ...]
    """Packages and kinds of call that could not be written, each with the reason."""

    def __str__(self) -> str:
        lines = [f"{self.folder}: {text.plural(len(self.programs), 'program')}, {decimal_bytes(self.bytes)}"]
        lines.append(self.check.words if self.check else f"not compared with the whole model: {self.unchecked}")
        lines += [f"not written: {reason}" for reason in self.unwritten]
        return "\n".join([*lines, f"do: aneforge run {self.folder}"])

    def to_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder), "programs": list(self.programs), "bytes": self.bytes,
            "check": None if self.check is None else self.check.to_json(), "unchecked": self.unchecked,
            "unwritten": list(self.unwritten),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class BuiltProgram:
    """One program with its own weights, as it is written."""

    kind: str
    planned: PlannedProgram
    graph: Graph
    joins: dict[str, tuple[str, ...]]
    """Outputs in pieces, by the name of the whole one."""
    packed: tuple[str, ...]
    """The caches in its state, one behind the other."""

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.planned.name}"

    def record(self) -> dict[str, Any]:
        names = self.graph.names()
        return {
            "name": self.name,
            "graph": f"{self.name}.aneforge",
            "runs_as": self.planned.kind,
            "inputs": {str(port.name): list(port.shape) for port in self.graph.inputs},
            "outputs": [names[output.uid] for output in self.graph.outputs],
            "states": self.graph.states,
            "packed": list(self.packed),
            "joins": {whole: list(parts) for whole, parts in self.joins.items()},
            "rewrites": list(self.planned.rewrites),
        }


def write_split(plan: SplitPlan, chip: str, folder: str | Path, packages: bool = True) -> Applied:
    """Write the programs of one chip into a new folder."""
    place, chosen = Path(folder), plan[chip]
    require_new_folder(place)
    needed = 2 * sum(int(program.amounts.weight_bytes) for program in chosen.programs) * (1 + packages)
    free = shutil.disk_usage(place.resolve().parent).free
    if needed > free:
        raise AneforgeError(
            f"{place}: the programs take about {decimal_bytes(needed)}, and {decimal_bytes(free)} are free. Free some "
            "space, or choose another folder."
        )
    unwritten: list[str] = []
    built = list(_built(plan, chosen, unwritten))
    check, unchecked = _checked(plan, chosen, built)
    if check is not None and check.error > check.bound:
        raise AneforgeError(
            f"{place}: nothing was written. {check.words[0].upper()}{check.words[1:]}: this is a bug in aneforge."
        )
    with written_folder(place) as scratch:
        for program in built:
            program.graph.save(scratch / f"{program.name}.aneforge")
            if packages and program.planned.kind != HOST:
                unwritten += _package(program, scratch, chosen.chip)
        document = manifest(plan, chosen, built, check)
        document["packages"] = sorted(file.name for file in scratch.glob("*.mlpackage"))
        write_whole(scratch / MANIFEST, json.dumps(document, indent=1) + "\n")
        size = sum(file.stat().st_size for file in scratch.rglob("*") if file.is_file())
    return Applied(place, tuple(program.name for program in built), size, check, unchecked, tuple(unwritten))


def require_new_folder(folder: str | Path) -> None:
    """Refuse a folder that is there, and one in a folder that is not."""
    place = Path(folder)
    if place.exists():
        raise ArgumentError("apply", f"{place} exists, and the programs go into a new folder. Choose another name.")
    if not place.resolve().parent.is_dir():
        raise ArgumentError("apply", f"the folder {place.parent} does not exist. Create it, or choose another.")


def _built(plan: SplitPlan, chosen: ChipPlan, unwritten: list[str]) -> Iterator[BuiltProgram]:
    """The programs of each kind of call that can be built with the model's own numbers."""
    for kind, planner in plan.planners[chosen.layout.name].items():
        phase = getattr(chosen, kind)
        if not isinstance(planner, Planner) or phase is None:
            continue
        try:
            programs = [_program(kind, planner, phase, program) for program in phase.programs]
        except GraphError as error:
            unwritten.append(f"programs of {kind}: {first_line(error)}. Give the model the sizes you want with --dim")
            continue
        if planner.replaced:
            unwritten.append(
                f"programs of {kind}: {text.some(sorted(set(planner.replaced)))} has a length that counts tokens, and "
                "its numbers for another length are not known. Give the model the sizes you want with --dim"
            )
            continue
        yield from programs


def _program(kind: str, planner: Planner, phase: Phase, program: PlannedProgram) -> BuiltProgram:
    cut = planner.graph_of(program, phase.head_pieces)
    graph = cut.graph
    for rewrite in program.rewrites:
        graph = apply_form(graph, rewrite)
    if planner.storage is not None and program.kind != HOST:
        graph = stored_as(graph, planner.storage)
    packed: tuple[str, ...] = tuple(graph.states)
    if len(packed) > 1:
        graph, packed = in_one_state(graph)
    return BuiltProgram(kind, program, graph, cut.parts, packed)


def stored_as(graph: Graph, storage: Storage) -> Graph:
    """A graph with its layers' weights in a form, as the plan counts them."""
    layers = [layer for layer in encodable_layers(graph).values() if storage.pays(layer.weight)]
    sites = [layer.stored_as(lambda layer=layer: storage.write(layer.weight)) for layer in layers]
    return applied(graph, sites) if sites else graph


def _package(program: BuiltProgram, folder: Path, chip: Target) -> list[str]:
    """Write a program as a Core ML package; why not, where that is so."""
    if find_spec("coremltools") is None:
        return [f"{program.name}.mlpackage: coremltools is not installed; {install_hint('coreml')}"]
    try:
        export_coreml(program.graph, folder / f"{program.name}.mlpackage", chip)
    except ExportError as error:
        return [f"{program.name}.mlpackage: {first_line(error)}"]
    return []


def manifest(plan: SplitPlan, chosen: ChipPlan, built: list[BuiltProgram], check: ChainCheck | None) -> dict[str, Any]:
    """What the runner needs, and what the plan rests on."""
    layout = chosen.layout.name
    planner = next(one for one in plan.planners[layout].values() if isinstance(one, Planner))
    calls = {}
    for kind in dict.fromkeys(program.kind for program in built):
        phase = getattr(chosen, kind)
        calls[kind] = {
            "rows": phase.rows,
            "context": phase.context,
            "programs": [program.record() for program in built if program.kind == kind],
        }
    places = planner.sizes.cache
    return {
        "aneforge_split": FORMAT,
        "model": Path(plan.name).name,
        "target": chosen.name,
        "runtime": chosen.runtime,
        "weights": plan.weights,
        "layout": layout,
        "caches": [{**write.to_json(), "places": places} for write in planner.structure.writes],
        "outputs": [planner.structure.names[output.uid] for output in planner.structure.graph.outputs],
        "calls": calls,
        "check": None if check is None else check.to_json(),
        "limits": [used.to_json() for used in chosen.used],
    }


def _checked(plan: SplitPlan, chosen: ChipPlan, built: list[BuiltProgram]) -> tuple[ChainCheck | None, str]:
    """The chain on the model's own sizes against the whole model, on inputs from a seed."""
    from aneforge.advice.split.runner import SplitChain

    planner = next(
        (
            one
            for one in plan.planners[chosen.layout.name].values()
            if isinstance(one, Planner) and one.sizes == one.now
        ),
        None,
    )
    if planner is None:
        return None, "no kind of call has the sizes of the model"
    numbers = sum(weight.size for weight in planner.structure.graph.weights.values())
    if numbers > MOST_SIMULATED:
        return None, f"{numbers:,} weights would take long to simulate (at most {MOST_SIMULATED:,} are)"
    kind = next(kind for kind, one in plan.planners[chosen.layout.name].items() if one is planner)
    programs = [program for program in built if program.kind == kind]
    if not programs:
        return None, "no kind of call with the sizes of the model was built"
    graph = plan.structure.graph
    whole = graph if planner.storage is None else stored_as(graph, planner.storage)
    feeds = next(drawn_inputs(graph))
    expected = Study(whole, chosen.chip).partition().run(feeds)
    document = manifest(plan, chosen, programs, None)
    chain = SplitChain(document, {program.name: program.graph for program in programs}, chosen.chip)
    actual = chain.run(chain.compare_feeds(feeds), kind)
    caches = {write.output.name: write for write in plan.structure.writes}
    error = 0.0
    for name, value in expected.items():
        write = caches.get(name)
        if write is None or write.form == "rows":
            error = max(error, distance(value, np.asarray(actual[name])))
        elif write.form == "grow":
            kept = value.shape[write.axis] - actual[name].shape[write.axis]
            rows = np.take(value, range(kept, value.shape[write.axis]), axis=write.axis)
            error = max(error, distance(rows, np.asarray(actual[name])))
        elif write.form in ("slice", "shift"):
            error = max(error, distance(value, chain.caches[str(write.port.name)]))
    rewritten = sum(bool(program.planned.rewrites) * max(1, len(planner.structure.blocks)) for program in programs)
    return ChainCheck(error, rewritten * _ROUNDING, 1), ""
