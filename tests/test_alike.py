"""Ops that look alike are decided once: the answer must be the one that each of them would get alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from random_graphs import random_graph

import aneforge as af
from aneforge.chips import target
from aneforge.compiler.compile import compile_target
from aneforge.cost import program as cost_program
from aneforge.cost.estimate import estimate_program
from aneforge.cost.program import work_of_program
from aneforge.engine.ir import Module
from aneforge.engine.text import parse
from aneforge.engine.verify import problems
from aneforge.graph import Graph
from aneforge.numerics import unary
from aneforge.numerics.ranges import promised_values
from aneforge.numerics.transfer import walk
from aneforge.sim.engine import Engine

M1 = target("h13")
PLANNED = {"address", "inside", "co_issue", "live", "segment", "task_group"}


def block(x, weights):
    """Three kinds of kernels, a residual, a norm and a pool that keeps its size."""
    wide, deep, narrow = weights
    y = af.conv(x, wide, pad=1).relu()
    y = af.conv(y, deep).tanh() * 0.5
    return (x + af.conv(y, narrow, pad=1)).softmax(1)


def stack(count):
    rng = np.random.default_rng(3)
    shapes = ((12, 8, 3, 3), (12, 12, 1, 1), (8, 12, 3, 3))
    weights = [rng.normal(0, 0.1, shape) for shape in shapes]
    x = af.input((1, 8, 16, 16), name="x")
    for _ in range(count):
        x = block(x, weights)
    return x


def forms(program):
    """What is decided about each layer, apart from where it stands and lies."""
    kept = []
    for layer in program.layers:
        labels = {name: value for name, value in layer.labels.items() if name not in PLANNED}
        kept.append(
            (layer.op, dict(layer.attrs), layer.engine, layer.shape, [slot.op for slot in layer.slots], labels)
        )
    return kept


@pytest.mark.parametrize("chip", ["h13", "h14", "h17s"])
def test_a_block_that_is_repeated_is_compiled_as_the_first_of_them(chip):
    """A stack of nine has nine times the layers between its ends that one more block adds to a stack of two."""
    few, more, many = (forms(compile_target(Graph([stack(count)]), target(chip))) for count in (3, 4, 9))
    size = len(more) - len(few)
    inner = more[size : 2 * size]
    assert size > 0
    assert len(many) == len(few) + 6 * size
    assert [many[place : place + size] for place in range(size, 7 * size, size)] == [inner] * 6


@pytest.mark.parametrize("seed", range(12))
def test_alike_layers_have_the_work_of_each_alone(seed):
    program = compile_target(Graph.of(random_graph(seed)[0]), M1)
    stored = {weight.key: weight for weight in program.weights}
    padding = cost_program._Padding(program)
    alone = [cost_program._work(layer, stored, padding) for layer in program.schedule.graph.layers]
    assert work_of_program(program) == alone


@pytest.mark.parametrize("seed", range(6))
def test_the_warning_of_short_calls_adds_the_same_times_as_the_estimate(seed, monkeypatch):
    program = compile_target(Graph.of(random_graph(seed)[0]), M1)
    told = []
    monkeypatch.setattr("aneforge.cost.estimate.warn_if_at_floor", lambda *figures: told.append(figures[1:3]))
    af.cost.estimate.warn_dispatch_floor(program)
    whole = estimate_program(program)
    assert told == [(whole.engine_us, whole.us)]


@pytest.mark.parametrize("kind", ["tanh", "abs", "exp", "sign", "round", "sqrt", "relu6"])
def test_a_table_of_a_function_gives_what_its_numbers_give_one_by_one(kind):
    x = af.input((1, 4, 8, 8), name="x")
    module = compile_target(Graph([getattr(x, kind)()]), M1).module
    op = next(op for op in module if op.layer is not None)
    engine, halves = Engine.of(M1), unary._halves()
    rng = np.random.default_rng(len(kind))
    for _ in range(40):
        first, last = sorted(rng.integers(0, halves.size, 2))
        inside = halves[first : last + 1]
        results = unary.prepared(engine, op, None, {}).call(inside.reshape(1, 1, 1, 1, -1)).reshape(-1)
        finite = results[np.isfinite(results)].astype(float)
        value = unary.through(engine, op, unary.Value(float(inside[0]), float(inside[-1]), False, math.inf))
        if finite.size:
            assert (value.low, value.high) == (finite.min(), finite.max())
            assert value.special == (finite.size < results.size)
        else:
            assert value == unary.ANYTHING


@pytest.mark.parametrize("seed", range(10))
def test_ranges_and_losses_do_not_depend_on_whether_errors_are_counted(seed):
    graph = Graph.of(random_graph(seed)[0])
    module, known = compile_target(graph, M1).module, promised_values(graph, graph.names())
    exact, plain = (walk(Engine.of(M1), module, known, errors=errors) for errors in (True, False))
    ends = [[value[:3] for value in walked.values.values()] for walked in (exact, plain)]
    assert ends[0] == ends[1]
    assert [(risk.node, risk.rule, risk.due) for risk in exact.risks] == [
        (risk.node, risk.rule, risk.due) for risk in plain.risks
    ]


def test_a_broken_op_is_found_among_sound_ones_that_share_its_attributes():
    program = compile_target(Graph([stack(2)]), M1)
    module: Module = program.module.clone()
    convolutions = [op for op in module if op.kind == "convolution"]
    assert not problems(module)
    convolutions[-1].attrs = {**convolutions[-1].attrs, "groups": 1.0}  # equal to 1, and no whole number
    assert [text for text in problems(module) if "groups" in text]


def test_what_is_written_on_one_op_is_not_written_on_those_that_share_its_labels():
    module = parse(
        """
        %0 = "anec.live_in"() {name = "x"} : () -> tensor<1x1x8x4x4xf16>
        %1 = "anec.relu"(%0) : (tensor<1x1x8x4x4xf16>) -> tensor<1x1x8x4x4xf16>
        %2 = "anec.tanh"(%1) : (tensor<1x1x8x4x4xf16>) -> tensor<1x1x8x4x4xf16>
        "anec.live_out"(%2) {names = ["y"]} : (tensor<1x1x8x4x4xf16>) -> ()
        """
    )
    copy = module.clone()
    module.ops[1].mark(bridge=True, passes=2)
    assert [dict(op.labels) for op in (module.ops[2], copy.ops[1])] == [{}, {}]
    assert module.ops[1].unmark(("bridge", "chained")) == {"bridge": True}
    assert module.ops[1].labels == {"passes": 2}
