"""What is swept: models by paths, patterns, folders, or a manifest."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aneforge.errors import AneforgeError
from aneforge.frontends import FORMATS
from aneforge.frontends.listing import MODEL_ENDINGS, model_files
from aneforge.sweep.manifest import ENDINGS, read_manifest


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
    return place.is_dir() and place.suffix.casefold() not in FORMATS


def _files(folder: Path) -> list[Path]:
    files = model_files(folder)
    if not files:
        raise AneforgeError(f"{folder}: the folder has no model files; they end in {', '.join(MODEL_ENDINGS)}")
    return files
