"""A graph in float64, op by op, and its derivatives: the meaning of the graph, before any chip rounds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.graph import Graph
from aneforge.graph.node import located
from aneforge.graph.tensor import Tensor


def evaluate(
    out: Tensor | Sequence[Tensor] | Graph, feeds: Mapping[Any, Any] | Sequence[Any] = (), single: bool = False
) -> Any:
    """The value of one tensor (an array) or of several (a list), in float64; ``single`` rounds each node to float32.

    ``feeds`` gives the inputs: a list in order of creation, or a mapping by name or by tensor. Parameters
    keep the value they were made with unless they are fed.
    """
    graph = Graph.of(out)
    values = _feed(graph, feeds)
    users: dict[int, int] = {output.uid: 1 for output in graph.outputs}
    for node in graph.nodes:
        for operand in node.inputs:
            users[operand.uid] = users.get(operand.uid, 0) + 1
    for node in graph.nodes:
        if node.uid not in values:
            value = value_of(node, [values[operand.uid] for operand in node.inputs])
            values[node.uid] = value.astype(np.float32) if single and value.dtype == np.float64 else value
        for operand in node.inputs:
            users[operand.uid] -= 1
            if not users[operand.uid]:
                del values[operand.uid]  # memory follows the live tensors, not the whole graph
    results = [values[output.uid] for output in graph.outputs]
    return results[0] if isinstance(out, Tensor) else results


def value_of(node: Tensor, operands: list[np.ndarray]) -> np.ndarray:
    if node.weight is not None:
        return node.weight.array.astype(np.float64)
    rule = node.definition.reference
    if rule is None:
        raise GraphError(f"{node!r}: has no value, because this input was not fed. Pass a value for it")
    try:
        result = np.asarray(rule(*operands, **dict(node.signature.attrs)))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # attributes that no builder gives
        raise GraphError(f"{node!r} at {located(node.where)}: cannot be evaluated: {error}") from error
    if node.dtype != "bool":
        result = result.astype(np.float64, copy=False)
    if result.shape != node.shape:
        raise GraphError(f"{node!r}: the reference gave shape {list(result.shape)}")
    return result


def _feed(graph: Graph, feeds: Mapping[Any, Any] | Sequence[Any]) -> dict[int, np.ndarray]:
    inputs = graph.inputs
    if isinstance(feeds, Mapping):
        names = {port.name: port for port in (*inputs, *graph.parameters) if port.name}
        uids = {node.uid for node in graph.nodes}
        pairs = []
        for key, value in feeds.items():
            tensor = key if isinstance(key, Tensor) else names.get(key)
            if tensor is None or tensor.uid not in uids:
                raise GraphError(
                    f"{key!r}: not an input of the graph; choose one: {', '.join(names) or 'unnamed inputs only'}"
                )
            pairs.append((tensor, value))
    else:
        listed = list(feeds)
        if len(listed) != len(inputs):
            raise GraphError(f"the graph has {len(inputs)} inputs, but {len(listed)} values were passed")
        pairs = list(zip(inputs, listed, strict=True))
    values: dict[int, np.ndarray] = {}
    for port, value in pairs:
        try:
            array = np.asarray(value)
        except Exception:  # ragged lists, and whatever another library's array raises
            array = np.asarray("")
        if array.dtype.kind not in "fiub":
            raise GraphError(
                f"input {port!r}: {type(value).__name__} values are not real numbers; give an array of numbers"
            )
        array = array.astype(np.float64, copy=False)
        if array.shape != port.shape:
            raise GraphError(f"input {port!r}: the value has shape {list(array.shape)}")
        values[port.uid] = array
    missing = [repr(port) for port in inputs if port.uid not in values]
    if missing:
        raise GraphError(f"{', '.join(missing)}: no value was passed; give an array for each input")
    return values


# Reverse-mode gradients as graph nodes, from the derivative each op declares.


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
