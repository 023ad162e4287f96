"""Models out: a graph as a file that other tools load."""

from __future__ import annotations

from aneforge.exports.coreml import Exported, ExportError, export_coreml

__all__ = ["ExportError", "Exported", "export_coreml"]
