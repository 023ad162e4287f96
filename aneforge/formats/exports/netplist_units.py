"""Backend code as the units and constants of a netplist, or all that has no published form there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aneforge.compiler.passes import is_const
from aneforge.engine.ir import Module, Op
from aneforge.engine.layers import layer_of
from aneforge.engine.native import LayerType, checked_params, layer_type
from aneforge.engine.traits import Trait
from aneforge.errors import AneforgeError, first_line
from aneforge.formats.exports.netplist_forms import ValueNames

_STEPPED = ("Conv", "Pooling")


@dataclass(frozen=True)
class WrittenUnit:
    """One unit: its type, the symbols it reads, and its parameters as the file has them."""

    name: str
    tag: str
    bottoms: tuple[str, ...]
    params: Mapping[str, Any]
    fields: Mapping[str, Any]
    kernel: np.ndarray | None = None


@dataclass(frozen=True)
class Constant:
    """A tensor that units read from a weight file."""

    name: str
    shape: tuple[int, ...]
    """NDCHW."""
    numbers: np.ndarray
    type: str = "Float16"


@dataclass(frozen=True)
class UnitRefusal:
    """A node without a published form, and why."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node} ({self.reason})"


@dataclass(frozen=True)
class Rounded:
    """A parameter that fp16, which a netplist states it in, does not hold."""

    node: str
    key: str
    stated: float
    stored: float

    def __str__(self) -> str:
        return f"{self.node}: {self.key} {self.stated!r} is stored as {self.stored!r}"


def distinct(name: str, taken: set[str]) -> str:
    """The name, or with a number behind it; from now on it is taken."""
    candidate, number = name, 0
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate


@dataclass
class Units:
    """What a module becomes. ``symbols`` holds the symbol of every value, by the op that gives it."""

    module: Module
    names: ValueNames
    constant_names: frozenset[str]
    taken: set[str]
    outputs: Mapping[Op, str]
    """The name of each result that has one."""
    symbols: dict[Op, str] = field(default_factory=dict)
    units: list[WrittenUnit] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    refusals: list[UnitRefusal] = field(default_factory=list)
    rounded: list[Rounded] = field(default_factory=list)

    def build(self) -> Units:
        for op in self.module.ops:
            if op.kind == "live_in":
                self.symbols[op] = op.attrs["name"]
            elif op.kind not in ("const_in", "live_out"):
                self._unit(op)
        for op in self.module.output.operands:
            if is_const(op):
                self._symbol(op, "result")
        return self

    def _name(self, op: Op) -> str:
        """The user's name of the value that is no output's, else the output's, else the op that it comes from."""
        names = self.names.of(op)
        own = [name for name in names if name in self.names.given and name != self.outputs.get(op)]
        if own and own[0] not in self.taken:
            return distinct(own[0], self.taken)
        if op in self.outputs:
            return self.outputs[op]  # reserved for it
        stem = names[-1] if names else "_".join([*op.sources[-1:], op.kind])
        return distinct(stem, self.taken)

    def _symbol(self, op: Op, reader: str, kind: str = "Float16") -> str:
        """What a unit calls an operand; a constant is listed when it is first read."""
        symbol = self.symbols.get(op)
        if symbol is None:
            weight = self.module.weights[op.attrs["weight"]]
            own = op.sources[0] if op.sources and op.sources[0] in self.constant_names else f"{reader}_constant"
            symbol = self.symbols[op] = distinct(own, self.taken)
            if weight.encoded is not None:
                raise AneforgeError(f"a constant is stored as {weight.encoding}; constants in a netplist must be fp16")
            self.constants.append(Constant(symbol, op.shape, weight.array.reshape(op.shape), kind))
        return symbol

    def _unit(self, op: Op) -> None:
        name = self.symbols[op] = self._name(op)
        given = [own for own in (*self.names.of(op), *reversed(op.sources)) if own in self.names.given]
        node = given[0] if given else name
        try:
            known, params, fields = self._spelled(op, node)
            operands = op.operands[:1] if op.is_a(Trait.CONVOLUTION) else op.operands
            bottoms = tuple(
                self._symbol(operand, name, "UInt16" if op.kind == "gather_nd" and place else "Float16")
                for place, operand in enumerate(operands)
            )
            kernel = self._kernel(op.operands[1]) if op.is_a(Trait.CONVOLUTION) else None
        except (AneforgeError, ValueError) as error:
            self.refusals.append(UnitRefusal(node, first_line(error)))
            return
        self.units.append(WrittenUnit(name, known.tag, bottoms, params, fields, kernel))

    def _spelled(self, op: Op, node: str) -> tuple[LayerType, dict[str, Any], Mapping[str, Any]]:
        layer = layer_of(op)
        if any(operand.type is not None and operand.type.dtype == "i1" for operand in op.operands):
            raise AneforgeError(f"{op.kind} reads truth values; a unit must read fp16")
        if layer is None:
            raise AneforgeError(f"{op.kind} is not supported; the published schema has no unit for it")
        if op.kind == "resample" and (op["coordinate_mode"], op["background_value"]) != ("NonNormalized", 0.0):
            raise AneforgeError("a netplist has keys for places in pixels with zeros outside only; use those")
        known = layer_type(layer.type)
        if not known.is_published:
            raise AneforgeError(f"{known.tag} is not supported; the published schema has no names for its parameters")
        params = checked_params(known, _stated(known.tag, layer.params))
        return known, {key: self._stored(known, key, value, node) for key, value in params.items()}, layer.fields

    def _stored(self, known: LayerType, key: str, value: Any, node: str) -> Any:
        """A parameter as a file has it: fp16 as its bit pattern, lists for tuples."""
        if known.params[key].kind == "half":
            half = np.float16(value)
            if float(half) != float(value):
                self.rounded.append(Rounded(node, key, float(value), float(half)))
            return int(half.view(np.uint16))
        return list(value) if isinstance(value, tuple) else value

    def _kernel(self, op: Op) -> np.ndarray:
        if not is_const(op):
            raise AneforgeError("the kernel is computed at run time; a unit's kernel is stored")
        weight = self.module.weights[op.attrs["weight"]]
        if weight.encoded is not None or op.type is None or op.type.dtype != "f16":
            raise AneforgeError("the kernel is compressed; kernels in a netplist must be fp16")
        return weight.array


def _stated(tag: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters in the order and number that a file has them in."""
    stated = dict(params)
    if tag in _STEPPED:
        depth, rows, columns = stated["Step"]
        if rows != columns or depth != 1:
            raise AneforgeError(f"the steps are {rows} and {columns}; the order of unequal steps is not published")
        stated["Step"] = (rows, rows, 1)
    if tag == "ArgMinMax" and set(stated.pop("Step")) != {1}:
        raise AneforgeError("the window moves by more than 1; a netplist has no key for it, so the step must be 1")
    if tag == "Conv" and set(stated.pop("Dilation")) != {1}:
        raise AneforgeError("the kernel is dilated; a netplist has no key for it, so the dilation must be 1")
    return stated


def operands_of(units: Sequence[WrittenUnit]) -> Iterator[tuple[str, str]]:
    """Every symbol that is read, with its first reader."""
    seen: set[str] = set()
    for unit in units:
        for symbol in unit.bottoms:
            if symbol not in seen:
                seen.add(symbol)
                yield symbol, unit.name
