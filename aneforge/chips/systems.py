"""The systems that chips run under. What a runtime keeps off the engine can change with them (C75)."""

from __future__ import annotations

import os
import re
from functools import cache

from aneforge.chips import store
from aneforge.errors import AneforgeError, ArgumentError

SETTING = "ANEFORGE_OS"


@cache
def known_systems() -> tuple[str, ...]:
    """The versions of macOS that rules or measurements name, oldest first."""
    return tuple(store.load("gate_limits")["systems"])


def system(asked: str | None = None) -> str:
    """A version of macOS: the one asked for (``27.2``, ``macOS 27.2``), that of the setting, or the newest known."""
    text = asked if asked is not None else os.environ.get(SETTING, "")
    if not text:
        return known_systems()[-1]
    version = re.sub(r"^macos\s*", "", text.strip(), flags=re.IGNORECASE)
    if version not in known_systems():
        message = f"{text!r} is not a known system; choose one: {', '.join(known_systems())}."
        raise AneforgeError(f"{SETTING}: {message}") if asked is None else ArgumentError("os", message)
    return version


def applies_to(since: str, version: str) -> bool:
    """Whether what was first seen on a version is true of another; empty is true of all."""
    return not since or known_systems().index(since) <= known_systems().index(version)
