"""What is swept: models by paths, patterns, folders, or a manifest that names them with their sizes."""

from __future__ import annotations

import csv
import glob
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aneforge.errors import AneforgeError, first_line
from aneforge.frontends import FORMATS

__all__ = ["MANIFESTS", "SweptModel", "models_of"]

MANIFESTS = (".json", ".jsonl", ".csv")
"""Endings of manifests."""
_SAVED = ".aneforge"
_KEYS = ("path", "revision", "dims", "sizes", "function")


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
    if place.suffix.casefold() in MANIFESTS and not glob.has_magic(name):
        yield from _manifest(place, dims, function)
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
    return place.is_dir() and place.suffix.casefold() not in FORMATS


def _files(folder: Path) -> list[Path]:
    """The model files in a folder and below, in order. Python files are left out: they are run to be read."""
    waiting, files = [folder], []
    while waiting:
        for entry in sorted(waiting.pop().iterdir(), reverse=True):
            suffix = entry.suffix.casefold()
            model_format = FORMATS.get(suffix)
            if entry.is_dir() and not entry.is_symlink():
                if model_format is not None and model_format.folder:
                    files.append(entry)
                else:
                    waiting.append(entry)
            elif entry.is_file() and (model_format is not None or suffix == _SAVED):
                files.append(entry)
    if not files:
        known = ", ".join([*FORMATS, _SAVED])
        raise AneforgeError(f"{folder}: the folder has no model files; they end in {known}")
    return sorted(files)


# Manifests.


def _manifest(file: Path, dims: Mapping[str, int], function: str | None) -> Iterator[SweptModel]:
    for number, row in enumerate(_rows(file), 1):
        where = f"{file.name}: model {number}"
        if not isinstance(row, dict) or not isinstance(row.get("path"), str) or not row["path"]:
            raise AneforgeError(f'{where}: expected a record with a path, such as {{"path": "net.onnx"}}')
        unknown = [key for key in row if key not in _KEYS]
        if unknown:
            raise AneforgeError(f"{where}: {unknown[0]!r} is not a key. Choose from: {', '.join(_KEYS)}.")
        own = _dims(row.get("dims") or row.get("sizes") or {}, where)
        chosen = row.get("function") or function
        revision = row.get("revision")
        path = row["path"]
        place = Path(path) if Path(path).is_absolute() else file.parent / path
        yield SweptModel(path, "" if revision is None else str(revision), own or dims, chosen, place)


def _rows(file: Path) -> list[Any]:
    try:
        content = file.read_text(encoding="utf-8")
        if file.suffix.casefold() == ".csv":
            return [_filled(row) for row in csv.DictReader(io.StringIO(content), strict=True)]
        if file.suffix.casefold() == ".jsonl":
            return [json.loads(line) for line in content.splitlines() if line.strip()]
        rows = json.loads(content)
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise AneforgeError(f"{file}: not a manifest ({first_line(error)}); see docs/guide/sweep.md") from None
    rows = rows.get("models") if isinstance(rows, dict) else rows
    if not isinstance(rows, list):
        raise AneforgeError(f"{file}: not a manifest; expected a list of records with a path")
    return [{"path": row} if isinstance(row, str) else row for row in rows]


def _filled(row: Mapping[str | None, Any]) -> dict[Any, Any]:
    """A line of CSV without its empty cells."""
    return {key: value for key, value in row.items() if value}


def _dims(value: Any, where: str) -> dict[str, int]:
    """Sizes as a record, or as text: ``batch=1,length=128``."""
    if isinstance(value, str):
        parts = [part.rpartition("=") for part in value.replace(";", ",").split(",") if part.strip()]
        value = {name.strip(): int(size) if size.strip().isdigit() else size for name, _, size in parts}
    if not isinstance(value, dict) or not all(name and type(n) is int and n > 0 for name, n in value.items()):
        raise AneforgeError(f"{where}: dims must be sizes by name, such as batch=1,length=128")
    return value
