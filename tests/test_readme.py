"""The README prints what the commands print: its Python lines and its console lines are run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


def same(expected: str, value: object) -> bool:
    """Whether a comment shows this value; set members may come in any order."""
    shown = repr(value) if not isinstance(value, str) or expected.startswith("'") else value
    return sorted(expected) == sorted(shown) if "frozenset" in expected else expected == shown


@pytest.mark.parametrize("block", PYTHON)
def test_python_lines_give_what_the_comment_says(block):
    scope: dict = {}
    checked = 0
    for line in block.splitlines():
        code, _, comment = (part.strip() for part in line.partition("  #"))
        printed = re.fullmatch(r"print\((.*)\)", code)
        if printed and comment:
            assert str(eval(printed[1], scope)) == comment  # noqa: S307
            checked += 1
        elif comment and not re.match(r"(\w+ = |import|from)", code):
            assert same(comment, eval(code, scope)), line  # noqa: S307
            checked += 1
        elif code:
            exec(code, scope)  # noqa: S102
    assert checked


def console_steps():
    for block in CONSOLE:
        command, lines = None, []
        for line in [*block.splitlines(), "$ "]:
            if line.startswith("$ "):
                if command:
                    yield command, lines
                command, lines = line[2:], []
            elif line not in ("...", ""):
                lines.append(line)


@pytest.mark.parametrize(("command", "lines"), list(console_steps()), ids=lambda v: v if isinstance(v, str) else "")
def test_console_lines_are_printed(command, lines):
    words = shlex.split(command)
    assert words[0] == "aneforge"
    result = subprocess.run(
        [sys.executable, "-m", "aneforge", *words[1:]], capture_output=True, text=True, check=False
    )
    printed = (result.stdout + result.stderr).splitlines()
    assert lines
    for line in lines:
        assert line in printed
