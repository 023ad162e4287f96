"""The vendor compiler's own view of time, beside our calibrated one: device-info buckets, layer cycles, the formula.

Two published models, kept apart. A layer has cycles: ``max(core compute, DMA + L2) + overhead``. A fused program has
microseconds: ``floor + max(flops / peak, bytes / bandwidth)``, with rates measured on three chips and scaled to the
others by cores and clock. Both order programs well and time them badly (:func:`vendor_accuracy`);
``aneforge.cost.estimate`` is the one to trust for time. What nobody has published stays unknown here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite, prod
from typing import Any

from aneforge.chips import store
from aneforge.chips.chip import Target
from aneforge.chips.costs import CostCurve, DeviceInfo, cost_cores, cost_curve, device_info
from aneforge.chips.evidence import Fact, fact, unknown
from aneforge.compiler.compile import resolve_target
from aneforge.compiler.program import Program, ProgramLayer, ProgramSegment
from aneforge.cost.program import work_of_program
from aneforge.cost.work import Work
from aneforge.errors import AneforgeError

_MOST_CYCLES = 65535  # the count is kept in 16 bits (formula layer_cycles)
_RAMP = "between its published ends the ramp doubles from bucket to bucket until it reaches the upper one: our choice"
_SIZE = "bytes per nanosecond, our reading: no unit is published"


@dataclass(frozen=True)
class VendorDevice:
    """What the compiler takes a chip to be for one size of operation: ``getDeviceInfo``, and its clock curve."""

    target: Target
    size: float | None
    bucket: int | None
    setup: Fact[float]
    throughput: Fact[float]
    """The other half of the setup pair (offset 0xc)."""
    scaled_pair: Fact[tuple[float, float]]
    """The pair at offsets 0x14 and 0x18 that grows with the size."""
    bandwidth_clamp: Fact[float]
    constant: Fact[float]
    """Written at offset 0x30 for every family."""
    divisor: Fact[int]
    """Multiply-adds of one output channel per core and cycle (HAL 0x228)."""
    cores: Fact[int]
    operating_mhz: Fact[float]
    effective_mhz: Fact[float]

    def facts(self) -> dict[str, Fact[Any]]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Fact)}

    def to_json(self) -> dict[str, Any]:
        place = {"target": self.target.name, "size": self.size, "bucket": self.bucket}
        return {**place, **{name: fact.to_json() for name, fact in self.facts().items()}}

    def __str__(self) -> str:
        return "\n".join([self.target.name, *(f"  {name}: {fact}" for name, fact in self.facts().items())])


def vendor_device(target: str | int | Target, size: float | None = None) -> VendorDevice:
    """The compiler's device record of a target for one size; without a size, the target's core count.

    What "size" counts is disputed (C29): the seed says the operation, the guide's later chapter the cores.
    """
    chip = resolve_target(target)
    cores, curve = cost_cores(chip), cost_curve(chip)
    size = _checked(size, "a size") if size is not None else cores.value
    family, about = chip.family8, f"device info of {chip.name}"
    bucket, setup, clamp, constant = None, unknown(about), unknown(about), unknown(about)
    if family is not None:
        info, note = device_info(family), _own_arm(family.name)
        constant = Fact(info.constant, info.clamps.source, info.clamps.confidence, about)
        if size is not None:
            bucket = info.bucket(size)
            clamp = _noted(info.bandwidth_clamp(size), _SIZE, note)
            setup = _noted(_setup(info, bucket), note)
    return VendorDevice(
        target=chip,
        size=size,
        bucket=bucket,
        setup=setup,
        throughput=unknown(f"throughput of the {about}", "named at offset 0xc; its numbers are not published"),
        scaled_pair=unknown(f"size-scaled pair of the {about}", "named at 0x14 and 0x18; not published"),
        bandwidth_clamp=clamp,
        constant=constant,
        divisor=_of_curve(curve, "divisor"),
        cores=cores,
        operating_mhz=_of_curve(curve, "operating_mhz"),
        effective_mhz=_of_curve(curve, "effective_mhz"),
    )


def _setup(info: DeviceInfo, bucket: int) -> Fact[float]:
    """Only the ends of the ramp are published; three of the four rows span a whole number of doublings."""
    ramp = info.setup_ramp
    low, high = ramp.value
    if bucket in (0, len(info.buckets)):
        return Fact(high if bucket else low, ramp.source, ramp.confidence, ramp.about)
    return Fact(min(low * 2**bucket, high), ramp.source, "inferred", ramp.about, _RAMP)


def _own_arm(family: str) -> str | None:
    """A family whose own numbers are known to exist and are not published: the shared row is used."""
    own = store.load("cost_model")["get_device_info"].get(f"{family.lower()}_branch")
    return own and f"{family} has a {own['v']}; this is the shared row"


def _noted(known: Fact[Any], *notes: str | None) -> Fact[Any]:
    return replace(known, note="; ".join(note for note in (known.note, *notes) if note) or None)


def _of_curve(curve: Fact[CostCurve], field: str) -> Fact[Any]:
    return replace(curve, value=getattr(curve.value, field)) if curve.known else curve


def _checked(value: float, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0 or not isfinite(value):
        raise AneforgeError(f"{what}: {value!r} is not a finite number, 0 or more.")
    return value


@dataclass(frozen=True)
class LayerCycles:
    """One layer in cycles of the effective clock. ``cycles`` is None where a fact that it needs is unknown."""

    cycles: int | None
    compute: int | None
    dma: int | None
    l2: Fact[int]
    overhead: Fact[int]
    saturated: bool
    """The count has reached what its 16 bits hold; the layer takes at least that long."""
    macs_per_cycle: Fact[int]
    missing: tuple[str, ...]
    """What is not published and was therefore left out (L2) or made the count impossible."""

    def to_json(self) -> dict[str, Any]:
        record = {name: value.to_json() if isinstance(value, Fact) else value for name, value in vars(self).items()}
        return {**record, "missing": list(self.missing)}


def layer_cycles(work: Work, target: str | int | Target) -> LayerCycles:
    """``max(core compute, DMA + L2) + overhead`` of a layer, as far as it is published.

    A core does ``channels per cycle x divisor`` multiply-adds a cycle: 4 x 64 = 256 in fp16 and 8 x 64 = 512 in int8,
    which are the numbers measured on an M6. Work without multiply-adds has no published core rate and counts its
    traffic alone. No L2 rate is published, so that term is left out.
    """
    return _cycles(work, vendor_device(target))


def _cycles(work: Work, device: VendorDevice) -> LayerCycles:
    rate, overhead = _macs_per_cycle(device, work.integers), _overhead(device.target)
    l2 = unknown("bytes per cycle of the on-chip memory")
    needs = {"core rate": rate, "bandwidth": device.bandwidth_clamp, "effective clock": device.effective_mhz}
    missing = tuple(name for name, fact in needs.items() if not fact.known)
    if missing:
        return LayerCycles(None, None, None, l2, overhead, False, rate, missing)
    compute = ceil(work.repeat * work.macs / rate.value)
    dma = ceil(_bytes(work) / (device.bandwidth_clamp.value * 1000) * device.effective_mhz.value)
    idle = not compute and not dma and not work.flops  # a view: no task, no overhead
    total = 0 if idle else max(compute, dma) + work.repeat * overhead.value
    return LayerCycles(
        min(total, _MOST_CYCLES), compute, dma, l2, overhead, total >= _MOST_CYCLES, rate, ("L2 cycles",)
    )


def _macs_per_cycle(device: VendorDevice, integers: bool) -> Fact[Any]:
    about = f"multiply-adds per cycle of {device.target.name}"
    if not (device.cores.known and device.divisor.known):
        return unknown(about)
    channels = _geometry(f"output channels per cycle {'int8' if integers else 'fp16'}")
    value = device.cores.value * channels.value * device.divisor.value
    source = tuple(dict.fromkeys((*channels.source, *device.cores.source, *device.divisor.source)))
    stand_in, conflict = device.divisor.taken_from, device.cores.conflict_id or device.divisor.conflict_id
    return Fact(value, source, "inferred", about, "cores x channels x divisor", conflict, taken_from=stand_in)


def _overhead(target: Target) -> Fact[Any]:
    """Cycles around a layer: seen in a live compile for one chip, lent to the others."""
    seen = _geometry("live M1 compile")
    scope = resolve_target(_geometry_row("live M1 compile")["scope"])
    about = f"overhead cycles of a layer on {target.name}"
    own = replace(seen, value=seen.value["layer_overhead_cycles"], about=about)
    return own if target == scope else replace(own, confidence="inferred", taken_from=scope.name)


def _geometry_row(name: str) -> dict[str, Any]:
    return next(row for row in store.load("cost_model")["geometry"] if row["name"] == name)


def _geometry(name: str) -> Fact[Any]:
    return fact(_geometry_row(name), store.load("cost_model")["evidence"], about=name)


def _bytes(work: Work) -> float:
    """Everything a layer moves, all its repeats; shared weights once."""
    weights = work.weight_bytes * (1 if work.shared else work.repeat)
    return weights + work.repeat * (work.bytes_in + work.bytes_out)


@dataclass(frozen=True)
class VendorRates:
    """The three numbers of the analytic formula for one target, and the chip that they were measured on."""

    target: Target
    anchor: Fact[str]
    peak: Fact[float]
    """Operations per second."""
    bandwidth: Fact[float]
    """Bytes per second."""
    floor_us: Fact[float]
    utilisation: Mapping[str, Any] | None = None
    """How much of the peak small programs reach, where that was fitted: ``min(1, (flops / F) ** q)``."""

    @property
    def known(self) -> bool:
        return self.peak.known and self.bandwidth.known and self.floor_us.known

    def compute_us(self, flops: float) -> float:
        peak = self.peak.require()
        if self.utilisation and flops:
            peak *= min(1.0, (flops / self.utilisation["F"]) ** self.utilisation["q"])
        return flops / peak * 1e6

    def memory_us(self, moved: float) -> float:
        return moved / self.bandwidth.require() * 1e6

    def program_us(self, flops: float, moved: float) -> float:
        """One fused program: ``floor + max(flops / peak, bytes / bandwidth)``."""
        return self.floor_us.require() + max(self.compute_us(flops), self.memory_us(moved))

    def to_json(self) -> dict[str, Any]:
        facts = ("anchor", "peak", "bandwidth", "floor_us")
        record = {name: getattr(self, name).to_json() for name in facts}
        return {"target": self.target.name, **record, "utilisation": dict(self.utilisation or {}) or None}


def vendor_rates(target: str | int | Target) -> VendorRates:
    """The rates of a target: its own where it is an anchor, else its family's anchor scaled by the published rules.

    Peak goes with cores times effective clock, bandwidth with cores, the floor with the inverse of the clock.
    """
    chip, document = resolve_target(target), store.load("cost_model")
    anchor = _anchor(chip, document)
    if not anchor.known:
        peak, bandwidth, floor = (unknown(f"{what} of {chip.name}") for what in ("peak", "bandwidth", "floor"))
        return VendorRates(chip, anchor, peak, bandwidth, floor)
    row = document["anchors"][anchor.value]
    base = resolve_target(anchor.value)
    mine, theirs = cost_curve(chip), cost_curve(base)
    cores, clock, effective = 1.0, 1.0, 1.0
    if chip != base:
        # A family with an anchor has a representative, so a curve is there, its own or lent.
        cores = cost_cores(chip).require() / cost_cores(base).require()
        clock = mine.require().operating_mhz / theirs.require().operating_mhz
        effective = mine.require().effective_mhz / theirs.require().effective_mhz
    scale = {"peak_flops": cores * effective, "bw_bytes": cores, "floor_us": 1 / clock}
    published = {key: fact(row, document["evidence"], key=key, about=f"{key} of {chip.name}") for key in scale}
    scaled = {key: _scaled(published[key], by, chip, base) for key, by in scale.items()}
    return VendorRates(chip, anchor, scaled["peak_flops"], scaled["bw_bytes"], scaled["floor_us"], row.get("util"))


def _anchor(chip: Target, document: dict[str, Any]) -> Fact[Any]:
    own, fallback, family = document["anchors"].get(chip.name), document["anchor_fallback"], chip.family5
    name = chip.name if own else None if family is None else fallback["v"].get(family.name)
    return fact({"v": name, "e": (own or fallback)["e"]}, document["evidence"], about=f"anchor of {chip.name}")


def _scaled(known: Fact[Any], by: float, chip: Target, base: Target) -> Fact[Any]:
    if chip == base:
        return known
    curve, cores = cost_curve(chip), cost_cores(chip)
    return replace(
        known,
        value=known.value * by,
        source=tuple(dict.fromkeys((*known.source, *curve.source, *cores.source))),
        confidence="inferred" if curve.taken_from else "predicted",
        note=f"scaled by {by:.4g}" + (f" with the clocks of {curve.taken_from}" if curve.taken_from else ""),
        conflict_id=cores.conflict_id or curve.conflict_id,
        taken_from=base.name,
    )


def coarse_us(flops: float, moved: float) -> float:
    """The compiler's estimate when it places an op: one rate and one bandwidth for every engine, and no floor."""
    engine = store.load("cost_model")["placement_model"]["anchors"]["ane"]
    return max(flops / engine["gflops"], moved / engine["gbps"]) / 1000


def vendor_accuracy() -> dict[str, Any]:
    """How far the published models are off, in the words of those who compared them with chips."""
    document = store.load("cost_model")
    checks = document["validation"]
    per_task = next(row for row in document["formula"] if "bias" in row)
    return {
        "use": document["meta"]["use"],
        "formula_on_m1": checks["m1_five_convs"],
        "formula_on_m5": checks["m5_loop"],
        "cycles_bias": {**per_task["bias"], "of": per_task["name"]},
        "source": sorted({key for row in (checks, per_task) for key in document["evidence"][row["e"]][0]}),
    }


@dataclass(frozen=True)
class VendorLayer:
    """One layer by the formula, as if it were alone and its start free, and its cycles by the other model."""

    number: int
    op: str
    sources: tuple[str, ...]
    us: float | None
    bound: str
    """``compute``, ``memory``, ``nothing`` for a view, or ``unknown``."""
    flops: float
    traffic: float
    cycles: LayerCycles

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "sources": list(self.sources), "cycles": self.cycles.to_json()}


@dataclass(frozen=True)
class VendorDispatch:
    """One fused program: its weights and what enters and leaves pass memory; what lies between stays on the chip."""

    number: int
    flops: float
    bytes: float
    us: float | None
    bound: str

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class VendorEstimate:
    """A program in the vendor's model. ``us`` is None where no rates are published for the target."""

    target: Target
    us: float | None
    dispatches: tuple[VendorDispatch, ...]
    layers: tuple[VendorLayer, ...]
    rates: VendorRates
    device: VendorDevice
    energy_uj: Fact[tuple[float, float]]
    """Microjoules of memory traffic, all of it in the cache and all of it in DRAM: all that the compiler counts."""
    accuracy: Mapping[str, Any]

    @property
    def cycles(self) -> int | None:
        """The sum of the layers' cycles; None when one of them is unknown."""
        counts = [layer.cycles.cycles for layer in self.layers]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target.name,
            "us": self.us,
            "cycles": self.cycles,
            "energy_uj": self.energy_uj.to_json(),
            "rates": self.rates.to_json(),
            "device": self.device.to_json(),
            "accuracy": dict(self.accuracy),
            "dispatches": [dispatch.to_json() for dispatch in self.dispatches],
            "layers": [layer.to_json() for layer in self.layers],
        }

    def __str__(self) -> str:
        if self.us is None:
            return f"unknown us on {self.target.name}: no rates are published for its family"
        many = f", {len(self.dispatches)} dispatches" if len(self.dispatches) > 1 else ""
        label = self.rates.peak.label()
        return f"{self.us:,.0f} us on {self.target.name}{many}, vendor's formula {label}; {self.accuracy['use']}"


def vendor_estimate(program: Program) -> VendorEstimate:
    """A compiled program's time as the vendor's published formula has it, by layers and by dispatches."""
    if not isinstance(program, Program):
        raise AneforgeError(
            f"vendor_estimate takes a compiled program, such as af.compile_all(out, 'h13')['h13'], not {program!r}"
        )
    rates, device = vendor_rates(program.target), vendor_device(program.target)
    works = work_of_program(program)
    layers = tuple(_layer(*pair, rates, device) for pair in zip(program.layers, works, strict=True))
    parts = tuple(_dispatch(program, segment, works, rates) for segment in program.segments)
    times = [part.us for part in parts if part.us is not None]
    return VendorEstimate(
        target=program.target,
        us=sum(times) if rates.known else None,
        dispatches=parts,
        layers=layers,
        rates=rates,
        device=device,
        energy_uj=_energy(sum(part.bytes for part in parts)),
        accuracy=vendor_accuracy(),
    )


def _layer(layer: ProgramLayer, work: Work, rates: VendorRates, device: VendorDevice) -> VendorLayer:
    flops, moved = work.repeat * work.flops, _bytes(work)
    us, bound = _bounded(flops, moved, rates)
    return VendorLayer(layer.number, layer.op, layer.sources, us, bound, flops, moved, _cycles(work, device))


def _dispatch(program: Program, part: ProgramSegment, works: Sequence[Work], rates: VendorRates) -> VendorDispatch:
    shapes = {port.name: port.ndchw_shape for port in program.inputs}
    ends = [shapes[source] if isinstance(source, str) else program.layers[source].shape for source in part.inputs]
    ends += [program.layers[number].shape for number in part.outputs]
    own = [works[number] for number in part.layers]
    weights = sum(work.weight_bytes * (1 if work.shared else work.repeat) for work in own)
    flops, moved = sum(work.repeat * work.flops for work in own), weights + sum(2.0 * prod(shape) for shape in ends)
    us, bound = _bounded(flops, moved, rates)
    return VendorDispatch(part.number, flops, moved, None if us is None else us + rates.floor_us.value, bound)


def _bounded(flops: float, moved: float, rates: VendorRates) -> tuple[float | None, str]:
    if not rates.known:
        return None, "unknown"
    compute, memory = rates.compute_us(flops), rates.memory_us(moved)
    bound = "compute" if compute > memory else "memory"
    return max(compute, memory), bound if compute or memory else "nothing"


def _energy(moved: float) -> Fact[Any]:
    document = store.load("cost_model")
    row = document["energy_model"]
    price = row["pj_per_byte"]
    value = (moved * price["cache_hit"] / 1e6, moved * price["dram"] / 1e6)
    return fact({**row, "v": value}, document["evidence"], about="energy of memory traffic")
