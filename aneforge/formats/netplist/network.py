"""A network of a netplist as a graph: its ports, the constants in weight files, and its units in order of use.

Weight files are mapped, and are in the netplist's own folder only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aneforge.chips import store
from aneforge.engine.authoring.build import build_layer
from aneforge.engine.native import Dimensions, LayerType, ParamError, checked_params, layer_type
from aneforge.errors import AneforgeError, LoadError, first_line
from aneforge.files import regular_file, spend
from aneforge.formats.cache import depends_on
from aneforge.formats.netplist.procedures import InputPort, OutputPort, Procedure
from aneforge.formats.netplist.schema import MOST, Keys, collision, quoted, repeated, syntax
from aneforge.graph import builders as af
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor

_SIZES = ("BatchSize", "Channels", "Depth", "Height", "Width")
_STORED = {"Float16": np.float16, "UInt16": np.uint16}


def _shape(sizes: Dimensions) -> tuple[int, ...]:
    """[N, C, H, W], or [N, C, D, H, W] where there is a depth."""
    n, c, d, h, w = sizes
    return (n, c, h, w) if d == 1 else (n, c, d, h, w)


class _Weights:
    """The files that a network lists; each is opened when numbers of it are asked for."""

    def __init__(self, netplist: Path, files: Sequence[str]) -> None:
        self.folder, self.files = netplist.resolve().parent, files
        self._paths: dict[int, tuple[Path, int]] = {}

    def numbers(self, key: str, index: Any, offset: Any, shape: tuple[int, ...], kind: Any) -> np.ndarray:
        """Numbers of one file. ``key`` names what states their place."""
        if not isinstance(index, int) or not 0 <= index < len(self.files):
            raise LoadError(f"{key}: weight file {quoted(index)} is out of range; Weights has {len(self.files)} files")
        path, size = self._path(index)
        needed = math.prod(shape) * np.dtype(kind).itemsize
        if not isinstance(offset, int) or offset < 0 or offset + needed > size:
            raise LoadError(
                f"{key}: weight file {quoted(self.files[index])} has {size} bytes; "
                f"the {needed} bytes at offset {quoted(offset)} are not inside it"
            )
        return np.memmap(path, kind, "r", offset, shape)

    def _path(self, index: int) -> tuple[Path, int]:
        known = self._paths.get(index)
        if known is not None:
            return known
        name = self.files[index]
        where = f"weight file {quoted(name)}"
        try:
            path = (self.folder / name).resolve()
            inside = path.is_relative_to(self.folder)
            exists = inside and path.exists()
        except (OSError, ValueError, RuntimeError):  # a name that no file can have
            raise LoadError(f"{where} is not a name for a file") from None
        if not inside:
            raise LoadError(f"{where} points outside the netplist's folder; it must be inside")
        depends_on(path)  # also where it is missing: a copy of it changes the answer
        if not exists:
            raise LoadError(f"{where} does not exist; copy it to the netplist's folder")
        regular_file(path, where)
        self._paths[index] = path, path.stat().st_size
        return self._paths[index]


class Network:
    """One network while it becomes a graph."""

    def __init__(self, file: Path, procedure: Procedure) -> None:
        self.file, self.procedure = file.name, procedure
        where = f"{file.name}: network {quoted(procedure.network)}"
        record = procedure.record
        lists = {key: Keys(where, {key: record.get(key, [])}, "network").names(key) for key in ("Units", "Constants")}
        self.units, self.constants = lists["Units"], frozenset(lists["Constants"])
        if not self.units:
            raise syntax(f"{where}: key 'Units' is missing or empty; list the units")
        spend("nodes", len(self.units), where)
        self.keys = Keys(where, record, "network", {*self.units, *self.constants, *procedure.bindings})
        self.weights = _Weights(file, self.keys.names("Weights", []))
        self._check_names(lists["Constants"])
        self.values: dict[str, Tensor] = {}
        self.outputs = {port.name for port in procedure.outputs}
        """Units whose value has its final name: that of an output."""
        self.named = {name: self._unit_keys(name) for name in self.units}
        self.bottoms = {name: keys.symbols("Bottom") for name, keys in self.named.items()}

    def _check_names(self, constants: Sequence[str]) -> None:
        """A symbol names one thing: a unit, a constant or an input."""
        for names, role in ((self.units, "unit"), (constants, "constant")):
            if (twice := repeated(names)) is not None:
                raise collision(self.keys.where, twice, [role, role])
        inputs = [port.name for port in self.procedure.inputs]
        units = frozenset(self.units)
        for names, other, roles in (
            (constants, units, ["a unit", "a constant"]),
            (inputs, units, ["a unit", "an input"]),
            (inputs, self.constants, ["a constant", "an input"]),
            (["Units", "Weights", "Constants"], {*units, *self.constants}, ["a unit or constant", "a key"]),
        ):
            if (name := next((name for name in names if name in other), None)) is not None:
                raise collision(self.keys.where, name, roles)

    def _unit_keys(self, name: str) -> Keys:
        if name not in self.keys:
            raise syntax(f"{self.file}: {quoted(name)}: the unit is listed but not described; add its dictionary")
        keys = Keys(f"{self.file}: {name}", self.keys.record[name], "unit")
        if keys.text("Name", name) != name:
            raise keys.wrong("Name", f"{quoted(name)}, as the unit is listed")
        keys.where = f"{self.file}: {name} ({keys.text('Type')[:60]})"
        return keys

    def graph(self) -> Graph:
        for port in self.procedure.inputs:
            self._input(port)
        for name in self._order():
            self.values[name] = self._unit(name).named(name)
        graph = Graph([self._output(port) for port in self.procedure.outputs], route="direct")
        used = {node.name for node in graph.inputs}
        for port in self.procedure.inputs:
            if port.name not in used:
                raise LoadError(f"{self.file}: input {quoted(port.name)}: no output depends on it; remove the input")
        return graph

    # Ports and constants.

    def _input(self, port: InputPort) -> None:
        shape = _shape(port.dimensions)
        if port.feeds is not None and port.name not in self.bottoms.get(port.feeds, ()):
            raise syntax(
                f"{self.file}: input {quoted(port.name)}: Name is {quoted(port.feeds)}; it must be a unit that reads "
                "the input"
            )
        if port.type == "Float16":
            self.values[port.name] = af.input(shape, name=port.name)
        else:
            self.values[port.name] = af.cast(af.input(shape, dtype="uint8", name=port.name))

    def _constant(self, name: str) -> Tensor:
        if name not in self.keys:
            raise syntax(f"constant {quoted(name)} is listed but not described; add its dictionary")
        keys = Keys(f"constant {quoted(name)}", self.keys.record[name], "constant")
        if keys.text("ConstantName", name) != name:
            raise keys.wrong("ConstantName", f"{quoted(name)}, as the constant is listed")
        sizes = Dimensions(*(keys.whole(f"Constant{key}", 1) for key in _SIZES))
        kind = keys.element_type("ConstantType", tuple(_STORED))
        packed = keys.interleave("ConstantInterleave")
        if packed > 1 and sizes.depth * sizes.height * sizes.width > 1:
            raise LoadError(
                f"{keys.where}: ConstantInterleave is {packed}; the order of packed channels in a file is not "
                "published, so that only 1 is read where a channel has several numbers"
            )
        index, offset = keys.whole("ConstantIndex", 0, least=0), keys.whole("ConstantByteOffset", 0, least=0)
        numbers = self.weights.numbers(
            f"{keys.where}: ConstantByteOffset", index, offset, _shape(sizes), _STORED[kind]
        )
        if kind != "Float16":
            if (numbers > 2048).any():
                raise LoadError(f"{keys.where}: a number is over 2048, the limit up to which fp16 holds whole numbers")
            numbers = numbers.astype(np.float16)
        return af.const(numbers, name=name)

    def _operand(self, symbol: str) -> Tensor:
        value = self.values.get(symbol)
        if value is None:
            value = self.values[symbol] = self._constant(symbol)
        return value

    def _output(self, port: OutputPort) -> Tensor:
        """The value that a binding names, or the unit of the output's own name."""
        where = f"{self.file}: output {quoted(port.name)}"
        symbol = port.name
        if port.name in self.keys and port.name not in self.named and port.name not in self.constants:
            binding = Keys(f"{where}: binding", self.keys.record[port.name], "unit")
            symbols = binding.symbols("Bottom")
            if len(symbols) != 1:
                raise binding.wrong("Bottom", "one symbol")
            symbol = symbols[0]
        elif port.name not in self.values and port.unit is not None:
            symbol = port.unit
        tensor = self._operand(symbol) if symbol in self.constants else self.values.get(symbol)
        if tensor is None:
            raise LoadError(f"{where} is not the result of any unit; name a unit as its Bottom")
        if port.channels not in (None, tensor.shape[1]):
            raise LoadError(
                f"{where}: OutputChannels is {port.channels}, but the value has {tensor.shape[1]} channels"
            )
        if tensor.name == port.name:
            return tensor
        if symbol in self.named and symbol not in self.outputs:
            self.outputs.add(symbol)
            return tensor.named(port.name)  # the caller's name stands for the unit's
        return tensor.reshape(*tensor.shape).named(port.name)  # a second name of one value is a view of it

    # Units.

    def _order(self) -> Iterator[str]:
        """Every unit after those that it reads, else in the order of the file. A unit that reads itself through others
        is refused."""
        inputs = {port.name for port in self.procedure.inputs}
        finished: set[str] = set()
        entered: dict[str, None] = {}
        for first in self.units:
            if first in finished:
                continue
            stack = [(first, iter(self.bottoms[first]))]
            entered[first] = None
            while stack:
                name, rest = stack[-1]
                symbol = next(rest, None)
                if symbol is None:
                    stack.pop()
                    entered.pop(name)
                    finished.add(name)
                    yield name
                elif symbol in entered:
                    path = [*entered][[*entered].index(symbol) :]
                    shown = " -> ".join([*path[:8], *(["..."] if len(path) > 8 else []), symbol])
                    raise LoadError(f"{self.file}: the units form a cycle: {shown}; a unit cannot read its own result")
                elif symbol in self.bottoms:
                    if symbol not in finished:
                        stack.append((symbol, iter(self.bottoms[symbol])))
                        entered[symbol] = None
                elif symbol not in inputs and symbol not in self.constants:
                    raise LoadError(
                        f"{self.named[name].where}: bottom {quoted(symbol)} must be an input, a constant or a unit of "
                        "the network"
                    )

    def _unit(self, name: str) -> Tensor:
        keys = self.named[name]
        tag = keys.text("Type")
        try:
            known = _known_type(tag)
            params = _params(known, keys.record.get("Params", {}))
            _check_types(keys, params, len(self.bottoms[name]))
            if known.is_published:
                checked_params(known, params)  # a wrong key is told before a weight file is looked for
            bottoms = [self._operand(symbol) for symbol in self.bottoms[name]]
            if known.tag == "InputView":
                _check_view(known, params, bottoms)
            return build_layer(tag, bottoms, params, keys.record, lambda shape: self._kernel(params, shape))
        except ParamError as error:
            raise LoadError(f"{keys.where}: {_renamed(tag, error, keys.record)}") from None
        except (AneforgeError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            message = first_line(error)
            own = message.startswith(keys.where)  # a check of the unit's own keys says where already
            raise LoadError(message if own else f"{keys.where}: {message}") from None

    def _kernel(self, params: Mapping[str, Any], shape: tuple[int, ...]) -> np.ndarray:
        index, offset = params.get("KernelIndex", 0), params.get("KernelOffset", 0)
        return self.weights.numbers("KernelOffset", index, offset, shape, np.float16)


def _known_type(tag: str) -> LayerType:
    if tag in store.load("enums")["unit_type"]["v"]:
        try:
            return layer_type(tag)
        except AneforgeError:
            raise LoadError("the type is known but not supported; the published schema has no keys for it") from None
    return layer_type(tag)


def _params(known: LayerType, params: Any) -> dict[str, Any]:
    """Params as numbers: a file has bit patterns of fp16 where the layer takes one."""
    if not isinstance(params, dict):
        raise syntax(f"Params is {quoted(params)}; it must be a dictionary")
    numbers = dict(params)
    for key, param in known.params.items():
        value = params.get(key)
        if isinstance(value, (list, dict)) and param.kind != "array":
            raise ParamError(key, f"{key} is {quoted(value)}; it must be one value")
        if isinstance(value, str) and len(value) > 100:
            raise ParamError(key, f"{key} is {quoted(value)}; no name of a value is as long")
        if param.kind == "half" and key in params:
            numbers[key] = _half(key, value)
    return numbers


def _half(key: str, bits: Any) -> float:
    if not isinstance(bits, int) or isinstance(bits, bool) or not 0 <= bits <= 0xFFFF:
        raise ParamError(key, f"{key} is {quoted(bits)}; it must be the bit pattern of an fp16 number, 0 to 65535")
    return float(np.array(bits, np.uint16).view(np.float16))


def _check_types(keys: Keys, params: Mapping[str, Any], bottoms: int) -> None:
    """Results are fp16, positions too (exact below 2048); a file may say UInt16 for positions."""
    keys.element_type("OutputType", ("Float16", "UInt16") if params.get("Indices") else ("Float16",))
    if "InputType" in keys:
        stated = keys.symbols("InputType")
        if len(stated) not in (1, bottoms) or not set(stated) <= {*_STORED, "UInt8"}:
            raise keys.wrong("InputType", f"a list of {bottoms} types, each Float16, UInt16 or UInt8")


def _check_view(known: LayerType, params: Mapping[str, Any], bottoms: Sequence[Tensor]) -> None:
    """The run of elements lies inside its axis; the errors have names of their own (layers.json InputView)."""
    numbers = {key: params.get(key, 1) for key in ("Offset", "Size", "Step")}
    if not bottoms or not all(isinstance(number, int) and abs(number) < MOST for number in numbers.values()):
        return  # the parameters' own check says it
    offset, size, step = numbers.values()
    axes = {"Channel": 1, "Height": -2, "Width": -1}
    extent = bottoms[0].shape[axes[params["Dimension"]]] if params.get("Dimension") in axes else MOST
    for key, is_good, wanted in (
        ("Step", step != 0, "1 or more, or less than 0 to run backwards"),
        ("Offset", 0 <= offset < extent, f"0 to {extent - 1}"),
        ("Size", size >= 1 and 0 <= offset + (size - 1) * step < extent, f"such that the view ends within {extent}"),
    ):
        if not is_good:
            raise ParamError(key, f"{key} is {numbers[key]}; it must be {wanted}", f"Invalid{known.tag}{key}")
    spend("folded_bytes", 128 * size if step != 1 else 0, "InputView")


def _renamed(tag: str, error: ParamError, record: Mapping[str, Any]) -> str:
    """The message under the compiler's own name for the key, where the layer has one for a wrong value."""
    own = f"Invalid{tag}{error.key}"
    is_wrong = error.key in record.get("Params", {}) and own in layer_type(tag).reject_strings
    return first_line(error).replace(f"({error.name})", f"({own if is_wrong else error.name})")
