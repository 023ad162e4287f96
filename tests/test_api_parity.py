"""Every name and signature that existing users' code relies on, each with a call that exercises it.

The table is the promise: argument names, their order and defaults, and what comes back. What we add to a signature is
optional and stands behind it. Names of training are at the end; ``tests/test_train*.py`` say what they do.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import aneforge as af
from aneforge import _compile
from aneforge import _targets as tg

pytestmark = [
    pytest.mark.filterwarnings("ignore::aneforge.chips.host.TargetDetectionWarning"),
    pytest.mark.filterwarnings("ignore::aneforge.errors.PrecisionWarning"),
]


class Row(NamedTuple):
    """One promised name."""

    signature: str
    call: Callable[[], Any]
    expected: Any
    """A shape for a tensor, a list of shapes for several, or a question that the result answers with true."""


def x(*shape: int) -> af.Tensor:
    return af.input(shape or (1, 8, 4, 4), name="x")


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape)


def small() -> af.Tensor:
    return x(2, 8).linear(ones(4, 8)).relu().named("y")


IMAGE = (1, 8, 4, 4)
SQUARE = ones(16, 16)
BIAS = ones(16)

FUNCTIONS = [
    # Inputs.
    Row("input(shape, dtype='fp16', max_abs=None)", lambda: af.input((2, 3), "fp16", 4.0), (2, 3)),
    Row(f"image_input(shape, scale={1 / 255!r}, bias=0.0)", lambda: af.image_input((1, 3, 4, 4)), (1, 3, 4, 4)),
    Row("parameter(init)", lambda: af.parameter(ones(3, 2)), (3, 2)),
    # Convolution.
    Row(
        "conv(x, weight, stride=1, pad=0, dilation=1, groups=1, bias=None)",
        lambda: af.conv(x(), ones(6, 4, 3, 3), 2, (1, 1, 1, 1), 1, 2, ones(6)),
        (1, 6, 2, 2),
    ),
    Row(
        "conv_transpose(x, weight, stride=1, pad=0, dilation=1, groups=1, bias=None)",
        lambda: af.conv_transpose(x(), ones(8, 6, 2, 2), stride=2),
        (1, 6, 8, 8),
    ),
    Row(
        "dynamic_conv(x, weight, stride=1, pad=0, dilation=1, groups=1)",
        lambda: af.dynamic_conv(x(), af.input((6, 8, 3, 3)), pad=1),
        (1, 6, 4, 4),
    ),
    Row("conv2d(x, weight, stride=1, pad=0)", lambda: af.conv2d(x(), af.conv_param(ones(6, 8, 3, 3))), (1, 6, 2, 2)),
    Row("conv_param(weight_init)", lambda: af.conv_param(ones(6, 8, 3, 3)), lambda found: found.size == 432),
    # Norms.
    Row(
        "batch_norm(x, gamma, beta, mean, var, eps=1e-05)",
        lambda: af.batch_norm(x(), ones(8), ones(8), ones(8), ones(8)),
        IMAGE,
    ),
    Row("instance_norm(x, gamma, beta, eps=1e-05)", lambda: af.instance_norm(x(), ones(8), ones(8)), IMAGE),
    Row(
        "local_response_norm(x, size=5, alpha=0.0001, beta=0.75, k=1.0)", lambda: af.local_response_norm(x()), IMAGE
    ),
    Row("group_norm_train(x, gamma, beta, groups, eps=1e-05)",
        lambda: af.group_norm_train(x(), af.parameter(ones(1, 8, 1, 1)), af.parameter(ones(1, 8, 1, 1)), 2), IMAGE),
    # Elementwise, structure, contraction.
    Row("maximum(a, b)", lambda: af.maximum(x(), 1.0), IMAGE),
    Row("minimum(a, b)", lambda: af.minimum(x(), x()), IMAGE),
    Row("select(cond, a, b)", lambda: af.select(x().greater(0.0), x(), x()), IMAGE),
    Row("where(cond, a, b)", lambda: af.where(x().greater(0.0), x(), 0.0), IMAGE),
    Row("concat(tensors, axis=1)", lambda: af.concat([x(), x()]), (1, 16, 4, 4)),
    Row("stack(tensors, axis=0)", lambda: af.stack([x(2, 3), x(2, 3)]), (2, 2, 3)),
    Row("split(x, num_splits, axis=0)", lambda: af.split(x(4, 6), 2), [(2, 6), (2, 6)]),
    Row("gather(x, indices, axis=0)", lambda: af.gather(x(4, 6), [0, 2]), (2, 6)),
    Row("einsum(equation, *operands)", lambda: af.einsum("ij,jk->ik", x(2, 3), x(3, 4)), (2, 4)),
    Row("einsum_native(equation, a, b)",
        lambda: af.einsum_native("nchw,nwhu->nchu", x(1, 4, 2, 8), af.input((1, 8, 2, 6))), (1, 4, 2, 6)),
    # Spatial.
    Row("space_to_depth(x, block_size=2)", lambda: af.space_to_depth(x()), (1, 32, 2, 2)),
    Row("depth_to_space(x, block_size=2)", lambda: af.depth_to_space(x()), (1, 2, 8, 8)),
    Row("pixel_shuffle(x, r)", lambda: af.pixel_shuffle(x(), 2), (1, 2, 8, 8)),
    Row("pixel_unshuffle(x, r)", lambda: af.pixel_unshuffle(x(), 2), (1, 32, 2, 2)),
    Row("crop(x, top, bottom, left, right)", lambda: af.crop(x(), 1, 0, 1, 1), (1, 8, 3, 2)),
    Row("resize_nearest_neighbor(x, target_h, target_w)", lambda: af.resize_nearest_neighbor(x(), 8, 8), (1, 8, 8, 8)),
    Row("resize_bilinear(x, target_h, target_w, align_corners=False)",
        lambda: af.resize_bilinear(x(), 8, 8), (1, 8, 8, 8)),
    Row("upsample_bilinear(x, scale=2, align_corners=False)", lambda: af.upsample_bilinear(x()), (1, 8, 8, 8)),
    Row("affine(x, transform, output_h, output_w, align_corners=False)",
        lambda: af.affine(x(), np.array([[1.0, 0, 0, 0, 1.0, 0]]), 4, 4), IMAGE),
    # Blocks.
    Row("mha(x, Wq, bq, Wk, bk, Wv, bv, Wo, bo, n_heads, mask=None)",
        lambda: af.mha(x(4, 16), SQUARE, BIAS, SQUARE, BIAS, SQUARE, BIAS, SQUARE, BIAS, 2), (4, 16)),
    Row("cross_attention(x, context, Wq, Wk, Wv, Wo, n_heads, bq=None, bk=None, bv=None, bo=None)",
        lambda: af.cross_attention(x(4, 16), x(6, 16), SQUARE, SQUARE, SQUARE, SQUARE, 2), (4, 16)),
    Row("geglu(x, W, b)", lambda: af.geglu(x(4, 16), ones(24, 16), ones(24)), (4, 12)),
    Row("rope(x, cos, sin)", lambda: af.rope(x(1, 2, 6, 8), ones(6, 8), ones(6, 8)), (1, 2, 6, 8)),
    Row("conv_block(x, conv_w, gamma, beta, groups, pool=0)",
        lambda: af.conv_block(
            x(), af.conv_param(ones(6, 8, 3, 3)), af.parameter(ones(1, 6, 1, 1)), af.parameter(ones(1, 6, 1, 1)), 2, 2
        ), (1, 6, 2, 2)),
    # Native layers.
    Row("sdpa(q, k, v, scale=None, is_causal=False, attn_mask=None)",
        lambda: af.sdpa(x(1, 2, 8, 4), x(1, 2, 8, 4), x(1, 2, 8, 4)), (1, 2, 8, 4)),
    Row("topk(x, k, largest=True)", lambda: af.topk(x(4, 16), 3), (4, 3)),
    Row("sort(x, descending=False, return_indices=False)", lambda: af.sort(x(4, 16)), (4, 16)),
    Row("cross_product(a, b)", lambda: af.cross_product(x(3), af.input((3,))), (3,)),
    Row("cross_correlation(x, template)",
        lambda: af.cross_correlation(x(8, 8), af.input((3, 3))), (6, 6)),
    Row("cost_volume(aux, ref, disparity_range=1)", lambda: af.cost_volume(x(4), af.input((7,)), 2), (3, 4)),
    Row("fps(points, k)", lambda: af.fps(x(16, 3), 4), (4, 3)),
    Row("radius_search(points, centroids, radius)",
        lambda: af.radius_search(x(16, 3), af.input((4, 3)), 0.5), (16, 4)),
    Row("minmax_norm(x, dimension='Width', eps=0.0001)", lambda: af.minmax_norm(x()), IMAGE),
    Row("lrn(x, alpha=1.0, beta=0.75, k=1.0)", lambda: af.lrn(x()), IMAGE),
    Row("space_to_channel(x, r)", lambda: af.space_to_channel(x(), 2), (1, 32, 2, 2)),
    Row("channel_to_space(x, r)", lambda: af.channel_to_space(x(), 2), (1, 2, 8, 8)),
    Row("space_to_batch(x, bh, bw)", lambda: af.space_to_batch(x(), 2, 2), (4, 8, 2, 2)),
    Row("batch_to_space(x, bh, bw)", lambda: af.batch_to_space(x(4, 8, 2, 2), 2, 2), IMAGE),
    Row("flatten(x)", lambda: af.flatten(x()), (128,)),
    Row("input_view(x, offset, size)", lambda: af.input_view(x(), 1, 2), (2,)),
    Row("dynamic_slice(x, start, size=2)",
        lambda: af.dynamic_slice(x(4, 5), 3), (2,)),
    Row("scaled_elementwise(x, z, op='Add', scale=1.0)", lambda: af.scaled_elementwise(x(), x()), IMAGE),
    # Compile, optimise, estimate.
    Row(
        "compile(out, int8=False, build_dir=None, opt='routes', compress=None, compress_atol=0.05, block_size=32, "
        "validate=False, target=None, _check_precision=True)",
        lambda: af.compile(small(), target="m1"),
        lambda found: found(ones(2, 8)).dtype == np.float32 and found(x=ones(2, 8)).shape == (2, 4),
    ),
    Row(
        "compile_multi(outs, int8=False, build_dir=None, opt='routes')",
        lambda: af.compile_multi([small()], target="m1")(ones(2, 8)),
        lambda found: list(found) == ["y"] and found["y"].shape == (2, 4),
    ),
    Row(
        "tune(out, budget=8, inputs=None, prune_factor=1.5, reps=20, atol=0.005, min_lossy_speedup=1.1, "
        "verbose=False, target_error=None)",
        lambda: af.tune(small(), budget=1, target="m1"),
        lambda found: isinstance(found, af.Model) and found.tuning is not None,
    ),
    Row(
        "tune_precision(out, target_error=None, cost_budget_us=None, inputs=None, reps=20, verbose=False)",
        lambda: af.tune_precision(small(), target_error=0.05, target="m2"),
        lambda found: isinstance(found[0], af.Model) and found[1].error <= 0.05 and found[0].tuning is found[1],
    ),
    Row("tune_attention(S, n_heads, dh, T=None, candidates=(1, 2, 3, 4, 5, 6, 8))",
        lambda: af.tune_attention(64, 2, 16, target="m1"), lambda found: isinstance(found, int)),
    Row("attention_tiles(S, n_heads, dh, T=None, tune=False, candidates=(1, 2, 3, 4, 5, 6, 8))",
        lambda: af.attention_tiles(64, 2, 16, target="m1"), lambda found: isinstance(found, int)),
    Row("estimate(out, int8=False, target=None)",
        lambda: af.estimate(small(), target="m5"), lambda found: isinstance(found, float) and found > 0),
    Row("estimate_provenance(target)", lambda: af.estimate_provenance("m5"), lambda found: isinstance(found, dict)),
    Row("precision_risk(out, verbose=False)",
        lambda: af.precision_risk(small(), target="m1"), lambda found: set(found) == {"target", "risks"}),
    Row("project_peak(arch)", lambda: af.project_peak("h17s"),
        lambda found: {"tflops", "rel_m1", "cores", "ghz"} <= set(found)),
    Row("reduce_sum_to_matmul(out, only_idx=None)", lambda: af.reduce_sum_to_matmul(x(2, 8).sum(1)), (2, 1)),
    # Catalogue.
    Row("op_info(name)", lambda: af.op_info("sdpa"), lambda found: found["status"]["A13"]["value"] == "native"),
    Row("is_native(op, chip='m1')", lambda: af.is_native("sin", "m3"), lambda found: found is True),
    Row("ops_on(chip='m1')", lambda: af.ops_on("m1"), lambda found: "conv" in found),
    Row("min_native_family(op)", lambda: af.min_native_family("sin"), lambda found: found == 4),
    Row("walled_everywhere()", af.walled_everywhere, lambda found: "tan" in found),
    # Models in.
    Row("load(path)", lambda: af.load(_written()), lambda found: isinstance(found, af.Graph)),
]  # fmt: skip

UNARY = """
relu gelu silu sigmoid tanh exp exp2 sqrt abs square sin cos erf softplus relu6 softsign atan floor ceil round sign
"""

METHODS = [
    *(
        Row(f"{name}(self)", lambda name=name: getattr(x(), name)(), IMAGE)
        for name in UNARY.split()
    ),
    Row("logical_not(self)", lambda: x().greater(0.0).logical_not(), IMAGE),
    Row("log(self, eps=0.0)", lambda: x().log(1e-3), IMAGE),
    Row("rsqrt(self, eps=0.0)", lambda: x().rsqrt(1e-3), IMAGE),
    Row("inverse(self, eps=0.0)", lambda: x().inverse(1e-3), IMAGE),
    Row("elu(self, alpha=1.0)", lambda: x().elu(0.5), IMAGE),
    Row("leaky_relu(self, alpha=0.01)", lambda: x().leaky_relu(0.1), IMAGE),
    Row("clip(self, lo, hi)", lambda: x().clip(0, 6), IMAGE),
    Row("clamp(self, lo, hi)", lambda: x().clamp(0, 6), IMAGE),
    Row("scaled_tanh(self, alpha=1.0, beta=1.0)", lambda: x().scaled_tanh(1.7, 0.6), IMAGE),
    Row("threshold(self, alpha=0.0)", lambda: x().threshold(0.1), IMAGE),
    Row("thresholded_relu(self, alpha=1.0)", lambda: x().thresholded_relu(0.1), IMAGE),
    Row("clamped_relu(self, alpha=0.0, beta=6.0)", lambda: x().clamped_relu(0.1, 6.0), IMAGE),
    Row("sigmoid_hard(self, alpha=0.2, beta=0.5)", lambda: x().sigmoid_hard(), IMAGE),
    Row("linear_activation(self, alpha=1.0, beta=0.0)", lambda: x().linear_activation(2.0, 1.0), IMAGE),
    Row("adds(self, k)", lambda: x().adds(2.0), IMAGE),
    Row("prelu(self, alpha)", lambda: x().prelu(ones(8)), IMAGE),
    Row("pow(self, other)", lambda: x().pow(2.0), IMAGE),
    *(
        Row(f"{name}(self, other)", lambda name=name: getattr(x(), name)(0.5),
            lambda found: found.shape == IMAGE and found.dtype == "bool")
        for name in ["greater", "less", "equal", "not_equal", "less_equal", "greater_equal"]
    ),
    Row("bmm_weight(self, W)", lambda: x(2, 4, 8).bmm_weight(ones(2, 8, 3)), (2, 4, 3)),
    Row("linear(self, W, bias=None)", lambda: x(2, 8).linear(ones(3, 8), ones(3)), (2, 3)),
    Row("reshape(self, *shape)", lambda: x().reshape(8, 16), (8, 16)),
    Row("transpose(self, perm=None)", lambda: x().transpose([0, 2, 3, 1]), (1, 4, 4, 8)),
    Row("squeeze(self, axes)", lambda: x().squeeze(0), (8, 4, 4)),
    Row("expand_dims(self, axes)", lambda: x(2, 3).expand_dims(0), (1, 2, 3)),
    Row("flatten2d(self, axis=1)", lambda: x().flatten2d(1), (1, 128)),
    Row("slice_by_size(self, begin, size)", lambda: x().slice_by_size((0, 2, 0, 0), (1, 4, 4, 4)), (1, 4, 4, 4)),
    Row("reverse(self, axes)", lambda: x().reverse(1), IMAGE),
    Row("tile(self, reps)", lambda: x(2, 3).tile([1, 2]), (2, 6)),
    *(
        Row(f"{name}(self, axes=None)", lambda name=name: getattr(x(), name)((2, 3)), (1, 8, 1, 1))
        for name in ["mean", "sum", "amax", "amin", "l1_norm", "log_sum", "sum_square", "reduce_log_sum_exp"]
    ),
    Row("cumsum(self, axis=-1)", lambda: x(2, 8).cumsum(), (2, 8)),
    Row("softmax(self, axis=-1)", lambda: x().softmax(1), IMAGE),
    Row("l2_norm(self, axis=-1)", lambda: x().l2_norm(1), IMAGE),
    Row("argmax(self, axis=-1)", lambda: x(4, 16).argmax(), (4, 1)),
    Row("rms_norm(self, gamma, eps=1e-05)", lambda: x(2, 8).rms_norm(ones(8)), (2, 8)),
    Row("layer_norm(self, gamma, beta, eps=1e-05)", lambda: x(2, 8).layer_norm(ones(8), ones(8)), (2, 8)),
    Row("channel_layer_norm(self, gamma, beta, eps=1e-05)", lambda: x().channel_layer_norm(ones(8), ones(8)), IMAGE),
    Row("group_norm(self, gamma, beta, num_groups, eps=1e-05)", lambda: x().group_norm(ones(8), ones(8), 2), IMAGE),
    Row("max_pool(self, k, stride=None, pad=0, ceil_mode=False)", lambda: x().max_pool(2, 2), (1, 8, 2, 2)),
    Row("avg_pool(self, k, stride=None, pad=0, ceil_mode=False, exclude_pad=False)",
        lambda: x().avg_pool(2, 2), (1, 8, 2, 2)),
    Row("upsample(self, scale=2)", lambda: x().upsample(2), (1, 8, 8, 8)),
]  # fmt: skip

OPERATORS = {
    "+": lambda: x() + x(),
    "-": lambda: x() - 1.0,
    "*": lambda: x() * 2.0,
    "reflected *": lambda: 2.0 * x(),
    "/": lambda: x() / 2.0,
    "**": lambda: x() ** 2.0,
    "unary -": lambda: -x(),
    "reflected +": lambda: 1.0 + x(),
    "reflected -": lambda: 1.0 - x(),
    "reflected /": lambda: 1.0 / x(),
    "reflected **": lambda: 2.0 ** x(),
    "<": lambda: x() < 1.0,
    ">=": lambda: x() >= 1.0,
    "[]": lambda: x(2, 8, 4, 4)[:1],
}

TARGETS = [
    Row("supports_mil(family)", lambda: [tg.supports_mil(each) for each in tg.Family],
        lambda found: found == [False, True, True, True, True]),
    Row("family_of_arch(arch)", lambda: tg.family_of_arch("h17s"), lambda found: found is tg.Family.A16),
    Row("arch_for_family(family)", lambda: [tg.arch_for_family(each) for each in (2, 3, 4, 5)],
        lambda found: found == ["h13", "h14", "h15", "h16s"]),
    Row("op_status(op, family)", lambda: [tg.op_status(op, 2) for op in ("conv", "sin", "topk")],
        lambda found: found == ["native", "decompose", "reject"]),
    Row("has_texture_engine(family)", lambda: [tg.has_texture_engine(each) for each in (2, 3)],
        lambda found: found == [False, True]),
    Row("limit(name, family)", lambda: tg.limit("max_tensor_dim", tg.Family.A13), lambda found: found == 16384),
    Row("preflight(out, family)", lambda: tg.preflight(out=small(), family=tg.Family.A13),
        lambda found: found.ok and found.family is tg.Family.A13 and not found.reject and not found.oversize),
    Row("detect_family()", tg.detect_family, lambda found: isinstance(found, tg.Family)),
    Row("predict_fp16_divergence(kind, shape, target_a, target_b, begin=None, max_abs=None)",
        lambda: tg.predict_fp16_divergence("slice_by_size", (1, 64), "h13", "h17s", (0, 1)),
        lambda found: found == "saturation"),
    Row("native_streams(family)", lambda: tg.native_streams(tg.Family.A13),
        lambda found: found == frozenset({"int4", "sparse"})),
]  # fmt: skip

CROSS = Row("cross_compile_check(out, target, int8=False)", lambda: _compile.cross_compile_check(small(), "h13"),
            lambda found: found is True)  # fmt: skip


def _written() -> str:
    """A saved graph, which af.load reads."""
    import tempfile

    folder = tempfile.mkdtemp()
    af.Graph.of(small()).save(f"{folder}/net.aneforge")
    return f"{folder}/net.aneforge"


def shown(parameter: inspect.Parameter) -> str:
    name = f"*{parameter.name}" if parameter.kind is parameter.VAR_POSITIONAL else parameter.name
    return name if parameter.default is parameter.empty else f"{name}={parameter.default!r}"


def name_of(row: Row) -> str:
    return row.signature.partition("(")[0]


def check_signature(row: Row, found: Any) -> None:
    """Names, order and defaults as promised; what we add is optional and stands behind."""
    _, _, arguments = row.signature[:-1].partition("(")
    wanted = ["self" if each == "x" else each for each in _split(arguments)]
    ours = [
        shown(each)
        for each in inspect.signature(found).parameters.values()
        if each.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    ours = ["self" if each == "x" else each for each in ours]  # a method may be the function of the same name
    assert ours[: len(wanted)] == wanted
    assert all("=" in extra for extra in ours[len(wanted) :]), "what we add is optional"


def _split(arguments: str) -> list[str]:
    """At commas that are not inside brackets."""
    parts, depth = [""], 0
    for letter in arguments:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def check_result(row: Row) -> None:
    found = row.call()
    if callable(row.expected):
        assert row.expected(found)
    elif isinstance(row.expected, list):
        assert isinstance(found, list)
        assert [each.shape for each in found] == row.expected
    else:
        assert isinstance(found, af.Tensor)
        assert found.shape == row.expected


@pytest.mark.parametrize("row", FUNCTIONS, ids=name_of)
def test_functions(row):
    assert name_of(row) in af.__all__
    check_signature(row, getattr(af, name_of(row)))
    check_result(row)


@pytest.mark.parametrize("row", METHODS, ids=name_of)
def test_tensor_methods(row):
    check_signature(row, getattr(af.Tensor, name_of(row)))
    check_result(row)


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name):
    assert OPERATORS[name]().shape == IMAGE


def test_products_by_operator():
    assert (x(2, 8) @ ones(8, 3)).shape == (2, 3)
    assert (x(1, 2, 8) @ af.input((1, 8, 3))).shape == (1, 2, 3)


def test_tensor_attributes():
    tensor = x(2, 8)
    assert (tensor.ndim, tensor.size, tensor.dtype, tensor.T.shape) == (2, 16, "fp16", (8, 2))


@pytest.mark.parametrize("row", TARGETS, ids=name_of)
def test_targets(row):
    check_signature(row, getattr(tg, name_of(row)))
    check_result(row)


def test_cross_compile_check():
    check_signature(CROSS, _compile.cross_compile_check)
    check_result(CROSS)


def test_target_constants():
    assert {each.name: int(each) for each in tg.Family} == {"OLDER": 1, "A13": 2, "A14": 3, "A15": 4, "A16": 5}
    assert tg.MIN_FAMILY == 2
    assert tg.FP16_SLICE_SAT == 4094.0


def test_the_report_of_preflight():
    report = tg.preflight(x(4, 16).sin().relu(), tg.Family.A13)
    assert isinstance(report, tg.Preflight)
    for name in ("family", "native", "decompose", "reject", "oversize", "ok"):
        assert hasattr(report, name)
    (entry,) = report.decompose
    assert isinstance(entry, tg.OpReport)
    assert (entry.op, entry.shape, entry.status, entry.oversize) == ("sin", (4, 16), "decompose", False)


def test_result_objects():
    model = af.compile(small(), target="m1")
    assert isinstance(model, af.Model)
    assert model.n_ops >= 1
    model.input_view(0)[...] = 1.0
    model.execute()
    assert (model.output_view(0) == model(ones(2, 8))).all()
    assert model(ones(2, 8), dtype="float16").dtype == np.float16
    q = x(1, 2, 8, 4)
    cut = af.compile(af.sdpa(q, q, q), target="m1")
    assert isinstance(cut, af.SegmentedModel)
    assert (cut.n_ops >= 1, cut.n_netplist) == (True, 1)
    multi = af.compile_multi({"a": small()}, target="m1")
    assert isinstance(multi, af.MultiModel)
    assert multi.prog is multi
    assert [name for _, name in (*multi.input_ports, *multi.output_ports)] == ["x", "a"]
    for each in (model, cut, multi):
        each.release()
        with pytest.raises(af.AneforgeError, match="released"):
            each.execute()


def test_the_catalogue_is_a_mapping():
    assert af.OP_CATALOG["conv"]["min_native_family"] == 2


@pytest.mark.parametrize("name", ["CrossChipFP16Warning", "PrecisionWarning", "DispatchFloorWarning"])
def test_warnings_are_warnings(name):
    assert issubclass(getattr(af, name), Warning)
    graphs = {
        "CrossChipFP16Warning": lambda: x(1, 2, 4, 8).slice_by_size((0, 0, 0, 1), (1, 2, 4, 4)),
        "PrecisionWarning": lambda: x(1, 4096).sum(1),
        "DispatchFloorWarning": small,
    }
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        af.compile(graphs[name](), target="m1")
    assert name in {each.category.__name__ for each in found}


def test_models_in(tmp_path):
    onnx = pytest.importorskip("onnx")
    info, helper = onnx.helper.make_tensor_value_info, onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "net", [info("x", 1, [2, 3])], [info("y", 1, [2, 3])]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    model = af.load_onnx(tmp_path / "net.onnx", target="m1")
    assert isinstance(model, af.Model)
    assert (model(np.array([[-1.0, 2, 3]] * 2)) == [[0, 2, 3]] * 2).all()
    inputs, output = af.onnx_to_tensor(tmp_path / "net.onnx")
    assert [each.shape for each in inputs] == [(2, 3)]
    assert (output.op, output.shape) == ("relu", (2, 3))
    assert isinstance(af.load(tmp_path / "net.onnx"), af.Graph)


# Training.

TRAINING = [
    "backward(loss, params, loss_scale=1.0, stop=None)",
    "backward_from(grad_root, root, params, stop=None)",
    "mse(y, target)",
    "softmax_cross_entropy(logits, target)",
    "SGD(params, lr, loss_scale=1.0)",
    "Adam(params, lr=0.001, betas=(0.9, 0.999), eps=1e-08, loss_scale=1.0)",
    "Trainer(objective, params, lr, loss_scale=1.0, data_inputs=None, optimizer='sgd', betas=(0.9, 0.999), eps=1e-08, "
    "device_optimizer=False, resident_state=False)",
    "CheckpointedStack(layer_fn, example_params, io_shape)",
]


@pytest.mark.parametrize("signature", TRAINING, ids=lambda signature: signature.partition("(")[0])
def test_training(signature):
    row = Row(signature, lambda: None, None)
    check_signature(row, getattr(af, name_of(row)))


@pytest.mark.parametrize(
    "signature",
    ["maximum(b, a)", "maximum(a, b=1)", "maximum(a)", "maximum(a, b, c)", "tune_attention(S, n_heads, dh, T=1)"],
)
def test_a_signature_that_differs_is_found(signature):
    row = Row(signature, lambda: None, None)
    with pytest.raises(AssertionError):
        check_signature(row, getattr(af, name_of(row)))
