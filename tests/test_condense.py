"""A graph that repeats itself gives the answers of the whole from its short form."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge.compiler.condense import condensed
from aneforge.graph import Graph
from aneforge.study.condensed import CondensedPreflight
from aneforge.study.preflight import STATUSES
from aneforge.study.study import Study

rng = np.random.default_rng(0)
CHIPS = ["h11", "h13", "h14g", "h15", "h16s", "h17s", "h18"]
RULED = [status for status in STATUSES if status != "risk"]
"""What rules decide of single nodes; risks are found in the whole graph."""


def chain(x, block, count=200):
    for number in range(count):
        x = block(x, number)
    return x


def attention(x, number):
    weights = [np.full((32, 32), 0.01 * (1 + number % 7), np.float32) for _ in range(3)]
    q, k, v = (x.linear(weight) for weight in weights)
    return x + (q @ k.transpose([1, 0])).softmax(-1) @ v


def masked(mask):
    return chain(af.input((16, 32), name="x"), lambda x, n: (x + mask).tanh() * 0.5)


BLOCKS = {
    "pointwise": lambda: chain(af.input((1, 8, 4, 4), name="x"), lambda x, n: x.tanh() if n % 2 else x.relu(), 600),
    "attention": lambda: chain(af.input((16, 32), name="x"), attention),
    "a refused op in every block": lambda: chain(
        af.input((4, 64), name="x"), lambda x, n: (x.relu() + af.topk(x, 64)).exp() * 0.5
    ),
    "a rewritten op in every block": lambda: chain(
        af.input((4, 64), name="x"), lambda x, n: x.sin().tanh() + x.relu()
    ),
    "with a head and a tail": lambda: (
        chain(af.input((1, 8, 4, 4), name="x").exp().square(), lambda x, n: x.sigmoid() + x.abs() * 0.25)
        .reshape(8, 16)
        .softmax(-1)
    ),
    "an input that every block reads": lambda: masked(af.input((16, 32), name="mask")),
}


def lists(report):
    """Name and findings of every node in each list."""
    return {
        status: [(entry.name, entry.op, entry.shape, [str(one.message) for one in entry.findings]) for entry in listed]
        for status in RULED
        if (listed := report.of(status)) is not None
    }


@pytest.mark.parametrize("route", ["conversion", "direct"])
@pytest.mark.parametrize("make", BLOCKS.values(), ids=BLOCKS)
def test_every_node_has_the_answer_of_the_whole_graph(make, route):
    graph = Graph.of(make())
    study = Study(graph, CHIPS, route=route)
    reports = study.preflights()
    assert all(isinstance(report, CondensedPreflight) for report in reports.values())
    whole = study._whole_preflights(study.targets)
    for name, report in reports.items():
        assert lists(report) == lists(whole[name]), name
        assert report.ok == whole[name].ok
        assert report.refusals.keys() == whole[name].refusals.keys()
        assert {status: len(report.of(status)) for status in RULED} == {
            status: len(entries) for status, entries in lists(report).items()
        }


def test_the_short_form_is_short_and_kept_by_content():
    short = [condensed(Graph.of(chain(af.input((16, 32), name="x"), attention, count))) for count in (120, 240)]
    assert all(one is not None for one in short)
    assert len(short[0].graph.nodes) == len(short[1].graph.nodes) < 400
    assert len(short[1].stands_for) > 2 * len(short[0].stands_for) - 400


def test_what_reads_an_inner_repetition_forbids_it():
    """Every tenth block is an output: no short form has all of them."""
    x, outputs = af.input((1, 8, 4, 4), name="x"), []
    for number in range(600):
        x = x.tanh() * 0.5
        if number % 10 == 0:
            outputs.append(x)
    graph = Graph(outputs)
    found = condensed(graph)
    assert found is None or len(found.graph.outputs) == len(outputs)


def test_a_graph_that_could_be_too_large_for_a_program_is_looked_at_whole():
    weight = np.zeros((8192, 8192), np.float16)  # 128 MB, sixteen times
    stored = [af.const(weight) for _ in range(16)]
    x = af.input((1, 8192), name="x")
    for number in range(200):
        x = af.linear(x, stored[number % 16]).relu().tanh()
    assert condensed(Graph.of(x)) is None


def test_numbers_are_looked_for_in_the_whole_graph():
    """Every block doubles the range: the first ones are fine, later ones are not."""
    x = af.input((1, 8, 4, 4), name="x", max_abs=1.0)
    for number in range(600):
        x = (x + x).named(f"sum{number}")
    report = af.preflight(x, "m1")
    assert isinstance(report, CondensedPreflight)
    assert report.risk[0].name == "sum15"
