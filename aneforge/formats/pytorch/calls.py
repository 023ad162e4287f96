# pyright: reportMissingImports=false
"""The arguments of a call: in the order of the op's signature, as arrays for a rule, as text for the host."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from aneforge.errors import LoadError
from aneforge.formats.pytorch.host import body_of, inlined
from aneforge.formats.records import ValueType
from aneforge.formats.values import as_tensor
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.host import host
from aneforge.graph.tensor import Tensor

Operand = tuple[Any, ValueType]
"""A value, and the type that PyTorch gives it."""

_INLINE = 4096
_MOST_INLINE = 1 << 20
_WIDE = ("float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")


def order_arguments(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional arguments with defaults filled in, and keyword-only arguments."""
    positional: list[Any] = []
    keyword_only: dict[str, Any] = {}
    for place, argument in enumerate(target._schema.arguments):
        default = argument.default_value if argument.has_default_value() else None
        if argument.kwarg_only:
            keyword_only[argument.name] = kwargs.get(argument.name, default)
        else:
            positional.append(args[place] if place < len(args) else kwargs.get(argument.name, default))
    return positional, keyword_only


def numbers_of(value: Any) -> np.ndarray:
    """Return a known value as an array: a view of the tensor's memory if NumPy has its type."""
    if isinstance(value, Encoded):
        return value.decode()
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    plain = value.detach().cpu()
    if plain.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        plain = plain.to(torch.float32)
    return plain.resolve_conj().resolve_neg().numpy()


def as_arrays(value: Any) -> Any:
    """Return arguments for a rule: known tensors as arrays, types as names, devices and layouts as None."""
    if isinstance(value, dict):
        return {name: as_arrays(argument) for name, argument in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_arrays(argument) for argument in value]
    if isinstance(value, torch.Tensor):
        return numbers_of(value)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
        return None
    return value


class _Arguments:
    """The arguments of a host op as JSON records, and the tensors that they refer to."""

    def __init__(self, stated: Sequence[Operand]) -> None:
        self.types = {id(value): kind for value, kind in stated}
        self.operands: list[Tensor] = []

    def encode(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self.encode(element) for element in value]
        if isinstance(value, torch.dtype):
            return {"dtype": _host_dtype(str(value).removeprefix("torch."))}
        if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
            return None
        if isinstance(value, Tensor):
            kind = self.types.get(id(value)) or ValueType("float32", value.shape)
            return self._add_operand(value, "bool" if value.dtype == "bool" else _host_dtype(kind.dtype), kind.shape)
        if isinstance(value, (Encoded, torch.Tensor)):
            return self._known(value)
        return value

    def _add_operand(self, tensor: Tensor, kind: str, shape: Sequence[int | None]) -> dict[str, Any]:
        self.operands.append(tensor)
        return {"operand": len(self.operands) - 1, "dtype": kind, "shape": list(shape)}

    def _known(self, value: Any) -> dict[str, Any]:
        """A small tensor is part of the text; a large one is a weight of the graph."""
        if isinstance(value, Encoded):
            return self._add_operand(as_tensor(value), "float32", value.shape)
        is_odd = value.dtype.is_floating_point and value.numel() <= _MOST_INLINE and bool(torch.isnan(value).any())
        if value.dtype.is_floating_point and value.numel() > _INLINE and not is_odd:  # a NaN is no weight of a graph
            return self._add_operand(as_tensor(numbers_of(value)), "float32", value.shape)
        if value.numel() > _MOST_INLINE:
            raise LoadError(
                f"a constant of {value.numel():,} integers is too large for a host op; the limit is {_MOST_INLINE:,}"
            )
        return inlined(value.to(torch.float32) if value.dtype.is_floating_point else value)


def _host_dtype(kind: str) -> str:
    """Return the type for the host, which computes floats in float32."""
    return "float32" if kind in _WIDE else kind


def host_nodes(
    kind: str,
    results: Sequence[ValueType],
    used_results: Container[int],
    positional: Sequence[Any],
    keyword_only: Mapping[str, Any],
    operands: Sequence[Operand],
    reason: str,
) -> list[Tensor | None]:
    """Return the results of an op that the host computes; None for those that are not read."""
    arguments = _Arguments(operands)
    args = [arguments.encode(argument) for argument in positional]
    kwargs = {name: arguments.encode(argument) for name, argument in keyword_only.items() if argument is not None}
    body = body_of(args, {name: argument for name, argument in kwargs.items() if argument is not None})
    return [
        host(
            arguments.operands,
            language="torch",
            kind=kind,
            body=body,
            shape=result.static or (1,),
            dtype="bool" if result.dtype == "bool" else "int32" if "int" in result.dtype else "fp16",
            output=place,
            reason=reason,
        )
        if place in used_results
        else None
        for place, result in enumerate(results)
    ]


def in_fp16(value: Tensor) -> Tensor:
    """Convert integers to fp16 on the host."""
    operand = {"operand": 0, "dtype": "int64", "shape": list(value.shape)}
    return host(
        [value],
        language="torch",
        kind="aten._to_copy.default",
        body=body_of([operand], {"dtype": {"dtype": "float32"}}),
        shape=value.shape,
        reason="it converts integers to fp16, the type that the engine computes in",
    )
