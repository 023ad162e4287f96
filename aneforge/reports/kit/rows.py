"""Results as rows of the silicon form, with their source: verdicts, times, and what numbers were seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aneforge.errors import AneforgeError
from aneforge.reports.kit.experiments import MEASURED_TIMES, PLACEMENT, WORDS, Experiment
from aneforge.reports.kit.judge import CONFIRMS, CONTRADICTS, NONE, Findings, KitOutcome, plan_of
from aneforge.reports.kit.predict import KitSetting
from aneforge.reports.kit.results import CaseResult, KitResults
from aneforge.study.contribute import contributed_rows, timed_row, with_id
from aneforge.study.plan_files import ComputePlan


def silicon_rows(findings: Findings, source: str) -> dict[str, list[dict[str, Any]]]:
    """Rows by the file that they belong in: ``verdicts``, ``times`` and ``facts``."""
    results = findings.results
    system = f"{results.machine.os} ({results.machine.build})"
    verdicts: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = []
    facts: list[dict[str, Any]] = []
    for outcome in findings.outcomes:
        experiment = outcome.experiment
        for row in results.cases(experiment):
            if row.status != "ran" or not row.plan:
                continue
            graph = experiment.graph_of(experiment.cases[row.case])
            if experiment.kind == PLACEMENT and not experiment.form:  # the form of a package is no field of a row
                plan = _watched(plan_of(row), experiment)
                verdicts += contributed_rows(plan, KitSetting(results.machine.chip).name, system, graph, source)
            elif experiment.kind in MEASURED_TIMES:
                plan = replace(plan_of(row), latency_us=row.us)
                timed = timed_row(plan, KitSetting(results.machine.chip).name, system, graph, source)
                times += [] if timed is None else [_stated(timed, results, row)]
        if outcome.status in (CONFIRMS, CONTRADICTS, NONE):
            facts.append(_fact(outcome, results, system, source))
    return {"verdicts": verdicts, "times": times, "facts": facts}


def _watched(plan: ComputePlan, experiment: Experiment) -> ComputePlan:
    kept = tuple(op for op in plan.operations if op.name in experiment.watch)
    if not kept:
        raise AneforgeError(f"{experiment.id}: its plan has none of {', '.join(experiment.watch)}. Run the kit again.")
    return replace(plan, operations=kept)


def _stated(row: dict[str, Any], results: KitResults, case: CaseResult) -> dict[str, Any]:
    """A row of times with what the runner says of them."""
    low, high = min(case.times_ns) / 1e3, sorted(case.times_ns)[len(case.times_ns) // 10] / 1e3
    quality = "ok" if case.thermal == "nominal" and not results.machine.low_power else "noisy"
    more = {"scope": results.runner.scope, "stat": "median", "lat_min_us": low, "p10_us": high, "quality": quality}
    return with_id({**{key: value for key, value in row.items() if key != "id"}, **more})


def _fact(outcome: KitOutcome, results: KitResults, system: str, source: str) -> dict[str, Any]:
    """What one experiment shows, in the form of the numeric facts."""
    experiment = outcome.experiment
    rows = results.cases(experiment)
    measured: Any = [row.name for row in outcome.alive] or "none of the hypotheses"
    if experiment.kind == WORDS:
        measured = {name: out.sha256 for row in rows for name, out in row.outputs.items()}
    return with_id(
        {
            "kind": f"kit {experiment.kind}",
            "op": experiment.name,
            "chips": [results.machine.chip],
            "target": results.target.name,
            "os": system,
            "setup": f"{experiment.id} of the kit {results.kit.version}, question {experiment.digest()}",
            "measured": measured,
            "compare": "exact" if experiment.kind != "times" else "approx",
            "about": list(experiment.about),
            "shows": outcome.status,
            "source": source,
            "notes": outcome.in_words(results.machine.chip),
        }
    )
