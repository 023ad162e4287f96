"""The page of the Python names: signature and first sentence of each, from the code itself."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import aneforge
from docpages.commands import command_names

__all__ = ["api", "groups", "summary"]

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


def summary(name: str) -> str:
    """The first sentence of a name's docstring; of a plain value, the string that stands below it in its module."""
    value = getattr(aneforge, name)
    text = inspect.getdoc(value) if callable(value) else _written_below(_home(name), name)
    if not text:
        return ""
    first = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    plain = re.sub(r":\w+:`~?([^`]+)`|``([^`]+)``", lambda match: f"`{match[1] or match[2]}`", first)
    return re.split(r"(?<=[.?!])\s", plain, maxsplit=1)[0]


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


def _call(name: str) -> str:
    value = getattr(aneforge, name)
    if inspect.isclass(value) or not callable(value):
        return f"af.{name}"
    signature = inspect.signature(value)
    given = [_parameter(each) for each in signature.parameters.values() if not each.name.startswith("_")]
    return f"af.{name}({', '.join(given)}) -> {_type(signature.return_annotation)}"


def _parameter(given: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(given.kind, "")
    default = "" if given.default is inspect.Parameter.empty else f" = {given.default!r}"
    return f"{stars}{given.name}: {_type(given.annotation)}{default}"


def _type(annotation: object) -> str:
    """An annotation in its short form: ``Sequence[Tensor]``, without the modules."""
    shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(\w+\.)+(?=\w)", "", shown)


def api() -> str:
    lines = [
        "# The Python API",
        "",
        "These are the public names of `import aneforge as af`, with their signatures and first sentences.",
        "`help(af.compile)` prints the whole text. Methods of a tensor (`x.relu()`) are the ops of",
        "[operations.md](operations.md).",
        "",
    ]
    listed = groups()
    anchors = {title: re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in listed}
    lines += [f"- [{title}](#{anchor})" for title, anchor in anchors.items()] + [""]
    for title, names in listed.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += [f"`{_call(name)}`  ", f"{summary(name)}", ""]
    return "\n".join(lines)
