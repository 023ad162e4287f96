"""``compile(compress=...)``: what it encodes, what it refuses, and what ``auto`` chooses."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge._compile import cross_compile_check
from aneforge.compiler.compression import drawn_error
from aneforge.errors import AneforgeError, ArgumentError, GraphError
from aneforge.graph.codecs.encoding import encode

CHIPS = ("m1", "m2", "m3", "m5", "h18")


def network(zeros=0.0):
    """Convolutions with and without a stride, a transposed one, a dense layer and a product with a constant."""
    rng = np.random.default_rng(7)

    def weight(*shape):
        numbers = rng.standard_normal(shape) * 0.1
        return np.where(rng.random(shape) < zeros, 0, numbers).astype(np.float16)

    x = af.input((1, 32, 8, 8), name="x")
    y = af.conv(x, weight(32, 32, 3, 3), pad=1, bias=weight(32)).named("plain").relu()
    y = af.conv(y, weight(32, 32, 3, 3), stride=2, pad=1).named("strided").relu()
    y = af.conv_transpose(y, weight(32, 32, 2, 2), stride=2).named("up").relu()
    y = y.reshape((32, 64)).linear(weight(96, 64)).named("dense")
    return af.matmul(y, weight(96, 32)).named("product")


DATA = np.random.default_rng(8).standard_normal((1, 32, 8, 8))


def by_node(model):
    return {layer.node: layer for layer in model.compression.layers}


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("mode", ["int8", "int4", "sparse", "blockwise", "lut6", "int4-affine"])
def test_explicit_modes_encode_every_kernel_and_always_compile(mode, chip):
    model = af.compile(network(), target=chip, compress=mode)
    layers = by_node(model)
    assert list(layers) == ["plain", "strided", "up", "dense", "product"]
    names = {encode(np.ones((32, inputs)), mode).name for inputs in (32, 64)}  # one block a row is int8 (N67)
    assert {layer.encoding for layer in layers.values()} <= names
    kernels = {each.sources[0].partition(".")[0]: each for each in model.program.weights if each.flow is not None}
    for name, layer in layers.items():
        assert kernels[name].streams is layer.streams, name
        assert (kernels[name].encoding == layer.encoding) is layer.streams, name
    assert not layers["strided"].streams
    assert not layers["up"].streams
    plain = af.compile(network(), target=chip)(DATA)
    assert np.abs(model(DATA) - plain).max() < 0.35 * np.abs(plain).max()


def test_chips_without_streams_fold_everything():
    weight = np.ones((64, 64), np.float16)
    out = af.input((1, 64)).linear(weight).named("y")
    for mode in ("int4", "sparse"):
        model = af.compile(out, target="h11", compress=mode)
        assert not model.compression["y"].streams
        assert model.program.weights[0].folded_from == encode(weight, mode).name
    assert af.compile(out, target="h11", compress="auto").compression["y"].encoding == "fp16"


def test_an_encoding_that_is_illegal_on_the_chip_is_refused_by_its_rule():
    """C65: 8-bit floating point is for H18."""
    out = af.input((1, 64)).linear(np.ones((64, 64), np.float16)).named("y")
    assert af.compile(out, target="h18", compress="fp8-e4m3").program.weights[0].encoding == "fp8-e4m3"
    with pytest.raises(AneforgeError, match=r"y: linear .*fp8-e4m3 numbers; h17 reads fp16"):
        af.compile(out, target="m5", compress="fp8-e4m3")


def test_the_modes_name_what_the_codecs_make():
    """The weights of a compressed model are those of ``encode``, and a graph that has them already is the same."""
    rng = np.random.default_rng(3)
    weight = (rng.standard_normal((64, 96)) * 0.1).astype(np.float16)
    x = af.input((2, 96), name="x")
    model = af.compile(x.linear(weight).named("y"), target="m5", compress="int8")
    by_hand = af.compile(x.linear(encode(weight, "int8")).named("y"), target="m5")
    data = rng.standard_normal((2, 96))
    np.testing.assert_array_equal(model(data), by_hand(data))
    assert model.estimate().us == by_hand.estimate().us
    assert model.compression["y"].bytes_before == 64 * 96 * 2
    assert model.compression["y"].bytes_after == 64 * 96 + 64 * 2 == model.program.weights[0].stored_bytes


def test_int8_is_a_short_form(monkeypatch):
    monkeypatch.setenv("ANEFORGE_TARGET", "h14")
    out = network()
    plain, short, long = (
        af.compile(out, target="m2", **options) for options in ({}, {"int8": True}, {"compress": "int8"})
    )
    np.testing.assert_array_equal(short(DATA), long(DATA))
    assert plain.compression is None
    assert af.estimate(out, int8=True, target="m2") == pytest.approx(long.estimate().us)
    assert cross_compile_check(out, "h14", int8=True) is True


def test_dense_layers_of_int8_are_faster_where_int8_streams():
    """Table 35.4: it folds on an M1, which gains nothing."""
    weight = np.random.default_rng(0).standard_normal((2048, 2048)).astype(np.float16)
    out = af.input((1, 2048)).linear(weight)
    gain = {chip: af.estimate(out, target=chip) / af.estimate(out, int8=True, target=chip) for chip in ("m1", "m2")}
    assert gain["m1"] == 1
    assert gain["m2"] > 1.05


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("atol", [0.0, 0.01, 0.05, 1.0])
@pytest.mark.parametrize("zeros", [0.0, 0.8])
def test_auto_takes_only_forms_that_stream(chip, atol, zeros):
    model = af.compile(network(zeros), target=chip, compress="auto", compress_atol=atol)
    assert [each.folded_from for each in model.program.weights] == [None] * len(model.program.weights)
    for layer in model.compression.layers:
        assert layer.streams is (layer.encoding != "fp16")
        assert layer.error is None or layer.error <= atol
        assert layer.encoding == "fp16" or layer.bytes_after < layer.bytes_before


@pytest.mark.parametrize(
    ("chip", "atol", "zeros", "form"),
    [
        ("m1", 0.05, 0.0, "lut4"),
        ("m1", 0.01, 0.0, "fp16"),  # a rejected int4 falls back to fp16, not to an encoding that folds
        ("m2", 0.01, 0.0, "int8"),
        ("m2", 0.0005, 0.0, "fp16"),
        ("m1", 0.01, 0.9, "sparse"),  # exact
        ("m1", 0.05, 0.9, "sparse"),  # smaller than four bits a number
        ("m1", 0.05, 0.7, "lut4"),  # not smaller
        ("m1", 0.01, 0.4, "fp16"),  # too few zeros
        ("m5", 0.01, 0.0, "int8"),
    ],
)
def test_auto_takes_the_smallest_form_that_is_accurate_enough(chip, atol, zeros, form):
    model = af.compile(network(zeros), target=chip, compress="auto", compress_atol=atol)
    assert model.compression["dense"].encoding == form
    assert model.compression["strided"].encoding == "fp16"
    assert "auto" in model.compression["dense"].reason


def test_auto_prefers_blocks_where_one_scale_is_too_coarse():
    weight = (np.random.default_rng(0).standard_normal((64, 64)) * 0.001).astype(np.float16)
    weight[:, 0] = 8  # one column sets the scale of every row
    out = af.input((1, 64)).linear(weight).named("y")
    int8, blocks = (drawn_error(weight, encode(weight, form)) for form in ("int8", "blockwise"))
    assert blocks < int8
    chosen = af.compile(out, target="m5", compress="auto", compress_atol=(blocks + int8) / 2).compression["y"]
    assert chosen.encoding in ("lut4", "blockwise")
    assert chosen.error <= (blocks + int8) / 2


def test_the_error_is_that_of_the_outputs():
    """Root mean square over the largest output, on 64 unit normal inputs (U115)."""
    weight = np.random.default_rng(1).standard_normal((32, 48)).astype(np.float16)
    encoded = encode(weight, "int4")
    inputs = np.random.default_rng(0).standard_normal((48, 64), np.float32).astype(np.float64)
    change = (encoded.decode() - weight) @ inputs
    want = np.sqrt(np.mean(change**2)) / np.abs(weight.astype(np.float64) @ inputs).max()
    assert drawn_error(weight, encoded) == pytest.approx(want, rel=1e-3)
    assert drawn_error(weight, encode(weight, "sparse")) == 0


def test_layers_may_have_modes_of_their_own():
    modes = {"dense": "lut8", "str*": None, "?lain": "sparse", "*": "int8"}
    layers = by_node(af.compile(network(), target="m5", compress=modes))
    assert {name: layer.encoding for name, layer in layers.items()} == {
        "plain": "sparse",
        "strided": "fp16",
        "up": "int8",
        "dense": "lut8",
        "product": "int8",
    }
    only = by_node(af.compile(network(), target="m5", compress={"dense": "int4"}))
    assert [name for name, layer in only.items() if layer.encoding != "fp16"] == ["dense"]


def test_several_outputs_are_compressed_too():
    out = network()
    model = af.compile_multi({"first": out, "second": out.relu()}, target="m2", compress="auto")
    assert model.compression["dense"].encoding == "lut4"
    assert set(model(DATA)) == {"first", "second"}


def test_weights_that_came_encoded_stay():
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    out = af.input((1, 64)).linear(encode(weight, "lut6")).named("y")
    for mode in ("int8", "auto"):
        layer = af.compile(out, target="m2", compress=mode).compression["y"]
        assert (layer.encoding, layer.streams) == ("lut6", True)
        assert "came in this form" in layer.reason
    assert not af.compile(out, target="m1", compress="int8").compression["y"].streams


def test_tied_weights_are_encoded_once():
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    x = af.input((1, 64))
    program = af.compile(x.linear(weight).relu().linear(weight), target="m5", compress="int4").program
    assert len({each.key for each in program.weights}) == 1


def test_the_report_is_text_and_data():
    model = af.compile(network(), target="m1", compress="int8")
    text = str(model.compression)
    assert "the chip folds int8 weights" in text
    assert "5 layers for h13" in text
    document = model.compression.to_json()
    assert document["bytes_after"] == sum(layer["bytes_after"] for layer in document["layers"])
    with pytest.raises(ArgumentError, match="'dens' has no stored kernel; nearest: dense"):
        model.compression["dens"]


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("blockwise", {"block_size": 24}, r"conv 'plain': its weight .*32 numbers along axis 1 do not divide .* 24"),
        ({"dens": "int8"}, {}, "'dens' names no layer with a stored kernel; nearest: dense"),
        ({"*": "int7"}, {}, "'int7' is unknown"),
        ("auto", {"compress_atol": float("nan")}, "nan is not a tolerance"),
        ("auto", {"block_size": 2.5}, "2.5 is not a size"),
    ],
)
def test_what_cannot_be_done_is_refused(mode, options, message):
    with pytest.raises(AneforgeError, match=message):
        af.compile(network(), target="m5", compress=mode, **options)


def test_infinite_weights_are_refused_by_name():
    weight = np.ones((64, 64), np.float16)
    weight[2, 5] = np.inf
    out = af.input((1, 64)).linear(weight).named("head")
    for mode in ("int8", "int4", "sparse", "blockwise", "auto"):
        with pytest.raises(GraphError, match=r"linear 'head': its weight: holds inf at index \(2, 5\)"):
            af.compile(out, target="m5", compress=mode)
    af.compile(out, target="m5", compress={"head": None})
