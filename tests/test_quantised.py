"""Quantised models as users have them: graphs, ONNX files and Core ML programs reach the engine's integer path, and
give the numbers that were read on chips, hashes of whole outputs among them (N62 to N80)."""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import aneforge as af
from aneforge.cost.program import work_of_program
from aneforge.engine.text import parse
from aneforge.numerics.moves import digests
from aneforge.numerics.ranges import Value
from aneforge.numerics.transfer import walk
from aneforge.sim import int8
from aneforge.sim.engine import Engine
from aneforge.sim.half import narrowed, round_half

# Sums of codes are driven to their ends here, and codes bound the data: compile says so.
pytestmark = pytest.mark.filterwarnings("ignore::aneforge.errors.PrecisionWarning")

INTEGER_CHIPS = ["h16g", "h17s", "h18g"]
OTHER_CHIPS = ["h13", "h14"]
CODE_CHIPS = ["h17s", "h18g"]
M5_PRO = "h17s"


def simulated(out, chip, x, warns=True):
    """The only output of a graph of one input."""
    model = af.compile(out, target=chip, _check_precision=warns)
    (found,) = model.run({model.program.inputs[0].name: np.asarray(x)}).outputs.values()
    return np.asarray(found)


def through(x, scale, zero=0, dtype="int8"):
    return af.dequantize(af.quantize(x, scale, zero, dtype), scale, zero)


# Files that say the same: quantise, dequantise, convolve with stored bytes.


def w8a8_graph(tmp_path, codes, scale, weight_scale, shape):
    x = af.input(shape, name="x")
    return af.conv(through(x, scale), af.Encoded.affine(codes, weight_scale)).graph()


def w8a8_onnx(tmp_path, codes, scale, weight_scale, shape):
    node, one = helper.make_node, np.float32
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["k", "ks", "z"], ["w"]),
        node("Conv", ["d", "w"], ["y"]),
    ]
    stored = {"s": one(scale), "z": np.int8(0), "k": codes, "ks": one(weight_scale)}
    return af.load(onnx_file(tmp_path, nodes, shape, stored))


def onnx_file(tmp_path, nodes, shape, stored, opset=13, domains=()):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in (("x", shape), ("y", None)))
    weights = [numpy_helper.from_array(np.asarray(each), name) for name, each in stored.items()]
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(name, 1) for name in domains)]
    file = tmp_path / f"{len(list(tmp_path.iterdir()))}.onnx"  # weights stay mapped from the file they came in
    save(helper.make_model(graph, opset_imports=opsets, ir_version=7), str(file))
    return file


def w8a8_coreml(tmp_path, codes, scale, weight_scale, shape):
    from coreml_kit import IOS17, mb, package

    def program(x):
        step = {"scale": np.float32(scale), "zero_point": np.int8(0)}
        numbers = mb.dequantize(input=mb.quantize(input=x, output_dtype="int8", **step), **step)
        stored = {"quantized_data": codes, "zero_point": np.int8(0), "scale": np.float32(weight_scale), "axis": 0}
        return mb.conv(x=numbers, weight=mb.constexpr_affine_dequantize(**stored))

    return af.load(package(tmp_path, program, [np.zeros(shape, np.float32)], IOS17))


READERS = {"graph": w8a8_graph, "onnx": w8a8_onnx, "coreml": w8a8_coreml}


@pytest.fixture(params=sorted(READERS))
def reader(request, tmp_path):
    def read(codes, scale, weight_scale):
        shape = (1, *codes.shape[1:])
        return READERS[request.param](tmp_path, np.asarray(codes, np.int8), scale, weight_scale, shape)

    return read


def shape_of_ops(graph):
    """What a graph computes, without the names that files give."""
    return [
        (each.op, each.shape, sorted(each.attrs.items()), each.weight and each.weight.key)
        for each in graph
        if each.op != "input"
    ]


def test_all_readers_give_the_same_graph(tmp_path):
    codes = np.random.default_rng(0).integers(-128, 128, (3, 4, 2, 2)).astype(np.int8)
    made = [read(tmp_path, codes, 0.25, 0.125, (1, 4, 2, 2)) for read in READERS.values()]
    assert shape_of_ops(made[0]) == shape_of_ops(made[1]) == shape_of_ops(made[2])
    assert [each.op for each in made[0]] == ["input", "quantize", "dequantize", "const", "conv"]


# The three facts of 8-bit sums, and what older chips do (int8_accumulator of numerics_train.json, N16).


@pytest.mark.parametrize("chip", INTEGER_CHIPS)
def test_sums_are_32_bit_integers_scaled_at_the_end(reader, chip):
    """Read on an M6: 2^30 fits and gives 16384, 2^31 is infinite, half of it against the other half is zero."""
    one = reader(np.full((1, 65536, 1, 1), -128), 2.0**-8, 2.0**-8)
    assert simulated(one, chip, np.full((1, 65536, 1, 1), -0.5)).item() == 16384.0
    two = reader(np.full((1, 65536, 2, 1), -128), 2.0**-8, 2.0**-8)
    assert simulated(two, chip, np.full((1, 65536, 2, 1), -0.5)).item() == np.inf
    signs = np.where(np.arange(65536) < 32768, 127, -127).reshape(1, -1, 1, 1)
    half = reader(signs, 2.0**-7, 2.0**-7)
    assert simulated(half, chip, np.full((1, 65536, 1, 1), 127 / 128)).item() == 0.0


@pytest.mark.parametrize("chip", INTEGER_CHIPS)
def test_results_above_the_accumulators_ceiling_are_finite(reader, chip):
    graph = reader(np.full((1, 4, 1, 1), 125), 1.0, 1.0)
    assert simulated(graph, chip, np.full((1, 4, 1, 1), 100.0)).item() == 50016.0


@pytest.mark.parametrize("chip", OTHER_CHIPS)
def test_older_chips_decode_both_operands(reader, chip):
    graph = reader(np.full((1, 4, 1, 1), 125), 1.0, 1.0)
    assert simulated(graph, chip, np.full((1, 4, 1, 1), 100.0)).item() == np.inf
    assert simulated(graph, chip, np.full((1, 4, 1, 1), 10.0)).item() == 5000.0


def test_products_that_are_turned_on_the_way_are_still_sums_of_integers():
    """A linear layer becomes a convolution, with a transpose between it and its dequantised rows."""
    rng = np.random.default_rng(5)
    codes, kernel = rng.integers(-128, 128, (6, 40)), rng.integers(-128, 128, (7, 40)).astype(np.int8)
    scale = rng.uniform(0.5, 1.5, 7).astype(np.float16)
    x = af.input((6, 40), name="x")
    out = through(x, 2.0).linear(af.Encoded.affine(kernel, scale, axis=0))
    want = narrowed((codes @ kernel.T.astype(float)) * 2.0 * scale.astype(float))
    np.testing.assert_array_equal(simulated(out, M5_PRO, codes * 2.0), want)
    assert np.abs(want).max() > 32768  # which the accumulators of fp16 products could not hold


def test_codes_that_were_moved_or_picked_reach_the_integer_sums(tmp_path):
    """QOperator models pool and reshape codes themselves."""
    node, rng = helper.make_node, np.random.default_rng(6)
    kernel = rng.integers(-128, 128, (5, 4, 2, 2)).astype(np.int8)
    stored = {"s": np.float32(1.0), "z": np.int8(3), "k": kernel, "ks": np.float32(1.0), "kz": np.int8(0)}
    stored |= {"ys": np.float32(1024.0), "shape": np.array([1, 4, 3, 2])}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("MaxPool", ["q"], ["p"], kernel_shape=[1, 2], strides=[1, 2]),
        node("Reshape", ["p", "shape"], ["r"]),
        node("QLinearConv", ["r", "s", "z", "k", "ks", "kz", "ys", "kz"], ["c"]),
        node("DequantizeLinear", ["c", "ys", "kz"], ["y"]),
    ]
    graph = af.load(onnx_file(tmp_path, nodes, [1, 4, 2, 6], stored))
    assert "host" not in {each.op for each in graph}
    x = rng.integers(-100, 100, (1, 4, 2, 6)).astype(float)
    pooled = x.reshape(1, 4, 2, 3, 2).max(-1).reshape(4, 3, 2)
    sums = np.array([[(kernel * pooled[:, row : row + 2]).sum((1, 2, 3))] for row in range(2)])
    want = np.clip(np.trunc(sums / 1024 + np.copysign(0.5, sums)), -128, 127).reshape(2, 5).T
    np.testing.assert_array_equal(simulated(graph, M5_PRO, x).reshape(5, 2), want * 1024.0)


# Seeded chains on an M5 Pro: SHA-256 of the whole output (N62, N64, N65), and distances to all digits (N66).

STEP = 0.044189453125
WEIGHTS, INPUT = 20260910, 20260912
COLUMNS = 16
"""Distinct columns of the input, which is tiled from them; so is the output."""


@cache
def chain_weights(depth):
    h = np.ones((1, 1), np.int8)
    for _ in range(9):
        h = np.block([[h, h], [h, -h]])
    rng, found = np.random.default_rng(WEIGHTS), []
    for _ in range(depth):
        rows, columns = rng.permutation(512), rng.permutation(512)
        a, b = rng.choice((-1, 1), (512, 1)), rng.choice((-1, 1), (1, 512))
        found.append((h[rows][:, columns] * a * b).astype(np.int8))
    return found


@cache
def chain_input():
    codes = np.random.default_rng(INPUT).integers(-8, 9, (512, COLUMNS), dtype=np.int8)
    return (codes * 0.125).astype(np.float16)


def as_kernel(weight):
    return weight.reshape(*weight.shape, 1, 1)


def chain(depth, layer, between=lambda h: through(h, 0.125)):
    h = af.input((1, 512, 4, 4), name="x")
    for number, weight in enumerate(chain_weights(depth)):
        h = layer(h if number == 0 else between(h), weight)
    return h


def w8(h, weight):
    return af.conv(h, af.Encoded.affine(as_kernel(weight), STEP))


def w4(h, weight):
    return af.conv(h, af.Encoded.affine(as_kernel(weight), STEP, bits=4))


def palette(h, weight):
    """A table of codes with a scale behind it, as Core AI stores 4-bit weights."""
    table = np.arange(-8, 8).astype(np.float16)
    indices = as_kernel((weight + 8).astype(np.uint8))
    return af.conv(h, af.Encoded.palette(indices, table, 4, scale=np.full((1, 1, 1, 1), STEP)))


def in_blocks(h, weight):
    """Sixteen convolutions of 32 channels, joined by a balanced tree of additions."""
    blocks = [slice(first, first + 32) for first in range(0, 512, 32)]
    parts = [w4(h[:, block], np.ascontiguousarray(weight[:, block])) for block in blocks]
    while len(parts) > 1:
        parts = [one + two for one, two in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def run_chain(out):
    return simulated(out, M5_PRO, chain_input().reshape(1, 512, 4, 4)).reshape(512, COLUMNS)


def sha256(columns):
    tiled = np.tile(columns, (1, 4096 // COLUMNS)).astype("<f2")
    return hashlib.sha256(tiled.tobytes()).hexdigest()


W8A8 = {
    2: "ee9c3e2b8026e63ddc4480a2d10b7f82e99f6dfff3bf08c83ae22de6d07ed4bf",
    128: "124d16a9ff510985a62463e7d392629811f215d57120962ec60248bf7e8e0440",
}


@cache
def w8a8(depth):
    return run_chain(chain(depth, w8))


FP16 = {
    2: "b11fba9a7269a8f036c3c08595c815a2f634432896924d052958f9cfe46b4796",
    128: "c045b7364fd72189ca4b0bb1032ed0b71641d918d6b9620a663a5c7065adab83",
}


@cache
def fp16(depth):
    return run_chain(chain(depth, lambda h, w: af.conv(h, as_kernel(w * STEP)), between=lambda h: h))


@pytest.mark.parametrize("depth", FP16)
def test_the_fp16_chain_gives_the_published_hash(depth):
    """N62, and N63: at depth 128 only with products dropped whole where their exponents add up to -17 or less."""
    assert sha256(fp16(depth)) == FP16[depth]


@pytest.mark.parametrize("chip", ["h17s", "h18g"])
@pytest.mark.parametrize("number", [1.25 * 2.0**-15, 2.0**-14 - 2.0**-24])
def test_a_subnormal_survives_against_a_quarter_and_not_below(chip, number):
    """C67: it counts as 2^-14 in the rule that drops products, so "flushed" and "kept" are two ends of one rule."""
    x = af.input((1, 2, 1, 1))
    found = []
    for factor in (0.25, 0.2498779296875):  # neighbours in fp16, of exponents -2 and -3
        weight = np.array([[factor, 1.0], [factor, 0.0]]).reshape(2, 2, 1, 1)
        feeds = np.array([number, 0.0]).reshape(1, 2, 1, 1)
        found.append(simulated(af.conv(x, weight), chip, feeds).reshape(-1)[1])
    assert found == [2.0**-16, 0.0]
    assert number * 0.2498779296875 > 2.0**-17  # which would round to 2^-16, were it not dropped


@pytest.mark.parametrize("depth", W8A8)
def test_the_w8a8_chain_gives_the_published_hash(depth):
    """N64."""
    assert sha256(w8a8(depth)) == W8A8[depth]


@pytest.mark.parametrize("depth", W8A8)
def test_the_w8a8_chain_as_an_onnx_file_gives_the_published_hash(depth, tmp_path):
    """N64: quantisers between the layers, as onnxruntime writes them."""
    node, value = helper.make_node, "x"
    stored = {"s": np.float32(0.125), "z": np.int8(0), "ks": np.float32(STEP)}
    nodes = []
    for number, weight in enumerate(chain_weights(depth)):
        stored[f"k{number}"] = as_kernel(weight)
        nodes.append(node("DequantizeLinear", [f"k{number}", "ks", "z"], [f"w{number}"]))
        nodes.append(node("QuantizeLinear", [value, "s", "z"], [f"q{number}"]))
        nodes.append(node("DequantizeLinear", [f"q{number}", "s", "z"], [f"d{number}"]))
        value = f"c{number}" if number < depth - 1 else "y"
        nodes.append(node("Conv", [f"d{number}", f"w{number}"], [value]))
    graph = af.load(onnx_file(tmp_path, nodes, [1, 512, 4, 4], stored))
    assert sha256(run_chain(graph)) == W8A8[depth]


@pytest.mark.parametrize("layer", [w4, palette])
def test_four_bit_weights_give_the_same_hash_at_depth_two(layer):
    """N64: Core AI A8W4."""
    assert sha256(run_chain(chain(2, layer))) == W8A8[2]


def test_blocks_of_32_channels_and_a_tree_of_additions_give_the_published_hash():
    """N65."""
    found = run_chain(chain(2, in_blocks))
    assert sha256(found) == "3227b7a44a998c6014a91920fc9c55331f53efdfd3daf074a6be81ef8ccd5988"


def distance(found, reference):
    return np.linalg.norm(found.astype(float) - reference) / np.linalg.norm(reference)


def test_the_chains_of_8_bits_and_of_fp16_are_as_far_apart_as_on_the_chip():
    """N66."""
    assert distance(w8a8(128), fp16(128).astype(float)) == pytest.approx(0.6835218497252507, rel=1e-15)


@pytest.mark.parametrize(("depth", "far"), [(2, 0.00014027088346989838), (128, 0.00010854604005797441)])
def test_the_w8a8_chain_is_as_far_from_its_half_even_form_as_on_the_chip(depth, far):
    """N66: outputs that are rounded to even, and the codes between them away from zero."""
    y = chain_input().astype(float)
    for number, weight in enumerate(chain_weights(depth)):
        steps = y / 0.125
        codes = np.clip(np.trunc(steps + np.copysign(0.5, steps)), -128, 127) if number else steps
        y = ((weight.astype(float) @ codes) * (STEP * 0.125)).astype(np.float16).astype(float)
    assert distance(w8a8(depth), y) == pytest.approx(far, rel=1e-15)


# One product of 32 terms with 4-bit codes (N67), and what follows for forms of weights (N69, N70).

DOT_CODES = "2 -2 4 -7 1 0 -6 -3 3 1 -6 0 -2 -6 -6 1 5 5 5 6 7 3 -8 -1 1 2 -3 4 -2 0 2 -7"
DOT_INPUT = "-42 -7 5 25 -2 6 18 6 -34 10 -7 6 8 28 10 1 7 7 -17 -7 -27 -83 60 -7 -8 -24 15 -16 -9 18 3 42"
DOT_SCALE = 0.007476806640625
MEASURED, DECODED = -0.05987548828125, -0.059906005859375


def dot_codes():
    return np.array(DOT_CODES.split(), np.int8).reshape(1, 32, 1, 1)


def dot_input():
    return np.array(DOT_INPUT.split(), float).reshape(1, 32, 1, 1) / 256


def direct(codes, scale, axis=None):
    return af.Encoded.affine(codes, scale, axis=axis, bits=4)


def one_block(codes, scale):
    """Blockwise with one block for each row, which is N67's own case."""
    return af.Encoded.blockwise(codes, np.full((len(codes), *[1] * (codes.ndim - 1)), scale), bits=4)


def with_scale(codes, scale):
    """A table of whole numbers, and a scale behind it."""
    indices = (codes + 8).astype(np.uint8)
    return af.Encoded.palette(indices, np.arange(-8, 8).astype(np.float16), 4, scale=np.reshape(scale, (-1, 1, 1, 1)))


@pytest.mark.parametrize("chip", CODE_CHIPS)
@pytest.mark.parametrize("form", [direct, one_block, with_scale])
@pytest.mark.parametrize("step", [None, 1 / 256])
def test_scaled_codes_are_summed_first_and_rounded_twice(chip, form, step):
    """N67, with inputs as numbers and as codes: decoded weights give the neighbour on one side or the other."""
    x = af.input((1, 32, 1, 1))
    out = af.conv(x if step is None else through(x, step), form(dot_codes(), DOT_SCALE))
    assert simulated(out, chip, dot_input()).item() == MEASURED


def test_other_forms_and_older_chips_multiply_by_decoded_weights():
    """What N67 excludes for scaled codes on an M5 is what an fp16 weight and a palette of fp16 numbers give there."""
    x, numbers = af.input((1, 32, 1, 1)), (dot_codes() * DOT_SCALE).astype(np.float16)
    table = (np.arange(-8, 8) * DOT_SCALE).astype(np.float16)
    plain = af.Encoded.palette((dot_codes() + 8).astype(np.uint8), table, 4)
    for weight in (numbers, plain):
        assert simulated(af.conv(x, weight), M5_PRO, dot_input()).item() == DECODED
    for chip in ("h13", "h14", "h16g"):
        for form in (direct, one_block, with_scale):
            assert simulated(af.conv(x, form(dot_codes(), DOT_SCALE)), chip, dot_input()).item() == DECODED


def test_several_blocks_a_row_are_never_labelled_exact():
    """N67 measured one block of 32; of rows with several scales no digit is known."""
    codes, x = np.tile(dot_codes(), (1, 2, 1, 1)), af.input((1, 64, 1, 1), name="x")
    weight = af.Encoded.blockwise(codes, np.full((1, 2, 1, 1), DOT_SCALE) * [[[[1]], [[2]]]], bits=4)
    model = af.compile(af.conv(x, weight), target=M5_PRO)
    assert model.run({"x": np.ones(x.shape)}).fidelity == {"modelled": 1}


def test_the_product_of_a_core_ml_program_with_direct_int4_weights(tmp_path):
    """N67 as Core ML stores it: constexpr_blockwise_shift_scale of int4, one scale for each output."""
    from coreml_kit import IOS18, mb, package, types

    codes = dot_codes().astype(types.np_int4_dtype)
    scale = np.full((1, 1, 1, 1), DOT_SCALE, np.float32)
    program = package(
        tmp_path,
        lambda x: mb.conv(x=x, weight=mb.constexpr_blockwise_shift_scale(data=codes, scale=scale)),
        [np.zeros((1, 32, 1, 1), np.float32)],
        IOS18,
    )
    assert simulated(af.load(program), M5_PRO, dot_input()).item() == MEASURED


def gate(weight):
    return af.conv(af.input((1, 96, 1, 8)), weight)


def test_forms_of_one_gate_fall_into_the_two_groups_that_were_seen(tmp_path):
    """N69: a palette of fp16 numbers gives the bytes of the fp16 constant, direct int4 those of a palette with a
    scale, and the two groups differ."""
    rng = np.random.default_rng(11)
    codes = rng.integers(-8, 8, (160, 96, 1, 1)).astype(np.int8)
    scale = rng.uniform(0.004, 0.02, 160).astype(np.float16)
    x = rng.standard_normal((1, 96, 1, 8)).astype(np.float16)
    numbers = (codes * scale.reshape(-1, 1, 1, 1).astype(float)).astype(np.float16)
    tables = (np.arange(-8, 8) * scale[:, None].astype(float)).astype(np.float16).reshape(160, 1, 1, 1, 16, 1)
    forms = {
        "constant": numbers,
        "palette": af.Encoded.palette((codes + 8).astype(np.uint8), tables, 4),
        "direct": direct(codes, scale, 0),
        "palette with scale": with_scale(codes, scale),
    }
    found = {name: simulated(gate(weight), M5_PRO, x).tobytes() for name, weight in forms.items()}
    assert found["constant"] == found["palette"]
    assert found["direct"] == found["palette with scale"]
    assert found["constant"] != found["direct"]


@pytest.mark.parametrize("chip", CODE_CHIPS)
def test_the_ceiling_is_that_of_the_unscaled_sum(chip):
    """N70: inputs and outputs are small, the sum of table entries is not. Decoded weights stay far from it."""
    x = af.input((1, 64, 1, 1))
    codes = np.full((1, 64, 1, 1), 7, np.int8)
    for form in (direct, with_scale):
        out = af.conv(x, form(codes, 0.0005))
        assert simulated(out, chip, np.full((1, 64, 1, 1), 73.0)).item() == narrowed(np.array(7 * 64 * 73 * 0.0005002))
        assert simulated(out, chip, np.full((1, 64, 1, 1), 74.0)).item() == np.inf
    decoded = af.conv(x, (codes * 0.0005).astype(np.float16))
    assert np.isfinite(simulated(decoded, chip, np.full((1, 64, 1, 1), 115.0))).all()


def test_scale_and_bias_of_summed_codes_are_one_rounding():
    """U65, for one scale and for one an output; a product becomes a convolution on the way."""
    rng = np.random.default_rng(12)
    codes, scale = rng.integers(-8, 8, (9, 33)).astype(np.int8), rng.uniform(0.01, 0.5, 9).astype(np.float16)
    bias, x = rng.standard_normal(9).astype(np.float16), rng.integers(-99, 99, (4, 33)) / 16
    sums = round_half(x @ codes.T.astype(float))
    for line in (scale, scale[:1]):
        out = af.input((4, 33)).linear(af.Encoded.affine(codes, line, axis=0, bits=4), bias)
        want = narrowed(sums * line.astype(float) + bias.astype(float))
        np.testing.assert_array_equal(simulated(out, M5_PRO, x), want)


@pytest.mark.parametrize(
    ("form", "chip", "told"),
    [
        *(("w8a8", "h17s", "exact"), ("w8a8", "h18g", "exact"), ("w8a8", "h16g", "modelled")),
        *(("w8a8", "h18", "modelled"), ("w4", "h17s", "exact"), ("w4", "h18g", "modelled"), ("w4", "h16g", "exact")),
    ],
)
def test_sums_are_called_exact_where_they_were_read(form, chip, told):
    """Integer sums: M5 Pro and M6. Sums of 4-bit codes: M5 Pro; an M4 decodes them, and its fp16 sums were read."""
    x = af.input((1, 32, 1, 1))
    out = w8(through(x, 0.125), np.ones((4, 32), np.int8)) if form == "w8a8" else w4(x, np.ones((4, 32), np.int8))
    run = af.compile(out, target=chip).run({"input_0": np.zeros((1, 32, 1, 1))}, trace=True)
    assert [each.fidelity for each in run.trace if each.op == "convolution"] == [told]


# Quantisers alone.


def all_finite():
    numbers = np.arange(65536, dtype=np.uint16).view(np.float16)
    return numbers[np.isfinite(numbers)]


@pytest.mark.parametrize("chip", ["h13", "h14", "h17s", "h18g"])
def test_every_fp16_number_is_rounded_half_away_and_held_to_the_range(chip):
    """N77: all 63488 finite inputs at unit scale. Ties to even would differ at 128 of them."""
    given = all_finite()
    assert given.size == 63488
    found = simulated(through(af.input((62, 1024)), 1.0), chip, given.reshape(62, 1024)).reshape(-1)
    wide = given.astype(float)
    away = np.clip(np.trunc(wide + np.copysign(0.5, wide)), -128, 127)
    even = np.clip(np.rint(wide), -128, 127)
    np.testing.assert_array_equal(found, away)
    assert not np.signbit(found[found == 0]).any()
    assert int((away != even).sum()) == 128


@pytest.mark.parametrize("chip", ["h13", "h17s"])
def test_unsigned_codes_and_a_port_of_bytes(chip):
    x = np.array([-3.0, -0.125, 0.0, 0.375, 7.0, 100.0])
    out = af.quantize(af.input((6,)), 0.25, 10, "uint8")
    np.testing.assert_array_equal(simulated(out, chip, x), [0, 9, 10, 12, 38, 255])
    port = af.dequantize(af.input((1, 4, 1, 1), "uint8"), 0.5, 128)
    kernel = af.Encoded.affine(np.full((1, 4, 1, 1), 100, np.int8), 8.0)
    given = np.full((1, 4, 1, 1), 168, np.uint8)
    if chip == "h13":  # decoded there, and the graph says how large it can get
        with pytest.warns(af.PrecisionWarning, match="conv_0"):
            af.compile(af.conv(port, kernel), target=chip)
    found = simulated(af.conv(port, kernel), chip, given, warns=chip != "h13").item()
    assert found == (64000.0 if chip == "h17s" else np.inf)  # 4 * 40 * 100 * 4


def test_codes_can_be_read_as_numbers_too():
    x = af.input((2, 3))
    q = af.quantize(x, 0.5)
    model = af.compile([q, q + 1.0, af.dequantize(q, 0.5)], target=M5_PRO)
    codes, more, numbers = model.run(
        {model.program.inputs[0].name: np.linspace(-3, 3, 6).reshape(2, 3)}
    ).outputs.values()
    np.testing.assert_array_equal(codes, [[-6, -4, -1], [1, 4, 6]])
    np.testing.assert_array_equal(more, codes + 1)
    np.testing.assert_array_equal(numbers, codes / 2)


def test_truth_values_as_numbers_can_be_codes():
    x = af.input((2, 3))
    out = af.dequantize((x > 0.0).cast(), 0.5, 1)
    np.testing.assert_array_equal(simulated(out, M5_PRO, [[1, -1, 2], [0, 3, -4]]), [[0, -0.5, 0], [-0.5, 0, -0.5]])


def test_large_maps_are_summed_some_rows_at_a_time(monkeypatch):
    rng = np.random.default_rng(31)
    kernel = af.Encoded.affine(rng.integers(-128, 128, (6, 4, 3, 3)).astype(np.int8), 0.01)
    x = rng.integers(-128, 128, (1, 8, 13, 11)) * 0.5
    out = af.conv(through(af.input(x.shape), 0.5), kernel, pad=1, stride=(2, 1), groups=2, bias=rng.standard_normal(6))
    whole = simulated(out, M5_PRO, x)
    monkeypatch.setattr(int8, "_AT_ONCE", 1000)  # two rows
    np.testing.assert_array_equal(simulated(out, M5_PRO, x), whole)


def test_stored_codes_are_a_stored_weight():
    codes = np.arange(-6, 6).astype(np.int8).reshape(3, 4)
    made = af.dequantize(codes, 0.25, 1)
    assert (made.op, made.weight.encoding) == ("const", "int8")
    np.testing.assert_array_equal(
        af.evaluate(af.input((1, 4)).linear(made), [np.ones((1, 4))])[0], ((codes - 1.0) * 0.25).sum(1)
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: af.quantize(x, [0.5, 0.25]), "scale has 2 values; a quantiser of the engine has one"),
        (lambda x: af.quantize(x, 0.0), "scale is 0.0; it must be a number above zero"),
        (lambda x: af.quantize(x, -1.0), "scale is -1.0"),
        (lambda x: af.quantize(x, 1.0, 200), "zero point 200 is outside the codes of int8, -128 to 127"),
        (lambda x: af.quantize(x, 1.0, 0.5), "zero point must be a whole number"),
        (
            lambda x: af.quantize(x, 1.0, dtype="int4"),
            "codes of type 'int4' are not supported; choose one: int8, uint8",
        ),
        (lambda x: af.dequantize(x > 1.0, 1.0), "needs codes in fp16 or uint8, not bool"),
        (lambda x: af.dequantize(x, 1.0, 300), "zero point is 300; it must be a whole number from -128 to 255"),
    ],
)
def test_what_no_quantiser_takes_is_refused_in_words(call, message):
    with pytest.raises(af.GraphError, match=r"(de)?quantize at test_quantised.py:\d+: ") as caught:
        call(af.input((2, 3)))
    assert message in str(caught.value)


def test_a_saved_graph_keeps_its_quantisers(tmp_path):
    out = through(af.input((2, 3), name="x"), 0.5, 3)
    out.graph().save(tmp_path / "q.anegraph")
    back = af.load_graph(tmp_path / "q.anegraph")
    assert [(each.op, each.attrs) for each in back] == [(each.op, each.attrs) for each in out.graph()]


# Kernels that are decoded on the host, ties to even, and by the engine, away from zero.


def test_a_kernel_that_is_folded_is_decoded_on_the_host():
    """3 * 683 is 2049, half way between two fp16 numbers. At stride two an M2 does not stream the kernel."""
    kernel = af.Encoded.affine(np.full((1, 1, 1, 1), 3, np.int8), 683.0)
    x = af.input((1, 1, 2, 2), max_abs=1.0)
    found = {stride: simulated(af.conv(x, kernel, stride=stride), "h14", np.ones((1, 1, 2, 2))) for stride in (1, 2)}
    assert (found[1].reshape(-1)[0], found[2].item()) == (2050.0, 2048.0)


def test_where_a_kernel_is_decoded_tells_two_programs_apart():
    """The digests of ``diverges`` see it too: equal ones would claim equal bits."""
    kernel = af.Encoded.affine(np.full((1, 1, 1, 1), 3, np.int8), 683.0)
    program = af.compile(af.conv(af.input((1, 1, 2, 2), max_abs=1.0), kernel), target="h14").program
    (conv,) = [op for op in program.module.ops if op.kind == "convolution"]
    found, port = [], program.inputs[0].name
    for flow in ("stream", "fold"):
        conv.operands[1].mark(weight_flow=flow)
        found.append(digests(walk(Engine.of(program.target), program.module, {port: Value(0.0, 1.0)}))[conv])
    assert found[0] != found[1]


# Models as onnxruntime's quantizer writes them, of every opset that it writes.


def coded_like(numbers, scale, zero, kind):
    """Codes of some numbers; no input of these tests lies half way between two."""
    info = np.iinfo(kind)
    return np.clip(np.rint(numbers / scale) + zero, info.min, info.max)


def small_net(per_channel, activation, weight):
    """Weights, scales and zero points of a 1 x 1 convolution and a product, with biases of int32."""
    rng = np.random.default_rng(21)
    info, signed = np.iinfo(weight), np.dtype(weight).kind == "i"
    zero = {"xz": activation(10), "yz": activation(5), "oz": activation(7)}
    lines = [rng.uniform(0.5, 1.5, count).astype(np.float32) / 256 for count in ((6, 5) if per_channel else (1, 1))]
    middles = [np.full(line.shape, 0 if signed else 130, weight) for line in lines]
    stored = {"xs": np.float32(0.031), "ys": np.float32(0.043), "os": np.float32(0.057), **zero}
    for number, (shape, line, middle) in enumerate(zip(((6, 4, 1, 1), (24, 5)), lines, middles, strict=True)):
        before = stored["ys"] if number else stored["xs"]
        bias = rng.integers(-3000, 3000, shape[0] if number == 0 else shape[1]).astype(np.int32)
        stored[f"w{number}"] = rng.integers(info.min, info.max + 1, shape).astype(weight)
        stored[f"s{number}"], stored[f"z{number}"] = (line, middle) if per_channel else (line[0], middle[0])
        stored[f"b{number}"], stored[f"t{number}"] = bias, np.float32(before * (line if per_channel else line[0]))
        stored[f"i{number}"] = np.zeros(np.shape(stored[f"t{number}"]), np.int32)
    return stored


def expected_of(stored, x, kind):
    """The same in plain arithmetic: codes, whole sums, one scale."""
    at = {name: np.asarray(value, float) for name, value in stored.items()}
    codes = coded_like(x, at["xs"], at["xz"], kind) - at["xz"]
    kernel = at["w0"].reshape(6, 4) - at["z0"].reshape(-1, 1)
    sums = np.einsum("oc,nchw->nohw", kernel, codes) + at["b0"].reshape(1, 6, 1, 1)
    middle = coded_like(sums * at["xs"] * at["s0"].reshape(1, -1, 1, 1), at["ys"], at["yz"], kind) - at["yz"]
    rows = np.maximum(middle, 0).reshape(1, 24) @ (at["w1"] - at["z1"].reshape(1, -1)) + at["b1"]
    found = coded_like(rows * at["ys"] * at["s1"].reshape(1, -1), at["os"], at["oz"], kind)
    return (found - at["oz"]) * at["os"]


def qdq_nodes(per_channel, opset):
    node = helper.make_node
    first, second, bias = ({"axis": axis} if per_channel and opset >= 13 else {} for axis in (0, 1, 0))
    return [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        node("DequantizeLinear", ["w0", "s0", "z0"], ["w0d"], **first),
        node("DequantizeLinear", ["b0", "t0", "i0"], ["b0d"], **bias),
        node("Conv", ["xd", "w0d", "b0d"], ["c"]),
        node("QuantizeLinear", ["c", "ys", "yz"], ["cq"]),
        node("DequantizeLinear", ["cq", "ys", "yz"], ["cd"]),
        node("Relu", ["cd"], ["r"]),
        node("QuantizeLinear", ["r", "ys", "yz"], ["rq"]),
        node("DequantizeLinear", ["rq", "ys", "yz"], ["rd"]),
        node("Flatten", ["rd"], ["f"]),
        node("DequantizeLinear", ["w1", "s1", "z1"], ["w1d"], **second),
        node("DequantizeLinear", ["b1", "t1", "i1"], ["b1d"], **bias),
        node("Gemm", ["f", "w1d", "b1d"], ["g"]),
        node("QuantizeLinear", ["g", "os", "oz"], ["gq"]),
        node("DequantizeLinear", ["gq", "os", "oz"], ["y"]),
    ]


def operator_nodes():
    node = helper.make_node
    return [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        node("QLinearConv", ["xq", "xs", "xz", "w0", "s0", "z0", "ys", "yz", "b0"], ["cq"]),
        node("DequantizeLinear", ["cq", "ys", "yz"], ["cd"]),
        node("Relu", ["cd"], ["r"]),
        node("QuantizeLinear", ["r", "ys", "yz"], ["rq"]),
        node("Flatten", ["rq"], ["f"]),
        node("QGemm", ["f", "ys", "yz", "w1", "s1", "z1", "b1", "os", "oz"], ["gq"], domain="com.microsoft"),
        node("DequantizeLinear", ["gq", "os", "oz"], ["y"]),
    ]


@pytest.mark.parametrize("opset", range(10, 20))
@pytest.mark.parametrize("operators", [False, True])
def test_models_with_a_bias_of_int32_load_whatever_their_opset(tmp_path, opset, operators):
    """Every model of onnxruntime's ``quantize_static``. Below opset 13 a scale for each channel is not in the standard
    for DequantizeLinear, and its quantizer writes it only between operators."""
    x = np.random.default_rng(22).uniform(-4, 4, (1, 4, 2, 2)).astype(np.float32)
    for per_channel in (False, True):
        if per_channel and opset < 13 and not operators:
            continue
        for activation, weight in ((np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)):
            stored = small_net(per_channel, activation, weight)
            nodes = operator_nodes() if operators else qdq_nodes(per_channel, opset)
            domains = ["com.microsoft"] if operators else []
            graph = af.load(onnx_file(tmp_path, nodes, [1, 4, 2, 2], stored, opset, domains))
            assert "host" not in {each.op for each in graph}
            assert [each.encoding for each in graph.weights.values()].count("int8") == 2
            want = expected_of(stored, x.astype(float), activation)
            np.testing.assert_allclose(af.evaluate(graph, [x.astype(float)])[0].reshape(1, 5), want, atol=1e-6)
            for chip in ("m1", "m5"):
                found = simulated(graph, chip, x)
                assert np.abs(found - want).max() <= 1.01 * stored["os"], (chip, per_channel, activation, weight)


def test_both_formats_of_a_quantised_model_give_the_same_bits(tmp_path):
    stored = small_net(True, np.uint8, np.int8)
    x = np.random.default_rng(23).uniform(-4, 4, (1, 4, 2, 2)).astype(np.float32)
    files = [
        onnx_file(tmp_path, qdq_nodes(True, 13), [1, 4, 2, 2], stored),
        onnx_file(tmp_path, operator_nodes(), [1, 4, 2, 2], stored, domains=["com.microsoft"]),
    ]
    one, two = (simulated(af.load(file), M5_PRO, x) for file in files)
    np.testing.assert_array_equal(one, two)


def test_weights_that_the_file_itself_quantises_are_stored_codes(tmp_path):
    """As exports of quantisation-aware training have them, below opset 19."""
    node = helper.make_node
    weight = np.random.default_rng(24).standard_normal((3, 4, 1, 1)).astype(np.float32)
    stored = {"w": weight, "s": np.float32([0.01, 0.02, 0.03]), "z": np.zeros(3, np.int8)}
    nodes = [
        node("QuantizeLinear", ["w", "s", "z"], ["q"], axis=0),
        node("DequantizeLinear", ["q", "s", "z"], ["d"], axis=0),
        node("Conv", ["x", "d"], ["y"]),
    ]
    graph = af.load(onnx_file(tmp_path, nodes, [1, 4, 2, 2], stored))
    (held,) = graph.weights.values()
    step = stored["s"].reshape(3, 1, 1, 1)
    np.testing.assert_array_equal(held.encoded.codes, coded_like(weight, step, 0, np.int8))


def _mean(a):
    return a.mean((2, 3), keepdims=True)


CONTRIB = {
    "QLinearAdd": (2, {}, lambda a, b: a + b),
    "QLinearMul": (2, {}, lambda a, b: a * b),
    "QLinearSigmoid": (1, {}, lambda a: 1 / (1 + np.exp(-a))),
    "QLinearLeakyRelu": (1, {"alpha": 0.25}, lambda a: np.where(a > 0, a, 0.25 * a)),
    "QLinearGlobalAveragePool": (1, {}, _mean),
    "QLinearAveragePool": (1, {"kernel_shape": [2, 2]}, _mean),
    "QLinearSoftmax": (1, {"axis": 1}, lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True)),
}


@pytest.mark.parametrize("kind", CONTRIB)
def test_ops_between_codes_are_their_float_forms(tmp_path, kind):
    count, attrs, function = CONTRIB[kind]
    node, x = helper.make_node, np.random.default_rng(25).uniform(-2, 2, (1, 4, 2, 2)).astype(np.float32)
    stored = {"s": np.float32(0.017), "z": np.uint8(120), "ys": np.float32(0.0131), "yz": np.uint8(90)}
    operands = ["q", "s", "z"] * count
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node(kind, [*operands, "ys", "yz"], ["c"], domain="com.microsoft", **attrs),
        node("DequantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    graph = af.load(onnx_file(tmp_path, nodes, [1, 4, 2, 2], stored, domains=["com.microsoft"]))
    numbers = (coded_like(x.astype(float), 0.017, 120, np.uint8) - 120) * float(stored["s"])
    want = (coded_like(function(*[numbers] * count), float(stored["ys"]), 90, np.uint8) - 90) * float(stored["ys"])
    np.testing.assert_allclose(af.evaluate(graph, [x.astype(float)])[0].reshape(want.shape[1:]), want[0], atol=1e-6)


def test_codes_of_several_inputs_are_joined_in_one_scale(tmp_path):
    node, x = helper.make_node, np.random.default_rng(26).uniform(-2, 2, (1, 3, 2, 2)).astype(np.float32)
    stored = {"s": np.float32(0.017), "z": np.uint8(120), "t": np.float32(0.03), "ys": np.float32(0.0231)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["p"]),
        node("QuantizeLinear", ["x", "t", "z"], ["q"]),
        node("QLinearConcat", ["ys", "z", "p", "s", "z", "q", "t", "z"], ["c"], domain="com.microsoft", axis=1),
        node("DequantizeLinear", ["c", "ys", "z"], ["y"]),
    ]
    graph = af.load(onnx_file(tmp_path, nodes, [1, 3, 2, 2], stored, domains=["com.microsoft"]))
    parts = [(coded_like(x.astype(float), step, 120, np.uint8) - 120) * step for step in (0.017, 0.03)]
    want = (coded_like(np.concatenate(parts, 1), 0.0231, 120, np.uint8) - 120) * 0.0231
    np.testing.assert_allclose(af.evaluate(graph, [x.astype(float)])[0].reshape(6, 2, 2), want[0], atol=1e-6)


# Cost.


def test_quantised_layers_are_costed_as_integers_and_decoding_as_part_of_its_reader():
    rng = np.random.default_rng(30)
    kernels = [rng.integers(-100, 100, (64, 64, 3, 3)).astype(np.int8) for _ in range(3)]

    def net(pairs, bits=8):
        h = af.input((1, 64, 56, 56))
        for kernel in kernels:
            stored = af.Encoded.affine(kernel >> (8 - bits), 0.001, bits=bits)
            h = af.conv(through(h, 0.05) if pairs else h, stored, pad=1)
        return h

    work = work_of_program(af.compile(net(True), target="m5").program)
    assert [each.kind for each in work] == ["quant", "absorbed", "conv", "absorbed", "conv", "absorbed", "conv"]
    assert all(each.integers and each.bytes_in == 64 * 56 * 56 for each in work if each.kind == "conv")
    assert not any(each.integers for each in work_of_program(af.compile(net(False), target="m5").program))
    assert not any(each.integers for each in work_of_program(af.compile(net(True, 4), target="m5").program))
    assert af.estimate(net(True), target="m5") < af.estimate(net(False), target="m5")
    assert af.estimate(net(True), target="m1") > af.estimate(net(False), target="m1")


# Defects of the vendor's converters: what they give is known, and is not given here (U68).


@pytest.mark.parametrize("step", [1 / 16, 1 / 8, 1 / 4, 1 / 2])
def test_a_product_of_quantised_branches_keeps_each_scale(step):
    """N78: a converter gives 16 times the output's scale in place of 1; N79: 4 or 64 in place of 16."""
    a, b = af.input((1, 32, 8, 8), name="a"), af.input((1, 32, 8, 8), name="b")
    ones = np.ones((1, 32, 8, 8))
    out = through(a * through(b, 1 / 16), step)
    if step != 1 / 16:
        with pytest.warns(af.PrecisionWarning, match="one pair uses the other's scale"):
            af.compile(out, target=M5_PRO)
    model = af.compile(out, target=M5_PRO, _check_precision=False)
    (found,) = model.run({"a": ones, "b": ones}).outputs.values()
    assert (found == 1.0).all()
    model = af.compile(through(a, 0.5) * through(b, 2.0), target=M5_PRO, _check_precision=False)
    (found,) = model.run({"a": 2 * ones, "b": 8 * ones}).outputs.values()
    assert (found == 16.0).all()


def test_two_scales_of_one_output_row_stay_two():
    """N80: a converter takes the first 64 of the 128 scales as one for each row, and 1921 of 4096 numbers are off."""
    codes = np.random.default_rng(20260910).integers(-8, 8, (64, 64, 1, 1), dtype=np.int8)
    scales = np.where(np.arange(64)[:, None] % 2, [0.25, 0.125], [0.125, 0.25])
    x = af.input((1, 64, 1, 64))
    halves = [through(x[:, :32], 0.25), through(x[:, 32:], 0.5)]
    weight = af.Encoded.blockwise(codes, scales.reshape(64, 2, 1, 1), bits=4)
    out = af.conv(af.concat(halves, axis=1), weight)
    found = simulated(out, M5_PRO, np.eye(64).reshape(1, 64, 1, 64)).reshape(64, 64).astype(float)
    np.testing.assert_array_equal(found, codes.reshape(64, 64) * np.repeat(scales, 32, axis=1))
    flattened = codes.reshape(64, 64) * scales.reshape(-1)[:64, None]
    assert int((flattened != found).sum()) == 1921
    assert distance(flattened, found) == pytest.approx(0.450246892088486, rel=1e-12)


def test_a_program_with_codes_is_written_and_read_back():
    """Types of 8 and of 4 bits are words of the engine's language."""
    x = through(af.input((1, 4, 2, 2)), 0.5)
    layer = af.conv(x, af.Encoded.affine(np.ones((4, 4, 1, 1), np.int8), 0.5))
    program = af.compile(w4(layer, np.ones((3, 4), np.int8)), target=M5_PRO).program
    text = str(program.module)
    assert "xsi8>" in text
    assert "xsi4>" in text
    assert str(parse(text)) == text
