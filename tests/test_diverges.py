"""Where two chips can differ: what the analysis says against what simulation shows, ranges, risks and cures."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from random_graphs import random_graph

import aneforge as af
from aneforge.cli.options import load_model
from aneforge.engine.interpret import named_constants, rule_of
from aneforge.errors import AneforgeError
from aneforge.graph.encoding import Encoded
from aneforge.graph.stable_forms import STABLE_FORMS
from aneforge.numerics.causes import CURES, reduce_sum_to_matmul, rewritten
from aneforge.numerics.moves import digests
from aneforge.numerics.ranges import Value, rounded, rounding
from aneforge.numerics.transfer import walk
from aneforge.reports import report
from aneforge.sim.compare import differences
from aneforge.sim.engine import Engine
from aneforge.sim.executor import stored_constant
from aneforge.sim.nodes import NodeValues
from aneforge.sim.rules import prepared
from aneforge.sim.rules.contraction import has_stored_kernel
from aneforge.study.pairwise import divergences_between
from aneforge.study.ranges import calibrate
from aneforge.study.risk import risks_on
from aneforge.study.verdicts import graph_verdicts

FAMILIES = ("h13", "h14g", "h15", "h16g", "h17", "h18g")
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def faults(out, a, b, ranges, feeds):
    """Nodes whose simulated difference is outside of what was predicted."""
    told = {each.node: each for each in divergences_between(out, a, b, ranges=ranges)}
    models = [af.compile(out, target=chip) for chip in (a, b)]
    values = [NodeValues(model.program, model.run(feeds, trace=True)) for model in models]
    found = []
    for seen in differences(*values):
        bound = told[seen.node].bound if seen.node in told else 0.0
        outside = seen.largest > bound or (seen.changed and not bound) or (seen.lost and math.isfinite(bound))
        found += [(seen, bound)] if outside else []
    return found


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations(FAMILIES, 2)))
def test_simulation_is_inside_the_prediction(a, b):
    """Random graphs and inputs, all pairs of families, small ranges and such as overflow."""
    first = 100 * FAMILIES.index(a) + 10 * FAMILIES.index(b)
    for seed in range(first, first + 6):
        out, x = random_graph(seed)
        rng = np.random.default_rng(seed)
        scale = float(rng.choice([0.5, 2.0, 8.0, 100.0, 3000.0]))
        data = np.clip(rng.normal(size=x.shape) * scale / 2, -scale, scale)
        assert not faults(out, a, b, scale, {"x": data}), seed


def attention_block(rng, x, heads):
    rows, width = x.shape
    gamma, beta = (np.float16(base + 0.1 * rng.normal(size=width)) for base in (1, 0))

    def dense(y, outputs):
        return y.linear(rng.normal(0, y.shape[1] ** -0.5, (outputs, y.shape[1])))

    y = x.layer_norm(gamma, beta)
    q, k, v = (dense(y, width).reshape(rows, heads, width // heads).transpose([1, 0, 2]) for _ in range(3))
    seen = (((q @ k.mT) * (width // heads) ** -0.5).softmax(-1) @ v).transpose([1, 0, 2]).reshape(rows, width)
    x = x + dense(seen, width)
    return x + dense(dense(x.layer_norm(gamma, beta), 2 * width).gelu(), width)


@pytest.mark.parametrize(("a", "b"), [("m1", "m5"), ("m2", "m6"), ("m1", "m2")])
def test_a_transformer_with_and_without_calibration(a, b):
    rng = np.random.default_rng(5)
    x = af.input((12, 32), name="x")
    out = attention_block(rng, attention_block(rng, x, 4), 4)
    data = np.clip(rng.normal(size=(12, 32)), -3, 3)
    assert not faults(out, a, b, 3.0, {"x": data})
    ranges = calibrate(out, [a, b], [{"x": data}])
    assert not faults(out, a, b, ranges, {"x": data})
    assert not any(each.may_be_lost for each in divergences_between(out, a, b, ranges=ranges))


def test_encoded_weights_and_attention_layer():
    rng = np.random.default_rng(2)
    codes = rng.integers(-100, 100, (24, 32)).astype(np.int8)
    x = af.input((8, 32), name="x")
    out = x.linear(Encoded.affine(codes, np.float16(0.003))).tanh()
    data = rng.normal(size=(8, 32))
    for pair in (("m1", "m5"), ("m2", "m6")):
        assert not faults(out, *pair, float(np.abs(data).max()), {"x": data})
    q, k, v = (af.input((1, 2, 16, 8), name=name) for name in "qkv")
    feeds = {name: rng.normal(size=(1, 2, 16, 8)) for name in "qkv"}
    assert not faults(af.sdpa(q, k, v), "m4", "m6", 6.0, feeds)


def mixed_graph(rng):
    """Chains of ops that the other random graphs do not have: powers, roots, divisions, choices, norms, views."""
    x = af.input((1, int(rng.choice([1, 4, 6])), 8, 8), name="x")
    y = x
    for _ in range(int(rng.integers(2, 8))):
        c = y.shape[1]
        gamma, beta = (np.float16(base + 0.1 * rng.normal(size=c)) for base in (1, 0))
        forms = [
            lambda y: af.maximum(y, y * 0.5),
            lambda y: af.where(y.greater(y * 0.5), y, y * 0.3),
            lambda y: y.abs().sqrt(),
            lambda y: (y.square() + 0.1).rsqrt(),
            lambda y: y / (y.square() + 1.0),
            lambda y: y.exp(),
            lambda y: (y.abs() + 0.01).log(),
            lambda y: y.leaky_relu(0.1).clip(-50, 50),
            lambda y: y.elu(1.0).silu(),
            lambda y: y.softplus().erf(),
            lambda y: y.sin() if rng.random() < 0.5 else y.round(),
            lambda y: y.sum(1) * 0.1 + y,
            lambda y, g=gamma, b=beta: af.instance_norm(y, g, b),
            lambda y: y.avg_pool(2, 2) if min(y.shape[2:]) >= 4 else y.sign() * y,
            lambda y: af.pad(y, [(0, 0), (0, 0), (1, 1), (1, 1)], value=0.5),
            lambda y, c=c: af.conv_transpose(y, rng.normal(0, 0.4, (c, 4, 2, 2)), stride=2),
            lambda y: (y @ y.mT) * 0.1,
            lambda y: y[:, :, :, 1:] if y.shape[3] > 2 else y.inverse(1e-3),
            lambda y: y.reduce_log_sum_exp(1) + y,
            lambda y, c=c: af.conv(y, rng.normal(0, 0.1, (6, c, 3, 3)), pad=1),
        ]
        y = forms[int(rng.integers(len(forms)))](y)
        if y.shape[2] > 20:
            break
    return y, x


def exact_and_simulated(program, feeds):
    """Every op of a program in float64 and on the engine, each from its own operands."""
    module, engine, exact, made = program.module, Engine.of(program.target), {}, {}
    for op in module.ops:
        if op.kind == "live_out":
            continue
        if op.kind in ("const_in", "live_in"):
            made[op] = stored_constant(module, op) if op.kind == "const_in" else feeds.reshape(op.shape)
            exact[op] = made[op].astype(np.float64)
            continue
        kernel = stored_constant(module, op.operands[1]) if has_stored_kernel(op) else None
        named = named_constants(module, op)
        rule = prepared(engine, op, kernel, named)
        made[op] = rule.call(*(made[each] for each in rule.reads))
        with np.errstate(all="ignore"):
            exact[op] = np.asarray(rule_of(op)(op, *(exact[each] for each in op.operands), **named))
    return exact, made


@pytest.mark.parametrize("chip", FAMILIES)
def test_every_value_is_inside_its_interval_and_error(chip):
    for seed in range(40 * FAMILIES.index(chip), 40 * FAMILIES.index(chip) + 24):
        rng = np.random.default_rng(seed)
        out, x = mixed_graph(rng) if seed % 2 else random_graph(seed)
        scale = float(rng.choice([0.5, 2.0, 8.0, 100.0, 6000.0]))
        program = af.compile(out, target=chip, _check_precision=False).program
        data = np.clip(rng.normal(size=x.shape) * scale * 0.7, -scale, scale).astype(np.float16)
        exact, made = exact_and_simulated(program, data)
        told = walk(Engine.of(program.target), program.module, {"x": Value(-scale, scale)}).values
        for op, numbers in made.items():
            if numbers.dtype == bool:
                continue
            value, wide = told[op], numbers.astype(np.float64)
            finite = np.isfinite(wide)
            assert finite.all() or value.special, (seed, op)
            assert wide[finite].min(initial=value.low) >= value.low, (seed, op)
            assert wide[finite].max(initial=value.high) <= value.high, (seed, op)
            both = finite & np.isfinite(exact[op].astype(np.float64))
            off = np.abs(wide[both] - exact[op][both])
            assert off.max(initial=0.0) <= value.error, (seed, op)


def quantised_graph(rng):
    """Layers of codes: bytes, 4-bit codes and scaled tables behind quantisers, strides, pools and moves between."""
    x = y = af.input((1, 8, 8, 8), name="x")
    for _ in range(int(rng.integers(1, 5))):
        c = y.shape[1]
        if rng.random() < 0.8:
            scale, dtype = float(rng.choice([0.03125, 0.1, 1.0])), str(rng.choice(["int8", "uint8"]))
            zero = int(rng.integers(-20, 20)) if dtype == "int8" else int(rng.integers(0, 200))
            y = af.dequantize(af.quantize(y, scale, zero, dtype), scale, zero)
        scales = rng.uniform(0.001, 0.02, 6).astype(np.float16)
        bits = int(rng.choice([4, 8, 8]))
        codes = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), (6, c, 3, 3)).astype(np.int8)
        weight = af.Encoded.affine(codes, scales if rng.random() < 0.5 else scales[:1], axis=0, bits=bits)
        if bits == 4 and rng.random() < 0.5:
            table, line = np.arange(-8, 8).astype(np.float16), scales.reshape(6, 1, 1, 1)
            weight = af.Encoded.palette((codes + 8).astype(np.uint8), table, 4, scale=line)
        bias = rng.normal(size=6) if rng.random() < 0.5 else None
        y = af.conv(y, weight, pad=1, stride=int(rng.choice([1, 1, 2])) if y.shape[2] > 4 else 1, bias=bias)
        y = [y.relu, lambda z=y: z.transpose([0, 1, 3, 2]), lambda z=y: z][int(rng.integers(3))]()
    return y, x


@pytest.mark.parametrize("chip", ["h13", "h14", "h16g", "h17s", "h18g"])
def test_values_of_quantised_layers_are_inside_their_intervals(chip):
    bounded = 0
    for seed in range(24):
        rng = np.random.default_rng(1000 + seed)
        out, x = quantised_graph(rng)
        scale = float(rng.choice([0.5, 4.0, 100.0]))
        program = af.compile(out, target=chip).program
        data = np.clip(rng.normal(size=x.shape) * scale * 0.7, -scale, scale).astype(np.float16)
        exact, made = exact_and_simulated(program, data)
        told = walk(Engine.of(program.target), program.module, {"x": Value(-scale, scale)}).values
        for op, numbers in made.items():
            value, wide = told[op], numbers.astype(np.float64)
            finite = np.isfinite(wide)
            bounded += op.kind == "convolution" and not value.special
            assert finite.all() or value.special, (seed, op)
            assert wide[finite].min(initial=value.low) >= value.low, (seed, op)
            assert wide[finite].max(initial=value.high) <= value.high, (seed, op)
            both = finite & np.isfinite(exact[op].astype(np.float64))
            off = np.abs(wide[both] - exact[op][both])
            assert off.max(initial=0.0) <= value.error, (seed, op)
    assert bounded > 20  # and most of them say something


def test_quantised_layers_differ_where_one_chip_adds_integers_or_codes():
    x = af.input((1, 8, 4, 4), name="x", max_abs=4.0)
    bytes_, few = (
        af.Encoded.affine(np.random.default_rng(3).integers(-7, 8, (8, 8, 1, 1)).astype(np.int8), 0.3, bits=bits)
        for bits in (8, 4)
    )
    layers = {
        "8-bit sums": af.conv(af.dequantize(af.quantize(x, 0.1), 0.1), bytes_),
        "4-bit sums": af.conv(x, few),
    }
    pairs = {"8-bit sums": (("m2", "m5"), ("m4", "m5")), "4-bit sums": (("m4", "m5"), ("m2", "m4"))}
    for name, out in layers.items():
        apart, alike = pairs[name]
        axes = {axis.name for node, told in graph_verdicts(out, *apart) for axis in told.axes if node.op == "conv"}
        assert name in axes
        axes = {axis.name for node, told in graph_verdicts(out, *alike) for axis in told.axes if node.op == "conv"}
        assert name not in axes
        assert divergences_between(out, *apart)


# What is listed, and why.


def test_the_winograd_form_is_where_an_m5_differs():
    x = af.input((1, 8, 16, 16), name="x")
    out = af.conv(x, np.random.default_rng(0).normal(0, 0.2, (8, 8, 3, 3)), pad=1).named("stem").relu()
    found = divergences_between(out, "m2", "m5", ranges=2.0)
    assert found.first is not None
    assert (found.first.node, found.first.inherited) == ("stem", False)
    assert "Winograd" in found.first.causes[0]
    assert 0 < found.first.bound < 1
    assert [each.inherited for each in found][1:] == [True]
    assert not divergences_between(out, "m2", "m4", ranges=2.0)
    assert not divergences_between(out, "m5", "m5 pro", ranges=2.0)
    assert "stem" in str(found)
    assert json.dumps(found.to_json())


def test_ranges_exclude_what_the_data_never_meet():
    """4094 survives the crop route and 4096 does not (N18); an M1's tiles add exactly below 4096."""
    x = af.input((1, 4, 4, 16), name="x")
    out = x[:, :, :, 3:].named("cut")
    (small,) = divergences_between(out, "m1", "m5", ranges=4094.0)
    (large,) = divergences_between(out, "m1", "m5", ranges=4096.0)
    assert (small.excluded, small.bound) == (True, 0.0)
    assert (large.excluded, large.may_be_lost) == (False, True)
    assert not divergences_between(out, "m1", "m2", ranges=4096.0)  # both clamp
    assert not divergences_between(out, "m4", "m5", ranges=4096.0)  # neither does
    product = af.input((2, 8), name="x").linear(np.ones((3, 8)))
    assert [each.excluded for each in divergences_between(product, "m1", "m2", ranges=100.0)] == [True]
    assert [each.excluded for each in divergences_between(product, "m1", "m2", ranges=1024.0)] == [False]


def test_a_promise_of_the_input_is_a_range():
    x = af.input((1, 4, 4, 16), max_abs=100, name="x")
    (found,) = divergences_between(x[:, :, :, 3:], "m1", "m5")
    assert found.excluded


def last_digests(out, chip="m1"):
    program = af.compile(out, target=chip).program
    found = digests(walk(Engine.of(program.target), program.module, {"x": Value(-1.0, 1.0)}))
    return found[next(op.operands[0] for op in program.module.ops if op.kind == "live_out")]


def test_pieces_of_a_split_layer_equal_the_whole():
    """Compilers cut layers along their outputs: put together again they are the same, and other weights are not."""
    x = af.input((1, 8, 4, 4), name="x")
    kernel = np.random.default_rng(0).normal(0, 0.1, (6, 8, 3, 3))
    whole = af.conv(x, kernel, pad=1).relu()
    pieces = af.concat([af.conv(x, kernel[:2], pad=1).relu(), af.conv(x, kernel[2:], pad=1).relu()], axis=1)
    assert last_digests(whole) == last_digests(pieces)
    assert last_digests(whole) != last_digests(whole, "m5")  # the Winograd form
    kernel[5] += 0.1
    assert [
        a == b for a, b in zip(last_digests(whole), last_digests(af.conv(x, kernel, pad=1).relu()), strict=True)
    ] == [
        *[True] * 5,
        False,
    ]
    grouped = af.conv(x, kernel[:4, :4], groups=2, pad=1)
    apart = [af.conv(x[:, 4 * i : 4 * i + 4], kernel[2 * i : 2 * i + 2, :4], pad=1) for i in (0, 1)]
    assert last_digests(grouped) == last_digests(af.concat(apart, axis=1))


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({}, "x: this input has no range"),
        ({"x": 1.0, "zz": 2.0}, "zz: not an input or a node"),
        ({"x": (3.0, 1.0)}, "runs backwards. Give the low end first"),
        ({"x": math.nan}, "Give a magnitude, a pair"),
        ({"x": -1.0}, "is not a bound on a magnitude; give 0 or more"),
        ([1.0, 2.0], "2 were given for 1 inputs"),
    ],
)
def test_ranges_that_say_nothing(ranges, message):
    with pytest.raises(AneforgeError, match=message):
        divergences_between(af.input((2, 8), name="x").relu(), "m1", "m5", ranges=ranges)


def test_calibration_needs_samples():
    out = af.input((2, 8), name="x").relu()
    with pytest.raises(AneforgeError, match="at least one"):
        calibrate(out, ["m1"], [])
    with pytest.raises(AneforgeError, match="margin: 0 is not a factor"):
        calibrate(out, ["m1"], [{"x": np.ones((2, 8))}], margin=0)
    found = calibrate(out, ["m1"], [{"x": np.full((2, 8), 2.0)}, {"x": np.full((2, 8), 4.0)}], margin=1.0)
    assert found["x"] == (2.0, 4.0)


# Values.


def test_a_rounding_is_no_larger_than_its_bound():
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=4096) * 10.0 ** rng.uniform(-8, 4, 4096)
    found = numbers.astype(np.float16).astype(np.float64)
    usual = np.abs(numbers) < 65504
    assert (np.abs(found - numbers) <= [rounding(abs(each)) for each in numbers])[usual].all()
    assert rounded(0.0, 1.0, 0.0) == Value(0.0, 1.0, False, rounding(1.0))
    assert rounded(0.0, 70000.0, 0.0).special


# Risks and cures.


def kinds(out, chip, ranges):
    return [(each.node, each.rule) for each in risks_on(out, chip, ranges)]


def test_the_published_cliffs():
    """33280 is infinite in a dot product, 32400 is not; softplus breaks near 10.4; logsumexp of 32 near 7.63."""
    ones = af.input((1, 130), name="x").linear(np.ones((1, 130))).named("dot")
    assert kinds(ones, "m1", 256.0) == [("dot", "accumulator")]
    assert not kinds(ones, "m1", 249.0)
    soft = af.input((1, 8), name="x").softplus()
    assert kinds(soft, "m5", 10.5)
    assert not kinds(soft, "m5", 10.3)
    total = af.input((1, 32, 1, 1), name="x").reduce_log_sum_exp(1)
    assert kinds(total, "m5", 7.7)
    assert not kinds(total, "m5", 7.5)


def test_each_kind_of_risk():
    x = af.input((4, 2048), name="x")
    assert kinds(x.exp().named("e"), "m5", 12.0) == [("e", "overflow")]
    assert not kinds(x.exp(), "m5", 11.0)
    assert kinds(x.square().named("s"), "m5", 300.0) == [("s", "overflow")]
    assert kinds(x.sum(1).named("t"), "m5", 1.0) == [("t", "cancellation")]
    assert kinds(x.sum(1).named("t"), "m5", 40.0) == [("t", "overflow")]
    assert kinds((x / (x + 1.0)).named("q"), "m5", 2.0) == [("q", "division")]
    assert kinds((x * x).named("p"), "m5", 300.0) == [("p", "overflow")]
    stored = x.linear(Encoded.affine(np.ones((4, 2048), np.int8), np.float16(1e-4))).named("w")
    assert kinds(stored, "m2", 5000.0) == [("w", "int8-activations")]
    wide = af.input((2, 768), name="x").layer_norm(np.ones(768, np.float16), np.zeros(768, np.float16)).named("n")
    assert kinds(wide, "m1", 8.0) == []  # the mean of many squares is finite
    assert kinds(wide, "m1", 200.0) == [("n", "variance")]
    assert not kinds(wide, "m1", 1.0)
    q, k, v = (af.input((1, 8, 512, 64), name=name) for name in "qkv")
    assert any("wrong" in each.message for each in risks_on(af.sdpa(q, k, v), "m5", 1.0))


def test_only_the_first_loss_is_told():
    x = af.input((4, 16), name="x")
    assert kinds((x.exp().named("first") * 2.0 + 1.0).square(), "m5", 20.0) == [("first", "overflow")]
    assert "nothing can be lost" in str(risks_on(x.relu(), "m1", 1.0))


@pytest.mark.parametrize("name", sorted(set(CURES) - {form.name for form in STABLE_FORMS}))  # test_stable_forms.py
def test_cures_are_the_same_function(name):
    rng = np.random.default_rng(3)
    x = af.input((1, 6, 8, 16), name="x")
    out = {
        "slice-off-width": x[:, 1:5, :, 3:11] * 2.0,
        "sum-as-product": x.sum(3) + x.sum(1).mean(3),
        "scaled-attention": ((x @ x.mT) * 0.25).softmax(-1),
    }[name]
    other = rewritten(out, [name])
    assert [node.op for node in other.nodes] != [node.op for node in af.Graph.of(out).nodes]
    data = rng.normal(size=x.shape)
    np.testing.assert_allclose(af.evaluate(other, [data])[0], af.evaluate(out, [data]), rtol=1e-9, atol=1e-12)
    rows = af.input((6, 32), name="x")
    cut = rewritten(rows[:, 5:20], ["slice-off-width"])
    line = rng.normal(size=(6, 32))
    assert (af.evaluate(cut, [line])[0] == line[:, 5:20]).all()


def test_scaled_attention_keeps_the_scores():
    q, k = (af.input((1, 4, 64, 64), name=name) for name in "qk")
    out = ((q @ k.mT) * 0.125).softmax(-1)
    found = risks_on(out, "m1", 30.0)
    assert [each.rule for each in found] == ["accumulator"]
    assert not risks_on(rewritten(out, found), "m1", 30.0)


def test_sums_as_products_by_place():
    x = af.input((2, 64), name="x")
    out = x.sum(1) + (x * 2.0).sum(1)
    found = [reduce_sum_to_matmul(out, pick) for pick in (None, [1], [])]
    assert all(isinstance(each, af.Tensor) for each in found)
    assert [[node.op for node in af.Graph.of(each).nodes].count("matmul") for each in found] == [2, 1, 0]
    several = reduce_sum_to_matmul([out, x.relu()])
    assert [each.op for each in several] == ["add", "relu"]
    assert isinstance(reduce_sum_to_matmul([out]), list)
    assert isinstance(reduce_sum_to_matmul(af.Graph.of(out)), af.Tensor)
    with pytest.raises(AneforgeError, match="has 2 sums"):
        reduce_sum_to_matmul(out, [2])
    with pytest.raises(AneforgeError, match="slice-off: not a rewrite"):
        rewritten(out, ["slice-off"])


# The example: works on an M5, breaks on an M1, is found, rewritten, and passes.


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "aneforge", *words], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("indices", [[0, 1, 2], [0, 0, 1], [2, 0, 2, 1, 1]])
def test_a_gather_is_the_same_by_the_op_and_by_copies(axis, indices):
    """An M1 copies by slices, tiles and joins; an M5 has the op. Repeated places were once a false alarm."""
    x = af.input((4, 4, 4, 4), name="x", max_abs=8)
    out = af.gather(x, indices, axis=axis).named("picked").relu()
    report = af.diverges(out, "m1,m5")
    assert report.same
    assert af.compare(out, "m1,m5").same
    # What is picked from a value that differs still differs.
    products = af.gather(af.conv(x, np.full((4, 4, 3, 3), 0.1), pad=1), indices, axis=axis).named("picked")
    assert af.diverges(products, "m1,m5")["m5"].of("picked").inherited
    # Other places are other numbers: the codes tell them apart.
    chips = [Engine.of(af.target(chip)) for chip in ("m1", "m5")]
    programs = [
        af.compile(af.gather(x, places, axis=axis), target=chip).program
        for chip, places in (("m1", indices), ("m5", indices[::-1]))
    ]
    walks = [walk(chip, program.module, {}) for chip, program in zip(chips, programs, strict=True)]
    ends = [digests(each)[next(op for op in each.module.ops if op.kind == "live_out").operands[0]] for each in walks]
    assert (ends[0] == ends[1]) == (indices == indices[::-1])


def test_the_network_that_breaks_on_an_m1(tmp_path):
    model, saved = str(EXAMPLES / "breaks_on_m1.py"), tmp_path / "fixed.aneforge"
    told = run("risks", model, "--target", "m1", "--out", str(saved))
    assert told.returncode == 1, told.stderr
    assert "ahead" in told.stdout
    assert "slice another axis" in told.stdout
    assert run("risks", model, "--target", "m5").returncode == 0
    assert run("risks", str(saved), "--target", "m1").returncode == 0
    pair = json.loads(run("compare", "--any-input", model, "--target", "m1,m5", "--json").stdout)
    assert pair["reference"] == "m1"
    assert pair["targets"]["m5"]["layers"][0]["node"] == "ahead"
    assert pair["targets"]["m5"]["layers"][0]["may_be_lost"]
    left = json.loads(run("compare", "--any-input", str(saved), "--target", "m1,m5", "--json").stdout)
    assert not any(each["may_be_lost"] for each in left["targets"]["m5"]["layers"])
    data = np.random.default_rng(0).normal(0, 4000, (1, 1, 1, 512))
    given, repaired = load_model(model), af.load_graph(saved)
    broken, fixed, right = (
        af.compile(graph, target=chip)(data) for graph, chip in ((given, "m1"), (repaired, "m1"), (given, "m5"))
    )
    assert np.array_equal(fixed, right)
    assert np.abs(broken - right).max() > 0.1
    assert run("compare", "--any-input", model, "--target", "m1").returncode == 2


def test_data_do_not_hide_what_a_chip_loses():
    """A run on the M2 makes these slices infinite: the ranges that the data show must not say that it cannot."""
    x = af.input((1, 1, 1, 64), name="x")
    cut = x.slice_by_size([0, 0, 0, 3], [1, 1, 1, 32]).named("cut")
    out = (cut - 1.0).named("less")
    report = str(af.diverges(out, "m2,m5", inputs={"x": np.full((1, 1, 1, 64), 9000.0)}))
    assert [line.split()[2] for line in report.splitlines() if line.startswith(("cut", "less"))] == ["lost", "lost"]
    safe = str(af.diverges(out, "m2,m5", inputs={"x": np.full((1, 1, 1, 64), 900.0)}))
    assert "lost" not in safe


def test_an_error_that_is_not_known_stays_a_number():
    """A root near zero has no bound on its error; times a gain that is exact, that is no bound either, and not NaN."""
    gain = np.full(1024, 1.5, np.float16)
    out = (
        af.input((4, 1024), name="x", max_abs=4).rms_norm(gain).linear(np.full((8, 1024), 0.01, np.float16)).named("y")
    )
    found = af.diverges(out, "m1,m5").only
    assert list(found)
    for entry in found:
        assert not math.isnan(entry.bound)
        assert not any(math.isnan(value.error) for value in entry.ranges)
    page = report(out, "m1,m5", changes=0)
    assert "NaN" not in json.dumps(page.to_json())
