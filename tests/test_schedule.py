"""Phase 3: order, chains, co-issue, task groups; every rule of chapter 22 on small programs."""

from __future__ import annotations

import numpy as np
import pytest
from test_fuse import MAP, Build

import aneforge as af
from aneforge.chips import target
from aneforge.compiler.compile import compile_target
from aneforge.compiler.facts import facts_of
from aneforge.compiler.footprint import Footprint
from aneforge.compiler.passes import PASSES, run_passes
from aneforge.compiler.schedule import SCHEDULE
from aneforge.compiler.schedule.groups import budget, chain_obstacle, co_issue_obstacle
from aneforge.compiler.schedule.layers import LayerGraph
from aneforge.engine.ir import TensorType
from aneforge.engine.tensor_type import Params
from aneforge.engine.text import parse
from aneforge.graph import Graph

M1 = target("h13")
MB = 1 << 20
ALL = [each for known in PASSES.values() for each in known.ensures]


def scheduled(module, chip=M1, passes=SCHEDULE):
    """Label and run phase 3; the code still reads back from its text."""
    run_passes(module, chip, ["label-layers", "cut-segments", *passes], ALL)
    text = str(module)
    assert str(parse(text)) == text
    return LayerGraph.of_module(module)


def order(graph):
    return [layer.result.sources[-1] for layer in graph.layers]


def named(b, called, kind, *operands, type_=MAP, **attrs):
    op = b.op(kind, *operands, type_=type_, **attrs)
    op.sources = (called,)
    return op


def square_map(kilobytes):
    """A map whose padded rows take about that many kilobytes: rows of 504 bytes take 512."""
    return TensorType((1, 1, 1, kilobytes * 2, 252))


# The list scheduler.


def diamond(big, small):
    """A split, two branches of different footprint, and a merge; the smaller branch stands first in the module."""
    b = Build()
    split = square_map(8)
    x = named(b, "split", "max_pool", b.input(split), type_=split, ksize=(1, 1, 1), padding=(0,) * 6, stride=(1, 1, 1))

    def branch(name, type_):
        grown = named(b, f"{name}1", "resize", x, type_=type_, height=type_.shape[3], width=type_.shape[4],
                      sampling_methods="Linear", sampling_modes="UnalignedCorners")  # fmt: skip
        return named(b, f"{name}2", "reduce_max", grown, type_=TensorType((1, 1, 1, 1, 1)), axes=(2, 3, 4))

    two, one = branch("small", small), branch("big", big)
    return b.done(named(b, "merge", "add", two, one, type_=TensorType((1, 1, 1, 1, 1))))


def test_a_diamond_runs_its_larger_branch_first_when_it_fits():
    graph = scheduled(diamond(square_map(512), square_map(64)), passes=SCHEDULE[:2])
    assert order(graph) == ["split", "big1", "big2", "small1", "small2", "merge"]


def test_a_branch_that_does_not_fit_has_no_preference():
    graph = scheduled(diamond(square_map(2100), square_map(64)), passes=SCHEDULE[:2])
    assert order(graph) == ["split", "small1", "small2", "big1", "big2", "merge"]


def test_the_working_set_is_the_chips():
    """m9 has half of it, so what fits on an M1 does not fit there."""
    module = diamond(square_map(1500), square_map(64))
    assert order(scheduled(module.clone(), M1, SCHEDULE[:2]))[1] == "big1"
    assert order(scheduled(module, target("m9"), SCHEDULE[:2]))[1] == "small1"


def test_ring_buffers_go_first():
    b = Build()
    x = b.input()
    plain = named(b, "plain", "relu", x)
    buffer = named(b, "ring", "state", name="cache")
    written = named(b, "write", "ring_buffer_writer", x, buffer, offset=0)
    graph = scheduled(b.done(plain, written), passes=SCHEDULE[:2])
    assert order(graph) == ["ring", "write", "plain"]


def test_a_layer_that_a_merge_waits_for_goes_before_others():
    b = Build()
    x = b.input()
    one = named(b, "one", "abs", x)
    early = named(b, "early", "tanh", b.input())
    other = named(b, "other", "abs", b.input())
    late = named(b, "late", "square", b.input())
    merged = named(b, "merge", "add", one, late)
    graph = scheduled(b.done(merged, early, other), passes=SCHEDULE[:2])
    assert order(graph)[:2] == ["one", "late"]


def test_ties_fall_to_the_order_of_the_program():
    b = Build()
    outputs = [named(b, f"n{i}", "abs", b.input()) for i in range(6)]
    graph = scheduled(b.done(*outputs), passes=SCHEDULE[:2])
    assert order(graph) == [f"n{i}" for i in range(6)]


def test_producers_always_stand_first():
    rng = np.random.default_rng(5)
    b = Build()
    made = [b.input()]
    for i in range(60):
        one, two = rng.integers(0, len(made), 2)
        made.append(named(b, f"n{i}", "add", made[one], made[two]))
    graph = scheduled(b.done(*[op for op in made if not op.users][:4] or [made[-1]]))
    place = {op: number for number, op in enumerate(graph.module.ops)}
    assert all(place[operand] < place[op] for op in graph.module.ops for operand in op.operands)


# Segments.


def test_attention_is_a_segment_and_so_is_each_native_layer():
    b = Build()
    q = named(b, "before", "relu", b.input())
    attention = named(b, "attention", "sdpa", q, q, q, b.const([0.5]), subtract_max=True)
    after = named(b, "after", "relu", attention)
    native = named(b, "native", "unit", b.input(), type="CrossProduct", params=Params())
    graph = scheduled(b.done(after, native))
    segments = {layer.result.sources[-1]: layer.segment for layer in graph.layers}
    assert segments["before"] < segments["attention"] < segments["after"]
    assert len(set(segments.values())) == 4
    assert segments["native"] not in {segments[name] for name in ("before", "attention", "after")}


def test_what_waits_for_nothing_joins_the_first_segment():
    b = Build()
    x = b.input()
    cut = named(b, "cut", "sdpa", x, x, x, b.const([0.5]), subtract_max=True)
    beside = named(b, "beside", "tanh", x)
    graph = scheduled(b.done(named(b, "sum", "add", cut, beside)))
    assert {layer.result.sources[-1]: layer.segment for layer in graph.layers} == {"beside": 0, "cut": 1, "sum": 2}


# Chaining.


def pair(chip=M1, **changes):
    """Two convolutions in a row, and one condition broken at a time."""
    b = Build()
    x = b.input()
    one = b.conv(x)
    two = b.conv(one)
    outputs = [two]
    if changes.get("second_reader"):
        outputs.append(b.op("abs", one))
    if changes.get("is_output"):
        outputs.append(one)
    if changes.get("other_engine"):
        outputs = [b.op("abs", one)]
    module = b.done(*outputs)
    return scheduled(module, chip, SCHEDULE[:3])


def chained(graph):
    return [layer.chained for layer in graph.layers]


def test_two_convolutions_in_a_row_are_chained():
    assert chained(pair()) == [True, False]


@pytest.mark.parametrize("broken", ["second_reader", "is_output", "other_engine"])
def test_each_structural_condition_breaks_the_chain(broken):
    assert not any(chained(pair(**{broken: True})))


def test_the_chip_has_to_allow_chaining():
    assert not any(chained(pair(target("h11"))))
    assert any(chained(pair(target("h17s"))))


def test_every_condition_has_its_reason():
    graph = pair()
    one, two = graph.layers
    assert chain_obstacle(one, two, True, 2 * MB) is None
    assert "chaining bit" in chain_obstacle(one, two, False, 2 * MB)
    assert "right after" in chain_obstacle(two, one, True, 2 * MB) or "outgoing" in chain_obstacle(
        two, one, True, 2 * MB
    )
    two.engine = "PE"
    assert "engine class" in chain_obstacle(one, two, True, 2 * MB)
    two.engine = "NE"
    two.segment = 7
    assert "segments" in chain_obstacle(one, two, True, 2 * MB)


def tall(rows_in, kernel, stride, pad):
    """A producer of many tiles and a convolution that reads it."""
    b = Build()
    type_ = TensorType((1, 1, 8, rows_in, 512))
    out = (rows_in + 2 * pad - kernel) // stride + 1
    result = TensorType((1, 1, 8, out, 512))
    attrs = {"dilation_rates": (1, 1, 1), "groups": 1}
    one = b.op("convolution", b.input(type_), b.const(np.ones((8, 8, 1, 1)), TensorType((8, 1, 8, 1, 1))), type_=type_,
               strides=(1, 1, 1), kernel_sizes=(1, 1, 1), explicit_padding=(0,) * 6, **attrs)  # fmt: skip
    two = b.op("convolution", one, b.const(np.ones((8, 8, kernel, 1)), TensorType((8, 1, 8, kernel, 1))),
               type_=result, strides=(1, stride, 1), kernel_sizes=(1, kernel, 1),
               explicit_padding=(0, 0, pad, pad, 0, 0), **attrs)  # fmt: skip
    return scheduled(b.done(two), passes=SCHEDULE[:3])


def test_tiles_have_to_match_and_the_first_tile_with_its_overlap_has_to_be_covered():
    one, two = tall(1024, 1, 1, 0).layers  # 8 MB: five tiles each, no overlap
    assert chain_obstacle(one, two, True, 2 * MB) is None
    one, two = tall(1024, 3, 1, 1).layers  # the same tiles, but the first one needs a row of the second
    assert "cover" in chain_obstacle(one, two, True, 2 * MB)
    one, two = tall(200, 3, 1, 1).layers  # 1.6 MB: one tile, so every row is there
    assert chain_obstacle(one, two, True, 2 * MB) is None


def test_a_producer_with_more_tiles_than_its_consumer_is_no_chain():
    b = Build()
    large, small = TensorType((1, 1, 8, 1024, 512)), TensorType((1, 1, 8, 64, 512))
    kernel = b.const(np.ones((8, 8, 1, 1)), TensorType((8, 1, 8, 1, 1)))
    attrs = {"dilation_rates": (1, 1, 1), "groups": 1, "kernel_sizes": (1, 1, 1), "explicit_padding": (0,) * 6}
    one = b.op("convolution", b.input(large), kernel, type_=small, strides=(1, 16, 1), **attrs)
    two = b.op("convolution", one, kernel, type_=small, strides=(1, 1, 1), **attrs)
    graph = scheduled(b.done(two), passes=SCHEDULE[:3])
    assert "tiles" in chain_obstacle(*graph.layers, True, 2 * MB)


def test_a_partition_boundary_cuts_a_chain():
    b = Build()
    type_ = TensorType((1, 1, 8, 128, 500))  # 1000 bytes a row: 1 MB each, two do not fit the budget
    kernel = b.const(np.ones((8, 8, 1, 1)), TensorType((8, 1, 8, 1, 1)))
    attrs = {"strides": (1, 1, 1), "dilation_rates": (1, 1, 1), "groups": 1, "kernel_sizes": (1, 1, 1)}
    value = b.input(type_)
    for _ in range(3):
        value = b.op("convolution", value, kernel, type_=type_, explicit_padding=(0,) * 6, **attrs)
    graph = scheduled(b.done(value))
    first, second, _ = graph.layers
    assert first.task_group != second.task_group
    assert not first.chained


# Co-issue.


def heads():
    """Attention with two heads as separate products: the pattern that the filter selects."""
    b = Build()
    outputs = []
    scores = TensorType((1, 1, 16, 1, 16))
    for i in range(2):
        q, k, v = (b.input(scores) for _ in range(3))
        product = named(b, f"qk{i}", "matmul", q, k, type_=scores, transpose_rhs=True)
        soft = named(b, f"softmax{i}", "softmax", product, type_=scores, axes=(4,))
        outputs.append(named(b, f"pv{i}", "matmul", soft, v, type_=scores))
    return b.done(*outputs)


def test_a_softmax_runs_beside_a_product_of_another_head():
    graph = scheduled(heads())
    names = {layer.number: layer.result.sources[-1] for layer in graph.layers}
    pairs = {
        frozenset((names[layer.number], names[layer.co_issue])) for layer in graph.layers if layer.co_issue is not None
    }
    assert frozenset(("softmax0", "qk1")) in pairs or frozenset(("softmax1", "pv0")) in pairs
    for each in pairs:
        assert len({name[0] == "s" for name in each}) == 2  # one planar, one multiply-accumulate


def layer_pair():
    b = Build()
    x = b.input()
    one, two = b.conv(x), b.op("softmax", b.input(), axes=(2,))
    after = b.op("add", b.op("abs", one), b.op("tanh", two))
    module = b.done(after)
    graph = scheduled(module, passes=SCHEDULE[:2])
    by_kind = {layer.primary.kind: layer for layer in graph.layers}
    return by_kind["convolution"], by_kind["softmax"], by_kind["abs"]


def test_every_disqualifier_has_its_reason():
    fp = Footprint(facts_of(M1, ("max_operand_bytes", "dram_alignment", "l2_bank_align")))
    conv, soft, abs_ = layer_pair()
    assert co_issue_obstacle(conv, soft, fp, 2 * MB) is None
    assert "planar" in co_issue_obstacle(conv, conv, fp, 2 * MB)
    assert "reads" in co_issue_obstacle(conv, abs_, fp, 2 * MB)
    soft.segment = 3
    assert "programs" in co_issue_obstacle(conv, soft, fp, 2 * MB)
    soft.segment = conv.segment
    assert "stream" in co_issue_obstacle(conv, soft, fp, 16)
    soft.chained = True
    assert "chained" in co_issue_obstacle(conv, soft, fp, 2 * MB)


def test_chained_and_co_issued_layers_are_disjoint():
    out = af.input((1, 8, 16, 16), name="x")
    for _ in range(4):
        out = af.conv(out, np.full((8, 8, 3, 3), 0.01), pad=1).relu() + out.softmax(1)
    program = compile_target(Graph([out]), M1)
    chain = {layer.number for layer in program if layer.chained}
    chain |= {layer.number + 1 for layer in program if layer.chained}
    both = {layer.number for layer in program if layer.co_issue is not None}
    assert not chain & both


# Task groups.


def row_of(count, type_):
    b = Build()
    value = b.input(type_)
    for i in range(count):
        value = named(b, f"n{i}", "softmax", value, type_=type_, axes=(4,))
    return b.done(value)


def task_groups(graph):
    return [layer.task_group for layer in graph.layers]


def test_a_partition_grows_while_its_peak_fits():
    assert task_groups(scheduled(row_of(6, square_map(256)))) == [0] * 6
    assert budget(2 * MB) < 2 * MB


def test_a_partition_closes_before_the_peak_passes_the_budget():
    """Each step holds two maps: 2 x 900 KB fit below 15/16 of 2 MB, 2 x 1000 KB do not."""
    assert task_groups(scheduled(row_of(4, square_map(900)))) == [0, 0, 0, 0]
    assert task_groups(scheduled(row_of(4, square_map(1000)))) == [0, 1, 2, 2]  # the last result leaves the program


def test_a_result_beyond_the_budget_stands_alone():
    assert task_groups(scheduled(row_of(4, square_map(3000)))) == [0, 1, 2, 3]


def test_segments_never_share_a_partition():
    b = Build()
    q = b.op("relu", b.input())
    cut = b.op("sdpa", q, q, q, b.const([0.5]), subtract_max=True)
    assert task_groups(scheduled(b.done(b.op("relu", cut)))) == [0, 1, 2]


def test_passes_need_what_comes_before():
    with pytest.raises(Exception, match="requires"):
        run_passes(row_of(1, MAP), M1, ["close-task-groups"])
