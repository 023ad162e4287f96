"""``_ANECValidateMutableProcedureInfo``: a procedure that edits stored weights, against the network that has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aneforge.arguments import Source, graph_of
from aneforge.errors import ArgumentError, nearest
from aneforge.graph.graph import Graph
from aneforge.graph.traits import GraphTrait


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
