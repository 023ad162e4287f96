"""What the vendor's compiler says of an op that it refuses."""

from __future__ import annotations

from typing import Any

from aneforge.targets import store

__all__ = ["reject_words", "why_not"]

# The layer whose validator or code generator speaks for a graph op.
_LAYERS = {
    "affine": "AffineTransform",
    "crop_resize": "CropResize",
    "dynamic_slice": "DynamicSlice",
    "minmax_norm": "MinMaxNorm",
    "resample": "Resample",
    "sort": "Sort",
    "topk": "TopK",
}


def reject_words(op: str) -> str | None:
    """The compiler's own string for an op that a chip does not have, where one is published."""
    layer = _layer(op)
    return layer["reject_strings"][0] if layer is not None and layer["gate_byte"] and layer["reject_strings"] else None


def why_not(op: str) -> str:
    """Where in the compiler such an op fails, if more is known than that it does."""
    layer = _layer(op)
    if layer is None or reject_words(op) is not None:
        return ""
    if layer["gate_byte"] is None:
        return f"{op} passes the validator and fails code generation there"
    return f"{op} has no texture engine to run on there" if layer["gate_byte"] == "0x81d" else ""


def _layer(op: str) -> dict[str, Any] | None:
    name = _LAYERS.get(op)
    return next((row for row in store.load("layers")["layers"] if row["name"] == name), None)
