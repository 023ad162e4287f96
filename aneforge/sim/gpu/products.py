"""Products on a device: with a stored matrix, by the width Winograd form, and of two computed stacks.

The kernel needs bounds of what it multiplies. Those of weights are worked out once, those of activations by one pass
over them. Where a chip's four-lane tiles lose digits (``aneforge.sim.mac``), and bounds do not exclude it, the CPU
does the op for that batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.engine.ir import Op
from aneforge.sim.convolution import winograd_kernels
from aneforge.sim.engine import Engine
from aneforge.sim.gpu.device import GpuDevice
from aneforge.sim.gpu.kernels import (
    BLOCK_COLUMNS,
    BLOCK_ROWS,
    FewJob,
    Kernels,
    ProductJob,
    TilesJob,
    Values,
    blocks,
    filled,
)
from aneforge.sim.half import decoded

Array = np.ndarray
_FEW_ROWS = 8
"""Groups with fewer outputs are computed element by element: most of a block would be idle."""


class NoKernelError(Exception):
    """An op that a device does not do: the CPU does it."""


@dataclass(frozen=True)
class ProductOperand:
    """Where a product reads a sample of its second operand, and where its results lie."""

    term: Array
    column: Array
    result: Array
    classes: Array
    """The class of elements that each term reads, whose largest size is known."""
    inner: int
    """Elements of one class that lie in a row."""
    is_dense: bool
    group: int = 0
    """From one group to the next, in elements."""
    count: int | None = None
    """How many classes there are in all groups."""


def _block_most(matrix: Array) -> Array:
    """The largest size of each term in each block of rows."""
    rows, depth = matrix.shape
    size = np.zeros((-(-rows // BLOCK_ROWS) * BLOCK_ROWS, depth))
    size[:rows] = np.abs(decoded(matrix))
    return size.reshape(-1, BLOCK_ROWS, depth).max(axis=1).astype(np.float32)


class _Matrices:
    """Stored matrices [groups, rows, depth] on a device, and their bounds."""

    def __init__(self, device: GpuDevice, matrices: Array) -> None:
        self.groups, self.rows, self.depth = matrices.shape
        self.device = device
        self.values = device.upload(matrices)
        most = np.stack([_block_most(matrix) for matrix in matrices])
        self.most, self.most_blocks = device.upload(most), most.shape[1]
        self.largest = device.upload(most.max(axis=1))  # [groups, depth]

    def job(self) -> dict[str, object]:
        return {
            **{"a": self.values, "a_group": self.rows * self.depth, "a_row": self.depth, "a_term": 1},
            **{"a_most": self.most, "a_most_group": self.most_blocks * self.depth, "a_most_block": self.depth},
            **{"a_dense": int(self.depth % 8 == 0), "rows": self.rows, "depth": self.depth, "groups": self.groups},
        }


def _grid(rows: int, columns: int, stacks: int) -> tuple[int, int, int]:
    return -(-columns // BLOCK_COLUMNS), -(-rows // BLOCK_ROWS), stacks


class StoredProduct:
    """A stored matrix for each group, times what an operand reads of a map."""

    def __init__(
        self,
        engine: Engine,
        device: GpuDevice,
        matrices: Array,
        operand: ProductOperand,
        channels: int,
        result_steps: tuple[int | None, int | None],
        shape: tuple[int, ...],
    ) -> None:
        self._engine, self._device, self._shape, self._operand = engine, device, shape, operand
        self._left = _Matrices(device, np.ascontiguousarray(matrices))
        groups = len(matrices)
        self._count = operand.count or len(operand.classes)
        classes = np.stack([operand.classes + group * channels for group in range(groups)])
        self._class_of = device.upload(classes.astype(np.int32))
        tables = (operand.term, operand.column, operand.result)
        self._term, self._column, self._result = (device.upload(table.astype(np.int32)) for table in tables)
        plane = math.prod(shape[3:])
        group_step, row_step = result_steps
        rows = matrices.shape[1]
        self._c_row = plane if row_step is None else row_step
        self._c_group = rows * plane if group_step is None else group_step

    def __call__(self, kernels: Kernels, x: Values, bias: Values | None) -> Values | None:
        left, operand = self._left, self._operand
        samples = kernels.samples
        most = kernels.largest(x, self._count, operand.inner, samples=1 if x.is_shared else None)
        bounds = kernels.bounds(most, self._class_of, left.groups * left.depth)
        if self._engine.tile_losses and kernels.may_lose(left.largest, bounds, left.groups, left.depth):
            return None
        out = kernels.empty(self._shape)
        columns = len(operand.column)
        shared = {
            **{"b": x.buffer, "b_term": self._term, "b_column": self._column, "c_column": self._result},
            **{"b_group": operand.group, "b_sample": x.step, "c_group": self._c_group, "c_sample": out.size},
            **{"c_row": self._c_row, "flush": int(self._engine.flush_subnormals), "columns": columns},
            **({} if bias is None else {"bias": bias.buffer}),
        }
        if left.rows < _FEW_ROWS and left.groups > 1:
            count = samples * left.groups * left.rows * columns
            job = filled(
                FewJob, a=left.values, out=out.buffer, count=count, rows=left.rows, depth=left.depth,
                groups=left.groups, **shared,
            )  # fmt: skip
            kernels.device.launch("few_rows", job, blocks(count))
            return out
        job = filled(
            ProductJob,
            **left.job(),
            **shared,
            **{"halves": out.buffer, "samples": samples, "b_most": bounds, "b_most_group": left.depth},
            **{"bias_group": left.rows, "b_dense": int(operand.is_dense)},
        )
        kernels.device.launch("product", job, _grid(left.rows, samples * columns, left.groups))
        return out


class WinogradProduct:
    """A convolution of three columns by the width Winograd form, over a padded map."""

    def __init__(
        self,
        engine: Engine,
        device: GpuDevice,
        kernel: Array,
        groups: int,
        padded: tuple[int, ...],
        shape: tuple[int, ...],
    ) -> None:
        self._engine, self._device, self._shape, self._padded = engine, device, shape, padded
        transformed = winograd_kernels(kernel, groups)  # [groups][four]
        forms = [np.stack([group[place] for group in transformed]) for place in range(4)]
        self._left = [_Matrices(device, form.reshape(groups, form.shape[1], -1)) for form in forms]
        _, _, channels, rows, width = padded
        self._tiles = (width - 2) // 2
        own, taps = channels // groups, kernel.shape[2]
        c, i = (axis.reshape(-1) for axis in np.indices((own, taps)))
        line = rows * self._tiles
        self._own, self._group = own, own * line
        self._term = device.upload((c * line + i * self._tiles).astype(np.int32))
        columns = np.arange(shape[3] * self._tiles)
        self._columns = len(columns)
        self._column = device.upload(columns.astype(np.int32))
        classes = np.stack([c + group * own for group in range(groups)])
        self._class_of = device.upload(classes.astype(np.int32))

    def __call__(self, kernels: Kernels, x: Values, bias: Values | None) -> Values | None:
        if self._engine.tile_losses:
            raise NoKernelError
        device, samples = self._device, kernels.samples
        _, _, channels, rows, width = self._padded
        size = channels * rows * self._tiles
        turned = device.empty(2 * 4 * samples * size)
        count = samples * size
        job = filled(TilesJob, in_=x.buffer, out=turned, count=count, position=count, width=width, tiles=self._tiles)
        device.launch("winograd_in", job, blocks(count))
        outputs = self._shape[2]
        sums = samples * outputs * self._columns
        units, lost = device.empty(4 * 4 * sums), device.empty(4 * sums)
        for place, left in enumerate(self._left):
            part = Values(turned, (size,))
            most = kernels.largest(part, channels, rows * self._tiles, place * count)
            bounds = kernels.bounds(most, self._class_of, left.groups * left.depth)
            job = filled(
                ProductJob,
                **left.job(),
                **{"b": turned.address + 2 * place * count, "b_term": self._term, "b_column": self._column},
                **{"c_column": self._column, "b_group": self._group, "b_sample": size, "columns": self._columns},
                **{"units": units.address + 4 * place * sums, "lost": lost.address + place * sums},
                **{"c_group": left.rows * self._columns, "c_sample": outputs * self._columns, "c_row": self._columns},
                **{"samples": samples, "b_most": bounds, "b_most_group": left.depth},
                **{"flush": int(self._engine.flush_subnormals), "bias_group": left.rows, "bias_row": 1},
                **({"bias": bias.buffer} if bias is not None and place == 1 else {}),
            )
            device.launch("product", job, _grid(left.rows, samples * self._columns, left.groups))
        out = kernels.empty(self._shape)
        job = filled(
            TilesJob, units=units, lost=lost, out=out.buffer, count=sums, position=sums, tiles=self._tiles,
            columns=self._shape[4],
        )  # fmt: skip
        device.launch("winograd_out", job, blocks(sums))
        return out


class MatrixProduct:
    """Two computed stacks of matrices, [N, 1, rows, stack, columns] each."""

    def __init__(self, engine: Engine, device: GpuDevice, op: Op) -> None:
        left, right = (tuple(operand.shape) for operand in op.operands[:2])
        if len(op.operands) > 2 or left[0] * right[0] * left[1] * right[1] != 1:
            raise NoKernelError
        self._engine, self._device, self._shape = engine, device, tuple(op.shape)
        _, _, height, stack, width = left
        self._a_steps = (1, stack * width) if "transpose_lhs" in op.attrs else (stack * width, 1)
        self._rows, self._depth = (width, height) if "transpose_lhs" in op.attrs else (height, width)
        self._a_group, self._stacks = (0 if stack == 1 else width), max(stack, right[3])
        _, _, height, stack, width = right
        term, column = (1, stack * width) if "transpose_rhs" in op.attrs else (stack * width, 1)
        self._columns = height if "transpose_rhs" in op.attrs else width
        self._b_group = 0 if stack == 1 else width
        self._b_dense = int(term == 1 and width % 8 == 0)
        self._a_dense = int(self._a_steps[1] == 1 and left[4] % 8 == 0)
        self._term = device.upload((np.arange(self._depth) * term).astype(np.int32))
        self._column = device.upload((np.arange(self._columns) * column).astype(np.int32))
        self._result = device.upload(np.arange(self._columns, dtype=np.int32))
        self._zeros = device.upload(np.zeros(self._depth, np.int32))

    def __call__(self, kernels: Kernels, operands: Sequence[Values]) -> Values | None:
        a, b = operands[:2]
        mosts = [kernels.largest(x, 1, x.size, samples=1 if x.is_shared else None) for x in (a, b)]
        a_most, b_most = (kernels.bounds(most, self._zeros, self._depth) for most in mosts)
        if self._engine.tile_losses and kernels.may_lose(a_most, b_most, 1, self._depth):
            return None
        out = kernels.empty(self._shape)
        job = filled(
            ProductJob,
            **{"a": a.buffer, "a_group": self._a_group, "a_outer": a.step, "a_row": self._a_steps[0]},
            **{"a_term": self._a_steps[1], "a_dense": self._a_dense, "a_most": a_most},
            **{"b": b.buffer, "b_group": self._b_group, "b_outer": b.step, "b_term": self._term},
            **{"b_column": self._column, "b_dense": self._b_dense, "b_most": b_most, "c_column": self._result},
            **{"halves": out.buffer, "c_group": self._columns, "c_outer": out.size},
            **{"c_row": self._stacks * self._columns, "rows": self._rows, "depth": self._depth},
            **{"columns": self._columns, "samples": 1, "groups": self._stacks},
            **{"flush": int(self._engine.flush_subnormals)},
        )
        kernels.device.launch("product", job, _grid(self._rows, self._columns, self._stacks * kernels.samples))
        return out
