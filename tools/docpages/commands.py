"""The page of the commands: what ``--help`` prints, as one page."""

from __future__ import annotations

from typing import Any

from typer.main import get_command

from aneforge.cli.app import app
from aneforge.cli.commands import FRONT, panel_of, words_and_examples

__all__ = ["command_names", "commands"]


def _all() -> dict[str, list[tuple[str, Any]]]:
    """Every command with its full name, by the group that the help shows it in."""
    grouped: dict[str, list[tuple[str, Any]]] = {}
    commands = getattr(get_command(app), "commands", {})
    for name, command in sorted(commands.items(), key=lambda entry: (*FRONT, entry[0]).index(entry[0])):
        panel = panel_of(command)
        inner = getattr(command, "commands", None)
        named = [(f"{name} {verb}", action) for verb, action in inner.items()] if inner else [(name, command)]
        grouped.setdefault(panel, []).extend(named)
    return grouped


def command_names() -> list[str]:
    """Every command, in the order of the help."""
    return [name for named in _all().values() for name, _ in named]


def _options(command: Any) -> list[str]:
    lines = []
    for option in command.params:
        if getattr(option, "hidden", False):
            continue
        argument = option.param_type_name == "argument"
        names = f"`{option.name.upper()}`" if argument else ", ".join(f"`{name}`" for name in option.opts)
        default = option.default if isinstance(option.default, str | int | float) else None
        shown = "" if default in (None, "") or isinstance(default, bool) else f" Default: `{default}`."
        lines.append(f"| {names} | {(option.help or '').replace('|', chr(92) + '|')}{shown} |")
    return lines


_SHARED = tuple(f"| `--{name}`" for name in ("json", "quiet", "verbose", "color", "dim", "function", "no-cache"))


def commands() -> str:
    grouped = _all()
    lines = [
        "# The commands",
        "",
        "`aneforge COMMAND --help` prints the same. MODEL is a model file, or `FILE.py:NAME` for a graph in a Python",
        "file ([what is read](../guide/models.md)). Every command takes `-q` (results only), `-v` (say what is being",
        "done), `--color` and, where it has results, `--json`. Commands that read a model take `--dim NAME=SIZE` for",
        "a symbolic dimension, `--function NAME` for one function of several, and `--no-cache` to import the file",
        "again ([the cache](../guide/models.md#import-once)).",
        "",
        "Exit status: 0 fine; 1 a check found something; 2 the command or its input is wrong; 3 a bug in aneforge.",
        "",
        "| command | what it does |",
        "| --- | --- |",
    ]
    for name, command in (entry for named in grouped.values() for entry in named):
        lines.append(f"| [`{name}`](#aneforge-{name.replace(' ', '-')}) | {_paragraphs(command)[0]} |")
    for panel, named in grouped.items():
        lines += ["", f"## {panel}"]
        for name, command in named:
            lines += ["", f"### aneforge {name}", ""]
            lines += [line for text in _paragraphs(command) for line in (text.replace("|", "\\|"), "")]
            lines += ["| option | meaning |", "| --- | --- |"]
            lines += [row for row in _options(command) if not row.startswith(_SHARED)]
    return "\n".join(lines) + "\n"


def _paragraphs(command: Any) -> list[str]:
    """The paragraphs of the help, with the examples in a line of their own."""
    words, examples = words_and_examples(command.help)
    shown = " or ".join(f"`{example}`" for example in examples)
    return [" ".join(part.split()) for part in (*words.split("\n\n"), shown) if part.strip()]
