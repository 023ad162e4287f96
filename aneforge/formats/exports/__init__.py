"""Models out: a graph as a file that other tools load."""

from __future__ import annotations

from aneforge.formats.exports.mil import ExportError
from aneforge.formats.exports.netplist import SavedNetplist, save_netplist

__all__ = ["ExportError", "SavedNetplist", "save_netplist"]
