"""Any function of one number by its knots: the table comes back to the bit, on every chip."""

from __future__ import annotations

import numpy as np
import pytest

import aneforge as af
from aneforge.graph.reference import gradients

CHIPS = ("m1", "m2", "m3", "m4", "m5", "m6", "h11", "h14c", "h15", "h16s", "h17d", "h18")
KNOTS = np.linspace(-4, 4, 33)
BUMP = np.exp(-np.square(KNOTS))
pytestmark = pytest.mark.filterwarnings("ignore::aneforge.cost.estimate.DispatchFloorWarning")


def halves(numbers):
    return np.asarray(numbers, np.float64).astype(np.float16)


def at_knots(knots, values, chip):
    """What a chip gives at the knots."""
    x = af.input((1, len(knots)), name="x")
    return af.compile(af.pwl(x, knots, values), target=chip)(halves(knots)[None], dtype="float16")[0]


@pytest.mark.parametrize("chip", CHIPS)
def test_the_gaussian_bump(chip):
    """Chapter 26: 33 knots, a function that no named activation has; the ends are subnormal numbers."""
    result = at_knots(KNOTS, BUMP, chip)
    assert result.tobytes() == halves(BUMP).tobytes()
    assert 0 < result[0] < 2.0**-20


def test_between_the_knots_and_outside():
    x = af.input((1, 1001), name="x")
    model = af.compile(af.pwl(x, list(KNOTS), list(BUMP)), target="m5")
    given = np.linspace(-6, 6, 1001).astype(np.float16)
    result = model(given[None])[0]
    wanted = np.interp(given.astype(np.float64), KNOTS, BUMP)
    # one ramp at a time is between its ends: its place is rounded to 11 bits, and so is the result
    np.testing.assert_allclose(result, wanted, rtol=2.0**-10, atol=2.0**-10 * np.abs(np.diff(BUMP)).max())
    assert set(result[given < -4]) == {float(halves(BUMP)[0])}
    assert set(result[given > 4]) == {float(halves(BUMP)[-1])}


@pytest.mark.parametrize("seed", range(25))
def test_random_tables(seed):
    rng = np.random.default_rng(seed)
    knots = np.unique(halves(rng.normal(0, 10 ** rng.uniform(-2, 3), rng.integers(2, 60))))
    values = halves(rng.normal(0, 10 ** rng.uniform(-2, 3), len(knots)))
    for chip in ("m1", "m2", "m5"):
        np.testing.assert_array_equal(at_knots(knots, values, chip), values)


@pytest.mark.parametrize(
    ("knots", "values"),
    [
        ([0, 2**-14], [0, 1]),
        ([0, 2**-24], [-100, 100]),
        ([1000, 1000.5], [0, 60000]),
        ([-60000, 0], [1, 2]),
        ([0, 1, 2], [60000, -60000, 60000]),
        ([0, 1, 2], [2**-24, 2**-23, 2**-14]),
        ([0, 1], [0, 0]),
        (list(range(33)), [(-1) ** place for place in range(33)]),
    ],
)
@pytest.mark.parametrize("chip", ["m1", "m2", "m5"])
def test_steep_wide_and_tiny_tables(knots, values, chip):
    np.testing.assert_array_equal(at_knots(knots, values, chip), halves(values))


def test_every_shape_is_taken():
    for shape in ((5,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 2, 3, 4, 5)):
        x = af.input(shape, name="x")
        given = np.random.default_rng(0).uniform(-2, 2, shape).astype(np.float16)
        out = af.pwl(x, [-1, 0, 1], [1, 0, 1])
        assert out.shape == shape
        wanted = np.minimum(np.abs(given), 1)  # between knots, the place in a stretch has 11 bits
        np.testing.assert_allclose(af.compile(out, target="m1")(given), wanted, rtol=0, atol=2.0**-11)


def test_a_tensor_that_is_no_plane_of_a_chip():
    """1024 x 32 rows are more than the height of any chip."""
    shape = (1, 1024, 32, 2)
    given = np.linspace(-2, 2, 65536).astype(np.float16).reshape(shape)
    out = af.pwl(af.input(shape, name="x"), [-1, 1], [0, 1])
    result = af.compile(out, target="m1")(given)
    np.testing.assert_allclose(result, np.clip((given.astype(float) + 1) / 2, 0, 1), rtol=0, atol=2.0**-11)


def test_it_is_made_of_ordinary_layers():
    out = af.pwl(af.input((4,), name="x"), [0, 1], [0, 1])
    assert {node.op for node in out.graph()} <= {"input", "const", "reshape", "sub", "mul", "relu", "minimum", "conv"}
    assert not isinstance(af.compile(out, target="m1"), af.SegmentedModel)


def test_it_has_a_derivative():
    x = af.input((3,), name="x")
    (slope,) = gradients(af.pwl(x, [-1, 0, 2], [1, 0, 1]), [x])
    assert slope is not None
    np.testing.assert_allclose(af.evaluate(slope, {x: np.array([-0.5, 1.0, 5.0])}), [-1.0, 0.5, 0.0], atol=1e-6)


@pytest.mark.parametrize(
    ("knots", "values", "message"),
    [
        ([0, 2, 1], [0, 1, 2], r"knots\[1\] and knots\[2\] are not in order \(2 and 1\); knots must rise"),
        ([0, 1, 1], [0, 1, 2], r"knots\[1\] and knots\[2\] are the same number of fp16"),
        ([2048, 2048.5], [0, 1], r"knots\[0\] and knots\[1\] are the same number of fp16"),
        ([0], [0], r"knots must be a list of at least two numbers"),
        ([0, 1], [0, 1, 2], r"values has 3 numbers for 2 knots; give one value for each knot"),
        ([0, float("inf")], [0, 1], r"knots\[1\] is inf; it must be finite in fp16"),
        ([0, 1], [0, 1e6], r"values\[1\] is 1000000.0; it must be finite in fp16"),
        ([-60000, 60000], [0, 1], r"knots\[0\] and knots\[1\] are .* apart; fp16 ends at 65504"),
        (["a", "b"], [0, 1], r"knots must be a list of numbers"),
        ([0, 1, 2], [1000, 2**-20, 3], r"values\[1\] = 9.53674e-07 at knot 1 cannot be reproduced: beside a value of"),
    ],
)
def test_a_table_that_cannot_be(knots, values, message):
    with pytest.raises(af.GraphError, match=message):
        af.pwl(af.input((4,)), knots, values)
