"""One native layer as an op of the graph, or as a few: the one table that all who author layers use.

Bottoms and results are [N, C, H, W], as a netplist has them; layers that work along named axes take [N, C, D, H, W]
too. A layer with the meaning of an ordinary op becomes that op; the others are ops of their own, each a segment of the
program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aneforge.engine.native import AXIS_PLACES, PLACES_OF_RANK, checked_params, layer_type
from aneforge.errors import GraphError
from aneforge.graph.tensor import Tensor

Shape = tuple[int, ...]
Kernel = Callable[[Shape], np.ndarray]
_MOST = 1 << 31


class AuthoringError(GraphError):
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

    @property
    def image(self) -> Tensor:
        """The first bottom of a layer that knows no depth."""
        return self.images[0]

    @property
    def images(self) -> Sequence[Tensor]:
        for bottom in self.bottoms:
            if len(bottom.shape) != 4:
                raise AuthoringError(f"the bottom {list(bottom.shape)} has a depth; the layer takes [N, C, H, W]")
        return self.bottoms

    def axis(self, name: str) -> int:
        """The axis of the first bottom that parameters call by a name."""
        places = PLACES_OF_RANK[len(self.bottom.shape)]
        if name not in AXIS_PLACES or AXIS_PLACES[name] not in places:
            raise AuthoringError(f"{name} is not an axis of the bottom {list(self.bottom.shape)}")
        return places.index(AXIS_PLACES[name])

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
    own_names: bool = False,
) -> Tensor:
    """The tensor that a layer gives. ``params`` hold numbers, never bit patterns of fp16.

    ``own_names`` also takes our names for parameters whose names in a netplist are not published (U87).
    """
    from aneforge.engine.authoring.bridge import named_by_us
    from aneforge.engine.authoring.native_rules import RULES, UNREAD

    known = named_by_us(tag) if own_names else layer_type(tag)
    if known.tag in UNREAD:
        raise AuthoringError(UNREAD[known.tag])
    rule = RULES.get(known.tag)
    if rule is None or not (own_names or known.is_published):
        raise AuthoringError("the names of its parameters in a netplist are not published; use af.bridge")
    unit = Unit(known.tag, bottoms, checked_params(known, params), fields or {}, kernel)
    count, most = len(bottoms), known.most
    if count < known.fewest or (most is not None and count > most):
        wanted = f"{known.fewest} or more" if most is None else " or ".join(map(str, range(known.fewest, most + 1)))
        raise AuthoringError(f"the unit has {count} bottoms; expected {wanted}")
    return rule(unit)
