"""8 bits on both sides: graphs that are quantised here, and files that others quantised, reach the integer sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import aneforge as af
from aneforge.advice import advise_weights, quantise
from aneforge.advice.calibration import RANGES
from aneforge.cost.program import work_of_program

INTEGER_CHIPS = ("m4", "m5", "m6")


def network(seed=0):
    """A convolution, a gated pair of dense layers that share their input, and a dense layer behind their product."""
    rng = np.random.default_rng(seed)
    x = af.input((1, 16, 8, 8), name="x")
    h = af.conv(x, rng.normal(0, 0.1, (32, 16, 3, 3)), pad=1, bias=rng.normal(size=32)).relu().reshape(1, 32, 64)
    gate, up = (h.linear(rng.normal(0, 0.1, (96, 64))) for _ in range(2))
    return (gate.silu() * up).linear(rng.normal(0, 0.1, (48, 96))).graph()


def samples(count=8, seed=1):
    return {"x": np.random.default_rng(seed).normal(size=(count, 1, 16, 8, 8))}


def integer_layers(graph, chip):
    """Of each layer with a stored kernel, whether both sides are codes."""
    program = af.compile(graph, target=chip, _check_precision=False).program
    return [work.integers for work in work_of_program(program) if work.kind in ("conv", "linear")]


@pytest.mark.parametrize("ranges", RANGES)
def test_every_layer_reaches_the_integer_sums(ranges):
    graph = quantise(network(), samples(), ranges=ranges)
    for chip in INTEGER_CHIPS:
        assert integer_layers(graph, chip) == [True] * 4
    assert integer_layers(network(), "m4") == [False] * 4


def test_layers_that_read_one_tensor_share_its_pair():
    graph = quantise(network(), samples())
    assert [node.op for node in graph.nodes].count("quantize") == 3  # four layers, two of them behind one tensor
    stored = [node.weight.encoded for node in graph.nodes if node.weight is not None and node.weight.encoded]
    assert [(each.form, each.bits) for each in stored] == [("affine", 8)] * 4


def test_codes_of_what_is_never_negative_are_unsigned():
    kinds = [node.attrs["to"] for node in quantise(network(), samples()).nodes if node.op == "quantize"]
    assert kinds == ["int8", "uint8", "int8"]


@pytest.mark.parametrize("chip", ["m1", "m5"])
@pytest.mark.parametrize("method", ["plain", "calibrated"])
def test_the_numbers_stay_near(chip, method):
    graph, feeds = quantise(network(), samples(), method=method), {"x": samples(1, seed=5)["x"][0]}
    want, have = (
        np.asarray(next(iter(af.run(each, chip, feeds).only.outputs.values())), float) for each in (network(), graph)
    )
    assert 0 < np.linalg.norm(have - want) < 0.1 * np.linalg.norm(want)


def test_ranges_clip_what_is_rare():
    """One number of 1,000 among small ones: the largest decides minmax, and hardly matters for the others."""
    data = samples(32)
    data["x"][0, 0, 0, 0, 0] = 1000.0
    scales = {
        way: next(node.attrs["scale"] for node in quantise(network(), data, ranges=way).nodes if node.op == "quantize")
        for way in RANGES
    }
    assert scales["minmax"] == pytest.approx(1000 / 127, rel=1e-3)
    assert scales["percentile"] < scales["minmax"]
    assert scales["mse"] <= scales["minmax"]


def test_layers_can_be_left_out():
    graph = quantise(network(), samples(), skip=["linear_*"])
    assert integer_layers(graph, "m4") == [True, False, False, False]


def test_a_graph_that_has_pairs_already_keeps_them():
    once = quantise(network(), samples())
    assert [node.op for node in quantise(once, samples()).nodes] == [node.op for node in once.nodes]


@pytest.mark.parametrize("options", [{"ranges": "best"}, {"method": "magic"}])
def test_unknown_ways_are_refused(options):
    with pytest.raises(af.AneforgeError, match="choose one: "):
        quantise(network(), samples(), **options)


# Published defects of converters.


def around_the_product():
    """The same gate with a pair on each branch, as converters of whole models place them (N78, N79)."""
    a, b = (af.input((1, 32, 8, 8), name=name) for name in "ab")
    branches = [af.dequantize(af.quantize(x, scale), scale) for x, scale in ((a, 0.5), (b, 0.25))]
    return (branches[0] * branches[1]).graph()


def rules_against(graph):
    report = af.preflight(graph, "m5")
    return {finding.message for entry in (*report.risk, *report.placement) for finding in entry.findings}


def test_no_pair_stands_around_a_product():
    assert any("one pair uses the other's scale" in message for message in rules_against(around_the_product()))
    assert not any("scale" in message for message in rules_against(quantise(network(), samples())))


def test_several_scales_of_one_output_are_flagged_and_never_written():
    codes, scales = np.ones((64, 64, 1, 1), np.int8), np.full((64, 2, 1, 1), 0.25)
    grouped = af.conv(af.input((1, 64, 1, 64), name="x"), af.Encoded.blockwise(codes, scales)).graph()
    assert any("along the input channels" in message for message in rules_against(grouped))
    stored = [node.weight.encoded for node in quantise(network(), samples()).nodes if node.weight is not None]
    assert all(each.scale.size == each.shape[0] for each in stored if each is not None)


# The adviser.


def test_the_adviser_weighs_codes_on_both_sides():
    found = advise_weights(network(), "m1,m4", samples(), "direct", ["int8", "w8a8"], target_error=0.05)
    for chip in found.values():
        option = chip.option("w8a8")
        assert option.check.error > chip.option("int8").check.error
        assert all(row.options[1].error is None for row in chip.layers)
    assert found["m1"].option("w8a8").placements["direct"].us > found["m1"].option("fp16").placements["direct"].us


# Files that others quantised: one convolution and one dense layer each, codes on both sides.

RNG = np.random.default_rng(3)
KERNEL, KERNEL_SCALES = RNG.integers(-127, 128, (32, 16, 3, 3)).astype(np.int8), RNG.uniform(0.001, 0.004, 32)
MATRIX, MATRIX_SCALES = RNG.integers(-127, 128, (24, 32)).astype(np.int8), RNG.uniform(0.001, 0.004, 24)
BIAS = RNG.normal(size=32).astype(np.float32)
FIRST, SECOND = (0.0625, 0), (0.125, -128)
ONE_CODE = SECOND[0] * 127 * 0.004
"""What an output moves where fp16 in front of the second quantiser turns one code into its neighbour."""


def onnx_model(folder: Path) -> Path:
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "s1", "z1"], ["q1"]),
        node("DequantizeLinear", ["q1", "s1", "z1"], ["d1"]),
        node("DequantizeLinear", ["k", "ks", "kz"], ["kd"], axis=0),
        node("Conv", ["d1", "kd", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("GlobalAveragePool", ["r"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("QuantizeLinear", ["f", "s2", "z2"], ["q2"]),
        node("DequantizeLinear", ["q2", "s2", "z2"], ["d2"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        node("Gemm", ["d2", "wd"], ["y"], transB=1),
    ]
    stored = {
        **{"s1": np.float32(FIRST[0]), "z1": np.int8(FIRST[1]), "s2": np.float32(SECOND[0]), "z2": np.int8(SECOND[1])},
        **{"k": KERNEL, "ks": KERNEL_SCALES.astype(np.float32), "kz": np.zeros(32, np.int8), "b": BIAS},
        **{"w": MATRIX, "ws": MATRIX_SCALES.astype(np.float32), "wz": np.zeros(24, np.int8)},
    }
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 8, 8])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "net", ports, results, weights)
    file = folder / "net.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), str(file))
    return file


def coreml_model(folder: Path) -> Path:
    from coreml_kit import IOS17, mb, package

    def pair(x, step):
        settings = {"scale": np.float32(step[0]), "zero_point": np.int8(step[1])}
        return mb.dequantize(input=mb.quantize(input=x, output_dtype="int8", **settings), **settings)

    def stored(codes, scales):
        zeros = np.zeros(len(codes), np.int8)
        settings = {"zero_point": zeros, "scale": scales.astype(np.float32), "axis": 0}
        return mb.constexpr_affine_dequantize(quantized_data=codes, **settings)

    def program(x):
        h = mb.conv(x=pair(x, FIRST), weight=stored(KERNEL, KERNEL_SCALES), bias=BIAS, pad_type="same")
        h = mb.reshape(x=mb.reduce_mean(x=mb.relu(x=h), axes=[2, 3], keep_dims=True), shape=[1, 32])
        return mb.linear(x=pair(h, SECOND), weight=stored(MATRIX, MATRIX_SCALES))

    return package(folder, program, [np.zeros((1, 16, 8, 8), np.float32)], IOS17)


def expected(x):
    """The same in NumPy, in float64."""

    def through(values, step):
        return (np.clip(np.rint(values / step[0]) + step[1], -128, 127) - step[1]) * step[0]

    kernel, matrix = KERNEL * KERNEL_SCALES.reshape(-1, 1, 1, 1), MATRIX * MATRIX_SCALES[:, None]
    padded = np.pad(through(x, FIRST)[0], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    h = np.einsum("cyxij,ocij->oyx", windows, kernel) + BIAS[:, None, None]
    return through(np.maximum(h, 0).mean((1, 2))[None], SECOND) @ matrix.T


@pytest.mark.parametrize("write", [onnx_model, coreml_model])
def test_files_with_pairs_reach_the_integer_sums(write, tmp_path):
    graph = af.load(write(tmp_path))
    # Between two codes but never half way: NumPy rounds a half to even, the engine away from zero (N77).
    x = ((np.random.default_rng(4).integers(-40, 40, (1, 16, 8, 8)) + 0.3) * FIRST[0]).astype(np.float16)
    for chip in INTEGER_CHIPS:
        assert integer_layers(graph, chip) == [True, True]
        (found,) = af.run(graph, chip, [x]).only.outputs.values()
        np.testing.assert_allclose(found, expected(x.astype(float)), atol=ONE_CODE, rtol=1e-3)


def test_scales_of_a_wide_kernel_are_no_budget_matter(tmp_path):
    """A line of scales along the outputs is not broadcast against the last axis: 960 x 960 numbers are computed, not
    960 times as many."""
    codes = np.ones((960, 960, 1, 1), np.int8)
    stored = {"k": codes, "s": np.full(960, 0.01, np.float32), "z": np.zeros(960, np.int8)}
    nodes = [helper.make_node("DequantizeLinear", ["k", "s", "z"], ["w"], axis=0)]
    nodes.append(helper.make_node("Conv", ["x", "w"], ["y"]))
    _save(tmp_path / "wide.onnx", nodes, [1, 960, 4, 4], stored)
    (conv,) = (node for node in af.load(tmp_path / "wide.onnx").nodes if node.op == "conv")
    assert conv.inputs[1].weight.encoded.name == "int8"


def test_a_quantised_number_is_a_number(tmp_path):
    """Quantisers of whole models write pairs around constants of no axes too."""
    stored = {"c": np.float32(0.21), "s": np.float32(1 / 512), "z": np.int8(-128)}
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["c", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Mul", ["x", "d"], ["y"]),
    ]
    _save(tmp_path / "number.onnx", nodes, [1, 8], stored)
    (result,) = af.evaluate(af.load(tmp_path / "number.onnx"), [np.ones((1, 8))])
    np.testing.assert_allclose(result, 108 / 512, rtol=1e-3)  # 0.21 * 512 = 107.52


def _save(file, nodes, shape, stored):
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "net", ports, results, weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7), str(file))
