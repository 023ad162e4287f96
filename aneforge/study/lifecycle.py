"""What a model takes in its life on a device besides steady calls: loading, waking, memory and disk.

Bands come from what was measured on other programs (U263), steady calls from the estimate of the study. What is not
published stays unknown.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aneforge import text
from aneforge.chips import store
from aneforge.chips.chip import Target
from aneforge.chips.costs import wake_of
from aneforge.chips.lifecycle import LoadBand, load_band
from aneforge.chips.names import chip_label
from aneforge.study.placement import runtime_called
from aneforge.study.study import Study
from aneforge.text import ByChip, human_bytes, wrapped

DEFAULT_RUNTIME = "coreml"
SECONDS, GIGABYTES = "s", "GB"
LATER, STEADY = "later load", "steady call"
_LARGE = 16e6  # bytes of weights from which smaller ones are worth a word
_CACHED_BY_BUILD = ("coreml", "coreai")  # T73: their cache belongs to one build of the system


@dataclass(frozen=True)
class StageBand:
    """One stage of the life of a program on one chip."""

    stage: str
    band: LoadBand
    unit: str
    basis: str

    @property
    def words(self) -> str:
        low, high = self.band.low, self.band.high
        if low is None and high is None:
            return "?"
        if low is None or high is None:
            return f"at most {_amount(high, self.unit)}" if low is None else f"at least {_amount(low, self.unit)}"
        first, last = _amount(low, self.unit), _amount(high, self.unit)
        return first if first == last else f"{first} to {last}"

    def to_json(self) -> dict[str, Any]:
        return {"stage": self.stage, "unit": self.unit, **self.band.to_json(), "basis": self.basis}


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "?"
    if unit == GIGABYTES:
        return human_bytes(round(value * 1e9))
    for least, scale, name in ((3600, 3600, "h"), (60, 60, "min"), (1, 1, "s"), (0.001, 0.001, "ms")):
        if value >= least:
            return f"{value / scale:.3g} {name}"
    return f"{value * 1e6:.3g} us"


@dataclass(frozen=True)
class Shortcut:
    """What shortens a stage, and by which facts."""

    says: str
    facts: tuple[str, ...]
    command: str

    def to_json(self) -> dict[str, Any]:
        return {"says": self.says, "facts": list(self.facts), "command": self.command}


@dataclass(frozen=True)
class ChipLifecycle:
    """The life of a program on one chip."""

    chip: str
    runtime: str
    weight_bytes: float
    parts: int
    """Engine programs that are loaded."""
    stages: tuple[StageBand, ...]
    shortcuts: tuple[Shortcut, ...]

    @property
    def longest(self) -> str:
        """What takes longest, against a steady call, in a sentence; empty where too little is known."""
        timed = [stage for stage in self.stages if stage.unit == SECONDS and (stage.band.high or stage.band.low)]
        timed = [stage for stage in timed if stage.stage != LATER]  # what a first load does, without the compile
        if not timed:
            return ""
        most = max(timed, key=lambda stage: stage.band.high or stage.band.low or 0.0)
        call = next((stage.band for stage in timed if stage.stage == STEADY), None)
        if call is None or most.stage == STEADY or not call.low or not call.high:
            return f"{most.stage} takes longest"
        low, high = most.band.low, most.band.high
        counts = [f"{low / call.high:,.0f}"] if low else ["at most"]
        counts += [f"{high / call.low:,.0f}"] if high else ["or more"]
        joint = " to " if low and high else " "
        return f"{most.stage} takes longest: as long as {joint.join(counts)} steady calls"

    def to_json(self) -> dict[str, Any]:
        return {
            "runtime": self.runtime,
            "weight_bytes": self.weight_bytes,
            "parts": self.parts,
            "stages": [stage.to_json() for stage in self.stages],
            "longest": self.longest,
            "shortcuts": [shortcut.to_json() for shortcut in self.shortcuts],
        }

    def __str__(self) -> str:
        head = f"{chip_label(self.chip)}: {human_bytes(round(self.weight_bytes))} of weights in "
        head += f"{text.plural(self.parts, 'program')}, {self.runtime}"
        rows = [[stage.stage, stage.words, stage.basis] for stage in self.stages]
        lines = [head, text.columns(["stage", "takes", "by"], rows, fit=True)]
        lines += [self.longest] if self.longest else []
        for shortcut in self.shortcuts:
            lines.append(wrapped(f"shorter: {shortcut.says} ({', '.join(shortcut.facts)})", "  "))
            lines += [f"  do: {shortcut.command}"] if shortcut.command else []
        return "\n".join(lines)


class Lifecycle(ByChip[ChipLifecycle]):
    """The life of a model's programs on each chip that runs some of it."""

    def __init__(self, study: Study, path: str) -> None:
        self.study, self.path = study, path
        is_asked = study.by_runtime or study.route == "direct"
        asked = study.runtime if is_asked else None
        self.runtime = DEFAULT_RUNTIME if asked is None else asked.hands_to or asked.name
        self.refused = study.by(runtime_called(self.runtime)).estimates()[1]
        """Why there is no figure for some chips."""
        super().__init__({name: self._on(name, target) for name, target in study.chips.items()})

    def _on(self, name: str, target: Target) -> ChipLifecycle:
        split = self.study.timed()[name]
        weight_bytes = float(sum(program.stats["kernel_bytes"] for program in split.programs.values()))
        parts = len(split.programs)
        stages = tuple(self._stages(name, target, weight_bytes / 1e6)) if parts else ()
        return ChipLifecycle(
            name, self.runtime, weight_bytes, parts, stages, tuple(self._shortcuts(name, weight_bytes))
        )

    def _stages(self, name: str, target: Target, megabytes: float) -> Iterator[StageBand]:
        first = load_band("first load", self.runtime, target, megabytes)
        yield StageBand("first load, with its compile", first, SECONDS, first.basis)
        if self.runtime in _CACHED_BY_BUILD:
            yield StageBand("load after a system update", first, SECONDS, "as the first: the cache is new (T73, T14)")
        for stage in (LATER, "first call"):
            band = load_band(stage, self.runtime, target, megabytes)
            yield StageBand(stage, band, SECONDS, band.basis)
        call = self._steady(name)
        yield StageBand("call after a pause", *self._after_pause(target, call))
        yield StageBand(STEADY, call, SECONDS, "the estimate" if call.low else str(self.refused.get(name, "?")))
        memory = load_band("memory", self.runtime, target, megabytes)
        yield StageBand("memory when loaded", memory, GIGABYTES, memory.basis)
        disk = LoadBand(megabytes / 1000, megabytes / 1000) if self.runtime == "coreai" else LoadBand(None, None)
        basis = "about the size of the package (L08)" if disk.low else disk.basis
        yield StageBand("disk of the cache", disk, GIGABYTES, basis)

    def _steady(self, name: str) -> LoadBand:
        known, _ = self.study.by(runtime_called(self.runtime)).estimates()
        if name not in known:
            return LoadBand(None, None)
        low, high = known[name].interval
        return LoadBand(low / 1e6, high / 1e6)

    def _after_pause(self, target: Target, call: LoadBand) -> tuple[LoadBand, str, str]:
        wake = wake_of(target)
        if not wake.known or call.low is None or call.high is None:
            return LoadBand(None, None), SECONDS, "nothing is published"
        extra = wake.value.extra_ms / 1000
        basis = f"after {wake.value.idle_s:g} s: +{wake.value.extra_ms:g} ms {wake.label()}"
        return LoadBand(call.low + extra, call.high + extra), SECONDS, basis

    def _shortcuts(self, name: str, weight_bytes: float) -> Iterator[Shortcut]:
        split = self.study.timed()[name]
        holds = {"always": True, "parts": len(split.programs) > 1, "weights": weight_bytes >= _LARGE}
        values = {"MODEL": shlex.quote(self.path), "CHIP": shlex.quote(name)}
        for row in store.load("lifecycle_points")["advice"]:
            if holds[row["when"]] and self.runtime in row.get("runtimes", (self.runtime,)):
                words: list[str] = row.get("do", "").split(" ")
                command = " ".join(values.get(word, word) for word in words)
                yield Shortcut(row["says"], tuple(row["facts"]), command)

    def __str__(self) -> str:
        return "\n\n".join(str(chip) if chip.parts else f"{chip_label(name)}: nothing of it runs on the engine"
                           for name, chip in self.items())  # fmt: skip
