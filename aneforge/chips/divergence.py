"""Static fp16 divergence between two chips: one op by its kind and shape, or every node of a graph.

``predict_fp16_divergence`` gives the seed page's word (saturation, round1, ulp1 or none), ``verdict`` the same with
its reasons. The rules are in :mod:`aneforge.chips.divergence_axes`. Two bases: ``silicon`` follows what was measured,
and ``fields`` the table fields alone, as the seed page has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.chips.divergence_axes import KINDS, Axis, Question, found_axes, strongest
from aneforge.chips.names import chip_label, target
from aneforge.errors import AneforgeError, UnknownNameError, nearest

Chip = int | str | Target
ATTRIBUTES = ("kernel", "stride", "dilation", "channels", "weights", "activations", "weight_max")
"""What may be said about an op beside its kind and shape; see :class:`aneforge.chips.divergence_axes.Question`."""


@dataclass(frozen=True)
class DivergenceVerdict:
    """How one op can differ between two chips, and why."""

    kind: str
    shape: tuple[int, ...]
    a: str
    b: str
    verdict: str
    """By what was measured, where something was."""
    field_verdict: str
    """By the table fields alone, as the seed page has it."""
    axes: tuple[Axis, ...]
    """Strongest first; empty for ``none``."""
    notes: tuple[str, ...] = ()
    """Where a field and silicon disagree, and what was never measured."""

    @property
    def says(self) -> str:
        """All of it in a line."""
        what = f"{self.kind} {list(self.shape)} on {chip_label(self.a)} and {chip_label(self.b)}"
        if self.axes:
            reasons = "; ".join(str(axis) for axis in self.axes)
            line = f"{what}: {self.verdict}. {reasons[0].upper()}{reasons[1:]}"
        else:
            line = f"{what}: none, no fact of the two chips differs for it"
        if self.field_verdict != self.verdict:
            line += f". The table fields alone say {self.field_verdict}"
        return ". ".join((line, *(f"{note[0].upper()}{note[1:]}" for note in self.notes)))

    def __str__(self) -> str:
        return self.says

    def to_json(self) -> dict[str, Any]:
        words = {key: getattr(self, key) for key in ("kind", "a", "b", "verdict", "field_verdict", "says")}
        lists = {"shape": list(self.shape), "notes": list(self.notes)}
        return {**words, **lists, "axes": [axis.to_json() for axis in self.axes]}


def predict_fp16_divergence(
    kind: str,
    shape: Sequence[int],
    target_a: Chip,
    target_b: Chip,
    begin: Sequence[int] | int | None = None,
    max_abs: float | None = None,
    basis: str = "silicon",
    **attrs: Any,
) -> str:
    """How one op can differ in fp16 between two targets: saturation, round1, ulp1 or none.

    ``target_a`` and ``target_b`` are the chips. ``kind`` is one of ``KINDS`` or the name of a graph op, ``shape`` the
    sizes of what it reads, ``begin`` the slice's start (all axes, or just the last),
    ``max_abs`` a bound on the numbers it reads, which rules saturation out when it is at most 4094. ``basis`` is
    ``silicon``, or ``fields`` for the seed page's rules alone. ``attrs`` say more about the op: ``kernel=(3, 3)``,
    ``stride``, ``dilation``, ``channels``, ``weights="int8"``, ``activations="int8"``, ``weight_max``. Both targets
    must be able to run programs.
    """
    question = _question(kind, shape, begin, max_abs, attrs)
    a, b = (_running(chip) for chip in (target_a, target_b))
    return strongest(found_axes(question, a, b, basis)[0])


def verdict(
    kind: str,
    shape: Sequence[int],
    a: Chip,
    b: Chip,
    begin: Sequence[int] | int | None = None,
    max_abs: float | None = None,
    **attrs: Any,
) -> DivergenceVerdict:
    """``predict_fp16_divergence`` with its reasons, on both bases; ``a`` and ``b`` are the chips, the others are as
    there. Any target that has a table may be asked, the oldest families too."""
    return verdict_on(_question(kind, shape, begin, max_abs, attrs), with_table(a), with_table(b))


def axes_of(
    kind: str,
    shape: Sequence[int],
    a: Chip,
    b: Chip,
    begin: Sequence[int] | int | None = None,
    max_abs: float | None = None,
    basis: str = "silicon",
    **attrs: Any,
) -> tuple[Axis, ...]:
    """The axes on which two targets differ for one op, strongest first."""
    return found_axes(_question(kind, shape, begin, max_abs, attrs), with_table(a), with_table(b), basis)[0]


@lru_cache(maxsize=16384)
def verdict_on(question: Question, a: Target, b: Target) -> DivergenceVerdict:
    axes, notes = found_axes(question, a, b)
    fields, _ = found_axes(question, a, b, "fields")
    known = {axis.name for axis in axes}
    for axis in fields:
        if axis.name not in known and not any(note.startswith(axis.name) for note in notes):
            notes.append(f"{axis.name}: a difference by the seed page, measured alike on both ({axis.conflict})")
    return DivergenceVerdict(
        question.kind, question.shape, a.name, b.name, strongest(axes), strongest(fields), axes, tuple(notes)
    )


# What is asked.


def _question(
    kind: str,
    shape: Sequence[int],
    begin: Sequence[int] | int | None,
    max_abs: float | None,
    attrs: Mapping[str, Any],
) -> Question:
    if kind not in KINDS:
        kind = kind_of(kind)
    unknown = next((name for name in attrs if name not in ATTRIBUTES), None)
    if unknown is not None:
        near = ", ".join(nearest(unknown, ATTRIBUTES) or ATTRIBUTES)
        raise UnknownNameError(f"{unknown}: not an attribute of a {kind}; nearest: {near}.")
    question = Question(
        kind,
        _extents(f"shape {shape!r}", shape),
        _last(begin),
        magnitude("max_abs", max_abs),
        weights=str(attrs.get("weights", "fp16")),
        activations=str(attrs.get("activations", "fp16")),
        weight_max=magnitude("weight_max", attrs.get("weight_max")),
    )
    sizes = {
        name: _extents(f"{name} {attrs[name]!r}", attrs[name])
        for name in ("kernel", "stride", "dilation")
        if attrs.get(name) is not None
    }
    if attrs.get("channels") is not None:
        question = replace(question, channels=_extents(f"channels {attrs['channels']!r}", attrs["channels"])[0])
    return replace(question, **sizes)


def _extents(what: str, sizes: Any) -> tuple[int, ...]:
    """Whole numbers of at least one; a single one may stand alone."""
    listed = sizes if isinstance(sizes, Sequence) and not isinstance(sizes, str) else (sizes,)
    try:
        whole = tuple(int(size) for size in listed)
        wrong = any(number != size or number < 1 for number, size in zip(whole, listed, strict=True))
    except (TypeError, ValueError, OverflowError):
        wrong, whole = True, ()
    if wrong or not whole:
        raise AneforgeError(f"{what}: every extent is a whole number of at least 1")
    return whole


def _last(begin: Sequence[int] | int | None) -> int:
    last = 0 if begin is None else begin
    if isinstance(last, Sequence) and not isinstance(last, str):
        last = last[-1] if len(last) else 0
    try:
        whole = int(last)
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != last:
        raise AneforgeError(f"begin {begin!r}: the start of a slice must be whole numbers")
    return whole


def magnitude(name: str, bound: Any) -> float | None:
    if bound is None:
        return None
    try:
        number = float(bound)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number) or number < 0:
        raise AneforgeError(f"{name} {bound!r} is not a bound on a magnitude; give 0 or more.")
    return number


def _running(name: Chip) -> Target:
    chip = target(name)
    if not chip.meets_floor:
        raise AneforgeError(
            f"{chip.name}: converted programs do not run on it, so its numbers are not known. Choose a chip from "
            "A13 on."
        )
    return chip


def with_table(name: Chip) -> Target:
    chip = target(name)
    if not compile_fact(chip, "max_operand_bytes").known:
        raise AneforgeError(
            f"{chip.name}: its table is not published, so its numbers are not known. Choose another chip."
        )
    return chip


# Graphs.

# Ops of a graph by kind; an op that is called as its kind is not listed.
_OPS_OF_KIND = {
    "slice": "reverse",
    "conv": "dynamic_conv conv3d",
    "deconv": "conv_transpose",
    "matmul": "einsum cumsum cross_correlation",
    "attention": "sdpa",
    "recurrent": "rnn lstm gru",
    "resize": (
        "upsample_nearest_neighbor upsample_bilinear resize_bilinear resize_nearest_neighbor crop_resize resample "
        "native_crop_resize native_resample"
    ),
    "tanh": "scaled_tanh sinh",
    "trigonometric": "sin cos",
    "tangent": "tan",  # a sine over a cosine
    "divide": "real_div floor_div mod atan2 asin acos atanh",  # the last four by what stands in for them
    "random": "dropout random_uniform random_normal",
    "layer_norm": "channel_layer_norm",
    "reduce_max": "minmax_norm",
    "add": "sub",
    "mul": "square prod",
    "relu": "relu6 leaky_relu clip threshold thresholded_relu clamped_relu prelu",
    "reshape": "expand_dims squeeze flatten2d flatten native_unflatten",
    "concat": "stack",
    "pool": "max_pool avg_pool",
    "compare": (
        "maximum minimum equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor "
        "logical_not select argmax arg_min_max global_arg"
    ),
    "sort": "topk",
    "move": (
        "input parameter const cast image_plane tile pad pixel_shuffle pixel_unshuffle depth_to_space space_to_depth "
        "one_hot band_part reverse_sequence scatter space_to_channel channel_to_space space_to_batch batch_to_space "
        "dynamic_slice affine gather_places live_state ring_write ring_read native_pixel_shuffle "
        "native_pixel_unshuffle kernel_rasterizer"
    ),
    # Statistics that are given make a batch norm a gain and an offset.
    "elementwise": (
        "batch_norm pow sigmoid exp exp2 sqrt abs erf softplus softsign atan floor ceil round sign "
        "cosh asinh acosh log rsqrt inverse elu sigmoid_hard linear_activation local_response_norm lrn "
        "cross_product cost_volume fps radius_search scaled_elementwise host quantize dequantize"
    ),
}
_KIND_OF_OP = {op: kind for kind, ops in _OPS_OF_KIND.items() for op in ops.split()}


def kind_of(op: str) -> str:
    """The divergence kind of a graph op: ``dynamic_conv`` is a ``conv``."""
    kind = _KIND_OF_OP.get(op, op) if isinstance(op, str) else ""
    if kind not in KINDS:
        near = ", ".join(nearest(str(op), sorted({*_KIND_OF_OP, *KINDS}))) or ", ".join(KINDS)
        raise UnknownNameError(f"{op}: not a divergence kind or a graph op; nearest: {near}.")
    return kind
