"""How an op is spelled in another language, as one row of text that is read in both directions.

A row is ``name operand operand | setting>theirs setting constant=value``:

- the operands are their names in the other language, in the order of the declaration; ``*values`` takes all that are
  left;
- a setting has the same name there, or the one behind ``>``; with ``?`` behind it, it is left out where it is zero or
  false; behind ``=`` is its value where the other language says nothing; behind ``:`` is the form that it has there,
  which the reader of the row knows by that name;
- ``constant=value`` is stated for every op of this kind; a form without a setting, ``:form``, is made of the whole op;
- a ``*`` as a name or a value is the op's own name in the other language's capitals: ``less_than`` is ``LessThan``.

Where more must be computed, a function beside the reader of the rows does it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple


class Setting(NamedTuple):
    """One attribute by our name and by theirs."""

    name: str
    theirs: str
    form: str = ""
    default: Any = None
    is_optional: bool = False

    @property
    def is_constant(self) -> bool:
        return not self.name and not self.form


@dataclass(frozen=True)
class Spelling:
    """An op in another language."""

    name: str
    operands: tuple[str, ...]
    settings: tuple[Setting, ...]
    """In the order of the row; a constant has no name of ours, and its value is the default."""

    @cached_property
    def constants(self) -> dict[str, Any]:
        return {setting.theirs: setting.default for setting in self.settings if setting.is_constant}

    @cached_property
    def renamed(self) -> list[Setting]:
        """Attributes that have only another name."""
        return [setting for setting in self.settings if not setting.is_constant and not setting.form]

    @cached_property
    def is_plain(self) -> bool:
        """Whether names and constants are all that differs."""
        return not any(setting.form for setting in self.settings)

    def stated(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """What is stated in the other language, without attributes that have another form there."""
        values: dict[str, Any] = {}
        for setting in self.settings:
            value = setting.default if setting.is_constant else attrs[setting.name] if not setting.form else None
            if not setting.form and (value or not setting.is_optional):
                values[setting.theirs] = value
        return values

    def read(self, stated: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes that the other language states under other names. What it leaves out has its default."""
        return {setting.name: stated.get(setting.theirs, setting.default) for setting in self.renamed}

    @cached_property
    def needed(self) -> list[str]:
        """What the other language must state of these."""
        return [setting.theirs for setting in self.renamed if setting.default is None and not setting.is_optional]


@lru_cache(maxsize=1024)
def spelling(row: str, own_name: str) -> Spelling:
    """The spelling that a row of text stands for, of the op with that name."""
    head, _, tail = row.partition("|")
    name, *operands = head.split()
    capitals = own_name.title().replace("_", "")
    settings = []
    for word in tail.split():
        text, _, value = word.partition("=")
        default = capitals if value == "*" else _literal(value) if value else None
        text, _, form = text.partition(":")
        ours, _, theirs = text.removesuffix("?").partition(">")
        is_constant = bool(value) and not theirs
        settings.append(Setting("" if is_constant else ours, theirs or ours, form, default, text.endswith("?")))
    return Spelling(capitals if name == "*" else name, tuple(operands), tuple(settings))


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
