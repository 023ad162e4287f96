"""Damaged files of every kind: a reader answers or refuses with one line. ``make fuzz`` tries many more."""

from __future__ import annotations

import json
import random
import zipfile

import pytest
from fuzzing.campaign import campaign
from fuzzing.damage import _fields, _joined, damaged
from fuzzing.readers import READERS

FILES = 6


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_no_damaged_file_is_a_fault_of_ours(reader, monkeypatch):
    if reader.needs:
        pytest.importorskip(reader.needs)
    outcome = campaign(reader, 7, FILES)
    assert outcome.files > FILES
    assert not outcome.findings, [(finding.command, finding.what) for finding in outcome.findings]


def test_damage_is_drawn_from_its_seed():
    document = json.dumps({"rows": [{"us": 1.5, "name": "a"}] * 5}).encode()
    one, other = ([damaged(document, random.Random(3)) for _ in range(20)] for _ in range(2))  # noqa: S311
    assert one == other
    assert len({*one, document}) > 1


def test_damage_to_messages_keeps_their_form():
    inner = _joined([(1, 0, 300), (2, 2, b"text"), (3, 5, b"1234")])
    message = _joined([(7, 2, inner), (8, 0, 2**64 - 1)])
    assert _fields(message) == [(7, 2, inner), (8, 0, 2**64 - 1)]
    assert _fields(b"\xff\xff") == []
    chance = random.Random(0)  # noqa: S311
    changed = [damaged(message, chance) for _ in range(300)]
    assert sum(bool(_fields(data)) for data in changed) > 100


def test_damage_to_archives_can_say_that_an_entry_is_encrypted(tmp_path):
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"x" * 40)
    chance, flags = random.Random(1), set()  # noqa: S311
    for _ in range(200):
        file.write_bytes(damaged(file.read_bytes() if zipfile.is_zipfile(file) else b"PK", chance))
        if zipfile.is_zipfile(file):
            try:
                with zipfile.ZipFile(file) as archive:
                    flags |= {info.flag_bits & 1 for info in archive.infolist()}
            except (zipfile.BadZipFile, OSError, ValueError):
                continue
    assert flags
