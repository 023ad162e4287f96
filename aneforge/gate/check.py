"""``af.check``: what each chip will do with a model, and why; the report that ``aneforge check`` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aneforge.arguments import Chips, Source, chips_of, graph_of, model_name
from aneforge.defaults import DEFAULT_CHIPS
from aneforge.errors import ArgumentError
from aneforge.gate.preflight import OpReport, Preflight, preflights
from aneforge.graph.graph import Graph
from aneforge.output import text
from aneforge.output.by_chip import ByChip
from aneforge.targets.families import Family
from aneforge.targets.names import chip_label

__all__ = ["GRADES", "Check", "check"]

GRADES = ("reject", "oversize", "risk", "decompose")
"""The outcomes worth a reason, gravest first."""

_MOST_REASONS = 12
Paint = Callable[[str], str]


def check(
    model: Source,
    target: Chips = None,
    route: str = "conversion",
    fail_on: str = "reject,oversize",
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Check:
    """Check what each chip will do with a model: native, decomposed, rejected, too large, numerically risky, and why.

    ``target`` is m1..m6 where it is left out. ``route`` is how the program reaches a chip: ``conversion``, or
    ``direct`` (authored layers; the only one below A13). ``fail_on`` names the outcomes that make ``.ok`` false:
    some of reject, oversize, risk and decompose, separated by commas, or none. ``print`` shows the whole report;
    ``check(...)["m1"]`` is the report of one chip (:class:`Preflight`).
    """
    grades = _grades(fail_on)
    graph = graph_of(model, dims, function)
    results = preflights(graph, chips_of(target, DEFAULT_CHIPS["check"]), route)
    return Check(graph, results, route, grades, model_name(model))


class Check(ByChip[Preflight]):
    """The report of each chip on one model. ``ok`` is False where a chip does worse than allowed."""

    def __init__(
        self, graph: Graph, results: Mapping[str, Preflight], route: str, grades: Sequence[str], name: str
    ) -> None:
        super().__init__(results)
        self.graph = graph
        self.route = route
        self.fail_on = tuple(grades)
        self.model = name

    @property
    def failed(self) -> list[str]:
        """The chips on which an outcome of ``fail_on`` occurs."""
        return [name for name, result in self.items() if any(result.counts[grade] for grade in self.fail_on)]

    @property
    def ok(self) -> bool:
        return not self.failed

    @property
    def doubts(self) -> list[str]:
        """What makes numbers doubtful although everything runs: tables that are fits, sums of many squares."""
        from aneforge.numerics.doubts import doubts_of_graph  # here, because the simulator is heavy

        return doubts_of_graph(self.graph, {chip_label(name): result.target for name, result in self.items()})

    def to_json(self) -> dict[str, Any]:
        head = {"model": self.model, "ok": self.ok, "failed": self.failed, "route": self.route, "doubts": self.doubts}
        return {**head, **super().to_json()}

    def __str__(self) -> str:
        return self.text()

    def text(self, paint: Paint = str) -> str:
        """The report as text; ``paint`` colours the word for an outcome."""
        count = f"{len(self.graph.operations)} operations, {len(self.graph.weights)} stored weights{self._by_route()}"
        parts = [f"{count}\n\n{self._table()}", *self._reasons(paint)]
        if doubts := self.doubts:
            parts.append("\n".join(f"doubtful: {doubt}" for doubt in doubts))
        if failed := self.failed:
            parts.append(f"fails on {', '.join(self.fail_on)}: {', '.join(failed)}")
        return "\n\n".join(parts)

    def _by_route(self) -> str:
        """The route, where not every chip takes it."""
        routes = {result.route for result in self.values()}
        below = any(result.family is Family.OLDER for result in self.values())
        return f"; by the {routes.pop()} route" if len(routes) == 1 and (below or routes == {"direct"}) else ""

    def _table(self) -> str:
        rows: list[tuple[Any, ...]] = []
        for labels, result in self._groups():
            counts = result.counts
            cells = [counts[grade] or "-" for grade in ("native", "decompose", "reject", "oversize", "risk")]
            first, *rest = textwrap.wrap(", ".join(labels), 46)
            rows.append((first, _runs(result), *cells))
            rows += [(f"  {line}", "", "", "", "", "", "") for line in rest]
        return text.columns(("chips", "runs", "native", "decompose", "reject", "oversize", "risk"), rows)

    def _groups(self) -> list[tuple[list[str], Preflight]]:
        """Chips with the same outcome share a line."""
        groups: dict[str, tuple[list[str], Preflight]] = {}
        for name, result in self.items():
            reports = ((grade, report) for grade in GRADES for report in _reports(result, grade))
            key = repr([(grade, report.name, report.rule, report.message) for grade, report in reports])
            key = key.replace(result.target.name, "?") + repr(result.counts)
            groups.setdefault(key, ([], result))[0].append(chip_label(name))
        return list(groups.values())

    def _reasons(self, paint: Paint) -> Iterator[str]:
        """Each reason once, with the nodes and chips it concerns."""
        for grade in GRADES:
            reasons: dict[tuple[str, str], tuple[OpReport, list[str], list[str]]] = {}
            for name, result in self.items():
                for report in _reports(result, grade):
                    key = (report.rule or report.op, report.message.replace(result.target.name, "?"))
                    _, nodes, chips = reasons.setdefault(key, (report, [], []))
                    if report.name not in nodes:
                        nodes.append(report.name)
                    if name not in chips:
                        chips.append(name)
            for report, nodes, chips in list(reasons.values())[:_MOST_REASONS]:
                yield "\n".join(_reason(report, paint(grade), nodes, chips))
            if len(reasons) > _MOST_REASONS:
                yield f"{grade}: {len(reasons) - _MOST_REASONS} more reasons (--json lists all)"


def _grades(fail_on: str) -> tuple[str, ...]:
    grades = tuple(part.strip() for part in fail_on.split(",") if part.strip())
    unknown = [grade for grade in grades if grade not in (*GRADES, "none")]
    if unknown or not grades:
        raise ArgumentError(
            "fail_on", f"{fail_on!r} is not a list of outcomes. Choose from: {', '.join(GRADES)}, none."
        )
    return tuple(grade for grade in grades if grade != "none")


def _runs(result: Preflight) -> str:
    """Ops that the file itself leaves to the host are not a fault of the chip: the rest runs in part."""
    if result.ok:
        return "yes"
    refused = [*result.reject, *result.oversize]
    return "in part" if all(report.rule == "host-op" for report in refused) else "no"


def _reports(result: Preflight, grade: str) -> Sequence[OpReport]:
    return {
        "reject": result.reject,
        "oversize": result.oversize,
        "risk": result.risk,
        "decompose": result.decompose,
    }[grade]


def _reason(report: OpReport, grade: str, nodes: Sequence[str], chips: Sequence[str]) -> Iterator[str]:
    shown = ", ".join(nodes[:4]) + (f" and {len(nodes) - 4} more" if len(nodes) > 4 else "")
    yield f"{grade}: {shown} ({report.op} {list(report.shape)}, {report.where})"
    yield f"  {report.message or 'rewritten'} {report.evidence.label()}"
    if report.limit is not None and report.extent is not None:
        yield f"  limit {report.limit}, here {report.extent}"
    if report.bound is not None:
        yield f"  error: {report.bound}"
    if report.hint:
        yield f"  do: {report.hint}"
    yield f"  on: {', '.join(chips)}" + (f"; {report.other_route}" if report.other_route else "")
