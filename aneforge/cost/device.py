"""The time of work on one chip: what a call costs around the engine, and each layer on it.

A contraction takes as long as its multiply-adds or the reading of its weights, whichever is longer; everything else
goes element by element through the planar engine. The constants are data (``cost_fit.json``), fitted to public
measurements by ``tools/fit_cost.py``; what a chip lacks is taken from another by a stated rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aneforge.cost.work import CONTRACTIONS, NORMS, Work

__all__ = ["SCOPES", "Constants", "LayerTime", "Roof", "call_us", "layer_us"]

SCOPES = ("host_call", "coreml_call", "direct_call", "device_task", "slope")
_LANES = 16  # channels are taken in groups of so many (cost_model.json geometry)
_WIDE = 9  # from this kernel width on a convolution is rewritten with twice the outputs (fusion.json)
_WIDE_POSITIONS = 256
_TWO_ENGINES = 256  # positions from which a program uses both engines where a chip has two (m6study-bonded)


@dataclass(frozen=True)
class Roof:
    """What bounds a chip: operations per microsecond, and bytes per microsecond for what is read once."""

    peak: float
    bandwidth: float

    def at(self, intensity: float) -> float:
        """Operations per microsecond that a layer of so many operations per byte can reach."""
        return min(self.peak, intensity * self.bandwidth)

    @property
    def ridge(self) -> float:
        """Operations per byte from which the multiply-adds bound a layer."""
        return self.peak / self.bandwidth


@dataclass(frozen=True)
class Constants:
    """One chip, and what all chips share. Rates are per microsecond: bytes, multiply-adds, elements."""

    chip: Mapping[str, float]
    shared: Mapping[str, float]
    engines: int = 1
    winograd: bool = False

    @property
    def roof(self) -> Roof:
        return Roof(2.0 * self.chip["macs"] * self.engines, self.chip["weights"])


@dataclass(frozen=True)
class LayerTime:
    """One layer, all its repeats: how long, and what bounds it."""

    us: float
    bound: str
    """``compute``, ``weights``, ``activations`` or ``dispatch``."""


def layer_us(work: Work, known: Constants, engines: int | None = None, resident: bool = False) -> LayerTime:
    """``resident``: its tensors never leave the chip's memory, or their way is part of the call."""
    spill = 0.0 if resident else _spilled(work, known)
    if work.kind in CONTRACTIONS:
        compute, weights = _compute(work, known, engines), _weights(work, known)
        parts = {"compute": compute, "weights": weights, "activations": spill, "dispatch": known.chip["layer"]}
        one = max(compute, weights) + spill + known.chip["layer"]
    else:
        compute = _planar(work, known)
        parts = {"compute": compute, "activations": spill, "dispatch": known.chip["layer"]}
        one = compute + spill + known.chip["layer"]
    return LayerTime(work.repeat * one, max(parts, key=lambda name: parts[name]))


def _compute(work: Work, known: Constants, engines: int | None) -> float:
    chip, shared = known.chip, known.shared
    inner, outer = work.channels
    rate, macs = chip["macs"], work.macs
    positions = float(work.positions)
    if known.engines > 1 and work.kind != "bmm":
        positions /= engines or (known.engines if work.positions >= _TWO_ENGINES else 1)
    if work.kind == "conv":
        macs *= _rounded_up(outer) / outer * (_rounded_up(inner) / inner if inner > 1 else 1.0)
        if work.kernel[1] >= _WIDE:
            positions = max(positions, _WIDE_POSITIONS)
        if known.winograd and work.unit_steps and work.kernel[1] == 3 and work.kernel[0] in (1, 3):
            rate *= shared["winograd"]
    elif work.contraction > shared["long_contraction"]:
        rate *= (shared["long_contraction"] / work.contraction) ** shared["long_power"]
    if work.kind == "bmm":
        rate *= shared["computed_operand"]
    if work.integers:
        rate *= shared["integers"] if known.engines > 1 else 1.0
    if work.zeros:
        rate /= max(1 - work.zeros * shared["skipped_zeros"], 0.05)
    return macs / work.positions * positions / rate


def _rounded_up(channels: int) -> int:
    return -(-channels // _LANES) * _LANES


def _weights(work: Work, known: Constants) -> float:
    factor = {"int8": "int8_bytes", "palette": "palette_bytes", "sparse": "sparse_bytes"}.get(work.form)
    read = work.weight_bytes * (known.chip[factor] if factor else 1.0) / known.chip["weights"]
    return read / work.repeat if work.shared else read


def _spilled(work: Work, known: Constants) -> float:
    """What does not fit beside itself in the working set goes out and in again."""
    beyond = work.bytes_in + work.bytes_out - known.shared["working_set"]
    share = 0.25 if work.kind in CONTRACTIONS else 0.5
    return max(0.0, beyond) * share / known.chip["spill"]


def _planar(work: Work, known: Constants) -> float:
    shared = known.shared
    if work.kind in NORMS:
        return work.elements * shared["reduce_sum" if work.kind == "l2_norm" else work.kind] / known.chip["norms"]
    if work.kind in ("topk", "argmax"):
        return max(work.rows - 1, 0) * shared["ranked_row"]
    factor = {"transpose": shared["transpose"], "concat": shared["move"]}.get(work.kind, 1.0)
    if work.kind in ("pixel_shuffle", "max_pool", "avg_pool"):
        factor = shared["move"]
    elif work.operands > 1:
        factor = shared["second_operand"]
    return work.elements * factor / known.chip["planar"]


def call_us(scope: str, layers: Sequence[float], io: tuple[float, float], known: Constants, calls: int = 1) -> float:
    """A whole call: what its scope covers around the layers' times; ``io`` are bytes in and out."""
    chip, device, (read, written) = known.chip, sum(layers), io
    if scope == "slope":
        return device
    if scope == "host_call":
        return chip["host_call"] * calls + read / chip["host_in"] + written / chip["host_out"] + device
    if scope == "device_task":
        return chip["device_task"] + (read + written) / chip["coreml_io"] * 0.5 + device
    if scope == "direct_call":
        return chip["direct_call"] + device
    return chip["coreml_call"] + (read + written) / chip["coreml_io"] + device
