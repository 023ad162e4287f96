"""Files that are written whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from aneforge.errors import AneforgeError, first_line

__all__ = ["write_whole"]


def write_whole(path: str | Path, content: str) -> None:
    """Beside the file first, so that a failure leaves the old one, and no half of a new one."""
    given = Path(path)
    try:
        file = given.resolve() if given.is_symlink() else given  # the file that a link names, not the link
        scratch = file.with_name(f".{file.name}.part")
    except (OSError, RuntimeError, ValueError) as error:  # a link to itself; a name such as "."
        raise AneforgeError(f"{path}: no name for a file ({first_line(error)})") from None
    try:
        scratch.write_bytes(content.encode("utf-8"))
        scratch.replace(file)
    except OSError as error:
        raise AneforgeError(f"{path}: cannot be written ({error.strerror or error})") from None
    finally:
        with suppress(OSError):
            scratch.unlink()
