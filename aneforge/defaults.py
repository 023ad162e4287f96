"""What functions and commands take where the user says nothing. One table for both, so that they cannot differ."""

from __future__ import annotations

__all__ = ["DEFAULT_CHIPS"]

DEFAULT_CHIPS = {
    "check": "m1..m6",
    "compare": "m1,m2,m5",
    "compress": "m1,m2,m5",
    "diverges": "m1,m5",
    "estimate": "m1..m6",
    "gradcheck": "m1",
    "partition": "m1",
    "plan": "m1",
    "probe": "m1",
    "report": "macs,phones",
    "risks": "m1",
    "run": "m1",
    "serve": "macs,phones",
    "sweep": "macs,phones",
    "train": "m1",
    "validate": "m1..m6",
}
"""The chips of each function and command where none are named. A compiled model stands for its own chip in ``run``,
``risks`` and ``partition``, which look at one chip."""
