"""Ops that no rewrite can help, refused with what the compiler itself says."""

from __future__ import annotations

from typing import Any

from aneforge.errors import AneforgeError
from aneforge.graph.node import located
from aneforge.graph.tensor import Tensor
from aneforge.targets import store
from aneforge.targets.evidence import Fact

__all__ = ["RejectedOp", "reject_words"]

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
_CODEGEN = "passes the validator and fails code generation there"
_TEXTURE = "has no texture engine to run on there"


class RejectedOp(AneforgeError, ValueError):  # noqa: N818 - the name the gate's interface fixes
    """The chip cannot run an op and no equivalent exists; names the node, its line, the chip and the reason."""

    def __init__(self, node: Tensor, chip: str, words: str, evidence: Fact[Any]) -> None:
        self.node, self.chip, self.words, self.evidence = node, chip, words, evidence
        called = f" {node.name!r}" if node.name else ""
        super().__init__(f"{node.op}{called} at {located(node.where)}: {chip} rejects it: {words} {evidence.label()}")


def reject_words(op: str, evidence: Fact[Any] | None = None) -> str:
    """Why a chip rejects an op: the compiler's own string in quotes where one is published."""
    if evidence is not None and evidence.note and "H13" in evidence.note:
        return f'"{evidence.note}"'
    layer = _layer(op)
    if layer is not None and layer["gate_byte"] is not None and layer["reject_strings"]:
        return f'"{layer["reject_strings"][0]}"'
    if layer is not None and layer["gate_byte"] is not None:
        return f"{op} {_TEXTURE}" if layer["gate_byte"] == "0x81d" else f"capability byte {layer['gate_byte']} is off"
    if layer is not None:
        return f"{op} {_CODEGEN}"
    return evidence.note if evidence is not None and evidence.note else f"{op} has no form on this architecture"


def _layer(op: str) -> dict[str, Any] | None:
    name = _LAYERS.get(op)
    return next((row for row in store.load("layers")["layers"] if row["name"] == name), None)
