"""Gradients under a chip's arithmetic against float64 differences: what is right, what is lost, and where."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import aneforge as af
from aneforge.cli import say
from aneforge.cli.app import app
from aneforge.errors import AneforgeError
from aneforge.train.loop import FP16, PRODUCT, advise

NET = """
import numpy as np
import aneforge as af

draw = np.random.default_rng(0)
x = af.input((8, 6), name="x")
w = af.parameter(draw.standard_normal((6, 5)), name="w")
v = af.parameter(draw.standard_normal((5, 3)), name="v")
logits = (x @ w).relu() @ v
loss = logits.square().mean()
small = (logits * (x @ w).sum(1)).mean() * 1e-7
"""


@pytest.fixture(autouse=True)
def plain_voice():
    yield
    say.set_voice()


@pytest.fixture
def net(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return "net.py"


def shrinking(factor=2.0**-13):
    """A gradient that becomes too small for fp16 behind one op."""
    x = af.input((4, 8), name="x")
    w = af.parameter(np.random.default_rng(1).standard_normal((8, 8)), name="w")
    kept = (x @ w).named("product")
    return ((kept * factor).named("shrunk") * factor).named("twice").square().sum(), w


def test_right_gradients_are_right_on_every_chip():
    x = af.input((8, 6), name="x")
    w = af.parameter(np.random.default_rng(0).standard_normal((6, 3)), name="w")
    report = af.gradcheck((x @ w).tanh().square().mean(), "m1,m2,m5")
    assert report.ok
    assert list(report) == ["m1", "m2", "m5"]
    for result in report.values():
        (check,) = result.parameters
        assert check.name == "w"
        assert check.elements == 18
        assert check.derivative < 1e-6
        assert 0 < check.error < 0.02
        assert check.lost is None


def test_a_lost_gradient_names_the_first_op_that_loses_it():
    loss, w = shrinking()
    report = af.gradcheck(loss, "m1", params=[w])
    (check,) = report.only.parameters
    assert not report.ok
    assert check.zero > 0
    assert check.derivative < 1e-3  # the derivative is right: it is the arithmetic that loses it
    assert check.lost is not None
    assert check.lost.where.startswith("test_gradcheck.py:")
    assert "become zero" in check.lost.what or "relative error" in check.lost.what
    assert f"first lost at {check.lost}" in str(report)


def test_the_advised_scale_brings_it_back():
    loss, _ = shrinking(2.0**-5)
    before = af.gradcheck(loss, "m1", [np.random.default_rng(2).standard_normal((4, 8))])
    advised = before.only.advice.advised
    assert not before.ok
    assert advised > 1
    after = af.gradcheck(loss, "m1", [np.random.default_rng(2).standard_normal((4, 8))], loss_scale=advised)
    assert after.ok
    assert after.only.advice.fits


def test_an_infinite_gradient_names_its_op():
    x = af.input((4,), name="x")
    w = af.parameter(np.full((4,), 0.5), name="w")
    report = af.gradcheck((w * x * 100.0).sum(), "m5", [np.full(4, 10.0)], loss_scale=4096.0)
    (check,) = report.only.parameters
    assert check.infinite == 4
    assert check.lost is not None
    assert check.lost.op == "mul"
    assert "4 of 4 numbers are infinite; the largest in float64 is 4.1e+05" in check.lost.what
    assert report.only.advice.advised < 4096
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["targets"]["m5"]["parameters"][0]["error"] is None


def test_a_wrong_derivative_shows_against_differences(monkeypatch):
    from dataclasses import replace

    from aneforge.graph.node import definition

    x = af.input((4, 3), name="x")
    w = af.parameter(np.random.default_rng(0).standard_normal((3, 2)), name="w")
    loss = (x @ w).tanh().mean()
    wrong = replace(definition("tanh"), derivative=lambda g, y, x: [g * y])
    node = next(node for node in loss.graph() if node.op == "tanh")
    monkeypatch.setattr(node.signature, "op", wrong)
    assert af.gradcheck(loss, "m1").only.parameters[0].derivative > 0.1


def test_a_chip_without_a_program_does_not_stop_the_others():
    x = af.input((4, 3), name="x")
    w = af.parameter(np.random.default_rng(0).standard_normal((4, 3)), name="w")
    loss = (x * w).mean()
    report = af.gradcheck(loss, "h11,m1")
    assert list(report) == ["m1"]
    assert report["m1"].ok
    assert not report.ok
    assert "h11: no program: mean_" in str(report)
    assert list(report.to_json()["refused"]) == ["h11"]
    with pytest.raises(af.CompileError):
        af.gradcheck(loss, "h11")


def test_bad_input_is_refused(net):
    x = af.input((4, 3), name="x")
    w = af.parameter(np.ones((3, 2)), name="w")
    loss = (x @ w).mean()
    for call, message in (
        (lambda: af.gradcheck(x @ w, "m1"), "it must be one number"),
        (lambda: af.gradcheck(loss, "m1", samples=0), "samples: 0 is not a count"),
        (lambda: af.gradcheck(loss, "m1", loss="mse"), "loss: it is for graphs and model files"),
        (lambda: af.gradcheck(loss, "m1", [np.ones((2, 3))]), r"x: an array of float64 \[2, 3\] is given; expected"),
        (lambda: af.gradcheck(af.Graph([x.relu()]), "m1"), "graph: has no parameters"),
        (lambda: af.gradcheck(af.Graph([loss, x @ w]), "m1"), "graph: has 2 outputs; training needs one"),
        (lambda: af.gradcheck(af.Graph([x @ w]), "m1", loss="hinge"), "loss: 'hinge' is unknown; choose one: output"),
        (lambda: af.gradcheck(loss, "m1", params=[af.parameter(np.ones(2), name="q")]), "is not in the graph"),
    ):
        with pytest.raises(AneforgeError, match=message):
            call()


# Advice.


def test_advice_lifts_small_gradients_and_keeps_room_above():
    values = {"a": np.array([1e-6, 2e-6, 1e-4])}
    advice = advise(values, {}, 1.0)
    assert advice.coarse == 0  # fp16 has four bits from 2^-20 on, 9.5e-7
    assert (advice.least, advice.advised, advice.fits) == (1.0, 1.0, True)
    product = advise(values, {"a": PRODUCT}, 1.0)
    assert product.coarse == 1
    assert product.lost == pytest.approx(2 / 3)  # a product has its last digit at 2^-16, 1.5e-5
    assert product.advised == 256.0  # 1e-6 * 256 is above 2^-12
    assert not product.fits
    assert advice.most == 2.0 ** np.floor(np.log2(FP16.ceiling / 8 / 1e-4))
    tight = advise({"a": np.array([1e-6, 1000.0])}, {"a": PRODUCT}, 1.0)
    assert tight.most == 4.0  # 4000 is an eighth of 32768
    assert tight.advised == 4.0
    assert "forbids it" in str(tight)
    assert str(advise({"a": np.array([0.5, 1.0])}, {}, 1.0)).endswith("Keep this scale.")


def test_advice_at_one_scale_is_that_at_another():
    values = np.abs(np.random.default_rng(0).standard_normal(1000)) * 1e-5
    low, high = (advise({"a": values * scale}, {"a": PRODUCT}, scale) for scale in (1.0, 256.0))
    assert (low.least, low.most) == (high.least, high.most)
    assert low.advised > 256


# The command.


def test_the_command_gives_a_verdict(net):
    done = CliRunner().invoke(app, ["gradcheck", "net.py:loss", "--target", "m1,m5"])
    assert done.exit_code == 0, done.output
    assert "M1: gradients against float64 differences" in done.output
    done = CliRunner().invoke(app, ["gradcheck", "net.py:small", "--json", "-q"])
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert not report["ok"]
    assert {check["name"] for check in report["targets"]["m1"]["parameters"]} == {"w", "v"}
    assert report["targets"]["m1"]["advice"]["advised"] > 1


def test_the_command_takes_logits_with_a_loss(net):
    done = CliRunner().invoke(app, ["gradcheck", "net.py:logits", "--loss", "cross-entropy", "--loss-scale", "64"])
    assert done.exit_code == 0, done.output


def train(*words):
    return CliRunner().invoke(app, ["train", *words])


def test_train_and_resume_on_the_command_line(net, tmp_path):
    draw = np.random.default_rng(3)
    x = draw.standard_normal((64, 6))
    np.savez("data.npz", x=x, target=x[:, :3].argmax(1))
    common = ["net.py:logits", "--loss", "cross-entropy", "--data", "data.npz", "--lr", "0.2", "--json"]
    whole = json.loads(train(*common, "--steps", "20").stdout)
    first = json.loads(train(*common, "--steps", "8", "--out", "run.ckpt").stdout)
    done = train(*common, "--steps", "20", "--resume", "run.ckpt")
    assert done.exit_code == 0, done.output
    assert first["losses"] + json.loads(done.stdout)["losses"] == whole["losses"]
    assert whole["losses"][-1] < whole["losses"][0]
    assert whole["plan"]["programs"] == 1
    text = train(*common[:-1], "--steps", "5", "--out", "text.ckpt")
    assert "5 steps, loss" in text.output
    assert "the checkpoint is in text.ckpt" in text.output


def test_train_refuses_bad_data(net):
    np.savez("data.npz", x=np.zeros((16, 6)), target=np.full(16, 7))
    np.savez("other.npz", y=np.zeros((16, 6)))
    for words, message in (
        (
            ["net.py:logits", "--loss", "cross-entropy", "--data", "data.npz"],
            "target must hold class numbers from 0 to 2",
        ),
        (["net.py:loss", "--data", "other.npz"], "arrays are given for y; expected x"),
        (["net.py:loss", "--data", "none.npz"], "none.npz"),
        (["net.py:logits", "--data", "data.npz"], "it must be one number"),
    ):
        done = train(*words)
        assert isinstance(done.exception, AneforgeError), done.output
        assert message in str(done.exception)
