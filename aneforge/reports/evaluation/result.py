"""The answer of an evaluation: figures of every run, what differs between them, and the samples that show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from aneforge import text
from aneforge.reports.evaluation.metrics import Metric, PairedTest, Score, metric_of_plan, paired_test, score_of
from aneforge.reports.evaluation.records import EvaluationPlan, SampleScores, rows_of

REFERENCE = "reference"
"""The run of the float reference."""
_WORST, _CLASSES, _FAILED = 8, 8, 5


@dataclass(frozen=True)
class Explained:
    """The layer behind the difference of two runs, from the sample where they are farthest apart."""

    run: str
    against: str
    sample: int
    node: str
    """The first node whose difference reaches half of that of the output."""
    relative: float
    first: str
    """The first node with another bit."""

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __str__(self) -> str:
        start = "" if self.first == self.node else f"; bits differ from {self.first} on"
        return f"{self.run} against {self.against}, sample {self.sample}: {self.node} ({self.relative:.2g}){start}"


@dataclass
class Evaluation:
    """Figures of a model on a data set. ``scores`` are by run and metric, ``tests`` by pair of runs and metric."""

    asked: EvaluationPlan
    records: Sequence[SampleScores]
    """Samples that have scores, in order."""
    failed: Mapping[int, str]
    """Samples that have none, with the reason."""
    explained: Sequence[Explained] = field(default_factory=tuple)
    notes: Sequence[str] = field(default_factory=tuple)

    @classmethod
    def of(cls, asked: EvaluationPlan, done: Mapping[int, SampleScores], **more: Any) -> Evaluation:
        ordered = [done[sample] for sample in sorted(done)]
        failed = {record.sample: f"{record.error}" for record in ordered if record.error}
        return cls(asked, [record for record in ordered if not record.error], failed, **more)

    @property
    def samples(self) -> int:
        return len(self.records)

    @property
    def is_whole(self) -> bool:
        """Whether every sample of every shard is done."""
        return self.samples + len(self.failed) == self.asked.total

    @cached_property
    def runs(self) -> list[str]:
        """The names of the runs, the float reference first."""
        return [*([REFERENCE] if self.asked.reference else []), *self.asked.runs]

    @cached_property
    def metrics(self) -> list[Metric]:
        return [metric_of_plan(name) for name in self.asked.metrics]

    def _has(self, run: str, metric: Metric) -> bool:
        return bool(self.records) and metric.name in self.records[0].scores.get(run, {})

    @cached_property
    def scores(self) -> dict[str, dict[str, Score]]:
        return {
            run: {
                metric.name: score_of(metric, rows_of(list(self.records), run, metric.name))
                for metric in self.metrics
                if self._has(run, metric)
            }
            for run in self.runs
        }

    @cached_property
    def tests(self) -> dict[tuple[str, str], dict[str, PairedTest]]:
        """Every run against the float reference, and against the first run."""
        first = next(iter(self.asked.runs), None)
        bases = [name for name in (REFERENCE if self.asked.reference else None, first) if name is not None]
        pairs = [(run, base) for base in bases for run in self.runs if run not in (base, REFERENCE)]
        tests = {}
        for run, base in pairs:
            both = [metric for metric in self.metrics if self._has(run, metric) and self._has(base, metric)]
            records = list(self.records)
            tests[run, base] = {
                metric.name: paired_test(
                    metric, rows_of(records, base, metric.name), rows_of(records, run, metric.name)
                )
                for metric in both
            }
        return {pair: found for pair, found in tests.items() if found}

    def worst(self, most: int = _WORST) -> list[tuple[str, SampleScores, float]]:
        """Samples on which a run says another class than the base, then those that are farthest from it: run, sample,
        distance."""
        base = self._base
        rows = [
            (record.classes.get(run) != record.classes.get(base), record.apart.get(run, 0.0), run, record)
            for record in self.records
            for run in self.asked.runs
            if run != base and record.apart.get(run, 0.0) > 0
        ]
        rows.sort(key=lambda row: (not row[0], -row[1], row[3].sample))
        return [(run, record, apart) for _, apart, run, record in rows[:most]]

    @property
    def _base(self) -> str:
        """What the others are compared with: the float reference where there is one."""
        return REFERENCE if self.asked.reference else next(iter(self.asked.runs), "")

    @cached_property
    def changed_classes(self) -> dict[str, dict[int, tuple[int, int, int]]]:
        """By run and class of the label: samples, right in the base, right in the run; only classes that differ."""
        base, changed = self._base, {}
        for run in self.asked.runs:
            counts: dict[int, list[int]] = {}
            for record in self.records:
                if run == base or record.label is None or run not in record.classes:
                    continue
                row = counts.setdefault(record.label, [0, 0, 0, 0])
                right = [record.classes[name] == record.label for name in (base, run)]
                row[0] += 1
                row[1] += right[0]
                row[2] += right[1]
                row[3] += right[0] != right[1]
            differing = {
                label: (row[0], row[1], row[2])
                for label, row in sorted(counts.items(), key=lambda item: -item[1][3])
                if row[3]
            }
            if differing:
                changed[run] = differing
        return changed

    @property
    def disagreeing(self) -> dict[str, int]:
        """How many samples get another class than in the base, by run."""
        base = self._base
        return {
            run: sum(record.classes.get(run) != record.classes.get(base) for record in self.records)
            for run in self.asked.runs
            if run != base and any(record.classes for record in self.records)
        }

    # As text and as JSON.

    def to_json(self) -> dict[str, Any]:
        asked = self.asked
        return {
            "model": asked.model,
            "data": asked.data,
            "samples": self.samples,
            "of": asked.total,
            "whole": self.is_whole,
            "mode": asked.mode,
            "reference": asked.reference,
            "runs": {run: dict(what) for run, what in asked.runs.items()},
            "refused": dict(asked.refused),
            "scores": {
                run: {metric: score.to_json() for metric, score in scores.items()}
                for run, scores in self.scores.items()
            },
            "differences": [
                {"run": run, "against": base, "metric": metric, **test.to_json()}
                for (run, base), tests in self.tests.items()
                for metric, test in tests.items()
            ],
            "other_class": self.disagreeing,
            "classes": {
                run: {str(label): list(row) for label, row in rows.items()}
                for run, rows in self.changed_classes.items()
            },
            "worst": [
                {
                    "run": run,
                    "sample": record.sample,
                    "name": record.name,
                    "apart": apart,
                    "label": record.label,
                    "class": record.classes.get(run),
                    "class_of_base": record.classes.get(self._base),
                }
                for run, record, apart in self.worst()
            ],
            "explained": [entry.to_json() for entry in self.explained],
            "failed": {str(sample): reason for sample, reason in self.failed.items()},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return "\n\n".join(part for part in self._parts() if part)

    def _parts(self) -> list[str]:
        asked = self.asked
        of = "" if self.is_whole else f" of {asked.total}"
        head = f"{asked.model} on {asked.data}: {self.samples}{of} samples, {asked.mode}"
        if asked.reference:
            head += f", reference {asked.reference}"
        parts = [head]
        if not self.records:
            return [*parts, "no sample has a score", self._failed_text()]
        parts.append(text.columns(("run", *(metric.name for metric in self.metrics)), self._score_rows()))
        parts.append("95 per cent intervals in brackets")
        rows = [
            (run, base, metric, _signed(self, metric, test.difference), _interval(self, metric, test), f"{test.p:.2g}")
            for (run, base), tests in self.tests.items()
            for metric, test in tests.items()
        ]
        if rows:
            parts.append(text.columns(("run", "against", "metric", "difference", "interval", "p"), rows))
        parts += [self._class_text(), self._worst_text(), "\n".join(f"first layer: {one}" for one in self.explained)]
        parts += ["\n".join(f"{run}: refused: {why}" for run, why in asked.refused.items())]
        return [*parts, self._failed_text(), "\n".join(self.notes)]

    def _score_rows(self) -> list[tuple[str, ...]]:
        rows = []
        for run, scores in self.scores.items():
            cells = (_score(self, metric, scores.get(metric.name)) for metric in self.metrics)
            rows.append((f"{REFERENCE} ({self.asked.reference})" if run == REFERENCE else run, *cells))
        return rows

    def _class_text(self) -> str:
        lines = []
        for run, count in self.disagreeing.items():
            if count:
                lines.append(f"{run}: {text.plural(count, 'sample')} with another class than {self._base}")
            for label, (number, before, after) in list(self.changed_classes.get(run, {}).items())[:_CLASSES]:
                lines.append(f"  class {label}: {before} of {number} right in {self._base}, {after} in {run}")
        return "\n".join(lines)

    def _worst_text(self) -> str:
        rows = [
            (
                run,
                record.sample,
                f"{apart:.2g}",
                "-" if record.label is None else record.label,
                record.classes.get(self._base, "-"),
                record.classes.get(run, "-"),
                text.short(record.name),
            )
            for run, record, apart in self.worst()
        ]
        heads = ("run", "sample", f"from {self._base}", "label", self._base, "class", "name")
        return text.columns(heads, rows) if rows else ""

    def _failed_text(self) -> str:
        if not self.failed:
            return ""
        lines = [f"{text.plural(len(self.failed), 'sample')} without a score"]
        return "\n".join(lines + [f"  {why}" for why in list(self.failed.values())[:_FAILED]])


def _is_share(evaluation: Evaluation, name: str) -> bool:
    return next((metric.is_share for metric in evaluation.metrics if metric.name == name), False)


def _score(evaluation: Evaluation, metric: Metric, score: Score | None) -> str:
    if score is None:
        return "-"
    if metric.is_share:
        return f"{100 * score.value:.2f} % [{100 * score.low:.2f}, {100 * score.high:.2f}]"
    return f"{score.value:.6g} [{score.low:.6g}, {score.high:.6g}]"


def _signed(evaluation: Evaluation, metric: str, value: float) -> str:
    return f"{100 * value:+.2f} points" if _is_share(evaluation, metric) else f"{value:+.3g}"


def _interval(evaluation: Evaluation, metric: str, test: PairedTest) -> str:
    factor, form = (100, "+.2f") if _is_share(evaluation, metric) else (1, "+.3g")
    return f"[{factor * test.low:{form}}, {factor * test.high:{form}}]"


def apart(base: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> float:
    """The norm of the difference over that of the base, over all outputs; what is finite on one side only counts as
    its whole."""
    square = whole = 0.0
    for one, two in zip(base.values(), other.values(), strict=True):
        want, have = (np.asarray(array).reshape(-1).astype(np.float64) for array in (one, two))
        finite = np.isfinite(want)
        want, have = want[finite], np.where(np.isfinite(have[finite]), have[finite], 0.0)
        gap = want - have
        square, whole = square + float(gap @ gap), whole + float(want @ want)
    return (square / whole) ** 0.5 if whole else float(square > 0)
