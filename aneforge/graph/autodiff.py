"""Reverse-mode gradients as graph nodes, from the derivative each op declares."""

from __future__ import annotations

from collections.abc import Sequence

from aneforge.errors import GraphError
from aneforge.graph.graph import Graph
from aneforge.graph.node import located
from aneforge.graph.tensor import Tensor

__all__ = ["gradients"]


def gradients(
    out: Tensor, wanted: Sequence[Tensor], seed: Tensor | None = None, stop: Sequence[Tensor] = ()
) -> list[Tensor | None]:
    """The gradient of ``out`` for each wanted tensor; ``None`` where it does not depend on it.

    ``seed`` is the gradient at ``out`` (ones by default); nothing flows past a tensor in ``stop``.
    """
    order = Graph([out]).nodes
    needed = _depends_on(order, {each.uid for each in wanted})
    blocked = {each.uid for each in stop}
    flowing: dict[int, Tensor] = {out.uid: out.ones() if seed is None else seed}
    for each in reversed(order):
        gradient = flowing.get(each.uid)
        if gradient is None or each.definition.leaf or each.uid in blocked:
            continue
        operands = [operand for operand in each.inputs if operand.uid in needed]
        if not operands:
            continue
        for operand, part in zip(each.inputs, _parts(each, gradient), strict=True):
            if operand.uid not in needed or (each.op == "select" and operand.dtype == "bool"):
                continue  # a condition chooses, and passes no gradient
            if part is None:
                raise GraphError(f"{each.op} at {located(each.where)} has no derivative for {operand!r}")
            known = flowing.get(operand.uid)
            flowing[operand.uid] = part if known is None else known + part
    return [flowing.get(each.uid) for each in wanted]


def _depends_on(order: Sequence[Tensor], wanted: set[int]) -> set[int]:
    """Numbers of the nodes that a wanted tensor feeds, and the wanted ones."""
    found = set(wanted)
    for each in order:
        if any(operand.uid in found for operand in each.inputs):
            found.add(each.uid)
    return found


def _parts(each: Tensor, gradient: Tensor) -> Sequence[Tensor | None]:
    rule = each.definition.derivative
    if rule is None:
        raise GraphError(f"{each.op} at {located(each.where)} has no derivative")
    return rule(gradient, each, *each.inputs, **dict(each.signature.attrs))
