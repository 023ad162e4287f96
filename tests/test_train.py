"""Losses, gradients, optimisers and the trainer, against NumPy and against each other."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import aneforge as af
from aneforge.errors import AneforgeError
from aneforge.train.optimisers import OptimiserState
from aneforge.train.trainer import TrainingWarning

CHIPS = ("m1", "m2", "m5")


def drawn(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def small(scale=1.0, features=6, classes=3, batch=8):
    """A network of two layers with a cross entropy."""
    x, target = af.input((batch, features), name="x"), af.input((batch, classes), name="target")
    w = af.parameter(drawn(features, 5) * 0.5 * scale, name="w")
    v = af.parameter(drawn(5, classes) * 0.5, name="v")
    b = af.parameter(np.zeros((1, classes)), name="b")
    logits = (x @ w).relu() @ v + b
    return x, logits, af.softmax_cross_entropy(logits, target), [w, v, b]


def batch(features=6, classes=3, count=8, seed=1):
    return drawn(count, features, seed=seed), np.eye(classes)[np.arange(count) % classes]


# Losses.


def test_mse_is_the_mean_of_squares():
    y, values, wanted = af.input((2, 3)), drawn(2, 3), drawn(2, 3, seed=1).astype(np.float16).astype(float)
    loss = af.mse(y, wanted)
    assert loss.size == 1
    np.testing.assert_allclose(af.evaluate(loss, [values]).item(), np.square(values - wanted).mean(), rtol=1e-12)
    with pytest.raises(af.GraphError, match=r"mse at test_train.py:\d+: y is \[2, 3\], the target \[3\]"):
        af.mse(y, np.zeros(3))


def cross_entropy(logits, target):
    shifted = logits - logits.max(1, keepdims=True)
    return -(target * (shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))).sum(1).mean()


def test_cross_entropy_and_its_gradient():
    logits, target = af.input((4, 3)), af.input((4, 3))
    handle = af.softmax_cross_entropy(logits, target)
    values, wanted = drawn(4, 3) * 3, np.abs(drawn(4, 3, seed=2))  # rows need not sum to one
    np.testing.assert_allclose(
        af.evaluate(handle.loss, [values, wanted]).item(), cross_entropy(values, wanted), rtol=1e-12
    )
    found = af.evaluate(af.backward(handle, [logits])[logits], [values, wanted])
    for place in np.ndindex(4, 3):
        ends = []
        for sign in (1, -1):
            moved = values.copy()
            moved[place] += sign * 1e-5
            ends.append(cross_entropy(moved, wanted))
        assert found[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("chip", CHIPS)
def test_cross_entropy_is_stable_in_fp16(chip):
    """Logits of 30000: exp of them is infinite, and the plain formula gives NaN."""
    logits, target = af.input((2, 3)), af.input((2, 3))
    handle = af.softmax_cross_entropy(logits, target)
    gradient = af.backward(handle, [logits])[logits]
    model = af.compile([handle.loss, gradient], target=chip)
    values = np.array([[30000.0, 29000, -30000], [0.0, 0, 0]])
    loss, slope = model(values, np.array([[1.0, 0, 0], [0, 0, 1]]))
    assert loss.item() == pytest.approx(np.log(3) / 2, rel=0.01)
    assert np.isfinite(slope).all()
    np.testing.assert_allclose(slope[1], np.array([1 / 3, 1 / 3, -2 / 3]) / 2, atol=1e-3)


def test_cross_entropy_refuses_class_numbers():
    with pytest.raises(af.GraphError, match="for class numbers pass np"):
        af.softmax_cross_entropy(af.input((4, 3)), np.zeros(4))


# Backward.


def test_backward_gives_gradients_by_parameter_times_the_scale():
    x, w = af.input((2, 3)), af.parameter(drawn(3, 2))
    values = drawn(2, 3)
    plain = af.evaluate(af.backward((x @ w).square().mean(), [w])[w], [values])
    scaled = af.evaluate(af.backward((x @ w).square().mean(), [w], loss_scale=64.0)[w], [values])
    np.testing.assert_allclose(scaled, 64 * plain, rtol=1e-3)
    seed = af.const(np.ones((2, 2)))
    out = x @ w
    np.testing.assert_allclose(
        af.evaluate(af.backward_from(seed, out, [w])[w], [values]), values.T @ np.ones((2, 2)), rtol=1e-12
    )


def test_a_scale_above_fp16_is_divided_by_the_elements_of_a_mean_first():
    x, w = af.input((64, 4)), af.parameter(drawn(4, 4))
    part = af.backward((x @ w).mean(), [w], loss_scale=65536.0)[w]
    values = drawn(64, 4)
    expected = np.tile(values.sum(0)[:, None], (1, 4)) * 65536 / 256
    np.testing.assert_allclose(af.evaluate(part, [values]), expected, rtol=1e-9)
    with pytest.raises(af.GraphError, match="the gradient starts at 65536, and fp16 ends at 65504"):
        af.backward((x @ w).sum(), [w], loss_scale=65536.0)


def test_stop_cuts_gradients():
    x, w = af.input((2,)), af.parameter(drawn(2))
    kept = w * 3.0
    part = af.backward((kept * w * x).sum(), [w], stop=kept)[w]
    np.testing.assert_allclose(
        af.evaluate(part, [np.ones(2)]), 3 * drawn(2).astype(np.float16).astype(float), rtol=1e-9
    )
    with pytest.raises(af.GraphError, match="no gradient reaches it; stop cuts every way to it"):
        af.backward((kept * x).sum(), [w], stop=[kept])


def test_bad_losses_and_parameters_are_refused():
    x, w, other = af.input((2, 3)), af.parameter(drawn(3, 2), name="w"), af.parameter(drawn(3), name="other")
    loss = (x @ w).mean()
    for call, message in (
        (lambda: af.backward(x @ w, [w]), r"the loss has shape \[2, 2\]; it must be one number"),
        (
            lambda: af.backward(loss, [other]),
            r"backward at test_.*: params: 'other' at test_train.py:\d+ is not in the graph",
        ),
        (lambda: af.backward(loss, []), "params: the list is empty"),
        (lambda: af.backward(loss, [w, w]), "is listed twice"),
        (lambda: af.backward(loss, [3]), "3 cannot have a gradient"),
        (lambda: af.backward("loss", [w]), "the loss is a str"),
        (lambda: af.backward(loss, [w], loss_scale=0), "loss_scale must be a finite number above 0, not 0"),
        (lambda: af.backward(loss, [w], loss_scale=float("nan")), "must be a finite number above 0"),
        (
            lambda: af.backward((x @ w).floor().mean(), [w]),
            "the op has no derivative .a step",
        ),
    ):
        with pytest.raises(af.GraphError, match=message):
            call()


# Optimisers.


def test_sgd_against_numpy():
    w = af.parameter(drawn(3, 2))
    optimiser, expected = af.SGD([w], 0.1, loss_scale=8.0), w.weight.array.astype(np.float64)
    for step in range(5):
        gradient = drawn(3, 2, seed=step)
        expected = expected - 0.1 * gradient
        found = optimiser.step({w: 8 * gradient})[w]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_adam_against_numpy_step_by_step():
    w = af.parameter(drawn(3, 2))
    optimiser = af.Adam([w], lr=0.01, betas=(0.8, 0.95), eps=1e-6, loss_scale=16.0)
    value, mean, square = w.weight.array.astype(np.float64), np.zeros((3, 2)), np.zeros((3, 2))
    for step in range(1, 8):
        gradient = drawn(3, 2, seed=step) * 10.0 ** (step % 3 - 2)
        mean, square = 0.8 * mean + 0.2 * gradient, 0.95 * square + 0.05 * gradient**2
        value = value - 0.01 * (mean / (1 - 0.8**step)) / (np.sqrt(square / (1 - 0.95**step)) + 1e-6)
        np.testing.assert_allclose(optimiser.step([16 * gradient])[w], value, rtol=2e-6, atol=1e-6)


def test_optimisers_refuse_bad_arguments():
    w = af.parameter(drawn(2))
    for call, message in (
        (lambda: af.SGD([af.input((2,))], 0.1), "params: 'input' cannot be trained"),
        (lambda: af.SGD([], 0.1), "params: the list is empty"),
        (lambda: af.SGD([w], -1), "lr must be a finite number above 0"),
        (lambda: af.Adam([w], betas=(0.9, 1.0)), "betas: .* both must be 0 or more and below 1"),
        (lambda: af.SGD([w], 0.1).step([np.zeros(3)]), "gradients: shapes are"),
        (lambda: af.SGD([w], 0.1).step({}), "gradients: one for .* is missing"),
    ):
        with pytest.raises(AneforgeError, match=message):
            call()


def ulps(a, b):
    """Steps of fp16 between two arrays of fp16."""
    bits = [np.asarray(x, np.float16).view(np.int16).astype(int) for x in (a, b)]
    return max(abs(np.where(x < 0, -32768 - x, x) - np.where(y < 0, -32768 - y, y)).max() for x, y in [bits])


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("name", "lr", "steps_apart"), [("sgd", 0.25, 1), ("adam", 0.01, 1)])
def test_host_and_engine_agree_after_one_step_from_one_state(chip, name, lr, steps_apart):
    """To one step of fp16 of each weight, since the engine rounds the weight itself and the host only what it hands
    over; and to 2^-8 of the update, which is a chain of roundings."""
    *_, objective, params = small()
    x, target = batch()
    options = {"lr": lr, "loss_scale": 64.0, "optimizer": name, "target": chip}
    host = af.Trainer(objective, params, **options)
    engine = af.Trainer(objective, params, device_optimizer=True, **options)
    assert host.step(x, target) == engine.step(x, target)
    for param in params:
        on_host, on_engine = host.values[param], engine.values[param]
        assert on_engine.dtype == np.float16
        start = param.weight.array
        step = np.abs(on_host - start.astype(np.float32))
        away = step < np.abs(start) / 2  # the digits of other weights are those of the update, a chain of roundings
        assert ulps(on_host[away], on_engine[away]) <= steps_apart if away.any() else not start.any()
        most = np.spacing(np.maximum(np.abs(start), np.abs(on_engine))).astype(float) + step * 2.0**-8
        assert (np.abs(on_engine - on_host) <= most).all()


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_host_and_engine_stay_together(name):
    """The engine rounds every weight once a step, by half a step of fp16 at most: 40 steps stay within 40 of these."""
    *_, objective, params = small()
    data = batch(count=64)
    options = {"lr": 0.05 if name == "sgd" else 0.01, "loss_scale": 64.0, "optimizer": name, "target": "m1"}
    host = af.Trainer(objective, params, **options)
    engine = af.Trainer(objective, params, device_optimizer=True, **options)
    losses = [trainer.fit(data, 40, progress=False).losses for trainer in (host, engine)]
    assert losses[0][-1] < 0.9 * losses[0][0]
    for param in params:
        np.testing.assert_allclose(engine.values[param], host.values[param], atol=40 * 2.0**-11)
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.02)


@pytest.mark.parametrize("chip", CHIPS)
def test_adam_on_the_engine_keeps_gradients_whose_square_fp16_cannot_hold(chip):
    w = af.parameter(np.full(5, 0.5), name="w")
    loss = (w * af.input((5,), name="x")).sum()
    trainer = af.Trainer(loss, [w], 0.01, optimizer="adam", device_optimizer=True, target=chip)
    given = np.array([0.0, 1e-5, 2e-4, 600.0, 20000.0])  # squares: up to 4e-8 is lost, 360000 is infinite
    for step in range(1, 4):
        trainer.step(given)
        np.testing.assert_allclose(trainer.values[w], [0.5, *[0.5 - 0.01 * step] * 4], atol=2e-3)
    roots = np.sqrt(1 - 0.999**3) * given
    np.testing.assert_allclose(trainer.state.slots["root"][0], roots, rtol=0.03, atol=1e-7)
    assert trainer.skipped == 0


# The trainer.


@pytest.mark.parametrize("chip", CHIPS)
def test_a_network_learns(chip):
    _, logits, objective, params = small()
    samples = drawn(120, 6)
    labels = samples[:, :3].argmax(1)
    trainer = af.Trainer(objective, params, 0.3, loss_scale=128.0, target=chip)
    history = trainer.fit([samples, np.eye(3)[labels]], 200, progress=False)
    assert (trainer.predict(logits, samples).argmax(1) == labels).mean() > 0.85
    assert history.losses[-1] < history.losses[0] / 2
    assert trainer.steps == 200


def test_a_step_is_the_float64_step_but_for_rounding():
    *_, objective, params = small()
    x, target = batch()
    trainer = af.Trainer(objective, params, 0.5, loss_scale=256.0, target="m1")
    exact = af.backward(objective, params)
    feeds = dict(zip(objective.loss.graph().inputs, (x, target), strict=True))
    expected = {p: af.evaluate(exact[p], {k: feeds[k] for k in exact[p].graph().inputs}) for p in params}
    found = trainer.gradients(x, target)
    for param in params:
        np.testing.assert_allclose(found[param], expected[param], rtol=0.02, atol=1e-3)
    trainer.step(x, target)
    for param in params:
        start = param.weight.array.astype(np.float64)
        np.testing.assert_allclose(trainer.values[param], start - 0.5 * expected[param], rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_resident_state_has_the_bits_of_state_that_travels(optimizer):
    *_, objective, params = small()
    data = batch(count=40)
    runs = []
    for resident in (False, True):
        options = {"optimizer": optimizer, "device_optimizer": True, "resident_state": resident, "target": "m1"}
        trainer = af.Trainer(objective, params, 0.05, loss_scale=32.0, **options)
        losses = trainer.fit(data, 10, progress=False).losses
        runs.append((losses, trainer.state, trainer.plan))
    assert runs[0][0] == runs[1][0]
    for travelled, stayed in zip(runs[0][1].values, runs[1][1].values, strict=True):
        np.testing.assert_array_equal(travelled, stayed)
    assert runs[1][2].bytes_out == 2  # the loss
    assert runs[1][2].bytes_in < runs[0][2].bytes_in


def test_runs_are_deterministic_and_change_with_the_seed():
    *_, objective, params = small()
    data = batch(count=40)

    def losses(seed):
        trainer = af.Trainer(objective, params, 0.1, target="m2")
        return trainer.fit(data, 15, seed=seed, progress=False).losses

    assert losses(0) == losses(0)
    assert losses(0) != losses(1)


def test_a_plan_needs_one_program_and_no_other_for_another_rate_or_scale():
    _, logits, objective, params = small()
    trainer = af.Trainer(objective, params, 0.1, target="m1", device_optimizer=True, optimizer="adam")
    x, target = batch()
    program = trainer._step.program
    trainer.step(x, target)
    trainer.lr, trainer.loss_scale = 0.05, 128.0
    trainer.step(x, target)
    assert trainer._step.program is program
    assert (trainer.plan.programs, trainer.plan.recompiles) == (1, 0)
    trainer.predict(logits, x)
    trainer.predict(logits, x)
    assert trainer.plan.programs == 2
    assert "2 programs" in str(trainer.plan)


def test_another_scale_changes_no_step_but_for_rounding():
    *_, objective, params = small()
    x, target = batch()
    values = []
    for first, second in ((64.0, 64.0), (64.0, 1024.0)):
        trainer = af.Trainer(
            objective, params, 0.01, loss_scale=first, optimizer="adam", device_optimizer=True, target="m1"
        )
        trainer.step(x, target)
        trainer.loss_scale = second
        trainer.step(x, target)
        values.append(trainer.values)
    for param in params:
        np.testing.assert_allclose(values[0][param], values[1][param], atol=1e-3)


def test_data_inputs_are_the_order_of_the_arrays():
    x, target = af.input((2, 3), name="x"), af.input((2, 3), name="target")
    w = af.parameter(drawn(3, 3))
    loss = af.mse(x @ w, target)
    a, b = drawn(2, 3), drawn(2, 3, seed=4)
    losses = [
        af.Trainer(loss, [w], 0.1, data_inputs=order, target="m1").step(*arrays)
        for order, arrays in ((None, (a, b)), ([target, x], (b, a)), ([x, target], (a, b)))
    ]
    assert losses[0] == losses[1] == losses[2]
    assert af.Trainer(loss, [w], 0.1, target="m1").step(target=b, x=a) == losses[0]
    with pytest.raises(af.GraphError, match="they must be the inputs of the loss, each once: x, target"):
        af.Trainer(loss, [w], 0.1, data_inputs=[x], target="m1")


def test_parameters_that_are_not_trained_keep_their_value():
    *_, objective, params = small()
    x, target = batch()
    trainer = af.Trainer(objective, params[:1], 0.2, target="m1")
    assert trainer.step(x, target) == af.Trainer(objective, params, 0.2, target="m1").step(x, target)
    feeds = dict(zip(objective.loss.graph().inputs, (x, target), strict=True))
    after = af.evaluate(objective.loss, {**feeds, params[0]: trainer.values[params[0]]}).item()
    assert trainer.step(x, target) == pytest.approx(after, rel=0.01)


@pytest.mark.parametrize("device", [False, True])
def test_parameters_that_share_a_gradient(device):
    a, b = af.parameter(np.full(3, 0.5), name="a"), af.parameter(np.full(3, 0.25), name="b")
    loss = ((a + b) * af.input((3,), name="x")).sum()
    trainer = af.Trainer(loss, [a, b], 0.5, device_optimizer=device, target="m1")
    trainer.step(np.array([0.0, 0.5, 1.0]))
    np.testing.assert_array_equal(trainer.values[a], [0.5, 0.25, 0.0])
    np.testing.assert_array_equal(trainer.values[b], [0.25, 0.0, -0.25])


def test_an_image_port_takes_bytes_only():
    image = af.image_input((2, 1, 4, 4), name="image")
    w = af.parameter(np.full((16, 2), 0.1), name="w")
    trainer = af.Trainer((image.reshape(2, 16) @ w).square().mean(), [w], 0.1, target="m1")
    assert np.isfinite(trainer.step(np.full((2, 1, 4, 4), 200, np.uint8)))
    with pytest.raises(AneforgeError, match="a uint8 port takes whole numbers from 0 to 255"):
        trainer.step(np.full((2, 1, 4, 4), 300))


def test_states_are_refused():
    w = af.parameter(np.ones((1, 2, 1, 4)))
    loss = (af.ring_read(af.live_state((1, 2, 1, 4), "cache"), 0, 4) * w).sum()
    with pytest.raises(af.GraphError, match="live_state: a training step keeps no state but the parameters"):
        af.Trainer(loss, [w], 0.1, target="m1")


def test_predict_takes_any_number_of_samples():
    _, logits, objective, params = small()
    trainer = af.Trainer(objective, params, 0.1, target="m1")
    samples = drawn(19, 6)
    every = trainer.predict(logits, samples)
    assert every.shape == (19, 3)
    np.testing.assert_array_equal(every[8:16], trainer.predict(logits, samples[8:16]))


# Bad input.


def test_shapes_that_drift_are_refused():
    *_, objective, params = small()
    trainer = af.Trainer(objective, params, 0.1, target="m1")
    x, target = batch()
    for call, message in (
        (lambda: trainer.step(x[:7], target), r"x: the data have shape \[7, 6\]; the graph was built for \[8, 6\]"),
        (lambda: trainer.step(x), "data: 1 arrays were given; a step takes x, target"),
        (lambda: trainer.step(x, wanted=target), "data: 1 arrays, wanted were given; a step takes x, target"),
        (lambda: trainer.step(x.astype(str), target), "x: the data are <U"),
        (lambda: trainer.fit([x], 3), "data: 1 arrays were given; the loss takes x, target"),
        (lambda: trainer.fit([x[:5], target[:5]], 3), "data: 5 samples do not fill a batch of 8"),
        (lambda: trainer.fit([x, target[:, :2]], 3), r"target has samples of \[2\]; expected \[3\]"),
        (lambda: trainer.fit([x, target[:7]], 3), "all inputs need as many samples"),
        (lambda: trainer.fit([x, target], -1), "steps: -1 is not a count"),
    ):
        with pytest.raises(AneforgeError, match=message):
            call()
    assert trainer.steps == 0


def test_bad_settings_are_refused():
    *_, objective, params = small()
    for options, message in (
        ({"optimizer": "lion"}, "optimizer: 'lion' is unknown; choose one: sgd, adam"),
        ({"overflow": "ignore"}, "overflow: 'ignore' is unknown; choose one: skip, halve, error"),
        ({"resident_state": True}, "resident_state: it needs the optimiser on the engine. Pass device_optimizer=True"),
        ({"mode": "quick"}, "mode: 'quick' is not a mode"),
        ({"loss_scale": -1.0}, "loss_scale must be a finite number above 0"),
    ):
        with pytest.raises(AneforgeError, match=message):
            af.Trainer(objective, params, 0.1, target="m1", **options)
    with pytest.raises(AneforgeError, match="params: 'input' cannot be trained"):
        af.Trainer(objective, [objective.loss.graph().inputs[0]], 0.1, target="m1")


def test_a_nan_loss_is_an_error_that_names_the_op():
    w = af.parameter(np.ones((4,)), name="w")
    loss = (w * af.input((4,), name="x")).square().sum()
    trainer = af.Trainer(loss, [w], 0.1, target="m1")
    with pytest.raises(AneforgeError, match=r"step 1: the loss is inf on M1 \(first at .*square.*\)"):
        trainer.step(np.full(4, 30000.0))
    assert trainer.steps == 0


def overflowing(**options):
    """A gradient of 8 * scale where the loss itself is small."""
    w = af.parameter(np.full((4,), 0.5), name="w")
    loss = (w * af.input((4,), name="x")).sum()
    return w, af.Trainer(loss, [w], 0.1, loss_scale=32768.0, target="m1", **options)


def test_a_gradient_that_is_not_finite_skips_the_step():
    w, trainer = overflowing()
    with pytest.warns(TrainingWarning, match="step 1: a gradient is not finite on M1.*the step is left out. Further"):
        trainer.step(np.full(4, 8.0))
    np.testing.assert_array_equal(trainer.values[w], 0.5)
    assert (trainer.skipped, trainer.steps, trainer.loss_scale) == (1, 1, 32768.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer.step(np.full(4, 8.0))  # it warns once
    trainer.step(np.full(4, 0.5))
    assert (trainer.values[w] < 0.5).all()


def test_the_scale_is_halved_only_if_asked():
    w, trainer = overflowing(overflow="halve")
    with pytest.warns(TrainingWarning, match="the loss scale is now 16384"):
        trainer.step(np.full(4, 8.0))
    for _ in range(4):
        trainer.step(np.full(4, 8.0))
    assert trainer.loss_scale == 4096.0  # 8 * 8192 is infinite, 8 * 4096 is not
    assert trainer.skipped == 3
    assert (trainer.values[w] < 0.5).all()


def test_overflow_error_and_overflow_without_end_stop():
    _, trainer = overflowing(overflow="error")
    with pytest.raises(AneforgeError, match=r"step 1: a gradient is not finite on M1.* the loss scale is 32768"):
        trainer.step(np.full(4, 8.0))
    _, trainer = overflowing()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(50):
            trainer.step(np.full(4, 8.0))
    with pytest.raises(AneforgeError, match="for 51 steps in a row"):
        trainer.step(np.full(4, 8.0))


def test_the_start_state_has_the_parameters():
    w = af.parameter(drawn(3))
    state = af.Adam([w]).state
    assert isinstance(state, OptimiserState)
    np.testing.assert_array_equal(state.values[0], w.weight.array)
    assert not state.slots["mean"][0].any()
