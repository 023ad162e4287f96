"""What a build knows of each task, and the section of a container that carries it.

The section ``__DEBUG,__debug_info`` of our containers is one line of JSON with a version, then arrays at multiples of
64 bytes. It has what registers cannot say: the shapes and names of the user, the layers that have no register form as
backend text with their constants, and the evidence of each task.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.verdicts import ANALOGY, TEXT, VERDICTS
from aneforge.codegen.words import SAMPLED

if TYPE_CHECKING:
    from aneforge.codegen.container import Container

_MAGIC, _VERSION, _ALIGNED = b"AFDEBUG\0", 1, 64
_DTYPES = ("<f2", "<f4", "|u1", "|i1", "|b1")
_HEAD = struct.Struct("<8sIIQ")  # magic, version, zero, bytes of the JSON line


@dataclass(frozen=True)
class TaskRecord:
    """One layer of the program and the task that does its work."""

    layer: int
    task: int | None
    """None where nothing has to be done."""
    form: str
    """The register form, or the backend op where there is none."""
    expressed: bool
    """Whether the registers and constants say all of the work: the reader gets the same ops back from them."""
    sampled: tuple[str, ...] = ()
    """Groups of words whose rule rests on a few published programs (:data:`aneforge.codegen.words.SAMPLED`)."""
    constants: str = ""
    """The rule that its constants are laid out by, and its evidence."""
    reason: str = ""
    """Why it is not expressed."""
    sources: tuple[str, ...] = ()
    passes: int = 1
    """How many tasks do its work one after the other."""
    verdict: str = TEXT
    """What its words rest on (:mod:`aneforge.codegen.verdicts`)."""

    def to_json(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class BuildRecord:
    """What each task of a container rests on."""

    target: str
    tasks: tuple[TaskRecord, ...] = field(default_factory=tuple)

    @property
    def expressed(self) -> tuple[TaskRecord, ...]:
        return tuple(task for task in self.tasks if task.expressed)

    @property
    def not_expressed(self) -> tuple[TaskRecord, ...]:
        """Layers that need a task and have no register form."""
        return tuple(task for task in self.tasks if task.task is not None and not task.expressed)

    @property
    def sampled(self) -> dict[str, str]:
        """Every group of sampled words that the build used, and what its rule rests on."""
        used = sorted({name for task in self.tasks for name in task.sampled})
        return {name: SAMPLED[name] for name in used}

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "verdicts": self.verdicts,
            "can_run": self.can_run,
            "sampled": self.sampled,
            "tasks": [task.to_json() for task in self.tasks],
        }

    @property
    def verdicts(self) -> dict[str, int]:
        """How many tasks rest on what, the surest first."""
        counts: dict[str, int] = dict.fromkeys(VERDICTS, 0)
        for task in self.tasks:
            if task.task is not None:
                counts[task.verdict] += task.passes
        return {verdict: count for verdict, count in counts.items() if count}

    @property
    def can_run(self) -> bool:
        """Whether every task has words, so that hardware can do its work."""
        return TEXT not in self.verdicts

    @property
    def outlook(self) -> str:
        """Whether the file can run on hardware, in one line."""
        counts = self.verdicts
        if TEXT in counts:
            tasks = "1 task is" if counts[TEXT] == 1 else f"{counts[TEXT]} tasks are"
            return f"cannot run on hardware: {tasks} carried as text"
        if ANALOGY in counts:
            tasks = "1 task is" if counts[ANALOGY] == 1 else f"{counts[ANALOGY]} tasks are"
            return f"may run on hardware: every task has words, and {tasks} by analogy"
        return "can run on hardware as far as published programs show: every task is as published or by rule"

    def __str__(self) -> str:
        count = sum(task.passes for task in self.tasks if task.task is not None)
        each = ", ".join(f"{number} {verdict}" for verdict, number in self.verdicts.items())
        lines = [f"{count} tasks for {self.target}: {each}", self.outlook]
        if self.not_expressed:
            kinds: dict[str, int] = {}
            for task in self.not_expressed:
                kinds[f"{task.form}: {task.reason}"] = kinds.get(f"{task.form}: {task.reason}", 0) + 1
            lines.append("not expressed, carried as backend text:")
            lines += [f"  {number} x {kind}" for kind, number in sorted(kinds.items())]
        if self.sampled:
            lines.append("words by a sampled rule:")
            lines += [f"  {name}: {why}" for name, why in self.sampled.items()]
        return "\n".join(lines)


def rows_of(container: Container) -> list[dict[str, Any]]:
    """The records of the layers of a container of ours, as its debug section has them; none of somebody else's."""
    section = container.section("__debug_info", "__DEBUG")
    if section is None:
        return []
    contents = container.contents(section)
    try:
        rows = read_debug(contents.data, contents.start)[0]["layers"]
        return [
            row for row in rows if row["task"] is not None and {"form", "verdict", "expressed", "passes"} <= set(row)
        ]
    except (ContainerError, KeyError, TypeError):
        return []


def debug_bytes(content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The section for a record and the arrays that it refers to by key."""
    places: dict[str, Any] = {}
    blob = bytearray()
    for key, array in arrays.items():
        blob += bytes(-len(blob) % _ALIGNED)
        places[key] = [array.dtype.str, list(array.shape), len(blob)]
        blob += np.ascontiguousarray(array).tobytes()
    line = json.dumps({**content, "arrays": places}, sort_keys=True).encode()
    head = _HEAD.pack(_MAGIC, _VERSION, 0, len(line)) + line
    return head + bytes(-len(head) % _ALIGNED) + bytes(blob)


def is_own_debug(data: memoryview | bytes) -> bool:
    """Whether a debug section is one of ours; the vendor's programs may have one too."""
    return bytes(data[:8]) == _MAGIC


def read_debug(data: memoryview | bytes, offset: int = 0) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The record and the arrays of a section. ``offset`` is where it lies in the file, for messages."""
    data = memoryview(data)
    if len(data) < _HEAD.size or bytes(data[:8]) != _MAGIC:
        raise ContainerError(offset, "the debug section is not one of aneforge's")
    _, version, _, length = _HEAD.unpack(data[: _HEAD.size])
    if version != _VERSION:
        raise ContainerError(offset + 8, f"the debug section has version {version}; this reader knows {_VERSION}")
    end = _HEAD.size + length
    if end > len(data):
        raise ContainerError(offset + 16, f"the debug section states {length} bytes of JSON and has {len(data)}")
    try:
        content = json.loads(bytes(data[_HEAD.size : end]))
        start = end + -end % _ALIGNED
        arrays = {key: _array(data, start, *place) for key, place in content.pop("arrays").items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ContainerError(offset, f"the debug section cannot be read ({error})") from None
    return content, arrays


def _array(data: memoryview, start: int, dtype: str, shape: list[int], place: int) -> np.ndarray:
    if dtype not in _DTYPES or place < 0 or any(extent < 0 for extent in shape):
        raise ValueError(f"an array of type {dtype} at {place}")
    count = 1
    for extent in shape:
        count *= extent
    return np.frombuffer(data, np.dtype(dtype), count, start + place).reshape(shape)
