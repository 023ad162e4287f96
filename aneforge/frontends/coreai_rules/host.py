"""Operations that the host computes: how one is written down in a graph, and what it gives.

The body of a host op is JSON: for each operand its type, and a value as it is or the number of the tensor that gives
it. The NumPy table of ``static`` computes it.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreai_rules.op import Held, Op
from aneforge.frontends.coreai_rules.records import NUMPY, Type, is_whole
from aneforge.frontends.coreai_rules.static import STATIC, folded
from aneforge.frontends.values import as_tensor
from aneforge.graph.ops.host import host
from aneforge.graph.tensor import Tensor

__all__ = ["evaluate", "on_host"]

_LANGUAGE = "coreai"
_MOST_IN_BODY = 1024  # numbers; more of them are a stored weight of the graph


def on_host(op: Op, reason: str) -> list[Tensor]:
    """One host op for each result."""
    if op.kind not in STATIC:
        raise LoadError(reason)
    operands: list[Tensor] = []
    given = [_written(op, place, operands) for place in range(len(op.given))]
    results = [(each.dtype, each.static) for each in op.results]
    if any(shape is None or dtype not in NUMPY for dtype, shape in results):
        raise LoadError(f"{reason}, and the file does not say the shape of what it gives")
    body = json.dumps({"given": given, "results": results, "attributes": op.attributes}, separators=(",", ":"))
    return [
        host(
            operands,
            language=_LANGUAGE,
            kind=op.kind,
            body=body,
            shape=shape or (1,),
            dtype="bool" if dtype == "i1" else "int32" if is_whole(dtype) else "fp16",
            output=place,
            reason=reason,
        )
        for place, (dtype, shape) in enumerate(results)
    ]


def _written(op: Op, place: int, operands: list[Tensor]) -> dict[str, Any]:
    value, kind = op.value(place), op.types[place]
    if kind.dtype not in NUMPY or kind.static is None:
        raise LoadError(f"operand {place} is {kind}")
    told: dict[str, Any] = {"dtype": kind.dtype, "shape": kind.static}
    if isinstance(value, np.ndarray) and (value.dtype.kind != "f" or value.size <= _MOST_IN_BODY):
        numbers = np.ascontiguousarray(value)
        return {**told, "as": numbers.dtype.str, "value": base64.b64encode(numbers.tobytes()).decode()}
    operands.append(as_tensor(value))
    return {**told, "operand": len(operands) - 1}


def evaluate(kind: str, body: str, operands: list[np.ndarray], output: int) -> np.ndarray:
    told = json.loads(body)
    given: list[Held] = []
    types: list[Type] = []
    for each in told["given"]:
        shape = tuple(each["shape"])
        if "operand" in each:
            value = np.asarray(operands[each["operand"]]).astype(NUMPY[each["dtype"]])
        else:
            value = np.frombuffer(base64.b64decode(each["value"]), each["as"])
        given.append(value.reshape(shape))
        types.append(Type("tensor", each["dtype"], shape))
    results = [Type("tensor", dtype, tuple(shape)) for dtype, shape in told["results"]]
    found = folded(Op(kind, kind, given, types, results, told["attributes"]))[output]
    return found.reshape(found.shape or (1,))
