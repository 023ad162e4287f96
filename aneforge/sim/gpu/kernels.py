"""What each kernel takes, as the structures of the CUDA sources, and how it is started."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.sim.gpu.device import GpuDevice, GpuMemory

Array = np.ndarray
BLOCK_ROWS, BLOCK_COLUMNS = 64, 128
"""Of a result, for one block of threads of a product."""
AXES = 5
_POINTER, _LONG, _INT, _DOUBLE = ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int, ctypes.c_double
_USUAL = 256
_MOST_SPLITS = 64


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class ProductJob(ctypes.Structure):
    _fields_ = [
        *_fields(_POINTER, "a b bias b_term b_column c_column a_most b_most halves units lost"),
        *_fields(_LONG, "a_group a_outer b_group b_outer b_sample c_group c_outer c_sample c_row"),
        *_fields(_LONG, "a_row a_term a_most_group a_most_block b_most_group"),
        *_fields(_INT, "rows depth columns samples groups bias_group flush"),
        *_fields(_INT, "a_dense b_dense"),
    ]


class PairJob(ctypes.Structure):
    _fields_ = [
        *_fields(_POINTER, "a b c out"),
        *_fields(_LONG, "count size a_sample b_sample c_sample"),
        *_fields(_INT, "operation is_dense"),
        *_fields(_INT * AXES, "shape a_step b_step c_step"),
        *_fields(_DOUBLE, "gain bias ceiling"),
    ]


class TableJob(ctypes.Structure):
    _fields_ = [*_fields(_POINTER, "table in_ out"), *_fields(_LONG, "count")]


class MoveJob(ctypes.Structure):
    _fields_ = [
        *_fields(_POINTER, "map in_ out"),
        *_fields(_LONG, "count size sample"),
        *_fields(_INT, "first last fills"),
        *_fields(_POINTER, "fill"),
    ]


class LinesJob(ctypes.Structure):
    _fields_ = [
        *_fields(_POINTER, "in_ line element out"),
        *_fields(_LONG, "count sample"),
        *_fields(_INT, "lines length tree run kind"),
        *_fields(_DOUBLE, "factor"),
    ]


class PoolJob(ctypes.Structure):
    _fields_ = [
        *_fields(_POINTER, "in_ out"),
        *_fields(_LONG, "count"),
        *_fields(_INT, "rows columns in_rows in_columns"),
        *_fields(_INT * 2, "size stride before"),
    ]


class LargestJob(ctypes.Structure):
    _fields_ = [*_fields(_POINTER, "in_ most"), *_fields(_LONG, "outer count inner")]


class BoundsJob(ctypes.Structure):
    _fields_ = [*_fields(_POINTER, "most class_of out"), *_fields(_LONG, "count")]


class FewJob(ctypes.Structure):
    _fields_ = [
        *_fields(_POINTER, "a b bias b_term b_column c_column out"),
        *_fields(_LONG, "count b_group b_sample c_group c_sample c_row"),
        *_fields(_INT, "rows depth columns groups flush"),
    ]


class TilesJob(ctypes.Structure):
    _fields_ = [
        *_fields(_POINTER, "in_ out units lost"),
        *_fields(_LONG, "count position"),
        *_fields(_INT, "width tiles columns"),
    ]


def filled(structure: type[ctypes.Structure], /, **values: object) -> ctypes.Structure:
    """A structure; buffers stand for their addresses, sequences for arrays."""
    job = structure()
    for name, value in values.items():
        plain = value.address if isinstance(value, GpuMemory) else value
        setattr(job, name, (ctypes.c_int * len(plain))(*plain) if isinstance(plain, (list, tuple)) else plain)
    return job


def blocks(count: int, size: int = _USUAL) -> tuple[int, int, int]:
    """The grid of a kernel with a thread for each element."""
    return max(1, -(-count // size)), 1, 1


@dataclass
class Values:
    """fp16 numbers on a device: ``samples`` of a shape, or one for all where ``is_shared``."""

    buffer: GpuMemory
    shape: tuple[int, ...]
    is_shared: bool = False

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def step(self) -> int:
        """From one sample to the next."""
        return 0 if self.is_shared else self.size


def spread_steps(shape: Sequence[int], over: Sequence[int]) -> list[int]:
    """The steps of a dense array over a shape that it is spread over, as NumPy spreads it."""
    steps, step = [], 1
    for extent in reversed(shape):
        steps.append(0 if extent == 1 else step)
        step *= extent
    return ([0] * (AXES - len(shape)) + steps[::-1])[-AXES:] if len(over) <= AXES else steps[::-1]


class Kernels:
    """The kernels of a device, on values of some samples."""

    def __init__(self, device: GpuDevice, samples: int) -> None:
        self.device, self.samples = device, samples

    def empty(self, shape: tuple[int, ...]) -> Values:
        return Values(self.device.empty(2 * self.samples * math.prod(shape)), shape)

    def pair(self, operation: str, a: Values, b: Values, shape: tuple[int, ...] | None = None) -> Values:
        """An elementwise operation of two arrays of five axes, spread over each other."""
        shape = shape or tuple(np.broadcast_shapes(a.shape, b.shape))
        out = self.empty(shape)
        count = self.samples * out.size
        dense = a.shape == b.shape == shape and not a.is_shared and not b.is_shared
        job = filled(
            PairJob,
            **{"a": a.buffer, "b": b.buffer, "out": out.buffer, "count": count, "size": out.size},
            **{"a_sample": a.step, "b_sample": b.step, "is_dense": int(dense)},
            **{"operation": _OPERATIONS[operation], "shape": list(shape)},
            **{"a_step": spread_steps(a.shape, shape), "b_step": spread_steps(b.shape, shape)},
        )
        self.device.launch("pairs", job, blocks(count))
        return out

    def gained(
        self, x: Values, scale: Values | None, offset: Values | None, gain: float, bias: float, ceiling: float
    ) -> Values:
        out = self.empty(x.shape)
        count = self.samples * out.size
        job = filled(
            PairJob,
            **{"a": x.buffer, "out": out.buffer, "count": count, "size": out.size, "a_sample": x.step},
            **{"shape": list(x.shape), "a_step": spread_steps(x.shape, x.shape)},
            **{"gain": gain, "bias": bias, "ceiling": ceiling},
        )
        for name, operand in (("b", scale), ("c", offset)):
            if operand is not None:
                setattr(job, name, operand.buffer.address)
                setattr(job, f"{name}_sample", operand.step)
                setattr(job, f"{name}_step", (ctypes.c_int * AXES)(*spread_steps(operand.shape, x.shape)))
        self.device.launch("gained", job, blocks(count))
        return out

    def looked_up(self, table: GpuMemory, x: Values) -> Values:
        samples = 1 if x.is_shared else self.samples
        out = Values(self.device.empty(2 * samples * x.size), x.shape, x.is_shared)
        count = samples * x.size
        self.device.launch(
            "looked_up", filled(TableJob, table=table, in_=x.buffer, out=out.buffer, count=count), blocks(count)
        )
        return out

    def moved(
        self, places: GpuMemory, fill: GpuMemory | None, operands: Sequence[Values], shape: tuple[int, ...]
    ) -> Values:
        """A move by a map of places in the operands, one behind the other; where it is negative, of the fills."""
        out = self.empty(shape)
        count, first = self.samples * out.size, 0
        for number, operand in enumerate(operands):
            job = filled(
                MoveJob,
                **{"map": places, "in_": operand.buffer, "out": out.buffer, "count": count, "size": out.size},
                **{"sample": operand.step, "first": first, "last": first + operand.size},
                **{"fills": int(number == 0 and fill is not None), "fill": fill or 0},
            )
            self.device.launch("moved", job, blocks(count))
            first += operand.size
        return out

    def reduced(
        self, x: Values, line: GpuMemory, element: GpuMemory, shape: tuple[int, ...], length: int, kind: str,
        tree: int = 1, run: int = 1, factor: float = 1.0,
    ) -> Values:  # fmt: skip
        """Sums, means (sums times a factor), largest or smallest of lines."""
        out = self.empty(shape)
        count = self.samples * out.size
        job = filled(
            LinesJob,
            **{"in_": x.buffer, "line": line, "element": element, "out": out.buffer, "count": count, "sample": x.step},
            **{"lines": out.size, "length": length, "tree": tree, "run": run, "kind": _KINDS[kind], "factor": factor},
        )
        self.device.launch("reduced", job, blocks(count))
        return out

    def max_pooled(
        self, x: Values, shape: tuple[int, ...], size: Sequence[int], stride: Sequence[int], before: Sequence[int]
    ) -> Values:
        out = self.empty(shape)
        count = self.samples * out.size
        job = filled(
            PoolJob,
            **{"in_": x.buffer, "out": out.buffer, "count": count, "rows": shape[-2], "columns": shape[-1]},
            **{"in_rows": x.shape[-2], "in_columns": x.shape[-1]},
            **{"size": list(size), "stride": list(stride), "before": list(before)},
        )
        self.device.launch("max_pooled", job, blocks(count))
        return out

    def largest(self, x: Values, count: int, inner: int, offset: int = 0, samples: int | None = None) -> GpuMemory:
        """The largest size of each of ``count`` classes, elements [outer][count][inner], as fp16 bits."""
        held = self.samples if samples is None else samples
        outer = held * (x.size // (count * inner)) if samples is None else held
        most = self.device.zeroed(4 * count)
        job = filled(LargestJob, in_=x.buffer.address + 2 * offset, most=most, outer=outer, count=count, inner=inner)
        if inner < 16:
            grid = (-(-count * inner // _USUAL), min(_MOST_SPLITS, max(1, outer // 8)), 1)
        else:
            grid = (count, min(_MOST_SPLITS, max(1, outer * inner // (16 * _USUAL))), 1)
        self.device.launch("largest", job, grid)
        return most

    def bounds(self, most: GpuMemory, class_of: GpuMemory, count: int) -> GpuMemory:
        """The largest size of each term, as floats."""
        out = self.device.empty(4 * count)
        self.device.launch(
            "bounded", filled(BoundsJob, most=most, class_of=class_of, out=out, count=count), blocks(count)
        )
        return out


_OPERATIONS = {"add": 0, "sub": 1, "mult": 2, "div": 3, "max": 4, "min": 5}
_KINDS = {"sum": 0, "mean": 1, "max": 2, "min": 3}
