"""Stored forms bit by bit: hand-checked layouts, round trips, and what cannot be encoded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from aneforge.errors import AneforgeError, ArgumentError, GraphError, UnknownNameError
from aneforge.graph.codecs.encoding import ENCODINGS, encode
from aneforge.graph.encoded_bytes import pack_codes, unpack_codes
from aneforge.graph.encoding import Encoded
from aneforge.graph.fp8 import FP8, fp8_codes, fp8_values
from aneforge.graph.halves import round_to_half

RNG = np.random.default_rng(22)
WEIGHT = (RNG.standard_normal((32, 64)) * 0.05).astype(np.float16)
KERNEL = (RNG.standard_normal((8, 32, 3, 3)) * 0.05).astype(np.float16)


def half_bytes(*numbers):
    return np.array(numbers, "<f2").tobytes()


# Layouts by hand.


def test_four_bits_are_low_nibble_first_with_the_table_behind():
    """compression.json int4_lut: 4-bit index, low nibble first, and a 16-entry fp16 codebook."""
    table = np.arange(16, dtype=np.float16)
    weight = Encoded.palette(np.array([[1, 2], [15, 7]], np.uint8), table, 4)
    assert weight.to_bytes() == bytes([0x21, 0x7F]) + half_bytes(*range(16))
    assert [(part.name, part.offset, part.bytes) for part in weight.sections] == [("codes", 0, 2), ("table", 2, 32)]


def test_a_byte_and_a_scale_for_each_output():
    weight = Encoded.affine(np.array([[1, -2], [127, -128]], np.int8), [0.5, 2.0], axis=0)
    assert weight.to_bytes() == bytes([1, 0xFE, 0x7F, 0x80]) + half_bytes(0.5, 2.0)


def test_zero_points_come_last_in_a_byte_each():
    weight = Encoded.affine(np.array([[3], [4]], np.int8), [1.0, 1.0], np.array([-1, 2], np.int8), axis=0)
    assert weight.to_bytes() == bytes([3, 4]) + half_bytes(1, 1) + bytes([0xFF, 2])


def test_a_mask_is_lowest_bit_first_and_survivors_follow():
    numbers = np.array([[0, 1.5, 0, 0, -2, 0, 0, 0], [3, 0, 0, 0, 0, 0, 0, 0.25]], np.float16)
    assert encode(numbers, "sparse").to_bytes() == bytes([0b00010010, 0b10000001]) + half_bytes(1.5, -2, 3, 0.25)


def test_kept_values_may_be_places_in_a_table():
    mask = np.array([[1, 0, 1, 0], [0, 0, 0, 1]], bool)
    weight = Encoded.sparse(mask, np.array([0, 1, 1], np.uint8), np.array([0.5, -1.0]), bits=4)
    assert weight.name == "sparse-lut4"
    assert weight.to_bytes() == bytes([0b10000101]) + bytes([0x10, 0x01]) + half_bytes(0.5, -1)
    np.testing.assert_array_equal(weight.decode(), [[0.5, 0, -1, 0], [0, 0, 0, -1]])


def test_a_block_has_a_scale():
    weight = encode(np.array([[127, -254, 1, 0.5]], np.float16), "blockwise", block_size=2)
    assert weight.to_bytes()[:4] == bytes([64, 0x81, 127, 64])  # 127 / 2, -254 / 2; 0.5 / fp16(1 / 127)
    assert weight.to_bytes()[4:] == half_bytes(2, np.float16(1 / 127))


@pytest.mark.parametrize(
    ("bits", "codes", "packed"),
    [
        (1, [1, 0, 0, 1, 1, 0, 0, 0, 1], [0b00011001, 0b1]),
        (2, [1, 2, 3, 0, 1], [0b00111001, 0b01]),
        (3, [1, 2, 7, 4], [0b11010001, 0b1001]),  # 001, 010 and 111 from the low end; 111 crosses the byte
        (6, [1, 2, 63, 5], [0b10000001, 0b11110000, 0b00010111]),
        (8, [1, 255], [1, 255]),
    ],
)
def test_codes_lie_in_a_line_of_bits(bits, codes, packed):
    """U112: the first code in the lowest bits, across the borders of bytes."""
    assert list(pack_codes(np.array(codes, np.uint8), bits)) == packed
    np.testing.assert_array_equal(unpack_codes(bytes(packed), bits, len(codes)), codes)


def test_negative_codes_are_twos_complement():
    codes = np.array([-8, 7, -1, 3], np.int8)
    assert pack_codes(codes, 4) == bytes([0x78, 0x3F])
    np.testing.assert_array_equal(unpack_codes(bytes([0x78, 0x3F]), 4, 4, signed=True), codes)


# Round trips.


@settings(max_examples=60, deadline=None)
@given(st.sampled_from((1, 2, 3, 4, 6, 8)), st.data())
def test_packed_codes_come_back(bits, data):
    codes = data.draw(arrays.arrays(np.uint8, st.integers(1, 40), elements=st.integers(0, (1 << bits) - 1)))
    assert len(pack_codes(codes, bits)) == -(-codes.size * bits // 8)
    np.testing.assert_array_equal(unpack_codes(pack_codes(codes, bits), bits, codes.size), codes)


FINITE = st.floats(-60000, 60000, width=16)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(ENCODINGS), arrays.arrays(np.float16, st.tuples(st.just(4), st.just(32)), elements=FINITE))
def test_every_form_comes_back_from_its_bytes(encoding, numbers):
    weight = encode(numbers, encoding)
    again = Encoded.from_bytes(weight.layout(), weight.to_bytes())
    assert len(weight.to_bytes()) == weight.stored_bytes
    assert again.to_bytes() == weight.to_bytes()
    assert again.name == weight.name
    np.testing.assert_array_equal(again.decode(), weight.decode())


def variants():
    for encoding in ENCODINGS:
        yield encoding, {}
    yield "int8", {"axis": None}
    yield "int8", {"symmetric": False}
    yield "int8", {"axis": 1}
    yield "blockwise", {"block_size": 8, "bits": 4}
    yield "blockwise", {"block_size": 4, "axis": 0}
    yield "lut4", {"method": "uniform"}
    yield "lut2", {"group_size": 8}
    for size in (2, 4):
        yield "lut4", {"vector_size": size}
        yield "lut4", {"vector_size": size, "axis": 1, "group_size": 16}


@pytest.mark.parametrize(("encoding", "options"), list(variants()))
@pytest.mark.parametrize("weight", [WEIGHT, KERNEL], ids=["matrix", "kernel"])
def test_fp16_is_decoded_at_once_with_the_same_bits(encoding, options, weight):
    """The fast path is the slow one rounded once."""
    stored = encode(weight, encoding, **options)
    assert stored.shape == weight.shape
    with np.errstate(over="ignore"):
        want = stored.decode().astype(np.float16)
    np.testing.assert_array_equal(stored.decode(np.float16).view(np.uint16), want.view(np.uint16))
    turned = stored.transpose([1, 0, *range(2, weight.ndim)])
    np.testing.assert_array_equal(turned.decode(np.float16), np.swapaxes(want, 0, 1))


def test_long_rows_are_decoded_with_the_same_bits():
    """Rows that are longer than a table of 256 numbers take another way."""
    codes = RNG.integers(-128, 128, (6, 4096)).astype(np.int8)
    scale, zero = RNG.uniform(2**-14, 900, 6).astype(np.float16), RNG.integers(-128, 128, 6).astype(np.int8)
    for stored in (Encoded.affine(codes, scale, axis=0), Encoded.affine(codes, scale, zero, axis=0)):
        with np.errstate(over="ignore"):
            want = stored.decode().astype(np.float16)
        np.testing.assert_array_equal(stored.decode(np.float16).view(np.uint16), want.view(np.uint16))


def test_many_codes_are_looked_up_two_at_a_time():
    indices = RNG.integers(0, 16, (3, 65537)).astype(np.uint8)
    stored = Encoded.palette(indices, np.linspace(-1, 1, 16), 4)
    np.testing.assert_array_equal(stored.decode(np.float16), stored.decode().astype(np.float16))


@settings(max_examples=100, deadline=None)
@given(arrays.arrays(np.float32, st.integers(1, 50), elements=st.floats(width=32)))
def test_rounding_to_fp16_has_numpys_bits(numbers):
    half = np.empty(numbers.shape, np.float16)
    round_to_half(numbers, half)
    with np.errstate(over="ignore", invalid="ignore"):
        want = numbers.astype(np.float16)
    same = (half.view(np.uint16) == want.view(np.uint16)) | (np.isnan(half) & np.isnan(want))
    assert same.all()


def test_rounding_to_fp16_at_every_border():
    """Each fp16 number, the middle to the next, and the float32 numbers beside both."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    exact = halves[np.isfinite(halves)].astype(np.float32)
    middles = ((exact[1:].astype(np.float64) + exact[:-1].astype(np.float64)) / 2).astype(np.float32)
    numbers = np.concatenate([exact, middles])
    numbers = np.concatenate([numbers, np.nextafter(numbers, np.float32(np.inf)), np.nextafter(numbers, -np.inf)])
    half = np.empty(numbers.shape, np.float16)
    round_to_half(numbers.astype(np.float32), half)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(half.view(np.uint16), numbers.astype(np.float16).view(np.uint16))


# 8-bit floating point (N52).


def test_e4m3_has_no_infinities_and_ends_at_448():
    values = fp8_values("fp8-e4m3")
    assert (values[0x7E], values[0x08], values[0x01], values[0x38]) == (448, 2.0**-6, 2.0**-9, 1)
    assert np.isnan(values[[0x7F, 0xFF]]).all()
    assert np.isnan(values).sum() == 2
    assert not np.isinf(values).any()


def test_e5m2_is_the_high_byte_of_fp16():
    values = fp8_values("fp8-e5m2")
    assert (values[0x7B], values[0x3C], values[0x01]) == (57344, 1, 2.0**-16)
    assert np.isinf(values[0x7C])
    assert np.isnan(values[[0x7D, 0x7E, 0x7F]]).all()


@pytest.mark.parametrize("name", FP8)
def test_fp8_codes_are_the_nearest_with_ties_to_even(name):
    codes, values = fp8_codes(name), fp8_values(name)
    own = np.flatnonzero(np.isfinite(values))
    np.testing.assert_array_equal(codes[values[own].view(np.uint16)], own)  # every number is its own nearest
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = np.isfinite(halves)
    numbers = values[own].astype(np.float64)
    kept = np.clip(halves[finite].astype(np.float64), numbers.min(), numbers.max())
    distance = np.abs(kept - values[codes[finite]].astype(np.float64))
    line = np.sort(numbers)
    right = np.clip(np.searchsorted(line, kept), 1, line.size - 1)
    np.testing.assert_array_equal(distance, np.minimum(np.abs(kept - line[right]), np.abs(kept - line[right - 1])))
    assert codes[np.float16(1.0625).view(np.uint16)] == (0x38 if name == "fp8-e4m3" else 0x3C)  # a tie in E4M3
    assert codes[np.float16(1.1875).view(np.uint16)] == (0x3A if name == "fp8-e4m3" else 0x3D)


# Accuracy and options.


def error(weight, stored):
    return float(np.sqrt(np.mean((stored.decode() - weight.astype(float)) ** 2)))


def test_kmeans_is_nearer_than_even_steps_and_more_entries_are_nearer():
    normal = (RNG.standard_normal((64, 256))).astype(np.float16)
    errors = {bits: error(normal, encode(normal, f"lut{bits}")) for bits in (1, 2, 3, 4, 6, 8)}
    assert list(errors.values()) == sorted(errors.values(), reverse=True)
    assert errors[4] < error(normal, encode(normal, "lut4", method="uniform"))
    assert errors[4] == pytest.approx(0.0978, rel=0.05)  # the Lloyd-Max table of 16 entries for normal numbers
    assert errors[1] == pytest.approx(0.6028, rel=0.02)  # and of 2: sqrt(1 - 2 / pi)


def test_few_numbers_are_kept_exactly():
    few = np.array([[0.5, -1, 3, 0.5], [0.25, 3, 3, -1]], np.float16)
    np.testing.assert_array_equal(encode(few, "lut2").decode(), few)


def test_importance_moves_the_table_to_what_counts():
    numbers = np.concatenate([np.linspace(0, 1, 500), np.linspace(10, 11, 500)]).astype(np.float16).reshape(10, 100)
    counts = (numbers < 5).astype(float) + 1e-9
    plain, chosen = encode(numbers, "lut2"), encode(numbers, "lut2", importance=counts)
    low = numbers < 5
    assert np.abs(chosen.decode() - numbers)[low].mean() < np.abs(plain.decode() - numbers)[low].mean()


def test_vectors_follow_numbers_that_go_together():
    base = RNG.choice(np.array([-1.0, -0.3, 0.2, 0.9]), (16, 64))
    weight = np.repeat(base, 2, axis=0).astype(np.float16)  # two rows are alike
    stored = encode(weight, "lut2", vector_size=2)
    np.testing.assert_array_equal(stored.decode(), weight)
    assert stored.codes.shape == (16, 64)
    assert stored.stored_bytes == 16 * 64 // 4 + 4 * 2 * 2


def test_groups_have_tables_of_their_own():
    weight = np.concatenate([WEIGHT * 1, WEIGHT * 16]).astype(np.float16)
    one, two = encode(weight, "lut4"), encode(weight, "lut4", group_size=32)
    assert two.table.shape == (2, 1, 16, 1)
    assert error(weight[:32], Encoded.rows(two, 0, 32)) < error(weight[:32], Encoded.rows(one, 0, 32))


def test_int8_error_is_half_a_step():
    stored = encode(KERNEL, "int8")
    steps = stored.scale.astype(float)
    assert (np.abs(stored.decode() - KERNEL) <= 0.51 * steps).all()
    assert int(np.abs(stored.codes).max()) == 127
    asymmetric = encode(np.abs(KERNEL), "int8", symmetric=False)
    assert error(np.abs(KERNEL), asymmetric) < error(np.abs(KERNEL), encode(np.abs(KERNEL), "int8"))


def test_channels_of_zeros_stay_zeros():
    weight = WEIGHT.copy()
    weight[3] = 0
    for encoding in ("int8", "int4-affine", "blockwise", "sparse", "sparse-lut4", *FP8):
        assert not encode(weight, encoding).decode()[3].any(), encoding
    for encoding in ENCODINGS:
        assert not encode(np.zeros((4, 32)), encoding).decode().any(), encoding


@pytest.mark.parametrize("name", ["sparse", "blockwise", "lut4", "int8"])
def test_rows_of_a_form_are_rows_of_the_numbers(name):
    stored = encode(WEIGHT, name)
    np.testing.assert_array_equal(stored.rows(8, 20).decode(), stored.decode()[8:20])


def test_rows_that_cut_a_block_are_refused():
    stored = encode(WEIGHT, "lut4", group_size=8)
    assert stored.rows(8, 24).decode().shape == (16, 64)
    assert stored.rows(4, 24) is None


# What cannot be encoded.


@pytest.mark.parametrize(
    ("array", "encoding", "options", "error", "message"),
    [
        (np.array([[1, np.nan]]), "int8", {}, GraphError, r"head: holds nan at index \(0, 1\); .*finite"),
        (np.array([[np.inf, 0]]), "lut4", {}, GraphError, r"head: holds inf at index \(0, 0\)"),
        (np.array([[1e6, 0]]), "sparse", {}, GraphError, r"head: holds 1e\+06 .*beyond the fp16 range"),
        (np.zeros((2, 0)), "int8", {}, GraphError, "not a weight"),
        (np.array(["a"]), "int8", {}, GraphError, "not a weight"),
        (WEIGHT, "int9", {}, UnknownNameError, "nearest: int8"),
        (
            WEIGHT,
            "blockwise",
            {"block_size": 48},
            GraphError,
            "64 numbers along axis 1 do not divide .* 48",
        ),
        (WEIGHT, "blockwise", {"block_size": 0}, ArgumentError, "block_size: 0 is not a count"),
        (WEIGHT[0], "blockwise", {}, GraphError, "blockwise needs outputs and inputs"),
        (WEIGHT, "lut4", {"vector_size": 3}, ArgumentError, "3 is unknown; choose one: 1, 2, 4, 5"),
        (WEIGHT, "lut4", {"vector_size": 5}, GraphError, "32 places along axis 0 do not divide into vectors of 5"),
        (WEIGHT, "lut4", {"group_size": 5}, GraphError, "do not divide into groups of 5"),
        (WEIGHT, "lut4", {"vector_size": 2, "method": "uniform"}, GraphError, "no uniform table"),
        (WEIGHT, "lut4", {"method": "magic"}, ArgumentError, "'magic' is unknown"),
        (WEIGHT, "lut4", {"axis": None}, ArgumentError, "None is for int8"),
        (WEIGHT, "int8", {"axis": 4}, ArgumentError, "4 is outside head"),
        (WEIGHT, "int8", {"method": "kmeans"}, ArgumentError, "int8 has no such option"),
        (WEIGHT, "lut4", {"importance": -np.ones((1, 64))}, ArgumentError, "negative"),
        (WEIGHT, "lut4", {"importance": np.ones(7)}, ArgumentError, "does not broadcast"),
        (encode(WEIGHT, "int8"), "lut4", {}, GraphError, "is stored as int8 already"),
    ],
)
def test_what_cannot_be_encoded_is_refused_by_name_and_rule(array, encoding, options, error, message):
    with pytest.raises(error, match=message) as caught:
        encode(array, encoding, name="head", **options)
    assert isinstance(caught.value, AneforgeError)


def test_a_table_must_fit_its_indices():
    with pytest.raises(GraphError, match="17 entries; an index of 4 bits reaches 16"):
        Encoded.palette(np.zeros((2, 2), np.uint8), np.zeros(17), 4)
    with pytest.raises(GraphError, match="index 4 is outside the look-up table; it has 4 entries"):
        Encoded.sparse(np.ones((1, 2), bool), [0, 4], np.zeros(4), 4)


def test_bytes_that_do_not_fit_are_refused():
    stored = encode(WEIGHT, "int8")
    with pytest.raises(GraphError, match="take 64 bytes; there are 63"):
        Encoded.from_bytes(stored.layout(), stored.to_bytes()[:-1])
    with pytest.raises(GraphError, match="200 do not fit 4 bits"):
        Encoded.affine(np.array([[200]], np.uint8), 1.0, bits=4).to_bytes()
    with pytest.raises(GraphError, match="fp16 does not hold"):
        Encoded.affine(np.array([[1]], np.int8), np.float32(1e-7)).to_bytes()
