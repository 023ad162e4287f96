"""Random graphs over the whole vocabulary, as lists of steps that can be left out one by one.

A step is a seed: it draws an op and what it is applied to. Steps that do not fit what is there are passed over, so any
part of a list is a graph again; that is how a disagreement is made small.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import aneforge as af
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph

TESTS = Path(__file__).resolve().parents[2] / "tests"
_LARGEST, _MOST = 64.0, 1 << 14  # magnitudes and numbers of a value: more tells nothing new


@dataclass(frozen=True)
class Recipe:
    """A graph: its seed, and the seeds of its steps."""

    seed: int
    steps: tuple[int, ...]

    def without(self, place: int) -> Recipe:
        return Recipe(self.seed, self.steps[:place] + self.steps[place + 1 :])


def recipe(seed: int) -> Recipe:
    chance = np.random.default_rng(seed)
    return Recipe(seed, tuple(int(step) for step in chance.integers(0, 1 << 30, int(chance.integers(2, 9)))))


@cache
def cases() -> Sequence[Any]:
    """One small use of every op, which the tests of the reference hold against plain NumPy."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    return import_module("test_graph_ops").CASES


@cache
def _steps() -> Any:
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    return import_module("random_graphs")


@dataclass
class Drawn:
    """A graph and numbers for its inputs."""

    graph: Graph
    inputs: dict[str, np.ndarray]
    reference: list[np.ndarray]


def drawn(of: Recipe) -> Drawn:
    """The graph of a recipe: steps over maps, and every other op where it takes what is there."""
    chance = np.random.default_rng(of.seed)
    shape = (1, int(chance.choice([4, 6, 8])), *(int(chance.choice([8, 12])),) * 2)
    x = af.input(shape, name="x", max_abs=4.0)
    ports = [(x, chance.uniform(-4, 4, shape).astype(np.float16))]
    values: list[Any] = [x]
    for seed in of.steps:
        rng = np.random.default_rng(seed)
        try:
            value, more = _step(rng, values)
        except (AneforgeError, ValueError, IndexError, ZeroDivisionError):
            continue
        known = {port: array.astype(np.float64) for port, array in [*ports, *more]}
        value = _bounded(value, known)
        if value is not None:
            ports += more
            values.append(value)
    outputs = [value for value in values[1:] if value.dtype != "bool"][-2:] or [x + 1.0]
    graph = Graph(outputs)
    graph = graph if graph.inputs else Graph([*outputs, x + 1.0])  # a constant is no model
    used = {node.uid for node in graph.nodes}
    names = graph.names()
    inputs = {names[port.uid]: array for port, array in ports if port.uid in used}
    reference = af.evaluate(graph, {port: array.astype(np.float64) for port, array in ports if port.uid in used})
    return Drawn(graph, inputs, [np.asarray(value) for value in _listed(reference)])


def _listed(value: Any) -> list[Any]:
    return (
        list(value.values())
        if isinstance(value, dict)
        else list(value)
        if isinstance(value, (list, tuple))
        else [value]
    )


def _step(rng: np.random.Generator, values: list[Any]) -> tuple[Any, list[tuple[Any, np.ndarray]]]:
    """One more value, and the inputs that it brings."""
    value = values[int(rng.integers(max(0, len(values) - 3), len(values)))]
    kind = rng.random()
    if kind < 0.4 and value.ndim == 4:
        return _steps()._step(rng, value, [one for one in values if one.ndim == 4]), []
    if kind < 0.5 and value.ndim == 4:
        lacking = _steps()._LACKING
        return lacking[str(rng.choice(sorted(lacking)))](rng, value), []
    case = cases()[int(rng.integers(len(cases())))]
    if len(case.arrays) == 1 and rng.random() < 0.6:
        try:
            return case.build(value), []
        except (AneforgeError, ValueError, IndexError):
            shape = case.arrays[0].shape
            if int(np.prod(shape)) <= value.size:
                flat = value.reshape(1, value.size).slice_by_size([0, 0], [1, int(np.prod(shape))])
                return case.build(flat.reshape(*shape)), []
    arrays = [np.asarray(array, np.float16) for array in case.arrays]
    ports = [(af.input(array.shape, max_abs=float(np.abs(array).max(initial=2.0**-14))), array) for array in arrays]
    return case.build(*(port for port, _ in ports)), ports


def _bounded(value: Any, known: dict[Any, np.ndarray]) -> Any:
    """A value whose numbers are finite and not too large, clipped if need be; None where it has none."""
    if not isinstance(value, af.Tensor) or value.size > _MOST or value.size == 0:
        return None
    if value.dtype not in ("fp16", "bool"):
        return None
    used = {node.uid for node in Graph([value]).nodes}
    with np.errstate(all="ignore"):
        numbers = np.asarray(af.evaluate(value, {port: array for port, array in known.items() if port.uid in used}))
    if numbers.dtype == bool:
        return af.cast(value, "fp16")
    if not np.isfinite(numbers).all():
        return None
    return value.clip(-_LARGEST, _LARGEST) if np.abs(numbers).max() > _LARGEST else value
