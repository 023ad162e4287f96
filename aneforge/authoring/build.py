"""One native layer as an op of the graph, or as a few: the one table that all who author layers use.

Bottoms and results are [N, C, H, W], as a netplist has them. A layer with the meaning of an ordinary op becomes that
op; the others are ops of their own, each a segment of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aneforge.errors import AneforgeError
from aneforge.graph.tensor import Tensor
from aneforge.native import checked_params, layer_type

__all__ = ["AuthoringError", "Rule", "Unit", "build_layer"]

Shape = tuple[int, ...]
Kernel = Callable[[Shape], np.ndarray]
_MOST = 1 << 31


class AuthoringError(AneforgeError, ValueError):
    """A layer that cannot be authored as it is stated."""


@dataclass(frozen=True, eq=False)
class Unit:
    """One layer as its author states it. ``params`` are checked: of the published keys, each in its type."""

    tag: str
    bottoms: Sequence[Tensor]
    params: Mapping[str, Any]
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What a unit states outside its Params: ``OutputChannels``, ``NumGroups``."""
    kernel: Kernel | None = None
    """The stored numbers of a kernel, by their shape."""

    @property
    def bottom(self) -> Tensor:
        return self.bottoms[0]

    def param(self, key: str, default: Any) -> Any:
        return self.params.get(key, default)

    def extent(self, key: str, default: int | None = None) -> int:
        """A field that is a size."""
        value = self.fields.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < _MOST:
            raise AuthoringError(f"{key} is {value!r}; it must be an integer of 1 or more")
        return value

    def numbers(self, shape: Shape) -> np.ndarray:
        if self.kernel is None:
            raise AuthoringError("the layer has no kernel; give one")
        return self.kernel(shape)


Rule = Callable[[Unit], Tensor]


def build_layer(
    tag: str,
    bottoms: Sequence[Tensor],
    params: Mapping[str, Any],
    fields: Mapping[str, Any] | None = None,
    kernel: Kernel | None = None,
) -> Tensor:
    """The tensor that a layer gives. ``params`` hold numbers, never bit patterns of fp16."""
    from aneforge.authoring.rules import RULES, UNREAD

    known = layer_type(tag)
    rule = RULES.get(known.tag)
    if rule is None:
        raise AuthoringError(UNREAD.get(known.tag, "the names of its parameters in a netplist are not published"))
    unit = Unit(known.tag, bottoms, checked_params(known, params), fields or {}, kernel)
    count, most = len(bottoms), known.most
    if count < known.fewest or (most is not None and count > most):
        wanted = f"{known.fewest} or more" if most is None else " or ".join(map(str, range(known.fewest, most + 1)))
        raise AuthoringError(f"the unit has {count} bottoms; expected {wanted}")
    return rule(unit)
