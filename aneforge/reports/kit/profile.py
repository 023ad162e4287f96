"""A measured machine from results: what narrows the times of ``estimate`` there."""

from __future__ import annotations

from math import log

import numpy as np

from aneforge.cost.machines import MachineProfile
from aneforge.errors import AneforgeError
from aneforge.reports.kit.experiments import TIMES, experiments
from aneforge.reports.kit.judge import copies_of
from aneforge.reports.kit.results import KitResults

_LEAST_WIDTH = 0.05
"""No machine's calls repeat closer than this from day to day."""


def profile_of(results: KitResults) -> MachineProfile:
    """Copies, start of a call and stream of weights, as this machine's own calls show them."""
    copies = copies_of(results)
    off = [abs(log(by_rate / call.us)) for call, by_rate in copies.calls]
    machine = results.machine
    return MachineProfile(
        chip=machine.chip,
        target=results.target.name,
        os=f"{machine.os} ({machine.build})",
        scope=results.runner.scope,
        copy_gbs=round(copies.copy_gbs, 3),
        start_us=round(copies.start_us, 2),
        weights_gbs=_weights(results),
        width=round(max(_LEAST_WIDTH, *off), 4),
    )


def _weights(results: KitResults) -> float | None:
    """GB/s at which weights reach the engine: the middle slope of times over bytes; None where it was not measured."""
    experiment = next(entry for entry in experiments().values() if entry.kind == TIMES and entry.about[0] == "U220")
    rows = results.cases(experiment)
    if not rows or any(row.status != "ran" for row in rows):
        return None
    sizes = [2.0 * np.prod(experiment.record(case)["weights"]["w"]["shape"]) for case in experiment.cases]
    points = sorted(zip(sizes, (row.us for row in rows), strict=True))
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for place, a in enumerate(points) for b in points[place + 1 :]]
    slope = float(np.median(slopes))
    if slope <= 0:
        raise AneforgeError(
            f"{experiment.id}: larger weights take no longer. Run it again: python3 run.py {experiment.id}"
        )
    return round(1e-3 / slope, 2)
