"""``aneforge measure gate``: the answers of ``aneforge check`` beside verdicts measured on real chips."""

from __future__ import annotations

from aneforge import text
from aneforge.cli.notes import working
from aneforge.documents import read_json
from aneforge.errors import AneforgeError
from aneforge.study.agreement import evaluate


def run(file: str, as_json: bool) -> None:
    document = read_json(file)
    rows = document.get("rows") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise AneforgeError(f"{file}: expected an object with 'rows', as in verdicts_train.json.")
    with working(f"checking {len(rows)} rows"):
        agreement = evaluate(rows)
    print(text.as_json(agreement.to_json()) if as_json else agreement)
