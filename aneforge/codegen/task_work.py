"""What a task does, as its reader finds it: backend ops, and the tensors that they read and write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aneforge.codegen.operands import Operand


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
    reads: tuple[int, ...] = ()
    """Numbers of the operands of the task that it reads besides what the op before it gave; for the first op, all that
    it reads."""


@dataclass(frozen=True)
class TaskReading:
    """A task in the engine's language."""

    operands: tuple[Operand, ...]
    result: Operand
    work: tuple[TaskWork, ...]
    second_behind_relu: bool = False
    """Whether the second operand is the first one behind a relu."""
    staged: tuple[tuple[int, Operand], ...] = ()
    """Operands that come from memory, by number, and where they lie in scratch from then on."""


@dataclass(frozen=True)
class TaskParts:
    """The work of a task, before the place of its result is known."""

    work: list[TaskWork]
    operands: list[Operand] = field(default_factory=list)
    """Besides the first source."""
