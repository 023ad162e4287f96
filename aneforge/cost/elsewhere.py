"""What the GPU of the same product would take, as a band by its published roofline, and where a model should run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aneforge.chips import store
from aneforge.chips.assumed import constant
from aneforge.cost.estimate import Estimate

CHOICE = "U227"
"""The choice that explains the shares of the roofline."""


@dataclass(frozen=True)
class GpuBand:
    """Microseconds on the GPU, at least and at most, and millijoules where its watts are published."""

    low: float
    high: float
    source: tuple[str, ...]
    energy_mj: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        energy = None if self.energy_mj is None else list(self.energy_mj)
        return {"us": [self.low, self.high], "energy_mj": energy, "source": list(self.source), "choice": CHOICE}


def gpu_band(estimate: Estimate) -> GpuBand | None:
    """The band of a model that is on the engine whole; None where nobody has published the chip's GPU."""
    document = store.load("products")
    record = document["gpus"].get(estimate.basis.chip)
    if record is None or estimate.parts:
        return None
    flops = sum(layer.flops for layer in estimate.layers)
    moved = sum(layer.traffic for layer in estimate.layers)
    (slow, fast), (least, most) = constant("gpu_share_of_peak"), record["tflops"]
    (narrow, wide), start = record["memory"], constant("gpu_start_us")
    # Weights that are read for few columns come from memory on any unit; activations may stay in its caches.
    weights = sum(layer.traffic for layer in estimate.layers if layer.bound == "weights")
    low = start[0] + max(flops / (fast * most * 1e6), weights / (wide * 1e3))
    high = start[1] + flops / (slow * least * 1e6) + moved / (slow * narrow * 1e3)
    watts = document["gpu_watts"].get(estimate.basis.chip)
    energy = None if watts is None else (watts["v"][0] * low / 1000, watts["v"][1] * high / 1000)
    return GpuBand(low, high, tuple(record["src"]), energy)


def where_to_run(estimate: Estimate) -> str:
    """Engine or GPU, in one line; empty where nothing is published of the GPU."""
    band = gpu_band(estimate)
    if band is None:
        return ""
    low, high = estimate.interval
    if high < band.low:
        verdict = "run it on the engine"
    elif low > band.high:
        verdict = "run it on the GPU"
    else:
        verdict = "engine or GPU is not decided by what is published: time both"
    gpu = f"{band.low:,.0f} to {band.high:,.0f} us by its published roofline ({CHOICE})"
    return f"{verdict}; engine {low:,.0f} to {high:,.0f} us, GPU {gpu}"
