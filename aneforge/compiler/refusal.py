"""A graph that a target cannot take: what, where, which rule, and who refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aneforge.chips.evidence import Fact
from aneforge.compiler.legal.findings import Finding, PlacementFinding, is_oversize
from aneforge.compiler.legal.rules.base import CHIP, RULES
from aneforge.engine.ir import Op
from aneforge.errors import AneforgeError
from aneforge.graph.node import located

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


@dataclass(frozen=True)
class Refusal:
    """One node that a target does not take, and the rule that says so."""

    node: str
    rule: str
    message: str = ""
    """One sentence for people, with a mark where the chip's name belongs; empty where the findings say it."""
    oversize: bool = False
    findings: tuple[Finding, ...] = ()
    """What the rules of phase 0 said; empty for what a later phase refuses."""
    reject: str | None = None
    """The vendor's own words, where they are known."""
    sources: tuple[str, ...] = ()
    """All nodes that went into what was refused, where a fused op was."""
    place: tuple[str, tuple[int, ...], tuple[str, int] | None] | None = None
    """The op, its shape and the user's line."""
    follows: bool = False
    """Whether the program was full before: the node would run in one that begins earlier."""

    @classmethod
    def by_rules(cls, name: str, node: Tensor, findings: tuple[Finding, ...]) -> Refusal:
        first = findings[0]
        string = first.string if isinstance(first, PlacementFinding) else ""
        place = node.op, node.shape, node.where
        return cls(name, first.rule, "", is_oversize(findings), findings, string or None, (name,), place)

    @cached_property
    def reason(self) -> str:
        """The whole sentence: where it is, what the rules say, what to do, and who says so."""
        if self.message or self.place is None:
            return self.message
        first, (op, shape, where) = self.findings[0], self.place
        message = " ".join(f"{finding.message.rstrip('.')}." for finding in self.findings if finding.message)
        hint = f" {first.hint[0].upper()}{first.hint[1:].rstrip('.')}." if first.hint else ""
        return f"{op} {list(shape)} at {located(where)}: {message}{hint} {first.evidence.label()}"

    @property
    def ends_program(self) -> bool:
        """Whether the node itself runs, in a program that begins with it or before it."""
        return self.rule in RULES and RULES[self.rule].of_program

    def of(self, node: str) -> Refusal:
        """The same of a node that is alike."""
        return replace(self, node=node, sources=(node,))

    def on(self, chip: str) -> Refusal:
        """The same with the chip's name filled in."""
        findings = tuple(finding.on(chip) for finding in self.findings)
        return replace(self, message=self.message.replace(CHIP, chip), findings=findings)


class RefusedNodes(AneforgeError, ValueError):  # noqa: N818 - caught by the pass manager, which names the pass
    """Raised inside a pass: nodes that cannot be made legal on this target."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        self.refusals = tuple(refusals)
        super().__init__(refusals[0].reason)


class Refused(AneforgeError, ValueError):  # noqa: N818 - caught by the pass manager, which names the pass
    """Raised inside a pass: this op cannot be made legal on this target. ``rule`` names why, as in phase 0."""

    def __init__(
        self,
        op: Op,
        rule: str,
        reason: str,
        reject: str | None = None,
        oversize: bool = False,
        findings: tuple[Finding, ...] = (),
        follows: bool = False,
    ) -> None:
        self.op, self.rule, self.reason, self.reject, self.oversize = op, rule, reason, reject, oversize
        self.findings = findings
        """What the validators said, where they refuse it."""
        self.follows = follows
        """Whether the program was full before this op."""
        super().__init__(reason)


class RefusedOps(AneforgeError, ValueError):  # noqa: N818 - caught by the pass manager, which names the pass
    """Raised inside a pass: every op that it refuses, once it is through with the others."""

    def __init__(self, refused: Sequence[Refused]) -> None:
        self.refused = tuple(refused)
        super().__init__(refused[0].reason)


class CompileError(AneforgeError, ValueError):
    """No program results. The message tells the first of ``refusals``; ``refused_by`` is the pass that refused."""

    def __init__(self, target: str, refused_by: str, refusals: Sequence[Refusal], route: str = "") -> None:
        self.target, self.refused_by = target, refused_by
        self.route = route
        """``conversion`` or ``direct``, where a chip is reached by more than one or not by the usual one."""
        self.unnamed = tuple(refusals)
        first = refusals[0].on(target)
        self.reason, self.reject, self.rule = first.reason, first.reject, first.rule
        self.sources = first.sources
        quote = f'; the compiler says "{first.reject}"' if first.reject and first.reject not in first.reason else ""
        where = f"{', '.join(first.sources)}: " if first.sources else ""
        more = len(refusals) - 1
        others = f" and {more} more node{'s' if more > 1 else ''}" if more else ""
        by = f" by the {route} route" if route else ""
        super().__init__(f"{where}{first.reason}{quote} (target {target}{by}, refused by {refused_by}{others})")

    @cached_property
    def refusals(self) -> tuple[Refusal, ...]:
        """All of them, with the chip's name filled in."""
        return tuple(refusal.on(self.target) for refusal in self.unnamed)

    def on(self, target: str, route: str = "") -> CompileError:
        """The same refusal of another target whose facts agree."""
        return CompileError(target, self.refused_by, self.unnamed, route)

    @property
    def evidence(self) -> Fact[Any] | None:
        findings = self.refusals[0].findings
        return findings[0].evidence if findings else None
