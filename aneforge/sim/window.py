"""Which elements of a map a convolution or a pool reads: kernel size, stride, dilation, and zeros around the map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray
Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Each field is (rows, columns)."""

    size: Pair
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    before: Pair = (0, 0)
    after: Pair = (0, 0)

    def outputs(self, extent: tuple[int, ...]) -> Pair:
        """Rows and columns of the result for a map of that extent."""
        rows, columns = (
            (extent[axis] + self.before[axis] + self.after[axis] - self.dilation[axis] * (self.size[axis] - 1) - 1)
            // self.stride[axis]
            + 1
            for axis in (0, 1)
        )
        return rows, columns

    @property
    def reads_points(self) -> bool:
        """Whether every output reads just the element at its place."""
        return self == Window((1, 1))


def patches(image: Array, window: Window, first: int, rows: int, single: bool = False) -> Array:
    """What each output of some rows reads of an fp16 map [channels, rows, columns], zeros around it:
    [channels x kernel rows x kernel columns, outputs]. ``single`` gives what the multipliers read, as float32.

    In this layout whole rows of the map are copied, and results come out in the order of the map. The returned array
    may be scratch: the next call in this thread overwrites it.
    """
    from aneforge.sim import native

    form = native.patches if native.available() else patches_plain
    return form(image, window, first, rows, single)


def patches_plain(image: Array, window: Window, first: int, rows: int, single: bool = False) -> Array:
    """The same in NumPy."""
    from aneforge.sim.half import decoded

    around = tuple(zip(window.before, window.after, strict=True))
    padded = np.pad(image, ((0, 0), *around))
    start = first * window.stride[0]
    reach = [step * (extent - 1) + 1 for step, extent in zip(window.dilation, window.size, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(padded[:, start:], reach, axis=(1, 2))
    view = view[:, :: window.stride[0], :: window.stride[1], :: window.dilation[0], :: window.dilation[1]][:, :rows]
    flat = np.ascontiguousarray(view.transpose(0, 3, 4, 1, 2).reshape(-1, rows * view.shape[2]))
    return decoded(flat).astype(np.float32) if single else flat
