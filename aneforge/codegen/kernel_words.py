"""The words of a task about kernels and tables, and those that the loader adds base addresses to."""

from __future__ import annotations

from aneforge.codegen.dialect import Dialect, resolved
from aneforge.codegen.plan import TaskPlan
from aneforge.codegen.sharing import CORES
from aneforge.codegen.stream import is_indexed
from aneforge.codegen.task_words import TaskWords

_MEMORY_BAR = 4  # the register that words about memory are relocated against, where they are


def put_constants(words: TaskWords, plan: TaskPlan) -> None:
    """Which streams of coefficients and which table a task reads."""
    dialect, streams = words.dialect, plan.streams
    counted = plan.number << 16 if is_indexed(words.generation) else 0
    if not plan.has_kernel:
        if plan.result.in_memory and plan.result_lanes == 1:
            words.put("constants.config", dialect.no_constants_config)
        return
    number = plan.kernel_number << 16 if is_indexed(words.generation) else 0
    config = dialect.constants_config
    config |= _SKIPS_ZEROS if plan.kernel.skips_zeros and streams.coefficients else 0
    if plan.count and not plan.is_last and not streams.coefficients:
        config &= ~_LAST_OF_KERNELS if is_indexed(words.generation) else ~0
    words.put("constants.config", config | number)
    if not (streams.coefficients or plan.is_first or dialect.writes_every_register):
        _no_coefficients(words, (dialect.stream_config & ~1) | counted)
    for core, (start, size) in enumerate(streams.coefficients):
        place = f"[{core}]" if dialect.numbered_streams else str(core)
        if plan.kernel_bar is None:
            words.put_register("KernelDMASrc", f"CoeffDMAConfig{place}", dialect.stream_config | counted)
        elif not dialect.relocated:
            words.put_register("KernelDMASrc", f"CoeffDMAConfig{place}", dialect.tensor_stream_config | counted)
        if start or dialect.writes_every_register:
            words.put_register("KernelDMASrc", f"CoeffBaseAddr{place}", start)
        words.put_register("KernelDMASrc", f"CoeffBfrSize{place}", size)
    if plan.kernel_bar is not None and is_indexed(words.generation):
        size = streams.coefficients[0][1]
        words.put("constants.part", len(streams.coefficients) * size)
        words.put("constants.channel", size if streams.table is not None else None)
    if streams.table is not None:
        words.put("table.config", (dialect.table_config or 0) | counted)
        words.put("table.size", streams.table[1])


def _no_coefficients(words: TaskWords, config: int) -> None:
    """A table alone, behind other tasks: the streams of coefficients are switched off."""
    known = words.map.blocks["KernelDMASrc"].by_name
    streams = (*(f"CoeffDMAConfig{core}" for core in range(CORES)), *words.dialect.other_streams)
    for name in filter(known.__contains__, streams):
        words.put_register("KernelDMASrc", name, config)


_SKIPS_ZEROS, _LAST_OF_KERNELS = 0x20, 0x80


def put_relocations(words: TaskWords, plan: TaskPlan) -> None:
    """What the loader adds base addresses to, in the order of published programs: constants, sources, result, and
    where a generation has them the words that configure memory."""
    generation, dialect = words.generation, words.dialect
    if not is_indexed(generation):
        return
    streams = plan.streams
    if plan.result.in_memory and plan.result_lanes == 1:
        more = (
            {}
            if plan.is_first
            else {name: value | plan.number << 16 for name, value in dialect.cache_words_later.items()}
        )
        for name, value in (dialect.cache_words | more).items():
            words.put_register("CacheDMA", name, value)
    constants = _constants_bar(plan, dialect)
    if streams.coefficients and plan.kernel_bar is None:
        words.relocate("constants.base", constants, streams.base, 0)
    if streams.table is not None:
        words.relocate("table.base", constants, streams.base + streams.table[0], 0)
        words.relocate("table.place", constants, streams.base + streams.table[0])
    if plan.kernel_bar is not None:
        words.relocate("constants.base", plan.kernel_bar, plan.kernel_offset, 0)
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
        if plan.kernel_bar is not None:
            for core in range(len(streams.coefficients)):
                place = words.map.register("KernelDMASrc", f"CoeffDMAConfig{core}").address
                assert place is not None
                config = dialect.tensor_stream_config | plan.number << 16
                words.relocated.append((place, [config], _MEMORY_BAR))


def _constants_bar(plan: TaskPlan, dialect: Dialect) -> int:
    """The base-address register of weights and tables: the constant section, or the kernels behind the tensors."""
    if not dialect.kernel_section:
        return 1
    tensors = (plan.source, plan.second, plan.result)
    return (
        plan.constants_bar
        or max((tensor.bar for tensor in tensors if tensor and tensor.bar is not None), default=0) + 1
    )
