"""A graph that a target cannot take: what, where, which rule, and who refused."""

from __future__ import annotations

from aneforge.anec.ir import Op
from aneforge.errors import AneforgeError

__all__ = ["CompileError", "Refused"]


class CompileError(AneforgeError, ValueError):
    """No program results. ``sources`` names the user's nodes, ``reject`` holds the compiler's own words if known."""

    def __init__(
        self, target: str, refused_by: str, reason: str, sources: tuple[str, ...] = (), reject: str | None = None
    ) -> None:
        self.target, self.refused_by, self.reason = target, refused_by, reason
        self.sources, self.reject = sources, reject
        said = f'; the compiler says "{reject}"' if reject and reject not in reason else ""
        where = f"{', '.join(sources)}: " if sources else ""
        super().__init__(f"{where}{reason}{said} (target {target}, refused by {refused_by})")


class Refused(AneforgeError, ValueError):  # noqa: N818 - caught by the pass manager, which names the pass
    """Raised inside a pass: this op cannot be made legal on this target."""

    def __init__(self, op: Op, reason: str, reject: str | None = None) -> None:
        self.op, self.reason, self.reject = op, reason, reject
        super().__init__(reason)
