"""The first minute: ``examples/demo.py`` tells one story in a screen or two, by the commands themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from aneforge.formats.arguments import chips_of

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def run(script: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.fixture(scope="module")
def demo():
    return run(EXAMPLES / "demo.py")


def test_the_demo_ends_well_and_says_nothing_else(demo):
    assert (demo.returncode, demo.stderr) == (0, "")


def test_the_demo_fits_into_sixty_lines_of_a_hundred_columns(demo):
    lines = demo.stdout.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 100


def test_the_demo_asks_answers_and_says_where_to_read_more(demo):
    lines = demo.stdout.splitlines()
    questions = [line for line in lines if re.match(r"\d\. ", line)]
    commands = [line for line in lines if line.startswith("$ aneforge ")]
    assert len(questions) == len(commands) == 7
    assert all(line.endswith("?") for line in questions)
    assert all("examples/detector.onnx" in line or "fixed.aneforge" in line for line in commands)
    *_, last = demo.stdout.strip().split("\n\n")
    named = re.findall(r"docs/[\w./]*\w", last.partition("Read more: ")[2])
    assert named == ["docs/start.md", "docs/tutorial"]
    assert all((ROOT / name).exists() for name in named)


def test_the_demo_ends_with_a_page_to_open(demo):
    address = next(line for line in demo.stdout.splitlines() if line.startswith("Open in a browser: "))
    page = Path(url2pathname(urlsplit(address.removeprefix("Open in a browser: ")).path))
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html>")
    for name in chips_of(None):
        assert f'id="chip-{name.lower().replace(" ", "-")}"' in text


def test_the_demo_shows_lines_that_the_command_prints(demo):
    command = [sys.executable, "-m", "aneforge", "estimate", "examples/detector.onnx", "--target", "m2,m3,m5,m6"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    rows = [line for line in printed.splitlines() if re.match(r"M\d +\d", line)]
    assert len(rows) == 4
    assert all(line in demo.stdout.splitlines() for line in rows)


def test_a_failed_command_ends_the_demo(tmp_path):
    """A command that ends otherwise than expected ends the demo with what it printed."""
    broken = (EXAMPLES / "demo.py").read_text(encoding="utf-8").replace("detector.onnx", "no-such-file.onnx")
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "demo.py").write_text(broken, encoding="utf-8")
    ended = run(tmp_path / "examples" / "demo.py")
    assert ended.returncode == 1
    assert "no-such-file.onnx" in ended.stderr


@pytest.mark.long
def test_the_tour_ends_well():
    tour = run(EXAMPLES / "tour.py")
    assert tour.returncode == 0, tour.stderr
    assert "m6" in tour.stdout


def test_the_example_model_is_small_and_is_what_its_script_writes():
    onnx = pytest.importorskip("onnx")
    sys.path.insert(0, str(EXAMPLES))
    try:
        from write_detector_onnx import Detector
    finally:
        sys.path.remove(str(EXAMPLES))
    file = EXAMPLES / "detector.onnx"
    assert file.stat().st_size < 500_000
    assert Detector().build() == onnx.load(str(file))
