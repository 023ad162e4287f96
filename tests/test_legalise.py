"""Phase 2, pass by pass: backend text in, backend text out; every row of table 35.3 and every refusal."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_fuse import layers

import aneforge as af
from aneforge.chips import all_targets, target
from aneforge.chips.streams import LayerConditions, WeightForm, weight_flow
from aneforge.compiler.facts import Facts
from aneforge.compiler.fuse import FUSION
from aneforge.compiler.fuse.slots import SLOTS
from aneforge.compiler.legalise import LEGALISATION
from aneforge.compiler.legalise.kernels import Piece, exceeds_kernel_memory, layer_conditions, pieces_of
from aneforge.compiler.legalise.relabel import Relayer, recut, spans
from aneforge.compiler.legalise.resizes import interpolation, kernel_size
from aneforge.compiler.legalise.strides import factors
from aneforge.compiler.lower import lower
from aneforge.compiler.passes import PASSES, checked_order, run_pass, run_passes
from aneforge.compiler.refusal import CompileError, RefusedOps
from aneforge.engine.interpret import interpret
from aneforge.engine.ir import AnecError, Module, Op, TensorType
from aneforge.engine.tensor_type import Params
from aneforge.engine.text import parse
from aneforge.engine.verify import verify
from aneforge.graph.weights import intern_weight

MAP = TensorType((1, 1, 8, 6, 6))
PORTS = ("live_in", "const_in", "live_out")


class Build:
    """A small module by hand."""

    def __init__(self):
        self.module = Module()
        self.count = 0

    def op(self, kind, *operands, type_=None, **attrs):
        type_ = operands[0].type if type_ is None and operands else type_
        op = Op(f"anec.{kind}", operands, type_, attrs, (f"{kind}_{self.count}",))
        self.count += 1
        self.module.ops.append(op)
        return op

    def input(self, *shape, dtype="f16"):
        return self.op("live_in", type_=TensorType(shape, dtype), name=f"x{self.count}")

    def const(self, values, shape=None, dtype="f16"):
        weight = intern_weight(np.asarray(values, np.float64))
        self.module.weights[weight.key] = weight
        type_ = TensorType(shape or (1, 1, int(np.size(values)), 1, 1), dtype)
        return self.op("const_in", type_=type_, weight=weight.key)

    def conv(self, x, kernel, stride=(1, 1), pad=(0, 0, 0, 0), dilation=(1, 1), groups=1, bias=None, **more):
        """``kernel`` is an array [O, I, kh, kw] or a live op of that layout."""
        weight = kernel
        if not isinstance(kernel, Op):
            o, i, kh, kw = np.shape(kernel)
            weight = self.const(kernel, (o, 1, i, kh, kw))
        o, _, _, kh, kw = weight.shape
        sizes = [
            (x.shape[3 + a] + pad[2 * a] + pad[2 * a + 1] - dilation[a] * ((kh, kw)[a] - 1) - 1) // stride[a] + 1
            for a in (0, 1)
        ]
        attrs = {
            "strides": (1, *stride),
            "dilation_rates": (1, *dilation),
            "groups": groups,
            "explicit_padding": (0, 0, *pad),
            "kernel_sizes": (1, kh, kw),
            **more,
        }
        if 1 < groups == x.shape[2]:
            attrs["channel_wise"] = True
        operands = [x, weight] + ([] if bias is None else [self.const(bias)])
        return self.op("convolution", *operands, type_=TensorType((*x.shape[:2], o, *sizes)), **attrs)

    def goc(self, x):
        """A gain and an offset for each channel."""
        c = x.shape[2]
        rng = np.random.default_rng(c)
        return self.op("gain_offset_control", x, self.const(rng.normal(size=c)), self.const(rng.normal(size=c)))

    def turned(self, x, one=3, two=4):
        shape = list(x.shape)
        shape[one], shape[two] = shape[two], shape[one]
        return self.op("transpose", x, type_=TensorType(tuple(shape)), transpose_list=((one, two), (two, one)))

    def resize(self, x, height, width, method="Linear", mode="UnalignedCorners"):
        type_ = TensorType((*x.shape[:3], height, width))
        names = {"sampling_methods": method, "sampling_modes": mode}
        return self.op("resize", x, type_=type_, height=height, width=width, **names)

    def view(self, x, axis, offset, size, step=1):
        shape = tuple(size if i == axis else extent for i, extent in enumerate(x.shape))
        return self.op("input_view", x, type_=TensorType(shape), dimension=axis, offset=offset, size=size, step=step)

    def done(self, *outputs):
        self.op("live_out", *outputs, type_=None, names=tuple(f"y{i}" for i in range(len(outputs))))
        self.module.ops[-1].type = None
        verify(self.module)
        run_pass(self.module, target("h13"), PASSES["label-layers"])
        return self.module


class Chip(dict):
    """Facts of a chip that nobody has built: those of another with some cells changed."""

    def __init__(self, name, pass_name, **changed):
        facts = Facts(target(name), PASSES[pass_name].reads)
        super().__init__({key: facts.get(key) for key in PASSES[pass_name].reads})
        self.update(changed)


def numbers(rng, *shape):
    return rng.normal(size=shape)


def kinds(module):
    return [op.kind for op in module if op.kind not in PORTS]


def only(module, kind):
    (found,) = (op for op in module if op.kind == kind)
    return found


def check_labels(module):
    """Every engine op has a place; a layer is a chain from its first op through its slots in their order."""
    members: dict[int, list[Op]] = {}
    for op in module:
        assert (op.layer is None) == (op.kind in PORTS), op
        if op.layer is not None:
            members.setdefault(op.layer, []).append(op)
    for first, *rest in members.values():
        assert first.slot == "primary"
        places = [SLOTS.index(op.slot) for op in rest]
        assert places == sorted(set(places)), [first, *rest]
        for before, op in zip((first, *rest), rest, strict=False):
            assert op.operands[0] is before
            assert before.only_user is op
    assert all(op.sources for op in module if op.kind not in PORTS)


def run(module, chip, *names):
    for name in names:
        each = PASSES[name]
        if isinstance(chip, str):
            run_pass(module, target(chip), each)
        else:
            each.apply(module, chip)
            verify(module, after=name)
        check_labels(module)
        read = parse(str(module))
        assert str(read) == str(module)
        assert [op.attrs for op in read] == [op.attrs for op in module]
    return module


def same(module, chip, *names, rtol=1e-9, atol=1e-9):
    """Run passes and compare what the program means before and after, in float64."""
    rng = np.random.default_rng(7)
    feeds = {op.attrs["name"]: np.round(rng.normal(size=op.shape), 3) for op in module.inputs}
    before = interpret(module, feeds)
    run(module, chip, *names)
    after = interpret(module, feeds)
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, rtol=rtol, atol=atol)
    return module


def refused(module, chip, name, reject=None):
    with pytest.raises(CompileError) as caught:
        run_pass(module, target(chip), PASSES[name])
    assert f"refused by {name})" in str(caught.value)
    assert caught.value.reject == reject
    return str(caught.value)


# The order and the labelling.


def test_the_order_is_sound():
    assert [each.name for each in checked_order(LEGALISATION, ensured=["layers"])] == list(LEGALISATION)
    with pytest.raises(AnecError, match="requires"):
        checked_order(LEGALISATION)
    for name in ("group-convolutions", "split-kernel-memory", "crop-slices", "check-floors", "check-extents"):
        with pytest.raises(AnecError, match="requires"):
            checked_order([name], ensured=["layers"])
    for name in LEGALISATION:
        assert PASSES[name].phase == 2
        assert "layers" in PASSES[name].requires
        assert ":" in PASSES[name].purpose  # the vendor's pass, or what it is called, and then its job


def test_spans_cover_a_total_and_differ_by_one_at_most():
    assert spans(10, 3) == [(0, 4), (4, 3), (7, 3)]
    assert spans(4, 4) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert spans(5, 1) == [(0, 5)]


def test_recut_keeps_the_leading_pointwise_slots():
    b = Build()
    y = b.conv(b.input(*MAP.shape), np.ones((8, 8, 1, 1)))
    y = b.op("relu", b.goc(b.op("tanh", y)))
    module = b.done(b.op("quant", b.turned(y), type_=TensorType(MAP.shape, "si8"), scale=0.1, zero_point=0, to="si8"))
    _, *epilogue = [op for op in module if op.layer == 0]
    kept, rest = recut(epilogue)
    assert [op.kind for op in kept] == ["tanh", "gain_offset_control", "relu"]
    assert [op.kind for op in rest] == ["transpose", "quant"]
    assert recut(rest) == ([], rest)


# Kernel memory.


def test_the_cap_follows_listing_24_3():
    """And listing 35.2: from A14 on what does not stream is shared, and sized against the other cap too."""
    reads = ("kernel_stream_master", "kmem_cap_dense", "kmem_cap_streamed", "kernel_path")
    plain, strided = LayerConditions(), LayerConditions(unit_stride=False)
    known = {"h13": (16 << 20, 64 << 10), "h11": (64 << 10, 64 << 10), "h14": (16 << 20, 16 << 20)}
    for chip, caps in known.items():
        facts = Facts(target(chip), reads)
        assert tuple(weight_flow(facts, WeightForm("fp16"), layer).cap for layer in (plain, strided)) == caps


def is_streamable(op, working_set):
    """Whether the layer meets every condition of a stream."""
    facts = Facts(target("h13"), ("kernel_stream_master", "kmem_cap_dense", "kmem_cap_streamed", "kernel_path"))
    return weight_flow(facts, WeightForm("fp16"), layer_conditions(op, working_set)).streams


@pytest.mark.parametrize(
    ("settings_", "streams"),
    [
        ({}, True),
        ({"stride": (1, 2)}, False),
        ({"dilation": (2, 1), "pad": (2, 2, 2, 2)}, False),
    ],
)
def test_what_streams(settings_, streams):
    b = Build()
    conv = b.conv(b.input(1, 1, 4, 16, 16), np.ones((8, 4, 3, 3)), **settings_)
    assert is_streamable(conv, 2 << 20) is streams


def test_tiles_overlap_where_the_kernel_is_taller_than_its_stride():
    b = Build()
    x = b.input(1, 1, 4, 16, 16)
    tall, flat = b.conv(x, np.ones((8, 4, 3, 3))), b.conv(x, np.ones((8, 4, 1, 3)))
    assert (is_streamable(tall, 4096), is_streamable(tall, 4095)) == (
        True,
        True,
    )  # the output is 3136 bytes, the input 2048
    assert (is_streamable(tall, 3137), is_streamable(tall, 3136)) == (True, False)
    assert is_streamable(flat, 1) is True
    live = b.conv(x, b.input(8, 1, 4, 1, 1))
    assert is_streamable(live, 2 << 20) is False


def kernel_facts(chip, **others):
    """What the split reads of a chip, with some values exchanged."""
    facts = Facts(target(chip), PASSES["split-kernel-memory"].reads)
    facts._values |= others
    return facts


TIGHT = kernel_facts("h13", kmem_cap_streamed=65536)
"""An M1 whose streamed cap is 64 KB: weights that a test can hold are split into layers."""


def test_the_cap_itself_still_fits():
    b = Build()
    x = b.input(1, 1, 64, 4, 4)
    assert not exceeds_kernel_memory(b.module, b.conv(x, np.ones((512, 64, 1, 1)), stride=(2, 2)), TIGHT)
    assert exceeds_kernel_memory(b.module, b.conv(x, np.ones((513, 64, 1, 1)), stride=(2, 2)), TIGHT)
    wide = b.input(1, 1, 8192, 1, 1)
    kernels = [b.op("const_in", type_=TensorType((n, 1, 8192, 1, 1)), weight="any") for n in (1024, 1025)]
    assert [exceeds_kernel_memory(b.module, b.conv(wide, each), kernel_facts("h13")) for each in kernels] == [
        False,
        True,
    ]  # 16 MB


@pytest.mark.parametrize(
    ("chip", "outputs", "stride", "passes"),
    [
        ("h13", 16 * 28, 2, 1),  # 2304 bytes an output: 28 of them are 64512 bytes, and every lane has 28
        ("h13", 16 * 28 + 1, 2, 2),  # one lane has 29
        ("h13", 16 * 56 + 1, 2, 3),
        ("h13", 16 * 56 + 1, 1, 1),  # a weight that streams is held against 16 MB
        ("h11", 16 * 56 + 1, 1, 3),  # no streams there
        ("h17s", 16 * 28 + 1, 2, 1),  # listing 35.2: from A14 on built once for all cores, against 16 MB
        ("h14", 16 * 56 + 1, 2, 1),
    ],
)
def test_a_lane_has_64_kilobytes_for_its_share_of_the_outputs(chip, outputs, stride, passes):
    """Chapter 35: coefficients that a core builds must fit the cap, otherwise the engine tiles. It stays one layer."""
    b = Build()
    kernel = b.op("const_in", type_=TensorType((outputs, 1, 128, 3, 3)), weight="any")
    module = b.done(b.conv(b.input(1, 1, 128, 9, 9), kernel, stride=(stride, stride)))
    log = run_pass(module, target(chip), PASSES["split-kernel-memory"])
    assert kinds(module) == ["convolution"]
    assert only(module, "convolution").labels.get("passes", 1) == passes
    assert log.changes == (passes > 1)


def test_passes_leave_the_fusion_alone():
    b = Build()
    module = b.done(fused_layer(b, np.random.default_rng(0), outputs=1300))
    before = layers(module)
    same(module, "h13", "split-kernel-memory")
    assert layers(module) == before
    assert only(module, "convolution").labels["passes"] == 2  # 864 bytes an output: a lane holds 75 of its 82


def test_lanes_are_a_fact_with_its_source():
    assert kernel_facts("h13").fact("kernel_lanes").label() == "[measured: MHX, G23, M6.hwx; U28]"
    assert kernel_facts("h16").fact("kernel_lanes").label() == "[inferred: MHX, G23, M6.hwx; U28]"
    assert {kernel_facts(each.name)["kernel_lanes"] for each in all_targets(only_28=True)} == {16}


def fused_layer(b, rng, groups=1, outputs=96):
    """A strided convolution over 64 KB with a bias, a gain, an activation, a transpose and a quantiser behind it."""
    x = b.input(1, 1, 48, 8, 6)
    kernel = np.round(numbers(rng, outputs, 48 // groups, 3, 3), 2)
    y = b.conv(x, kernel, stride=(2, 2), pad=(1, 1, 1, 1), groups=groups, bias=np.arange(outputs) / 8)
    y = b.turned(b.op("relu", b.goc(y)))
    return b.op("quant", y, type_=TensorType(y.shape, "si8"), scale=0.5, zero_point=0, to="si8")


def test_the_split_undoes_the_fusion_it_has_to():
    b = Build()
    module = b.done(fused_layer(b, np.random.default_rng(0)))
    whole = "goc:gain_offset_control", "post_activation:relu"
    assert layers(module) == [["convolution", *whole, "transpose:transpose", "quant:quant"]]
    same(module, TIGHT, "split-kernel-memory")
    assert layers(module) == [
        ["convolution", *whole],
        ["convolution", *whole],
        ["concat"],
        ["transpose", "quant:quant"],
    ]
    pieces = [op for op in module if op.kind == "convolution"]
    assert [op.labels["piece"] for op in pieces] == [(0, 2), (1, 2)]
    assert [op.shape[2] for op in pieces] == [48, 48]
    assert only(module, "concat").attrs["axis"] == 2
    assert all(op.sources == ("convolution_3",) for op in pieces)
    assert only(module, "transpose").operands[0] is only(module, "concat")


@pytest.mark.parametrize(("outputs", "count"), [(75, 1), (76, 2), (151, 3)])
def test_the_fewest_pieces(outputs, count):
    b = Build()
    module = b.done(fused_layer(b, np.random.default_rng(0), outputs=outputs))  # 864 bytes an output, 75 fit
    same(module, TIGHT, "split-kernel-memory")
    assert kinds(module).count("convolution") == count


@pytest.mark.parametrize(
    ("groups", "outputs", "of_each", "views"),
    [
        (2, 320, [1, 1, 1, 1], 2),  # one group alone exceeds the cap: its outputs are cut, its inputs viewed once
        (2, 192, [1, 1], 2),
        (4, 384, [2, 2], 2),
        (48, 4608, [24, 24], 2),
    ],
)
def test_grouped_kernels_are_cut_between_groups_where_a_group_fits(groups, outputs, of_each, views):
    b = Build()
    module = b.done(fused_layer(b, np.random.default_rng(1), groups=groups, outputs=outputs))
    same(module, TIGHT, "split-kernel-memory")
    pieces = [op for op in module if op.kind == "convolution"]
    assert [op.attrs["groups"] for op in pieces] == of_each
    assert {"channel_wise" in op.attrs for op in pieces} == {groups == 48}
    assert [op.operands[0].kind for op in pieces] == ["input_view"] * len(pieces)
    assert kinds(module).count("input_view") == views


def test_pieces_of_groups():
    assert pieces_of(12, 3, 8) == [Piece(0, 8, 2), Piece(8, 4, 1)]
    assert pieces_of(12, 3, 3) == [Piece(4 * g + s, 2, 1) for g in range(3) for s in (0, 2)]
    assert pieces_of(12, 1, 12) == [Piece(0, 12, 1)]


def test_one_channel_of_many_is_no_longer_channel_wise():
    b = Build()
    module = b.done(b.conv(b.input(1, 1, 2, 16, 16), np.ones((200, 1, 15, 15)), stride=(2, 2), groups=2))
    same(module, TIGHT, "split-kernel-memory")
    assert [(op.attrs["groups"], "channel_wise" in op.attrs) for op in module if op.kind == "convolution"] == [
        (1, False),
        (1, False),
    ]


def test_a_share_of_a_volume_lies_as_the_volume_does():
    b = Build()
    volume = b.const(np.arange(2.0 * 3 * 4 * 5 * 6).reshape(2, 3, 4, 5, 6), (2, 4, 3, 5, 6))  # NCDHW stored
    feeds = {}
    whole = b.view(b.view(volume, 2, 1, 2), 4, 3, 2)
    module = b.done(whole)
    before = interpret(module, feeds)["y0"]
    walk = Relayer(module)
    for op in module.ops:
        if op is whole:
            walk.replace(op, walk.part(volume, {2: (1, 2), 4: (3, 2)}))
        else:
            walk.keep(op)
    walk.finish()
    assert kinds(verify(module)) == []
    np.testing.assert_array_equal(interpret(module, feeds)["y0"], before)


@pytest.mark.parametrize("groups", [1, 2, 16])
def test_a_deconvolution_is_cut_along_its_outputs(groups):
    rng = np.random.default_rng(2)
    b = Build()
    x = b.input(1, 1, 16, 5, 5)
    each = {1: 140, 2: 280, 16: 300}[groups]
    kernel = b.const(np.round(numbers(rng, 16, each, 4, 4), 2), (16, 1, each, 4, 4))
    attrs = {"strides": (1, 2, 2), "dilation_rates": (1, 1, 1), "groups": groups, "kernel_sizes": (1, 4, 4)}
    attrs |= {"explicit_padding": (0, 0, 1, 1, 1, 1)} | ({"channel_wise": True} if groups == 16 else {})
    bias = b.const(np.arange(each * groups) / 64)
    type_ = TensorType((1, 1, each * groups, 10, 10))
    y = b.op("deconvolution", x, kernel, bias, type_=type_, **attrs)
    module = same(b.done(b.op("relu", b.goc(y))), TIGHT, "split-kernel-memory")
    assert kinds(module).count("deconvolution") > 1
    assert all(op.operands[1].type.bytes <= 65536 for op in module if op.kind == "deconvolution")


def test_a_linear_layer_is_cut_along_the_width():
    rng = np.random.default_rng(3)
    b = Build()
    weight = b.const(np.round(numbers(rng, 80, 1024), 2), (1, 1, 80, 1, 1024))
    bias = b.const(np.arange(80) / 8, (1, 1, 1, 1, 80))
    y = b.op("linear", b.input(1, 1, 3, 2, 1024), weight, bias, type_=TensorType((1, 1, 3, 2, 80)))
    slope = b.const([0.1, 0.2, 0.3])  # along the channels, which are not cut
    module = b.done(b.op("leaky_relu", y, slope))
    same(module, TIGHT, "split-kernel-memory")
    assert kinds(module) == ["linear", "leaky_relu"] * 3 + ["concat"]
    assert only(module, "concat").attrs["axis"] == 4


def test_quantised_kernels_are_cut_with_their_scales():
    rng = np.random.default_rng(4)
    b = Build()
    codes = rng.integers(-8, 8, (192, 48, 3, 3)).astype(float)
    scale, zero = intern_weight(1 + np.arange(192) / 192), intern_weight(np.round(numbers(rng, 192, 1, 1, 1)))
    b.module.weights |= {scale.key: scale, zero.key: zero}
    stored = {"kernel_scale": scale.key, "kernel_zero_point": zero.key}
    kernel = b.const(codes, (192, 1, 48, 3, 3), "si8")
    module = b.done(b.conv(b.input(1, 1, 48, 8, 8), kernel, stride=(2, 2), **stored))
    same(module, TIGHT, "split-kernel-memory")
    assert kinds(module) == ["convolution", "convolution", "concat"]


def test_one_channel_too_many_for_kernel_memory():
    b = Build()
    module = b.done(b.conv(b.input(1, 1, 3641, 4, 4), np.ones((2, 3641, 3, 3)), stride=(2, 2)))
    told = refused(module, "h13", "split-kernel-memory", "can not fit the Kmem")
    assert "one output channel takes 65538 bytes; kernel memory holds 65536" in told
    assert told.startswith("convolution_2: ")


def test_a_large_weight_becomes_hundreds_of_pieces_unread():
    b = Build()
    weight = intern_weight(np.zeros((1, 1), np.float16))
    wide = type(weight)("wide", None, (4096, 4096), lambda: pytest.fail("a weight was read"))
    b.module.weights["wide"] = wide
    kernel = b.op("const_in", type_=TensorType((1, 1, 4096, 1, 4096)), weight="wide")
    module = b.done(b.op("linear", b.input(1, 1, 8, 1, 4096), kernel))
    run(module, TIGHT, "split-kernel-memory")
    assert kinds(module).count("linear") == 512
    assert len({op.attrs["weight"] for op in module if op.kind == "const_in"}) == 512


def test_a_constant_without_numbers_cannot_be_cut():
    b = Build()
    y = b.goc(b.conv(b.input(1, 1, 48, 8, 6), np.ones((96, 48, 3, 3)), stride=(2, 2)))
    module = b.done(y)
    del module.weights[y.operands[1].attrs["weight"]]
    with pytest.raises(AnecError, match="is not in the module, so it cannot be cut"):
        run(module, TIGHT, "split-kernel-memory")


def test_without_numbers_a_text_stays_as_it_is():
    b = Build()
    module = parse(str(b.done(fused_layer(b, np.random.default_rng(0)))))
    before = str(module)
    for name in LEGALISATION:
        if name not in ("crop-slices", "cut-segments"):
            run_pass(module, target("h13"), PASSES[name])
    assert str(module).replace(", sub_layers = 2 : i64", "") == before  # what chapter 24 would make of it (U28)


# Strides.


STRIDED = """
%0 = "anec.live_in"() {name = "x"} : () -> tensor<1x1x3x40x32xf16>
%1 = "anec.const_in"() {weight = "k"} : () -> tensor<4x1x3x16x16xf16> loc("k")
%2 = "anec.convolution"(%0, %1) {dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 0, 0], groups = 1,
  kernel_sizes = [1, 16, 16], layer = 0, slot = "primary", strides = [1, 16, 16]}
  : (tensor<1x1x3x40x32xf16>, tensor<4x1x3x16x16xf16>) -> tensor<1x1x4x2x2xf16> loc("patch")
"anec.live_out"(%2) {names = ["y"]} : (tensor<1x1x4x2x2xf16>) -> ()
"""


def test_a_stride_of_16_is_8_and_then_2():
    module = parse(STRIDED)
    module.weights["k"] = intern_weight(np.round(np.random.default_rng(0).normal(size=(4, 3, 16, 16)), 2))
    same(module, "h13", "large-strides")
    lines = [line.strip() for line in str(module).splitlines() if "layer" in line]
    assert [line.split('"')[1] for line in lines] == ["anec.input_view", "anec.pixel_unshuffle", "anec.convolution"]
    assert "factors = [1 : i64, 8 : i64, 8 : i64]" in lines[1]
    assert "strides = [1 : i64, 2 : i64, 2 : i64]" in lines[2]
    assert "kernel_sizes = [1 : i64, 2 : i64, 2 : i64]" in lines[2]
    assert "tensor<4x1x192x2x2xf16>) -> tensor<1x1x4x2x2xf16>" in lines[2]
    assert all(line.endswith('loc("patch")') for line in lines)


def test_table_35_3_the_strided_convolution_follows_the_factor_list():
    made = {}
    for listed in ((2, 3, 4, 8), (2, 4), (3, 5)):
        module = parse(STRIDED)
        module.weights["k"] = intern_weight(np.round(np.random.default_rng(0).normal(size=(4, 3, 16, 16)), 2))
        chip = Chip("h13", "large-strides", **{"factor_list": listed})
        made[listed] = same(module, chip, "large-strides")
    assert only(made[2, 3, 4, 8], "pixel_unshuffle").attrs["factors"] == (1, 8, 8)
    assert only(made[2, 4], "pixel_unshuffle").attrs["factors"] == (1, 4, 4)
    assert only(made[3, 5], "pixel_unshuffle").attrs["factors"] == (1, 16, 16)  # no two factors: whole (U36)
    assert only(made[3, 5], "convolution").attrs["strides"] == (1, 1, 1)


@pytest.mark.parametrize(
    ("stride", "pair"),
    [(1, (1, 1)), (2, (1, 2)), (8, (1, 8)), (6, (3, 2)), (9, (3, 3)), (12, (4, 3)), (16, (8, 2)), (64, (8, 8))],
)
def test_factors_are_at_most_two_the_larger_first(stride, pair):
    assert factors(stride, [2, 3, 4, 8]) == pair


@pytest.mark.parametrize("stride", [5, 7, 10, 48, 128])
def test_other_strides_have_no_factors(stride):
    assert factors(stride, [2, 3, 4, 8]) is None


def test_native_strides_stay():
    b = Build()
    module = b.done(b.conv(b.input(1, 1, 4, 20, 20), np.ones((4, 4, 3, 3)), stride=(8, 3)))
    before = str(module)
    assert str(run(module, "h13", "large-strides")) == before


def strided(b, rng, stride, kernel=(3, 3), groups=1, **more):
    x = b.input(1, 1, 4, 23, 29)
    return b.conv(x, numbers(rng, 4, 4 // groups, *kernel), stride=stride, groups=groups, bias=np.arange(4.0), **more)


def test_one_axis_is_factorised_while_the_other_is_native_or_whole():
    b = Build()
    module = same(b.done(strided(b, np.random.default_rng(0), (2, 6))), "h13", "large-strides")
    assert only(module, "pixel_unshuffle").attrs["factors"] == (1, 1, 3)
    assert only(module, "convolution").attrs["strides"] == (1, 2, 2)
    b = Build()
    module = same(b.done(strided(b, np.random.default_rng(0), (5, 6))), "h13", "large-strides")
    assert only(module, "pixel_unshuffle").attrs["factors"] == (1, 5, 3)
    assert only(module, "convolution").attrs["strides"] == (1, 1, 2)


def test_a_factorised_convolution_keeps_its_whole_epilogue():
    b = Build()
    y = b.turned(b.op("relu", b.goc(strided(b, np.random.default_rng(0), (6, 6)))))
    module = same(b.done(y), "h13", "large-strides")
    fused = ["convolution", "goc:gain_offset_control", "post_activation:relu", "transpose:transpose"]
    assert layers(module)[-1] == fused


def test_a_viewed_convolution_keeps_the_pointwise_epilogue():
    b = Build()
    x, kernel = b.input(1, 1, 4, 23, 29), b.input(4, 1, 4, 3, 3)
    module = same(b.done(b.turned(b.op("relu", b.goc(b.conv(x, kernel, stride=(7, 1)))))), "h13", "large-strides")
    assert layers(module) == [
        ["convolution", "goc:gain_offset_control", "post_activation:relu"],
        ["input_view"],
        ["transpose"],
    ]


def test_a_live_kernel_is_viewed():
    b = Build()
    x, kernel = b.input(1, 1, 4, 23, 29), b.input(4, 1, 4, 3, 3)
    module = same(b.done(b.conv(x, kernel, stride=(6, 16))), "h13", "large-strides")
    assert kinds(module) == ["convolution", "input_view", "input_view"]


def test_a_channel_wise_stride_is_no_longer_channel_wise():
    b = Build()
    module = same(b.done(strided(b, np.random.default_rng(0), (16, 16), groups=4)), "h13", "large-strides")
    conv = only(module, "convolution")
    assert "channel_wise" not in conv.attrs
    assert conv.attrs["groups"] == 4


def test_a_kernel_that_would_get_too_long_is_viewed():
    b = Build()
    x = b.input(1, 1, 1, 1, 200)
    conv = b.conv(x, np.ones((1, 1, 1, 13)), stride=(1, 6), dilation=(1, 8))  # 97 columns in blocks of three: 33
    module = same(b.done(conv), "h13", "large-strides")
    assert kinds(module) == ["convolution", "input_view"]


def test_a_map_whose_pixels_exceed_the_channels_is_viewed():
    b = Build()
    x = b.input(1, 1, 2048, 16, 16)
    kernel = b.const(np.ones((1, 2048, 1, 1)), (1, 1, 2048, 1, 1))
    module = same(b.done(b.conv(x, kernel, stride=(16, 16))), "h13", "large-strides")
    assert kinds(module) == ["convolution", "input_view", "input_view"]
    assert only(module, "convolution").attrs["strides"] == (1, 1, 1)


@settings(max_examples=120)
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 18), st.integers(1, 18)),
    st.tuples(*[st.integers(0, 4)] * 4),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.sampled_from([1, 2, 4]),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.integers(0, 3),
)
def test_any_stride_means_the_same(kernel, stride, pad, dilation, groups, extent, seed):
    spare = [extent[a] + pad[2 * a] + pad[2 * a + 1] - dilation[a] * (kernel[a] - 1) - 1 for a in (0, 1)]
    assume(min(spare) >= 0)
    b, rng = Build(), np.random.default_rng(seed)
    x = b.input(1 + seed % 2, 1, 4, *extent)
    bias = np.arange(8) / 4 if seed > 1 else None
    y = b.conv(x, numbers(rng, 8, 4 // groups, *kernel), stride, pad, dilation, groups, bias)
    y = b.op("relu", b.goc(y)) if seed else y
    module = same(b.done(b.turned(y)), "h13", "large-strides", rtol=1e-9, atol=1e-7)
    conv = only(module, "convolution")
    assert all(step in (1, 2, 3, 4, 8) for step in conv.attrs["strides"])


# Groups.


def grouped(b, groups=2, inputs=8, kernel=3):
    rng = np.random.default_rng(5)
    x = b.input(1, 1, groups * inputs, 6, 5)
    weights = np.round(numbers(rng, 3 * groups, inputs, kernel, kernel), 2)
    return b.conv(x, weights, groups=groups, bias=np.arange(3 * groups) / 4)


def test_long_groups_run_one_by_one_on_the_chips_whose_limit_is_short():
    for chip, kinds_ in (("h13", ["convolution"]), ("h11", ["input_view", "convolution"] * 2 + ["concat"])):
        b = Build()
        module = same(b.done(grouped(b)), chip, "group-convolutions")  # 72 numbers a group: 64 on h11, 2048 on h13
        assert kinds(module) == kinds_


def test_the_limit_of_a_group_is_inclusive():
    for inputs, count in ((64, 1), (65, 2)):
        b = Build()
        module = same(b.done(grouped(b, inputs=inputs, kernel=1)), "h12", "group-convolutions")
        assert kinds(module).count("convolution") == count


def test_groups_keep_their_pointwise_epilogue():
    b = Build()
    y = b.turned(b.op("relu", b.goc(grouped(b, groups=3))))
    module = same(b.done(y), "h11", "group-convolutions")
    one = ["convolution", "goc:gain_offset_control", "post_activation:relu"]
    assert layers(module) == [["input_view"], one] * 3 + [["concat"], ["transpose"]]
    assert all("piece" not in op.labels for op in module)


def test_a_channel_wise_convolution_is_never_cut():
    b = Build()
    x = b.input(1, 1, 4, 16, 16)
    module = b.done(b.conv(x, np.ones((4, 1, 9, 9)), groups=4))
    assert kinds(run(module, "h11", "group-convolutions")) == ["convolution"]


# Large kernels.


@pytest.mark.parametrize(
    ("height", "width", "chip", "large"),
    [
        (1, 7, "h13", False),
        (1, 8, "h13", True),
        (1, 8, "h14", False),
        (1, 9, "h14", True),
        (15, 1, "h13", False),
        (16, 1, "h13", True),
        (16, 1, "h14", False),
        (17, 1, "h14", True),
    ],
)
def test_the_large_mode_follows_the_small_caps(height, width, chip, large):
    b = Build()
    module = b.done(b.conv(b.input(1, 1, 2, 20, 20), np.ones((2, 2, height, width))))
    assert only(run(module, chip, "large-kernels"), "convolution").labels.get("large_kernel", False) is large
    assert ("large_kernel" in str(module)) is large


M6 = {"large_kernel_rewrite": True}


@pytest.mark.parametrize("width", range(9, 16))
@pytest.mark.parametrize("columns", [20, 21])
@pytest.mark.parametrize("groups", [1, 2])
def test_wide_kernels_become_stride_two_with_twice_the_outputs(width, columns, groups):
    b, rng = Build(), np.random.default_rng(width)
    x = b.input(1, 1, 4, 5, columns)
    y = b.conv(x, numbers(rng, 6, 4 // groups, 3, width), pad=(1, 1, 4, 3), groups=groups, bias=np.arange(6.0))
    y = b.turned(b.op("leaky_relu", b.goc(y), b.const(np.arange(6) / 8)))
    module = same(b.done(y), Chip("h18", "large-kernels", **M6), "large-kernels", atol=1e-2)
    conv = only(module, "convolution")
    assert conv.attrs["strides"] == (1, 1, 2)
    assert conv.attrs["kernel_sizes"] == (1, 3, width + 1 + (width + 1) % 2)
    assert conv.shape[2] == 12
    assert "large_kernel" not in conv.labels
    spread = "channel_to_space" if groups == 1 else "pixel_shuffle"
    assert only(module, spread).attrs["factors"] == (1, 1, 2)
    assert kinds(module).count("input_view") == (columns + 7 - width + 1) % 2
    assert layers(module)[0] == ["convolution", "goc:gain_offset_control", "post_activation:leaky_relu"]


@pytest.mark.parametrize(
    "settings_", [{"width": 8}, {"width": 9, "stride": (1, 2)}, {"width": 9, "dilation": (1, 2)}, {"live": True}]
)
def test_other_kernels_are_not_rewritten(settings_):
    b = Build()
    width = settings_.pop("width", 9)
    kernel = b.input(2, 1, 2, 1, width) if settings_.pop("live", False) else np.ones((2, 2, 1, width))
    module = b.done(b.conv(b.input(1, 1, 2, 4, 40), kernel, **settings_))
    run(module, Chip("h18", "large-kernels", **M6), "large-kernels")
    assert kinds(module) == ["convolution"]
    assert ("large_kernel" in only(module, "convolution").labels) is (width > 8 and not isinstance(kernel, Op))


def test_the_rewrite_is_a_matter_of_data():
    """fusion.json: h16 and h17 keep the kernel (U26)."""
    b = Build()
    module = b.done(b.conv(b.input(1, 1, 2, 4, 40), np.ones((2, 2, 1, 9))))
    for chip in ("h16s", "h17s"):
        assert kinds(run(module.clone(), chip, "large-kernels")) == ["convolution"]


# Products.


def batched(b, heads=3, right_heads=3, inner=512, columns=1024, batch=1):
    a = b.input(batch, 1, 4, heads, inner)
    w = b.input(batch, 1, inner, right_heads, columns)
    return b.op("matmul", a, w, type_=TensorType((batch, 1, 4, max(heads, right_heads), columns)))


def test_table_35_3_a_product_is_cut_along_the_height():
    """A right-hand side of 3 MB: 2 MB fit everywhere but on m9."""
    for chip, count in (("h13", 2), ("h17s", 2), ("m9", 3)):
        b = Build()
        module = same(b.done(b.op("relu", b.goc(batched(b)))), chip, "slice-products", rtol=1e-7, atol=1e-7)
        products = [op for op in module if op.kind == "matmul"]
        assert len(products) == count
        assert sum(op.shape[3] for op in products) == 3
        assert all(op.operands[1].type.bytes <= 2 << 20 for op in products)
        assert layers(module)[-1] == ["concat"]
        assert only(module, "concat").attrs["axis"] == 3


def test_a_product_is_a_resident_convolution_where_its_weight_fits():
    """The other half of that row: 1.5 MB is below 0x1b8 on h13 and above it on m9 (phase 1)."""
    for chip, kind in (("h13", "convolution"), ("m9", "linear")):
        b = Build()
        weight = b.const(np.ones((768, 1024)), (1, 1, 768, 1, 1024))
        module = b.done(b.op("linear", b.input(1, 1, 2, 1, 1024), weight, type_=TensorType((1, 1, 2, 1, 768))))
        run_pass(module, target(chip), PASSES["products-to-convolutions"])
        assert kind in kinds(module)


@pytest.mark.parametrize(("right", "turned"), [(1, False), (3, True), (2, False)])
def test_what_is_not_cut_or_is_shared(right, turned):
    b = Build()
    if right == 1:  # one matrix for every row of the left: nothing to cut
        module = b.done(batched(b, heads=3, right_heads=1, inner=1024, columns=1025))
        assert kinds(same(module, "h13", "slice-products", atol=1e-7)) == ["matmul"]
        return
    left = b.input(1, 1, 4, 1, 700)  # one row of the left for every matrix
    shape = (1, 1, 1000, right, 700) if turned else (1, 1, 700, right, 1000)
    w = b.const(np.round(numbers(np.random.default_rng(1), right * 700 * 1000), 1), shape)
    flags = {"transpose_rhs": True} if turned else {}
    module = b.done(b.op("matmul", left, w, type_=TensorType((1, 1, 4, right, 1000)), **flags))
    same(module, "h13", "slice-products", atol=1e-6)
    assert kinds(module) == ["matmul"] * right + ["concat"]  # the left serves as it is, the right is stored in parts


def test_the_working_set_itself_still_fits():
    b = Build()
    assert kinds(run(b.done(batched(b, heads=2, right_heads=2)), "h13", "slice-products")) == ["matmul"]


def test_a_row_that_is_too_large_alone_stays():
    b = Build()
    module = run(b.done(batched(b, heads=2, right_heads=2, inner=1024, columns=1025)), "h13", "slice-products")
    assert kinds(module).count("matmul") == 2


# Transposes.


TURNED = """
%0 = "anec.live_in"() {name = "x"} : () -> tensor<1x1x2x3x4xf16>
%1 = "anec.transpose"(%0) {layer = 0, slot = "primary", transpose_list = [[2, 4], [3, 2], [4, 3]]}
  : (tensor<1x1x2x3x4xf16>) -> tensor<1x1x4x2x3xf16> loc("turn")
"anec.live_out"(%1) {names = ["y"]} : (tensor<1x1x4x2x3xf16>) -> ()
"""


def test_table_35_3_a_transpose_is_native_or_takes_several_passes():
    assert kinds(same(parse(TURNED), "h13", "multi-pass-transposes")) == ["transpose"]
    module = same(parse(TURNED), "h11", "multi-pass-transposes")
    lines = [line.strip() for line in str(module).splitlines() if "transpose" in line]
    assert len(lines) == 2
    exchange = "transpose_list = [[2 : i64, 4 : i64], [4 : i64, 2 : i64]]"
    assert f'data_path = "dma", layer = 1 : i64, slot = "primary", {exchange}' in lines[0]
    assert "tensor<1x1x2x3x4xf16>) -> tensor<1x1x4x3x2xf16>" in lines[0]
    assert "[[3 : i64, 4 : i64], [4 : i64, 3 : i64]]" in lines[1]
    assert all(line.endswith('loc("turn")') for line in lines)


@pytest.mark.parametrize(
    ("chip", "extent", "native"), [("h13", 16384, True), ("h13", 16385, False), ("h17s", 16385, True)]
)
def test_the_native_transpose_ends_at_its_caps(chip, extent, native):
    for shape, axes in (((extent, 1, 1), (2, 4)), ((extent, 1, 1), (2, 3)), ((1, 1, extent), (2, 4))):
        b = Build()
        module = run(b.done(b.turned(b.input(1, 1, *shape), *axes)), chip, "multi-pass-transposes")
        assert ("data_path" in only(module, "transpose").labels) is not native


def test_a_transpose_that_is_not_native_leaves_its_slot():
    b = Build()
    y = b.turned(b.op("relu", b.conv(b.input(*MAP.shape), np.ones((8, 8, 1, 1)))))
    y = b.op("quant", y, type_=TensorType(y.shape, "si8"), scale=0.5, zero_point=0, to="si8")
    module = b.done(y)
    fused = ["convolution", "post_activation:relu", "transpose:transpose", "quant:quant"]
    assert layers(same(module.clone(), "h13", "multi-pass-transposes")) == [fused]
    same(module, "h12", "multi-pass-transposes")
    assert layers(module) == [["convolution", "post_activation:relu"], ["transpose"], ["quant"]]


def test_two_axes_of_one_need_no_pass():
    b = Build()
    pairs = ((0, 1), (1, 0), (3, 4), (4, 3))
    type_ = TensorType((1, 1, 2, 4, 3))
    module = b.done(b.op("transpose", b.input(1, 1, 2, 3, 4), type_=type_, transpose_list=pairs))
    assert only(same(module, "h11", "multi-pass-transposes"), "transpose").attrs["transpose_list"] == ((3, 4), (4, 3))


@given(st.permutations(range(5)), st.tuples(*[st.integers(1, 3)] * 5))
@settings(max_examples=40)
def test_any_transpose_means_the_same_in_passes(order, shape):
    b = Build()
    x = b.input(*shape)
    pairs = tuple((i, axis) for i, axis in enumerate(order) if i != axis)
    type_ = TensorType(tuple(shape[axis] for axis in order))
    module = same(b.done(b.op("transpose", x, type_=type_, transpose_list=pairs)), "h11", "multi-pass-transposes")
    assert all(len(op.attrs["transpose_list"]) == 2 for op in module if op.kind == "transpose")


# Resizes.


def test_table_35_3_the_three_strategies_of_a_resize():
    made = {}
    for chip in ("h13", "h14"):
        for mode in ("UnalignedCorners", "StrictAlignedCorners"):
            b = Build()
            module = b.done(b.resize(b.input(1, 1, 3, 4, 5), 8, 10, mode=mode))
            made[chip, mode] = same(module, chip, "resize-strategies", rtol=2**-10, atol=2**-9)
    for mode in ("UnalignedCorners", "StrictAlignedCorners"):
        kept = only(made["h14", mode], "resize")
        assert kept.labels == {"data_path": "texture"}
    assert "deconvolution" in kinds(made["h13", "UnalignedCorners"])
    assert kinds(made["h13", "StrictAlignedCorners"]) == ["transpose", "convolution", "transpose"] * 2


def test_the_edges_are_repeated_without_a_width_view_that_saturates():
    b = Build()
    module = b.done(b.resize(b.input(1, 1, 3, 4, 5), 8, 10))
    run(module, "h13", "resize-strategies", "crop-slices")
    assert kinds(module) == [
        *["input_view"] * 2,
        "concat",
        *["input_view"] * 2,
        "convolution",
        "concat",
        "deconvolution",
    ]
    assert not any(op.labels.get("storage") == "q4" for op in module)
    up = only(module, "deconvolution")
    assert up.attrs["strides"] == (1, 2, 2)
    assert up.attrs["explicit_padding"] == (0, 0, 3, 3, 3, 3)
    assert up.attrs["channel_wise"] is True
    line = np.array([1, 3, 3, 1]) / 4
    kernel = module.weights[up.operands[1].attrs["weight"]].array
    np.testing.assert_array_equal(kernel[0, 0], np.outer(line, line))


@pytest.mark.parametrize(
    ("method", "factors_", "by"),
    [
        ("NearestNeighbor", (7, 1), "deconvolution"),
        ("NearestNeighbor", (8, 1), "convolution"),
        ("Linear", (3, 2), "deconvolution"),
        ("Linear", (4, 2), "convolution"),  # eight wide, 0x38 is 7
        ("Linear", (1, 2), "deconvolution"),
    ],
)
def test_the_upsampling_kernel_is_a_small_one(method, factors_, by):
    b = Build()
    mode = "Default" if method == "NearestNeighbor" else "UnalignedCorners"
    module = b.done(b.resize(b.input(1, 1, 2, 3, 4), 3 * factors_[0], 4 * factors_[1], method, mode))
    same(module, "h13", "resize-strategies", rtol=2**-10, atol=2**-9)
    assert by in kinds(module)
    assert ("deconvolution" in kinds(module)) is (by == "deconvolution")


def test_a_single_pixel_is_upsampled_by_flag_only():
    for flag, by in ((0, "convolution"), (1, "deconvolution")):
        b = Build()
        module = b.done(b.resize(b.input(1, 1, 2, 1, 1), 2, 2))
        chip = Chip("h13", "resize-strategies", **{"one_by_one_upsample": flag})
        assert by in kinds(same(module, chip, "resize-strategies", atol=1e-3))


def test_a_resize_that_changes_nothing_goes():
    b = Build()
    module = b.done(b.op("relu", b.resize(b.input(1, 1, 2, 3, 4), 3, 4)))
    assert layers(same(module, "h13", "resize-strategies")) == [["relu"]]


@pytest.mark.parametrize("mode", ["UnalignedCorners", "StrictAlignedCorners"])
def test_a_resize_in_a_slot_leaves_it(mode):
    b = Build()
    y = b.conv(b.input(1, 1, 4, 3, 4), np.eye(4).reshape(4, 4, 1, 1))
    y = b.turned(b.op("relu", b.goc(b.resize(y, 6, 8, mode=mode))))
    module = b.done(y)
    tail = ["goc:gain_offset_control", "post_activation:relu", "transpose:transpose"]
    assert layers(module) == [["convolution", "texture:resize", *tail]]
    assert layers(run(module.clone(), "h14", "resize-strategies")) == layers(module)
    same(module, "h13", "resize-strategies", rtol=2**-9, atol=2**-8)
    assert layers(module)[0] == ["convolution"]
    last = ["deconvolution", *tail] if mode == "UnalignedCorners" else ["gain_offset_control", *tail[1:]]
    assert layers(module)[-1] == last


@settings(max_examples=120)
@given(
    st.tuples(*[st.integers(1, 7)] * 2),
    st.tuples(*[st.integers(1, 12)] * 2),
    st.sampled_from(["NearestNeighbor", "Linear"]),
    st.sampled_from(["Default", "UnalignedCorners", "OffsetCorners", "AlignedCorners", "StrictAlignedCorners"]),
    st.booleans(),
    st.integers(1, 3),
)
def test_any_resize_means_the_same(size, out, method, mode, whole, channels):
    out = tuple(s * min(o, 4) for s, o in zip(size, out, strict=True)) if whole else out
    b = Build()
    module = b.done(b.resize(b.input(1, 1, channels, *size), *out, method, mode))
    tolerance = 0 if method == "NearestNeighbor" else 2**-9
    same(module, "h13", "resize-strategies", rtol=tolerance / 2, atol=tolerance)
    assert "resize" not in kinds(module)


def test_a_linear_kernel_spans_two_factors():
    assert [kernel_size(factor, True) for factor in (1, 2, 3, 4, 5)] == [1, 4, 5, 8, 9]
    assert [kernel_size(factor, False) for factor in (1, 2, 3)] == [1, 2, 3]


def test_the_interpolation_matrix_sums_to_one():
    for mode in ("Default", "UnalignedCorners", "StrictAlignedCorners"):
        np.testing.assert_allclose(interpolation(5, 9, "Linear", mode).sum(axis=1), 1.0)


def test_resizes_that_do_not_map():
    words = "failed to map resize layer on this arch"
    b = Build()
    module = b.done(b.resize(b.input(1, 1, 2, 3, 4), 5, 6, mode="Bicubic"))
    assert "the grid Bicubic is not published" in refused(module, "h13", "resize-strategies", words)
    b = Build()
    module = b.done(b.resize(b.input(1, 1, 16385, 3, 4), 5, 4))
    assert "16385 channels exceed the 16384" in refused(module, "h13", "resize-strategies", words)
    b = Build()
    module = b.done(b.resize(b.input(1, 1, 2, 3, 4), 65537, 4))
    assert "an axis of 65537 exceeds the 65536 channels of this target" in refused(
        module, "h13", "resize-strategies", words
    )


# Gathers.


GATHER = """
%0 = "anec.live_in"() {name = "x"} : () -> tensor<1x1x2x3x8xf16>
%1 = "anec.gather_nd"(%0) {axes = [4], indices = [2, 3, 4, 0, 7, 0, 1], layer = 0, slot = "primary"}
  : (tensor<1x1x2x3x8xf16>) -> tensor<1x1x2x3x7xf16> loc("pick")
"anec.live_out"(%1) {names = ["y"]} : (tensor<1x1x2x3x7xf16>) -> ()
"""


def test_fixed_indices_become_runs():
    kept = run(parse(GATHER), "h14", "gather-gate")
    assert only(kept, "gather_nd").labels == {"data_path": "texture"}
    module = same(parse(GATHER), "h13", "gather-gate")
    views = [op for op in module if op.kind == "input_view"]
    assert [(op.attrs["offset"], op.attrs["size"]) for op in views] == [(2, 3), (0, 1), (7, 1), (0, 2)]
    assert kinds(module) == ["input_view"] * 4 + ["concat"]


@pytest.mark.parametrize(
    ("indices", "left"), [((1, 1, 1), ["input_view", "concat"]), ((3, 4), ["input_view"]), (tuple(range(8)), [])]
)
def test_few_runs_need_few_ops(indices, left):
    b = Build()
    x = b.input(1, 1, 2, 3, 8)
    type_ = TensorType((1, 1, 2, 3, len(indices)))
    module = b.done(b.op("gather_nd", x, type_=type_, axes=(4,), indices=indices))
    assert kinds(same(module, "h13", "gather-gate")) == left


def by_index(b, data=(1, 1, 4, 5, 6), index=(1, 1, 3, 7, 1), axes=(2, 3, 4)):
    elements, extents = math.prod(data), math.prod(data[axis] for axis in axes)
    picked = TensorType((1, 1, 1, math.prod(index) // len(axes) * elements // extents, 1))
    return b.op("gather_nd", b.input(*data), b.input(*index), type_=picked, axes=axes)


def test_the_envelope_of_the_m1():
    b = Build()
    assert kinds(run(b.done(by_index(b)), "h13", "gather-gate")) == ["gather_nd"]
    outside = [
        {"data": (2, 1, 4, 5, 6)},
        {"data": (1, 2, 4, 5, 6)},
        {"index": (1, 1, 2, 9, 1)},
        {"index": (1, 1, 3, 7, 2)},
        {"index": (1, 2, 3, 7, 1)},
        {"axes": (3, 4), "index": (1, 1, 2, 7, 1)},
    ]
    for each in outside:
        b = Build()
        module = b.done(by_index(b, **each))
        assert kinds(run(module.clone(), "h14", "gather-gate")) == ["gather_nd"]
        told = refused(module, "h13", "gather-gate", "Cannot decompose layer on this architecture")
        assert "indices that arrive at run time" in told


def test_a_gather_that_no_view_can_stand_for():
    words = "Cannot decompose layer on this architecture"
    for axes, shape in (((0,), (2, 1, 4, 5, 6)), ((2, 3), (2, 1, 1, 1, 6))):
        b = Build()
        x = b.input(2, 1, 4, 5, 6)
        module = b.done(b.op("gather_nd", x, type_=TensorType(shape), axes=axes, indices=(0, 1)))
        assert f"a gather with axes {list(axes)} is not supported; it needs the texture engine" in refused(
            module, "h13", "gather-gate", words
        )


# Slices.


SLICE = """
%0 = "anec.live_in"() {name = "x"} : () -> tensor<1x1x4x8x8xf16>
%1 = "anec.input_view"(%0) {dimension = 4, layer = 0, offset = 1, size = 4, slot = "primary", step = 1}
  : (tensor<1x1x4x8x8xf16>) -> tensor<1x1x4x8x4xf16> loc("cut")
"anec.live_out"(%1) {names = ["y"]} : (tensor<1x1x4x8x4xf16>) -> ()
"""


@pytest.mark.parametrize(("chip", "storage"), [("h13", "q4"), ("h14", "q4"), ("h15", "fp16"), ("h17s", "fp16")])
def test_table_35_3_a_width_slice_saturates_or_does_not(chip, storage):
    module = run(parse(SLICE), chip, "crop-slices")
    assert only(module, "input_view").labels == {"data_path": "crop", "storage": storage}
    assert 'data_path = "crop", dimension = 4 : i64, layer = 0 : i64, offset = ' in str(module)
    assert f'size = 4 : i64, slot = "primary", step = 1 : i64, storage = "{storage}"' in str(module)


@pytest.mark.parametrize(
    ("axis", "offset", "size", "step", "labels"),
    [
        (4, 0, 4, 1, {}),
        (4, 0, 4, 2, {}),
        (3, 1, 4, 1, {"data_path": "crop", "storage": "fp16"}),
        (4, 7, 8, -1, {"data_path": "crop", "storage": "q4"}),
        (3, 7, 8, -1, {"data_path": "crop", "storage": "fp16"}),
        (4, 0, 1, -1, {"data_path": "crop", "storage": "fp16"}),
        (2, 1, 2, 1, {}),
        (1, 0, 1, 1, {}),
    ],
)
def test_which_views_are_crops(axis, offset, size, step, labels):
    b = Build()
    module = run(b.done(b.view(b.input(1, 1, 8, 8, 8), axis, offset, size, step)), "h13", "crop-slices")
    assert only(module, "input_view").labels == labels


# The two oldest families.


def reshaped(b, shape, x=None):
    x = b.input(1, 1, 2, 3, 4) if x is None else x
    return b.op("reshape", x, type_=TensorType(shape), shape=shape)


@pytest.mark.parametrize(
    ("shape", "left"),
    [
        ((1, 1, 24, 1, 1), ["flatten"]),
        ((1, 1, 1, 1, 24), ["flatten", "transpose"]),
        ((1, 1, 1, 24, 1), ["flatten", "transpose"]),
    ],
)
def test_a_pure_flatten_is_a_flatten_on_legacy_families(shape, left):
    for chip in ("h11", "h12"):
        b = Build()
        assert kinds(same(b.done(reshaped(b, shape)), chip, "legacy-forms")) == left
    b = Build()
    assert kinds(run(b.done(reshaped(b, shape)), "h13", "legacy-forms")) == ["reshape"]


def test_a_line_of_channels_is_flat_already():
    b = Build()
    module = b.done(reshaped(b, (2, 1, 1, 1, 6), b.input(2, 1, 6, 1, 1)))
    assert kinds(same(module, "h11", "legacy-forms")) == ["transpose"]


@pytest.mark.parametrize("shape", [(1, 1, 4, 3, 2), (1, 1, 6, 1, 4), (2, 1, 12, 1, 1), (1, 2, 12, 1, 1)])
def test_any_other_reshape_is_refused_below_a13(shape):
    b = Build()
    told = refused(b.done(reshaped(b, shape)), "h11", "legacy-forms", "cannot be lowered as Flatten on ANE")
    assert (
        f"cannot reshape [1, 1, 2, 3, 4] to {list(shape)}; this family can only flatten each image to one line" in told
    )
    b = Build()
    deep = b.done(reshaped(b, (1, 1, 24, 1, 1), b.input(1, 2, 3, 2, 2)))
    refused(deep, "h12", "legacy-forms", "cannot be lowered as Flatten on ANE")


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        ((1, 1, 1, 3, 4), (1, 1, 5, 3, 4), ["matmul"]),
        ((2, 1, 1, 3, 4), (2, 1, 5, 3, 4), ["matmul"]),
        ((1, 1, 2, 1, 4), (1, 1, 2, 3, 4), ["add"]),
        ((1, 1, 1, 1, 4), (2, 1, 5, 3, 4), ["add", "matmul"]),
    ],
)
def test_broadcasts_are_ones_and_zeros_on_legacy_families(before, after, left):
    b = Build()
    module = b.done(b.op("broadcast", b.input(*before), type_=TensorType(after), shape=after))
    assert kinds(run(module.clone(), "h13", "legacy-forms")) == ["broadcast"]
    assert kinds(same(module, "h11", "legacy-forms")) == left


def test_a_broadcast_leaves_its_slot_with_what_is_behind_it():
    b = Build()
    y = b.conv(b.input(1, 1, 4, 1, 6), np.eye(4).reshape(4, 4, 1, 1))
    y = b.op("broadcast", y, type_=TensorType((1, 1, 4, 3, 6)), shape=(1, 1, 4, 3, 6))
    module = b.done(b.op("relu", b.goc(y)))
    tail = ["goc:gain_offset_control", "post_activation:relu"]
    assert layers(module) == [["convolution", "broadcast:broadcast", *tail]]
    assert layers(same(module, "h11", "legacy-forms")) == [["convolution"], ["add", *tail]]


def test_a_broadcast_of_anything_but_fp16_is_refused():
    b = Build()
    x = b.input(1, 1, 1, 1, 4, dtype="i1")
    type_ = TensorType((1, 1, 1, 3, 4), "i1")
    module = b.done(b.op("broadcast", x, type_=type_, shape=type_.shape))
    assert "cannot broadcast i1; this family broadcasts fp16 only" in refused(module, "h11", "legacy-forms")


def divided(b, divisor):
    y = b.op("div", b.input(1, 1, 1, 1, 4), divisor)
    return b.done(b.op("floor", y))


def test_the_reciprocal_gives_the_published_wrong_integer():
    """Chapter 35: floor(6 * fp16(1 / 3)) is 1."""
    feeds = [np.full((1, 1, 1, 1, 4), 6.0)]
    for chip, kind, result in (("h13", "div", 2.0), ("h11", "mult", 1.0), ("h12", "mult", 1.0)):
        b = Build()
        module = run(divided(b, b.const([3.0])), chip, "legacy-forms")
        assert layers(module) == [[kind, "post_activation:floor"]]
        np.testing.assert_array_equal(interpret(module, feeds)["y0"], np.full((1, 1, 1, 1, 4), result))
    assert PASSES["legacy-forms"].rounds


def test_a_divisor_that_is_computed_does_not_match():
    b = Build()
    told = refused(divided(b, b.input(1, 1, 1, 1, 4)), "h12", "legacy-forms")
    assert "the divisor is computed; this family divides by a stored fp16 constant only" in told


def test_legacy_forms_are_a_matter_of_data(monkeypatch):
    from aneforge.compiler.legalise import floors as legacy

    rows = {kind: {**legacy._rule(kind), "families": ["A17"]} for kind in ("reshape", "broadcast", "div")}
    monkeypatch.setattr(legacy, "_rule", rows.__getitem__)
    b = Build()
    module = b.done(reshaped(b, (1, 1, 24, 1, 1)))
    assert kinds(run(module.clone(), "h11", "legacy-forms")) == ["reshape"]
    assert kinds(run(module, "h17s", "legacy-forms")) == ["flatten"]


# Floors and support bytes.


def one(kind, *, type_=MAP, **attrs):
    b = Build()
    return b.done(b.op(kind, b.input(*MAP.shape), type_=type_, **attrs))


@pytest.mark.parametrize(
    ("module", "chip", "message", "words"),
    [
        (
            one("softmax", axes=(2,)),
            "h11",
            "starts with the M1 and the A14 Bionic; this chip is older",
            "Softmax is not supported by this ANE architecture",
        ),
        (
            one("instance_norm", axes=(3, 4), epsilon=0.0),
            "h12",
            "starts with the M1 and the A14 Bionic; this chip is older",
            "InstanceNorm layer not supported for this ANE architecture",
        ),
        (
            one("sin"),
            "h14",
            "anec.sin starts with the M3 and the A16 Bionic; this chip is older",
            "This platform doesn't support Neuron Sin",
        ),
        (
            one("reduce_sum", type_=TensorType((1, 1, 1, 6, 6)), axes=(2,)),
            "m9",
            "starts with the M1 and the A14 Bionic; this chip is older",
            None,
        ),
        (
            one("global_arg_min_max", type_=TensorType((1, 1, 8, 6, 1)), axis=4, mode="Max"),
            "h13",
            "starts with the M3 and the A16 Bionic; this chip is older",
            None,
        ),
    ],
)
def test_ops_below_their_floor(module, chip, message, words):
    told = refused(module, chip, "check-floors", words)
    assert message in told
    run(module, "h17s", "check-floors")


def unit(type_, bottoms=1, **params):
    b = Build()
    operands = [b.input(*MAP.shape) for _ in range(bottoms)]
    return b.done(b.op("unit", *operands, type_=MAP, **{"type": type_, "params": Params(params)}))


def padded(mode):
    sizes = ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1))
    b = Build()
    x = b.input(*MAP.shape)
    type_ = TensorType((1, 1, 8, 8, 8))
    attrs = {"padding_modes": mode, "padding_sizes": sizes, "background_value": 0.0}
    return b.done(b.op("padding", x, type_=type_, **attrs))


@pytest.mark.parametrize(
    ("module", "chip", "without", "words"),
    [
        (unit("AffineTransform", 2), "h14", "h13", "affine transform is not supported on this architecture"),
        (unit("Dropout", Rate=0.5), "h15", "h14", "Dropout layer is not supported on this architecture."),
        (unit("RandomGenerator", 0), "h15", "h14", "Random layer is not supported on this architecture."),
        (padded("Symmetric"), "h14", "h13", "Architecture does not support padding mode."),
        (padded("Reflective"), "h14", "h13", "Architecture does not support padding mode."),
    ],
)
def test_features_behind_a_support_byte(module, chip, without, words):
    run(module, chip, "check-floors")
    assert re.search(r"needs the support byte \w+ \(0x", refused(module, without, "check-floors", words))


def test_a_clear_byte_refuses_whatever_the_family():
    b = Build()
    x = b.input(*MAP.shape)
    grid = b.input(1, 1, 2, 6, 6)
    names = {"coordinate_mode": "NonNormalized", "sampling_method": "Linear", "sampling_mode": "Default"}
    module = b.done(b.op("resample", x, grid, background_value=0.0, **names))
    run(module, "h14", "check-floors")
    words = "affine transform is not supported on this architecture"
    assert "anec.resample starts with the M2 and the A15 Bionic" in refused(module, "h13", "check-floors", words)
    assert "Resample: the layer needs the support byte texture_engine (0x81d)" in refused(
        module, "u1", "check-floors", words
    )  # no family: no floor (U31)
    run(one("sin"), "u1", "check-floors")


def test_every_gate_is_read_from_the_table():
    """No chip is known to lack byte 0x81a."""
    module = unit("LocalResponseNormalization")
    run(module, "h13", "check-floors")
    facts = Facts(target("h13"), PASSES["check-floors"].reads)
    facts._values["lrn"], facts._facts["lrn"] = 0, replace(facts.fact("lrn"), value=0)
    with pytest.raises(RefusedOps) as caught:
        PASSES["check-floors"].apply(module, facts)
    assert caught.value.refused[0].reject == "LRN is not supported on this architecture."


def test_constant_and_replicated_padding_need_nothing():
    """gate_limits.json pad-mode: what preflight calls native on the M1 is not refused."""
    for mode in ("Zero", "Background", "Replication"):
        run(padded(mode), "h13", "check-floors")


def test_what_a_pass_legalises_is_not_refused():
    b = Build()
    module = b.done(b.resize(b.input(1, 1, 2, 3, 4), 6, 8))
    assert "starts with the M1 and the A14 Bionic" in refused(
        module.clone(), "h11", "check-floors", "failed to map resize layer on this arch"
    )
    run(module, "h11", *LEGALISATION)


# Extents.


def relu(*shape):
    b = Build()
    return b.done(b.op("relu", b.input(*shape)))


@pytest.mark.parametrize(
    ("shape", "chip", "axis", "cap"),
    [
        ((1, 1, 1, 1, 16385), "h13", "W", 16384),
        ((1, 1, 1, 16385, 1), "h15", "H", 16384),
        ((1, 1, 65537, 1, 1), "h17s", "C", 65536),
        ((1, 16385, 1, 1, 1), "h13", "D", 16384),
        ((1, 2, 1, 1, 1), "h11", "D", 1),
        ((65537, 1, 1, 1, 1), "h13", "N", 65536),
        ((4097, 1, 1, 1, 1), "h11", "N", 4096),
        ((1, 1, 1, 1, 65537), "h16s", "W", 65536),
    ],
)
def test_an_axis_beyond_its_cap_is_refused(shape, chip, axis, cap):
    told = refused(relu(*shape), chip, "check-extents")
    assert f"axis {axis} is {cap + 1}; the limit is {cap}" in told
    fits = tuple(cap if extent == cap + 1 else extent for extent in shape)
    run(relu(*fits), chip, "check-extents")


def test_transposes_and_what_they_read_have_the_wide_cap():
    b = Build()
    x = b.input(1, 1, 2, 1, 20000)
    run(b.done(b.turned(x, 2, 4)), "h13", "check-extents")
    b = Build()
    x = b.input(1, 1, 20000, 1, 2)
    module = b.done(b.op("relu", b.turned(x, 2, 4)))
    assert "anec.relu reads [1, 1, 2, 1, 20000]: axis W is 20000" in refused(module, "h13", "check-extents")
    b = Build()
    module = b.done(b.turned(b.input(1, 1, 1, 1, 8388608), 2, 4))
    assert "the limit is 8388607" in refused(module, "h13", "check-extents")
    run(module, "h17s", "check-extents")


def test_views_and_reshapes_count_too():
    b = Build()
    module = b.done(reshaped(b, (1, 1, 1, 1, 20000), b.input(1, 1, 2, 100, 100)))
    assert "anec.reshape gives" in refused(module, "h13", "check-extents")


def test_contractions_have_a_cap_of_their_own():
    b = Build()
    a, w = b.input(1, 1, 16385, 1, 2), b.input(1, 1, 16385, 1, 3)
    module = b.done(b.op("matmul", a, w, type_=TensorType((1, 1, 2, 1, 3)), transpose_lhs=True))
    told = refused(module, "h13", "check-extents")
    assert "a contraction or output extent of 16385; the limit is 16384" in told
    run(module, "h16s", "check-extents")


def test_the_outputs_of_a_kernel_are_no_batch():
    b = Build()
    kernel = b.const(np.ones(5000), (5000, 1, 1, 1, 1))
    run(b.done(b.conv(b.input(1, 1, 1, 1, 1), kernel)), "h11", "check-extents")


# All of it.


def net(x):
    """A little of everything that phase 2 rewrites."""
    rng = np.random.default_rng(3)
    y = af.conv(x, rng.normal(0, 0.1, (96, 4, 12, 12)), stride=6, pad=5, bias=rng.normal(size=96)).relu()
    y = af.conv(y, rng.normal(0, 0.1, (96, 96, 3, 3)), stride=2, pad=1)
    y = (y * (1 + rng.random((1, 96, 1, 1)))).tanh()
    y = af.upsample_bilinear(y, 2) + y.upsample(2)
    y = af.gather(y, [0, 3, 1, 2, 2], axis=3)
    return af.conv(y, rng.normal(0, 0.1, (8, 48, 3, 3)), pad=1, groups=2)


@pytest.mark.parametrize("chip", ["h13", "h14", "h17s", "u1"])
def test_the_legal_program_means_the_same(chip):
    x = af.input((1, 4, 48, 60), name="x")
    out = net(x)
    lowered = lower(out)
    data = np.random.default_rng(0).normal(size=x.shape)
    feeds = [lowered.inputs[0].to_ndchw(data)]
    name = lowered.outputs[0].name
    run_passes(lowered.module, target(chip), FUSION)
    before = interpret(lowered.module, feeds)[name]
    run(lowered.module, chip, *LEGALISATION)
    after = interpret(lowered.module, feeds)[name]
    np.testing.assert_allclose(after, before, rtol=2**-9, atol=2**-9)
