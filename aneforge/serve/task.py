"""What a process of the server does with one upload: unpack it if it is an archive, and write the report."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from aneforge.budgets import check_archive
from aneforge.cache import off
from aneforge.errors import LoadError, first_line
from aneforge.frontends.listing import model_files
from aneforge.report.gather import report

FUNCTION = "aneforge.serve.task:run"
REPORT = "report.html"
_PYTHON = ".py"


def run(task: Mapping[str, Any], tell: Callable[[Any], Any]) -> str:
    """Write the report of an upload beside it; returns its file."""
    folder = Path(task["folder"])
    file = folder / task["name"]
    if file.suffix.casefold() == _PYTHON:
        raise LoadError(f"{file.name}: Python files are run to be read, so none is taken here. Use aneforge report.")
    if file.suffix.casefold() == ".zip":
        tell(["unpacking the archive", 0, 0])
        file = unpack(file, folder / "unpacked")
    with off():  # the cache is the user's own, and an upload is a stranger's
        gathered = report(file, task["target"], progress=_telling(tell))
    tell(["writing the page", 0, 0])
    gathered.save(folder / REPORT)
    return REPORT


def _telling(tell: Callable[[Any], Any]) -> Callable[[int, int, str], None]:
    """What a report tells of its progress, as the server shows it."""
    return lambda done, total, what: tell([f"{what} (step {done + 1} of {total})", done, total])


def unpack(archive_file: Path, folder: Path) -> Path:
    """The one model in an archive, unpacked within the budgets of this machine. Nothing is written outside the
    folder: an entry with an absolute name, with ``..`` or that is a link is refused."""
    name = archive_file.name
    try:
        with zipfile.ZipFile(archive_file) as archive:
            check_archive(archive, name)
            for entry in archive.infolist():
                _unpack(archive, entry, folder, name)
    except (OSError, ValueError, RuntimeError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise LoadError(f"{name}: not a zip archive that can be read ({first_line(error)})") from None
    return _model_in(folder, name)


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path, name: str) -> None:
    path = PurePosixPath(entry.filename)
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or ":" in entry.filename:
        raise LoadError(f"{name}: entry {entry.filename!r} leads out of the archive; names must stay inside")
    if kind and not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise LoadError(f"{name}: entry {entry.filename!r} is not a regular file; an archive must have no links")
    place = folder.joinpath(*path.parts)
    if entry.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(entry) as source, place.open("xb") as copy:  # reading stops at the size that the entry states
        shutil.copyfileobj(source, copy, 1 << 20)


def _model_in(folder: Path, name: str) -> Path:
    models = model_files(folder) if folder.is_dir() else []
    if len(models) != 1:
        names = ", ".join(sorted(file.name for file in models)[:6]) or "none"
        raise LoadError(f"{name}: expected one model in the archive, found {len(models)} ({names})")
    return models[0]
