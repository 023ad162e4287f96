"""One task as the phases decided it, and which register form its layer has.

A plan knows no registers. :mod:`aneforge.codegen.words` writes it with the registers of a generation.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from math import prod

import numpy as np

from aneforge.compiler.shown import ProgramLayer
from aneforge.engine.interpret import laid_out
from aneforge.engine.ir import Module, Op
from aneforge.engine.traits import Trait
from aneforge.sim.tables import tabulated


@dataclass(frozen=True)
class Scratch:
    """Where a tensor lies in the engine's own memory, in bytes."""

    base: int
    channel: int
    row: int
    depth: int


@dataclass(frozen=True)
class TaskBuffer:
    """A tensor as a task sees it: its extents, the strides of its memory, and its place in scratch."""

    channels: int
    height: int
    width: int
    row: int
    plane: int
    total: int
    scratch: Scratch
    bar: int | None = None
    """The base-address register of its memory; None where it stays in scratch."""
    offset: int = 0

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.channels, self.height, self.width

    @property
    def in_memory(self) -> bool:
        return self.bar is not None


@dataclass(frozen=True)
class Kernel:
    """The window of a convolution."""

    height: int = 1
    width: int = 1
    stride: tuple[int, int] = (1, 1)
    top: int = 0
    left: int = 0
    groups: int = 1
    is_depthwise: bool = False
    """Whether each output channel reads one input channel."""


@dataclass(frozen=True)
class Streams:
    """What a task reads of the constants: a stream of coefficients for each core, and a table."""

    coefficients: tuple[tuple[int, int], ...] = ()
    """Offset and size of each core's stream."""
    table: tuple[int, int] | None = None
    """Offset and size of the activation's table."""
    base: int = 0
    """Where they begin in the constants."""

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.coefficients) + (self.table[1] if self.table else 0)


@dataclass(frozen=True)
class TaskPlan:
    """One task."""

    number: int
    count: int
    """Of how many tasks; 0 where that is not known yet."""
    engine: str
    """``planar`` or ``mac``."""
    source: TaskBuffer
    result: TaskBuffer
    second: TaskBuffer | None = None
    operation: str = "add"
    """Of the planar engine: add, sub, mul, max or min of two sources; a reduction (reduce_avg, reduce_sum, reduce_max,
    reduce_min) or a pool (average_pool, max_pool) of one; or unknown, where the work has no published words. Of the
    other: convolution or bypass."""
    kernel: Kernel = Kernel()
    streams: Streams = Streams()
    lanes: int = 1
    """Output channels that a core computes side by side."""
    activation: str = "none"
    """none, relu or table."""
    has_bias: bool = False
    transposes_result: bool = False
    kernel_number: int = 0
    """The number of a task that loads weights or a table, from 1; 0 for others."""

    constants_bar: int | None = None
    """The base-address register of the kernels; worked out from the tensors where it is not given."""

    @property
    def final_scale(self) -> int:
        """What the planar engine multiplies its result with, as the bits of a single: 1/N for a mean of N numbers."""
        count = 1
        if self.operation == "reduce_avg":
            sides = zip(self.source.extents, self.result.extents, strict=True)
            count = prod(before for before, after in sides if before != after)
        return int.from_bytes(struct.pack("<f", 1 / count), "little")

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def is_last(self) -> bool:
        return self.number == self.count - 1

    @property
    def has_kernel(self) -> bool:
        return bool(self.streams.coefficients or self.streams.table)

    @property
    def memory_bytes(self) -> int:
        """What it moves to and from memory."""
        tensors = [self.source, self.result, *([self.second] if self.second else [])]
        return sum(tensor.total for tensor in tensors if tensor.in_memory) + self.streams.bytes


# Which register form a layer has: elementwise, convolution, bypass (activation, transpose), pool or reduction.


Array = np.ndarray
TURNED = ((2, 4), (4, 2))
"""The transpose that a MAC task does on its way out: channels and columns change places."""
_ELEMENTWISE = {"add": "add", "sub": "sub", "mult": "mul", "max": "max", "min": "min"}
WIDEST, MOST_CHANNELS = (1 << 15) - 1, (1 << 17) - 1


@dataclass(frozen=True)
class Form:
    """The work of a layer as registers say it."""

    name: str
    engine: str
    operation: str
    operands: tuple[Op, ...]
    kernel: Kernel = field(default_factory=Kernel)
    weights: Array | None = None
    bias: Array | None = None
    activation: str = "none"
    """``none``, ``relu``, or the name of a table."""
    transposes: bool = False
    sampled: tuple[str, ...] = ()


def form_of(layer: ProgramLayer, module: Module) -> Form | str:
    """The form of a layer, or why it has none."""
    ops = layer.ops
    for op in (*ops, *(operand for operand in ops[0].operands if operand.kind != "const_in")):
        if op.type is None or op.type.dtype != "f16":
            return "only fp16 tensors have published words"
        n, d, c, h, w = op.shape
        if n * d != 1:
            return "a batch or a depth of more than one has no published words"
        if max(h, w) > WIDEST or c > MOST_CHANNELS:
            return "an extent is larger than its register field"
    primary = ops[0]
    if primary.kind in _ELEMENTWISE:
        return _elementwise(ops)
    if primary.is_a(Trait.REDUCTION) or (primary.is_a(Trait.POOL) and primary.kind != "l2norm_pool"):
        return _reduction(ops)
    return _mac(ops, module)


def _elementwise(ops: list[Op]) -> Form | str:
    primary, rest = ops[0], ops[1:]
    left, right = primary.operands[0], primary.operands[-1]
    if "const_in" in (left.kind, right.kind):
        return "an elementwise operand that is a constant has no published words"
    if left.shape != right.shape:
        return "broadcasting has no published words"
    if rest and [op.kind for op in rest] != ["relu"]:
        return f"{rest[-1].kind} behind an elementwise op has no published words"
    operation = _ELEMENTWISE[primary.kind]
    sampled = ("planar.relu",) if rest else ()
    return Form(
        "elementwise",
        "planar",
        operation,
        (left, right),
        activation="relu" if rest else "none",
        sampled=sampled,
    )


def _reduction(ops: list[Op]) -> Form | str:
    primary = ops[0]
    if len(ops) > 1:
        return f"{ops[-1].kind} behind a reduction has no published words"
    if primary.is_a(Trait.REDUCTION):
        return Form("reduction", "planar", primary.kind, (primary.operands[0],), sampled=("planar.reduction",))
    _, height, width = primary.attrs["ksize"]
    _, _, top, _, left, _ = primary.attrs["padding"]
    kernel = Kernel(height, width, effective_stride(primary.shape, primary.attrs["stride"]), top, left)
    problem = _unfit(kernel)
    return problem or Form("pool", "planar", primary.kind, (primary.operands[0],), kernel, sampled=("planar.pool",))


def _mac(ops: list[Op], module: Module) -> Form | str:
    rest = list(ops)
    source = rest[0].operands[0] if rest[0].operands else None
    if source is None or source.kind == "const_in":
        return f"{rest[0].kind} of a constant has no published words"
    kernel, weights, bias = Kernel(), None, None
    name, operation, sampled = "bypass", "bypass", []
    if rest[0].kind == "convolution":
        primary = rest.pop(0)
        if any(operand.kind != "const_in" for operand in primary.operands[1:]):
            return "a kernel that is computed has no published words"
        if any(module.weights[operand.attrs["weight"]].encoded for operand in primary.operands[1:]):
            return "a kernel in a compressed form has no published words"
        kernel = _kernel_of(primary)
        problem = _unfit(kernel)
        if problem:
            return problem
        weights = _constant(module, primary.operands[1])[:, 0]
        if len(primary.operands) > 2:
            bias = _constant(module, primary.operands[2]).reshape(-1)
            if len(bias) != len(weights):
                return "one bias for all channels has no published words"
            sampled.append("mac.bias")
        name, operation = "convolution", "convolution"
        sampled += ["depthwise"] if kernel.is_depthwise else ["groups"] if kernel.groups > 1 else []
    activation, transposes = "none", False
    if rest and (rest[0].kind == "relu" or (rest[0].kind in tabulated() and not rest[0].attrs)):
        activation = rest.pop(0).kind
        name = name if operation == "convolution" else "activation"
    if rest and rest[0].kind == "transpose" and rest[0].attrs["transpose_list"] == TURNED:
        rest.pop(0)
        transposes = True
        name = name if operation == "convolution" or activation != "none" else "transpose"
    if rest or (operation == "bypass" and activation == "none" and not transposes):
        return f"{(rest or ops)[0].kind} has no published words"
    if transposes and operation == "bypass":
        sampled.append("scratch.matrix")
    return Form(
        name,
        "mac",
        operation,
        (source,),
        kernel,
        weights,
        bias,
        activation,
        transposes,
        ("task.small_source", *sampled),
    )


def _kernel_of(op: Op) -> Kernel:
    _, height, width = op.attrs["kernel_sizes"]
    _, _, top, _, left, _ = op.attrs["explicit_padding"]
    groups, stride = op.attrs["groups"], effective_stride(op.shape, op.attrs["strides"])
    return Kernel(height, width, stride, top, left, groups, groups > 1 and groups == op.operands[0].shape[2])


def _unfit(kernel: Kernel) -> str:
    """Why a window does not fit its register fields; empty where it does."""
    if max(kernel.stride) > 3:
        return f"a stride of {max(kernel.stride)} does not fit its register field, which holds 3"
    if max(kernel.height, kernel.width, kernel.top, kernel.left) > 31:
        return "a window or a padding of more than 31 does not fit its register field"
    return "" if kernel.groups < 1 << 13 or kernel.is_depthwise else "the groups do not fit their register field"


def _constant(module: Module, op: Op) -> Array:
    return laid_out(module.weights[op.attrs["weight"]].array, op.shape)


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
