"""Code that was written for the public peer package: modules, names, argument orders and shapes of results."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge import _targets as tg
from aneforge import autograd, einsum, special, streaming
from aneforge._compile import Model, compile, compile_multi, cross_compile_check  # noqa: A004
from aneforge.einsum import EinsumUnsupported
from aneforge.graph import concat, conv, input, maximum  # noqa: A004

ROOT = Path(__file__).resolve().parent.parent
DRAW = np.random.default_rng(5)
pytestmark = pytest.mark.filterwarnings("ignore::aneforge.chips.host.TargetDetectionWarning")


def test_modules_and_names():
    assert af.einsum("ij->ji", af.input((2, 3))).shape == (3, 2)  # a function, though the module was imported
    assert einsum("ij,jk->ik", af.input((2, 3)), af.input((3, 4))).shape == (2, 4)
    assert streaming.CheckpointedStack is af.CheckpointedStack
    assert af.autograd is autograd
    assert af.special is special
    assert (conv, concat, input, maximum) == (af.conv, af.concat, af.input, af.maximum)
    assert (compile, compile_multi, Model) == (af.compile, af.compile_multi, af.Model)
    assert all(hasattr(autograd, name) for name in autograd.__all__)
    with pytest.raises(ImportError, match="cannot import name 'no_such'"):
        from aneforge.graph import no_such  # noqa: F401


@pytest.mark.parametrize("equation", ["i->ii", "ij,jk,kl->il", "ij,jk->ikk"])
def test_equations_that_are_right_and_not_computed(equation):
    operands = [af.input((2,) * len(term)) for term in equation.split("->")[0].split(",")]
    with pytest.raises(EinsumUnsupported) as error:
        af.einsum(equation, *operands)
    assert isinstance(error.value, (NotImplementedError, af.GraphError))
    with pytest.raises(af.GraphError, match="must name axes of the operands") as wrong:
        af.einsum("ij->iz", af.input((2, 2)))
    assert not isinstance(wrong.value, NotImplementedError)


def test_families_and_numbers_are_targets():
    y = af.conv(af.input((1, 3, 8, 8)), np.ones((4, 3, 3, 3)) * 0.1).relu()
    wide = af.input((1, 3, 8, 20000)).relu()
    for target in (2, tg.Family.A13, "h13"):
        assert cross_compile_check(y, target)
        assert not cross_compile_check(wide, target)
    assert cross_compile_check(wide, tg.Family.A16)
    with pytest.raises(KeyError, match="has no representative target"):
        cross_compile_check(y, tg.Family.OLDER)


def test_the_catalogue_has_a_word_for_each_generation():
    words = {key: af.OP_CATALOG["topk"][key] for key in ("m1", "m2", "m3", "m4_m5")}
    assert words == {"m1": "walled", "m2": "native", "m3": "native", "m4_m5": "native"}
    assert af.OP_CATALOG["conv"]["m1"] == "native"
    assert {info["m1"] for info in af.OP_CATALOG.values()} == {"native", "bridge", "walled", None}


@pytest.mark.parametrize("target", ["h13", "h15", "h17s", "h18", "a19", "m3 max"])
def test_provenance_is_that_of_the_estimate(target):
    said = af.estimate_provenance(target)
    model = af.compile(af.input((1, 64, 64, 64)).relu(), target=target)
    assert model.estimate().to_json()["basis"] == said
    assert said["measured"] == (said["basis"] == "silicon") == said["fitted"]
    assert ("fitted" if said["measured"] else "extrapolated") in str(model.estimate())


def test_a_build_folder_has_the_program_as_mil(tmp_path):
    pytest.importorskip("coremltools")
    x = af.input((1, 3, 8, 8), name="x")
    y = af.conv(x, DRAW.standard_normal((8, 3, 3, 3)), pad=1, bias=np.ones(8)).relu().mean((2, 3)).softmax(1)
    af.compile(y, target="m1", build_dir=tmp_path / "build", compress="int4")
    assert "= conv(" in (tmp_path / "build" / "model.mil").read_text()
    assert (tmp_path / "build" / "weights.bin").stat().st_size > 108  # half a byte for each of 216 weights
    again = af.load(tmp_path / "build" / "model.mil")
    values = DRAW.standard_normal(x.shape)
    stored = af.compile(y, target="m1", compress="int4").graph
    np.testing.assert_array_equal(af.evaluate(again, [values]), af.evaluate(stored, [values]))


def test_a_build_says_why_it_has_no_mil(tmp_path):
    q = af.input((1, 4, 16, 8))
    af.compile(af.topk(af.input((1, 16)), 5), target="m2", build_dir=tmp_path)
    af.compile(af.sdpa(q, q, q), target="m2", build_dir=tmp_path / "attention")
    for folder in (tmp_path, tmp_path / "attention"):
        assert (folder / "model.mil").exists() != (folder / "model.mil.txt").exists()


def test_ports_and_state_that_stays():
    total, x = af.input((1, 8), name="total"), af.input((1, 8), name="x")
    added = total + x
    model = compile_multi({"sum": added}, target="m1")
    assert [(tensor.uid, name) for tensor, name in model.input_ports] == [(total.uid, "total"), (x.uid, "x")]
    assert [(tensor.uid, name) for tensor, name in model.output_ports] == [(added.uid, "sum")]
    model.prog.share_buffer(0, "sum", 0, "total")
    model.prog.set_input("x", np.full((1, 8), 2.0))
    for _ in range(3):
        model.prog.execute()
    assert (model.prog.read_output("sum") == 6).all()
    with pytest.raises(af.AneforgeError, match="op 1: the model is one program; give 0"):
        model.share_buffer(1, "sum", 0, "total")
    other = compile_multi({"sum": added.sum(1)}, target="m1")
    with pytest.raises(af.AneforgeError, match=r"sum is \[1, 1\], x \[1, 8\]; they must be equal"):
        other.share_buffer(0, "sum", 0, "x")


def classifier(batch=8, seed=0):
    draw = np.random.default_rng(seed)
    weight, bias = af.parameter(draw.standard_normal((4, 3)) * 0.1), af.parameter(np.zeros((1, 3)))
    return [weight, bias], af.input((batch, 4), name="x"), af.input((batch, 3), name="t")


def samples(count=40):
    labels = DRAW.integers(0, 3, count)
    return np.eye(4)[labels] + DRAW.standard_normal((count, 4)) * 0.1, labels


def test_a_trainer_with_a_dataset():
    params, x, t = classifier()
    values, labels = samples()
    trainer = autograd.Trainer(af.softmax_cross_entropy(x @ params[0] + params[1], t), params, lr=0.5)
    with pytest.raises(af.AneforgeError, match="call set_dataset first"):
        trainer.step()
    trainer.set_dataset(x, values, t, np.eye(3)[labels], seed=3)
    before, accuracy = None, trainer.accuracy(values, labels)
    for _ in range(40):
        trainer.step()
        before = before or trainer.loss()
    assert trainer.loss() < before / 2
    assert trainer.accuracy(values, labels) > max(accuracy, 0.95)
    same = autograd.Trainer(trainer.objective, params, lr=0.5)
    same.fit([values, np.eye(3)[labels]], 40, seed=3)
    assert all((same.values[param] == trainer.values[param]).all() for param in params)
    trainer.release()
    with pytest.raises(af.AneforgeError, match="was released"):
        trainer.step()


def test_data_of_every_step_as_a_mapping():
    weight, x, t = af.parameter(np.ones((4, 1))), af.input((6, 4)), af.input((6, 1))
    values = DRAW.standard_normal((6, 4))
    data = {x: values, t: values @ np.array([[1.0], [2], [3], [4]])}
    trainer = af.Trainer(af.mse(x @ weight, t), [weight], lr=0.1, data_inputs=data)
    losses = [trainer.step() for _ in range(20)]
    assert losses[-1] < losses[0] / 5
    assert trainer.loss() < losses[-1]
    with pytest.raises(af.AneforgeError, match="accuracy: the loss has no logits"):
        trainer.accuracy(values, np.zeros(6))


@pytest.mark.parametrize("kind", ["ce", "mse"])
def test_unrolled_steps_are_those_of_a_trainer(kind):
    params, x, t = classifier()
    values, labels = samples()
    wanted = np.eye(3)[labels]

    def forward(weights, batch):
        return batch @ weights[0] + weights[1]

    ports = [(af.input((8, 4)), af.input((8, 3))) for _ in range(3)]
    pairs = [port for port, _ in ports], [port for _, port in ports]
    unrolled = af.UnrolledTrainer(params, forward, kind, *pairs, (values, wanted), 0.05, seed=1, target="m2")
    loss = {"ce": af.softmax_cross_entropy, "mse": af.mse}[kind](forward(params, x), t)
    single = af.Trainer(loss, params, 0.05, optimizer="adam", device_optimizer=True, target="m2")
    single.set_dataset(x, values, t, wanted, seed=1)
    for _ in range(2):
        assert unrolled.step() == [single.step() for _ in range(3)]
    for param in params:
        np.testing.assert_array_equal(unrolled.values[param], single.values[param])
    np.testing.assert_array_equal(unrolled.predict(values), single.predict(forward(params, x), values))
    unrolled.release()
    with pytest.raises(af.AneforgeError, match="was released"):
        unrolled.step()


def test_a_step_of_adam_as_ops():
    param, kept, square, gradient = (af.input((4,), name=name) for name in "pmvg")
    (new,), (mean,), (second,) = autograd.adam_step([param], [kept], [square], {param: gradient}, 0.1)
    arrays = [DRAW.standard_normal(4) for _ in range(4)]
    arrays[2] = np.abs(arrays[2])
    by_name = dict(zip("pmvg", arrays, strict=True))
    found = af.evaluate(af.Graph([new, mean, second]), by_name)
    m, v = 0.9 * arrays[1] + 0.1 * arrays[3], 0.999 * arrays[2] + 0.001 * arrays[3] ** 2
    for value, true in zip(found, (arrays[0] - 0.1 * m / np.sqrt(v), m, v), strict=True):
        np.testing.assert_allclose(value, true, rtol=1e-2)


def test_what_is_out_of_scope_says_so():
    with pytest.raises(af.LoadError, match=r"models of a hub are not loaded\. Export it to ONNX"):
        af.load("org/name")
    with pytest.raises(AttributeError, match="load_gpt2: this package loads no models from hubs"):
        af.load_gpt2  # noqa: B018
    with pytest.raises(ImportError, match="aneforge"):
        importlib.import_module("aneforge.llm")


@pytest.mark.parametrize(("name", "words"), [("fft", "back again"), ("dsp", "largest error"), ("linalg", "cholesky")])
def test_numeric_examples(name, words):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", f"examples/{name}.py"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert words in done.stdout
    errors = [float(word) for word in done.stdout.replace(":", " ").split() if "e-" in word]
    assert errors
    assert max(errors) < 5e-3


@pytest.mark.parametrize("target", ["m1", "m5"])
def test_elimination_of_a_matrix_of_condition_100_stays_finite(target):
    """Chips lose digits there, and no number: pivots that fp16 holds are divided by, not by what is left of them."""
    draw = np.random.default_rng(0)
    left, right = (np.linalg.qr(draw.standard_normal((8, 8)))[0] for _ in range(2))
    upper, columns = af.input((8, 8), name="a"), []
    for place in range(7):
        below = (np.arange(8)[:, None] > place).astype(np.float16)
        column = upper[:, place : place + 1] * below / upper[place : place + 1, place : place + 1]
        columns.append(column)
        upper = upper - column @ upper[place : place + 1, :]
    model = af.compile_multi([upper, af.concat(columns, axis=1)], target=target)
    found = list(model(left @ np.diag(np.geomspace(1, 0.01, 8)) @ right).values())
    assert all(np.isfinite(part).all() for part in found)
