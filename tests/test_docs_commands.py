"""The written pages show what happens: their commands and their Python code are run, and what is shown is compared."""

from __future__ import annotations

import ast
import io
import re
import shlex
import tokenize
import warnings
from pathlib import Path
from typing import Any

import pytest
from docpages import written
from typer.main import get_command

from aneforge.cli.app import app

PAGES = {str(page.relative_to(written.ROOT)): page for page in written.pages()}


def of_kind(page: Path, kind: str) -> list[written.Block]:
    return [block for block in written.blocks(page.read_text(encoding="utf-8")) if block.kind == kind]


def with_blocks(kind: str) -> list[str]:
    return [name for name, page in PAGES.items() if of_kind(page, kind)]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    written.prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", with_blocks("console"))
def test_commands_print_what_the_page_shows(name, checkout):
    for block in of_kind(PAGES[name], "console"):
        steps = list(written.steps(block.text))
        assert steps, f"{name}:{block.line}: a console block without a command"
        for step in steps:
            printed = written.run(step.command, checkout)
            wrong = written.first_wrong(step.lines, printed)
            output = "\n".join(printed.lines + printed.notes)
            assert wrong is None, f"{name}: {step.command}\nnot at its place: {wrong}\nprinted:\n{output}"
            assert printed.status == step.status, f"{name}: {step.command}\n{output}"


def comments(block: str) -> dict[int, str]:
    """The comments behind code, by line."""
    tokens = tokenize.generate_tokens(io.StringIO(block).readline)
    return {token.start[0]: token.string[1:].strip() for token in tokens if token.type == tokenize.COMMENT}


def same(expected: str, value: object) -> bool:
    """Whether a comment shows this value; set members may come in any order."""
    shown = repr(value) if not isinstance(value, str) or expected.startswith("'") else value
    return sorted(expected) == sorted(shown) if "frozenset" in expected else expected == shown


@pytest.mark.parametrize("name", with_blocks("python"))
def test_python_code_gives_what_the_comments_say(name, checkout):
    """``value`` of an expression, or what ``print`` prints; a comment behind other code explains it."""
    scope: dict = {}
    checked = 0
    for block in of_kind(PAGES[name], "python"):
        told = comments(block.text)
        for statement in ast.parse(block.text).body:
            code, comment = ast.unparse(statement), told.get(statement.end_lineno or 0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                printed = re.fullmatch(r"print\((.*)\)", code)
                if not isinstance(statement, ast.Expr) or comment is None:
                    exec(code, scope)  # noqa: S102
                    continue
                value = eval(printed[1] if printed else code, scope)  # noqa: S307
            where = f"{name}:{block.line + statement.lineno - 1}"
            assert same(comment, str(value) if printed else value), f"{where}: {code} gives {value!r}"
            checked += 1
    assert checked, f"{name}: no comment says what its code gives"


NOT_RUN = {
    r"make( [a-z-]+)+": "a target of the Makefile: it installs packages, or takes minutes",
    r"(pip install|python3 -m venv|source) .*": "installs into an environment",
    r"python tools/import_facts\.py (--seal|FOLDER)": "writes the package's data, which test_data_files.py reads",
    r"python tools/fit_cost\.py .*": "fits for minutes, to measurements that are not in the repository",
    r"python bench/\w+\.py.*": "measures speed, or needs measurements that are not in the repository",
    r"python examples/train_digits\.py --data mnist\.npz .*": "trains for minutes, on a file from elsewhere",
}
"""What ``sh`` blocks hold, and why the tests do not run it. Every other command belongs into a console block."""


def shell_lines() -> list[tuple[str, str]]:
    return [
        (name, line.partition(" #")[0].strip())
        for name, page in PAGES.items()
        for block in of_kind(page, "sh")
        for line in block.text.splitlines()
        if line.strip()
    ]


def test_shell_blocks_hold_only_what_cannot_run_here():
    lines = shell_lines()
    for name, line in lines:
        assert any(re.fullmatch(pattern, line) for pattern in NOT_RUN), f"{name}: {line} is not run"
    for pattern in NOT_RUN:
        assert any(re.fullmatch(pattern, line) for _, line in lines), f"no page has {pattern}"


def named_commands() -> list[tuple[str, str]]:
    """Commands in the text of all pages, generated ones too, and in blocks that are not run."""
    found = shell_lines()
    for page in (*PAGES.values(), *sorted((written.ROOT / "docs" / "reference").glob("*.md"))):
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        found += [(page.name, " ".join(code.split())) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
    return found


def test_commands_in_the_text_name_targets_and_scripts_that_exist():
    makefile = (written.ROOT / "Makefile").read_text(encoding="utf-8")
    targets, seen = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)), 0
    for name, line in named_commands():
        words = line.split()
        if words[0] == "make" and len(words) > 1:
            assert {word for word in words[1:] if "=" not in word} <= targets, f"{name}: {line}"
            seen += 1
        elif words[0] == "python" and len(words) > 1 and words[1].endswith(".py"):
            assert (written.ROOT / words[1]).is_file(), f"{name}: {line}"
            seen += 1
    assert seen > 20


def options_of(words: list[str]) -> set[str]:
    """The options of the command that some words begin with, and of a group those of its commands."""
    command: Any = get_command(app)
    for word in words:
        inner = getattr(command, "commands", {})
        if inner and word not in inner and command.name in (None, "aneforge"):
            return set()
        command = inner.get(word, command)
    known = [command, *getattr(command, "commands", {}).values()]
    return {name for one in known for given in one.params for name in (*given.opts, *given.secondary_opts)}


def test_commands_in_the_text_have_the_verbs_and_options_that_they_name():
    """``aneforge VERB --option`` between two words of a sentence is looked up; blocks are run."""
    seen = 0
    for name, line in named_commands():
        words = shlex.split(line) if line.count('"') % 2 == line.count("'") % 2 == 0 else line.split()
        if not words or words[0] != "aneforge" or len(words) < 2 or not re.fullmatch(r"[a-z]+", words[1]):
            continue
        options = options_of(words[1:])
        assert options, f"{name}: {line}: no such command"
        for word in words[2:]:
            if word.startswith("-") and word not in ("--help", "-"):
                assert word.partition("=")[0] in options, f"{name}: {line}"
        seen += 1
    assert seen > 50


def test_pages_hold_no_other_kind_of_code_that_could_be_run():
    """Code in ``py`` blocks is part of a file, and text is in blocks without a kind."""
    kinds = {block.kind for page in PAGES.values() for block in written.blocks(page.read_text(encoding="utf-8"))}
    assert kinds <= {"console", "python", "sh", "py", "json", "yaml", "text"}
    for name, page in PAGES.items():
        for block in written.blocks(page.read_text(encoding="utf-8")):
            if block.kind not in ("console", "yaml"):
                assert not re.search(r"^\$? ?aneforge ", block.text, re.MULTILINE), f"{name}:{block.line}"


PRINTED = written.Printed(0, ("a", "b", "c", "d"), ("note",))


@pytest.mark.parametrize(
    "shown",
    [
        ("a", "b", "c", "d"),
        ("a", "..."),
        ("...", "d"),
        ("...", "b", "c", "..."),
        ("a", "...", "c", "d"),
        ("...",),
        ("a", "b", "c", "d", "note"),
        ("...", "note"),
    ],
)
def test_lines_left_out_are_marked(shown):
    assert written.first_wrong(shown, PRINTED) is None


@pytest.mark.parametrize(
    ("shown", "missing"),
    [
        (("a", "b"), "(not shown) c"),
        (("b", "..."), "b"),
        (("a", "c", "..."), "a"),
        (("...", "c"), "c"),
        (("...", "c", "...", "b", "..."), "b"),
        (("...", "x", "..."), "x"),
        ((), "(not shown) a"),
        (("note",), "note"),
        (("a", "b", "note"), "note"),
    ],
)
def test_a_line_out_of_place_is_found(shown, missing):
    assert written.first_wrong(shown, PRINTED) == missing


def test_new_outputs_keep_what_is_left_out(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("Text.\n\n```console\n$ aneforge one\nhead 1\n...\nrow 1\n...\n```\n\n```py\nx\n```\n")
    new = written.Printed(1, ("head 2", "other", "row 2", "end"), ("note",))
    monkeypatch.setattr(written, "run", lambda command, folder: new)
    assert written.refresh(page)
    shown = "```console\n$ aneforge one  # exit status 1\nhead 2\n...\nrow 2\n...\n```"
    assert page.read_text() == f"Text.\n\n{shown}\n\n```py\nx\n```\n"
    assert not written.refresh(page)
