"""Where two chips differ op by op: the seed page's sentences, what silicon showed, and the simulator's own bits."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import warnings

import numpy as np
import pytest
import test_graph_ops
from random_graphs import random_graph
from seed_tables import TABLE_35_3

import aneforge as af
from aneforge import _targets as tg
from aneforge._compile import cross_compile_check
from aneforge.chips import divergence_axes as axes
from aneforge.chips.chip import all_targets
from aneforge.chips.divergence_axes import KINDS, RULES, SAME_NUMBERS, VERDICTS
from aneforge.chips.evidence import Fact
from aneforge.chips.hal import hal_fields
from aneforge.chips.names import target
from aneforge.errors import AneforgeError, CrossChipFP16Warning, PrecisionWarning, UnknownNameError
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.node import definitions
from aneforge.numerics.analysis import warn_losses
from aneforge.numerics.divergence import axes_of, kind_of, predict_fp16_divergence, verdict
from aneforge.study.model import Model
from aneforge.study.programs import compile_all
from aneforge.study.verdicts import graph_verdicts

INF = math.inf
CHIPS = {"m1": "h13", "m2": "h14g", "m3": "h15", "m4": "h16g", "m5": "h17", "m6": "h18g"}
FAMILIES = [family for family in tg.Family if family >= tg.MIN_FAMILY]
A13, A14, A15, A16 = FAMILIES
PAIRS = list(itertools.combinations(FAMILIES, 2))
RNG = np.random.default_rng(8)
SLICED = {"kind": "slice_by_size", "shape": (1, 4, 8, 60), "begin": (0, 0, 0, 4)}


def fields(*arguments, **given):
    return predict_fp16_divergence(*arguments, basis="fields", **given)


def both(kind, shape, a, b, **given):
    """Silicon's word and the fields' word."""
    told = predict_fp16_divergence(kind, shape, a, b, **given)
    assert told == verdict(kind, shape, a, b, **given).verdict
    return told, fields(kind, shape, a, b, **given)


def simulated(out, *chips, arrays=None):
    """What chips give for one graph, as bits."""
    graph = Graph.of(out)
    compiled = compile_all(graph, [target(chip) for chip in chips])
    given = [RNG.normal(size=each.shape) for each in graph.inputs] if arrays is None else arrays
    found = (Model(graph, compiled[chip])(*given) for chip in chips)
    return [
        np.concatenate([np.ravel(each) for each in (value if isinstance(value, list) else [value])]) for value in found
    ]


def same(one, other):
    return np.array_equal(one.astype(np.float16).view(np.uint16), other.astype(np.float16).view(np.uint16))


def warn_slices(out, chip):
    """How many slices that clamp a compile for a chip warns of."""
    graph = Graph.of(out)
    return warn_losses(graph, compile_all(graph, [target(chip)])[chip], stacklevel=3, precision=False)


def told(out, a, b, **given):
    """The verdict of the last op of a graph."""
    return graph_verdicts(out, a, b, **given)[-1][1]


# The seed page, "fp16 portability", sentence by sentence.


def test_four_verdicts_strongest_first():
    assert VERDICTS == ("saturation", "round1", "ulp1", "none")
    strengths = [VERDICTS.index(rule.verdict) for rule in RULES]
    assert set(strengths) == {0, 1, 2}
    assert {predict_fp16_divergence(kind, (1, 256), A13, A15, begin=1) for kind in KINDS} == set(VERDICTS)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_saturation_where_one_target_is_a13(a, b):
    """ "a slice with a nonzero last-axis begin-offset where one target is A13 ... while A14+ takes a clean route"."""
    assert fields(**_between(a, b)) == ("saturation" if A13 in (a, b) else "none")
    # Silicon: A13 and A14 clamp (C22); A15 is taken for clean, as table 35.4 says.
    assert predict_fp16_divergence(**_between(a, b)) == ("saturation" if a <= A14 < b else "none")


def _between(a, b, **given):
    return {**SLICED, "target_a": a, "target_b": b, **given}


@pytest.mark.parametrize("basis", ["silicon", "fields"])
@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (0, "none"),
        (4094, "none"),
        (4094.5, "saturation"),
        (4096, "saturation"),
        (INF, "saturation"),
        (None, "saturation"),
    ],
)
def test_saturation_is_magnitude_gated(basis, bound, expected):
    """ "a finite max_abs <= 4094 downgrades it", and 4094 is 65504 / 16."""
    assert predict_fp16_divergence(**_between(A13, A16), max_abs=bound, basis=basis) == expected
    assert tg.FP16_SLICE_SAT == 65504 / 16


@pytest.mark.parametrize("basis", ["silicon", "fields"])
@pytest.mark.parametrize("begin", [None, 0, (), (0, 0, 0, 0), (1, 0, 0, 0), (0, 2, 0, 0), (0, 0, 5, 0)])
def test_another_axis_or_no_offset_takes_a_clean_route(basis, begin):
    assert predict_fp16_divergence(**{**_between(A13, A16), "begin": begin}, basis=basis) == "none"


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.parametrize("kind", ["variance", "l2_norm", "rms_norm", "reduce_square", "sum_square"])
def test_round1_where_the_fusion_bit_differs(kind, a, b):
    """ "the 0x494 reduce->square fusion bit differs (A13 = 0, A14+ = 1)"; measured to do nothing on M1, M2 and M5."""
    routes = "ulp1" if a <= A14 < b else "none"
    found, by_fields = both(kind, (1, 256), a, b)
    assert by_fields == ("round1" if a == A13 else routes)
    assert found == ("round1" if (a, b) == (A13, A15) else routes)  # A15 was never measured: the field stays


def test_the_fusion_bits_are_those_of_the_page():
    assert [target(tg.arch_for_family(family)).hal.read(0x494) for family in FAMILIES] == [0, 1, 1, 1]
    assert [target(tg.arch_for_family(family)).hal.read(0x3F0) for family in FAMILIES] == [192, 192, 384, 384]


@pytest.mark.parametrize(("a", "b"), PAIRS)
@pytest.mark.parametrize("kind", ["sum", "reduce_mean", "softmax", "layer_norm", "instance_norm", "group_norm"])
def test_ulp1_where_the_route_threshold_differs(kind, a, b):
    """ "192 on A13/A14, 384 on A15+"; "a differing field still flags the risk" although it measured as nothing."""
    assert both(kind, (1, 256), a, b) == (("ulp1", "ulp1") if a <= A14 < b else ("none", "none"))


@pytest.mark.parametrize(
    "kind", ["conv", "matmul", "linear", "elementwise", "add", "relu", "transpose", "concat", "pool"]
)
@pytest.mark.parametrize(("a", "b"), [*PAIRS, ("h13", "h17s"), ("m4", "m6")])
def test_none_where_no_field_selects_a_route(kind, a, b):
    assert both(kind, (1, 8, 8, 8), a, b) == ("none", "none")


def test_the_accumulator_is_one_on_all_chips():
    """ "The MAC accumulator width ... uniform across chips": the 2^15 ceiling is where six chips have it (N05)."""
    x = af.input((1, 4, 2, 2))
    out = af.conv(x, np.ones((4, 4, 1, 1)))
    for value, finite in ((8188.0, True), (8192.0, False)):
        found = simulated(out, *CHIPS.values(), arrays=[np.full(x.shape, value)])
        assert all(np.isfinite(each).all() == finite for each in found)


def test_the_warning_can_be_silenced_by_its_category(monkeypatch):
    monkeypatch.setenv("ANEFORGE_TARGET", "h17s")
    out = af.input((1, 4, 8, 64)).slice_by_size([0, 0, 0, 4], [1, 4, 8, 60])
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("ignore", category=CrossChipFP16Warning)
        assert cross_compile_check(out, "h13")
    assert not caught
    assert issubclass(CrossChipFP16Warning, UserWarning)
    assert issubclass(PrecisionWarning, UserWarning)


# Silicon against fields.


def test_silicon_wins_and_says_so():
    both_clamp = verdict(**_named(A13, A14))
    assert (both_clamp.verdict, both_clamp.field_verdict, both_clamp.axes) == ("none", "saturation", ())
    assert "table fields alone say saturation" in both_clamp.says
    assert "C22" in both_clamp.says
    wider = verdict(**_named(A14, A16))
    assert (wider.verdict, wider.field_verdict) == ("saturation", "none")
    assert wider.axes[0].conflict == "C22"
    fused = verdict("rms_norm", (1, 256), "M1", "M2")
    assert (fused.verdict, fused.field_verdict) == ("none", "round1")
    assert "N26" in fused.says


def _named(a, b, **given):
    return {**SLICED, "a": a, "b": b, **given}


def test_what_was_never_measured_is_said():
    assert "never measured" in verdict(**_named(A15, A16)).says
    assert "never measured" not in verdict(**_named("h16g", "h17")).says
    assert "never measured" not in verdict(**_named("h15", "h15g")).says
    assert "never measured" not in verdict(**_named(A15, A16, max_abs=10)).says


def test_a_verdict_is_json_with_the_evidence_of_both_chips():
    found = verdict(**_named("M2 Pro", "M5"))
    record = json.loads(json.dumps(found.to_json()))
    assert (record["a"], record["b"]) == (target("M2 Pro").name, target("M5").name)
    first, second, *shown = record["axes"][0]["evidence"]
    assert (first["value"], second["value"]) == (True, False)
    assert first["confidence"] == second["confidence"] == "measured"
    assert "numeric fact N18" in [each["about"] for each in shown]
    assert record["says"] == str(found)


@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_are_symmetric_and_a_chip_equals_itself(kind):
    geometry = {"begin": 3, "max_abs": INF, "kernel": (3, 3), "weights": "int8", "activations": "int8", "channels": 1}
    chips = [each.name for each in all_targets(only_28=True) if each.family5 and each.family5 >= A13]
    for a, b in itertools.combinations_with_replacement(chips, 2):
        for basis in axes.BASES:
            found = predict_fp16_divergence(kind, (1, 8, 4, 4), a, b, basis=basis, **geometry)
            assert found == predict_fp16_divergence(kind, (1, 8, 4, 4), b, a, basis=basis, **geometry)
            assert a != b or found == "none"
        one, other = (verdict(kind, (1, 8, 4, 4), *pair, **geometry) for pair in ((a, b), (b, a)))
        assert [axis.name for axis in one.axes] == [axis.name for axis in other.axes]
        order = [VERDICTS.index(axis.verdict) for axis in one.axes]
        assert order == sorted(order)
        assert one.verdict == (one.axes[0].verdict if one.axes else "none")


def test_every_rule_can_fire_as_the_data_stand_or_has_one_value_on_all_chips():
    """Denormals alone are the same on every chip (U39); the rule would fire if a chip flushed them."""
    chips = [each for each in all_targets() if each.family5 is not None]
    silent = {rule.name for rule in RULES if len({repr(axes.axis_fact(each, rule.fact).value) for each in chips}) < 2}
    assert silent == {"denormals"}


def test_a_chip_that_flushed_denormals_would_differ(monkeypatch):
    real = axes.axis_fact

    def flushing(chip, key):
        found = real(chip, key)
        return Fact(chip.name == "h13", about=found.about) if key == "mac_flushes_subnormals" else found

    assert "denormals" not in [axis.name for axis in axes_of("matmul", (8, 8), "m1", "m2")]
    monkeypatch.setattr(axes, "axis_fact", flushing)
    found = axes_of("matmul", (8, 8), "m1", "m2")
    assert [(axis.name, axis.verdict) for axis in found] == [("denormals", "round1")]


# Table 35.3.

AXES_OF_35_3 = {"width slice": "slice route", "resize": "resize strategy"}


@pytest.mark.parametrize("category", [row["category"] for row in TABLE_35_3])
def test_table_35_3(category):
    """Every category is an axis, or says why its numbers stay."""
    assert (category in AXES_OF_35_3) != (category in SAME_NUMBERS)
    if category in AXES_OF_35_3:
        assert AXES_OF_35_3[category] in [rule.name for rule in RULES]
    if category == "resize":
        fact = next(rule for rule in RULES if rule.name == "resize strategy").fact
        assert hal_fields().find(fact).where == "0x81d"


def _same_numbers():
    x, rows = af.input((1, 16, 24, 24)), af.input((8, 700))
    yield "matmul", af.matmul(rows, af.input((700, 1600)))
    yield "matmul", rows.linear(RNG.normal(0, 0.05, (1600, 700)))
    yield "transpose", x.transpose([0, 3, 1, 2])
    yield "strided convolution", af.conv(x, RNG.normal(0, 0.1, (8, 16, 5, 5)), stride=6)
    yield "kernel memory", af.conv(x, RNG.normal(0, 0.02, (300, 16, 5, 5)))
    yield "wide kernels", af.conv(x, RNG.normal(0, 0.05, (4, 16, 3, 11)))
    table = Encoded.palette(RNG.integers(0, 8, (16, 16, 1, 1)), np.linspace(-1, 1, 8), bits=3)
    yield "folded palettes", af.conv(x, table)


@pytest.mark.parametrize(
    ("name", "out"), list(_same_numbers()), ids=lambda each: each if isinstance(each, str) else ""
)
def test_other_code_and_the_same_numbers(name, out):
    assert name in SAME_NUMBERS
    first, *rest = simulated(out, *CHIPS.values())
    for chip, found in zip(list(CHIPS.values())[1:], rest, strict=True):
        assert same(first, found), chip
        assert told(out, "h13", chip, max_abs=8).verdict == "none"


# Verdicts against the simulator.


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations(CHIPS, 2)))
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_winograd_between_older_and_newer_chips(kernel, a, b):
    """3 x 3 of stride one on M5 and M6 against M1 to M4 (N56), and no other kernel."""
    out = af.conv(af.input((1, 6, 9, 9)), RNG.normal(0, 0.2, (4, 6, kernel, kernel)), pad=kernel // 2)
    differs = kernel == 3 and a in ("m1", "m2", "m3", "m4") and b in ("m5", "m6")
    found = told(out, a, b, max_abs=8)
    assert [axis.name for axis in found.axes] == (["Winograd"] if differs else [])
    assert found.verdict == predict_fp16_divergence("conv", (1, 4, 9, 9), a, b, kernel=(kernel, kernel))
    assert same(*simulated(out, CHIPS[a], CHIPS[b])) != differs


@pytest.mark.parametrize(
    ("stride", "dilation", "differs"), [(1, 1, True), (2, 1, False), (1, 2, False), (5, 1, False)]
)
def test_winograd_needs_stride_one(stride, dilation, differs):
    """A stride of five is no stride of any chip: it goes to the channels, and the kernel with it (U36)."""
    out = af.conv(af.input((1, 6, 17, 17)), RNG.normal(0, 0.2, (8, 6, 3, 3)), stride=stride, dilation=dilation)
    assert (told(out, "m4", "m5").verdict == "round1") == differs
    assert same(*simulated(out, "h16g", "h17")) != differs


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations(["m1", "m2", "m4", "m5"], 2)))
@pytest.mark.parametrize(("value", "clamped"), [(4094.0, False), (-4096.0, True)])
def test_slices_at_the_ends_of_the_fixed_point(a, b, value, clamped):
    x = af.input((1, 2, 3, 8))
    out = x.slice_by_size([0, 0, 0, 2], [1, 2, 3, 5])
    one, other = simulated(out, CHIPS[a], CHIPS[b], arrays=[np.full(x.shape, value)])
    differs = clamped and a in ("m1", "m2") and b in ("m4", "m5")
    assert same(one, other) != differs
    assert np.isinf(one).all() == (clamped and a in ("m1", "m2"))
    assert (told(out, a, b, max_abs=abs(value)).verdict == "saturation") == differs


@pytest.mark.parametrize(
    "build",
    [
        lambda x: x.reverse(3),
        lambda x: x[:, :, :, ::-1],
        lambda x: x[:, :, :, 1::2],
        lambda x: af.crop(x, 0, 0, 1, 0),
        lambda x: af.split(x, 2, axis=3)[1],
        lambda x: af.input_view(x, 5, 9),
    ],
)
def test_every_op_that_starts_inside_the_last_axis(build):
    x = af.input((1, 2, 3, 8))
    out = build(x)
    assert told(out, "m2", "m3").verdict == "saturation"
    assert told(out, "m1", "m2").verdict == "none"
    large = [np.full(x.shape, 5000.0)]
    assert [np.isinf(each).all() for each in simulated(out, "h13", "h14", "h15", arrays=large)] == [True, True, False]


@pytest.mark.parametrize(
    "build", [lambda x: x.reverse(2), lambda x: x[:, :, 1:], lambda x: x[..., :4], lambda x: x[..., ::2]]
)
def test_ops_that_start_elsewhere(build):
    x = af.input((1, 2, 3, 8))
    assert told(build(x), "m1", "m5").verdict == "none"
    assert same(*simulated(build(x), "h13", "h17", arrays=[np.full(x.shape, 5000.0)]))


def test_a_gather_takes_no_clamping_way_anywhere():
    """Without a texture engine it is slices, cut along an axis that is not the width."""
    x = af.input((1, 2, 3, 8))
    large = [np.full(x.shape, 5000.0)]
    for out in (af.gather(x, [4, 5, 1], axis=3), af.gather(x, [1, 0], axis=1), af.gather(x, [0, 1], axis=3)):
        assert told(out, "m1", "m2").verdict == "none"
        assert same(*simulated(out, "h13", "h14", arrays=large))
        assert warn_slices(out, "h13") == 0


@pytest.mark.parametrize("name", ["tanh", "gelu", "silu", "sigmoid", "erf", "relu", "exp", "sqrt"])
def test_tables_of_the_m6(name):
    """Those of the M5 are its own (N83, U40); M1 and M2 have another tanh, and every chip one gelu and silu (C72)."""
    out = getattr(af.input((4, 4096)), name)()
    own = name == "tanh"
    grid = [np.linspace(-5, 5, 4 * 4096).reshape(4, 4096)]
    for chip in ("m1", "m2"):
        assert (told(out, chip, "m6").verdict == "round1") == own
        found = simulated(out, CHIPS[chip], "h18g", arrays=grid)
        assert same(*found) != own
        if own:  # within the errors that were published for either
            assert np.abs(found[0] - found[1]).max() <= 0.0033
    for chip in ("m4", "m5"):
        assert told(out, chip, "m6").verdict == "none"
        assert ("C80" in str(told(out, chip, "m6").notes)) == (own and chip == "m4")
        assert same(*simulated(out, CHIPS[chip], "h18g", arrays=grid))


def test_division_by_a_rounded_reciprocal():
    """Some chips multiply by fp16(1/3) = 0.333251953125 (N44, N72): 5 / 3 is 1.666 there and 1.667 elsewhere."""
    x = af.input((1, 4))
    out = x / 3.0
    assert [axis.name for axis in told(out, "h12", "h13").axes] == ["division"]
    old, new = simulated(out, "h12", "h13", arrays=[np.full(x.shape, 5.0)])
    assert (old == 1706 / 1024).all()  # 5 * 0.333251953125 = 1706.25 / 1024
    assert (new == 1707 / 1024).all()  # 5 / 3 = 1706.67 / 1024
    assert told(out, "h13", "h16").verdict == "none"
    assert [axis.name for axis in told(out, "h13", "h17").axes] == ["division"]


@pytest.mark.parametrize("build", [lambda x: af.upsample_bilinear(x, 2), lambda x: af.resize_bilinear(x, 7, 9)])
def test_resize_without_a_texture_engine(build):
    x = af.input((1, 2, 4, 6))
    out = build(x)
    assert told(out, "m1", "m2", max_abs=8).verdict == "round1"
    assert told(out, "m1", "m2").verdict == "saturation"
    assert predict_fp16_divergence("resize", out.shape, "m1", "m2") == "round1"
    assert not same(*simulated(out, "h13", "h14"))
    hot = simulated(out, "h13", "h14", arrays=[np.full(x.shape, 40000.0)])
    assert [np.isinf(each).all() for each in hot] == [True, False]
    assert told(out, "m2", "m5").verdict == "none"
    assert same(*simulated(out, "h14", "h17"))


def test_sine_and_cosine_are_tables_from_a15():
    out = af.input((1, 64)).sin()
    assert [told(out, "m2", chip).verdict for chip in ("m1", "m3", "m5")] == ["none", "round1", "round1"]
    assert not same(*simulated(out, "h14", "h15"))


def test_random_numbers_are_the_hosts_below_a15():
    """The random-number block is on from A15 (table 35.4); a rate of zero drops nothing."""
    x = af.input((1, 64))
    for rate, expected in ((0.5, ["none", "round1", "round1"]), (0.0, ["none"] * 3)):
        out = af.dropout(x, rate)
        assert [told(out, "m2", chip).verdict for chip in ("m1", "m3", "m6")] == expected


def test_tiles_of_the_m1():
    """4096 and 1024 ones are 5116 on the M1 and 5120 elsewhere (N08)."""
    x = af.input((1, 1025))
    out = x.linear(np.ones((1, 1025)))
    values = [np.concatenate([[4096.0], np.ones(1024)])[None]]
    one, other = simulated(out, "h13", "h14", arrays=values)
    assert (one.item(), other.item()) == (5116.0, 5120.0)
    assert [axis.name for axis in told(out, "m1", "m2").axes] == ["tile boundary"]
    assert told(out, "m1", "m2", max_abs=4096).verdict == "round1"
    assert told(out, "m1", "m2", max_abs=1023).verdict == "none"  # four terms of 1023 stay below 4096
    assert told(out, "m1", "m2", max_abs=1024).verdict == "round1"
    assert told(out, "m2", "m5").verdict == "none"


def test_bounds_of_products_count_the_weights():
    x = af.input((1, 8))
    small, large = x.linear(np.full((2, 8), 0.5)), x.linear(np.full((2, 8), 300.0))
    assert told(small, "m1", "m2", max_abs=2000).verdict == "none"
    assert told(large, "m1", "m2", max_abs=2000).verdict == "round1"
    assert told(large, "m1", "m2", max_abs=3).verdict == "none"
    live = af.matmul(x, af.input((8, 2)))
    assert [told(live, "m1", "m2", max_abs=bound).verdict for bound in (31, 32)] == ["none", "round1"]  # 4 * 32 * 32


def test_one_channel_passes_no_accumulator_on_the_m1():
    """60000 passes on the M1 and overflows elsewhere (N06, C20)."""
    x = af.input((1, 1, 2, 2))
    out = af.conv(x, np.ones((3, 1, 1, 1)))
    one, other = simulated(out, "h13", "h16g", arrays=[np.full(x.shape, 60000.0)])
    assert (one == 60000).all()
    assert np.isinf(other).all()
    assert told(out, "m1", "m4").verdict == "saturation"
    assert "one channel" in [axis.name for axis in told(out, "m1", "m4", max_abs=5).axes]
    assert told(out, "m2", "m4").verdict == "none"
    two = af.conv(af.input((1, 2, 2, 2)), np.ones((3, 2, 1, 1)))
    assert told(two, "m1", "m4", max_abs=5).verdict == "none"


def test_activations_in_front_of_8_bit_weights():
    """Folded on the M1, so plain fp16 there; streamed from A14 on, behind fixed point (N17)."""
    weights = Encoded.affine(np.full((4, 16), 7, np.int8), 2.0**-6)
    x = af.input((1, 16))
    out = x.linear(weights)
    assert [told(out, chip, "m2").verdict for chip in ("m1", "m4", "m5")] == ["saturation", "none", "none"]
    found = simulated(out, "h13", "h14", "h17", arrays=[np.full(x.shape, 5000.0)])
    assert [np.isfinite(each).all() for each in found] == [True, False, False]
    names = [axis.name for axis in told(out, "m1", "m2", max_abs=100).axes]
    assert "8-bit weights" not in names
    assert "8-bit weights decoded" in names


def test_sums_of_two_8_bit_operands():
    given = {"kind": "matmul", "shape": (4, 8), "weights": "int8", "activations": "int8"}
    assert predict_fp16_divergence(**given, target_a="m2", target_b="m4") == "round1"
    assert predict_fp16_divergence(**given, target_a="m2", target_b="m4", max_abs=INF) == "saturation"
    small = {"max_abs": 10, "weight_max": 1, "channels": 64}
    assert predict_fp16_divergence(**given, target_a="m2", target_b="m4", **small) == "round1"
    assert predict_fp16_divergence(**given, target_a="m4", target_b="m6") == "none"


CASES = [case for case in test_graph_ops.CASES if case.arrays]


def differences(graph, arrays, chips):
    """Pairs of chips that give other bits for a graph, and whether one of them gives an infinity more."""
    compiled = compile_all(graph, [target(chip) for chip in chips])
    runs = {name: Model(graph, compiled[name])(*arrays, dtype="float16") for name in compiled}
    for a, b in itertools.combinations(runs, 2):
        one, other = (each if isinstance(each, list) else [each] for each in (runs[a], runs[b]))
        pairs = list(zip(one, other, strict=True))
        if any(left.tobytes() != right.tobytes() for left, right in pairs):
            yield a, b, any((np.isfinite(left) != np.isfinite(right)).any() for left, right in pairs)


@pytest.mark.parametrize("op", dict.fromkeys(case.op for case in CASES))
@pytest.mark.parametrize("scale", [1.0, 3000.0])
def test_no_op_differs_where_every_verdict_is_none(op, scale):
    """Sound for each op: other bits, or an infinity, are never seen where they were not foretold."""
    for case in (each for each in CASES if each.op == op):
        arrays = [np.clip(np.asarray(each, float) * scale, -60000, 60000).astype(np.float16) for each in case.arrays]
        for promised in (False, True):
            bounds = [float(np.abs(each).max(initial=1.0)) if promised else None for each in arrays]
            inputs = [af.input(each.shape, max_abs=most) for each, most in zip(arrays, bounds, strict=True)]
            graph = Graph.of(case.build(*inputs))
            for a, b, overflows in differences(graph, arrays, ("h12", *CHIPS.values())):
                worst = min((each.verdict for _, each in graph_verdicts(graph, a, b)), key=VERDICTS.index)
                assert worst in (("saturation",) if overflows else ("saturation", "round1")), (a, b)


@pytest.mark.parametrize("seed", range(6))
def test_no_graph_differs_where_every_verdict_is_none(seed):
    out, x = random_graph(seed)
    graph = Graph.of(out)
    arrays = [RNG.normal(0, 2, x.shape)]
    seen = {(a, b) for a, b, _ in differences(graph, arrays, CHIPS.values())}
    foretold = {
        (a, b)
        for a, b in itertools.combinations(CHIPS.values(), 2)
        if any(each.verdict != "none" for _, each in graph_verdicts(graph, a, b))
    }
    assert seen <= foretold
    axes = {axis.name for _, each in graph_verdicts(graph, "h15", "h16g") for axis in each.axes}
    assert axes <= {"activation tables"}  # alike in all else that a graph without 8-bit weights asks (C80: tanh)


# Graphs.


def test_every_graph_op_has_a_kind():
    for name in definitions():
        assert kind_of(name) in KINDS
    with pytest.raises(UnknownNameError, match=r"convolve.*conv"):
        kind_of("convolve")
    assert kind_of("conv_transpose") == "deconv"
    assert predict_fp16_divergence("upsample_bilinear", (1, 2, 8, 8), "m1", "m2") == "round1"
    assert predict_fp16_divergence("lstm", (1, 2, 8), "m1", "m6") == "round1"


def test_a_graph_in_its_order_with_the_users_nodes():
    x = af.input((1, 4, 8, 8), name="x")
    y = af.conv(x, RNG.normal(0, 0.1, (4, 4, 3, 3)), pad=1).named("stem")
    out = y.slice_by_size([0, 0, 0, 1], [1, 4, 8, 7]).named("cut").relu()
    found = graph_verdicts(out, "m2", "m5")
    assert [(node.op, each.verdict) for node, each in found] == [
        ("conv", "round1"),
        ("slice_by_size", "saturation"),
        ("relu", "none"),
    ]
    assert [node.name for node, _ in found][:2] == ["stem", "cut"]
    assert found[0][0] is y
    assert found[0][1].shape == y.shape


def test_a_reduction_that_a_square_reads_is_reduce_then_square():
    x = af.input((1, 4, 8, 8))
    squared, plain = x.mean(3).square(), x.mean(3).relu()
    assert graph_verdicts(squared, "m1", "m2")[0][1].field_verdict == "round1"
    assert graph_verdicts(squared, "m1", "m3")[0][1].verdict == "round1"
    assert graph_verdicts(plain, "m1", "m2")[0][1].field_verdict == "none"


@pytest.mark.parametrize(
    ("build", "bounded"),
    [
        (lambda x: x, False),
        (lambda x: x.sigmoid(), True),
        (lambda x: x.softmax(-1).transpose([0, 1, 3, 2]), True),
        (lambda x: x.clip(-4094, 100), True),
        (lambda x: x.clip(-4096, 100), False),
        (lambda x: x.tanh() * 2, True),
        (lambda x: x.tanh() * 5000, False),
        (lambda x: af.concat([x.tanh(), x], axis=1), False),
        (lambda x: af.concat([x.tanh(), x.relu6()], axis=1), True),
        (lambda x: af.maximum(x.sigmoid(), af.const(np.full((1, 2, 4, 8), 5000.0))), False),
        (lambda x: af.maximum(x.sigmoid(), af.const(np.full((1, 2, 4, 8), 500.0))), True),
    ],
)
def test_what_bounds_a_slice(build, bounded):
    out = build(af.input((1, 2, 4, 8)))[..., 1:]
    assert told(out, "m1", "m5").verdict == ("none" if bounded else "saturation")
    assert told(out, "m1", "m5", max_abs=4000).verdict == "none"


def test_a_promised_input_excludes_the_clamp():
    for most, expected in ((4094, "none"), (5000, "saturation"), (None, "saturation")):
        out = af.input((1, 2, 4, 8), max_abs=most).relu().reshape(1, 8, 8)[..., 1:]
        assert told(out, "m1", "m5").verdict == expected


# Slices at compile time.


def sliced(x):
    return x.slice_by_size([0, 0, 0, 3], [1, 2, 4, 5]).named("tail")


@pytest.mark.parametrize(
    ("chip", "warned"),
    [("h13", True), ("h13g", True), ("h14", True), ("h15", False), ("h16s", False), ("h17s", False)],
)
def test_slices_that_clamp_are_warned_of(chip, warned):
    """The seed page warns on A13; A14 was measured to clamp too (C22)."""
    graph = Graph.of(sliced(af.input((1, 2, 4, 8))))
    if not warned:
        assert warn_slices(graph, chip) == 0
        return
    with pytest.warns(CrossChipFP16Warning, match=r"tail.*4094.*max_abs") as caught:
        assert warn_slices(graph, chip) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "out",
    [
        af.input((1, 2, 4, 8)).slice_by_size([0, 1, 2, 0], [1, 1, 2, 5]),
        sliced(af.input((1, 2, 4, 8), max_abs=4094)),
        sliced(af.input((1, 2, 4, 8)).softmax(-1)),
        sliced(af.input((1, 2, 4, 8)).sigmoid()),
    ],
)
def test_slices_that_cannot_clamp_are_not(out):
    assert warn_slices(out, "h13") == 0


def test_one_warning_for_many_slices():
    x = af.input((1, 2, 4, 8))
    graph = Graph.of([sliced(x.relu()) for _ in range(7)])
    with pytest.warns(CrossChipFP16Warning, match="and 3 more") as caught:
        assert warn_slices(graph, "h13") == 7
    assert len(caught) == 1


# Compiling for another chip.


def test_the_check_warns_of_every_difference_before_it_compiles(monkeypatch):
    monkeypatch.setenv("ANEFORGE_TARGET", "h17s")
    x = af.input((1, 2, 4, 8), name="x")
    out = sliced(af.conv(x, RNG.normal(0, 0.1, (2, 2, 3, 3)), pad=1).named("stem")).softmax(-1)
    with pytest.warns(CrossChipFP16Warning) as caught:
        assert cross_compile_check(out, "h14") is True
    texts = [str(each.message) for each in caught]
    assert len(texts) == 3
    assert all("M5 Pro" in text and "A15 Bionic" in text and "Cure" in text for text in texts)
    assert ["stem" in text and "Winograd" in text for text in texts] == [True, False, False]
    assert ["tail" in text and "slice route" in text for text in texts] == [False, True, False]
    assert "softmax" in texts[2]
    assert {each.filename for each in caught} == {__file__}


def test_the_check_never_warns_of_the_chip_itself(monkeypatch):
    monkeypatch.setenv("ANEFORGE_TARGET", "h13")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cross_compile_check(sliced(af.input((1, 2, 4, 8))), "h13") is True


def test_the_check_refuses_before_it_warns(monkeypatch):
    monkeypatch.setenv("ANEFORGE_TARGET", "h17s")
    out = sliced(af.input((1, 2, 4, 8)))
    for wrong in ("zzz", "h13x", "M1", ""):
        with pytest.raises(UnknownNameError):
            cross_compile_check(out, wrong)


def test_the_check_is_false_where_no_program_results(monkeypatch):
    monkeypatch.setenv("ANEFORGE_TARGET", "h13")
    assert cross_compile_check(af.input((1, 4, 1, 20000)).relu(), "h13") is False
    x = af.input((1, 4, 16, 8))
    with pytest.raises(AneforgeError, match="one segment"):
        cross_compile_check(af.sdpa(x, x, x), "h13")


# Bad questions.


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "convolve"}, "nearest: .*conv"),
        ({"kind": "slise"}, "nearest: slice"),
        ({"kind": ["slice"]}, "slice"),
        ({"shape": (0, 2)}, "at least 1"),
        ({"shape": (-1,)}, "at least 1"),
        ({"shape": (1.5,)}, "at least 1"),
        ({"shape": (math.nan,)}, "at least 1"),
        ({"shape": ("a",)}, "at least 1"),
        ({"shape": ()}, "at least 1"),
        ({"begin": (0, 1.5)}, "whole numbers"),
        ({"begin": "a"}, "whole numbers"),
        ({"max_abs": -1.0}, "max_abs"),
        ({"max_abs": math.nan}, "max_abs"),
        ({"max_abs": "many"}, "max_abs"),
        ({"weight_max": -2}, "weight_max"),
        ({"kernel": (3, 0)}, "kernel.*at least 1"),
        ({"channels": -4}, "channels.*at least 1"),
        ({"kernal": (3, 3)}, "nearest: kernel"),
        ({"target_a": "zzz"}, "zzz"),
        ({"target_a": "h11"}, "converted programs do not run on it"),
        ({"target_a": "u1"}, "converted programs do not run on it"),
        ({"basis": "guess"}, "silicon, fields"),
    ],
)
def test_nonsense_is_refused_in_one_line(given, words):
    with pytest.raises(AneforgeError, match=words) as caught:
        predict_fp16_divergence(**{"kind": "slice", "shape": (1, 2), "target_a": "h13", "target_b": "h14", **given})
    assert "\n" not in str(caught.value)


def test_a_chip_without_a_table_is_refused():
    with pytest.raises(AneforgeError, match="h20: its table is not published"):
        verdict("conv", (1, 2), "h20", "m1")
    with pytest.raises(AneforgeError, match="max_abs"):
        graph_verdicts(af.input((1, 2)).relu(), "m1", "m2", max_abs=-1)


def test_the_seed_pages_signature_comes_first():
    names = list(inspect.signature(predict_fp16_divergence).parameters)
    assert names == ["kind", "shape", "target_a", "target_b", "begin", "max_abs", "basis", "attrs"]
