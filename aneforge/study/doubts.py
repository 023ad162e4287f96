"""What makes the numbers of a model doubtful on a chip: norms that collapse, and tables that are fits.

A norm collapses when a square or a sum of squares leaves fp16: the reciprocal root is then zero and the result is the
offset alone, or it is infinite. A table that is a fit (U41, N59) is near the chip's own, not equal to it: where it
decides the error of an output, that error is a guess.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.engine.ir import Op
from aneforge.engine.traits import Trait
from aneforge.graph.graph import Graph
from aneforge.graph.node import definition
from aneforge.graph.traits import GraphTrait
from aneforge.numerics.unary import NOTICED
from aneforge.sim.executor import watching
from aneforge.sim.tables import fitted
from aneforge.study.model import Model

Array = np.ndarray
_SHOWN = 3


# Before a run.


def doubts_of_graph(graph: Graph, targets: Mapping[str, Target]) -> list[str]:
    """What can be said of a graph without running it, a sentence each. Sums that are too long for fp16 are risks."""
    return list(_fits_in(graph, targets))


def _fits_in(graph: Graph, targets: Mapping[str, Target]) -> Iterator[str]:
    counts = Counter(node.op for node in graph.nodes if node.is_a(GraphTrait.FUNCTION))
    for op, count in sorted(counts.items()):
        row = definition(op).in_backend
        if row is not None and fitted(row.name):
            by_source: dict[str, list[str]] = {}
            for name, target in targets.items():
                by_source.setdefault(_source(str(compile_fact(target, "table_set").value)), []).append(name)
            where = "; ".join(f"{source} on {', '.join(names)}" for source, names in by_source.items())
            yield (
                f"{count} {op} node{'s' if count > 1 else ''}: the table is a fit ({where}); "
                "aneforge run says what it changes in the outputs"
            )


def _source(tables: str) -> str:
    """The M1's knots are our own fit, those of the M6 a published one."""
    return "U41" if tables == "m1" else "N59"


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


def table_doubts(model: Model, feeds: Mapping[str, Any], outputs: Mapping[str, Array]) -> list[str]:
    """Where fitted tables decide the error of an output: what becomes of it if they are the exact functions.

    Both runs are those of the fast mode, whose own error is far below what is reported here.
    """
    ops = [op for op in model.program.module.ops if fitted(op.kind) and not op.attrs.get("hard")]
    if not ops:
        return []
    kinds = frozenset(op.kind for op in ops)
    with_tables = outputs if model.mode == "fast" else model.run_fast(feeds).outputs
    without = model.run_fast(feeds, exact=kinds).outputs
    moved = {name: _apart(with_tables[name], exact) for name, exact in without.items()}
    name, most = max(moved.items(), key=lambda item: item[1])
    if most < NOTICED:
        return []
    source = _source(str(compile_fact(model.target, "table_set").value))
    share = "all of it" if math.isinf(most) else f"{100 * most:.2g} %"
    return [
        f"output {name} rests on a fit: {len(ops)} tables of {', '.join(sorted(kinds))} change it by {share}, and "
        f"those of this chip are not published ({source})"
    ]


def _apart(a: Array, b: Array) -> float:
    one, two = np.asarray(a, np.float64).reshape(-1), np.asarray(b, np.float64).reshape(-1)
    if not np.isfinite(one).all() or not np.isfinite(two).all():
        return 0.0  # another doubt, which is told elsewhere
    size = float(np.linalg.norm(two))
    off = float(np.linalg.norm(one - two))
    return off / size if size else (math.inf if off else 0.0)
