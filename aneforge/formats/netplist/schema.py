"""The keys that each dictionary of a netplist takes (table 22.6, layers.json ``netplist``), checked as they are read.

A key that is missing, unknown or of another type is what the compiler's parsers call ``InvalidParamSyntax``. Every
message names the file, the unit or port, and the key.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from aneforge.chips import store
from aneforge.errors import LoadError, nearest

MOST = 1 << 31
"""What an extent or an offset stays below."""

_REQUIRED: Any = object()
_LONGEST = 120


@cache
def _facts() -> Mapping[str, Any]:
    return store.load("layers")


@cache
def _section(name: str) -> frozenset[str]:
    return frozenset(row["key"] for row in _facts()["netplist"][name] if not row["key"].startswith("<"))


@cache
def interleaves() -> tuple[int, ...]:
    """The published packings of channels."""
    rows = {row["key"]: row["type"] for row in _facts()["netplist"]["input_port"]}
    return tuple(int(number) for number in re.findall(r"\d+", rows["InputInterleave"]))


def quoted(value: Any) -> str:
    """A value from a file, short enough for a message."""
    if isinstance(value, (dict, list, tuple)):
        return f"a {'dictionary' if isinstance(value, dict) else 'list'} of {len(value)}"
    text = repr(value[:_LONGEST] if isinstance(value, str) else value)
    return text if len(text) <= _LONGEST + 2 else f"{text[:_LONGEST]}..."


def syntax(message: str) -> LoadError:
    """A parse error under the compiler's name."""
    return LoadError(f"{message} ({_facts()['netplist']['missing_key_error']['v']})")


def collision(where: str, name: str, roles: Sequence[str]) -> LoadError:
    """Two things of one name, with the compiler's words for it."""
    words = next(text for text in _facts()["network_reject_strings"]["v"] if "collision" in text)
    both = " and ".join(dict.fromkeys(roles)) if len(set(roles)) > 1 else f"two {roles[0]}s"
    return LoadError(
        f"{where}: {quoted(name)} names {both}; rename one. The compiler says {words.replace('%s', name[:_LONGEST])!r}"
    )


def repeated(names: Iterable[str]) -> str | None:
    """The first name that occurs again."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


class Keys:
    """One dictionary of a netplist and its place; it has no keys but those of its section of the schema."""

    def __init__(self, where: str, record: Any, section: str, others: Collection[str] = ()) -> None:
        if not isinstance(record, dict):
            raise syntax(f"{where}: must be a dictionary, not {quoted(record)}")
        self.where, self.record = where, record
        known = _section(section)
        for key in record:
            if key not in known and key not in others:
                near = ", ".join(nearest(key[:_LONGEST], known))
                choices = f"nearest: {near}" if near else f"the keys are: {', '.join(sorted(known))}"
                raise syntax(f"{where}: key {quoted(key)} is unknown; {choices}")

    def __contains__(self, key: str) -> bool:
        return key in self.record

    def wrong(self, key: str, wanted: str) -> LoadError:
        return syntax(f"{self.where}: {key} is {quoted(self.record.get(key))}; it must be {wanted}")

    def _value(self, key: str, default: Any) -> Any:
        if key in self.record:
            return self.record[key]
        if default is _REQUIRED:
            raise syntax(f"{self.where}: key {key!r} is missing; add it")
        return default

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        value = self._value(key, default)
        if value is not default and not (isinstance(value, str) and value):
            raise self.wrong(key, "a text")
        return value

    def whole(self, key: str, default: Any = _REQUIRED, least: int = 1, choices: Sequence[int] = ()) -> int:
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < MOST:
            raise self.wrong(key, f"an integer of {least} or more")
        if choices and value not in choices:
            raise self.wrong(key, f"one of {', '.join(map(str, choices))}")
        return value

    def interleave(self, key: str) -> int:
        return self.whole(key, 1, choices=interleaves())

    def element_type(self, key: str, supported: Sequence[str], default: str = "Float16") -> str:
        value = self.text(key, default)
        if value not in supported:
            raise LoadError(
                f"{self.where}: {key} is {quoted(value)}, which is not supported; use {' or '.join(supported)}"
            )
        return value

    def entries(self, key: str, default: Any = _REQUIRED) -> list[Any]:
        value = self._value(key, default)
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def names(self, key: str, default: Any = _REQUIRED) -> list[str]:
        names = self.entries(key, default)
        for name in names:
            if not isinstance(name, str) or not name:
                raise syntax(f"{self.where}: an entry of {key} is {quoted(name)}; it must be a name")
        return names

    def symbols(self, key: str) -> list[str]:
        """A name or a list of names."""
        value = self._value(key, _REQUIRED)
        if isinstance(value, str):
            return [self.text(key)]
        if not isinstance(value, list):
            raise self.wrong(key, "a name or a list of names")
        return self.names(key)
