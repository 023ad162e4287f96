"""Compiled programs in the engine's own container: written, read, taken apart and run."""

from __future__ import annotations

from typing import Any

from aneforge.lazy import first_use

# To look at a container takes neither the compiler nor the simulator, which the last two need.
HOMES = {
    "anec": "Anec read_anec",
    "bounds": "ContainerError",
    "container": "Container read_container",
    "decoding": "decode",
    "emission": "emit",
}


def __getattr__(name: str) -> Any:
    return first_use(__name__, HOMES, name)
