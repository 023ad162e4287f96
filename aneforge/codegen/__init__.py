"""Compiled programs in the engine's own container: written, read, taken apart and run."""

from __future__ import annotations

from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.container import Container, read_container
from aneforge.codegen.decode import decode
from aneforge.codegen.emit import emit

__all__ = ["Container", "ContainerError", "decode", "emit", "read_container"]
