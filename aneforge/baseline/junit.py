"""The report of ``aneforge ci`` as JUnit XML: one test case for each target and check."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from aneforge.baseline.outcome import Outcome, Report
from aneforge.baseline.record import CHECKS
from aneforge.errors import shown
from aneforge.graph.node import located
from aneforge.targets.names import chip_label

# What XML 1.0 cannot hold, not even escaped; names of nodes are any text.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ALL = "all targets"


def junit_text(report: Report) -> str:
    """The file's content. No times and no host: the same report gives the same bytes."""
    suites = [_suite(report, "", ALL, ("baseline", "program", "numerics"))]
    suites += [_suite(report, name, chip_label(name), ("baseline", *CHECKS)) for name in report.targets]
    root = ElementTree.Element("testsuites", {"name": _clean(shown(f"aneforge ci {report.model}")), **_sums(suites)})
    root.extend(suites)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _sums(suites: Sequence[ElementTree.Element]) -> dict[str, str]:
    return {key: str(sum(int(suite.get(key, "0")) for suite in suites)) for key in ("tests", "failures", "errors")}


def _suite(report: Report, target: str, label: str, checks: Sequence[str]) -> ElementTree.Element:
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


def _belongs(report: Report, target: str, check: str) -> bool:
    """Cases that are always there, and those of a target that have something to say."""
    always = check in CHECKS if target else check == "baseline"
    return always or bool(report.about(target, check))


def _case(report: Report, target: str, label: str, check: str) -> ElementTree.Element:
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


def _lines(outcome: Outcome) -> str:
    where = f"\nat: {located(outcome.where)}" if outcome.where else ""
    return (
        f"{outcome.message}{where}\nwas: {shown(str(outcome.was))}\nis: {shown(str(outcome.now))}\ndo: {outcome.hint}"
    )


def _clean(words: str) -> str:
    return _FORBIDDEN.sub("?", words)
