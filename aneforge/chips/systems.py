"""The systems that chips run under. What a runtime keeps off the engine can change with them (C75)."""

from __future__ import annotations

import os
import re
from functools import cache

from aneforge.chips import store
from aneforge.errors import AneforgeError, ArgumentError

SETTING = "ANEFORGE_OS"
_SPELLED = re.compile(r"(?:([a-z]+os)\s*)?(\d+)(?:\.(\d+))?", re.IGNORECASE)


@cache
def known_systems() -> tuple[str, ...]:
    """The versions that rules or measurements name, oldest first. Since 26 all systems count alike; before that a
    version is that of iOS (``17`` is iOS 17 and macOS 14)."""
    return tuple(store.load("gate_limits")["systems"])


def system(asked: str | None = None) -> str:
    """A version: the one asked for (``27.2``, ``macOS 27.2``, ``iOS 17``, ``26`` for the newest known 26), that of the
    setting, or the newest known."""
    text = asked if asked is not None else os.environ.get(SETTING, "")
    if not text:
        return known_systems()[-1]
    version = _version(text.strip())
    if version is None:
        message = f"{text!r} is not a known system; choose one: {', '.join(known_systems())}."
        raise AneforgeError(f"{SETTING}: {message}") if asked is None else ArgumentError("os", message)
    return version


def _version(text: str) -> str | None:
    spelled = _SPELLED.fullmatch(text)
    if spelled is None:
        return None
    family, major, minor = (spelled[1] or "").casefold(), spelled[2], spelled[3]
    major = store.load("gate_limits")["system_names"].get(family, {}).get(major, major)
    if minor is not None and f"{major}.{minor}" in known_systems():
        return f"{major}.{minor}"
    alike = [known for known in known_systems() if known.partition(".")[0] == major]
    # A version that is known by its first number only stands for all its releases.
    if alike and (minor is None or alike == [major]):
        return alike[-1]
    return None


def system_of_report(words: str) -> str:
    """The known system that a sentence about a measurement names, or the newest known one before it; where it names
    none, the newest."""
    spelled = re.search(r"([a-z]+os)\s*(\d+)(?:\.(\d+))?", words, re.IGNORECASE)
    if spelled is None:
        return known_systems()[-1]
    major = store.load("gate_limits")["system_names"].get(spelled[1].casefold(), {}).get(spelled[2], spelled[2])
    seen = (int(major), int(spelled[3] or 0))
    before = [known for known in known_systems() if _numbers(known) <= seen]
    return before[-1] if before else known_systems()[0]


def _numbers(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor or 0)


def applies_to(since: str, version: str) -> bool:
    """Whether what was first seen on a version is true of another; empty is true of all."""
    return not since or known_systems().index(since) <= known_systems().index(version)
