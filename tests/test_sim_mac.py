"""The multiply-accumulate path against silicon: printed norms, single-value probes, and a big-integer model."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aneforge.sim.half import decoded, exponents, round_half, round_half_twice
from aneforge.sim.mac import products

HALVES = np.arange(65536, dtype=np.uint16).view(np.float16)
FINITE = HALVES[np.isfinite(HALVES)].astype(np.float64)


def half(*values):
    return np.array(values, np.float16)


# Rounding.


def away(value: Fraction) -> float:
    """The nearest fp16 number by exact search among all of them, ties away from zero."""
    size = abs(value)
    grid = np.unique(np.abs(FINITE))
    place = int(np.searchsorted(grid, float(size)))
    near = [Fraction(float(grid[i])) for i in (place - 1, place, place + 1) if 0 <= i < len(grid)]
    best = min(near, key=lambda each: (abs(each - size), -each))
    if size > 65504 and size - 65504 >= 16:
        return float("inf") if value > 0 else float("-inf")
    return float(best) if value >= 0 else -float(best)


@given(st.floats(-70000, 70000, allow_nan=False))
def test_rounding_is_to_the_nearest_with_ties_away(value):
    assert float(round_half(np.array([value]))[0]) == away(Fraction(value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(2049, 2050), (-2049, -2050), (4098, 4100), (1 + 2**-11, 1 + 2**-10), (65504, 65504), (65519.9, 65504)],
)
def test_published_ties(value, expected):
    """N14: measured on M4 and M6."""
    assert round_half(np.array([float(value)]))[0] == expected


def test_every_half_is_itself():
    np.testing.assert_array_equal(round_half(FINITE), FINITE)
    np.testing.assert_array_equal(round_half_twice(FINITE), FINITE)


def test_small_elementwise_results_are_rounded_twice():
    """N53: 855.326 steps of 2^-24 become 855.5 in 11 bits and then 856."""
    value = np.array([855.326 * 2.0**-24])
    assert round_half_twice(value)[0] == 856 * 2.0**-24
    assert round_half(value)[0] == 855 * 2.0**-24


def test_exponents_count_subnormals_as_the_smallest_normal():
    values = half(1.0, 2.0**-14, 2.0**-15, 2.0**-24, 0.0, 1.99, 65504)
    assert exponents(values).tolist() == [0, -14, -14, -14, -14, 0, 15]


# Fingerprints: seeded error norms printed by real machines.


@pytest.mark.parametrize(
    ("size", "norm"),
    [(512, 0.00257800397023792), (1024, 0.005528352999597525)],
)
def test_gemm_gives_the_printed_norm(size, norm):
    """numerics_train.json: M1, M1 Max, M2 Pro, M5 and M5 Pro print these digits."""
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal((size, size)).astype(np.float32) / np.float32(np.sqrt(size)) for _ in range(2))
    rows = min(size, 256)
    found = products(x[:rows].astype(np.float16), np.ascontiguousarray(weight.astype(np.float16).T))
    want = (x.astype(np.float64) @ weight.astype(np.float64).T)[:rows]
    error = np.linalg.norm(found.astype(np.float64) - want) / np.linalg.norm(want)
    assert error == pytest.approx(norm, rel=1e-12)


def test_a_small_rectangular_product_gives_its_norm():
    """N55: 64 x 256 x 256."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 256)).astype(np.float32) / np.sqrt(256)
    weight = rng.standard_normal((256, 256)).astype(np.float32) / np.sqrt(256)
    found = products(x.astype(np.float16), np.ascontiguousarray(weight.astype(np.float16).T))
    want = x.astype(np.float64) @ weight.astype(np.float64).T
    error = np.linalg.norm(found.astype(np.float64) - want) / np.linalg.norm(want)
    assert error == pytest.approx(0.001252285452717, rel=1e-12)


# Probes.


def dot(terms, weights=None, bias=None):
    a = np.array([terms], np.float16)
    b = np.ones((len(terms), 1), np.float16) if weights is None else np.array(weights, np.float16).reshape(-1, 1)
    return float(products(a, b, None if bias is None else half(bias))[0, 0])


def test_small_terms_survive_between_large_ones():
    """N10: a one between +-2048 is kept in any position."""
    for place in range(3):
        terms = [2048.0, -2048.0]
        terms.insert(place, 1.0)
        assert dot(terms) == 1.0


def test_products_are_kept_or_dropped_by_the_sum_of_exponents():
    """N11: measured on the M6."""
    assert dot([1.99 * 2.0**-3], [1.99 * 2.0**-14]) == 0.0
    assert dot([0.125], [1.5 * 2.0**-13]) == 2 * 2.0**-16
    assert dot([2.0**-8], [2.0**-8]) == 2.0**-16
    assert dot([2.0**-8], [2.0**-9]) == 0.0


def test_the_ceiling_is_sticky():
    """N04: infinite at 32768, even when later terms cancel; finite just below."""
    assert dot([32752.0]) == 32752.0
    assert dot([16384.0, 16384.0]) == float("inf")
    assert dot([16384.0, 16384.0, -16384.0]) == float("inf")
    assert dot([-16384.0, -16384.0, 16384.0]) == float("-inf")
    assert dot([16384.0, -16384.0, 16384.0]) == 16384.0
    assert dot([512.0], [64.0]) == float("inf")
    assert dot([33280.0]) == float("inf")
    assert dot([32400.0]) == 32400.0


def test_ones_sum_exactly():
    assert dot([1.0] * 16384) == 16384.0


def test_the_bias_is_the_start_value():
    """N12: inside the same range."""
    assert dot([1.0], bias=0.5) == 1.5
    assert dot([16384.0], bias=16384.0) == float("inf")
    assert dot([-16384.0], bias=32752.0) == 16368.0
    assert dot([0.0], bias=2.0**-17) == 2.0**-16  # away from zero on the accumulator's grid


def test_special_operands_are_large_numbers():
    """N31, N32: infinity overflows, zero times infinity is zero, no NaN ever comes out."""
    assert dot([np.inf]) == float("inf")
    assert dot([-np.inf]) == float("-inf")
    assert dot([np.nan]) == float("inf")
    assert dot([np.inf], [0.0]) == 0.0
    assert decoded(half(np.inf))[0] == 65536.0
    assert np.signbit(dot([-0.0])) == np.False_


# A slow model in whole numbers.


def reference(a, b, bias=None):
    result = np.zeros((a.shape[0], b.shape[1]))
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = 0 if bias is None else nearest(Fraction(float(bias[j])) * 65536)
            gone = 0.0
            for k in range(a.shape[1]):
                x, y = float(a[i, k]), float(b[k, j])
                if exponent(x) + exponent(y) > -17:
                    total += nearest(Fraction(x) * Fraction(y) * 65536)
                if abs(total) >= 32768 * 65536 and not gone:
                    gone = float("inf") if total > 0 else float("-inf")
            result[i, j] = gone or away(Fraction(total, 65536))
    return result


def nearest(value: Fraction) -> int:
    size = abs(value)
    whole = (2 * size.numerator + size.denominator) // (2 * size.denominator)
    return whole if value >= 0 else -whole


def exponent(value: float) -> int:
    return -14 if abs(value) < 2.0**-14 else int(np.floor(np.log2(abs(value))))


FIELD = st.floats(-300, 300, width=16, allow_nan=False)


@settings(max_examples=40)
@given(
    a=hnp.arrays(np.float16, (2, 5), elements=FIELD),
    b=hnp.arrays(np.float16, (5, 3), elements=FIELD),
    bias=hnp.arrays(np.float16, (3,), elements=FIELD),
)
def test_random_products_equal_a_model_in_whole_numbers(a, b, bias):
    np.testing.assert_array_equal(products(a, b, bias).astype(np.float64), reference(a, b, bias))
