# pyright: reportMissingImports=false
"""Element types of ONNX by the names that all formats share."""

from __future__ import annotations

from typing import Any

_FLOATS = {"FLOAT": "fp32", "FLOAT16": "fp16", "DOUBLE": "fp64", "BFLOAT16": "bf16"}
_NUMBERS = {shared: name for name, shared in _FLOATS.items()}


def element_type(onnx: Any, number: int) -> str:
    if not number:
        return "undefined"
    name: str = onnx.TensorProto.DataType.Name(number)
    return _FLOATS.get(name) or name.lower()


def element_number(onnx: Any, dtype: str) -> int:
    return int(onnx.TensorProto.DataType.Value(_NUMBERS.get(dtype, dtype.upper())))
