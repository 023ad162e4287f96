"""The guard of trained convolutions: it warns exactly where it is due, measures, and changes nothing."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import aneforge as af
from aneforge.chips.assumed import compile_fact
from aneforge.chips.names import target
from aneforge.train.digits import digit_net
from aneforge.train.trainer import TrainingWarning

WARNING = af.CrossChipFP16Warning


def net(width=3, windows="slices", gain=1.0):
    """Two trained convolutions; the gradient of the second is cropped behind its padding."""
    draw = np.random.default_rng(0)
    x = af.input((2, 1, 6, 6), name="x")
    first = af.conv_param(draw.standard_normal((2, 1, 1, 1)), name="first")
    second = af.conv_param(draw.standard_normal((2, 2, 3, width)) * gain, name="second")
    hidden = af.conv2d(x, first, windows=windows)
    out = af.conv2d(hidden, second, pad=(1, 1, width // 2, width // 2), windows=windows)
    return out.sum(), [first, second]


def warned(chip, loss_scale, **options):
    loss, params = net(**options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = af.Trainer(loss, params, 0.01, loss_scale=loss_scale, target=chip)
    return trainer, [str(warning.message) for warning in caught if warning.category is WARNING]


@pytest.mark.parametrize("chip", ["m1", "m2", "m3", "m4", "m5", "m6"])
@pytest.mark.parametrize("scale", [1.0, 511.0, 512.0, 4096.0])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("windows", ["slices", "kernel"])
def test_it_warns_under_exactly_the_three_conditions(chip, scale, width, windows):
    clamps = bool(compile_fact(target(chip), "slice_saturates").value)
    due = clamps and width > 1 and scale >= 512 and windows == "slices"
    trainer, messages = warned(chip, scale, width=width, windows=windows)
    assert len(messages) == (1 if due else 0)
    assert trainer.loss_scale == scale  # it never caps
    if due:
        assert (
            f"second: training a convolution wider than 1 with loss scale {scale:g} on {chip.upper()}:" in messages[0]
        )
        assert "above 4094" in messages[0]
        assert "first" not in messages[0]


def test_the_chips_it_is_for_come_from_the_data():
    assert [chip for chip in ("m1", "m2", "m5") if warned(chip, 512.0)[1]] == ["m1", "m2"]


def test_a_convolution_that_is_not_trained_is_no_reason():
    loss, params = net()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        af.Trainer(loss, params[:1], 0.01, loss_scale=1024.0, target="m1")


def test_raising_the_scale_later_warns_once():
    trainer, messages = warned("m1", 256.0)
    assert not messages
    with pytest.warns(WARNING, match="loss scale 1024"):
        trainer.loss_scale = 1024.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.loss_scale = 2048.0


def test_it_measures_the_largest_gradient_that_reaches_a_slice():
    x = np.random.default_rng(1).standard_normal((2, 1, 6, 6))
    trainer, _ = warned("m1", 128.0)
    assert str(trainer.guard) == "not measured yet"
    trainer.step(x)
    low = trainer.guard.reached
    assert str(trainer.guard) == f"reached {low:.0f} of 4094"
    loss, params = net()
    (cropped,) = [
        node
        for node in af.backward(loss, params[:1], loss_scale=128.0)[params[0]].graph()
        if node.op == "slice_by_size" and node.inputs[0].op not in ("pad", "input") and node.shape[1:] == (2, 6, 6)
    ]
    exact = np.abs(af.evaluate(cropped.inputs[0])).max()
    assert low == pytest.approx(exact, rel=0.01)
    higher, _ = warned("m1", 256.0)
    higher.step(x)
    assert higher.guard.reached == pytest.approx(2 * low, rel=0.01)
    clean, _ = warned("m5", 256.0)
    clean.step(x)
    assert clean.guard.reached is None
    assert str(clean.guard) == "no gradient passes such a slice in this program"


def test_a_gradient_that_clamps_is_said_so_and_is_infinite_on_that_chip_only():
    x = np.random.default_rng(1).standard_normal((2, 1, 6, 6)) * 0.1
    trainer, _ = warned("m1", 1024.0, gain=4.0)
    clamped = pytest.warns(WARNING, match="gradients at slices of trained convolutions reached")
    with clamped, pytest.warns(TrainingWarning, match="first at input_view of slice_by_size"):
        trainer.step(x)
    assert trainer.guard.reached > 4094
    assert trainer.skipped == 1
    for options in ({"chip": "m5"}, {"chip": "m1", "windows": "kernel"}):
        other, _ = warned(options.pop("chip"), 1024.0, gain=4.0, **options)
        other.step(x)
        assert other.skipped == 0


def test_a_normalised_network_stays_far_below():
    """As published: a real normalised network trains alike at any of these scales."""
    draw = np.random.default_rng(0)
    images, labels = draw.random((8, 1, 8, 8)), np.eye(10)[np.arange(8)]
    reached = {}
    values = {}
    for scale in (128.0, 1024.0):
        small = digit_net(8, 8)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = af.Trainer(small.objective, small.params, 0.05, loss_scale=scale, target="m1")
        for _ in range(3):
            trainer.step(images, labels)
        reached[scale], values[scale] = trainer.guard.reached, trainer.state.values
    assert reached[1024.0] < 4094 / 8
    for low, high in zip(values[128.0], values[1024.0], strict=True):
        np.testing.assert_allclose(low, high, atol=2e-3)
