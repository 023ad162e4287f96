"""Many layers as columns of numbers, so that one formula times all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

import numpy as np

from aneforge.cost.work import CONTRACTIONS, FREE, Work

KINDS = (
    *FREE, *CONTRACTIONS, "sdpa", "pointwise", "combine", "softmax", "layer_norm", "rms_norm", "group_norm",
    "reduce_sum", "l2_norm", "copy", "reshape", "pool", "argmax", "topk",
)  # fmt: skip
"""What a layer is to the clock. Everything that is not named here goes element by element: ``pointwise`` for one
operand, ``combine`` for several."""
_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
_ALIASES = {
    "ew": "pointwise",
    "concat": "copy",
    "transpose": "copy",
    "pixel_shuffle": "copy",
    "max_pool": "pool",
    "avg_pool": "pool",
    "average_pool": "pool",
}
FORMS = ("fp16", "int8", "palette", "sparse")

_taken = attrgetter(
    "repeat", "macs", "weight_bytes", "shared", "zeros", "integers", "bytes_in", "bytes_out", "lines", "contraction",
    "channels", "groups", "positions", "kernel", "unit_steps", "elements", "rows",
)  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """One number for each layer in every column; the names are those of :class:`~aneforge.cost.work.Work`."""

    kind: np.ndarray
    form: np.ndarray
    repeat: np.ndarray
    macs: np.ndarray
    weight_bytes: np.ndarray
    shared: np.ndarray
    zeros: np.ndarray
    integers: np.ndarray
    bytes_in: np.ndarray
    bytes_out: np.ndarray
    lines: np.ndarray
    contraction: np.ndarray
    inner: np.ndarray
    outer: np.ndarray
    groups: np.ndarray
    positions: np.ndarray
    kernel_height: np.ndarray
    kernel_width: np.ndarray
    unit_steps: np.ndarray
    elements: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.kind)

    def is_a(self, *kinds: str) -> np.ndarray:
        """Which layers are of one of these kinds."""
        matches = self.kind == _NUMBER[kinds[0]]
        for kind in kinds[1:]:
            matches = matches | (self.kind == _NUMBER[kind])
        return matches

    def stored_as(self, form: str) -> np.ndarray:
        """Which layers have weights of this form."""
        return self.form == FORMS.index(form)


def columns_of(works: Sequence[Work]) -> Columns:
    """The columns of some layers, in their order."""
    kinds = np.array([_kind(work) for work in works], np.int64)
    forms = np.array([FORMS.index(work.form) for work in works], np.int64)
    rows: list[tuple[float, ...]] = []
    for work in works:
        *numbers, contraction, channels, groups, positions, kernel, steps, elements, count = _taken(work)
        rows.append((*numbers, contraction, *channels, groups, positions, *kernel, steps, elements, count))
    table = np.array(rows, float).T if rows else np.zeros((len(fields(Columns)) - 2, 0))
    return Columns(kinds, forms, *table)


def _kind(work: Work) -> int:
    name = _ALIASES.get(work.kind, work.kind)
    if name not in _NUMBER or name == "pointwise":
        name = "pointwise" if work.operands == 1 else "combine"
    return _NUMBER[name]
