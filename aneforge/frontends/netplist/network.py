"""A network of a netplist: ports, constants in weight files, and units in their order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.authoring import build_layer
from aneforge.cache import depends_on
from aneforge.errors import AneforgeError
from aneforge.frontends import LoadError
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor
from aneforge.native import LayerType, layer_type

__all__ = ["Network"]

_TYPES = {"Float16": np.float16, "UInt16": np.uint16}
_MOST = 1 << 31


def _values(known: LayerType, params: Any) -> dict[str, Any]:
    """Params as numbers: a file has bit patterns of fp16 where the layer takes one."""
    if not isinstance(params, dict):
        raise LoadError("Params must be a dictionary")
    halves = [key for key in params if key in known.params and known.params[key].kind == "half"]
    return {**params, **{key: _half(key, params[key]) for key in halves}}


def _half(key: str, bits: Any) -> float:
    if not isinstance(bits, int) or isinstance(bits, bool) or not 0 <= bits <= 0xFFFF:
        raise LoadError(f"{key} is {bits!r}; it must be the bit pattern of an fp16 number, 0 to 65535")
    return float(np.array(bits, np.uint16).view(np.float16))


class Network:
    """Tensors are [N, C, H, W]."""

    def __init__(self, file: Path, record: Mapping[str, Any]) -> None:
        self.file, self.record = file, record
        self.units = [str(name) for name in record.get("Units", [])]
        self.values: dict[str, Tensor] = {}

    # Ports and constants.

    def port(self, record: Mapping[str, Any]) -> None:
        name = str(record.get("InputName", record.get("Name", "")))
        where = f"{self.file.name}: input {name!r}"
        if record.get("InputType", "Float16") != "Float16":
            raise LoadError(f"{where}: type {record['InputType']!r} is not supported; use Float16")
        keys = ("BatchSize", "InputChannels", "InputDepth", "InputHeight", "InputWidth")
        n, c, d, h, w = (_extent(record.get(key, 1), f"{where}: {key}") for key in keys)
        if d != 1:
            raise LoadError(f"{where}: a depth of {d} is not supported; the depth must be 1")
        self.values[name] = af.input((n, c, h, w), name=name)

    def operand(self, symbol: Any) -> Tensor:
        if symbol in self.values:
            return self.values[symbol]
        if symbol in self.record.get("Constants", []):
            return self._constant(str(symbol))
        raise LoadError(f"bottom {symbol!r} must be an input, a constant or an earlier unit")

    def _constant(self, name: str) -> Tensor:
        record = self.record.get(name)
        if not isinstance(record, dict):
            raise LoadError(f"constant {name!r} is not described; add its dictionary to the network")
        keys = ("BatchSize", "Channels", "Depth", "Height", "Width")
        n, c, d, h, w = (_extent(record.get(f"Constant{key}", 1), f"constant {name!r}: {key}") for key in keys)
        kind = record.get("ConstantType", "Float16")
        if kind not in _TYPES or d != 1:
            raise LoadError(
                f"constant {name!r} has type {kind!r} and depth {d}; use {' or '.join(_TYPES)} and depth 1"
            )
        index, offset = record.get("ConstantIndex", 0), record.get("ConstantByteOffset", 0)
        numbers = self.numbers(index, offset, (n, c, h, w), _TYPES[kind])
        self.values[name] = af.const(numbers.astype(np.float16), name=name)
        return self.values[name]

    def numbers(self, index: Any, offset: Any, shape: tuple[int, ...], kind: Any = np.float16) -> np.ndarray:
        """Numbers of a weight file, as a memory map; only files in the netplist's folder are read."""
        files = self.record.get("Weights", [])
        if not isinstance(index, int) or not 0 <= index < len(files):
            raise LoadError(f"weight file {index!r} is out of range; Weights has {len(files)} files")
        folder = self.file.resolve().parent
        path = (folder / str(files[index])).resolve()
        if not path.is_relative_to(folder):
            raise LoadError(f"weight file {files[index]!r} points outside the netplist's folder; it must be inside")
        if not path.is_file():
            raise LoadError(f"weight file {files[index]!r} does not exist; copy it to the netplist's folder")
        size = int(np.prod(shape, dtype=object)) * np.dtype(kind).itemsize
        if not isinstance(offset, int) or offset < 0 or offset + size > path.stat().st_size:
            raise LoadError(
                f"weight file {files[index]!r} has {path.stat().st_size} bytes; "
                f"the {size} bytes at offset {offset!r} are not inside it"
            )
        depends_on(path)
        return np.memmap(path, kind, "r", offset, shape)

    # Units.

    def unit(self, name: str) -> None:
        record = self.record.get(name)
        where = f"{self.file.name}: {name}"
        if not isinstance(record, dict):
            raise LoadError(f"{where}: the unit is listed but not described; add its dictionary to the network")
        try:
            tag = str(record.get("Type", ""))
            where = f"{where} ({tag})"
            known = layer_type(tag)
            params = _values(known, record.get("Params", {}))
            place = params.get("KernelIndex", 0), params.get("KernelOffset", 0)
            tensor = build_layer(tag, self.bottoms(record), params, record, lambda shape: self.numbers(*place, shape))
        except (AneforgeError, ValueError, TypeError, KeyError, IndexError) as error:
            raise LoadError(f"{where}: {str(error).splitlines()[0]}") from None
        self.values[name] = tensor.named(name)

    def bottoms(self, record: Mapping[str, Any]) -> list[Tensor]:
        bottom = record.get("Bottom", [])
        return [self.operand(name) for name in (bottom if isinstance(bottom, list) else [bottom])]

    def output(self, record: Mapping[str, Any]) -> Tensor:
        name = str(record.get("OutputName", record.get("Name", "")))
        binding = self.record.get(name)
        source: Any = name
        if isinstance(binding, dict) and name not in self.units:
            source = binding.get("Bottom", name)
        symbol = str(source[0]) if isinstance(source, list) and source else str(source)
        tensor = self.values.get(symbol, self.values.get(str(record.get("Name", ""))))
        if tensor is None:
            raise LoadError(
                f"{self.file.name}: output {name!r} is not the result of any unit; name a unit as its Bottom"
            )
        return tensor if tensor.name == name else tensor.named(name)


def _extent(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < _MOST:
        raise LoadError(f"{what} is {value!r}; it must be an integer of 1 or more")
    return value
