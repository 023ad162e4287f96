"""``aneforge measure gate``: the answers of ``aneforge check`` beside verdicts measured on real chips."""

from __future__ import annotations

import json
from pathlib import Path

from aneforge import text
from aneforge.cli.notes import working
from aneforge.errors import AneforgeError
from aneforge.study.agreement import evaluate


def run(file: str, as_json: bool) -> None:
    path = Path(file)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise AneforgeError(f"{file}: cannot be read ({error}). Give a JSON file of measured verdicts.") from None
    except json.JSONDecodeError as error:
        raise AneforgeError(f"{file}: line {error.lineno} is not valid JSON ({error.msg}). Correct it.") from None
    rows = document.get("rows") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise AneforgeError(f"{file}: expected an object with 'rows', as in verdicts_train.json.")
    with working(f"checking {len(rows)} rows"):
        agreement = evaluate(rows)
    print(text.as_json(agreement.to_json()) if as_json else agreement)
