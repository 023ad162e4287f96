"""Weights as they are stored: what the codes mean, and that a graph keeps them."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge.chips import native_streams
from aneforge.errors import GraphError
from aneforge.graph.encoding import Encoded

RNG = np.random.default_rng(5)


def affine():
    codes = RNG.integers(-128, 128, (6, 4)).astype(np.int8)
    scale, zero = RNG.uniform(0.1, 1, 6).astype(np.float16), RNG.integers(-5, 5, 6).astype(np.int8)
    want = (codes.astype(float) - zero[:, None]) * scale[:, None].astype(float)
    return Encoded.affine(codes, scale, zero, axis=0), want


def blockwise():
    codes = RNG.integers(0, 16, (6, 8)).astype(np.uint8)
    scale = RNG.uniform(0.1, 1, (3, 2)).astype(np.float16)
    want = codes * np.repeat(np.repeat(scale.astype(float), 2, 0), 4, 1)
    return Encoded.blockwise(codes, scale, bits=4), want


def palette():
    """Two tables, one for each half of the rows; entries of two numbers along the columns."""
    table = RNG.standard_normal((2, 1, 4, 2)).astype(np.float16)
    indices = RNG.integers(0, 4, (6, 4)).astype(np.uint8)
    want = np.zeros((6, 8))
    for row in range(6):
        for column in range(4):
            want[row, 2 * column : 2 * column + 2] = table[row // 3, 0, indices[row, column]]
    return Encoded.palette(indices, table, 2, vector_axis=1), want


def sparse():
    mask = RNG.random((6, 4)) < 0.5
    values = RNG.standard_normal(mask.sum()).astype(np.float16)
    want = np.zeros((6, 4))
    want[mask] = values
    return Encoded.sparse(mask, values), want


FORMS = {"affine": affine, "blockwise": blockwise, "palette": palette, "sparse": sparse}


@pytest.fixture(params=FORMS)
def case(request):
    return FORMS[request.param]()


def test_what_the_codes_mean(case):
    encoded, want = case
    np.testing.assert_array_equal(encoded.decode(), want)
    np.testing.assert_array_equal(np.asarray(encoded), want)
    assert encoded.shape == want.shape


def test_axes_move_with_the_codes(case):
    encoded, want = case
    np.testing.assert_array_equal(encoded.T.decode(), want.T)
    np.testing.assert_array_equal(encoded.expand_dims(1).decode(), want[:, None])
    assert encoded.T.form == encoded.form


def test_a_graph_keeps_the_form_through_files_and_documents(case, tmp_path):
    encoded, want = case
    graph = af.Graph([af.input((2, want.shape[1]), name="x").linear(encoded).named("y")])
    (weight,) = graph.weights.values()
    assert weight.encoded is not None
    assert weight.encoding == encoded.name
    np.testing.assert_array_equal(weight.array, want.astype(np.float16))
    graph.save(tmp_path / "net.af")
    for read in (af.load_graph(tmp_path / "net.af"), af.Graph.from_json(graph.to_json())):
        (again,) = read.weights.values()
        assert again.encoding == weight.encoding
        assert again.key == weight.key
        np.testing.assert_array_equal(again.array, weight.array)


def test_bytes_as_they_are_stored():
    assert affine()[0].stored_bytes == 24 + 6 * 2 + 6
    assert blockwise()[0].stored_bytes == 48 // 2 + 6 * 2
    assert palette()[0].stored_bytes == 24 * 2 // 8 + 16 * 2
    encoded, want = sparse()
    assert encoded.stored_bytes == 2 * np.count_nonzero(want) + 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Encoded.affine(np.zeros((2, 2)), 1.0), "whole numbers"),
        (lambda: Encoded.affine(np.zeros((2, 2), np.int8), [1.0, 2.0]), "2 scales need an axis"),
        (lambda: Encoded.affine(np.zeros((2, 2), np.int8), [1.0, 2.0, 3.0], axis=0), "does not divide"),
        (lambda: Encoded.blockwise(np.zeros((2, 4), np.int8), np.ones((2, 3))), "does not divide"),
        (lambda: Encoded.blockwise(np.zeros((2, 4), np.int8), np.ones((2, 2)), bits=5), "5 bits"),
        (
            lambda: Encoded.palette(np.full((2, 2), 4, np.uint8), np.zeros(4), 2),
            "index 4 is outside the look-up table; it has 4 entries",
        ),
        (lambda: Encoded.sparse(np.ones((2, 2), bool), np.zeros(3)), "the mask sets 4 places, but there are 3 values"),
        (lambda: af.const(Encoded.affine(np.full((2, 2), 127, np.int8), 1e6)), "beyond the fp16 range"),
    ],
)
def test_what_means_nothing_is_refused(make, message):
    with pytest.raises(GraphError, match=message):
        make()


def test_the_gate_hears_of_the_encoding():
    """A palette of 6 bits is expanded on an M1, which reads 4 and 8."""
    table = np.linspace(-1, 1, 64)
    weight = Encoded.palette(RNG.integers(0, 64, (32, 32)).astype(np.uint8), table, 6)
    out = af.input((1, 32)).linear(weight)
    found = af.preflight(out, "m1").decompose
    assert [(each.op, each.rewrite) for each in found] == [("linear", "expand-palette")]
    assert not [each for each in af.preflight(out, "m5").decompose if "palette" in each.message]


# Programs.


def network():
    """One layer for each form, each with a kernel that its own attributes or the packing can keep."""
    x = af.input((4, 32), name="x")
    int8 = Encoded.affine(RNG.integers(-128, 128, (32, 32)).astype(np.int8), RNG.uniform(0.5, 1, 32) / 512, axis=0)
    lut4 = Encoded.palette(RNG.integers(0, 16, (32, 32)).astype(np.uint8), np.linspace(-0.25, 0.25, 16), 4)
    mask = RNG.random((32, 32)) < 0.4
    sparse = Encoded.sparse(mask, RNG.standard_normal(mask.sum()).astype(np.float16) * np.float16(0.2))
    blocks = Encoded.blockwise(RNG.integers(-8, 8, (32, 32)).astype(np.int8), np.full((32, 4), 0.03), bits=4)
    return x.linear(int8).relu().linear(lut4).relu().linear(sparse).relu().linear(blocks).named("y")


@pytest.mark.parametrize("chip", ["m1", "m2", "m3", "m5", "m6"])
def test_a_program_keeps_what_the_chip_streams_and_expands_the_rest(chip):
    """compression.json native_streams_by_family5 decides, and nothing else."""
    program = af.compile(network(), target=chip).program
    streams = native_streams(af.target(chip).family5)
    stored = [each.encoding for each in program.weights]
    assert stored == [
        "int8" if "int8" in streams else "fp16",
        "lut4" if "int4" in streams else "fp16",
        "sparse" if "sparse" in streams else "fp16",
        "blockwise" if "blockwise" in streams else "fp16",
    ]
    sizes = {"fp16": 2048, "int8": 1024, "lut4": 512}
    assert all(each.bytes == sizes[each.encoding] for each in program.weights if each.encoding in sizes)


@pytest.mark.parametrize("chip", ["m1", "m2", "m5"])
def test_the_numbers_of_encoded_kernels(chip):
    """Decoded kernels give what plain ones do, to the rounding of one product where the engine decodes."""
    out, data = network(), RNG.standard_normal((4, 32)).astype(np.float16)
    model = af.compile(out, target=chip, validate=True)
    want = af.evaluate(out, [data])
    np.testing.assert_allclose(model.reference(data), want, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(model(data), want, rtol=2e-2, atol=2e-2)


def test_scales_that_fp16_cannot_hold_expand_the_kernel():
    tiny = Encoded.affine(RNG.integers(-128, 128, (8, 8)).astype(np.int8), np.float32(3e-6))
    assert tiny.scale.dtype == np.float32
    program = af.compile(af.input((1, 8)).linear(tiny), target="m5").program
    assert [each.encoding for each in program.weights] == ["fp16"]


def test_a_graph_keeps_its_numbers_whoever_writes_to_the_arrays():
    codes = np.full((4, 4), 2, np.int8)
    out = af.input((1, 4)).linear(af.Encoded.affine(codes, np.float16(0.5)))
    codes[:] = 100
    np.testing.assert_array_equal(af.evaluate(out, [np.ones((1, 4))]), np.full((1, 4), 4.0))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int64])
def test_places_of_a_table_may_come_in_any_type(kind):
    weight = Encoded.palette(RNG.integers(0, 16, (8, 8)).astype(kind), np.linspace(-1, 1, 16), 4)
    program = af.compile(af.input((1, 8)).linear(weight), target="m5").program
    assert [each.encoding for each in program.weights] == ["lut4"]
