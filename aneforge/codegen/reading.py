"""What a task does, from its registers and constants: where it reads and writes, and the backend ops of its work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.dialect import written_generations
from aneforge.codegen.forms import TURNED
from aneforge.codegen.operands import Operand, TaskRegisters
from aneforge.codegen.packing import unpack_convolution
from aneforge.codegen.planar_reading import in_lanes, lanes_of, read_planar, window_of
from aneforge.codegen.tables import activation_of, bounds_of
from aneforge.codegen.task_work import TaskParts, TaskReading, TaskWork
from aneforge.codegen.tasks import Task
from aneforge.engine.windows import effective_padding

_PLANAR, _CORES = 0, 16
_CONVOLUTION, _BYPASS, _BIASED_BYPASS, _LARGEST = 0, 0xC, 0x8, 0xB
"""What the MAC engine does with the products of a channel: adds them up, hands one on, adds up channels without a
kernel (or hands one on, with an epsilon behind it), or keeps the largest channel."""
_MODE, _BIAS, _ACTIVATION = 0xF, 0x10, 16
_RELU, _TABLE = 1, 2
_LOG2_E = 0x3DC5
"""The half that an exponential of e scales with in front of its table of powers of two."""
_CHANNELS = 2


def read_task(task: Task, constants: Mapping[int, bytes]) -> TaskReading:
    """The ops of a task. ``constants`` has the bytes of each base-address register that stands for constants. An error
    says what in the task has no published meaning."""
    words = TaskRegisters(task)
    planar = task.header["ENE"] == _PLANAR
    times = max(1, words["groups"]) if planar or not words["unicast"] else 1
    into, out = (_extents(words, side, times, planar) for side in ("in", "out"))
    if planar:
        return read_planar(words, into, out, constants)
    source = words.operand("source", into)
    parts = _mac(words, into, out, constants)
    shape = parts.work[-1].shape if parts.work else out
    staged = ((0, words.in_scratch("source", into)),) if words.is_in_memory("source") else ()
    if source.place[0] in constants:
        staged = ()
    result, lanes = words.operand("result", shape), lanes_of(words)
    if lanes > 1:
        result = replace(result, layout=in_lanes(shape, lanes))
    return TaskReading((source, *parts.operands), result, tuple(parts.work), staged=staged)


def _extents(words: TaskRegisters, side: str, times: int, planar: bool) -> tuple[int, ...]:
    """Images, depth, channels, rows and columns. Groups are channels of a convolution, and images of a planar task."""
    c, h, w = words[f"{side}.channels"], words[f"{side}.height"], words[f"{side}.width"]
    depth = words[f"{side}.depth"]
    if not all((c, h, w, depth)):
        raise words.error(f"has the extents {c} x {h} x {w} in a depth of {depth}; none may be 0")
    return (times, depth, c, h, w) if planar else (1, depth, times * c, h, w)


def _mac(
    words: TaskRegisters, into: tuple[int, ...], out: tuple[int, ...], constants: Mapping[int, bytes]
) -> TaskParts:
    mode = words["mac.config"] & _MODE
    work: list[TaskWork] = []
    others: list[Operand] = []
    if mode == _CONVOLUTION and (kernel := _computed_kernel(words, into, out, constants)):
        others.append(kernel)
        work.append(TaskWork("matmul", {}, out))
    elif mode == _CONVOLUTION:
        work.append(_convolution(words, into, out, constants))
    elif mode in (_LARGEST, _BIASED_BYPASS) and into != out and out == (*into[:2], 1, *into[3:]):
        kind = "reduce_max" if mode == _LARGEST else "reduce_sum"
        work.append(TaskWork(kind, {"axes": (_CHANNELS,)}, out))
    elif mode not in (_BYPASS, _BIASED_BYPASS) or into != out:
        raise words.error(f"has MAC operation {mode:#x} from {into} to {out}, which has no published meaning")
    elif mode == _BYPASS and words["mac.same_bias"]:
        raise words.error(f"adds {words['mac.same_bias']:#x} to a copy, which has no published meaning")
    work += _activation(words, out, constants)
    if words["task.transposes"]:
        work.append(TaskWork("transpose", {"transpose_list": TURNED}, (*out[:2], *out[:1:-1])))
    return TaskParts(work, others)


def _half_word(words: TaskRegisters, meaning: str) -> int:
    """The bits of a half, in a word that has room for more."""
    value = words[meaning]
    if value >> 16:
        raise words.error(f"has {value:#x} as {meaning}, which is no half")
    return value


def _activation(words: TaskRegisters, out: tuple[int, ...], constants: Mapping[int, bytes]) -> list[TaskWork]:
    """What follows the products: a factor, then a relu or a table."""
    scale, activation = _half_word(words, "mac.scale"), words["mac.config"] >> _ACTIVATION & 3
    name, attrs, bounds = "", {}, None
    if activation == _TABLE:
        data = _table(words, constants)
        name = activation_of(data, words.task.generation) or ""
        bounds = None if name else bounds_of(data)
        if not name and bounds is None:
            raise words.error("reads a table that is not a known activation")
        if name == "exp2" and scale == _LOG2_E:
            scale, attrs = _HALF_ONE, {"base_e": True}
    work = []
    if scale != _HALF_ONE:
        gain = np.array([scale], np.uint16).view(np.float16)
        work.append(TaskWork("gain_offset_control", {}, out, (gain, np.zeros_like(gain))))
    if activation == _RELU:
        work.append(TaskWork("relu", {}, out))
    elif name:
        work.append(TaskWork(name, attrs, out))
    elif bounds is not None and bounds.slope is not None:
        work.append(TaskWork("leaky_relu", {"negative_slope": bounds.slope}, out))
    elif bounds is not None and np.isfinite(bounds.low) and np.isfinite(bounds.high):
        work.append(TaskWork("clamped_relu", {"min_val": bounds.low, "max_val": bounds.high}, out))
    elif bounds is not None:
        kind, end = ("max", bounds.low) if np.isfinite(bounds.low) else ("min", bounds.high)
        work.append(TaskWork(kind, {}, out, (np.full(1, end, np.float16),)))
    elif activation:
        raise words.error(f"has activation {activation}, which has no published meaning")
    return work


_HALF_ONE, _TABLE_BYTES, _SKIPS_ZEROS = 0x3C00, 128, 0x20


def table_name(task: Task, constants: Mapping[int, bytes]) -> str:
    """Which table a task reads, for a person; empty for a task without one."""
    try:
        data = table_bytes_of(task, constants)
    except ContainerError:
        return "unknown"
    if not data:
        return ""
    bounds = bounds_of(data)
    if bounds is None:
        return activation_of(data, task.generation) or "unknown"
    if bounds.slope is not None:
        return f"slope {bounds.slope:g} below 0"
    ends = ((bounds.low, "at least"), (bounds.high, "at most"))
    return ", ".join(f"{text} {end:g}" for end, text in ends if np.isfinite(end))


def table_bytes_of(task: Task, constants: Mapping[int, bytes]) -> bytes:
    """The table that a task reads; nothing for a task without one."""
    if task.generation not in written_generations() or task.header["ENE"] == _PLANAR:
        return b""
    words = TaskRegisters(task)
    return _table(words, constants) if words["mac.config"] >> _ACTIVATION & 3 == _TABLE else b""


def _table(words: TaskRegisters, constants: Mapping[int, bytes]) -> bytes:
    """The bytes of the table that a task reads: from the registers of tables, or from the head of its streams."""
    place = words.table_place() if words["table.config"] & 1 else None
    if place is None:
        streams = _streams(words)
        kernel = words.kernel_place()
        if not streams or kernel is None:
            raise words.error("reads a table and has no stream")
        place = kernel[0], kernel[1] + streams[0][0]
    data = constants.get(place[0])
    if data is None:
        raise words.error(f"reads a table from base-address register {place[0]}, which holds no constants")
    return data[place[1] : place[1] + _TABLE_BYTES]


def _streams(words: TaskRegisters) -> list[tuple[int, int]]:
    """The start and size of each core's stream of coefficients."""
    if not words["constants.config"]:
        return []
    form = "{}[{}]" if words.dialect.numbered_streams else "{}{}"

    def word(name: str, core: int) -> int:
        return words.word("KernelDMASrc", form.format(name, core))

    return [
        (word("CoeffBaseAddr", core), word("CoeffBfrSize", core))
        for core in range(_CORES)
        if word("CoeffDMAConfig", core) & 1
    ]


def _computed_kernel(
    words: TaskRegisters, into: tuple[int, ...], out: tuple[int, ...], constants: Mapping[int, bytes]
) -> Operand | None:
    """The tensor that is read as the kernel of a product; None for a kernel of constants."""
    place = words.kernel_place()
    if place is None or place[0] in constants:
        return None
    streams, lanes = _streams(words), 1 << (words["outputs_per_core"] & 7)
    rows, columns = out[2], into[2]
    size = 2 * lanes * columns
    start, cores = streams[0][0] if streams else 0, rows // lanes
    in_order = [(start + core * size, size) for core in range(min(_CORES, cores))]
    if streams[: len(in_order)] != in_order or len(streams) not in (len(in_order), _CORES) or rows % lanes:
        raise words.error("has a kernel that is a tensor in an order that has no published meaning")
    if window_of(words) != ((1, 1), (1, 1)):
        raise words.error("has a window over a kernel that is a tensor, which has no published meaning")
    return Operand((place[0], place[1] + start), in_lanes((1, 1, rows, 1, columns), lanes))


def _behind_tables(constants: bytes, streams: list[tuple[int, int]]) -> tuple[bytes, list[tuple[int, int]]]:
    """The coefficients of streams that begin with a table, one behind the other."""
    data, found = bytearray(), []
    for start, size in streams:
        part = constants[start + _TABLE_BYTES : start + size]
        found.append((len(data), len(part)))
        data += part
    return bytes(data), found


def _convolution(
    words: TaskRegisters, into: tuple[int, ...], out: tuple[int, ...], sections: Mapping[int, bytes]
) -> TaskWork:
    depthwise = bool(words["unicast"])
    groups = into[2] if depthwise else max(1, words["groups"])
    size, stride = window_of(words)
    streams, place = _streams(words), words.kernel_place()
    if not streams or place is None:
        raise words.error("is a convolution without a stream of coefficients")
    constants = sections[place[0]][place[1] :]
    if words["mac.config"] >> _ACTIVATION & 3 == _TABLE and not words["table.config"] & 1:
        constants, streams = _behind_tables(constants, streams)
    first = min(start for start, _ in streams)
    data = constants[first : max(start + length for start, length in streams)]
    shape = (out[2], into[2] // groups, *size)
    skips = bool(words["constants.config"] & _SKIPS_ZEROS)
    if not skips and 2 * prod(shape) > len(data):
        raise words.error(f"needs {2 * prod(shape)} bytes of coefficients; its streams have {len(data)}")
    relative = [(start - first, length) for start, length in streams]
    side = None if words["task.transposes"] else max(into[3:])
    try:
        steps = (2, 2) if skips else (1, 1)
        has_bias = bool(words["mac.config"] & _BIAS)
        kernel, bias = unpack_convolution(data, relative, shape, groups, has_bias, steps, side)
    except ValueError as error:
        raise words.error(f"has coefficients that do not fit its kernel: {error}") from None
    same_bias = _half_word(words, "mac.same_bias")
    if same_bias:
        if bias is not None:
            raise words.error("has a bias for each channel and one for all, which has no published meaning")
        bias = np.full(out[2], same_bias, np.uint16).view(np.float16)
    attrs: dict[str, Any] = {
        "strides": (1, *stride),
        "dilation_rates": (1, 1, 1),
        "groups": groups,
        "explicit_padding": effective_padding(into, out, size, stride, (words["kernel.top"], words["kernel.left"])),
        "kernel_sizes": (1, *size),
        "weights_layout": "OIHW",
        "padding_style": "EXPLICIT",
        **({"channel_wise": True} if depthwise else {}),
    }
    return TaskWork("convolution", attrs, out, (kernel,) if bias is None else (kernel, bias))
