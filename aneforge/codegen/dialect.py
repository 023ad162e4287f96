"""How the tasks of one generation are written, where shapes do not say it: the table ``task_words.json``, typed.

One writer serves every generation (:mod:`aneforge.codegen.words`); what differs between them is here, as data.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.codegen.registers import Field, Register, generations, register_map
from aneforge.codegen.tasks import Task
from aneforge.errors import AneforgeError


@dataclass(frozen=True)
class Dialect:
    """The columns of one generation; what each says is in the table. None is a word that is not written."""

    generation: str
    rate: float
    flat_rate: float
    products_rate: float | None
    biased_rate: float | None
    spreads_rows: bool
    narrow_product: int | None
    writes_every_register: bool
    default_width: int | None
    network: int
    bypass_groups: int | None
    numbered_streams: bool
    memory_format: int
    second_format: int
    result_format: int
    source_config: int
    second_config: int
    source_on_chip_config: int | None
    idle_source_config: int | None
    cache_hint: int | None
    result_config: int
    buffer_mode: int
    lanes_config: int
    product_rows: int
    lanes_bit: int
    tensor_stream_config: int
    result_on_chip_config: int | None
    idle_mac_kernel: int | None
    idle_mac_config: int | None
    planar_unit: int | None
    mac_point: int
    mac_kernel: int | None
    mac_kernel_with_weights: int | None
    mac_kernel_with_table: int | None
    constants_config: int
    no_constants_config: int | None
    stream_config: int
    table_config: int | None
    cache_words: dict[str, int]
    cache_words_later: dict[str, int]
    relocated: str | None
    second_base_times: int
    kernel_section: bool
    events: tuple[int, ...]
    flags: tuple[int, ...]
    waiting_tables: tuple[str, ...]
    flags_of_waiting_table: int
    result_mark: int
    program_format: int | None
    table_bytes: int
    table_evidence: str
    table_in_streams: str
    first_tensor_bar: int
    default_channels: int | None
    default_lanes: int | None
    default_task: int | None
    repeated_columns: int
    small_pixels: int | None
    points_share_rows: bool
    turns_in_lanes: bool
    one_row_turns_share: bool
    turns_numbers: bool
    cuts_reductions: bool
    other_streams: tuple[str, ...]
    follows_rows: bool
    marks_two_sources: bool
    configures_second: bool
    halves_of_numbers: bool
    filler: int | None


@cache
def written_generations() -> tuple[str, ...]:
    """The generations whose programs can be written, oldest first."""
    return tuple(store.load("task_words")["generations"])


@cache
def dialect_of(generation: str) -> Dialect:
    """The dialect of a generation (``h13``)."""
    if generation not in written_generations():
        known = ", ".join(written_generations())
        raise AneforgeError(f"{generation}: the task words are not published. Choose a target of {known}.")
    place = written_generations().index(generation)
    values = {row["key"]: _value(row["v"][place]) for row in store.load("task_words")["words"]}
    return Dialect(generation, **{field.name: values[field.name] for field in fields(Dialect)[1:]})


@cache
def rate_of(target: str, generation: str) -> float:
    """Bytes a nanosecond that the vendor's compiler counts with for a target."""
    return float(store.load("task_words")["rates"].get(target, dialect_of(generation).rate))


def _value(cell: Any) -> Any:
    """A cell as code uses it: words are written in base 16."""
    if isinstance(cell, dict):
        return {name: _value(value) for name, value in cell.items()}
    if isinstance(cell, list):
        return tuple(_value(value) for value in cell)
    return int(cell, 16) if isinstance(cell, str) and cell.startswith("0x") else cell


# What registers mean, whatever a generation calls them: one table that writes tasks and reads them.


NAMES: dict[str, tuple[str, ...]] = {
    "in.width": ("Common.InDim.Win", "Common.InWidth.Win"),
    "in.height": ("Common.InDim.Hin", "Common.InHeight.Hin"),
    "in.depth": ("Common.InDepth.Din",),
    "in.channels": ("Common.Cin.Cin", "Common.InChannels.Cin"),
    "out.width": ("Common.OutDim.Wout", "Common.OutWidth.Wout"),
    "out.height": ("Common.OutDim.Hout", "Common.OutHeight.Hout"),
    "out.depth": ("Common.OutDepth.Dout",),
    "out.channels": ("Common.Cout.Cout", "Common.OutChannels.Cout"),
    "format.in": ("Common.ChCfg.InFmt", "Common.ChannelCfg.InFmt"),
    "format.second": ("Common.ChCfg.Src2InFmt", "Common.ChannelCfg.Src2InFmt"),
    "format.out": ("Common.ChCfg.OutFmt", "Common.ChannelCfg.OutFmt"),
    "kernel.width": ("Common.ConvCfg.Kw", "Common.ConvCfg.KW"),
    "kernel.height": ("Common.ConvCfg.Kh", "Common.ConvCfg.KH"),
    "kernel.stride_x": ("Common.ConvCfg.Sx", "Common.ConvCfg.SX"),
    "kernel.stride_y": ("Common.ConvCfg.Sy", "Common.ConvCfg.SY"),
    "kernel.left": ("Common.ConvCfg.Px", "Common.ConvCfg.PX", "Common.ConvCfg.PadLeft"),
    "kernel.top": ("Common.ConvCfg.Py", "Common.ConvCfg.PY", "Common.ConvCfg.PadTop"),
    "kernel.step_x": ("Common.ConvCfg.Ox", "Common.ConvCfg.OX"),
    "kernel.step_y": ("Common.ConvCfg.Oy", "Common.ConvCfg.OY"),
    "kernel.depth": ("Common.ConvCfg3d.Kd",),
    "kernel.stride_z": ("Common.ConvCfg3d.Sz",),
    "kernel.step_z": ("Common.ConvCfg3d.Oz",),
    "outputs_per_core": ("Common.ConvCfg.OCGSize", "Common.OCGSize.OCGSize", "Common.NECfg.OCGSize"),
    "groups": ("Common.GroupConvCfg.NumGroups", "Common.NumGroups.NumGroups"),
    "unicast": ("Common.GroupConvCfg.UnicastEn", "Common.UnicastCfg.UnicastEn"),
    "unicast.channels": ("Common.GroupConvCfg.UnicastCin", "Common.UnicastCfg.UnicastCin"),
    "tile.height": ("Common.TileCfg.TileHeight", "Common.TileHeight.TileHeight"),
    "patch.width": ("Common.PatchCfg.PatchWidth",),
    "patch.height": ("Common.PatchCfg.PatchHeight",),
    "task.bit0": ("Common.Cfg.Bit0",),
    "task.dual_source": ("Common.Cfg.DualSource",),
    "task.small_source": ("Common.Cfg.SmallSourceMode", "Common.MacCfg.SmallSourceMode"),
    "task.type": ("Common.Cfg.TaskType", "Common.MacCfg.TaskType"),
    "task.share_preferred": ("Common.Cfg.ShPref", "Common.MacCfg.ShPref"),
    "task.share_least": ("Common.Cfg.ShMin", "Common.MacCfg.ShMin"),
    "task.share_most": ("Common.Cfg.ShMax", "Common.MacCfg.ShMax"),
    "task.cores": ("Common.Cfg.ActiveNE", "Common.MacCfg.ActiveNE"),
    "task.transposes": ("Common.Cfg.OutTrans", "Common.MacCfg.OutTrans"),
    "task.word": ("Common.Cfg", "Common.MacCfg"),
    "task.network": ("Common.TaskInfo.NID", "Common.NID.NID"),
    # Memory on the way in and out.
    **{
        f"{side}.{part}": tuple(f"TileDMASrc.{prefix}{text}" for text in names for prefix in (old, new))
        for side, old, new in (("source", "", "Src1"), ("second", "Src2", "Src2"))
        for part, *names in (
            ("config", "DMAConfig"),
            ("hints", "DMAConfigExt", "WrapCfg", "CacheHints"),
            ("row", "RowStride"),
            ("plane", "PlaneStride", "ChannelStride"),
            ("depth", "DepthStride"),
            ("group", "GroupStride"),
            ("format", "Fmt"),
            ("base", "BaseAddrLo", "BaseAddr"),
            ("set", "DataSet"),
        )
    },
    **{
        f"result.{part}": (f"TileDMADst.{name}", f"TileDMADst.Dst{name}", f"TileDMADst.{name.removesuffix('Lo')}")
        for part, name in (
            ("config", "DMAConfig"),
            ("row", "RowStride"),
            ("plane", "PlaneStride"),
            ("depth", "DepthStride"),
            ("group", "GroupStride"),
            ("format", "Fmt"),
            ("base", "BaseAddrLo"),
            ("set", "DataSet"),
        )
    },
    # Scratch.
    "scratch.config": ("L2.L2Cfg", "L2.Control"),
    "scratch.source.config": ("L2.SourceCfg", "L2.Src1Cfg"),
    "scratch.second.config": ("L2.Src2Cfg",),
    "scratch.result.config": ("L2.ResultCfg",),
    **{
        f"scratch.{side}.{part}": (f"L2.{old}{name}", f"L2.{new}{name}")
        for side, old, new in (
            ("source", "Source", "Src1"),
            ("second", "Source2", "Src2"),
            ("result", "ConvResult", "Result"),
        )
        for part, name in (
            ("base", "Base"),
            ("channel", "ChannelStride"),
            ("row", "RowStride"),
            ("depth", "DepthStride"),
            ("group", "GroupStride"),
        )
    },
    # The two engines.
    "planar.bias_scale": ("PE.BiasScale",),
    "planar.pre_scale": ("PE.PreScale",),
    "planar.scale": ("PE.FinalScale",),
    "planar.mask": ("Common.PECfg",),
    "planar.bias": ("PE.Bias",),
    "planar.factor": ("PE.Scale",),
    "planar.config": ("PE.Cfg", "PE.PEConfig", "PE.Config"),
    "planar.operation": ("PE.Cfg.OpMode", "PE.PEConfig.Operation", "PE.Config.Operation"),
    "planar.pool": ("PE.PEConfig.PoolMode", "PE.Config.PoolMode"),
    "planar.condition": ("PE.Cfg.Cond", "PE.Config.Condition"),
    "planar.relu": ("PE.Cfg.ReluEn",),
    "planar.activation": ("PE.PEConfig.NLMode", "PE.Config.NLMode"),
    "planar.second": ("PE.Cfg.SecSrc", "PE.PEConfig.SecSrc", "PE.Config.Src2Sel"),
    "mac.kernel": ("NE.KernelCfg",),
    "mac.config": ("NE.MACCfg", "NE.MacCfg"),
    "mac.operation": ("NE.MACCfg.OpMode", "NE.MacCfg.OpMode"),
    "mac.bias": ("NE.MACCfg.BiasMode", "NE.MacCfg.BiasMode", "NE.MacCfg.BiasEn"),
    "mac.scaled": ("NE.MACCfg.PostScaleMode", "NE.MacCfg.PostScaleMode", "NE.MacCfg.PostEn"),
    "mac.activation": ("NE.MACCfg.NonlinearMode", "NE.MacCfg.NonlinearMode", "NE.MacCfg.NLMode"),
    "mac.same_bias": ("NE.AccBias", "NE.NEBias"),
    "mac.biased_table": ("Common.DPE",),
    "mac.unit_kernel": ("NE.MACCfg.KernelMode",),
    "mac.scale": ("NE.PostScale", "NE.NEPostScale"),
    # Constants.
    "constants.config": ("KernelDMASrc.MasterConfig",),
    "constants.channel": ("KernelDMASrc.AlignedCoeffSizePerCh",),
    "constants.part": ("KernelDMASrc.KernelOCGStride", "KernelDMASrc.Reserved2"),
    "constants.base": ("KernelDMASrc.KernelBaseAddrLo",),
    "table.config": ("KernelDMASrc.NonLinearLutDMAConfig",),
    "table.place": ("KernelDMASrc.NonLinearLutBaseAddr",),
    "table.size": ("KernelDMASrc.NonLinearLutBfrSize",),
    "table.base": (
        "KernelDMASrc.NonLinearLutBase64Lo",
        "KernelDMASrc.NonLinearLutBaseAddrLo",
    ),
}
"""What a field or a whole word means, and its name in the maps."""


@cache
def resolved(generation: str, meaning: str) -> tuple[Register, Field | None] | None:
    """The register that has a meaning in a generation, and the field of it; None where it has none."""
    if generation not in generations():
        return None
    known = register_map(generation)
    for name in NAMES[meaning]:
        block, register, *field = name.split(".")
        found = known.blocks[block].by_name.get(register) if block in known.blocks else None
        if found is None:
            continue
        if not field:
            return found, None
        named = next((part for part in found.fields if part.name == field[0]), None)
        if named is not None:
            return found, named
    return None


def meaning_of(task: Task, meaning: str) -> int | None:
    """What a task writes for a meaning; None where it writes nothing or the generation has no such register."""
    found = resolved(task.generation, meaning)
    if found is None:
        return None
    register, field = found
    value = task.word(register.address) if register.address is not None else _by_register(task, register)
    return value if value is None or field is None else field.read(value)


def _by_register(task: Task, register: Register) -> int | None:
    """The word of a register whose address is not published (h11)."""
    return next((value for _, value, written in task.written() if written is register), None)
