"""The command line. Commands print what the library answers; they compute nothing of their own."""

from __future__ import annotations

import sys

from aneforge.errors import AneforgeError

__all__ = ["main"]


def main() -> None:
    """Entry point: every error of the package is one line on stderr and exit status 2."""
    from aneforge.cli.app import app

    try:
        app()
    except AneforgeError as error:
        print(f"aneforge: {error}", file=sys.stderr)
        sys.exit(2)
