"""The parity experiment: chips beside each other, its table and picture, the digits and the example."""

from __future__ import annotations

import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge.errors import AneforgeError
from aneforge.train.digits import read_digits
from aneforge.train.drift_plot import drift_svg
from aneforge.train.parity import Parity, TrainingRun, compare_training

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "train_digits.py"


def pictures(count=48, side=8):
    """Bright rows at a place that is the label."""
    draw = np.random.default_rng(0)
    labels = np.arange(count) % 8
    images = draw.random((count, side, side)) * 0.2
    images[np.arange(count), labels] += 0.8
    return images, labels


@pytest.fixture(scope="module")
def parity():
    """A quotient is among what M1 and M2 compute alike and M5 does not."""
    images, labels = pictures()
    draw = np.random.default_rng(2)
    x, target = af.input((16, 1, 8, 8), name="images"), af.input((16, 10), name="targets")
    first = af.conv_param(draw.standard_normal((2, 1, 3, 3)) * 0.5, name="first")
    second = af.conv_param(draw.standard_normal((2, 2, 3, 3)) * 0.3, name="second")
    matrix = af.parameter(draw.standard_normal((128, 10)) * 0.1, name="matrix")
    hidden = af.conv2d(x, first, pad=1)
    hidden = af.conv2d(hidden / (hidden.square() + 1.0), second, pad=1)
    logits = hidden.reshape(16, 128) @ matrix
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compare_training(
            af.softmax_cross_entropy(logits, target),
            [first, second, matrix],
            0.2,
            [images[:, None], np.eye(10)[labels]],
            12,
            "m1,m2,m5",
            logits=logits,
            test=(images[:, None], labels),
            options={"loss_scale": 1024.0, "device_optimizer": True, "resident_state": True},
        )


def test_m1_and_m2_have_the_same_bits_and_m5_does_not(parity):
    """As published: A14 lands on M1's number, and the drift begins behind it."""
    first, second, third = parity.runs.values()
    assert first.first_difference is second.first_difference is None
    assert first.losses == second.losses
    assert third.first_difference is not None
    assert third.drift[-1] > 0
    assert 0 < third.drift[-1] < 0.05
    assert first.accuracy == second.accuracy


def test_the_table_says_it(parity):
    table = str(parity)
    assert "m1" in table
    assert "reference" in table
    assert "never" in table
    assert f"step {parity.runs['m5'].first_difference}" in table
    assert "reached" in table
    data = parity.to_json()
    assert data["samples"] == 48
    assert data["targets"]["m5"]["first_difference"] == parity.runs["m5"].first_difference
    assert len(data["targets"]["m1"]["losses"]) == 12


def test_drift_is_measured_against_the_first_chip():
    w = af.parameter(np.array([0.3, 0.7]), name="w")
    loss = (w * af.input((2,), name="x")).square().mean()
    data = [np.random.default_rng(0).standard_normal((6, 2))]
    with pytest.raises(AneforgeError, match="test: accuracy needs both logits and test"):
        compare_training(loss, [w], 0.1, data, 1, "m1", logits=loss)
    batch = af.input((3, 2), name="x")
    loss = (batch * w).square().mean()
    alone = af.Trainer(loss, [w], 0.1, target="m1")
    alone.fit(data, 4, progress=False)
    run = compare_training(loss, [w], 0.1, data, 4, "m1,m5").runs
    other = af.Trainer(loss, [w], 0.1, target="m5")
    other.fit(data, 4, progress=False)
    apart = np.abs(alone.values[w].astype(float) - other.values[w].astype(float)).max()
    assert run["m5"].drift[-1] == pytest.approx(apart, abs=1e-12)
    assert run["m1"].drift == [0.0] * 4


def test_the_picture_is_a_file_that_can_be_drawn(parity):
    root = ET.fromstring(drift_svg(parity, "A <title> & more"))  # noqa: S314 - our own text
    lines = [mark for mark in root.iter() if mark.tag.endswith("polyline")]
    assert len(lines) == 4  # the drift of m5, and three losses
    assert len(lines[0].attrib["points"].split()) == len([v for v in parity.runs["m5"].drift if v > 0])
    words = [text.text for text in root.iter() if text.tag.endswith("text")]
    assert any("same bits" in str(word) for word in words)


def test_pictures_without_drift_or_steps_say_so():
    same = Parity({name: TrainingRun(name, [1.0, 0.5], [0.0, 0.0], [0, 0]) for name in ("m1", "m2")}, 4, 0)
    assert "Every chip has the same weights as m1" in drift_svg(same)
    assert "No step was trained" in drift_svg(Parity({"m1": TrainingRun("m1")}, 4, 0))


# Digits.


@pytest.mark.parametrize("names", [("Xtr", "ytr", "Xte", "yte"), ("x_train", "y_train", "x_test", "y_test")])
def test_files_of_digits(tmp_path, names):
    images = np.arange(4 * 64, dtype=np.uint8).reshape(4, 8, 8)
    flat = images.reshape(4, 64)
    labels = np.array([1, 2, 3, 4], np.uint8)
    np.savez(tmp_path / "d.npz", **dict(zip(names, (images, labels, flat, labels), strict=True)))
    digits = read_digits(tmp_path / "d.npz")
    assert digits.images.shape == digits.test_images.shape == (4, 1, 8, 8)
    np.testing.assert_allclose(digits.images[0, 0, 0, :2], [0, 1 / 255], rtol=1e-6)
    np.testing.assert_array_equal(digits.images, digits.test_images)
    assert digits.targets[0].argmax() == 1


def test_bad_files_of_digits_are_refused(tmp_path):
    file = tmp_path / "d.npz"
    good = {"x_train": np.zeros((2, 8, 8)), "y_train": np.array([0, 1])}
    good |= {"x_test": good["x_train"], "y_test": good["y_train"]}
    for change, message in (
        ({"y_test": None}, "has no array yte or y_test"),
        ({"y_train": np.array([0, 10])}, "labels must be whole numbers from 0 to 9"),
        ({"y_train": np.array([0.0, 1.0])}, "labels must be whole numbers"),
        ({"y_train": np.array([0])}, "one for each picture"),
        ({"x_train": np.zeros((2, 7, 7))}, r"pictures of shape \[7, 7\]"),
    ):
        np.savez(file, **{name: array for name, array in {**good, **change}.items() if array is not None})
        with pytest.raises(AneforgeError, match=message):
            read_digits(file)


def test_without_scikit_learn_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(AneforgeError, match=r"scikit-learn is not installed.*pass --data"):
        read_digits()


def test_scikit_learns_digits():
    pytest.importorskip("sklearn")
    digits = read_digits()
    assert digits.images.shape == (1297, 1, 8, 8)
    assert len(digits.test_labels) == 500
    assert 0 <= digits.images.min() <= digits.images.max() <= 1


def test_the_example_trains_prints_the_table_and_writes_the_picture(tmp_path):
    images, labels = pictures()
    file = tmp_path / "digits.npz"
    np.savez(file, x_train=images, y_train=labels, x_test=images, y_test=labels)
    words = [
        "--data",
        str(file),
        "--steps",
        "3",
        "--batch",
        "16",
        "--target",
        "m1,m5",
        "--out",
        str(tmp_path / "a.svg"),
    ]
    done = subprocess.run([sys.executable, str(EXAMPLE), *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "digits.npz: 48 pictures, 48 for the test; 3 steps" in done.stdout
    assert "0 recompiles" in done.stdout
    assert "3/3 (100 %)  loss" in done.stderr
    assert ET.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")  # noqa: S314 - our own file
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--data", "none.npz"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
