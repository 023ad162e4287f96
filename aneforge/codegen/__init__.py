"""Compiled programs in the engine's own container: written, read, taken apart and run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aneforge.codegen.anec import Anec, read_anec
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.container import Container, read_container

if TYPE_CHECKING:
    from aneforge.codegen.decoding import decode
    from aneforge.codegen.emission import emit

__all__ = ["Anec", "Container", "ContainerError", "decode", "emit", "read_anec", "read_container"]

_HOME_OF = {"decode": "aneforge.codegen.decoding", "emit": "aneforge.codegen.emission"}


def __getattr__(name: str) -> Any:
    """What needs the compiler and the simulator is imported when it is first used: to look at a container takes
    neither."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
