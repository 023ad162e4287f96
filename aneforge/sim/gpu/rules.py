"""How an op becomes kernels: the rules of ``aneforge.sim.rules``, written for many samples on a device.

A rule is made once for an op, with its weights and tables of places on the device, and then launched for every batch.
What a rule cannot do raises :class:`NoKernelError` when it is made, or gives None for one batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aneforge.chips.assumed import constant
from aneforge.compiler.legalise.floors import FLOOR_DIVIDE
from aneforge.engine.interpret import rule_of
from aneforge.engine.ir import Op
from aneforge.engine.traits import Trait
from aneforge.graph.halves import FP16_MAX
from aneforge.sim.engine import Engine
from aneforge.sim.gpu.device import GpuDevice, GpuMemory, threads_of
from aneforge.sim.gpu.kernels import RUN, Kernels, Values
from aneforge.sim.gpu.products import MatrixProduct, NoKernelError, ProductOperand, StoredProduct, WinogradProduct
from aneforge.sim.half import Window
from aneforge.sim.int8 import integer_operands
from aneforge.sim.mac import CEILING
from aneforge.sim.rules.contraction import (
    kernel_as_read,
    passes_no_accumulator,
    replicates_edges,
    stored_as_int8,
    sums_codes,
    takes_winograd,
    window_of,
)
from aneforge.sim.rules.moves import q4
from aneforge.sim.rules.planar import TABLES
from aneforge.sim.tables import activation

__all__ = ["Launch", "NoKernelError", "RuleMaker"]

Array = np.ndarray
Launch = Callable[[Kernels, Sequence[Values]], "Values | None"]
Rule = tuple[Sequence[Op], Launch]
_MARK = 2.0**40  # added to places, so that numbers which a move fills in are told apart
_ALL_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


class RuleMaker:
    """Makes the rules of one engine on one device."""

    def __init__(self, engine: Engine, device: GpuDevice) -> None:
        self.engine, self.device = engine, device
        self._tables: dict[Any, GpuMemory] = {}

    def rule_of(self, op: Op, kernel: Array | None, named: dict[str, Array]) -> Rule:
        """The ops that are read, and what to launch."""
        if any(operand.type is not None and operand.type.dtype == "i1" for operand in (op, *op.operands)):
            raise NoKernelError
        if op.kind in ("convolution", "linear"):
            return self._stored(op, kernel, named)
        if op.kind == "matmul" and kernel is not None:
            product = self._turned(op, kernel)
            has_bias = len(op.operands) > 2
            reads = op.operands[0], *op.operands[2:]
            return reads, lambda kernels, read: product(kernels, read[0], read[1] if has_bias else None)
        if op.kind in _RULES:
            return tuple(op.operands), _RULES[op.kind](self, op)
        if op.kind in TABLES or (op.kind == "swish" and not op.attrs.get("hard")):
            return tuple(op.operands), self._table(op)
        if op.is_a(Trait.MOVEMENT):
            return tuple(op.operands), self._move(op)
        raise NoKernelError

    # Tables of all results.

    def _kept(self, key: Any, table: Callable[[], Array]) -> GpuMemory:
        if key not in self._tables:
            self._tables[key] = self.device.upload(table())
        return self._tables[key]

    def activation_table(self, name: str, *settings: tuple[str, float]) -> GpuMemory:
        key = name, tuple(sorted(settings)), self.engine.tables
        return self._kept(key, lambda: activation(*key))

    def _table(self, op: Op) -> Launch:
        numbers = {} if op.kind == "swish" else op.attrs
        settings = [(name, float(value)) for name, value in numbers.items() if isinstance(value, (int, float))]
        table = self.activation_table(op.kind, *settings)
        return lambda kernels, operands: kernels.looked_up(table, operands[0])

    def fixed_point(self) -> GpuMemory:
        """Numbers through the fixed point in front of 8-bit weights (N17)."""
        return self._kept("q4", lambda: q4(_ALL_HALVES))

    # Moves.

    def _move(self, op: Op) -> Launch:
        if op.kind == "gather_nd" or op.labels.get("storage") == "q4" or not op.operands:
            raise NoKernelError
        first, marked = 0, []
        for operand in op.operands:
            size = math.prod(operand.shape)
            marked.append((np.arange(first, first + size) + _MARK).reshape(operand.shape))
            first += size
        try:
            places = np.asarray(rule_of(op)(op, *marked))
        except (TypeError, ValueError, IndexError):
            raise NoKernelError from None
        if places.shape != tuple(op.shape) or first >= 1 << 31:
            raise NoKernelError
        return self.by_map(places.astype(np.float64))

    def by_map(self, places: Array) -> Launch:
        """What a move does, by what it does to marked places."""
        shape = tuple(places.shape)
        flat = places.reshape(-1)
        is_place = flat >= _MARK / 2
        index = np.where(is_place, flat - _MARK, -1).astype(np.int32)
        fills = np.unique(flat[~is_place])
        index[~is_place] = -1 - np.searchsorted(fills, flat[~is_place])
        is_whole = bool(is_place.all()) and np.array_equal(index, np.arange(flat.size))
        on_device = None if is_whole else self.device.upload(index)
        filling = self.device.upload(fills.astype(np.float16)) if fills.size else None

        def launch(kernels: Kernels, operands: Sequence[Values]) -> Values:
            if on_device is None and operands[0].size == flat.size:
                return Values(operands[0].buffer, shape, operands[0].is_shared)
            nonlocal index
            kept = on_device or self.device.upload(index)
            return kernels.moved(kept, filling, operands, shape)

        return launch

    # Products with a stored kernel.

    def _stored(self, op: Op, kernel: Array | None, named: dict[str, Array]) -> Rule:
        engine = self.engine
        if kernel is None or integer_operands(engine, op) is not None:
            raise NoKernelError
        outputs = 2 if op.kind == "linear" else 0
        matrix = kernel_as_read(engine, op, kernel, outputs, named)
        has_bias = len(op.operands) > 2
        if has_bias and op.operands[2].kind != "const_in":
            raise NoKernelError
        scaled = sums_codes(engine, op)
        run = self._linear(op, matrix) if op.kind == "linear" else self._convolution(op, matrix)
        entering = self.fixed_point() if engine.int8_activations_q4 and stored_as_int8(op) else None
        axis = 4 if op.kind == "linear" else 2

        def line(values: Values) -> Values:
            shape = tuple(values.size if place == axis else 1 for place in range(5))
            return Values(values.buffer, shape, values.is_shared)

        factor = None
        if scaled:
            numbers = named["kernel_scale"].reshape(-1).astype(np.float16)
            factor = line(Values(self.device.upload(numbers), (numbers.size,), True))

        def launch(kernels: Kernels, operands: Sequence[Values]) -> Values | None:
            x = operands[0] if entering is None else kernels.looked_up(entering, operands[0])
            bias = operands[1] if has_bias else None
            if factor is None:
                return run(kernels, x, bias)
            sums = run(kernels, x, None)
            if sums is None:
                return None
            return kernels.gained(sums, factor, None if bias is None else line(bias), 1.0, 0.0, math.inf)

        return (op.operands[0], *op.operands[2:]), launch

    def _turned(self, op: Op, constant: Array) -> StoredProduct:
        """A matrix, as it lies or turned, by a stored one and on top of a bias."""
        matrix = constant[0, 0, :, 0, :] if op.attrs.get("transpose_rhs") else constant[0, 0, :, 0, :].T
        outputs, depth = matrix.shape
        width = op.operands[0].shape[4]
        lines, is_turned = math.prod(op.shape) // outputs, bool(op.attrs.get("transpose_lhs"))
        operand = ProductOperand(
            term=np.arange(depth) * (width if is_turned else 1),
            column=np.arange(lines) * (1 if is_turned else width),
            result=np.arange(lines) * outputs,
            classes=np.arange(depth),
            inner=width if is_turned else 1,
            is_dense=not is_turned and depth % 8 == 0,
        )
        weights = np.ascontiguousarray(matrix.astype(np.float16, copy=False))[None]
        return StoredProduct(self.engine, self.device, weights, operand, 0, (0, 1), tuple(op.shape))

    def _linear(self, op: Op, weight: Array) -> Callable[[Kernels, Values, Values | None], Values | None]:
        matrix = np.ascontiguousarray(weight[0, 0, :, 0, :].T)  # [depth, outputs]
        depth, outputs = matrix.shape
        lines = math.prod(op.shape[:-1])
        operand = ProductOperand(
            term=np.arange(depth),
            column=np.arange(lines) * depth,
            result=np.arange(lines) * outputs,
            classes=np.arange(depth),
            inner=1,
            is_dense=depth % 8 == 0,
        )
        return StoredProduct(
            self.engine, self.device, np.ascontiguousarray(matrix.T)[None], operand, 0, (0, 1), tuple(op.shape)
        )

    def _convolution(self, op: Op, kernel: Array) -> Callable[[Kernels, Values, Values | None], Values | None]:
        if passes_no_accumulator(self.engine, op):
            raise NoKernelError
        attrs, groups = op.attrs, op.attrs["groups"]
        window, x = window_of(op), op.operands[0]
        pads, depths = attrs["explicit_padding"], attrs["kernel_sizes"][0]
        around = ((0, 0), tuple(pads[0:2]), (0, 0), tuple(pads[2:4]), tuple(pads[4:6]))
        if not replicates_edges(op):
            around = (
                *around[:3],
                *zip(window.before, window.after, strict=True),
            )
        by_winograd = takes_winograd(self.engine, op)
        if by_winograd:  # an odd last column is computed beside a column of zeros
            columns = op.shape[4]
            around = (*around[:4], (around[4][0], around[4][1] + columns % 2))
        places = (np.arange(math.prod(x.shape)) + _MARK).reshape(x.shape)
        places = np.pad(places, around, mode="edge") if replicates_edges(op) else np.pad(places, around)
        padding = self.by_map(places)
        if by_winograd:
            if depths != 1 or x.shape[0] * x.shape[1] != 1:
                raise NoKernelError
            stacked = kernel.reshape(kernel.shape[0], -1, *kernel.shape[3:])
            product: Any = WinogradProduct(self.engine, self.device, stacked, groups, places.shape, tuple(op.shape))
        else:
            product = StoredProduct(
                *(self.engine, self.device, kernel.reshape(groups, kernel.shape[0] // groups, -1)),
                *(_operand_of(op, places.shape, window, groups), places.shape[2] // groups, (None, None)),
                tuple(op.shape),
            )

        def run(kernels: Kernels, x: Values, bias: Values | None) -> Values | None:
            padded = padding(kernels, [x])
            return None if padded is None else product(kernels, padded, bias)

        return run


def _operand_of(op: Op, padded: tuple[int, ...], window: Window, groups: int) -> ProductOperand:
    """Where a convolution reads a padded map [N, D, C, H, W]: every term of a group, every column of the result."""
    attrs = op.attrs
    _, _, channels, rows, columns = padded
    plane, size = rows * columns, channels * rows * columns
    depths, reach, step = attrs["kernel_sizes"][0], attrs["dilation_rates"][0], attrs["strides"][0]
    own = channels // groups
    d, c, i, j = (axis.reshape(-1) for axis in np.indices((depths, own, *window.size)))
    term = d * reach * size + c * plane + i * window.dilation[0] * columns + j * window.dilation[1]
    images, out_depths, outputs, out_rows, out_columns = op.shape
    n, z, y, x = (axis.reshape(-1) for axis in np.indices((images, out_depths, out_rows, out_columns)))
    column = (n * padded[1] + z * step) * size + y * window.stride[0] * columns + x * window.stride[1]
    result = ((n * out_depths + z) * outputs * out_rows + y) * out_columns + x
    return ProductOperand(term, column, result, c, plane, False, own * plane, channels)


# Ops without weights.


def _pair(operation: str) -> Callable[[RuleMaker, Op], Launch]:
    def make(maker: RuleMaker, op: Op) -> Launch:
        reader = op.only_user
        if op.kind == "mult" and reader is not None and reader.labels.get("data_path") == FLOOR_DIVIDE:
            raise NoKernelError
        if op.kind == "div" and maker.engine.reciprocal_divide:
            raise NoKernelError
        shape = tuple(op.shape)
        return lambda kernels, operands: kernels.pair(operation, operands[0], operands[1], shape)

    return make


def _square(maker: RuleMaker, op: Op) -> Launch:
    return lambda kernels, operands: kernels.pair("mult", operands[0], operands[0])


def _relu(maker: RuleMaker, op: Op) -> Launch:
    source = op.operands[0]
    cleans = source.is_a(Trait.MOVEMENT) or source.kind == "live_in"
    halves = np.where(np.isnan(_ALL_HALVES), np.float16(np.inf), _ALL_HALVES) if cleans else _ALL_HALVES
    results = np.maximum(halves.view(np.int16), 0).view(np.float16)
    table = maker._kept(("relu", cleans), lambda: results)
    return lambda kernels, operands: kernels.looked_up(table, operands[0])


def _abs(maker: RuleMaker, op: Op) -> Launch:
    bits = _ALL_HALVES.view(np.uint16)
    table = maker._kept("abs", lambda: np.minimum(bits & np.uint16(0x7FFF), np.uint16(0x7C00)))
    return lambda kernels, operands: kernels.looked_up(table, operands[0])


def _gain_offset(maker: RuleMaker, op: Op) -> Launch:
    is_summed = any(user.layer == op.layer and user.kind in TABLES for user in op.users)
    gain, bias, ceiling = float(op["gain"]), float(op["bias"]), CEILING if is_summed else math.inf
    has_scale = len(op.operands) > 1
    if len(op.operands) not in (1, 3):
        raise NoKernelError

    def launch(kernels: Kernels, operands: Sequence[Values]) -> Values:
        scale, offset = (operands[1], operands[2]) if has_scale else (None, None)
        return kernels.gained(operands[0], scale, offset, gain, bias, ceiling)

    return launch


class _Reduction:
    """Sums, means or extremes of a map along some axes, which stay with extent one."""

    def __init__(self, maker: RuleMaker, shape: Sequence[int], axes: Sequence[int]) -> None:
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        places = np.arange(math.prod(shape)).reshape(shape).transpose(*kept, *axes)
        self.length = math.prod(shape[axis] for axis in axes)
        lines = places.reshape(-1, self.length).astype(np.int32)
        self.shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
        self._line = maker.device.upload(lines[:, 0])
        self._element = maker.device.upload(lines[0] - lines[0, 0])
        self._form = constant("reduction_tree"), constant("reduction_run")
        if self._form[0] > 32:
            raise NoKernelError
        self._step = self._step_of(lines)

    def _step_of(self, lines: Array) -> int:
        """From one element of a line to the next, where lines are whole groups that the kernel of groups can take."""
        groups, rest = divmod(self.length, math.prod(self._form))
        if rest or not 0 < groups <= threads_of("reduced_groups"):
            return 0
        step = int(lines[0, 1] - lines[0, 0]) if self.length > 1 else 0
        is_even = bool((np.diff(lines[0]) == step).all())
        return step if is_even and not (step == 1 and (lines[:, 0] % RUN).any()) else 0

    def __call__(self, kernels: Kernels, x: Values, kind: str, factor: float = 1.0) -> Values:
        lines = x, self._line, self._element, self.shape, self.length
        return kernels.reduced(*lines, kind, self._form, self._step, factor)

    def mean(self, kernels: Kernels, x: Values) -> Values:
        return self(kernels, x, "mean", float(np.float16(1 / self.length)))


def _reduced(kind: str) -> Callable[[RuleMaker, Op], Launch]:
    def make(maker: RuleMaker, op: Op) -> Launch:
        squares = bool(op.attrs.get("square_input"))
        if squares and kind in ("max", "min"):
            raise NoKernelError
        reduction = _Reduction(maker, op.operands[0].shape, op.attrs["axes"])

        def launch(kernels: Kernels, operands: Sequence[Values]) -> Values:
            x = kernels.pair("mult", operands[0], operands[0]) if squares else operands[0]
            return reduction.mean(kernels, x) if kind == "mean" else reduction(kernels, x, kind)

        return launch

    return make


def _softmax(maker: RuleMaker, op: Op) -> Launch:
    reduction = _Reduction(maker, op.operands[0].shape, op.attrs["axes"])
    if reduction.length > FP16_MAX:
        raise NoKernelError
    powers_of = maker.activation_table("exp2", ("base_e", 1.0))

    def launch(kernels: Kernels, operands: Sequence[Values]) -> Values:
        shifted = kernels.pair("sub", operands[0], reduction(kernels, operands[0], "max"))
        powers = kernels.looked_up(powers_of, shifted)
        return kernels.pair("div", powers, reduction(kernels, powers, "sum"))

    return launch


def _norm(maker: RuleMaker, op: Op) -> Launch:
    axes, groups, shape = tuple(op["axes"]), op.attrs.get("groups", 1), tuple(op.operands[0].shape)
    split = shape
    if groups > 1:
        n, _, c, h, w = shape
        split = (n, groups, c // groups, h, w)
        axes = tuple(axis for axis in axes if axis != 1)
    reduction = _Reduction(maker, split, axes)
    root = maker.activation_table("r_sqrt")
    epsilon = np.array([op.attrs["epsilon"]]).astype(np.float16)
    added = Values(maker.device.upload(epsilon), (1, 1, 1, 1, 1), True)

    def launch(kernels: Kernels, operands: Sequence[Values]) -> Values:
        x, *affine = operands
        whole = Values(x.buffer, split, x.is_shared)
        centred = kernels.pair("sub", whole, reduction.mean(kernels, whole))
        spread = reduction.mean(kernels, kernels.pair("mult", centred, centred))
        result = kernels.pair("mult", centred, kernels.looked_up(root, kernels.pair("add", spread, added)))
        result = Values(result.buffer, shape)
        for operation, operand in zip(("mult", "add"), affine, strict=False):
            result = kernels.pair(operation, result, operand, shape)
        return result

    return launch


def _max_pool(maker: RuleMaker, op: Op) -> Launch:
    size, stride, pads = op.attrs["ksize"], op.attrs["stride"], op.attrs["padding"]
    if size[0] != 1 or stride[0] != 1:
        raise NoKernelError
    shape, before = tuple(op.shape), (pads[2], pads[4])
    return lambda kernels, operands: kernels.max_pooled(operands[0], shape, size[1:], stride[1:], before)


def _matmul(maker: RuleMaker, op: Op) -> Launch:
    return MatrixProduct(maker.engine, maker.device, op)


def is_by_a_constant(op: Op) -> bool:
    """Whether a product of one matrix by a stored one has a kernel: :meth:`RuleMaker._turned`."""
    if op.kind != "matmul" or any(operand.kind != "const_in" for operand in op.operands[1:]):
        return False
    left, right = (operand.shape for operand in op.operands[:2])
    return left[:2] == right[:2] == (1, 1) and left[3] == right[3] == 1


_RULES: dict[str, Callable[[RuleMaker, Op], Launch]] = {
    **{kind: _pair(kind) for kind in ("add", "sub", "mult", "div", "max", "min")},
    "square": _square,
    "sqr": _square,
    "relu": _relu,
    "abs": _abs,
    "gain_offset_control": _gain_offset,
    "reduce_sum": _reduced("sum"),
    "reduce_avg": _reduced("mean"),
    "reduce_max": _reduced("max"),
    "reduce_min": _reduced("min"),
    "softmax": _softmax,
    "layer_norm": _norm,
    "instance_norm": _norm,
    "max_pool": _max_pool,
    "matmul": _matmul,
}
