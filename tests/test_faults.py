"""A kill, or a full disk, at every step of writing: what was there stays or is replaced as a whole, and the next run
is right. The steps are counted once; then each of them fails in turn, in a process of its own."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import kit_standin as standin
import numpy as np
import pytest
from docpages import written

import aneforge.cli
from aneforge.cli import say

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the steps fail in forked processes")
SMALL = "examples/small.py"
COMMANDS = {
    "page": (f"report {SMALL} --target m1 --changes 0 --out out.html -q", ["out.html"]),
    "two tables": (f"report {SMALL} --target m1 --changes 0 --out out.csv -q", ["out.csv", "out.layers.csv"]),
    "program": (f"compile {SMALL} --target m1 --out out.hwx -q", ["out.hwx"]),
    "archive": (f"compile {SMALL} --target m1 --out out.anef -q", ["out.anef"]),
    "folder": (f"compile {SMALL} --target m1 --out out -q", ["out"]),
    "outputs": (f"run {SMALL} --target m1 --out out.npz -q", ["out.npz"]),
    "netplist": ("export examples/convnet.plist --out out.plist --overwrite", ["out.plist", "out.weights.bin"]),
    "baseline": (f"ci update {SMALL} --target m1 --skip numerics --baseline out.json -q", ["out.json"]),
    "cache": ("check examples/convnet.plist --target m1 -q", []),
    "sweep": (f"sweep {SMALL} --target m1 --out out --workers 1 -q", []),
    "package": (f"export {SMALL} --out out.mlpackage --target m1 --overwrite", ["out.mlpackage"]),
    "kit": ("kit -o out --about X75 --overwrite -q", ["out"]),
    "rows": ("contribute results.json -o out.json -q", ["out.json", "out.facts.json"]),
    "profile": ("measure kit results.json --profile out.json -q", ["out.json"]),
    "evaluation": (f"evaluate {SMALL} --data samples.npz --target m1 --out out -q", []),
}
STEPS = ("open", "fsync", "replace", "rename", "mkdir", "write")
ALWAYS_FRESH = ("seconds", "aneforge")
MOST = 10
"""Steps of one command that fail in turn; a command with more is sampled."""


class Steps:
    """Counts the calls that change the disk, and fails at one of them."""

    def __init__(self, fail_at: int | None = None, fault: Callable[[], None] = lambda: None) -> None:
        self.count, self._at, self._fault = 0, fail_at, fault
        for name in STEPS:
            setattr(os, name, self._counted(getattr(os, name), name))

    def _counted(self, original, name):
        def call(*arguments, **settings):
            flags = arguments[1] if name == "open" and len(arguments) > 1 else os.O_CREAT
            if name != "open" or flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                if self.count == self._at:
                    self.count += 1
                    self._fault()
                self.count += 1
            return original(*arguments, **settings)

        return call


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fill() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def forked(line: str, fail_at: int | None = None, fault=None) -> tuple[int, str, int]:
    """The status of a command in a forked process (minus the signal where it was killed), what it said, its steps."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        steps = Steps(fail_at, fault or (lambda: None))
        out, err = io.StringIO(), io.StringIO()
        say.set_voice()
        sys.argv = ["aneforge", *shlex.split(line)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = aneforge.cli._status()
        original = json.dumps([status, err.getvalue()[-2000:], steps.count]).encode()
        with open(write, "wb", buffering=0) as stream:
            stream.write(original)
        os._exit(0)
    os.close(write)
    with open(read, "rb") as stream:
        content = stream.read()
    _, state = os.waitpid(child, 0)
    if os.WIFSIGNALED(state):
        return -os.WTERMSIG(state), "", 0
    status, said, count = json.loads(content)
    return status, said, count


def contents(names: list[str]) -> dict[str, bytes]:
    """Every file below these names, but for the hidden parts that a kill leaves."""
    found = {}
    for name in names:
        place = Path(name)
        files = [file for file in place.rglob("*") if file.is_file()] if place.is_dir() else [place]
        found.update({str(file): file.read_bytes() for file in files if file.exists() and file.suffix != ".part"})
    return found


@pytest.fixture
def place(tmp_path, monkeypatch):
    written.prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANEFORGE_NO_CACHE", raising=False)
    monkeypatch.setenv("ANEFORGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ANEFORGE_THREADS", "1")
    standin.written(standin.results("M3", only={"X01", "X50", "X75"}), tmp_path / "results.json")
    np.savez("samples.npz", x=np.ones((2, 1, 8, 16, 16), np.float32))
    return tmp_path


def chosen_steps(count: int) -> list[int]:
    return (
        sorted({round(place * (count - 1) / (MOST - 1)) for place in range(MOST)})
        if count > MOST
        else list(range(count))
    )


@pytest.mark.parametrize("fault", [kill, fill], ids=["kill", "full disk"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_fault_at_any_step_leaves_nothing_half_written(name, fault, place):
    line, outputs = COMMANDS[name]
    status, said, count = forked(line)
    assert status in (0, 1), said
    assert count > 0
    whole = contents(outputs)
    for step in chosen_steps(count):
        marks = dict.fromkeys(whole, b"what was there before") if "." in "".join(outputs) else {}
        if name != "baseline":  # which reads the one that it replaces
            for file, mark in marks.items():
                Path(file).write_bytes(mark)
        status, said, _ = forked(line, step, fault)
        if fault is kill:
            assert status in (-signal.SIGKILL, 0, 1), (step, said)  # what is cached has fewer steps
        else:
            assert status in (0, 1, 2), (step, said)
            assert "Traceback" not in said
            assert "internal error" not in said
        now = contents(outputs)
        for file, content in now.items():
            assert content in (whole.get(file), marks.get(file)), (step, file)
    status, said, _ = forked(line)
    assert status in (0, 1), said
    assert contents(outputs) == whole
