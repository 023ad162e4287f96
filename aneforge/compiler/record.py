"""What a compile did to a user's node beyond emitting it: one record for each rewrite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aneforge.compiler.legal.bounds import Bound
from aneforge.compiler.legal.table import Rewrite, rewrite


@dataclass(frozen=True)
class Record:
    """One node and the row of the table that was applied to it."""

    node: str
    rewrite: str
    bound: Bound
    """How far the form that was emitted may be from the op it replaces."""

    @property
    def row(self) -> Rewrite:
        return rewrite(self.rewrite)

    def __str__(self) -> str:
        return f"{self.node}: {self.rewrite} ({self.row.into}); {self.bound}"

    def to_json(self) -> dict[str, Any]:
        return {"node": self.node, "rewrite": self.rewrite, "pass": self.row.run_by, "bound": str(self.bound)}
