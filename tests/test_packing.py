"""Weights in the constants: the published sizes, the published formula, and the way back."""

from __future__ import annotations

import numpy as np
import pytest

from aneforge.codegen import zeros
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.packing import (
    CORES,
    lanes_of,
    pack_convolution,
    pack_scale,
    unpack_convolution,
    unpack_scale,
)


def any_halves(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Every bit pattern, so that NaN and zeros of both signs must come back too."""
    return rng.integers(0, 65536, shape, dtype=np.uint16).view(np.float16)


def same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and np.array_equal(first.view(np.uint16), second.view(np.uint16))


def numbered(*shape: int) -> np.ndarray:
    """Halfwords that say where they come from."""
    return np.arange(np.prod(shape), dtype=np.uint16).view(np.float16).reshape(shape)


def halfwords(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint16)


def test_sizes_of_the_published_convolution():
    packed = pack_convolution(numbered(64, 64, 3, 3), 1, None, (1, 1))
    assert len(packed.data) == 73728
    assert packed.streams == tuple((4608 * core, 4608) for core in range(16))
    assert packed.lanes == 4


def test_sizes_of_the_published_matrix():
    packed = pack_convolution(np.zeros((512, 256, 1, 1), np.float16))
    assert len(packed.data) == 262144
    assert packed.streams == tuple((16384 * core, 16384) for core in range(16))
    assert (packed.lanes, packed.evidence) == (16, "formula")


@pytest.mark.parametrize(("outputs", "reduced"), [(512, 32), (256, 24), (1024, 32)])
def test_a_convolution_of_one_tap_follows_the_published_formula_of_a_matrix(outputs, reduced):
    """The formula as enums.json words it, one halfword at a time."""
    rng = np.random.default_rng(outputs + reduced)
    matrix = any_halves(rng, outputs, reduced)
    packed = pack_convolution(matrix.reshape(outputs, reduced, 1, 1))
    g = min(16, outputs // 16)
    planes = outputs // g
    words = halfwords(packed.data)
    bits = matrix.view(np.uint16)
    for n in rng.integers(0, outputs, 64):
        p = n // g
        q = (p % 16) * (planes // 16) + p // 16
        for k in rng.integers(0, reduced, 16):
            assert words[q * (reduced * g) + k * g + n % g] == bits[n, k]


def test_channels_left_over_go_to_narrower_planes():
    """768 outputs of one tap on a small map: 512 by 32 lanes, 256 by 16 (hwx/third)."""
    packed = pack_convolution(numbered(768, 768, 1, 1), 1, np.zeros(768, np.float16), (1, 1), 1)
    assert packed.lanes == 32
    assert {size for _, size in packed.streams} == {0x12080}
    first = halfwords(packed.data[: packed.streams[0][1]])
    assert first[32] == 0  # behind the biases, the first tap of channel 0
    assert first[32 * 769 + 16] == numbered(768, 768)[512, 0].view(np.uint16)


def test_kernels_with_steps_leave_zeros_out():
    """Sizes of published kernels: 1x1 and 3x3 of 64 inputs, 4 lanes; a 3x3 of 16 lanes with one input has a body of
    0x140 bytes."""
    for taps, size in ((1, 0x2C0), (3, 0x1440)):
        packed = pack_convolution(np.ones((64, 64, taps, taps), np.float16), 1, None, (2, 2))
        assert {length for _, length in packed.streams} == {size}
    packed = pack_convolution(np.ones((256, 1, 3, 3), np.float16), 1, None, (2, 2))
    assert int.from_bytes(packed.data[32:35], "little") == 0x140
    assert packed.streams[0] == (0, 384)
    assert zeros.order_of(3, 3) == (0, 2, 6, 8, 1, 9, 7, 9, 3, 5, 9, 9, 4, 9, 9, 9)


def test_a_row_of_biases_precedes_the_weights_of_each_plane():
    kernel, bias = numbered(512, 2, 1, 1), any_halves(np.random.default_rng(2), 512)
    packed = pack_convolution(kernel, 1, bias, (1, 1))
    stream = halfwords(packed.data[: packed.streams[0][1]])
    for plane, start in ((0, 0), (16, 48)):  # the planes of core 0, three rows of 16 halfwords each
        channels = slice(16 * plane, 16 * plane + 16)
        assert np.array_equal(stream[start : start + 16], bias.view(np.uint16)[channels])
        assert np.array_equal(
            stream[start + 16 : start + 48].reshape(2, 16).T, kernel.view(np.uint16)[channels, :, 0, 0]
        )


def test_each_core_reads_only_its_own_channels():
    kernel = np.repeat(np.arange(64, dtype=np.uint16), 64 * 9).view(np.float16).reshape(64, 64, 3, 3)
    packed = pack_convolution(kernel, 1, None, (1, 1))
    for core, (offset, size) in enumerate(packed.streams):
        channels = set(halfwords(packed.data[offset : offset + size]).tolist())
        assert channels == set(range(4 * core, 4 * core + 4))


def test_three_channels_have_three_streams():
    packed = pack_convolution(numbered(3, 5, 3, 3), 1, None, (1, 1))
    assert [size for _, size in packed.streams] == [128, 128, 128]  # 45 halfwords, in tiles of 64 bytes
    assert np.array_equal(halfwords(packed.data).reshape(3, 64)[:, :45], numbered(3, 45).view(np.uint16))
    assert packed.evidence == "sampled"


def test_cores_may_have_different_numbers_of_planes():
    packed = pack_convolution(numbered(24, 32, 1, 1), 1, None, (1, 1))
    assert [size for _, size in packed.streams] == [128] * 8 + [64] * 8
    assert packed.evidence == "sampled"


def test_grouped_kernels_have_64_planes_rounded_one_by_one():
    packed = pack_convolution(numbered(128, 5, 3, 1), 4, None, (1, 1))
    assert (packed.rule, packed.lanes) == ("grouped", 2)
    assert packed.streams == tuple((256 * core, 256) for core in range(16))  # 4 planes of 30 halfwords, 64 bytes each
    first = halfwords(packed.data[:256]).reshape(4, 32)
    assert not first[:, 30:].any()
    assert first[1, 0] == 15 * 2 * 16  # the second plane of core 0 is plane 16, of channels 32 and 33


def test_depthwise_taps_are_contiguous():
    packed = pack_convolution(numbered(32, 1, 3, 3), 32, None, (1, 1))
    assert (packed.rule, len(packed.streams), packed.streams[0]) == ("depthwise", 16, (0, 64))
    first = halfwords(packed.data[:64])
    assert np.array_equal(first[:18], [*range(9), *range(144, 153)])
    assert not first[18:].any()


def test_windows_are_marked_as_sampled():
    assert pack_convolution(numbered(64, 8, 3, 3), 1, None, (1, 1)).evidence == "sampled"


def test_lanes_are_powers_of_two_up_to_a_limit():
    assert [lanes_of(outputs) for outputs in (1, 15, 16, 31, 32, 64, 80, 256, 2048)] == [1, 1, 1, 1, 2, 4, 4, 16, 16]
    assert (lanes_of(512, 8), lanes_of(512, 9), lanes_of(2048, 8)) == (32, 16, 32)


def test_random_convolutions_come_back_bit_for_bit():
    rng = np.random.default_rng(21)
    for _ in range(200):
        groups = int(rng.choice([1, 1, 2, 4, 7]))
        per_group = int(rng.integers(1, 700 // groups if rng.random() < 0.2 else 40))
        inputs = int(rng.integers(1, 9))
        height, width = (int(side) for side in rng.integers(1, 6, 2))
        if rng.random() < 0.2:
            groups, per_group, inputs = groups * per_group, 1, 1
        kernel = any_halves(rng, groups * per_group, inputs, height, width)
        bias = any_halves(rng, groups * per_group) if rng.random() < 0.5 else None
        step = int(rng.integers(1, 3))
        side = int(rng.choice([4, 8, 9, 64]))
        packed = pack_convolution(kernel, groups, bias, (step, step), side)
        assert all(offset % 64 == 0 and size % 64 == 0 for offset, size in packed.streams)
        assert len(packed.streams) == min(CORES, -(-kernel.shape[0] // packed.lanes))
        found, found_bias = unpack_convolution(
            packed.data, packed.streams, kernel.shape, groups, bias is not None, (step, step), side
        )
        assert same_bits(found, kernel)
        assert (found_bias is None) if bias is None else found_bias is not None and same_bits(found_bias, bias)


def test_scales_follow_biases():
    bias, scale = any_halves(np.random.default_rng(3), 2, 70)
    packed = pack_scale(bias, scale)
    assert np.array_equal(halfwords(packed.data)[:140], np.concatenate([bias, scale]).view(np.uint16))
    assert len(packed.data) == 320
    found_bias, found_scale = unpack_scale(packed.data, 70)
    assert same_bits(found_bias, bias)
    assert same_bits(found_scale, scale)


def test_streams_that_do_not_fit_the_shape_are_refused():
    packed = pack_convolution(numbered(64, 8, 1, 1), 1, None, (1, 1))
    with pytest.raises(ContainerError, match="core 0 is 64 bytes from 0x0"):
        unpack_convolution(packed.data, packed.streams, (64, 9, 1, 1))
    with pytest.raises(ContainerError, match="3 streams of weights, but 64 channels need 16"):
        unpack_convolution(packed.data, packed.streams[:3], (64, 8, 1, 1))
    with pytest.raises(ContainerError, match="but the weights have 1000 bytes"):
        unpack_convolution(packed.data[:1000], packed.streams, (64, 8, 1, 1))
    with pytest.raises(ContainerError, match="scales of 70 channels need 280 bytes, but 100 are there"):
        unpack_scale(bytes(100), 70)


def test_kernels_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="expected float16 with 4"):
        pack_convolution(np.zeros((4, 4, 1, 1), np.float32))
    with pytest.raises(ValueError, match="3 groups do not divide"):
        pack_convolution(numbered(4, 1, 1, 1), 3)
    with pytest.raises(ValueError, match="bias has 3 values, expected 4"):
        pack_convolution(numbered(4, 1, 1, 1), 1, numbered(3))
