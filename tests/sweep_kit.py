"""Small models for the tests of sweeps, as Python files that say what they do when they are read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NET = """
import numpy as np
import aneforge as af

x = af.input((1, {channels}, 8, 8), name="x")
out = af.conv(x, np.full(({channels}, {channels}, 1, 1), 0.1)).relu()
"""


def write_net(file: Path, channels: int = 4, before: str = "", padding: int = 0) -> Path:
    """A network of one convolution; ``padding`` makes the file larger, and so its turn earlier."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{before}\n{NET.format(channels=channels)}{'#' * padding}\n")
    return file


def write_zoo(folder: Path) -> list[str]:
    """Four models: one of them is refused, and two are the same graph in different files."""
    shutil.copy(ROOT / "examples" / "detector.onnx", folder)
    write_net(folder / "net.py")
    write_net(folder / "same.py", before="# other words")
    (folder / "bad.onnx").write_text("hello")
    return ["detector.onnx", "net.py", "same.py", "bad.onnx"]


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "aneforge", *map(str, words)]


def run(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """The command in a process of its own."""
    return subprocess.run(
        command(*words), check=False, capture_output=True, text=True, cwd=cwd, env=environment(), timeout=300
    )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}
