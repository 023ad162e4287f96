"""What one chip, or each of several, does with every node of a graph.

Preflight decides nothing. It runs the first phases of the compiler, for all chips together, and reports what they
refused, rewrote and warned of: what ``check`` says of a node is what ``compile`` does with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from aneforge.arguments import Chips, Source, chips_of, graph_of
from aneforge.compiler.facts import facts_of
from aneforge.compiler.legal.bounds import Bound
from aneforge.compiler.legal.check import check_reads, judgements, program_route
from aneforge.compiler.legal.judge import Finding, judge
from aneforge.compiler.legal.query import RUNTIMES
from aneforge.compiler.legal.rules.raised import raised_stage
from aneforge.compiler.legal.rules.status import attested
from aneforge.compiler.legal.translate import query_of, route_of
from aneforge.compiler.record import Record
from aneforge.compiler.refusal import Refusal
from aneforge.errors import ArgumentError
from aneforge.gate.outcome import Outcome, outcomes
from aneforge.graph.graph import Graph
from aneforge.graph.node import located
from aneforge.graph.tensor import Tensor
from aneforge.graph.views import is_integer_view
from aneforge.output.by_chip import ByChip
from aneforge.targets import Family, Target, op_routes
from aneforge.targets import target as find_target
from aneforge.targets.assumed import compile_fact
from aneforge.targets.evidence import Fact
from aneforge.targets.families import as_family
from aneforge.targets.names import newest_below_the_floor
from aneforge.targets.ops import ROUTES, lowered_to

__all__ = [
    "STATUSES",
    "OpReport",
    "Preflight",
    "PreflightAll",
    "preflight",
    "preflight_all",
    "preflights",
    "refuse_constant",
]

STATUSES = ("native", "decompose", "reject", "oversize", "risk")
_VERDICTS = {"native": "accept", "risk": "accept", "decompose": "decompose", "reject": "reject"}
"""The verdict of a status, where no finding has a word of its own."""
_VERDICT_WORDS = {
    "wrong_result": "runs, but the answer can be wrong",
    "cpu": "runs as a program of its own, but not through {runtimes}",
}
_COMPUTED_LEAVES = ("random_uniform", "random_normal")
_CONVERSION = "conversion"


class OpReport:
    """What one chip does with one node, and why."""

    def __init__(
        self,
        node: Tensor,
        name: str,
        chip: Target,
        status: str = "native",
        findings: tuple[Finding, ...] = (),
        record: Record | None = None,
        program_route: str = _CONVERSION,
    ) -> None:
        self.node = node
        self.name = name
        """The user's name for the node, or the op and a number."""
        self.target = chip
        self.status = status
        self.findings = findings
        self._record = record
        self._program_route = program_route

    @property
    def op(self) -> str:
        return self.node.op

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.shape

    @property
    def oversize(self) -> bool:
        """Only extents are too large: in smaller pieces it would run."""
        refused = [finding for finding in self.findings if finding.effect == "reject"]
        return self.status == "reject" and bool(refused) and all(finding.oversize for finding in refused)

    @property
    def verdict(self) -> str:
        """One word for the node: accept, decompose, reject, ``wrong_result`` (it runs, but the answer can be wrong) or
        ``cpu`` (another runtime keeps it off the engine)."""
        effects = {finding.effect for finding in self.findings}
        return next(
            (word for word in _VERDICT_WORDS if word in effects and self.status == "risk"), _VERDICTS[self.status]
        )

    @property
    def verdict_words(self) -> str:
        """The verdict of a risk in words."""
        names = {
            RUNTIMES[name]: None for finding in self.findings if finding.effect == "cpu" for name in finding.runtimes
        }
        return _VERDICT_WORDS.get(self.verdict, "").format(runtimes=" or ".join(names))

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
        """The route a graph takes for this op."""
        return "direct" if self._program_route == "direct" else route_of(self.node.signature)

    @property
    def other_route(self) -> str | None:
        """What the other route would answer, where there is one."""
        other = "direct" if self.route == _CONVERSION else _CONVERSION
        statuses = op_routes(self.node.definition.gate_name).route(other)
        if self.op == "host" or not statuses:
            return None
        if other == "direct" and self.target.family5 is Family.OLDER:
            return f"direct: {'accept' if self._is_above_its_floor() else 'reject'}"
        return f"{other}: {judge(query_of(self.node.signature), self.target, other).verdict}"

    def _is_above_its_floor(self) -> bool:
        """Below A13 ordinary ops are authored where the backend has them; native layers are not known there."""
        lowered = lowered_to(self.node.definition.gate_name)
        family = self.target.family8
        if lowered is None or family is None or self.node.definition.native_layer:
            return False
        return lowered.native_on(family)

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
        return next((finding.string for finding in self.findings if finding.string), "")

    @property
    def rule(self) -> str:
        return self.findings[0].rule if self.findings else ""

    @property
    def message(self) -> str:
        return " ".join(f"{finding.message.rstrip('.')}." for finding in self.findings)

    @property
    def limit(self) -> Any:
        return self.findings[0].limit if self.findings else None

    @property
    def extent(self) -> Any:
        """The measured extent that met the limit."""
        return self.findings[0].extent if self.findings else None

    @property
    def hint(self) -> str:
        return self.findings[0].hint if self.findings else ""

    @cached_property
    def evidence(self) -> Fact[Any]:
        if self.findings:
            return self.findings[0].evidence
        statuses = op_routes(self.node.definition.gate_name)
        known = (statuses.route(self.route) or statuses.main).get(self.target.family5) if self.target.family5 else None
        return Fact(None, about=f"{statuses.name} on {self.target.name}") if known is None else known

    def __str__(self) -> str:
        reason = f": {self.message}" if self.message else ""
        return (
            f"{self.name} ({self.op} {list(self.shape)}, {self.where}) {self.status}{reason} {self.evidence.label()}"
        )

    def __repr__(self) -> str:
        return f"OpReport({self.op!r}, {list(self.shape)}, {self.status!r})"

    def to_json(self) -> dict[str, Any]:
        keys = ("op", "status", "verdict", "stage", "oversize", "name", "where", "route", "other_route", "string")
        keys += ("rule", "rewrite", "message", "limit", "extent", "hint")
        record = {key: getattr(self, key) for key in keys}
        bound = None if self.bound is None else str(self.bound)
        if self.findings and self.findings[0].runtimes:
            record["runtimes"] = list(self.findings[0].runtimes)
        return {**record, "bound": bound, "shape": list(self.shape), "evidence": self.evidence.to_json()}


class Preflight:
    """The verdict of one chip on one graph."""

    def __init__(
        self, graph: Graph, names: Mapping[int, str], chip: Target, outcome: Outcome, route: str | None
    ) -> None:
        self.graph = graph
        self.target = chip
        self._names = names
        self._outcome = outcome
        self.route = program_route(facts_of(chip, check_reads()), route)
        """By which the program would reach the chip: ``conversion`` or ``direct``."""

    @property
    def refusals(self) -> Mapping[str, Refusal]:
        """Everything that the compiler's first phases refuse, by node."""
        return self._outcome.refusals

    @property
    def family(self) -> Family | None:
        """The five-tier family of the chip."""
        return self.target.family5

    @cached_property
    def _reports(self) -> dict[str, list[OpReport]]:
        """Every node in the list of its status. What depends on a node's place comes on top of its own status."""
        lists: dict[str, list[OpReport]] = {status: [] for status in STATUSES}
        own, placed = self._risks
        for node in self.graph.nodes:
            name = self._names[node.uid]
            if node.definition.leaf and node.op not in _COMPUTED_LEAVES and name not in self._outcome.refusals:
                if name in placed:
                    lists["risk"].append(self._report(node, "risk", placed[name]))
                continue
            if is_integer_view(node):
                continue  # the host does it where it hands integers over; nothing is computed
            report = self._judged(node, name, own.get(name, ()))
            lists["oversize" if report.oversize else report.status].append(report)
            if name in placed and report.status != "reject":
                lists["risk"].append(self._report(node, "risk", placed[name]))
        return lists

    def _judged(self, node: Tensor, name: str, risks: tuple[Finding, ...]) -> OpReport:
        records = self._outcome.records.get(name, [])
        refusal = self._outcome.refusals.get(name)
        rewrites = tuple(self._rewritten(node, record) for record in records)
        if refusal is not None:
            named = refusal.on(self.target.name)
            findings = named.findings or (self._late(named),)
            return self._report(node, "reject", (*findings, *rewrites), records[0] if records else None)
        if records:
            return self._report(node, "decompose", rewrites, records[0])
        return self._report(node, "risk" if risks else "native", risks)

    def _report(
        self, node: Tensor, status: str, findings: tuple[Finding, ...] = (), record: Record | None = None
    ) -> OpReport:
        return OpReport(node, self._names[node.uid], self.target, status, findings, record, self.route)

    def _late(self, refusal: Refusal) -> Finding:
        """What a phase behind the rules refuses, in the same form."""
        rule = refusal.rule
        evidence = Fact(rule, confidence="decoded", about=f"{rule} on {self.target.name}")
        return Finding(
            rule,
            "reject",
            refusal.reason,
            None,
            None,
            evidence,
            refusal.oversize,
            "",
            stage=raised_stage(rule),
            route=self.route,
            string=refusal.reject or "",
        )

    def _rewritten(self, node: Tensor, record: Record) -> Finding:
        row = record.row
        message = f"{node.op} is not native here and is rewritten ({row.name}): {row.into.rstrip('.')}"
        evidence = compile_fact(self.target, row.because)
        # What the vendor's front end or code generator lacks there, this compiler writes with other ops.
        stage = "frontend" if row.phase == 0 else "code generation"
        return Finding(row.name, "decompose", message, None, None, evidence, False, "", stage=stage, route=self.route)

    @cached_property
    def _risks(self) -> tuple[dict[str, tuple[Finding, ...]], dict[str, tuple[Finding, ...]]]:
        """What may be wrong of a node itself, and what may be wrong by its place, by node."""
        own: dict[str, tuple[Finding, ...]] = {}
        placed: dict[str, tuple[Finding, ...]] = {}
        draft = self._outcome.draft
        if draft is None:
            return own, placed
        chip = facts_of(self.target, check_reads())
        for judgement in judgements(draft.graph, chip, draft.route, self.graph.states):
            name = draft.names[judgement.node.uid]
            if judgement.ruling.status == "risk" and name not in self._outcome.refusals:
                findings = tuple(finding.on(self.target.name) for finding in judgement.ruling.findings)
                table = placed if judgement.by_place else own
                table[name] = (*table.get(name, ()), *findings)
        return own, placed

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

    @property
    def risk(self) -> Sequence[OpReport]:
        """Runs, but the numbers may be unusable."""
        return self._reports["risk"]

    @property
    def ok(self) -> bool:
        """A program results: nothing is rejected and nothing is too large."""
        return not self._outcome.refusals

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes have each status."""
        return {status: len(self._reports[status]) for status in STATUSES}

    def worst(self) -> str:
        """The gravest status that occurs."""
        counts = self.counts
        for status in ("reject", "oversize", "risk", "decompose"):
            if counts[status]:
                return status
        return "native"

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status, count in self.counts.items() if count)
        answer = "runs" if self.ok else "does not run"
        lines = [f"{self.target.name} by the {self.route} route: {answer} ({counts or 'empty'})"]
        for status in ("reject", "oversize", "risk", "decompose"):
            lines += [f"  {report}" for report in self._reports[status]]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Preflight({self.target.name!r}, ok={self.ok}, {self.counts})"

    def to_json(self) -> dict[str, Any]:
        listed = [status for status in STATUSES if status != "native"]
        detail = {status: [report.to_json() for report in self._reports[status]] for status in listed}
        family = None if self.family is None else int(self.family)
        head = {"target": self.target.name, "family": family, "route": self.route, "ok": self.ok}
        return {**head, "counts": self.counts, **detail}


class PreflightAll(ByChip[Preflight]):
    """One graph against several chips, by the names that were asked."""


def preflight(out: Source, family: int | str | Target, route: str | None = _CONVERSION) -> Preflight:
    """Check a graph against one chip: a family (``Family.A13`` or its number), an architecture, or a chip's name.

    ``route`` is how the program reaches the chip: ``conversion`` (a model program handed to the compiler; nothing runs
    so below A13), ``direct`` (authored layers), or None for the one that ``af.compile`` takes by itself. The same
    route gives the same answer in ``af.compile``, ``cross_compile_check`` and ``aneforge check``.
    """
    # The oldest family has no representative; its newest chip answers for it.
    is_oldest = isinstance(family, int) and as_family(family) is Family.OLDER
    chip = newest_below_the_floor() if is_oldest else find_target(family)
    return preflights(graph_of(out), {chip.name: chip}, route)[chip.name]


def preflight_all(out: Source, target: Chips = "all", route: str | None = _CONVERSION) -> PreflightAll:
    """The reports of :func:`preflight` for several chips, or for all 28 targets; ``af.check`` prints them."""
    return PreflightAll(preflights(graph_of(out), chips_of(target, "all"), route))


def refuse_constant(graph: Graph) -> None:
    """Refuse a graph that no chip has anything to do with."""
    changes = any(node.op == "live_state" for node in graph.nodes)
    if not graph.inputs and not graph.parameters and not changes:
        raise ArgumentError("model", "the graph has no inputs, so it is a constant. Evaluate it with af.evaluate.")


def preflights(graph: Graph, chips: Mapping[str, Target], route: str | None) -> dict[str, Preflight]:
    """The report of each chip by its name. The chips share the work."""
    if route is not None and route not in ROUTES:
        raise ArgumentError("route", f"{route!r} is not a route; choose one: {', '.join(ROUTES)}.")
    route = route or graph.route
    refuse_constant(graph)
    targets = list({chip.name: chip for chip in chips.values()}.values())
    results = outcomes(graph, targets, route)
    names = graph.names()
    return {name: Preflight(graph, names, chip, results[chip.name], route) for name, chip in chips.items()}
