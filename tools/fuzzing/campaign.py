"""A campaign: damage files of one kind, run the commands that read them, and keep what no reader may do.

A reader may answer, or refuse with one line and exit status 2 (1 where a check finds something). A traceback, exit
status 3, a run that takes too long and one that takes too much memory are findings. A damaged file that got another
answer than any before is damaged further: so the search goes where readers go.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzzing.damage import damaged
from fuzzing.readers import Reader

SLOW_S = 30
"""Seconds a command may take; the whole file takes a fraction of one."""
MEMORY = 8 << 30
_KEPT = 400  # files that are damaged further
_LETTERS = re.compile(r"[0-9]+|'[^']*'|\"[^\"]*\"|0x[0-9a-f]+")
STATUSES = (0, 1, 2)


@dataclass
class Outcome:
    """What a campaign did with one kind of file."""

    reader: str
    commands: int = 0
    files: int = 0
    refused: int = 0
    answers: int = 0
    """Different answers, names and numbers aside."""
    findings: list[Finding] = field(default_factory=list)


@dataclass(frozen=True)
class Finding:
    """A file that a command may not treat like this."""

    reader: str
    command: str
    what: str
    data: bytes


class _TooSlow(BaseException):
    """Not an error that the program could catch as its own."""


def campaign(reader: Reader, seed: int, most_files: int, most_seconds: float = 1e9) -> Outcome:
    """Damage so many files, or for so long."""
    outcome, chance = Outcome(reader.name), random.Random(f"{reader.name} {seed}")  # noqa: S311 - no secret
    seen: set[str] = set()
    with _whole_files(reader) as folder:
        file = next(folder.glob(reader.file))
        whole = file.read_bytes()
        _try(reader, folder, file, whole, outcome, seen)
        if outcome.findings:
            return outcome
        kept, start = [whole], time.monotonic()
        while outcome.files <= most_files and time.monotonic() - start < most_seconds:
            data = damaged(whole if chance.random() < 0.5 else chance.choice(kept), chance)
            if reader.forge is not None and chance.random() < 0.8:
                with contextlib.suppress(Exception):  # what is damaged beyond that stays as it is
                    data = reader.forge(data)
            if _try(reader, folder, file, data, outcome, seen) and len(data) < 4 * len(whole) + 4096:
                kept = [*kept[-_KEPT:], data]
    outcome.answers = len(seen)
    return outcome


@contextlib.contextmanager
def _whole_files(reader: Reader) -> Iterator[Path]:
    """A folder with sound files, as the working folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "files"
        folder.mkdir()
        reader.make(folder, _run_whole)
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


def _run_whole(line: str) -> None:
    status, _, err = run(line)
    if status not in (0, 1):
        raise RuntimeError(f"aneforge {line}: exit status {status}: {err}")


def _try(reader: Reader, folder: Path, file: Path, data: bytes, outcome: Outcome, seen: set[str]) -> bool:
    """Run every command on this file; whether one of them gave an answer that none gave before."""
    outcome.files += 1
    is_new = False
    for command in reader.commands:
        file.write_bytes(data)
        line = command.replace("FILE", shlex.quote(str(file))).replace("FOLDER", shlex.quote(str(folder)))
        status, out, err = run(line)
        outcome.commands += 1
        outcome.refused += status == 2
        what = _fault(status, out, err)
        if what and what not in {finding.what for finding in outcome.findings}:
            outcome.findings.append(Finding(reader.name, command, what, data))
        answer = f"{command}{status}{_LETTERS.sub('#', err[:400])}"
        is_new |= answer not in seen
        seen.add(answer)
    for left in [*folder.rglob("*.part"), folder / "swept"]:
        if left.exists():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    return is_new


def _fault(status: int, out: str, err: str) -> str:
    if status not in STATUSES:
        words = err.strip().splitlines()
        return f"exit status {status}: {_LETTERS.sub('#', words[-1][:300]) if words else ''}"
    if "Traceback" in err or "Traceback" in out:
        return "a traceback"
    if len(err) > 20_000:
        return f"{len(err):,} letters of messages"
    return ""


def run(line: str) -> tuple[int, str, str]:
    """The program in this process: its status, stdout and stderr; status -1 where it takes too long."""
    import aneforge.cli
    from aneforge.cli import say

    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["aneforge", *shlex.split(line)]
    say.set_voice()
    signal.alarm(SLOW_S)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            status: Any = aneforge.cli._status()
    except _TooSlow:
        return -1, out.getvalue(), f"longer than {SLOW_S} seconds"
    finally:
        signal.alarm(0)
        sys.argv = argv
        say.set_voice()
    return status, out.getvalue(), err.getvalue()


def prepare() -> None:
    """Limits of this process: a command that takes too long or too much memory ends as a finding."""

    def stop(*_: object) -> None:
        raise _TooSlow

    signal.signal(signal.SIGALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.environ["ANEFORGE_NO_CACHE"] = "1"
