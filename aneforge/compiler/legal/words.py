"""The vendor compiler's own messages for an op that it refuses."""

from __future__ import annotations

import re
from typing import Any

from aneforge.targets import store

__all__ = ["failure_stage", "reject_message", "without_places"]

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


def reject_message(op: str) -> str | None:
    """The compiler's own string for an op that a chip does not have, where one is published."""
    layer = _layer(op)
    known = layer is not None and layer["gate_byte"] and layer["reject_strings"]
    return without_places(layer["reject_strings"][0]) if layer is not None and known else None


def without_places(message: str) -> str:
    """The vendor's words for people: dots where a name or a number would be filled in."""
    return _PLACE.sub("...", message)


def failure_stage(op: str) -> str:
    """Where in the compiler such an op fails, if more is known than that it does."""
    layer = _layer(op)
    if layer is None or reject_message(op) is not None:
        return ""
    if layer["gate_byte"] is None:
        return f"{op} passes the validator there and fails code generation"
    return f"{op} needs a texture engine, which is missing there" if layer["gate_byte"] == "0x81d" else ""


def _layer(op: str) -> dict[str, Any] | None:
    name = _LAYERS.get(op)
    return next((row for row in store.load("layers")["layers"] if row["name"] == name), None)
