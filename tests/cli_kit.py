"""The program in the process of the tests: as a user calls it, a hundred times faster than a process of its own."""

from __future__ import annotations

import shlex
import sys

import aneforge.cli
from aneforge.cli import say


def run(line: str, monkeypatch, capsys) -> tuple[int, str, str]:
    """``check net.py --target m1`` as typed behind ``aneforge``: status, stdout and stderr."""
    say.set_voice()
    monkeypatch.setattr(sys, "argv", ["aneforge", *shlex.split(line)])
    status = aneforge.cli._status()
    say.set_voice()
    told = capsys.readouterr()
    return status, told.out, told.err
