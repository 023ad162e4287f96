"""Products and convolutions with operands that are laid out beforehand, in C (packed.c).

They are done where the numbers say that no sum can reach the ceiling. Where they do not, the functions give None, and
the caller takes the general form.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aneforge.sim.native.library import library, path_number, threads

if TYPE_CHECKING:
    from aneforge.sim.half import Window

Array = np.ndarray
_EXACT, _FAST, _WINOGRAD = 0, 1, 2
_Geometry = ctypes.c_ssize_t * 14


@dataclass(frozen=True)
class StoredKernels:
    """The kernels of one group of a convolution, laid out: one matrix, or those of Winograd's four positions."""

    memory: Array
    outputs: int
    path: int
    winograd: bool


@dataclass(frozen=True)
class StoredMatrix:
    """A weight matrix [depth, columns] of a linear layer, laid out."""

    memory: Array
    columns: int
    path: int


def store_kernels(matrices: Sequence[Array], *, path: str | None = None) -> StoredKernels:
    """Lay out matrices [outputs, depth] of fp16 numbers: one, or four for Winograd's form."""
    number = path_number(path)
    parts = [_stored(matrix, True, number) for matrix in matrices]
    memory = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return StoredKernels(memory, matrices[0].shape[0], number, len(parts) > 1)


def store_matrix(lines: Array, *, path: str | None = None) -> StoredMatrix:
    """Lay out a matrix whose lines [columns, depth] are given, as a linear layer stores them."""
    number = path_number(path)
    return StoredMatrix(_stored(lines, False, number), lines.shape[0], number)


def _stored(lines: Array, rows: bool, path: int) -> Array:
    """A matrix laid out as the rows or the columns of products."""
    dense = np.ascontiguousarray(lines, np.float16)
    memory = np.empty(library().aneforge_stored_size(*dense.shape, int(rows), path), np.uint8)
    library().aneforge_store_lines(
        *(dense.ctypes.data, dense.shape[1], 1, *dense.shape, int(rows), memory.ctypes.data, path)
    )
    return memory


def convolve(
    kernels: StoredKernels,
    image: Array,
    window: Window,
    bias: Array | None,
    fast: bool = False,
    out: Array | None = None,
    *,
    workers: int | None = None,
) -> Array | None:
    """The convolution of a map [channels, rows, columns] with a group's kernels; None where a sum might leave the
    range on its way."""
    dense = np.ascontiguousarray(image)
    plane = window.outputs(dense.shape[1:])
    result = np.empty((kernels.outputs, *plane), np.float16) if out is None else out
    geometry = _Geometry(
        *(*dense.shape, *window.size, *window.stride, *window.dilation, *window.before, kernels.outputs, *plane)
    )
    start = None if bias is None else np.ascontiguousarray(bias)
    form = _WINOGRAD if kernels.winograd else _FAST if fast else _EXACT
    status = library().aneforge_stored_rows_product(
        *(kernels.memory.ctypes.data, dense.ctypes.data, geometry, None if start is None else start.ctypes.data, form),
        *(result.ctypes.data, workers or threads(), kernels.path),
    )
    return _checked(status, result)


def depthwise(
    kernels: Array,
    image: Array,
    window: Window,
    bias: Array | None,
    fast: bool = False,
    *,
    path: str | None = None,
    workers: int | None = None,
) -> Array | None:
    """A convolution whose outputs read one channel each, with a matrix [outputs, numbers of a kernel] or the four of
    Winograd's form, dense one behind the other; None where a sum might leave the range on its way."""
    dense = np.ascontiguousarray(image)
    plane, outputs = window.outputs(dense.shape[1:]), kernels.shape[1]
    result = np.empty((outputs, *plane), np.float16)
    geometry = _Geometry(
        *(*dense.shape, *window.size, *window.stride, *window.dilation, *window.before, outputs, *plane)
    )
    form = _WINOGRAD if len(kernels) > 1 else _FAST if fast else _EXACT
    start = None if bias is None else np.ascontiguousarray(bias)
    status = library().aneforge_depthwise(
        *(kernels.ctypes.data, dense.ctypes.data, geometry, None if start is None else start.ctypes.data),
        *(form, result.ctypes.data, workers or threads(), path_number(path)),
    )
    return _checked(status, result)


def multiply(
    x: Array, matrix: StoredMatrix, bias: Array | None, fast: bool = False, *, workers: int | None = None
) -> Array | None:
    """``x @ matrix + bias`` for dense fp16 ``x`` [rows, depth]; None where a sum might leave the range on its way."""
    result = np.empty((x.shape[0], matrix.columns), np.float16)
    start = None if bias is None else np.ascontiguousarray(bias)
    status = library().aneforge_stored_columns_product(
        *(x.ctypes.data, matrix.memory.ctypes.data, *x.shape, matrix.columns),
        *(None if start is None else start.ctypes.data, int(start is not None and start.size > 1), int(not fast)),
        *(result.ctypes.data, workers or threads(), matrix.path),
    )
    return _checked(status, result)


def products_inside(
    a: Array, b: Array, fast: bool = False, *, path: str | None = None, workers: int | None = None
) -> Array | None:
    """The products of dense fp16 stacks [count, rows, depth] and [count, depth, columns]; None where a sum might leave
    the range on its way."""
    result = np.empty((*a.shape[:2], b.shape[2]), np.float16)
    status = library().aneforge_product_inside(
        *(a.ctypes.data, b.ctypes.data, *a.shape, b.shape[2], int(not fast), result.ctypes.data),
        *(workers or threads(), path_number(path)),
    )
    return _checked(status, result)


def _checked(status: int, result: Array) -> Array | None:
    if status < 0:
        raise MemoryError("not enough memory for the packed operands of a product")
    return None if status else result
