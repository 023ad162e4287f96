"""Convolutions and activation tables against what real machines print."""

from __future__ import annotations

import math

import numpy as np
import pytest

import aneforge as af
from aneforge.sim import convolution
from aneforge.sim.convolution import winograd_fits, winograd_kernels
from aneforge.sim.half import Window
from aneforge.sim.mac import products
from aneforge.sim.tables import activation, constructed, look_up

erf = np.vectorize(math.erf)


def direct(x, kernel, bias=None, groups=1, **window):
    matrices = list(kernel.reshape(groups, kernel.shape[0] // groups, -1))
    return convolution.direct(x, matrices, bias, Window(kernel.shape[2:], **window), products)


def winograd(x, kernel, bias=None, groups=1):
    return convolution.winograd(x, winograd_kernels(kernel, groups), bias)


def seeded(channels, images=8):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((images, channels, 64, 64)).astype(np.float32)[0]
    weight = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32) * np.sqrt(2.0 / (9 * channels))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    columns = np.stack([padded[:, i : i + 64, j : j + 64] for i in range(3) for j in range(3)], 1)
    want = weight.reshape(channels, -1).astype(np.float64) @ columns.reshape(channels * 9, -1).astype(np.float64)
    return padded.astype(np.float16), weight.astype(np.float16), want.reshape(channels, 64, 64)


def norm(found, want):
    return np.linalg.norm(found.astype(np.float64) - want) / np.linalg.norm(want)


@pytest.mark.parametrize(("form", "printed"), [(direct, 0.0003671660721201), (winograd, 0.0005162338465671)])
def test_a_3x3_convolution_gives_the_printed_norm(form, printed):
    """numerics_train.json, C64 on 64 x 64: direct on M1 and M1 Max, Winograd on M5."""
    x, weight, want = seeded(64)
    assert norm(form(x, weight), want) == pytest.approx(printed, rel=1e-12)


def test_a_convolution_and_its_relu_give_the_printed_norm():
    """N56: 16 to 64 channels on 32 x 32, relu after the rounding."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 16, 32, 32)).astype(np.float32)[0]
    weight = rng.standard_normal((64, 16, 3, 3)).astype(np.float32) * np.sqrt(2.0 / (9 * 16))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    columns = np.stack([padded[:, i : i + 32, j : j + 32] for i in range(3) for j in range(3)], 1)
    want = (weight.reshape(64, -1).astype(np.float64) @ columns.reshape(144, -1).astype(np.float64)).reshape(
        64, 32, 32
    )
    want = np.maximum(want, 0)
    for form, printed in ((direct, 0.0003663655858424), (winograd, 0.0005102488034377)):
        found = np.maximum(form(padded.astype(np.float16), weight.astype(np.float16)), 0)
        assert norm(found, want) == pytest.approx(printed, rel=1e-9)


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8])
def test_winograd_is_the_convolution_up_to_its_roundings(columns):
    rng = np.random.default_rng(columns)
    x = rng.integers(-4, 5, (4, 6, columns + 2)).astype(np.float16)
    weight = (2 * rng.integers(-3, 4, (6, 2, 3, 3))).astype(np.float16)
    bias = rng.integers(-9, 9, 6).astype(np.float16)
    # Small even whole numbers make every transform exact, so both forms agree to the bit.
    np.testing.assert_array_equal(winograd(x, weight, bias, groups=2), direct(x, weight, bias, groups=2))


def test_which_convolutions_take_the_winograd_form():
    assert winograd_fits(Window((3, 3)))
    assert winograd_fits(Window((3, 3), before=(1, 1), after=(1, 1)))
    assert not winograd_fits(Window((3, 3), stride=(2, 2)))
    assert not winograd_fits(Window((3, 3), dilation=(2, 2)))
    assert winograd_fits(Window((1, 3)))  # C76: kernel width and stride, along one axis only


@pytest.mark.parametrize(
    ("size", "stride", "label"),
    [
        ((3, 3), 1, "exact"),  # N56: digits
        *[((1, 3), 1, "modelled"), ((5, 3), 1, "modelled"), ((5, 5), 2, "modelled"), ((6, 6), 2, "modelled")],
        *[((5, 5), 1, "exact"), ((3, 3), 2, "exact"), ((1, 1), 1, "exact")],
    ],
)
def test_only_three_by_three_winograd_is_exact(size, stride, label):
    """C76: (3,1), (5,2) and (6,2) may run as Winograd from H17 on; digits are known for one of them."""
    x = af.input((1, 4, 12, 12), name="x")
    out = af.conv(x, np.ones((4, 4, *size)), stride=stride)
    assert af.compile(out, target="m5").run({"x": np.ones(x.shape)}).fidelity == {label: 1}
    assert af.compile(out, target="m4").run({"x": np.ones(x.shape)}).fidelity == {"exact": 1}


def test_int8_kernels_before_fp16_activations_take_no_winograd_form():
    """C76: 8-bit kernels only with 8-bit activations. The direct sums of an M4 come out on an M5."""
    rng = np.random.default_rng(76)
    x = af.input((1, 4, 8, 8), name="x")
    stored = af.Encoded.affine(rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8), 0.01)
    data = {"x": rng.normal(size=x.shape)}
    for weight, same in ((stored, True), (stored.decode(), False)):
        old, new = (af.compile(af.conv(x, weight), target=chip).run(data).outputs["conv_0"] for chip in ("m4", "m5"))
        assert (old == new).all() == same


def test_strides_dilations_and_groups_are_those_of_a_convolution():
    rng = np.random.default_rng(7)
    x = rng.integers(-4, 5, (4, 11, 13)).astype(np.float16)
    weight = rng.integers(-3, 4, (6, 2, 3, 2)).astype(np.float16)
    found = direct(x, weight, stride=(2, 3), dilation=(2, 1), groups=2)
    want = np.zeros((6, 4, 4))
    for o in range(6):
        for i in range(4):
            for j in range(4):
                group = o // 3
                patch = x[2 * group : 2 * group + 2, 2 * i : 2 * i + 5 : 2, 3 * j : 3 * j + 2]
                want[o, i, j] = (patch.astype(np.float64) * weight[o]).sum()
    np.testing.assert_array_equal(found, want)


# Activation tables: worst errors over a dense grid, as printed for the M6.


def errors(name, low, high, exact, geometric=False, **parameters):
    grid = (np.geomspace if geometric else np.linspace)(low, high, 524288).astype(np.float16)
    x = np.unique(grid)
    found = look_up(activation(name, tuple(parameters.items())), x).astype(np.float64)
    want = exact(x.astype(np.float64))
    error = np.abs(found - want)
    exponent = np.maximum(np.floor(np.log2(np.maximum(np.abs(want), 1e-300))), -14)
    return error.max(), (error / 2.0 ** (exponent - 10)).max()


@pytest.mark.parametrize(
    ("name", "span", "exact", "worst", "ulp", "parameters"),
    [
        ("sigmoid", (-12, 12), lambda z: 1 / (1 + np.exp(-z)), 0.0034, 810.8, {}),
        ("tanh", (-6, 6), np.tanh, 0.0016, 11.0, {}),
        ("gelu", (-8, 8), lambda z: 0.5 * z * (1 + erf(z / math.sqrt(2))), 0.0062, None, {}),
        ("swish", (-12, 12), lambda z: z / (1 + np.exp(-z)), 0.015, None, {}),
        ("erf", (-2, 2), erf, 0.00086, None, {}),
        ("exp2", (-12, 10), np.exp, None, 9.1, {"base_e": 1.0}),
        ("log2", (2**-10, 1000), np.log, 0.0066, None, {"base_e": 1.0}),
        ("sqrt", (2**-10, 1000), np.sqrt, None, 1.2, {}),
        ("r_sqrt", (2**-10, 1000), lambda z: z**-0.5, None, 2.1, {}),
        ("invert", (2**-6, 100), lambda z: 1 / z, None, 13.5, {"epsilon": 1e-4}),
    ],
)
def test_tables_have_the_printed_errors(name, span, exact, worst, ulp, parameters):
    """N40, to the digits that are printed."""
    assert constructed(name) or name in ("gelu", "swish")  # fits, which are not exact
    found, found_ulp = errors(name, *span, exact, geometric=span[0] > 0, **parameters)
    if worst is not None:
        assert found == pytest.approx(worst, rel=0.05)
    if ulp is not None:
        assert found_ulp == pytest.approx(ulp, rel=0.05)


def test_gelu_gives_its_published_worst_error_to_four_digits():
    """N59: 6.159e-3."""
    found, _ = errors("gelu", -8, 8, lambda z: 0.5 * z * (1 + erf(z / math.sqrt(2))))
    assert found == pytest.approx(6.159e-3, abs=5e-7)


def test_gelu_gives_the_printed_norm():
    """numerics_train.json, gelu [256, 4096] on M1, M1 Max and M5; N59 claims 1.4e-4 relative."""
    x = np.random.default_rng(11).standard_normal((256, 4096)).astype(np.float32)
    found = look_up(activation("gelu"), x.astype(np.float16))
    want = x * 0.5 * (1.0 + np.tanh(np.sqrt(2 / np.pi) * (x + np.float32(0.044715) * x**3)))
    assert norm(found, want) == pytest.approx(0.002399125839985, rel=1e-3)


def test_special_values():
    """N31 to N33, N43: NaN as +inf, indeterminate forms as +0, collapses."""

    def one(name, value, **parameters):
        return float(look_up(activation(name, tuple(parameters.items())), np.array([value], np.float16))[0])

    assert one("sigmoid", np.nan) == 1.0
    assert one("tanh", np.nan) == 1.0
    assert one("erf", np.nan) == 1.0
    assert one("exp2", np.nan, base_e=1.0) == np.inf
    assert one("sqrt", -1.0) == one("r_sqrt", -1.0) == one("log2", -1.0, base_e=1.0) == 0.0
    assert one("invert", -0.0) == np.inf
    assert one("log2", 0.0, base_e=1.0) == -45440.0
    assert one("exp2", 11.1, base_e=1.0) == np.inf
    assert np.isfinite(one("exp2", 11.08, base_e=1.0))
    assert not np.isnan(activation("gelu")).any()
