"""How much work a model is, at a glance: a guess at its operations that reads none of them.

It only orders the tasks. The time of a task follows its operations: over 35 networks the logarithms of both correlate
by 0.9, and those of time and bytes of the file, which are mostly weights, by 0.5.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from aneforge.frontends.onnx.file import count_nodes

_WEIGHTS = (".bin", ".weights")
_DESCRIPTION = (".json", ".mlmodel", ".mlirb", ".xml")
"""Entries of archives that describe operations."""
_BYTES_EACH = {
    ".pt2": 1500,
    ".aneforge": 250,
    ".mlpackage": 200,
    ".aimodel": 200,
    ".plist": 400,
    ".py": 40,
    ".net": 400,
    ".mil": 200,
}
"""About how many bytes describe one operation in a format."""
_OTHERS = 1000


def guess_operations(place: Path) -> int:
    """About how many operations a model file has; 0 if it cannot be read, which is told soon."""
    suffix = place.suffix.casefold()
    try:
        if suffix == ".onnx":
            return count_nodes(place)
        return _described_bytes(place) // _BYTES_EACH.get(suffix, _OTHERS)
    except (OSError, ValueError, IndexError, zipfile.BadZipFile):
        return 0


def _described_bytes(place: Path) -> int:
    if place.is_dir():
        files = (file for file in place.rglob("*") if file.suffix not in _WEIGHTS and file.is_file())
        return sum(file.stat().st_size for file in files)
    if zipfile.is_zipfile(place):
        with zipfile.ZipFile(place) as archive:
            return sum(entry.file_size for entry in archive.infolist() if entry.filename.endswith(_DESCRIPTION))
    return place.stat().st_size
