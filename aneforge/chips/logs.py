"""Known messages and codes in a log.

A log is compared by its letters and digits alone: time stamps, colours, other languages, punctuation and line breaks
stand between runs of them and do not count. A phrase is found where its fixed words follow one another, from the
beginning of a run to the end of one. Everything is a search for fixed text, so no log can make it slow.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from aneforge.chips.messages import Message, messages

MOST_BYTES = 4 << 20
"""How much of a log is searched; a log that matters is far shorter (U261)."""
_GAP = 400  # letters and digits that may stand where a phrase says "..."
_RUN = re.compile(r"[a-z0-9]+|(?<![a-z0-9])-[0-9][a-z0-9]*")
_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,32}[@-~]|\x1b[()][A-Z0-9]|\x1b\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)")
_STAMP = re.compile(
    r"^[ \t]*(?:"
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?\]?"  # 2026-09-01 10:11:12
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"  # Sep  1 10:11:12
    r"|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r")(?:[ \t]{1,8}0x[0-9a-f]{1,16}[ \t]{1,8}\w{1,16}[ \t]{1,8}0x[0-9a-f]{1,16}[ \t]{1,8}\d{1,9}[ \t]{1,8}\d{1,9}"
    r"[ \t]{1,8}[\w.-]{1,64}:(?:[ \t]{1,4}\([\w.-]{1,64}\))?"  # the columns of "log show"
    r"|[ \t]{0,8}[\w.() -]{0,64}?\[\d{1,9}(?::(?:0x)?[0-9a-f]{1,16})?\]:?)?"
    r"(?:[ \t]{1,4}\[\w+\.[\w.:-]{1,80}\])?",
    re.MULTILINE | re.IGNORECASE,
)
_MINUS = str.maketrans({"\u2212": "-", "\u2010": "-", "\u2011": "-", "\u2013": "-", "\ufe63": "-", "\uff0d": "-"})
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_LONGEST_LINE = 160


class MessageHit(NamedTuple):
    """An entry that a log names."""

    message: Message
    line: int
    """Where, counted from 1."""
    shown: str
    """That line, cut to a length that can be read."""
    code: str
    """The code, where only a code names it; empty where its words do."""


@dataclass(frozen=True)
class _Phrase:
    message: Message
    parts: tuple[str, ...]
    """Letters and digits, ``...`` for anything and ``#`` for one number."""

    @property
    def needle(self) -> str:
        return self.parts[0]


class _Squeezed:
    """A log as its letters and digits, and where each run of them came from."""

    def __init__(self, text: str) -> None:
        self.text = text
        runs = [(match.start(), match.group()) for match in _RUN.finditer(text.lower())]
        self.begins: list[int] = []
        self.ends: list[int] = []
        self._places = [place for place, _ in runs]
        position = 0
        for _, run in runs:
            self.begins.append(position)
            position += len(run)
            self.ends.append(position)
        self.letters = "".join(run for _, run in runs)

    def begins_at(self, position: int) -> bool:
        index = bisect_left(self.begins, position)
        return index < len(self.begins) and self.begins[index] == position

    def ends_at(self, position: int) -> bool:
        index = bisect_left(self.ends, position)
        return index < len(self.ends) and self.ends[index] == position

    def number_at(self, position: int) -> int | None:
        """Where the number ends that begins here; None where a run begins that is no number, or none begins."""
        index = bisect_left(self.begins, position)
        if index == len(self.begins) or self.begins[index] != position:
            return None
        run = self.letters[position : self.ends[index]]
        return self.ends[index] if run.removeprefix("-").isdigit() else None

    def place(self, position: int) -> int:
        """The place in the log of a letter."""
        index = bisect_right(self.begins, position) - 1
        return self._places[index] + position - self.begins[index]


def clean(text: str) -> str:
    """A log without what only a terminal needs, and with plain signs: every letter stays on its line."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if not text.isascii():
        text = _INVISIBLE.sub("", text).translate(_MINUS).translate(_HALF_WIDTH)
    return _COLOUR.sub("", text)


def find_messages(text: str) -> list[MessageHit]:
    """Every known entry that a log names, by words or by a code alone, each once, in the order of the log."""
    text = clean(text)
    by_words = _by_words(_STAMP.sub("", text)) if "\n" in text.strip() else _by_words(text)
    found = {hit.message.id: hit for hit in sorted(by_words, key=lambda hit: hit.line)}
    explained = {hit.line: hit for hit in by_words}
    for hit in _by_codes(text):
        if hit.line not in explained:
            found.setdefault(hit.message.id, hit)
    return list(found.values())


def _by_words(text: str) -> list[MessageHit]:
    squeezed = _Squeezed(text)
    lines = _Lines(text)
    hits = []
    for phrase in _phrases():
        position = _search(squeezed, phrase)
        if position is not None:
            number, shown = lines.at(squeezed.place(position))
            hits.append(MessageHit(phrase.message, number, shown, ""))
    firsts: dict[str, MessageHit] = {}
    for hit in hits:
        known = firsts.get(hit.message.id)
        if known is None or hit.line < known.line:
            firsts[hit.message.id] = hit
    return list(firsts.values())


def _search(squeezed: _Squeezed, phrase: _Phrase) -> int | None:
    """Where a phrase begins for the first time."""
    position = squeezed.letters.find(phrase.needle)
    while position >= 0:
        if squeezed.begins_at(position) and _fits(squeezed, phrase.parts, position):
            return position
        position = squeezed.letters.find(phrase.needle, position + 1)
    return None


def _fits(squeezed: _Squeezed, parts: tuple[str, ...], position: int) -> bool:
    for before, part in pairwise(("", *parts)):
        if part == "...":
            continue
        if part == "#":
            end = squeezed.number_at(position)
            if end is None:
                return False
            position = end
            continue
        begin = _next(squeezed, part, position) if before == "..." else position
        if begin is None or not squeezed.letters.startswith(part, begin):
            return False
        position = begin + len(part)
        if not squeezed.ends_at(position):
            return False
    return True


def _next(squeezed: _Squeezed, part: str, position: int) -> int | None:
    """Where a part stands next, within what ``...`` may stand for."""
    last = position + _GAP + len(part)
    begin = squeezed.letters.find(part, position, last)
    while begin >= 0:
        if squeezed.begins_at(begin) and squeezed.ends_at(begin + len(part)):
            return begin
        begin = squeezed.letters.find(part, begin + 1, last)
    return None


_VARIABLE = re.compile(r"\.\.\.|\bNAME\b|\{[^}]*\}|\(\.\.\.\)")


@cache
def _phrases() -> tuple[_Phrase, ...]:
    return tuple(_Phrase(message, parts) for message in messages().values() for parts in parts_of(message) if parts)


def parts_of(message: Message) -> list[tuple[str, ...]]:
    """What is searched for to find an entry: the parts of each of its phrases."""
    if message.phrases:
        return [phrase_parts(words) for words in message.phrases]
    return [phrase_parts(message.text, message.codes)]


def phrase_parts(words: str, codes: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """A phrase as the fixed letters, gaps and numbers that are searched for. Numbers are as written; in the text of an
    entry, whose ``codes`` are given, only its codes are, and another number stands for any."""
    parts: list[str] = []
    for number, piece in enumerate(_VARIABLE.split(words)):
        if number:
            parts.append("...")
        for run in re.findall(rf"#|{_RUN.pattern}", piece.lower()):
            is_number = run == "#" or (codes is not None and run.isdigit() and run not in codes)
            if is_number or not parts or parts[-1] in ("...", "#"):
                parts.append("#" if is_number else run)
            else:
                parts[-1] += run
    while parts and parts[-1] in ("...", "#"):
        parts.pop()
    while parts and parts[0] in ("...", "#"):
        parts.pop(0)
    return tuple(parts)


# Codes. One alone says little: it counts where the line is about the engine, or where a code is all that is asked.


_CODE = re.compile(
    r"(?<![\w.])(?P<word>code|error|err|errno|status|statustype|fehler|erreur|rc|exit)?"
    r"(?P<joint>[\s:=(#]{0,4})(?P<code>0x[0-9a-f]{1,8}|-?\d{1,5})(?![\w.]\w)",
    re.IGNORECASE,
)
_DISTINCT = re.compile(r"0x[0-9a-f]{5,8}", re.IGNORECASE)
_ABOUT_THE_ENGINE = re.compile(
    r"appleneuralengine|\bane\b|\baned\b|anef|ane_|espresso|e5rt|mpsgraph|mpsruntime|program load|coreai|core ai"
    r"|coreml|core ml|ml ?program|mlmodel|com\.apple\.|aneprogram|nscocoaerrordomain|nsposixerrordomain",
    re.IGNORECASE,
)
_RUNTIMES = (("coreai", "Core AI"), ("core ai", "Core AI"), ("coreml", "Core ML"), ("core ml", "Core ML"))
_CODE_WORDS = {
    *("code", "codes", "error", "errors", "err", "errno", "status", "statustype", "fehler", "erreur", "failed", "rc"),
    *("exit", "with", "domain", "number"),
}


def _by_codes(text: str) -> Iterator[MessageHit]:
    by_code = _entries_by_code()
    is_all = "\n" not in text.strip()
    for number, line in enumerate(text.split("\n"), 1):
        if not line or not any(letter.isdigit() for letter in line):
            continue
        for code in _codes_in(line[:4096], is_all):
            for message in by_code.get(code, ()):
                if _is_about(line, message):
                    yield MessageHit(message, number, _short(line), code)


def _codes_in(line: str, is_all: bool) -> Iterator[str]:
    words = re.findall(r"[^\W\d_]{2,}", re.sub(r"0x[0-9a-f]+", " ", line.lower()))
    is_code = len(line) < 80 and all(word in _CODE_WORDS for word in words)
    is_told = is_code or _ABOUT_THE_ENGINE.search(line) is not None
    for match in _CODE.finditer(line):
        code = match["code"].lower()
        if (
            _DISTINCT.fullmatch(code)
            or (is_told and match["word"])
            or (is_all and is_code and code == line.strip("() .\t").lower())
        ):
            yield code


def _is_about(line: str, message: Message) -> bool:
    """Whether the runtime that a line names is one of the entry's."""
    named = {label for word, label in _RUNTIMES if word in line.lower()}
    return not named or any(label in message.runtime for label in named)


@cache
def _entries_by_code() -> dict[str, tuple[Message, ...]]:
    """Entries by the codes that can name them: a short hexadecimal number that stands beside a long one does not."""
    by_code: dict[str, tuple[Message, ...]] = {}
    for message in messages().values():
        long = [code for code in message.codes if _DISTINCT.fullmatch(code)]
        for code in long or message.codes:
            by_code[code.lower()] = (*by_code.get(code.lower(), ()), message)
    return by_code


class _Lines:
    """Lines of a text by place."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._begins = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, place: int) -> tuple[int, str]:
        """The number of a line, counted from 1, and its text from a little before the place on."""
        number = bisect_right(self._begins, place)
        begin = self._begins[number - 1]
        end = self._text.find("\n", begin)
        line = self._text[begin : end if end >= 0 else None]
        return number, _short(line[max(0, place - begin - 40) :] if len(line) > _LONGEST_LINE else line)


def _short(line: str) -> str:
    plain = " ".join(line.split())
    return plain if len(plain) <= _LONGEST_LINE else f"{plain[: _LONGEST_LINE - 3]}..."
