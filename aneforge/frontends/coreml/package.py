"""A ``.mlpackage``: a folder with a manifest that names the model file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aneforge.frontends import LoadError

_MOST_MANIFEST = 1 << 24  # bytes: a manifest lists a few files


def specification(package: Path) -> Path:
    """The model specification inside a package. A path or link out of the package is refused."""
    manifest = package / "Manifest.json"
    document = _manifest(package, manifest)
    entries, root = document.get("itemInfoEntries"), document.get("rootModelIdentifier")
    if not isinstance(entries, dict) or not isinstance(root, str) or not isinstance(entries.get(root), dict):
        raise LoadError(f"{package.name}: Manifest.json has no root model; copy the package again")
    path = entries[root].get("path")
    if not isinstance(path, str) or not path:
        raise LoadError(f"{package.name}: Manifest.json has no path for its root model")
    model_file = (package / "Data" / path).resolve()
    if not model_file.is_relative_to(package.resolve()):
        raise LoadError(
            f"{package.name}: Manifest.json names {path!r}, which points outside the package; it must be inside"
        )
    if not model_file.is_file():
        raise LoadError(f"{package.name}: the model file {path!r} does not exist; copy the package again")
    return model_file


def _manifest(package: Path, manifest: Path) -> dict[str, Any]:
    if not manifest.is_file():
        raise LoadError(f"{package.name}: not a Core ML package; a package has a Manifest.json")
    if not manifest.resolve().is_relative_to(package.resolve()):
        raise LoadError(f"{package.name}: Manifest.json is a link out of the package; it must be inside")
    if manifest.stat().st_size > _MOST_MANIFEST:
        raise LoadError(
            f"{package.name}: Manifest.json has {manifest.stat().st_size:,} bytes; the limit is {_MOST_MANIFEST:,}"
        )
    try:
        document = json.loads(manifest.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{package.name}: Manifest.json cannot be read: {str(error).splitlines()[0][:200]}") from None
    if not isinstance(document, dict):
        raise LoadError(f"{package.name}: Manifest.json must be a JSON object")
    return document
