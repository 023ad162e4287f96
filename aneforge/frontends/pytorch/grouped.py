# pyright: reportMissingImports=false
"""The product of mixtures of experts that transformers adds to PyTorch: rows in groups, a matrix for each group.

Where the rows of a group end is computed by the model, so the host does it. An exported program names the op; to read
the program without transformers, it is declared here, with its meaning.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_declared: list[Any] = []  # a library lives as long as somebody holds it


@cache
def declare_grouped_product() -> None:
    """Declare the op, unless transformers has done it."""
    if hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        return
    library = torch.library.Library("transformers", "FRAGMENT")
    library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
    library.impl("grouped_mm_fallback", _product, "CompositeExplicitAutograd")
    library.impl("grouped_mm_fallback", _shape, "Meta")
    _declared.append(library)


def _product(rows: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    result = rows.new_zeros(rows.shape[0], weight.shape[2])
    begin = 0
    for matrix, end in zip(weight, ends.tolist(), strict=True):
        result[begin:end] = rows[begin:end] @ matrix
        begin = end
    return result


def _shape(rows: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return rows.new_empty(rows.shape[0], weight.shape[2])
