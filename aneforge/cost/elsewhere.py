"""What the GPU and the CPU of the same product would take, as bands, and where a model should run.

Nobody has published the kernels that run there, so the bands are wide: what is published of the unit's rates, and the
share of them that published networks reached (U227). Where nothing is published of a CPU, its rates are those that are
assumed of any host (U75, U229).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Any

from aneforge.chips import store
from aneforge.chips.assumed import constant
from aneforge.cost.estimate import Estimate


@dataclass(frozen=True)
class UnitBand:
    """Microseconds on another unit of the product, at least and at most, and millijoules where its watts are
    published."""

    unit: str
    low: float
    high: float
    source: tuple[str, ...]
    choice: str
    energy_mj: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        energy = None if self.energy_mj is None else list(self.energy_mj)
        return {"us": [self.low, self.high], "energy_mj": energy, "source": list(self.source), "choice": self.choice}

    def __str__(self) -> str:
        energy = "" if self.energy_mj is None else f", {_amount(self.energy_mj[0])} to {_amount(self.energy_mj[1])} mJ"
        return f"{self.unit} {self.low:,.0f} to {self.high:,.0f} us{energy} ({self.choice})"


def unit_bands(estimate: Estimate) -> list[UnitBand]:
    """GPU and CPU of a model that is on the engine whole; a unit that nothing is known of is left out."""
    if estimate.parts:
        return []
    document, chip = store.load("products"), estimate.basis.chip
    memory = document["products"].get(chip, {}).get("memory")
    gpu, cpu = document["gpus"].get(chip), document["cpus"].get(chip)
    bands = []
    if gpu is not None:
        start, share = constant("gpu_start_us"), constant("gpu_share_of_peak")
        bands.append(_band("GPU", estimate, gpu, (start[0], start[1]), share, "U227"))
    if cpu is not None:
        start, share = _cpu_start(estimate), constant("gpu_share_of_peak")
        bands.append(_band("CPU", estimate, {**cpu, "memory": [memory, memory]}, start, share, "U229"))
    elif memory:
        slow, fast = constant("host_product_flops_per_us")
        assumed = {"tflops": [slow / 1e6, fast / 1e6], "memory": [memory, memory], "src": []}
        bands.append(_band("CPU", estimate, assumed, _cpu_start(estimate), (1.0, 1.0), "U75"))
    return bands


def _cpu_start(estimate: Estimate) -> tuple[float, float]:
    """Every layer is started by itself."""
    least, most = constant("host_op_us")
    layers = sum(layer.us > 0 for layer in estimate.layers)
    return least * layers, most * layers


def _band(
    unit: str,
    estimate: Estimate,
    rates: Mapping[str, Any],
    start: tuple[float, float],
    share: tuple[float, float],
    choice: str,
) -> UnitBand:
    flops = fsum(layer.flops for layer in estimate.layers)
    moved = fsum(layer.traffic for layer in estimate.layers)
    # Weights that are read for few columns come from memory on any unit; activations may stay in its caches.
    weights = fsum(layer.traffic for layer in estimate.layers if layer.bound == "weights")
    (slow, fast), (least, most), (narrow, wide) = share, rates["tflops"], rates["memory"]
    low = start[0] + max(flops / (fast * most * 1e6), weights / (wide * 1e3))
    high = start[1] + flops / (slow * least * 1e6) + moved / (slow * narrow * 1e3)
    watts = rates.get("watts")
    energy = None if watts is None else (watts[0] * low / 1000, watts[1] * high / 1000)
    return UnitBand(unit, low, high, tuple(rates["src"]), choice, energy)


def where_to_run(estimate: Estimate) -> str:
    """Engine, GPU or CPU, in one line; empty where nothing is known of the other units."""
    bands = unit_bands(estimate)
    if not bands:
        return ""
    low, high = estimate.interval
    energy = "" if estimate.energy_mj is None else f", {_amount(estimate.energy_mj)} mJ"
    middles = {"engine": estimate.us, **{band.unit: sqrt(band.low * band.high) for band in bands}}
    best = min(middles, key=middles.__getitem__)
    ranges = {"engine": (low, high), **{band.unit: (band.low, band.high) for band in bands}}
    overlapping = [unit for unit, one in ranges.items() if unit != best and one[0] < ranges[best][1]]
    verdict = f"likely faster on the {best}" if overlapping else f"run it on the {best}"
    doubt = f" (the bands overlap with the {' and the '.join(overlapping)}: time it there too)" if overlapping else ""
    units = "; ".join(map(str, bands))
    return f"{verdict}{doubt}. Engine {low:,.0f} to {high:,.0f} us{energy}; {units}"


def _amount(number: float) -> str:
    """Two digits, and never a power of ten."""
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}"
