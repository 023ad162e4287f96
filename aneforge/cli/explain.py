"""``aneforge explain``: what is behind a label that reports print, or behind the messages of a log."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from aneforge import text
from aneforge.chips.logs import MOST_BYTES, MessageHit, find_messages
from aneforge.chips.messages import Message, messages
from aneforge.cli import say
from aneforge.cli.options import ModelFile
from aneforge.errors import AneforgeError, UnknownNameError, nearest, shown
from aneforge.study.labels import label_names, label_record
from aneforge.text import human_bytes, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aneforge.study.causes import FittedCause, ModelFit, Place

STDIN = "-"
_NUMBERED = re.compile(r"[A-Za-z]{1,2}\d{1,4}")
_CUT = "grep -i -B2 -A2 -e ane -e coreml -e coreai LOG | aneforge explain -"
_MOST_SHOWN = 40
_MOST_FORMS = 2


def run(words: list[str], log: str | None, model: ModelFile | None, chip: str, as_json: bool) -> int:
    """Print what is known of a label or of a log; 1 where nothing is."""
    asked = _asked(words, log)
    if log is None and not (len(words) == 1 and words[0] == STDIN):
        record = label_record(asked)
        entry = messages().get(asked.strip().upper())
        if record is not None and (entry is None or model is None):
            _print_label(record, entry, as_json)
            return 0
        if entry is not None:
            return _print_found([MessageHit(entry, 0, "", "")], model, chip, as_json)
        if _NUMBERED.fullmatch(asked.strip()):
            near = ", ".join(nearest(asked.strip(), label_names())) or "C03, U08, S35"
            raise UnknownNameError(
                f"{asked}: not a conflict, a choice, a source key or another label; nearest: {near}."
            )
    found = find_messages(asked)
    if found:
        return _print_found(found, model, chip, as_json)
    if as_json:
        print(text.as_json({"found": []}))
        return 1
    print(_unknown(asked))
    return 1


def _asked(words: list[str], log: str | None) -> str:
    if log is not None and words:
        raise AneforgeError("--file and TEXT are two texts. Give one of them.")
    if log is None and not words:
        raise AneforgeError("TEXT is missing. Give a label, a message or a code, --file FILE, or - for stdin.")
    if log == STDIN or words == [STDIN]:
        return _read(sys.stdin.buffer, "stdin")
    if log is None:
        return " ".join(words)
    file = Path(log)
    if file.is_dir():
        raise AneforgeError(f"--file {log}: this is a folder; give the name of a file.")
    try:
        with file.open("rb") as stream:
            return _read(stream, log)
    except OSError as error:
        raise AneforgeError(f"--file {log}: {error.strerror or error}") from None


def _read(stream: BinaryIO, name: str) -> str:
    """A log; of a long one the beginning and the end, where failures are, and a note says so."""
    raw = stream.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raw = _ends(raw, stream)
        half = human_bytes(MOST_BYTES // 2)
        say.note(f"{name}: only the first and the last {half} were searched. Cut it to what matters: {_CUT}")
    decoded = _decoded(raw)
    if not decoded.strip():
        raise AneforgeError(f"{name}: the log is empty. Give one that has text.")
    return decoded


def _ends(begun: bytes, stream: BinaryIO) -> bytes:
    """The beginning and the end of a log of which some was read. Lines between are empty, so that those behind keep
    their numbers."""
    half = MOST_BYTES // 2
    head, tail, between = begun[:half], begun[half:], 0
    while chunk := stream.read(half):
        tail += chunk
        between += tail.count(b"\n", 0, -half)
        tail = tail[-half:]
    is_wide = begun.startswith((b"\xff\xfe", b"\xfe\xff"))  # UTF-16: numbers of lines are those of what was read
    return head + (b"" if is_wide else b"\n" * between) + tail


def _decoded(raw: bytes) -> str:
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8")):
        if raw.startswith(mark):
            return raw[len(mark) :].decode(encoding, "replace")
    return raw.decode("utf-8", "replace")


def _unknown(asked: str) -> str:
    plain = " ".join(shown(line) for line in asked.split())
    name = plain if len(plain) <= 60 else f"{plain[:57]}..."
    near = nearest(asked.strip().lower(), label_names()) if len(asked) <= 40 and " " not in asked.strip() else []
    labels = f" Nearest labels: {', '.join(near)}." if near else ""
    return wrapped(f"unknown: {name!r} holds no message, code or label that aneforge knows.{labels}")


# Labels.


def _print_label(record: dict, entry: Message | None, as_json: bool) -> None:
    if as_json:
        print(text.as_json(record))
        return
    if entry is not None:
        print(_entry_text(MessageHit(entry, 0, "", "")))
        return
    rows = {key: value for key, value in record.items() if value}
    width = max(map(len, rows)) + 2
    for key, value in rows.items():
        several = value if key == "applies" else ["; ".join(value) if isinstance(value, list) else value]
        for number, line in enumerate(several):
            print(wrapped(f"{key if not number else '':{width}}{line}", hanging=" " * width))


# Messages.


def _print_found(found: list[MessageHit], model: ModelFile | None, chip: str, as_json: bool) -> int:
    fit = None if model is None else _model_fit(model, chip)
    by_entry = {} if fit is None else {hit.message.id: _with_cures(fit, hit.message) for hit in found}
    if as_json:
        listed = [_entry_json(hit, by_entry.get(hit.message.id), fit) for hit in found]
        print(text.as_json({"found": listed}))
        return 0
    blocks = [_entry_text(hit, by_entry.get(hit.message.id), fit) for hit in found[:_MOST_SHOWN]]
    print("\n\n".join(blocks))
    if len(found) > _MOST_SHOWN:
        print(f"\nand {len(found) - _MOST_SHOWN} more entries (--json lists them)")
    if any(hit.code for hit in found):
        print("\n" + wrapped("A code alone can stand for several messages: the lines around it say which."))
    return 0


def _model_fit(model: ModelFile, chip: str) -> ModelFit:
    from aneforge.chips.names import one_chip
    from aneforge.cli.notes import working
    from aneforge.study.causes import ModelFit
    from aneforge.study.shapes import open_shapes
    from aneforge.study.study import Study

    one_chip(chip)
    with working(f"checking {model.name} on {chip}"):
        shapes = open_shapes(model.path, model.asked, model.function)
        study = Study(model.path, chip, **model.options)
        return ModelFit(study, model.path, next(iter(study.chips)), shapes is not None)


def _cures_at(fit: ModelFit, places: Iterable[Place]) -> list[str]:
    """The commands of the forms that were seen to take the refusal of some nodes away."""
    from aneforge.advice.cures import curing_forms

    forms = curing_forms(fit.study, fit.chip, {place.node for place in places})[:_MOST_FORMS]
    return [f"aneforge tune {shlex.quote(fit.path)} --form {form} --out changed.aneforge" for form in forms]


def _with_cures(fit: ModelFit, entry: Message) -> list[FittedCause]:
    """The causes of an entry; one that fits has the commands of the forms that were seen to cure it before others."""
    return [_with_forms(fit, cause) if cause.fit == "refused" else cause for cause in fit.causes(entry)]


def _with_forms(fit: ModelFit, cause: FittedCause) -> FittedCause:
    return replace(cause, commands=tuple(dict.fromkeys((*_cures_at(fit, cause.places), *cause.commands))))


def _entry_json(hit: MessageHit, fitted: list[FittedCause] | None, fit: ModelFit | None) -> dict:
    record = {**hit.message.to_json(), "line": hit.line, "shown": hit.shown, "by_code": hit.code}
    if fitted is not None and fit is not None:
        record["fits"] = [cause.to_json() for cause in fitted]
        record["besides"] = [place.to_json() for place in fit.others(hit.message, fitted)]
    return record


def _entry_text(hit: MessageHit, fitted: list[FittedCause] | None = None, fit: ModelFit | None = None) -> str:
    entry = hit.message
    head = f"{entry.id}  {entry.text}"
    lines = [wrapped(head, hanging="     ")]
    if hit.line:
        by_code = f", by the code {hit.code} alone" if hit.code else ""
        lines.append(_row("found", f"line {hit.line}{by_code}: {shown(hit.shown)}"))
    where = [
        f"at {entry.stage}",
        entry.runtime,
        entry.chips or "chips not stated",
        entry.systems or "system not stated",
    ]
    lines.append(_row("met", "; ".join(where)))
    cures = entry.cures
    if fitted is None or fit is None:
        lines += [_row("causes" if number == 1 else "", f"{number}. {cause.text}")
                  for number, cause in enumerate(entry.causes, 1)]  # fmt: skip
    else:
        known, others = _known_lines(fit, fitted, entry), _other_lines(fit, entry, fitted)
        visible = any(cause.fit in _VISIBLE for cause in fitted)
        # What the check refuses comes first where no cause of the list shows: it is the likely one.
        lines += known + others if visible or not others else others + known
        cures = cures if visible or not others else ()
    lines += [_row("cures" if not number else "", f"- {cure}") for number, cure in enumerate(cures)]
    if entry.note:
        lines.append(_row("note", entry.note))
    lines.append(_row("sources", f"{', '.join(entry.threads)} [{entry.confidence}]"))
    return "\n".join(lines)


_VISIBLE = ("refused", "doubtful", "present")


def _known_lines(fit: ModelFit, fitted: list[FittedCause], entry: Message) -> list[str]:
    lines = [_row("causes", f"by what {Path(fit.path).name} shows on {fit.label}")]
    lines += [line for cause in fitted if cause.fit != "absent" for line in _fitted_lines(cause, entry)]
    absent = [f"{cause.cause.rank}. {cause.cause.text}" for cause in fitted if cause.fit == "absent"]
    return [*lines, _row("", f"the model shows none of: {'; '.join(absent)}")] if absent else lines


def _fitted_lines(fitted: FittedCause, entry: Message) -> list[str]:
    from aneforge.study.causes import FIT_WORDS

    of = "" if fitted.of == entry.id else f" ({fitted.of})"
    lines = [_row("", f"{fitted.cause.rank}. {fitted.cause.text}{of}: {FIT_WORDS[fitted.fit]}")]
    if fitted.words:
        lines.append(_row("", fitted.words, 3))
    hint = next((place.finding.hint for place in fitted.places if place.finding), "")
    if hint and "'aneforge" not in hint:  # else its command is listed, with the model in it
        lines.append(_row("", f"do: {hint}", 3))
    lines += [f"{'':{_INDENT + 3}}do: {command}" for command in fitted.commands]
    if fitted.commands and fitted.gives:
        lines.append(_row("", f"({fitted.gives})", 7))
    return lines


def _other_lines(fit: ModelFit, entry: Message, fitted: list[FittedCause]) -> list[str]:
    """What the check refuses for another reason than the known causes."""
    from aneforge.study.causes import words_of

    others = fit.others(entry, fitted)
    if not others:
        return []
    lines = [_row("refused", f"by the check, and no known cause names it: {words_of(others)}")]
    lines += [f"{'':{_INDENT + 3}}do: {command}" for command in _cures_at(fit, others)]
    lines.append(f"{'':{_INDENT + 3}}do: aneforge check {shlex.quote(fit.path)} --target {shlex.quote(fit.chip)}")
    return lines


_INDENT = 11


def _row(key: str, value: str, further: int = 0) -> str:
    indent = " " * (_INDENT + further)
    return wrapped(f"  {key:{_INDENT - 2}}{' ' * further}{value}", hanging=indent)
