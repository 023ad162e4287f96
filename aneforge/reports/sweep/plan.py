"""What is to be done: each model, or those of one shard, with the key of its result."""

from __future__ import annotations

import csv
import glob
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from aneforge.errors import AneforgeError, first_line
from aneforge.formats import FORMATS
from aneforge.formats.cache.keys import digest_of, stamp_of
from aneforge.formats.kinds import kind_of_folder
from aneforge.formats.onnx.file import count_nodes
from aneforge.formats.values import MODEL_ENDINGS, model_files
from aneforge.reports.workers import cores
from aneforge.version import __version__

# How much work a model is, at a glance: a guess at its operations that reads none of them.


_WEIGHTS = (".bin", ".weights")
_DESCRIPTION = (".json", ".mlmodel", ".mlirb", ".xml")
"""Entries of archives that describe operations."""
_BYTES_EACH = {
    ".pt2": 1500,
    ".aneforge": 250,
    ".mlmodelc": 200,
    ".mlpackage": 200,
    ".aimodel": 200,
    ".plist": 400,
    ".py": 40,
    ".net": 400,
    ".mil": 200,
}
"""About how many bytes describe one operation in a format."""
_OTHERS = 1000


def guess_operations(place: Path) -> int:
    """About how many operations a model file has; 0 if it cannot be read, which is told soon."""
    suffix = place.suffix.casefold()
    try:
        if suffix == ".onnx":
            return count_nodes(place)
        return _described_bytes(place) // _BYTES_EACH.get(suffix, _OTHERS)
    except (OSError, ValueError, IndexError, zipfile.BadZipFile):
        return 0


def _described_bytes(place: Path) -> int:
    if place.is_dir():
        files = (file for file in place.rglob("*") if file.suffix not in _WEIGHTS and file.is_file())
        return sum(file.stat().st_size for file in files)
    if zipfile.is_zipfile(place):
        with zipfile.ZipFile(place) as archive:
            return sum(entry.file_size for entry in archive.infolist() if entry.filename.endswith(_DESCRIPTION))
    return place.stat().st_size


# A list of models in a file, each with a revision and sizes: JSON, JSON lines or CSV. Errors name the line.


ENDINGS = (".json", ".jsonl", ".csv")
_KEYS = ("path", "revision", "dims", "sizes", "function")
_SPACE = re.compile(r"\s*")
_SIZE = re.compile(r"\s*[0-9]{1,18}\s*")
_EXAMPLE = '{"path": "net.onnx", "revision": "v1", "dims": {"batch": 1}}'


@dataclass(frozen=True)
class Entry:
    """One model of a manifest, its path as it is written there."""

    path: str
    revision: str
    dims: dict[str, int]
    function: str | None


def read_manifest(file: Path) -> list[Entry]:
    """The models of a manifest, in their order."""
    try:
        content = file.read_text(encoding="utf-8-sig")  # spreadsheets write a mark of the order of bytes
        records = list(_READERS[file.suffix.casefold()](content))
    except OSError as error:
        raise AneforgeError(f"{file}: the manifest cannot be read ({error.strerror})") from None
    except json.JSONDecodeError as error:
        raise AneforgeError(f"{file}:{error.lineno}: not a manifest ({error.msg}); see docs/guide/sweep.md") from None
    except (ValueError, RecursionError, csv.Error) as error:
        raise AneforgeError(f"{file}: not a manifest ({first_line(error)}); see docs/guide/sweep.md") from None
    return [_entry(record, f"{file}:{line}") for line, record in records]


def _entry(record: Any, where: str) -> Entry:
    record = {"path": record} if isinstance(record, str) else record
    if not isinstance(record, dict):
        raise AneforgeError(f"{where}: expected a record such as {_EXAMPLE}")
    for key, value in record.items():
        if key is None:
            raise AneforgeError(f"{where}: more cells than the first line has columns. Quote a cell with commas.")
        if key not in _KEYS:
            raise AneforgeError(f"{where}: key {key!r} is not known. Choose from: {', '.join(_KEYS)}.")
        if key in ("path", "function") and not isinstance(value, str):
            raise AneforgeError(f"{where}: key {key!r} is {json.dumps(value)}; expected text")
    if not record.get("path"):
        raise AneforgeError(f"{where}: key 'path' is missing. Write a record such as {_EXAMPLE}.")
    if "dims" in record and "sizes" in record:
        raise AneforgeError(f"{where}: keys 'dims' and 'sizes' mean the same. Leave one out.")
    key = "sizes" if "sizes" in record else "dims"
    revision = record.get("revision", "")
    if isinstance(revision, (dict, list, bool)) or revision is None:
        raise AneforgeError(f"{where}: key 'revision' is {json.dumps(revision)}; expected text or a number")
    dims = _dims(record.get(key, {}), f"{where}: key {key!r}")
    return Entry(record["path"], str(revision), dims, record.get("function"))


def _dims(value: Any, where: str) -> dict[str, int]:
    """Sizes as a record, or as text: ``batch=1,length=128``."""
    sizes: Any = value
    if isinstance(value, str):
        parts = [part.rpartition("=") for part in value.replace(";", ",").split(",") if part.strip()]
        sizes = {name.strip(): int(size) if _SIZE.fullmatch(size) else size for name, _, size in parts}
    if not isinstance(sizes, dict) or not all(name and type(size) is int and size > 0 for name, size in sizes.items()):
        raise AneforgeError(f"{where} is {json.dumps(value)}; expected sizes by name, such as batch=1,length=128")
    return sizes


# Records with the line that each begins in.


def _csv_records(content: str) -> Iterator[tuple[int, Any]]:
    rows = csv.DictReader(io.StringIO(content), strict=True)
    line = 2
    for row in rows:
        yield line, {key: value for key, value in row.items() if value}  # an empty cell says nothing
        line = rows.line_num + 1


def _jsonl_records(content: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except json.JSONDecodeError as error:
                raise json.JSONDecodeError(error.msg, "\n" * (number - 1) + line, number - 1 + error.pos) from None


def _json_records(content: str) -> Iterator[tuple[int, Any]]:
    """The elements of a list, which may be ``models`` of a record."""
    json.loads(content)  # what is wrong with it is said by the one parser
    place = _after_space(content, 0)
    if content[place] == "{":
        place = _value_of_models(content, place + 1)
    if content[place] != "[":
        raise ValueError("expected a list of models")
    decoder = json.JSONDecoder()
    place = _after_space(content, place + 1)
    line, counted = 1, 0
    while content[place] != "]":
        line, counted = line + content.count("\n", counted, place), place
        record, place = decoder.raw_decode(content, place)
        yield line, record
        place = _after_space(content, place)
        place = _after_space(content, place + (content[place] == ","))


def _value_of_models(content: str, place: int) -> int:
    """Where the value of ``models`` begins in a record that is known to be JSON."""
    decoder = json.JSONDecoder()
    place = _after_space(content, place)
    while content[place] != "}":
        key, place = decoder.raw_decode(content, place)
        place = _after_space(content, _after_space(content, place) + 1)
        if key == "models":
            return place
        place = _after_space(content, decoder.raw_decode(content, place)[1])
        place = _after_space(content, place + (content[place] == ","))
    raise ValueError("expected a list of models, or a record with one under 'models'")


def _after_space(content: str, place: int) -> int:
    return _SPACE.match(content, place).end()  # type: ignore[union-attr]


_READERS = {".csv": _csv_records, ".json": _json_records, ".jsonl": _jsonl_records}


# What is swept: models by paths, patterns, folders, or a manifest.


@dataclass(frozen=True)
class SweptModel:
    """One model: its file as it was given, a word for its revision, and the sizes of its symbolic dimensions."""

    path: str
    revision: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)
    function: str | None = None
    file: Path = field(default=Path(), compare=False)
    """The file from here: the path of a manifest is relative to the manifest."""

    @property
    def name(self) -> str:
        """What tells this model from the others of a sweep."""
        return json.dumps([self.path, self.revision, sorted(self.dims.items()), self.function])

    @property
    def sizes(self) -> str:
        """The dimensions in one word, as ``--dim`` takes them."""
        return ",".join(f"{name}={size}" for name, size in sorted(self.dims.items()))

    @property
    def place(self) -> Path:
        """The file without the name that a Python file is followed by."""
        text = str(self.file)
        return Path(text.rpartition(":")[0]) if ".py:" in text else self.file

    @property
    def is_python(self) -> bool:
        """Whether the model is a program, which may read anything."""
        return self.place.suffix == ".py"


def models_of(
    named: Sequence[str], dims: Mapping[str, int] | None = None, function: str | None = None
) -> list[SweptModel]:
    """Every model that is named, each once, in the order of the names. ``dims`` and ``function`` are for those that
    have none of their own."""
    models: dict[str, SweptModel] = {}
    for name in named:
        for model in _expanded(name, dict(dims or {}), function):
            models.setdefault(model.name, model)
    if not models:
        raise AneforgeError("sweep: the list of models is empty. Give paths, patterns, folders or a manifest.")
    return list(models.values())


def _expanded(name: str, dims: Mapping[str, int], function: str | None) -> Iterator[SweptModel]:
    place = Path(name)
    if place.suffix.casefold() in ENDINGS and not glob.has_magic(name):
        for entry in read_manifest(place):
            file = place.parent / entry.path  # an absolute path stays as it is
            yield SweptModel(entry.path, entry.revision, entry.dims or dims, entry.function or function, file)
        return
    if not place.exists() and glob.has_magic(name):
        matches = sorted(glob.glob(name, recursive=True))
        if not matches:
            raise AneforgeError(f"{name}: the pattern matches no file. Check it; quote it if the shell expands it.")
    else:
        matches = [name]
    for match in matches:
        for file in _files(Path(match)) if _is_plain_folder(Path(match)) else [match]:
            yield SweptModel(str(file), "", dims, function, Path(file))


def _is_plain_folder(place: Path) -> bool:
    return place.is_dir() and place.suffix.casefold() not in FORMATS and kind_of_folder(place) is None


def _files(folder: Path) -> list[Path]:
    files = model_files(folder)
    if not files:
        raise AneforgeError(f"{folder}: the folder has no model files; they end in {', '.join(MODEL_ENDINGS)}")
    return files


SCHEMA = 2
"""The form of plans and results; those of another are made anew."""
_SELF_CONTAINED = (".aimodel", ".aneforge", ".mlmodelc", ".mlpackage", ".pt2")
"""Formats that have no weights in files beside them, and run nothing."""


@dataclass(frozen=True)
class SweepOptions:
    """What changes a result besides the model and the version: the chips with their labels, and what a time covers:
    a call of each model's own runtime where nobody says."""

    targets: Mapping[str, str]
    scope: str | None

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
    models: Sequence[SweptModel],
    options: SweepOptions,
    digests: Digests,
    tell: Callable[[int], None] = lambda count: None,
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


def task_key(content: str, model: SweptModel, options: SweepOptions) -> str:
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


def _planned(model: SweptModel, options: SweepOptions, digests: Digests) -> Planned:
    try:
        return Planned(model, task_key(digests.of(model.place), model, options))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Planned(model, error=f"cannot be read ({why})")
