"""``af.check``: what each chip will do with a model, and why; the report that ``aneforge check`` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aneforge import text
from aneforge.chips.families import Family
from aneforge.chips.names import chip_label, chip_labels, with_label
from aneforge.compiler.legal.findings import BASES
from aneforge.compiler.legal.query import RUNTIME_LABELS
from aneforge.errors import ArgumentError
from aneforge.formats.arguments import Chips, Source
from aneforge.frames import Tabular
from aneforge.graph.origins import Taken
from aneforge.study.outcomes import FAIL_ON, Outcome
from aneforge.study.partition import Partition
from aneforge.study.preflight import STATUSES, OpReport, Preflight
from aneforge.study.study import Study
from aneforge.text import ByChip, plural, some, wrapped

GRADES = ("reject", "oversize", "unknown", "risk", "placement", "decompose")
"""The outcomes worth a reason, gravest first."""

_RARE = ("unknown", "placement")
"""Outcomes that have a column only where they occur."""
_MOST_REASONS = 12
_WIDE, _NARROW = 46, 14  # letters of the list of chips in the table: a partial verdict needs room
Paint = Callable[[str], str]


def check(
    model: Source,
    target: Chips = None,
    route: str | None = None,
    fail_on: str = FAIL_ON,
    *,
    os: str | None = None,
    runtime: str | None = None,
    max_abs: float | None = None,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> Check:
    """Check what each chip will do with a model: native, decomposed, rejected, too large, numerically risky, kept off
    the engine by a runtime, and why.

    ``target`` is m1..m6 where it is left out. ``route`` is how the program reaches a chip: ``conversion``, or
    ``direct`` (authored layers; the only one below A13); left out, it is the one that ``af.compile`` takes.
    ``fail_on`` names the outcomes that make ``.ok`` false: some of reject, oversize, unknown, risk, placement and
    decompose, separated by commas, or none. By default a chip fails that runs the model in part, whose numbers can be
    wrong, or of which nobody knows whether it runs; ``.verdicts`` says which. ``max_abs`` is the largest magnitude of
    any input: without it an input that promises nothing may be any number. ``print`` shows the whole report;
    ``check(...)["m1"]`` is the report of one chip (:class:`Preflight`).

    ``os`` is the version of the system and ``runtime`` who runs the model, as for :class:`Study`.

    >>> import aneforge as af
    >>> found = af.check(af.topk(af.input((1, 64)), 5), "m1,m5")
    >>> found.verdicts
    {'m1': 'no', 'm5': 'yes'}
    >>> found["m1"].reject[0].op
    'topk'
    """
    study = Study(model, target, route=route, os=os, runtime=runtime, max_abs=max_abs, dims=dims, function=function)
    return Check(study, fail_on)


class Check(ByChip[Preflight], Tabular):
    """The report of each chip on one model. ``ok`` is False where a chip does worse than allowed."""

    def __init__(self, study: Study, fail_on: str = FAIL_ON) -> None:
        self.fail_on = _grades(fail_on)
        super().__init__(study.preflights())
        self._study = study
        self.graph, self.model = study.graph, study.name

    @property
    def failed(self) -> list[str]:
        """The chips on which an outcome of ``fail_on`` occurs, or from whose engine the runtime that was asked about
        keeps a part."""
        return [
            name
            for name, split in self.partitions.items()
            if (self._fails_off_engine and split.kept_off) or any(self._has(grade, name) for grade in self.fail_on)
        ]

    def _has(self, grade: str, name: str) -> bool:
        """Whether an outcome occurs on a chip; what only another runtime shows does not count."""
        split = self.partitions[name]
        on_engine = {"risk": split.wrong_numbers, "unknown": split.not_known}
        return bool(on_engine[grade] if grade in on_engine else self[name].counts[grade])

    @property
    def _fails_off_engine(self) -> bool:
        """What a runtime keeps off the engine is refused, where the question is about that runtime."""
        return self._study.by_runtime and "reject" in self.fail_on

    @property
    def ok(self) -> bool:
        """Whether no chip has an outcome that ``fail_on`` names."""
        return not self.failed

    @property
    def partitions(self) -> dict[str, Partition]:
        """How each chip would run the model, in regions of the engine and the host."""
        return self._study.judged()

    @property
    def verdicts(self) -> dict[str, str]:
        """For each chip ``yes``, ``yes, numbers can be wrong``, ``in 2 programs``, ``in part: 416 of 417 ops on the
        engine``, ``unknown``, or ``no`` where nothing useful runs."""
        return {name: str(outcome) for name, outcome in self.outcomes.items()}

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The same in figures: what runs, in how many programs, and how many nodes can give wrong numbers."""
        return {name: split.outcome for name, split in self.partitions.items()}

    @property
    def likely(self) -> dict[str, str]:
        """What the runtime would likely give to the engine of each chip: ``all``, ``none`` or ``416 of 417``."""
        return {name: split.likely for name, split in self.partitions.items()}

    @property
    def route(self) -> str | None:
        """How the programs reach the chips; None where they differ."""
        routes = {result.route for result in self.values()}
        return routes.pop() if len(routes) == 1 else None

    @property
    def doubts(self) -> list[str]:
        """What makes numbers doubtful although everything runs: tables that nobody has read."""
        from aneforge.study.doubts import doubts_of_graph  # here, because the simulator is heavy

        return doubts_of_graph(self.graph, {chip_label(name): result.target for name, result in self.items()})

    def to_json(self) -> dict[str, Any]:
        head = {"model": self.model, "ok": self.ok, "failed": self.failed, "route": self.route, "doubts": self.doubts}
        runtime = {"runtime": self._study.runtime.name, "os": self._study.os, "likely": self.likely}
        outcomes = {name: outcome.to_json() for name, outcome in self.outcomes.items()}
        parts = {name: taken._asdict() for name, taken in self.handed_on.items()}
        runtime |= {"handed_on": parts} if parts else {}
        return {**head, "verdicts": self.verdicts, "outcomes": outcomes, **runtime, **super().to_json()}

    def records(self) -> list[dict[str, Any]]:
        """A row for each chip: its verdict, what the runtime likely gives its engine, and operations by status."""
        verdicts, likely = self.verdicts, self.likely
        return [
            {"chip": chip_label(name), "verdict": verdicts[name], "likely": likely[name], **result.counts}
            for name, result in self.items()
        ]

    def __str__(self) -> str:
        return self.text()

    def text(self, paint: Paint = str, everything: bool = False) -> str:
        """The report as text; ``paint`` colours the word for an outcome, ``everything`` lists each node."""
        counts = f"{len(self._study.operations.counted):,} operations, {len(self.graph.weights):,} stored weights"
        head = f"{counts}{self._by_route()}{self._by_runtime()}"
        parts = [f"{head}\n\n{self._table()}", *self._converted(), *self._handed_on()]
        parts += self._reasons(paint, everything)
        parts += self._what_next()
        if doubts := self.doubts:
            parts.append("\n".join(wrapped(f"doubtful: {doubt}") for doubt in doubts))
        if failed := self.failed:
            met = [grade for grade in self.fail_on if any(self._has(grade, name) for name in failed)]
            parts.append(wrapped(f"fails on {', '.join(met or self.fail_on)}: {chip_labels(failed)}"))
        return "\n\n".join(parts)

    def _what_next(self) -> Iterator[str]:
        """Which command says more about what is not a plain yes."""
        outcomes = self.outcomes.values()
        if any(outcome.kind == "in part" or outcome.programs > 1 for outcome in outcomes):
            yield "aneforge partition shows what runs where, aneforge estimate how long it takes"
        if any(outcome.wrong for outcome in outcomes):
            yield (
                "numbers can be wrong: aneforge risks shows where and writes a cure, aneforge compare how much;\n"
                "  say how large inputs are with --max-abs"
            )

    def _converted(self) -> Iterator[str]:
        """What a conversion does to the types of a file that no runtime reads as it is."""
        file = self.graph.file
        if file is not None and file.stated and not self._study.by_runtime:
            yield wrapped(
                f"the file is in {file.stated}, and this is about its conversion to fp16: coremltools does so unless "
                "compute_precision=FLOAT32 is asked for, Core AI with model.half(); what stays in fp32 leaves the "
                "engine"
            )

    @property
    def handed_on(self) -> Mapping[str, Taken]:
        """How much of the file each form of a runtime takes that hands parts of it on, where such a runtime is asked
        about: the number of nodes, how many are taken, and in how many parts."""
        file = self.graph.file
        return {} if file is None or not self._study.runtime.hands_to else file.providers.taken

    def _handed_on(self) -> Iterator[str]:
        parts = [
            f"{RUNTIME_LABELS[name]} hands Core ML {taken.taken:,} of {taken.nodes:,} nodes in "
            f"{plural(taken.partitions, 'part')}"
            for name, taken in self.handed_on.items()
        ]
        if parts:
            yield wrapped("; ".join(parts))

    def _by_route(self) -> str:
        """The route, where not every chip takes it."""
        routes = {result.route for result in self.values()}
        below = any(result.family is Family.OLDER for result in self.values())
        return f"; by the {routes.pop()} route" if len(routes) == 1 and (below or routes == {"direct"}) else ""

    def _by_runtime(self) -> str:
        """The runtime, where the answer is about one, and the system."""
        study = self._study
        return f"; by {study.runtime.label}, system {study.os}" if study.by_runtime else f"; system {study.os}"

    def _table(self) -> str:
        rows: list[tuple[Any, ...]] = []
        groups = self.groups()
        # A line has room for so much.
        rare = [status for status in _RARE if not any(result.counts[status] for *_, result in groups)]
        shown = [status for status in STATUSES if status not in rare]
        wide = _WIDE if all(len(str(outcome)) < _NARROW for _, outcome, _, _ in groups) else _NARROW
        for labels, outcome, likely, result in groups:
            counts = result.counts
            cells = [counts[status] or "-" for status in shown]
            first, *rest = textwrap.wrap(", ".join(labels), wide)
            rows.append((first, outcome.short(), likely, *cells))
            rows += [(f"  {line}", *[""] * (len(cells) + 2)) for line in rest]
        return text.columns(("chips", *self.heads, *shown), rows)

    @property
    def heads(self) -> tuple[str, str]:
        """What the columns of the verdict and of the likely placement are called."""
        label = self._study.runtime.label
        return (f"by {label}" if self._study.by_runtime else "engine takes it", f"{label} likely")

    def groups(self) -> list[tuple[list[str], Outcome, str, Preflight]]:
        """Chips with the same outcome share a line."""
        groups: dict[tuple[Any, ...], tuple[list[str], Outcome, str, Preflight]] = {}
        outcomes, likely = self.outcomes, self.likely
        for name, result in self.items():
            reports = ((grade, report) for grade in GRADES for report in result.of(grade))
            told = [(grade, entry.name, entry.rule, _unnamed(entry)) for grade, entry in reports]
            key = repr(told), repr(result.counts), outcomes[name], likely[name]
            groups.setdefault(key, ([], outcomes[name], likely[name], result))[0].append(chip_label(name))
        return list(groups.values())

    def reasons_beside(self, seen: set[tuple[Any, ...]], paint: Paint, everything: bool) -> list[str]:
        """The reasons unless all of them were seen, by rule, kind of op and chip, at another shape; adds them."""
        keys = {
            (grade, report.rule, _likeness(report), report.name, name)
            for name, result in self.items()
            for grade in GRADES
            for report in result.of(grade)
        }
        is_known = keys <= seen
        seen |= keys
        return [] if is_known else list(self._reasons(paint, everything))

    def _reasons(self, paint: Paint, everything: bool) -> Iterator[str]:
        """Each reason once, with the nodes and chips it concerns: by rule and kind of op, or every message."""
        for grade in GRADES:
            reasons: dict[tuple[Any, ...], _Reason] = {}
            for name, result in self.items():
                for report in result.of(grade):
                    alike = _unnamed(report) if everything else _likeness(report)
                    key = (report.rule, report.limit, report.basis, alike)
                    reasons.setdefault(key, _Reason()).add(name, report)
            most = len(reasons) if everything else _MOST_REASONS
            for reason in list(reasons.values())[:most]:
                told = "\n".join(reason.lines(grade, everything))
                yield paint(grade) + told.removeprefix(grade)
            if len(reasons) > most:
                yield f"{grade}: {len(reasons) - most} more reasons (--all lists them)"


class _Reason:
    """Nodes that are refused, rewritten or risky alike, and the chips on which they are."""

    def __init__(self) -> None:
        self.nodes: dict[str, OpReport] = {}
        self.chips: dict[str, None] = {}

    def add(self, chip: str, report: OpReport) -> None:
        self.nodes.setdefault(report.name, report)
        self.chips.setdefault(chip)

    def lines(self, grade: str, everything: bool) -> Iterator[str]:
        first = next(iter(self.nodes.values()))
        names = list(self.nodes)
        kind = some(list(dict.fromkeys(map(_kind, self.nodes.values()))))
        if len(names) == 1:
            yield wrapped(f"{grade}: {first.name} ({kind} {list(first.shape)}, {first.where})")
        else:
            listed = ", ".join(names) if everything else some(names)
            yield wrapped(f"{grade}: {len(names):,} ops of {kind} ({first.rule or 'no rule'}): {listed}")
        label = chip_label(next(iter(self.chips)))
        message = with_label(first.message or "rewritten", first.target, label)
        example = f"{first.name} {list(first.shape)}, {first.where}: " if len(names) > 1 else ""
        yield wrapped(f"{example}{message} {first.evidence.label()}", "  ")
        if first.verdict_words:
            yield wrapped(f"verdict: {first.verdict_words}", "  ")
        if isinstance(first.limit, (int, float, tuple)) and first.extent is not None:
            word = "reaches" if first.basis else "here"
            yield wrapped(f"limit {_figure(first.limit)}, {word} {self._extents()}", "  ")
        if first.basis:
            yield wrapped(f"rests on: {BASES[first.basis]}", "  ")
        if first.bound is not None:
            yield wrapped(f"error: {first.bound}", "  ")
        if first.hint:
            yield wrapped(f"do: {first.hint}", "  ")
        other = f"; {first.other_route}" if first.other_route else ""
        stage = "" if grade == "decompose" else f", at {first.stage} by the {first.route} route"
        yield wrapped(f"on: {chip_labels(self.chips)}{stage}{other}", "  ")

    def _extents(self) -> str:
        """What met the limit: the number, or between which numbers they lie."""
        extents = [report.extent for report in self.nodes.values()]
        distinct = list(dict.fromkeys(map(str, extents)))
        numbers = [extent for extent in extents if isinstance(extent, (int, float))]
        if len(distinct) > 1 and len(numbers) == len(extents):
            return f"{_figure(min(numbers))} to {_figure(max(numbers))}"
        return _figure(extents[0]) if len(distinct) == 1 else some(distinct)


def _figure(number: Any) -> str:
    """A number as people write it: a magnitude of data to four digits."""
    return f"{number:.4g}" if isinstance(number, float) and number != int(number) else str(number)


def _kind(report: OpReport) -> str:
    """The op, or what a host op is called in the file's own language."""
    return str(report.node.attrs["kind"]) if report.op == "host" else report.op


def _likeness(report: OpReport) -> str:
    """What ops share that are refused alike: their kind; of ops of the host, why they are there; of ops that a runtime
    keeps off the engine, that alone."""
    if report.status == "placement":
        return ""
    return str(report.node.attrs["reason"]) if report.op == "host" else report.op


def _unnamed(report: OpReport) -> str:
    """The message without the chip's name, which may differ between chips that say the same."""
    return with_label(report.message, report.target, "?")


def _grades(fail_on: str) -> tuple[str, ...]:
    grades = tuple(part.strip() for part in fail_on.split(",") if part.strip())
    unknown = [grade for grade in grades if grade not in (*GRADES, "none")]
    if unknown or not grades:
        raise ArgumentError(
            "fail_on", f"{fail_on!r} is not a list of outcomes. Choose from: {', '.join(GRADES)}, none."
        )
    return tuple(grade for grade in grades if grade != "none")
