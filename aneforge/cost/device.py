"""The time of work on one chip: what a call costs around the engine, and each layer on it.

A contraction takes as long as its multiply-adds, the reading of its weights or the passes over its input, whichever is
longest; everything else goes element by element through the planar engine. The constants are data (``cost_fit.json``),
fitted to public measurements by ``tools/fit_cost.py``; what a chip lacks is taken from another by a stated rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aneforge.cost.contraction import compute_us, engines_for, reread_us, weights_us
from aneforge.cost.planar import attention_us, planar_us
from aneforge.cost.rates import Constants, Roof
from aneforge.cost.work import CONTRACTIONS, FREE, Work

__all__ = [
    "ALONE",
    "SCOPES",
    "Constants",
    "LayerTime",
    "Ports",
    "Roof",
    "Setting",
    "call_us",
    "layer_us",
    "short_rows",
]

_LINE = 64
SCOPES = ("host_call", "coreml_call", "direct_call", "device_task", "slope")


@dataclass(frozen=True)
class Setting:
    """What is known of a layer's surroundings."""

    engines: int | None = None
    """How many engines the program uses, where somebody says."""
    resident: bool = False
    """Its tensors never leave the chip's memory, or their way is part of the call."""
    marginal: bool = False
    """One more layer of a long chain: what is started once is not counted."""


ALONE = Setting()


@dataclass(frozen=True)
class LayerTime:
    """One layer, all its repeats: how long, and what bounds it."""

    us: float
    bound: str
    """``compute``, ``weights``, ``activations`` or ``dispatch``."""


def layer_us(work: Work, known: Constants, setting: Setting = ALONE) -> LayerTime:
    if work.kind in FREE:
        return LayerTime(0.0, "dispatch")
    moved = _on_chip(work, known) + (0.0 if setting.resident else _spilled(work, known))
    start = 0.0 if setting.marginal else known.chip["layer"]
    if work.kind in CONTRACTIONS:
        engines = engines_for(work, known, setting.engines)
        compute, weights = compute_us(work, known, engines), weights_us(work, known, setting.marginal)
        passes = reread_us(work, known, engines)
        parts = {"compute": compute, "weights": weights, "activations": max(passes, moved), "dispatch": start}
        one = max(compute, weights, passes) + moved + start
    else:
        compute = attention_us(work, known) if work.kind == "sdpa" else planar_us(work, known)
        parts = {"compute": compute, "activations": moved, "dispatch": start}
        one = compute + moved + start
    return LayerTime(work.repeat * one, max(parts, key=lambda name: parts[name]))


def _on_chip(work: Work, known: Constants) -> float:
    """The part of a product's way from and to the chip's own memory that computing does not hide; what goes element by
    element is timed with its way."""
    return (work.bytes_in + work.bytes_out) / known.chip["l2"] if work.kind in CONTRACTIONS else 0.0


def _spilled(work: Work, known: Constants) -> float:
    """What does not fit beside itself in the working set goes out and in again, partly behind the computing."""
    beyond = work.bytes_in + work.bytes_out - known.shared["working_set"]
    share = known.shared["spilled_product" if work.kind in CONTRACTIONS else "spilled_planar"]
    return max(0.0, beyond) * share / known.chip["spill"]


class Ports(NamedTuple):
    """What one call brings in and takes out."""

    read: float
    written: float
    """Bytes."""
    rows: float = 0.0
    """How many rows end inside a line of 64 bytes: those are copied one by one."""
    row_bytes: float = 0.0
    """The bytes of these rows."""

    @staticmethod
    def of(inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> Ports:
        """Of fp16 tensors of these shapes."""
        read, written = (float(sum(2 * math.prod(shape) for shape in shapes)) for shapes in (inputs, outputs))
        return Ports(read, written, *short_rows((*inputs, *outputs)))


def short_rows(shapes: Iterable[Sequence[int]]) -> tuple[float, float]:
    """Rows of fp16 tensors that are not whole lines of 64 bytes, and their bytes. One row alone needs no care."""
    short = [shape for shape in shapes if math.prod(shape[:-1]) > 1 and 2 * shape[-1] % _LINE]
    return float(sum(math.prod(shape[:-1]) for shape in short)), float(sum(2 * math.prod(shape) for shape in short))


def call_us(scope: str, layers: Sequence[float], io: Ports, known: Constants, calls: int = 1) -> float:
    """A whole call: what its scope covers around the layers' times.

    ``calls`` is the number of programs: each is started, only the first one and the last one exchange data with the
    caller.
    """
    chip, device, (read, written, rows, row_bytes) = known.chip, sum(layers), io
    if scope == "slope":
        return device
    if scope == "host_call":
        by_row = known.shared["host_row"] * rows + known.shared["host_row_byte"] * row_bytes
        return chip["host_call"] * (calls + by_row) + read / chip["host_in"] + written / chip["host_out"] + device
    if scope == "device_task":
        return chip["device_task"] * calls + known.shared["device_io"] * (read + written) / chip["coreml_io"] + device
    again = chip["direct_call"] * (calls - 1)
    if scope == "direct_call":
        return chip["direct_call"] + again + device
    return chip["coreml_call"] + again + (read + written) / chip["coreml_io"] + device
