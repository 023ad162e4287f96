"""How well a model fits the causes of a message: which findings, on one chip, show each of them.

A finding of the check settles more than a structure that is merely there, and that settles more than nothing. What no
model shows, such as a full disk, stays between what the model shows and what it lacks (U260).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from aneforge.chips.messages import Cause, CauseKind, Message, causes_of
from aneforge.chips.names import chip_label, with_label
from aneforge.compiler.legal.findings import Finding, PlacementFinding
from aneforge.compiler.legal.patterns import matched_patterns
from aneforge.compiler.legal.query import RUNTIME_LABELS
from aneforge.compiler.legal.rules.base import Structure
from aneforge.compiler.legal.table import REWRITES
from aneforge.study.preflight import STATUSES, OpReport, Preflight
from aneforge.study.structures import STRUCTURES
from aneforge.study.study import Study
from aneforge.text import plural

FITS = ("refused", "doubtful", "present", "not visible", "absent")
"""How well a model fits a cause, best first: a finding refuses a node or keeps it off the engine; a finding says that
nobody knows or that numbers can be wrong; the structure is there and runs, as it is or rewritten; no model can show
the cause; the model lacks it."""
FIT_WORDS = {
    "refused": "fits",
    "doubtful": "may fit",
    "present": "is in the model, and no finding refuses it",
    "not visible": "no model shows it",
    "absent": "the model shows none",
}
_OF_VERDICT = {"reject": "refused", "cpu": "refused", "unknown": "doubtful", "wrong_result": "doubtful"}
_COMMAND = re.compile(r"'(aneforge [^']{1,200})'")
_BEFORE_A_CALL = ("compile", "load", "placement", "convert")
_OPEN_SHAPES = "open-shapes"


@dataclass(frozen=True)
class Place:
    """A node that shows a cause."""

    node: str
    op: str
    shape: tuple[int, ...]
    finding: Finding | None = None

    def to_json(self) -> dict[str, Any]:
        finding = None if self.finding is None else self.finding.to_json()
        return {"node": self.node, "op": self.op, "shape": list(self.shape), "finding": finding}


def words_of(places: Sequence[Place]) -> str:
    """The first of some nodes with the rule that it meets, and how many more there are."""
    first = places[0]
    more = f" and {plural(len(places) - 1, 'more node')}" if len(places) > 1 else ""
    reason = "" if first.finding is None else f": {first.finding.rule}: {first.finding.message.rstrip('.')}"
    return f"{first.op} {first.node} {list(first.shape)}{more}{reason}"


@dataclass(frozen=True)
class FittedCause:
    """A cause of a message, and how well the model fits it."""

    cause: Cause
    of: str
    """The entry that names it."""
    fit: str
    """One of ``FITS``."""
    places: tuple[Place, ...] = ()
    commands: tuple[str, ...] = ()
    """Commands that change the model so, or that show more; only where the model fits."""
    gives: str = ""

    @property
    def words(self) -> str:
        """The node that fits, and why, in a sentence; empty where none does."""
        if not self.places:
            return ""
        return words_of(self.places)

    def to_json(self) -> dict[str, Any]:
        return {
            "rank": self.cause.rank,
            "cause": self.cause.text,
            "entry": self.of,
            "fit": self.fit,
            "kinds": [kind.name for kind in self.cause.kinds],
            "nodes": [place.to_json() for place in self.places],
            "commands": list(self.commands),
        }


class ModelFit:
    """A model on one chip, asked which causes of messages it shows."""

    def __init__(self, study: Study, path: str, chip: str, has_open_shapes: bool = False) -> None:
        self.chip, self.path, self._has_open_shapes = chip, path, has_open_shapes
        self.study = study
        self._preflight: Preflight = study.preflights()[chip]

    @property
    def label(self) -> str:
        """The chip and the system, for people."""
        return f"{chip_label(self.chip)}, system {self.study.os}"

    @cached_property
    def _findings(self) -> list[tuple[OpReport, Finding]]:
        reports = [report for status in STATUSES if status != "native" for report in getattr(self._preflight, status)]
        return [(report, self._named(finding)) for report in reports for finding in report.findings]

    def _named(self, finding: Finding) -> Finding:
        """With the name that people use for the chip in its message."""
        return replace(finding, message=with_label(finding.message, self.study.chips[self.chip]))

    def causes(self, message: Message) -> list[FittedCause]:
        """The causes of a message, those that the model fits best first."""
        fitted = [self._fitted(entry, cause) for entry, cause in causes_of(message)]
        return sorted(fitted, key=lambda each: (FITS.index(each.fit), each.of != message.id, each.cause.rank))

    def others(self, message: Message, fitted: Iterable[FittedCause]) -> list[Place]:
        """Nodes that the chip refuses for a reason that no cause of the entry names; none for what goes wrong in a
        call of a program that was compiled."""
        if message.stage not in _BEFORE_A_CALL:
            return []
        named = {(place.node, place.finding.rule) for cause in fitted for place in cause.places if place.finding}
        refused = [
            Place(report.name, report.op, tuple(report.shape), finding)
            for report, finding in self._findings
            if _OF_VERDICT.get(finding.verdict) == "refused" and _is_about_runtime(finding, message)
        ]
        return [place for place in refused if place.finding and (place.node, place.finding.rule) not in named]

    def _fitted(self, entry: Message, cause: Cause) -> FittedCause:
        if not cause.kinds:
            return FittedCause(cause, entry.id, "not visible")
        shown = [(fit, place, kind) for kind in cause.kinds for fit, place in self._shown_by(kind, entry)]
        if not shown:
            return FittedCause(cause, entry.id, "absent")
        best = min((fit for fit, _, _ in shown), key=FITS.index)
        chosen = [(place, kind) for fit, place, kind in shown if fit == best]
        places = tuple({place.node: place for place, _ in reversed(chosen)}.values())[::-1]
        kind = chosen[0][1]
        commands = tuple(dict.fromkeys((*self._from_hints(places), *self._filled(kind.commands))))
        return FittedCause(cause, entry.id, best, places, commands, kind.gives)

    @cached_property
    def _patterns(self) -> dict[str, list[Any]]:
        """The nodes that show each pattern, whether a rule of this chip speaks of it or not."""
        nodes: dict[str, list[Any]] = {}
        for match in matched_patterns(self.study.graph):
            nodes.setdefault(match.pattern, []).append(match.node)
        return nodes

    def _shown_by(self, kind: CauseKind, entry: Message) -> Iterator[tuple[str, Place]]:
        for report, finding in self._findings:
            if _is_shown_by(finding, kind) and _is_about_runtime(finding, entry):
                fit = _OF_VERDICT.get(finding.verdict, "present")
                yield fit, Place(report.name, report.op, tuple(report.shape), finding)
        for pattern in kind.patterns:
            yield from (("present", self._place(node)) for node in self._patterns.get(pattern, ()))
        if kind.structure == _OPEN_SHAPES:
            if self._has_open_shapes:
                yield from (("present", self._place(node)) for node in self.study.graph.inputs)
        elif kind.structure:
            yield from (("present", self._place(node)) for node in STRUCTURES[kind.structure](self.study.graph))

    def _place(self, node: Any) -> Place:
        return Place(self.study.names[node.uid], node.op, tuple(node.shape))

    def _from_hints(self, places: Iterable[Place]) -> Iterator[str]:
        """The commands that hints of findings name."""
        for place in places:
            if place.finding is not None:
                yield from self._filled(_COMMAND.findall(place.finding.hint))

    def _filled(self, commands: Iterable[str]) -> Iterator[str]:
        """Commands with the model and the chip that were asked about in their places."""
        values: Mapping[str, str] = {"MODEL": shlex.quote(self.path), "CHIP": shlex.quote(self.chip)}
        for command in commands:
            yield " ".join(values.get(word, word) for word in command.split(" "))


def _is_shown_by(finding: Finding, kind: CauseKind) -> bool:
    if kind.any_refusal:
        return finding.verdict in ("reject", "cpu")
    answered = REWRITES[finding.rule].rules if finding.rule in REWRITES else ()
    if not {finding.rule, *answered}.isdisjoint(kind.rules):
        return True
    limit = finding.limit if isinstance(finding, PlacementFinding) else None
    return isinstance(limit, Structure) and limit.name in kind.patterns


def _is_about_runtime(finding: Finding, entry: Message) -> bool:
    """Whether a finding about some runtimes only is about one that prints the message. A program of its own stands for
    all: what the engine itself refuses, every runtime meets."""
    if not finding.runtimes or "direct" in finding.runtimes or entry.runtime == "any":
        return True
    return any(RUNTIME_LABELS[name] in entry.runtime for name in finding.runtimes)
