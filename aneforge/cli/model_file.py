"""What a command was asked to read: a Python file's graph, a model file of any format, or a saved graph."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aneforge.errors import AneforgeError
from aneforge.frontends import FORMATS, load
from aneforge.graph.graph import Graph
from aneforge.graph.tensor import Tensor

__all__ = ["DEFAULT_NAMES", "ModelFile", "load_model"]

DEFAULT_NAMES = ("graph", "out", "output", "model")


@dataclass(frozen=True)
class ModelFile:
    """A file, the values of its symbolic dimensions (``batch=1``), and which of its functions is meant."""

    spec: str
    dims: Sequence[str] = ()
    function: str | None = None

    def __str__(self) -> str:
        return self.spec


def load_model(model: str | ModelFile) -> Graph:
    """A graph from ``FILE.py:NAME`` (a tensor, a list, a graph, or a function that makes one), a model file of any
    format that is read, or a saved graph."""
    spec = str(model)
    asked = model if isinstance(model, ModelFile) else ModelFile(spec)
    dims = _dims(asked.dims)
    path, _, name = spec.rpartition(":") if ".py:" in spec else (spec, "", "")
    file = Path(path)
    if not file.exists() or (file.is_dir() and file.suffix.casefold() not in FORMATS):
        kinds = ", ".join(FORMATS)
        raise AneforgeError(f"no file {path!r}; a model is FILE.py:NAME, a saved graph, or one of {kinds}")
    if file.suffix != ".py":
        return load(file, dims, function=asked.function)
    if dims or asked.function:
        raise AneforgeError("--dim and --function are for model files, such as ONNX; a Python file says its own")
    return _as_graph(*_pick(_namespace(file), name, file), file)


def _dims(told: Sequence[str]) -> dict[str, int]:
    found = {}
    for each in told:
        name, _, size = each.rpartition("=")
        if not name or not size.isdigit() or int(size) < 1:
            raise AneforgeError(f"--dim takes NAME=SIZE, for instance --dim batch=1, not {each!r}")
        found[name] = int(size)
    return found


def _namespace(file: Path) -> dict[str, Any]:
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(file), run_name="aneforge_model")
    except AneforgeError:
        raise
    except (Exception, SystemExit) as error:
        raise AneforgeError(f"{file.name} could not be run: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(folder)


def _pick(namespace: dict[str, Any], name: str, file: Path) -> tuple[Any, str]:
    if name:
        if name not in namespace:
            graphs = [key for key, value in namespace.items() if isinstance(value, (Tensor, Graph))]
            raise AneforgeError(f"{file.name} has no {name!r}; it has {', '.join(graphs) or 'no graph'}")
        return namespace[name], name
    for candidate in DEFAULT_NAMES:
        if candidate in namespace:
            return namespace[candidate], candidate
    raise AneforgeError(f"{file.name} defines none of {', '.join(DEFAULT_NAMES)}; say {file.name}:NAME")


def _as_graph(value: Any, name: str, file: Path) -> Graph:
    if callable(value) and not isinstance(value, Tensor):
        try:
            value = value()
        except AneforgeError:
            raise
        except Exception as error:
            raise AneforgeError(f"{name}() in {file.name} failed: {type(error).__name__}: {error}") from None
    if isinstance(value, Graph):
        return value
    if isinstance(value, Tensor):
        return Graph([value])
    if isinstance(value, Sequence) and value and all(isinstance(each, Tensor) for each in value):
        return Graph(list(value))
    found = type(value).__name__
    raise AneforgeError(f"{name} in {file.name} is a {found}, not a tensor, a list of tensors or a graph")
