"""Phase 1, pass by pass: backend text in, backend text out; every row of table 22.3."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_lower import graphs, values_of

import aneforge as af
from aneforge.chips import target
from aneforge.compiler.fuse import FUSION
from aneforge.compiler.fuse.slots import SLOTS
from aneforge.compiler.lower import lower
from aneforge.compiler.passes import PASSES, checked_order, run_passes
from aneforge.engine.interpret import interpret
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.spec import kinds_with
from aneforge.engine.tensor_type import Params
from aneforge.engine.text import parse
from aneforge.engine.traits import Trait
from aneforge.engine.verify import verify
from aneforge.errors import UnknownNameError
from aneforge.graph.weights import intern_weight
from aneforge.study.verdicts import graph_verdicts

M1 = target("h13")
MAP = TensorType((1, 1, 8, 4, 4))


class Build:
    """A small module by hand."""

    def __init__(self):
        self.module = Module()
        self.count = 0

    def op(self, kind, *operands, type_=MAP, **attrs):
        op = Op(f"anec.{kind}", operands, type_, attrs, (f"{kind}_{self.count}",))
        self.count += 1
        self.module.ops.append(op)
        return op

    def input(self, type_=MAP):
        return self.op("live_in", type_=type_, name=f"x{self.count}")

    def const(self, values, type_=None):
        weight = intern_weight(np.asarray(values, np.float64))
        self.module.weights[weight.key] = weight
        size = TensorType((1, 1, int(np.size(values)), 1, 1))
        return self.op("const_in", type_=type_ or size, weight=weight.key)

    def conv(self, x, bias=None, channels=8):
        kernel = self.const(np.full((channels, 8, 1, 1), 0.25), TensorType((channels, 1, 8, 1, 1)))
        operands = [x, kernel] + ([self.const(bias)] if bias is not None else [])
        attrs = {"strides": (1, 1, 1), "dilation_rates": (1, 1, 1), "groups": 1}
        attrs |= {"explicit_padding": (0,) * 6, "kernel_sizes": (1, 1, 1)}
        return self.op("convolution", *operands, **attrs)

    def done(self, *outputs):
        self.op("live_out", *outputs, type_=None, names=tuple(f"y{i}" for i in range(len(outputs))))
        return verify(self.module)


def kinds(module):
    return [op.kind for op in module if op.kind not in ("live_in", "const_in", "live_out")]


def layers(module):
    """Kinds and slots by layer."""
    found: dict[int, list[str]] = {}
    for op in module:
        if op.layer is not None:
            found.setdefault(op.layer, []).append(op.kind if op.slot == "primary" else f"{op.slot}:{op.kind}")
    return list(found.values())


def fused(module):
    run_passes(module, M1, FUSION)
    assert str(parse(str(module))) == str(module)
    return layers(module)


def test_the_slots_are_those_of_listing_22_3():
    """Texture, broadcast, activation, gain and offset, activation, transpose, quantiser, in this order."""
    assert SLOTS == ("texture", "broadcast", "pre_activation", "goc", "post_activation", "transpose", "quant")


def test_conv_bias_relu_is_one_layer():
    b = Build()
    conv = b.conv(b.input())
    out = b.op("relu", b.op("add", conv, b.const(np.arange(8) / 8)))
    assert fused(b.done(out)) == [["convolution", "post_activation:relu"]]


def test_matmul_bias_gelu_is_one_layer():
    b = Build()
    product = b.op("matmul", b.input(), b.input(TensorType((1, 1, 4, 4, 4))))
    out = b.op("gelu", b.op("add", product, b.const(np.ones(8))))
    assert fused(b.done(out)) == [["matmul", "goc:gain_offset_control", "post_activation:gelu"]]


def test_two_live_inputs_do_not_fuse():
    b = Build()
    x = b.input()
    out = b.op("relu", b.op("add", b.conv(x), b.conv(x)))
    assert fused(b.done(out)) == [["convolution"], ["convolution"], ["add", "post_activation:relu"]]


def test_a_reader_elsewhere_stops_the_fusion():
    b = Build()
    conv = b.conv(b.input())
    one, two = b.op("relu", conv), b.op("tanh", conv)
    assert fused(b.done(one, two)) == [["convolution"], ["relu"], ["tanh"]]


def test_every_slot_in_its_fixed_order():
    b = Build()
    y = b.conv(b.input())
    y = b.op("resize", y, height=4, width=4, sampling_methods="Linear", sampling_modes="Default")
    y = b.op("tanh", y)
    y = b.op("mult", y, b.const(np.full(8, 2.0)))
    y = b.op("sigmoid", y)
    y = b.op("transpose", y, transpose_list=((3, 4), (4, 3)))
    y = quant(b, y, scale=0.1, zero_point=0)
    assert fused(b.done(y)) == [
        [
            "convolution",
            "texture:resize",
            "pre_activation:tanh",
            "goc:gain_offset_control",
            "post_activation:sigmoid",
            "transpose:transpose",
            "quant:quant",
        ]
    ]


def test_an_activation_slips_before_a_transpose():
    b = Build()
    y = b.op("transpose", b.conv(b.input()), transpose_list=((3, 4), (4, 3)))
    assert fused(b.done(b.op("relu", y))) == [["convolution", "post_activation:relu", "transpose:transpose"]]


def test_two_activations_take_both_slots():
    """Table 22.3: a pre- or post-GOC activation slot. A third one opens a layer of its own."""
    b = Build()
    y = b.op("tanh", b.op("relu", b.conv(b.input())))
    assert fused(b.done(y)) == [["convolution", "pre_activation:relu", "post_activation:tanh"]]
    b = Build()
    y = b.op("sigmoid", b.op("relu", b.op("tanh", b.conv(b.input()))))
    assert fused(b.done(y)) == [["convolution", "pre_activation:tanh", "post_activation:relu"], ["sigmoid"]]


def layers_of(out, chip):
    return layers(af.compile(out, target=chip).program.module)


@pytest.mark.filterwarnings("ignore")
def test_a_users_graph_reaches_every_pointwise_slot():
    """Table 22.3 and listing 22.3: a clamped activation, and the broadcast slot by a tile of an axis of one."""
    x = af.input((1, 4, 8, 8))
    pooled = af.conv(x.mean((2, 3)), np.ones((4, 4, 1, 1)))
    assert layers_of(pooled.clamped_relu(0.1, 6.0), "m1")[1:] == [
        ["convolution", "pre_activation:leaky_relu", "post_activation:clamped_relu"]
    ]
    assert layers_of(pooled.clip(-1, 2), "m1")[1:] == [["convolution", "post_activation:clamped_relu"]]
    assert layers_of(pooled.tile((1, 1, 8, 8)).relu(), "m1")[1:] == [
        ["convolution", "broadcast:broadcast", "post_activation:relu"]
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("square", [lambda y: y.square(), lambda y: y * y])
def test_a_square_joins_its_reduction_from_a14_on(square):
    """Byte 0x494 (table 24.3); the number stays the unfused one (N26), and the verdict follows from the layer."""
    x = af.input((1, 4, 8, 8), name="x")
    out = square(x.sum(3))
    kind = out.op.replace("mul", "mult")
    assert layers_of(out, "m1") == [["reduce_sum"], [kind]]
    assert layers_of(out, "m2") == [["reduce_sum", f"square:{kind}"]]
    numbers = np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype(np.float16)
    one, two = (af.compile(out, target=chip)(numbers) for chip in ("m1", "m2"))
    np.testing.assert_array_equal(one, two)
    reduced = graph_verdicts(out, "m1", "m2")[0][1]
    assert (reduced.kind, reduced.verdict, reduced.field_verdict) == ("reduce_square", "none", "round1")
    scaled = graph_verdicts(x.sum(3) * x, "m1", "m2")[0][1]  # another factor is no square
    assert scaled.field_verdict == "none"


def test_a_slot_that_is_past_opens_a_new_layer():
    b = Build()
    y = b.op("transpose", b.conv(b.input()), transpose_list=((3, 4), (4, 3)))
    y = b.op("mult", y, b.const(np.full(8, 2.0)))
    assert fused(b.done(y)) == [["convolution", "transpose:transpose"], ["gain_offset_control"]]


def test_concat_and_attention_are_barriers():
    b = Build()
    x = b.input()
    joined = b.op("concat", b.conv(x), x, type_=TensorType((1, 1, 16, 4, 4)), axis=2)
    relu = b.op("relu", joined, type_=joined.type)
    q = b.input()
    attention = b.op("sdpa", q, q, q, b.const([0.5]), subtract_max=True)
    assert fused(b.done(relu, attention)) == [["convolution"], ["concat"], ["relu"], ["sdpa"]]


def test_batch_norm_and_scale_go_into_the_weights():
    b = Build()
    y = b.conv(b.input(), bias=np.ones(8))
    stats = [np.full(8, 2.0), np.full(8, 0.5), np.full(8, 1.0), np.full(8, 4.0)]
    y = b.op("batch_norm", y, *[b.const(each) for each in stats], epsilon=0.0)
    module = b.done(b.op("relu", y))
    assert fused(module) == [["convolution", "post_activation:relu"]]
    conv = next(op for op in module if op.kind == "convolution")
    kernel, bias = (module.weights[op.attrs["weight"]].array for op in conv.operands[1:])
    np.testing.assert_array_equal(kernel, np.full((8, 8, 1, 1), 0.25))  # gain 2 / sqrt(4) = 1
    np.testing.assert_array_equal(bias, np.full(8, 1.0 + 0.5 - 1.0))
    assert conv.sources == ("convolution_3", "batch_norm_8")


def test_a_scale_that_leaves_fp16_is_not_folded():
    b = Build()
    kernel = b.const(np.full((8, 8, 1, 1), 60000.0), TensorType((8, 1, 8, 1, 1)))
    attrs = {"strides": (1, 1, 1), "dilation_rates": (1, 1, 1), "groups": 1, "kernel_sizes": (1, 1, 1)}
    conv = b.op("convolution", b.input(), kernel, explicit_padding=(0,) * 6, **attrs)
    module = b.done(b.op("mult", conv, b.const(np.full(8, 4.0))))
    assert fused(module) == [["convolution", "goc:gain_offset_control"]]


@pytest.mark.parametrize(
    ("constant", "fuses"),
    [
        (TensorType((1, 1, 1, 1, 1)), True),
        (TensorType((1, 1, 8, 1, 1)), True),
        (TensorType((1, 1, 1, 4, 1)), False),
        (TensorType((1, 1, 1, 1, 4)), False),
        (MAP, False),
    ],
)
def test_only_singular_and_per_channel_constants_reach_the_unit(constant, fuses):
    b = Build()
    pooled = b.op("max_pool", b.input(), ksize=(1, 1, 1), padding=(0,) * 6, stride=(1, 1, 1))
    module = b.done(b.op("add", pooled, b.const(np.ones(constant.elements), constant)))
    run_passes(module, M1, ["constants-to-gain-offset"])
    assert kinds(module) == ["max_pool", "gain_offset_control" if fuses else "add"]


@pytest.mark.parametrize("kind", ["add", "sub", "mult"])
@pytest.mark.parametrize("constant_first", [False, True])
def test_the_affine_is_right_on_both_sides(kind, constant_first):
    b = Build()
    x, c = b.input(), b.const(np.arange(8.0) + 1)
    module = b.done(b.op(kind, *((c, x) if constant_first else (x, c))))
    run_passes(module, M1, ["constants-to-gain-offset"])
    unit = next(op for op in module if op.kind == "gain_offset_control")
    gain, offset = (module.weights[op.attrs["weight"]].array.astype(float) for op in unit.operands[1:])
    value = np.arange(8.0) + 1
    expected = {"add": (1, value), "mult": (value, 0), "sub": (-1, value) if constant_first else (1, -value)}[kind]
    np.testing.assert_array_equal(gain, np.broadcast_to(expected[0], 8))
    np.testing.assert_array_equal(offset, np.broadcast_to(expected[1], 8))


def test_gain_offset_units_in_a_row_are_one():
    b = Build()
    y = b.op("mult", b.input(), b.const([2.0]))
    module = b.done(b.op("add", y, b.const(np.arange(8.0))))
    assert fused(module) == [["gain_offset_control"]]


def test_constants_are_never_multiplied_together():
    b = Build()
    y = b.op("mult", b.input(), b.const([704.0]))
    module = b.done(b.op("mult", y, b.const([1 / 710])))
    run_passes(module, M1, FUSION)
    assert kinds(module) == ["gain_offset_control", "gain_offset_control"]


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        (("relu", {}), ("relu", {}), ["relu"]),
        (("relu", {}), ("n_relu", {"max_val": 6.0}), ["n_relu"]),
        (("clamped_relu", {"min_val": -1.0, "max_val": 1.0}), ("relu", {}), ["n_relu"]),
        (
            ("clamped_relu", {"min_val": -2.0, "max_val": 2.0}),
            ("clamped_relu", {"min_val": -1.0, "max_val": 3.0}),
            ["clamped_relu"],
        ),
        (("clamped_relu", {"min_val": -2.0, "max_val": -1.0}), ("relu", {}), ["clamped_relu", "relu"]),
        (("tanh", {}), ("tanh", {}), ["tanh", "tanh"]),
        (("floor", {}), ("floor", {}), ["floor"]),
    ],
)
def test_activation_pairs(first, second, left):
    b = Build()
    y = b.op(first[0], b.input(), **first[1])
    module = b.done(b.op(second[0], y, **second[1]))
    run_passes(module, M1, ["merge-activations"])
    assert kinds(module) == left


def test_transposes_collapse_and_cancel():
    b = Build()
    x = b.input(TensorType((1, 1, 2, 3, 4)))
    one = b.op("transpose", x, type_=TensorType((1, 1, 3, 2, 4)), transpose_list=((2, 3), (3, 2)))
    two = b.op("transpose", one, type_=TensorType((1, 1, 3, 4, 2)), transpose_list=((3, 4), (4, 3)))
    back = b.op("transpose", one, type_=x.type, transpose_list=((2, 3), (3, 2)))
    module = b.done(b.op("relu", two, type_=two.type), b.op("relu", back, type_=back.type))
    run_passes(module, M1, ["collapse-transposes"])
    assert kinds(module) == ["transpose", "relu", "relu"]
    turned = next(op for op in module if op.kind == "transpose")
    assert turned.attrs["transpose_list"] == ((2, 3), (3, 4), (4, 2))
    assert turned.operands[0].kind == "live_in"


def test_a_transpose_becomes_the_flag_of_a_matmul():
    b = Build()
    a, w = b.input(TensorType((1, 1, 2, 1, 3))), b.input(TensorType((1, 1, 4, 1, 3)))
    turned = b.op("transpose", w, type_=TensorType((1, 1, 3, 1, 4)), transpose_list=((2, 4), (4, 2)))
    module = b.done(b.op("matmul", a, turned, type_=TensorType((1, 1, 2, 1, 4))))
    run_passes(module, M1, ["collapse-transposes", "transposes-into-matmul"])
    product = next(op for op in module if op.kind == "matmul")
    assert product.attrs == {"transpose_rhs": True}
    assert product.sources == ("transpose_2", "matmul_3")


def linear(b, x, outputs, inputs, bias=False):
    weight = b.const(np.full((outputs, inputs), 0.125), TensorType((1, 1, outputs, 1, inputs)))
    operands = [x, weight] + ([b.const(np.ones(outputs), TensorType((1, 1, 1, 1, outputs)))] if bias else [])
    return b.op("linear", *operands, type_=TensorType((1, 1, x.shape[2], 1, outputs)))


def test_a_small_product_is_a_resident_convolution_and_transposes_between_two_cancel():
    b = Build()
    x = b.input(TensorType((1, 1, 4, 1, 8)))
    hidden = b.op("gelu", linear(b, x, 16, 8, bias=True), type_=TensorType((1, 1, 4, 1, 16)))
    module = b.done(linear(b, hidden, 8, 16))
    assert fused(module) == [
        ["transpose"],
        ["convolution", "post_activation:gelu"],
        ["convolution", "transpose:transpose"],
    ]


def test_a_3_mb_weight_stays_a_tiled_product():
    b = Build()
    x = b.input(TensorType((1, 1, 4, 1, 1536)))
    module = b.done(linear(b, x, 1024, 1536))
    assert 2 * 1024 * 1536 == 3 * 1024 * 1024
    assert fused(module) == [["linear"]]


@pytest.mark.parametrize(("outputs", "kind"), [(1023, "convolution"), (1024, "linear")])
def test_the_threshold_is_the_working_set(outputs, kind):
    b = Build()
    module = b.done(linear(b, b.input(TensorType((1, 1, 2, 1, 1024))), outputs, 1024))
    run_passes(module, M1, ["products-to-convolutions"])
    assert kind in kinds(module)


def net(x):
    """A little of everything that phase 1 rewrites."""
    rng = np.random.default_rng(3)
    channels = x.shape[1]
    y = af.conv(x, rng.normal(0, 0.3, (channels, channels, 3, 3)), pad=1, bias=rng.normal(size=channels))
    y = af.batch_norm(y, *(1 + 0.2 * rng.random((4, channels)))).relu()
    y = (y * 0.5 + rng.normal(size=(1, channels, 1, 1))).tanh()
    rows = y.reshape(channels, -1).transpose([1, 0])
    hidden = rows.linear(rng.normal(0, 0.3, (12, channels)), rng.normal(size=12)).gelu()
    mixed = hidden.linear(rng.normal(0, 0.3, (channels, 12))) + rows
    return (mixed @ mixed.mT).softmax().relu().clip(0.0, 0.9)


def fused_alike(out, x, chip):
    """Fuse a graph for a chip; it means the same before and after, and lowering means what the graph means."""
    lowered = lower(out)
    data = np.random.default_rng(0).normal(size=x.shape)
    feeds = [lowered.inputs[0].to_ndchw(data)]
    name = lowered.outputs[0].name
    before = interpret(lowered.module, feeds)[name]
    run_passes(lowered.module, target(chip), FUSION)
    after = interpret(lowered.module, feeds)[name]
    # Folded constants are rounded to fp16 once more; nothing else may differ.
    np.testing.assert_allclose(after, before, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(lowered.outputs[0].from_ndchw(before), af.evaluate(out, [data]), rtol=1e-9, atol=1e-9)
    return lowered.module


@pytest.mark.parametrize("chip", ["h13", "h14", "h16s", "h17s"])
def test_the_fused_program_means_the_same(chip):
    x = af.input((1, 4, 5, 6), name="x")
    module = fused_alike(net(x), x, chip)
    assert all(op.sources for op in module if op.kind not in ("live_in", "live_out"))


def test_a_live_bias_stays_with_its_product():
    b = Build()
    x = b.input(TensorType((1, 1, 4, 1, 8)))
    weight = b.const(np.ones((8, 8)), TensorType((1, 1, 8, 1, 8)))
    bias = b.input(TensorType((1, 1, 1, 1, 8)))
    module = b.done(b.op("linear", x, weight, bias, type_=TensorType((1, 1, 4, 1, 8))))
    run_passes(module, M1, ["products-to-convolutions"])
    assert kinds(module) == ["linear"]


def test_copies_go():
    b = Build()
    y = b.op("reshape", b.input(), shape=(1, 1, 8, 4, 4))
    y = b.op("cast", y, to="f16")
    module = b.done(b.op("relu", y))
    run_passes(module, M1, ["drop-copies"])
    assert kinds(module) == ["relu"]


def test_the_order_is_checked_before_anything_runs():
    assert [each.name for each in checked_order(FUSION)] == list(FUSION)
    with pytest.raises(AnecError, match="requires gain and offset"):
        checked_order(["label-layers"])
    with pytest.raises(UnknownNameError, match="merge-activations"):
        checked_order(["merge-activation"])
    for each in PASSES.values():
        assert each.purpose
        assert each.phase in (0, 1, 2, 3, 4)


def test_a_pass_that_breaks_the_code_is_named(monkeypatch):
    from dataclasses import replace

    b = Build()
    module = b.done(b.op("relu", b.input()))
    broken = replace(PASSES["merge-activations"], apply=lambda m, t: m.ops.pop(1) and 1)
    monkeypatch.setitem(PASSES, "merge-activations", broken)
    with pytest.raises(AnecError, match="after pass 'merge-activations'"):
        run_passes(module, M1, ["merge-activations"])


# Quantised values.

BYTES = TensorType(MAP.shape, "si8")
KERNEL = TensorType((8, 1, 8, 1, 1), "si8")
CONV = {"strides": (1, 1, 1), "dilation_rates": (1, 1, 1), "groups": 1, "explicit_padding": (0,) * 6}
CONV |= {"kernel_sizes": (1, 1, 1)}
QUANTISERS = ["drop-copies", "collapse-quant-dequant", "dequant-across-concat", "collapse-quant-dequant"]


def whole(*shape, low=-128, high=128, seed=5):
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.float64)


def fed(module, seed=1):
    """Numbers for every input: whole ones where the type says bytes."""
    rng = np.random.default_rng(seed)
    ranges = {"si8": (-128, 128), "ui8": (0, 256)}
    return [
        rng.normal(size=op.shape) if op.type.dtype == "f16" else rng.integers(*ranges[op.type.dtype], op.shape)
        for op in module.inputs
    ]


def same(module, names, rtol=0.0, chip=M1):
    """Run passes and compare the meaning before and after; exactly, unless a tolerance is given."""
    feeds = fed(module)
    before = interpret(module, feeds)
    run_passes(module, chip, names)
    assert str(parse(str(module))) == str(module)
    after = interpret(module, feeds)
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, rtol=rtol, atol=rtol)
    assert all(op.sources for op in module if op.kind not in ("live_in", "live_out"))
    return kinds(module)


def quant(b, x, scale=0.1, zero_point=3, to="si8"):
    return b.op("quant", x, type_=TensorType(x.shape, to), scale=scale, zero_point=zero_point, to=to)


def dequant(b, x, scale=0.1, zero_point=3):
    return b.op("dequant", x, type_=TensorType(x.shape), scale=scale, zero_point=zero_point)


def packed_conv(b, x, scale=0.25, zero_point=0, values=None, kind="convolution"):
    kernel = b.const(whole(8, 8, 1, 1) if values is None else values, KERNEL)
    return b.op(kind, x, dequant(b, kernel, scale, zero_point), **CONV)


@pytest.mark.parametrize("scale", [0.1, 1 / 3, 2.0**-20, 1000.0])
@pytest.mark.parametrize("zero_point", [0, -128, 17])
def test_a_quant_of_a_dequant_is_the_value(scale, zero_point):
    b = Build()
    q = b.input(BYTES)
    once = quant(b, dequant(b, q, scale, zero_point), scale, zero_point)
    again = quant(b, dequant(b, once, scale, zero_point), scale, zero_point)
    assert same(b.done(once, again), QUANTISERS[:2]) == []


@pytest.mark.parametrize(
    "other", [{"scale": 0.2}, {"zero_point": 4}, {"to": "ui8"}, {"scale": 0.2, "zero_point": 0}], ids=str
)
def test_other_quantisers_stay(other):
    b = Build()
    module = b.done(quant(b, dequant(b, b.input(BYTES)), **other))
    assert same(module, QUANTISERS[:2]) == ["dequant", "quant"]


def test_a_dequant_of_a_quant_rounds_and_stays():
    b = Build()
    assert same(b.done(dequant(b, quant(b, b.input()))), QUANTISERS[:2]) == ["quant", "dequant"]


@pytest.mark.parametrize("attrs", [{"axis": 2}, {"axis": 3}, {"axis": 2, "interleave": True}], ids=str)
def test_equal_dequants_cross_a_concat_once(attrs):
    b = Build()
    parts = [dequant(b, b.input(BYTES)) for _ in range(3)]
    shape = tuple(3 * extent if i == attrs["axis"] else extent for i, extent in enumerate(MAP.shape))
    joined = b.op("concat", *parts, type_=TensorType(shape), **attrs)
    module = b.done(b.op("relu", joined, type_=joined.type))
    assert same(module, QUANTISERS[:3]) == ["concat", "dequant", "relu"]
    made = next(op for op in module if op.kind == "concat")
    assert made.type == TensorType(shape, "si8")
    assert made.attrs == attrs


def test_a_dequant_behind_the_concat_meets_its_opposite():
    b = Build()
    q = b.input(BYTES)
    part = dequant(b, q)
    joined = b.op("concat", part, dequant(b, b.input(BYTES)), type_=TensorType((1, 1, 16, 4, 4)), axis=2)
    other = quant(b, part)  # a reader of the part that goes away first
    assert same(b.done(quant(b, joined), other), QUANTISERS) == ["concat"]


@pytest.mark.parametrize("fault", ["scale", "zero point", "type", "read", "live"])
def test_dequants_that_differ_or_are_read_elsewhere_stay(fault):
    b = Build()
    first = dequant(b, b.input(BYTES))
    second = {
        "scale": lambda: dequant(b, b.input(BYTES), 0.2),
        "zero point": lambda: dequant(b, b.input(BYTES), zero_point=0),
        "type": lambda: dequant(b, b.input(TensorType(MAP.shape, "ui8"))),
        "live": b.input,
    }.get(fault, lambda: dequant(b, b.input(BYTES)))()
    joined = b.op("concat", first, second, type_=TensorType((1, 1, 16, 4, 4)), axis=2)
    module = b.done(joined, *([b.op("relu", second)] if fault == "read" else []))
    before = kinds(module)
    assert same(module, QUANTISERS) == before


@pytest.mark.parametrize("zero_point", [0, 7])
@pytest.mark.parametrize("kind", ["convolution", "deconvolution", "linear"])
def test_a_dequantised_kernel_is_read_as_it_is_stored(kind, zero_point):
    b = Build()
    if kind == "linear":
        kernel = b.const(whole(6, 8), TensorType((1, 1, 6, 1, 8), "si8"))
        x = b.input(TensorType((1, 1, 5, 1, 8)))
        out = b.op("linear", x, dequant(b, kernel, 0.375, zero_point), type_=TensorType((1, 1, 5, 1, 6)))
    else:
        out = packed_conv(b, b.input(), 0.375, zero_point, kind=kind)
    module = b.done(out)
    assert same(module, ["dequant-into-weights"]) == [kind]  # 3/8 is an fp16 number, so nothing is rounded
    op = next(op for op in module if op.kind == kind)
    assert op.operands[1].kind == "const_in"
    assert op.operands[1].type.dtype == "si8"
    assert module.weights[op.attrs["kernel_scale"]].array == np.float16(0.375)
    assert ("kernel_zero_point" in op.attrs) == bool(zero_point)
    assert op.sources == ("dequant_2", f"{kind}_3")


def test_a_scale_is_rounded_to_fp16_once_and_one_beyond_it_stays_outside():
    b = Build()
    assert same(b.done(packed_conv(b, b.input(), 0.1)), ["dequant-into-weights"], rtol=2.0**-10) == ["convolution"]
    for scale in (1e-6, 1e6):
        b = Build()
        assert same(b.done(packed_conv(b, b.input(), scale)), ["dequant-into-weights"]) == ["dequant", "convolution"]
    b = Build()
    assert same(b.done(packed_conv(b, b.input(), 0.5, 128)), ["dequant-into-weights"]) == ["dequant", "convolution"]


def test_live_and_fp16_kernels_keep_their_dequant():
    b = Build()
    live = b.op("convolution", b.input(), dequant(b, b.input(KERNEL)), **CONV)
    wide = b.op("convolution", b.input(), dequant(b, b.const(whole(8, 8, 1, 1), TensorType(KERNEL.shape))), **CONV)
    assert same(b.done(live, wide), ["dequant-into-weights"]) == ["dequant", "convolution", "dequant", "convolution"]


def test_one_dequant_of_two_kernels_goes_from_both():
    b = Build()
    kernel = dequant(b, b.const(whole(8, 8, 1, 1), KERNEL), 0.5)
    outs = [b.op("convolution", b.input(), kernel, **CONV) for _ in range(2)]
    assert same(b.done(*outs), ["dequant-into-weights"]) == ["convolution", "convolution"]


def palette(b, table, indices, layout, kind="ui8"):
    line = b.const(table, TensorType((1, 1, 1, 1, np.size(table))))
    index = b.const(indices, TensorType(layout, kind))
    return b.op("gather_nd", line, index, type_=TensorType(layout), axes=(4,))


@pytest.mark.parametrize("chip", ["h13", "h17s"])
def test_a_look_up_of_stored_indices_is_the_kernels_table(chip):
    table = np.linspace(-1, 1, 16).astype(np.float16).astype(np.float64)
    b = Build()
    kernel = palette(b, table, whole(8, 8, 1, 1, low=0, high=16), KERNEL.shape)
    conv = b.op("convolution", b.input(), kernel, **CONV)
    rows = palette(b, table, whole(6, 8, low=0, high=16), (1, 1, 6, 1, 8))
    x = b.input(TensorType((1, 1, 5, 1, 8)))
    product = b.op("linear", x, rows, type_=TensorType((1, 1, 5, 1, 6)))
    module = b.done(conv, product)
    assert same(module, ["dequant-into-weights"]) == ["convolution", "linear"]
    first, second = (op for op in module if op.kind in ("convolution", "linear"))
    assert first.attrs["kernel_palettized_LUT"] == second.attrs["kernel_lut"]
    # The product is a convolution then, and the table goes with it; an affine behind it stays the unit's.
    assert same(module, FUSION, chip=target(chip), rtol=1e-12) == [
        "convolution",
        "transpose",
        "convolution",
        "transpose",
    ]
    assert sum("kernel_palettized_LUT" in op.attrs for op in module) == 2


@pytest.mark.parametrize("fault", ["signed index", "two axes", "wide table", "plane"])
def test_other_look_ups_stay(fault):
    b = Build()
    table = np.zeros({"wide table": 300, "plane": (4, 4)}.get(fault, 16))
    kernel = palette(b, table, whole(8, 8, 1, 1, low=0, high=16), KERNEL.shape, "si8" if "signed" in fault else "ui8")
    if fault == "two axes":
        kernel.attrs["axes"] = (3, 4)
        kernel.operands[0].type = TensorType((1, 1, 2, 1, 8))
    module = b.done(b.op("convolution", b.input(), kernel, **CONV))
    run_passes(module, M1, ["dequant-into-weights"])
    assert kinds(module) == ["gather_nd", "convolution"]


def test_a_gain_behind_a_packed_kernel_goes_into_its_scale():
    b = Build()
    gain = np.linspace(0.5, 2.0, 8)
    out = b.op("mult", packed_conv(b, b.input(), 0.25, 3), b.const(gain))
    module = b.done(b.op("relu", b.op("add", out, b.const(np.arange(8.0)))))
    assert same(module, FUSION, rtol=2e-3) == ["convolution", "relu"]
    conv = next(op for op in module if op.kind == "convolution")
    scale = module.weights[conv.attrs["kernel_scale"]].array
    np.testing.assert_array_equal(scale, (0.25 * gain.astype(np.float16).astype(float)).astype(np.float16))
    assert conv.operands[1].type == KERNEL
    np.testing.assert_array_equal(module.weights[conv.operands[1].attrs["weight"]].array, whole(8, 8, 1, 1))


def test_a_gain_that_a_packed_kernel_cannot_take_stays_in_the_unit():
    b = Build()
    small = b.op("mult", packed_conv(b, b.input(), 2.0**-14), b.const(np.full(8, 0.5)))
    kernel = palette(b, np.linspace(-1, 1, 16), whole(8, 8, 1, 1, low=0, high=16), KERNEL.shape)
    table = b.op("mult", b.op("convolution", b.input(), kernel, **CONV), b.const(np.full(8, 0.5)))
    plain = b.op("convolution", b.input(), b.const(whole(8, 8, 1, 1), KERNEL), **CONV)
    bytes_ = b.op("mult", plain, b.const(np.full(8, 0.5)))
    assert same(b.done(small, table, bytes_), FUSION, rtol=1e-12) == ["convolution", "gain_offset_control"] * 3


def test_a_packed_product_is_measured_in_its_bytes():
    b = Build()
    rows, columns = 1024, 1536  # 3 MB in fp16, 1.5 MB in bytes
    kernel = b.const(np.ones((rows, columns)), TensorType((1, 1, rows, 1, columns), "si8"))
    x = b.input(TensorType((1, 1, 2, 1, columns)))
    module = b.done(b.op("linear", x, dequant(b, kernel, 0.5, 0), type_=TensorType((1, 1, 2, 1, rows))))
    assert fused(module) == [["transpose"], ["convolution", "transpose:transpose"]]
    conv = next(op for op in module if op.kind == "convolution")
    assert conv.operands[1].type.dtype == "si8"
    assert module.weights[conv.attrs["kernel_scale"]].array == 0.5


# Concats.


def joined(b, *parts, axis=2, **attrs):
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return b.op("concat", *parts, type_=TensorType(tuple(shape)), axis=axis, **attrs)


def like(b, kind, x, *constants, **attrs):
    return b.op(kind, x, *constants, type_=x.type, **attrs)


def product(b):
    a, c = b.input(TensorType((1, 1, 8, 1, 4))), b.input(TensorType((1, 1, 4, 1, 4)))
    return b.op("matmul", a, c, type_=a.type)


def test_an_activation_moves_through_a_fusable_concat():
    b = Build()
    conv = b.conv(b.input())
    pooled = b.op("max_pool", b.input(), ksize=(1, 1, 1), padding=(0,) * 6, stride=(1, 1, 1))
    summed = b.op("add", b.input(), b.input())
    module = b.done(like(b, "tanh", joined(b, conv, pooled, summed), alpha=2.0))
    assert same(module.clone(), FUSION) == ["convolution", "max_pool", "add", "tanh", "tanh", "tanh", "concat"]
    assert fused(module) == [
        ["convolution", "post_activation:tanh"],
        ["max_pool", "post_activation:tanh"],
        ["add", "post_activation:tanh"],
        ["concat"],
    ]
    assert all(op.attrs == {"alpha": 2.0} for op in module if op.kind == "tanh")


@pytest.mark.parametrize(
    "fault", ["input", "read", "twice", "second reader", "full", "two operands", "bridge", "view"]
)
def test_other_concats_stay_boundaries(fault):
    b = Build()
    first, others = b.conv(b.input()), []
    second = {"input": b.input, "twice": lambda: first}.get(fault, lambda: b.conv(b.input(), bias=np.ones(8)))()
    if fault == "read":
        others = [b.op("abs", second)]
    if fault == "full":
        second = b.op("tanh", b.op("sigmoid", second))
    if fault == "bridge":
        second.mark(bridge=True)
    if fault == "view":
        second = b.op("input_view", second, dimension=3, offset=3, size=4, step=-1)
    both = joined(b, first, second)
    slope = [b.const([0.5])] if fault == "two operands" else []
    out = like(b, "leaky_relu" if slope else "relu", both, *slope)
    if fault == "second reader":
        others = [like(b, "abs", both)]
    module = b.done(out, *others)
    before = kinds(module)
    assert same(module, FUSION) == before


@pytest.mark.parametrize("axis", [2, 3])
def test_a_gain_and_an_activation_move_one_after_the_other(axis):
    b = Build()
    both = joined(b, product(b), product(b), axis=axis)
    channels = both.shape[2]
    scaled = like(b, "mult", both, b.const(np.linspace(0.5, 2.0, channels)))
    shifted = like(b, "add", scaled, b.const([0.25]))
    module = b.done(like(b, "gelu", like(b, "relu", like(b, "relu", shifted))))
    before = same(module.clone(), FUSION)
    assert before == ["matmul", "matmul", *["gain_offset_control"] * 2, "relu", "relu", "concat", "gelu"]
    assert fused(module) == [
        ["matmul", "goc:gain_offset_control", "post_activation:relu"],
        ["matmul", "goc:gain_offset_control", "post_activation:relu"],
        ["concat"],
        ["gelu"],
    ]
    gains = [module.weights[op.operands[1].attrs["weight"]].array for op in module if op.kind == "gain_offset_control"]
    whole_line = np.linspace(0.5, 2.0, channels).astype(np.float16)
    np.testing.assert_array_equal(np.concatenate(gains) if axis == 2 else gains[0], whole_line)


def test_a_gain_goes_on_into_the_kernels_it_has_reached():
    b = Build()
    both = joined(b, b.conv(b.input()), b.conv(b.input(), bias=np.ones(8)))
    module = b.done(like(b, "relu", like(b, "mult", both, b.const(2.0 ** np.arange(-8, 8)))))
    assert same(module, FUSION) == ["convolution", "convolution", "relu", "relu", "concat"]  # powers of two: exact


def test_an_interleaved_concat_passes_what_is_the_same_for_every_channel():
    b = Build()
    both = joined(b, product(b), product(b), interleave=True)
    module = b.done(like(b, "gain_offset_control", both, gain=2.0, bias=0.5))
    assert same(module, FUSION) == ["matmul", "matmul", "gain_offset_control", "gain_offset_control", "concat"]
    b = Build()
    both = joined(b, product(b), product(b), interleave=True)
    module = b.done(like(b, "mult", both, b.const(np.linspace(0.5, 2.0, 16))))
    assert same(module, FUSION) == ["matmul", "matmul", "concat", "gain_offset_control"]


def test_cut_constants_are_not_read():
    b = Build()
    both = joined(b, product(b), product(b))
    module = b.done(like(b, "mult", both, b.const(np.linspace(0.5, 2.0, 16))))
    run_passes(module, M1, ["constants-to-gain-offset", "merge-activations", "hoist-through-concat"])
    cut = [module.weights[op.operands[1].attrs["weight"]] for op in module if op.kind == "gain_offset_control"]
    assert [each.shape for each in cut] == [(8,), (8,)]
    assert all(each._array is None for each in cut)  # a recipe, made when somebody reads it


# Native layers.


def test_a_bridge_takes_nothing_up_and_is_not_taken_up():
    b = Build()
    host = b.op("scaled_elementwise", b.input(), b.input(), mode="Add", scale=0.5)
    module = b.done(b.op("relu", host))
    assert fused(module.clone()) == [["scaled_elementwise", "post_activation:relu"]]
    module.ops[2].mark(bridge=True)
    assert fused(module) == [["scaled_elementwise"], ["relu"]]
    b = Build()
    absorbed = b.op(
        "resize", b.conv(b.input()), height=4, width=4, sampling_methods="Linear", sampling_modes="Default"
    )
    module = b.done(b.op("relu", absorbed))
    assert fused(module.clone()) == [["convolution", "texture:resize", "post_activation:relu"]]
    next(op for op in module if op.kind == "resize").mark(bridge=True)
    assert fused(module) == [["convolution"], ["resize"], ["relu"]]


def test_native_layers_never_fuse():
    assert not {"sdpa", "unit"} & kinds_with(Trait.HOST)
    b = Build()
    q = b.conv(b.input())
    attention = b.op("relu", b.op("sdpa", q, q, q, b.const([0.5])))
    unit = b.op("relu", b.op("unit", b.conv(b.input()), type="Neuron", params=Params({"Type": "ATan"})))
    assert fused(b.done(attention, unit)) == [
        *(["convolution"], ["sdpa"], ["relu"], ["convolution"], ["unit"], ["relu"]),
    ]


# Table 22.3 row by row: what a pattern becomes.


def row_bias(b):
    return like(b, "relu", like(b, "add", product(b), b.const(np.ones(8))))


def row_scale(b):
    stats = [b.const(np.full(8, value)) for value in (2.0, 0.5, 1.0, 4.0)]
    return b.op("batch_norm", b.op("mult", b.conv(b.input()), b.const([2.0])), *stats, epsilon=0.0)


def row_activation(b):
    clamped = b.op("n_relu", b.op("relu", b.conv(b.input())), max_val=6.0)
    return b.op("sigmoid", b.op("mult", clamped, b.const(np.full(8, 0.5))))


def row_transpose(b):
    turned = b.conv(b.input())
    for _ in range(3):  # two of the three cancel
        turned = b.op("transpose", turned, transpose_list=((3, 4), (4, 3)))
    flat = b.op("reshape", turned, type_=TensorType((1, 1, 1, 8, 16)), shape=(1, 1, 1, 8, 16))
    return b.op("reshape", flat, shape=MAP.shape)


def row_dequantize(b):
    acted = b.op("relu", dequant(b, packed_conv(b, b.input(), 0.5), 0.1, 0))
    return quant(b, dequant(b, quant(b, acted)))


def row_matmul(b):
    weight = b.const(np.full((16, 8), 0.125), TensorType((1, 1, 16, 1, 8)))
    bias = b.const(np.arange(16.0), TensorType((1, 1, 1, 1, 16)))
    x, rows = b.input(TensorType((1, 1, 4, 1, 8))), TensorType((1, 1, 4, 1, 16))
    return b.op("gelu", b.op("linear", x, weight, bias, type_=rows), type_=rows)


def row_two_live(b):
    return b.op("relu", b.op("add", b.conv(b.input()), b.conv(b.input())))


def row_concat(b):
    kept = like(b, "relu", joined(b, b.conv(b.input()), b.input()))
    return joined(b, kept, like(b, "relu", joined(b, b.conv(b.input()), b.conv(b.input()))))


def row_attention(b):
    q = b.conv(b.input())
    return b.op("relu", b.op("sdpa", q, q, q, b.const([0.5])))


CONV_RELU = ["convolution", "post_activation:relu"]
ROWS = {
    "bias-add (one constant)": (row_bias, [["matmul", "goc:gain_offset_control", "post_activation:relu"]]),
    "scale or batch-norm (one constant)": (row_scale, [["convolution"]]),
    "activation": (
        row_activation,
        [["convolution", "pre_activation:n_relu", "goc:gain_offset_control", "post_activation:sigmoid"]],
    ),
    "transpose and reshape chains": (row_transpose, [["convolution", "transpose:transpose"]]),
    "dequantize": (row_dequantize, [["convolution", "goc:dequant", "post_activation:relu", "quant:quant"]]),
    "matmul or linear": (
        row_matmul,
        [["transpose"], ["convolution", "post_activation:gelu", "transpose:transpose"]],
    ),
    "two-live-input elementwise": (
        row_two_live,
        [["convolution"], ["convolution"], ["add", "post_activation:relu"]],
    ),
    "concat": (row_concat, [["convolution"], ["concat"], ["relu"], CONV_RELU, CONV_RELU, ["concat"], ["concat"]]),
    "scaled-dot-product attention": (row_attention, [["convolution"], ["sdpa"], ["relu"]]),
}


@pytest.mark.parametrize("chip", ["h11", "h13", "h14", "h17s"])
@pytest.mark.parametrize("row", ROWS)
def test_row_of_table_22_3(row, chip):
    build, expected = ROWS[row]
    b = Build()
    module = b.done(build(b))
    same(module, FUSION, rtol=2e-3, chip=target(chip))
    assert layers(module) == expected


def wide_net(x):
    """What phase 1 moves through concats, and reductions over the batch."""
    rng = np.random.default_rng(4)
    channels = x.shape[1]
    parts = [
        af.conv(x, rng.normal(0, 0.3, (size, channels, 3, 3)), pad=1, bias=rng.normal(size=size)) for size in (3, 5)
    ]
    y = af.concat(parts, axis=1) * rng.normal(size=(1, 8, 1, 1)) + rng.normal(size=(1, 8, 1, 1))
    y = af.concat([y.relu(), x], axis=1).tanh()
    return (y - y.mean((0, 2))) * y.softmax(0) + y.l2_norm(0)


@pytest.mark.parametrize("chip", ["h13", "h14", "h16s", "h17s"])
def test_a_fused_program_with_concats_means_the_same(chip):
    x = af.input((2, 4, 5, 6), name="x")
    module = fused_alike(wide_net(x), x, chip)
    assert ["convolution", "post_activation:relu"] in layers(module)
    assert "gain_offset_control" not in kinds(module)[:4]


@settings(max_examples=60)
@given(graph=graphs(), seed=st.integers(0, 2**31), chip=st.sampled_from(["h11", "h13", "h15g", "h17s"]))
def test_passes_that_round_nothing_change_nothing(graph, seed, chip):
    rng = np.random.default_rng(seed)
    lowered = lower(graph)
    feeds = {port.name: rng.standard_normal(port.user_shape) for port in lowered.inputs}
    before = values_of(lowered, feeds)
    exact = [name for name in FUSION if not PASSES[name].rounds]
    run_passes(lowered.module, target(chip), exact)
    for got, expected in zip(values_of(lowered, feeds), before, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def bench_networks():
    path = Path(__file__).parent.parent / "bench" / "networks.py"
    found = importlib.util.spec_from_file_location("bench_networks", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


SMALL = {
    "bert_encoder": {"layers": 2, "width": 48, "heads": 4, "sequence": 6},
    "decoder": {"layers": 2, "width": 48, "heads": 4, "sequence": 6},
    "unet": {"size": 16, "widths": (4, 6, 8, 12)},
    "synthetic": {"ops": 200},
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("chip", ["h13", "h17s"])
def test_small_forms_of_the_bench_networks_mean_the_same(name, chip):
    out = bench_networks().NETWORKS[name](**SMALL[name])
    assert af.preflight(out, chip).ok
    lowered = lower(out)
    (port,) = lowered.inputs
    data = np.random.default_rng(0).normal(size=port.user_shape)
    want = af.evaluate(out, [data])
    np.testing.assert_allclose(values_of(lowered, {port.name: data})[0], want, rtol=1e-8, atol=1e-8)
    run_passes(lowered.module, target(chip), FUSION)
    # Folded batch norms and gains are rounded to fp16 once more; the deepest of these has forty of them in a row.
    np.testing.assert_allclose(values_of(lowered, {port.name: data})[0], want, rtol=5e-3, atol=5e-3)
    assert not [op for op in lowered.module if op.kind in ("sdpa", "unit")]


@pytest.mark.parametrize("chip", ["m1", "m5"])
def test_an_offset_after_a_transposed_convolution_is_its_bias(chip):
    """Spelled as an addition it is rounded once, as the bias of the layer is."""
    draw = np.random.default_rng(0)
    kernel, bias = draw.normal(size=(4, 8, 3, 3)), draw.normal(size=8)
    x = af.input((1, 4, 9, 9))
    feed = draw.normal(size=(1, 4, 9, 9)).astype(np.float16)
    whole = af.compile(af.conv_transpose(x, kernel, bias=bias), target=chip)
    spelled = af.compile(af.conv_transpose(x, kernel) + bias.reshape(1, 8, 1, 1), target=chip)
    np.testing.assert_array_equal(whole(feed), spelled(feed))
