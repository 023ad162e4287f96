"""The README is one screen: what it is, how to install it, one example, what the labels mean, and where to go.

``test_docs_commands.py`` runs its commands, ``test_docs.py`` follows its links.
"""

from __future__ import annotations

import re
from pathlib import Path

import aneforge as af

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_it_is_one_screen():
    assert len(README.splitlines()) <= 60


def test_it_has_the_parts_that_a_newcomer_looks_for():
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == [
        "Install",
        "One example",
        "What the labels mean",
        "Where to go",
    ]
    assert README.count("```console") == 1


def test_it_explains_the_statuses_of_an_op():
    """The names come from the code, so that a new one is explained here too."""
    (row,) = [line for line in README.splitlines() if line.startswith("| an op on a chip")]
    statuses = af.preflight(af.input((1, 4, 8, 8)).relu(), "M1").counts
    assert all(f"*{status}*" in row for status in statuses)
    assert len(statuses) == 7


def test_it_explains_every_label_of_a_simulated_number():
    from aneforge.sim.fidelity import FIDELITIES

    assert all(f"*{label}*" in README for label in FIDELITIES)


def test_it_explains_every_confidence():
    from aneforge.chips.evidence import CONFIDENCE

    assert all(f"*{label}*" in README for label in (*CONFIDENCE, "unknown"))
