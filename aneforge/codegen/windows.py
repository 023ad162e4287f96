"""Windows as registers keep them: no step that none takes, and no padding that none reads."""

from __future__ import annotations


def effective_stride(result: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, int]:
    """The steps that a window takes down and across: one where it stands in a single place."""
    down, across = (step if extent > 1 else 1 for extent, step in zip(result[-2:], stride[-2:], strict=True))
    return down, across


def effective_padding(
    source: tuple[int, ...],
    result: tuple[int, ...],
    size: tuple[int, int],
    stride: tuple[int, int],
    top: int,
    left: int,
) -> tuple[int, int, int, int, int, int]:
    """The padding that a window reads: registers have that of the top and the left, and the extents of the result say
    how far the window goes at the other ends."""
    ends = [
        max(0, (out - 1) * step + extent - into - before)
        for into, out, extent, step, before in zip(source[-2:], result[-2:], size, stride, (top, left), strict=True)
    ]
    return 0, 0, top, ends[0], left, ends[1]
