"""Phase 1, pass by pass: backend text in, backend text out; every row of table 22.3."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge.anec import AnecError, Module, Op, TensorType, interpret, parse, verify
from aneforge.compiler.fuse import FUSION
from aneforge.compiler.fuse.slots import SLOTS, slot_count
from aneforge.compiler.lower import lower
from aneforge.compiler.passes import PASSES, checked_order, run_passes
from aneforge.errors import UnknownNameError
from aneforge.graph.weights import intern_weight
from aneforge.targets import target

M1 = target("h13")
MAP = TensorType((1, 1, 8, 4, 4))


class Build:
    """A small module by hand."""

    def __init__(self):
        self.module = Module(target="h13")
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
    assert len(SLOTS) == slot_count() == 7


def test_conv_bias_relu_is_one_layer():
    b = Build()
    conv = b.conv(b.input())
    out = b.op("relu", b.op("add", conv, b.const(np.arange(8) / 8)))
    assert fused(b.done(out)) == [["convolution", "post_activation:relu"]]


def test_matmul_bias_gelu_is_one_layer():
    b = Build()
    product = b.op("matmul", b.input(), b.input())
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
    y = b.op("quant", y, scale=0.1, zero_point=0, to="si8")
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


def test_a_slot_that_is_past_opens_a_new_layer():
    b = Build()
    y = b.op("transpose", b.conv(b.input()), transpose_list=((3, 4), (4, 3)))
    y = b.op("mult", y, b.const(np.full(8, 2.0)))
    assert fused(b.done(y)) == [["convolution", "transpose:transpose"], ["gain_offset_control"]]


def test_concat_and_attention_are_barriers():
    b = Build()
    x = b.input()
    joined = b.op("concat", b.conv(x), b.conv(x), type_=TensorType((1, 1, 16, 4, 4)), axis=2)
    relu = b.op("relu", joined, type_=joined.type)
    q = b.input()
    attention = b.op("sdpa", q, q, q, b.const([0.5]), subtract_max=True)
    assert fused(b.done(relu, attention)) == [["convolution"], ["convolution"], ["concat"], ["relu"], ["sdpa"]]


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
    operands = [x, weight] + ([b.const(np.ones(outputs))] if bias else [])
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


@pytest.mark.parametrize("chip", ["h13", "h14", "h16s", "h17s"])
def test_the_fused_program_means_the_same(chip):
    x = af.input((1, 4, 5, 6), name="x")
    out = net(x)
    lowered = lower(out, chip)
    data = np.random.default_rng(0).normal(size=x.shape)
    feeds = [lowered.inputs[0].to_ndchw(data)]
    name = lowered.outputs[0].name
    before = interpret(lowered.module, feeds)[name]
    run_passes(lowered.module, target(chip), FUSION)
    after = interpret(lowered.module, feeds)[name]
    # Folded constants are rounded to fp16 once more; nothing else may differ.
    np.testing.assert_allclose(after, before, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(lowered.outputs[0].from_ndchw(before), af.evaluate(out, [data]), rtol=1e-9, atol=1e-9)
    assert all(op.sources for op in lowered.module if op.kind not in ("live_in", "live_out"))


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
        assert each.phase in (1, 2, 3, 4)


def test_a_pass_that_breaks_the_code_is_named(monkeypatch):
    from dataclasses import replace

    b = Build()
    module = b.done(b.op("relu", b.input()))
    broken = replace(PASSES["drop-copies"], apply=lambda m, t: m.ops.pop(1) and 1)
    monkeypatch.setitem(PASSES, "drop-copies", broken)
    with pytest.raises(AnecError, match="after pass 'drop-copies'"):
        run_passes(module, M1, ["drop-copies"])
