"""What is said of one op on one chip. Two kinds: its numbers may be wrong, or it cannot be placed as it is.

A finding about *numbers* never stops a program: it has the limit, how far the data can reach, and what that rests on.
A finding about *placement* says that a compiler refuses the op, rewrites it, or that a runtime keeps it off the
engine; its limit is a number, a set of allowed values, or the name of a structure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from aneforge.chips.evidence import Fact
from aneforge.compiler.legal.rules.base import CHIP, OneOf, Structure

VERDICTS = ("decompose", "wrong_result", "unknown", "cpu", "reject")
"""The words for what findings mean, in ascending weight: the verdict on an op is that of its worst finding."""
EFFECTS = ("decompose", "unknown", "off-engine", "reject")
"""What a finding about placement does to an op: it is rewritten, nobody knows whether it runs, a runtime keeps it off
the engine, or no program results."""

PROMISED, WORST_CASE, ANY_FINITE, ANY_DATA = "promised", "worst case", "any finite input", "any data"
BASES = {
    PROMISED: "what the inputs promise",
    WORST_CASE: "bounds on sums, one behind another, which may never be reached",
    ANY_FINITE: "an input that nobody bounded: any finite number",
    ANY_DATA: "no range: any data show it",
}
"""What a finding about numbers rests on. A promise is ``max_abs``, bytes, a clip, a softmax and the like."""

Threshold = float | tuple[int, ...] | OneOf | Structure
"""A limit of placement: a number (or one for each axis), the values that are taken, or what the op has to be like."""

F = TypeVar("F", bound="Finding")


@dataclass(frozen=True)
class Finding:
    """One reason, ready to show to a user. Its class says what it is about."""

    rule: str
    message: str
    evidence: Fact[Any]
    hint: str = ""
    runtimes: tuple[str, ...] = ()
    """The runtimes that it is about; empty for all. The message names them."""
    stage: str = "validator"
    """The layer that answers, one of ``STAGES``."""
    route: str = "conversion"
    """The route that was asked about."""
    since: str = field(default="", kw_only=True)
    """The first system that shows it, for instance ``27.2``; empty where no system is known to matter."""

    @property
    def verdict(self) -> str:
        """What it means for the op, one of ``VERDICTS``."""
        raise NotImplementedError

    def on(self: F, chip: str) -> F:
        """The same with the chip's name filled in."""
        return replace(self, message=self.message.replace(CHIP, chip)) if CHIP in self.message else self

    def __str__(self) -> str:
        return f"{self.message} {self.evidence.label()}" + (f"; {self.hint}" if self.hint else "")

    def to_json(self) -> dict[str, Any]:
        words = ("rule", "verdict", "stage", "route", "message", "hint")
        record = {word: getattr(self, word) for word in words} | {"evidence": self.evidence.to_json()}
        systems = {"since": self.since} if self.since else {}
        return {**record, **({"runtimes": list(self.runtimes)} if self.runtimes else {}), **systems}


@dataclass(frozen=True)
class NumberFinding(Finding):
    """Numbers that may be wrong where the op runs."""

    limit: float = 0.0
    """What the chip holds, or computes rightly; 0 where every number may be wrong."""
    reaches: float = math.inf
    """How far the data can reach; infinite where nothing bounds it."""
    basis: str = ANY_DATA
    """What that rests on, one of ``BASES``."""

    @property
    def verdict(self) -> str:
        return "wrong_result"

    def to_json(self) -> dict[str, Any]:
        reaches = self.reaches if math.isfinite(self.reaches) else None
        return {**super().to_json(), "limit": self.limit, "reaches": reaches, "basis": self.basis}


@dataclass(frozen=True)
class PlacementFinding(Finding):
    """An op that a compiler refuses or rewrites, or that a runtime keeps off the engine."""

    effect: str = "reject"
    """One of ``EFFECTS``."""
    limit: Threshold | None = None
    extent: Any = None
    """What met the limit."""
    oversize: bool = False
    """Whether only an extent is too large, so that the op would run in smaller pieces."""
    string: str = ""
    """The compiler's own words with their places filled in, where they are published."""

    @property
    def verdict(self) -> str:
        return "cpu" if self.effect == "off-engine" else self.effect

    def to_json(self) -> dict[str, Any]:
        limit = self.limit.to_json() if isinstance(self.limit, (OneOf, Structure)) else self.limit
        words = ("effect", "extent", "oversize", "string")
        return {**super().to_json(), **{word: getattr(self, word) for word in words}, "limit": limit}


def is_rejected(findings: Iterable[Finding]) -> bool:
    """Whether a finding leaves no program."""
    return any(finding.verdict == "reject" for finding in findings)


def is_oversize(findings: Iterable[Finding]) -> bool:
    """Whether only extents speak against an op, so that it would run in smaller pieces."""
    placements = (finding for finding in findings if isinstance(finding, PlacementFinding))
    refusals = [finding for finding in placements if finding.effect == "reject"]
    return bool(refusals) and all(finding.oversize for finding in refusals)
