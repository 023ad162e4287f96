"""How the tasks of one generation are written, where shapes do not say it: the table ``task_words.json``, typed.

One writer serves every generation (:mod:`aneforge.codegen.words`); what differs between them is here, as data.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from aneforge.errors import AneforgeError
from aneforge.targets import store


@dataclass(frozen=True)
class Dialect:
    """The columns of one generation; what each says is in the table. None is a word that is not written."""

    generation: str
    rate: float
    writes_every_register: bool
    default_width: int | None
    network: int
    bypass_groups: int | None
    small_source_share: int | None
    numbered_streams: bool
    memory_format: int
    second_format: int
    result_format: int
    source_config: int
    second_config: int
    source_on_chip_config: int | None
    cache_hint: int | None
    result_config: int
    result_config_with_kernel: int
    result_on_chip_config: int | None
    scratch_source: int
    scratch_source_of_two: int
    scratch_resident: int
    scratch_resident_of_two: int
    idle_mac_kernel: int | None
    idle_mac_config: int | None
    planar_unit: int | None
    spare: int | None
    mac_point: int
    mac_kernel: int | None
    mac_kernel_with_weights: int | None
    mac_kernel_with_table: int | None
    constants_config: int
    no_constants_config: int | None
    stream_config: int
    table_config: int
    cache_words: dict[str, int]
    cache_words_with_kernel: dict[str, int]
    relocated: str | None
    second_base_times: int
    kernel_section: bool
    events_single: int
    events_last: int
    events_other: int
    flags_single: int
    flags_last: int
    flags_other: int
    result_mark: int
    program_format: int | None
    table_bytes: int
    table_evidence: str
    first_tensor_bar: int
    shown_forms: tuple[str, ...] | None


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


def _value(cell: Any) -> Any:
    """A cell as code uses it: words are written in base 16."""
    if isinstance(cell, dict):
        return {name: _value(value) for name, value in cell.items()}
    if isinstance(cell, list):
        return tuple(cell)
    return int(cell, 16) if isinstance(cell, str) and cell.startswith("0x") else cell
