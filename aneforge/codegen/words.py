"""The words of a task from its plan, with the registers of a generation.

Values are put by meaning (:mod:`aneforge.codegen.dialect`). Words that published programs show and nobody explains
are :data:`SAMPLED`.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, log2

from aneforge.chips.assumed import compile_fact
from aneforge.chips.names import target
from aneforge.codegen.dialect import Dialect, dialect_of, resolved
from aneforge.codegen.plan import TaskBuffer, TaskPlan
from aneforge.codegen.registers import register_map
from aneforge.codegen.stream import Command, encode, grouped, is_indexed
from aneforge.codegen.tasks import Task, header_values

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

_PLANAR_OPS = {"add": 0, "mul": 1, "max": 2, "min": 3, "sum of squares": 4, "sub": 0}
_REDUCTIONS = {"reduce_avg": 0, "reduce_sum": 0, "reduce_max": 2, "reduce_min": 3}
_POOLS = {"average_pool": 1, "max_pool": 2}
_TASK_TYPES = {"copy": 2, "two sources": 3, "reduction": 5}
UNKNOWN = "unknown"
"""The operation of a task whose work has no published words: the planar word is zero, which switches the engine
off."""
_ACTIVATIONS = {"none": 0, "relu": 1, "table": 2}
_MEMORY_BAR = 4  # the register that words about memory are relocated against, where they are


class _Words:
    """Words of one task by address, as they are put."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.dialect = dialect_of(generation)
        self.map = register_map(generation)
        self.values: dict[int, int] = {}
        self.relocated: list[tuple[int, list[int], int]] = []
        """(address, values, base-address register), in the order of the stream."""
        self.alone: dict[str, Command] = {}
        """By block: a command of its own behind the others."""

    def put(self, meaning: str, value: int | None) -> None:
        """A field or a word by its meaning; nothing for None, or where the generation has no such register."""
        found = resolved(self.generation, meaning)
        if found is None or value is None:
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
    if words.dialect.writes_every_register:
        _defaults(words)
    _common(words, plan)
    _memory(words, plan)
    _scratch(words, plan)
    if words.dialect.writes_every_register and plan.second is not None:
        words.put("format.second", 2)
    (_planar if plan.engine == "planar" else _mac)(words, plan)
    _constants(words, plan)
    _relocations(words, plan)
    commands = words.commands()
    header = _header(plan, words.dialect, following, len(encode(commands, generation)))
    return Task(generation, header, encode(commands, generation), offset)


def _common(words: _Words, plan: TaskPlan) -> None:
    source, result = plan.source, plan.result
    extents = (("in", source), ("out", _untransposed(plan)))
    for side, tensor in extents:
        for axis, extent in (("width", tensor.width), ("height", tensor.height), ("channels", tensor.channels)):
            words.put(f"{side}.{axis}", extent)
    words.put("tile.height", result.height)
    planar = plan.engine == "planar"
    for side, tensor in extents:
        if tensor.width == words.dialect.default_width:
            words.drop(f"{side}.width")
    if planar:
        across = patch_width(words.generation, source.width, plan.operation == "max_pool")
        words.put("patch.width", across)
        words.put("patch.height", min(_log2(source.height), max(8 - across, 0)))
        words.put("task.type", _task_type(plan))
        if plan.operation in _POOLS:
            _kernel(words, plan)
    else:
        _window(words, plan)
    words.put("task.bit0", 1)
    words.put("task.dual_source", int(plan.second is not None))
    if not planar:
        words.put("task.network", words.dialect.network)
    elif is_indexed(words.generation):
        words.put("task.network", 0)


def patch_width(generation: str, width: int, is_max_pool: bool) -> int:
    """ComputeMaxPatchWidth of chapter 35: the log of a width, rounded up, within the clamps of the chip's table: the
    floor (0x400), and the cap of other layers (0x410) or of a max pool (0x3f8, U161)."""
    cap = "patch_width_clamp_maxpool" if is_max_pool else "patch_width_clamp_nonpool"
    low, high = (compile_fact(target(generation), name).require() for name in ("pe_min_patch_width_log2", cap))
    return min(max(low, _log2(width)), high)


def _untransposed(plan: TaskPlan) -> TaskBuffer:
    """The extents that the engine computes, before its result is turned."""
    result = plan.result
    if not plan.transposes_result:
        return result
    return TaskBuffer(result.width, result.height, result.channels, 0, 0, 0, result.scratch)


def _window(words: _Words, plan: TaskPlan) -> None:
    kernel = plan.kernel
    words.put("task.cores", 4)
    words.put("task.transposes", int(plan.transposes_result))
    bypass = plan.operation == "bypass"
    is_plain = (kernel.height, kernel.width, *kernel.stride, kernel.top, kernel.left) == (1, 1, 1, 1, 0, 0)
    if words.dialect.writes_every_register or not is_plain:
        _kernel(words, plan)
    if kernel.is_depthwise:
        words.put("unicast", 1)
    elif kernel.groups > 1:
        words.put("groups", kernel.groups)
    words.put("outputs_per_core", 0 if bypass else _log2(plan.lanes))
    if bypass:
        words.put("groups", words.dialect.bypass_groups)
        words.put("unicast", 1)
        words.put("unicast.channels", 1)
        if plan.transposes_result:
            words.put("task.share_preferred", 3)
            words.put("task.share_most", 3)
        return
    if plan.source.width <= 8:
        words.put("task.small_source", 1)
        for part in ("preferred", "least", "most"):
            words.put(f"task.share_{part}", words.dialect.small_source_share)


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
    dialect, in_full = words.dialect, words.dialect.writes_every_register
    sides = (
        ("source", plan.source, dialect.source_config, dialect.memory_format),
        ("second", plan.second, dialect.second_config, dialect.second_format),
    )
    for side, tensor, config, number_format in sides:
        if tensor is None or not (tensor.in_memory or in_full):
            continue
        words.put(f"{side}.config", config if tensor.in_memory else dialect.source_on_chip_config)
        if tensor.in_memory:
            words.put(f"{side}.hints", dialect.cache_hint)
        _strides(words, side, tensor)
        if in_full:
            words.put(f"{side}.base", tensor.offset)
        words.put(f"{side}.format", number_format)
    result = plan.result
    if result.in_memory or in_full:
        written = dialect.result_config_with_kernel if plan.streams.coefficients else dialect.result_config
        words.put("result.config", written if result.in_memory else dialect.result_on_chip_config)
        _strides(words, "result", result)
        if in_full:
            words.put("result.base", result.offset)
        words.put("result.format", dialect.result_format)


def _strides(words: _Words, side: str, tensor: TaskBuffer) -> None:
    """Rows have a stride where there are several; deeper strides are those of registers that are always written."""
    if tensor.height > 1 or words.dialect.writes_every_register:
        words.put(f"{side}.row", tensor.row)
    words.put(f"{side}.plane", tensor.plane)
    if words.dialect.writes_every_register:
        words.put(f"{side}.depth", tensor.total)
        words.put(f"{side}.group", tensor.total)


def _scratch(words: _Words, plan: TaskPlan) -> None:
    dialect, source, result = words.dialect, plan.source, plan.result
    in_full = dialect.writes_every_register
    if source.in_memory:
        words.put("scratch.source.config", dialect.scratch_source_of_two if plan.second else dialect.scratch_source)
        words.put("scratch.second.config", 0x00500172 if plan.second else 0x00500130)
    else:
        resident = dialect.scratch_resident_of_two if plan.second else dialect.scratch_resident
        words.put("scratch.source.config", resident)
    for side, tensor in (("source", source), ("second", plan.second)):
        if tensor is None:
            continue
        place = tensor.scratch
        if place.base or in_full:
            words.put(f"scratch.{side}.base", place.base)
        words.put(f"scratch.{side}.channel", place.channel)
        if tensor.in_memory or in_full:
            words.put(f"scratch.{side}.row", place.row)
            words.put(f"scratch.{side}.depth", place.depth)
        if tensor.in_memory:
            words.put(f"scratch.{side}.group", place.depth)
    if result.in_memory:
        words.put("scratch.result.config", 0x0050017A if source.in_memory else 0x14A)
    else:
        words.put("scratch.result.config", 0x00500170)
        words.put("scratch.result.channel", result.scratch.channel)
        if in_full:
            words.put("scratch.result.row", result.scratch.row)
            words.put("scratch.result.depth", result.scratch.depth)
    if result.scratch.base:
        words.put_register("L2", "ResultBase", result.scratch.base)


def _planar(words: _Words, plan: TaskPlan) -> None:
    dialect = words.dialect
    words.put("planar.config", _planar_config(plan))
    if dialect.planar_unit is not None:
        words.put("planar.bias_scale", dialect.planar_unit)
        words.put("planar.pre_scale", dialect.planar_unit)
        words.put("planar.scale", plan.final_scale)
    words.put("mac.kernel", dialect.idle_mac_kernel)
    words.put("mac.config", dialect.idle_mac_config)
    if dialect.spare is not None:
        spare = words.map.register("TileDMADst", "Spare0").address
        assert spare is not None
        words.alone["TileDMADst"] = Command(spare, [dialect.spare])


def _planar_config(plan: TaskPlan) -> int:
    if plan.operation == UNKNOWN:
        return 0
    pool = _POOLS.get(plan.operation, 0)
    code = 0 if pool else {**_PLANAR_OPS, **_REDUCTIONS}[plan.operation]
    second = (3 if plan.operation == "sub" else 2) if plan.second else 0
    return second << 18 | int(plan.activation == "relu") << 5 | code << 2 | pool


def _mac(words: _Words, plan: TaskPlan) -> None:
    dialect = words.dialect
    mode = 0xC if plan.operation == "bypass" else 0
    bias = 0x10 if plan.has_bias else 0
    words.put("mac.config", 0x00100000 | dialect.mac_point | mode | bias | _ACTIVATIONS[plan.activation] << 16)
    words.put("mac.scale", 0x3C00)
    if plan.streams.coefficients:
        words.put("mac.kernel", dialect.mac_kernel_with_weights)
    else:
        words.put("mac.kernel", dialect.mac_kernel_with_table if plan.streams.table else dialect.mac_kernel)


def _constants(words: _Words, plan: TaskPlan) -> None:
    dialect, streams = words.dialect, plan.streams
    if not plan.has_kernel:
        if plan.engine == "planar":
            words.put("constants.config", dialect.no_constants_config)
        return
    number = plan.kernel_number << 16 if is_indexed(words.generation) else 0
    words.put("constants.config", dialect.constants_config | number)
    for core, (start, size) in enumerate(streams.coefficients):
        place = f"[{core}]" if dialect.numbered_streams else str(core)
        words.put_register("KernelDMASrc", f"CoeffDMAConfig{place}", dialect.stream_config)
        if start or dialect.writes_every_register:
            words.put_register("KernelDMASrc", f"CoeffBaseAddr{place}", start)
        words.put_register("KernelDMASrc", f"CoeffBfrSize{place}", size)
    if streams.table is not None:
        words.put("table.config", dialect.table_config)
        words.put("table.size", streams.table[1])
        if not is_indexed(words.generation):
            words.put("table.base", streams.table[0])


def _relocations(words: _Words, plan: TaskPlan) -> None:
    """What the loader adds base addresses to, in the order of published programs: constants, sources, result, and
    where a generation has them the words that configure memory."""
    generation, dialect = words.generation, words.dialect
    if not is_indexed(generation):
        return
    streams = plan.streams
    if plan.result.in_memory:
        more = dialect.cache_words_with_kernel if streams.coefficients else {}
        for name, value in (dialect.cache_words | more).items():
            words.put_register("CacheDMA", name, value)
    constants = _constants_bar(plan, dialect)
    if streams.coefficients:
        words.relocate("constants.base", constants, streams.base, 0)
    if streams.table is not None:
        words.relocate("table.base", constants, streams.base + streams.table[0], 0)
    tensors = [("source", plan.source), ("second", plan.second), ("result", plan.result)]
    moved = [(side, tensor) for side, tensor in tensors if tensor is not None and tensor.bar is not None]
    for side, tensor in moved:
        assert tensor.bar is not None
        for _ in range(dialect.second_base_times if side == "second" else 1):
            words.relocate(f"{side}.base", tensor.bar, tensor.offset, 0)
    if dialect.relocated is not None:
        for side, _ in moved:
            found = resolved(generation, f"{side}.{dialect.relocated}")
            assert found is not None
            assert found[0].address is not None
            words.relocate(f"{side}.{dialect.relocated}", _MEMORY_BAR, words.values.pop(found[0].address, 0))


def _constants_bar(plan: TaskPlan, dialect: Dialect) -> int:
    """The base-address register of weights and tables: the constant section, or the kernels behind the tensors."""
    if not dialect.kernel_section:
        return 1
    tensors = (plan.source, plan.second, plan.result)
    return plan.constants_bar or max(tensor.bar for tensor in tensors if tensor and tensor.bar is not None) + 1


def _header(plan: TaskPlan, dialect: Dialect, following: tuple[int, int] | None, body: int) -> list[int]:
    engine = 0 if plan.engine == "planar" else 5
    words = {"TID": plan.number, "ExeCycles": int(plan.memory_bytes / dialect.rate / 1000), "TSR": 1, "ENE": engine}
    if is_indexed(dialect.generation):
        header = header_values(dialect.generation, words | {"LiveOuts": int(not plan.result.in_memory)})
        header[0] |= (len(header) + body) << 16
        header[-1] |= dialect.result_mark if plan.result.in_memory else 0
    else:
        header = header_values(dialect.generation, words | _chain_fields(plan, following))
    which = "single" if plan.count == 1 else "last" if plan.is_last else "other"
    header[2] = {"single": dialect.events_single, "last": dialect.events_last, "other": dialect.events_other}[which]
    header[4] = {"single": dialect.flags_single, "last": dialect.flags_last, "other": dialect.flags_other}[which]
    return header


def _chain_fields(plan: TaskPlan, following: tuple[int, int] | None) -> dict[str, int]:
    """What the header of a chain says: where the next task lies, and which registers address its tensors."""
    place, size = following or (0, 1)
    fields = {
        "LNID": int(plan.is_last and plan.count > 1),
        "EON": int(plan.is_last),
        "NextSize": size - 1,
        "SPL": 1,
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
    }
    if plan.second is not None:
        fields |= {"RBase1": plan.second.bar or 3, "RBE1": 1}
    if plan.has_kernel:
        fields |= {"KBase0": 1, "KBE0": 1}
    return fields


def _defaults(words: _Words) -> None:
    """What a task that writes every register has where nothing says otherwise."""
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
