"""What is read from a compiled program for an experiment: how many tasks it has, and which engine runs each."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from aneforge.codegen.container import Container
from aneforge.codegen.describe import is_planar


def reading_of(program: Container, watch: Collection[str]) -> dict[str, Any]:
    """What is watched of a program."""
    tasks = program.tasks
    known = {
        "compiles": True,
        "tasks": len(tasks),
        "engines": ["planar" if is_planar(task) else "MAC" for task in tasks],
        "words": [len(task.words) for task in tasks],
    }
    return {name: known[name] for name in watch}
