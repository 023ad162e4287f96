# pyright: reportMissingImports=false
"""Sizes of a program: numbers, or symbols whose values the user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from aneforge.errors import LoadError
from aneforge.formats.records import ValueType

Shape = tuple[int, ...]


class Sizes:
    """The values of a program's symbols, and the shapes that follow from them."""

    def __init__(self, what: str, dims: Mapping[str, int]) -> None:
        self.what = what
        self.lenient = "" in dims  # sizes of examples: some of them belong to axes that are not symbolic
        self.dims = {name: int(size) for name, size in dims.items() if name}
        self.symbols: dict[Any, Any] = {}

    def bind_inputs(self, inputs: Sequence[tuple[str, Any]]) -> None:
        """Bind the symbols in the shapes of the inputs to the sizes that the user gave."""
        symbolic: set[str] = set()
        for name, example in inputs:
            if not isinstance(example, torch.Tensor):
                continue
            for axis, extent in enumerate(example.shape):
                if isinstance(extent, torch.SymInt):
                    self._bind_axis(f"{name}[{axis}]", extent, symbolic)
        unknown = [name for name in self.dims if name not in symbolic]
        if unknown and not self.lenient:
            known = ", ".join(sorted(symbolic)) or "none"
            raise LoadError(f"{self.what}: no symbolic dimension {unknown[0]!r}; the inputs have {known}")

    def _bind_axis(self, name: str, extent: Any, symbolic: set[str]) -> None:
        symbol = extent.node.expr
        symbolic |= {name, str(symbol)}
        size = self.dims.get(name, self.dims.get(str(symbol)))
        if not symbol.is_Symbol:
            return  # an expression of other symbols
        if size is None:
            if symbol in self.symbols:
                return
            raise LoadError(
                f"{self.what}: dimension {name} is open ({symbol}); the engine needs fixed sizes. Give it a value: "
                f"af.load(..., dims={{{name!r}: 1}}), or --dim {name}=1"
            )
        if self.symbols.get(symbol, size) != size:
            raise LoadError(
                f"{self.what}: {name} is {size}, but another dimension with the same symbol is "
                f"{self.symbols[symbol]}; both must be equal"
            )
        self.symbols[symbol] = size

    def bind(self, symbolic: Any, number: Any) -> None:
        """Bind a symbol to a number."""
        node = getattr(symbolic, "node", None)
        if node is not None and node.expr.is_Symbol:
            self.symbols[node.expr] = number

    def number(self, value: Any) -> Any:
        """Return a size as a number."""
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value
        size = value.node.expr.subs(self.symbols)
        if size.free_symbols:
            raise LoadError(
                f"{self.what}: a size ({size}) depends on the data; the engine needs fixed sizes. Fix the input "
                "that it comes from (fixed={...})"
            )
        return (
            bool(size)
            if isinstance(value, torch.SymBool)
            else float(size)
            if "Float" in type(value).__name__
            else int(size)
        )

    def value(self, meta: Any) -> Any:
        """Return the number that a size node gives; None for any other node, and if the number is not known yet."""
        if isinstance(meta, (bool, int, float)):
            return meta
        if isinstance(meta, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return None if meta.node.expr.subs(self.symbols).free_symbols else self.number(meta)
        return None

    def shape(self, extents: Sequence[Any]) -> Shape:
        return tuple(int(self.number(extent)) for extent in extents)

    def types(self, meta: Any) -> list[ValueType]:
        """Return the type of each result, with PyTorch's names of element types; a number has none."""
        examples = meta if isinstance(meta, (tuple, list)) else [meta]
        return [
            ValueType(str(example.dtype).removeprefix("torch."), self.shape(example.shape))
            if isinstance(example, torch.Tensor)
            else ValueType("", ())
            for example in examples
        ]
