"""How the constants of a chip follow from what is published of it: operations per second, memory bandwidth, and
whether it is in a phone or a Mac.

One set of coefficients serves every chip. A chip that was measured has a factor of its own on some constants; one that
nobody measured takes the factors of a named neighbour. More operations and more bandwidth never make a chip slower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

REFERENCE = 5.5e6  # multiply-adds per us of an M1: the clock that coefficients in microseconds are stated for
YEAR = 2021


@dataclass(frozen=True)
class Physique:
    """What is published of a chip, or of many at once in arrays."""

    macs: Any
    """Multiply-adds per microsecond, as announced."""
    memory: Any
    """Bytes per microsecond of the memory that it shares with the rest of the machine."""
    phone: Any
    year: Any
    """When it was announced: newer phones and systems start a call faster."""
    stream: Any = 0.0
    """Bytes per microsecond of weights into the engine, where somebody has published them; else 0."""


Law = Callable[[Mapping[str, Any], Physique], Any]


def _one_behind_the_other(one: Any, other: Any) -> Any:
    """The rate through two stages."""
    return 1 / (1 / one + 1 / other)


def _call(known: Mapping[str, Any], chip: Physique) -> Any:
    phone = known["phone_call"] * known["newer_call"] ** (chip.year - YEAR)
    return np.where(chip.phone, phone, known["mac_call"])


def _weights(known: Mapping[str, Any], chip: Physique) -> Any:
    stages = _one_behind_the_other(known["weights_memory"] * chip.memory, known["weights_engine"] * chip.macs)
    return np.where(np.asarray(chip.stream) > 0, known["weights_stream"] * chip.stream, stages)


def _by_engine(name: str) -> Law:
    return lambda known, chip: known[name] * chip.macs


def _by_clock(name: str) -> Law:
    return lambda known, chip: known[name] * REFERENCE / chip.macs


def _plain(name: str) -> Law:
    return lambda known, chip: known[name] * np.ones_like(chip.macs)


LAWS: dict[str, Law] = {
    "macs": _by_engine("macs"),
    "weights": _weights,
    "spill": lambda known, chip: known["spill"] * chip.memory,
    "reread": _by_engine("reread"),
    "l2": _by_engine("l2"),
    "planar": _by_engine("planar"),
    "norms": _by_engine("norms"),
    "copy": _by_engine("copy"),
    "layer": _by_clock("layer"),
    "coreml_call": _call,
    "device_task": _by_clock("device_task"),
    **{
        name: _plain(name)
        for name in (
            "linear", "integers", "int8_bytes", "palette_bytes", "sparse_bytes", "host_call", "direct_call",
            "coreai_call", "app_call", "host_in", "host_out", "coreml_io",
        )
    },
}  # fmt: skip
"""How each constant of a chip follows from the coefficients."""


def constants_by_law(known: Mapping[str, Any], chip: Physique, own: Mapping[str, Any]) -> dict[str, Any]:
    """The constants of a chip; ``own`` are its measured factors."""
    return {name: law(known, chip) * own.get(name, 1.0) for name, law in LAWS.items()}
