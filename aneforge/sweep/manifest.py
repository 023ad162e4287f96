"""A list of models in a file, each with a revision and sizes: JSON, JSON lines or CSV. Errors name the line."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge.errors import AneforgeError, first_line

ENDINGS = (".json", ".jsonl", ".csv")
_KEYS = ("path", "revision", "dims", "sizes", "function")
_SPACE = re.compile(r"\s*")
_SIZE = re.compile(r"\s*[0-9]{1,18}\s*")
_EXAMPLE = '{"path": "net.onnx", "revision": "v1", "dims": {"batch": 1}}'


@dataclass(frozen=True)
class Entry:
    """One model of a manifest, its path as it is written there."""

    path: str
    revision: str
    dims: dict[str, int]
    function: str | None


def read_manifest(file: Path) -> list[Entry]:
    """The models of a manifest, in their order."""
    try:
        content = file.read_text(encoding="utf-8-sig")  # spreadsheets write a mark of the order of bytes
        records = list(_READERS[file.suffix.casefold()](content))
    except OSError as error:
        raise AneforgeError(f"{file}: the manifest cannot be read ({error.strerror})") from None
    except json.JSONDecodeError as error:
        raise AneforgeError(f"{file}:{error.lineno}: not a manifest ({error.msg}); see docs/guide/sweep.md") from None
    except (ValueError, RecursionError, csv.Error) as error:
        raise AneforgeError(f"{file}: not a manifest ({first_line(error)}); see docs/guide/sweep.md") from None
    return [_entry(record, f"{file}:{line}") for line, record in records]


def _entry(record: Any, where: str) -> Entry:
    record = {"path": record} if isinstance(record, str) else record
    if not isinstance(record, dict):
        raise AneforgeError(f"{where}: expected a record such as {_EXAMPLE}")
    for key, value in record.items():
        if key is None:
            raise AneforgeError(f"{where}: more cells than the first line has columns. Quote a cell with commas.")
        if key not in _KEYS:
            raise AneforgeError(f"{where}: key {key!r} is not known. Choose from: {', '.join(_KEYS)}.")
        if key in ("path", "function") and not isinstance(value, str):
            raise AneforgeError(f"{where}: key {key!r} is {json.dumps(value)}; expected text")
    if not record.get("path"):
        raise AneforgeError(f"{where}: key 'path' is missing. Write a record such as {_EXAMPLE}.")
    if "dims" in record and "sizes" in record:
        raise AneforgeError(f"{where}: keys 'dims' and 'sizes' mean the same. Leave one out.")
    key = "sizes" if "sizes" in record else "dims"
    revision = record.get("revision", "")
    if isinstance(revision, (dict, list, bool)) or revision is None:
        raise AneforgeError(f"{where}: key 'revision' is {json.dumps(revision)}; expected text or a number")
    dims = _dims(record.get(key, {}), f"{where}: key {key!r}")
    return Entry(record["path"], str(revision), dims, record.get("function"))


def _dims(value: Any, where: str) -> dict[str, int]:
    """Sizes as a record, or as text: ``batch=1,length=128``."""
    sizes: Any = value
    if isinstance(value, str):
        parts = [part.rpartition("=") for part in value.replace(";", ",").split(",") if part.strip()]
        sizes = {name.strip(): int(size) if _SIZE.fullmatch(size) else size for name, _, size in parts}
    if not isinstance(sizes, dict) or not all(name and type(size) is int and size > 0 for name, size in sizes.items()):
        raise AneforgeError(f"{where} is {json.dumps(value)}; expected sizes by name, such as batch=1,length=128")
    return sizes


# Records with the line that each begins in.


def _csv_records(content: str) -> Iterator[tuple[int, Any]]:
    rows = csv.DictReader(io.StringIO(content), strict=True)
    line = 2
    for row in rows:
        yield line, {key: value for key, value in row.items() if value}  # an empty cell says nothing
        line = rows.line_num + 1


def _jsonl_records(content: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except json.JSONDecodeError as error:
                raise json.JSONDecodeError(error.msg, "\n" * (number - 1) + line, number - 1 + error.pos) from None


def _json_records(content: str) -> Iterator[tuple[int, Any]]:
    """The elements of a list, which may be ``models`` of a record."""
    json.loads(content)  # what is wrong with it is said by the one parser
    place = _after_space(content, 0)
    if content[place] == "{":
        place = _value_of_models(content, place + 1)
    if content[place] != "[":
        raise ValueError("expected a list of models")
    decoder = json.JSONDecoder()
    place = _after_space(content, place + 1)
    line, counted = 1, 0
    while content[place] != "]":
        line, counted = line + content.count("\n", counted, place), place
        record, place = decoder.raw_decode(content, place)
        yield line, record
        place = _after_space(content, place)
        place = _after_space(content, place + (content[place] == ","))


def _value_of_models(content: str, place: int) -> int:
    """Where the value of ``models`` begins in a record that is known to be JSON."""
    decoder = json.JSONDecoder()
    place = _after_space(content, place)
    while content[place] != "}":
        key, place = decoder.raw_decode(content, place)
        place = _after_space(content, _after_space(content, place) + 1)
        if key == "models":
            return place
        place = _after_space(content, decoder.raw_decode(content, place)[1])
        place = _after_space(content, place + (content[place] == ","))
    raise ValueError("expected a list of models, or a record with one under 'models'")


def _after_space(content: str, place: int) -> int:
    return _SPACE.match(content, place).end()  # type: ignore[union-attr]


_READERS = {".csv": _csv_records, ".json": _json_records, ".jsonl": _jsonl_records}
