"""The time of each layer on a chip: one formula for all of them, over columns.

A contraction takes as long as its multiply-adds, the reading of its weights or the passes over its input, whichever is
longest; everything else goes element by element through the planar engine, and what only moves numbers is a copy of
whole lines of 64 bytes. What does not fit beside itself on the chip goes out and in again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from aneforge.cost.calls import Constants
from aneforge.cost.errata import is_notch_share
from aneforge.cost.work import CONTRACTIONS, FREE, Work

# Many layers as columns of numbers, so that one formula times all of them at once.


KINDS = (
    *FREE, *CONTRACTIONS, "sdpa", "pointwise", "combine", "softmax", "layer_norm", "rms_norm", "group_norm",
    "reduce_sum", "l2_norm", "copy", "reshape", "pool", "argmax", "topk",
)  # fmt: skip
"""What a layer is to the clock. Everything that is not named here goes element by element: ``pointwise`` for one
operand, ``combine`` for several."""
_NUMBER = {kind: number for number, kind in enumerate(KINDS)}
_ALIASES = {
    "ew": "pointwise",
    "concat": "copy",
    "transpose": "copy",
    "pixel_shuffle": "copy",
    "max_pool": "pool",
    "avg_pool": "pool",
    "average_pool": "pool",
}
FORMS = ("fp16", "int8", "palette", "sparse", "fp8")

_taken = attrgetter(
    "repeat", "macs", "weight_bytes", "shared", "zeros", "integers", "bytes_in", "bytes_out", "lines", "contraction",
    "channels", "groups", "positions", "kernel", "unit_steps", "elements", "rows", "turned",
)  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """One number for each layer in every column; the names are those of :class:`~aneforge.cost.work.Work`."""

    kind: np.ndarray
    form: np.ndarray
    repeat: np.ndarray
    macs: np.ndarray
    weight_bytes: np.ndarray
    shared: np.ndarray
    zeros: np.ndarray
    integers: np.ndarray
    bytes_in: np.ndarray
    bytes_out: np.ndarray
    lines: np.ndarray
    contraction: np.ndarray
    inner: np.ndarray
    outer: np.ndarray
    groups: np.ndarray
    positions: np.ndarray
    kernel_height: np.ndarray
    kernel_width: np.ndarray
    unit_steps: np.ndarray
    elements: np.ndarray
    rows: np.ndarray
    turned: np.ndarray

    def __len__(self) -> int:
        return len(self.kind)

    def is_a(self, *kinds: str) -> np.ndarray:
        """Which layers are of one of these kinds."""
        matches = self.kind == _NUMBER[kinds[0]]
        for kind in kinds[1:]:
            matches = matches | (self.kind == _NUMBER[kind])
        return matches

    def stored_as(self, form: str) -> np.ndarray:
        """Which layers have weights of this form."""
        return self.form == FORMS.index(form)


def columns_of(works: Sequence[Work]) -> Columns:
    """The columns of some layers, in their order."""
    kinds = np.array([_kind(work) for work in works], np.int64)
    forms = np.array([FORMS.index(work.form) for work in works], np.int64)
    rows: list[tuple[float, ...]] = []
    for work in works:
        *numbers, contraction, channels, groups, positions, kernel, steps, elements, count, turned = _taken(work)
        rows.append((*numbers, contraction, *channels, groups, positions, *kernel, steps, elements, count, turned))
    table = np.array(rows, float).T if rows else np.zeros((len(fields(Columns)) - 2, 0))
    return Columns(kinds, forms, *table)


def _kind(work: Work) -> int:
    name = _ALIASES.get(work.kind, work.kind)
    if name not in _NUMBER or name == "pointwise":
        name = "pointwise" if work.operands == 1 else "combine"
    return _NUMBER[name]


BOUNDS = ("compute", "weights", "activations", "dispatch")
_NORMS = ("softmax", "layer_norm", "rms_norm", "group_norm", "reduce_sum", "l2_norm")
_LEAST_WIDTH = 1 / 16  # bytes: a table of vectors has one code of four bits for eight weights
_LEAST_KEPT = 0.05  # of the multiply-adds, however many zeros a weight has


def is_of_attention(work: Columns) -> np.ndarray:
    """Which layers are of the kinds that attention is made of: products of computed values, norms and copies. Models
    that are mostly these are estimated less well (:class:`~aneforge.cost.constants.Width`)."""
    return work.is_a("bmm", "sdpa", "copy", *_NORMS)


class Surroundings(NamedTuple):
    """What is known of the layers' surroundings, one number each or one for all."""

    resident: np.ndarray | bool = False
    """Its tensors never leave the chip's memory, or their way is part of the call."""
    marginal: np.ndarray | bool = False
    """One more layer of a long chain: what is started once is not counted."""
    engines: np.ndarray | int = 0
    """How many engines the program uses, where somebody says; 0 where nobody does."""
    converted: np.ndarray | bool = False
    """The program came through conversion, where a norm along the width is made of other layers."""


class Times(NamedTuple):
    """Microseconds of each layer, all its repeats, and the share of each bound in one repeat."""

    us: np.ndarray
    parts: np.ndarray
    """A row for each of :data:`BOUNDS`."""

    def bounds(self) -> list[str]:
        """What each layer takes longest for."""
        return [BOUNDS[place] for place in np.argmax(self.parts, axis=0).tolist()]


def times_of(work: Columns, known: Constants, around: Surroundings | None = None) -> Times:
    around = around or Surroundings()
    product, free = work.is_a("conv", "linear", "bmm"), work.is_a("view", "absorbed")
    engines = engines_of(work, known, around.engines)
    planar = np.maximum(
        planar_us(work, known, around.converted), np.where(around.resident, 0.0, streamed_us(work, known))
    )
    compute = np.where(product, compute_us(work, known, engines), planar)
    weights = weights_us(work, known, around.marginal)
    passes = reread_us(work, known, engines)
    moved = on_chip_us(work, known) + np.where(around.resident, 0.0, spilled_us(work, known))
    start = np.where(around.marginal, 0.0, known.chip["layer"])
    one = np.maximum(np.maximum(compute, weights), passes) + moved + start
    parts = np.stack([compute, weights, np.maximum(passes, moved), start * np.ones(len(work))])
    return Times(np.where(free, 0.0, work.repeat * one), parts)


def engines_of(work: Columns, known: Constants, used: np.ndarray | int = 0) -> np.ndarray:
    """How many engines share a layer: those that are said, or all from so many places on. Computed operands stay on
    one."""
    by_size = np.where(work.positions >= known.shared["shared_positions"], known.engines, 1)
    return np.where(work.is_a("bmm") | (np.asarray(known.engines) == 1), 1, np.where(used, used, by_size))


def compute_us(work: Columns, known: Constants, engines: np.ndarray) -> np.ndarray:
    """The multiply-adds of contractions."""
    chip, shared = known.chip, known.shared
    conv, lanes = work.is_a("conv"), shared["lanes"]
    grouped = conv & (work.groups > 1)
    # An image of one channel is laid out another way; a group's few channels leave most of an engine idle.
    inner = np.where(work.inner > 1, _rounded_up(work.inner, lanes) / work.inner, 1.0)
    dense = inner * _rounded_up(work.outer, lanes) / np.maximum(work.outer, 1)
    macs = work.macs * np.where(grouped, np.maximum(1.0, shared["group_lanes"] / work.inner), np.where(conv, dense, 1))
    places = np.maximum(work.positions, 1)
    taken = places / engines
    wide = conv & ~grouped & (work.kernel_width >= shared["wide_kernel"])
    taken = np.where(wide, np.maximum(taken, shared["wide_positions"]), taken)
    rate = chip["macs"] * np.where(
        work.is_a("linear"), chip["linear"], np.where(work.is_a("bmm"), shared["computed_operand"], 1.0)
    )
    rate = rate * np.where(known.winograd & _has_winograd_form(work), shared["winograd"], 1.0)
    rate = rate * np.where(work.integers > 0, chip["integers"], 1.0)
    rate = rate * np.where(is_deep(work, known), shared["deep_kernel"], 1.0)
    zeros = np.where(known.skips_zeros | work.stored_as("sparse"), work.zeros, 0.0)
    return macs / places * taken / rate * np.maximum(1 - zeros * shared["skipped_zeros"], _LEAST_KEPT)


def _rounded_up(count: np.ndarray, lanes: float) -> np.ndarray:
    return np.ceil(count / lanes) * lanes


def _has_winograd_form(work: Columns) -> np.ndarray:
    """Three wide, in unit steps, and dense: what is skipped as zero cannot be transformed."""
    square = (work.kernel_width == 3) & ((work.kernel_height == 1) | (work.kernel_height == 3))
    plain = ~work.stored_as("sparse") & ~work.stored_as("fp8")  # e4m3 has no such form (C76)
    return work.is_a("conv") & (work.groups == 1) & (work.unit_steps > 0) & square & plain


def is_deep(work: Columns, known: Constants) -> np.ndarray:
    """Which products sum over more numbers than a chip takes at full rate (C74)."""
    limit = np.where(work.integers > 0, known.shared["deep_codes"], known.shared["deep_numbers"])
    return known.slow_when_deep & work.is_a("conv", "linear") & (work.contraction > limit)


def stored_width(work: Columns) -> np.ndarray:
    """Bytes of one weight as it is stored."""
    return work.weight_bytes / np.maximum(work.outer * work.contraction, 1)


def is_on_the_notch(work: Columns, known: Constants) -> np.ndarray:
    """Which products have a share of weights for one core that is a multiple of 1 MiB, give or take (C69)."""
    share = np.ceil(work.outer / known.shared["lanes"]) * work.contraction * stored_width(work)
    return work.is_a("conv", "linear") & (work.groups == 1) & is_notch_share(share, known.shared)


def weights_us(work: Columns, known: Constants, marginal: np.ndarray | bool = False) -> np.ndarray:
    """Reading the weights once. Those that every repeat shares stay, as long as the kernel memory holds them."""
    chip = known.chip
    factors = {form: chip[f"{form}_bytes"] for form in FORMS if form not in ("fp16", "fp8")}
    factor = np.select([work.stored_as(form) for form in factors], list(factors.values()), 1.0)
    read = work.weight_bytes * factor / chip["weights"]
    slow = known.notch & is_on_the_notch(work, known)
    read = np.where(slow, read / chip["notch"], read)
    stays = (work.shared > 0) & (work.weight_bytes <= known.shared["kernel_memory"])
    return np.where(stays, np.where(marginal, 0.0, read / work.repeat), read)


def passes_of(work: Columns, known: Constants) -> np.ndarray:
    """How often the input passes the engine: once for each group of output channels that the kernel memory holds. A
    longer contraction leaves room for fewer of them; this is what makes large products slow."""
    lanes = known.shared["lanes"]
    narrow = (work.weight_bytes > 0) & ~work.stored_as("sparse") & known.narrow_kernels
    bytes_of_weight = np.where(narrow, np.minimum(stored_width(work), 2.0), 2.0)  # in the kernel memory
    bytes_of_weight = np.maximum(bytes_of_weight, _LEAST_WIDTH)
    columns = known.shared["kernel_memory"] / (bytes_of_weight * np.maximum(work.contraction, 1))
    group = np.where(columns >= lanes, 2.0 ** np.floor(np.log2(np.maximum(columns, 1))), lanes)
    return np.ceil(work.outer / group)


def reread_us(work: Columns, known: Constants, engines: np.ndarray) -> np.ndarray:
    """The passes over an input that is too large to stay on the chip."""
    count = passes_of(work, known)
    stays = ~work.is_a("conv", "linear") | (work.bytes_in <= known.shared["resident_input"]) | (count <= 1)
    return np.where(stays, 0.0, count * work.bytes_in / known.chip["reread"] / engines)


def planar_us(work: Columns, known: Constants, converted: np.ndarray | bool = False) -> np.ndarray:
    """What goes element by element, what only moves, and native layers that the engine takes whole."""
    chip, shared = known.chip, known.shared
    alone = (np.asarray(known.engines) > 1) & (work.elements < shared["shared_elements"])
    spelled_out = work.is_a("rms_norm") & converted  # a converted one is as fast as its last product (U136)
    combines = work.is_a("combine") | spelled_out
    factor = np.where(combines, shared["second_operand"] * np.where(alone, known.engines, 1), 1.0)
    time = work.elements * factor / chip["planar"]
    full = work.elements / (work.elements + shared["small_norm"])  # small ones are all but free
    for norm in _NORMS:
        factor = shared["reduce_sum" if norm == "l2_norm" else norm]
        if norm == "layer_norm":
            factor = np.where(converted, shared["converted_norm"], factor)
        time = np.where(work.is_a(norm) & ~spelled_out, work.elements * full * factor / chip["norms"], time)
    time = time + work.turned * shared["turned_place"]
    time = np.where(work.is_a("copy"), work.lines / chip["copy"], time)
    time = np.where(work.is_a("argmax"), shared["ranked_start"], time)
    time = np.where(work.is_a("topk"), shared["ranked_start"] + work.elements * shared["ranked_element"], time)
    # The native attention layer goes head by head, at a rate of its own (four published calls of one chip).
    attention = work.rows * shared["attention_head"] + work.macs / shared["attention_macs"]
    return np.where(work.is_a("sdpa"), attention, time)


def on_chip_us(work: Columns, known: Constants) -> np.ndarray:
    """The part of a product's way from and to the chip's own memory that computing does not hide; what goes element by
    element is timed with its way."""
    return np.where(work.is_a("conv", "linear", "bmm"), (work.bytes_in + work.bytes_out) / known.chip["l2"], 0.0)


def spilled_us(work: Columns, known: Constants) -> np.ndarray:
    """What a product reads and makes beyond the working set goes out and in again."""
    return np.where(work.is_a("conv", "linear", "bmm"), _beyond(work, known) / known.chip["spill"], 0.0)


def streamed_us(work: Columns, known: Constants) -> np.ndarray:
    """What goes element by element and is too large to stay comes from memory and goes there: such a layer takes no
    less than that, as attention maps of large batches show. Copies are timed with their way."""
    rate = known.chip["spill"] * known.shared["streamed"]
    return np.where(work.is_a("copy", "sdpa", "topk", "argmax"), 0.0, _beyond(work, known) / rate)


def _beyond(work: Columns, known: Constants) -> np.ndarray:
    """Bytes in and out beyond what stays on the chip."""
    return np.maximum(0.0, work.bytes_in + work.bytes_out - known.shared["working_set"])
