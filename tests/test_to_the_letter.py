"""What an independent check found wrong, item by item: numbers, programs and answers against seeds and chips.

Each test has the number of its item (issue 16) in its name.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aneforge as af

CHIPS = ["h13", "h14", "h16g", "h17s", "h18g"]


def engine_layers(program):
    """The layers that an engine runs, by their first op: views and transposes alone are data movement."""
    return [layer.op for layer in program.layers if layer.op not in ("reshape", "transpose")]


# 1 and 2: means and norms of many numbers.


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("value", [64.0, 3000.0, 30000.0])
def test_01_the_mean_of_many_numbers_is_finite_where_their_sum_is_not(chip, value):
    x = af.input((1, 4, 32, 32))
    data = np.full(x.shape, value)
    with pytest.warns(af.PrecisionWarning, match="sum of 1024 numbers"):
        total = af.compile(x.sum((2, 3)), target=chip)
    assert not np.isfinite(total(data)).any()
    np.testing.assert_array_equal(af.compile(x.mean((2, 3)), target=chip)(data), value)


@pytest.mark.parametrize("chip", CHIPS)
def test_01_pixels_through_convolution_relu_and_mean(chip):
    """A 3 x 3 convolution over 0..255 pixels, relu, mean over 32 x 32: finite on devices."""
    rng = np.random.default_rng(0)
    x = af.input((1, 3, 32, 32))
    out = af.conv(x, rng.normal(0, (2 / 27) ** 0.5, (16, 3, 3, 3)), pad=1).relu().mean((2, 3))
    pixels = rng.integers(0, 256, x.shape).astype(np.float64)
    found, want = af.compile(out, target=chip)(pixels), af.evaluate(out, [pixels])
    assert (np.abs(want) * 1024 > 65504).any()
    np.testing.assert_allclose(found, want, rtol=4e-3)


@pytest.mark.parametrize(("channels", "side"), [(640, 64), (512, 128)])
@pytest.mark.parametrize("chip", ["h13", "h17s"])
def test_02_group_norm_over_many_elements(channels, side, chip):
    rng = np.random.default_rng(1)
    x = af.input((1, channels, side, side))
    gamma, beta = rng.normal(1, 0.1, channels), rng.normal(0, 0.1, channels)
    out = x.group_norm(gamma, beta, 32)
    data = rng.normal(0.3, 1.0, x.shape)
    worst = np.abs(af.compile(out, target=chip)(data) - af.evaluate(out, [data])).max()
    assert worst < 0.03


NORMS = {
    "layer_norm": (8192, lambda x: x.layer_norm(np.ones(8192), np.zeros(8192))),  # longer rows fail when they run
    "rms_norm": (65536, lambda x: x.rms_norm(np.ones(65536))),
}


@pytest.mark.parametrize("norm", NORMS)
def test_02_norms_over_the_longest_axis(norm):
    """The squares of so many elements add up to more than fp16 holds; their mean does not."""
    length, form = NORMS[norm]
    x = af.input((2, length))
    out = form(x)
    data = np.random.default_rng(2).normal(0.0, 4.0, x.shape)
    assert (np.square(data).sum(-1) > 65504).all()
    np.testing.assert_allclose(af.compile(out, target="h17s")(data), af.evaluate(out, [data]), atol=0.03)


def test_02_softmax_of_equal_numbers_over_the_longest_axis():
    x = af.input((2, 65536))
    np.testing.assert_array_equal(af.compile(x.softmax(-1), target="h17s")(np.zeros(x.shape)), 2.0**-16)


def test_02_the_l2_norm_of_many_elements_is_a_plain_sum_of_squares():
    """Unlike a mean, the sum of squares is a result that is stored before its root is taken (U60): zero, and named as
    a risk."""
    x = af.input((1, 16384), max_abs=8.0)
    out = x.l2_norm(-1)
    with pytest.warns(af.PrecisionWarning, match="l2_norm_0: a sum of 16384 squares can exceed 65504"):
        model = af.compile(out, target="h13")
    np.testing.assert_array_equal(model(np.full(x.shape, 3.0)), 0.0)
    named = af.precision_risk(out, target="h13")
    assert [(each["node"], each["rule"]) for each in named["risks"]] == [("l2_norm_0", "overflow")]


# 3: a product, its bias and its activation are one operation.


def written(x, weight, bias):
    return (x @ weight + bias).gelu()


def written_backwards(x, weight, bias):
    return (af.const(bias) + x @ weight).gelu()


def as_linear(x, weight, bias):
    return x.linear(weight.T, bias).gelu()


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("shape", [(128, 64), (1, 128, 64), (2, 16, 64), (2, 3, 8, 64)])
@pytest.mark.parametrize("form", [written, written_backwards])
def test_03_product_bias_and_activation_are_one_operation(chip, shape, form):
    rng = np.random.default_rng(3)
    weight, bias = rng.normal(0, 0.1, (64, 96)), rng.normal(0, 1, 96)
    x = af.input(shape)
    program = af.compile(form(x, weight, bias), target=chip)
    assert engine_layers(program.program) == ["convolution"]
    data = rng.normal(0, 1, shape)
    np.testing.assert_array_equal(program(data), af.compile(as_linear(x, weight, bias), target=chip)(data))


@pytest.mark.parametrize("chip", ["h13", "h17s"])
@pytest.mark.parametrize("shape", [(16, 768), (1, 16, 768)])
def test_03_weights_above_the_working_set(chip, shape):
    """A weight of 4.5 MB stays a product, and takes up its bias and activation all the same."""
    rng = np.random.default_rng(4)
    weight, bias = rng.normal(0, 0.02, (768, 3072)), rng.normal(0, 1, 3072)
    x = af.input(shape)
    model = af.compile(written(x, weight, bias), target=chip)
    assert engine_layers(model.program) == ["matmul"]
    data = rng.normal(0, 1, shape)
    np.testing.assert_array_equal(model(data), af.compile(as_linear(x, weight, bias), target=chip)(data))


def test_03_through_the_layout_transpose():
    """The bias lies on the channels once the product is turned, and is found all the same."""
    rng = np.random.default_rng(5)
    weight, bias = rng.normal(0, 0.1, (64, 96)), rng.normal(0, 1, 96)
    x = af.input((1, 32, 64))
    turned = ((x @ weight).transpose([0, 2, 1]) + bias.reshape(96, 1)).gelu()
    model = af.compile(turned, target="h13")
    assert engine_layers(model.program) == ["convolution"]
    data = rng.normal(0, 1, x.shape)
    want = af.compile(as_linear(x, weight, bias), target="h13")(data)
    np.testing.assert_array_equal(model(data), want.transpose(0, 2, 1))


def test_03_from_onnx(tmp_path):
    rng = np.random.default_rng(6)
    weight, bias = rng.normal(0, 0.1, (64, 96)).astype(np.float32), rng.normal(0, 1, 96).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Gelu", ["s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "ffn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 96])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    path = tmp_path / "ffn.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), path)
    model = af.compile(af.load(path), target="h13")
    assert engine_layers(model.program) == ["convolution"]
    data = rng.normal(0, 1, (1, 32, 64))
    np.testing.assert_array_equal(
        model(data), af.compile(as_linear(af.input((1, 32, 64)), weight, bias), target="h13")(data)
    )


# 4 and 5: sine near pi, ties, response norms.


def test_04_the_sine_is_labelled_modelled():
    """Near multiples of pi an M6 is off by tens of last digits (U43)."""
    assert af.fidelity("sin", "M6") == "modelled"
    found = af.compile(af.input((1, 1)).sin(), target="M6")(np.array([[3.140625]]))
    assert abs(float(found[0, 0]) - np.sin(3.140625)) > 10 * 2.0**-21


@pytest.mark.parametrize("chip", CHIPS)
def test_05_round_takes_ties_away_from_zero(chip):
    x = af.input((1, 6))
    found = af.compile(x.round(), target=chip)(np.array([[0.5, -0.5, 2.5, -3.5, 1.499, 1023.5]]))
    np.testing.assert_array_equal(found, [[1, -1, 3, -4, 1, 1024]])


def test_05_the_native_response_norm_does_not_divide_alpha():
    """x / (k + alpha * sum of squares) ** beta over a window of as many channels as there are."""
    x = af.input((1, 4, 1, 1))
    out = af.lrn(x, alpha=0.5, beta=0.75, k=2.0)
    data = np.array([1.0, 2.0, 3.0, 4.0]).reshape(x.shape)
    squares = np.array([1 + 4 + 9, 1 + 4 + 9 + 16, 4 + 9 + 16, 9 + 16]).reshape(x.shape)
    want = data / (2.0 + 0.5 * squares) ** 0.75
    np.testing.assert_allclose(af.evaluate(out, [data]), want, rtol=1e-12)
    np.testing.assert_allclose(af.compile(out, target="h17s")(data), want, rtol=5e-3)


def test_05_the_framework_response_norm_divides_alpha_by_its_window():
    x = af.input((1, 4, 1, 1))
    out = af.local_response_norm(x, size=3, alpha=0.6, beta=1.0, k=1.0)
    data = np.array([1.0, 2.0, 3.0, 4.0]).reshape(x.shape)
    squares = np.array([1 + 4, 1 + 4 + 9, 4 + 9 + 16, 9 + 16]).reshape(x.shape)
    np.testing.assert_allclose(af.evaluate(out, [data]), data / (1 + 0.2 * squares), rtol=1e-12)


@pytest.mark.parametrize("chip", ["h13", "h17s"])
def test_12_the_response_norm_is_fused_and_takes_many_channels(chip):
    """It cuts no segment, and has no limit of 15 channels as the native layer has."""
    rng = np.random.default_rng(12)
    x = af.input((1, 64, 8, 8))
    out = af.local_response_norm(af.conv(x, rng.normal(0, 0.1, (64, 64, 1, 1))), size=5, alpha=1e-2).relu()
    model = af.compile(out, target=chip)
    assert not isinstance(model, af.SegmentedModel)
    assert len(model.program.segments) == 1
    assert af.preflight(out, chip).counts["native"] == 3
    data = rng.normal(0, 3, x.shape)
    np.testing.assert_allclose(model(data), af.evaluate(out, [data]), rtol=1e-2, atol=4e-3)


# 6: two answers about two chips.

LONG = {
    "sum": lambda x: x.sum(-1),
    "mean": lambda x: x.mean(-1),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: x.layer_norm(np.ones(512), np.zeros(512)),
    "rms_norm": lambda x: x.rms_norm(np.ones(512)),
    "l2_norm": lambda x: x.l2_norm(-1),
    "amax": lambda x: x.amax(-1),
}
PAIRS = [("m1", "m2"), ("m1", "m5"), ("m2", "m3"), ("m2", "m4"), ("m4", "m5"), ("m5", "m6")]


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("name", LONG)
def test_06_diverges_and_predict_agree(name, pair):
    """What one foretells is in the other's list; what is only modelled is never called equal across generations."""
    from aneforge.study import divergences_between, graph_verdicts

    x = af.input((4, 512), max_abs=4.0)
    out = LONG[name](x).named("y")
    foretold = any(each.verdict != "none" for _, each in graph_verdicts(out, *pair))
    found = divergences_between(out, *pair)
    assert foretold == (found.of("y") is not None and not found.of("y").excluded)
    assert ("y" in found.unproven) == (not foretold and name != "amax")


def test_06_attention_is_not_called_equal():
    from aneforge.study import divergences_between

    q, k, v = (af.input((1, 2, 64, 32), max_abs=2.0) for _ in range(3))
    spelled = ((q @ k.transpose([0, 1, 3, 2])) * 0.125).softmax(-1) @ v
    found = divergences_between(spelled.named("y"), "m1", "m5")
    assert found.of("y") is not None
    assert found.of("y").bound > 0
    assert "same bits" not in str(divergences_between(spelled, "m4", "m5"))


def test_06_what_is_exact_is_still_called_equal():
    from aneforge.study import divergences_between

    x = af.input((1, 8, 16, 16), max_abs=4.0)
    out = af.conv(x, np.full((8, 8, 1, 1), 0.1)).relu() + x
    assert "the same bits" in str(divergences_between(out, "m4", "m5"))


# 9: what runs beside what.


def attention(width=64, heads=4):
    rng = np.random.default_rng(9)
    weights = [each for _ in range(4) for each in (rng.normal(0, 0.1, (width, width)), rng.normal(0, 0.1, width))]
    x = af.input((64, width))
    return x, af.mha(x, *weights, n_heads=heads)


@pytest.mark.parametrize("chip", CHIPS)
def test_09_softmax_runs_beside_the_projection_of_the_values(chip):
    """Chapter 22: a softmax on the planar engine co-issued with a value product on the multiply-accumulate array."""
    out = attention()[1]
    program = af.compile(out, target=chip).program
    softmax = next(layer for layer in program.layers if layer.op == "softmax")
    partner = program.layers[softmax.co_issue]
    assert partner.op == "convolution"
    assert partner.sources[0] == "linear_2"


def test_09_softmax_runs_beside_another_heads_product():
    q, k, v = (af.input((64, 64), max_abs=1.0) for _ in range(3))
    heads = [[each.slice_by_size((0, 16 * head), (64, 16)) for each in (q, k, v)] for head in range(4)]
    out = af.concat([((a @ b.transpose([1, 0])) * 0.25).softmax(-1) @ c for a, b, c in heads], axis=1)
    program = af.compile(out, target="h13").program
    beside = [program.layers[layer.co_issue].op for layer in program.layers if layer.op == "softmax"]
    assert beside == ["matmul"] * 4


def test_09_the_order_changes_no_number():
    x, out = attention()
    data = np.random.default_rng(0).normal(0, 1, x.shape)
    np.testing.assert_allclose(af.compile(out, target="h13", validate=True)(data), af.evaluate(out, [data]), atol=0.02)


# 10 and 11: the oldest families, and what has no bridge.


@pytest.mark.parametrize("chip", ["h11", "h12", "m9"])
def test_10_the_oldest_families_floor_divide_with_their_wrong_integer(chip):
    """Chapter 35: floor(a * fp16(1/b)), so that floor(6 / 3) is 1; from A13 on it is 2."""
    out = af.floor_div(af.input((1, 4)), 3.0)
    data = np.array([[6.0, 7.0, 9.0, -6.0]])
    np.testing.assert_array_equal(af.compile(out, target=chip)(data), [[1, 2, 2, -2]])
    np.testing.assert_array_equal(af.compile(out, target="h13")(data), [[2, 2, 3, -2]])
    told = af.preflight(out, chip, route="direct")
    assert [entry.op for entry in told.decompose] == ["floor_div"]
    with pytest.raises(af.CompileError, match="stored fp16 constant"):
        af.compile(af.floor_div(af.input((1, 4)), af.input((1, 4))), target=chip)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_11_sine_and_cosine_are_conversion_only(name):
    """Chapter 26: they have no direct-authoring bridge, so they stay conversion-only."""
    from aneforge import _targets as tg

    for family in tg.Family:
        assert tg.op_status(name, family, "direct") == "reject"
    assert [tg.op_status(name, family) for family in tg.Family] == [
        "reject",
        "decompose",
        "decompose",
        "native",
        "native",
    ]
    out = getattr(af.input((1, 8)), name)()
    for chip in ("m1", "m3", "m5"):
        assert [entry.op for entry in af.preflight(out, chip, route="direct").reject] == [name]
        with pytest.raises(af.CompileError, match=f"{name} cannot be authored"):
            af.compile(out, target=chip, route="direct")
    assert af.preflight(out, "m5").counts["native"] == 1


# 14: how much one program holds.


def test_14_a_program_of_too_many_bytes_is_refused_with_a_word(monkeypatch):
    """C52; each native layer begins another program, and a weight that two ops read is stored once."""
    from aneforge.compiler.legalise import kernels as program_size

    monkeypatch.setattr(program_size, "constant", lambda name: 3 << 20)
    x = af.input((1, 1024, 1, 4))
    rng = np.random.default_rng(14)
    one, two = (rng.normal(0, 0.01, (1024, 1024, 1, 1)) for _ in range(2))
    both = af.conv(af.conv(x, one), two)
    told = af.preflight(both, "m5")
    assert [(entry.name, entry.rule) for entry in told.oversize] == [("conv_1", "program-size")]
    assert "Compile parts of the model as separate programs" in told.oversize[0].message
    with pytest.raises(af.CompileError, match="the most that was seen to load") as error:
        af.compile(both, target="m5")
    assert error.value.rule == "program-size"
    assert af.preflight(af.conv(af.conv(x, one), one), "m5").ok
    assert af.preflight(af.conv(af.scaled_elementwise(af.conv(x, one), x, "Add", 1.0), two), "m5").ok


def test_14_the_limit_lies_between_what_ran_and_what_did_not():
    from aneforge.chips import store
    from aneforge.chips.assumed import constant

    ran, failed = next(
        (1e9 * row["value"]["ok_gb"], 1e9 * row["value"]["cpu_gb"])
        for row in store.load("lifecycle")["facts"]
        if row["id"] == "L15"
    )
    assert ran < constant("program_bytes") < failed


# 20: the seed page's figures.

FIVE = [("3x3", 256, 28, 216.0), ("1x1", 512, 32, 178.0), ("1x1", 2048, 8, 235.0), ("3x3", 512, 14, 192.0)]
"""Four of the convolutions that the seed page's 12 % are about, in microseconds on an M5 Pro; the fifth, 1 x 1 over
1024 channels of 16 x 16, is published for an M1 only."""


def seed_convolution(kernel, channels, side):
    size = int(kernel[0])
    return af.conv(af.input((1, channels, side, side)), np.zeros((channels, channels, size, size)), pad=size // 2)


def test_20_the_seed_pages_convolutions_within_its_error():
    errors = []
    for kernel, channels, side, measured in FIVE:
        out = seed_convolution(kernel, channels, side)
        told = af.estimate(out)
        assert told == af.estimate(out, target="h17s")
        low, high = af.compile(out, target="h17s").estimate().interval
        assert low <= measured <= high
        errors.append(abs(told / measured - 1))
    assert np.mean(errors) < 0.12


@pytest.mark.parametrize("dies", [("h13", "h13g"), ("h14", "h14g", "h14c"), ("h17", "h17g", "h17s", "h17c", "h17d")])
def test_20_dies_with_more_cores_are_not_slower(dies):
    """The engine's part; what the host does around it is the host's."""
    times = [af.compile(seed_convolution("3x3", 256, 56), target=die).estimate().engine_us for die in dies]
    assert times == sorted(times, reverse=True)


# Second reading (issue "To the letter, second reading"), item 8: figures of the cross-chip page.


@pytest.mark.parametrize(("chip", "page"), [("m1", "int4 2.37x"), ("m2", "1.6-1.8x"), ("m5", "1.6-1.8x (M5)")])
def test_second_08_gains_of_streamed_weights_stand_beside_the_pages(chip, page):
    """'Measured win' of the page's table of streaming encodings; ours differ by U170, which cites C55, C59 and C70."""
    from aneforge.advice import advise_weights

    weight = np.random.default_rng(8).normal(size=(256, 256)).astype(np.float16)
    advice = advise_weights(af.input((1, 256), name="x").linear(weight), chip)
    told = " ".join(str(advice).split())
    assert f"The cross-chip page gives {page} [measured: SXC, AF.targets; U170]" in told
    assert advice.to_json()["targets"][chip]["published_gain"]["conflict"] == "U170"
    assert advice[chip].published_gain.value == page


def test_second_08_the_projected_peak_says_what_the_page_says():
    """'M5 projects to ~5.5x M1': the curves give 4.942 (U171), and the answer has both."""
    peak = af.project_peak("h17s")
    assert peak == {"tflops": 8.896, "rel_m1": 4.942, "cores": 16, "ghz": 1.8912}
    assert "U171, not 5.5" in str(peak)
    assert peak.evidence.rel_m1.conflict_id == "U171"
    assert "U171" not in str(af.project_peak("h13"))


def test_second_08_wide_kernels_in_pieces_say_so():
    """'16+ -> space_to_depth' on the page; at unit stride pieces are added (U172), with a stride blocks are taken."""
    x = af.input((1, 8, 8, 64), name="x")
    assert "U172" in str(af.check(af.conv(x, np.ones((8, 8, 1, 17))), "m5"))
    strided = str(af.check(af.conv(x, np.ones((8, 8, 1, 17)), stride=(1, 2)), "m5"))
    assert "patch-blocks" in strided
    assert "U172" not in strided


# Item 6: kernel memory.


@pytest.mark.parametrize(
    ("chip", "demand", "streamable", "exceeds"),
    [
        ("m1", 64 * 1024, False, False),
        ("m1", 64 * 1024 + 1, False, True),
        ("m1", 64 * 1024 + 1, True, False),
        ("m1", 16 * 2**20, True, False),
        ("m1", 16 * 2**20 + 1, True, True),
        ("h17s", 16 * 2**20, True, False),
        ("h17s", 16 * 2**20, False, True),
    ],
)
def test_second_06_the_kernel_memory_split_can_be_called(chip, demand, streamable, exceeds):
    """Listing 24.3: cap = hal[0x210] if (is_streamable and hal[0x48f]) else hal[0x200]; return cap < demand."""
    assert af.exceeds_kmem(chip, demand, streamable) is exceeds


def test_second_06_an_unpublished_kernel_memory_is_unknown():
    assert af.exceeds_kmem("h11", 2**20, True)  # no streams there: the dense cap (0x48f is clear)
    with pytest.raises(af.AneforgeError):
        af.exceeds_kmem("h99", 1, True)
