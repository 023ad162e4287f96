"""Every command's ``--help`` is enough to use it: what it does, examples that are right, a word for each option."""

from __future__ import annotations

import re
import shlex

import pytest
from docpages.commands import command_names
from typer.main import get_command
from typer.testing import CliRunner

from aneforge.cli.app import app

COMMANDS = command_names()


def help_of(name: str) -> str:
    done = CliRunner().invoke(app, [*name.split(), "--help"], terminal_width=100)
    assert done.exit_code == 0
    return done.output


def examples(name: str) -> list[str]:
    _, _, after = help_of(name).partition("\nExamples:\n")
    return [line.strip() for line in after.partition("\n\n")[0].splitlines()]


def options_of(name: str) -> set[str]:
    command = get_command(app)
    for word in name.split():
        command = command.commands[word]  # type: ignore[attr-defined]
    return {spelling for parameter in command.params for spelling in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_stand_on_lines_of_their_own_and_are_of_the_command(name):
    shown = examples(name)
    assert shown
    for example in shown:
        words = shlex.split(example)
        spelled = name.removesuffix(" run").split()  # a group's default command goes without its name
        assert words[: 1 + len(spelled)] == ["aneforge", *spelled], example
        assert {word for word in words if re.match(r"--?[a-z]", word)} <= options_of(name), example


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_the_command_does_and_what_every_option_means(name):
    text = help_of(name)
    purpose = text.split("\n\n")[1].strip()
    assert purpose[0].isupper()
    assert len(purpose) > 30
    for option in re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE):
        assert re.search(rf"{option}[^\n]*\s{{2,}}\S|{option}[^\n]*\n\s{{4,}}\S", text), f"{name} {option}"


def test_a_word_says_what_an_option_takes():
    assert "--dim NAME=SIZE" in help_of("check")
    assert "--target CHIPS" in help_of("check")
    assert not [name for name in COMMANDS if re.search(r"--[a-z-]+ <list", help_of(name))]
