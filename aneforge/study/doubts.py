"""What makes the numbers of a model doubtful on a chip: norms that collapse, and tables that nobody has read.

A norm collapses when a square or a sum of squares leaves fp16: the reciprocal root is then zero and the result is the
offset alone, or it is infinite. The table of tanh was read on some chips only (N83); elsewhere it is assumed (C80,
U41).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.engine.ir import Op
from aneforge.engine.traits import Trait
from aneforge.graph.graph import Graph
from aneforge.sim.executor import watching

Array = np.ndarray
_READ = "N83"
_SHOWN = 3


# Before a run.


def doubts_of_graph(graph: Graph, targets: Mapping[str, Target]) -> list[str]:
    """What can be said of a graph without running it, a sentence each. Sums that are too long for fp16 are risks."""
    count = sum(node.definition.backend.startswith("tanh ") for node in graph.nodes)
    unread: dict[str, list[str]] = {}
    for name, target in targets.items() if count else ():
        source = compile_fact(target, "tanh_table")
        if source.value != _READ:
            unread.setdefault(str(source.value), []).append(name)
    where = "; ".join(f"{source} on {', '.join(names)}" for source, names in unread.items())
    nodes = f"{count} tanh node{'s' if count > 1 else ''}"
    return [f"{nodes}: the table is unknown, nobody has read it there ({where})"] if where else []


# In a run.


class NormWatch:
    """Collects the norms of a run whose results are lost, by node."""

    def __init__(self) -> None:
        self.lost: dict[str, str] = {}

    def __call__(self, op: Op, value: Array, operands: Sequence[Array]) -> None:
        if not op.sources or op.sources[-1] in self.lost:
            return
        if op.is_a(Trait.NORMALISATION) and op.kind != "softmax":
            self._norm(op, value, operands)
        elif op.kind == "r_sqrt" and op.operands[0].attrs.get("square_input"):
            self._root(op, value, operands[0])

    def _norm(self, op: Op, value: Array, operands: Sequence[Array]) -> None:
        x, offset = operands[0], operands[2] if len(operands) > 2 else np.float16(0)
        if not np.isfinite(x).all():
            return  # lost before
        same = value == offset
        if same.all() and float(np.ptp(x.astype(np.float32))) > 0.0:
            self.lost[op.sources[-1]] = "a square passed 65504, and the result is its offset alone"
        elif not np.isfinite(value).all():
            self.lost[op.sources[-1]] = "the squares were too small to add, and the result is infinite"

    def _root(self, op: Op, value: Array, mean: Array) -> None:
        if np.isinf(mean).any():
            self.lost[op.sources[-1]] = "the squares passed 65504, and the result is zero"
        elif np.isinf(value).any():
            self.lost[op.sources[-1]] = "the squares were too small to add, and the result is infinite"

    @property
    def sentences(self) -> list[str]:
        listed = [f"norm {node} collapsed: {what} (aneforge risks has a rewrite)" for node, what in self.lost.items()]
        more = len(listed) - _SHOWN
        return listed if more <= 0 else [*listed[:_SHOWN], f"{more} more norms collapsed"]


@contextmanager
def watched_norms() -> Iterator[NormWatch]:
    """Watches every simulation inside."""
    watch = NormWatch()
    with watching(watch):
        yield watch
