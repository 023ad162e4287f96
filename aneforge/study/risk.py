"""``risks``: where a graph can lose numbers or digits on a chip, within the ranges that are known of its data.

A walk through the compiled program gives what every op can read. Each rule looks at one kind of op, and says what its
operands can reach, which limit that passes, and what to write instead. Only the first loss of a chain is listed: what
comes after an infinite number is lost already.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aneforge import text
from aneforge.chips.chip import Target
from aneforge.chips.families import Family
from aneforge.chips.names import chip_label, chip_labels
from aneforge.compiler.compile import resolve_target
from aneforge.compiler.program import Program
from aneforge.formats.arguments import Chips, Source, chip_of
from aneforge.frames import Tabular
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor
from aneforge.numerics.analysis import Coverage, analysis, as_risk, coverage_of
from aneforge.numerics.causes import with_fitting_rewrites
from aneforge.numerics.losses import Risk
from aneforge.numerics.node_losses import infinite_constants
from aneforge.study.ranges import Ranges, known_values, ranges_note, ranges_of, region_graphs
from aneforge.study.study import Study
from aneforge.text import ByChip, grouped, short, some, wrapped

_HEADERS = ("node", "rule", "reaches", "limit", "error", "rests on", "what")
_CHIP = "⟪chips⟫"  # stands for the chip in a text that several may share
_MOST_ROWS = 16  # risks up to which each has a row of its own


class Risks(list[Risk]):
    """Those of one graph on one chip, in the order of the program; ``coverage`` says what was not looked at."""

    def __init__(
        self, risks: Sequence[Risk], target: Target, coverage: Coverage | None = None, in_part: str = ""
    ) -> None:
        super().__init__(risks)
        self.target = target
        self.coverage = coverage or Coverage(0, 0)
        self.in_part = in_part
        """How much of the model is on the engine, where it is not all; the host's part is in float32, with no risk."""

    def to_json(self) -> dict[str, Any]:
        head = {"target": self.target.name, **({"in_part": self.in_part} if self.in_part else {})}
        return {**head, "risks": [risk.to_json() for risk in self], "coverage": self.coverage.to_json()}

    def __str__(self) -> str:
        return self.text()

    def text(self, everything: bool = False, label: str | None = None) -> str:
        """A block for each kind of risk with its worst nodes, or with ``everything`` a row for each risk."""
        chip = label or chip_label(self.target.name)
        parts = [wrapped(f"{chip}: {self.in_part}; the host's part was not looked at")] if self.in_part else []
        missed = [wrapped(line) for line in str(self.coverage).splitlines()]
        if not self:
            found = (
                "no risk was found in what could be bounded" if missed else "nothing can be lost within these ranges"
            )
            return "\n".join([*parts, f"{chip}: {found}", *missed])
        parts.append(f"{chip}: {len(self):,} risk{'s' if len(self) > 1 else ''}")
        if everything or len(self) <= _MOST_ROWS:
            parts += [text.columns(_HEADERS, [_row(risk) for risk in self], fit=True), "what to do", *_cures(self)]
            return "\n".join([*parts, *missed])
        for alike in grouped(self, lambda risk: (risk.rule, risk.basis, risk.hint)).values():
            parts += _block(alike)
        return "\n".join([*parts, *missed, "--all lists every node"])


def _row(risk: Risk) -> tuple[str, ...]:
    numbers = _number(risk.reaches), _number(risk.limit), _error(risk)
    return short(risk.node, 30), risk.rule, *numbers, risk.basis, risk.message


def _block(alike: Sequence[Risk]) -> Iterator[str]:
    """Risks of one rule with one cure: how many, which nodes for example, how far they reach, and what to do."""
    worst = max(alike, key=lambda risk: risk.reaches)
    count = f"{len(alike):,} node{'s' if len(alike) > 1 else ''}"
    yield wrapped(f"{worst.rule} ({worst.basis}), {count}: {some([risk.node for risk in alike])}")
    reach = f"reaches {_number(worst.reaches)}, limit {_number(worst.limit)}"
    error = "" if worst.expected_error is None else f", error {_error(worst)}"
    yield wrapped(f"{reach}{error}: {worst.message}", "  ")
    yield wrapped(f"do: {worst.hint}", "  ")
    for name in dict.fromkeys(risk.rewrite for risk in alike if risk.rewrite):
        yield wrapped(f"--out applies {name}", "    ")


def _cures(risks: Sequence[Risk]) -> list[str]:
    """What to do, once for each kind and rewrite."""
    forms: dict[str, dict[str, None]] = {}
    for risk in risks:
        known = forms.setdefault(f"{risk.rule}: {risk.hint}", {})
        known |= {risk.rewrite: None} if risk.rewrite else {}
    lines: list[str] = []
    for cure, names in forms.items():
        lines += [wrapped(cure, "  "), *(f"    --out applies {name}" for name in names)]
    return lines


def _number(value: float) -> str:
    return "any" if math.isinf(value) else f"{value:.4g}"


def _error(risk: Risk) -> str:
    if risk.expected_error is None:
        return "-"
    return "lost" if math.isinf(risk.expected_error) else text.percent(risk.expected_error)


class RiskReport(ByChip[Risks], Tabular):
    """The risks of one model on each chip. ``ok`` is True where nothing can be lost on any of them."""

    def __init__(self, results: Mapping[str, Risks], note: str) -> None:
        super().__init__(results)
        self.note = note

    @property
    def ok(self) -> bool:
        """Whether no risk was found on any chip."""
        return not any(self.values())

    def records(self) -> list[dict[str, Any]]:
        """A row for each risk on each chip: where, what the layer reads, what the chip holds, and the cure."""
        return [
            {
                "chip": chip_label(name),
                "node": risk.node,
                "op": risk.op,
                "rule": risk.rule,
                "low": None if risk.range is None else risk.range.low,
                "high": None if risk.range is None else risk.range.high,
                "limit": risk.limit,
                "lost": risk.lost,
                "cure": risk.rewrite,
            }
            for name, found in self.items()
            for risk in found
        ]

    def text(self, everything: bool = False) -> str:
        """The report; ``everything`` lists each node."""
        alike: dict[str, list[str]] = {}  # what chips say is the same but for their names
        for name, result in self.items():
            alike.setdefault(result.text(everything, _CHIP), []).append(name)
        parts = [words.replace(_CHIP, chip_labels(names)) for words, names in alike.items()]
        notes = "\n".join(wrapped(line) for line in self.note.splitlines())
        return "\n\n".join([*parts, *([notes] if notes else [])])

    def __str__(self) -> str:
        return self.text()


def risks(
    model: Source,
    target: Chips = None,
    max_abs: float | None = None,
    inputs: Any = None,
    ranges: Ranges = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> RiskReport:
    """Find what each chip can lose: overflows, clamps and cancellation, each with its range and a cure.

    ``target`` is the default chips where it is left out, or the chip of a compiled model. What the inputs can be is
    said in one of three ways: ``max_abs`` bounds every magnitude; ``inputs`` (as for :func:`compare`) are run, and
    what is seen counts; ``ranges`` says it by input, as for :func:`diverges`. Without any of them inputs are what they
    promise, or any finite fp16 number, which nearly every sum can lose. ``risks(...)["m1"]`` is the list of one chip.

    >>> import aneforge as af
    >>> x = af.input((1, 64), name="x", max_abs=300)
    >>> found = af.risks(x * x, "m1,m5")
    >>> [(risk.node, risk.lost) for risk in found["m1"]]
    [('mul_0', True)]
    >>> af.risks(af.input((1, 64), max_abs=2) * 2.0, "m1").ok
    True
    """
    study = Study(model, target, dims=dims, function=function)
    by_chip = {
        name: risks_of_chip(study, name, ranges_of(study.graph, [chip], max_abs, inputs, ranges))
        for name, chip in study.chips.items()
    }
    notes = [ranges_note(max_abs, inputs, ranges)]
    if inputs is None and not all(found.coverage.complete for found in by_chip.values()):
        notes.append("ranges that data show (--input FILE.npz) are narrower, and usually cover the whole model")
    return RiskReport(by_chip, "\n".join(note for note in notes if note))


def risks_on(out: Tensor | Sequence[Tensor] | Graph, target: str | int | Target, ranges: Ranges = None) -> Risks:
    """What can be lost on one chip, in every region of the model that its engine runs; ``ranges`` are as for
    ``risks``."""
    study = Study(out, resolve_target(target))
    return risks_of_chip(study, next(iter(study.chips)), ranges)


def risks_of_chip(study: Study, name: str, ranges: Ranges = None) -> Risks:
    """The same for one chip of a study."""
    split = study.partitions()[name]
    graph, chip = split.graph, split.target
    split.require_engine()
    parts: list[tuple[Program, Graph, Ranges]] = [
        (split.programs[region.number], part, known)
        for region, part, known in ([] if split.cut.untouched else region_graphs(split, ranges))
    ] or [(split.programs[0], graph, ranges)]
    listed: list[Risk] = []
    coverage = Coverage(0, 0)
    for program, part, known in parts:
        names = part.names()
        found = analysis(part, names, program.module, program.target, known_values(part, known))
        listed += [*infinite_constants(part, names), *found.risks]
        coverage += coverage_of(found.walk)
    found = with_fitting_rewrites(graph, listed)
    return Risks([*found, *_defects(study, name)], chip, coverage, split.in_part)


def precision_risk(
    out: Source,
    verbose: bool = False,
    target: str | int | Target | None = None,
    ranges: Ranges = None,
    *,
    dims: Mapping[str, int] | None = None,
    function: str | None = None,
) -> dict[str, Any]:
    """The risks of a graph on one chip as plain data; ``verbose`` prints them, ``ranges`` are as for ``risks``."""
    study = Study(out, chip_of(target, out), dims=dims, function=function)
    report = risks_of_chip(study, next(iter(study.chips)), ranges)
    if verbose:
        print(report)
    return {"target": report.target.name, "risks": report.to_json()["risks"]}


def _defects(study: Study, name: str) -> list[Risk]:
    """What rules know to be wrong on silicon whatever the data, such as the sizes of the attention layer."""
    if study.chips[name].family5 in (None, Family.OLDER):
        return []
    defects = study.preflights()[name].defects
    return [as_risk(finding, node=report.name, op=report.op) for report, finding in defects]
