"""The engine's own vocabulary of layers: the types that a netplist names, their parameters and their bottoms.

One table serves all who speak of native layers: the authoring functions, the netplist reader and writer, the
validators and the documentation. It is data (``layers.json``), with the few things that the data leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from aneforge.chips import store
from aneforge.chips.evidence import Fact, fact
from aneforge.errors import AneforgeError, UnknownNameError, nearest

# One native layer as a netplist states it, and the five dimensions of its tensors.


Shape = tuple[int, ...]


class Dimensions(NamedTuple):
    """The port shape five-tuple of table 22.6."""

    batch: int
    channel: int
    depth: int
    height: int
    width: int


AXES = ("Width", "Height", "Channel", "Depth")
"""The names that parameters have for axes. The batch has none."""
AXIS_NAMES = ("Batch", "Depth", "Channel", "Height", "Width")
"""The axes of a tensor of the engine, NDCHW."""
AXIS_PLACES = {name: AXIS_NAMES.index(name) for name in AXES}
"""Where an axis that parameters name lies in NDCHW."""

PLACES_OF_RANK: tuple[tuple[int, ...], ...] = ((), (4,), (2, 4), (2, 3, 4), (0, 2, 3, 4), (0, 2, 1, 3, 4))
"""Where each axis of a user's shape lies in NDCHW, by rank, as the compiler lays them out."""


def rank5(shape: Sequence[int]) -> tuple[int, ...]:
    """A user's shape laid out as NDCHW.

    Rank 4 is NCHW with depth one, rank 5 is NCDHW as written; rank 3 is CHW, rank 2 is rows as channels and
    columns as width (a matrix [M, K] is C = M, W = K: listing 22.1), rank 1 is a line along the width.
    """
    laid = [1] * len(AXIS_NAMES)
    for place, extent in zip(PLACES_OF_RANK[len(shape)], shape, strict=True):
        laid[place] = extent
    return tuple(laid)


def dimensions(shape: Shape) -> Dimensions:
    """A shape of rank 0 to 5 as batch, channel, depth, height and width."""
    n, d, c, h, w = rank5(shape)
    return Dimensions(n, c, d, h, w)


@dataclass(frozen=True)
class NativeLayer:
    """A unit: its type, its typed parameters and the shapes of its bottoms.

    Parameters hold numbers, never fp16 bit patterns: those exist in a file only. ``bottoms`` are shapes of rank 0 to
    5, as :func:`dimensions` reads them. ``fields`` holds what a unit states outside its Params (``OutputChannels``,
    ``NumGroups``).
    """

    type: str
    params: Mapping[str, Any] = field(default_factory=dict)
    bottoms: tuple[Shape, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)


# The types of native layers, and which parameters each of them takes (``layers.json``).


SYNTAX = "InvalidParamSyntax"
"""What the compiler's parsers call a parameter that is missing, unknown or of another type (chapter 26)."""

_MOST = 1 << 31  # of an integer


class ParamError(AneforgeError, ValueError):
    """A parameter that the layer's parser refuses; ``name`` is the compiler's name for the error."""

    def __init__(self, key: str, message: str, name: str = SYNTAX) -> None:
        self.key, self.name = key, name
        super().__init__(f"{message} ({name})")


@dataclass(frozen=True)
class Param:
    """One key of Params."""

    key: str
    kind: str
    """``int``, ``bool``, ``float``, ``half`` (a bit pattern of fp16 in a file), ``enum`` or ``array``."""
    required: bool
    default: Any
    values: tuple[Any, ...] = ()
    """The listed values; empty where none are listed."""
    fields: tuple[Param, ...] = ()
    """Of an array of dictionaries: the keys of each."""

    def check(self, value: Any) -> Any:
        """The value in its own type, or an error that says what it must be."""
        is_good, wanted = _KINDS[self.kind]
        if not is_good(value):
            raise ParamError(self.key, f"{self.key} is {value!r}; it must be {wanted}")
        if self.kind != "array":
            self._choose(value)
            return value
        return tuple(self._entry(entry) for entry in value)

    def _entry(self, entry: Any) -> Any:
        if not self.fields:
            self._choose(entry)
            return entry
        keys = [param.key for param in self.fields]
        if not isinstance(entry, Mapping) or set(entry) != set(keys):
            wanted = " and ".join(keys)
            raise ParamError(self.key, f"an entry of {self.key} is {entry!r}; it must have {wanted}")
        return {param.key: param.check(entry[param.key]) for param in self.fields}

    def _choose(self, value: Any) -> None:
        """Listed integers are an envelope that the validator checks; listed names are all that a parser reads."""
        if self.values and isinstance(self.values[0], str) and value not in self.values:
            choices = ", ".join(self.values)
            raise ParamError(self.key, f"{self.key} is {value!r}; choose one: {choices}")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_MOST < value < _MOST


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_KINDS: dict[str, tuple[Any, str]] = {
    "int": (_is_int, "an integer"),
    "bool": (lambda value: isinstance(value, bool) or value in (0, 1), "true or false"),
    "float": (_is_number, "a number"),
    "half": (_is_number, "a number"),
    "enum": (lambda value: isinstance(value, (str, int)) and not isinstance(value, bool), "a name"),
    "array": (lambda value: isinstance(value, (list, tuple)), "a list"),
}


@dataclass(frozen=True, eq=False)
class LayerType:
    """One type of layer."""

    name: str
    """As the descriptor and the validator have it: ``MatrixMult``."""
    tag: str
    """As a unit states it: ``MatrixMultiplication``."""
    validator: str | None
    """The exported function that checks it; None where there is none."""
    descriptor: str | None
    fewest: int
    most: int | None
    """How many bottoms it takes at least and at most; None for any number."""
    params: Mapping[str, Param]
    """By key; empty where none are published."""
    reject_strings: tuple[str, ...]
    constraints: tuple[str, ...]
    evidence: Fact[Any]

    @property
    def is_published(self) -> bool:
        """Whether the keys of its parameters are known, so that a netplist can state it."""
        return bool(self.params) or self.name in _WITHOUT_PARAMS


_WITHOUT_PARAMS = frozenset(("CrossProduct", "Flatten", "MatrixMult", "Shape"))
"""Layers that were authored with empty Params (layers.json). An empty list of any other layer means that its keys are
not published."""


@cache
def _by_name() -> Mapping[str, LayerType]:
    document = store.load("layers")
    table: dict[str, LayerType] = {}
    for row in (*document["layers"], *document["unit_types_without_exported_validator"]):
        known = _layer_type(row, document["evidence"])
        for name in (known.tag, known.name):
            table.setdefault(name, known)
    return table


def _layer_type(row: Mapping[str, Any], evidence: Any) -> LayerType:
    fewest, most = _bottoms(row["bottoms"])
    tag = row["type_tag"]
    records = {record["key"]: record for record in row["params"]}
    nested = {key for record in records.values() for key in _fields(record)}
    return LayerType(
        name=row.get("name", tag),
        tag=tag,
        validator=row.get("validator"),
        descriptor=row.get("descriptor"),
        fewest=fewest,
        most=most,
        params={key: _param(record, records) for key, record in records.items() if key not in nested},
        reject_strings=tuple(row.get("reject_strings", ())),
        constraints=tuple(row["constraints"]),
        evidence=fact({**row, "v": tag}, evidence, about=f"layer {tag}"),
    )


def _bottoms(text: str) -> tuple[int, int | None]:
    """``1 (+weights)``, ``4 or 5 (Q, K, V, scale[, mask])``, ``variadic, >=2``: the numbers outside brackets."""
    counts = [int(number) for number in re.findall(r"\d+", re.sub(r"\(.*?\)", "", text))]
    return min(counts), None if ">=" in text else max(counts)


def _fields(record: Mapping[str, Any]) -> list[str]:
    """The keys of ``array of {Dimension, Size}``."""
    _, _, keys = record["type"].partition("{")
    return [key.strip() for key in keys.rstrip("}").split(",")] if keys else []


def _param(record: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> Param:
    published = record["type"]
    kind: str = {"int32": "int", "fp16 bits": "half"}.get(published) or published.partition(" ")[0]
    values = tuple(record.get("values", ()))
    fields = tuple(_param(others.get(key, {"key": key, **_UNLISTED.get(key, {})}), others) for key in _fields(record))
    return Param(record["key"], kind, record.get("required", False), record.get("default"), values, fields)


_AXIS_KEYS = ("Coordinate", "TransposeSourceDimension", "TransposeDestinationDimension")
_UNLISTED: Mapping[str, Mapping[str, Any]] = {
    **{key: {"type": "enum", "values": AXES} for key in _AXIS_KEYS},
    "SliceSize": {"type": "int"},
    "PaddingMode": {"type": "enum"},
}
"""Keys of dictionaries that have no record of their own."""


def layer_types() -> tuple[LayerType, ...]:
    """Every type, in the order of the data."""
    return tuple(dict.fromkeys(_by_name().values()))


def layer_type(name: str) -> LayerType:
    """The type of a tag (``MatrixMultiplication``) or a descriptor's name (``MatrixMult``)."""
    known = _by_name().get(name)
    if known is None:
        near = ", ".join(nearest(str(name), _by_name())) or "SDPA, TopK, Conv"
        raise UnknownNameError(f"{name!r}: not a type of native layer; nearest: {near}")
    return known


def checked_params(layer: LayerType, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in their own types, with the descriptor's defaults. A key that is missing or unknown is what the
    compiler's parser calls ``InvalidParamSyntax``."""
    for key in params:
        if key not in layer.params:
            near = ", ".join(nearest(str(key), layer.params)) or ", ".join(layer.params) or "none"
            raise ParamError(str(key), f"parameter {key!r} is unknown; the layer takes: {near}")
    checked: dict[str, Any] = {}
    for key, param in layer.params.items():
        if key in params:
            checked[key] = param.check(params[key])
        elif param.required:
            raise ParamError(key, f"parameter {key} is missing; add it")
        elif param.default is not None:
            checked[key] = param.default
    return checked
