"""What the writers of all formats refuse with."""

from __future__ import annotations

from aneforge.errors import AneforgeError

__all__ = ["ExportError"]


class ExportError(AneforgeError, ValueError):
    """A graph that has no form in the other language: which node, and why."""
