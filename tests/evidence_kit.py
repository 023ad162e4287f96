"""Published measurements: all of them where the facts lie beside the clone, else the extract in ``tests/evidence``.

``python tools/extract_facts.py FACTS`` writes the extract.
"""

from __future__ import annotations

from pathlib import Path

EXTRACT = Path(__file__).resolve().parent / "evidence"
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "facts"


def evidence(extract: str, whole: str) -> Path:
    """The file of all rows, or that of the extract."""
    full = BESIDE / whole
    return full if full.is_file() else EXTRACT / extract
