"""``_ANECValidate`` and the validators of single layers: one native layer on one chip by one route."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.chips.chip import Target
from aneforge.chips.evidence import Fact
from aneforge.chips.ops import ROUTES
from aneforge.compiler.facts import facts_of
from aneforge.compiler.legal.findings import Finding, NumberFinding, PlacementFinding
from aneforge.compiler.legal.judge import judged, legality_reads
from aneforge.compiler.legal.rules.status import attested
from aneforge.compiler.legal.rules.validators import is_checked
from aneforge.compiler.legal.translate import query_of_layer
from aneforge.engine.native import LayerType, NativeLayer, ParamError, checked_params, layer_type
from aneforge.errors import ArgumentError, nearest
from aneforge.formats.arguments import Source, chip_of, graph_of
from aneforge.graph.graph import Graph
from aneforge.graph.node import Node
from aneforge.graph.traits import GraphTrait

Shape = tuple[int, ...]
_MOST_RANK, _MOST_EXTENT = 8, 1 << 31


@dataclass(frozen=True)
class LayerVerdict:
    """Whether a chip takes a layer, and which layer of the compiler says so."""

    accepted: bool
    stage: str
    """``frontend``, ``validator``, ``code generation`` or ``measured run``: of a refusal the first that refuses, of an
    accept how far it is attested."""
    message: str
    """The compiler's own reject string with its places filled in, else our sentence; empty for an accept."""
    evidence: Fact[Any]
    layer: str = ""
    target: str = ""
    route: str = "direct"
    findings: tuple[Finding, ...] = ()
    """Everything that speaks against the layer. An accepted one can have warnings: it runs and gives wrong numbers."""
    reason: str = ""
    """Our sentence."""

    def __str__(self) -> str:
        head = f"{self.layer} on {self.target} by the {self.route} route: "
        if self.accepted:
            attested = "measured run" if self.stage == "measured run" else "validator (not shown to run)"
            lines = [f"{head}accepted, attested by {attested} {self.evidence.label()}"]
        else:
            lines = [f"{head}rejected at {self.stage} {self.evidence.label()}", f"  {self.message}"]
            lines += [f"  {self.reason}"] if self.reason != self.message else []
        warnings = [finding for finding in self.findings if isinstance(finding, NumberFinding)]
        return "\n".join([*lines, *(f"  warning: {finding}" for finding in warnings)])

    def to_json(self) -> dict[str, Any]:
        return {
            "layer": self.layer,
            "target": self.target,
            "route": self.route,
            "accepted": self.accepted,
            "stage": self.stage,
            "message": self.message,
            "reason": self.reason,
            "evidence": self.evidence.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
        }


def validate_layer(
    type: str,  # noqa: A002 - as a unit of a netplist calls it
    params: Mapping[str, Any],
    bottoms: Sequence[Any],
    target: str | int | Target,
    route: str = "direct",
    *,
    fields: Mapping[str, Any] | None = None,
    dtypes: Sequence[str] | None = None,
    kernel: Mapping[str, Any] | None = None,
) -> LayerVerdict:
    """Whether a chip takes one native layer.

    ``type`` is that of a unit of a netplist (``"Conv"``). ``params`` hold numbers, never bit patterns. ``bottoms`` are
    shapes or tensors; those of an SDPA are [1, heads, sequence, features]. ``fields`` is what a unit states outside
    its Params (``OutputChannels``, ``NumGroups``, ``OutputType``). ``dtypes`` gives the element types of shapes, fp16
    where it is left out. ``kernel`` describes stored weights: ``{"encoding": "sparse", "bits": 4}``.
    """
    if route not in ROUTES:
        raise ArgumentError("route", f"{route!r} is not a route; choose one: {', '.join(ROUTES)}.")
    known, chip = layer_type(type), chip_of(target)
    shapes, types = _bottoms(bottoms, dtypes)
    try:
        checked = _params(known, params)
    except ParamError as error:
        evidence = known.evidence
        return LayerVerdict(False, "frontend", str(error), evidence, known.tag, chip.name, route, (), str(error))
    layer = NativeLayer(known.tag, checked, shapes, dict(fields or {}))
    query, facts = query_of_layer(layer, types, kernel), facts_of(chip, legality_reads())
    answer = judged(query, facts, route).on(chip.name)
    placements = [finding for finding in answer.findings if isinstance(finding, PlacementFinding)]
    refusals = [finding for finding in placements if finding.effect == "reject"]
    if not refusals:
        stage, seen = attested(known.tag, facts, route)
        evidence = seen if seen.known else known.evidence
        return LayerVerdict(True, stage, "", evidence, known.tag, chip.name, route, answer.findings)
    first = refusals[0]
    message, reason = first.string or first.message, first.message
    return LayerVerdict(
        False, first.stage, message, first.evidence, known.tag, chip.name, route, answer.findings, reason
    )


def _params(known: LayerType, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as the layer's parser reads them. Where no keys are published, none can be called wrong; and a
    value that a validator refuses by itself has passed the parser."""
    if not isinstance(params, Mapping):
        raise ArgumentError("params", f"expected a mapping of parameters, not {params!r}.")
    if not known.is_published:
        return dict(params)
    judged_later = {key: value for key, value in params.items() if is_checked(known.tag, key, value)}
    sound = {key: known.params[key].values[0] for key in judged_later if key in known.params}
    return {**checked_params(known, {**params, **sound}), **judged_later}


def _bottoms(bottoms: Sequence[Any], dtypes: Sequence[str] | None) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    if isinstance(bottoms, (str, bytes, Node)) or not isinstance(bottoms, Sequence):
        raise ArgumentError("bottoms", f"expected a list of shapes or tensors, not {bottoms!r}.")
    shapes, types = [], []
    for number, bottom in enumerate(bottoms):
        shapes.append(bottom.shape if isinstance(bottom, Node) else _shape(bottom, number))
        types.append(bottom.dtype if isinstance(bottom, Node) else "fp16")
    if dtypes is not None:
        if len(dtypes) != len(shapes):
            raise ArgumentError("dtypes", f"{len(dtypes)} types for {len(shapes)} bottoms; give one for each.")
        types = list(map(str, dtypes))
    return tuple(shapes), tuple(types)


def _shape(value: Any, number: int) -> Shape:
    if isinstance(value, (list, tuple)) and 0 < len(value) <= _MOST_RANK and all(_is_extent(size) for size in value):
        return tuple(value)
    raise ArgumentError("bottoms", f"bottom {number} is {value!r}; expected a shape such as [1, 8, 16, 16].")


def _is_extent(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size < _MOST_EXTENT


# ``_ANECValidateMutableProcedureInfo``: a procedure that edits stored weights, against the network that has them.


@dataclass(frozen=True)
class KernelProblem:
    """What is wrong with one edit."""

    kernel: str
    message: str

    def __str__(self) -> str:
        return f"{self.kernel}: {self.message}"


@dataclass(frozen=True)
class ProcedureVerdict:
    """Whether every edit of a procedure fits its network."""

    problems: tuple[KernelProblem, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the procedure is taken."""
        return not self.problems

    def __str__(self) -> str:
        return "accepted" if self.accepted else "\n".join(map(str, self.problems))

    def to_json(self) -> dict[str, Any]:
        return {"accepted": self.accepted, "problems": [vars(problem) for problem in self.problems]}


@dataclass(frozen=True)
class _Kernel:
    shape: tuple[int, ...]
    mutable: bool


def validate_mutable_procedure(
    network: Source, edits: Mapping[str, Any], mutable: Collection[str] = ()
) -> ProcedureVerdict:
    """Whether a procedure may replace weights of a network: each name exists, its kernel is declared mutable, and the
    new numbers have its shape and type.

    ``edits`` gives new numbers by the name of a constant or parameter. Parameters are mutable; ``mutable`` names the
    constants that are (``KernelMutable`` of a netplist). No reject strings are published for this validator.
    """
    if not isinstance(edits, Mapping):
        raise ArgumentError("edits", f"expected arrays by name, not {type(edits).__name__}.")
    kernels = _kernels(graph_of(network), frozenset(mutable))
    problems = [KernelProblem(name, told) for name, array in edits.items() if (told := _problem(name, array, kernels))]
    return ProcedureVerdict(tuple(problems))


def _kernels(graph: Graph, mutable: frozenset[str]) -> dict[str, _Kernel]:
    names = graph.names()
    stored = (node for node in graph.nodes if node.is_a(GraphTrait.STORED))
    return {
        names[node.uid]: _Kernel(node.shape, node.op == "parameter" or names[node.uid] in mutable) for node in stored
    }


def _problem(name: str, array: Any, kernels: Mapping[str, _Kernel]) -> str:
    kernel = kernels.get(name)
    if kernel is None:
        near = ", ".join(nearest(str(name), kernels)) or ", ".join(list(kernels)[:3]) or "it has none"
        return f"the network has no stored weight of this name; nearest: {near}"
    if not kernel.mutable:
        return "the kernel is not declared mutable; make it a parameter, or name it in mutable (KernelMutable)"
    numbers = np.asarray(array)
    if numbers.shape != kernel.shape:
        return f"the new numbers have shape {list(numbers.shape)}; expected {list(kernel.shape)}"
    if numbers.dtype != np.float16:
        return f"the new numbers are {numbers.dtype}; the kernel holds float16, so convert them"
    return ""
