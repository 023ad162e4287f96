"""Reverse-mode gradients as graph nodes, from the derivative each op declares."""

from __future__ import annotations

from collections.abc import Sequence

from aneforge.errors import GraphError
from aneforge.graph.graph import Graph
from aneforge.graph.node import located
from aneforge.graph.tensor import Tensor

_STEP = "a step: its slope is zero or infinite"
_TRUTH = "it gives truth values"
_PLACES = "it gives places, which jump"
_ORDER = "it moves elements by their values; no ops for the way back are declared"
_SAMPLED = "it reads between elements; no ops for the way back are declared"
WITHOUT_DERIVATIVE: dict[str, str] = {
    **dict.fromkeys(("ceil", "floor", "floor_div", "one_hot", "round", "sign"), _STEP),
    **dict.fromkeys(("equal", "greater", "greater_equal", "less", "less_equal", "not_equal"), _TRUTH),
    **dict.fromkeys(("logical_and", "logical_not", "logical_or", "logical_xor"), _TRUTH),
    **dict.fromkeys(("arg_min_max", "argmax", "fps", "global_arg", "radius_search"), _PLACES),
    **dict.fromkeys(("sort", "topk"), _ORDER),
    **dict.fromkeys(("affine", "crop_resize", "resample"), _SAMPLED),
    "host": "it runs on the host, outside the graph language",
}
"""Ops through which no gradient passes, and why; ``docs/reference/derivatives.md`` shows them."""


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
        why = WITHOUT_DERIVATIVE.get(node.op, "none is declared")
        raise GraphError(
            f"{node.op} at {located(node.where)}: the op has no derivative ({why}). Replace it by ops that have one, "
            "or cut the gradient before it with stop"
        )
    return rule(gradient, node, *node.inputs, **dict(node.signature.attrs))
