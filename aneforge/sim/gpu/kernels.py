"""What each kernel takes, as the structures of the CUDA sources, and how it is started."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aneforge.sim.gpu.device import GpuDevice, GpuMemory
from aneforge.sim.mac import LANES, LOSSY_FROM

Array = np.ndarray
BLOCK_ROWS, BLOCK_COLUMNS = 64, 128
"""Of a result, for one block of threads of a product."""
AXES = 5
RUN = 8
"""Elements in a row that one thread does: sixteen bytes."""
GROUP_FORM = 8, 4
"""The tree and run of sums that the kernel of whole groups is written for."""
_POINTER, _LONG, _INT, _DOUBLE = ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int, ctypes.c_double
_USUAL = 256
_MOST_SPLITS, _MOST_BLOCKS = 64, 2048


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
        *_fields(_LONG, "a_sample b_sample c_sample"),
        *_fields(_INT, "size first is_by_runs operation"),
        *_fields(_INT * AXES, "shape a_step b_step c_step"),
        *_fields(_DOUBLE, "gain bias ceiling"),
    ]


class TableJob(ctypes.Structure):
    _fields_ = [*_fields(_POINTER, "table in_ out"), *_fields(_LONG, "count")]


class MoveJob(ctypes.Structure):
    _fields_ = [
        *_fields(_POINTER, "map in_ out"),
        *_fields(_LONG, "sample"),
        *_fields(_INT, "size first last fills"),
        *_fields(_POINTER, "fill"),
    ]


class LinesJob(ctypes.Structure):
    _fields_ = [
        *_fields(_POINTER, "in_ line element out"),
        *_fields(_LONG, "count sample"),
        *_fields(_INT, "lines length tree run kind step"),
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
    _fields_ = [*_fields(_POINTER, "in_ most"), *_fields(_LONG, "outer count inner"), *_fields(_INT, "is_by_runs")]


class BoundsJob(ctypes.Structure):
    _fields_ = [*_fields(_POINTER, "most class_of out"), *_fields(_LONG, "count")]


class TermTilesJob(ctypes.Structure):
    _fields_ = [
        *_fields(_POINTER, "a b flag"),
        *_fields(_LONG, "count"),
        *_fields(_INT, "depth lanes"),
        *_fields(_DOUBLE, "limit"),
    ]


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


def blocks(count: int, size: int = _USUAL, samples: int = 1) -> tuple[int, int, int]:
    """The grid of a kernel whose blocks do so many elements each, of one sample where their number is given."""
    return max(1, -(-count // size)), samples, 1


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


def spread_steps(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """A shape with as few axes as say where each operand lies, and the operands' steps, as NumPy spreads them."""
    extents, steps = [1], [[0] for _ in operands]  # from the last axis on
    sizes = [1] * len(operands)
    for axis in range(-1, -len(shape) - 1, -1):
        own = []
        for number, operand in enumerate(operands):
            own.append(0 if operand[axis] == 1 else sizes[number])
            sizes[number] *= operand[axis]
        if shape[axis] == 1:
            continue
        if extents[-1] == 1:
            extents[-1] = shape[axis]
            for kept, step in zip(steps, own, strict=True):
                kept[-1] = step
        elif all(step == kept[-1] * extents[-1] for kept, step in zip(steps, own, strict=True)):
            extents[-1] *= shape[axis]
        else:
            extents.append(shape[axis])
            for kept, step in zip(steps, own, strict=True):
                kept.append(step)
    return extents[::-1], [kept[::-1] for kept in steps]


class Kernels:
    """The kernels of a device, on values of some samples.

    Whether a product may lose digits is known on the device. To ask for each product is to wait for each; whoever does
    not (``is_careful=False``) asks :meth:`has_lost` behind the last one.
    """

    def __init__(self, device: GpuDevice, samples: int, is_careful: bool = True) -> None:
        self.device, self.samples = device, samples
        self._flag = None if is_careful else device.zeroed(4)

    def empty(self, shape: tuple[int, ...]) -> Values:
        return Values(self.device.empty(2 * self.samples * math.prod(shape)), shape)

    def pair(self, operation: str, a: Values, b: Values, shape: tuple[int, ...] | None = None) -> Values:
        """An elementwise operation of two arrays of five axes, spread over each other."""
        out = self.empty(shape or tuple(np.broadcast_shapes(a.shape, b.shape)))
        self._elementwise("pairs", out, {"a": a, "b": b}, operation=_OPERATIONS[operation])
        return out

    def gained(
        self, x: Values, scale: Values | None, offset: Values | None, gain: float, bias: float, ceiling: float
    ) -> Values:
        out = self.empty(x.shape)
        operands = {"a": x, **({"b": scale} if scale else {}), **({"c": offset} if offset else {})}
        self._elementwise("gained", out, operands, gain=gain, bias=bias, ceiling=ceiling)
        return out

    def _elementwise(self, kernel: str, out: Values, operands: dict[str, Values], **settings: object) -> None:
        extents, steps = spread_steps(out.shape, [operand.shape for operand in operands.values()])
        unused, by_runs = AXES - len(extents), extents[-1] % RUN == 0
        job = filled(
            PairJob, out=out.buffer, size=out.size, first=unused, is_by_runs=int(by_runs),
            shape=[1] * unused + extents, **settings,
        )  # fmt: skip
        for (name, operand), own in zip(operands.items(), steps, strict=True):
            setattr(job, name, operand.buffer.address)
            setattr(job, f"{name}_sample", operand.step)
            setattr(job, f"{name}_step", (ctypes.c_int * AXES)(*[0] * unused, *own))
        self.device.launch(kernel, job, blocks(out.size, RUN * _USUAL if by_runs else _USUAL, self.samples))

    def looked_up(self, table: GpuMemory, x: Values) -> Values:
        samples = 1 if x.is_shared else self.samples
        out = Values(self.device.empty(2 * samples * x.size), x.shape, x.is_shared)
        count = samples * x.size
        self.device.launch(
            *("looked_up", filled(TableJob, table=table, in_=x.buffer, out=out.buffer, count=count)),
            blocks(count, RUN * _USUAL),
        )
        return out

    def moved(
        self, places: GpuMemory, fill: GpuMemory | None, operands: Sequence[Values], shape: tuple[int, ...]
    ) -> Values:
        """A move by a map of places in the operands, one behind the other; where it is negative, of the fills."""
        out = self.empty(shape)
        first = 0
        for number, operand in enumerate(operands):
            job = filled(
                MoveJob,
                **{"map": places, "in_": operand.buffer, "out": out.buffer, "size": out.size},
                **{"sample": operand.step, "first": first, "last": first + operand.size},
                **{"fills": int(number == 0 and fill is not None), "fill": fill or 0},
            )
            self.device.launch("moved", job, blocks(out.size, samples=self.samples))
            first += operand.size
        return out

    def reduced(
        self, x: Values, line: GpuMemory, element: GpuMemory, shape: tuple[int, ...], length: int, kind: str,
        form: tuple[int, int], step: int = 0, factor: float = 1.0,
    ) -> Values:  # fmt: skip
        """Sums, means (sums times a factor), largest or smallest of lines. The form is the tree and run of sums.

        A step from element to element says that the lines are whole groups of that form."""
        out = self.empty(shape)
        count = self.samples * out.size
        tree, run = form
        job = filled(
            LinesJob,
            **{"in_": x.buffer, "line": line, "element": element, "out": out.buffer, "count": count, "sample": x.step},
            **{"lines": out.size, "length": length, "tree": tree, "run": run, "kind": _KINDS[kind], "factor": factor},
            **{"step": step},
        )
        if step and form == GROUP_FORM:
            self.device.launch("reduced_groups", job, blocks(count, _USUAL // (length // (tree * run))))
        else:
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
        by_runs = inner % RUN == 0 and offset % RUN == 0
        job = filled(
            LargestJob, in_=x.buffer.address + 2 * offset, most=most, outer=outer, count=count, inner=inner,
            is_by_runs=int(by_runs),
        )  # fmt: skip
        if inner < 16:
            grid = (-(-count * inner // _USUAL), min(_MOST_SPLITS, max(1, outer // 8)), 1)
        else:
            parts = outer * inner // ((RUN if by_runs else 1) * 4 * _USUAL)
            grid = (count, min(max(_MOST_SPLITS, _MOST_BLOCKS // count), max(1, parts)), 1)
        self.device.launch("largest", job, grid)
        return most

    def bounds(self, most: GpuMemory, class_of: GpuMemory, count: int) -> GpuMemory:
        """The largest size of each term, as floats."""
        out = self.device.empty(4 * count)
        self.device.launch(
            "bounded", filled(BoundsJob, most=most, class_of=class_of, out=out, count=count), blocks(count)
        )
        return out

    def may_lose(self, a: GpuMemory, b: GpuMemory, groups: int, depth: int) -> bool:
        """Whether a tile of four terms may reach the size from which digits are lost, by bounds of its terms."""
        flag = self._flag or self.device.zeroed(4)
        count = groups * -(-depth // LANES)
        job = filled(TermTilesJob, a=a, b=b, flag=flag, count=count, depth=depth, lanes=LANES, limit=LOSSY_FROM)
        self.device.launch("lossy_tiles", job, blocks(count))
        return self._flag is None and self._is_set(flag)

    def has_lost(self) -> bool:
        """Whether some product of a run that did not ask may have lost digits."""
        return self._flag is not None and self._is_set(self._flag)

    def _is_set(self, flag: GpuMemory) -> bool:
        return bool(self.device.download(flag, (1,), np.uint32)[0])


_OPERATIONS = {"add": 0, "sub": 1, "mult": 2, "div": 3, "max": 4, "min": 5}
_KINDS = {"sum": 0, "mean": 1, "max": 2, "min": 3}
