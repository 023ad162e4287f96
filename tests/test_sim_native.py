"""The native multiply-accumulate against the plain one: the same bits on every path, with any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aneforge.errors import AneforgeError
from aneforge.sim import convolution, native
from aneforge.sim.fast import settled_plain
from aneforge.sim.half import Window, decoded, gained_plain, narrowed_plain, paired_plain, patches_plain, widened_plain
from aneforge.sim.mac import Sums, accumulate, accumulate_plain, products
from aneforge.sim.rules.planar import line_sums

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")

PATHS = native.paths()
BITS = st.integers(0, 0xFFFF)
# Around zero, the subnormals, the exponents where products start to be dropped, ones, the ceiling, infinity and NaN.
SMALL = (0, 1, 2, 0x3FF, 0x400, 0x401, 0x7FF, 0x1400, 0x1C00, 0x1FFF, 0x2000, 0x23FF, 0x2C00, 0x3000, 0x3BFF)
LARGE = (0x3C00, 0x3C01, 0x5400, 0x57FF, 0x5800, 0x7400, 0x77FF, 0x7BFF, 0x7C00, 0x7C01, 0x7FFF)
EDGES = st.sampled_from([sign | size for sign in (0, 0x8000) for size in SMALL + LARGE])
SIZES = [(1, 1, 1), (1, 2, 3), (2, 1, 33), (3, 7, 31), (4, 16, 16), (5, 17, 32), (8, 256, 32), (9, 257, 33)]
SIZES += [(97, 3, 5), (1, 521, 1), (13, 255, 64), (101, 300, 131), (7, 0, 5), (0, 4, 5), (3, 4, 0)]


def halves(rng, shape, exponents):
    """Random significands and signs, with exponent fields from a range."""
    bits = rng.integers(0, 1024, shape) | rng.integers(*exponents, shape) << 10 | rng.integers(0, 2, shape) << 15
    return bits.astype(np.uint16).view(np.float16)


def same(a, b, bias=None, flush=False, workers=(1,), paths=PATHS):
    with np.errstate(all="ignore"):
        want = accumulate_plain(a, b, bias, flush)
    for path in paths:
        for count in workers:
            found = native.accumulate(a, b, bias, flush, path=path, workers=count)
            # By their bits, so that a zero of the wrong sign is seen.
            np.testing.assert_array_equal(found.units.view(np.int64), want.units.view(np.int64), err_msg=path)
            np.testing.assert_array_equal(found.lost, want.lost, err_msg=path)
    return want


# Every product.


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("total", range(-18, 6))
def test_every_pair_of_significands_rounds_half_away(path, total):
    """Normal operands of exponents that sum to `total`: rounding and dropping see nothing but that sum (see mac.c)."""
    left = total // 2
    right = total - left
    significand = np.arange(1024, 2048)
    a = (significand * 2.0 ** (left - 10)).astype(np.float16)
    b = (significand * 2.0 ** (right - 10)).astype(np.float16)
    found = native.accumulate(-a[:, None], b[None], path=path).units
    product = np.multiply.outer(significand, significand)
    up = total - 4  # a unit is 2^-16, and a product of significands counts 2^(total - 20)
    want = product << up if up >= 0 else (product + (1 << -up - 1)) >> -up
    np.testing.assert_array_equal(found, -want if total > -17 else 0 * want)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("exponent", range(-4, 16))
def test_every_pair_with_a_subnormal_rounds_half_away(path, exponent):
    small = np.arange(1024)
    significand = np.arange(1024, 2048)
    a = (small * 2.0**-24).astype(np.float16)[:, None]
    b = (significand * 2.0 ** (exponent - 10)).astype(np.float16)[None]
    down = 18 - exponent
    want = (np.multiply.outer(small, significand) + (1 << down - 1)) >> down
    want = want if exponent - 14 > -17 else 0 * want
    np.testing.assert_array_equal(native.accumulate(a, b, path=path).units, want)
    np.testing.assert_array_equal(native.accumulate(b.T, -a.T, path=path).units, -want.T)
    assert not native.accumulate(a, b, None, True, path=path).units.any()


# Sums.


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("flush", [False, True])
def test_sizes_that_fill_no_block(size, flush):
    rows, depth, columns = size
    rng = np.random.default_rng(depth)
    for fields in ((0, 32), (0, 16), (5, 12), (10, 19)):
        a, b = halves(rng, (rows, depth), fields), halves(rng, (depth, columns), fields)
        for bias in (None, halves(rng, columns, fields), halves(rng, (rows, 1), fields)):
            same(a, b, bias, flush, workers=(1, 3))


@settings(max_examples=150)
@given(
    data=st.data(), rows=st.integers(1, 9), depth=st.integers(1, 12), columns=st.integers(1, 35), flush=st.booleans()
)
def test_any_bits_give_the_same_sums(data, rows, depth, columns, flush):
    bits = data.draw(st.sampled_from([BITS, EDGES]))
    a = data.draw(hnp.arrays(np.uint16, (rows, depth), elements=bits)).view(np.float16)
    b = data.draw(hnp.arrays(np.uint16, (depth, columns), elements=bits)).view(np.float16)
    bias = data.draw(st.none() | hnp.arrays(np.uint16, (columns,), elements=bits))
    same(a, b, None if bias is None else bias.view(np.float16), flush)


@pytest.mark.parametrize("depth", [300, 1000])
@pytest.mark.parametrize("scale", [1.0, 7.9, 8.0, 60.0, 120.0, 181.0, 4000.0])
def test_sums_near_the_ceiling_are_lost_in_the_order_of_the_depth(depth, scale):
    """From sums that stay inside, by those that cross and come back, to those that cross at once."""
    rng = np.random.default_rng(depth)
    a = (rng.standard_normal((11, depth)) * scale).astype(np.float16)
    b = (rng.standard_normal((depth, 37)) * scale).astype(np.float16)
    same(a, b, (rng.standard_normal(37) * 8000).astype(np.float16), workers=(1, 2))


def test_runs_up_and_down_again_leave_the_infinity_of_the_first_crossing():
    run = np.concatenate([np.full(600, 7.0), np.full(1300, -7.0), np.full(700, 7.0)])
    weights = np.array([7.0, -7.0, 7.875, 0.5, 0.0])
    a = np.stack([run, -run, np.roll(run, 300), np.roll(run, 900)]).astype(np.float16)
    b = np.broadcast_to(weights, (run.size, weights.size)).astype(np.float16)
    lost = same(a, b).lost
    assert set(np.unique(lost)) == {-np.inf, 0.0, np.inf}
    bias = np.array([32752.0, -32752.0, 65504.0, np.inf, np.nan], np.float16)
    same(a, b, bias)


def test_a_sum_reaches_the_ceiling_exactly_or_by_one_unit():
    ones = np.ones((1, 1024), np.float16)
    column = np.full((1024, 3), 32.0, np.float16)
    column[-1] = 32 - 2.0**-5, 32.0, 31.984375
    tiny = np.array([2.0**-16 * 2047, 0.0, 0.0], np.float16)
    found = same(ones, column, tiny)
    assert found.lost.tolist() == [[0.0, np.inf, 0.0]]
    assert found.units[0, 0] == 2**31 - 1


def test_sums_beyond_exact_doubles_are_those_of_the_plain_form():
    a = np.full((2, 40), np.nan, np.float16)
    a[1, ::2] = 2.0**-10
    b = np.full((40, 2), 65504.0, np.float16)
    b[:, 1] = 3.0**-5
    assert same(a, b).units.max() > 2.0**53


def test_one_large_product_among_small_ones():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((40, 700), (700, 70)))
    a[17, 300] = b[301, 33] = 60000.0
    same(a, b, workers=(1, 2))


@pytest.mark.parametrize("limit", [0.2, 0.3, 1.0, 3.0, 7.0, 7.99, 8.0, 9.0, 11.0])
def test_stretches_of_every_length_and_products_too_large_for_them(limit):
    """Sums of one sign that grow as fast as their bound: a stretch ends just before 64, products go up to 121."""
    rng = np.random.default_rng(9)
    a = (limit * (1 - rng.random((9, 260)) / 64)).astype(np.float16)
    b = (limit * (1 - rng.random((260, 33)) / 64)).astype(np.float16)
    a[:, ::7] = b[::5] = limit
    same(a, b)
    same(-a, b)


def test_terms_that_need_a_comparison_among_those_that_need_none():
    rng = np.random.default_rng(10)
    for share in (0.01, 0.1, 0.5):
        a, b = halves(rng, (17, 513), (11, 16)), halves(rng, (513, 65), (11, 16))
        a[rng.random(a.shape) < share / 8] *= np.float16(2.0**-9)
        b[rng.random(b.shape) < share / 8] *= np.float16(2.0**-12)
        b[rng.random(b.shape) < share] = 0.0
        same(a, b)


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 64])
def test_threads_change_no_bit(workers):
    rng = np.random.default_rng(5)
    a, b = halves(rng, (211, 331), (0, 19)), halves(rng, (331, 307), (0, 19))
    same(a, b, halves(rng, 307, (0, 32)), workers=(workers,), paths=PATHS[-1:])


def test_arrays_of_any_strides_are_taken():
    rng = np.random.default_rng(6)
    a, b = halves(rng, (20, 30), (8, 16)), halves(rng, (20, 30), (8, 16))
    same(a.T, b)
    same(a[::2, ::-1], b.T[:, ::3])


# The last rounding.


@settings(max_examples=100)
@given(hnp.arrays(np.int64, (67,), elements=st.integers(-(2**33), 2**33) | st.integers(-5000, 5000)))
def test_settled_sums_are_those_of_the_plain_form(units):
    lost = np.where(units % 11 == 0, np.copysign(np.inf, units + 0.5), 0.0)
    sums = Sums(units.astype(np.float64), lost)
    for path in PATHS:
        np.testing.assert_array_equal(
            native.settled(sums, path=path).view(np.uint16), sums.settled_plain().view(np.uint16)
        )


def test_every_small_and_every_half_way_sum_settles_the_same():
    powers = np.multiply.outer(2.0 ** np.arange(11, 31), np.array([1.0])).ravel()
    near = (powers[:, None] * (1 + np.arange(0, 4097) / 4096)).round().ravel()
    units = np.unique(np.concatenate([np.arange(0.0, 70000), near, near + 1, near - 1]))
    sums = Sums(np.concatenate([units, -units]), np.zeros(2 * units.size))
    for path in PATHS:
        for workers in (1, 3):
            found = native.settled(sums, path=path, workers=workers)
            np.testing.assert_array_equal(found.view(np.uint16), sums.settled_plain().view(np.uint16))


# Planar work.

EVERY = np.arange(65536, dtype=np.uint16).view(np.float16)


def bits_equal(found, want, message=""):
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found.view(f"u{found.itemsize}"), want.view(f"u{want.itemsize}"), err_msg=message)


@pytest.mark.parametrize("path", PATHS)
def test_every_fp16_number_is_read_as_it_is_in_numpy(path):
    bits_equal(native.widened(EVERY, path=path), widened_plain(EVERY))
    bits_equal(native.operands(EVERY, path=path), decoded(EVERY).astype(np.float32))
    assert [native.has_special(each, path=path) for each in EVERY[:, None]] == (~np.isfinite(EVERY)).tolist()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("twice", [False, True])
def test_numbers_round_as_they_do_in_numpy(path, twice):
    every = EVERY[:0x7C00].astype(np.float64)
    between = (every[1:] + every[:-1]) / 2
    values = np.concatenate([every, between, np.nextafter(between, 0), np.nextafter(between, 1e9)])
    small = 2.0**-24 * (np.arange(0, 1100, 0.125) + 1e-4)
    odd = [65519.99, 65520.0, 1e6, 1e-300, 2.0**-25, 2.0**-26, 855.326 * 2.0**-24, np.inf, np.nan]
    values = np.concatenate([values, small, odd])
    values = np.concatenate([values, -values])
    bits_equal(native.narrowed(values, twice, path=path), narrowed_plain(values, twice))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("operation", ["add", "sub", "mult", "div"])
def test_pairs_are_those_of_numpy(path, operation):
    rng = np.random.default_rng(12)
    some = EVERY[rng.integers(0, 65536, 400)]
    some = np.concatenate(
        [some, np.array([0, 0x8000, 1, 0x8001, 0x7C00, 0xFC00, 0x7E00, 0x7BFF], np.uint16).view("f2")]
    )
    bits_equal(
        native.paired(operation, some[:, None], some[None], path=path),
        paired_plain(operation, some[:, None], some[None]),
    )


SPREADS = [((1, 1, 4, 3, 5), (1, 1, 4, 1, 1)), ((2, 3, 4, 5, 6), (2, 3, 4, 5, 6)), ((1, 1, 1, 1, 1), (1, 2, 3, 4, 5))]
SPREADS += [((2, 1, 4, 1, 6), (1, 3, 1, 5, 1)), ((7,), (3, 7)), ((3, 1), (1, 7)), ((5, 1, 1, 1, 4), (1,))]


@pytest.mark.parametrize(("left", "right"), SPREADS)
def test_pairs_spread_as_numpy_spreads_them(left, right):
    rng = np.random.default_rng(13)
    a, b = halves(rng, left, (5, 25)), halves(rng, right, (5, 25))
    bits_equal(native.paired("sub", a, b), paired_plain("sub", a, b))
    bits_equal(native.paired("sub", b, a), paired_plain("sub", b, a))
    turned = halves(rng, left[::-1], (5, 25)).T
    bits_equal(native.paired("add", turned, b), paired_plain("add", turned, b))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("ceiling", [np.inf, 32768.0])
def test_gains_and_offsets_are_those_of_numpy(path, ceiling):
    rng = np.random.default_rng(16)
    x = EVERY[rng.integers(0, 65536, (1, 2, 4, 30, 31))]
    shapes = ((1, 1, 4, 1, 1), (1, 1, 1, 1, 1), (1, 2, 4, 30, 31), (1, 1, 1, 1, 31))
    for shape in shapes:
        for scale, offset in (
            (None, None),
            (halves(rng, shape, (0, 32)), None),
            *[(halves(rng, shape, (8, 20)),) * 2],
        ):
            for gain, bias in ((1.0, 0.0), (-0.3, 7.25)):
                given_ = (x, scale, offset, gain, bias, ceiling)
                bits_equal(native.gained(*given_, path=path), gained_plain(*given_))
    offset = halves(rng, (1, 2, 1, 30, 1), (0, 30))
    bits_equal(native.gained(x, None, offset, 1.0, 0.0, ceiling), gained_plain(x, None, offset, 1.0, 0.0, ceiling))


@settings(max_examples=150)
@given(st.data())
def test_what_outputs_read_is_the_same(data):
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    edge = st.tuples(st.integers(0, 3), st.integers(0, 3))
    window = Window(*(data.draw(pair) for _ in range(3)), data.draw(edge), data.draw(edge))
    need = [window.dilation[i] * (window.size[i] - 1) + 1 - window.before[i] - window.after[i] for i in (0, 1)]
    extent = [data.draw(st.integers(max(1, least), max(1, least) + 6)) for least in need]
    image = halves(
        np.random.default_rng(data.draw(st.integers(0, 99))), (data.draw(st.integers(1, 3)), *extent), (0, 32)
    )
    rows = window.outputs(image.shape[1:])[0]
    first = data.draw(st.integers(0, rows - 1))
    count = data.draw(st.integers(1, rows - first))
    for single in (False, True):
        found = native.patches(image, window, first, count, single)
        bits_equal(found, patches_plain(image, window, first, count, single), f"{window}")


@pytest.mark.parametrize("path", PATHS)
def test_single_sums_settle_as_they_do_in_numpy(path):
    rng = np.random.default_rng(14)
    sums = np.concatenate([EVERY[:0x7C00].astype(np.float32), rng.standard_normal(5000).astype(np.float32) * 9000])
    sums = np.concatenate([sums, [32767.99, 32768.0, 1e30, np.inf, 2.0**-25, 2.0**-26]]).astype(np.float32)
    sums = np.stack([sums, -sums])
    for bias in (None, halves(rng, (2, 1), (5, 25)), halves(rng, sums.shape[1], (5, 25))):
        bits_equal(native.settled_single(sums, bias, path=path), settled_plain(sums, bias))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("fields", [(0, 32), (10, 20), (0, 3), (25, 31)])
def test_line_sums_are_those_of_numpy(path, fields, monkeypatch):
    lines = halves(np.random.default_rng(17), (40, 192), fields)
    found = native.line_sums(lines, 8, 4, path=path)
    monkeypatch.setenv("ANEFORGE_NATIVE", "0")
    native.settings.cache_clear()
    bits_equal(found, line_sums(lines, 8, 4))


@pytest.mark.parametrize("path", PATHS)
def test_a_host_stores_as_numpy_does(path):
    every = EVERY[:0x7C00].astype(np.float32)
    between = (every[1:] + every[:-1]) / 2
    values = np.concatenate(
        [every, between, np.nextafter(between, np.float32(0)), np.nextafter(between, np.float32(9e9))]
    )
    odd = np.array([65519.99, 65520.0, 1e30, 1e-30, 2.0**-25, 2.0**-26, 2.0**-149, np.inf, np.nan], np.float32)
    bits = np.random.default_rng(19).integers(0, 2**32, 100_000, np.uint64).astype(np.uint32).view(np.float32)
    values = np.concatenate([values, odd, bits])
    values = np.concatenate([values, -values])
    with np.errstate(all="ignore"):
        bits_equal(native.stored(values, path=path), values.astype(np.float16))


def test_tables_and_rows_that_lie_apart():
    rng = np.random.default_rng(18)
    table, matrix = EVERY[rng.permutation(65536)], EVERY[rng.integers(0, 65536, (6, 40))]
    bits_equal(native.looked_up(table, matrix[:, ::3]), table[matrix[:, ::3].view(np.uint16)])
    for some in (matrix[:, 5:31], matrix[::2], matrix.T, matrix[0], matrix[::-1]):
        bits_equal(native.operands(some), decoded(np.ascontiguousarray(some)).astype(np.float32))


# Use.


def test_products_are_settled_sums():
    rng = np.random.default_rng(9)
    for rows, depth, columns in SIZES:
        a, b = halves(rng, (rows, depth), (8, 18)), halves(rng, (depth, columns), (8, 18))
        for bias in (None, halves(rng, columns, (0, 32)), halves(rng, (rows, 1), (0, 32))):
            want = accumulate_plain(a, b, bias).settled_plain()
            for path in PATHS:
                bits_equal(native.products(a, b, bias, path=path, workers=2), want, f"{rows} {depth} {columns}")


def test_convolutions_are_the_same_without_it(monkeypatch):
    rng = np.random.default_rng(8)
    x, kernel, bias = (rng.standard_normal(shape).astype(np.float16) for shape in ((6, 12, 11), (8, 3, 3, 3), (8,)))

    def both():
        matrices = list(kernel.reshape(2, 4, -1))
        yield convolution.direct(x, matrices, bias, Window((3, 3), before=(1, 2)), products)
        yield convolution.winograd(x, convolution.winograd_kernels(kernel, 2), bias)

    found = list(both())
    monkeypatch.setenv("ANEFORGE_NATIVE", "0")
    native.settings.cache_clear()
    for one, other in zip(found, both(), strict=True):
        bits_equal(one, other)


def test_bands_of_rows_are_the_whole(monkeypatch):
    rng = np.random.default_rng(10)
    x, kernel = (rng.standard_normal(shape).astype(np.float16) for shape in ((4, 13, 9), (5, 4, 3, 3)))
    window = Window((3, 3), stride=(2, 1), before=(1, 1), after=(1, 1))

    def both():
        yield convolution.direct(x, [kernel.reshape(5, -1)], None, window, products)
        yield convolution.winograd(x, convolution.winograd_kernels(kernel), None)

    whole = list(both())
    for size in (1, 700):
        monkeypatch.setattr(convolution, "_BAND", size)
        for one, other in zip(both(), whole, strict=True):
            bits_equal(one, other)


@pytest.fixture(autouse=True)
def _read_the_environment_again():
    native.settings.cache_clear()
    yield
    native.settings.cache_clear()


def test_it_can_be_turned_off(monkeypatch):
    def refused(*_):
        raise AssertionError("the native form was taken")

    monkeypatch.setenv("ANEFORGE_NATIVE", "0")
    native.settings.cache_clear()
    monkeypatch.setattr(native, "accumulate", refused)
    assert not native.available()
    assert "ANEFORGE_NATIVE" in native.why_not()
    assert accumulate(np.ones((1, 2), np.float16), np.ones((2, 1), np.float16)).units.tolist() == [[131072.0]]


def test_threads_and_paths_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("ANEFORGE_THREADS", "3")
    native.settings.cache_clear()
    assert native.threads() == 3
    monkeypatch.setenv("ANEFORGE_THREADS", "none")
    native.settings.cache_clear()
    with pytest.raises(AneforgeError, match="ANEFORGE_THREADS"):
        native.threads()
    monkeypatch.delenv("ANEFORGE_THREADS")
    native.settings.cache_clear()
    assert native.threads() >= 1
    one = np.ones((1, 1), np.float16)
    for path in PATHS:
        monkeypatch.setenv("ANEFORGE_NATIVE_PATH", path)
        native.settings.cache_clear()
        assert native.accumulate(one, one).units == 65536.0
    monkeypatch.setenv("ANEFORGE_NATIVE_PATH", "abacus")
    native.settings.cache_clear()
    with pytest.raises(AneforgeError, match="abacus"):
        native.accumulate(one, one)


def test_shapes_and_types_are_checked():
    one = np.ones((2, 2), np.float16)
    for a, b in ((one, np.ones((3, 2), np.float16)), (one, np.ones((2, 2), np.float32))):
        with pytest.raises(AneforgeError, match="fp16"):
            native.accumulate(a, b)


def test_nothing_is_loaded_at_import():
    code = "import aneforge.sim.native.library as n; print(n._loaded.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


FORKED = """
import os, threading
import numpy as np
from aneforge.sim import native

rng = np.random.default_rng(0)
a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((300, 200), (200, 500)))
want = native.products(a, b, workers=1).tobytes()
assert native.products(a, b, workers=3).tobytes() == want
child = os.fork()
if child == 0:
    os._exit(0 if all(native.products(a, b, workers=3).tobytes() == want for _ in range(20)) else 1)
assert os.waitpid(child, 0)[1] == 0
wrong = []

def many():
    for count in (1, 2, 4, 3) * 10:
        if native.products(a, b, workers=count).tobytes() != want:
            wrong.append(count)

crowd = [threading.Thread(target=many) for _ in range(4)]
for each in crowd:
    each.start()
for each in crowd:
    each.join()
assert not wrong
print("same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_waiting_threads_survive_a_fork_and_a_crowd():
    """A forked process has none of the threads; callers that come at the same time do not share them."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "same"), done.stderr
