"""The tutorial: six short pages, each one question with an answer that the reader can check.

``test_docs_commands.py`` runs every command in them.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from docpages import written

FOLDER = written.ROOT / "docs" / "tutorial"
PAGES = sorted(FOLDER.glob("*.md"))


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_there_are_six_pages_in_order():
    assert [page.name[:2] for page in PAGES] == [f"{number}-" for number in range(1, 7)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_a_question_an_answer_and_a_check(page):
    number = page.name[0]
    title, *rest = text(page).splitlines()
    assert re.fullmatch(rf"# {number}\. .*\?", title)
    assert len(rest) <= 110
    assert rest[1].strip(), "the answer comes first"
    sections = re.findall(r"^## (.*)$", text(page), re.MULTILINE)
    assert sections[-1] == "Check it yourself"
    before, after = text(page).split("## Check it yourself")
    assert "not obvious:" in before
    assert "$ aneforge " in before
    assert "```console" in after or "```python" in after
    assert re.search(r"^Reference: \[", after, re.MULTILINE)


@pytest.mark.parametrize(("page", "following"), list(pairwise(PAGES)), ids=lambda page: page.stem)
def test_a_page_leads_to_the_next(page, following):
    assert re.search(rf"^Next: \[.*\]\({following.name}\)$", text(page), re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    console = [block for block in written.blocks(text(page)) if block.kind == "console"]
    return [step.command.split() for block in console for step in written.steps(block.text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_uses_files_of_the_examples_or_what_it_wrote(page):
    """A reader can type every command in a checkout."""
    known: set[str] = set()
    for words in commands(page):
        for before, file in pairwise(words):
            if not re.search(r"\w\.(npz|onnx|py|json|aneforge|mlpackage)$", file):
                continue
            if file.startswith("examples/"):
                assert (written.ROOT / file).exists()
            elif before in ("--out", "--baseline") or "export" in words:
                known.add(file)
            else:
                assert file in known, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_the_extras_that_it_needs(page):
    """``check`` of a package reads it, ``export`` writes it; nothing is named that no command needs."""
    used = [word for words in commands(page) for word in words]
    needed = {"onnx"} | ({"coreml-export", "coreml"} if "export" in used else set())
    (named,) = re.findall(r"^This page needs `pip install '\.\[([\w,-]+)\]'`", text(page), re.MULTILINE)
    assert set(named.split(",")) == needed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_can_be_followed_twice(page, tmp_path):
    """In the folder where it was followed before, after the rm that the page asks for."""
    written.prepare(tmp_path)
    console = [block for block in written.blocks(text(page)) if block.kind == "console"]
    steps = [step for block in console for step in written.steps(block.text)]
    for attempt in range(2):
        for file in re.findall(r"`rm ([\w.]+)`", text(page)) if attempt else ():
            (tmp_path / file).unlink()
        for step in steps:
            assert written.run(step.command, tmp_path).status == step.status, step.command


def test_the_tutorial_shows_every_command_that_the_job_needs():
    shown = {words[1] for page in PAGES for words in commands(page)}
    assert {"check", "partition", "export", "run", "compare", "estimate", "risks", "ci"} <= shown
