"""Files that a command will write: refused before the work where they cannot be, not after it."""

from __future__ import annotations

import os
from pathlib import Path

from aneforge.errors import AneforgeError


def require_file(path: str | Path | None, option: str = "--out") -> None:
    """Refuse a folder, and a file in a folder that is not there or that this user cannot write to."""
    if path is None:
        return
    file = Path(path)
    if file.is_dir():
        raise AneforgeError(f"{option} {path}: this is a folder; give the name of a file, as {file / 'NAME'}.")
    if not file.parent.is_dir():
        raise AneforgeError(f"{option} {path}: the folder {file.parent} does not exist. Create it, or choose another.")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise AneforgeError(f"{option} {path}: the folder {file.parent} cannot be written. Choose another.")
