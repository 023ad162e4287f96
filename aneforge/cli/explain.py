"""``aneforge explain``: what is behind a conflict, a choice or a source key."""

from __future__ import annotations

from aneforge.errors import UnknownNameError, nearest
from aneforge.output import text
from aneforge.targets import store
from aneforge.targets.evidence import conflicts, sources


def show(number: str, as_json: bool) -> None:
    wanted = number.strip()
    if wanted in sources():
        _print({"source": wanted, "what": sources()[wanted]}, as_json)
        return
    found = conflicts().get(wanted.upper())
    if found is None:
        near = ", ".join(nearest(wanted, [*conflicts(), *sources()])) or "C03, U08, S35"
        raise UnknownNameError(f"{number}: not a conflict, a choice or a source key; nearest: {near}.")
    record = {"id": found.id, "subject": found.subject, "values": found.values, "winner": found.winner}
    choice = store.load("choices")["choices"].get(found.id)
    if choice:
        record = {"id": found.id, **choice}
    _print(record, as_json)


def _print(record: dict, as_json: bool) -> None:
    if as_json:
        print(text.as_json(record))
        return
    shown = {key: "; ".join(value) if isinstance(value, list) else value for key, value in record.items() if value}
    print(text.pairs(((key, str(value), "") for key, value in shown.items()), indent=0))
