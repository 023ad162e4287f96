"""The machine around the engine: how fast the host copies, where somebody says it or has published it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite, sqrt
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from aneforge.chips import store
from aneforge.cost.calls import PYTHON_SCOPE
from aneforge.cost.constants import Basis, basis_of, physique_of
from aneforge.cost.layers import Surroundings, columns_of, times_of
from aneforge.cost.work import Work
from aneforge.errors import AneforgeError, ArgumentError, UnknownNameError
from aneforge.formats.arguments import chip_of

RELU_FORM = "give ELEMENTS:MICROSECONDS, such as 262144:284"
_APART = 4  # times: from sizes that are closer nobody reads a rate
_RELU_BYTES = 4.0  # an fp16 number in, and one out
_FASTEST = 2.0  # times the memory's bandwidth: a copy reads and writes


class Relu(NamedTuple):
    """A call of one relu of fp16 numbers with arrays, and how long it took."""

    elements: int
    us: float


@dataclass(frozen=True)
class MeasuredMachine:
    """The host around an engine, as its own calls show it."""

    target: str
    label: str
    copy_gbs: float
    start_us: float
    """To start a call that has nothing to copy."""
    assumed_gbs: float
    """What is taken for this chip where nobody says."""
    calls: tuple[tuple[Relu, float], ...]
    """Each call, and what it takes by this rate."""

    def to_json(self) -> dict[str, Any]:
        calls = [{"elements": call.elements, "us": call.us, "by_rate_us": round(us, 2)} for call, us in self.calls]
        numbers = {key: round(getattr(self, key), 3) for key in ("copy_gbs", "start_us", "assumed_gbs")}
        return {"target": self.target, "chip": self.label, **numbers, "calls": calls}


def measured_copies(calls: Sequence[Relu], target: str) -> MeasuredMachine:
    """How fast a machine's host copies: the middle of what each pair of calls says, which one odd time cannot move."""
    for call in calls:
        if call.elements < 1 or not (isfinite(call.us) and call.us > 0):
            raise AneforgeError(f"{call.elements}:{call.us:g} is not a time; {RELU_FORM}")
    sizes = {call.elements for call in calls}
    if len(sizes) < 2 or max(sizes) < _APART * min(sizes):
        raise AneforgeError(f"the sizes are too close; give two that are {_APART} times apart or more")
    chip = chip_of(target)
    basis = basis_of(chip)
    works = [Work("pointwise", elements=call.elements, bytes_in=2.0 * call.elements) for call in calls]
    engine = times_of(columns_of(works), basis.constants, Surroundings(resident=np.array(True))).us
    outside = [(_RELU_BYTES * call.elements, call.us - us) for call, us in zip(calls, engine.tolist(), strict=True)]
    slope = median((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(sorted(outside), 2) if b[0] >= _APART * a[0])
    fastest = _FASTEST * physique_of(basis.chip).memory / 1e3
    if slope <= 0 or 1e-3 / slope > fastest:
        raise AneforgeError(
            f"larger calls are hardly longer: a copy would pass the {fastest:.0f} GB/s of {basis.label}'s memory. "
            "Time larger sizes, each many times, and give the medians",
        )
    start = median(us - slope * size for size, us in outside)
    fitted = [start + slope * size + us for (size, _), us in zip(outside, engine.tolist(), strict=True)]
    assumed = assumed_copies(basis)
    pairs = tuple(zip(calls, fitted, strict=True))
    return MeasuredMachine(chip.name, basis.label, 1e-3 / slope, max(0.0, start), assumed, pairs)


def assumed_copies(basis: Basis, scope: str = PYTHON_SCOPE) -> float:
    """GB/s of the copies of a call that are taken for a chip where nobody says."""
    constants = basis.constants.chip
    if scope != PYTHON_SCOPE:
        return 1e-3 * constants["coreml_io"]
    return 2e-3 / (1 / constants["host_in"] + 1 / constants["host_out"])


def copy_rate(machine: str | None, copy_gbs: float | None) -> float | None:
    """GB/s of the host's copies: as measured, or the middle of what is published of a machine by name (C73)."""
    if machine is not None and copy_gbs is not None:
        raise ArgumentError("copy_gbs", "a machine and a measured rate say the same twice. Give one of them.")
    if machine is not None:
        known = store.load("products")["machines"]
        names = {name.lower(): record for name, record in known.items()}
        if machine.lower() not in names:
            raise UnknownNameError(
                f"{machine!r}: no copy rate of this machine is known; choose one: {', '.join(known)}"
            )
        low, high = names[machine.lower()]["v"]
        return sqrt(low * high)
    if copy_gbs is not None and not (
        isinstance(copy_gbs, (int, float)) and not isinstance(copy_gbs, bool) and isfinite(copy_gbs) and copy_gbs > 0
    ):
        raise ArgumentError("copy_gbs", f"{copy_gbs!r} is not a rate. Give GB/s, more than zero.")
    return copy_gbs


def with_copies(basis: Basis, copy_gbs: float | None) -> Basis:
    """A basis with the copies of a known machine. Its host is then no longer one that nobody measured."""
    if copy_gbs is None:
        return basis
    rate = copy_gbs * 1e3  # bytes per microsecond
    chip = {**basis.constants.chip, "host_in": rate, "host_out": rate, "coreml_io": rate}
    left_out = store.load("cost_fit")["widths"]["sources"]
    widths = {
        kind: replace(width, host=min(width.host, left_out[kind]["host"])) for kind, width in basis.widths.items()
    }
    rule = f"{basis.rule}; the host copies {copy_gbs:g} GB/s, as given"
    constants = replace(basis.constants, chip=chip)
    return replace(basis, constants=constants, widths=widths, rule=rule, copies_are_given=True)
