"""The software bill of materials of this installation, as CycloneDX JSON: ``python tools/sbom.py [EXTRA ...]``.

Lists aneforge, what it needs, what the extras need that are named, and all that these need in turn, by version and
licence as installed, and the one file in the package that others wrote.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from aneforge.errors import DISTRIBUTION

BUNDLED = {
    "type": "file",
    "name": "aneforge/formats/coreml/descriptors",
    "description": "message descriptors of the Core ML format",
    "licenses": [{"license": {"id": "BSD-3-Clause"}}],
}


def needed(extras: Iterable[str] = ()) -> dict[str, tuple[Distribution, list[str]]]:
    """Every installed distribution behind aneforge, by name, with the names of what it needs itself."""
    found: dict[str, tuple[Distribution, list[str]]] = {}
    waiting = [(DISTRIBUTION, frozenset(extras))]
    while waiting:
        name, wanted = waiting.pop()
        name = canonicalize_name(name)
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # an extra that is not installed
        below = found.setdefault(name, (package, []))[1]
        for text in package.requires or ():
            requirement = Requirement(text)
            child = canonicalize_name(requirement.name)
            if _applies(requirement, wanted) and child not in below:
                below.append(child)
                if child not in found:
                    waiting.append((child, frozenset(requirement.extras)))
    return dict(sorted(found.items()))


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    if requirement.marker is None:
        return True
    environment = {name: str(value) for name, value in default_environment().items()}
    return any(requirement.marker.evaluate({**environment, "extra": extra}) for extra in extras or {""})


def bill(extras: Iterable[str] = ()) -> dict[str, object]:
    """The document."""
    packages = needed(extras)
    known = {name: _component(package) for name, (package, _) in packages.items()}
    own = known.pop(canonicalize_name(DISTRIBUTION))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**own, "type": "application"}},
        "components": [*known.values(), BUNDLED],
        "dependencies": [
            {
                "ref": _reference(package),
                "dependsOn": [_reference(packages[name][0]) for name in below if name in packages],
            }
            for package, below in packages.values()
        ],
    }


def _reference(package: Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(package.metadata['Name'])}@{package.version}"


def _component(package: Distribution) -> dict[str, object]:
    about = package.metadata
    classifiers = [
        line.rpartition(" :: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License")
    ]
    licence = (about.get_all("License-Expression") or [""])[0] or (
        classifiers[0] if classifiers else "see the package"
    )
    return {
        "type": "library",
        "name": about["Name"],
        "version": package.version,
        "bom-ref": _reference(package),
        "purl": _reference(package),
        "licenses": [{"license": {"name": licence}}],
    }


if __name__ == "__main__":
    print(json.dumps(bill(sys.argv[1:]), indent=1))
