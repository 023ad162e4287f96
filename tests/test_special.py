"""The functions of aneforge.special on every fp16 argument, with every node of their graph rounded to fp16."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import aneforge as af
from aneforge import special
from aneforge.chips import Family, op_status
from aneforge.compiler.legal.bounds import BOUNDS
from aneforge.graph import Graph, Tensor, evaluate

ALL = np.arange(65536, dtype=np.uint16).view(np.float16)
FINITE = ALL[np.isfinite(ALL)].astype(np.float64)
UNIT = FINITE[np.abs(FINITE) <= 1]

# argument values and the true function
CASES = {
    "sin": (FINITE, np.sin),
    "cos": (FINITE, np.cos),
    "tan": (FINITE, np.tan),
    "asin": (UNIT, np.arcsin),
    "acos": (UNIT, np.arccos),
    "sinh": (FINITE, np.sinh),
    "cosh": (FINITE, np.cosh),
    "asinh": (FINITE, np.arcsinh),
    "acosh": (FINITE[FINITE >= 1], np.arccosh),
    "atanh": (UNIT, np.arctanh),
}


# The evaluator: an engine that rounds every result to fp16 and has nothing wider in between.


def half_even(x):
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float64)


def _away(x, lowest):
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.frexp(np.abs(x))[1] - 1, lowest)
        unit = np.ldexp(1.0, exponent - 10)
        return np.where(np.isfinite(x), np.copysign(np.floor(np.abs(x) / unit + 0.5) * unit, x), x)


def half_away(x):
    rounded = _away(x, -14)
    return np.where(np.abs(rounded) > 65504, np.copysign(np.inf, rounded), rounded)


def chip(x):
    """The measured elementwise path (N53): half away, a subnormal result rounded to 11 bits first."""
    return half_away(_away(x, -60))


ROUNDINGS = {"half_even": half_even, "half_away": half_away, "chip": chip}


def run16(out: Tensor, feeds: dict[Tensor, np.ndarray], rounding):
    """The graph's value with every node rounded."""
    values = {tensor.uid: np.asarray(value, np.float64) for tensor, value in feeds.items()}
    for each in Graph([out]).nodes:
        if each.uid in values:
            continue
        if each.weight is not None:
            values[each.uid] = each.weight.array.astype(np.float64)
            continue
        with np.errstate(all="ignore"):
            raw = each.definition.reference(*[values[o.uid] for o in each.inputs], **dict(each.signature.attrs))
        values[each.uid] = raw if each.dtype == "bool" else rounding(np.asarray(raw, np.float64))
    return values[out.uid]


def ordinal(x):
    """fp16 numbers as whole numbers in order, both zeros as 0."""
    with np.errstate(over="ignore"):
        bits = x.astype(np.float16).view(np.uint16).astype(np.int64)
    return np.where(bits & 0x8000, -(bits & 0x7FFF), bits)


def ulps(found, true):
    """Distance from the correctly rounded result in fp16 numbers; two NaNs agree, one does not."""
    expected = half_even(true)
    distance = np.abs(ordinal(found) - ordinal(expected))
    lone = np.isnan(found) != np.isnan(expected)
    return np.where(lone, 99999, np.where(np.isnan(found), 0, distance))


def pairs(count: int, seed: int):
    """Points for atan2: any bit pattern, ordinary sizes, and nearly diagonal ones."""
    draw = np.random.default_rng(seed)
    a, b = draw.choice(FINITE, count), draw.choice(FINITE, count)
    half = count // 2
    a[half:], b[half:] = half_even(draw.normal(size=count - half)), half_even(draw.normal(size=count - half))
    near = draw.random(count) < 0.2
    b[near] = half_even(np.clip(a[near] * draw.uniform(-4, 4, near.sum()), -65504, 65504))
    a[:200], b[100:300] = 0.0, 0.0
    return a + 0.0, b + 0.0  # zeros without a sign


def test_the_evaluator_rounds_as_it_says():
    values = np.array([2049.0, -2049.0, 1 + 2.0**-11, 65519.0, 65520.0, 855.326 * 2.0**-24, 0.0, np.nan])
    even = [2048, -2048, 1, 65504, np.inf, 855 * 2.0**-24, 0, np.nan]
    away = [2050, -2050, 1 + 2.0**-10, 65504, np.inf, 855 * 2.0**-24, 0, np.nan]
    np.testing.assert_array_equal(half_even(values), even)
    np.testing.assert_array_equal(half_away(values), away)
    away[5] = 856 * 2.0**-24  # the example of N53
    np.testing.assert_array_equal(chip(values), away)
    np.testing.assert_array_equal(half_away(FINITE), FINITE)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", CASES)
def test_every_fp16_argument_within_the_stated_ulps(name, rounding):
    arguments, true = CASES[name]
    x = af.input((len(arguments),))
    with np.errstate(all="ignore"):
        distance = ulps(run16(getattr(special, name)(x), {x: arguments}, ROUNDINGS[rounding]), true(arguments))
    stated = BOUNDS[name].ulp
    assert stated is not None
    assert stated <= 2
    assert distance.max() <= stated, f"{name}({arguments[distance.argmax()]}) is {distance.max()} ulp off"


@pytest.mark.parametrize("name", CASES)
def test_float64_error_is_as_stated(name):
    arguments, true = CASES[name]
    x = af.input((len(arguments),))
    with np.errstate(all="ignore"):
        expected, found = true(arguments), evaluate(getattr(special, name)(x), [arguments])
        inside = np.abs(expected) <= 65504  # beyond, fp16 has no number for the result
        error = np.abs(found - expected)[inside]
    if BOUNDS[name].relative:
        error = error / np.maximum(np.abs(expected[inside]), 1e-300)
    assert error.max() <= BOUNDS[name].float64


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_between_fp16_numbers_and_without_end(name):
    draw = np.random.default_rng(7)
    angles = np.concatenate([draw.uniform(-50, 50, 20000), draw.uniform(-65504, 65504, 20000)])
    x = af.input(angles.shape)
    true = getattr(np, name)(angles)
    error = np.abs(evaluate(getattr(special, name)(x), [angles]) - true)
    scale = np.maximum(1, true * true) if name == "tan" else 1  # a tangent's slope is 1 + tan^2
    assert (error / scale).max() < 2e-6 * (4 if name == "tan" else 1)
    x = af.input((3,))
    with np.errstate(all="ignore"):
        assert np.isnan(run16(getattr(special, name)(x), {x: np.array([np.inf, -np.inf, np.nan])}, half_even)).all()


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_atan2_on_many_points(rounding):
    a, b = pairs(200_000, seed=len(rounding))
    ta, tb = af.input(a.shape), af.input(b.shape)
    out = special.atan2(ta, tb)
    assert ulps(run16(out, {ta: a, tb: b}, ROUNDINGS[rounding]), np.arctan2(a, b)).max() <= BOUNDS["atan2"].ulp
    assert np.abs(evaluate(out, [a, b]) - np.arctan2(a, b)).max() <= BOUNDS["atan2"].float64


def test_atan2_on_the_axes():
    a = np.array([0.0, 0.0, 0.0, 1.0, -1.0, 1.0, -1.0, 65504.0, 6e-8])
    b = np.array([0.0, 2.0, -2.0, 0.0, 0.0, -1.0, -1.0, -65504.0, 65504.0])
    ta, tb = af.input(a.shape), af.input(b.shape)
    for rounding in ROUNDINGS.values():
        assert ulps(run16(special.atan2(ta, tb), {ta: a, tb: b}, rounding), np.arctan2(a, b)).max() <= 1


def test_ends_of_the_domains():
    x = af.input((3,))
    ends = np.array([-1.0, 0.0, 1.0])
    np.testing.assert_allclose(evaluate(special.asin(x), [ends]), np.arcsin(ends))
    np.testing.assert_allclose(evaluate(special.acos(x), [ends]), np.arccos(ends))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(evaluate(special.atanh(x), [ends]), [-np.inf, 0, np.inf])
        assert np.isnan(evaluate(special.asin(x), [ends * 2])[[0, 2]]).all()
        assert np.isnan(evaluate(special.acosh(x), [ends - 1.5])).all()


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_mod_of_fp16_numbers(rounding):
    draw = np.random.default_rng(3)
    a = half_even(draw.normal(size=50000) * 100)
    b = half_even(draw.normal(size=50000))
    b[np.abs(a) > 2000 * np.abs(b)] = 3.0
    ta, tb = af.input(a.shape), af.input(b.shape)
    out, true = special.mod(ta, tb), np.mod(a, b)
    np.testing.assert_allclose(evaluate(out, [a, b]), true, rtol=1e-12)
    found = run16(out, {ta: a, tb: b}, ROUNDINGS[rounding])
    error = np.abs(found - true)
    error = np.minimum(error, np.abs(np.abs(b) - error))  # a remainder of nearly b is nearly 0
    assert (error <= np.spacing(np.maximum(np.abs(a), np.abs(b)).astype(np.float16)).astype(np.float64)).all()
    assert (np.abs(found) <= np.abs(b)).all()


def test_mod_of_whole_numbers_is_exact():
    a, b = (each.reshape(-1) for each in np.meshgrid(np.arange(-2048.0, 2049, 7), [-2047, -10, -3, 1, 2, 7, 64, 1000]))
    ta, tb = af.input(a.shape), af.input(b.shape)
    for rounding in ROUNDINGS.values():
        np.testing.assert_array_equal(run16(special.mod(ta, tb), {ta: a, tb: b}, rounding), np.mod(a, b))


def test_logic():
    values = np.array([[0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0]])
    a, b = af.input((4,)), af.input((4,))
    p, q = a.greater(0.5), b.greater(0.5)
    for name in ("logical_and", "logical_or", "logical_xor"):
        expected = getattr(np, name)(*(values > 0.5))
        for rounding in ROUNDINGS.values():
            found = run16(getattr(special, name)(p, q), {a: values[0], b: values[1]}, rounding)
            assert found.dtype == bool
            np.testing.assert_array_equal(found, expected)


# Functions with a stated range and error.


def true_functions():
    from scipy import special as true

    bessel = {"bessel_j0": true.j0, "bessel_i0": true.i0, "bessel_k0": true.k0}
    wide = {"exp_wide": np.exp, "log_wide": np.log, "gamma_via_lgamma": true.gamma, "lgamma": true.gammaln}
    return {**bessel, **wide, **{name: getattr(true, name) for name in ("erf", "erfc", "expm1", "log1p", "gamma")}}


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", special.STATED)
def test_every_fp16_argument_of_the_range_within_the_stated_steps(name, rounding):
    stated = special.STATED[name]
    arguments = FINITE[(stated.low <= FINITE) & (stated.high >= FINITE)]
    x = af.input((len(arguments),))
    found = run16(getattr(special, name)(x), {x: arguments}, ROUNDINGS[rounding])
    with np.errstate(all="ignore"):
        true = half_even(true_functions()[name](arguments))
        step = np.spacing(np.maximum(np.abs(true), stated.least).astype(np.float16)).astype(np.float64)
        distance = np.where(found == true, 0, np.abs(found - true) / step)
    worst = np.argmax(np.where(np.isnan(distance), np.inf, distance))
    assert distance[worst] <= stated.steps, f"{name}({arguments[worst]}) is {found[worst]}, not {true[worst]}"
    if rounding == "chip":
        assert np.ceil(distance[worst]) == stated.steps, "the stated bound is what was measured, and no more"


@pytest.mark.parametrize("name", special.STATED)
def test_stated_functions_run_on_a_chip(name):
    stated = special.STATED[name]
    arguments = half_even(np.linspace(max(stated.low, -3), min(stated.high, 6), 64)[1:])
    x = af.input((len(arguments),))
    found = af.compile(getattr(special, name)(x), target="m2")(arguments)
    true = true_functions()[name](arguments)
    np.testing.assert_allclose(found, true, rtol=0.02, atol=0.02)


FUNCTIONS = [
    name
    for name, function in vars(special).items()
    if inspect.isfunction(function)
    and function.__module__ == special.__name__
    and not name.startswith(("_", "logical"))
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_ops_that_every_family_has(name):
    x = af.input((4,))
    out = getattr(special, name)(x, x) if name in ("atan2", "mod") else getattr(special, name)(x)
    used = {each.definition.gate_name for each in Graph([out]).operations}
    for family in (Family.A13, Family.A14, Family.A15, Family.A16):
        assert {op for op in used if op_status(op, family) != "native"} == set()
