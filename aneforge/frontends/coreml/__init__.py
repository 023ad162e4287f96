"""Core ML: ML programs (``.mlpackage``, MIL text) and neural networks (``.mlmodel``), without macOS."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from aneforge.errors import LoadError
from aneforge.graph.graph import Graph
from aneforge.graph.ops.host import Evaluate, register_language

__all__ = ["coverage", "read", "read_text"]

_MOST_TEXT = 1 << 30  # bytes of MIL text


def read(
    file: Path,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    function: str | None = None,
) -> Graph:
    """The graph of a package or a model file; ``function`` names one of several functions of a program."""
    from aneforge.frontends.coreml.reader import read_model

    return read_model(Path(file), dims or {}, fixed or {}, function)


def read_text(
    file: Path,
    dims: Mapping[str, int] | None = None,
    fixed: Mapping[str, Any] | None = None,
    function: str | None = None,
) -> Graph:
    """The graph of MIL text. Its weight files are in the same folder, as in a compiled model."""
    from aneforge.frontends.coreml.reader import read_program

    path = Path(file)
    if not path.is_file():
        raise LoadError(f"{str(file)!r}: no such file; check the path")
    if path.stat().st_size > _MOST_TEXT:
        raise LoadError(f"{path.name}: the MIL text has {path.stat().st_size:,} bytes; the limit is {_MOST_TEXT:,}")
    try:
        source = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{path.name}: not MIL text ({type(error).__name__})") from None
    return read_program(path, source, dims or {}, fixed or {}, function)


def coverage() -> list[tuple[str, str, str]]:
    """(op, how it is read, reason) for every op of MIL. How it is read is native form, equivalent, host or refused."""
    from aneforge.frontends.coreml.table import coverage as rows

    return rows()


def _evaluator() -> Evaluate:
    from aneforge.frontends.coreml.table import KNOWN
    from aneforge.frontends.importer.host import evaluate

    return partial(evaluate, known=KNOWN)


register_language("mil", _evaluator)
