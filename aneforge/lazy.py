"""Names of a package that are imported when they are first used: most commands need few of them, some are heavy."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any


def first_use(package: str, homes: Mapping[str, str], name: str) -> Any:
    """A name of a package, for its ``__getattr__``. ``homes`` has the names of each module, as words."""
    for module, names in homes.items():
        if name in names.split():
            return getattr(import_module(f"{package}.{module}"), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
