"""What a task does, from its registers and constants: where it reads and writes, and the backend ops of its work."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.dialect import written_generations
from aneforge.codegen.forms import TURNED, effective_padding
from aneforge.codegen.memory import Layout
from aneforge.codegen.operands import Operand, TaskRegisters
from aneforge.codegen.packing import unpack_convolution
from aneforge.codegen.tables import activation_of, bounds_of
from aneforge.codegen.tasks import Task

_PLANAR, _CORES = 0, 16
_ELEMENTWISE = {0: "add", 1: "mult", 2: "max", 3: "min"}
_REDUCED = {0: "reduce_sum", 2: "reduce_max", 3: "reduce_min"}
_POOLED = {1: "average_pool", 2: "max_pool"}
_COPY, _TWO_SOURCES, _VECTOR, _REDUCTION = 2, 3, 4, 5
_ABSOLUTE, _PLANAR_RELU, _NEGATED = 0x1C0, 0x20, 3
_CONVOLUTION, _BYPASS, _BIASED_BYPASS = 0, 0xC, 0x8
_MODE, _BIAS, _ACTIVATION = 0xF, 0x10, 16
_RELU, _TABLE = 1, 2
_TURNS_SECOND, _TURNS_RESULT = 0x200, 0x400
_STRETCHED = ((4, 0x1, 0x10), (3, 0x2, 0x20), (1, 0x4, 0x40), (2, 0x8, 0x80))
"""Axes, and the bits that stretch the first and the second source over them."""
_SECOND_BEHIND_RELU = 0x10
_LOG2_E = 0x3DC5
"""The half that an exponential of e scales with in front of its table of powers of two."""
_AXES = (2, 3, 4)


@dataclass(frozen=True)
class TaskWork:
    """One backend op of a task. It reads what the op before it gave, or the operands of the task."""

    kind: str
    attrs: dict[str, Any]
    shape: tuple[int, ...]
    constants: tuple[np.ndarray, ...] = ()
    """Kernels, biases, bounds and numbers that it reads besides."""
    from_second: bool = False
    """Whether its constants are the rows of the second operand: offsets, then gains."""


@dataclass(frozen=True)
class TaskReading:
    """A task in the engine's language."""

    operands: tuple[Operand, ...]
    result: Operand
    work: tuple[TaskWork, ...]
    second_behind_relu: bool = False
    """Whether the second operand is the first one behind a relu."""


@dataclass(frozen=True)
class _Parts:
    """What a task does, before the places of its operands are known."""

    work: list[TaskWork]
    operands: list[Operand] = field(default_factory=list)
    """Besides the first source."""
    result: Layout | None = None


def read_task(task: Task, constants: Mapping[int, bytes]) -> TaskReading:
    """The ops of a task. ``constants`` has the bytes of each base-address register that stands for constants. An error
    says what in the task has no published meaning."""
    words = TaskRegisters(task)
    planar = task.header["ENE"] == _PLANAR
    times = max(1, words["groups"]) if planar or not words["unicast"] else 1
    into, out = (_extents(words, side, times, planar) for side in ("in", "out"))
    source = words.operand("source", _shrunk(into, words["planar.mask"], 1) if planar else into)
    parts = _planar(words, source, into, out) if planar else _mac(words, source, into, out, constants)
    if not planar or words["task.type"] != _REDUCTION:
        _check_extents(words, parts.work, into, out)
    shape = parts.work[-1].shape if parts.work else out
    source, work = _ordered(source, parts.work)
    result = words.operand("result", shape)
    if planar and work and work[0].kind.startswith("reduce_"):
        result = _reduced(words, shape)
    if parts.result is not None:
        result = replace(result, layout=parts.result)
    twice = planar and bool(words["scratch.config"] & _SECOND_BEHIND_RELU)
    return TaskReading((source, *parts.operands), result, tuple(work), twice)


def _extents(words: TaskRegisters, side: str, times: int, planar: bool) -> tuple[int, ...]:
    """Images, depth, channels, rows and columns. Groups are channels of a convolution, and images of a planar task."""
    c, h, w = words[f"{side}.channels"], words[f"{side}.height"], words[f"{side}.width"]
    depth = words[f"{side}.depth"]
    if not all((c, h, w, depth)):
        raise words.error(f"has the extents {c} x {h} x {w} in a depth of {depth}; none may be 0")
    return (times, depth, c, h, w) if planar else (1, depth, times * c, h, w)


_CHANGE_EXTENTS = ("convolution", "matmul")


def _check_extents(words: TaskRegisters, work: list[TaskWork], into: tuple[int, ...], out: tuple[int, ...]) -> None:
    """Only windows and products give other extents than they read."""
    if into != out and not (work and work[0].kind in _CHANGE_EXTENTS):
        kind = work[0].kind if work else "copy"
        raise words.error(f"reads {into[2:]} and gives {out[2:]}, which no {kind} does")


def _shrunk(shape: tuple[int, ...], mask: int, which: int) -> tuple[int, ...]:
    """A shape without the axes over which a source is stretched."""
    axes = {entry[0] for entry in _STRETCHED if mask & entry[which]}
    return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))


# The planar engine.


def _planar(words: TaskRegisters, source: Operand, into: tuple[int, ...], out: tuple[int, ...]) -> _Parts:
    kind, config = words["task.type"], words["planar.config"]
    relu = [TaskWork("relu", {}, out)] if config & _PLANAR_RELU else []
    plain = config & ~_PLANAR_RELU
    operation, second = plain >> 2 & 7, plain >> 18
    if kind == _TWO_SOURCES and operation in _ELEMENTWISE and plain:
        if second == _NEGATED and operation:
            raise words.error(f"negates its second source in operation {operation}, which has no published meaning")
        _refuse_numbers(words)
        name = "sub" if second == _NEGATED else _ELEMENTWISE[operation]
        operands = [source]
        if not words["scratch.config"] & _SECOND_BEHIND_RELU:
            operands = [words.operand("second", _second_shape(words, into))]
        return _Parts([TaskWork(name, {}, out), *relu], operands)
    if kind == _VECTOR and words["planar.mask"] == _TURNS_SECOND and operation == 0:
        rows = words.operand("second", (1, 1, 1, 2, into[2]))
        return _Parts([TaskWork("gain_offset_control", {}, out, from_second=True)], [rows])
    if kind == _REDUCTION:
        return _Parts([_pooled(words, plain, into, out), *relu])
    if kind == _COPY and plain == _ABSOLUTE:
        return _Parts([TaskWork("abs", {}, out)])
    numbers = _numbers(words)
    if kind == _COPY and not config and numbers != (0.0, 1.0):
        offset, gain = (np.full(1, number, np.float16) for number in numbers)
        return _Parts([TaskWork("gain_offset_control", {}, out, (gain, offset))])
    lanes = (words["result.format"] - words.dialect.result_format >> words.dialect.lanes_bit) + 1
    if kind == _COPY and not config and lanes > 1:
        return _Parts([], result=_in_lanes(into, lanes))
    raise words.error(f"has planar work {config:#x} of type {kind}, which has no published meaning")


def _second_shape(words: TaskRegisters, into: tuple[int, ...]) -> tuple[int, ...]:
    """A second source that is the same for all images has no stride from one to the next."""
    shape = _shrunk(into, words["planar.mask"], 2)
    if into[0] > 1 and not words["second.group" if words.is_in_memory("second") else "scratch.second.group"]:
        return (1, *shape[1:])
    return shape


def _in_lanes(shape: tuple[int, ...], lanes: int) -> Layout:
    """A matrix in the order in which it is read as a kernel."""
    _, _, rows, _, columns = shape
    return Layout((1, 1, rows, 1, columns), (0, 0, 2 * columns, 0, 2), lanes)


def _numbers(words: TaskRegisters) -> tuple[float, float]:
    """What is added, and what is multiplied with."""
    if words.dialect.halves_of_numbers:
        halves = np.array([words["planar.bias_scale"] & 0xFFFF, words["planar.bias_scale"] >> 16], np.uint16)
        return float(halves.view(np.float16)[0]), float(halves.view(np.float16)[1])
    return _from_single(words["planar.bias"]), _from_single(words["planar.factor"] or _single(1.0))


def _refuse_numbers(words: TaskRegisters) -> None:
    if _numbers(words) != (0.0, 1.0):
        raise words.error("adds or multiplies with a number besides its two sources, which has no published meaning")


def _pooled(words: TaskRegisters, config: int, into: tuple[int, ...], out: tuple[int, ...]) -> TaskWork:
    """A reduction states the extents that it reads twice and no window; a pool has one of them different."""
    size, stride = _window(words)
    if (size, stride) != ((1, 1), (1, 1)) or into != out:
        if config & 3 not in _POOLED or config >> 2 or into[0] > 1:
            raise words.error(f"has planar work {config:#x} of a window, which has no published meaning")
        return _pool(words, _POOLED[config & 3], into, out)
    if config not in _REDUCED:
        raise words.error(f"has planar work {config:#x} of a reduction, which has no published meaning")
    kind = _REDUCED[config]
    axes = tuple(axis for axis in (1, 3, 4) if into[axis] > 1)
    count = prod(into[axis] for axis in axes)
    if words["planar.scale"] != _single(1.0):
        if words["planar.scale"] != _single(1 / count) or kind != "reduce_sum":
            found, mean = words["planar.scale"], _single(1 / count)
            raise words.error(f"scales its result by {found:#010x}; a mean of {count} has {mean:#010x}")
        kind = "reduce_avg"
    return TaskWork(kind, {"axes": axes}, tuple(1 if axis in axes else extent for axis, extent in enumerate(into)))


def _pool(words: TaskRegisters, kind: str, into: tuple[int, ...], out: tuple[int, ...]) -> TaskWork:
    size, stride = _window(words)
    padding = effective_padding(into, out, size, stride, words["kernel.top"], words["kernel.left"])
    attrs: dict[str, Any] = {"ksize": (1, *size), "padding": padding, "stride": (1, *stride)}
    if kind == "average_pool":
        attrs["inc_pad"] = True
    return TaskWork(kind, attrs, out)


def _single(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


def _from_single(bits: int) -> float:
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])


def _window(words: TaskRegisters) -> tuple[tuple[int, int], tuple[int, int]]:
    size = words["kernel.height"], words["kernel.width"]
    stride = words["kernel.stride_y"], words["kernel.stride_x"]
    if not all((*size, *stride)):
        raise words.error(f"has a window of {size} with strides {stride}")
    return size, stride


def _reduced(words: TaskRegisters, shape: tuple[int, ...]) -> Operand:
    """The result of a reduction: in the order of the axes that it read, or turned, a channel behind the other."""
    if words["planar.mask"] & _TURNS_RESULT:
        turned = words.operand("result", (1, 1, 1, 1, prod(shape)))
        return replace(turned, layout=Layout(shape, (2, 2, 2, 2, 2))) if prod(shape) == shape[2] else turned
    result = words.operand("result", shape)
    source, _ = _ordered(result, [])
    return source


def _ordered(operand: Operand, work: list[TaskWork]) -> tuple[Operand, list[TaskWork]]:
    """An operand whose images or depths are nearer to each other than its channels are: rows, in the order of memory,
    with the axes of the work that follows."""
    shape, strides = operand.layout.shape, operand.layout.strides
    if operand.layout.is_in_order or max(shape[:2]) == 1:
        return operand, work
    order = sorted(range(4), key=lambda axis: -strides[axis] if shape[axis] > 1 else 0)
    moved = [axis for axis in order if shape[axis] > 1]
    if len(moved) > 3:
        return operand, work
    places = dict(zip(moved, range(4 - len(moved), 4), strict=True)) | {4: 4}

    def placed(values: tuple[int, ...], empty: int) -> tuple[int, ...]:
        found = [empty] * 5
        for axis, place in places.items():
            found[place] = values[axis]
        return tuple(found)

    changed = []
    for one in work:
        attrs = dict(one.attrs)
        if "axes" in attrs:
            attrs["axes"] = tuple(sorted(places[axis] for axis in attrs["axes"]))
        changed.append(replace(one, attrs=attrs, shape=placed(one.shape, 1)))
    return replace(operand, layout=Layout(placed(shape, 1), placed(strides, 0))), changed


# The other engine.


def _mac(
    words: TaskRegisters,
    source: Operand,
    into: tuple[int, ...],
    out: tuple[int, ...],
    constants: Mapping[int, bytes],
) -> _Parts:
    mode = words["mac.config"] & _MODE
    work: list[TaskWork] = []
    others: list[Operand] = []
    if mode == _CONVOLUTION and (kernel := _computed_kernel(words, into, out, constants)):
        others.append(kernel)
        work.append(TaskWork("matmul", {}, out))
    elif mode == _CONVOLUTION:
        work.append(_convolution(words, into, out, constants))
    elif mode not in (_BYPASS, _BIASED_BYPASS) or into != out:
        raise words.error(f"has MAC operation {mode:#x} from {into} to {out}, which has no published meaning")
    elif mode == _BYPASS and words["mac.same_bias"]:
        raise words.error(f"adds {words['mac.same_bias']:#x} to a copy, which has no published meaning")
    work += _activation(words, out, constants)
    if words["task.transposes"]:
        work.append(TaskWork("transpose", {"transpose_list": TURNED}, (*out[:2], *out[:1:-1])))
    return _Parts(work, others)


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
    elif bounds is not None:
        ends = (("max", bounds.low), ("min", bounds.high))
        halves = [(kind, np.full(1, end, np.float16)) for kind, end in ends if np.isfinite(end)]
        work += [TaskWork(kind, {}, out, (half,)) for kind, half in halves]
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
    start = streams[0][0] if streams else 0
    if streams != [(start + core * size, size) for core in range(_CORES)] or _window(words) != ((1, 1), (1, 1)):
        raise words.error("has a kernel that is a tensor in an order that has no published meaning")
    return Operand((place[0], place[1] + start), _in_lanes((1, 1, rows, 1, columns), lanes))


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
    size, stride = _window(words)
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
        "explicit_padding": effective_padding(into, out, size, stride, words["kernel.top"], words["kernel.left"]),
        "kernel_sizes": (1, *size),
        "weights_layout": "OIHW",
        "padding_style": "EXPLICIT",
        **({"channel_wise": True} if depthwise else {}),
    }
    return TaskWork("convolution", attrs, out, (kernel,) if bias is None else (kernel, bias))
