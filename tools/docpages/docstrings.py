"""Docstrings as Markdown, and what stands in place of one: the string below a plain value in its module."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

__all__ = ["first_sentence", "markdown", "names_in", "written_below"]

ROOT = Path(__file__).resolve().parents[2]
_CODE = re.compile(r"``(?P<code>[^`]+)``|:\w+:`~?(?P<name>[^`]+)`")


def markdown(text: str | None) -> list[str]:
    """The paragraphs of a docstring, each as one line; code that is set off is a block."""
    return [line for paragraph in _paragraphs(text) for line in (*paragraph, "")]


def _paragraphs(text: str | None) -> Iterator[list[str]]:
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text or "").strip()):
        lines = paragraph.splitlines()
        if not lines:
            continue
        if all(line.startswith(("    ", ">>>")) for line in lines):
            yield ["```py", *inspect.cleandoc("\n".join(lines)).splitlines(), "```"]
        elif lines[0].lstrip().startswith("- "):
            joined = re.sub(r"\n +(?!- )", " ", paragraph)
            yield [_plain(line) for line in joined.splitlines()]
        else:
            yield [_plain(" ".join(paragraph.split()))]


def _plain(line: str) -> str:
    """A line with its code in single marks; outside of code nothing is taken for Markdown or HTML."""
    parts, place = [], 0
    for found in _CODE.finditer(line):
        parts += [_escaped(line[place : found.start()]), f"`{found['code'] or found['name']}`"]
        place = found.end()
    return "".join([*parts, _escaped(line[place:])])


def _escaped(words: str) -> str:
    return re.sub(r"([*_|])", r"\\\1", words.replace("<", "&lt;"))


def names_in(text: str | None) -> set[str]:
    """The words of a docstring that can name a parameter."""
    return set(re.findall(r"\w+", text or ""))


def first_sentence(text: str | None) -> str:
    lines = markdown(text)
    return re.split(r"(?<=[.?!])\s", lines[0], maxsplit=1)[0] if lines else ""


@cache
def written_below(module: str, name: str) -> str:
    """The string that stands below a plain value in its module."""
    path = ROOT / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for statement, below in pairwise(ast.parse(file.read_text(encoding="utf-8")).body):
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            value = below.value if isinstance(below, ast.Expr) else None
            return str(value.value) if isinstance(value, ast.Constant) else ""
    return ""
