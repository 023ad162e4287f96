"""One graph on several chips: where their numbers part, against published differences and against plain arithmetic."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from random_graphs import random_graph
from test_plots import Picture, check_words, hover

import aneforge as af
from aneforge.cli import compare as command
from aneforge.cli.options import load_model
from aneforge.errors import AneforgeError
from aneforge.graph import Graph
from aneforge.numerics.compared import Comparison, Distance, NodeDifference, OutputDifference, Pair
from aneforge.sim.compare import Tally
from aneforge.sim.executor import ExecutionPlan
from aneforge.sim.inputs import drawn_sample
from aneforge.sim.nodes import NodeValues
from aneforge.study.comparison import compare
from aneforge.study.programs import compile_all

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
STATISTICS = ("elements", "changed", "max_ulp", "mean_ulp", "scaled_ulp", "max_abs", "lost")
# Every fp16 number that is not a NaN in order, each once: a step is a place in it.
_ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
ORDERED = np.unique(_ALL[~np.isnan(_ALL)])


def places(values):
    return np.searchsorted(ORDERED, values.astype(np.float16))


def convolution(kernel=3, seed=3):
    rng = np.random.default_rng(seed)
    x = af.input((1, 16, 12, 12), name="x")
    out = af.conv(x, rng.normal(0, 0.1, (16, 16, kernel, kernel)), pad=kernel // 2).named("conv")
    return out, rng.normal(size=(4, 1, 16, 12, 12))


def cut():
    """A slice that starts behind the first column."""
    return af.input((1, 1, 1, 8), name="x").slice_by_size([0, 0, 0, 1], [1, 1, 1, 7]).named("cut")


def row(value):
    data = np.ones((1, 1, 1, 8))
    data[..., 4] = value
    return data


# Published differences.


def test_winograd_parts_the_m5_and_m6_from_the_others():
    """N56: a 3 x 3 convolution has one set of bits on M1, M2 and M4 and another on M5 and M6."""
    out, data = convolution()
    found = compare(out, ["m1", "m2", "m4", "m5", "m6"], {"x": data[0]})
    assert [name for name, pair in found.pairs.items() if pair.same] == ["m2", "m4"]
    for chip in ("m5", "m6"):
        pair = found[chip]
        assert pair.first_differing == "conv"
        (node,), (output,) = pair.nodes, pair.outputs
        assert node.fidelity == output.fidelity == ("exact", "exact")
        assert node.changed > 100
        assert node.scaled_ulp <= 4
        assert 0 < output.relative < 2e-3
        assert node.op == "convolution"
    assert found.exceeds(0).keys() == {"m5", "m6"}
    assert not found.exceeds(1 << 16)


@pytest.mark.parametrize("kernel", [1, 5])
def test_other_kernels_do_not(kernel):
    out, data = convolution(kernel)
    assert compare(out, ["m1", "m2", "m4", "m5", "m6"], {"x": data[0]}).same


def test_a_width_slice_is_infinite_on_the_m1_and_m2_only():
    """N18: from 4096 on, M1 and M2 lose what M4 and M5 keep."""
    found = compare(cut(), ["m1", "m2", "m4", "m5"], {"x": row(5000.0)})
    assert found["m2"].same
    for chip in ("m4", "m5"):
        (node,) = found[chip].nodes
        assert (node.lost_reference, node.lost_here, node.lost) == (1, 0, 1)
        assert (node.changed, node.max_ulp, node.max_abs) == (1, 0, 0.0)
        assert found.exceeds(1 << 16)[chip]
    assert {name for name, at in found.first_non_finite.items() if at is not None} == {"m1", "m2"}
    assert found.first_non_finite["m1"].nodes == ("cut",)
    assert "1 lost" in str(found)
    assert "first not finite on m1, m2: layer 0, input_view (cut)" in str(found)
    assert compare(cut(), ["m1", "m2", "m4", "m5"], {"x": row(4094.0)}).same


def test_graphs_without_differing_ops_are_the_same_everywhere():
    x = af.input((1, 8, 6, 6), name="x")
    y = af.conv(x, np.random.default_rng(1).normal(size=(8, 8, 1, 1))).relu()
    out = af.concat([y.max_pool(2), x.max_pool(2)], axis=1).transpose([0, 1, 3, 2]) + 1.0
    found = compare(out, ["m1", "m2", "m3", "m4", "m5", "m6"])
    assert found.same
    assert all(pair.first_differing is None and not pair.differing for pair in found.pairs.values())
    assert "m5: the same bits in the outputs" in str(found)
    assert "most steps" not in str(found)


def test_the_unet_block_parts_where_its_ops_say():
    """M2 at the resize, M4 at the sine that the M1 does not have, M5 at its first Winograd form: C72 has one silu."""
    found = compare(load_model(str(EXAMPLES / "unet_block.py")), ["m1", "m2", "m4", "m5", "float64"])
    assert found["m2"].first_differing == "upsample_bilinear_0"
    assert found["m4"].first_differing == "sin_0"
    assert found["m5"].first_differing == "conv_0"
    sine = next(each for each in found["m4"].nodes if each.node == "sin_0")
    assert sine.basis == "modelled"
    for chip, pair in found.pairs.items():
        assert len(pair.nodes) + len(pair.not_compared) == 31
        assert 0 < pair.outputs[0].relative < 5e-3
        assert pair.outputs[0].basis == "assumed"
        assert found.float64[chip]["noise"].relative < 0.05


# Statistics.


def test_steps_lost_numbers_and_scale_by_hand():
    found = Tally()
    one = np.array([1.0, -0.0, 2.0**-24, 1024.0, np.inf, 3.0, np.inf, np.nan], np.float16)
    two = np.array([1.0 + 2.0**-9, 0.0, -(2.0**-24), 1025.0, 5.0, -np.inf, -np.inf, np.inf], np.float16)
    found.add(one, two)
    assert (found.elements, found.changed) == (8, 7)  # a NaN is read as infinity
    assert (found.lost_first, found.lost_second, found.lost) == (1, 1, 2)
    # 2, 0, 2 and 1 steps; both infinities are 63488 apart: 2 * 0x7c00.
    assert found.max_ulp == 63488
    assert found.mean_ulp == (2 + 0 + 2 + 1 + 63488 + 0) / 6
    assert found.max_abs == 1.0
    assert found.scaled_ulp == 1.0  # fp16 has steps of one at 1024
    gap = (2.0**-9) ** 2 + (2.0**-23) ** 2 + 1
    assert found.relative == pytest.approx((gap / (1 + 2.0**-48 + 1024.0**2)) ** 0.5)


def test_truth_values_are_ones_and_zeros():
    found = Tally()
    found.add(np.array([True, False, True]), np.array([True, True, False]))
    assert (found.changed, found.max_ulp, found.max_abs) == (2, 0x3C00, 1.0)


def test_steps_are_places_in_the_list_of_all_numbers():
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, 1 << 16, 4000).astype(np.uint16).view(np.float16) for _ in range(2))
    kept = np.isfinite(a) & np.isfinite(b)
    a, b = a[kept], b[kept]
    found = Tally()
    found.add(a, b)
    apart = np.abs(places(a) - places(b))
    assert found.max_ulp == apart.max()
    assert found.mean_ulp == pytest.approx(apart.mean())


def test_nothing_differs_from_itself():
    found = Tally()
    values = np.array([1.0, np.inf, -2.0], np.float16)
    found.add(values, values)
    assert (found.changed, found.max_ulp, found.mean_ulp, found.relative, found.cosine) == (0, 0, 0.0, 0.0, 1.0)
    assert found.lost == 0


def test_both_directions_give_the_same_figures():
    out, data = convolution()
    x = out.inputs[0]
    graph = [out.gelu(), (x * 3000.0).slice_by_size([0, 0, 0, 1], [1, 16, 12, 11])]
    forth, back = (compare(graph, pair, {"x": data[0]}) for pair in (["m1", "m5"], ["m5", "m1"]))
    one, two = forth["m5"], back["m1"]
    assert any(each.lost for each in one.outputs)
    for a, b in zip((*one.nodes, *one.outputs), (*two.nodes, *two.outputs), strict=True):
        assert a.node == b.node
        assert [getattr(a, name) for name in STATISTICS] == [getattr(b, name) for name in STATISTICS]
        assert (a.lost_reference, a.lost_here) == (b.lost_here, b.lost_reference)
        assert a.fidelity == b.fidelity[::-1]
    assert [each.cosine for each in one.outputs] == pytest.approx([each.cosine for each in two.outputs], rel=1e-12)
    assert {each for each in forth.first_non_finite.values() if each} == {
        each for each in back.first_non_finite.values() if each
    }


def test_several_samples_are_one_long_result():
    out, data = convolution()
    found = compare(out, ["m1", "m5"], [{"x": each} for each in data])
    assert found.samples == 4
    one, two = (
        np.concatenate([af.compile(out, target=chip)(each) for each in data]).astype(np.float64)
        for chip in ("m1", "m5")
    )
    apart = np.abs(places(one) - places(two))
    (output,) = found["m5"].outputs
    assert output.elements == one.size
    assert output.changed == (one != two).sum()
    assert output.max_ulp == apart.max()
    assert output.mean_ulp == pytest.approx(apart.mean())
    assert output.max_abs == np.abs(one - two).max()
    assert output.relative == pytest.approx(np.linalg.norm(one - two) / np.linalg.norm(one))
    cosine = (one * two).sum() / np.linalg.norm(one) / np.linalg.norm(two)
    assert output.cosine == pytest.approx(cosine, abs=1e-12)
    (node,) = found["m5"].nodes
    assert [getattr(node, name) for name in STATISTICS] == [getattr(output, name) for name in STATISTICS]


def test_the_first_step_that_is_not_finite_is_the_earliest_of_all_samples():
    x = af.input((1, 4), name="x")
    out = (x * 300.0).named("early") * 300.0
    samples = [[np.full((1, 4), value)] for value in (0.1, 10.0, 300.0, 300.0)]
    found = compare(out, ["m1", "m5"], samples)
    for at in found.first_non_finite.values():
        assert at is not None
        assert (at.nodes[-1], at.sample) == ("early", 2)
    found = compare(out, ["m1", "m5"], samples[:2])
    assert found.first_non_finite["m1"].sample == 1
    assert found.first_non_finite["m1"].nodes != ("early",)
    assert compare(out, ["m1", "m5"], samples[:1]).first_non_finite == {"m1": None, "m5": None}


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((4, 10), 1), ((2, 3, 7), 2), ((6,), 0), ((4, 1), None), ((1, 8, 1, 1), 1), ((1, 8, 2, 1), None), ((), None)],
)
def test_where_scores_lie(shape, axis):
    from aneforge.study.comparison import score_axis

    assert score_axis(shape) == axis


def test_top1_counts_rows_with_the_same_winner():
    """Scores that are nearly equal: the roundings of another form of convolution decide who wins."""
    out = convolution()[0].reshape(16, 144).named("scores")
    data = 1 + 1e-3 * np.random.default_rng(8).normal(size=(1, 16, 12, 12))
    (output,) = compare(out, ["m1", "m5"], [data])["m5"].outputs
    one, two = (af.compile(out, target=chip)(data).argmax(1) for chip in ("m1", "m5"))
    assert 0 < output.top1 < 1
    assert output.top1 == (one == two).mean()
    assert output.top1_axis == 1
    map_, pixels = convolution()
    assert compare(map_, ["m1", "m5"], pixels[0])["m5"].outputs[0].top1 is None


def test_the_distance_to_float64_is_that_of_the_graph():
    out, data = convolution()
    found = compare(out, ["m1", "float64", "m5"], {"x": data[0]})
    want = af.evaluate(out, {"x": data[0]})
    for chip in ("m1", "m5"):
        have = af.compile(out, target=chip)(data[0]).astype(np.float64)
        told = found.float64[chip]["conv"]
        assert told.relative == pytest.approx(np.linalg.norm(have - want) / np.linalg.norm(want))
        assert told.max_abs == pytest.approx(np.abs(have - want).max())
        assert told.lost == 0
    alone = compare(out, ["m1", "float64"], {"x": data[0]})
    assert not alone.pairs
    assert "error against float64" in str(alone)
    lost = compare(cut(), ["m1", "m5", "float64"], {"x": row(5000.0)}).float64
    assert (lost["m1"]["cut"].lost, lost["m5"]["cut"].lost) == (1, 0)


# Which op shows which node.


@pytest.mark.parametrize("seed", range(8))
def test_the_value_of_a_node_has_its_numbers(seed):
    out, x = random_graph(seed, steps=10)
    graph = Graph.of(out)
    names = graph.names()
    data = np.random.default_rng(seed + 100).normal(size=x.shape).astype(np.float16)
    meant = dict(zip(names.values(), af.evaluate(Graph(graph.nodes), [data]), strict=True))
    for chip in ("m1", "m5"):
        model = af.compile(graph, target=chip)
        values = NodeValues(model.program, model.run({"x": data}, trace=True))
        assert len(values) > len(graph.operations) // 2
        for name, value in values.items():
            assert value.shape == meant[name].shape
            np.testing.assert_allclose(value.astype(np.float64), meant[name], rtol=0.05, atol=0.05)


def test_an_activation_that_moved_before_a_transpose_is_still_itself():
    rng = np.random.default_rng(2)
    x = af.input((12, 12), name="x")
    hidden = x.linear(rng.normal(size=(12, 12)) / 4).named("hidden")
    active = hidden.relu().named("active")
    out = active.softmax(-1)
    data = rng.normal(size=(12, 12)).astype(np.float16)
    model = af.compile(out, target="m1")
    values = NodeValues(model.program, model.run({"x": data}, trace=True))
    for node in (hidden, active):
        want = np.asarray(af.evaluate(node, [data]))
        np.testing.assert_allclose(values[node.name].astype(np.float64), want, rtol=0.01, atol=0.01)
    assert values["hidden"].min() < 0
    assert values["active"].min() == 0


def test_nodes_are_in_the_order_of_the_program_and_none_is_forgotten():
    graph = load_model(str(EXAMPLES / "resnet.py"))
    found = compare(graph, ["m1", "m5"])
    pair = found["m5"]
    numbers = [each.place for each in pair.nodes]
    assert numbers == sorted(numbers)
    names = graph.names()
    operations = {names[each.uid] for each in graph.operations}
    assert {each.node for each in pair.nodes} | set(pair.not_compared) == operations
    assert pair.outputs[0].top1 == 1.0
    assert all("fused" not in why and " " in why for why in pair.not_compared.values())


# Speed and memory.


def counted_runs(monkeypatch):
    runs = Counter()
    plain = ExecutionPlan.run

    def run(self, feeds, trace=False):
        runs[id(self)] += 1
        return plain(self, feeds, trace)

    monkeypatch.setattr(ExecutionPlan, "run", run)
    return runs


def test_a_program_with_one_arithmetic_is_simulated_once(monkeypatch):
    out, data = convolution()
    runs = counted_runs(monkeypatch)
    found = compare(out, ["m1", "m5", "m5 pro", "h17"], [{"x": each} for each in data[:3]])
    assert found.shared == (("m5", "m5 pro", "h17"),)
    assert sorted(runs.values()) == [3, 3]
    assert found["m5"].nodes == found["m5 pro"].nodes
    assert not found["m5"].one_run
    other = compare(out, ["m5", "m1", "m5 pro"], data[0])
    assert other["m5 pro"].one_run
    assert other["m5 pro"].same
    assert "the same program and arithmetic" in str(other)


def test_one_program_with_two_arithmetics_is_simulated_twice(monkeypatch):
    out, data = convolution()
    compiled = compile_all(out, ["m4", "m5"])
    assert compiled.distinct == 1
    runs = counted_runs(monkeypatch)
    assert not compare(out, ["m4", "m5"], data[0]).same
    assert len(runs) == 2


def test_samples_are_read_one_at_a_time():
    out, data = convolution()
    alive = []

    def samples():
        for each in data:
            array = each.copy()
            assert sum(known() is not None for known in alive) <= 1
            alive.append(weakref.ref(array))
            yield {"x": array}
            del array

    assert compare(out, ["m1", "m5"], samples()).samples == len(data)


# Asking.


def test_the_reference_is_the_first_or_the_one_that_is_named():
    out, data = convolution()
    assert compare(out, "m4, m5", data[0]).reference == "m4"
    found = compare(out, ["m4", "m5"], data[0], reference="m5")
    assert (found.reference, list(found.pairs)) == ("m5", ["m4"])
    assert list(compare(out, ["m4", "m5"], data[0], reference="m1").pairs) == ["m4", "m5"]
    assert compare(out, [af.target("m1"), af.target("m5")], data[0]).targets == {"h13": "h13", "h17": "h17"}


def test_inputs_by_name_by_tensor_in_order_and_drawn():
    a, b = af.input((1, 4), name="a"), af.input((1, 4), name="b")
    out = (a - b).gelu()
    one, two = np.linspace(-2, 2, 4)[None], np.full((1, 4), 0.25)
    forms = [
        {"b": two, "a": one},
        {a: one, b: two},
        [one, two],
        (one, two),
        [[one, two]],
        iter([{"a": one, "b": two}]),
    ]
    found = [compare(out, ["m1", "m6"], form).to_json() for form in forms]
    assert all(each == found[0] for each in found[1:])
    drawn = drawn_sample(Graph.of(out))
    assert compare(out, ["m1", "m6"]).to_json() == compare(out, ["m1", "m6"], drawn).to_json()


def test_outputs_have_the_names_of_the_graph():
    """A dropout that drops nothing is its input in some programs; and one tensor may be asked for twice."""
    x = af.input((1, 32), name="x")
    kept = af.dropout(x, 0.0)
    out = [kept, x.relu(), kept]
    want = ["dropout_0", "relu_0", "dropout_0_again"]
    chips = ["m1", "m4", "m6"]
    assert all([port.name for port in af.compile(out, target=chip).program.outputs] == want for chip in chips)
    found = compare(out, [*chips, "float64"])
    assert found.same
    for pair in found.pairs.values():
        assert [each.node for each in pair.outputs] == want
    assert list(found.float64["m6"]) == want


def test_parameters_keep_their_value_unless_they_are_fed():
    x, weight = af.input((1, 4), name="x"), af.parameter(np.full((1, 4), 2.0)).named("w")
    out = x * weight
    data = np.ones((1, 4))
    for fed, want in (({"x": data}, 0.0), ({"x": data, "w": np.full((1, 4), 5.0)}, 0.0)):
        found = compare(out, ["m1", "m5", "float64"], fed)
        assert next(iter(found.float64["m5"].values())).relative == want


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (["m1"], "two chips.*m1 was named"),
        ([], "two chips.*nothing was named"),
        (["m1", "m1"], "two chips"),
        (["float64"], "two chips.*float64 was named"),
        (["m1", "m55"], "m55"),
        ("", "two chips"),
    ],
)
def test_what_is_wrong_with_targets_is_told(targets, words):
    with pytest.raises(AneforgeError, match=words):
        compare(cut(), targets)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"y": row(1.0)}, "'y' is not an input of the model. Choose from: x"),
        ({}, "x: this input has no value"),
        ({"x": np.zeros((1, 8))}, r"x: shape \[1, 8\] does not fit; expected \[1, 1, 1, 8\]"),
        ([row(1.0), row(1.0)], "2 arrays were given; the graph takes x. Give one array each."),
        ([[]], "0 arrays were given"),
        ([], "0 arrays were given"),
        (iter([]), "inputs: it holds no sample"),
        ({"x": "words"}, "it takes numbers"),
    ],
)
def test_what_is_wrong_with_inputs_is_told(inputs, words):
    with pytest.raises(AneforgeError, match=words):
        compare(cut(), ["m1", "m5"], inputs)


def test_other_wrong_questions():
    with pytest.raises(AneforgeError, match="exact, fast"):
        compare(cut(), ["m1", "m5"], mode="quick")
    with pytest.raises(AneforgeError, match="reference: float64 is not a chip"):
        compare(cut(), ["m1", "m5"], reference="float64")
    with pytest.raises(AneforgeError, match="m9: not compared with m1"):
        compare(cut(), ["m1", "m5"])["m9"]


def test_a_chip_that_refuses_is_listed_and_the_others_go_on():
    out = af.input((1, 20000), name="x") * 0.5  # 16384 along an axis of an M1 or M2, 65536 from M4 on
    found = compare(out, ["m1", "m4", "m5"])
    assert found.reference == "m4"
    assert list(found.refused) == ["m1"]
    assert "an axis of 20000" in found.refused["m1"]
    assert "m1: no program: " in str(found)
    with pytest.raises(AneforgeError, match=r"run something of the model; of m1, m2, m5 there is m5 \(m1: "):
        compare(out, ["m1", "m2", "m5"])
    with pytest.raises(AneforgeError, match="reference: m1 runs nothing of it"):
        compare(out, ["m4", "m5"], reference="m1")


def test_the_fast_mode_is_told():
    out, data = convolution()
    found = compare(out, ["m1", "m5"], data[0], mode="fast")
    assert found.same  # direct sums everywhere
    assert found["m5"].nodes[0].fidelity == ("modelled", "modelled")
    assert "fast simulation" in str(found)


# As JSON, as text, as a picture.


def test_json_is_whole_and_strict():
    found = compare(cut(), ["m1", "m4", "float64"], {"x": row(5000.0)})
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["reference"] == "m1"
    assert told["targets"] == {"m1": "h13", "m4": "h16g"}
    pair = told["pairs"]["m4"]
    assert pair["first_differing"] == "cut"
    assert pair["nodes"][0]["lost"] == 1
    assert pair["nodes"][0]["fidelity"] == ["exact", "exact"]
    assert pair["outputs"][0]["top1"] is None
    assert told["first_non_finite"]["m1"]["nodes"] == ["cut"]
    assert told["first_non_finite"]["m4"] is None
    assert told["float64"]["m1"]["cut"]["lost"] == 1


@cache
def one_node():
    out, data = convolution()
    return compare(out, ["m1", "m5"], data[0])["m5"]


def made(steps, chips=("m2", "m5"), lost=(), missing=(), name="encoder/layer_{}/mul"):
    """A comparison with given steps for every node and chip; ``lost`` and ``missing`` are places of nodes."""
    node, output = one_node().nodes[0], one_node().outputs[0]
    pairs = {}
    for number, chip in enumerate(chips):
        nodes = tuple(
            replace(
                node,
                node=name.format(place),
                place=place,
                changed=int(each[number] > 0 or place in lost),
                max_ulp=each[number],
                scaled_ulp=each[number] / 8,
                lost_here=int(place in lost),
            )
            for place, each in enumerate(steps)
            if place not in missing
        )
        last = replace(output, node="logits", max_ulp=steps[-1][number], changed=int(steps[-1][number] > 0))
        pairs[chip] = Pair(chip, nodes, (last,), {name.format(place): "held otherwise" for place in missing}, False)
    targets = dict.fromkeys(("m1", *chips), "h13")
    return Comparison("m1", targets, {}, 1, "exact", pairs, dict.fromkeys(targets), {}, ())


def many(count, chips=2, seed=0):
    draw = np.random.default_rng(seed)
    names = tuple(f"h{number}" for number in range(chips))
    steps = [[0] * chips] * 5 + [[int(2**level) for level in draw.uniform(0, 14, chips)] for _ in range(count - 5)]
    return made(steps, names)


def test_the_text_marks_cells_and_says_what_is_left_out():
    told = str(made([[0, 1], [0, 16], [3, 300], [0, 5000]], lost=(2,), missing=(1,)))
    lines = {line.split()[0]: line.split()[2:] for line in told.splitlines() if line.startswith("encoder")}
    assert lines == {
        "encoder/layer_0/mul": ["=", "1", "*", "0.125"],
        "encoder/layer_2/mul": ["1", "lost", "1", "lost", "37.5"],
        "encoder/layer_3/mul": ["=", "5,000", "****", "625"],
    }
    assert "not compared: encoder/layer_1/mul: held otherwise" in told
    assert "lost: finite on one of both only" in told
    assert "more" not in told


def test_the_text_of_many_nodes_keeps_the_first_and_the_largest():
    found = many(100)
    told = str(found)
    rows = [line.split()[0] for line in told.splitlines() if line.startswith("encoder")]
    assert len(rows) == 24
    assert rows[0] == "encoder/layer_5/mul"
    assert rows == sorted(rows, key=lambda name: int(name.split("_")[1].split("/")[0]))
    assert "... and 71 more nodes with smaller differences" in told
    most = {node: max(each.max_ulp for each in cells.values()) for node, cells in found.by_node().items()}
    kept = set(rows[1:])
    assert min(most[node] for node in kept) >= max(most[node] for node in most if node not in {*kept, rows[0]})


def test_a_modelled_difference_is_marked():
    out = af.input((1, 64), name="x").tanh()
    found = compare(out, ["m1", "m6"])
    assert found["m6"].nodes[0].basis == "modelled"
    assert "~ by an op whose numbers are modelled or assumed" in str(found)
    lines = [line for line in str(found).splitlines() if line.startswith("tanh_0")]
    assert lines
    assert "~" in lines[0]


@pytest.mark.parametrize("count", [6, 10, 60, 61, 300, 2500])
@pytest.mark.parametrize("chips", [1, 3, 27])
def test_words_of_the_heat_map_lie_on_the_sheet_and_apart(count, chips):
    picture = check_words(many(count, chips).heatmap_svg(f"{count} nodes"))
    rows = {each.get("y") for each in picture.marks("cell")}
    assert len(rows) <= 61  # with the output
    assert len(picture.marks("cell")) == len(rows) * chips
    assert len(picture.marks("label")) == len(rows)


def test_cells_of_the_heat_map_are_what_was_found():
    found = made([[0, 1], [2, 64], [0, 4096], [0, 9]], lost=(3,), missing=(1,))
    picture = Picture(found.heatmap_svg("cells"))
    cells = picture.marks("cell")
    assert len(cells) == 2 * (3 + 1)
    fills = [each.get("fill") for each in cells]
    same, lost = fills[0], fills[4]
    assert fills[2] == same
    assert fills[4] == fills[5] == lost
    assert len({same, lost, fills[1], fills[3]}) == 4
    assert picture.words("value") == ["1", "4,096", "1 lost", "1 lost", "9"]
    assert "4,096 steps" in hover(cells[3])
    assert "exact on m1, exact on m5" in hover(cells[3])
    assert "the same bits" in hover(cells[0])
    outlined = [each for each in cells if each.get("stroke-width") == "1.6"]
    assert outlined == [cells[1], cells[4]]


def test_darker_is_further():
    """Luminance falls with every doubling."""
    picture = Picture(made([[2**power, 0] for power in range(15)]).heatmap_svg("ramp"))
    fills = [each.get("fill") for each in picture.marks("cell")[:30:2]]
    light = [
        sum(share * int(fill[start : start + 2], 16) for share, start in ((0.3, 1), (0.59, 3), (0.11, 5)))
        for fill in fills
    ]
    assert light == sorted(light, reverse=True)
    assert len(set(light)) == 15


def test_a_node_that_one_chip_does_not_show_has_an_empty_cell():
    found = made([[1, 1], [2, 2], [3, 3]])
    pair = found.pairs["m2"]
    found.pairs["m2"] = replace(pair, nodes=(pair.nodes[0], pair.nodes[2]))
    picture = Picture(found.heatmap_svg("gap"))
    cells = picture.marks("cell")
    assert cells[2].get("stroke-dasharray")
    assert "no values to compare on m2 and m1" in hover(cells[2])
    assert "nothing to compare" in picture.words("legend")
    assert list(found.by_node()) == [f"encoder/layer_{place}/mul" for place in range(3)]


def test_groups_show_the_worst_of_their_nodes():
    steps = [[1, 1] for _ in range(300)]
    steps[137] = [1, 5000]
    picture = Picture(made(steps).heatmap_svg("groups"))
    assert len(picture.marks("label")) == 61
    assert [words for words in picture.words("value") if words != "1"] == ["5,000"]
    cell = next(each for each in picture.marks("cell") if "5,000" in hover(each))
    assert hover(cell).startswith("encoder/layer_137/mul")
    assert "up to 5 nodes" in " ".join(picture.words())


def test_a_picture_is_the_same_every_time_and_takes_any_name():
    found = made([[1, 2], [3, 4]], name='a<b>&\x07"{}')
    one, two = (found.heatmap_svg("<&> \u0000 title") for _ in range(2))
    assert one == two
    assert one.isascii()
    check_words(one)
    out, data = convolution()
    again = [compare(out, ["m1", "m2", "m5"], {"x": data[0]}).heatmap_svg("again") for _ in range(2)]
    assert again[0] == again[1]
    alone = compare(out, ["m1", "float64"], {"x": data[0]}).heatmap_svg("alone")
    assert "Only the reference has a program" in alone


# The command.


@pytest.fixture
def net(tmp_path):
    file = tmp_path / "net.py"
    file.write_text("from test_compare import convolution\nout = convolution()[0]\n")
    return str(file)


def test_the_command_prints_and_fails_above_a_limit(net, capsys):
    assert command.run(net, "m1,m4,m5", command.CompareOptions()) == 0
    told = capsys.readouterr()
    assert "m4: the same bits in the outputs" in told.out
    assert "m5: 1 of 1 node that both show differ, first at conv" in told.out
    assert "seed 0" in told.err
    assert command.run(net, "m1,m4", command.CompareOptions(fail_above=0)) == 0
    assert command.run(net, "m1,m4,m5", command.CompareOptions(fail_above=0)) == 1
    assert "fails: conv on m5 differs from m1" in capsys.readouterr().err
    assert command.run(net, "m1,m5", command.CompareOptions(fail_above=70000)) == 0


def test_the_command_draws_and_gives_json(net, tmp_path, capsys):
    drawn = tmp_path / "heat.svg"
    options = command.CompareOptions(samples=3, plot=str(drawn), as_json=True, fail_above=0, reference="m5")
    assert command.run(net, "m1,m5", options) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["failed"], told["samples"], told["reference"]) == (False, ["m1"], 3, "m5")
    check_words(drawn.read_text())
    for bad in ("heat.png", "none/heat.svg"):
        with pytest.raises(AneforgeError, match="heat"):
            command.run(net, "m1,m5", command.CompareOptions(plot=str(tmp_path / bad)))


def test_the_command_takes_one_sample_or_many_from_a_file(net, tmp_path, capsys):
    file = tmp_path / "x.npz"
    _, data = convolution()
    np.savez(file, x=data[0])
    command.run(net, "m1,m5", command.CompareOptions(str(file), as_json=True))
    one = json.loads(capsys.readouterr().out)
    assert one["samples"] == 1
    np.savez(file, x=data)
    found = {}
    for most in (None, 3, 1):
        command.run(net, "m1,m5", command.CompareOptions(str(file), samples=most, as_json=True))
        found[most] = json.loads(capsys.readouterr().out)
    assert [each["samples"] for each in found.values()] == [4, 3, 1]
    assert found[1]["pairs"] == one["pairs"]
    np.savez(file, x=data[0])
    with pytest.raises(AneforgeError, match="2 samples were asked for, and the arrays hold 1"):
        command.run(net, "m1,m5", command.CompareOptions(str(file), samples=2))
    np.savez(file, y=data[0])
    with pytest.raises(AneforgeError, match=r"'y' is not an input of the model\. Choose from: x"):
        command.run(net, "m1,m5", command.CompareOptions(str(file)))
    np.savez(file, x=data[0, 0, 0])
    with pytest.raises(AneforgeError, match=r"x: shape \[12, 12\] does not fit; expected \[1, 16, 12, 12\]"):
        command.run(net, "m1,m5", command.CompareOptions(str(file)))


def test_the_command_says_what_is_wrong(net, tmp_path):
    for options, words in (
        (command.CompareOptions(samples=0), "samples: 0 is not a count"),
        (command.CompareOptions(fail_above=-1), "fail_above: -1 is not"),
        (command.CompareOptions(fail_above=float("nan")), "fail_above: nan is not"),
        (command.CompareOptions(str(tmp_path / "none.npz")), "npz"),
    ):
        with pytest.raises(AneforgeError, match=words):
            command.run(net, "m1,m5", options)
    with pytest.raises(AneforgeError, match="two chips"):
        command.run(net, "m1", command.CompareOptions())


def test_samples_of_two_inputs_have_one_number(tmp_path):
    from aneforge.sim.inputs import samples_of

    a, b = af.input((1, 4), name="a"), af.input((1, 4), name="b")
    graph = Graph.of(a + b)
    with pytest.raises(AneforgeError, match="a 3, b 2"):
        samples_of(graph, {"a": np.zeros((3, 1, 4)), "b": np.zeros((2, 1, 4))})
    both = list(samples_of(graph, {"a": np.arange(12.0).reshape(3, 1, 4), "b": np.zeros((3, 1, 4))}))
    assert [each["a"][0, 0] for each in both] == [0.0, 4.0, 8.0]


def test_records_are_what_they_say():
    node = one_node().nodes[0]
    assert isinstance(node, NodeDifference)
    weak = replace(node, fidelity=("exact", "assumed"))
    assert weak.basis == "assumed"
    assert isinstance(one_node().outputs[0], OutputDifference)
    assert Distance(float("inf"), 1.0, 0).to_json()["relative"] == "inf"
