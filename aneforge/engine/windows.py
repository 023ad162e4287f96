"""Windows as registers keep them: no step that none takes, and no padding that none reads."""

from __future__ import annotations

Before = tuple[int, int]
"""Padding at the top and at the left."""


def effective_stride(
    source: tuple[int, ...], result: tuple[int, ...], size: tuple[int, int], stride: tuple[int, ...], before: Before
) -> tuple[int, int]:
    """The steps that a window takes down and across: one where it stands in a single place and reads to the end. Where
    rows or columns are left over behind it, a step of one would go on over them, so the stated step is kept."""
    sides = zip(source[-2:], result[-2:], size, stride[-2:], before, strict=True)
    down, across = (step if out > 1 or into + pad > extent else 1 for into, out, extent, step, pad in sides)
    return down, across


def effective_padding(
    source: tuple[int, ...],
    result: tuple[int, ...],
    size: tuple[int, int],
    stride: tuple[int, int],
    before: Before,
) -> tuple[int, int, int, int, int, int]:
    """The padding that a window reads: registers have that of the top and the left, and the extents of the result say
    how far the window goes at the other ends."""
    ends = [
        max(0, (out - 1) * step + extent - into - pad)
        for into, out, extent, step, pad in zip(source[-2:], result[-2:], size, stride, before, strict=True)
    ]
    return 0, 0, before[0], ends[0], before[1], ends[1]
