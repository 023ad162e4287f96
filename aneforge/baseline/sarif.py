"""The report of ``aneforge ci`` as SARIF 2.1.0, which code hosts show at the line of the model."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aneforge.baseline.outcome import RULES, Outcome, Report
from aneforge.errors import shown
from aneforge.output.sarif import sarif_document


def sarif_text(report: Report, model_file: str, version: str) -> str:
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


def _result(outcome: Outcome, place: int, model_file: str) -> dict[str, Any]:
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


def _location(outcome: Outcome, model_file: str) -> dict[str, Any]:
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
