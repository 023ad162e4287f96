"""An ML program as MIL text with a weight file beside it: what a build folder has for people to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.formats.coreml.spec import model_class, program
from aneforge.formats.records import (
    NUMPY,
    Function,
    Operation,
    OtherType,
    Ref,
    StoredValue,
    Type,
    ValueType,
    is_float,
)

WEIGHTS = "weights.bin"
_NAMES = {np.dtype(kind): name for name, kind in reversed(NUMPY.items()) if name != "string"}


def mil_of_package(package: Path) -> tuple[str, bytes]:
    """The text and the weights of a package that this house wrote."""
    data = package / "Data" / "com.apple.CoreML"
    model = model_class(package.name)()
    model.ParseFromString((data / "model.mlmodel").read_bytes())
    weights = data / "weights" / "weight.bin"
    return mil_text(program(model.mlProgram, package.name)), weights.read_bytes() if weights.is_file() else b""


def mil_text(functions: Mapping[str, Function]) -> str:
    """A program in the language that compiled models are written in, which ``af.load`` reads."""
    lines = ["program(1.3)", "{"]
    for name, function in functions.items():
        ports = ", ".join(f"{kind} {port}" for port, kind in function.inputs)
        lines.append(f"    func {name}<{function.opset}>({ports}) {{")
        lines += [f"            {_operation(operation)};" for operation in function.block.operations]
        lines.append(f"        }} -> ({', '.join(function.block.outputs)});")
    return "\n".join([*lines, "}", ""])


def _operation(operation: Operation) -> str:
    """One operation in a line. What this house writes has no blocks inside operations."""
    results = ", ".join(f"{kind} {name}" for name, kind in operation.outputs)
    inputs = ", ".join(f"{name} = {_bound(bindings)}" for name, bindings in operation.inputs.items())
    kinds = [kind for _, kind in operation.outputs]
    notes = ", ".join(
        f"{name} = {_value(value, kinds[0] if name == 'val' and kinds else None)}"
        for name, value in operation.attributes.items()
    )
    return f"{results} = {operation.kind}({inputs})" + (f"[{notes}]" if notes else "")


def _bound(bindings: list[Any]) -> str:
    values = [value.name if isinstance(value, Ref) else _value(value, None) for value in bindings]
    return values[0] if len(values) == 1 else f"({', '.join(values)})"


def _value(value: Any, kind: Type | None) -> str:
    if isinstance(value, StoredValue):
        return f'{value.type}(BLOBFILE(path = string("@model_path/{WEIGHTS}"), offset = uint64({value.offset})))'
    array = np.asarray(value)
    if kind is None or isinstance(kind, OtherType):
        kind = ValueType("string" if array.dtype.kind == "U" else _NAMES[array.dtype], array.shape)
    assert isinstance(kind, ValueType)
    numbers = list(_numbers(array, kind.dtype))
    return f"{kind.dtype}({numbers[0]})" if not kind.shape else f"{kind}([{', '.join(numbers)}])"


def _numbers(array: np.ndarray, dtype: str) -> Iterator[str]:
    for number in array.reshape(-1).tolist():
        if dtype == "string":
            text = str(number).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            yield f'"{text}"'
        elif dtype == "bool":
            yield str(bool(number)).lower()
        else:
            yield float(number).hex() if is_float(dtype) and np.isfinite(number) else str(number)
