"""The pages of the Python names, from the code itself: signature, docstring, arguments and members of each.

``api`` has the public names of the package by task, ``packages`` those of the packages that have names of their own.
A class comes with what it has: fields, properties and methods.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import aneforge
from docpages import glossary
from docpages.commands import command_names
from docpages.docstrings import first_sentence, markdown, names_in, written_below

__all__ = ["api", "groups", "package_names", "packages", "summary", "undocumented"]

ROOT = Path(__file__).resolve().parents[2]

# Headings for home modules, used for names that the docstring of the package puts into no group.
_HOMES = {
    "aneforge.formats": "Read a model file",
    "aneforge.study.loading": "Read a model file",
    "aneforge.study": "Split a model between engine and host",
    "aneforge.compiler": "Compile",
    "aneforge.study.model": "Compile and run",
    "aneforge.numerics": "Find what can be lost or differ",
    "aneforge.numerics.divergence": "Find what can be lost or differ",
    "aneforge.cost": "Estimate time and energy",
    "aneforge.advice": "Choose a faster form",
    "aneforge.formats.exports": "Write a model file",
    "aneforge.study.exporting": "Write a model file",
    "aneforge.chips": "Look up a chip",
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
    "aneforge.reports": "one model on many chips in one place",
    "aneforge.study": "more questions to a study, and compute plans",
    "aneforge.reports.sweep": "many models on many chips",
    "aneforge.reports.serve": "the served page",
    "aneforge.study.validate": "the compiler's answer to layers, networks and programs",
    "aneforge.numerics": "where chips give different numbers",
    "aneforge.advice": "changes that help, faster forms, weights in fewer bytes",
    "aneforge.graph.codecs": "the stored forms of weights",
    "aneforge.codegen": "compiled programs, read and written",
    "aneforge.train": "training on the simulated engine",
}
"""Packages that have public names which the package itself does not have."""

_BY_OPS = {"Tensor"}
"""Classes whose methods are the ops, which have a page of their own."""


def package_names() -> dict[str, list[str]]:
    """The names of each package in ``PACKAGES`` that the package itself does not have, classes behind functions."""
    listed = {}
    for package in PACKAGES:
        module = import_module(package)
        homes = getattr(module, "HOMES", {})
        names = getattr(module, "__all__", None) or [name for names in homes.values() for name in names.split()]
        own = {name for name in names if getattr(module, name) is not getattr(aneforge, name, None)}
        listed[package] = sorted(own, key=lambda name: (name[0].isupper(), name.lower()))
    return listed


def summary(name: str, package: str = "aneforge") -> str:
    """The first sentence of a name's docstring; of a plain value, the string that stands below it in its module."""
    return first_sentence(_docstring(name, package))


def undocumented(name: str, package: str = "aneforge") -> list[str]:
    """The parameters of a function that neither its docstring nor the glossary explains."""
    value = getattr(import_module(package), name)
    return (
        [] if inspect.isclass(value) or not callable(value) else [n for n, words in _others(name, value) if not words]
    )


def _docstring(name: str, package: str) -> str:
    value = getattr(import_module(package), name)
    if callable(value):
        return inspect.getdoc(value) or ""
    return written_below(_home(name) if package == "aneforge" else _defined_in(package, name), name)


def _defined_in(package: str, name: str) -> str:
    """The module of a package that a plain value comes from, by the list or the imports of the package."""
    for module, names in getattr(import_module(package), "HOMES", {}).items():
        if name in names.split():
            return f"{package}.{module}"
    file = ROOT / Path(*package.split(".")) / "__init__.py"
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ImportFrom) and name in {alias.name for alias in statement.names}:
            return str(statement.module)
    return package


# Signatures.

_WIDTH = 100


def _call(name: str, value: Any, prefix: str, one_line: bool = True) -> str:
    """A function as it is called, or a class as it is made; on lines of its own where it is long."""
    if not callable(value):
        return f"{prefix}{name}"
    if inspect.isclass(value):
        if not _is_made(value):
            return f"class {prefix}{name}"
        signature = inspect.signature(value.__init__)
    else:
        signature = inspect.signature(value)
    given = list(_parameters(signature))
    empty = inspect.isclass(value) or signature.return_annotation is inspect.Signature.empty
    returned = "" if empty else f" -> {_type(signature.return_annotation)}"
    line = f"{prefix}{name}({', '.join(given)}){returned}"
    if one_line or len(line) <= _WIDTH:
        return line
    return "\n".join([f"{prefix}{name}(", *(f"    {each}," for each in given), f"){returned}"])


def _is_made(cls: type) -> bool:
    """Whether users make objects of a class by its own ``__init__``; those of a data class are listed as fields."""
    return "__init__" in vars(cls) and not (is_dataclass(cls) or issubclass(cls, (BaseException, enum.Enum)))


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    """The parameters that are not private, with the star before those that go by name only."""
    listed = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    starred = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in listed)
    for each in listed:
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not starred and each.name[0] != "_":
            starred = True
            yield "*"
        if each.name[0] != "_":
            yield _parameter(each)


def _parameter(given: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(given.kind, "")
    default = "" if given.default is inspect.Parameter.empty else f" = {_default(given.default)}"
    return f"{stars}{given.name}: {_type(given.annotation)}{default}"


def _default(value: object) -> str:
    """A default as it is written; dots for one that has no written form, such as a function."""
    return "..." if " at 0x" in repr(value) else repr(value)


def _type(annotation: object) -> str:
    """An annotation in its short form: ``Sequence[Tensor]``, without the modules."""
    shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(\w+\.)+(?=\w)", "", shown)


def own_members(cls: type) -> dict[str, Any]:
    """What a class declares, with what it takes from abstract bases, which are no names of their own."""
    bases = [base for base in cls.__bases__ if inspect.isabstract(base) and _is_ours(base)]
    return {name: value for source in (*bases, cls) for name, value in vars(source).items()}


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("aneforge.")


def _members(cls: type) -> Iterator[str]:
    """What an object of a class has, one line each: fields, properties and methods that the class itself declares."""
    if issubclass(cls, (BaseException, enum.Enum)) or cls.__name__ in _BY_OPS:
        return
    if is_dataclass(cls):
        for field in fields(cls):
            if not field.name.startswith("_"):
                default = "" if field.default in (MISSING, None) else f" = {_default(field.default)}"
                yield f"- `.{field.name}: {_type(field.type)}{default}`"
    for name, value in own_members(cls).items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if name.startswith("_") or not (inspect.isfunction(plain) or isinstance(plain, property | cached_property)):
            continue
        getter = (
            plain.fget if isinstance(plain, property) else plain.func if isinstance(plain, cached_property) else None
        )
        shown = f".{name}: {_type(inspect.signature(getter).return_annotation)}" if getter else _call(name, plain, ".")
        own = first_sentence(getattr(getter or plain, "__doc__", None))
        sentence = own or glossary.MEMBERS.get(f"{cls.__name__}.{name}") or glossary.MEMBERS.get(name, "")
        yield f"- `{shown}`" + (f" {sentence}" if sentence else "")


def _others(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The parameters that a docstring does not name, each with its meaning or nothing."""
    named = names_in(inspect.getdoc(value))
    of_op = str(getattr(value, "__module__", "")).startswith("aneforge.graph")
    for given in inspect.signature(value).parameters.values():
        if given.name[0] != "_" and given.name not in named:
            yield given.name, glossary.meaning(name, given.name, of_op)


# Entries and pages.


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _entry(name: str, package: str, prefix: str) -> list[str]:
    """A name with its signature, docstring, the arguments that it does not explain itself, and members."""
    value = getattr(import_module(package), name)
    lines = [f"#### {prefix}{name}", "", "```py", _call(name, value, prefix, one_line=False), "```", ""]
    lines += markdown(_docstring(name, package))
    if inspect.isclass(value):
        members = list(_members(value))
        return [*lines, *members, *([""] if members else [])]
    if callable(value):
        explained = [(n, words) for n, words in _others(name, value) if words]
        others = [(n, words) for n, words in explained if words not in glossary.EVERYWHERE.values()]
        shared = [n for n, words in explained if words in glossary.EVERYWHERE.values()]
        lines += [f"- `{n}`: {words}" for n, words in others]
        if shared:
            place = "" if package == "aneforge" else "api.md"
            listed = ", ".join(f"`{n}`" for n in shared)
            lines += [f"- {listed}: [as everywhere]({place}#{_anchor(_SHARED)})"]
        lines += [""] if others or shared else []
    return lines


_SHARED = "Arguments that many functions take"


def _shared() -> list[str]:
    rows = [f"| `{name}` | {words} |" for name, words in glossary.EVERYWHERE.items()]
    return [f"## {_SHARED}", "", "| argument | meaning |", "| --- | --- |", *rows, ""]


def _errors() -> list[str]:
    """Every error class, by the order of the files that declare them."""
    bases, words, places = {}, {}, {}
    for file in sorted((ROOT / "aneforge").rglob("*.py")):
        for part in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(part, ast.ClassDef) and not part.name.startswith("_"):
                bases[part.name] = [base.id for base in part.bases if isinstance(base, ast.Name)]
                words[part.name] = first_sentence(ast.get_docstring(part))
                places[part.name] = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

    def is_error(name: str) -> bool:
        return name == "AneforgeError" or any(is_error(base) for base in bases.get(name, ()))

    named = sorted(name for name in bases if name.endswith("Error") and is_error(name))
    return [
        "## Errors",
        "",
        "Every error that is raised on purpose derives from `af.AneforgeError`, so one `except` catches all of them.",
        "Its text is one line that says what is wrong, where, by which rule and what to do. Commands print that line",
        "and end with status 2.",
        "",
        "| error | raised for | is also | in |",
        "| --- | --- | --- | --- |",
        *(f"| `{name}` | {words[name]} | {_also(bases[name])} | `{places[name]}` |" for name in named),
        "",
    ]


def _also(bases: list[str]) -> str:
    return ", ".join(f"`{base}`" for base in bases)


def api() -> str:
    lines = [
        "# The Python API",
        "",
        "These are the public names of `import aneforge as af`, by task: signature, meaning, arguments, and below a",
        "class what its objects have. `help(af.compile)` prints the same text. Methods of a tensor (`x.relu()`) are",
        "the ops of [operations.md](operations.md). [The packages](api-packages.md) have more names. What functions",
        "return can be printed and has `to_json()`.",
        "",
    ]
    listed = groups()
    lines += [f"- [{title}](#{_anchor(title)})" for title in (*listed, _SHARED, "Errors")] + [""]
    lines += _shared()
    for title, names in listed.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += _entry(name, "aneforge", "af.")
    return "\n".join([*lines, *_errors()])


def packages() -> str:
    lines = [
        "# The Python API: packages",
        "",
        "Names that the packages have beside those of [`import aneforge as af`](api.md): `from aneforge.reports",
        "import report`. Arguments and errors are as there.",
        "",
    ]
    listed = {f"{package}: {PACKAGES[package]}": (package, names) for package, names in package_names().items()}
    lines += [f"- [{title}](#{_anchor(title)})" for title in listed] + [""]
    for title, (package, names) in listed.items():
        lines += [f"## {title}", "", *markdown(import_module(package).__doc__)]
        if package == "aneforge.train":
            lines += ["All of its public names are those of `af`: see [Train](api.md#train).", ""]
        for name in names:
            lines += _entry(name, package, f"{package}.")
    return "\n".join(lines)
