"""The query that the gate answers: one operation, its operands, its attributes and what is known about its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aneforge.errors import AneforgeError

ROUTES = ("conversion", "direct", "coreml_placement")
RUNTIMES = {"direct": "the compiled program itself", "coreml": "Core ML", "coreai": "Core AI"}
"""Who hands a program to the engine, and what people call it. Core ML and Core AI choose the device themselves, and
their converters have limits and defects that the chip does not have."""
RUNTIME_LABELS = {
    **RUNTIMES,
    "ort-coreml": "ONNX Runtime (NeuralNetwork)",
    "ort-coreml-mlprogram": "ONNX Runtime (MLProgram)",
}
"""Also of those that hand parts of a file on to one of them, which rules know nothing of."""
KEEP_TYPES = ("coreml", "coreai")
"""The runtimes that compute a file's operations in the types that it states."""
ALL_RUNTIMES = "*"
"""The question about a user's graph: what this compiler builds, and what the other runtimes would do with it."""
CHAIN = "chain:"
SYMBOLIC = -1
"""An extent that is not a number when the program is compiled."""

Shape = tuple[int, ...]
_ABSENT: Mapping[str, int] = {
    **dict.fromkeys(("PadLeft", "PadRight", "PadTop", "PadBot", "PadFront", "PadBack"), 0),
    **dict.fromkeys(("FactorX", "FactorY", "FactorZ", "KernelWidth", "KernelHeight", "KernelDepth"), 1),
    **dict.fromkeys(("NumGroups", "Step", "Width", "Height", "Channel"), 1),
}
"""What a parameter of a native layer is that it does not state."""


class QueryError(AneforgeError, ValueError):
    """A query that cannot be answered as it is written; the message names the field."""


@dataclass(frozen=True)
class Query:
    """One operation. ``shapes`` holds runtime operands in order; ``None`` anywhere means "not known".

    ``op`` is a model-language name, a native-layer name on the direct route, or ``chain:NAME`` for a small
    graph; ``patterns`` names the structures of ``patterns.py`` that the graph shows.
    """

    op: str
    shapes: tuple[Shape | None, ...] | None = None
    const: Mapping[str, Shape] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtype: str | tuple[str, ...] = "fp16"
    weights: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    patterns: frozenset[str] = frozenset()
    runtime: str = "direct"
    """One of ``RUNTIMES``, or ``ALL_RUNTIMES``. The route ``coreml_placement`` is always Core ML's."""

    def runtime_of(self, route: str) -> str:
        """The runtime of the question by a route."""
        return "coreml" if route == "coreml_placement" else self.runtime

    @property
    def is_chain(self) -> bool:
        return self.op.startswith(CHAIN)

    @property
    def base(self) -> str:
        """The op without the chain mark: ``chain:conv`` is made of ``conv``."""
        return self.op.removeprefix(CHAIN)

    def shape(self, number: int = 0) -> Shape | None:
        """One runtime operand's shape, if there is such an operand and it is known."""
        shapes = self.shapes
        return shapes[number] if shapes is not None and len(shapes) > number else None

    @property
    def known_shapes(self) -> tuple[Shape, ...]:
        return tuple(shape for shape in self.shapes or () if shape is not None)

    @property
    def weight_shape(self) -> Shape | None:
        """The kernel or matrix of a convolution or product, constant or supplied at run time."""
        const = self.const
        for name in ("weight", "w", "y"):
            if name in const:
                return const[name]
        return self.shape(1) if self.at_run_time("weight") or len(self.shapes or ()) > 1 else None

    @property
    def kernel(self) -> Shape | None:
        """The spatial part of a convolution's weight."""
        weight = self.weight_shape
        return weight[2:] if weight is not None and len(weight) > 2 else None

    def parameter(self, name: str) -> Any:
        """A parameter of a native layer, or what it is where the layer does not state it; None if that is unknown."""
        value = self.attrs.get(name)
        return _ABSENT.get(name) if value is None else value

    def at_run_time(self, attribute: str) -> bool:
        """Whether an attribute that is usually constant arrives at run time."""
        value = self.attrs.get(attribute)
        return isinstance(value, str) and value == "runtime"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return (self.dtype,) if isinstance(self.dtype, str) else self.dtype
