"""Core ML: ML programs (``.mlpackage``, ``.mlmodelc``, MIL text) and neural networks (``.mlmodel``), without macOS."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from aneforge.graph.ops.host import Evaluate, register_language

_HOMES = {"coverage": "table", "read": "reader", "read_compiled": "reader", "read_text": "reader"}


def __getattr__(name: str) -> Any:
    """The readers, imported when they are first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def _evaluator() -> Evaluate:
    from aneforge.formats.coreml.table import KNOWN
    from aneforge.formats.importer.host import evaluate

    return partial(evaluate, known=KNOWN)


register_language("mil", _evaluator)
