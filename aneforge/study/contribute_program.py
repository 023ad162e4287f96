"""A program of the vendor's compiler as a record, which a person can send in: the words of its tasks, and nothing that
names a model, a person or a machine.

The form is that of the collected programs (``bench/vendor_programs.py`` reads it). What the network is, registers do
not say for certain: the person fills it in.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from aneforge.chips.names import target as target_of
from aneforge.codegen.container import Container
from aneforge.codegen.emission import generation_of_target
from aneforge.codegen.reading import table_bytes_of
from aneforge.codegen.record import is_own_debug
from aneforge.codegen.tasks import Task
from aneforge.errors import AneforgeError
from aneforge.study.contribute import checked_origin

_VERSION = re.compile(r"\d+(?:\.\d+)+")
_DIGITS = 12


def program_record(container: Container, chip: str | None, system: str, source: str) -> dict[str, Any]:
    """The record of a program. ``chip`` names the chip where several have the same registers."""
    checked_origin(system, source)
    section = container.section("__debug_info", "__DEBUG")
    if section is not None and is_own_debug(container.contents(section).data):
        raise AneforgeError("aneforge wrote this program. Give one of the vendor's compiler.")
    target = container.generation if chip is None else target_of(chip).name
    if generation_of_target(target) != container.generation:
        raise AneforgeError(
            f"--target {chip}: its programs have the registers of {generation_of_target(target)}, and this one has "
            f"those of {container.generation}. Leave --target out, or name another chip."
        )
    tasks = [_task(task) for task in container.tasks]
    stated = "".join(word for task in tasks for word in task["words"])
    tables = list(filter(None, (table_bytes_of(task, container.stored) for task in container.tasks)))
    version = _VERSION.search(container.note)
    return {
        "id": f"{target}__contributed_{hashlib.sha256(stated.encode()).hexdigest()[:_DIGITS]}",
        "kind": "contributed",
        "target": target,
        "generation": container.generation,
        "network": {"op": None},
        "ports": [{"role": port.role, "shape": list(port.shape), "dtype": port.element} for port in container.ports],
        "dtype": "float16",
        "const_bytes": sum(map(len, container.stored.values())),
        **(_table(tables[0]) if tables else {}),
        "tasks": tasks,
        "source": {"name": source, "os": system},
        "compiler": version[0] if version else None,
    }


def _task(task: Task) -> dict[str, Any]:
    return {
        "header_words": len(task.header_words),
        "words": [f"{word:08x}" for word in task.words],
        "registers": [[f"{address:#07x}", f"{value:#010x}"] for address, value in task.writes],
    }


def _table(table: bytes) -> dict[str, Any]:
    halves = [table[place : place + 2][::-1].hex() for place in range(0, len(table), 2)]
    return {"table_fp16": halves, "table_sha256": hashlib.sha256(table).hexdigest()}
