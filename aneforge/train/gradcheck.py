"""``af.gradcheck``: gradients under a chip's arithmetic against finite differences of the float64 reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.chips.limits import FP16_SLICE_SAT
from aneforge.chips.names import chip_label
from aneforge.compiler.program import Program
from aneforge.compiler.refusal import CompileError
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Chips, chips_of, graph_of
from aneforge.graph.graph import Graph
from aneforge.graph.node import located
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.reference import dependents, evaluate, value_of
from aneforge.graph.tensor import Tensor
from aneforge.progress import Progress
from aneforge.sim.inputs import samples_of
from aneforge.sim.nodes import NodeValues
from aneforge.study.model import build
from aneforge.text import ByChip, columns
from aneforge.train.backward import (
    Objective,
    backward_from,
    checked_params,
    checked_scale,
    loss_of,
    root_of,
)
from aneforge.train.loop import ScaleAdvice, advise, spans_of
from aneforge.train.losses import CEHandle
from aneforge.train.objectives import objective_of

TOLERANCE = 0.05
"""The relative error from which a gradient counts as lost: with fewer than four bits right, a step goes elsewhere."""
_STEP = 1e-5


@dataclass(frozen=True)
class Lost:
    """The first op at which a gradient is lost: what it reads is right, what it gives is not."""

    node: str
    op: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.node} ({self.op}, {self.where}): {self.what}"


@dataclass(frozen=True)
class ParameterCheck:
    """The gradient of one parameter on one chip."""

    name: str
    elements: int
    size: float
    """The norm of the float64 gradient."""
    error: float
    """The chip against finite differences, over the elements that were tried: norm of the difference over norm."""
    rounding: float
    """The chip against the float64 derivative, over all elements."""
    derivative: float
    """The float64 derivative against finite differences: what no chip can explain."""
    zero: int
    """Elements that are zero on the chip and not in float64."""
    infinite: int
    lost: Lost | None

    def ok(self, tolerance: float) -> bool:
        return not self.infinite and max(self.error, self.rounding) <= tolerance

    def to_json(self) -> dict[str, Any]:
        """Plain data; an error that is infinite is None, as JSON has no infinity."""
        finite = {name: None if value == inf else value for name, value in vars(self).items()}
        return {**finite, "lost": None if self.lost is None else dict(vars(self.lost))}


@dataclass(frozen=True)
class ChipGradients:
    """Every parameter on one chip."""

    chip: str
    parameters: tuple[ParameterCheck, ...]
    advice: ScaleAdvice
    tolerance: float

    @property
    def ok(self) -> bool:
        return all(check.ok(self.tolerance) for check in self.parameters)

    def to_json(self) -> dict[str, Any]:
        checks = [check.to_json() for check in self.parameters]
        return {"ok": self.ok, "parameters": checks, "advice": self.advice.to_json()}

    def __str__(self) -> str:
        rows = [
            [
                check.name,
                check.elements,
                f"{check.size:.3g}",
                f"{check.error:.2g}",
                f"{check.rounding:.2g}",
                check.zero,
                check.infinite,
                "ok" if check.ok(self.tolerance) else "lost",
            ]
            for check in self.parameters
        ]
        headers = ["parameter", "numbers", "norm", "error", "of all", "zero", "infinite", "verdict"]
        lines = [f"{self.chip}: gradients against float64 differences", columns(headers, rows)]
        lost = dict.fromkeys(str(check.lost) for check in self.parameters if check.lost is not None)
        lines += [f"first lost at {words}" for words in lost]
        return "\n".join([*lines, str(self.advice)])


class GradCheck(ByChip[ChipGradients]):
    """The gradients of a graph by chip; ``refused`` are chips that have no program for them, and why."""

    def __init__(self, results: Mapping[str, ChipGradients], refused: Mapping[str, str] | None = None) -> None:
        super().__init__(results)
        self.refused: dict[str, str] = dict(refused or {})

    @property
    def ok(self) -> bool:
        """Whether every chip has a program, and none loses a gradient."""
        return not self.refused and all(result.ok for result in self.values())

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "refused": self.refused}

    def __str__(self) -> str:
        refused = "\n".join(f"{chip}: no program: {why}" for chip, why in self.refused.items())
        return "\n\n".join(part for part in (super().__str__(), refused) if part)


def gradcheck(
    objective: Objective | Graph | str | Path,
    target: Chips = None,
    inputs: Any = None,
    *,
    params: Sequence[Tensor] | None = None,
    loss: str = "output",
    loss_scale: float = 1.0,
    samples: int = 8,
    seed: int | None = None,
    tolerance: float = TOLERANCE,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
    progress: Progress | None = None,
) -> GradCheck:
    """Check the gradients of a loss on chips: per parameter, against finite differences of the float64 reference.

    ``objective`` is a loss, or a graph or model file with parameters and one output; ``loss`` then says what the
    output is (``output``: the loss itself, ``mse`` or ``cross-entropy``). ``inputs`` are as for ``af.run``, drawn from
    ``seed`` where they are left out. ``samples`` elements of each parameter are moved;
    ``params`` are all parameters where they are left out. ``loss_scale`` is that of training, and a gradient is lost
    where it is further than ``tolerance``, relative, from the reference. The result names the first op
    that loses a gradient, and advises a loss scale. Where several chips are asked, those that refuse the graph are
    listed in ``refused``. ``progress`` hears the parameters and the chips that are done.
    """
    if isinstance(objective, (Graph, str, Path)):
        graph = graph_of(objective, dims, function)
        objective = objective_of(graph, loss, str(objective) if not isinstance(objective, Graph) else "graph")
    elif loss != "output":
        raise ArgumentError("loss", "it is for graphs and model files; the loss is given already. Leave it out.")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ArgumentError("samples", f"{samples!r} is not a count; give a whole number, 1 or more.")
    scale, tensor = checked_scale(loss_scale), loss_of(objective)
    wanted = checked_params(Graph([tensor]).parameters if params is None else params, tensor)
    chips = chips_of(target)
    hear, total = progress or _silent, len(wanted) + len(chips)

    def moved(done: int, name: str) -> None:
        hear(done, total, f"moving numbers of {name}")

    reference = _Reference(objective, wanted, scale, inputs, seed, samples, moved)
    results: dict[str, ChipGradients] = {}
    refused: dict[str, str] = {}
    for number, (name, chip) in enumerate(chips.items()):
        hear(len(wanted) + number, total, f"gradients on {name}")
        try:
            results[name] = reference.on(chip, tolerance)
        except CompileError as error:
            if len(chips) == 1:
                raise
            refused[name] = str(error)  # one chip without a program does not stop the others
    return GradCheck(results, refused)


def _silent(done: int, total: int, what: str) -> None:
    pass


class _Reference:
    """The graph with its gradients, and all that float64 says of it; each chip is compared with this."""

    def __init__(
        self,
        objective: Objective,
        params: list[Tensor],
        scale: float,
        inputs: Any,
        seed: int | None,
        samples: int,
        moved: Callable[[int, str], None],
    ) -> None:
        self.loss = loss_of(objective)
        root = root_of(objective)
        number, self.scale = root.stored(scale)
        self.params = params
        factor = graph_input((1,) * root.tensor.ndim)
        self.backward = backward_from(root.gradient(factor), root.tensor, params)
        self.graph = Graph([self.loss, *(self.backward[param] for param in params)])
        self.names = self.graph.names()
        forward = Graph([self.loss])
        named = forward.names()
        sample = next(iter(samples_of(forward, inputs, seed))) if forward.inputs else {}
        ports = {named[port.uid]: port for port in forward.inputs}
        missing = [name for name in ports if name not in sample]
        if missing:
            raise ArgumentError("inputs", f"{missing[0]}: no array is given. Pass one for each input of the loss.")
        self.feeds = {
            port: _probabilities(objective, port, _stored(sample[name], port, name)) for name, port in ports.items()
        }
        self.feeds[factor] = np.full(factor.shape, number)
        self.values = _all_values(self.graph, self.feeds)
        self.gradients = dependents(self.graph.nodes, {factor.uid}) - {factor.uid}
        self.slopes = []
        for number, param in enumerate(params):
            moved(number, self.names[param.uid])
            self.slopes.append(self._differences(param, samples))

    def _differences(self, param: Tensor, samples: int) -> tuple[np.ndarray, np.ndarray]:
        """Places of a parameter, and the slope of the loss at each by central differences."""
        start, data = self.values[param.uid], {port: self.feeds[port] for port in Graph([self.loss]).inputs}
        places = np.random.default_rng(0).permutation(start.size)[:samples]
        slopes = np.zeros(len(places))
        for number, place in enumerate(places):
            ends = []
            for sign in (1, -1):
                moved = start.copy()
                moved.reshape(-1)[place] += sign * _STEP
                ends.append(float(evaluate(self.loss, {**data, param: moved}).reshape(-1)[0]))
            slopes[number] = (ends[0] - ends[1]) / (2 * _STEP)
        return places, slopes

    def on(self, chip: Target, tolerance: float) -> ChipGradients:
        """All parameters on one chip."""
        model = build(self.graph, chip)
        feeds = {self.names[port.uid]: value for port, value in self.feeds.items()}
        run = model.run(feeds, trace=True)
        on_chip = NodeValues(model.program, run)
        outputs = list(run.outputs.values())[1:]
        checks = tuple(
            self._check(param, array.astype(np.float64), slope, on_chip, tolerance)
            for param, array, slope in zip(self.params, outputs, self.slopes, strict=True)
        )
        return ChipGradients(chip_label(chip.name), checks, self._advice(model.program), tolerance)

    def _check(
        self,
        param: Tensor,
        scaled: np.ndarray,
        slope: tuple[np.ndarray, np.ndarray],
        on_chip: Mapping[str, np.ndarray],
        tolerance: float,
    ) -> ParameterCheck:
        part = self.backward[param]
        exact, found = self.values[part.uid] / self.scale, scaled / self.scale
        places, expected = slope
        infinite = int((~np.isfinite(found)).sum())
        check = ParameterCheck(
            self.names[param.uid],
            exact.size,
            float(np.linalg.norm(exact)),
            _apart(found.reshape(-1)[places], expected),
            _apart(found, exact),
            _apart(exact.reshape(-1)[places], expected),
            int(((found == 0) & (exact != 0)).sum()),
            infinite,
            None,
        )
        if check.ok(tolerance):
            return check
        return ParameterCheck(**{**vars(check), "lost": self._first_lost(part, on_chip, tolerance)})

    def _first_lost(self, part: Tensor, on_chip: Mapping[str, np.ndarray], tolerance: float) -> Lost | None:
        """The first node on the way to a gradient that adds half the tolerance to the error of what it reads; where
        errors only add up, the first node whose result is wrong."""
        errors: dict[int, float] = {}
        wrong: Lost | None = None
        for node in Graph([part]).nodes:
            name = self.names[node.uid]
            if node.definition.leaf or node.dtype == "bool" or name not in on_chip:
                continue
            found, exact = on_chip[name].astype(np.float64), self.values[node.uid]
            errors[node.uid] = _apart(found, exact)
            before = max((errors.get(operand.uid, 0.0) for operand in node.inputs), default=0.0)
            if node.uid in self.gradients and errors[node.uid] - before > tolerance / 2:
                return Lost(name, node.op, located(node.where), _loss_at(found, exact, errors[node.uid]))
            if wrong is None and errors[node.uid] > tolerance:
                wrong = Lost(name, node.op, located(node.where), _loss_at(found, exact, errors[node.uid]))
        return wrong

    def _advice(self, program: Program) -> ScaleAdvice:
        nodes = [node for node in self.graph.nodes if node.uid in self.gradients]
        values = {self.names[node.uid]: self.values[node.uid] for node in nodes if node.dtype != "bool"}
        clamped = [
            name
            for op in program.module.ops
            if op.labels.get("storage") == "q4"
            for name in op.sources
            if name in values
        ]
        spans = spans_of(((self.names[node.uid], node.op) for node in nodes), clamped, FP16_SLICE_SAT)
        return advise(values, spans, self.scale)


def _stored(value: Any, port: Tensor, name: str) -> np.ndarray:
    """An input as the chip gets it: fp16."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" or array.shape != port.shape:
        raise ArgumentError(
            "inputs", f"{name}: an array of {array.dtype} {list(array.shape)} is given; expected {list(port.shape)}."
        )
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float64)


def _probabilities(objective: Objective, port: Tensor, value: np.ndarray) -> np.ndarray:
    """Drawn numbers are no probabilities: a target of a cross entropy becomes the class of its largest number, unless
    its rows sum to one."""
    if not isinstance(objective, CEHandle) or port is not objective.target or np.allclose(value.sum(1), 1, atol=1e-2):
        return value
    return np.eye(value.shape[1])[value.argmax(1)]


def _all_values(graph: Graph, feeds: Mapping[Tensor, np.ndarray]) -> dict[int, np.ndarray]:
    """Every node in float64."""
    values = {port.uid: array for port, array in feeds.items()}
    for node in graph.nodes:
        if node.uid not in values:
            values[node.uid] = value_of(node, [values[operand.uid] for operand in node.inputs])
    return values


def _apart(found: np.ndarray, expected: np.ndarray) -> float:
    """The norm of the difference over the norm of what is expected; infinite where a number is not finite."""
    if not np.isfinite(found).all():
        return 0.0 if np.array_equal(found, expected) else inf
    gap, size = float(np.linalg.norm(found - expected)), float(np.linalg.norm(expected))
    if gap == 0:
        return 0.0
    return gap / size if size else inf


def _loss_at(found: np.ndarray, exact: np.ndarray, error: float) -> str:
    """What a node lost."""
    infinite = int((~np.isfinite(found) & np.isfinite(exact)).sum())
    if infinite:
        largest = np.abs(exact[np.isfinite(exact)]).max(initial=0.0)
        return f"{infinite} of {found.size} numbers are infinite; the largest in float64 is {largest:.3g}"
    zero = (found == 0) & (exact != 0)
    if zero.sum() > found.size // 20:
        largest = np.abs(exact[zero]).max()
        return f"{int(zero.sum())} of {found.size} numbers become zero, the largest of them {largest:.2g}"
    return f"relative error {error:.2g}"
