"""``make pictures`` takes every picture that the pages show."""

from __future__ import annotations

import os
import subprocess
import sys

import screenshots


def taken(folder, **environment):
    """The script in a process of its own: it opens a browser, and the tests beside it have one open already."""
    command = [sys.executable, screenshots.ROOT / "tools" / "screenshots.py", folder]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_every_picture_is_taken(tmp_path):
    done = taken(tmp_path)
    assert done.returncode == 0, done.stderr
    assert {file.name for file in tmp_path.iterdir()} == set(screenshots.SHOTS)
    for file in tmp_path.iterdir():
        content = file.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert int.from_bytes(content[16:20], "big") >= 900  # as wide as a page, not an empty part of it
        assert int.from_bytes(content[20:24], "big") >= 300


def test_without_a_browser_it_says_what_to_install(tmp_path):
    done = taken(tmp_path, PATH=str(tmp_path), ANEFORGE_CHROMIUM="")
    assert done.returncode == 2
    assert "apt-get install chromium" in done.stderr
    assert "Traceback" not in done.stderr
