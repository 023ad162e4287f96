"""Evaluate a graph in float64, op by op: what the graph means, before any chip rounds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.graph import Graph
from aneforge.graph.node import located
from aneforge.graph.tensor import Tensor

__all__ = ["evaluate", "value_of"]


def evaluate(out: Tensor | Sequence[Tensor] | Graph, feeds: Mapping[Any, Any] | Sequence[Any] = ()) -> Any:
    """The value of one tensor (an array) or of several (a list).

    ``feeds`` gives the inputs: a list in order of creation, or a mapping by name or by tensor. Parameters
    keep the value they were made with unless they are fed.
    """
    graph = Graph.of(out)
    values = _feed(graph, feeds)
    users: dict[int, int] = {each.uid: 1 for each in graph.outputs}
    for each in graph.nodes:
        for operand in each.inputs:
            users[operand.uid] = users.get(operand.uid, 0) + 1
    for each in graph.nodes:
        if each.uid not in values:
            values[each.uid] = value_of(each, [values[operand.uid] for operand in each.inputs])
        for operand in each.inputs:
            users[operand.uid] -= 1
            if not users[operand.uid]:
                del values[operand.uid]  # memory follows the live tensors, not the whole graph
    results = [values[each.uid] for each in graph.outputs]
    return results[0] if isinstance(out, Tensor) else results


def value_of(each: Tensor, operands: list[np.ndarray]) -> np.ndarray:
    if each.weight is not None:
        return each.weight.array.astype(np.float64)
    rule = each.definition.reference
    if rule is None:
        raise GraphError(f"{each!r} has no value: it is an input that was not fed")
    try:
        result = np.asarray(rule(*operands, **dict(each.signature.attrs)))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # attributes that no builder gives
        raise GraphError(f"{each!r} at {located(each.where)} cannot be evaluated: {error}") from error
    if each.dtype != "bool":
        result = result.astype(np.float64, copy=False)
    if result.shape != each.shape:
        raise GraphError(f"{each!r}: the reference gave shape {list(result.shape)}")
    return result


def _feed(graph: Graph, feeds: Mapping[Any, Any] | Sequence[Any]) -> dict[int, np.ndarray]:
    inputs = graph.inputs
    if isinstance(feeds, Mapping):
        names = {each.name: each for each in (*inputs, *graph.parameters) if each.name}
        held = {each.uid for each in graph.nodes}
        pairs = []
        for key, value in feeds.items():
            found = key if isinstance(key, Tensor) else names.get(key)
            if found is None or found.uid not in held:
                raise GraphError(f"no input {key!r}; the graph has {', '.join(names) or 'unnamed inputs only'}")
            pairs.append((found, value))
    else:
        listed = list(feeds)
        if len(listed) != len(inputs):
            raise GraphError(f"the graph has {len(inputs)} inputs, {len(listed)} values were given")
        pairs = list(zip(inputs, listed, strict=True))
    values: dict[int, np.ndarray] = {}
    for tensor, value in pairs:
        try:
            array = np.asarray(value)
        except Exception:  # ragged lists, and whatever another library's array raises
            array = np.asarray("")
        if array.dtype.kind not in "fiub":
            raise GraphError(f"input {tensor!r} was given {type(value).__name__} values, not real numbers")
        array = array.astype(np.float64, copy=False)
        if array.shape != tensor.shape:
            raise GraphError(f"input {tensor!r} was given shape {list(array.shape)}")
        values[tensor.uid] = array
    missing = [repr(each) for each in inputs if each.uid not in values]
    if missing:
        raise GraphError(f"no value for {', '.join(missing)}")
    return values
