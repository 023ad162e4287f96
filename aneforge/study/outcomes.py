"""What a chip does with a whole model, in words that every report uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WRONG = "numbers can be wrong"
FAIL_ON = "reject,oversize,unknown,risk"
"""What makes a check fail by default: all that is not a plain yes."""


GRADES = {
    "yes": "runs whole",
    "wrong": "runs whole, numbers can be wrong",
    "programs": "runs whole, in several programs",
    "unknown": "nobody has seen whether it runs",
    "part": "runs in part",
    "no": "does not run",
}
"""One word for each kind of verdict, for tables and colours."""


def grade_of(words: str) -> str:
    """The grade of a verdict in words, as :class:`Outcome` writes them; ``none`` of any other text."""
    head, comma, _ = words.partition(":")[0].partition(",")
    if head.startswith("in ") and head.endswith(" programs"):
        return "programs"
    kinds = {"yes": "wrong" if comma else "yes", "in part": "part", "unknown": "unknown", "no": "no"}
    return kinds.get(head, "none")


@dataclass(frozen=True)
class Outcome:
    """What runs on the engine of one chip, in how many programs, and whether its numbers hold."""

    kind: str
    """``yes`` (all of it runs), ``in part``, ``no``, or ``unknown`` where nobody has seen whether it runs."""
    on_engine: int
    ops: int
    programs: int = 1
    """How many programs it takes, because one would be too large."""
    wrong: int = 0
    """How many nodes can give wrong numbers."""

    @property
    def grade(self) -> str:
        """One of ``GRADES``."""
        return grade_of(str(self))

    @property
    def words(self) -> str:
        """The verdict without counts of ops, as baselines and sweeps keep it."""
        return str(self).partition(":")[0]

    def short(self) -> str:
        """The words for a table, which counts wrong numbers in a column of its own."""
        return str(self).partition(" ops on the engine")[0]

    def __str__(self) -> str:
        if self.kind == "in part":
            words = f"in part: {self.on_engine:,} of {self.ops:,} ops on the engine"
        elif self.kind == "yes" and self.programs > 1:
            words = f"in {self.programs} programs"
        else:
            words = self.kind
        return f"{words}, {WRONG}" if self.wrong else words

    def to_json(self) -> dict[str, Any]:
        counts = {"on_engine": self.on_engine, "ops": self.ops, "programs": self.programs, "wrong": self.wrong}
        return {"verdict": str(self), "grade": self.grade, **counts}
