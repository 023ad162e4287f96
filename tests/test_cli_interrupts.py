"""Ctrl-C: a real SIGINT in the middle of the work and in the middle of writing. Status 130, nothing half-written, the
old file as it was, and no traceback."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import aneforge as af

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as on Unix")

NET = """
import time
from pathlib import Path
import numpy as np
import aneforge as af

x = af.input((1, 8, 8, 8), name="x", max_abs=4)
out = af.conv(x, np.random.default_rng(0).normal(0, 0.1, (32, 8, 3, 3))).relu().named("conv_0")
loss = (x * af.parameter(np.full((1, 8, 8, 8), 0.5), name="w")).mean()


def slow():
    Path("reached").touch()
    time.sleep(60)
"""

# The program, with a disk that takes a minute to sync: that is where a signal finds it in the middle of a write.
SLOW_DISK = """
import os, time
from pathlib import Path

def fsync(handle):
    Path("reached").touch()
    time.sleep(60)

os.fsync = fsync
from aneforge.cli import main
main()
"""
WRITES = {
    "compile folder": "compile net.py --out OUT",
    "compile hwx": "compile net.py --out OUT.hwx",
    "compile anef": "compile net.py --out OUT.anef",
    "export netplist": "export net.py --out OUT.plist --overwrite",
    "export package": "export net.py --out OUT.mlpackage --overwrite",
    "compress": "compress net.py --target m2 --runtimes coreml --out OUT.aneforge",
    "tune": "tune net.py --out OUT.aneforge",
    "risks": "risks net.py --out OUT.aneforge",
    "run": "run net.py --out OUT.npz",
    "plan": "plan net.py --out OUT.json",
    "plot": "plot net.py chips --target m1 --out OUT.svg",
    "lower": "lower net.py --out OUT.mlir",
    "report": "report net.py --target m1 --changes 0 --out OUT.html",
    "ci": "ci record net.py --target m1 --skip numerics --baseline OUT.json",
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(af.__file__).parents[1]), prepend=os.pathsep)
    Path("net.py").write_text(NET)
    return tmp_path


def interrupted(*words: str) -> subprocess.CompletedProcess[str]:
    """A process that gets SIGINT once it has said where it is."""
    process = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    reached = Path("reached")
    while not reached.exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert reached.exists(), err
    reached.unlink()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", WRITES)
def test_an_interrupt_in_the_middle_of_a_write_leaves_what_was_there(name, home):
    if name == "export package" and find_spec("coremltools") is None:
        pytest.skip("packages are written with coremltools")
    line = WRITES[name].replace("OUT", "new")
    before = contents(home)
    done = interrupted("-c", SLOW_DISK, *shlex.split(line))
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert contents(home) == before
    assert {file.name for file in home.iterdir()} == {"net.py"}


@pytest.mark.parametrize("name", ["compile anef", "export netplist", "compress", "report"])
def test_an_interrupt_keeps_the_old_file(name, home):
    line = WRITES[name].replace("OUT", "old")
    out = Path(shlex.split(line)[-1] if "--overwrite" not in line else "old.plist")
    out.write_bytes(b"what was there")
    before = contents(home)
    done = interrupted("-c", SLOW_DISK, *shlex.split(line))
    assert done.returncode == 130, done.stderr
    assert contents(home) == before


@pytest.mark.parametrize(
    "line",
    [
        "check net.py:slow",
        "compile net.py:slow --out new.hwx",
        "export net.py:slow --out new.plist",
        "compress net.py:slow --out new.aneforge",
        "report net.py:slow -o new.html",
        "estimate net.py:slow",
        "ci record net.py:slow",
    ],
)
def test_an_interrupt_in_the_middle_of_the_work_is_quiet(line, home):
    done = interrupted("-m", "aneforge", *shlex.split(line))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert {file.name for file in home.iterdir()} == {"net.py"}


def test_an_interrupted_training_leaves_a_checkpoint_that_goes_on(home):
    np.savez("data.npz", x=np.ones((4, 8, 8, 8), np.float32))
    words = "train net.py:loss --data data.npz --out run.ckpt --steps"
    script = SLOW_DISK.partition("def fsync")[0] + (
        "from aneforge.train.trainer import Trainer\n"
        "step = Trainer.step\n"
        "def slow(self, **arrays):\n"
        "    if self.steps == 2:\n"
        "        Path('reached').touch()\n"
        "        time.sleep(60)\n"
        "    return step(self, **arrays)\n"
        "Trainer.step = slow\n"
        "from aneforge.cli import main\n"
        "main()\n"
    )
    done = interrupted("-c", script, *words.split(), "5")
    assert done.returncode == 130
    assert done.stderr == "interrupted after step 2; --resume run.ckpt continues from there\n"
    assert {file.name for file in home.iterdir()} == {"net.py", "data.npz", "run.ckpt"}
    again = [sys.executable, "-m", "aneforge", *words.split(), "5", "--resume", "run.ckpt"]
    resumed = subprocess.run(again, check=True, capture_output=True, text=True)
    assert resumed.stdout.startswith("3 steps, ")
