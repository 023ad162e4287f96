"""Known messages are found in logs whatever stands around them, and nothing else is."""

from __future__ import annotations

import time

import pytest

from aneforge.chips.logs import find_messages, parts_of
from aneforge.chips.messages import messages

ENTRIES = list(messages().values())
STAMP = "2026-09-01 10:11:12.123456+0200 Übung App[123:4567] [com.apple.mlassets] "
MOST_OTHERS = 3
"""Entries whose words, or whose codes, are part of a longer message."""


def ids(text: str) -> list[str]:
    return [hit.message.id for hit in find_messages(text)]


def varied(text: str) -> str:
    """The message with something in its variable places, as a log has it."""
    return text.replace("...", "/Users/x/模型/model.mil").replace("NAME", "input_1").replace("{", "{1,").strip()


NOISE = {
    "alone": lambda text: text,
    "time stamps and paths": lambda text: (
        f"{STAMP}/private/var/app/model.mlmodelc: {text} @ GetANEFModel\nnext line\n"
    ),
    "other languages": lambda text: f"Fehler beim Laden: «{text}» не удалось\n加载失败 {text}。再试一次\n",
    "control characters": lambda text: f"\x00\x07\x1b[31m{text[:9]}\x1b[0m\x00{text[9:]}\x1b[0m\x08",
    "invisible characters": lambda text: text.replace(" ", "\u00a0\u200b\ufeff"),
    "line breaks": lambda text: f"head\r\n{STAMP}{text[: len(text) // 2]}\r\n{STAMP}{text[len(text) // 2 :]}\r\n",
    "typographic quotes": lambda text: text.replace("'", "\u2019").replace('"', "\u201d"),
    "other case and full width": lambda text: "".join(
        chr(ord(letter) + 0xFEE0) if letter.isalpha() and letter.isascii() else letter for letter in text.upper()
    ),
    "values in variable parts": varied,
    "between other lines": lambda text: f"all is well\n{STAMP}loading 14 models\n{text}\nbye\n",
}


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_an_entry_is_found_from_its_message(entry, noise):
    found = ids(NOISE[noise](entry.text))
    assert entry.id in found
    assert len(found) <= 1 + MOST_OTHERS, "a message must not name half of the entries"


def test_there_are_as_many_entries_as_were_published():
    assert len(ENTRIES) == 110
    assert [entry.id for entry in ENTRIES] == [f"E{number:02}" for number in range(1, 111)]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_a_phrase_has_enough_fixed_words(entry):
    for parts in parts_of(entry):
        assert len("".join(part for part in parts if part not in ("...", "#"))) >= 8, parts


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_a_word_too_few_or_another_is_no_match(entry):
    """Each phrase without its last letters, and with letters joined to either end."""
    for parts in parts_of(entry):
        text = " ".join("7" if part == "#" else part for part in parts if part != "...")
        for near in (text[:-2], f"{text}x", f"x{text}"):
            assert not [hit for hit in find_messages(near) if hit.message is entry and not hit.code], near


@pytest.mark.parametrize(
    "text",
    [
        "ANECCompile() succeeded",
        "ANECCompile FAILEDX",
        "xANECCompile() FAILED",
        "Invalid rank: 60",
        "execute failed rc=1",
        "Program load failed - no licence",
        "status=0x1f of a request",
        "hello 11",
        "14",
        "loaded 53 models in 11 s",
        "NSURLErrorDomain Code=-1 timed out",
        "error 7777 of ANE",
        "the answer is -14 degrees",
        "0x20005",
        "20004",
        "",
        "\x00\x01\x02",
        "ошибка 模型",
    ],
)
def test_near_misses_are_not_found(text):
    assert [hit for hit in find_messages(text) if hit.message.id != "E90"] == []


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("-14", "E03"),
        ("error code: -14", "E03"),
        ("\u221214", "E03"),
        ("0x20004", "E05"),
        ("Code=53", "E07"),
        ("0xe00002c2", "E08"),
        ("(0XE00002C2)", "E08"),
        ("Couldn't do topological sort", "E21"),
        ("Couldn\u2019t do topological sort.", "E21"),
        ("ANECCompile() FAILED (11)", "E01"),
        ("com.apple.appleneuralengine-Fehler 11.", "E01"),
        ('Error Domain=com.apple.CoreAI Code=53 "x"', "E07"),
        ("ANEProgramProcessRequestDirect() Failed with status=0x1d", "E63"),
        ("ANEProgramProcessRequestDirect() Failed with status=0x16", "E09"),
        ("(dilated) kernel width = 31 > 13", "E58"),
        ("Tensor dimensions N1D1C1H1W99999 are not within supported range", "E16"),
        ("The input feature for kv_cache must be an MLState, but it was not.", "E73"),
    ],
)
def test_codes_and_messages_with_other_values(text, first):
    assert ids(text)[0] == first


def test_a_code_names_entries_of_the_runtime_on_its_line():
    assert ids('Error Domain=com.apple.CoreML Code=53 "x"') == []
    assert {hit.code for hit in find_messages("err=11 of ANEF")} == {"11"}


def test_a_code_adds_nothing_where_words_explain_its_line():
    assert ids("E5RT: ANECCompile() FAILED, error code 11") == ["E01"]


def test_lines_are_counted_as_the_log_has_them():
    hits = find_messages(f"one\r\ntwo\n\n{STAMP}Couldn't do topological sort\nInvalidMILProgram\n")
    assert [(hit.message.id, hit.line) for hit in hits] == [("E21", 4), ("E57", 5)]


@pytest.mark.parametrize(
    "line",
    [
        "a ",
        "1 ",
        "-",
        " ",
        "\x1b[",
        "(((code:::: ",
        "0x",
        "ANECCompile() ",
        "Failed to build the model execution plan ",
        "stride_x = 1 ",
        "12:12:12 a ",
        "[[[[[",
        "2026-09-01 10:11:12 app ",
    ],
)
@pytest.mark.parametrize("end", ["", "\n"])
def test_no_text_makes_it_slow(line, end):
    """Linear in the log: eight times the text takes nowhere near sixty-four times as long."""

    def seconds(size: int) -> float:
        text = ((line + end) * (size // len(line) + 1))[:size]
        began = time.process_time()
        find_messages(text)
        return time.process_time() - began

    small = max(min(seconds(1 << 14) for _ in range(2)), 0.004)
    assert seconds(1 << 17) < 30 * small
