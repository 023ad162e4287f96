# pyright: reportMissingImports=false
"""One node of an ONNX file with its inputs, what its row gives, and the names of element types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aneforge.errors import AneforgeError, LoadError, first_line
from aneforge.formats.importer.calls import called
from aneforge.formats.importer.op import FileOp
from aneforge.formats.records import Operation, Type, ValueType
from aneforge.formats.rows import Row
from aneforge.formats.values import NoForm, Value
from aneforge.graph.tensor import Tensor

_PAD_TYPES = {"": "custom", "NOTSET": "custom", "VALID": "valid", "SAME_UPPER": "same", "SAME_LOWER": "same_lower"}

_FLOATS = {"FLOAT": "fp32", "FLOAT16": "fp16", "DOUBLE": "fp64", "BFLOAT16": "bf16"}
_NUMBERS = {shared: name for name, shared in _FLOATS.items()}
"""Element types of ONNX by the names that all formats share."""


@dataclass
class OnnxNode:
    """One node of the file."""

    kind: str
    name: str
    opset: int
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ("",)
    inputs: Sequence[Value | None] = ()
    types: Sequence[Type | None] = ()
    """Types of the inputs, where known; None for a computed float whose shape is that of its tensor."""
    operation: Operation = field(default_factory=lambda: Operation("", {}, []))
    begin: int = 0
    """How many nodes had been noted for ONNX Runtime's provider when this one was met."""

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attrs.get(name, default)

    @property
    def source(self) -> tuple[Any, Any]:
        """The message of the file, and the opsets that it is in."""
        return self.operation.source

    @property
    def proto(self) -> Any:
        return self.source[0]

    @property
    def computed(self) -> bool:
        return any(isinstance(value, Tensor) for value in self.inputs)

    def is_single(self, place: int) -> bool:
        """Whether an input is a single number in the file; the graph has it with shape (1,)."""
        kind = self.types[place] if place < len(self.types) else None
        return isinstance(self.inputs[place], Tensor) and isinstance(kind, ValueType) and kind.shape == ()

    def result_of(self, kind: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any]) -> Tensor:
        """What an op of the standard gives in the place of this node, which says more than that op."""
        from aneforge.formats.onnx.table import row_for

        row = row_for(kind, "", self.opset)
        assert row is not None
        result = apply(row, replace(self, kind=kind, inputs=inputs, types=[None] * len(inputs), attrs=dict(attrs)))
        assert isinstance(result, Tensor)
        return result


def apply(row: Row, node: OnnxNode) -> Any:
    """What a row gives for a node. If the graph language refuses it, the host computes the op."""
    try:
        if row.takes_node:
            return row.function(node)
        bound = row.bind(node.inputs, node.attrs)
        if "pad_type" in bound or "pad" in bound:
            _translate_pads(bound)
        return called(row.function, bound, lambda: _as_op(row, node, bound), row.shown)
    except LoadError:
        raise
    except AneforgeError as error:
        raise NoForm(first_line(error)) from None


def _translate_pads(bound: dict[str, Any]) -> None:
    """ONNX has the pads before all axes, then those behind them; the common ops have them in pairs."""
    if "pad_type" in bound:
        bound["pad_type"] = _PAD_TYPES.get(bound["pad_type"], bound["pad_type"])
    flat = bound.get("pad")
    if flat is not None:
        half = len(flat) // 2
        bound["pad"] = [int(width) for pair in zip(flat[:half], flat[half:], strict=True) for width in pair]


def _as_op(row: Row, node: OnnxNode, bound: Mapping[str, Any]) -> FileOp:
    arguments = {name: value if isinstance(value, list) else [value] for name, value in bound.items()}
    types: dict[str, list[Type | None]] = {}
    for place, kind in enumerate(node.types):
        if place < len(row.operands):
            types.setdefault(row.operands[place].lstrip("*"), []).append(kind)
    outputs: list[tuple[str, Type | None]] = [(name, None) for name in node.outputs]
    return FileOp(node.kind, node.name, arguments, types, outputs, is_read=bool)


def element_type(onnx: Any, number: int) -> str:
    if not number:
        return "undefined"
    name: str = onnx.TensorProto.DataType.Name(number)
    return _FLOATS.get(name) or name.lower()


def element_number(onnx: Any, dtype: str) -> int:
    return int(onnx.TensorProto.DataType.Value(_NUMBERS.get(dtype, dtype.upper())))
