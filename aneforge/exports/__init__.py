"""Models out: a graph as a file that other tools load."""

from __future__ import annotations

from aneforge.exports.coreml import Exported, export_coreml
from aneforge.exports.netplist import SavedNetplist, save_netplist
from aneforge.exports.refusals import ExportError

__all__ = ["ExportError", "Exported", "SavedNetplist", "export_coreml", "save_netplist"]
