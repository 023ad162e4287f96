"""The data files: read when first asked for, checked against their recorded checksum."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from aneforge.errors import DataError

DATA = Path(__file__).resolve().parent / "data"
REMEDY = "reinstall aneforge to restore it, or seal a deliberate edit with 'python tools/import_facts.py --seal'"


def _read(name: str) -> bytes:
    try:
        return (DATA / name).read_bytes()
    except OSError as error:
        raise DataError(f"data file {name}: {error.strerror or error}; {REMEDY}") from None


def parse(name: str, raw: bytes) -> dict[str, Any]:
    """The JSON document in ``raw``, or an error that names the line."""
    try:
        document = json.loads(raw)
    except UnicodeDecodeError as error:
        raise DataError(f"data file {name}: byte {error.start} is not UTF-8; {REMEDY}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise DataError(f"data file {name}: {where} is not valid JSON ({error.msg}); {REMEDY}") from None
    if not isinstance(document, dict):
        raise DataError(f"data file {name}: expected a JSON object at the top; {REMEDY}")
    return document


@cache
def _checksums() -> dict[str, str]:
    sums = parse("manifest.json", _read("manifest.json")).get("sha256")
    if not isinstance(sums, dict):
        raise DataError(f"data file manifest.json: no 'sha256' table; {REMEDY}")
    return sums


def topics() -> list[str]:
    """Every topic that is sealed."""
    return [name.removesuffix(".json") for name in _checksums()]


@cache
def load(topic: str) -> dict[str, Any]:
    """The document ``data/TOPIC.json``. Treat it as read-only: all look-ups share it."""
    name = f"{topic}.json"
    raw = _read(name)
    document = parse(name, raw)
    expected = _checksums().get(name)
    actual = hashlib.sha256(raw).hexdigest()
    if actual != expected:
        from aneforge.chips import schema  # the slow, exact check runs only for a file known to be off

        problem = next(iter(schema.problems(topic, document)), None)
        if problem is None and expected is None:
            problem = "not listed in manifest.json"
        if problem is None:
            problem = f"contents changed since it was sealed (sha256 {actual[:12]}, expected {str(expected)[:12]})"
        raise DataError(f"data file {name}: {problem}; {REMEDY}")
    return document


def clear() -> None:
    """Forget every loaded file (for tests that point ``DATA`` elsewhere)."""
    load.cache_clear()
    _checksums.cache_clear()
