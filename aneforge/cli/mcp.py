"""``aneforge mcp``: checks what was asked for and starts the server, which needs a package of its own."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from aneforge.errors import AneforgeError, install_hint

_LEAST = 1000


def run(folder: str, most: int, seconds: float, python: bool) -> None:
    """Serve until the client goes away."""
    place = Path(folder)
    if not place.is_dir():
        raise AneforgeError(f"{folder}: no such folder. Name the one that holds the models.")
    if most < _LEAST:
        raise AneforgeError(f"--max-answer {most}: too few characters. Give {_LEAST:,} or more.")
    if find_spec("mcp") is None:
        raise AneforgeError(f"mcp: the server needs this package. Install it with {install_hint('mcp')}")
    from aneforge.cli.mcp_server import serve_tools

    serve_tools(place, most, seconds, python)
