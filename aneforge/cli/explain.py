"""``aneforge explain``: what is behind a conflict, a choice or a source key."""

from __future__ import annotations

from aneforge import text
from aneforge.chips import store
from aneforge.chips.devices import rules
from aneforge.chips.evidence import conflicts, sources
from aneforge.errors import UnknownNameError, nearest
from aneforge.text import wrapped


def show(number: str, as_json: bool) -> None:
    wanted = number.strip()
    if wanted in sources():
        _print({"source": wanted, "what": sources()[wanted]}, as_json)
        return
    provider = {row["id"]: {**row, "src": "ORT"} for row in store.load("ort_coreml")["rules"]}
    rule = {**rules(), **provider}.get(wanted.upper())
    if rule is not None:
        _print(rule, as_json)
        return
    conflict = conflicts().get(wanted.upper())
    if conflict is None:
        near = ", ".join(nearest(wanted, [*conflicts(), *sources()])) or "C03, U08, S35"
        raise UnknownNameError(f"{number}: not a conflict, a choice or a source key; nearest: {near}.")
    record = {"id": conflict.id, "subject": conflict.subject, "values": conflict.values, "winner": conflict.winner}
    choice = store.load("choices")["choices"].get(conflict.id)
    if choice:
        record = {"id": conflict.id, **choice}
    _print(record, as_json)


def _print(record: dict, as_json: bool) -> None:
    if as_json:
        print(text.as_json(record))
        return
    shown = {key: "; ".join(value) if isinstance(value, list) else value for key, value in record.items() if value}
    width = max(map(len, shown)) + 2
    for key, value in shown.items():
        print(wrapped(f"{key:{width}}{value}", hanging=" " * width))
