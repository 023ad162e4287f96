"""Data files: every file is well formed, and a damaged or edited one is named in one line."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import aneforge
from aneforge.chips import schema, store
from aneforge.errors import DataError

PACKAGE = Path(aneforge.__file__).parent
TOPICS = sorted(path.stem for path in store.DATA.glob("*.json") if path.stem != "manifest")


@pytest.mark.parametrize("topic", TOPICS)
def test_every_data_file_is_well_formed(topic):
    assert list(schema.problems(topic, store.load(topic))) == []


def test_the_manifest_lists_every_file():
    sums = json.loads((store.DATA / "manifest.json").read_text())["sha256"]
    assert sorted(name.removesuffix(".json") for name in sums) == TOPICS


def test_every_conflict_id_in_the_data_exists():
    from aneforge.chips import conflicts

    for topic in TOPICS:
        stack = [store.load(topic)]
        while stack:
            node = stack.pop()
            if isinstance(node, dict):
                number = node.get("conflict")
                assert number is None or number in conflicts(), (topic, number)
                stack += node.values()
            elif isinstance(node, list):
                stack += node


def test_package_data_travels_without_shared(tmp_path):
    """The installed package answers from its own files, wherever it is."""
    shutil.copytree(PACKAGE, tmp_path / "aneforge", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "aneforge", "hal", "m1", "0x1b8"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def edit(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new, 1)


FAULTS = [
    ("targets", lambda s: s[: len(s) // 2], "not valid JSON"),
    ("targets", lambda s: "[]", "JSON object"),
    ("targets", lambda s: edit(s, '],"measured"]', '],"mesured"]'), "confidence 'mesured'; allowed: measured"),
    (
        "targets",
        lambda s: edit(s, '"family8":{"v":"A13"', '"family8":{"v":"A99"'),
        "family8 'A99' is unknown; choose one: A11Legacy",
    ),
    ("targets", lambda s: edit(s, '"v":16,', '"v":17,'), "contents changed since it was sealed"),
    ("targets", lambda s: edit(s, '"e":0', '"e":9999'), "evidence number 9999 is outside the table"),
    ("hal_values", lambda s: edit(s, "[8,8,8,", "[8,8,"), "27 entries in 'v', one per target needed (28)"),
    ("hal_values", lambda s: edit(s, '"0x1b8"', '"1b8"'), "must look like 0x1b8"),
    ("hal_fields", lambda s: edit(s, '"kind":"dead"', '"kind":"alive"'), "kind 'alive' is unknown; choose one:"),
    ("ops", lambda s: edit(s, '"A13":"native"', '"A13":"nativ"'), "'nativ'; allowed: "),
    ("ops", lambda s: edit(s, '"floor":0,', '"floor":9,'), "floor 9 must be 0 to 7"),
    ("names", lambda s: edit(s, '"target":"h13g"', '"target":"h13z"'), "target 'h13z' does not exist"),
    ("limits", lambda s: edit(s, '"OLDER":16384', '"A12":16384'), "A12 is not a family"),
    ("sources", lambda s: edit(s, '"S35"', '"S99"'), "contents changed since it was sealed"),
]


@pytest.mark.parametrize(("topic", "damage", "told"), FAULTS, ids=[f"{f[0]}: {f[2]}" for f in FAULTS])
def test_a_damaged_file_is_named_with_what_would_be_right(tmp_path, monkeypatch, topic, damage, told):
    copy = tmp_path / "data"
    shutil.copytree(store.DATA, copy)
    path = copy / f"{topic}.json"
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    monkeypatch.setattr(store, "DATA", copy)
    store.clear()
    try:
        with pytest.raises(DataError) as error:
            store.load(topic)
    finally:
        monkeypatch.undo()
        store.clear()
    assert f"data file {topic}.json" in str(error.value)
    assert told in str(error.value)
    assert "reinstall" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "contents", "told"),
    [
        ("targets.json", b"\xff\xfe broken", "UTF-8"),
        ("targets.json", None, "No such file"),
        ("manifest.json", b"{}", "sha256"),
        ("hal_values.json", b"", "not valid JSON"),
    ],
)
def test_the_command_line_reports_a_broken_installation(tmp_path, name, contents, told):
    shutil.copytree(PACKAGE, tmp_path / "aneforge", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "aneforge" / "chips" / "data" / name
    if contents is None:
        path.unlink()
    else:
        path.write_bytes(contents)
    result = subprocess.run(
        [sys.executable, "-m", "aneforge", "targets"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert told in result.stderr
    assert name in result.stderr


@cache
def package_literals() -> frozenset[str]:
    """Every string that a module of the package states."""
    files = PACKAGE.rglob("*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@pytest.mark.parametrize("topic", TOPICS)
def test_every_record_has_a_reader(topic):
    """A record that no module names decides nothing: a pass reads it, or it goes (LEFT_OUT of the importer)."""
    assert set(store.load(topic)) - {"meta"} - package_literals() == set()
