"""The table of rooms in CONTRIBUTING.md is true: these tests read it and hold the imports to it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).resolve().parents[1]
PACKAGE = "aneforge"
_NAMED_MODULE = re.compile(rf"{PACKAGE}(\.\w+)+(:\w+)?")


class Import(NamedTuple):
    """One module of the package that another one imports."""

    file: str
    line: int
    module: str

    @property
    def room(self) -> str:
        return room_of(self.module)


def room_of(module: str) -> str:
    """The folder or file below the package; the package's own ``__init__`` goes by the package's name."""
    return [*module.split("."), PACKAGE][1] if "." in module else PACKAGE


def modules_of(root: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for file in sorted((root / PACKAGE).rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports_of(name: str, source: str, modules: Mapping[str, Path], file: str, package: bool) -> Iterator[Import]:
    """Everything of the package that a module names: at the top, inside functions, for types only, or in a string."""
    parts = name.split(".") if package else name.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (base, node.module) if part)
            names = (f"{base}.{alias.name}" for alias in node.names)
            found = [each if each in modules else base for each in names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMED_MODULE.fullmatch(node.value):
            found = [each for each in (node.value.partition(":")[0],) if each in modules]
        for module in found:
            if module.split(".")[0] == PACKAGE and room_of(module) != room_of(name):
                yield Import(file, node.lineno, module)


def imports(root: Path) -> dict[str, list[Import]]:
    """What every room imports from others."""
    modules = modules_of(root)
    found: dict[str, list[Import]] = {room_of(name): [] for name in modules}
    for name, path in modules.items():
        file = path.relative_to(root).as_posix()
        source = path.read_text(encoding="utf-8")
        found[room_of(name)] += imports_of(name, source, modules, file, path.name == "__init__.py")
    return found


def table(text: str) -> dict[str, frozenset[str] | None]:
    """The rooms of the table, each with the rooms that it may import; None for everything."""
    rows = re.findall(rf"^\| `{PACKAGE}/([^`]+)` \|.*\| (.*?) \|$", text, re.MULTILINE)
    allowed = {}
    for path, told in rows:
        room = PACKAGE if path == "__init__.py" else path.removesuffix("/").removesuffix(".py")
        assert room not in allowed, f"two rows for {path}"
        allowed[room] = None if told == "everything" else frozenset(re.findall(r"`(\w+)`", told))
        assert allowed[room] or told in ("everything", "nothing"), f"{path}: say what it may import, or nothing"
    return allowed


def problems(allowed: Mapping[str, frozenset[str] | None], found: Mapping[str, list[Import]]) -> list[str]:
    """Where the table and the imports disagree."""
    told = [f"{room} has no row" for room in sorted(set(found) - set(allowed))]
    told += [f"there is no room {room}" for room in sorted(set(allowed) - set(found))]
    for room, made in found.items():
        may = allowed.get(room, frozenset())
        if may is None:
            continue
        told += [
            f"{each.file}:{each.line} imports {each.module}; {room} may not import {each.room}"
            for each in made
            if each.room not in may
        ]
        told += [f"{room} never imports {unused}" for unused in sorted(may - {each.room for each in made})]
    return told


TABLE = table((HERE / "CONTRIBUTING.md").read_text(encoding="utf-8"))
IMPORTS = imports(HERE)


def test_the_table_is_read():
    assert TABLE["errors"] == frozenset()
    assert TABLE["special"] == {"graph"}
    assert TABLE["cli"] is None
    assert PACKAGE in TABLE


def test_every_room_imports_what_its_row_names_and_nothing_else():
    assert not problems(TABLE, IMPORTS)


def test_rooms_form_no_circle():
    graph = {room: {each.room for each in made} for room, made in IMPORTS.items()}
    list(TopologicalSorter(graph).static_order())


def test_rows_stand_in_the_order_of_the_flow():
    """A reader of the table never meets a room before those that it imports."""
    places = {room: place for place, room in enumerate(TABLE)}
    late = [(room, other) for room, may in TABLE.items() for other in may or () if places[other] > places[room]]
    assert not late


def test_graph_knows_no_frontend_by_name():
    """It learns of file formats from those who read them: no text names another room, and nothing imports by name."""
    rooms = "|".join(room for room in IMPORTS if room not in (PACKAGE, "graph", "errors", "output", "budgets"))
    named = re.compile(rf"{PACKAGE}\.({rooms})\b|frontend")
    files = sorted((HERE / PACKAGE / "graph").rglob("*.py"))
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
    found = list(imports_of("aneforge.sim.engine", source, modules_of(HERE), "engine.py", package=False))
    assert [each.room for each in found] == ["cost"]


def test_relative_imports_of_a_package_start_in_it():
    (found,) = imports_of("aneforge.sim", "from ..cost import estimate", modules_of(HERE), "__init__.py", package=True)
    assert found.module == "aneforge.cost.estimate"
    assert not list(imports_of("aneforge.sim", "from .engine import Engine", modules_of(HERE), "x.py", package=True))


def test_text_that_only_mentions_a_module_is_no_import():
    source = '"""See aneforge.cost.estimate."""\nNAME = "aneforge.no_such_module"'
    assert not list(imports_of("aneforge.sim.engine", source, modules_of(HERE), "engine.py", package=False))


def test_disagreements_are_told():
    cost = Import("aneforge/sim/engine.py", 3, "aneforge.cost.estimate")
    assert problems({"sim": frozenset()}, {"sim": [cost]}) == [
        "aneforge/sim/engine.py:3 imports aneforge.cost.estimate; sim may not import cost"
    ]
    assert problems({"sim": frozenset({"cost"})}, {"sim": [cost]}) == []
    assert problems({"sim": frozenset({"cost", "gate"})}, {"sim": [cost]}) == ["sim never imports gate"]
    assert problems({}, {"sim": []}) == ["sim has no row"]
    assert problems({"sim": frozenset()}, {}) == ["there is no room sim"]


def test_a_circle_is_found():
    with pytest.raises(CycleError):
        list(TopologicalSorter({"a": {"b"}, "b": {"a"}}).static_order())
