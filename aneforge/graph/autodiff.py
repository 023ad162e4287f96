"""Reverse-mode gradients as graph nodes, from the derivative each op declares."""

from __future__ import annotations

from collections.abc import Sequence

from aneforge.errors import GraphError
from aneforge.graph.graph import Graph
from aneforge.graph.node import located
from aneforge.graph.tensor import Tensor


def gradients(
    out: Tensor, wanted: Sequence[Tensor], seed: Tensor | None = None, stop: Sequence[Tensor] = ()
) -> list[Tensor | None]:
    """The gradient of ``out`` for each wanted tensor; ``None`` where it does not depend on it.

    ``seed`` is the gradient at ``out`` (ones by default); nothing flows past a tensor in ``stop``.
    """
    order = Graph([out]).nodes
    needed = dependents(order, {tensor.uid for tensor in wanted})
    blocked = {tensor.uid for tensor in stop}
    flowing: dict[int, Tensor] = {out.uid: out.ones() if seed is None else seed}
    for node in reversed(order):
        gradient = flowing.get(node.uid)
        if gradient is None or node.definition.leaf or node.uid in blocked:
            continue
        operands = [operand for operand in node.inputs if operand.uid in needed]
        if not operands:
            continue
        for operand, part in zip(node.inputs, _parts(node, gradient), strict=True):
            if operand.uid not in needed or (node.op == "select" and operand.dtype == "bool"):
                continue  # a condition only chooses, so no gradient flows through it
            if part is None:
                raise GraphError(
                    f"{node.op} at {located(node.where)}: the op has no derivative for {operand!r}; "
                    "leave it out of the wanted tensors"
                )
            known = flowing.get(operand.uid)
            flowing[operand.uid] = part if known is None else known + part
    return [flowing.get(tensor.uid) for tensor in wanted]


def dependents(order: Sequence[Tensor], wanted: set[int]) -> set[int]:
    """The uids of the wanted tensors and of all nodes that depend on them."""
    dependent = set(wanted)
    for node in order:
        if any(operand.uid in dependent for operand in node.inputs):
            dependent.add(node.uid)
    return dependent


def _parts(node: Tensor, gradient: Tensor) -> Sequence[Tensor | None]:
    rule = node.definition.derivative
    if rule is None:
        why = node.definition.no_derivative or "none is declared"
        raise GraphError(
            f"{node.op} at {located(node.where)}: the op has no derivative ({why}). Replace it by ops that have one, "
            "or cut the gradient before it with stop"
        )
    return rule(gradient, node, *node.inputs, **dict(node.signature.attrs))
