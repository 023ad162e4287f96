"""Compiled programs in the engine's own container: read, written, taken apart and run."""

from __future__ import annotations

from aneforge.codegen.anec import Anec, read_anec
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.container import Container, read_container

__all__ = ["Anec", "Container", "ContainerError", "read_anec", "read_container"]
