"""MIL ops that the host computes: how one is written down in a graph, and what it gives.

The body of a host op is JSON: for each argument what it takes, an operand by number or a value as it is, with the
types that the program says. The NumPy table of ``static`` computes it.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from aneforge.frontends import LoadError
from aneforge.frontends.coreml.op import Op, State, is_whole
from aneforge.frontends.coreml.program import TensorType, Type
from aneforge.frontends.coreml.static import STATIC, folded
from aneforge.frontends.values import as_tensor
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.host import host
from aneforge.graph.tensor import Tensor

__all__ = ["evaluate", "on_host"]

_MOST_IN_BODY = 1024  # numbers; more of them are a stored weight of the graph


def on_host(op: Op, reason: str) -> list[Tensor]:
    """One host op for each result."""
    if op.kind not in STATIC:
        raise LoadError(f"{reason}; nor can the host of aneforge compute it")
    operands: list[Tensor] = []
    given: dict[str, list[Any]] = {}
    for name, values in op.given.items():
        given[name] = [_written(each, operands) for each in values]
    types = {
        name: [(op.dtype(name), isinstance(each, TensorType) and each.shape == ()) for each in op.types.get(name, [])]
        for name in op.given
    }
    outputs = [each.dtype if isinstance(each, TensorType) else "fp32" for _, each in op.outputs]
    body = json.dumps({"given": given, "types": types, "outputs": outputs}, separators=(",", ":"))
    shapes = _shapes(op, body, operands)
    return [
        host(
            operands,
            language="mil",
            kind=op.kind,
            body=body,
            shape=shape or (1,),
            dtype="bool" if outputs[place] == "bool" else "int32" if is_whole(outputs[place]) else "fp16",
            output=place,
            reason=reason,
        )
        for place, shape in enumerate(shapes)
    ]


def _written(value: Any, operands: list[Tensor]) -> Any:
    if isinstance(value, np.ndarray) and (value.dtype.kind != "f" or value.size <= _MOST_IN_BODY):
        if value.dtype.kind == "U":
            return {"text": [str(each) for each in value.reshape(-1)], "shape": value.shape}
        plain = np.ascontiguousarray(value)
        return {
            "type": plain.dtype.str,
            "shape": value.shape,
            "data": base64.b64encode(plain.tobytes()).decode("ascii"),
        }
    if not isinstance(value, (np.ndarray, Encoded, Tensor)):
        raise LoadError(f"a {'state' if isinstance(value, State) else 'list'} is no operand of a host op")
    operands.append(as_tensor(value))
    return len(operands) - 1


def _shapes(op: Op, body: str, operands: list[Tensor]) -> list[tuple[int, ...]]:
    """As the program says, or where it leaves them open, as the op gives them for zeros."""
    told = [each.static if isinstance(each, TensorType) else None for _, each in op.outputs]
    if told and None not in told:
        return [each for each in told if each is not None]
    zeros = [np.zeros(each.shape, np.float32) for each in operands]
    return [each.shape for each in _computed(op.kind, body, zeros)]


def evaluate(kind: str, body: str, operands: list[np.ndarray], output: int) -> np.ndarray:
    """One result of a host op, from the numbers of its operands."""
    found = _computed(kind, body, operands)[output]
    return found.reshape(1) if found.ndim == 0 else found


def _computed(kind: str, body: str, operands: list[np.ndarray]) -> list[np.ndarray]:
    told = json.loads(body)
    given: dict[str, list[Any]] = {}
    types: dict[str, list[Type | None]] = {}
    for name, entries in told["given"].items():
        kinds = told["types"].get(name) or [("fp32", False)] * len(entries)
        given[name] = [_read(entry, kinds[place], operands) for place, entry in enumerate(entries)]
        types[name] = [TensorType(dtype, tuple(given[name][place].shape)) for place, (dtype, _) in enumerate(kinds)]
    outputs: list[tuple[str, Type | None]] = [("", TensorType(each, ())) for each in told["outputs"]]
    return folded(Op(kind, kind, given, types, outputs))


def _read(entry: Any, kind: tuple[str, bool], operands: list[np.ndarray]) -> np.ndarray:
    dtype, scalar = kind
    if isinstance(entry, int):
        value = operands[entry]
        if dtype == "bool":
            value = value.astype(bool)
        elif is_whole(dtype):
            value = np.rint(value).astype(np.int64)
        else:
            value = value.astype(np.float32)
    elif "text" in entry:
        value = np.array(entry["text"]).reshape(entry["shape"])
    else:
        value = np.frombuffer(base64.b64decode(entry["data"]), np.dtype(entry["type"])).reshape(entry["shape"])
    return value.reshape(()) if scalar and value.size == 1 else value
