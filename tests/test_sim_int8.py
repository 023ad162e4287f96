"""Stored 8-bit operands: integer sums where a chip has them, decoded kernels elsewhere, activations through Q.4."""

from __future__ import annotations

import numpy as np
import pytest
from test_pass_texts_kit import spelled_out

from aneforge.chips import target
from aneforge.engine.text import parse
from aneforge.engine.verify import verify
from aneforge.errors import AneforgeError
from aneforge.graph.weights import intern_weight
from aneforge.sim.engine import Engine
from aneforge.sim.executor import ExecutionPlan

INTEGER_CHIPS = ["h16g", "h17s", "h18g"]
OTHER_CHIPS = ["h13", "h14"]


def simulated(text, chip, feeds, **weights):
    held = {name: intern_weight(np.asarray(value, np.float64)) for name, value in weights.items()}
    for name, weight in held.items():
        text = text.replace(f'"${name}"', f'"{weight.key}"')
    module = parse(spelled_out(text))
    module.weights.update({weight.key: weight for weight in held.values()})
    plan = ExecutionPlan(verify(module), Engine.of(target(chip)), {})
    return plan.run({name: np.asarray(value, np.float64) for name, value in feeds.items()}).outputs["y"]


def both(scale, weight_scale, channels, height=1):
    """Quantise, dequantise, convolve with stored bytes: how the M6's integer sums were read."""
    attrs = (
        f"dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 0, 0], groups = 1, "
        f'kernel_sizes = [1, {height}, 1], strides = [1, 1, 1], kernel_scale = "$scale"'
    )
    text = f"""
    %x = "anec.live_in"() {{name = "x"}} : () -> !{channels}x{height}x1
    %q = "anec.quant"(%x) {{scale = {scale!r}, to = "si8", zero_point = 0}}
         : (!{channels}x{height}x1) -> !{channels}x{height}x1xsi8
    %d = "anec.dequant"(%q) {{scale = {scale!r}, zero_point = 0}}
         : (!{channels}x{height}x1xsi8) -> !{channels}x{height}x1
    %k = "anec.const_in"() {{weight = "$kernel"}} : () -> !1x1x{channels}x{height}x1xsi8
    %y = "anec.convolution"(%d, %k) {{{attrs}}}
         : (!{channels}x{height}x1, !1x1x{channels}x{height}x1xsi8) -> !1x1x1
    "anec.live_out"(%y) {{names = ["y"]}} : (!1x1x1) -> ()
    """

    def run(chip, codes, kernel):
        shape = (1, 1, channels, height, 1)
        data = np.broadcast_to(np.asarray(codes, np.float64) * scale, shape)
        return float(simulated(text, chip, {"x": data}, kernel=np.reshape(kernel, shape), scale=weight_scale).item())

    return run


@pytest.mark.parametrize("chip", INTEGER_CHIPS)
def test_sums_are_32_bit_integers_scaled_at_the_end(chip):
    """int8_accumulator of numerics_train.json, read on an M6: 2^30 fits, 2^31 is infinite, opposites give zero."""
    one = both(2.0**-8, 2.0**-8, 65536)
    assert one(chip, -128, np.full(65536, -128)) == 16384.0
    two = both(2.0**-8, 2.0**-8, 65536, height=2)
    assert two(chip, -128, np.full(2 * 65536, -128)) == np.inf
    half = both(2.0**-7, 2.0**-7, 65536)
    signs = np.where(np.arange(65536) < 32768, 127, -127)
    assert half(chip, 127, signs) == 0.0


@pytest.mark.parametrize("chip", INTEGER_CHIPS)
def test_results_above_the_accumulators_ceiling_are_allowed(chip):
    assert both(1.0, 1.0, 4)(chip, 100, np.full(4, 125)) == 50016.0  # 50,000 to the nearest fp16 number


@pytest.mark.parametrize("chip", OTHER_CHIPS)
def test_older_chips_decode_both_operands(chip):
    """The same program overflows there, because fp16 products meet the ceiling of the accumulators."""
    assert both(1.0, 1.0, 4)(chip, 100, np.full(4, 125)) == np.inf
    assert both(1.0, 1.0, 4)(chip, 10, np.full(4, 125)) == 5000.0


def test_integer_sums_are_exact_where_fp16_products_are_not():
    """127 * 127 * 2^-14 over 37 channels: rounded products would be off."""
    rng = np.random.default_rng(3)
    codes, kernel = rng.integers(-128, 128, (2, 37))
    run = both(2.0**-9, 2.0**-9, 37)
    shape = (1, 1, 37, 1, 1)
    found = run("h18g", codes.reshape(shape), kernel)
    assert found == np.float16(float(codes @ kernel) * 2.0**-18)


def test_zero_points_of_both_operands_leave_the_integer_sums():
    """Codes stand for (code - zero) * scale on either side, for one scale or one for each output."""
    rng = np.random.default_rng(4)
    text = """
    %x = "anec.live_in"() {name = "x"} : () -> !1x1x6
    %q = "anec.quant"(%x) {scale = 0.25, to = "si8", zero_point = 5} : (!1x1x6) -> !1x1x6xsi8
    %d = "anec.dequant"(%q) {scale = 0.25, zero_point = 5} : (!1x1x6xsi8) -> !1x1x6
    %k = "anec.const_in"() {weight = "$kernel"} : () -> !3x1x6xsi8
    %y = "anec.linear"(%d, %k) {kernel_scale = "$scale", kernel_zero_point = "$zero"}
         : (!1x1x6, !3x1x6xsi8) -> !1x1x3
    "anec.live_out"(%y) {names = ["y"]} : (!1x1x3) -> ()
    """
    codes, kernel = rng.integers(-60, 60, 6), rng.integers(-60, 60, (3, 6))
    x = (codes * 0.25).reshape(1, 1, 1, 1, 6)
    for zero, scale in (([3.0], [0.125]), ([3.0, -2.0, 0.0], [0.125, 0.5, 2.0])):
        given = {"kernel": kernel.reshape(1, 1, 3, 1, 6), "zero": zero, "scale": scale}
        found = simulated(text, "h18g", {"x": x}, **given).reshape(-1)
        want = (kernel - np.reshape(zero, (-1, 1))) @ codes * 0.25 * np.asarray(scale)
        np.testing.assert_array_equal(found, want.astype(np.float16))


PRODUCT = """
    %x = "anec.live_in"() {name = "x"} : () -> !1x1x4
    %k = "anec.const_in"() {weight = "$kernel"} : () -> !2x1x4xsi8
    %y = "anec.linear"(%x, %k) {kernel_scale = "$scale"} : (!1x1x4, !2x1x4xsi8) -> !1x1x2
    "anec.live_out"(%y) {names = ["y"]} : (!1x1x2) -> ()
"""


@pytest.mark.parametrize("chip", ["h13", "h14", "h17s"])
@pytest.mark.parametrize(("value", "finite"), [(4094.0, True), (4096.0, False), (-5000.0, False)])
def test_activations_in_front_of_bytes_go_through_q4(chip, value, finite):
    """N17, seen on M1 Max, M2 Pro and M5 Pro."""
    x = np.array([value, 0, 0, 0]).reshape(1, 1, 1, 1, 4)
    kernel = np.array([[1, 0, 0, 0], [0, 1, 0, 0]]).reshape(1, 1, 2, 1, 4)
    found = simulated(PRODUCT, chip, {"x": x}, kernel=kernel, scale=1.0).reshape(-1)
    assert np.isfinite(found[0]) == finite
    assert found[0] == (value if finite else np.copysign(np.inf, value))
    assert found[1] == 0.0


def test_a_streamed_kernel_is_decoded_by_the_engine_and_a_folded_one_on_the_host():
    """A weight half way between two fp16 numbers: away from zero where it streams, to even where it was folded."""
    x = np.array([1.0, 0, 0, 0]).reshape(1, 1, 1, 1, 4)
    kernel = np.array([[3, 0, 0, 0], [3, 0, 0, 0]]).reshape(1, 1, 2, 1, 4)
    scale = 683.0  # times three is 2049, half way between 2048 and 2050
    folded = PRODUCT.replace('weight = "$kernel"', 'weight = "$kernel", weight_flow = "fold"')
    assert simulated(PRODUCT, "h14", {"x": x}, kernel=kernel, scale=scale).reshape(-1)[0] == 2050.0
    assert simulated(folded, "h14", {"x": x}, kernel=kernel, scale=scale).reshape(-1)[0] == 2048.0


def test_a_palette_is_looked_up():
    text = """
    %x = "anec.live_in"() {name = "x"} : () -> !1x1x4
    %k = "anec.const_in"() {weight = "$kernel"} : () -> !1x1x4xui8
    %y = "anec.linear"(%x, %k) {kernel_lut = "$table"} : (!1x1x4, !1x1x4xui8) -> !1x1x1
    "anec.live_out"(%y) {names = ["y"]} : (!1x1x1) -> ()
    """
    x = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 1, 4)
    kernel = np.array([0, 3, 1, 2]).reshape(1, 1, 1, 1, 4)
    found = simulated(text, "h17s", {"x": x}, kernel=kernel, table=[0.5, -1.0, 0.25, 8.0])
    assert found.item() == 0.5 + 16.0 - 3.0 + 1.0


def test_quantisers_round_half_away_and_saturate():
    text = """
    %x = "anec.live_in"() {name = "x"} : () -> !1x1x6
    %q = "anec.quant"(%x) {scale = 0.5, to = "si8", zero_point = 3} : (!1x1x6) -> !1x1x6xsi8
    "anec.live_out"(%q) {names = ["y"]} : (!1x1x6xsi8) -> ()
    """
    x = np.array([0.25, -0.25, 0.24, 100.0, -100.0, np.inf]).reshape(1, 1, 1, 1, 6)
    assert simulated(text, "h13", {"x": x}).reshape(-1).tolist() == [4.0, 2.0, 3.0, 127.0, -128.0, 127.0]


def test_a_scale_inside_a_sum_of_codes_is_refused():
    """The sum of 4-bit codes is scaled at its end, so a scale that differs along the inputs has no place (U65)."""
    text = """
    %x = "anec.live_in"() {name = "x"} : () -> !2x1x1
    %k = "anec.const_in"() {weight = "$kernel"} : () -> !1x1x2x1x1xsi4
    %y = "anec.convolution"(%x, %k) {dilation_rates = [1, 1, 1], explicit_padding = [0, 0, 0, 0, 0, 0], groups = 1,
         kernel_sizes = [1, 1, 1], strides = [1, 1, 1], kernel_scale = "$scale"}
         : (!2x1x1, !1x1x2x1x1xsi4) -> !1x1x1
    "anec.live_out"(%y) {names = ["y"]} : (!1x1x1) -> ()
    """
    given = {"kernel": np.ones((1, 1, 2, 1, 1)), "scale": np.array([0.5, 0.25]).reshape(1, 2, 1, 1)}
    x = np.ones((1, 1, 2, 1, 1))
    with pytest.raises(AneforgeError, match="kernel_scale has 2 numbers; sums of codes take 1, or one for each of"):
        simulated(text, "h17s", {"x": x}, **given)
    assert simulated(text, "h14", {"x": x}, **given).item() == 0.75
