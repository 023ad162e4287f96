"""The table of rooms in docs/develop/house.md is true: a room imports rooms of lower levels only."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from docpages.rooms import PACKAGE, ROOT, Import, imports, imports_of, levels, modules_of

LEVELS = levels((ROOT / "docs" / "develop" / "house.md").read_text(encoding="utf-8"))
IMPORTS = imports()
ENTRANCES = {PACKAGE, "__main__"}
"""They name everything, and nothing imports them."""


def problems(level_of: Mapping[str, int], by_room: Mapping[str, list[Import]]) -> list[str]:
    """Where the table and the imports disagree."""
    messages = [f"{room} has no level" for room in sorted(set(by_room) - set(level_of) - ENTRANCES)]
    messages += [f"there is no room {room}" for room in sorted(set(level_of) - set(by_room))]
    for room, entries in by_room.items():
        if room not in level_of:
            continue
        messages += [
            f"{entry.file}:{entry.line} imports {entry.module}; {room} is on level {level_of[room]} and {entry.room} "
            f"on level {level_of.get(entry.room, 'none')}"
            for entry in entries
            if level_of.get(entry.room, 99) >= level_of[room] and not (level_of[room] == level_of.get(entry.room) == 0)
        ]
    return messages


def test_the_table_is_read():
    assert LEVELS["errors"] == 0
    assert LEVELS["chips"] == 1
    assert LEVELS["cli"] == max(LEVELS.values())


def test_every_room_imports_lower_levels_only():
    assert not problems(LEVELS, IMPORTS)


def test_there_are_fourteen_rooms():
    folders = {path.name for path in (ROOT / PACKAGE).iterdir() if (path / "__init__.py").exists()}
    assert len(folders) == 14
    assert folders <= set(LEVELS)


def test_no_public_class_name_exists_twice():
    classes: dict[str, list[str]] = {}
    for name, path in modules_of(ROOT).items():
        for line in path.read_text(encoding="utf-8").splitlines():
            match = re.match(r"class ([A-Z]\w*)", line)
            if match:
                classes.setdefault(match[1], []).append(name)
    twice = {name: homes for name, homes in classes.items() if len(homes) > 1 and not name.isupper()}
    assert not twice


def test_graph_knows_no_format_by_name():
    """It learns of file formats from those who read them: no text names another room, and nothing imports by name."""
    rooms = "|".join(room for room, level in LEVELS.items() if level > LEVELS["graph"])
    named = re.compile(rf"{PACKAGE}\.({rooms})\b|frontend")
    files = sorted((ROOT / PACKAGE / "graph").rglob("*.py"))
    assert len(files) > 10
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            assert not named.search(line), f"{file.name}:{number}: {line}"
            assert "importlib" not in line, f"{file.name}:{number}: {line}"
            assert "__import__" not in line, f"{file.name}:{number}: {line}"


# The checks themselves can fail.


@pytest.mark.parametrize(
    "source",
    [
        "import aneforge.cost.estimate",
        "import aneforge.cost.estimate as e",
        "from aneforge.cost import estimate",
        "from aneforge.cost.estimate import Estimate",
        "from aneforge import cost",
        "from ..cost import estimate",
        "from .. import cost",
        "def f():\n    from aneforge.cost import estimate",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from aneforge.cost.estimate import Estimate",
        "import_module('aneforge.cost.estimate')",
        "READER = 'aneforge.cost.estimate:estimate'",
    ],
)
def test_every_form_of_import_is_seen(source):
    entries = list(imports_of("aneforge.sim.engine", source, modules_of(ROOT), "engine.py", package=False))
    assert [entry.room for entry in entries] == ["cost"]


def test_relative_imports_of_a_package_start_in_it():
    (entry,) = imports_of("aneforge.sim", "from ..cost import estimate", modules_of(ROOT), "__init__.py", package=True)
    assert entry.module == "aneforge.cost.estimate"
    assert not list(imports_of("aneforge.sim", "from .engine import Engine", modules_of(ROOT), "x.py", package=True))


def test_text_that_only_mentions_a_module_is_no_import():
    source = '"""See aneforge.cost.estimate."""\nNAME = "aneforge.no_such_module"'
    assert not list(imports_of("aneforge.sim.engine", source, modules_of(ROOT), "engine.py", package=False))


def test_disagreements_are_reported():
    cost = Import("aneforge/sim/engine.py", 3, "aneforge.cost.estimate")
    assert problems({"sim": 6, "cost": 6}, {"sim": [cost], "cost": []}) == [
        "aneforge/sim/engine.py:3 imports aneforge.cost.estimate; sim is on level 6 and cost on level 6"
    ]
    assert problems({"sim": 7, "cost": 6}, {"sim": [cost], "cost": []}) == []
    assert problems({}, {"sim": []}) == ["sim has no level"]
    assert problems({"sim": 6}, {}) == ["there is no room sim"]
