"""The folder of a running server: only this user can read it, and what a killed server left is removed by the next.

A server holds a lock on a file in its folder. The system gives the lock back however the server ends, so a folder
whose lock is free belongs to nobody. A number of a process would not do: numbers are used again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from pathlib import Path

from aneforge.errors import AneforgeError

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
