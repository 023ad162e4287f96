"""Lowering: every graph op in the engine's language means what the graph means, and reads as the seeds say."""

from __future__ import annotations

import importlib.util
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import test_graph_ops
from hypothesis import given, settings
from hypothesis import strategies as st

import aneforge as af
from aneforge.compiler import LoweringError, lower
from aneforge.compiler.legal.passes import rewritten_for
from aneforge.compiler.legal.table import REWRITES
from aneforge.compiler.lower import rewritten_ops
from aneforge.compiler.lower.builder import rules
from aneforge.engine.interpret import interpret
from aneforge.engine.native import rank5
from aneforge.engine.text import parse
from aneforge.engine.verify import verify
from aneforge.graph import Graph, definitions

RNG = np.random.default_rng(22)
# No engine has these, so phase 0 replaces them on every chip; everything else lowers.
RETARGETED = {
    *("acos", "acosh", "asin", "asinh", "atan2", "atanh", "band_part", "cosh", "cumsum", "gru", "logical_and"),
    *("logical_or", "logical_xor", "lstm", "mod", "one_hot", "prod", "random_normal", "reverse_sequence", "rnn"),
    *("scatter", "sinh", "tan"),
}


def rand(*shape):
    return RNG.standard_normal(shape)


def values_of(lowered, feeds):
    """Run the lowered program on the user's arrays, by port name; parameters keep their start value."""
    given_ = {}
    for port in lowered.inputs:
        array = feeds.get(port.name)
        given_[port.name] = port.to_ndchw(port.initial.array if array is None else array)
    found = interpret(lowered.module, given_)
    return [port.from_ndchw(found[port.name]) for port in lowered.outputs]


def check(out, arrays=(), rtol=1e-9):
    """Lower, verify, print and read back, and compare with the graph's own meaning."""
    graph = out if isinstance(out, Graph) else Graph([out] if isinstance(out, af.Tensor) else list(out))
    lowered = lower(graph)
    verify(lowered.module, "lower")
    text = str(lowered.module)
    assert str(parse(text)) == text
    names = graph.names()
    known = set(names.values())
    for op in lowered.module:
        assert op.name == "anec.live_out" or (len(op.sources) == 1 and op.sources[0] in known)
    feeds = dict(zip([names[each.uid] for each in graph.inputs], arrays, strict=True))
    want = af.evaluate(graph, dict(zip(graph.inputs, arrays, strict=True)))
    for got, expected in zip(values_of(lowered, feeds), want, strict=True):
        assert got.shape == expected.shape
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)
    return lowered


def kinds(lowered):
    return [op.kind for op in lowered.module if op.kind not in ("live_in", "const_in", "live_out")]


def inputs(*shapes):
    return [af.input(shape) for shape in shapes], [rand(*shape) for shape in shapes]


# Every op of the graph language, on the cases that test it against NumPy.


def built(case):
    made = [af.input(array.shape) for array in case.arrays]
    graph = Graph([case.build(*made)])
    used = {each.uid for each in graph.inputs}
    return graph, [array for each, array in zip(made, case.arrays, strict=True) if each.uid in used]


LOWERED = [case for case in test_graph_ops.CASES if case.op not in RETARGETED]


@pytest.mark.parametrize("case", LOWERED, ids=[f"{number}-{case.op}" for number, case in enumerate(LOWERED)])
def test_every_op_means_what_the_graph_means(case):
    graph, arrays = built(case)
    check(graph, arrays, rtol=1e-3 if case.op == "sdpa" else 1e-9)  # the layer's scale is an fp16 constant


@pytest.mark.parametrize("number", range(0, len(test_graph_ops.CASES), 5))
def test_a_retargeted_graph_lowers(number):
    case = test_graph_ops.CASES[number]
    graph, arrays = built(case)
    try:
        moved = rewritten_for(graph, af.target("h17"))
    except af.AneforgeError:
        pytest.skip("no chip takes it")
    if not moved.host_inputs and len(moved.graph.inputs) == len(arrays):
        check(moved.graph, arrays, rtol=1e-3 if case.op == "sdpa" else 1e-9)


def test_every_op_lowers_or_is_replaced_by_retargeting():
    ports = {"input", "parameter", "const", "host"}
    assert rewritten_ops() == RETARGETED
    assert set(rules()) | RETARGETED | ports == set(definitions())
    assert {row.op for row in REWRITES.values()} >= RETARGETED
    covered = {case.op for case in LOWERED} | {"cross_correlation"}
    assert set(rules()) <= covered, "a rule without a case"


@pytest.mark.parametrize("case", [next(c for c in test_graph_ops.CASES if c.op == name) for name in RETARGETED])
def test_an_op_without_a_form_says_what_comes_first(case):
    with pytest.raises(LoweringError, match=rf"{case.op} .* at .*\.py:\d+: .*phase 0") as caught:
        lower(built(case)[0])
    assert caught.value.node.op == case.op


# Ranks, broadcasting, axes.

BROADCASTS = [
    ((), (3, 4)),
    ((4,), (2, 3, 4)),
    ((3, 1), (2, 3, 4)),
    ((5,), (2, 3, 4, 5)),
    ((3, 4, 5), (2, 3, 4, 5)),
    ((4, 5), (2, 3, 1, 1)),
    ((2, 3, 4, 5), (2, 2, 3, 4, 5)),
    ((3, 1, 5), (2, 2, 3, 4, 1)),
    ((5,), (2, 2, 3, 4, 5)),
    ((2, 1, 3, 1, 5), (1, 2, 3, 4, 1)),
]


@pytest.mark.parametrize(("a", "b"), BROADCASTS)
def test_operands_of_any_rank_align_as_in_numpy(a, b):
    wide = af.input(b)
    other = af.const(rand(*a).astype(np.float16))
    check([wide + other, other - wide, af.where(wide > other, other, wide)], [rand(*b)])
    if a:
        live = af.input(a)
        check([live * wide, wide <= live, af.maximum(live, wide)], [rand(*b), rand(*a)])


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (2, 3, 2, 4), (2, 3, 2, 2, 4)])
def test_axes_of_every_rank(shape):
    (x,), arrays = inputs(shape)
    rank = len(shape)
    for axis in range(-rank, rank):
        outs = [x.sum(axis), x.softmax(axis), x.amax(axis), x.reverse([axis]), af.concat([x, x * 2.0, x], axis)]
        outs += [x.slice_by_size([1 if i == axis % rank else 0 for i in range(rank)], without_one(shape, axis))]
        outs += [
            af.gather(x, [-1, 0, 0], axis),
            x.l2_norm(axis, 0.5),
            x.tile([2 if i == axis % rank else 1 for i in range(rank)]),
        ]
        outs += [x.pad([(1, 2) if i == axis % rank else (0, 0) for i in range(rank)], "constant", 0.5)]
        if rank < 5:
            outs += [af.stack([x, x + 1.0], axis), x.expand_dims(axis)]
        check(outs, arrays)
    check([x.mean(), x.sum(list(range(rank))), x.T, x.reshape(-1), x.flatten2d(0), af.flatten(x)], arrays)
    check(x.pad([(1, 1)] * rank, "symmetric"), arrays)
    check(af.dropout(x, 0.5, seed=3), arrays)
    check(x * af.random_uniform(shape, seed=1), arrays)


def without_one(shape, axis):
    return [extent - (i == axis % len(shape)) for i, extent in enumerate(shape)]


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3, 4, 5), (2, 3, 2, 4, 5), (1, 3, 2, 4, 5), (2, 3, 1, 4, 5)])
def test_no_layer_reduces_the_batch(shape):
    (x,), arrays = inputs(shape)
    others = range(1, len(shape))
    for axes in ((0, *more) for size in range(len(shape)) for more in itertools.combinations(others, size)):
        outs = [x.sum(axes), x.mean(axes), x.amax(axes), x.amin(axes), x.sum_square(axes), x.l1_norm(axes)]
        outs += [x.square().log_sum(axes), x.reduce_log_sum_exp(axes)]
        lowered = check(outs, arrays)
        assert not [op for op in lowered.module if 0 in op.attrs.get("axes", ())]
        moved = [op for op in lowered.module if op.kind == "transpose"]
        between = len(shape) == 5 and shape[0] > 1 and shape[2] > 1 and 2 not in axes and (1 in axes or 3 in axes)
        assert bool(moved) == between  # only a volume that keeps its depth between reduced axes has to be turned
    lowered = check([x.softmax(0), x.l2_norm(0, 0.5)], arrays)
    assert {op.attrs["axes"] for op in lowered.module if "axes" in op.attrs} == {(2,)}


def test_a_batch_norm_over_batch_and_space_in_training():
    (x,), arrays = inputs((3, 4, 2, 5))
    centred = x - x.mean((0, 2, 3))
    lowered = check(centred * (centred.square().mean((0, 2, 3)) + 1e-3).rsqrt(), arrays)
    assert [op.shape for op in lowered.module if op.kind == "reduce_avg"] == [(1, 1, 1, 4, 1)] * 2


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 2, 4, 5)])
def test_reshapes_and_transposes_between_all_ranks(shape):
    (x,), arrays = inputs(shape)
    size = math.prod(shape)
    for target in ((size,), (2, size // 2), (size // 6, 3, 2), (2, 3, size // 6, 1), (1, 2, 3, 1, size // 6)):
        check(x.reshape(target) * 2.0, arrays)
        check(x.reshape(target).reshape(shape), arrays)
    for _ in range(6):
        check(x.transpose(RNG.permutation(len(shape)).tolist()), arrays)


def test_moving_axes_of_one_is_a_view():
    (x,), arrays = inputs((1, 3, 1, 5))
    assert kinds(check(x.transpose([1, 2, 0, 3]), arrays)) == ["reshape"]
    assert kinds(check(x.reshape(3, 1, 5), arrays)) == []  # the same layout


# Products.


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 2)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((1, 3, 4), (2, 4, 5)),
        ((2, 6, 3, 4), (2, 6, 4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
        ((2, 6, 3, 4), (1, 1, 4, 5)),
        ((2, 2, 3, 3, 4), (2, 2, 3, 4, 5)),
        ((2, 2, 3, 3, 4), (3, 4, 5)),
        ((1, 2, 1, 3, 4), (2, 1, 3, 4, 5)),
        ((2, 2, 3, 3, 4), (4, 5)),
    ],
)
def test_products_of_every_rank(a, b):
    (x, y), arrays = inputs(a, b)
    check(x @ y, arrays)
    (x, y), arrays = inputs((*a[:-2], a[-1], a[-2]), (*b[:-2], b[-1], b[-2]))
    check(x.mT @ y.mT, arrays)
    check(x.mT @ rand(a[-1], 3), arrays[:1])
    (x,), arrays = inputs(a)
    check(x @ rand(*b).astype(np.float16), arrays)
    check(x.linear(rand(5, a[-1]), rand(5)), arrays)


def test_a_transposed_operand_becomes_a_flag():
    (q, k), arrays = inputs((3, 4), (5, 4))
    lowered = check(q @ k.mT, arrays)
    assert kinds(lowered) == ["matmul"]
    assert "transpose_rhs" in lowered.module.ops[2].attrs
    (q, k), arrays = inputs((2, 3, 4), (2, 5, 4))
    lowered = check(q @ k.mT, arrays)  # rows are on H here: C and H change places, W stays
    assert kinds(lowered) == ["transpose", "transpose", "matmul", "transpose"]
    assert all(op.attrs["transpose_list"] == ((2, 3), (3, 2)) for op in lowered.module if op.kind == "transpose")


ROWS_OF_THREE_AXES = {
    "sum over the batch": lambda x, one: x.sum(0),
    "one of a batch": lambda x, one: x[1:2] + one,
    "every other": lambda x, one: x[::2].relu(),
    "stretched": lambda x, one: x * one,
    "joined": lambda x, one: af.concat([one, x, one], axis=0),
    "joined along rows": lambda x, one: af.concat([one, one], axis=1),
    "stacked": lambda x, one: af.stack([one.reshape(4, 5), one.reshape(4, 5)], axis=0),
    "stacked inside": lambda x, one: af.stack([one.reshape(4, 5), one.reshape(4, 5)], axis=1),
    "repeated": lambda x, one: one.tile((3, 1, 2)),
    "padded": lambda x, one: af.pad(one, ((1, 0), (2, 1), (0, 3))),
    "padded rows": lambda x, one: af.pad(one, ((0, 0), (2, 1), (0, 3)), value=2.0),
    "picked": lambda x, one: af.gather(one, [0, 0, 0], axis=0),
    "picked one": lambda x, one: af.gather(x, [2], axis=0) + one,
    "reversed": lambda x, one: one.reverse([1, 2]),
    "largest": lambda x, one: x.amax(0) + one,
    "softmax over rows": lambda x, one: one.softmax(1),
    "softmax over the batch": lambda x, one: x.softmax(0) + one.softmax(0),
    "product": lambda x, one: x @ one.mT,
    "mean of all but the features": lambda x, one: one.mean((0, 1)) + x.mean((0, 2)).sum(1),
    "normalised": lambda x, one: af.batch_norm(one, *np.ones((4, 4))),
}


@pytest.mark.parametrize("name", ROWS_OF_THREE_AXES)
def test_a_batch_of_one_lies_as_none(name):
    """[1, S, D] lies as [S, D]: ops that take a batch away, or add one, find every element."""
    (x, one), arrays = inputs((3, 4, 5), (1, 4, 5))
    out = ROWS_OF_THREE_AXES[name](x, one)
    arrays_of = {node.uid: array for node, array in zip((x, one), arrays, strict=True)}
    check(out, [arrays_of[node.uid] for node in Graph([out]).inputs])


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("shape", [(1, 4, 5), (4, 1, 5), (4, 5, 1), (2, 4, 5)])
def test_transposes_of_three_axes(shape, order):
    (x,), arrays = inputs(shape)
    check(x.transpose(list(order)).relu(), arrays)


def test_three_axes_and_two_lower_to_the_same_code():
    lines = []
    for lead in ((1,), ()):
        x = af.input((*lead, 4, 6), name="x")
        out = (x.linear(np.ones((6, 6))) + x).layer_norm(np.ones(6), np.zeros(6)).softmax(-1).named("y")
        lines.append([(op.name, op.type, dict(op.attrs)) for op in lower(Graph([out])).module])
    assert lines[0] == lines[1]


def test_the_native_einsum_is_one_product():
    (a, b), arrays = inputs((2, 3, 4, 5), (2, 5, 4, 6))
    assert kinds(check(af.einsum_native("nchw,nwhu->nchu", a, b), arrays)) == ["matmul"]


def test_a_weight_that_arrives_at_run_time_is_a_product():
    (x, w, c), arrays = inputs((2, 3, 4), (5, 4), (5,))
    assert kinds(check(af.linear(x, w, c), arrays))[-2] == "matmul"
    assert kinds(check(x.linear(rand(5, 4)), arrays[:1])) == ["linear"]


def test_attention():
    (q, k, v, m), arrays = inputs((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (1, 1, 3, 5))
    check(af.sdpa(q, k, v, scale=0.25), arrays[:3])
    check(af.sdpa(q, k, v, scale=0.25, attn_mask=m), arrays)
    check(af.sdpa(q, k, v, scale=0.25, attn_mask=m, is_causal=True), arrays)
    lowered = check(af.sdpa(q, q, q, scale=0.5, is_causal=True), arrays[:1])
    (op,) = (op for op in lowered.module if op.kind == "sdpa")
    assert op.attrs == {"subtract_max": True}
    assert len(op.operands) == 5
    assert op.shape == (1, 1, 3, 2, 4)  # channels hold the sequence


def test_blocks():
    d, s = 8, 5
    (x,), arrays = inputs((s, d))
    dense = [array for _ in range(4) for array in (rand(d, d), rand(d))]
    check(af.mha(x, *dense, 2), arrays)
    check(af.geglu(x, rand(12, d), rand(12)), arrays)
    (h,), maps = inputs((1, 4, 6, 6))
    gamma, beta = (af.parameter(rand(1, 6, 1, 1)) for _ in range(2))
    check(af.conv_block(h, af.conv_param(rand(6, 4, 3, 3)), gamma, beta, 2, pool=2), maps)
    check(x.layer_norm(np.ones(d), np.zeros(d)).rms_norm(rand(d)), arrays)


def test_rotary_positions():
    (x,), arrays = inputs((1, 2, 4, 6))
    angles = np.outer(np.arange(4), 0.1 ** np.arange(3))
    cos, sin = (np.concatenate([f(angles)] * 2, axis=1) for f in (np.cos, np.sin))
    check(af.rope(x, cos, sin), arrays)


# What listings 22.1 and 22.2 say, as text.


def text_of(out):
    lines = str(lower(out).module).splitlines()[2:-2]
    return [line.strip() for line in lines]


def test_listing_22_2_as_text():
    x = af.input((1, 4, 8, 8), name="x")
    w, bias = np.ones((6, 2, 3, 3)), np.zeros(6)
    y = af.conv(x, w, stride=(2, 1), pad=(1, 0, 2, 1), dilation=(1, 2), groups=2, bias=bias).named("c")
    lines = text_of((y + np.ones((1, 6, 1, 1))).relu().named("y"))
    (conv,) = (line for line in lines if "anec.convolution" in line)
    assert conv == (
        '%3 = "anec.convolution"(%0, %1, %2) {dilation_rates = [1 : i64, 1 : i64, 2 : i64], '
        "explicit_padding = [0 : i64, 0 : i64, 1 : i64, 0 : i64, 2 : i64, 1 : i64], groups = 2 : i64, "
        'kernel_sizes = [1 : i64, 3 : i64, 3 : i64], padding_style = "EXPLICIT", '
        'strides = [1 : i64, 2 : i64, 1 : i64], weights_layout = "OIHW"} : (tensor<1x1x4x8x8xf16>, '
        'tensor<6x1x2x3x3xf16>, tensor<1x1x6x1x1xf16>) -> tensor<1x1x6x4x7xf16> loc("c")'
    )
    ops = [line.split('"')[1] for line in lines]
    assert ops == [
        *("anec.live_in", "anec.const_in", "anec.const_in", "anec.convolution"),
        *("anec.const_in", "anec.add", "anec.relu", "anec.live_out"),
    ]


def test_listing_22_1_as_text():
    a = af.input((3, 4), name="a")
    lines = text_of((a @ af.input((5, 4), name="b").mT).named("y"))
    assert lines[2] == (
        '%2 = "anec.matmul"(%0, %1) {transpose_rhs} : (tensor<1x1x3x1x4xf16>, tensor<1x1x5x1x4xf16>) '
        '-> tensor<1x1x3x1x5xf16> loc("y")'
    )
    assert lines[3] == '"anec.live_out"(%2) {names = ["y"]} : (tensor<1x1x3x1x5xf16>) -> ()'


def test_depthwise_kernels_are_marked():
    x = af.input((1, 4, 8, 8))
    assert any("channel_wise" in op.attrs for op in lower(af.conv(x, rand(4, 1, 3, 3), groups=4)).module)
    assert not any("channel_wise" in op.attrs for op in lower(af.conv(x, rand(4, 4, 3, 3))).module)


def test_a_kernel_beyond_the_chip_is_refused_in_the_compilers_words():
    x, kernel = af.input((1, 3, 32, 32)), af.input((4, 3, 16, 16))
    y = af.dynamic_conv(x, kernel, stride=16).named("patches")
    for chip in ("M1", af.Family.A13):
        with pytest.raises(af.CompileError, match=r"patches: dynamic_conv .* at test_lower.py:\d+") as caught:
            af.compile(y, target=chip)
        assert caught.value.rule == "conv-kernel-width"
        assert "Invalid conv kernel width = 16, It should be in [1,13]" in str(caught.value)
    assert kinds(lower(y)) == ["convolution"]
    assert af.compile(y, target="h16").program.layers  # square kernels of 16 compile there (C16)


def test_a_row_beyond_kernel_memory_is_refused_in_the_compilers_words():
    y = (af.input((2, 40000)) @ af.input((40000, 2))).named("y")
    report = af.preflight(y, "h17")
    assert [(entry.name, entry.rule) for entry in report.oversize] == [("y", "matmul-row")]
    rules = [finding.rule for finding in report.oversize[0].findings]
    assert "matmul-runtime-contraction" in rules  # a code generator comes behind a validator
    assert "can not fit the Kmem" in report.oversize[0].message
    lower(y)


# Constants, ports, names.


def test_constants_are_held_once_by_content():
    x = af.input((2, 3))
    a = np.arange(3.0)
    lowered = check((x + a) * af.const(a) + a, [rand(2, 3)])
    assert len(lowered.module.weights) == 1
    assert [op.kind for op in lowered.module].count("const_in") == 1
    ((key, weight),) = lowered.module.weights.items()
    assert weight.key == key
    assert weight.shape == (3,)


def test_ports_translate_both_ways():
    x = af.input((2, 3, 4, 5, 6), name="x")
    lowered = lower([x, (x + 1.0).named("y"), x])
    port = lowered.inputs[0]
    array = rand(2, 3, 4, 5, 6)
    assert port.ndchw_shape == rank5(port.user_shape) == (2, 4, 3, 5, 6)
    np.testing.assert_array_equal(port.from_ndchw(port.to_ndchw(array)), array)
    assert [each.name for each in lowered.outputs] == ["x", "y", "x_again"]
    assert lowered.module.output.attrs["names"] == ("x", "y", "x_again")
    with pytest.raises(af.AneforgeError, match=r"x: shape \[2\] does not fit; expected \[2, 3, 4, 5, 6\]"):
        port.to_ndchw(rand(2))
    with pytest.raises(af.AneforgeError, match=r"x: stored shape \[2\] does not fit; expected \[2, 4, 3, 5, 6\]"):
        port.from_ndchw(rand(2))


def test_images_parameters_and_constant_outputs():
    image = af.image_input((1, 3, 4, 4), scale=[0.5, 0.25, 0.125], name="image")
    lowered = check(image, [np.arange(48.0).reshape(1, 3, 4, 4)])
    assert str(lowered.module.inputs[0].type) == "tensor<1x1x3x4x4xui8>"
    weight = af.parameter(rand(4, 3), name="w")
    (x,), arrays = inputs((2, 3))
    lowered = check([x.linear(weight), af.const(np.eye(2))], arrays)
    assert [port.name for port in lowered.inputs if port.initial is not None] == ["w"]


# Whole networks.


def example(name):
    path = Path(__file__).parent.parent / "examples" / f"{name}.py"
    found = importlib.util.spec_from_file_location(f"example_{name}", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_unet_example():
    out = example("unet_block").out
    check(out, [rand(1, 32, 64, 64) * 0.1, np.array([[3.0]])], rtol=1e-8)


def test_the_lstm_example():
    out = rewritten_for(Graph.of(example("lstm").out), af.target("h13")).graph
    check(out, [rand(32, 1, 64)])


def test_a_small_resnet_and_vit():
    resnet = example("resnet")
    x = af.input((1, 3, 16, 16))
    y = resnet.conv_norm(x, 8, 7, 2).relu().max_pool(3, 2, pad=1)
    y = resnet.block(resnet.block(y, 8, 1), 16, 2)
    y = y.mean((2, 3)).reshape(1, 16).linear(rand(10, 16)).softmax()
    check(y, [rand(1, 3, 16, 16)], rtol=1e-8)
    lower(resnet.out)
    vit = example("vit")
    assert len(lower(vit.out).module) > 200
    (tokens,), arrays = inputs((5, vit.DIM))
    check(vit.layer(tokens), arrays, rtol=1e-8)


def test_deep_graphs_need_no_recursion():
    (x,), arrays = inputs((2, 3))
    y = x
    for _ in range(5000):
        y = (y + x).relu() * 0.5
    check(y, arrays)


# Random graphs.

UNARY = ("relu", "tanh", "sigmoid", "abs", "square", "softsign", "silu", "sign")
SHAPES = [(3,), (2, 3), (2, 3, 4), (1, 4, 3, 2), (2, 2, 3, 2, 3)]


STEPS = {
    "unary": lambda draw, x, axis: getattr(x, draw(st.sampled_from(UNARY)))(),
    "half": lambda draw, x, axis: x * np.float16(0.5),
    "broadcast": lambda draw, x, axis: x + x.sum(axis),
    "compare": lambda draw, x, axis: af.where(x > x.mean(axis), x, -x),
    "mean": lambda draw, x, axis: x.mean(axis),
    "softmax": lambda draw, x, axis: x.softmax(axis),
    "transpose": lambda draw, x, axis: x.transpose(draw(st.permutations(range(x.ndim)))),
    "concat": lambda draw, x, axis: af.concat([x, x.tanh()], axis),
    "matmul": lambda draw, x, axis: x @ x.mT if x.ndim > 1 else x,
    "view": lambda draw, x, axis: x[(slice(None),) * (axis % x.ndim) + (slice(None, None, draw(STRIDES)),)],
    "reshape": lambda draw, x, axis: x.reshape(x.shape[::-1]),
    "linear": lambda draw, x, axis: x.linear(np.full((2, x.shape[-1]), 0.25)),
    "pad": lambda draw, x, axis: x.pad([(1, 0) if i == axis % x.ndim else (0, 0) for i in range(x.ndim)]),
    "stack": lambda draw, x, axis: af.stack([x, x], axis) if x.ndim < 5 else x,
}
STRIDES = st.sampled_from([-2, -1, 2, 3])


@st.composite
def graphs(draw):
    """A graph of a few dozen nodes, every value a candidate operand."""
    pool = [af.input(draw(st.sampled_from(SHAPES))) for _ in range(2)]
    starts = len(pool)
    for _ in range(draw(st.integers(1, 12))):
        x = draw(st.sampled_from(pool))
        made = STEPS[draw(st.sampled_from(sorted(STEPS)))](draw, x, draw(st.integers(-x.ndim, x.ndim - 1)))
        if made.size <= 4000:
            pool.append(made)
    return Graph([pool[-1], draw(st.sampled_from(pool[starts:] or pool))])


@settings(max_examples=120)
@given(graph=graphs(), seed=st.integers(0, 2**31))
def test_random_graphs_mean_the_same(graph, seed):
    rng = np.random.default_rng(seed)
    check(graph, [rng.standard_normal(each.shape) for each in graph.inputs])
