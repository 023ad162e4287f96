"""Products in C; ``aneforge.sim.mac`` describes them."""

from __future__ import annotations

import numpy as np

from aneforge.errors import AneforgeError
from aneforge.sim.mac import Sums, start_values
from aneforge.sim.native.library import library, path_number, threads

Array = np.ndarray
_WORTHWHILE = 1 << 22  # products; half as many take less time than starting a second thread
_PACKING = 32  # what packing one element costs, in products
_ROUNDING = 16  # what one rounding costs, in products


def accumulate(
    a: Array,
    b: Array,
    bias: Array | None = None,
    flush_subnormals: bool = False,
    *,
    path: str | None = None,
    workers: int | None = None,
) -> Sums:
    """``aneforge.sim.mac.accumulate`` in C; ``path`` and ``workers`` override the environment."""
    sums = start_values(a.shape[0], b.shape[1], bias)
    units, lost = sums.units.ctypes.data, sums.lost.ctypes.data
    _multiply(a, b, (None, 0, 0), flush_subnormals, (units, lost, None), path, workers)
    return sums


def products(
    a: Array,
    b: Array,
    bias: Array | None = None,
    flush_subnormals: bool = False,
    *,
    path: str | None = None,
    workers: int | None = None,
) -> Array:
    """``aneforge.sim.mac.products`` in C: each sum is rounded at once, so that the sums are never all in memory."""
    result = np.empty((a.shape[0], b.shape[1]), np.float16)
    if a.shape[1] == 0:
        return settled(start_values(a.shape[0], b.shape[1], bias))
    start, steps = None, (0, 0)
    if bias is not None:
        spread = np.broadcast_to(bias, result.shape)  # a view of the bias, which stays alive by its name
        start, steps = spread.ctypes.data, (spread.strides[0] // 2, spread.strides[1] // 2)
    _multiply(a, b, (start, *steps), flush_subnormals, (None, None, result.ctypes.data), path, workers)
    return result


def stacked_products(a: Array, b: Array, flush_subnormals: bool = False) -> Array:
    """Products of dense fp16 stacks [count, rows, depth] and [count, depth, columns]."""
    result = np.empty((*a.shape[:2], b.shape[2]), np.float16)
    count, rows, depth = a.shape
    failed = library().aneforge_products(
        *(a.ctypes.data, b.ctypes.data, count, rows, depth, b.shape[2], int(flush_subnormals), result.ctypes.data),
        *(_worthwhile_threads(depth * b.shape[2] * max(rows, _PACKING)), path_number(None)),
    )
    if failed:
        raise MemoryError("not enough memory for the packed operands of a product")
    return result


def _multiply(
    a: Array,
    b: Array,
    bias: tuple[int | None, int, int],
    flush_subnormals: bool,
    result: tuple[int | None, int | None, int | None],
    path: str | None,
    workers: int | None,
) -> None:
    left, right = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if left.dtype != np.float16 or right.dtype != np.float16 or left.shape[1] != right.shape[0]:
        raise AneforgeError(
            f"product: expected fp16 [n, k] and [k, m], got {a.dtype} {list(a.shape)} and {b.dtype} {list(b.shape)}"
        )
    rows, depth, columns = *left.shape, right.shape[1]
    failed = library().aneforge_product(
        *(left.ctypes.data, right.ctypes.data, rows, depth, columns, *bias, int(flush_subnormals), *result),
        *(workers or _worthwhile_threads(depth * columns * max(rows, _PACKING)), path_number(path)),
    )
    if failed:
        raise MemoryError("not enough memory for the packed operands of a product")


def settled(sums: Sums, *, path: str | None = None, workers: int | None = None) -> Array:
    """The fp16 results of accumulators, as ``Sums.settled`` gives them."""
    units, lost = (np.ascontiguousarray(part, np.float64) for part in (sums.units, sums.lost))
    result = np.empty(units.shape, np.float16)
    library().aneforge_settle(
        *(units.ctypes.data, lost.ctypes.data, result.ctypes.data, units.size),
        *(workers or _worthwhile_threads(_ROUNDING * units.size), path_number(path)),
    )
    return result


def _worthwhile_threads(products: int) -> int:
    """Threads for that many products: one where starting more would take longer than it saves."""
    return threads() if products >= _WORTHWHILE else 1
