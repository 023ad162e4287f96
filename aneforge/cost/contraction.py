"""The time of multiply-adds on one chip: computing them, reading the weights, reading the input again.

The engine holds the weights of some output channels at a time. A longer contraction leaves room for fewer of them, so
the input passes the engine more often; where it does not lie on the chip, those passes come from memory. This is what
makes large products slow, and it takes no constant but the size of the kernel memory.
"""

from __future__ import annotations

from math import floor, log2

from aneforge.cost.rates import Constants
from aneforge.cost.work import Work

__all__ = ["compute_us", "engines_for", "passes", "reread_us", "weights_us"]

_STORED = {"int8": "int8_bytes", "palette": "palette_bytes", "sparse": "sparse_bytes"}


def engines_for(work: Work, known: Constants, used: int | None = None) -> int:
    """How many engines share a layer: ``used``, or all from so many places on; computed operands stay on one."""
    if work.kind == "bmm" or known.engines == 1:
        return 1
    return used or (known.engines if work.positions >= known.shared["shared_positions"] else 1)


def compute_us(work: Work, known: Constants, engines: int) -> float:
    chip, shared = known.chip, known.shared
    rate, macs, positions = chip["macs"], work.macs, work.positions / engines
    if work.kind == "conv":
        inner, outer = work.channels
        lanes = int(shared["lanes"])
        macs *= _rounded_up(outer, lanes) / outer
        if inner > 1 or work.grouped:  # an image of one channel is laid out another way
            macs *= _rounded_up(inner, lanes) / inner
        if work.kernel[1] >= shared["wide_kernel"]:
            positions = max(positions, shared["wide_positions"])
        if known.winograd and _has_winograd_form(work):
            rate *= shared["winograd"]
    else:
        rate *= chip["linear"] if work.kind == "linear" else shared["computed_operand"]
    if work.integers:
        rate *= chip["integers"]
    if work.zeros:
        rate /= max(1 - work.zeros * shared["skipped_zeros"], 0.05)
    return macs / work.positions * positions / rate


def _rounded_up(count: int, lanes: int) -> int:
    return -(-count // lanes) * lanes


def _has_winograd_form(work: Work) -> bool:
    """Three wide, in unit steps, and dense: what is skipped as zero cannot be transformed."""
    return work.unit_steps and work.kernel[1] == 3 and work.kernel[0] in (1, 3) and work.form != "sparse"


def weights_us(work: Work, known: Constants, marginal: bool = False) -> float:
    """Reading the weights once. Those that every repeat shares stay, as long as the kernel memory holds them."""
    factor = known.chip[_STORED[work.form]] if work.form in _STORED else 1.0
    read = work.weight_bytes * factor / known.chip["weights"]
    if not work.shared or work.weight_bytes > known.shared["kernel_memory"]:
        return read
    return 0.0 if marginal else read / work.repeat


def passes(work: Work, known: Constants) -> int:
    """How often the input passes the engine: once for each group of output channels that the kernel memory holds."""
    lanes, columns = int(known.shared["lanes"]), known.shared["kernel_memory"] / (2 * work.contraction)
    group = 2 ** floor(log2(columns)) if columns >= lanes else lanes
    return -(-work.channels[1] // group)


def reread_us(work: Work, known: Constants, engines: int) -> float:
    """The passes over an input that is too large to stay on the chip."""
    if work.kind == "bmm" or work.bytes_in <= known.shared["resident_input"]:
        return 0.0
    count = passes(work, known)
    return count * work.bytes_in / known.chip["reread"] / engines if count > 1 else 0.0
