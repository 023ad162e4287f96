"""Slow spots of the engine that a change of the graph can avoid, as facts with sources."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.chips import store


def is_notch_share(share: Any, known: Any) -> Any:
    """Whether one core's share of a layer's weights, in bytes, is a multiple of 1 MiB, give or take (C69)."""
    nearest = np.round(share / known["notch_multiple"])
    return (nearest >= 1) & (np.abs(share - nearest * known["notch_multiple"]) < known["notch_window"])


def pieces_off_the_notch(outputs: int, inputs: int, area: int = 1, most: int = 16) -> int | None:
    """Into how many equal pieces to cut the input axis of fp16 weights, so that they stream at full rate.

    None where they do already, or where no such number of pieces is found.
    """
    known = {name: record["v"] for name, record in store.load("cost_fit")["stated"].items()}

    def slow(width: int) -> bool:
        return bool(is_notch_share(2.0 * -(-outputs // known["lanes"]) * width * area, known))

    if not slow(inputs):
        return None
    counts = (count for count in range(2, most + 1) if inputs % count == 0)
    return next((count for count in counts if not slow(inputs // count)), None)
