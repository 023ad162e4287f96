"""What a search found: every candidate with its estimate, its error and why it was kept or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aneforge import text
from aneforge.advice.proposals import Figure
from aneforge.chips.chip import Target
from aneforge.chips.names import chip_label
from aneforge.graph.graph import Graph
from aneforge.text import short, some, wrapped


@dataclass(frozen=True)
class Candidate:
    """One change that was weighed: in some places of the graph, on top of what was kept before it."""

    name: str
    kind: str
    nodes: tuple[str, ...]
    """The user's nodes that it builds another way."""
    kept: bool
    why: str
    estimate: Figure | None = None
    """Of the whole program; None where it was not compiled."""
    error: float | None = None
    """The largest difference from the untouched program in the simulator, relative to the largest number of that
    output; None where it was not simulated."""
    same_bits: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Tuning:
    """The result of a search on one target: the chosen graph, and how it was chosen. Nothing was timed."""

    target: Target
    graph: Graph
    """The chosen one; the very graph that was given where nothing better was found."""
    untouched: Figure
    best: Figure
    candidates: tuple[Candidate, ...]
    tried: int
    """How many candidates were compiled and, where they were faster, simulated."""
    mode: str
    """How the simulator compared: ``exact``, or ``fast`` for a large graph."""
    error: float
    """Of the chosen graph against the untouched one."""
    fitted: bool
    """Whether the estimates rest on measurements of this very target."""
    in_part: str = ""
    """How much of the model is on the engine, where it is not all. The estimates are those of all parts together."""

    @property
    def kept(self) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in self.candidates if candidate.kept)

    @property
    def speedup(self) -> float:
        """By the estimate; 1.0 where nothing better was found."""
        return self.untouched.us / self.best.us

    @property
    def beyond_doubt(self) -> bool:
        """Whether the two intervals lie apart. Where they overlap, the gain is the model's ranking and no more."""
        return self.best.interval[1] < self.untouched.interval[0]

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.name,
            "in_part": self.in_part or None,
            "untouched": self.untouched.to_json(),
            "best": self.best.to_json(),
            "speedup": self.speedup,
            "beyond_doubt": self.beyond_doubt,
            "fitted": self.fitted,
            "error": self.error,
            "mode": self.mode,
            "tried": self.tried,
            "candidates": [candidate.to_json() for candidate in self.candidates],
        }

    def __str__(self) -> str:
        return self.text()

    def text(self, everything: bool = False) -> str:
        """The candidates that were tried, and the outcome; ``everything`` also lists those that were not tried."""
        tried = [candidate for candidate in self.candidates if candidate.estimate is not None]
        headers = ("candidate", "kind", "nodes", "us", "from", "to", "error", "verdict")
        rows = self._rows(self.candidates if everything else tried)
        lines = [text.columns(headers, rows, fit=True), ""]
        if len(tried) < len(self.candidates) and not everything:
            left = f"{len(self.candidates) - len(tried)} more were weighed and not tried"
            lines += [wrapped(f"{left}: {self._untried()}"), ""]
        if self.in_part:
            lines += [wrapped(f"{self.in_part}; the times are those of all parts, the host's among them"), ""]
        return "\n".join([*lines, wrapped(self.summary())])

    def _untried(self) -> str:
        """Why the rest was left, and how often."""
        reasons: dict[str, int] = {}
        for candidate in self.candidates:
            if candidate.estimate is None:
                why = candidate.why.split(":")[0]
                reasons[why] = reasons.get(why, 0) + 1
        return ", ".join(f"{why} ({count})" for why, count in sorted(reasons.items(), key=lambda item: -item[1]))

    def summary(self) -> str:
        """The outcome in one or two sentences."""
        chip = chip_label(self.target.name)
        basis = "fitted to measurements of this chip" if self.fitted else "extrapolated from another chip"
        if not self.kept:
            return (
                f"{chip}: nothing better was found; the graph stays as it is, "
                f"{self.untouched.us:,.0f} us by estimate ({basis})."
            )
        doubt = "" if self.beyond_doubt else " The intervals of the two overlap: it is a ranking, not a measurement."
        return (
            f"{chip}: {self.untouched.us:,.0f} us becomes {self.best.us:,.0f} us by estimate ({basis}), "
            f"{self.speedup:.2f} times faster; largest error {_error(self.error)} ({self.mode}).{doubt}"
        )

    def _rows(self, shown: Sequence[Candidate]) -> list[tuple[str, ...]]:
        rows = [("untouched", "-", "-", *_figures(self.untouched), "-", "reference")]
        for candidate in shown:
            error = "same bits" if candidate.same_bits else _error(candidate.error)
            rows.append(
                (
                    candidate.name,
                    candidate.kind,
                    _short(candidate.nodes),
                    *_figures(candidate.estimate),
                    error,
                    candidate.why,
                )
            )
        return rows


def _figures(figure: Figure | None) -> tuple[str, str, str]:
    if figure is None:
        return "-", "-", "-"
    low, high = figure.interval
    return f"{figure.us:.1f}", f"{low:.1f}", f"{high:.1f}"


def _error(error: float | None) -> str:
    if error is None:
        return "-"
    return "0" if error == 0 else f"{error:.1e}"


def _short(nodes: Sequence[str]) -> str:
    return some([short(node, 20) for node in nodes], 1)
