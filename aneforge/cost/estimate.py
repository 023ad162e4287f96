"""``model.estimate``: the time of a compiled program by layers, with its interval and basis."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from aneforge.chips.chip import Target
from aneforge.chips.costs import watts_by_data
from aneforge.chips.names import chip_label
from aneforge.compiler.program import Program
from aneforge.compiler.shown import Schedule
from aneforge.cost.calls import APP_SCOPE, CONVERTED, Constants, Ports, Roof, call_us, check_scope
from aneforge.cost.constants import Basis, CallShares, basis_of
from aneforge.cost.layers import Surroundings, Times, columns_of, is_of_attention, times_of
from aneforge.cost.machines import with_copies
from aneforge.cost.program import residents_of, work_of_program
from aneforge.cost.work import Work, more_calls
from aneforge.formats.arguments import chip_of
from aneforge.frames import Tabular

PARTS = {
    "call": "starting calls and copying data",
    "compute": "computing",
    "weights": "reading weights",
    "activations": "moving activations",
    "dispatch": "starting layers",
    "crossings": "changing devices",
    "host": "the host (assumed rates, U75)",
}
"""The parts of a call in words (:meth:`Estimate.shares`)."""
_NEARLY_ALL = 0.994  # what would be printed as 100 %
_FLOOR = 0.05  # of a call: less on the engine than this is hardly worth a call


@dataclass(frozen=True)
class LayerEstimate:
    number: int
    op: str
    sources: tuple[str, ...]
    us: float
    bound: str
    """``compute``, ``weights``, ``activations`` or ``dispatch``."""
    flops: float
    traffic: float
    """Bytes that pass the engine once: weights as they are stored, activations in and out."""
    of_attention: bool = False
    """A product of computed values, a norm or a copy."""
    beside: int | None = None
    """The longer layer of the other engine that hides this one: it adds nothing to the time."""

    @property
    def intensity(self) -> float:
        """Operations per byte: its place along the roofline."""
        return self.flops / self.traffic if self.traffic else 0.0

    @property
    def rate(self) -> float:
        """Operations per microsecond that it reaches: its height under the roofline."""
        return self.flops / self.us if self.us else 0.0

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "sources": list(self.sources), "intensity": self.intensity, "rate": self.rate}


@dataclass(frozen=True)
class PartEstimate:
    """One region of a model that is not on the engine whole."""

    number: int
    device: str
    """``engine`` or ``host``."""
    ops: int
    us: float
    interval: tuple[float, float]
    """Of the host a band between two assumed rates (U75)."""
    program: Estimate | None = None
    """The estimate of the region's own program, on the engine."""

    def to_json(self) -> dict[str, Any]:
        part = {"region": self.number, "device": self.device, "ops": self.ops}
        part |= {"us": self.us, "interval": list(self.interval)}
        return part if self.program is None else {**part, "program": self.program.to_json()}


@dataclass(frozen=True)
class CallSpan:
    """A piece of a call's time."""

    kind: str
    """``call``, ``copies``, ``layer``, ``crossing`` (into ``part``) or ``host``."""
    us: float
    part: PartEstimate | None = None
    """The region that it belongs to, of a split model."""
    layer: LayerEstimate | None = None


@dataclass(frozen=True)
class Estimate(Tabular):
    """Microseconds of one call, between two that hold eight times of ten, and what they rest on."""

    us: float
    interval: tuple[float, float]
    scope: str
    layers: tuple[LayerEstimate, ...]
    calls: int
    """Programs that one call starts: the native layers of a graph are programs of their own."""
    basis: Basis
    parts: tuple[PartEstimate, ...] = ()
    """The regions of a model that is split between engine and host; none where it is one program."""
    crossings_us: float = 0.0
    """What changing devices and handing tensors over costs between the parts."""
    crossings: int = 0
    """How often the device changes."""
    copies_us: float = 0.0
    """Of one program: what copying its inputs and outputs takes of the call."""

    def records(self) -> list[dict[str, Any]]:
        """A row for each layer of the engine, in the order of the program."""
        return [
            {
                "layer": layer.number,
                "op": layer.op,
                "nodes": ", ".join(layer.sources),
                "us": layer.us,
                "bound": layer.bound,
                "operations": layer.flops,
                "bytes": layer.traffic,
            }
            for layer in self.layers
        ]

    @property
    def host_us(self) -> tuple[float, float]:
        """The host's part, at least and at most."""
        host = [part.interval for part in self.parts if part.device == "host"]
        return fsum(low for low, _ in host), fsum(high for _, high in host)

    def in_words(self) -> str:
        """What a split model's time is made of, in a sentence; empty where it is one program."""
        if not self.parts:
            return ""
        engine, host = ([part for part in self.parts if part.device == device] for device in ("engine", "host"))
        low, high = self.host_us
        on_engine = f"{len(engine)} region{'' if len(engine) == 1 else 's'} on the engine"
        engine_us = fsum(part.us for part in engine)
        return (
            f"{on_engine}, {len(host)} on the host: {engine_us:,.0f} us for the engine's calls, "
            f"{low:,.0f} to {high:,.0f} us on the host (assumed rates, U75), {self.crossings_us:,.0f} us for "
            f"{self.crossings} change{'' if self.crossings == 1 else 's'} of device"
        )

    @property
    def engine_us(self) -> float:
        """Microseconds of all layers, without the call around them."""
        return fsum(layer.us for layer in self.layers)

    def interval_of(self, us: float, inputs: int = 1) -> tuple[float, float]:
        """Between which times a call lies that takes ``us`` for ``inputs`` times the layers of this one."""
        return self.basis.interval(us, self.scope, _shares(us / inputs, self.layers))

    @property
    def width_says(self) -> str:
        """What makes the interval as wide as it is."""
        if self.parts:
            return "the host's part is a band of assumed rates (U75)"
        mostly = self.basis.width(self.scope).mostly(_shares(self.us, self.layers))
        if mostly == "engine":
            return "the engine's own time"
        if mostly == "attention":
            return "attention, norms and copies, of which few measured networks are made"
        if self.basis.copies_are_given:
            return "starting the call, on a machine whose copies were given"
        return "starting the call and copying on a machine that nobody measured (--copy-gbs gives its rate)"

    @property
    def roof(self) -> Roof:
        """The roofline of the chip that the layers lie under."""
        return self.basis.constants.roof

    @property
    def energy_mj(self) -> float | None:
        """Millijoules of the engine, at most: its published watts under full load for as long as it computes."""
        watts = self.basis.watts
        return watts.value * self.engine_us / 1000 if watts.known else None

    def bounds(self) -> dict[str, float]:
        """How much of the engine's time each bound takes."""
        shares: dict[str, float] = {}
        for layer in self.layers:
            shares[layer.bound] = shares.get(layer.bound, 0.0) + layer.us
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    def shares(self) -> dict[str, float]:
        """Where the time of a call goes, in microseconds, the largest part first: the engine's by what bounds it,
        ``call`` (starting programs and copying), ``crossings`` and ``host``."""
        host = fsum(part.us for part in self.parts if part.device == "host")
        around = {"host": host, "crossings": self.crossings_us}
        around["call"] = self.us - self.engine_us - fsum(around.values())
        parts = {name: us for name, us in {**self.bounds(), **around}.items() if us > 0}
        return dict(sorted(parts.items(), key=lambda item: -item[1]))

    @property
    def energy_by_data_mj(self) -> tuple[float, float] | None:
        """Millijoules of the engine at most, if all it computes on were zeros and with random numbers, where both
        were measured."""
        watts = watts_by_data(self.basis.target)
        if not watts.known:
            return None
        return watts.value.zeros * self.engine_us / 1000, watts.value.random * self.engine_us / 1000

    def spans(self) -> Iterator[CallSpan]:
        """What a call consists of, in order: starting it, copies, layers, and of a split model what the host computes
        and the changes of device. Their times add up to the call's."""
        if not self.parts:
            around = max(0.0, self.us - self.engine_us)
            copies = min(around, max(0.0, self.copies_us))
            yield CallSpan("call", around - copies)
            yield CallSpan("copies", copies)
            yield from (CallSpan("layer", layer.us, layer=layer) for layer in self.layers)
            return
        before = self.parts[0].device
        for part in self.parts:
            if part.device != before:
                yield CallSpan("crossing", self.crossings_us / max(1, self.crossings), part)
            before = part.device
            inside = [CallSpan("host", part.us)] if part.program is None else part.program.spans()
            yield from (replace(span, part=part) for span in inside)

    def to_json(self) -> dict[str, Any]:
        return {
            "us": self.us,
            "interval": list(self.interval),
            "width": self.width_says,
            "scope": self.scope,
            "calls": self.calls,
            "engine_us": self.engine_us,
            "energy_mj": self.energy_mj,
            "energy_by_data_mj": self.energy_by_data_mj,
            "shares": self.shares(),
            "bounds": self.bounds(),
            "host_us": list(self.host_us),
            "crossings_us": self.crossings_us,
            "parts": [part.to_json() for part in self.parts],
            "roof": {"peak": self.roof.peak, "bandwidth": self.roof.bandwidth, "ridge": self.roof.ridge},
            "basis": self.basis.to_json(),
            "layers": [layer.to_json() for layer in self.layers],
        }

    def __str__(self) -> str:
        low, high = self.interval
        label = "fitted" if self.basis.fitted else "extrapolated"
        part, us = next(iter(self.shares().items()), ("call", self.us))
        words = f"; {us / self.us:.0%} {PARTS[part]}" + (f"; {self.in_words()}" if self.parts else "")
        return f"{self.us:,.0f} us ({low:,.0f} to {high:,.0f}), {self.scope}, {label}: {self.basis.rule}{words}"


def estimate_program(
    program: Program,
    scope: str = APP_SCOPE,
    target: Target | None = None,
    copy_gbs: float | None = None,
    stay: Collection[str] = (),
) -> Estimate:
    """``target`` is the product to time where several share the program; ``copy_gbs`` how fast its host copies, where
    that is known; ``stay`` names ports beside the states that no call copies."""
    check_scope(scope)
    basis = with_copies(basis_of(target or program.target), copy_gbs)
    layers = _side_by_side(_alone(program, basis, scope in CONVERTED), program.steps)
    calls = _calls(program, scope)
    engine_us, known = fsum(layer.us for layer in layers), basis.constants
    us = float(call_us(scope, engine_us, ports_of(program, stay), known, calls))
    copies_us = us - float(call_us(scope, engine_us, Ports(0.0, 0.0), known, calls))
    interval = basis.interval(us, scope, _shares(us, layers))
    return Estimate(us, interval, scope, layers, calls, basis, copies_us=copies_us)


def _shares(us: float, layers: Sequence[LayerEstimate]) -> CallShares:
    engine_us = fsum(layer.us for layer in layers)
    return CallShares.of(us, engine_us, fsum(layer.us for layer in layers if layer.of_attention))


def _calls(program: Program, scope: str) -> int:
    """How many programs one call starts."""
    kinds, kind_of = demands_of(program)
    return max(1, len(program.segments)) + more_calls(scope, (kinds[kind][0] for kind in kind_of))


def ports_of(program: Program, stay: Collection[str] = ()) -> Ports:
    """What a call brings in and takes out. States stay where they are, and so do the ports named in ``stay``."""
    shapes = (
        [port.user_shape for port in ports if not (port.is_state or port.name in stay)]
        for ports in (program.inputs, program.outputs)
    )
    return Ports.of(*shapes)


def _times(program: Program, known: Constants, converted: bool) -> Times:
    """The time of each different demand. Layers that do the same take the same time, which is worked out once."""
    kinds, _ = demands_of(program)
    resident = np.array([stays for _, stays in kinds], bool)
    around = Surroundings(resident, converted=converted)
    return times_of(columns_of([work for work, _ in kinds]), known, around)


def engine_and_call_us(
    program: Program, known: Constants, scope: str, stay: Collection[str] = ()
) -> tuple[float, float]:
    """The engine's time and the whole call's with these constants, without an estimate of each layer."""
    us_of, (_, kind_of) = _times(program, known, scope in CONVERTED).us.tolist(), demands_of(program)
    engine_us = fsum([max([us_of[kind_of[place]] for place in step]) for step in program.steps])
    calls = _calls(program, scope)
    return engine_us, float(call_us(scope, engine_us, ports_of(program, stay), known, calls))


def _alone(program: Program, basis: Basis, converted: bool) -> list[LayerEstimate]:
    """Every layer by itself."""
    (kinds, kind_of), times = demands_of(program), _times(program, basis.constants, converted)
    attention = is_of_attention(columns_of([work for work, _ in kinds])).tolist()
    facts = [
        (us, bound, work.flops, work.traffic, is_one)
        for us, bound, (work, _), is_one in zip(times.us.tolist(), times.bounds(), kinds, attention, strict=True)
    ]
    return [
        LayerEstimate(layer.number, layer.op, layer.sources, *facts[kind])
        for layer, kind in zip(program.layers, kind_of, strict=True)
    ]


Demand = tuple[Work, bool]
"""What a layer does, and whether all of its tensors stay on the chip."""

_known_demands: WeakKeyDictionary[Schedule, tuple[list[Demand], list[int]]] = WeakKeyDictionary()


def demands_of(program: Program) -> tuple[list[Demand], list[int]]:
    """The different demands of a program's layers, and which of them each layer has. They do not depend on the chip,
    so programs that share a schedule share them; they go with the schedule."""
    known = _known_demands.get(program.schedule)
    if known is None:
        works, resident = work_of_program(program), residents_of(program)
        places: dict[Demand, int] = {}
        numbers: dict[tuple[int, bool], int] = {}  # layers that look alike share one work, which is looked up once
        kind_of = []
        for work, stays in zip(works, resident, strict=True):
            number = numbers.get((id(work), stays))
            if number is None:
                number = numbers[id(work), stays] = places.setdefault((work, stays), len(places))
            kind_of.append(number)
        known = _known_demands[program.schedule] = list(places), kind_of
    return known


def _side_by_side(layers: Sequence[LayerEstimate], steps: Sequence[Sequence[int]]) -> tuple[LayerEstimate, ...]:
    """Of layers that the schedule issues together only the longest counts."""
    timed = list(layers)
    for step in steps:
        if len(step) == 1:
            continue
        longest = max(step, key=lambda place: layers[place].us)
        for place in step:
            if place != longest:
                timed[place] = replace(layers[place], us=0.0, beside=longest)
    return tuple(timed)


class DispatchFloorWarning(UserWarning):
    """Nearly all of a call is the starting of it."""


def warn_dispatch_floor(program: Program, stacklevel: int = 2) -> bool:
    """A warning where nearly all of a call would be the starting of it; whether there was one."""
    engine_us, us = engine_and_call_us(program, basis_of(program.target).constants, APP_SCOPE)
    return warn_if_at_floor(program, engine_us, us, stacklevel + 1)


def warn_if_at_floor(program: Program, engine_us: float, us: float, stacklevel: int) -> bool:
    """The warning where a call of ``us`` has so little work of the engine; whether there was one."""
    if engine_us >= _FLOOR * us:
        return False
    what = ", ".join(port.name for port in program.outputs[:4])
    share, target = 1 - engine_us / us, program.target
    words = "over 99%" if share > _NEARLY_ALL else f"{share:.0%}"
    message = (
        f"{what}: {words} of a call of {us:.0f} us on {chip_label(target.product or target.name)} is dispatch "
        f"and copies, {engine_us:.2g} us the engine's work: give it more work, or batch it"
    )
    warnings.warn(message, DispatchFloorWarning, stacklevel=stacklevel)
    return True


def estimate_provenance(target: str | int | Target) -> dict[str, Any]:
    """What a target's estimates rest on: each constant with its evidence, whose they are and by which rule."""
    return basis_of(chip_of(target)).to_json()
