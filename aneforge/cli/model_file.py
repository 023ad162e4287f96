"""The model that a command was asked to read: a file, the sizes of its symbolic dimensions, and its function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aneforge.errors import AneforgeError

if TYPE_CHECKING:
    from aneforge.graph.graph import Graph


@dataclass(frozen=True)
class ModelFile:
    """A path, the sizes that ``--dim`` gives (``batch=1``), and which of the file's functions is meant."""

    path: str
    dims: Sequence[str] = ()
    function: str | None = None

    @classmethod
    def of(cls, model: str | ModelFile) -> ModelFile:
        return model if isinstance(model, ModelFile) else cls(model)

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The file without its folders, for somebody who waits."""
        return Path(self.path).name

    @property
    def options(self) -> dict[str, Any]:
        """``dims`` and ``function``, as the functions of the library take them."""
        return {"dims": _sizes(self.dims), "function": self.function}


def load_model(model: str | ModelFile) -> Graph:
    """The graph in the file."""
    from aneforge.arguments import graph_of  # brings NumPy, and every command is declared with a ModelFile

    file = ModelFile.of(model)
    return graph_of(file.path, **file.options)


def _sizes(options: Sequence[str]) -> dict[str, int]:
    sizes = {}
    for option in options:
        name, _, size = option.rpartition("=")
        if not name or not size.isdigit() or int(size) < 1:
            raise AneforgeError(f"--dim {option}: the form is NAME=SIZE. Write for instance --dim batch=1.")
        sizes[name] = int(size)
    return sizes
