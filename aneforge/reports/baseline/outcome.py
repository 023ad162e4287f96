"""What a comparison with a baseline gives: one outcome a change, and the report of all of them."""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from aneforge import text
from aneforge.chips.names import chip_label
from aneforge.errors import shown
from aneforge.graph.node import located
from aneforge.reports.baseline.file import CHECKS
from aneforge.reports.sarif import sarif_document


@dataclass(frozen=True)
class BaselineRule:
    """One kind of outcome: what it is about, how grave it is, and what to do about it."""

    what: str
    severity: str
    title: str
    do: str
    change: bool = True
    """Whether the model or its results are other than recorded; False where something was only not compared."""


_MEANT = "If it is meant, run aneforge ci update and commit the baseline."
_REFRESH = "Run aneforge ci update, so that losing it again is seen."

RULES = {
    "model-changed": BaselineRule("baseline", "warning", "the model is not the recorded one", _MEANT),
    "version-differs": BaselineRule(
        "baseline",
        "warning",
        "another version of aneforge wrote the baseline",
        "Changes may come from aneforge: see its change log, then run aneforge ci update.",
        change=False,
    ),
    "target-not-recorded": BaselineRule(
        "baseline",
        "error",
        "a target is not in the baseline",
        "Run aneforge ci update, or leave the target out.",
    ),
    "target-not-checked": BaselineRule(
        "baseline",
        "note",
        "recorded targets were not asked for",
        "Leave --target out to check all of them.",
        change=False,
    ),
    "check-not-recorded": BaselineRule(
        "baseline",
        "note",
        "the baseline was written without a check",
        "Run aneforge ci update without --skip.",
        change=False,
    ),
    "program-lost": BaselineRule("verdict", "error", "a target no longer takes the model", _MEANT),
    "program-gained": BaselineRule("verdict", "note", "a target takes the model now", _REFRESH),
    "engine-takes-less": BaselineRule("verdict", "error", "the engine takes less of the model", _MEANT),
    "engine-takes-more": BaselineRule("verdict", "note", "the engine takes more of the model", _REFRESH),
    "placed-less": BaselineRule(
        "verdict", "warning", "the runtime likely gives less of the model to the engine", _MEANT
    ),
    "placed-more": BaselineRule(
        "verdict", "note", "the runtime likely gives more of the model to the engine", _REFRESH
    ),
    "verdict-worse": BaselineRule("verdict", "error", "a node has a worse verdict", _MEANT),
    "verdict-better": BaselineRule("verdict", "note", "a node has a better verdict", _REFRESH),
    "verdict-other": BaselineRule("verdict", "warning", "a node has its verdict by another rule", _MEANT),
    "program-grew": BaselineRule("program", "error", "a program became larger", _MEANT),
    "program-shrank": BaselineRule("program", "note", "a program became smaller", _REFRESH),
    "programs-split": BaselineRule("program", "error", "targets no longer share a program", _MEANT),
    "programs-joined": BaselineRule("program", "note", "targets share a program now", _REFRESH),
    "numerics-lost": BaselineRule("numerics", "error", "a program can no longer be simulated", _MEANT),
    "numerics-gained": BaselineRule("numerics", "note", "a program can be simulated now", _REFRESH),
    "input-changed": BaselineRule("numerics", "error", "the inputs are not the recorded ones", _MEANT),
    "output-changed": BaselineRule("numerics", "error", "outputs came, went or changed their shape", _MEANT),
    "bits-changed": BaselineRule("numerics", "error", "an output has other bits", _MEANT),
    "chips-apart": BaselineRule("numerics", "error", "two chips differ more than recorded", _MEANT),
    "chips-closer": BaselineRule("numerics", "note", "two chips differ less than recorded", _REFRESH),
    "slower": BaselineRule("estimate", "error", "a call is estimated to take longer", _MEANT),
    "faster": BaselineRule("estimate", "note", "a call is estimated to take less", _REFRESH),
    "over-budget": BaselineRule(
        "estimate",
        "error",
        "a call takes longer than --max-us allows",
        "Make the model smaller (aneforge estimate --layers shows where the time goes), or allow more.",
    ),
}


@dataclass(frozen=True)
class ChangeOutcome:
    """One difference. ``target`` is empty where it concerns all; ``node`` is a node, an output or a figure."""

    rule: str
    target: str
    node: str
    was: Any
    now: Any
    message: str
    severity: str = ""
    hint: str = ""
    where: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        known = RULES[self.rule]
        object.__setattr__(self, "severity", self.severity or known.severity)
        object.__setattr__(self, "hint", shown(self.hint or known.do))
        for name in ("node", "message"):  # names of models and of baselines: anybody's text
            object.__setattr__(self, name, shown(getattr(self, name)))

    @property
    def what(self) -> str:
        """verdict, program, numerics, estimate, or baseline where the comparison itself is the subject."""
        return RULES[self.rule].what

    def strictly(self) -> ChangeOutcome:
        """As ``--strict`` has it: every change is an error, also one for the better."""
        return replace(self, severity="error") if RULES[self.rule].change else self

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "what": self.what,
            "severity": self.severity,
            "target": self.target or None,
            "node": self.node or None,
            "was": self.was,
            "is": self.now,
            "message": self.message,
            "hint": self.hint,
        }


@dataclass(frozen=True)
class BaselineReport:
    """A model against its baseline. ``unchecked`` says why a check of a target has no answer."""

    model: str
    targets: tuple[str, ...]
    outcomes: tuple[ChangeOutcome, ...]
    unchecked: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.of("error")

    def of(self, severity: str) -> list[ChangeOutcome]:
        return [outcome for outcome in self.outcomes if outcome.severity == severity]

    def about(self, target: str, check: str) -> list[ChangeOutcome]:
        return [outcome for outcome in self.outcomes if outcome.target == target and outcome.what == check]

    def state(self, target: str, check: str) -> str:
        """``same``, ``changed`` (fails), ``other`` (listed, and does not fail) or ``-`` where nothing was compared."""
        outcomes = self.about(target, check)
        if any(outcome.severity == "error" for outcome in outcomes):
            return "changed"
        if outcomes:
            return "other"
        return "-" if (target, check) in self.unchecked else "same"

    def to_json(self) -> dict[str, Any]:
        from aneforge.reports.baseline.file import CHECKS

        return {
            "model": self.model,
            "ok": self.ok,
            "counts": {severity: len(self.of(severity)) for severity in ("error", "warning", "note")},
            "targets": {name: {check: self.state(name, check) for check in CHECKS} for name in self.targets},
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
        }


def sorted_outcomes(outcomes: Sequence[ChangeOutcome]) -> tuple[ChangeOutcome, ...]:
    """Gravest first, else in the order in which they were found."""
    order = ("error", "warning", "note")
    return tuple(sorted(outcomes, key=lambda outcome: order.index(outcome.severity)))


# The report of ``aneforge ci`` as text for terminals and logs.


_MOST = 12  # of one rule; --json has all


def report_text(report: BaselineReport) -> str:
    """A table of targets and checks, then every change, gravest first."""
    rows = [(chip_label(name), *(report.state(name, check) for check in CHECKS)) for name in report.targets]
    parts = [text.columns(("chip", *CHECKS), rows)]
    parts += [_group(outcomes) for outcomes in _by_rule(report)]
    missing = _unchecked(report)
    if missing:
        parts.append(missing)
    return "\n\n".join(parts)


def counted(report: BaselineReport) -> str:
    """``2 errors, 1 warning``, or that nothing changed."""
    counts = [(len(report.of(severity)), severity) for severity in ("error", "warning", "note")]
    return ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count) or "no change"


def _by_rule(report: BaselineReport) -> list[list[ChangeOutcome]]:
    groups: dict[tuple[str, str], list[ChangeOutcome]] = {}
    for outcome in report.outcomes:
        groups.setdefault((outcome.severity, outcome.rule), []).append(outcome)
    return list(groups.values())


def _group(outcomes: list[ChangeOutcome]) -> str:
    lines = []
    for outcome in outcomes[:_MOST]:
        where = f" ({located(outcome.where)})" if outcome.where else ""
        lines += _wrapped(f"{outcome.severity}: {outcome.message}{where}", "  ")
    if len(outcomes) > _MOST:
        lines.append(f"  ... and {len(outcomes) - _MOST} more of these (--json lists all)")
    for hint in dict.fromkeys(outcome.hint for outcome in outcomes):
        lines += _wrapped(f"  do: {hint}", "      ")
    return "\n".join(lines)


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(line, 116, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _unchecked(report: BaselineReport) -> str:
    """Why there are dashes in the table, each reason once."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for (name, check), why in report.unchecked.items():
        reasons.setdefault(why, {}).setdefault(check, []).append(chip_label(name))
    lines = []
    for why, checks in reasons.items():
        alike: dict[str, list[str]] = {}
        for check, chips in checks.items():
            alike.setdefault(", ".join(chips), []).append(check)
        for chips, names in alike.items():
            everywhere = len(checks[names[0]]) == len(report.targets)
            lines += _wrapped(f"not compared, {why}: {', '.join(names)}{'' if everywhere else f' on {chips}'}", "  ")
    return "\n".join(lines)


# The report of ``aneforge ci`` as JUnit XML: one test case for each target and check.


# What XML 1.0 cannot hold, not even escaped; names of nodes are any text.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ALL = "all targets"


def junit_text(report: BaselineReport) -> str:
    """The file's content. No times and no host: the same report gives the same bytes."""
    suites = [_suite(report, "", ALL, ("baseline", "program", "numerics"))]
    suites += [_suite(report, name, chip_label(name), ("baseline", *CHECKS)) for name in report.targets]
    root = ElementTree.Element("testsuites", {"name": _clean(shown(f"aneforge ci {report.model}")), **_sums(suites)})
    root.extend(suites)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _sums(suites: Sequence[ElementTree.Element]) -> dict[str, str]:
    return {key: str(sum(int(suite.get(key, "0")) for suite in suites)) for key in ("tests", "failures", "errors")}


def _suite(report: BaselineReport, target: str, label: str, checks: Sequence[str]) -> ElementTree.Element:
    cases = [_case(report, target, label, check) for check in checks if _belongs(report, target, check)]
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": 0,
        "skipped": sum(case.find("skipped") is not None for case in cases),
    }
    numbers = {key: str(count) for key, count in counts.items()}
    suite = ElementTree.Element("testsuite", {"name": _clean(label), **numbers, "time": "0"})
    suite.extend(cases)
    return suite


def _belongs(report: BaselineReport, target: str, check: str) -> bool:
    """Cases that are always there, and those of a target that have something to say."""
    always = check in CHECKS if target else check == "baseline"
    return always or bool(report.about(target, check))


def _case(report: BaselineReport, target: str, label: str, check: str) -> ElementTree.Element:
    words = {"classname": shown(f"aneforge.ci.{report.model}"), "name": f"{label}: {check}", "time": "0"}
    case = ElementTree.Element("testcase", {key: _clean(word) for key, word in words.items()})
    outcomes = report.about(target, check)
    failed = [outcome for outcome in outcomes if outcome.severity == "error"]
    notes = [outcome for outcome in outcomes if outcome.severity != "error"]
    missing = report.unchecked.get((target, check))
    if missing and not outcomes:
        ElementTree.SubElement(case, "skipped", {"message": _clean(shown(missing))})
    for outcome in failed:
        failure = ElementTree.SubElement(case, "failure", {"message": _clean(outcome.message), "type": outcome.rule})
        failure.text = _clean(_lines(outcome))
    if notes:
        out = ElementTree.SubElement(case, "system-out")
        out.text = _clean("\n".join(f"{outcome.severity}: {_lines(outcome)}" for outcome in notes))
    return case


def _lines(outcome: ChangeOutcome) -> str:
    where = f"\nat: {located(outcome.where)}" if outcome.where else ""
    return (
        f"{outcome.message}{where}\nwas: {shown(str(outcome.was))}\nis: {shown(str(outcome.now))}\ndo: {outcome.hint}"
    )


def _clean(words: str) -> str:
    return _FORBIDDEN.sub("?", words)


# The report of ``aneforge ci`` as SARIF 2.1.0, which code hosts show at the line of the model.


def sarif_text(report: BaselineReport, model_file: str, version: str) -> str:
    """The file's content: every rule with its help, every outcome with its place."""
    rules = list(RULES)
    return sarif_document(
        version,
        [_rule(rule) for rule in rules],
        [_result(outcome, rules.index(outcome.rule), model_file) for outcome in report.outcomes],
        automationDetails={"id": shown(f"aneforge-ci/{report.model}/")},
        invocations=[{"executionSuccessful": True, "exitCode": 0 if report.ok else 1}],
    )


def _rule(name: str) -> dict[str, Any]:
    known = RULES[name]
    title = f"{known.title[0].upper()}{known.title[1:]}."
    return {
        "id": name,
        "name": "".join(word.capitalize() for word in name.split("-")),
        "shortDescription": {"text": title},
        "fullDescription": {"text": f"{title} Found by comparing the {known.what} with a committed baseline."},
        "help": {"text": known.do, "markdown": f"{known.do}"},
        "defaultConfiguration": {"level": known.severity},
        "properties": {"tags": [known.what]},
    }


def _result(outcome: ChangeOutcome, place: int, model_file: str) -> dict[str, Any]:
    # Without what was measured: a result is the same one as long as it is about the same thing.
    about = json.dumps([outcome.rule, outcome.target, outcome.node])
    return {
        "ruleId": outcome.rule,
        "ruleIndex": place,
        "level": outcome.severity,
        "message": {"text": f"{outcome.message}. {outcome.hint}"},
        "locations": [{"physicalLocation": _location(outcome, model_file)}],
        "partialFingerprints": {"aneforgeOutcome/v1": hashlib.blake2b(about.encode(), digest_size=12).hexdigest()},
        "properties": {
            "target": outcome.target,
            "node": outcome.node,
            "was": _safe(outcome.was),
            "is": _safe(outcome.now),
        },
    }


def _safe(value: Any) -> Any:
    return shown(value) if isinstance(value, str) else value


def _location(outcome: ChangeOutcome, model_file: str) -> dict[str, Any]:
    """The user's line, or the model file as a whole: its first line, since hosts want one."""
    file, line = outcome.where or (model_file, 0)
    return {"artifactLocation": {"uri": _uri(file, model_file)}, "region": {"startLine": max(line, 1)}}


def _uri(file: str, model_file: str) -> str:
    """Relative to the folder the command runs in, as code hosts expect; no folder of this machine leaves it."""
    path, folder = Path(file), Path.cwd()
    if path.name == Path(model_file).name and not Path(model_file).is_absolute():
        path = Path(model_file)
    whole = path if path.is_absolute() else folder / path
    try:
        relative = whole.resolve().relative_to(folder.resolve())
    except (ValueError, OSError):
        relative = Path(path.name)
    return quote(relative.as_posix())
