"""What the rules of every format ask of an argument, and which model files a folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aneforge.errors import GraphError, LoadError
from aneforge.formats import FORMATS
from aneforge.formats.kinds import kind_of_folder
from aneforge.graph.encoding import Encoded
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor

Array = np.ndarray
Value = np.ndarray | Encoded | Tensor
"""A known array, a known weight in a compressed form, or what the graph computes."""
Numeric = Tensor
"""A tensor of numbers: a parameter of this type gets truth values as 0 and 1, and constants as fp16 holds them."""


class NoForm(LoadError):  # noqa: N818 - a way for the op to take rather than a fault of the file
    """An op that is sound but has no form on the engine, and why: the host computes it where it can."""


def known(value: Value | None, what: str) -> Array:
    if isinstance(value, Tensor):
        raise NoForm(f"{what} is computed by the graph; the engine needs a fixed value")
    if value is None:
        raise LoadError(f"{what} is missing; the op needs it")
    return np.asarray(value)


def as_tensor(value: Value | None) -> Tensor:
    """A known value as a constant; whole numbers and truth values as numbers."""
    if value is None:
        raise LoadError("an input that the op needs is missing")
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Encoded):
        return const(value)
    numbers = np.asarray(value)
    try:
        return const(numbers if numbers.dtype.kind == "f" else numbers.astype(np.float64))
    except GraphError:
        if holds_nan(numbers):
            raise NoForm("it reads a constant that holds NaN, and a stored weight cannot hold one") from None
        raise


def holds_nan(numbers: Array) -> bool:
    return numbers.dtype.kind == "f" and bool(np.isnan(numbers).any())


def number(value: Value | None, what: str) -> float:
    return float(known(value, what).reshape(-1)[0])


def axis_of(axis: int, rank: int) -> int:
    if not -rank <= axis < max(rank, 1):
        raise LoadError(f"axis {axis} is out of range for a tensor of rank {rank}")
    return axis % rank if rank else 0


def without_axes(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """The other axes; (1,) where none is left, since the engine has no tensors without axes."""
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes) or (1,)


def shaped(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A reshape; a result without axes keeps one, since no tensor of the graph has none."""
    wanted = tuple(int(extent) for extent in shape) or (1,)
    return x if x.shape == wanted else x.reshape(*wanted)


def along_axis(x: Tensor, axis: int, matrix: Array) -> Tensor:
    """A known matrix [out, in] applied along one axis."""
    last = x.ndim - 1
    order = [*(i for i in range(x.ndim) if i != axis), axis]
    lines = x if axis == last else x.transpose(order)
    rows = lines.reshape(-1, lines.shape[-1]).linear(matrix).reshape(*lines.shape[:-1], matrix.shape[0])
    return rows if axis == last else rows.transpose([order.index(i) for i in range(x.ndim)])


# The model files of a folder: one answer for sweeps over folders and for archives that are uploaded.


_SAVED = ".aneforge"
MODEL_ENDINGS = (*FORMATS, _SAVED)
"""What model files end in. Python files are not among them: they are run to be read."""
_HIDDEN = (".", "__MACOSX")
"""What names begin with that systems and tools put beside people's files."""


def model_files(folder: Path) -> list[Path]:
    """The model files in a folder and below, in order; a model that is a folder is one of them."""
    waiting, files = [folder], []
    while waiting:
        for entry in waiting.pop().iterdir():
            if entry.name.startswith(_HIDDEN):
                continue
            model_format = FORMATS.get(entry.suffix.casefold())
            if entry.is_dir():
                if (model_format is not None and model_format.folder) or kind_of_folder(entry) is not None:
                    files.append(entry)
                elif not entry.is_symlink():  # a link may lead back
                    waiting.append(entry)
            elif entry.is_file() and entry.suffix.casefold() in MODEL_ENDINGS:
                files.append(entry)
    return sorted(files)
