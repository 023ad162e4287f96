"""What estimates say besides the table: where the time goes, the first call, and energy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aneforge.cost.constants import basis_of
from aneforge.cost.estimate import PARTS, Estimate
from aneforge.output.grouped import grouped, short, some, wrapped
from aneforge.targets.evidence import Fact
from aneforge.targets.lifecycle import first_load_of, wake_of, watts_by_data


def _label(name: str) -> str:
    """The product whose times a name stands for."""
    return basis_of(name).label


def time_text(estimates: Mapping[str, Estimate]) -> str:
    """Where the time goes: of one chip in full, of several by what takes most."""
    if len(estimates) == 1:
        ((name, estimate),) = estimates.items()
        parts = [f"{us / estimate.us:.0%} {PARTS[part]}" for part, us in estimate.shares().items()]
        shown = [part for part in parts if not part.startswith("0%")]
        return wrapped(f"where the time goes on {_label(name)}: {', '.join(shown)}{_longest(estimate)}")
    lines = ["what takes most of the time:"]
    for part, names in grouped(estimates, lambda name: next(iter(estimates[name].shares()))).items():
        chips = [f"{_label(name)} {estimates[name].shares()[part] / estimates[name].us:.0%}" for name in names]
        lines.append(wrapped(f"{PARTS[part]}: {', '.join(chips)}", "  "))
    return "\n".join(lines)


def _longest(estimate: Estimate) -> str:
    """The layer that takes longest, if it takes a good part of the engine's time."""
    layer = max(estimate.layers, key=lambda one: one.us, default=None)
    if layer is None or layer.us < 0.1 * estimate.engine_us:
        return ""
    return f"; longest layer: {layer.op} of {some([short(name) for name in layer.sources], 2)}, {layer.us:,.1f} us"


def first_call_texts(estimates: Mapping[str, tuple[Estimate, float | None]]) -> Iterator[str]:
    """The first call after a pause and after a first load, and energy by data, for the chips where they are known."""
    lines: list[str] = []
    unknown: list[str] = []
    for name, (estimate, weight_bytes) in estimates.items():
        sentences = [*_wake(wake_of(estimate.basis.target))]
        if weight_bytes is not None:
            sentences += _first_load(first_load_of(estimate.basis.target, weight_bytes))
        lines += [wrapped(f"{_label(name)}: {sentence}", "  ") for sentence in sentences]
        if not sentences:
            unknown.append(_label(name))
    if lines:
        more = [wrapped(f"{', '.join(unknown)}: ? (nothing is published)", "  ")] if unknown else []
        yield "\n".join(["the first call:", *lines, *more])
    energy = [sentence for name, (estimate, _) in estimates.items() for sentence in _energy(name, estimate)]
    if energy:
        yield "\n".join(["energy of the engine by data:", *energy])


def _wake(wake: Fact[Any]) -> Iterator[str]:
    if wake.known:
        ramp = f", and full speed {wake.value.ramp_s:g} s later" if wake.value.ramp_s else ""
        yield f"after {wake.value.idle_s:g} s without a call: +{wake.value.extra_ms:g} ms{ramp} {wake.label()}"


def _first_load(load: Fact[Any]) -> Iterator[str]:
    if load.known:
        low, high = load.value.seconds
        took = f"{low:.2g} s" if low == high else f"{low:.2g} to {high:.2g} s"
        megabytes, chip = load.value.megabytes, load.value.measured_on
        size = "a small program" if megabytes is None else f"a layer with {megabytes:g} MB of weights"
        yield f"at the first load: compiling took {took} for {size} on {chip} {load.label()}"


def _energy(name: str, estimate: Estimate) -> Iterator[str]:
    by_data, watts = estimate.energy_by_data_mj, watts_by_data(estimate.basis.target)
    if by_data is not None:
        zeros, random = by_data
        range_mj = f"{zeros:.2f} mJ if all were zeros, {random:.2f} mJ with random numbers"
        rates = f"at the {watts.value.zeros:g} and {watts.value.random:g} W of an int8 convolution"
        yield wrapped(f"{_label(name)}: {range_mj}, {rates} {watts.label()}", "  ")


def first_call_json(estimate: Estimate, weight_bytes: float | None) -> dict[str, Any]:
    """The facts of the first call with their evidence; unknown ones have no value."""
    wake = wake_of(estimate.basis.target)
    record = {"wake": {**wake.to_json(), "value": wake.value._asdict() if wake.known else None}}
    if weight_bytes is not None:
        load = first_load_of(estimate.basis.target, weight_bytes)
        record["first_load"] = {**load.to_json(), "value": load.value._asdict() if load.known else None}
    return record
