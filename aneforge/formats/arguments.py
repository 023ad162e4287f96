"""What the public functions share: the model they take first, the chips of ``target``, and the defaults of both.

``model`` is a graph, its output tensors, a compiled model, or the path of a model file. ``target`` names chips as on
the command line: ``"m1"``, ``"m1,m5"``, ``"m1..m6"``, ``"all"``, a :class:`Target`, a family, or a list of these.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aneforge.chips.chip import Target
from aneforge.chips.names import DEFAULT, chip_list, one_chip
from aneforge.compiler.compile import resolve_target
from aneforge.errors import AneforgeError, ArgumentError, LoadError, is_out_of_memory
from aneforge.graph.graph import Graph
from aneforge.graph.node import Node
from aneforge.graph.tensor import Tensor

Source = Any
"""A graph, a tensor, a sequence of tensors, a compiled model, or the path of a model file."""

Chips = str | int | Target | Sequence[str | int | Target] | None
"""Chips by name, as on the command line."""

_RUN_AS = "aneforge_model"  # the name of a module that a file of Python is run as
DEFAULT_NAMES = ("graph", "out", "output", "model")
"""The names that are looked for in a Python file, in this order."""


def graph_of(model: Source, dims: Mapping[str, int] | None = None, function: str | None = None) -> Graph:
    """The graph that ``model`` stands for. ``dims`` and ``function`` are those of :func:`aneforge.load`, for files."""
    if isinstance(model, (str, Path)):
        return _read(str(model), dims, function)
    if dims or function:
        name = "dims" if dims else "function"
        raise ArgumentError(name, f"it is for model files, and model is a {type(model).__name__}. Leave it out.")
    if not isinstance(model, (Graph, Node)) and isinstance(compiled := getattr(model, "graph", None), Graph):
        return compiled
    return Graph.of(model)  # type: ignore[arg-type]


def model_name(model: Source) -> str:
    """What a report calls the model: the path as it was given, or the names of the outputs."""
    if isinstance(model, (str, Path)):
        return str(model)
    graph = graph_of(model)
    names = graph.names()
    return ", ".join(names[output.uid] for output in graph.outputs[:4])


def chips_of(target: Chips, model: Source = None, *, first: bool = False) -> dict[str, Target]:
    """Chips by the names they were asked for, in order. None is the chip of a compiled ``model``, else the default
    chips, or the ``first`` of them."""
    if target is None:
        compiled_for = getattr(model, "target", None)
        usual = one_chip(DEFAULT) if first else DEFAULT
        target = compiled_for if isinstance(compiled_for, Target) else usual
    listed = [target] if isinstance(target, (str, int, Target)) or not isinstance(target, Iterable) else list(target)
    chips: dict[str, Target] = {}
    for item in listed:
        names: Sequence[Any] = chip_list(item, "target") if isinstance(item, str) else [item]
        for name in names:
            chip = resolve_target(name)
            chips.setdefault(name if isinstance(name, str) else chip.name, chip)
    if not chips:
        raise ArgumentError("target", "the list is empty. Name a chip, for instance target='m1' or target='m1,m5'.")
    return chips


def chip_of(target: str | int | Target | None, model: Source = None) -> Target:
    """The one chip of a function that takes one. None is the chip of a compiled ``model``, else this machine's."""
    if target is None:
        compiled_for = getattr(model, "target", None)
        return compiled_for if isinstance(compiled_for, Target) else resolve_target(None)
    return resolve_target(one_chip(target, "target") if isinstance(target, str) else target)


# Files.


def _read(spec: str, dims: Mapping[str, int] | None, function: str | None) -> Graph:
    """A graph from ``FILE.py:NAME`` (a tensor, a list, a graph, or a function that returns one), from a model file of
    any format that is read, or from a saved graph."""
    from aneforge.formats import FORMATS, load  # here, because a graph that was built needs no file format

    path, _, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    file = Path(path)
    if not file.exists():
        raise LoadError(f"{path}: no such file. Give FILE.py:NAME, a saved graph, or {', '.join(FORMATS)}.")
    if file.suffix != ".py":
        return load(file, dims, function=function)
    if dims or function:
        raise LoadError(f"{file.name}: dims and function are for formats such as ONNX. Set sizes in the Python file.")
    return _as_graph(*_pick(_namespace(file), name, file), file)


def value_in_file(spec: str) -> Any:
    """What ``FILE.py:NAME`` stands for, whatever it is."""
    path, _, name = spec.rpartition(":")
    file = Path(path)
    if file.suffix != ".py" or not name or not file.is_file():
        raise LoadError(f"{spec}: give FILE.py:NAME, with a Python file that exists and a name in it.")
    return _pick(_namespace(file), name, file)[0]


def _namespace(file: Path) -> dict[str, Any]:
    import runpy

    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(file), run_name=_RUN_AS)
    except (AneforgeError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise MemoryError from None
        raise LoadError(f"{file.name}: the file failed when it was run: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(folder)


def _is_own(name: str, value: Any) -> bool:
    """Whether a name of a file is a graph, or a function or class that the file itself defines."""
    defined = callable(value) and getattr(value, "__module__", "") == _RUN_AS and not name.startswith("_")
    return defined or isinstance(value, (Tensor, Graph))


def _pick(namespace: dict[str, Any], name: str, file: Path) -> tuple[Any, str]:
    if name:
        if name not in namespace:
            own = [key for key, value in namespace.items() if _is_own(key, value)]
            choice = f"Choose one: {', '.join(own)}." if own else "The file defines no graph and no function."
            raise LoadError(f"{file.name}: {name!r} is not defined. {choice}")
        return namespace[name], name
    for candidate in DEFAULT_NAMES:
        if candidate in namespace:
            return namespace[candidate], candidate
    raise LoadError(f"{file.name}: none of {', '.join(DEFAULT_NAMES)} is defined there. Name one: {file.name}:NAME.")


def _as_graph(value: Any, name: str, file: Path) -> Graph:
    if callable(value) and not isinstance(value, Tensor):
        try:
            value = value()
        except AneforgeError:
            raise
        except Exception as error:
            raise LoadError(f"{file.name}: {name}() failed: {type(error).__name__}: {error}") from None
    if isinstance(value, Graph):
        return value
    if isinstance(value, Tensor):
        return Graph([value])
    if isinstance(value, Sequence) and value and all(isinstance(item, Tensor) for item in value):
        return Graph(list(value))
    kind = type(value).__name__
    raise LoadError(f"{file.name}: {name} is a {kind}; a model is a tensor, a list of tensors or a graph.")
