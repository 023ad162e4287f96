"""What is to be done: each model, or those of one shard, with the key of its result."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aneforge.cache.keys import digest_of, stamp_of
from aneforge.errors import AneforgeError
from aneforge.sweep.models import SweptModel
from aneforge.version import __version__
from aneforge.workers import cores

SCHEMA = 2
"""The form of plans and results; those of another are made anew."""
_SELF_CONTAINED = (".aimodel", ".aneforge", ".mlmodel", ".mlpackage", ".pt2")
"""Formats that have no weights in files beside them, and run nothing."""


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


class Digests:
    """Digests of files; those of files that have not changed since are remembered (``known``, by their stamps)."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.known = dict(known)

    def of(self, place: Path) -> str:
        """Raises OSError or ValueError for what cannot be read."""
        stamp = stamp_of(place)
        content = self.known.get(stamp)
        if content is None:
            content, is_settled = digest_of(place)
            if is_settled and stamp_of(place) == stamp:
                self.known[stamp] = content
        return content


@dataclass(frozen=True)
class Planned:
    """A model with the key of its result; without one where its file cannot be read, which ``error`` says."""

    model: SweptModel
    key: str = ""
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
        return cls(model, row["key"], row["error"])


def plan_of(
    models: Sequence[SweptModel], options: Options, digests: Digests, tell: Callable[[int], None] = lambda count: None
) -> list[Planned]:
    """Every model with its key, in their order; ``tell`` hears how many are planned.

    Most of this is hashing, which leaves the interpreter to others: a thread for each core keeps all of them busy.
    """
    planned = []
    threads = ThreadPoolExecutor(cores(), "plan")
    try:
        for one in threads.map(lambda model: _planned(model, options, digests), models):
            planned.append(one)
            tell(len(planned))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for the other files
    return planned


def task_key(content: str, model: SweptModel, options: Options) -> str:
    """The name of a result: the same model by content and revision, sizes, function, options and version of aneforge
    have the same."""
    suffix = model.place.suffix.casefold()
    # Equal files in two folders are two models where the files beside them differ.
    folder = "" if suffix in _SELF_CONTAINED else Path(model.path).parent.as_posix()
    name = model.file.name if model.is_python else ""  # it may be followed by the name of a graph
    asked = [model.revision, sorted(model.dims.items()), model.function, options.to_json()]
    parts = [SCHEMA, __version__, code_digest(), content, folder, name, *asked]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=20).hexdigest()


@cache
def code_digest() -> str:
    """This package by content: a checkout that was edited has the version that it had, and other answers."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.blake2b(digest_size=20)
    for file in sorted(package.rglob("*")):
        if file.suffix in (".py", ".json"):
            name = file.relative_to(package).as_posix()
            content = file.read_bytes()
            digest.update(f"{len(name)}:{name}{len(content)}:".encode() + content)
    return digest.hexdigest()


def _planned(model: SweptModel, options: Options, digests: Digests) -> Planned:
    try:
        return Planned(model, task_key(digests.of(model.place), model, options))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Planned(model, error=f"cannot be read ({why})")
