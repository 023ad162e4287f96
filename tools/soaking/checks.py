"""What must agree about a graph on a chip. Each check yields a sentence for each disagreement."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import aneforge as af
from aneforge.codegen.container import read_container
from aneforge.codegen.decoding import decode
from aneforge.codegen.emission import emit
from aneforge.compiler.refusal import CompileError
from aneforge.errors import AneforgeError
from aneforge.graph.reference import value_of
from aneforge.sim import native
from aneforge.study.model import Model
from soaking.graphs import Drawn

_NOISE = 2.0**-10
"""What rounding to fp16 does to a number."""
_TABLE = 2.0**-11
"""What a table is off near zero."""
_SMALL = 0.1
"""Results below this are compared by what is left of it: tables are right to so many places, not digits."""


def disagreements(case: Drawn, chip: str) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checked, split = af.check(case.graph, chip), af.partition(case.graph, chip).only
        model, refusal = _compiled(case, chip)
        yield from _verdicts(checked, split, refusal)
        if model is None:
            return
        exact = _bits(model, case)
        yield from _kernels(model, case, exact)
        yield from _reference(case, exact, chip)
        yield from _fast(model, case, exact)
        yield from _archive(model, case, exact)
        yield from _container(model, case, exact)
        yield from _estimates(case, chip)


def exported(case: Drawn) -> Iterator[str]:
    """The graph as a Core ML package, read again: the same numbers."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        place = Path(folder) / "m.mlpackage"
        try:
            af.export_coreml(case.graph, place)
        except AneforgeError:
            return
        again = af.load(place)
        found = af.evaluate(again, {name: array.astype(np.float64) for name, array in case.inputs.items()})
        found = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list) else [found]
        for number, (one, other) in enumerate(zip(case.reference, found, strict=True)):
            if not _near(one, np.asarray(other), _sensitivity(case, number), 0.02):
                yield f"output {number} of the exported package, read again, differs from the graph's"


def _compiled(case: Drawn, chip: str) -> tuple[Model | None, CompileError | None]:
    try:
        return af.compile(case.graph, target=chip, _check_precision=False), None
    except CompileError as error:
        return None, error


def _verdicts(checked: Any, split: Any, refusal: CompileError | None) -> Iterator[str]:
    """Check, partition and compile: does it run?"""
    report = next(iter(checked.reports.values())) if hasattr(checked, "reports") else None
    refused = split.ops - split.on_engine
    if refusal is None and refused and split.outcome.kind != "unknown":
        yield f"compile takes the graph, and partition leaves {refused} ops out: {split.outcome}"
    if refusal is not None and split.outcome.kind == "yes":
        yield f"partition says yes, and compile refuses: {refusal}"
    if report is not None and (refusal is None) != (not report.reject and not report.oversize):
        yield f"check and compile disagree: {refusal}"


def _feeds(model: Model, case: Drawn) -> dict[str, np.ndarray]:
    return {name: array for name, array in case.inputs.items() if name in {port.name for port in model.program.inputs}}


def _bits(model: Model, case: Drawn) -> list[np.ndarray]:
    return list(model.run(_feeds(model, case)).outputs.values())


def _same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


@contextmanager
def _plain() -> Iterator[None]:
    before = os.environ.get("ANEFORGE_NATIVE")
    os.environ["ANEFORGE_NATIVE"] = "0"
    native.settings.cache_clear()
    try:
        yield
    finally:
        os.environ.pop("ANEFORGE_NATIVE")
        if before is not None:
            os.environ["ANEFORGE_NATIVE"] = before
        native.settings.cache_clear()


def _kernels(model: Model, case: Drawn, exact: list[np.ndarray]) -> Iterator[str]:
    with _plain():
        if not _same(exact, _bits(Model.of(model.graph, model.program), case)):
            yield "native and plain kernels give different bits"


def _sensitivity(case: Drawn, number: int) -> float:
    """How far the result moves when every value does, by as much as its rounding; infinite where an op may jump or
    leaves the numbers that it is defined for, such as a root of nearly zero."""
    if any(node.definition.derivative is None and not node.definition.leaf for node in case.graph.nodes):
        return np.inf
    chance = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        moved = np.max([_apart(case.reference[number], _noisy(case, chance)[number]) for _ in range(2)])
    return np.inf if np.isnan(moved) else float(moved)


def _noisy(case: Drawn, chance: np.random.Generator) -> list[np.ndarray]:
    """The outputs where every value is moved by as much as fp16 and tables move it."""
    names, values = case.graph.names(), {}
    for node in case.graph.nodes:
        if names[node.uid] in case.inputs:
            value = case.inputs[names[node.uid]].astype(np.float64)
        else:
            value = value_of(node, [values[operand.uid] for operand in node.inputs])
        if value.dtype == np.float64 and node.weight is None:
            value = value * (1 + chance.uniform(-_NOISE, _NOISE, value.shape))
            value = value + chance.uniform(-_TABLE, _TABLE, value.shape)
        values[node.uid] = value
    return [values[output.uid] for output in case.graph.outputs]


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    scale = float(np.linalg.norm(one.astype(np.float64)))
    with np.errstate(all="ignore"):
        difference = float(np.linalg.norm(one.astype(np.float64) - other.astype(np.float64).reshape(one.shape)))
    return difference / max(scale, _SMALL * one.size**0.5)


def _near(one: np.ndarray, other: np.ndarray, sensitivity: float, least: float) -> bool:
    return sensitivity > 0.05 or _apart(one, other) <= least + 30 * sensitivity


def _reference(case: Drawn, exact: list[np.ndarray], chip: str) -> Iterator[str]:
    if not af.risks(case.graph, chip).ok:
        return  # what can be lost was said
    for number, (want, found) in enumerate(zip(case.reference, exact, strict=True)):
        if not _near(want, found, _sensitivity(case, number), 0.1):
            away = f"{_apart(want, found):.2g} of its norm away from the reference"
            yield f"output {number} is {away}, and no risk is listed"


def _fast(model: Model, case: Drawn, exact: list[np.ndarray]) -> Iterator[str]:
    fast = list(Model.of(model.graph, model.program, "fast").run(_feeds(model, case)).outputs.values())
    for number, (one, other) in enumerate(zip(exact, fast, strict=True)):
        both = np.isfinite(one.astype(np.float64)).all() and np.isfinite(other.astype(np.float64)).all()
        if both and not _near(one.astype(np.float64), other, _sensitivity(case, number), 0.02):
            yield f"output {number} of the fast mode is {_apart(one, other):.2g} of its norm away from the exact one"


def _archive(model: Model, case: Drawn, exact: list[np.ndarray]) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "p.anef"
        model.save(file)
        if not _same(exact, _bits(af.load_program(file), case)):
            yield "the saved program gives other bits"


def _container(model: Model, case: Drawn, exact: list[np.ndarray]) -> Iterator[str]:
    try:
        content = emit(model.program).to_bytes()
    except AneforgeError:
        return  # a layout that the container cannot say
    again = Model(model.graph, decode(read_container(content)))
    if {port.name for port in model.program.inputs} - set(case.inputs):
        return  # numbers that the host draws, such as the mask of a dropout
    feeds = {port.name: case.inputs[port.name].reshape(port.user_shape) for port in model.program.inputs}
    found = list(again.run(feeds).outputs.values())
    if not _same(exact, [value.reshape(want.shape) for value, want in zip(found, exact, strict=True)]):
        yield "the program read back from its container gives other bits"


def _estimates(case: Drawn, chip: str) -> Iterator[str]:
    estimates = af.estimate_all(case.graph, (chip,), changes=0)
    us = next(iter(estimates.values())).us
    if not (np.isfinite(us) and us > 0):
        yield f"the estimate is {us} us"
