"""What one chip, or each of several, does with every node of a graph.

Preflight decides nothing. It runs the first phases of the compiler, for all chips together, and reports what they
refused, rewrote and warned of: what ``check`` says of a node is what ``compile`` does with it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from aneforge.chips import Family, Target, op_routes
from aneforge.chips.assumed import compile_fact
from aneforge.chips.evidence import Fact
from aneforge.chips.systems import applies_to, system
from aneforge.compiler.facts import facts_of
from aneforge.compiler.legal.bounds import Bound
from aneforge.compiler.legal.check import check_reads, findings_of, program_route
from aneforge.compiler.legal.findings import (
    Finding,
    NumberFinding,
    PlacementFinding,
    Threshold,
    is_oversize,
    is_rejected,
)
from aneforge.compiler.legal.query import KEEP_TYPES, RUNTIME_LABELS
from aneforge.compiler.legal.rules.base import OneOf, Structure
from aneforge.compiler.legal.rules.native import raised_stage
from aneforge.compiler.legal.rules.status import attested
from aneforge.compiler.legal.translate import query_of, route_of
from aneforge.compiler.record import Record
from aneforge.compiler.refusal import Refusal
from aneforge.compiler.survey import Surveyed
from aneforge.graph.graph import Graph
from aneforge.graph.node import located
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.graph.views import is_integer_view

if TYPE_CHECKING:
    from aneforge.numerics.analysis import Analysis
    from aneforge.numerics.ranges import Value

STATUSES = ("native", "decompose", "reject", "oversize", "unknown", "risk", "placement")
_VERDICTS = {
    **{"native": "accept", "decompose": "decompose", "reject": "reject"},
    **{"risk": "wrong_result", "placement": "cpu", "unknown": "unknown"},
}
"""The verdict of a status."""
_VERDICT_WORDS = {
    "wrong_result": "runs, but the answer can be wrong",
    "cpu": "runs as a program of its own, but not through {runtimes}",
    "unknown": "nobody has seen whether it runs",
}
_GRAVEST_FIRST = ("reject", "oversize", "unknown", "risk", "placement", "decompose")
_CONVERSION = "conversion"


class NodeVerdict(NamedTuple):
    """What is said of one node, before a chip's name is filled in: chips that say the same share it."""

    node: Tensor
    name: str
    """The user's name for the node, or the op and a number."""
    findings: tuple[Finding, ...] = ()
    records: tuple[Record, ...] = ()
    refusal: Refusal | None = None

    @property
    def status(self) -> str:
        """The list that it belongs to, where it is about more than numbers or a runtime."""
        if self.refusal is None:
            return "decompose" if self.records else "native"
        by_rules = self.refusal.findings
        return "oversize" if (is_oversize(by_rules) if by_rules else self.refusal.oversize) else "reject"


class OpReport:
    """What one chip does with one node, and why."""

    def __init__(self, row: NodeVerdict, chip: Target, listed: str, program_route: str) -> None:
        self._row = row
        self.node, self.name = row.node, row.name
        self.target = chip
        self.oversize = listed == "oversize"
        """Only extents are too large: in smaller pieces it would run."""
        self.status = "reject" if self.oversize else listed
        self._program_route = program_route

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """The reasons, with the chip's name filled in."""
        row, chip = self._row, self.target.name
        return (
            *(() if row.refusal is None else self._refused_by(row.refusal.on(chip))),
            *(finding.on(chip) for finding in row.findings),
            *map(self._rewritten, row.records),
        )

    def _refused_by(self, refusal: Refusal) -> tuple[Finding, ...]:
        """What the rules say, or what a phase behind them refuses, in the same form."""
        if refusal.findings:
            return refusal.findings
        rule = refusal.rule
        evidence = Fact(rule, confidence="decoded", about=f"{rule} on {self.target.name}")
        late = PlacementFinding(
            rule, refusal.reason, evidence, stage=raised_stage(rule), route=self._program_route,
            oversize=refusal.oversize, string=refusal.reject or "",
        )  # fmt: skip
        return (late,)

    def _rewritten(self, record: Record) -> Finding:
        row = record.row
        message = f"{self.op} is not native here and is rewritten ({row.name}): {row.into.rstrip('.')}"
        evidence = compile_fact(self.target, row.because)
        # What the vendor's front end or code generator lacks there, this compiler writes with other ops.
        stage = "frontend" if row.phase == 0 else "code generation"
        return PlacementFinding(
            row.name, message, evidence, stage=stage, route=self._program_route, effect="decompose"
        )

    @property
    def op(self) -> str:
        return self.node.op

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.shape

    @property
    def verdict(self) -> str:
        """One word for the node: accept, decompose, reject, ``wrong_result`` (it runs, but the answer can be wrong),
        ``cpu`` (another runtime keeps it off the engine) or ``unknown`` (nobody has seen whether it runs)."""
        return _VERDICTS[self.status]

    @property
    def verdict_words(self) -> str:
        """The verdict in words, where the node runs and is not simply native."""
        names = {RUNTIME_LABELS[name]: None for finding in self.findings for name in finding.runtimes}
        return _VERDICT_WORDS.get(self.verdict, "").format(runtimes=" or ".join(names))

    @property
    def _record(self) -> Record | None:
        return next(iter(self._row.records), None)

    @property
    def rewrite(self) -> str | None:
        """The row of the compiler's table of rewrites that replaces it."""
        return None if self._record is None else self._record.rewrite

    @property
    def bound(self) -> Bound | None:
        """How far the form that is emitted may be from the op."""
        return None if self._record is None else self._record.bound

    @property
    def route(self) -> str:
        """The route a graph takes for this op, or the one that refuses it."""
        if self.status == "reject" and self.findings:
            return self.findings[0].route
        return "direct" if self._program_route == "direct" else route_of(self.node.signature)

    @property
    def other_route(self) -> str | None:
        """What the other route would answer, where there is one."""
        other = "direct" if self.route == _CONVERSION else _CONVERSION
        routes, family = op_routes(self.node.definition.gate_name), self.target.family5
        if self.op == "host" or family is None or not getattr(routes, other):
            return None
        refused = is_rejected(findings_of(self.node.signature, facts_of(self.target, check_reads()), other))
        status = "reject" if refused else routes.route(other)[family].value
        return f"{other}: {_VERDICTS[status]}"

    @property
    def where(self) -> str:
        """The user's line."""
        return located(self.node.where)

    @property
    def stage(self) -> str:
        """The layer that gives the answer: of a refusal the first that refuses (frontend, validator, code generation,
        measured run), of what is native how far it is attested: a measured run, or a validator."""
        if self.findings:
            return self.findings[0].stage
        chip = facts_of(self.target, check_reads())
        return attested(self._asked_name, chip, self.route)[0]

    @property
    def _asked_name(self) -> str:
        """The op as the tables of routes name it: a native layer by its type."""
        return query_of(self.node.signature).op if self.op != "host" else self.op

    @property
    def string(self) -> str:
        """The compiler's own words for a refusal, where they are published."""
        placements = (finding for finding in self.findings if isinstance(finding, PlacementFinding))
        return next((finding.string for finding in placements if finding.string), "")

    @property
    def rule(self) -> str:
        return self.findings[0].rule if self.findings else ""

    @property
    def message(self) -> str:
        return " ".join(f"{finding.message.rstrip('.')}." for finding in self.findings)

    @property
    def _first(self) -> NumberFinding | PlacementFinding | None:
        first = self.findings[0] if self.findings else None
        return first if isinstance(first, (NumberFinding, PlacementFinding)) else None

    @property
    def limit(self) -> Threshold | None:
        """Of numbers, what the chip holds; of placement, a number, the values that are taken, or a structure."""
        return None if self._first is None else self._first.limit

    @property
    def extent(self) -> Any:
        """What met the limit: an extent of the node, or how far its numbers can reach."""
        first = self._first
        if isinstance(first, NumberFinding):
            return first.reaches if math.isfinite(first.reaches) else None
        return None if first is None else first.extent

    @property
    def basis(self) -> str:
        """What a finding about numbers rests on: ``promised``, ``worst case`` or ``any finite input``."""
        return self._first.basis if isinstance(self._first, NumberFinding) else ""

    @property
    def hint(self) -> str:
        return self.findings[0].hint if self.findings else ""

    @cached_property
    def evidence(self) -> Fact[Any]:
        if self.findings:
            return self.findings[0].evidence
        routes = op_routes(self.node.definition.gate_name)
        known = routes.route(self.route).get(self.target.family5) if self.target.family5 else None
        return Fact(None, about=f"{routes.name} on {self.target.name}") if known is None else known

    def __str__(self) -> str:
        reason = f": {self.message}" if self.message else ""
        return (
            f"{self.name} ({self.op} {list(self.shape)}, {self.where}) {self.status}{reason} {self.evidence.label()}"
        )

    def __repr__(self) -> str:
        return f"OpReport({self.op!r}, {list(self.shape)}, {self.status!r})"

    def to_json(self) -> dict[str, Any]:
        keys = ("op", "status", "verdict", "stage", "oversize", "name", "where", "route", "other_route", "string")
        keys += ("rule", "rewrite", "message", "extent", "hint", "basis")
        record = {key: getattr(self, key) for key in keys}
        record["limit"] = self.limit.to_json() if isinstance(self.limit, (OneOf, Structure)) else self.limit
        bound = None if self.bound is None else str(self.bound)
        if self.findings and self.findings[0].runtimes:
            record["runtimes"] = list(self.findings[0].runtimes)
        return {**record, "bound": bound, "shape": list(self.shape), "evidence": self.evidence.to_json()}


class Reports(Sequence[OpReport]):
    """The reports of one chip on some nodes, made when they are read."""

    def __init__(self, rows: Sequence[NodeVerdict], chip: Target, status: str, route: str) -> None:
        self.rows, self._chip, self._status, self._route = rows, chip, status, route

    def _report(self, row: NodeVerdict) -> OpReport:
        return OpReport(row, self._chip, self._status, self._route)

    @cached_property
    def _all(self) -> list[OpReport]:
        return [self._report(row) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> OpReport: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[OpReport]: ...
    def __getitem__(self, index: int | slice) -> OpReport | Sequence[OpReport]:
        return self._all[index]

    def __iter__(self) -> Iterator[OpReport]:
        return iter(self._all)


class Preflight:
    """The verdict of one chip on one graph."""

    def __init__(
        self,
        graph: Graph,
        names: Mapping[int, str],
        chip: Target,
        surveyed: Surveyed,
        route: str | None,
        shared: dict[Hashable, Any] | None = None,
        os: str | None = None,
        max_abs: float | None = None,
        runtimes: tuple[str, ...] = KEEP_TYPES,
        declined: Mapping[str, PlacementFinding] | None = None,
    ) -> None:
        self.graph = graph
        self.target = chip
        self._runtimes = frozenset((*runtimes, "direct"))
        """The runtimes that findings are told of."""
        self._declined = declined or {}
        """Nodes that the runtime which was asked about does not hand on, by name."""
        self._names = names
        self._surveyed = surveyed
        self.os = system(os)
        """The system that the answer is about."""
        self.max_abs = max_abs
        """The largest magnitude of an input that promises nothing itself."""
        self._shared = {} if shared is None else shared
        """What chips that were asked together share: range analyses, and rows where nothing is refused."""
        self.route = program_route(facts_of(chip, check_reads()), route)
        """By which the program would reach the chip: ``conversion`` or ``direct``."""

    @property
    def refusals(self) -> Mapping[str, Refusal]:
        """Everything that the compiler's first phases refuse, by node, without a chip's name filled in."""
        return self._surveyed.refused_by(self.target)

    @property
    def family(self) -> Family | None:
        """The five-tier family of the chip."""
        return self.target.family5

    def rows(self, status: str) -> Sequence[NodeVerdict]:
        """The nodes of a status as far as rules alone say so, whatever the data."""
        return self._rows[status]

    @cached_property
    def _rows(self) -> dict[str, list[NodeVerdict]]:
        signature = facts_of(self.target, check_reads()).signature
        if self.refusals:  # their words may differ between chips
            return self._rows_of(signature)
        key = "rows", id(self._surveyed), signature, self.os, self._runtimes
        if key not in self._shared:
            self._shared[key] = self._rows_of(signature)
        return self._shared[key]

    def _rows_of(self, signature: tuple[str, ...]) -> dict[str, list[NodeVerdict]]:
        refusals, records = self.refusals, self._surveyed.records
        own, by_place = self._passed(signature)
        special = {*refusals, *records, *own, *by_place}
        rows: dict[str, list[NodeVerdict]] = {status: [] for status in STATUSES}
        native = rows["native"].append
        for node in self.graph.nodes:
            name, is_leaf = self._names[node.uid], node.definition.leaf and not node.is_a(GraphTrait.DRAWN)
            if not is_leaf and is_integer_view(node):
                continue  # the host does it where it hands integers over; nothing is computed
            if name not in special:
                if not is_leaf:
                    native(NodeVerdict(node, name))
                continue
            refusal, rewrites = refusals.get(name), tuple(records.get(name, ()))
            if refusal is not None and refusal.follows:
                refusal = None  # it runs, in a program that begins at an earlier node
            said: dict[str, tuple[Finding, ...]] = {}
            if refusal is None:
                said = _by_kind(own.get(name, ())) if not rewrites and not is_leaf else {}
            if refusal is not None or (not is_leaf and not said):
                row = NodeVerdict(node, name, records=rewrites, refusal=refusal)
                rows[row.status].append(row)
            for findings_of_kind in (said, _by_kind(by_place.get(name, ())) if refusal is None else {}):
                for status, findings in findings_of_kind.items():
                    rows[status].append(NodeVerdict(node, name, findings))
        return rows

    def _passed(self, signature: tuple[str, ...]) -> tuple[dict[str, tuple[Finding, ...]], ...]:
        """What rules say of nodes that they let pass, by node: of the node itself, and by its place."""
        tables: tuple[dict[str, tuple[Finding, ...]], ...] = {}, {}
        draft = self._surveyed.draft
        for name, judgement in () if draft is None else draft.judgements.get(signature, ()):
            table = tables[judgement.by_place]
            table[name] = (*table.get(name, ()), *filter(self._concerns, judgement.findings))
        for name, finding in self._declined.items():
            tables[True][name] = (finding, *tables[True].get(name, ()))
        return tables

    def _concerns(self, finding: Finding) -> bool:
        """Whether a finding is about the system and a runtime that are asked about."""
        is_told = not finding.runtimes or not self._runtimes.isdisjoint(finding.runtimes)
        return is_told and applies_to(finding.since, self.os)

    @cached_property
    def _reports(self) -> dict[str, Reports]:
        return {status: self._listed(status) for status in STATUSES}

    def _listed(self, status: str) -> Reports:
        return Reports(self.rows(status), self.target, status, self.route)

    @cached_property
    def _known(self) -> dict[str, Value]:
        """What the inputs of the program promise, and what the host hands over where it reads a refused node."""
        # here, because the simulator is heavy
        from aneforge.numerics.ranges import as_stored, handed_on, promised_values

        draft = self._surveyed.draft
        refused = [node for node in self.graph.nodes if self._names[node.uid] in self.refusals]
        handed = {self._names[uid]: value for uid, value in handed_on(refused).items()}
        if draft is None:
            return {}
        promised = promised_values(draft.source, draft.names)
        if self.max_abs is not None:
            bound = as_stored(-self.max_abs, self.max_abs)
            promised = {name: bound if value.is_open else value for name, value in promised.items()}
        return {**promised, **handed}

    @property
    def has_questions(self) -> bool:
        """Whether the data can decide anything about its numbers that is worth a word; otherwise nothing is walked."""
        from aneforge.numerics.analysis import has_questions

        return self._surveyed.draft is not None and has_questions(self._surveyed.draft.code, self._known)

    @cached_property
    def analysis(self) -> Analysis | None:
        """The ranges of every value within what the inputs promise, and what can be lost; None where nothing runs."""
        from aneforge.numerics.analysis import analysis, arithmetic_of

        draft = self._surveyed.draft
        if draft is None:
            return None
        key = "analysis", id(self._surveyed), arithmetic_of(self.target)
        if key not in self._shared:
            self._shared[key] = analysis(draft.source, draft.names, draft.code, self.target, self._known)
        return self._shared[key]

    @property
    def native(self) -> Sequence[OpReport]:
        """Emitted as they are."""
        return self._reports["native"]

    @property
    def decompose(self) -> Sequence[OpReport]:
        """Rewritten into ops that run."""
        return self._reports["decompose"]

    @property
    def reject(self) -> Sequence[OpReport]:
        """No program results."""
        return self._reports["reject"]

    @property
    def oversize(self) -> Sequence[OpReport]:
        """An extent exceeds a cap and must be tiled."""
        return self._reports["oversize"]

    @cached_property
    def risk(self) -> Sequence[OpReport]:
        """Runs, but numbers may be wrong: what was seen on silicon whatever the data, what the inputs' promises do
        not exclude, and what is peculiar to the chip."""
        nodes = {self._names[node.uid]: node for node in self.graph.nodes}
        lost: dict[str, list[Finding]] = {}
        for risk in self.analysis.risks if self.has_questions and self.analysis is not None else ():
            if risk.due and risk.node in nodes:
                lost.setdefault(risk.node, []).append(risk)
        order = {name: place for place, name in enumerate(nodes)}
        rows = (NodeVerdict(nodes[name], name, tuple(findings)) for name, findings in lost.items())
        by_ranges = [OpReport(row, self.target, "risk", self.route) for row in rows]
        return sorted([*self._reports["risk"], *by_ranges], key=lambda report: order[report.name])

    @property
    def unknown(self) -> Sequence[OpReport]:
        """Nobody has seen whether these run."""
        return self._reports["unknown"]

    @property
    def placement(self) -> Sequence[OpReport]:
        """Runs as a program of its own, but a runtime keeps it off the engine."""
        return self._reports["placement"]

    @property
    def defects(self) -> Sequence[tuple[OpReport, NumberFinding]]:
        """What was seen to be wrong on silicon whatever the data."""
        return [
            (report, finding)
            for report in self._reports["risk"]
            for finding in report.findings
            if isinstance(finding, NumberFinding)
        ]

    def of(self, status: str) -> Sequence[OpReport]:
        """The list of a status."""
        return self.risk if status == "risk" else self._reports[status]

    @property
    def ok(self) -> bool:
        """A program results: nothing is rejected and nothing is too large."""
        return not self.refusals

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes have each status."""
        return {status: len(self.of(status)) for status in STATUSES}

    def worst(self) -> str:
        """The gravest status that occurs."""
        counts = self.counts
        for status in _GRAVEST_FIRST:
            if counts[status]:
                return status
        return "native"

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in self.counts.items() if count)
        answer = "runs" if self.ok else "does not run"
        lines = [f"{self.target.name} by the {self.route} route: {answer} ({counts or 'empty'})"]
        for status in _GRAVEST_FIRST:
            lines += [f"  {report}" for report in self.of(status)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Preflight({self.target.name!r}, ok={self.ok}, {self.counts})"

    def to_json(self) -> dict[str, Any]:
        listed = [status for status in STATUSES if status != "native"]
        detail = {status: [report.to_json() for report in self.of(status)] for status in listed}
        family = None if self.family is None else int(self.family)
        head = {"target": self.target.name, "family": family, "route": self.route, "ok": self.ok}
        return {**head, "os": self.os, "counts": self.counts, **detail}


def _by_kind(findings: tuple[Finding, ...]) -> dict[str, tuple[Finding, ...]]:
    """What is said of a node that no rule refuses: of its numbers, of what nobody knows, and of runtimes that keep it
    off the engine."""
    wrong = tuple(finding for finding in findings if isinstance(finding, NumberFinding))
    placed = [finding for finding in findings if isinstance(finding, PlacementFinding)]
    unknown = tuple(finding for finding in placed if finding.effect == "unknown")
    off = tuple(finding for finding in placed if finding.effect != "unknown")
    return {status: said for status, said in (("risk", wrong), ("unknown", unknown), ("placement", off)) if said}
