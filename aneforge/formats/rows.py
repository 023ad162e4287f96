"""Rows: how each op of a format becomes a common op, as data.

A row is one line of text, ``common_op operand operand | setting>argument=default -setting``:

- the operands are the common names of the file's inputs, in its order; ``*values`` takes all that are left, and ``-``
  stands for one that decides nothing here;
- a setting (an attribute, or an input that has a name in the file) has the same name in the common op, or the one
  behind ``>``; behind ``=`` is its value where the file says nothing, unless that is the common op's own default;
- ``-setting`` is known and decides nothing here.

Whatever else a file gives is refused by name. Where an op must be decided, the row names a function of the format
instead of a common op; it is called in the same way.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

from aneforge.errors import LoadError
from aneforge.formats.importer.calls import CONTEXT, called, parameters
from aneforge.formats.importer.op import FileOp

IGNORED = ""
"""The common name of what a file may give and what decides nothing here."""
Function = Callable[..., Any]
Rows = Mapping[str, "Row"]


@dataclass(frozen=True)
class Row:
    """How one op of a format becomes a common op, or a call of a function of the format."""

    op: str
    function: Function
    operands: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    """The common name of each setting of the row by its name in the file."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """By common name."""

    @cached_property
    def shown(self) -> dict[str, str]:
        """The file's own words for its inputs, for messages."""
        operands = {operand: f"input {operand!r}" for operand in self.operands}
        renamed = {common: name for name, common in self.names.items() if name != common}
        kinds = {common: "input" if common in operands else "argument" for common in renamed}
        return operands | {common: f"{kinds[common]} {name!r}" for common, name in renamed.items()}

    @cached_property
    def known(self) -> frozenset[str]:
        return frozenset(entry.name for entry in parameters(self.function))

    @cached_property
    def lists(self) -> frozenset[str]:
        return frozenset(entry.name for entry in parameters(self.function) if entry.is_list)

    @cached_property
    def takes_node(self) -> bool:
        """Whether the function reads the whole operation, and so every argument of the file."""
        return all(entry.kind in (CONTEXT, "OnnxNode") for entry in parameters(self.function))

    @property
    def takes(self) -> list[str]:
        """The arguments, by the file's own names as far as it names them."""
        own = {common: name for name, common in self.names.items() if common}
        return [own.get(entry.name, entry.name) for entry in parameters(self.function) if entry.kind != CONTEXT]

    def common_name(self, name: str) -> str:
        """The argument that a setting of the file is; the setting is refused by name if there is none."""
        common = self.names.get(name, name)
        if common and common not in self.known and not self.takes_node:
            takes = ", ".join(self.takes) or "no arguments"
            raise LoadError(f"argument {name!r} is not supported; the reader takes {takes}")
        return common

    def bind(self, inputs: Sequence[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by their common names, from inputs in order and settings by name."""
        bound = dict(self.defaults)
        for name, value in settings.items():
            if value is not None and (common := self.common_name(name)):
                bound[common] = value
        for place, value in enumerate(inputs):
            name = self.operands[min(place, len(self.operands) - 1)] if self.operands else "-"
            if name.startswith("*"):
                bound.setdefault(name[1:], []).append(value)
            elif place >= len(self.operands):
                if value is not None:
                    takes = ", ".join(self.operands) or "none"
                    raise LoadError(f"input {place + 1} is not supported; the reader takes {takes}")
            elif value is not None and name != "-":
                bound[name] = value
        return bound


def row(text: str, ops: Mapping[str, Function], functions: Mapping[str, Function] | None = None) -> Row:
    """The row that a line of text stands for. ``functions`` are those of the format itself."""
    head, _, tail = text.partition("|")
    name, *operands = head.split()
    function = (functions or {}).get(name) or ops[name]
    names: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    for word in tail.split():
        if word.startswith("-"):
            names[word[1:]] = IGNORED
            continue
        setting, has_default, default = word.partition("=")
        setting, _, common = setting.partition(">")
        names[setting] = common or setting
        if has_default:
            defaults[names[setting]] = _literal(default)
    made = Row(name, function, tuple(operands), names, defaults)
    known = {entry.name for entry in parameters(function)} | {IGNORED, "-"}
    unknown = {operand.lstrip("*") for operand in operands} | set(names.values()) | set(defaults)
    if not unknown <= known:
        raise ValueError(f"row {text!r} names {sorted(unknown - known)}, which {name} does not take")
    return made


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def table(
    lines: Mapping[str, str], ops: Mapping[str, Function], functions: Mapping[str, Function] | None = None
) -> dict[str, Row]:
    """The rows of a format by the names of its ops. A key may list several, which share a row."""
    return {name: row(text, ops, functions) for names, text in lines.items() for name in names.split()}


def by_name(reasons: Mapping[str, str]) -> dict[str, str]:
    """The reason of each op, from reasons with the ops that they are for."""
    return {name: reason for reason, names in reasons.items() for name in names.split()}


def functions_of(*modules: ModuleType) -> dict[str, Function]:
    """The public functions that modules of a format define, by name: what its rows may name besides common ops."""
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and value.__module__ == module.__name__
    }


def bound(entry: Row, op: FileOp) -> dict[str, Any]:
    """The arguments of an operation that names them, by their common names."""
    arguments = dict(entry.defaults)
    for name, values in op.arguments.items():
        common = entry.common_name(name)
        if common and values:
            arguments[common] = values if common in entry.lists else values[0]
    for name, text in op.attributes.items():
        common = entry.names.get(name, name)
        if isinstance(text, str) and common in entry.known:
            arguments.setdefault(common, text)
    return arguments


def apply(entry: Row, op: FileOp) -> Any:
    """What a row gives for an operation whose arguments have names."""
    return called(entry.function, bound(entry, op), op)
