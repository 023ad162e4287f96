"""The uploads that the server works on: each has a folder and a process of its own, and both are gone when it ends."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from aneforge.errors import AneforgeError, LoadError, first_line, line_of
from aneforge.files import check_archive, spend
from aneforge.formats.cache import off
from aneforge.formats.shapes import shapes_of
from aneforge.formats.values import model_files
from aneforge.reports.gather import report
from aneforge.reports.workers import Worker, WorkerLimits

# The folder of a running server: only this user can read it, and what a killed server left is removed by the next.


try:
    import fcntl
except ImportError:  # Windows: folders of killed servers stay
    fcntl = None

_PREFIX = "aneforge-serve-"
_LOCK = "owner.lock"
_UPLOADS = "uploads"


class ServerFolder:
    """A new folder for uploads, removed by ``close``."""

    def __init__(self) -> None:
        remove_abandoned()
        try:
            self.place = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._lock = _locked(self.place)
            (self.place / _UPLOADS).mkdir(mode=0o700)
        except OSError as error:
            why = error.strerror or error
            raise AneforgeError(f"uploads cannot be stored ({why}); set TMPDIR to a folder with room") from None

    def new_upload(self) -> Path:
        """A folder for one upload."""
        return Path(tempfile.mkdtemp(dir=self.place / _UPLOADS))

    def uploads(self) -> list[Path]:
        return list((self.place / _UPLOADS).iterdir())

    def close(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)


def remove_abandoned() -> list[Path]:
    """Remove the folders of this user's servers that have ended without doing so; returns them."""
    removed = []
    if fcntl is not None:
        for place in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                if _is_abandoned(place):
                    shutil.rmtree(place)
                    removed.append(place)
    return removed


def _is_abandoned(place: Path) -> bool:
    """A folder of this user, made by a server, whose lock is free. Without a lock file it is one that just starts, or
    no server's at all."""
    about = place.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        return False
    handle = os.open(place / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[union-attr]
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _locked(place: Path) -> int | None:
    """The handle of the lock, which children do not inherit. The file has its name only once it is locked: nobody
    takes the folder for abandoned in between."""
    if fcntl is None:
        return None
    unnamed = place / f".{_LOCK}"
    handle = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    unnamed.rename(place / _LOCK)
    return handle


# What a process of the server does with one upload: unpack it if it is an archive, and write the report.


FUNCTION = "aneforge.reports.serve.jobs:run"
REPORT = "report.html"
_PYTHON = ".py"


def run(task: Mapping[str, Any], tell: Callable[[Any], Any]) -> str | list[dict[str, Any]]:
    """Write the report of an upload beside it; its file, or the sizes that the model leaves open."""
    folder = Path(task["folder"])
    file = folder / task["name"]
    if file.suffix.casefold() == _PYTHON:
        raise LoadError(f"{file.name}: Python files are run to be read, so none is taken here. Use aneforge report.")
    if file.suffix.casefold() == ".zip":
        tell(["unpacking the archive", 0, 0])
        file = unpack(file, folder / "unpacked")
    dims = task["dims"]
    try:
        with off():  # the cache is the user's own, and an upload is a stranger's
            gathered = report(file, task["target"], max_abs=task["max_abs"], dims=dims, progress=_telling(tell))
    except LoadError:
        asked = open_sizes(file, dims)
        if not asked:
            raise
        return asked
    tell(["writing the page", 0, 0])
    gathered.save(folder / REPORT)
    return REPORT


def open_sizes(file: Path, given: Mapping[str, int]) -> list[dict[str, Any]]:
    """The dimensions to which neither the file nor the reader of the page gave a size."""
    try:
        shapes = shapes_of(file)
        spans = {} if shapes.default is not None else shapes.spans
    except Exception:  # whoever reads the whole file has better words for what is wrong with it
        return []
    return [
        {"name": name, "least": max(1, low), "most": high} for name, (low, high) in spans.items() if name not in given
    ]


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
            spend("unpacked_files", len(archive.infolist()), name)
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


MOST_WAITING = 8
"""Jobs that may wait for their turn."""
MOST_KEPT = 16
"""Jobs that have ended and can still be asked for."""
_CANCELLED = "cancelled"


class BusyError(AneforgeError):
    """Too many jobs are waiting."""


@dataclass(frozen=True)
class UploadSettings:
    """What a report of an upload is about, as the page asks for it."""

    target: str
    max_abs: float | None = None
    dims: Mapping[str, int] = field(default_factory=dict)


class Job:
    """One upload: where it is stored, how far it is, and what came of it."""

    def __init__(self, name: str, folder: Path, settings: UploadSettings) -> None:
        self.id = secrets.token_urlsafe(18)  # nobody guesses the page of another
        self.name = name
        self.folder = folder
        self.settings = settings
        self.state = "waiting"
        """``waiting``, ``working``, ``done``, ``failed``, or ``asks`` for sizes that the file leaves open."""
        self.sizes: list[dict[str, Any]] = []
        self.progress: tuple[str, int, int] = ("waiting for its turn", 0, 0)
        """What is being done, and how much is done of how much; of 0 where that is not known."""
        self.error = ""
        self.report: bytes | None = None
        self.started = time.monotonic()
        self.worker: Worker | None = None
        self.cancelled = False

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed", "asks")

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.id,
            "name": self.name,
            "state": self.state,
            "progress": self.progress[0],
            "done": self.progress[1],
            "total": self.progress[2],
            "error": self.error,
            "sizes": self.sizes,
            "seconds": round(time.monotonic() - self.started, 1),
        }


class Jobs:
    """All jobs of one server. ``close`` ends them and removes every file."""

    def __init__(self, limits: WorkerLimits, at_once: int) -> None:
        self.folder = ServerFolder()
        self._limits = limits
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}
        self._threads = ThreadPoolExecutor(at_once, "job")
        self._most_open = at_once + MOST_WAITING
        self._arriving = 0  # uploads that are still coming in

    def require_room(self) -> None:
        """Refuse what would be one upload too many; those that are still coming in count."""
        with self._lock:
            self._require_room()

    def _require_room(self) -> None:
        if sum(not job.ended for job in self._jobs.values()) + self._arriving >= self._most_open:
            raise BusyError(f"server: {self._most_open} models are being read; at most that many may wait. Try later.")

    @contextlib.contextmanager
    def arrival(self) -> Iterator[Callable[[str, Path, UploadSettings], Job]]:
        """A place for an upload that comes in; gives :meth:`add`, which takes the place."""
        with self._lock:
            self._require_room()
            self._arriving += 1
        is_open = True

        def add(name: str, folder: Path, settings: UploadSettings) -> Job:
            nonlocal is_open
            is_open = False
            return self.add(name, folder, settings, 1)

        try:
            yield add
        finally:
            if is_open:
                with self._lock:
                    self._arriving -= 1

    def add(self, name: str, folder: Path, settings: UploadSettings, arrived: int = 0) -> Job:
        """Start on an upload that lies in its folder under its name."""
        job = Job(name, folder, settings)
        with self._lock:
            self._arriving -= arrived
            self._jobs[job.id] = job
            ended = [one.id for one in self._jobs.values() if one.ended]
            for old in ended[: max(0, len(ended) - MOST_KEPT)]:
                del self._jobs[old]
        self._threads.submit(self._run, job)
        return job

    def get(self, token: str) -> Job | None:
        with self._lock:
            return self._jobs.get(token)

    def cancel(self, job: Job) -> None:
        with self._lock:
            job.cancelled = True
            if job.worker is not None and job.worker.alive:
                job.worker.stop()

    def close(self) -> None:
        with self._lock:
            open_jobs = [job for job in self._jobs.values() if not job.ended]
        for job in open_jobs:
            self.cancel(job)
        self._threads.shutdown(wait=True, cancel_futures=True)
        self.folder.close()

    def _run(self, job: Job) -> None:
        """Work on a job, remove its files, and only then say that it has ended."""
        try:
            error = self._work(job)
        except Exception as failure:  # the job is the user's only view of it
            error = line_of(failure)
        finally:
            shutil.rmtree(job.folder, ignore_errors=True)
        state = "failed" if error else "asks" if job.sizes else "done"
        job.error, job.progress = error, (state, 0, 0)
        job.state = state

    def _work(self, job: Job) -> str:
        """Keep the report of a job; what went wrong, or nothing."""
        with self._lock:
            if job.cancelled:
                return _CANCELLED
            worker = job.worker = Worker(FUNCTION, self._limits)
        job.state = "working"
        try:
            task = {"folder": str(job.folder), "name": job.name, **asdict(job.settings)}
            outcome = worker.run(task, lambda step: setattr(job, "progress", tuple(step)))
        finally:
            with self._lock:
                worker.end()
        if outcome.ok and isinstance(outcome.value, list):
            job.sizes = outcome.value
            return ""
        if outcome.ok:
            job.report = (job.folder / REPORT).read_bytes()
            return ""
        if job.cancelled:
            return _CANCELLED
        names_the_model = outcome.kind in ("input", "fault")
        return _without_folder(outcome.error if names_the_model else f"{job.name}: {outcome.error}", job.folder)


def _without_folder(message: str, folder: Path) -> str:
    """A message without the place of the upload on this machine."""
    for place in (folder / "unpacked", folder, folder.resolve() / "unpacked", folder.resolve()):
        message = message.replace(f"{place}{os.sep}", "").replace(str(place), "upload")
    return message
