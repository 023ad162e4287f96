"""The words of a task from its plan, with the registers of a generation.

Values are put by meaning (:mod:`aneforge.codegen.meanings`). Words that published programs show and nobody explains
are :data:`SAMPLED`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2

from aneforge.codegen.meanings import resolved
from aneforge.codegen.plan import Buffer, TaskPlan
from aneforge.codegen.registers import register_map
from aneforge.codegen.stream import Command, encode, grouped, is_indexed
from aneforge.codegen.tasks import Task, header_values

__all__ = ["SAMPLED", "UNKNOWN", "task_of"]

SAMPLED: dict[str, str] = {
    "task.share_preferred": "row sharing: two settings are published, one for windows and one for transposes",
    "task.small_source": "set for sources of up to eight columns in the published programs",
    "scratch.source.row": "a row that would fall on the same banks as the one before is moved on",
    "header": "events of tasks between the first and the last of a program are not published",
    "mac.kernel": "bits 16 and 28 are set from h16 on where a task loads a table or weights",
    "planar.pool": "the pooling code stands where the map of h14 has it; no program of h13 that pools is published",
    "planar.reduction": "the operation of a reduction is the code of the same operation on two sources",
    "planar.relu": "the bit is in the map; no program that sets it is published",
    "depthwise": "written as a bypass is: one input channel for each output channel",
    "groups": "the number of groups as the map has it; no program with groups is published",
    "mac.bias": "the bit is in the map; no program that sets it is published",
    "scratch.second": "a second source in scratch is configured as the first; no such program is published",
    "views": "a tensor is read under another shape where it lies; published programs read each as it was written",
    "passes": "a kernel in passes is one task for each part of the output channels; no such program is published",
    "scratch.matrix": "a matrix that is turned is read in lines of 256 bytes, as in the published product",
}
"""Words whose rule rests on a few published programs; the record of a build names those that it used."""

_FORMAT, _LATE_FORMAT = 0x01002031, 0x3211
_RATES = {"h13": 34.1333, "h14": 34.1333, "h15": 51.2, "h16": 51.2, "h17": 51.2, "h18": 60.0}
"""Bytes a nanosecond that the estimate in a task's header counts with. They are the memory of the first product of a
generation, and give every published header (``ExeCycles`` is a time in microseconds)."""
_PLANAR_OPS = {"add": 0, "mul": 1, "max": 2, "min": 3, "sum of squares": 4, "sub": 0}
_REDUCTIONS = {"reduce_avg": 0, "reduce_sum": 0, "reduce_max": 2, "reduce_min": 3}
_POOLS = {"average_pool": 1, "max_pool": 2}
_TASK_TYPES = {"copy": 2, "two sources": 3, "reduction": 5}
UNKNOWN = "unknown"
"""The operation of a task whose work has no published words: the planar word is zero, which switches the engine
off."""
_ACTIVATIONS = {"none": 0, "relu": 1, "table": 2}
_MEMORY_BAR = 4  # the register that configuration words of h15 to h17 are relocated against
_LATE = ("h16", "h17", "h18")


class _Words:
    """Words of one task by address, as they are put."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.map = register_map(generation)
        self.values: dict[int, int] = {}
        self.relocated: list[tuple[int, list[int], int]] = []
        """(address, values, base-address register), in the order of the stream."""
        self.alone: dict[str, Command] = {}
        """By block: a command of its own behind the others."""

    def put(self, meaning: str, value: int) -> None:
        """A field or a word by its meaning."""
        found = resolved(self.generation, meaning)
        if found is None:
            return
        register, field = found
        assert register.address is not None
        old = self.values.get(register.address, 0)
        self.values[register.address] = value if field is None else field.write(old, value)

    def put_register(self, block: str, name: str, value: int) -> None:
        address = self.map.register(block, name).address
        assert address is not None
        self.values[address] = value

    def relocate(self, meaning: str, bar: int, *values: int) -> None:
        """Words that the loader adds a base address to."""
        found = resolved(self.generation, meaning)
        if found is not None and found[0].address is not None:
            self.relocated.append((found[0].address, list(values), bar))

    def drop(self, *meanings: str) -> None:
        for meaning in meanings:
            found = resolved(self.generation, meaning)
            if found is not None and found[0].address is not None:
                self.values.pop(found[0].address, None)

    def commands(self) -> list[Command]:
        if is_indexed(self.generation):
            return [*self._sparse(), *(Command(place, values, bar=bar) for place, values, bar in self.relocated)]
        return list(self._dense())

    def _sparse(self) -> Iterator[Command]:
        for name in self.map.order:
            addresses = [register.address for register in self.map.blocks[name].registers]
            writes = [(place, self.values[place]) for place in addresses if place is not None and place in self.values]
            yield from grouped(writes)
            if name in self.alone:
                yield self.alone[name]

    def _dense(self) -> Iterator[Command]:
        """Every block in full; a task without weights leaves the words of their streams out."""
        for name in self.map.order:
            block = self.map.blocks[name]
            runs = [block.registers]
            if name == "KernelDMASrc" and not self.values.get(block.registers[0].address or 0, 0):
                runs = [block.registers[:18], block.registers[50:]]
            for run in runs:
                assert run[0].address is not None
                yield Command(run[0].address, [self.values.get(register.address or 0, 0) for register in run])


def task_of(plan: TaskPlan, generation: str, offset: int = 0, following: tuple[int, int] | None = None) -> Task:
    """The task of a plan. ``following`` is where the next one lies in the text and how many words it has, for the
    generations whose tasks form a chain."""
    words = _Words(generation)
    if generation == "h13":
        _defaults_of_h13(words)
    _common(words, plan)
    _memory(words, plan)
    _scratch(words, plan)
    if generation == "h13" and plan.second is not None:
        words.put("format.second", 2)
    (_planar if plan.engine == "planar" else _mac)(words, plan)
    _constants(words, plan)
    _relocations(words, plan)
    commands = words.commands()
    header = _header(plan, generation, following, len(encode(commands, generation)))
    return Task(generation, header, encode(commands, generation), offset)


def _common(words: _Words, plan: TaskPlan) -> None:
    source, result = plan.source, plan.result
    extents = (("in", source), ("out", _untransposed(plan)))
    for side, tensor in extents:
        for axis, extent in (("width", tensor.width), ("height", tensor.height), ("channels", tensor.channels)):
            words.put(f"{side}.{axis}", extent)
    words.put("tile.height", result.height)
    planar = plan.engine == "planar"
    if words.generation in _LATE and source.width == 256:
        words.drop("in.width")  # the default
    if words.generation in _LATE and _untransposed(plan).width == 256:
        words.drop("out.width")
    if planar:
        across = max(4, _log2(source.width))
        words.put("patch.width", across)
        words.put("patch.height", min(_log2(source.height), max(8 - across, 0)))
        words.put("task.type", _task_type(plan))
        if plan.operation in _POOLS:
            _kernel(words, plan)
    else:
        _window(words, plan)
    for generation in ("h13", "h14"):
        if words.generation == generation:
            words.put("task.bit0", 1)
            words.put("task.dual_source", int(plan.second is not None))
    if not planar:
        words.put("task.network", 2 if words.generation in ("h17", "h18") else 1)
    elif is_indexed(words.generation):
        words.put("task.network", 0)


def _untransposed(plan: TaskPlan) -> Buffer:
    """The extents that the engine computes, before its result is turned."""
    result = plan.result
    if not plan.transposes_result:
        return result
    return Buffer(result.width, result.height, result.channels, 0, 0, 0, result.scratch)


def _window(words: _Words, plan: TaskPlan) -> None:
    kernel = plan.kernel
    words.put("task.cores", 4)
    words.put("task.transposes", int(plan.transposes_result))
    bypass = plan.operation == "bypass"
    is_plain = (kernel.height, kernel.width, *kernel.stride, kernel.top, kernel.left) == (1, 1, 1, 1, 0, 0)
    if words.generation == "h13" or not is_plain:
        _kernel(words, plan)
    if kernel.is_depthwise:
        words.put("unicast", 1)
    elif kernel.groups > 1:
        words.put("groups", kernel.groups)
    words.put("outputs_per_core", 0 if bypass else _log2(plan.lanes))
    if bypass:
        if words.generation in ("h13", "h14", "h15"):
            words.put("groups", 1)
        words.put("unicast", 1)
        words.put("unicast.channels", 1)
        if plan.transposes_result:
            words.put("task.share_preferred", 3)
            words.put("task.share_most", 3)
        return
    if plan.source.width <= 8:
        words.put("task.small_source", 1)
        if words.generation in ("h13", "h14"):
            for part in ("preferred", "least", "most"):
                words.put(f"task.share_{part}", 4)


def _kernel(words: _Words, plan: TaskPlan) -> None:
    kernel = plan.kernel
    words.put("kernel.width", kernel.width)
    words.put("kernel.height", kernel.height)
    words.put("kernel.top", kernel.top)
    words.put("kernel.left", kernel.left)
    words.put("kernel.stride_y", kernel.stride[0])
    words.put("kernel.stride_x", kernel.stride[1])
    words.put("kernel.step_x", 1)
    words.put("kernel.step_y", 1)


def _task_type(plan: TaskPlan) -> int:
    if plan.operation in _POOLS or plan.operation in _REDUCTIONS:
        return _TASK_TYPES["reduction"]
    return _TASK_TYPES["two sources" if plan.second else "copy"]


def _memory(words: _Words, plan: TaskPlan) -> None:
    h13 = words.generation == "h13"
    fmt = _LATE_FORMAT if words.generation == "h18" else _FORMAT
    for side, tensor in (("source", plan.source), ("second", plan.second)):
        if tensor is None or not (tensor.in_memory or h13):
            continue
        config = {"h13": 0x33881 if side == "source" else 0x33880, "h14": 0xE21 if side == "source" else 0xE20}
        if tensor.in_memory:
            words.put(f"{side}.config", config.get(words.generation, 0x21))
            words.put(f"{side}.hints", 0xCE)
            if words.generation == "h18":
                words.put_register("TileDMASrc", "Src1CacheHints" if side == "source" else "Src2CacheHints", 0xCE)
        else:
            words.put(f"{side}.config", 0x48880)
        _strides(words, side, tensor)
        if h13:
            words.put(f"{side}.base", tensor.offset)
        words.put(f"{side}.format", 0x2030 if h13 and side == "second" else fmt)
    result = plan.result
    if result.in_memory or h13:
        tag = 0x10000 if plan.streams.coefficients and words.generation in ("h15", *_LATE) else 0
        hint = 0x20 if words.generation in ("h17", "h18") else 0x30
        written = {"h13": 0x040000C1, "h14": 0x01000E31}.get(words.generation, 0x01000001 | hint | tag)
        words.put("result.config", written if result.in_memory else 0xC0)
        _strides(words, "result", result)
        if h13:
            words.put("result.base", result.offset)
        out = 0xF0003211 if words.generation == "h18" else 0x01302031
        words.put("result.format", out)


def _strides(words: _Words, side: str, tensor: Buffer) -> None:
    """Rows have a stride only where there are several, from h14 on; deeper ones are written by h13 alone."""
    if tensor.height > 1 or words.generation == "h13":
        words.put(f"{side}.row", tensor.row)
    words.put(f"{side}.plane", tensor.plane)
    if words.generation == "h13":
        words.put(f"{side}.depth", tensor.total)
        words.put(f"{side}.group", tensor.total)


def _scratch(words: _Words, plan: TaskPlan) -> None:
    generation, source, result = words.generation, plan.source, plan.result
    early = generation in ("h13", "h14")
    if source.in_memory:
        words.put("scratch.source.config", 0x01500172 if plan.second and early else 0x00500172)
        words.put("scratch.second.config", 0x00500172 if plan.second else 0x00500130)
    else:
        second = 1 << 24 if plan.second and early else 0
        words.put("scratch.source.config", (0x160 if early else 0x120) | second)
    for side, tensor in (("source", source), ("second", plan.second)):
        if tensor is None:
            continue
        place = tensor.scratch
        if place.base or generation == "h13":
            words.put(f"scratch.{side}.base", place.base)
        words.put(f"scratch.{side}.channel", place.channel)
        if tensor.in_memory or generation == "h13":
            words.put(f"scratch.{side}.row", place.row)
            words.put(f"scratch.{side}.depth", place.depth)
        if tensor.in_memory:
            words.put(f"scratch.{side}.group", place.depth)
    if result.in_memory:
        words.put("scratch.result.config", 0x0050017A if source.in_memory else 0x14A)
    else:
        words.put("scratch.result.config", 0x00500170)
        words.put("scratch.result.channel", result.scratch.channel)
        if generation == "h13":
            words.put("scratch.result.row", result.scratch.row)
            words.put("scratch.result.depth", result.scratch.depth)
    if result.scratch.base:
        words.put_register("L2", "ResultBase", result.scratch.base)


def _planar(words: _Words, plan: TaskPlan) -> None:
    words.put("planar.config", _planar_config(plan))
    if words.generation == "h13":
        scale = plan.final_scale
        for name, value in (("BiasScale", 0x3C000000), ("PreScale", 0x3C000000), ("FinalScale", scale)):
            words.put_register("PE", name, value)
        words.put("mac.kernel", 0x80)
        words.put("mac.config", 0x00100000)
    if words.generation == "h14":
        spare = words.map.register("TileDMADst", "Spare0").address
        assert spare is not None
        words.alone["TileDMADst"] = Command(spare, [0xDEAD])


def _planar_config(plan: TaskPlan) -> int:
    if plan.operation == UNKNOWN:
        return 0
    pool = _POOLS.get(plan.operation, 0)
    code = 0 if pool else {**_PLANAR_OPS, **_REDUCTIONS}[plan.operation]
    second = (3 if plan.operation == "sub" else 2) if plan.second else 0
    return second << 18 | int(plan.activation == "relu") << 5 | code << 2 | pool


def _mac(words: _Words, plan: TaskPlan) -> None:
    mode = 0xC if plan.operation == "bypass" else 0
    point = 0x3C00 if words.generation in _LATE else 0x1C00
    bias = 0x10 if plan.has_bias else 0
    words.put("mac.config", 0x00100000 | point | mode | bias | _ACTIVATIONS[plan.activation] << 16)
    words.put("mac.scale", 0x3C00)
    if words.generation == "h13":
        words.put("mac.kernel", 0x82)
    elif words.generation in _LATE and plan.has_kernel:
        words.put("mac.kernel", 0x10000082 if plan.streams.coefficients else 0x00010082)


def _constants(words: _Words, plan: TaskPlan) -> None:
    generation, streams = words.generation, plan.streams
    if not plan.has_kernel:
        if is_indexed(generation) and plan.engine == "planar":
            words.put("constants.config", 0x80)
        return
    if not is_indexed(generation):
        words.put("constants.config", 0x40)
    else:
        words.put("constants.config", 0x2C0 | plan.kernel_number << 16)
    enabled = 0x81 if generation == "h13" else 0x10021 if generation in ("h15", *_LATE) else 0x21
    for number, (start, size) in enumerate(streams.coefficients):
        place = f"[{number}]" if generation == "h13" else str(number)
        words.put_register("KernelDMASrc", f"CoeffDMAConfig{place}", enabled)
        if start or generation == "h13":
            words.put_register("KernelDMASrc", f"CoeffBaseAddr{place}", start)
        words.put_register("KernelDMASrc", f"CoeffBfrSize{place}", size)
    if streams.table is not None:
        words.put("table.config", 0x81 if generation == "h13" else 0x21)
        words.put("table.size", streams.table[1])
        if generation == "h13":
            words.put("table.base", streams.table[0])


def _relocations(words: _Words, plan: TaskPlan) -> None:
    """What the loader adds base addresses to, in the order of published programs: constants, sources, result, and from
    h15 on the words that configure memory."""
    generation = words.generation
    if not is_indexed(generation):
        return
    if plan.result.in_memory and generation not in ("h14",):
        telemetry = {"TelemetryControl": 0x12, "TelemetryPre0": 0x00A000A0, "TelemetryDSID": 0}
        telemetry |= {"EarlyTermArg34": 0x007F0000, "BackoffControl": 0x20010701}
        if plan.streams.coefficients:
            telemetry["TelemetryPre1"] = 0x000100E0
        for name, value in telemetry.items():
            words.put_register("CacheDMA", name, value)
    streams = plan.streams
    constants = _constants_bar(plan, generation)
    if streams.coefficients:
        words.relocate("constants.base", constants, streams.base, 0)
    if streams.table is not None:
        words.relocate("table.base", constants, streams.base + streams.table[0], 0)
    tensors = [("source", plan.source), ("second", plan.second), ("result", plan.result)]
    moved = [(side, tensor) for side, tensor in tensors if tensor is not None and tensor.bar is not None]
    for side, tensor in moved:
        assert tensor.bar is not None
        words.relocate(f"{side}.base", tensor.bar, tensor.offset, 0)
        if generation == "h17" and side == "second":
            words.relocate(f"{side}.base", tensor.bar, tensor.offset, 0)  # as published programs have it, twice
    if generation in ("h15", "h16", "h17"):
        for side, _ in moved:
            found = resolved(generation, f"{side}.config")
            assert found is not None
            assert found[0].address is not None
            words.relocate(f"{side}.config", _MEMORY_BAR, words.values.pop(found[0].address))
    elif generation == "h18":
        for side, _ in moved:
            words.relocate(f"{side}.set", _MEMORY_BAR, 0)


def _constants_bar(plan: TaskPlan, generation: str) -> int:
    """The base-address register of weights and tables: the constant section, or the kernels behind the tensors."""
    if generation not in _LATE:
        return 1
    tensors = (plan.source, plan.second, plan.result)
    return plan.constants_bar or max(tensor.bar for tensor in tensors if tensor and tensor.bar is not None) + 1


def _header(plan: TaskPlan, generation: str, following: tuple[int, int] | None, body: int) -> list[int]:
    time = int(plan.memory_bytes / _RATES[generation] / 1000)
    single = plan.count == 1
    engine = 0 if plan.engine == "planar" else 5
    if not is_indexed(generation):
        return _chained_header(plan, time, single, engine, following)
    size = body
    words = {"TID": plan.number, "ExeCycles": time, "TSR": 1, "ENE": engine}
    words["LiveOuts"] = int(not plan.result.in_memory)
    events = _events(plan, generation)
    if generation != "h14" and plan.result.in_memory:
        words |= {"Bit3": 1} if generation != "h15" else {}
    header = header_values(generation, words)
    header[2] = events
    header[4] = 0x68 if not plan.is_last else 0xFFF860 if generation in _LATE and not single else 0xFFF868
    if generation == "h15" and plan.result.in_memory:
        header[-1] |= 8
    header[0] |= (len(header) + size) << 16
    return header


def _events(plan: TaskPlan, generation: str) -> int:
    """Which events a task reports: the first and the last of a program are published, and those of a single task."""
    if plan.count == 1:
        return {"h14": 0x2A, "h15": 0x300002A}.get(generation, 0x4000068)
    if plan.is_last:
        return {"h14": 0x22, "h15": 0x3000022}.get(generation, 0x4000000)
    return 0x68 if generation in _LATE else 0x8


def _chained_header(
    plan: TaskPlan, time: int, single: bool, engine: int, following: tuple[int, int] | None
) -> list[int]:
    place, size = following or (0, 1)
    fields = {
        "TID": plan.number,
        "LNID": int(plan.is_last and not single),
        "EON": int(plan.is_last),
        "ExeCycles": time,
        "NextSize": size - 1,
        "SPL": 1,
        "TSR": 1,
        "TSE": 1,
        "DPC": int(not plan.result.in_memory),
        "SPC": int(not plan.source.in_memory),
        "SrcLoc": int(plan.source.in_memory),
        "DstLoc": int(plan.result.in_memory),
        "NextPointer": place,
        "RBase0": plan.source.bar if plan.source.bar is not None else 3,
        "RBE0": 1,
        "WBase": plan.result.bar if plan.result.bar is not None else 3,
        "WBE": 1,
        "TBE": int(not plan.result.in_memory),
        "ENE": engine,
    }
    if plan.second is not None:
        fields |= {"RBase1": plan.second.bar or 3, "RBE1": 1}
    if plan.has_kernel:
        fields |= {"KBase0": 1, "KBE0": 1}
    header = header_values("h13", fields)
    header[2] = 0x42A if single else 0x422 if plan.is_last else 0x408
    header[4] = 0x00FFF86A if plan.is_last else 0x68
    return header


def _defaults_of_h13(words: _Words) -> None:
    """What h13 writes in every task, where a value says otherwise or not."""
    for name in (*(f"CoeffDMAConfig[{number}]" for number in range(16)), "BiasDMAConfig", "PostScaleDMAConfig"):
        words.put_register("KernelDMASrc", name, 0x80)
    for name in ("PaletteLutDMAConfig", "NonLinearLutDMAConfig"):
        words.put_register("KernelDMASrc", name, 0x80)
    for number in range(16):
        words.put_register("KernelDMASrc", f"CoeffBfrSize[{number}]", 0x40)
    for name in ("BiasBfrSize", "PostScaleBfrSize", "PaletteLutBfrSize", "NonLinearLutBfrSize"):
        words.put_register("KernelDMASrc", name, 0x40)
    for meaning in ("in.depth", "out.depth", "kernel.depth", "kernel.stride_z", "kernel.step_z", "groups"):
        words.put(meaning, 1)
    for meaning in (
        "kernel.width",
        "kernel.height",
        "kernel.stride_x",
        "kernel.stride_y",
        "kernel.step_x",
        "kernel.step_y",
    ):
        words.put(meaning, 1)
    words.put("unicast.channels", 1)
    words.put("format.in", 2)
    words.put("format.out", 2)
    words.put_register("TileDMASrc", "Src2DMAConfig", 0x8880)
    words.put_register("TileDMASrc", "unk40", 0x100)


def _log2(value: int) -> int:
    return ceil(log2(value)) if value > 1 else 0
