"""Every message that a user can see follows one pattern.

``<file, node or parameter>: <what is wrong>; <rule or limit>. <What to do>.``

The templates are read from the syntax tree: what is raised as an error of this package, and the help of the command
line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "aneforge"

ERRORS = re.compile(r"^[A-Z]\w*(Error|Warning)$")
NOT_OURS = {"ValueError", "TypeError", "KeyError", "AttributeError", "RuntimeError", "NotImplementedError"}
NOT_OURS |= {"AssertionError", "StopIteration", "ImportError", "OSError", "MemoryError"}
BANNED = ("is no ", "are no ", "makes no sense", "make no sense", "say one of", "nothing to do", "%s", "%zd", "%d")
BANNED += ("are told", "is told", "held against", "has no place")
# Words that begin an order, a denial or a fragment: a message begins with what it is about.
NO_SUBJECT = {"no", "not", "say", "cannot", "can't", "give", "only", "is", "are", "must", "use", "choose", "unknown"}
NO_SUBJECT |= {"invalid", "bad", "wrong", "error", "please", "sorry", "failed", "there", "nothing", "none"}
# What tells the reader what to do, or which rule or limit holds.
REMEDY = re.compile(
    r"\b(choose|give|write|use|set|name|run|leave|add|remove|install|see|check|take|compile|ask|read|change|correct|"
    r"create|split|scale|encode|evaluate|keep|save|replace|restore|order|promise|slice|clip|copy|export|record|update|make|pass|nearest|"
    r"expected|needs?|takes?|must|at most|at least|or more|or less|limit|allowed|ends? in|ends at|from \{|has|have)\b",
    re.IGNORECASE,
)
MACHINE_PATH = re.compile(r"(^|[\s'\"(])/(home|root|Users|tmp|work|usr|var|opt)/")


class Message(NamedTuple):
    """A template: fields stand for what is filled in."""

    file: str
    line: int
    kind: str
    text: str


def template(node: ast.AST) -> str | None:
    """The text of a string, with ``{}`` for every field; None where it is not written out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = []
        for value in node.values:
            parts.append(value.value if isinstance(value, ast.Constant) else "{}")
        return "".join(map(str, parts))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = template(node.left), template(node.right)
        return None if left is None or right is None else left + right
    return None


def called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def messages(source: str, file: str) -> Iterator[Message]:
    """What a module raises, and what it prints as help."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            kind = called(node.exc)
            if not ERRORS.match(kind) or kind in NOT_OURS or not node.exc.args:
                continue
            if kind == "ArgumentError":
                text = template(node.exc.args[-1])
                yield Message(file, node.lineno, kind, "{}: " + text if text is not None else "{}: {}")
            elif (text := template(node.exc.args[0])) is not None:
                yield Message(file, node.lineno, kind, text)
        elif isinstance(node, ast.Call) and called(node) in ("Option", "Argument", "out_option"):
            texts = [word.value for word in node.keywords if word.arg == "help"]
            texts += node.args[:1] if called(node) == "out_option" else []
            for value in texts:
                if (text := template(value)) is not None:
                    yield Message(file, node.lineno, "help", text)


def package_messages() -> list[Message]:
    found: list[Message] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        found += messages(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    return found


def problems(message: Message) -> list[str]:
    """What is wrong with a template."""
    text = message.text
    found = [f"has {phrase!r}" for phrase in BANNED if phrase in text]
    if MACHINE_PATH.search(text):
        found.append("has a path of a machine")
    if "\n" in text:
        found.append("has more than one line")
    if message.kind == "help":
        if not text.endswith("."):
            found.append("does not end in a full stop")
        if not re.match(r"[A-Z{(]|exact|rules|conversion|roofline|reject", text):
            found.append("does not begin with a capital letter or a value")
        return found
    first = re.split(r"[\s,;:]", text.strip(), maxsplit=1)[0].casefold()
    if first in NO_SUBJECT:
        found.append(f"begins with {first!r}, not with what it is about")
    if text.strip() in ("", "{}", "{}: {}"):
        return found  # built elsewhere
    if not REMEDY.search(text) and text.count("{}") < 3 and not text.endswith(("{}", "{})")):
        found.append("names no remedy, rule or limit")
    return found


def test_messages_follow_the_pattern():
    collected = package_messages()
    assert len(collected) > 150
    wrong = [
        f"{message.file}:{message.line}: {'; '.join(told)}: {message.text}"
        for message in collected
        if (told := problems(message))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ('raise AneforgeError(f"no chip {name!r}; choose one: {names}")', "begins with 'no'"),
        ('raise LoadError("cannot read it; give another file")', "begins with 'cannot'"),
        ('raise AneforgeError(f"{file}: is no graph; give another")', "has 'is no '"),
        ('raise AneforgeError("x: the %s is wrong; use %zd")', "has '%s'"),
        ('raise AneforgeError("model: it is broken")', "names no remedy"),
        ('raise ArgumentError("mode", f"{mode!r} is odd")', "names no remedy"),
        ('raise AneforgeError("x: see /home/user/model.txt")', "a path of a machine"),
        ('typer.Option(help="Choose a chip")', "full stop"),
    ],
)
def test_what_is_found(source, told):
    (message,) = messages(source, "x.py")
    assert told in "; ".join(problems(message))


@pytest.mark.parametrize(
    "source",
    [
        'raise AneforgeError(f"{file}: not a graph (bad magic). Save it again with Graph.save.")',
        'raise ArgumentError("mode", f"{mode!r} is not a mode; choose one: {modes}.")',
        'typer.Option(help="Choose a chip.")',
        'raise ValueError("whatever")',
    ],
)
def test_what_is_fine(source):
    assert not [told for message in messages(source, "x.py") for told in problems(message)]
