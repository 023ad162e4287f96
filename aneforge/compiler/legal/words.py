"""The vendor compiler's own messages for an op that it refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aneforge.chips import store
from aneforge.compiler.legal.query import Query
from aneforge.engine.native import dimensions

_PLACE = re.compile(r"%z?[sdu]")
"""Where the vendor's compiler fills in a name or a number."""

# The layer whose validator or code generator reports a graph op.
_LAYERS = {
    "affine": "AffineTransform",
    "crop_resize": "CropResize",
    "dynamic_slice": "DynamicSlice",
    "minmax_norm": "MinMaxNorm",
    "resample": "Resample",
    "sort": "Sort",
    "topk": "TopK",
}


def spellings_of(layer: str) -> tuple[str, ...]:
    """The graph ops that a layer stands for, where their names differ."""
    return tuple(op for op, name in _LAYERS.items() if name == layer)


def reject_message(op: str) -> str | None:
    """The compiler's own string for an op that a chip does not have, where one is published."""
    layer = _layer(op)
    known = layer is not None and layer["gate_byte"] and layer["reject_strings"]
    return without_places(layer["reject_strings"][0]) if layer is not None and known else None


def unsupported_message(op: str) -> str | None:
    """The compiler's own string where the chip's support byte for the layer is clear, which may be another string than
    for a layer that fails later; the samplers of the texture engine share one (chapter 26)."""
    for entry in store.load("validators")["validators"]:
        if entry["layer"] == _LAYERS.get(op):
            for check in entry["checks"]:
                if check["check"] == "support-byte" and "string" in check:
                    return check["string"]
    return reject_message(op)


def without_places(message: str) -> str:
    """The vendor's words for people: dots where a name or a number would be filled in."""
    return _PLACE.sub("...", message)


def filled(string: str, words: Mapping[str, Any], query: Query) -> str:
    """The vendor's words with the values of a layer filled in: its parameters and the extents of its first bottom."""
    if "{" not in string:
        return string
    shape = query.shape()
    extents = dimensions(shape)._asdict() if shape is not None and len(shape) <= 5 else {}
    known = {**extents, **words}

    def value(place: re.Match[str]) -> str:
        name = place[1]
        stated = known[name] if name in known else query.parameter(name)
        return "..." if stated is None else str(stated)

    return _NAME.sub(value, string)


_NAME = re.compile(r"\{(\w+)\}")


def needs_texture_engine(op: str) -> bool:
    """Whether the layer of a graph op runs on the texture engine."""
    layer = _layer(op)
    return layer is not None and layer["gate_byte"] == "0x81d"


def _layer(op: str) -> dict[str, Any] | None:
    name = _LAYERS.get(op)
    return next((row for row in store.load("layers")["layers"] if row["name"] == name), None)
