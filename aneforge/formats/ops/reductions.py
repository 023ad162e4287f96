"""Reductions, positions of extremes, and sorting."""

from __future__ import annotations

from collections.abc import Callable

from aneforge.formats.forms import as_number, position, reduced, trace, truth, variance, vector_norm, without_nan
from aneforge.formats.forms.reductions import REDUCTIONS, argsort, hard_maximum, sort, topk
from aneforge.formats.importer.op import FileOp
from aneforge.formats.values import Numeric, Value, axis_of, shaped, without_axes
from aneforge.graph.tensor import Tensor


def _reduction(function: Callable[[Tensor, tuple[int, ...]], Tensor], of_truths: bool) -> Callable[..., Tensor]:
    """``of_truths``: an extreme of truth values is one itself."""

    def reduction(
        x: Value, axes: list[int] | None = None, keep_dims: bool = False, no_axes_keep: bool | None = None
    ) -> Tensor:
        """``no_axes_keep``: whether no axes mean that nothing is reduced. If nothing is said, an empty list does,
        and a missing one means all axes."""
        numbers = as_number(x)
        if not axes and (axes is not None if no_axes_keep is None else no_axes_keep):
            return numbers
        places = [axis_of(axis, numbers.ndim) for axis in axes or range(numbers.ndim)]
        result = reduced(numbers, function, places, keep_dims)
        return truth(result) if of_truths and isinstance(x, Tensor) and x.dtype == "bool" else result

    return reduction


def _truths(function: Callable[[Tensor, tuple[int, ...]], Tensor]) -> Callable[..., Tensor]:
    def reduction(x: Value, axes: list[int] | None = None, keep_dims: bool = False) -> Tensor:
        places = [axis_of(axis, x.ndim) for axis in (range(x.ndim) if axes is None else axes)]
        return truth(reduced(truth(x).cast(), function, places, keep_dims))

    return reduction


def _places(x: Value, axes: list[int] | None) -> list[int]:
    """All axes unless the file names some."""
    return [axis_of(axis, x.ndim) for axis in axes or range(x.ndim)]


def _count_nonzero(x: Value, axes: list[int] | None = None, keep_dims: bool = False) -> Tensor:
    return reduced(truth(x).cast(), Tensor.sum, _places(x, axes), keep_dims)


def _nan_sum(x: Numeric, axes: list[int] | None = None, keep_dims: bool = False) -> Tensor:
    return reduced(without_nan(x), Tensor.sum, _places(x, axes), keep_dims)


def _vector_norm(x: Numeric, order: float = 2.0, axes: list[int] | None = None, keep_dims: bool = False) -> Tensor:
    return reduced(x, lambda x, axes: vector_norm(x, axes, order), _places(x, axes), keep_dims)


def _variance(
    x: Numeric, axes: list[int] | None = None, correction: float = 1.0, root: bool = False, keep_dims: bool = False
) -> list[Tensor]:
    """The variance, or the standard deviation if ``root``, and the mean."""
    places = sorted(_places(x, axes))
    spread, mean = variance(x, places, correction)
    results = [spread.sqrt() if root else spread, mean]
    return results if keep_dims else [shaped(result, without_axes(x.shape, places)) for result in results]


def _ends(x: Numeric, axes: list[int] | None = None, keep_dims: bool = False) -> list[Tensor]:
    """The smallest and the largest element."""
    return [reduced(x, function, _places(x, axes), keep_dims) for function in (Tensor.amin, Tensor.amax)]


def _extreme(op: FileOp, x: Numeric, axis: int, largest: bool = True, keep_dims: bool = False) -> list[Tensor]:
    """The largest or the smallest element along an axis, and its position."""
    along = axis_of(axis, x.ndim)
    value = reduced(x, Tensor.amax if largest else Tensor.amin, [along], keep_dims)
    return [value, position(x, along, keep_dims, largest)] if op.used(1) else [value]


def _position(largest: bool) -> Callable[..., Tensor]:
    def place(x: Numeric, axis: int = -1, keep_dims: bool = False, last: bool = False) -> Tensor:
        return position(x, axis_of(axis, x.ndim), keep_dims, largest, last)

    return place


def _sorted(function: Callable[[Tensor, int, bool], Tensor]) -> Callable[..., Tensor]:
    def in_order(x: Numeric, axis: int = -1, ascending: bool = False, descending: bool | None = None) -> Tensor:
        return function(x, axis_of(axis, x.ndim), not ascending if descending is None else descending)

    return in_order


def _sort_with_positions(op: FileOp, x: Numeric, axis: int = -1, descending: bool = False) -> list[Tensor]:
    along = axis_of(axis, x.ndim)
    values = sort(x, along, descending)
    return [values, argsort(x, along, descending)] if op.used(1) else [values]


def _topk(
    op: FileOp, x: Numeric, k: int = 1, axis: int = -1, ascending: bool = False, largest: bool = True
) -> list[Tensor]:
    """The values are one layer of the engine; the positions come from a sort."""
    along, largest = axis_of(axis, x.ndim), largest and not ascending
    values = topk(x, along, k, largest)
    return [values, argsort(x, along, largest, k)] if op.used(1) else [values]


OPS: dict[str, Callable[..., object]] = {
    "argsort": _sorted(argsort),
    "count_nonzero": _count_nonzero,
    "extreme": _extreme,
    "hardmax": hard_maximum,
    "nan_sum": _nan_sum,
    "reduce_all": _truths(Tensor.amin),
    "reduce_any": _truths(Tensor.amax),
    "reduce_argmax": _position(True),
    "reduce_argmin": _position(False),
    "reduce_ends": _ends,
    **{f"reduce_{name}": _reduction(function, name in ("max", "min")) for name, function in REDUCTIONS.items()},
    "sort": _sorted(sort),
    "sort_with_positions": _sort_with_positions,
    "topk": _topk,
    "trace": trace,
    "variance": _variance,
    "vector_norm": _vector_norm,
}
