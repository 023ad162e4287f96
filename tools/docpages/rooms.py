"""Which room imports which: read from the package's source, for the generated page and for the test of the levels."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
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
    """The folder or module below the package; the package's own ``__init__`` goes by the package's name."""
    return [*module.split("."), PACKAGE][1] if "." in module else PACKAGE


def modules_of(root: Path) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    modules = {}
    for file in sorted((root / PACKAGE).rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return modules


def imports_of(name: str, source: str, modules: Mapping[str, Path], file: str, package: bool) -> Iterator[Import]:
    """Everything of other rooms that a module names: at the top, inside functions, for types only, or in a string."""
    parts = name.split(".") if package else name.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        imported: list[str] = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (base, node.module) if part)
            names = (f"{base}.{alias.name}" for alias in node.names)
            imported = [full if full in modules else base for full in names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAMED_MODULE.fullmatch(node.value):
            imported = [module for module in (node.value.partition(":")[0],) if module in modules]
        for module in imported:
            if module.split(".")[0] == PACKAGE and room_of(module) != room_of(name):
                yield Import(file, getattr(node, "lineno", 0), module)


def imports(root: Path = ROOT) -> dict[str, list[Import]]:
    """What every room imports from others."""
    modules = modules_of(root)
    by_room: dict[str, list[Import]] = {room_of(name): [] for name in modules}
    for name, path in modules.items():
        file = path.relative_to(root).as_posix()
        source = path.read_text(encoding="utf-8")
        by_room[room_of(name)] += imports_of(name, source, modules, file, path.name == "__init__.py")
    return by_room


def levels(page: str) -> dict[str, int]:
    """The level of each room, from the table of docs/develop/house.md."""
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)
    return {room: int(level) for level, names in rows for room in re.findall(r"`(\w+)/?`", names)}


def rooms() -> str:
    """The page docs/reference/rooms.md."""
    level_of = levels((ROOT / "docs" / "develop" / "house.md").read_text(encoding="utf-8"))
    by_room = {room: sorted({entry.room for entry in entries}) for room, entries in imports().items()}
    lines = [
        "# What each room imports",
        "",
        "[The house](../develop/house.md) says what the rooms are for. A room imports rooms of lower levels only.",
        "",
        "| level | room | imports |",
        "| --- | --- | --- |",
    ]
    for room, level in level_of.items():
        names = sorted(by_room.get(room, []), key=lambda name: level_of.get(name, 0))
        lines.append(f"| {level} | `{room}` | {', '.join(f'`{name}`' for name in names) or 'nothing'} |")
    return "\n".join([*lines, ""])
