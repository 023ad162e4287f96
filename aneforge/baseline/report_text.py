"""The report of ``aneforge ci`` as text for terminals and logs."""

from __future__ import annotations

import textwrap

from aneforge.baseline.outcome import Outcome, Report
from aneforge.baseline.record import CHECKS
from aneforge.graph.node import located
from aneforge.output import text
from aneforge.targets.names import chip_label

_MOST = 12  # of one rule; --json has all


def report_text(report: Report) -> str:
    """A table of targets and checks, then every change, gravest first."""
    rows = [(chip_label(name), *(report.state(name, check) for check in CHECKS)) for name in report.targets]
    parts = [text.columns(("chip", *CHECKS), rows)]
    parts += [_group(outcomes) for outcomes in _by_rule(report)]
    missing = _unchecked(report)
    if missing:
        parts.append(missing)
    return "\n\n".join(parts)


def counted(report: Report) -> str:
    """``2 errors, 1 warning``, or that nothing changed."""
    counts = [(len(report.of(severity)), severity) for severity in ("error", "warning", "note")]
    return ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count) or "no change"


def _by_rule(report: Report) -> list[list[Outcome]]:
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in report.outcomes:
        groups.setdefault((outcome.severity, outcome.rule), []).append(outcome)
    return list(groups.values())


def _group(outcomes: list[Outcome]) -> str:
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


def _unchecked(report: Report) -> str:
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
