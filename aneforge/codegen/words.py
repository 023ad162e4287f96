"""The words of a task from its plan, with the registers of a generation.

Values are put by meaning (:mod:`aneforge.codegen.dialect`). Words that published programs show and nobody explains
are :data:`SAMPLED`.
"""

from __future__ import annotations

import numpy as np

from aneforge.chips.assumed import compile_fact
from aneforge.chips.names import target
from aneforge.codegen.dialect import Dialect
from aneforge.codegen.headers import Following, header_of
from aneforge.codegen.kernel_words import put_constants, put_relocations
from aneforge.codegen.plan import PIECE, TaskBuffer, TaskPlan
from aneforge.codegen.scratch_words import put_scratch
from aneforge.codegen.sharing import (
    Sharing,
    active_cores,
    log_of,
    shared_across_channels,
    shared_by_convolution,
    shared_by_copy,
    shared_by_dealing,
    shared_by_pieces,
    shared_by_product,
    shared_by_turn,
    shared_in_scratch,
    turning_lanes,
)
from aneforge.codegen.stream import Command, encode, is_indexed
from aneforge.codegen.task_words import TaskWords
from aneforge.codegen.tasks import Task, header_fields

SAMPLED: dict[str, str] = {
    "planar.pool": "the pooling code stands where the map of h14 has it; no program that pools is published (U244)",
    "views": "a tensor is read under another shape where it lies; published programs read each as it was written",
    "tiles": "a map that does not fit is taken in tiles by a rule from two published programs (U240)",
}
"""Words whose rule rests on a few published programs; the record of a build names those that it used."""

_PLANAR_OPS = {"add": 0, "mul": 1, "max": 2, "min": 3, "sum of squares": 4, "sub": 0}
_REDUCTIONS = {"reduce_avg": 0, "reduce_sum": 0, "reduce_max": 2, "reduce_min": 3, "reduce_squares": 0x10}
_PLANAR_TABLES = {"": 0, "invert": 0x1000, "r_sqrt": 0x2000}
_MINUS_FIRST = 0x90000
"""What a reduction does to its sums; of a minimum no program is published."""
_POOLS = {"average_pool": 1, "max_pool": 2}
_TASK_TYPES = {"copy": 2, "two sources": 3, "vector": 4, "reduction": 5, "reduction of two": 6}
UNKNOWN = "unknown"
"""The operation of a task whose work has no published words: the planar word is zero, which switches the engine
off."""
_ACTIVATIONS = {"none": 0, "relu": 1, "table": 2}


def task_of(plan: TaskPlan, generation: str, offset: int = 0, following: Following | None = None) -> Task:
    """The task of a plan. ``offset`` is where it lies in the text, ``following`` what is known of the next one in the
    generations whose tasks form a chain."""
    words = TaskWords(generation)
    if words.dialect.writes_every_register:
        _defaults(words)
    _common(words, plan)
    _memory(words, plan)
    put_scratch(words, plan)
    if words.dialect.writes_every_register and plan.second is not None:
        words.put("format.second", 2)
    (_planar if plan.engine == "planar" else _mac)(words, plan)
    put_constants(words, plan)
    put_relocations(words, plan)
    commands = words.commands()
    if words.dialect.filler is not None:
        commands = _filled(words, commands, offset)
    body = encode(commands, generation)
    return Task(generation, header_of(plan, words.dialect, len(body), following or Following()), body, offset)


def _filled(words: TaskWords, commands: list[Command], offset: int) -> list[Command]:
    """Published programs of h14 have filler in front of the base addresses wherever the task would end in the last
    16 bytes of a line of 64: the text begins with a frame, and tasks lie at multiples of 16."""
    filler = words.map.register("TileDMADst", "Spare0").address
    assert filler is not None
    assert words.dialect.filler is not None
    place = next((number for number, command in enumerate(commands) if command.bar is not None), len(commands))
    size = len(header_fields(words.generation)) + len(encode(commands, words.generation)) + offset // 4
    while (size - 1) % 16 >= 12:
        commands.insert(place, Command(filler, [words.dialect.filler]))
        size += 2
    return commands


def _extents(words: TaskWords, plan: TaskPlan) -> None:
    """What a task reads and gives; a reduction states the extents that it reads, twice."""
    source = plan.whole
    result = source if plan.is_reduction else untransposed(plan)
    dialect = words.dialect
    for side, tensor in (("in", source), ("out", result)):
        for axis, extent in (("width", tensor.width), ("height", tensor.height), ("channels", tensor.channels)):
            default = dialect.default_channels if axis == "channels" else dialect.default_width
            if extent != default:
                words.put(f"{side}.{axis}", extent)
        words.put(f"{side}.depth", plan.depth if plan.depth > 1 else None)


def _common(words: TaskWords, plan: TaskPlan) -> None:
    dialect = words.dialect
    _extents(words, plan)
    words.put("tile.height", plan.rows)
    planar = plan.engine == "planar"
    if planar:
        patch = patch_of(words.generation, plan)
        words.put("patch.width", patch[0])
        words.put("patch.height", patch[1])
        words.put("task.type", _task_type(plan))
        words.put("planar.mask", plan.mask or None)
        if plan.images > 1:
            words.put("groups", plan.images)
            if dialect.bypass_groups is not None:
                words.put("unicast.channels", 1)
        if plan.operation in _POOLS:
            _kernel(words, plan)
    else:
        _window(words, plan)
    words.put("task.bit0", 1)
    if plan.second is not None and plan.second.in_memory:
        words.put("task.dual_source", 1)
    if not planar:
        words.put("task.network", dialect.network)
    elif is_indexed(words.generation):
        words.put("task.network", 0)
    words.drop_defaults()


def patch_of(generation: str, plan: TaskPlan) -> tuple[int, int]:
    """The logs of the columns and rows that a planar task takes at once."""
    across = patch_width(generation, plan.whole.width, plan.operation == "max_pool")
    if plan.in_pieces or (plan.second is not None and not plan.result.in_memory and not plan.is_reduction):
        return _patch_in_scratch(plan)
    across = log_of(PIECE) if plan.is_cut else across
    area = _PATCH if plan.second is not None else _PATCH + 1
    return across, min(log_of(plan.whole.height), max(area - across, 0))


def _patch_in_scratch(plan: TaskPlan) -> tuple[int, int]:
    """The same of two sources whose result stays in scratch: 16 by 16, or half as many numbers of a single row."""
    if plan.source.height == 1:
        across = min(max(log_of(plan.source.width), _SIDE), _ROW)
        return across, _ROW - across
    return _SIDE, min(_SIDE, log_of(plan.source.height)) if plan.mask & _OVER_COLUMNS else _SIDE


_SIDE, _ROW, _OVER_COLUMNS = 4, 7, 0x10
_PATCH = 8
"""The log of the numbers in a patch of two sources; one source has room for twice as many."""


def patch_width(generation: str, width: int, is_max_pool: bool) -> int:
    """ComputeMaxPatchWidth of chapter 35: the log of a width, rounded up, within the clamps of the chip's table: the
    floor (0x400), and the cap of other layers (0x410) or of a max pool (0x3f8, U161)."""
    cap = "patch_width_clamp_maxpool" if is_max_pool else "patch_width_clamp_nonpool"
    low, high = (compile_fact(target(generation), name).require() for name in ("pe_min_patch_width_log2", cap))
    return min(max(low, log_of(width)), high)


def untransposed(plan: TaskPlan) -> TaskBuffer:
    """The extents that the engine computes, before its result is turned."""
    result = plan.result
    if not plan.transposes_result:
        return result
    return TaskBuffer(result.width, result.height, result.channels, 0, 0, 0, result.scratch)


def sharing_of(dialect: Dialect, plan: TaskPlan) -> Sharing:
    """The rows that cores share in a MAC task."""
    source, result = plan.source, untransposed(plan)
    if plan.kernel_bar is not None:
        return shared_by_product(dialect, result.height, result.width)
    if plan.is_cut and result.in_memory and source.in_memory:
        return shared_by_pieces(result.width)
    if plan.operation == "convolution":
        window = (plan.kernel.height, plan.kernel.width)
        return shared_by_convolution(
            dialect, source.channels, result.height, result.width, window, plan.kernel.is_depthwise
        )
    if plan.across_channels:
        return shared_across_channels(dialect, plan, plan.operation == "total")
    if plan.operation == "bypass" and not source.in_memory and not plan.turns_numbers:
        return shared_in_scratch(result.height, result.width)
    if plan.transposes_result:
        return shared_by_turn(dialect, source, plan.result_lanes > 1)
    if plan.in_pieces:
        return shared_in_scratch(result.height, result.width)
    if sum(plan.dealt):
        return shared_by_dealing(result.width, result.in_memory)
    return shared_by_copy(source.channels, result.height, result.width)


def _window(words: TaskWords, plan: TaskPlan) -> None:
    kernel, dialect, source = plan.kernel, words.dialect, plan.source
    words.put("task.cores", active_cores(plan.outputs))
    words.put("task.transposes", int(plan.transposes_result))
    bypass = plan.operation in ("bypass", "largest")
    is_plain = (kernel.height, kernel.width, *kernel.stride, kernel.top, kernel.left) == (1, 1, 1, 1, 0, 0)
    if dialect.writes_every_register or not is_plain:
        _kernel(words, plan)
    if kernel.is_depthwise:
        words.put("groups", dialect.bypass_groups)
        words.put("unicast", 1)
        words.put("unicast.channels", 1)
    elif kernel.groups > 1:
        words.put("groups", kernel.groups)
        words.put("unicast.channels", 1)
    lanes = 1 if kernel.is_depthwise else plan.lanes
    if plan.operation == "largest":
        words.put("groups", dialect.bypass_groups)
        words.put("unicast", 1)
        words.put("unicast.channels", source.channels)
    elif bypass:
        lanes = turning_lanes(dialect, source.channels) if plan.transposes_result else 1
        words.put("groups", dialect.bypass_groups)
        words.put("unicast", 1)
        words.put("unicast.channels", lanes)
        if lanes > 1:
            words.mark("task.word", _SIDE_BY_SIDE)
    if plan.kernel_bar is not None and dialect.turns_in_lanes:
        words.mark("task.word", _SIDE_BY_SIDE)
    if log_of(lanes) != dialect.default_lanes:
        words.put("outputs_per_core", log_of(lanes))
    sharing = sharing_of(dialect, plan)
    across, down = plan.dealt
    if across or down:
        words.mark("outputs_per_core", across << _ACROSS | down << _DOWN)
    if down and plan.result.width == 1:
        words.mark("task.word", _COLUMN_DEALT)
    words.put("task.share_most", sharing.most)
    words.put("task.share_least", sharing.least)
    words.put("task.share_preferred", sharing.preferred)
    words.put("task.small_source", int(sharing.is_small))


_FORMAT_OF_NONE = 0x01000000
_ACROSS, _DOWN = 3, 4
"""Bits of the word with the outputs a core: parts of one channel side by side and below each other."""
_COLUMN_DEALT = 0x800000
_SIDE_BY_SIDE = 0x20000000
"""Of the word with the shared rows: several rows of a matrix are turned side by side."""


def _kernel(words: TaskWords, plan: TaskPlan) -> None:
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
    if plan.operation in _POOLS or plan.is_reduction:
        return _TASK_TYPES["reduction of two" if plan.second else "reduction"]
    if plan.is_vector:
        return _TASK_TYPES["vector"]
    return _TASK_TYPES["two sources" if plan.second else "copy"]


def _memory(words: TaskWords, plan: TaskPlan) -> None:
    dialect, in_full = words.dialect, words.dialect.writes_every_register
    counted = plan.number << 16 if is_indexed(words.generation) else 0
    sides = (
        ("source", plan.source, dialect.source_config, dialect.memory_format),
        ("second", plan.second, dialect.second_config, dialect.second_format),
    )
    for side, tensor, config, number_format in sides:
        if tensor is None or not (tensor.in_memory or in_full):
            continue
        is_handed = side == "source" and plan.source_is_handed
        if not tensor.in_memory and not is_handed:
            words.put(f"{side}.format", _FORMAT_OF_NONE if side == "source" else None)
            continue
        words.put(f"{side}.config", config | counted if tensor.in_memory else dialect.source_on_chip_config)
        if tensor.in_memory:
            words.put(f"{side}.hints", dialect.cache_hint)
        _strides(words, side, tensor, plan)
        if in_full:
            words.put(f"{side}.base", tensor.offset)
        words.put(f"{side}.format", number_format)
    if in_full and not (plan.source.in_memory or plan.source_is_handed):
        words.put("source.config", dialect.idle_source_config)
    result = plan.result
    if result.in_memory or in_full:
        config = dialect.result_config & ~(dialect.buffer_mode if plan.result_in_strides else 0)
        config |= dialect.lanes_config if plan.result_lanes > 1 else 0
        words.put("result.config", config | counted if result.in_memory else dialect.result_on_chip_config)
        if not (result.in_memory or plan.result_is_handed):
            words.put("result.format", _FORMAT_OF_NONE)
            return
        _strides(words, "result", result, plan)
        if in_full:
            words.put("result.base", result.offset)
        lanes = plan.result_lanes
        words.put(
            "result.format",
            dialect.result_format + (((lanes << dialect.lanes_bit) - (1 << dialect.lanes_bit)) if lanes > 1 else 0),
        )


def _strides(words: TaskWords, side: str, tensor: TaskBuffer, plan: TaskPlan) -> None:
    """Where registers are not always written, those of an axis with one element are left out."""
    in_full = words.dialect.writes_every_register
    if tensor.height > 1 or in_full:
        words.put(f"{side}.row", tensor.row)
    if side == "second" and plan.is_vector:
        words.put(f"{side}.row", tensor.row)
    if (tensor.channels > 1 and tensor.plane) or in_full:
        words.put(f"{side}.plane", tensor.plane)
    if plan.depth > 1 and side == "source":
        words.put(f"{side}.depth", plan.depth_step)
    elif in_full:
        words.put(f"{side}.depth", tensor.total * plan.groups)
    if in_full or plan.groups > 1 or plan.images > 1:
        words.put(f"{side}.group", tensor.total)


def _planar(words: TaskWords, plan: TaskPlan) -> None:
    dialect = words.dialect
    config = _planar_config(plan)
    if config or dialect.writes_every_register:
        words.put("planar.config", config)
    added, times = plan.numbers or (0.0, 1.0)
    if dialect.halves_of_numbers:
        if dialect.writes_every_register or plan.numbers:
            words.put("planar.bias_scale", _half(times) << 16 | _half(added))
    else:
        words.put("planar.bias", _rounded_single(added) if added != 0 else None)
        words.put("planar.factor", _rounded_single(times) if times != 1 else None)
    words.put("planar.pre_scale", _PLANAR_ONE | _half(plan.epsilon) if plan.epsilon else dialect.planar_unit)
    if dialect.planar_unit is not None or plan.final_scale != _PLAIN_SCALE:
        words.put("planar.scale", plan.final_scale)
    if dialect.idle_mac_kernel is not None:
        reduces = (_REDUCES if plan.is_reduction else 0) | (_BEHIND_REDUCTION if plan.behind_reduction else 0)
        words.put("mac.kernel", dialect.idle_mac_kernel | reduces)
    words.put("mac.config", dialect.idle_mac_config)


_PLANAR_ONE, _PLAIN_SCALE = 0x3C000000, 0x3F800000
_REDUCES, _BEHIND_REDUCTION = 0x1000, 0x4000


def _half(value: float) -> int:
    return int(np.array(value, np.float16).view(np.uint16))


def _rounded_single(value: float) -> int:
    """The bits of a single whose 13 low bits are rounded off, to the nearest even: as many digits as a half has."""
    bits = int(np.array(value, np.float32).view(np.uint32))
    return bits + 0xFFF + (bits >> 13 & 1) & 0xFFFFE000


def _planar_config(plan: TaskPlan) -> int:
    if plan.operation in (UNKNOWN, "copy") or (plan.numbers is not None and plan.second is None):
        return 0
    if plan.operation in _CODES_OF_ONE:
        return _CODES_OF_ONE[plan.operation]
    if plan.is_reduction:
        return _REDUCTIONS[plan.operation] | _PLANAR_TABLES[plan.planar_table] | (_MINUS_FIRST if plan.second else 0)
    pool = _POOLS.get(plan.operation, 0)
    code = 0 if pool else _PLANAR_OPS[plan.operation]
    second = (3 if plan.operation == "sub" else 2) if plan.second else 0
    return second << 18 | code << 2 | pool


def _mac(words: TaskWords, plan: TaskPlan) -> None:
    dialect = words.dialect
    biased = plan.is_biased
    mode = _MODES[plan.operation] if not biased else _MODES["total"]
    bias = 0x10 if plan.has_bias else 0
    words.put("mac.config", 0x00100000 | dialect.mac_point | mode | bias | _ACTIVATIONS[plan.activation] << 16)
    words.put("mac.scale", _half(plan.post_scale))
    if plan.same_bias or biased:
        words.put("mac.same_bias", _half(plan.same_bias) if plan.same_bias else _LEAST)
    if biased or plan.operation == "total":
        words.put("mac.biased_table", 1)
    skips = _SKIPPED if plan.kernel.skips_zeros and plan.streams.coefficients else 0
    narrow = plan.operation == "convolution" and plan.kernel.is_point and plan.result.height == 1
    if plan.kernel_bar is not None:
        words.put("mac.kernel", _TENSOR)
    elif dialect.narrow_product and narrow and plan.result_columns <= _NARROW:
        words.mark("mac.config", dialect.narrow_product)
    elif plan.streams.coefficients:
        value = dialect.mac_kernel_with_weights
        words.put("mac.kernel", (value or _PLAIN_KERNEL) | skips if skips else value)
    else:
        words.put("mac.kernel", dialect.mac_kernel_with_table if plan.streams.table else dialect.mac_kernel)


_MODES = {"convolution": 0, "bypass": 0xC, "total": 0x8, "largest": 0xB}
_SKIPPED, _PLAIN_KERNEL, _LEAST = 0x100, 0x82, 0x11
_CODES_OF_ONE = {"abs": 0x1C0, "tile": 0x20}
_TENSOR = 0x10082
"""The kernel word of a product whose kernel is a tensor."""
_NARROW = 8


def _defaults(words: TaskWords) -> None:
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
