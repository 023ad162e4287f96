"""The engine's language: backend ops with their floor and engine, a text form, and a verifier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aneforge.anec.interpret import interpret
from aneforge.anec.ir import AnecError, Module, Op, TensorType
from aneforge.anec.spec import OpSpec, kinds_with, spec, spec_names, structural_names
from aneforge.anec.traits import Trait
from aneforge.anec.verify import problems, verify
from aneforge.native.layer import rank5

if TYPE_CHECKING:
    from aneforge.anec.text import parse, read, write

__all__ = [
    "AnecError",
    "Module",
    "Op",
    "OpSpec",
    "TensorType",
    "Trait",
    "interpret",
    "kinds_with",
    "parse",
    "problems",
    "rank5",
    "read",
    "spec",
    "spec_names",
    "structural_names",
    "verify",
    "write",
]


def __getattr__(name: str) -> Any:
    """The text form is imported when it is first used, because a check of a graph neither reads nor writes text."""
    if name not in ("parse", "read", "write"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aneforge.anec import text

    return getattr(text, name)
