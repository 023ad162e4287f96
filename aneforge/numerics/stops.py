"""Where the analysis of ranges stopped: results that nothing bounds, and how much of the program is behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aneforge.numerics.rules import has_rule
from aneforge.numerics.transfer import Walk

_SHOWN = 5


@dataclass(frozen=True)
class Stop:
    """One node whose result nothing bounds, and why."""

    node: str
    op: str
    reason: str
    behind: int
    """The layers that read it, directly or through others, and were therefore not looked at."""

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Coverage:
    """How much of a program was looked at."""

    layers: int
    covered: int
    stops: tuple[Stop, ...] = ()

    @property
    def complete(self) -> bool:
        return self.covered == self.layers

    def __add__(self, other: Coverage) -> Coverage:
        return Coverage(self.layers + other.layers, self.covered + other.covered, self.stops + other.stops)

    def to_json(self) -> dict[str, Any]:
        return {"layers": self.layers, "covered": self.covered, "stops": [stop.to_json() for stop in self.stops]}

    def __str__(self) -> str:
        if self.complete:
            return ""
        missed = self.layers - self.covered
        lines = [f"not covered: {missed} of {self.layers} layers, which read a result without known bounds"]
        lines += [
            f"  stopped at {stop.node} ({stop.op}), {stop.behind} layer{'s' if stop.behind > 1 else ''} behind it: "
            f"{stop.reason}"
            for stop in self.stops[:_SHOWN]
        ]
        if len(self.stops) > _SHOWN:
            lines.append(f"  and {len(self.stops) - _SHOWN} more (--json lists all)")
        return "\n".join(lines)


def coverage_of(walked: Walk) -> Coverage:
    """The ops whose operands are bounded are covered; a stop is the first op of a chain that is not."""
    at_risk = {(risk.node, risk.op) for risk in walked.risks}
    layers = covered = 0
    stop_of: dict[Any, int] = {}
    stops: list[list[Any]] = []
    for op in walked.module.ops:
        if op.kind == "live_out":
            continue
        counts = op.layer is not None and bool(op.sources)
        unbounded = [operand for operand in op.operands if walked.values[operand].special]
        layers += counts
        covered += counts and not unbounded
        if unbounded:
            number = next((stop_of[operand] for operand in unbounded if operand in stop_of), None)
            if number is not None:
                stops[number][3] += counts
                stop_of[op] = number
        elif walked.values[op].special and op.kind != "const_in":
            node = op.sources[-1] if op.sources else str(op.attrs.get("name", op.kind))
            if (node, op.kind) in at_risk:
                reason = "it can lose numbers (listed above)"
            elif has_rule(op):
                reason = "its result can leave fp16 within these ranges"
            else:
                reason = f"no rule bounds {op.attrs['type'] if op.kind == 'unit' else op.kind}"
            stop_of[op] = len(stops)
            stops.append([node, op.kind, reason, 0])
    found = sorted((Stop(*stop) for stop in stops if stop[3]), key=lambda stop: -stop.behind)
    return Coverage(layers, covered, tuple(found))
