"""What a task does, from its registers and constants: where it reads and writes, and the backend ops of its work."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.dialect import meaning_of
from aneforge.codegen.forms import TURNED, effective_padding
from aneforge.codegen.packing import unpack_convolution
from aneforge.codegen.registers import register_map
from aneforge.codegen.tables import activation_of
from aneforge.codegen.tasks import Task

SCRATCH = -1
"""The base of a place in the engine's own memory, beside the numbers of base-address registers."""
Place = tuple[int, int]
"""A base-address register and an offset, or :data:`SCRATCH` and an address."""

_PLANAR, _CORES = 0, 16
_SECOND_IN_MEMORY = 0x30000  # bits of the configuration of a second source that memory brings
_ELEMENTWISE = {0: "add", 1: "mult", 2: "max", 3: "min"}
_REDUCED = {0: "reduce_sum", 2: "reduce_max", 3: "reduce_min"}
_POOLED = {1: "average_pool", 2: "max_pool"}
_TWO_SOURCES, _REDUCTION = 3, 5
_NEGATED = 3
_CONVOLUTION, _BYPASS = 0, 4
_RELU, _TABLE = 1, 2
_AXES = (2, 3, 4)


@dataclass(frozen=True)
class Operand:
    """A tensor that a task reads or writes: its place, and its channels, height and width."""

    place: Place
    extents: tuple[int, int, int]

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        return (1, 1, *self.extents)


@dataclass(frozen=True)
class TaskWork:
    """One backend op of a task."""

    kind: str
    attrs: dict[str, Any]
    shape: tuple[int, ...]
    kernel: np.ndarray | None = None
    bias: np.ndarray | None = None


@dataclass(frozen=True)
class TaskReading:
    """A task in the engine's language."""

    operands: tuple[Operand, ...]
    result: Operand
    work: tuple[TaskWork, ...]


class _Registers:
    """The words of one task by meaning; a word that is missing is an error that names it."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __getitem__(self, meaning: str) -> int:
        value = meaning_of(self.task, meaning)
        if value is None:
            raise self.error(f"does not write {meaning}")
        return value

    def word(self, block: str, name: str) -> int:
        value = self.task.word(register_map(self.task.generation).register(block, name).address)
        if value is None:
            raise self.error(f"does not write {block}.{name}")
        return value

    def error(self, message: str) -> ContainerError:
        return ContainerError(self.task.offset, f"task {self.task.header.get('TID')} {message}")


def read_task(task: Task, constants: bytes) -> TaskReading:
    """The ops of a task of h13. An error says what in it has no published meaning."""
    words, header = _Registers(task), task.header
    if task.generation != "h13":
        raise words.error(f"is of {task.generation}; only programs of h13 are read back to ops")
    parts = 1 if words["unicast"] else max(1, words["groups"])
    into = (parts * words["in.channels"], words["in.height"], words["in.width"])
    out = (parts * words["out.channels"], words["out.height"], words["out.width"])
    operands = [Operand(_source_place(words, header), into)]
    planar = header["ENE"] == _PLANAR
    if planar and words["task.type"] == _TWO_SOURCES:
        operands.append(Operand(_second_place(words, header), into))
    work = _planar(words, into, out) if planar else _mac(words, into, out, constants)
    result = work[-1].shape[2:] if work else out
    written = words["result.config"] & 1
    place = (header["WBase"], words["result.base"]) if written else (SCRATCH, words.word("L2", "ResultBase"))
    return TaskReading(tuple(operands), Operand(place, (result[0], result[1], result[2])), tuple(work))


def _source_place(words: _Registers, header: dict[str, int]) -> Place:
    if words["source.config"] & 1:
        return header["RBase0"], words["source.base"]
    return SCRATCH, words["scratch.source.base"]


def _second_place(words: _Registers, header: dict[str, int]) -> Place:
    if not words["second.config"] & _SECOND_IN_MEMORY:
        return SCRATCH, words["scratch.second.base"]
    return header["RBase1"], words["second.base"]


def _planar(words: _Registers, into: tuple[int, ...], out: tuple[int, ...]) -> list[TaskWork]:
    kind, config = words["task.type"], words["planar.config"]
    operation, shape = words["planar.operation"], (1, 1, *out)
    if kind == _TWO_SOURCES and operation in _ELEMENTWISE and config:
        negated = words["planar.second"] == _NEGATED
        if negated and operation:
            raise words.error(f"negates its second source in operation {operation}, which has no published meaning")
        work = [TaskWork("sub" if negated else _ELEMENTWISE[operation], {}, shape)]
    elif kind == _REDUCTION and config & 3 in _POOLED:
        work = [_pool(words, _POOLED[config & 3], into, out)]
    elif kind == _REDUCTION and not config & 3 and operation in _REDUCED:
        work = [_reduction(words, operation, into, out)]
    else:
        raise words.error(f"has planar work {config:#x} of type {kind}, which has no published meaning")
    if words["planar.relu"]:
        work.append(TaskWork("relu", {}, shape))
    return work


def _pool(words: _Registers, kind: str, into: tuple[int, ...], out: tuple[int, ...]) -> TaskWork:
    size, stride = _window(words)
    padding = effective_padding(into, out, size, stride, words["kernel.top"], words["kernel.left"])
    attrs: dict[str, Any] = {"ksize": (1, *size), "padding": padding, "stride": (1, *stride)}
    if kind == "average_pool":
        attrs["inc_pad"] = True
    return TaskWork(kind, attrs, (1, 1, *out))


def _reduction(words: _Registers, operation: int, into: tuple[int, ...], out: tuple[int, ...]) -> TaskWork:
    axes = tuple(axis for axis, before, after in zip(_AXES, into, out, strict=True) if before != after)
    if any(out[axis - 2] != 1 for axis in axes):
        raise words.error(f"reduces {into} to {out}, which no axes do")
    count = prod(into[axis - 2] for axis in axes)
    kind = _REDUCED[operation]
    scale = words["planar.scale"]
    if scale != _single(1.0):
        if scale != _single(1 / count) or kind != "reduce_sum":
            raise words.error(f"scales its result by {scale:#010x}; a mean of {count} has {_single(1 / count):#010x}")
        kind = "reduce_avg"
    return TaskWork(kind, {"axes": axes}, (1, 1, *out))


def _single(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


def _window(words: _Registers) -> tuple[tuple[int, int], tuple[int, int]]:
    size = words["kernel.height"], words["kernel.width"]
    stride = words["kernel.stride_y"], words["kernel.stride_x"]
    if not all((*size, *stride)):
        raise words.error(f"has a window of {size} with strides {stride}")
    return size, stride


def _mac(words: _Registers, into: tuple[int, ...], out: tuple[int, ...], constants: bytes) -> list[TaskWork]:
    operation, shape = words["mac.operation"], (1, 1, *out)
    streams = _streams(words)
    work: list[TaskWork] = []
    if operation == _CONVOLUTION and not words["mac.unit_kernel"]:
        work.append(_convolution(words, into, out, constants))
    elif operation != _BYPASS or into != out:
        raise words.error(f"has MAC operation {operation} from {into} to {out}, which has no published meaning")
    activation = words["mac.activation"]
    if activation == _RELU:
        work.append(TaskWork("relu", {}, shape))
    elif activation == _TABLE:
        if not streams:
            raise words.error("reads a table and has no stream")
        start, size = streams[0][0], min(_TABLE_BYTES, streams[0][1])
        name = activation_of(constants[start : start + size], words.task.generation)
        if name is None:
            raise words.error(f"reads a table at {start:#x} of the constants that is not a known activation")
        work.append(TaskWork(name, {}, shape))
    elif activation:
        raise words.error(f"has activation {activation}, which has no published meaning")
    if words["task.transposes"]:
        work.append(TaskWork("transpose", {"transpose_list": TURNED}, (1, 1, *out[::-1])))
    return work


_TABLE_BYTES, _SKIPS_ZEROS = 128, 0x20


def _streams(words: _Registers) -> list[tuple[int, int]]:
    """The start and size of each core's stream of coefficients."""
    if not words["constants.config"]:
        return []
    return [
        (words.word("KernelDMASrc", f"CoeffBaseAddr[{core}]"), words.word("KernelDMASrc", f"CoeffBfrSize[{core}]"))
        for core in range(_CORES)
        if words.word("KernelDMASrc", f"CoeffDMAConfig[{core}]") & 1
    ]


def _behind_tables(constants: bytes, streams: list[tuple[int, int]]) -> tuple[bytes, list[tuple[int, int]]]:
    """The coefficients of streams that begin with a table, one behind the other."""
    data, found = bytearray(), []
    for start, size in streams:
        part = constants[start + _TABLE_BYTES : start + size]
        found.append((len(data), len(part)))
        data += part
    return bytes(data), found


def _convolution(words: _Registers, into: tuple[int, ...], out: tuple[int, ...], constants: bytes) -> TaskWork:
    depthwise = bool(words["unicast"])
    groups = into[0] if depthwise else max(1, words["groups"])
    size, stride = _window(words)
    streams = _streams(words)
    if words["mac.activation"] == _TABLE:
        constants, streams = _behind_tables(constants, streams)
    if not streams:
        raise words.error("is a convolution without a stream of coefficients")
    first = min(start for start, _ in streams)
    data = constants[first : max(start + length for start, length in streams)]
    shape = (out[0], into[0] // groups, *size)
    skips = bool(words["constants.config"] & _SKIPS_ZEROS)
    if not skips and 2 * prod(shape) > len(data):
        raise words.error(f"needs {2 * prod(shape)} bytes of coefficients; its streams have {len(data)}")
    relative = [(start - first, length) for start, length in streams]
    side = None if words["task.transposes"] else max(into[1:])
    try:
        steps = (2, 2) if skips else (1, 1)
        kernel, bias = unpack_convolution(data, relative, shape, groups, bool(words["mac.bias"]), steps, side)
    except ValueError as error:
        raise words.error(f"has coefficients that do not fit its kernel: {error}") from None
    attrs: dict[str, Any] = {
        "strides": (1, *stride),
        "dilation_rates": (1, 1, 1),
        "groups": groups,
        "explicit_padding": effective_padding(into, out, size, stride, words["kernel.top"], words["kernel.left"]),
        "kernel_sizes": (1, *size),
        "weights_layout": "OIHW",
        "padding_style": "EXPLICIT",
        **({"channel_wise": True} if depthwise else {}),
    }
    return TaskWork("convolution", attrs, (1, 1, *out), kernel, bias)
