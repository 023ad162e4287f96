"""The machine around the engine: how fast the host copies, where somebody says it or has published it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite, sqrt
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from aneforge.chips import store
from aneforge.cost.calls import APP_SCOPE, PYTHON_SCOPE
from aneforge.cost.constants import Basis, Width, basis_of, physique_of
from aneforge.cost.layers import Surroundings, columns_of, times_of
from aneforge.cost.work import Work
from aneforge.documents import Misshapen, read_json, typed
from aneforge.errors import AneforgeError, ArgumentError, LoadError, UnknownNameError
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


@dataclass(frozen=True)
class MachineProfile:
    """A machine as somebody measured it with the kit."""

    chip: str
    target: str
    os: str
    scope: str
    """What its times cover: host_call or coreml_call."""
    copy_gbs: float
    start_us: float
    weights_gbs: float | None
    width: float
    """The logarithm of how far calls are from this rate and start."""
    schema: int = 1
    kind: str = "aneforge machine"

    def __post_init__(self) -> None:
        for name in ("copy_gbs", "start_us", "weights_gbs", "width"):
            number = getattr(self, name)
            if number is not None and not (isfinite(number) and (number > 0 or (name == "start_us" and number == 0))):
                raise AneforgeError(f"{name} {number} is not a measurement; give more than zero")

    @property
    def rate(self) -> MachineRate:
        """Its rate of copies, as options and studies hand it on."""
        rate = MachineRate(self.copy_gbs)
        rate.profile = self
        return rate

    def to_json(self) -> dict[str, Any]:
        return {"schema": self.schema, "kind": self.kind, **self.__dict__}


class MachineRate(float):
    """GB/s of a host's copies, with all that was measured of the machine."""

    profile: MachineProfile


def profiles_folder() -> Path:
    """Where ``--machine NAME`` looks for NAME.json."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "aneforge" / "machines"


def read_profile(path: str | Path) -> MachineProfile:
    """A profile from a file, which anybody may have written."""
    try:
        profile: MachineProfile = typed(MachineProfile, read_json(path, 1 << 20))
    except (Misshapen, AneforgeError) as error:
        raise LoadError(
            f"{path}: not a machine's profile: {error}. Write one: aneforge measure kit --profile"
        ) from None
    if (profile.schema, profile.kind) != (1, "aneforge machine"):
        raise LoadError(f"{path}: {profile.kind} of schema {profile.schema}; expected 'aneforge machine' of schema 1.")
    return profile


def _profile_called(machine: str) -> MachineProfile | None:
    """The profile in a file, or of that name in the user's folder."""
    if machine.endswith(".json"):
        return read_profile(machine)
    place = profiles_folder() / f"{Path(machine).name}.json"
    return read_profile(place) if place.is_file() else None


def copy_rate(machine: str | None, copy_gbs: float | None) -> float | None:
    """GB/s of the host's copies: as measured, or the middle of what is published of a machine by name (C73)."""
    if machine is not None and copy_gbs is not None:
        raise ArgumentError("copy_gbs", "a machine and a measured rate say the same twice. Give one of them.")
    if machine is not None:
        profile = _profile_called(machine)
        if profile is not None:
            return profile.rate
        known = store.load("products")["machines"]
        names = {name.lower(): record for name, record in known.items()}
        if machine.lower() not in names:
            raise UnknownNameError(
                f"{machine!r}: no copy rate of this machine is known; choose one: {', '.join(known)}, or give the "
                "file that aneforge measure kit --profile wrote"
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
    if isinstance(copy_gbs, MachineRate):
        return _with_profile(basis, copy_gbs.profile, chip, widths, rule)
    constants = replace(basis.constants, chip=chip)
    return replace(basis, constants=constants, widths=widths, rule=rule, copies_are_given=True)


def _with_profile(
    basis: Basis, profile: MachineProfile, chip: dict[str, float], widths: dict[str, Width], rule: str
) -> Basis:
    """The same with the start of a call, the stream of weights and the spread that were measured there."""
    if profile.target != basis.target.name:
        raise ArgumentError(
            "machine", f"it was measured on an {profile.chip} ({profile.target}), and this is {basis.target.name}."
        )
    chip |= {profile.scope: profile.start_us}
    if profile.weights_gbs is not None:
        chip["weights"] = 1e3 * profile.weights_gbs
    if profile.scope == APP_SCOPE:  # a call from Python says little about one of an app
        widths = {kind: replace(width, host=min(width.host, profile.width)) for kind, width in widths.items()}
    constants = replace(basis.constants, chip=chip)
    rule = f"{rule}, and a call starts in {profile.start_us:g} us, as measured on this machine"
    return replace(basis, constants=constants, widths=widths, rule=rule, copies_are_given=True)
