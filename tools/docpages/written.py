"""The written pages, as tests and ``tools/write_docs.py --outputs`` read them: their commands, outputs and code.

- A ``console`` block holds commands (``$ aneforge ...``) and what they print. ``...`` stands for lines left out. A
  command ends with status 0, or with the one that a comment names (``# exit status 1``).
- A ``python`` block is run. ``expression  # value`` says what the expression gives. Blocks of a page share names.
- A ``sh`` block holds what is typed but not run by the tests: installing, ``make``, scripts that take minutes.
- Code in blocks of other kinds (``py``, ``yaml``, ``json``) is for reading.

Commands and code of a page run one after another in an empty folder that has ``examples/`` in it.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

__all__ = ["Block", "Printed", "Step", "blocks", "first_wrong", "pages", "prepare", "refresh", "run", "steps"]

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_STATUS = re.compile(r"\s+# exit status (\d+)$")
_WRITES = ("--out", "-o", "--plot", "--junit", "--sarif", "export", "ci")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    kind: str
    text: str
    line: int


@dataclass(frozen=True)
class Step:
    """One command of a console block, the status it ends with and the lines shown below it."""

    command: str
    status: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Printed:
    """What a command printed on standard output and, as notes, on standard error, without empty lines."""

    status: int
    lines: tuple[str, ...]
    notes: tuple[str, ...] = ()


def pages() -> list[Path]:
    """The pages that people write: those of the root and all of ``docs/`` but the reference."""
    docs = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "reference" not in page.parts]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *docs]


def blocks(text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        yield Block(match["kind"], match["text"], text.count("\n", 0, match.start()) + 2)


def steps(block: str) -> Iterator[Step]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *lines = part.splitlines()
        status = _STATUS.search(command)
        shown = tuple(line.rstrip() for line in lines if line.strip())
        yield Step(_STATUS.sub("", command), int(status[1]) if status else 0, shown)


def prepare(folder: Path) -> None:
    """The folder that a page's commands run in: a checkout, of which they need the examples only."""
    (folder / "examples").symlink_to(ROOT / "examples", target_is_directory=True)


def run(command: str, folder: Path) -> Printed:
    """Run a command of a page; what writes no file is run once for all pages."""
    words = shlex.split(command)
    if words[:1] != ["aneforge"]:
        raise ValueError(f"a console block shows commands of aneforge: {command}")
    uses_folder = any((folder / word).exists() for word in words if "/" not in word)
    shared = not uses_folder and not set(words) & set(_WRITES)
    return _run_once(tuple(words[1:])) if shared else _run(tuple(words[1:]), folder)


@cache
def _run_once(words: tuple[str, ...]) -> Printed:
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        return _run(words, Path(folder))


def _run(words: tuple[str, ...], folder: Path) -> Printed:
    """Run a command as its own process would, in this one: imports are most of the time of a short command."""
    from aneforge.cli import main

    out, errors, arguments, place, status = io.StringIO(), io.StringIO(), sys.argv, Path.cwd(), 0
    with warnings.catch_warnings(), redirect_stdout(out), redirect_stderr(errors):
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", kind)  # as Python does
        sys.argv = ["aneforge", *words]
        os.chdir(folder)
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        finally:
            sys.argv = arguments
            os.chdir(place)
    lines, notes = (
        tuple(line.rstrip() for line in stream.getvalue().splitlines() if line.strip()) for stream in (out, errors)
    )
    return Printed(status, lines, notes)


def _parts(shown: tuple[str, ...]) -> list[list[str]]:
    """The shown lines, cut where lines are left out."""
    parts: list[list[str]] = [[]]
    for line in shown:
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def first_wrong(shown: tuple[str, ...], printed: Printed) -> str | None:
    """The first shown line that a command does not print at its place, or None.

    A page may leave out what goes to standard error: some notes depend on the machine.
    """
    wrong = _first_missing(shown, printed.lines)
    return wrong and _first_missing(shown, printed.lines + printed.notes) and wrong


def _first_missing(shown: tuple[str, ...], printed: tuple[str, ...]) -> str | None:
    """Without ``...`` at an end the shown lines begin or end the output; lines beside each other are printed so."""
    parts, place = _parts(shown), 0
    for number, part in enumerate(parts):
        starts = range(place, len(printed) + 1)
        if number == 0:
            starts = range(1)
        elif number == len(parts) - 1 and part:
            starts = range(max(place, len(printed) - len(part)), len(printed))
        fits = next((start for start in starts if list(printed[start : start + len(part)]) == part), None)
        if fits is None:
            return next((line for line in part if line not in printed[place:]), part[0])
        place = fits + len(part)
    left_open = len(parts) > 1 and not parts[-1]
    return None if left_open or place == len(printed) else f"(not shown) {printed[place]}"


def refresh(page: Path) -> bool:
    """Put what the commands of a page print now in place of what it shows; whether anything changed.

    Lines left out stay left out: each part between them is put where its first line fits best.
    """
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)

        def block(match: re.Match[str]) -> str:
            if match["kind"] != "console":
                return match[0]
            lines = ["```console"]
            for step in steps(match["text"]):
                printed = run(step.command, folder)
                status = f"  # exit status {printed.status}" if printed.status else ""
                lines += [f"$ {step.command}{status}", *_fitted(step.lines, printed)]
            return "\n".join([*lines, "```"])

        new = _FENCE.sub(block, text)
    page.write_text(new, encoding="utf-8")
    return new != text


def _fitted(shown: tuple[str, ...], output: Printed) -> list[str]:
    """The lines to show of a new output: as many as before, each part where its first line fits best."""
    parts, printed = _parts(shown), output.lines or output.notes
    if first_wrong(shown, output) is None:
        return list(shown)
    if len(parts) == 1:
        return list(printed)
    lines: list[str] = list(printed[: len(parts[0])])
    place = len(lines)
    for part in parts[1:-1]:
        likeness = [SequenceMatcher(None, part[0], line).ratio() for line in printed[place:]] if part else []
        start = place + likeness.index(max(likeness)) if likeness else place
        lines += ["...", *printed[start : start + len(part)]]
        place = start + len(part)
    return [*lines, "...", *printed[max(place, len(printed) - len(parts[-1])) :]]
