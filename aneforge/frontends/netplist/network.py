"""A network of a netplist while it is read: ports, constants in weight files, and units in their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError
from aneforge.frontends import LoadError
from aneforge.graph import builders as af
from aneforge.graph.tensor import Tensor

__all__ = ["Network", "Rule", "Unit", "extent"]

_TYPES = {"Float16": np.float16, "UInt16": np.uint16}
_MOST = 1 << 31

Rule = Callable[["Network", "Unit"], Tensor]


class Unit:
    """One unit while it is read: its name, type and parameters, with an error for every key that is missing."""

    def __init__(self, name: str, told: Mapping[str, Any]) -> None:
        self.name, self.told = name, told
        self.kind = str(told.get("Type", ""))
        params = told.get("Params", {})
        if not isinstance(params, dict):
            raise LoadError("Params is no record")
        self.params: Mapping[str, Any] = params

    def has(self, key: str) -> bool:
        return key in self.params

    def param(self, key: str, default: Any = None) -> Any:
        if key in self.params:
            return self.params[key]
        if default is None:
            raise LoadError(f"needs the parameter {key} (InvalidParamSyntax)")
        return default

    def whole(self, key: str, default: int | None = None) -> int:
        value = self.param(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not -_MOST < value < _MOST:
            raise LoadError(f"{key} is {value!r}, not a whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A parameter that is an fp16 bit pattern."""
        if key not in self.params and default is not None:
            return default
        bits = self.whole(key)
        if not 0 <= bits <= 0xFFFF:
            raise LoadError(f"{key} is {bits}; it is the bit pattern of an fp16 number")
        return float(np.array(bits, np.uint16).view(np.float16))

    def choice(self, key: str, values: Mapping[str, Any]) -> Any:
        value = self.param(key)
        if value not in values:
            raise LoadError(f"{key} is {value!r}; known are {', '.join(values)}")
        return values[value]


class Network:
    """Tensors are [N, C, H, W]; ``rules`` make one of each unit, ``unread`` says why some types have none."""

    def __init__(
        self, file: Path, told: Mapping[str, Any], rules: Mapping[str, Rule], unread: Mapping[str, str]
    ) -> None:
        self.file, self.told, self.rules, self.unread = file, told, rules, unread
        self.units = [str(each) for each in told.get("Units", [])]
        self.values: dict[str, Tensor] = {}

    # Ports and constants.

    def port(self, told: Mapping[str, Any]) -> None:
        name = str(told.get("InputName", told.get("Name", "")))
        where = f"{self.file.name}: input {name!r}"
        if told.get("InputType", "Float16") != "Float16":
            raise LoadError(f"{where}: type {told['InputType']!r}; ports of Float16 are read")
        keys = ("BatchSize", "InputChannels", "InputDepth", "InputHeight", "InputWidth")
        n, c, d, h, w = (extent(told.get(key, 1), f"{where}: {key}") for key in keys)
        if d != 1:
            raise LoadError(f"{where}: a depth of {d}; images of depth 1 are read")
        self.values[name] = af.input((n, c, h, w), name=name)

    def operand(self, symbol: Any) -> Tensor:
        if symbol in self.values:
            return self.values[symbol]
        if symbol in self.told.get("Constants", []):
            return self._constant(str(symbol))
        raise LoadError(f"reads {symbol!r}, which no input, constant or earlier unit gives")

    def _constant(self, name: str) -> Tensor:
        told = self.told.get(name)
        if not isinstance(told, dict):
            raise LoadError(f"constant {name!r} is not described")
        keys = ("BatchSize", "Channels", "Depth", "Height", "Width")
        n, c, d, h, w = (extent(told.get(f"Constant{key}", 1), f"constant {name!r}: {key}") for key in keys)
        kind = told.get("ConstantType", "Float16")
        if kind not in _TYPES or d != 1:
            raise LoadError(f"constant {name!r} of type {kind!r} and depth {d}")
        place, offset = told.get("ConstantIndex", 0), told.get("ConstantByteOffset", 0)
        numbers = self.numbers(place, offset, (n, c, h, w), _TYPES[kind])
        self.values[name] = af.const(numbers.astype(np.float16), name=name)
        return self.values[name]

    def numbers(self, place: Any, offset: Any, shape: tuple[int, ...], kind: Any = np.float16) -> np.ndarray:
        """Numbers of a weight file, mapped; only files of the netplist's own folder are read."""
        files = self.told.get("Weights", [])
        if not isinstance(place, int) or not 0 <= place < len(files):
            raise LoadError(f"weight file {place!r} of {len(files)}")
        folder = self.file.resolve().parent
        path = (folder / str(files[place])).resolve()
        if not path.is_relative_to(folder):
            raise LoadError(f"the weight file {files[place]!r} points outside the netplist's folder, which is refused")
        if not path.is_file():
            raise LoadError(f"the weight file {files[place]!r} is not there")
        size = int(np.prod(shape, dtype=object)) * np.dtype(kind).itemsize
        if not isinstance(offset, int) or offset < 0 or offset + size > path.stat().st_size:
            raise LoadError(f"{size} bytes from {offset!r} of {files[place]!r}, which has {path.stat().st_size}")
        return np.memmap(path, kind, "r", offset, shape)

    # Units.

    def unit(self, name: str) -> None:
        told = self.told.get(name)
        where = f"{self.file.name}: {name}"
        if not isinstance(told, dict):
            raise LoadError(f"{where}: the unit is listed and not described")
        try:
            unit = Unit(name, told)
            where = f"{where} ({unit.kind})"
            if unit.kind not in self.rules:
                raise LoadError(self.unread.get(unit.kind, "no unit of this type is read"))
            made = self.rules[unit.kind](self, unit)
        except (AneforgeError, ValueError, TypeError, KeyError, IndexError) as error:
            raise LoadError(f"{where}: {str(error).splitlines()[0]}") from None
        self.values[name] = made.named(name)

    def bottoms(self, unit: Unit, *counts: int) -> list[Tensor]:
        told = unit.told.get("Bottom", [])
        names = told if isinstance(told, list) else [told]
        if counts and len(names) not in counts:
            raise LoadError(f"{len(names)} bottoms; it takes {' or '.join(map(str, counts))}")
        return [self.operand(each) for each in names]

    def output(self, told: Mapping[str, Any]) -> Tensor:
        name = str(told.get("OutputName", told.get("Name", "")))
        binding = self.told.get(name)
        source: Any = name
        if isinstance(binding, dict) and name not in self.units:
            source = binding.get("Bottom", name)
        symbol = str(source[0]) if isinstance(source, list) and source else str(source)
        found = self.values.get(symbol, self.values.get(str(told.get("Name", ""))))
        if found is None:
            raise LoadError(f"{self.file.name}: output {name!r} is made by no unit")
        return found if found.name == name else found.named(name)


def extent(value: Any, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < _MOST:
        raise LoadError(f"{what} is {value!r}, not a size")
    return value
