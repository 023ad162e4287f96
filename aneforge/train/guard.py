"""The guard of trained convolutions on chips whose slices clamp (N18): it warns, measures, and never changes a scale.

A trained convolution cuts its windows out with slices that start inside the last axis. On chips that send such a slice
through the crop path, a magnitude above 4094 becomes infinite. Gradients carry the loss scale, so a large scale can
take them there.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from aneforge.chips.assumed import compile_fact
from aneforge.chips.limits import FP16_SLICE_SAT
from aneforge.chips.names import chip_label
from aneforge.compiler.program import Program
from aneforge.engine.ir import Op
from aneforge.errors import CrossChipFP16Warning
from aneforge.graph.graph import Graph
from aneforge.graph.reference import dependents
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.numerics.analysis import analysis
from aneforge.numerics.ranges import promised_values
from aneforge.numerics.rules import is_clamped_copy

LEAST_SCALE = 512.0
"""The loss scale from which a warning is due: at 384 none, at 512 one infinity was measured on an M1 Max."""


@dataclass
class SliceGuard:
    """What is known of the slices of one training program, and what its runs showed."""

    chip: str
    clamps: bool
    """Whether the chip clamps slices that start inside the last axis: a fact of the chip."""
    evidence: str
    weights: tuple[str, ...]
    """Trained convolution weights with a kernel wider than 1 whose windows are slices."""
    slices: frozenset[int]
    """The ops of the program, by uid, that read gradients and can clamp within what is promised of the inputs."""
    limit: float = FP16_SLICE_SAT
    reached: float | None = None
    """The largest magnitude of a gradient that came to such a slice; None before the first step."""
    _told: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, graph: Graph, factor: Tensor, program: Program, params: Sequence[Tensor]) -> SliceGuard:
        """The guard of a program. What depends on ``factor``, the loss scale, is a gradient."""
        fact = compile_fact(program.target, "slice_saturates")
        names = graph.names()
        backward = {names[uid] for uid in dependents(graph.nodes, {factor.uid})}
        found = analysis(graph, names, program.module, program.target, promised_values(graph, names))
        clamping = {risk.node for risk in found.risks if risk.rule == "slice-saturation"}
        slices = frozenset(
            op.uid
            for op in program.module.ops
            if is_clamped_copy(op) and op.sources[-1] in clamping and not backward.isdisjoint(op.sources)
        )
        wide = [param for param in params if (param.attrs.get("kernel") or (0, 0, 0))[2] > 1]
        sliced = _read_through_slices(graph)
        weights = tuple(names[param.uid] for param in wide if param.uid in sliced)
        return cls(chip_label(program.target.name), bool(fact.value), fact.label(), weights, slices)

    @property
    def hears(self) -> bool:
        """Whether there is anything to measure."""
        return bool(self.slices)

    def due(self, loss_scale: float) -> bool:
        """Whether the three conditions of the warning hold."""
        return self.clamps and bool(self.slices) and bool(self.weights) and loss_scale >= LEAST_SCALE

    def hear(self, op: Op, result: np.ndarray, read: Sequence[np.ndarray]) -> None:
        """Note the largest magnitude of what one op reads, while the simulator runs."""
        if op.uid in self.slices:
            largest = max(_largest(array) for array in read)
            self.reached = largest if self.reached is None else max(self.reached, largest)

    def warn(self, loss_scale: float, stacklevel: int = 3) -> None:
        """Say once that gradients may clamp, where that is due."""
        if self.due(loss_scale) and "due" not in self._told:
            self._told.add("due")
            listed = ", ".join(self.weights[:4])
            more = f" and {len(self.weights) - 4} more" if len(self.weights) > 4 else ""
            warnings.warn(
                f"{listed}{more}: training a convolution wider than 1 with loss scale {loss_scale:g} on {self.chip}: "
                f"gradients go through slices that become infinite above {self.limit:.0f} {self.evidence}; {self}. "
                'Lower the scale, or build the convolution with windows="kernel"',
                CrossChipFP16Warning,
                stacklevel=stacklevel,
            )

    def warn_if_clamped(self, stacklevel: int = 3) -> None:
        """Say once that a gradient did clamp."""
        if self.reached is not None and self.reached > self.limit and "clamped" not in self._told:
            self._told.add("clamped")
            warnings.warn(
                f"{self.chip}: gradients at slices of trained convolutions {self}, so that some became infinite. "
                'Lower the loss scale, or build the convolution with windows="kernel"',
                CrossChipFP16Warning,
                stacklevel=stacklevel,
            )

    def __str__(self) -> str:
        if not self.slices:
            return "no gradient passes such a slice in this program"
        if self.reached is None:
            return "not measured yet"
        return f"reached {self.reached:.0f} of {self.limit:.0f}"


def _read_through_slices(graph: Graph) -> set[int]:
    """The parameters that are multiplied with windows cut out by slices of the last axis."""
    sliced: set[int] = set()  # nodes that hold windows: slices, and moves of them
    weights: set[int] = set()
    carried: dict[int, int] = {}  # a turned parameter, by the uid of the turn
    for node in graph.nodes:
        if node.is_a(GraphTrait.SLICE):
            if node.inputs[0].shape[-1] > node.shape[-1]:
                sliced.add(node.uid)
        elif node.op in ("reshape", "concat") and any(operand.uid in sliced for operand in node.inputs):
            sliced.add(node.uid)
        elif node.op == "transpose" and node.inputs[0].op == "parameter":
            carried[node.uid] = node.inputs[0].uid
        elif node.op == "matmul" and any(operand.uid in sliced for operand in node.inputs):
            weights |= {carried[operand.uid] for operand in node.inputs if operand.uid in carried}
    return weights


def _largest(array: np.ndarray) -> float:
    """On the bits, which for magnitudes are in the order of the numbers; NaN counts as infinity."""
    if array.dtype != np.float16 or not array.size:
        return 0.0
    bits = int((np.ascontiguousarray(array).view(np.uint16) & 0x7FFF).max())
    return float(np.uint16(min(bits, 0x7C00)).view(np.float16))
