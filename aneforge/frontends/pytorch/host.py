# pyright: reportMissingImports=false
"""Host ops of exported PyTorch programs: the ATen op runs in float32 on the CPU."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from aneforge.errors import GraphError, install_hint

_NAMESPACES = ("aten", "quantized_decomposed", "transformers")


def evaluate(kind: str, body: str, operands: list[np.ndarray], output: int) -> np.ndarray:
    """Return one result of an op. ``body`` describes its arguments: operands and known values."""
    if kind == "aneforge.marks":
        return _marks(operands[0], json.loads(body)["size"], output)
    torch = _torch()
    arguments = json.loads(body)
    with torch.no_grad():
        results = _op(kind)(
            *(_argument(argument, operands) for argument in arguments["args"]),
            **{name: _argument(argument, operands) for name, argument in arguments["kwargs"].items()},
        )
    result = results[output] if isinstance(results, (list, tuple)) else results
    numbers = np.asarray(result.detach().numpy() if isinstance(result, torch.Tensor) else result)
    return numbers if numbers.ndim else numbers.reshape(1)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise GraphError(
            f"the graph has PyTorch ops on the host, which need the torch package: {install_hint('torch')}"
        ) from None
    return torch


def _marks(places: np.ndarray, size: int, output: int) -> np.ndarray:
    """Return the one-hot matrix [size, places]; for output 1, a mask of the positions that occur."""
    indices = np.rint(np.asarray(places, np.float64)).astype(np.int64).reshape(-1)
    if ((indices < -size) | (indices >= size)).any():
        raise ValueError(
            f"index {int(indices[np.argmax(np.abs(indices))])} is out of range for an axis of {size} elements"
        )
    marks = np.arange(size)[:, None] == (indices % size)[None]
    return marks.any(axis=1) if output == 1 else marks.astype(np.float32)


@lru_cache
def _op(kind: str) -> Any:
    """Return the op of that name. Only ops that the reader gives to the host are allowed, since the graph may come
    from a file."""
    from aneforge.frontends.pytorch.support import HOSTED
    from aneforge.frontends.pytorch.table import plain_name, row_for

    torch = _torch()
    space, _, qualified = kind.partition(".")
    name, _, overload = qualified.rpartition(".")
    if space not in _NAMESPACES or (row_for(kind) is None and plain_name(kind)[0] not in HOSTED):
        raise GraphError(f"{kind!r} is not an op that the host computes; the graph must name an op of the reader")
    if space == "transformers":
        from aneforge.frontends.pytorch.grouped import declare_grouped_product

        declare_grouped_product()
    if space == "quantized_decomposed":
        import torch.ao.quantization.fx._decomposed  # type: ignore[import-not-found]
    packet = getattr(getattr(torch.ops, space), name)
    return getattr(packet, overload)


def _argument(record: Any, operands: Sequence[np.ndarray]) -> Any:
    torch = _torch()
    if isinstance(record, list):
        return [_argument(element, operands) for element in record]
    if not isinstance(record, dict):
        return record
    if "dtype" in record and len(record) == 1:
        return getattr(torch, record["dtype"])
    kind, shape = getattr(torch, record["dtype"]), tuple(record["shape"])
    if "operand" in record:
        numbers = np.asarray(operands[record["operand"]])
        if "int" in record["dtype"] and numbers.dtype.kind == "f":
            numbers = np.rint(numbers).astype(np.int64)
        return torch.from_numpy(np.array(numbers)).to(kind).reshape(shape)
    raw = bytearray(base64.b64decode(record["bytes"]))
    return torch.frombuffer(raw, dtype=kind).reshape(shape) if raw else torch.empty(shape, dtype=kind)


def body_of(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Arguments as text; tensors are already records (see :func:`inlined`, and ``{"operand": place, ...}``)."""
    return json.dumps({"args": list(args), "kwargs": kwargs})


def inlined(tensor: Any) -> dict[str, Any]:
    """Return a small known tensor as a record with all its numbers."""
    array = tensor.detach().contiguous().cpu()
    text = base64.b64encode(array.reshape(-1).view(_torch().uint8).numpy().tobytes()) if array.numel() else b""
    kind = str(array.dtype).removeprefix("torch.")
    return {"bytes": text.decode("ascii"), "dtype": kind, "shape": list(array.shape)}
