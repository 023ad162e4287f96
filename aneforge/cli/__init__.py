"""The command line. Commands print what the library answers; they compute nothing of their own."""

from __future__ import annotations

import sys
import warnings

from aneforge.errors import AneforgeError

__all__ = ["main"]


def _told(message: Warning | str, *where: object, **more: object) -> None:
    """A warning as users of commands want it: what, and not which line of this package."""
    print(f"aneforge: warning: {message}", file=sys.stderr)


def main() -> None:
    """Entry point: every error of the package is one line on stderr and exit status 2."""
    from aneforge.cli.app import app

    warnings.showwarning = _told
    try:
        app()
    except AneforgeError as error:
        print(f"aneforge: {error}", file=sys.stderr)
        sys.exit(2)
