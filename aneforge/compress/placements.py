"""Where a model with stored weights runs by each way to the engine, and how long a call takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aneforge.study.partition import Partition
from aneforge.study.reasons import sentence
from aneforge.study.runtimes import DEFAULT_RUNTIMES, Runtime, runtimes_of, unknown_time
from aneforge.study.study import Study
from aneforge.tuning.pricing import figure
from aneforge.tuning.records import Figure

__all__ = ["Placement", "kept_off_anywhere", "placements"]


@dataclass(frozen=True)
class Placement:
    """One graph by one runtime on one chip."""

    on_engine: int
    ops: int
    figure: Figure | None
    """The time of a call; None where nobody knows it."""
    why: str = ""
    """Why something is not on the engine, or why the time is not known."""
    source: str = ""
    """The rule or conflict behind ``why``."""

    @property
    def us(self) -> float | None:
        return None if self.figure is None else self.figure.us

    def to_json(self) -> dict[str, Any]:
        time = None if self.figure is None else self.figure.to_json()
        return {**self.__dict__, "figure": time}


def placements(study: Study, runtime: Runtime, fp16: Mapping[str, Placement] | None = None) -> dict[str, Placement]:
    """Where each chip runs a graph by a runtime. ``fp16`` is where the model runs with fp16 weights: a runtime that
    takes a whole model off the engine for one layer does so for a layer that its stored form takes off."""
    by = study.by(runtime)
    known, _ = by.estimates()
    placed = {}
    for name, split in by.timed().items():
        why, source = _first_reason(split)
        before = (fp16 or {}).get(name)
        fewer = runtime.whole and before is not None and split.on_engine < before.on_engine
        if name in known and not fewer:
            placed[name] = Placement(split.on_engine, split.ops, figure(known[name]), why, source)
        elif split.runs and (unknown := unknown_time(by.graph, split.target, runtime)):
            placed[name] = Placement(split.on_engine, split.ops, None, unknown, "C55")
        else:  # the whole model beside the engine, where nothing is known of its time (U119)
            gpu = f" {runtime.label} then gives the whole model to the GPU." if runtime.whole else ""
            placed[name] = Placement(0, split.ops, None, f"{why}{gpu}", source)
    return placed


def _first_reason(split: Partition) -> tuple[str, str]:
    """Why the first op is not on the engine; what the runtime keeps off comes first, also where its call is not the
    one that is timed."""
    for uid, refusal in {**split.kept_off, **split.refusals}.items():
        return f"{split.names[uid]}: {sentence(refusal)}", refusal.rule
    return "", ""


def kept_off_anywhere(study: Study) -> str:
    """What is published of runtimes that keep a layer of the graph off the engine, whichever was asked about."""
    for runtime in runtimes_of(DEFAULT_RUNTIMES):
        for split in study.by(runtime).partitions().values():
            for refusal in split.kept_off.values():
                return f"{refusal.reason} {refusal.findings[0].evidence.label()}"
    return ""
