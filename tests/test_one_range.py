"""One range analysis: check, compile, risks and diverges say the same of every node, and what they say is sound."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph, rewritten_graph
from test_diverges import mixed_graph, quantised_graph

import aneforge as af
from aneforge.chips import all_targets
from aneforge.compiler.legal.findings import (
    ANY_DATA,
    ANY_FINITE,
    PROMISED,
    WORST_CASE,
    Finding,
    NumberFinding,
    PlacementFinding,
)
from aneforge.compiler.legal.rules.base import OneOf, Structure, rule_records
from aneforge.graph.encoding import Encoded
from aneforge.graph.graph import Graph
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import remade
from aneforge.graph.ops.host import host
from aneforge.graph.reference import evaluate
from aneforge.numerics.analysis import analysis, has_questions
from aneforge.numerics.losses import LOSSES, Risk
from aneforge.numerics.ranges import OPEN, Value, one_of_each_arithmetic, promised_values
from aneforge.numerics.transfer import walk
from aneforge.reports import report
from aneforge.sim.engine import Engine
from aneforge.sim.half import gained, gained_plain
from aneforge.sim.mac import CEILING
from aneforge.sim.nodes import NodeValues
from aneforge.study import calibrate, divergences_between, graph_verdicts, risks_on
from aneforge.study.model import Model, warn_of
from aneforge.study.programs import compile_all

CHIPS = one_of_each_arithmetic({chip.name: chip for chip in all_targets(only_28=True)})
"""One target of each kind of arithmetic."""


def program_of(graph, chip):
    """The program of a chip; None where it refuses the graph, or some of it."""
    return next(iter(compile_all(graph, [CHIPS[chip]]).values()), None)


# What each command says of the nodes of a graph.


def checked(graph, chip):
    """The losses that check lists, by node and rule."""
    entries = af.preflight(graph, chip, None).risk
    return {(entry.name, finding.rule) for entry in entries for finding in entry.findings if finding.rule in LOSSES}


def warned(graph, program):
    """The rules of the losses that a compile warns of, with how many nodes each has at least."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of(Model(graph, program), times=False)
    texts = [str(warning.message) for warning in caught]
    return {
        (name, rule)
        for text in texts
        for rule in LOSSES
        if f"rule {rule}," in text
        for name in text.partition(": ")[0].partition(" and ")[0].split(", ")
    }


def due(listed):
    return {(risk.node, risk.rule) for risk in listed if risk.due}


def lost(listed):
    return {risk.node for risk in listed if risk.lost}


# The contradictions that three analyses had.


def cut(x):
    return x[..., 3:11].named("cut")


@pytest.mark.parametrize("other", ["m5", "m3"])
def test_a_slice_of_a_softmax_is_silent_everywhere(other):
    graph = Graph.of(cut(af.input((1, 2, 4, 16), name="x").softmax(-1)))
    program = program_of(graph, "h13")
    assert not checked(graph, "m1")
    assert not warned(graph, program)
    assert not risks_on(graph, "m1")
    entry = divergences_between(graph, "m1", other).of("cut")
    assert entry is not None
    assert not entry.may_be_lost
    assert not any("4094" in cause for cause in entry.causes)
    axes = {axis.name for node, verdict in graph_verdicts(graph, "m1", other) for axis in verdict.axes if node.name}
    assert "slice route" not in axes


def test_a_slice_of_an_input_that_nobody_bounded_is_named_everywhere():
    graph = Graph.of(cut(af.input((1, 2, 4, 16), name="x")))
    program = program_of(graph, "h13")
    found = {("cut", "slice-saturation")}
    assert checked(graph, "m1") == found
    assert warned(graph, program) == found
    assert due(risks_on(graph, "m1")) == found
    (risk,) = risks_on(graph, "m1")
    assert (risk.basis, risk.limit, risk.reaches) == (ANY_FINITE, 4094.0, FP16_MAX)
    (entry,) = divergences_between(graph, "m1", "m5")
    assert (entry.node, entry.may_be_lost) == ("cut", True)
    assert [verdict.verdict for _, verdict in graph_verdicts(graph, "m1", "m5")] == ["saturation"]


def test_a_slice_behind_a_sum_that_can_be_lost_is_named_too():
    """Numbers of ordinary size clamp at 4094, long before the sum in front of the slice is infinite."""
    out = cut(af.conv(af.input((1, 4, 4, 16), name="x"), np.ones((4, 4, 1, 1))).named("sum"))
    assert {(risk.node, risk.rule) for risk in risks_on(out, "m1")} == {
        ("sum", "accumulator"),
        ("cut", "slice-saturation"),
    }
    assert checked(out, "m1") == {("cut", "slice-saturation")}


def crashing():
    blocks = Encoded.blockwise(np.ones((32, 64, 1, 1), np.int8), np.full((32, 2, 1, 1), 0.5, np.float16))
    layer = af.input((1, 16), name="x", max_abs=1.0).linear(np.ones((8, 16)))
    rounded = (af.input((4, 8), name="x", max_abs=4.0) * 8.0).round() * 0.125
    return {
        "blocks": (af.conv(af.input((1, 64, 1, 64), name="x", max_abs=1.0), blocks), []),
        "round": (rounded, ["chain-pattern"]),
        "hard-swish": (layer * layer.sigmoid_hard(1 / 6, 0.5), ["chain-pattern"]),
    }


@pytest.mark.parametrize("name", ["blocks", "round", "hard-swish"])
def test_findings_without_a_number_for_a_limit_crash_nothing(name):
    out, rules = crashing()[name]
    out = out.named("last")
    listed = risks_on(out, "m5")
    assert [risk.rule for risk in listed] == rules
    assert all(risk.basis == ANY_DATA and risk.limit == 0.0 for risk in listed)
    page = report(out, "m5", changes=0)
    assert [row.kind for row in page.risks] == rules
    grades = [row.grade for row in page.findings]
    assert grades == (["placement"] if name == "blocks" else ["risk"])


# Two kinds of findings.


def test_numbers_and_placement_are_two_lists():
    out, _ = crashing()["blocks"]
    found = af.preflight(out, "m5")
    assert (len(found.risk), len(found.placement), found.worst()) == (0, 1, "placement")
    (entry,) = found.placement
    (finding,) = entry.findings
    assert isinstance(finding, PlacementFinding)
    assert (finding.effect, finding.runtimes) == ("off-engine", ("coreml", "coreai"))
    assert isinstance(finding.limit, Structure)
    assert entry.to_json()["limit"] == {"structure": "one scale for each output channel or one for the tensor"}
    assert (entry.status, entry.verdict) == ("placement", "cpu")
    assert af.check(out, "m5", fail_on="placement").failed == ["m5"]
    assert af.check(out, "m5", fail_on="risk").ok
    wrong = af.preflight(crashing()["round"][0], "m5")
    assert (len(wrong.risk), len(wrong.placement), wrong.worst()) == (1, 0, "risk")
    assert isinstance(wrong.risk[0].findings[0], NumberFinding)


@pytest.mark.parametrize("chip", ["m1", "m3", "m5"])
def test_a_limit_is_a_number_values_or_a_structure(chip):
    """Of every finding on random graphs, and of every record: no string that a reader has to guess."""
    for seed in range(4):
        result = af.preflight(rewritten_graph(seed)[0], chip)
        for status in ("decompose", "reject", "oversize", "risk", "placement"):
            for finding in (finding for entry in result.of(status) for finding in entry.findings):
                check_limit(finding)
    for records in rule_records().values():
        for record in records:
            assert isinstance(record.get("v", 0), (int, float, list, tuple, type(None))), record
            assert not isinstance(record.get("v"), bool), record


def check_limit(finding: Finding):
    if isinstance(finding, NumberFinding):
        assert isinstance(finding.limit, float)
        assert isinstance(finding.reaches, float)
    else:
        assert isinstance(finding, PlacementFinding)
        assert finding.limit is None or isinstance(finding.limit, (int, float, tuple, OneOf, Structure))
        assert not isinstance(finding.limit, bool)


# Agreement and soundness.


MAKERS = {
    "plain": random_graph,
    "rewritten": rewritten_graph,
    "mixed": lambda seed: mixed_graph(np.random.default_rng(seed)),
    "quantised": lambda seed: quantised_graph(np.random.default_rng(seed)),
}


def promised(out, bound):
    """A graph whose inputs promise a bound, or nothing."""
    replaced = {}
    for node in Graph.of(out).nodes:
        if node.op == "input":
            replaced[node.uid] = af.input(node.shape, max_abs=bound, name=node.name)
        elif any(operand.uid in replaced for operand in node.inputs):
            operands = tuple(replaced.get(operand.uid, operand) for operand in node.inputs)
            replaced[node.uid] = remade(node, operands, node.name)
    return Graph([replaced[output.uid] for output in Graph.of(out).outputs])


def leading_to(graph):
    """For each node, by uid, the names of it and of all that it rests on."""
    names, known = graph.names(), {}
    for node in graph.nodes:
        known[node.uid] = {names[node.uid]}.union(*(known[operand.uid] for operand in node.inputs))
    return known


def samples(graph, size, rng):
    """At the ends of a range, at one end, and inside, at all magnitudes."""
    (port,) = graph.inputs
    ends = rng.choice([-size, size], port.shape)
    inside = rng.uniform(-1, 1, port.shape) * size ** rng.uniform(0, 1, port.shape)
    return [{"x": array.astype(np.float16)} for array in (ends, np.full(port.shape, size), inside)]


def losing_nodes(graph, program, feeds):
    """Nodes with a number that float64 keeps and the simulated chip does not."""
    names = graph.names()
    nodes = [node for node in graph.nodes if not node.definition.leaf]
    values = NodeValues(program, Model(graph, program).run(feeds, trace=True))
    with np.errstate(all="ignore"):
        exact = evaluate(Graph(nodes), {graph.inputs[0]: feeds["x"].astype(np.float64)})
    for node, wanted in zip(nodes, exact, strict=True):
        if names[node.uid] in values and node.dtype != "bool":
            simulated = np.asarray(values[names[node.uid]], np.float64).reshape(-1)
            if (np.isfinite(np.asarray(wanted, np.float64).reshape(-1)) & ~np.isfinite(simulated)).any():
                yield node


def cases():
    return given(
        seed=st.integers(0, 10**6),
        make=st.sampled_from(sorted(MAKERS)),
        bound=st.sampled_from([None, None, 0.5, 4.0, 100.0, 3000.0, 6000.0, FP16_MAX]),
        chip=st.sampled_from(sorted(CHIPS)),
    )


@settings(max_examples=40, deadline=None)
@cases()
def test_every_command_says_the_same_of_every_node(seed, make, bound, chip):
    graph = promised(MAKERS[make](seed)[0], bound)
    program = program_of(graph, chip)
    if program is None:
        return  # what the engine runs of it is another graph
    listed = [risk for risk in risks_on(graph, chip) if risk.rule in LOSSES]
    assert checked(graph, chip) == due(listed)
    told = warned(graph, program)
    assert told <= due(listed)
    assert {rule for _, rule in told} == {rule for _, rule in due(listed)}
    for other in ("h15", "h17"):
        if other == chip or program_of(graph, other) is None:
            continue
        at_risk = lost(listed) | lost(risks_on(graph, other))
        stopped = {stop.node for name in (chip, other) for stop in risks_on(graph, name).coverage.stops}
        names, behind = graph.names(), leading_to(graph)
        by_name = {names[node.uid]: node for node in graph.nodes}
        for entry in divergences_between(graph, chip, other):
            if entry.may_be_lost:
                assert behind[by_name[entry.node].uid] & (at_risk | stopped), entry.node
        clamped = {risk.node for risk in listed if risk.rule == "slice-saturation"}
        elsewhere = lost(risks_on(graph, other)) | stopped
        for node in clamped:
            if not behind[by_name[node].uid] & elsewhere:
                entry = divergences_between(graph, chip, other).of(node)
                assert entry is not None, node
                assert entry.may_be_lost, node


@settings(max_examples=60, deadline=None)
@cases()
def test_no_number_is_lost_that_no_finding_covers(seed, make, bound, chip):
    graph = promised(MAKERS[make](seed)[0], bound)
    program = program_of(graph, chip)
    if program is None:
        return
    listed = risks_on(graph, chip)
    covered = lost(listed) | {stop.node for stop in listed.coverage.stops}
    behind = leading_to(graph)
    for feeds in samples(graph, FP16_MAX if bound is None else bound, np.random.default_rng(seed)):
        for node in losing_nodes(graph, program, feeds):
            assert behind[node.uid] & covered, (node.op, node.name)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), chip=st.sampled_from(sorted(CHIPS)))
def test_what_promises_allow_really_happens(seed, chip):
    """A loss that rests on a promise is met by some data within it: bounds one behind another are told apart."""
    rng = np.random.default_rng(seed)
    bound = float(rng.choice([20.0, 300.0, 5000.0, 40000.0]))
    x = af.input((4, 64), max_abs=bound, name="x")
    kernel = rng.choice([-0.5, 0.5], (3, 64))
    forms = [x.exp(), x.square(), x.sum(1), x.linear(kernel), x[:, 1:], x * 2.0 + 5.0]
    graph = Graph.of(forms[int(rng.integers(len(forms)))].named("first"))
    program = program_of(graph, chip)
    if program is None:
        return
    arrays = [np.full((4, 64), min(bound, size)) for size in (12.0, bound)] + [np.tile(2 * bound * kernel[0], (4, 1))]
    feeds = [{"x": array.astype(np.float16)} for array in arrays]
    met = {node.name for sample in feeds for node in losing_nodes(graph, program, sample)}
    for risk in risks_on(graph, chip):
        if risk.lost:
            assert risk.basis == PROMISED
            assert "first" in met, risk


# What a loss rests on.


def basis(out, node, chip="m1"):
    return {risk.rule: risk.basis for risk in risks_on(out, chip) if risk.node == node and risk.lost}


def test_promises_are_told_from_any_finite_input():
    free, bounded = af.input((4, 64), name="free"), af.input((4, 64), name="bounded", max_abs=300.0)
    assert basis(free.square().named("s"), "s") == {"overflow": ANY_FINITE}
    assert basis(bounded.square().named("s"), "s") == {"overflow": PROMISED}
    assert basis((free.tanh() * 60000.0 + 60000.0).named("s"), "s") == {"overflow": PROMISED}
    assert basis((free.clip(-300, 300)).square().named("s"), "s") == {"overflow": PROMISED}
    assert basis(af.minimum(free.relu(), af.const(np.full((4, 64), 300.0))).square().named("s"), "s") == {
        "overflow": PROMISED
    }
    assert basis((free * 0.01).square().named("s"), "s") == {"overflow": ANY_FINITE}
    assert basis((bounded + free).named("s"), "s") == {"overflow": ANY_FINITE}
    assert basis(af.image_input((1, 3, 4, 4), scale=2.0, name="image").square().named("s"), "s") == {
        "overflow": PROMISED
    }


def test_bounds_one_behind_another_are_told_from_what_can_happen():
    x = af.input((4, 64), name="x", max_abs=8.0)
    first = x.linear(np.ones((64, 64))).named("first")
    assert not basis(first, "first")
    signs = np.where(np.arange(64) % 2, -1.0, 1.0)
    second = first.linear(np.tile(signs, (8, 1))).named("second")  # equal numbers, which cancel
    assert basis(second, "second") == {"accumulator": WORST_CASE}
    assert basis(first.exp().named("power"), "power") == {"overflow": PROMISED}
    assert not checked(second, "m1")  # healthy networks are full of such
    assert checked(first.exp().named("power"), "m1") == {("power", "overflow")}
    turned = (x - x.transpose([1, 0]).transpose([1, 0])).named("zero")
    assert basis((turned * 8000.0).named("still"), "still") == {"overflow": WORST_CASE}


def test_ranges_that_are_given_count_as_promises():
    out = af.input((4, 64), name="x").square().named("s")
    (risk,) = risks_on(out, "m1", 300.0)
    assert (risk.basis, risk.due) == (PROMISED, True)
    assert not risks_on(out, "m1", 200.0)


def test_reports_say_what_a_loss_rests_on():
    out = [
        af.input((4, 64), name="a").square().named("s"),
        af.input((4, 64), name="b", max_abs=300).square().named("t"),
    ]
    text = str(af.risks(out, "m1"))
    assert ANY_FINITE in text
    assert PROMISED in text
    listed = af.risks(out, "m1").to_json()["targets"]["m1"]["risks"]
    assert {entry["node"]: entry["basis"] for entry in listed} == {"s": ANY_FINITE, "t": PROMISED}
    assert "rests on: what the inputs promise" in str(af.check(out, "m1"))
    (entry,) = af.preflight(out, "m1").risk
    assert (entry.name, entry.to_json()["basis"]) == ("t", PROMISED)
    assert {row.basis for row in report(out, "m1", changes=0).risks} == {ANY_FINITE, PROMISED}


@pytest.mark.parametrize(("size", "rules"), [(9000.0, {"slice-saturation"}), (90.0, set())])
def test_a_table_of_the_host_bounds_what_check_and_risks_see(size, rules):
    table, ids = af.const(np.full((16, 64), size)), af.input((1, 5), dtype="int32", name="ids")
    settings = {"language": "onnx", "kind": "Gather", "body": "", "reason": "its indices are integers"}
    out = host([table, ids], shape=(1, 5, 64), **settings).named("embed")[..., 3:9].named("cut").tanh()
    assert {rule for _, rule in checked(out, "m1")} == rules
    assert {risk.rule for risk in risks_on(out, "m1")} == rules
    free = host([af.input((16, 64)), ids], shape=(1, 5, 64), **settings)[..., 3:9].named("cut").tanh()
    assert checked(free, "m1") == {("cut", "slice-saturation")}
    (risk,) = risks_on(free, "m1")
    assert risk.basis == ANY_FINITE


# What was missing.


def attention(keys, **promise):
    q, k, v = (af.input((1, 2, rows, 16), name=name, **promise) for name, rows in (("q", 8), ("k", keys), ("v", keys)))
    return af.sdpa(q, k, v).named("seen")


def test_products_inside_an_attention_layer_underflow():
    """Even probabilities of 400 keys times small values, and small scores (N11, N73)."""
    spelled = {risk.rule for risk in risks_on(attention(400, max_abs=1e-3), "m5")}
    assert "underflow" in spelled
    (risk,) = [
        risk for risk in risks_on(attention(400), "m5", {"q": 4.0, "k": 4.0, "v": 0.01}) if risk.rule == "underflow"
    ]
    assert "400 even probabilities times values up to 0.01" in risk.message
    (risk,) = [
        risk for risk in risks_on(attention(16), "m5", {"q": 0.01, "k": 0.01, "v": 4.0}) if risk.rule == "underflow"
    ]
    assert "16 products of values up to 0.01" in risk.message
    assert not risks_on(attention(16), "m5", 2.0)
    # The simulator loses it, too.
    out = attention(400)
    rng = np.random.default_rng(0)
    feeds = {"q": np.zeros((1, 2, 8, 16)), "k": np.zeros((1, 2, 400, 16)), "v": rng.uniform(0, 0.01, (1, 2, 400, 16))}
    exact = af.evaluate(out, feeds)
    (found,) = af.run(out, "m5", feeds).only.outputs.values()
    off = np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact)
    (risk,) = [
        risk for risk in risks_on(out, "m5", {"q": 4.0, "k": 4.0, "v": (0.0, 0.01)}) if risk.rule == "underflow"
    ]
    assert off > 0.01
    assert 0.3 < risk.expected_error / off < 3


def test_an_attention_layer_loses_scores_and_values():
    assert {risk.rule for risk in risks_on(attention(16), "m5", 60.0) if risk.lost} == {"accumulator"}
    assert {risk.rule for risk in risks_on(attention(16), "m5", {"q": 1.0, "k": 1.0, "v": 40000.0}) if risk.lost} == {
        "accumulator"
    }
    assert not risks_on(attention(400), "m5", {"q": 1.0, "k": 1.0, "v": 300.0})  # a mean, however many there are


@pytest.mark.parametrize("op", ["round", "floor", "ceil"])
def test_whole_numbers_before_a_scale(op):
    out = (getattr(af.input((4, 8), name="x", max_abs=9.0), op)() * 0.125).named("scaled")
    (entry,) = af.preflight(out, "m5").risk
    assert (entry.name, entry.rule, entry.basis) == ("scaled", "chain-pattern", ANY_DATA)
    assert entry.evidence.confidence == ("measured" if op == "round" else "inferred")
    assert entry.evidence.conflict_id == (None if op == "round" else "U145")
    assert [risk.node for risk in risks_on(out, "m5")] == ["scaled"]
    assert not af.preflight(out, "m3").risk


# The walk itself.


def test_equal_blocks_are_worked_out_once(monkeypatch):
    from aneforge.numerics import transfer

    calls = []
    rule = transfer.value_of

    def counted(engine, module, op, read):
        calls.append(op.kind)
        return rule(engine, module, op, read)

    monkeypatch.setattr(transfer, "value_of", counted)
    y = af.input((4, 8), name="x", max_abs=1.0)
    for _ in range(50):
        y = af.concat([y.softmax(-1), y.sigmoid()], axis=1).linear(np.ones((8, 16)))
    graph = Graph.of(y)
    program = program_of(graph, "h13")
    found = analysis(graph, graph.names(), program.module, program.target, {"x": Value(-1.0, 1.0)})
    assert len(program.module.ops) > 200
    assert len(calls) < 20
    last = found.value_of(y)
    assert last is not None
    assert (last.low, last.high) == (pytest.approx(0.0, abs=0.01), pytest.approx(16.1, rel=0.02))


def test_nothing_is_walked_where_there_is_no_question():
    x = af.input((1, 4, 8, 8), name="x")
    plain = af.conv(x, np.ones((4, 4, 3, 3)), pad=1).relu().max_pool(2, 2)
    asked = [plain[..., 1:], plain.softmax(1), af.conv(af.input((1, 4, 8, 8), max_abs=1.0), np.ones((4, 4, 1, 1)))]
    for out, expected in ((plain, False), *((out, True) for out in asked)):
        graph = Graph.of(out)
        program = program_of(graph, "h13")
        assert has_questions(program.module, promised_values(graph, graph.names())) == expected


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), make=st.sampled_from(sorted(MAKERS)), chip=st.sampled_from(sorted(CHIPS)))
def test_without_a_question_nothing_is_due(seed, make, chip):
    graph = promised(MAKERS[make](seed)[0], None)
    program = program_of(graph, chip)
    if program is not None:
        known = promised_values(graph, graph.names())
        found = analysis(graph, graph.names(), program.module, CHIPS[chip], known)
        assert has_questions(program.module, known) or not any(risk.due for risk in found.risks)


def test_a_measured_range_narrows_a_derived_one():
    """Worst cases pile up; a range that data show is the narrower one, and what lies behind rests on it."""
    x = af.input((4, 64), name="x")
    hidden = x.linear(np.ones((8, 64))).named("hidden")
    out = hidden.exp().named("power")
    assert basis_of(risks_on(out, "m1", {"x": 1.0})) == {"power": "overflow"}
    assert not risks_on(out, "m1", {"x": 1.0, "hidden": (-4.0, 4.0)})
    assert basis_of(risks_on(out, "m1", {"x": 1.0, "hidden": (-100.0, 4000.0)})) == {"power": "overflow"}
    program = program_of(Graph.of(out), "h13")
    known = {"x": Value(-1.0, 1.0), "hidden": Value(-4.0, 100.0)}
    walked = walk(Engine.of(program.target), program.module, known)
    (op,) = program.lineage["hidden"].ops()
    value = walked.values[op]
    assert (value.low, value.high) == (-4.0, pytest.approx(64.0, rel=0.01))  # each end is the narrower one
    data = {"x": np.random.default_rng(0).uniform(-0.05, 0.05, (4, 64))}
    assert not risks_on(out, "m1", calibrate(out, ["m1"], [data]) | {"x": 1.0})


def basis_of(listed):
    return {risk.node: risk.rule for risk in listed if isinstance(risk, Risk) and risk.lost}


def test_open_ends_close_where_an_op_bounds_them():
    graph = Graph.of(
        [af.minimum(af.input((4, 8), name="x"), af.const(np.full((4, 8), 6.0))).named("low").relu().named("both")]
    )
    program = program_of(graph, "h13")
    values = walk(Engine.of(program.target), program.module, {"x": OPEN}).values
    low, both = (values[program.lineage[name].op] for name in ("low", "both"))
    assert (low.open_low, low.open_high, low.high) == (True, False, 6.0)
    assert (both.is_open, both.low, both.high) == (False, 0.0, 6.0)


@pytest.mark.parametrize("form", [gained_plain, gained])
def test_accumulators_are_infinite_from_their_ceiling_on(form):
    """2^15 itself is lost, and the number before it is kept, on both sides."""
    before = np.nextafter(np.float16(CEILING), np.float16(0))
    numbers = np.array([CEILING, before, -CEILING, 0.0], np.float16).reshape(1, 1, 1, 1, 4)
    found = form(numbers, None, None, 1.0, 0.0, CEILING).reshape(-1)
    assert np.isinf(found).tolist() == [True, False, True, False]
    assert found[0] > 0 > found[2]
    assert not np.isinf(form(numbers, None, None, 1.0, 0.0, np.inf)).any()


# Powers.


@pytest.mark.parametrize(("least", "most"), [(-4.0, 4.0), (0.0, 6.0), (0.5, 3.0), (-3.0, -0.25)])
@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, 0.5, -1.0, -2.5])
def test_a_power_stays_within_its_bounds_or_is_named(least, most, exponent):
    x = af.input((1, 512), name="x")
    raised = (x.clip(least, most) ** exponent).named("raised")
    numbers = np.linspace(least, most, 512).reshape(1, 512)
    with np.errstate(all="ignore"):
        finite = np.isfinite(numbers.astype(np.float16).astype(np.float64) ** exponent).all()
    crosses = (least <= 0.0 <= most and exponent < 0.0) or (least < 0.0 and exponent != int(exponent))
    assert {risk.rule for risk in risks_on(raised, "m1") if risk.node == "raised"} == (
        {"overflow"} if crosses else set()
    )
    assert finite or crosses
    model = af.compile(raised, target="m1", _check_precision=False)
    values = walk(Engine.of(model.target), model.program.module, {"x": OPEN}).values
    value = values[model.program.lineage["raised"].op]
    got = model.run({"x": numbers}).outputs["raised"]
    assert value.special or (value.low <= got.min() and got.max() <= value.high)


def test_an_epsilon_that_fp16_rounds_to_zero_is_named():
    def named(eps):
        out = af.input((4, 64), max_abs=4.0).layer_norm(np.ones(64), np.zeros(64), eps).named("norm")
        return [(risk.rule, "is zero in fp16" in risk.message) for risk in risks_on(out, "m1")]

    assert named(1e-12) == [("division", True)]
    assert named(1e-5) == named(2.0**-24) == []
