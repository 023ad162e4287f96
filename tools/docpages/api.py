"""The page of the Python names: signature and first sentence of each, from the code itself.

First the public names of the package by task, then the packages that have names of their own. A class comes with
what it has: fields, properties and methods.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache, cached_property
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import aneforge
from docpages.commands import command_names

__all__ = ["api", "groups", "package_names", "summary"]

ROOT = Path(__file__).resolve().parents[2]

# Headings for home modules, used for names that the docstring of the package puts into no group.
_HOMES = {
    "aneforge.frontends": "Read a model file",
    "aneforge.loading": "Read a model file",
    "aneforge.gate": "Check what each chip does",
    "aneforge.regions": "Split a model between engine and host",
    "aneforge.compiler": "Compile",
    "aneforge.model": "Compile and run",
    "aneforge.numerics": "Find what can be lost or differ",
    "aneforge.divergence": "Find what can be lost or differ",
    "aneforge.cost": "Estimate time and energy",
    "aneforge.tuning": "Choose a faster form",
    "aneforge.exports": "Write a model file",
    "aneforge.targets": "Look up a chip",
    "aneforge.errors": "Errors",
    "aneforge.graph.ops": "Write a graph: ops",
    "aneforge.graph": "Write a graph: tensors and graphs",
}
AS_COMMANDS = "The commands, as functions"
_GROUP = re.compile(r"^(?P<title>[A-Z][^:`]{2,60}):\s*$|^(?P<one>[A-Z][^:`]{2,60}):\s+(?P<names>[`\w].*)$")


def groups(package: ModuleType = aneforge) -> dict[str, list[str]]:
    """The public names by heading: functions that are commands too, groups of the docstring, the others by module.

    A group of the docstring is ``Title: name name`` on one line, or ``Title:`` with the names on indented lines.
    """
    public = {name for name in package.__all__ if not name.startswith("_")}
    listed: dict[str, list[str]] = {}
    title = ""
    for line in (package.__doc__ or "").splitlines():
        match = _GROUP.match(line.strip()) if not line.startswith((" ", "\t")) else None
        if match:
            title = match["title"] or match["one"]
            named = match["names"] or ""
        elif line.startswith((" ", "\t")):
            named = line
        else:
            title, named = "", ""
        found = [word for word in re.findall(r"\w+", named) if word in public] if title else []
        if found:
            listed.setdefault(title, []).extend(found)
    rest = public - {name for names in listed.values() for name in names}
    questions = [name for name in command_names() if name in rest]
    if questions:
        listed = {AS_COMMANDS: questions, **listed}
        rest -= set(questions)
    for prefix, heading in _HOMES.items():
        here = sorted(name for name in rest if _home(name).startswith(prefix))
        rest -= set(here)
        if here:
            listed.setdefault(heading, []).extend(here)
    if rest:
        listed["Other names"] = sorted(rest)
    return listed


def _home(name: str) -> str:
    return str(aneforge._HOME_OF[name])


PACKAGES = {
    "aneforge.validate": "the compiler's answer to layers, networks and programs",
    "aneforge.numerics": "where chips give different numbers",
    "aneforge.compress": "weights in fewer bytes",
    "aneforge.codegen": "compiled programs, read and written",
    "aneforge.report": "one model on many chips in one place",
}
"""Packages that have public names which the package itself does not have."""

_UNLISTED = {"aneforge.report": ("Report", "report")}
"""Public names of packages that have no ``__all__``."""

_BY_OPS = {"Tensor"}
"""Classes whose methods are the ops, which have a page of their own."""


def package_names() -> dict[str, list[str]]:
    """The names of each package in ``PACKAGES`` that the package itself does not have, classes behind functions."""
    listed = {}
    for package in PACKAGES:
        names = getattr(import_module(package), "__all__", None) or _UNLISTED[package]
        own = {*names} - {*aneforge.__all__}
        listed[package] = sorted(own, key=lambda name: (name[0].isupper(), name.lower()))
    return listed


def summary(name: str, package: str = "aneforge") -> str:
    """The first sentence of a name's docstring; of a plain value, the string that stands below it in its module."""
    value = getattr(import_module(package), name)
    if callable(value):
        return _first_sentence(inspect.getdoc(value))
    return _first_sentence(_written_below(_home(name) if package == "aneforge" else _defined_in(package, name), name))


def _first_sentence(text: str | None) -> str:
    if not text:
        return ""
    first = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    plain = re.sub(r":\w+:`~?([^`]+)`|``([^`]+)``", lambda match: f"`{match[1] or match[2]}`", first)
    return re.split(r"(?<=[.?!])\s", plain, maxsplit=1)[0]


def _defined_in(package: str, name: str) -> str:
    """The module of a package that a plain value comes from, by the imports of the package."""
    file = ROOT / Path(*package.split(".")) / "__init__.py"
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom) and name in {alias.name for alias in statement.names}:
            return str(statement.module)
    return package


@cache
def _written_below(module: str, name: str) -> str:
    path = ROOT / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for statement, below in pairwise(body):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = below.value if isinstance(below, ast.Expr) else None
            return str(value.value) if isinstance(value, ast.Constant) else ""
    return ""


def _call(name: str, value: Any, prefix: str) -> str:
    if inspect.isclass(value) or not callable(value):
        return f"{prefix}{name}"
    signature = inspect.signature(value)
    given = [
        _parameter(each)
        for each in signature.parameters.values()
        if each.name not in ("self", "cls") and each.name[0] != "_"
    ]
    returned = "" if signature.return_annotation is inspect.Signature.empty else _type(signature.return_annotation)
    return f"{prefix}{name}({', '.join(given)})" + (f" -> {returned}" if returned else "")


def _members(cls: type) -> Iterator[str]:
    """What an object of a class has, one line each: fields, properties and methods that the class itself declares."""
    if issubclass(cls, BaseException) or cls.__name__ in _BY_OPS:
        return
    if is_dataclass(cls):
        for field in fields(cls):
            if not field.name.startswith("_"):
                yield f"- `.{field.name}: {_type(field.type)}`"
    for name, value in vars(cls).items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if name.startswith("_") or not (inspect.isfunction(plain) or isinstance(plain, property | cached_property)):
            continue
        getter = (
            plain.fget if isinstance(plain, property) else plain.func if isinstance(plain, cached_property) else None
        )
        shown = f".{name}: {_returned(getter)}" if getter else _call(name, plain, ".")
        sentence = _first_sentence(getattr(getter or plain, "__doc__", None))
        yield f"- `{shown}`" + (f" {sentence}" if sentence else "")


def _returned(getter: Any) -> str:
    return _type(inspect.signature(getter).return_annotation)


def _parameter(given: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(given.kind, "")
    default = "" if given.default is inspect.Parameter.empty else f" = {given.default!r}"
    return f"{stars}{given.name}: {_type(given.annotation)}{default}"


def _type(annotation: object) -> str:
    """An annotation in its short form: ``Sequence[Tensor]``, without the modules."""
    shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(\w+\.)+(?=\w)", "", shown)


def _entry(name: str, package: str, prefix: str) -> list[str]:
    """A name with its signature, first sentence and members."""
    value = getattr(import_module(package), name)
    members = list(_members(value)) if inspect.isclass(value) else []
    return [f"`{_call(name, value, prefix)}`  ", summary(name, package), *(["", *members] if members else []), ""]


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def api() -> str:
    lines = [
        "# The Python API",
        "",
        "These are the public names of `import aneforge as af`, by task, with their signatures and first sentences.",
        "`help(af.compile)` prints the whole text. Below a class stands what its objects have. Methods of a tensor",
        "(`x.relu()`) are the ops of [operations.md](operations.md). Most functions take a *model* in any form (a",
        'graph, its output tensors, a compiled model, the path of a file) and *chips* as the commands do (`"m1,m5"`,',
        '`"m1..m6"`, `"all"`); what they return can be printed and has `to_json()`.',
        "",
    ]
    listed = {title: (names, "aneforge", "af.") for title, names in groups().items()}
    for package, names in package_names().items():
        listed[f"{package}: {PACKAGES[package]}"] = (names, package, f"{package}.")
    lines += [f"- [{title}](#{_anchor(title)})" for title in listed] + [""]
    for title, (names, package, prefix) in listed.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += _entry(name, package, prefix)
    return "\n".join(lines)
