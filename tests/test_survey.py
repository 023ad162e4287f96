"""A survey: everything that targets refuse and rewrite of a graph, in one run of the first phases."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import random_graph, rewritten_graph

import aneforge as af
from aneforge.chips.chip import compiler_target
from aneforge.compiler.survey import survey
from aneforge.graph import Graph
from aneforge.graph.ops.host import host
from aneforge.study.programs import compile_all

CHIPS = ("h11", "h12", "h13", "h14g", "h16", "h17s", "u1")


def surveyed(graph, *chips, route=None):
    """The branch of each chip, by name."""
    return survey(graph, [compiler_target(chip) for chip in chips], route)


def answer(branch, chip):
    """What a branch says of a chip: its refusals in words, its rewrites, and the ops that are left."""
    refusals = {node: (refusal.rule, refusal.reason) for node, refusal in branch.refusals.get(chip, {}).items()}
    left = None if branch.draft is None else [(node.op, node.shape) for node in branch.draft.graph]
    return refusals, branch.records, left


def left_to_host(x, kind="NonZero"):
    return host((x,), language="onnx", kind=kind, body="", shape=x.shape, reason="no engine has it")


def test_refusals_of_all_phases_come_from_one_survey():
    x = af.input((1, 6, 8, 8), name="x")
    wide = af.concat([x.reshape(1, 1, 1, 384)] * 60, axis=3).relu().named("wide")
    divided = (x / (x.abs() + 0.5)).named("divided")
    graph = Graph([left_to_host(x).named("indices"), wide, divided, x.tanh().named("plain")])
    refusals = surveyed(graph, "h12", route="direct")["h12"].refusals["h12"]
    rules = {node: refusal.rule for node, refusal in refusals.items()}
    assert rules["indices"] == "host-op"  # phase 0
    assert rules["divided"] == "legacy-divide"  # a rewrite of phase 2
    assert rules["wide"] == "extent"  # a check of phase 2
    assert "plain" not in rules


def test_an_input_stands_for_a_refused_node_and_what_it_reads_leaves():
    x = af.input((1, 6, 8, 8), name="x")
    before = x.relu().named("before")
    after = left_to_host(before).named("away").tanh().named("after")
    graph = Graph([after])
    branch = surveyed(graph, "h13")["h13"]
    assert list(branch.refusals["h13"]) == ["away"]
    assert branch.draft is not None
    rest = branch.draft.graph
    names = branch.draft.names
    assert {names[node.uid] for node in rest.inputs} == {"x", "away"}
    assert {names[node.uid] for node in rest.outputs} == {"before", "after"}
    assert [op.kind for op in branch.draft.code if op.kind in ("relu", "tanh")] == ["relu", "tanh"]


def test_a_graph_without_anything_left_has_no_draft():
    x = af.input((1, 6, 8, 8), name="x")
    branch = surveyed(Graph([left_to_host(x)]), "h13")["h13"]
    assert branch.draft is None
    assert len(branch.refusals["h13"]) == 1


def test_integers_that_are_handed_on_end_a_survey_once():
    ids = af.input((4,), name="ids", dtype="int32")
    x = af.input((1, 6, 8, 8), name="x")
    branch = surveyed(Graph([ids, x.relu()]), "h13")["h13"]
    assert {node: refusal.rule for node, refusal in branch.refusals["h13"].items()} == {"ids": "host-op"}


def test_a_node_that_a_refused_op_absorbed_is_judged_by_itself():
    """Two reshapes are one op by the time phase 2 refuses it; without the first, the second is refused as well."""
    x = af.input((1, 4, 8, 8), name="x")
    first = x.relu().reshape(4, 64).named("first")
    graph = Graph([first.reshape(1, 8, 4, 8).named("second").tanh()])
    refusals = surveyed(graph, "h12", route="direct")["h12"].refusals["h12"]
    assert {node: refusal.rule for node, refusal in refusals.items()} == {
        "first": "legacy-reshape",
        "second": "legacy-reshape",
    }


def test_a_pass_reports_every_op_that_it_refuses():
    x = af.input((1, 6, 8, 8), name="x")
    outs = [(x / (x.abs() + number)).named(f"divided_{number}") for number in (1.0, 2.0)]
    error = compile_all(Graph(outs), "h12", route="direct").refused["h12"]
    assert [refusal.node for refusal in error.refusals] == ["divided_1.0", "divided_2.0"]
    assert "and 1 more node" in str(error)


def mixed_graph(seed):
    """A random graph with nodes that some chips refuse."""
    rng = np.random.default_rng(seed)
    out = (random_graph if seed % 2 else rewritten_graph)(seed)[0]
    tips = out if isinstance(out, list) else [out]
    y = tips[-1]
    extra = [
        left_to_host(y).tanh(),
        y / (y.abs() + 0.5),
        af.sdpa(y, y, y).relu(),
        af.topk(y.reshape(y.shape[1], y.shape[2] * y.shape[3]), 2),
        y.reshape(y.shape[1], y.shape[2] * y.shape[3]).reshape(1, y.shape[2], y.shape[1], y.shape[3]),
    ]
    return Graph([*tips, *(extra[int(place)] for place in rng.choice(len(extra), 3, replace=False))])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("route", [None, "direct"])
def test_chips_together_give_what_each_gives_alone(seed, route):
    graph = mixed_graph(seed)
    together = surveyed(graph, *CHIPS, route=route)
    for chip in CHIPS:
        alone = surveyed(graph, chip, route=route)[chip]
        assert answer(together[chip], chip) == answer(alone, chip), chip


@pytest.mark.parametrize("seed", range(12))
def test_what_a_survey_leaves_compiles(seed):
    """The rest of the graph is one that every phase takes: nothing of it is refused."""
    graph = mixed_graph(seed)
    for chip, branch in surveyed(graph, "h13", "h17s").items():
        if branch.draft is not None:
            assert not compile_all(Graph(branch.draft.graph.outputs), chip).refused
