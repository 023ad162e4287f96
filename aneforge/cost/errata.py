"""Slow spots of the engine that a change of the graph can avoid, as facts with sources."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.chips import store
from aneforge.cost.calls import Constants


def is_notch_share(share: Any, known: Any) -> Any:
    """Whether one core's share of a layer's weights, in bytes, is a multiple of 1 MiB, give or take (C69)."""
    nearest = np.round(share / known["notch_multiple"])
    return (nearest >= 1) & (np.abs(share - nearest * known["notch_multiple"]) < known["notch_window"])


def errata_of(outputs: int, inputs: int, area: int, known: Constants) -> tuple[str, ...]:
    """Why a chip is slow at a layer with fp16 weights, in words; nothing where it is not."""
    share = 2 * -(-outputs // known.shared["lanes"]) * inputs * area
    found = []
    if known.notch and is_notch_share(share, known.shared):
        found.append(f"{share / _MEBIBYTE:.3g} MiB of weights for each core stream slowly (C69)")
    if known.slow_when_deep and inputs * area > known.shared["deep_numbers"]:
        found.append(f"sums over {inputs * area:,} numbers run at half rate (C74)")
    return tuple(found)


_MEBIBYTE = 1 << 20


def pieces_at_full_rate(outputs: int, inputs: int, area: int = 1, most: int = 16) -> int | None:
    """Into how many equal pieces to cut the input axis of fp16 weights, so that they stream at full rate (C69) and no
    sum is longer than chips take at full rate (C74).

    None where that holds already, or where no such number of pieces is found.
    """
    known = {name: record["v"] for name, record in store.load("cost_fit")["stated"].items()}

    def slow(width: int) -> bool:
        share = 2.0 * -(-outputs // known["lanes"]) * width * area
        return bool(is_notch_share(share, known)) or width * area > known["deep_numbers"]

    if not slow(inputs):
        return None
    counts = (count for count in range(2, most + 1) if inputs % count == 0)
    return next((count for count in counts if not slow(inputs // count)), None)
