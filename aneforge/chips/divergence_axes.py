"""The ways in which one op can give different numbers on two chips, as rules over facts of the two.

An axis compares one fact. Where it is equal on both chips, the op computes the same there; where it differs, the axis
says how strong the difference can be, on the seed page's scale of four words:

``saturation``  a copy makes an infinity of a number that the other chip keeps
``round1``      a rounding, a table or a formula that the other chip does not have: one rounding of the result, or as
                much as the axis says in words
``ulp1``        the same additions in another order
``none``        nothing

Two things are asked of a rule: that the op has its geometry (an offset, a 3 x 3 kernel, 8-bit weights) and that its
numbers can be large enough. What is not said about geometry is not there: a slice without ``begin`` starts at zero, a
convolution without ``kernel`` is not 3 x 3. Sums of products are taken to stay in the accumulators' plain range where
nothing is said about magnitudes, as those of trained networks do; infinity says that nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from aneforge.chips.assumed import compile_fact, constant
from aneforge.chips.chip import Target
from aneforge.chips.evidence import CONFIDENCE, Fact, fact
from aneforge.chips.families import Family
from aneforge.chips.limits import FP16_SLICE_SAT, numeric_fact, numeric_record
from aneforge.errors import AneforgeError

VERDICTS = ("saturation", "round1", "ulp1", "none")
"""Strongest first."""
BASES = ("silicon", "fields")
_TILE, _TILE_LIMIT = 4, math.nextafter(4096.0, 0.0)
_CEILING = math.nextafter(32768.0, 0.0)


def _kinds(names: str) -> frozenset[str]:
    return frozenset(names.split())


SLICE = _kinds("slice slice_by_size slice_by_index split crop input_view")
REDUCE_THEN_SQUARE = _kinds("reduce_square sum_square variance l2_norm rms_norm")
REDUCTION = _kinds(
    "reduce sum mean amax amin reduce_sum reduce_mean reduce_max reduce_min softmax layer_norm instance_norm "
    "group_norm batch_norm l1_norm log_sum reduce_log_sum_exp"
)
_LARGEST_OF = _kinds("amax amin reduce_max reduce_min")
"""Reductions without partial sums."""
CONVOLUTION = _kinds("conv")
STORED_KERNEL = _kinds("conv deconv matmul linear")
PRODUCT = STORED_KERNEL | _kinds("attention recurrent resize")
TABLE = _kinds("tanh recurrent")
ROUTE_FREE = _kinds("elementwise add mul relu transpose reshape concat pool move compare sort")
KINDS = tuple(
    sorted(
        SLICE
        | REDUCE_THEN_SQUARE
        | REDUCTION
        | PRODUCT
        | TABLE
        | ROUTE_FREE
        | _kinds("gather resize divide tangent trigonometric random gate")
    )
)


@dataclass(frozen=True)
class Question:
    """What is known of one op before any chip is asked."""

    kind: str
    shape: tuple[int, ...]
    begin: int = 0
    """Where a slice starts on the last axis."""
    max_abs: float | None = None
    """A bound on the numbers it reads; infinity where nothing is known, None where nobody said."""
    weight_max: float | None = None
    """A bound on its stored weights; without it ``max_abs`` is taken for them too."""
    kernel: tuple[int, ...] | None = None
    stride: tuple[int, ...] = (1,)
    dilation: tuple[int, ...] = (1,)
    channels: int | None = None
    """Numbers that one output adds at each place of the kernel: input channels, or the contracted axis."""
    weights: str = "fp16"
    activations: str = "fp16"

    @property
    def term(self) -> float | None:
        """A bound on one product; None where nothing was said about magnitudes."""
        if self.max_abs is None:
            return None
        other = self.max_abs if self.weight_max is None else self.weight_max
        return 0.0 if 0.0 in (self.max_abs, other) else self.max_abs * other


@dataclass(frozen=True)
class Axis:
    """One way in which the two chips differ for one op."""

    name: str
    verdict: str
    explanation: str
    at_most: str
    """How large the difference can be for one op, in words."""
    cure: str
    evidence: tuple[Fact[Any], ...]
    """The compared fact of either chip, and what silicon showed."""
    conflict: str | None

    def __str__(self) -> str:
        note = f" ({self.conflict})" if self.conflict else ""
        return f"{self.name}, {self.verdict}: {self.explanation}{note}; how much: {self.at_most}"

    def to_json(self) -> dict[str, Any]:
        words = {key: getattr(self, key) for key in ("name", "verdict", "explanation", "at_most", "cure", "conflict")}
        return {**words, "evidence": [{"about": fact.about, **fact.to_json()} for fact in self.evidence]}


def _always(question: Question) -> bool:
    return True


def _data(question: Question) -> float | None:
    return question.max_abs


@dataclass(frozen=True)
class DivergenceRule:
    """One axis as data: what it compares, which ops it concerns, how strong it is."""

    name: str
    fact: str
    """Key of :func:`axis_fact`."""
    kinds: frozenset[str]
    verdict: str
    explanation: str
    at_most: str
    cure: str
    records: tuple[str, ...] = ()
    """Numeric facts by id that show it."""
    bases: tuple[str, ...] = ("silicon",)
    geometry: Callable[[Question], bool] = _always
    magnitude: Callable[[Question], float | None] = _data
    limit: float | None = None
    """A magnitude up to this one keeps the two chips together, or leaves what ``within`` says."""
    within: str = "none"
    unsaid: str = ""
    """The verdict where nothing is said about magnitudes, if it is another one."""
    settled: Callable[[Target, Target], bool] | None = None
    """Whether silicon showed for these two that the differing fact changes nothing."""
    unmeasured: str = ""
    """What to add where one side's fact was never measured and the two are equal."""

    def strength(self, question: Question) -> str:
        """How strong the difference can be for this op, given what is known of its numbers."""
        if self.limit is None:
            return self.verdict
        magnitude = self.magnitude(question)
        if magnitude is None:
            return self.unsaid or self.verdict
        return self.within if magnitude <= self.limit else self.verdict


# Facts of a target that rules compare.


def _weakest(*facts: Fact[Any]) -> str:
    order = (*CONFIDENCE, "unknown")
    return max((fact.confidence for fact in facts), key=order.index)


def _both(value: bool, one: Fact[Any], other: Fact[Any]) -> Fact[Any]:
    source = tuple(dict.fromkeys((*one.source, *other.source)))
    return Fact(value, source, _weakest(one, other), conflict_id=one.conflict_id or other.conflict_id)


def _int8_clamps(target: Target) -> Fact[Any]:
    """Only weights that stream reach the multipliers as 8-bit numbers; folded ones are fp16 before."""
    fixed, streams = compile_fact(target, "int8_activations_q4"), compile_fact(target, "stream:int8")
    return _both(bool(fixed.value) and streams.value == "stream", fixed, streams)


# The seed page's own scope ("on the A13/M1 family only"), which silicon widened to A14 (C22).
_SEED_CLAMPS = frozenset({"A13"})


def _seed_clamps(target: Target) -> Fact[Any]:
    family = target.family5
    value = None if family is None else family.name in _SEED_CLAMPS
    return fact({"v": value, "src": "SXC", "conf": "decoded", "conflict": "C22"})


def _pools_for_means(target: Target) -> Fact[Any]:
    """Below A13 there are no reductions, and a mean of a map is made of pools."""
    value = None if target.family5 is None else target.family5 is Family.OLDER
    return fact({"v": value, "src": [], "conf": "inferred", "conflict": "U69"})


_COMPUTED: dict[str, Callable[[Target], Fact[Any]]] = {
    "int8_clamps": _int8_clamps,
    "seed_slice_clamps": _seed_clamps,
    "pools_for_means": _pools_for_means,
}


def _status(target: Target, op: str) -> Fact[Any]:
    """Whether an op runs natively. The oldest families take the M1's rewrites, the profiles the newest family's ops
    (as the compiler does)."""
    from aneforge.chips.ops import op_routes

    family = Family.A16 if target.family5 is None else max(target.family5, Family.A13)
    return op_routes(op).main[family]


@cache
def axis_fact(target: Target, key: str) -> Fact[Any]:
    """A fact that a rule compares: one of ``compile_fact``, ``status:OP``, or one made of several."""
    kind, _, rest = key.partition(":")
    if key in _COMPUTED:
        computed = _COMPUTED[key](target)
    elif kind == "status":
        computed = _status(target, rest)
    else:
        computed = compile_fact(target, key)
    return replace(computed, about=f"{key} of {target.name}")


@cache
def _measured_on(record: str) -> frozenset[Family]:
    """The families on whose chips a numeric fact was seen."""
    from aneforge.chips.names import target

    chips = numeric_record(record)["silicon"].split(",")
    return frozenset(family for chip in chips if (family := target(f"product:{chip.strip()}").family5) is not None)


def _unfused_on_both(a: Target, b: Target) -> bool:
    """Every measured family gives the unfused value, whatever its byte says (N26)."""
    return {a.family5, b.family5} <= _measured_on("N26")


# Geometry.


def _has_offset(question: Question) -> bool:
    return question.begin != 0


def _may_take_winograd(question: Question) -> bool:
    """A kernel width and stride of C76 without holes, in a kernel of fp16 numbers."""
    if question.kernel is None or question.weights == "int8" or set(question.dilation) != {1}:
        return False
    return [question.kernel[-1], question.stride[-1]] in constant("winograd_shapes")


def _one_channel(question: Question) -> bool:
    point = question.kernel is None or set(question.kernel) == {1}
    return point and question.channels == 1 and set(question.stride) == {1}


def _bytes_in_weights(question: Question) -> bool:
    return question.weights == "int8"


def _bytes_in_both(question: Question) -> bool:
    return question.weights == "int8" and question.activations == "int8"


def _scaled_codes(question: Question) -> bool:
    return question.weights in ("int4", "int4-affine", "scaled palette")


def _tile(question: Question) -> float | None:
    return None if question.term is None else _TILE * question.term


def _term(question: Question) -> float | None:
    return question.term


def _sum(question: Question) -> float | None:
    """A bound on a whole sum, where its length is known."""
    if question.term is None:
        return None
    count = math.inf if question.channels is None else question.channels * math.prod(question.kernel or (1,))
    return question.term * count if question.term else 0.0


_KEEP_SMALL = "keep |x| <= 4094 in front of it (scale down and up again), or slice another axis (transpose first)"

RULES: tuple[DivergenceRule, ...] = (
    DivergenceRule(
        "slice route",
        "slice_saturates",
        SLICE,
        "saturation",
        "a slice that starts inside the last axis goes through a fixed-point copy with a gain of 16 on one side, "
        "which makes infinities of magnitudes above 4094; the other copies fp16",
        "infinity where |x| > 4094, nothing elsewhere",
        f"{_KEEP_SMALL}, or promise it with input(max_abs=...)",
        records=("N18", "N19", "N20"),
        geometry=_has_offset,
        limit=FP16_SLICE_SAT,
        unmeasured="a slice that starts inside the last axis was never measured on one of the two (C22): it is taken "
        "to be clean; keep |x| <= 4094 where it matters",
    ),
    DivergenceRule(
        "slice route",
        "seed_slice_clamps",
        SLICE,
        "saturation",
        "one side is A13, which routes the offset through the Q.4 crop; the seed page takes A14 and later for clean",
        "infinity where |x| > 4094, nothing elsewhere",
        _KEEP_SMALL,
        bases=("fields",),
        geometry=_has_offset,
        limit=FP16_SLICE_SAT,
    ),
    DivergenceRule(
        "8-bit weights",
        "int8_clamps",
        STORED_KERNEL,
        "saturation",
        "in front of 8-bit weights that stream, activations pass fixed point, where magnitudes above 4094 are "
        "infinite; the other side folds such weights to fp16, or has no such path",
        "infinity where |x| > 4094, nothing elsewhere",
        "keep activations <= 4094, or store the weights as fp16",
        records=("N17",),
        geometry=_bytes_in_weights,
        limit=FP16_SLICE_SAT,
    ),
    DivergenceRule(
        "8-bit weights decoded",
        "stream:int8",
        STORED_KERNEL,
        "round1",
        "weights that stream are decoded by the engine, which rounds ties away from zero; folded ones are decoded "
        "before, ties to even",
        "one unit in the last place of a weight whose decoded value is a tie",
        "choose scales that are powers of two, whose products fp16 holds",
        geometry=_bytes_in_weights,
    ),
    DivergenceRule(
        "8-bit sums",
        "int8_sums",
        STORED_KERNEL,
        "saturation",
        "products of two 8-bit operands are added as 32-bit integers on one side, and in accumulators that end at "
        "32768 on the other",
        "infinity where a sum reaches 32768; one rounding elsewhere",
        "choose scales that keep sums below 32768",
        records=("N16",),
        geometry=_bytes_in_both,
        magnitude=_sum,
        limit=_CEILING,
        within="round1",
        unsaid="round1",
    ),
    DivergenceRule(
        "4-bit sums",
        "scaled_code_sums",
        STORED_KERNEL,
        "saturation",
        "4-bit weights with a scale are summed as codes on one side, rounded, scaled and rounded again; the other "
        "multiplies by the decoded weights",
        "infinity where a sum of codes times inputs reaches 32768; two roundings elsewhere",
        "store such weights as a palette without a scale, or keep inputs small",
        geometry=_scaled_codes,
    ),
    DivergenceRule(
        "one channel",
        "one_channel_planar",
        STORED_KERNEL,
        "saturation",
        "a 1 x 1 product of one channel does not pass the accumulators on one side, so results from 32768 on are "
        "finite there and infinite on the other, and small ones keep digits that the accumulators drop",
        "infinity from 32768 on; 2^-16 and one rounding elsewhere",
        "multiply elementwise instead, or keep results below 32768",
        records=("N06",),
        geometry=_one_channel,
        magnitude=_term,
        limit=_CEILING,
        within="round1",
        unsaid="round1",
    ),
    DivergenceRule(
        "resize strategy",
        "texture_engine",
        _kinds("resize"),
        "saturation",
        "one side resizes in its texture engine, the other by deconvolutions or products, which round otherwise, hold "
        "nothing below 2^-16 and end at 32768",
        "infinity from 32768 on; 2^-16 and a few roundings elsewhere",
        "keep |x| below 32768; resize by whole factors",
        records=("N46",),
        limit=_CEILING,
        within="round1",
        unsaid="round1",
    ),
    DivergenceRule(
        "reduce-then-square",
        "square_after_reduce",
        REDUCE_THEN_SQUARE,
        "round1",
        "one side fuses the square behind a reduction and so has a rounding less",
        "one rounding of the reduced value",
        "none needed: within one rounding",
        records=("N26",),
        bases=BASES,
        settled=_unfused_on_both,
    ),
    DivergenceRule(
        "pools for means",
        "pools_for_means",
        _kinds("mean reduce_mean"),
        "round1",
        "one side has no reductions and averages with pools, in steps where the map is large (U69)",
        "a rounding for each pool",
        "none needed: within one rounding for each pool",
    ),
    DivergenceRule(
        "Winograd",
        "winograd",
        CONVOLUTION,
        "round1",
        "convolutions of three columns and stride one take the width Winograd form on one side, which rounds both "
        "transforms to fp16 before the sums; five or six columns at stride two may (C76)",
        "a rounding of every transformed input and weight, in all about 1.4 times the error of the direct form (N56); "
        "near the ends of fp16 the transform overflows first",
        "none keeps the bits; another kernel or stride is computed directly on both",
        records=("N56",),
        geometry=_may_take_winograd,
    ),
    DivergenceRule(
        "tile boundary",
        "tile_losses",
        PRODUCT,
        "round1",
        "four terms of a sum at a time are added in fp16 on one side as soon as one of them, or their sum, reaches "
        "4096; the other adds them exactly",
        "for each such tile four roundings of its partial sums: 2 each from 4096 on, 8 each near 32768",
        "scale activations or weights down, so that four products stay below 4096",
        records=("N08", "N09"),
        magnitude=_tile,
        limit=_TILE_LIMIT,
        unsaid="none",
    ),
    DivergenceRule(
        "denormals",
        "mac_flushes_subnormals",
        PRODUCT,
        "round1",
        "the multipliers read numbers below 2^-14 as zero on one side and keep them on the other",
        "2^-14 times the other factor for each term",
        "scale activations up, so that none is below 2^-14",
        records=("N34",),
    ),
    DivergenceRule(
        "activation tables",
        "table_set",
        TABLE,
        "round1",
        "the two read different tables for tanh, as far as is known: nothing is read of an M4 (C80)",
        "the two errors together: 0.0033 (N39, N40)",
        "none keeps the bits; sigmoid, gelu and silu have one table everywhere (C72)",
        records=("N38", "N39", "N40"),
        unmeasured="the table of tanh is assumed to be the same: nobody has read that of an M4 (C80)",
    ),
    DivergenceRule(
        "gates",
        "fused_swish",
        _kinds("gate"),
        "round1",
        "x * sigmoid(x) is one table of silu on one side, a table and a product on the other (C77)",
        "the errors of both tables: 0.015 of silu and 0.0034 of sigmoid times x (N40)",
        "write x / (1 + exp(-x)), which both compute in steps",
        records=("N40", "N85"),
    ),
    DivergenceRule(
        "sine and cosine",
        "status:sin",
        _kinds("trigonometric tangent"),
        "round1",
        "one side has sine and cosine as tables, the other computes a polynomial in several ops",
        "the errors of both: 0.00063 of the table (N40) and that of the rewrite",
        "compute the angles on the host, or rewrite on both (aneforge.special)",
        records=("N40",),
    ),
    DivergenceRule(
        "division",
        "reciprocal_divide",
        _kinds("divide tangent"),
        "round1",
        "one side multiplies by a reciprocal that was rounded to fp16 first, the other divides",
        "one rounding more; a whole step where the quotient is floored (floor(6 / 3) is 1)",
        "divide by powers of two",
        records=("N44", "N72"),
    ),
    DivergenceRule(
        "random numbers",
        "status:dropout",
        _kinds("random"),
        "round1",
        "one side draws on the chip, by a generator that nobody has published; for the other the host draws",
        "all of it: other elements are drawn",
        "draw on the host and pass the numbers as an input",
    ),
    DivergenceRule(
        "reduction route",
        "reduce_transpose_extent",
        (REDUCTION | REDUCE_THEN_SQUARE | _kinds("attention")) - _LARGEST_OF,
        "ulp1",
        "the extent from which a reduction is transposed first differs, which reorders partial sums; measured to "
        "change nothing on its own, yet printed sums of long rows differ between these families (N60)",
        "one unit in the last place for each partial sum that moved",
        "none needed: within one unit in the last place",
        records=("N25", "N60"),
        bases=BASES,
    ),
)

SAME_NUMBERS: dict[str, str] = {
    "matmul": "a product as a resident convolution, or cut along its height, adds the same terms for each output",
    "transpose": "several passes move what one pass moves",
    "strided convolution": "the factors of a stride (0x730) are the same on every chip, and regrouped kernels add the "
    "same terms",
    "kernel memory": "a weight above the cap is cut along its output channels, whose sums do not meet",
    "wide kernels": "the form of stride two adds products with zero to the same terms",
    "folded palettes": "a table's entries are fp16 numbers, whoever looks them up",
}
"""Where chips get other code and the same numbers: the rest of table 35.3, and what the compiler adds to it."""


def found_axes(question: Question, a: Target, b: Target, basis: str = "silicon") -> tuple[tuple[Axis, ...], list[str]]:
    """The axes on which two targets differ for an op, strongest first, and what else there is to say."""
    if basis not in BASES:
        raise AneforgeError(f"basis: {basis!r} is not a basis; choose one: {', '.join(BASES)}")
    axes, notes = [], []
    for rule in RULES:
        if basis not in rule.bases or question.kind not in rule.kinds or not rule.geometry(question):
            continue
        strength = rule.strength(question)
        if strength == "none":
            continue
        one, other = axis_fact(a, rule.fact), axis_fact(b, rule.fact)
        if one.value == other.value:
            if rule.unmeasured and (one.confidence == "predicted") != (other.confidence == "predicted"):
                notes.append(rule.unmeasured)
        elif basis == "silicon" and rule.settled is not None and rule.settled(a, b):
            records = ", ".join(rule.records)
            notes.append(f"{rule.name}: {rule.fact} differs, and silicon showed that it changes nothing ({records})")
        else:
            axes.append(_axis(rule, strength, one, other))
    axes.sort(key=lambda axis: VERDICTS.index(axis.verdict))
    return tuple(axes), notes


def _axis(rule: DivergenceRule, strength: str, one: Fact[Any], other: Fact[Any]) -> Axis:
    shown = tuple(numeric_fact(number) for number in rule.records)
    conflict = one.conflict_id or other.conflict_id or next((fact.conflict_id for fact in shown), None)
    return Axis(rule.name, strength, rule.explanation, rule.at_most, rule.cure, (one, other, *shown), conflict)


def strongest(axes: tuple[Axis, ...]) -> str:
    """The gravest verdict of some axes."""
    return min((axis.verdict for axis in axes), key=VERDICTS.index, default="none")
