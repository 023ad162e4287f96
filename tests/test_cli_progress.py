"""Progress: a line on a terminal from the second second on, erased at the end; nothing anywhere else."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aneforge import progress as module
from aneforge.cli import say
from aneforge.cli.notes import working
from aneforge.progress import Line, LogLines, progress_text

pty = pytest.importorskip("pty", reason="pseudo-terminals are of Unix")

ERASE = "\r\x1b[K"
SLOW = """
import time
import numpy as np
import aneforge as af

time.sleep(1.5)
x = af.input((1, 4, 6, 6), name="x", max_abs=8)
out = af.conv(x, np.full((4, 4, 1, 1), 0.1)).relu().named("y")
loss = (x * af.parameter(np.full((1, 4, 6, 6), 0.5), name="w")).mean()
"""


@pytest.fixture(autouse=True)
def plain_voice():
    yield
    say.set_voice()


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """A model that takes more than a second to read."""
    (tmp_path / "slow.py").write_text(SLOW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def on_a_terminal(*words: str) -> tuple[str, str, int]:
    """What a command prints with stderr on a terminal: stdout, stderr, status."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "aneforge", *words], stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        os.close(theirs)
        told = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux says so when the other side has closed
                break
            if not part:
                break
            told += part
        assert process.stdout is not None
        printed = process.stdout.read()
    os.close(ours)
    return printed, told.decode(), process.returncode


def screen(told: str) -> str:
    """What a terminal shows in the end."""
    lines = [line.rpartition(ERASE)[2] for line in told.replace("\r\n", "\n").split("\n")]
    return "\n".join(lines)


def test_what_is_done_is_on_the_terminal_with_the_seconds_and_goes_away(slow):
    printed, told, status = on_a_terminal("check", "slow.py", "--target", "m1")
    assert status == 0
    assert "checking slow.py on m1 ... 1 s" in told
    assert screen(told) == ""
    assert ERASE not in printed
    words = [sys.executable, "-m", "aneforge", "check", "slow.py", "--target", "m1"]
    piped = subprocess.run(words, check=False, capture_output=True, text=True)
    assert piped.stdout == printed
    assert piped.stderr == ""


def test_json_is_not_disturbed_and_quiet_is_quiet(slow):
    printed, told, _ = on_a_terminal("compile", "slow.py", "--json")
    assert json.loads(printed)
    assert "reading slow.py ... 1 s" in told
    printed, told, _ = on_a_terminal("compile", "slow.py", "--json", "-q")
    assert json.loads(printed)
    assert told == ""


def test_notes_stand_on_lines_of_their_own(slow):
    _, told, _ = on_a_terminal("run", "slow.py")
    assert "running slow.py on m1 ... 1 s" in told
    assert screen(told) == "inputs were drawn with seed 0; --input FILE.npz gives your own\n"


def test_steps_that_are_counted_are_a_bar(slow):
    np.savez("data.npz", x=np.zeros((4, 4, 6, 6), np.float32))
    words = ("train", "slow.py:loss", "--data", "data.npz", "--steps", "40000")
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "aneforge", *words], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    told = b""
    while b"left" not in told:
        told += os.read(ours, 4096)
    process.kill()
    process.wait()
    os.close(ours)
    assert "/40000 (" in told.decode()
    assert "steps/s" in told.decode()


def test_verbose_writes_lines_and_no_bar(capsys):
    say.set_voice(verbose=True)
    with working("reading") as progress:
        assert progress is not None
        progress(0, 2, "m1")
        progress(1, 2, "m5")
    told = capsys.readouterr().err
    assert ERASE not in told
    assert [line.split("]")[1] for line in told.splitlines()] == [" 0/2 (0 %)  m1", " 1/2 (50 %)  m5"]


def test_there_is_nothing_to_hear_without_a_terminal(capsys):
    with working("reading") as progress:
        assert progress is None
    assert capsys.readouterr().err == ""


# The line itself.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(stream: io.StringIO, words: str) -> None:
    """Wait until the line shows these words."""
    for _ in range(1000):
        if words in stream.getvalue():
            return
        module.time.sleep(0.01)
    raise AssertionError(f"{words!r} is not in {stream.getvalue()!r}")


def test_a_line_is_redrawn_lifted_and_erased():
    stream = Terminal()
    with Line("reading", stream, first=0.0) as line:
        drawn(stream, "reading ... 0 s")
        line(1, 4, "m5")
        drawn(stream, "[######..................] 1/4 (25 %)  m5")
        with line.lifted():
            assert stream.getvalue().endswith(ERASE)
            stream.write("a note\n")
        line(2, 4, "m6")
        drawn(stream, "2/4 (50 %)  m6")
    assert screen(stream.getvalue()) == "a note\n"


def test_an_error_erases_the_line_too():
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), Line("more", stream, first=0.0):
        _interrupt(stream)
    assert screen(stream.getvalue()) == ""


def _interrupt(stream: io.StringIO) -> None:
    drawn(stream, "more")
    raise KeyboardInterrupt


def test_what_is_over_soon_is_not_shown():
    stream = Terminal()
    with Line("reading", stream) as line:
        line(1, 2, "m1")
    assert stream.getvalue() == ""


def test_a_terminal_that_is_gone_does_not_stop_the_work():
    stream = Terminal()
    with Line("reading", stream, first=0.0):
        drawn(stream, "reading")
        stream.close()


def test_a_long_line_is_cut_so_that_it_can_be_erased():
    stream = Terminal()
    with Line("x" * 500, stream, first=0.0):
        drawn(stream, "xxx")
    assert max(map(len, stream.getvalue().split(ERASE))) == 79


def test_time_left_is_that_of_the_rest(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    said: list[str] = []
    lines = LogLines(said.append)
    lines(5, 10, "resumed")  # what was done before does not count
    now[0] += 4
    lines(7, 10, "again")
    assert said[0].endswith("5/10 (50 %)  resumed")
    assert said[1].endswith("7/10 (70 %)  again  6 s left")
    lines(10, 10, "end")
    assert said[2].endswith("10/10 (100 %)  end")


def test_a_log_gets_ten_lines_of_a_long_count():
    said: list[str] = []
    lines = LogLines(said.append)
    for step in range(1, 1001):
        lines(step, 1000, f"step {step}")
    assert len(said) == 11
    lines(0, 0, "compiling")
    assert said[-1] == "compiling"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ((0, 0, "reading", 3.2, None), "reading ... 3 s"),
        ((0, 0, "reading", 200.0, None), "reading ... 3 min"),
        ((3, 4, "m5", 9.0, 3.0), "[##################......] 3/4 (75 %)  m5  3 s left"),
        ((5, 4, "m5", 9.0, 3.0), "[########################] 4/4 (100 %)  m5"),
        ((1, 4, "m5", 0.2, None), "[######..................] 1/4 (25 %)  m5"),
        ((0, 4, "m5", 9.0, None), "[........................] 0/4 (0 %)  m5  9 s so far"),
        ((1, 4, "m5", 9.0, 0.1), "[######..................] 1/4 (25 %)  m5  9 s so far"),
    ],
)
def test_progress_in_words(step, words):
    assert progress_text(*step) == words


def test_every_command_that_reads_a_model_shows_what_it_does():
    """By its source: which of them takes long depends on the model."""
    folder = Path(say.__file__).parent
    declares = {
        "model_file.py",
        "options.py",
        "commands.py",
        "shapes.py",
    }  # the last one asks for partition and estimate
    reads = [file for file in folder.glob("*.py") if "ModelFile" in file.read_text() and file.name not in declares]
    assert len(reads) > 15
    silent = [file.name for file in reads if not re.search(r"\bworking\(|\bsay\.progress\(", file.read_text())]
    assert not silent
