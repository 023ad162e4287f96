"""A ``.mlpackage``: a folder with a manifest that says which of its files is the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aneforge.frontends import LoadError

__all__ = ["specification"]

_MOST_MANIFEST = 1 << 24  # bytes: a manifest lists a few files


def specification(package: Path) -> Path:
    """The model specification inside a package; nothing that lies outside of it, not even through a link."""
    manifest = package / "Manifest.json"
    told = _manifest(package, manifest)
    entries, root = told.get("itemInfoEntries"), told.get("rootModelIdentifier")
    if not isinstance(entries, dict) or not isinstance(root, str) or not isinstance(entries.get(root), dict):
        raise LoadError(f"{package.name}: Manifest.json names no root model: is the package whole?")
    path = entries[root].get("path")
    if not isinstance(path, str) or not path:
        raise LoadError(f"{package.name}: Manifest.json gives no path for its root model")
    place = (package / "Data" / path).resolve()
    if not place.is_relative_to(package.resolve()):
        raise LoadError(f"{package.name}: Manifest.json points outside the package, which is refused: {path!r}")
    if not place.is_file():
        raise LoadError(f"{package.name}: its model {path!r} is not there")
    return place


def _manifest(package: Path, manifest: Path) -> dict[str, Any]:
    if not manifest.is_file():
        raise LoadError(f"{package.name}: no Manifest.json: not a Core ML package")
    if not manifest.resolve().is_relative_to(package.resolve()):
        raise LoadError(f"{package.name}: Manifest.json is a link out of the package, which is refused")
    if manifest.stat().st_size > _MOST_MANIFEST:
        raise LoadError(f"{package.name}: a Manifest.json of {manifest.stat().st_size:,} bytes lists no model")
    try:
        told = json.loads(manifest.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{package.name}: Manifest.json cannot be read: {str(error).splitlines()[0][:200]}") from None
    if not isinstance(told, dict):
        raise LoadError(f"{package.name}: Manifest.json is no record")
    return told
