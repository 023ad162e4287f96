"""Ops that the host computes: how one is written down in a graph, and what it gives.

The body of a host op is JSON: for each argument an operand by number or a value as it is, with the types that the file
states. The common ops on known values compute it (``ops/known``).
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from aneforge.errors import LoadError
from aneforge.formats.importer.op import FileOp
from aneforge.formats.ops.known import KnownOps
from aneforge.formats.records import Type, ValueType, is_whole
from aneforge.formats.values import as_tensor, holds_nan
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.host import host
from aneforge.graph.tensor import Tensor

_MOST_IN_BODY = 1024  # numbers; more of them are a stored weight of the graph
_MOST_ODD = 1 << 18  # numbers with a NaN among them, which a stored weight cannot hold


def held_as(dtype: str) -> str:
    """The graph's type for an element type of a file."""
    return "bool" if dtype == "bool" else "int32" if is_whole(dtype) else "fp16"


def on_host(op: FileOp, reason: str, known: KnownOps) -> list[Tensor]:
    """One host op for each result."""
    operands: list[Tensor] = []
    arguments = {name: [_write(value, operands) for value in values] for name, values in op.arguments.items()}
    types = {name: [_written_type(op, name, place) for place in range(len(v))] for name, v in op.arguments.items()}
    outputs = [kind.dtype if isinstance(kind, ValueType) else "fp32" for _, kind in op.outputs]
    texts = {name: value for name, value in op.attributes.items() if isinstance(value, str)}
    body = json.dumps({"given": arguments, "types": types, "outputs": outputs, "texts": texts}, separators=(",", ":"))
    return [
        host(
            operands,
            language=known.language,
            kind=op.kind,
            body=body,
            shape=shape or (1,),
            dtype=held_as(outputs[place]),
            output=place,
            reason=reason,
        )
        for place, shape in enumerate(_shapes(op, body, operands, known))
    ]


def _written_type(op: FileOp, name: str, place: int) -> tuple[str, bool]:
    """The element type of an argument, and whether it is a single number."""
    stated = op.types.get(name) or []
    kind = stated[place] if place < len(stated) else None
    if isinstance(kind, ValueType):
        return kind.dtype, kind.shape == ()
    return op.dtype(name), False


def _write(value: Any, operands: list[Tensor]) -> Any:
    if isinstance(value, np.ndarray) and (value.dtype.kind != "f" or value.size <= _MOST_IN_BODY or _is_odd(value)):
        if value.dtype.kind == "U":
            return {"text": [str(word) for word in value.reshape(-1)], "shape": value.shape}
        plain = np.ascontiguousarray(value)
        data = base64.b64encode(plain.tobytes()).decode("ascii")
        return {"type": plain.dtype.str, "shape": value.shape, "data": data}
    if not isinstance(value, (np.ndarray, Encoded, Tensor)):
        raise LoadError(f"a {type(value).__name__.lower()} cannot be an operand of a host op; use a tensor")
    operands.append(as_tensor(value))
    return len(operands) - 1


def _is_odd(value: np.ndarray) -> bool:
    """Numbers that no weight of the graph can hold, few enough to be written down."""
    return value.size <= _MOST_ODD and holds_nan(value)


def _shapes(op: FileOp, body: str, operands: list[Tensor], known: KnownOps) -> list[tuple[int, ...]]:
    """As the file states them, or where it leaves them open, as the op gives them for zeros."""
    stated = [op.out_shape(place) for place in range(len(op.outputs))]
    if stated and None not in stated:
        return [shape for shape in stated if shape is not None]
    zeros = [np.zeros(operand.shape, np.float32) for operand in operands]
    return [result.shape for result in _compute(op.kind, body, zeros, known)]


def evaluate(kind: str, body: str, operands: list[np.ndarray], output: int, known: KnownOps) -> np.ndarray:
    """One result of a host op, from the numbers of its operands."""
    result = _compute(kind, body, operands, known)[output]
    return result.reshape(1) if result.ndim == 0 else result


def _compute(kind: str, body: str, operands: list[np.ndarray], known: KnownOps) -> list[np.ndarray]:
    written = json.loads(body)
    arguments: dict[str, list[Any]] = {}
    types: dict[str, list[Type | None]] = {}
    for name, entries in written["given"].items():
        kinds = written["types"].get(name) or [("fp32", False)] * len(entries)
        arguments[name] = [_read(entry, kinds[place], operands) for place, entry in enumerate(entries)]
        types[name] = [ValueType(dtype, arguments[name][place].shape) for place, (dtype, _) in enumerate(kinds)]
    outputs: list[tuple[str, Type | None]] = [("", ValueType(dtype, ())) for dtype in written["outputs"]]
    return known.results(FileOp(kind, kind, arguments, types, outputs, written.get("texts", {})))


def _read(entry: Any, kind: tuple[str, bool], operands: list[np.ndarray]) -> np.ndarray:
    dtype, is_single = kind
    if isinstance(entry, int):
        value = operands[entry]
        if is_whole(dtype):
            value = np.rint(value).astype(np.int64)
        else:
            value = value.astype(bool if dtype == "bool" else np.float32)
    elif "text" in entry:
        value = np.array(entry["text"]).reshape(entry["shape"])
    else:
        value = np.frombuffer(base64.b64decode(entry["data"]), np.dtype(entry["type"])).reshape(entry["shape"])
    return value.reshape(()) if is_single and value.size == 1 else value
