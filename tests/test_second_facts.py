"""Numeric facts of the second collection (N62 to N103) as tests: published hashes of whole outputs, and digits.

Facts about quantised activations and weights are in ``test_quantised.py``, words of tables in ``test_sim_tables.py``.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

import aneforge as af
from aneforge.chips.limits import numeric_record
from aneforge.study import Study

H17 = ["h17s", "h17"]
SIDE = 512
DEPTH = 128


def hadamard(size: int) -> np.ndarray:
    found = np.ones((1, 1))
    while len(found) < size:
        found = np.block([[found, found], [found, -found]])
    return found


def seeded_weights(depth: int) -> list[np.ndarray]:
    """The signs of each layer, in the order of the recipe (N62)."""
    rng, base = np.random.default_rng(20260910), hadamard(SIDE)
    found = []
    for _ in range(depth):
        rows, columns = rng.permutation(SIDE), rng.permutation(SIDE)
        left, right = rng.choice((-1, 1), (SIDE, 1)), rng.choice((-1, 1), (1, SIDE))
        found.append((base[rows][:, columns] * left * right).astype(np.int8))
    return found


def seeded_input() -> np.ndarray:
    codes = np.random.default_rng(20260912).integers(-8, 9, (SIDE, 16), np.int8)
    return (codes * 0.125).astype(np.float16)


def published_digest(columns: np.ndarray) -> str:
    """Of the whole output [1, 512, 64, 64]: sixteen distinct columns, 256 times over."""
    whole = np.tile(columns, (1, 256)).reshape(1, SIDE, 64, 64)
    return hashlib.sha256(np.ascontiguousarray(whole, "<f2").tobytes()).hexdigest()


def chain(depth: int) -> af.Tensor:
    scale = numeric_record("N62")["value"]["recipe"]["scale"]
    y = af.input((1, SIDE, 1, 16), name="x")
    for signs in seeded_weights(depth):
        y = af.conv(y, (signs * scale).reshape(SIDE, SIDE, 1, 1))
    return y


def ran(out: af.Tensor, chip: str, data: np.ndarray) -> np.ndarray:
    return af.compile(out, target=chip)(data.reshape(1, SIDE, 1, 16), dtype="float16").reshape(SIDE, 16)


@pytest.mark.parametrize("chip", H17)
def test_n62_a_chain_of_two_convolutions_to_the_last_bit(chip):
    found = ran(chain(2), chip, seeded_input())
    assert published_digest(found) == numeric_record("N62")["value"]["sha256_depth2"]


def test_n63_a_chain_of_128_fixes_which_products_are_dropped():
    found = ran(chain(DEPTH), "h17s", seeded_input())
    assert published_digest(found) == numeric_record("N63")["value"]["sha256_depth128"]


def test_n101_rounding_is_symmetric_in_sign():
    told = numeric_record("N101")["value"]
    assert published_digest(ran(chain(2), "h17s", -seeded_input())) == told["sha256_negated_depth2"]
    deep = published_digest(ran(chain(DEPTH), "h17s", -seeded_input()))
    assert deep.startswith(told["sha256_negated_depth128_prefix"])
    assert not ran(chain(2), "h17s", np.zeros((SIDE, 16))).any()


# Attention over long histories (N71 to N74).

QUERIES = np.arange(64)
SEEN = 4033 + QUERIES


def weighted(value: float, chip: str = "h17s", scale: float = 1.0, weights: np.ndarray | None = None) -> np.ndarray:
    """64 rows of weights over 4096 keys, times one value everywhere: row q sees 4033 + q keys."""
    seen = (np.arange(4096) < SEEN[:, None]).astype(np.float64)
    rows = seen * scale if weights is None else seen * weights[:, None]
    p, v = af.input((64, 4096), name="p"), af.input((4096, 16), name="v")
    return af.compile(p @ v, target=chip)(p=rows, v=np.full((4096, 16), value))[:, 0].astype(np.float64)


def relative(found: np.ndarray, value: float) -> float:
    held = np.full(found.shape, float(np.float16(value)))
    return float(np.linalg.norm(found - held) / np.linalg.norm(held))


@pytest.mark.parametrize("value", [0.0005, 0.00025])
def test_n71_every_product_is_rounded_on_its_own(value):
    told = numeric_record("N71")["value"][f"V={value}"]
    found = weighted(value) / SEEN
    assert relative(found, value) == pytest.approx(told["rel_l2"], rel=1e-12)
    assert (found.min(), found.max()) == (pytest.approx(told["min"], rel=1e-12), pytest.approx(told["max"], rel=1e-12))


@pytest.mark.parametrize("value", [0.0005, 0.00025])
def test_n72_division_in_the_graph(value):
    told = numeric_record("N72")["value"][f"V={value}"]
    total, count = af.input((64, 1), name="total"), af.input((64, 1), name="count")
    found = af.compile(total / count, target="h17s")(total=weighted(value)[:, None], count=SEEN[:, None])
    assert relative(found[:, 0].astype(np.float64), value) == pytest.approx(told["rel_l2"], rel=1e-12)


@pytest.mark.parametrize("value", [0.0005, 0.00025])
def test_n73_normalised_weights_are_dropped_whole(value):
    assert not weighted(value, weights=1 / SEEN).any()


def test_n74_weights_times_512_before_the_product():
    told = numeric_record("N74")["value"]
    found = weighted(0.00025, weights=np.float16(1 / SEEN).astype(np.float64) * 512) / 512
    assert relative(found, 0.00025) == pytest.approx(told["rel_l2"], rel=1e-12)


@pytest.mark.parametrize("chip", [*H17, "h18g"])
def test_n87_a_long_sum_of_ones(chip):
    x = af.input((1, 4096, 1, 1))
    model = af.compile(af.conv(x, np.ones((16, 4096, 1, 1))), target=chip)
    ones = np.ones(x.shape)
    assert (model(ones) == 4096).all()
    ones[0, 0] = 0.001
    assert (model(ones) == 4096).all()


def test_n86_softplus_gives_nothing_for_large_numbers():
    """Zero above about 11, and the cure is not."""
    x = af.input((1, 4))
    data = np.array([[5.0, 11.5, 20.0, 60.0]])
    assert (af.compile(x.softplus(), target="h18g")(data)[0, 1:] == 0).all()
    cure = x.relu() + ((-x.abs()).exp() + 1.0).log(0.0)
    np.testing.assert_allclose(af.compile(cure, target="h18g")(data), data, atol=0.02)


def test_n85_silu_near_zero_is_off_by_a_thousandth():
    told = numeric_record("N85")["value"]
    x = np.random.default_rng(85).normal(0, 0.0225, (1, 4096))
    out = af.input(x.shape).silu()
    half = x.astype(np.float16).astype(np.float64)
    error = np.abs(af.compile(out, target="h18g")(x) - half / (1 + np.exp(-half))).mean()
    assert told["model"][0] <= error <= told["mean_abs_err"]


def test_n90_the_square_of_a_number_over_64_is_subnormal():
    """A norm that divides by 64 first mis-scales small inputs; dividing by the largest magnitude does not."""
    x = np.random.default_rng(90).normal(0, 0.02, (1, 1024))
    node = af.input(x.shape)
    gain = np.ones(1024)
    usual, cured = (node * (1 / 64)).rms_norm(gain, 0.0), (node / node.abs().amax(-1)).rms_norm(gain, 0.0)
    want = x / np.sqrt(np.square(x).mean())
    off = [np.abs(af.compile(each, target="h18g")(x) / want).mean() for each in (usual, cured)]
    assert abs(off[0] - 1) > 0.02
    assert abs(off[1] - 1) < 0.01


@pytest.mark.parametrize(("scale", "told"), [(1, "x1"), (16, "x16"), (64, "x64")])
def test_n75_scaling_the_weights_before_the_product_removes_its_error(scale, told):
    """Causal uniform weights over random values: the level of one head. The published values are not known."""
    measured = numeric_record("N75")["value"]["measured_rel_l2"][told]
    rng = np.random.default_rng(75)
    values = (0.5 * rng.standard_normal((4096, 128))).astype(np.float16)
    weights = np.where(np.arange(4096) < SEEN[:, None], 1 / SEEN[:, None], 0.0).astype(np.float16)
    p, v = af.input((64, 4096), name="p"), af.input((4096, 128), name="v")
    found = af.compile(p @ v, target="h17s")(p=weights.astype(np.float64) * scale, v=values) / scale
    want = weights.astype(np.float64) @ values.astype(np.float64)
    error = np.linalg.norm(found - want) / np.linalg.norm(want)
    assert error == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize(("chip", "kinds"), [("m4", ["sigmoid", "mult"]), ("m5", ["swish"]), ("m6", ["swish"])])
def test_c77_a_gate_is_one_swish_table_from_h17_on(chip, kinds):
    """x * sigmoid(x) has the table's error of small inputs where the vendor was seen to fuse it; x / (1 + exp(-x))
    keeps 7e-4 everywhere."""
    x = af.input((1, 4096), name="x")
    half = np.random.default_rng(77).normal(0, 0.0225, x.shape).astype(np.float16)
    want = half / (1 + np.exp(-half.astype(np.float64)))

    def off(out: af.Tensor) -> float:
        return float(np.linalg.norm(af.compile(out, target=chip)(half) - want) / np.linalg.norm(want))

    for gate in (x * x.sigmoid(), x.sigmoid() * x):
        program = af.compile(gate, target=chip).program
        assert [op.kind for layer in program.layers for op in layer.ops] == kinds
        assert (off(gate) > 0.04) == (kinds == ["swish"])
    assert off(x / ((-x).exp() + 1.0)) < 7e-4
    shared = x.sigmoid()
    both = af.compile([x * shared, shared], target=chip).program  # the sigmoid has another reader: no table for both
    assert "swish" not in {op.kind for layer in both.layers for op in layer.ops}


def test_c93_silu_leaves_the_engine_in_core_ai_by_its_spelling():
    x = af.input((1, 64, 8, 8), name="x")
    for out, runs in ((x.silu(), False), (x * x.sigmoid(), True)):
        refusals = Study(out, "m5", runtime="coreai").partition("runtime").refusals
        assert ("C93" in str(refusals)) != runs
    assert not Study(x.silu(), "m5", runtime="coreml").partition("runtime").refusals
