"""What nodes of the graph can lose, seen from the node and not from the ops that it becomes: infinite constants,
remainders and norms of small numbers. And the safe rewrite of each node that the program shows to lose something.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aneforge.compiler.legal.findings import ANY_FINITE, PROMISED
from aneforge.graph.graph import Graph
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import ops_with
from aneforge.graph.stable_forms import logsumexp_of, softplus_of
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.numerics.losses import Risk, evidence_of
from aneforge.numerics.ranges import Value
from aneforge.numerics.unary import NOTICED
from aneforge.sim.mac import CEILING
from aneforge.text import percent

_MOST_CONSTANTS = 1 << 22  # numbers of a constant that is looked through
_EXACT_QUOTIENT = 2048  # whole numbers are exact in fp16 up to here
_POINTS = 256  # numbers that stand for a range

Ranges = Callable[[Tensor], Value | None]
"""What is known of a node's result; None where nothing is."""


def node_losses(graph: Graph, names: Mapping[int, str], ranges: Ranges) -> Iterator[Risk]:
    """What nodes can lose, by what is known of their operands."""
    for node in graph.nodes:
        if node.op == "mod":
            yield from _remainder(node, names[node.uid], ranges(node.inputs[0]), ranges(node.inputs[1]))
        elif node.is_a(GraphTrait.NORMALISATION):
            yield from _small_squares(node, names[node.uid], ranges(node.inputs[0]))


def infinite_constants(graph: Graph, names: Mapping[int, str]) -> Iterator[Risk]:
    """A mask of -1e9 or -3.4e38: a row that is masked everywhere has no sum, and what is infinite times zero is zero
    on the engine and not a number elsewhere (N32)."""
    for node in graph.nodes:
        stored = node.weight
        if stored is None or stored.encoded is not None or stored.size > _MOST_CONSTANTS:
            continue
        count = int(np.isinf(stored.array).sum())
        if count:
            yield _risk(
                node, names[node.uid], "infinite-constant", None, FP16_MAX, math.inf,
                f"{count} of {stored.size} numbers are infinite in fp16, which ends at 65504, as -1e9 and -3.4e38 "
                "are; a row that is masked everywhere then has no softmax (NaN elsewhere, even weights here)",
                "mask with -3e4, which is finite in sums too, or choose with a where",
                rewrite="finite-mask",
            )  # fmt: skip


def _risk(
    node: Tensor, name: str, rule: str, value: Value | None, limit: float, reaches: float, message: str, hint: str,
    **more: Any,
) -> Risk:  # fmt: skip
    basis = ANY_FINITE if value is not None and value.is_open else PROMISED
    return Risk(
        rule, message, evidence_of(rule), hint, stage="measured run", limit=limit, reaches=reaches, basis=basis,
        node=name, op=node.op, range=value, **more,
    )  # fmt: skip


def _remainder(node: Tensor, name: str, above: Value | None, below: Value | None) -> Iterator[Risk]:
    """The quotient is rounded to fp16 before its whole part is taken."""
    if above is None or below is None or above.special or below.special:
        return
    least = min(abs(below.low), abs(below.high))
    if below.low <= 0.0 <= below.high or above.size / least <= _EXACT_QUOTIENT:
        return
    constant = node.inputs[1].op == "const"
    yield _risk(
        node, name, "remainder", above, _EXACT_QUOTIENT, above.size / least,
        f"quotients reach {above.size / least:.4g}, and whole numbers are exact up to {_EXACT_QUOTIENT}: the "
        "remainder can be any number below the divisor",
        "subtract falling multiples of the divisor, which is exact, or take the remainder on the host",
        rewrite="long-division" if constant else None,
        expected_error=1.0,
        factor=above.size,
    )  # fmt: skip


def _small_squares(node: Tensor, name: str, value: Value | None) -> Iterator[Risk]:
    """Squares below 2^-24 are zero, so that epsilon alone divides: the result is too large, or infinite."""
    if value is None or value.special or value.size == 0.0:
        return
    numbers = value.low + (np.arange(_POINTS) + 0.5) / _POINTS * value.width
    numbers = numbers - numbers.mean() if node.is_a(GraphTrait.CENTRED) else numbers
    squares = numbers * numbers
    terms = node.shape[node.attrs["axis"]] if node.op == "l2_norm" else 1
    eps = float(node.attrs["eps"])
    with np.errstate(all="ignore"):
        stored = terms * float(squares.astype(np.float16).astype(np.float64).mean())
        kept = float(np.float16(stored)) + float(np.float16(eps))
    if not math.isfinite(kept):
        return  # too large, and not too small
    exact = terms * float(squares.mean()) + eps
    if exact == 0.0:
        return
    error = math.inf if kept == 0.0 else abs(math.sqrt(exact / kept) - 1.0)
    if error >= NOTICED:
        grows = "the result is infinite" if kept == 0.0 else f"the result is {percent(error)} off"
        yield _risk(
            node, name, "underflow", value, 2.0**-12, value.size,
            f"squares of numbers up to {value.size:.3g} are below what fp16 holds to 11 bits: {grows}",
            "divide by the largest magnitude before squaring, epsilon with it (N90)",
            rewrite="stable-norm",
            expected_error=error,
        )  # fmt: skip


_REWRITES = {
    ("softplus", "overflow"): "stable-softplus",
    ("reduce_log_sum_exp", "overflow"): "stable-logsumexp",
    ("cumsum", "accumulator"): "scaled-cumsum",
    ("cumsum", "overflow"): "scaled-cumsum",
    ("cumsum", "underflow"): "scaled-cumsum",
    **{(op, kind): "stable-norm" for op in ops_with(GraphTrait.NORMALISATION) for kind in ("overflow", "variance")},
}
"""The rewrite that removes a loss, by the node's op and the kind of the loss."""


def with_rewrites(risks: Sequence[Risk], graph: Graph, names: Mapping[int, str]) -> list[Risk]:
    """The risks of a program with the rewrites of the nodes they come from."""
    nodes = {names[node.uid]: node for node in graph.nodes}
    spelled_out = _spelled_out(graph)
    return [_with_rewrite(risk, nodes.get(risk.node), spelled_out) for risk in risks]


def _spelled_out(graph: Graph) -> dict[int, str]:
    """Exponentials inside a softplus or logsumexp that is spelled out, and the rewrite of the whole."""
    forms: dict[int, str] = {}
    for node in graph.nodes:
        if node.op not in ("log", "log_sum"):
            continue
        rewrite = "stable-softplus" if softplus_of(node) is not None else None
        rewrite = "stable-logsumexp" if logsumexp_of(node) is not None else rewrite
        if rewrite is not None:
            inside = (node, *node.inputs, *(operand for part in node.inputs for operand in part.inputs))
            forms |= {part.uid: rewrite for part in inside if part.op in ("exp", "add", "sum", "log", "log_sum")}
    return forms


def _with_rewrite(risk: Risk, node: Tensor | None, spelled_out: Mapping[int, str]) -> Risk:
    rewrite = None if node is None else _REWRITES.get((node.op, risk.rule))
    if node is not None and risk.rule == "overflow":
        rewrite = spelled_out.get(node.uid, rewrite)
    if rewrite is None:
        return risk
    factor = risk.factor
    if rewrite == "scaled-cumsum" and risk.rule != "underflow":
        if not math.isfinite(risk.reaches) or risk.reaches >= FP16_MAX:
            return risk  # the sums themselves are beyond fp16
        factor = 2.0 ** -math.ceil(math.log2(4 * risk.reaches / CEILING))
    return replace(risk, rewrite=rewrite, factor=factor)
