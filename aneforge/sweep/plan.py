"""What is to be done: each model with the key of its result, the largest first, or the part of one shard."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge.cache.keys import digest_of, stamp_of
from aneforge.errors import AneforgeError
from aneforge.sweep.models import SweptModel
from aneforge.version import __version__

__all__ = ["Options", "Planned", "Shard", "plan_of", "task_key"]

SCHEMA = 1


@dataclass(frozen=True)
class Options:
    """What changes a result besides the model and the version: the chips with their labels, and what a time covers."""

    targets: Mapping[str, str]
    scope: str

    def to_json(self) -> dict[str, Any]:
        return {"targets": dict(self.targets), "scope": self.scope}


@dataclass(frozen=True)
class Shard:
    """One part of a sweep that several machines share: ``2/8``."""

    number: int = 1
    count: int = 1

    @classmethod
    def of(cls, text: str | None) -> Shard:
        if text is None:
            return cls()
        parts = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        number, count = (int(parts[1]), int(parts[2])) if parts else (0, 0)
        if not 1 <= number <= count:
            raise AneforgeError(f"shard {text!r}: expected i/n with i from 1 to n, such as 2/8")
        return cls(number, count)

    def has(self, model: SweptModel) -> bool:
        """By the model's name, so that no shard reads the files of another, and the same model stays in its shard when
        others come or go."""
        digest = hashlib.blake2b(model.name.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.count == self.number - 1

    @property
    def file(self) -> str:
        return "plan.json" if self.count == 1 else f"plan.{self.number}-of-{self.count}.json"


@dataclass(frozen=True)
class Planned:
    """A model with the key of its result; without one where its file cannot be read, which ``error`` says."""

    model: SweptModel
    key: str = ""
    bytes: int = 0
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        model = self.model
        return {
            "path": model.path,
            "revision": model.revision,
            "dims": dict(model.dims),
            "function": model.function,
            "key": self.key,
            "error": self.error,
        }

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Planned:
        model = SweptModel(row["path"], row["revision"], row["dims"], row["function"])
        return cls(model, row["key"], 0, row["error"])


def plan_of(models: Sequence[SweptModel], options: Options, known: dict[str, str]) -> list[Planned]:
    """Every model with its key, in their order. ``known`` has the digests of files by their stamp; new ones are
    added."""
    return [_planned(model, options, known) for model in models]


def task_key(content: str, model: SweptModel, options: Options) -> str:
    """The name of a result: the same model by content, version, sizes, function and options have the same."""
    name = model.file.name if ".py" in model.file.name else ""  # a Python file is followed by the name of its graph
    parts = [SCHEMA, __version__, content, name, sorted(model.dims.items()), model.function, options.to_json()]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=20).hexdigest()


def _planned(model: SweptModel, options: Options, known: dict[str, str]) -> Planned:
    try:
        stamp = stamp_of(model.place)
        content = known.get(stamp)
        if content is None:
            content, is_settled = digest_of(model.place)
            if is_settled:
                known[stamp] = content
        return Planned(model, task_key(content, model, options), _bytes_of(model.place))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Planned(model, error=f"cannot be read ({why})")


def _bytes_of(place: Path) -> int:
    if place.is_dir():
        return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    return place.stat().st_size
