"""The programs of a plan one after the other in the simulator: ``af.load_split`` and ``aneforge run FOLDER``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.chips.names import target as find_target
from aneforge.errors import AneforgeError, ArgumentError, LoadError, first_line
from aneforge.files import regular_file
from aneforge.graph.graph import Graph, load_graph
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.sim.compare import Summary
from aneforge.sim.inputs import drawn_inputs
from aneforge.study.caches import written_rows
from aneforge.study.runner import Runner
from aneforge.study.study import Study

MANIFEST = "manifest.json"
_FORMAT = 1
Arrays = dict[str, np.ndarray]


def is_split(path: str | Path) -> bool:
    """Whether a path is a folder that ``split --apply`` wrote."""
    file = Path(path) / MANIFEST
    try:
        return file.is_file() and '"aneforge_split"' in file.read_text(encoding="utf-8")[:200]
    except (OSError, UnicodeDecodeError):
        return False


def load_split(folder: str | Path, target: str | int | Target | None = None, mode: str = "exact") -> SplitChain:
    """The programs that ``aneforge split --apply`` wrote into a ``folder``, as a chain that runs in the simulator.

    ``target`` is the chip that they were written for where it is left out; ``mode`` is as for :func:`aneforge.run`.
    """
    place = Path(folder)
    try:
        document = json.loads(regular_file(place / MANIFEST, f"{place.name}/{MANIFEST}").read_text(encoding="utf-8"))
        files = [program["graph"] for call in document["calls"].values() for program in call["programs"]]
        chip = find_target(target if isinstance(target, (str, int)) else document["target"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise LoadError(f"{place.name}/{MANIFEST}: not a manifest of aneforge split ({first_line(error)})") from None
    if document.get("aneforge_split") != _FORMAT:
        raise LoadError(f"{place.name}/{MANIFEST}: not a manifest of aneforge split; write it with split --apply.")
    if any(not isinstance(file, str) or Path(file).name != file for file in files):
        raise LoadError(f"{place.name}/{MANIFEST}: a program lies outside the folder. Write it again.")
    graphs = {Path(file).stem: load_graph(place / file) for file in dict.fromkeys(files)}
    return SplitChain(document, graphs, target if isinstance(target, Target) else chip, mode)


class SplitChain:
    """Programs in the order in which they run, with the caches that live between calls."""

    def __init__(
        self, manifest: Mapping[str, Any], graphs: Mapping[str, Graph], chip: Target, mode: str = "exact"
    ) -> None:
        self.manifest, self.graphs, self.chip, self.mode = manifest, graphs, chip, mode
        self.caches: Arrays = {}
        """What earlier calls left, by the names of the model's caches."""
        self.written = 0
        """Tokens that the host has written into the caches."""
        self.reset()

    @cached_property
    def _runners(self) -> dict[str, Runner]:
        return {name: Study(graph, self.chip).partition().runner(self.mode) for name, graph in self.graphs.items()}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of call: ``decode``, ``prompt``."""
        return tuple(self.manifest["calls"])

    def reset(self) -> None:
        """Empty the caches."""
        self.written = 0
        self.caches = {}
        for cache in self.manifest["caches"]:
            shape = list(cache["shape"])
            shape[cache["axis"]] = cache["places"]
            self.caches[cache["cache"]] = np.zeros(shape, np.float16)

    def inputs(self, kind: str | None = None) -> dict[str, tuple[int, ...]]:
        """What a call takes from the caller, by name with its shape; the caches are kept here."""
        made = set(self.caches)
        wanted: dict[str, tuple[int, ...]] = {}
        for program in self._programs(kind):
            own = {*program["states"], *self.caches}
            wanted |= {
                name: tuple(shape) for name, shape in program["inputs"].items() if name not in own and name not in made
            }
            made |= {*program["outputs"], *program["joins"]}
        return wanted

    def _programs(self, kind: str | None) -> Sequence[Mapping[str, Any]]:
        chosen = self.kinds[0] if kind is None else kind
        if chosen not in self.manifest["calls"]:
            raise ArgumentError("kind", f"{chosen!r} is not a kind of call here; choose one: {', '.join(self.kinds)}.")
        return self.manifest["calls"][chosen]["programs"]

    def compare_feeds(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """Inputs of the whole model as those of the chain: caches among them are kept here."""
        for name, value in feeds.items():
            if name in self.caches:
                self.caches[name] = np.asarray(value, np.float16)
        return {name: np.asarray(value) for name, value in feeds.items() if name not in self.caches}

    def run(self, feeds: Mapping[str, np.ndarray], kind: str | None = None, place: int | None = None) -> Arrays:
        """One call: the outputs of the whole model by name, with the new values of its caches. ``place`` is where the
        host writes new rows that have no place of their own, by default behind those that it wrote."""
        values: Arrays = {name: np.asarray(value) for name, value in feeds.items()}
        unknown = [name for name in values if name not in self.inputs(kind)]
        if unknown:
            known = ", ".join(self.inputs(kind))
            raise AneforgeError(f"{unknown[0]}: not an input of the programs. They take {known}.")
        for program in self._programs(kind):
            values |= self._call(program, values)
        results = {name: values[name] for name in self.manifest["outputs"] if name in values}
        return results | self._kept(values, place)

    def _call(self, program: Mapping[str, Any], values: Arrays) -> Arrays:
        fed: Arrays = {}
        for name, shape in program["inputs"].items():
            if name in program["states"] and len(program["packed"]) > 1:
                fed[name] = np.concatenate([self.caches[cache] for cache in program["packed"]])
            elif name in self.caches:
                fed[name] = self.caches[name]
            elif name in values:
                fed[name] = _last(values[name], shape)
            else:
                raise AneforgeError(f"{name}: this input has no value. Program {program['name']} reads it.")
        made = dict(self._runners[program["name"]].run(fed).outputs)
        for state, after in program["states"].items():
            if len(program["packed"]) > 1:
                parts = np.split(made.pop(after), len(program["packed"]))
                outputs = {cache["cache"]: cache["output"] for cache in self.manifest["caches"]}
                made |= {outputs[cache]: part for cache, part in zip(program["packed"], parts, strict=True)}
            else:
                made[after] = made[after].reshape(self.caches[state].shape)
        for whole, parts in program["joins"].items():
            made[whole] = np.concatenate([made.pop(part) for part in parts], axis=-1)
        return made

    def _kept(self, values: Arrays, place: int | None) -> Arrays:
        """Write what the programs gave into the caches. Of a cache that is only read the outputs stay new rows."""
        results: Arrays = {}
        rows = 0
        for cache in self.manifest["caches"]:
            new = values.get(cache["output"])
            if new is None:
                continue
            results[cache["output"]] = new
            if cache["form"] == "rows":
                rows = new.shape[cache["axis"]]
                at = place if place is not None else self._place(cache)
                shift = ("behind" if cache["begin"] else "front") if cache["host"] == "shift" else ""
                name = cache["cache"]
                self.caches[name] = written_rows(self.caches[name], new, cache["axis"], at, shift, name)
            else:
                self.caches[cache["cache"]] = np.asarray(new, np.float16)
        self.written += rows
        return results

    def _place(self, cache: Mapping[str, Any]) -> int:
        return int(cache["begin"]) if cache["host"] == "slice" else self.written

    def __str__(self) -> str:
        calls = (f"{kind}: {len(call['programs'])} programs" for kind, call in self.manifest["calls"].items())
        return f"{self.manifest['model']} on {self.manifest['target']}; {'; '.join(calls)}"


def _last(value: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """A value as a program takes it: of many tokens the last, where it takes fewer."""
    if value.ndim != len(shape):
        return value
    for axis, size in enumerate(shape):
        if value.shape[axis] > size:
            value = np.take(value, range(value.shape[axis] - size, value.shape[axis]), axis=axis)
    return value


def drawn(shapes: Mapping[str, Sequence[int]]) -> Arrays:
    """Inputs from a seed, as every command draws them."""
    ports = [graph_input(tuple(shape), name=name) for name, shape in shapes.items()]
    return next(drawn_inputs(Graph(ports)))


def outputs_text(outputs: Mapping[str, np.ndarray], most: int = 8) -> str:
    """The outputs of a call in a line each."""
    lines = [f"{name} {list(value.shape)} {Summary(value)}" for name, value in list(outputs.items())[:most]]
    return "\n".join([*lines, *([f"and {len(outputs) - most} more outputs"] if len(outputs) > most else [])])
