"""Accuracy on a data set: the figures are those of single runs, whatever way the samples were done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from cli_kit import run
from hypothesis import given
from hypothesis import strategies as st

import aneforge as af
from aneforge.errors import AneforgeError
from aneforge.reports.evaluation import records
from aneforge.reports.evaluation.data import SampleError, open_data
from aneforge.reports.evaluation.metrics import METRICS, SampleAnswer, metric_of, paired_test, score_of
from aneforge.reports.evaluation.result import REFERENCE

CHIPS = ("m1", "m2", "m5")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A trained network of digits with convolutions, and the samples that it was not trained on, as a file."""
    sklearn_neural = pytest.importorskip("sklearn.neural_network")
    from aneforge.train.digits import read_digits

    data = read_digits()
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((12, 1, 3, 3)).astype(np.float16) * np.float16(0.3)

    def features(x: af.Tensor) -> af.Tensor:
        return af.conv(x, kernel, pad=1).relu().reshape((1, 12 * 64))

    probe = af.Graph.of(features(af.input((1, 1, 8, 8), name="x")))
    seen = np.concatenate([af.evaluate(probe, [image[None]])[0] for image in data.images[:800]])
    trained = sklearn_neural.MLPClassifier((24,), max_iter=60, random_state=0, early_stopping=True).fit(
        seen, data.labels[:800]
    )
    x = af.input((1, 1, 8, 8), name="x")
    hidden = af.linear(features(x), trained.coefs_[0].T.astype(np.float16), trained.intercepts_[0].astype(np.float16))
    scores = af.linear(
        hidden.relu(), trained.coefs_[1].T.astype(np.float16), trained.intercepts_[1].astype(np.float16)
    )
    file = tmp_path_factory.mktemp("digits") / "test.npz"
    np.savez_compressed(file, x=data.test_images[:120], labels=data.test_labels[:120])
    return SimpleNamespace(graph=af.Graph.of(scores), file=file, images=data.test_images, labels=data.test_labels)


def test_accuracy_is_the_sum_of_single_runs(digits):
    result = af.evaluate_model(digits.graph, digits.file, CHIPS, "top1,top5", samples=60)
    assert result.samples == 60
    for chip in CHIPS:
        model = af.compile(digits.graph, target=chip)
        right = [
            int(model(image[None]).argmax() == label)
            for image, label in zip(digits.images[:60], digits.labels[:60], strict=True)
        ]
        assert result.scores[chip]["top1"].value == sum(right) / 60
        assert [record.scores[chip]["top1"] for record in result.records] == [[float(one)] for one in right]
    assert result.scores["m1"]["top1"].value > 0.8  # it was trained
    assert result.scores["m1"]["top1"].low < result.scores["m1"]["top1"].value < result.scores["m1"]["top1"].high


def test_forms_of_weights_are_runs_of_one_command(digits):
    result = af.evaluate_model(digits.graph, digits.file, "m1", compress="int8,int4", samples=40)
    assert list(result.asked.runs) == ["m1", "m1 int8", "m1 int4"]
    stored = af.compile(digits.graph, target="m1", compress="int4")
    right = [
        stored(image[None]).argmax() == label
        for image, label in zip(digits.images[:40], digits.labels[:40], strict=True)
    ]
    assert result.scores["m1 int4"]["top1"].value == float(np.mean(right))
    assert {"m1 int8", "m1 int4"} <= {run for run, base in result.tests if base == "m1"}
    assert any(entry.run == "m1 int4" and entry.against == "float64" for entry in result.explained)


def test_shards_are_the_whole(digits, tmp_path):
    whole = af.evaluate_model(digits.graph, digits.file, "m1,m5", "top1,cosine", samples=31, explain=False)
    folders = []
    for number in (1, 2, 3):
        folders.append(tmp_path / str(number))
        part = af.evaluate_model(
            digits.graph, digits.file, "m1,m5", "top1,cosine", samples=31, out=folders[-1], shard=f"{number}/3"
        )
        assert not part.is_whole
    merged = af.merge_evaluations(folders)
    assert merged.is_whole
    assert merged.to_json() == whole.to_json()


def test_a_killed_run_goes_on_with_the_same_figures(digits, tmp_path, monkeypatch):
    script = tmp_path / "net.py"
    graph = tmp_path / "net.aneforge"
    digits.graph.save(graph)
    script.write_text(
        "import time, sys\n"
        "from aneforge.reports.evaluation import records\n"
        "import aneforge as af\n"
        "records._MOST = 8\n"
        f"af.evaluate_model({str(graph)!r}, {str(digits.file)!r}, 'm1,m5', out={str(tmp_path / 'run')!r},\n"
        "    progress=lambda done, total, what: (print(done, flush=True), time.sleep(0.02)))\n"
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 30:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.stdout.close()
    process.wait()
    written = [
        record["sample"]
        for file in (tmp_path / "run/samples").glob("*.json")
        for record in json.loads(file.read_bytes())
    ]
    assert 24 <= len(written) < 120
    heard: list[int] = []
    again = af.evaluate_model(
        str(graph), digits.file, "m1,m5", out=tmp_path / "run", progress=lambda done, *_: heard.append(done)
    )
    assert heard[0] == len(written) + 1
    fresh = af.evaluate_model(str(graph), digits.file, "m1,m5")
    assert again.to_json() == fresh.to_json()


def test_a_folder_of_another_evaluation_is_refused(digits, tmp_path):
    af.evaluate_model(digits.graph, digits.file, "m1", samples=2, out=tmp_path, explain=False)
    with pytest.raises(AneforgeError, match=r"holds another evaluation \(other runs\)"):
        af.evaluate_model(digits.graph, digits.file, "m5", samples=2, out=tmp_path)
    other = tmp_path / "other"
    af.evaluate_model(digits.graph, digits.file, "m1", samples=3, out=other, explain=False)
    with pytest.raises(AneforgeError, match="not of the same evaluation"):
        af.merge_evaluations([tmp_path, other])


def test_a_file_that_was_cut_off_is_done_again(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_MOST", 4)
    first = af.evaluate_model(digits.graph, digits.file, "m1", samples=12, out=tmp_path, explain=False)
    file = sorted((tmp_path / "samples").glob("*.json"))[1]
    file.write_bytes(file.read_bytes()[:50])
    heard: list[int] = []
    second = af.evaluate_model(
        digits.graph,
        digits.file,
        "m1",
        samples=12,
        out=tmp_path,
        explain=False,
        progress=lambda n, *_: heard.append(n),
    )
    assert len(heard) == 4
    assert second.to_json() == first.to_json()


# Bad input.


def small() -> af.Graph:
    x = af.input((1, 4), name="x")
    return af.Graph.of(af.linear(x, np.eye(3, 4).astype(np.float16)))


def samples(**arrays: object) -> dict[str, np.ndarray]:
    return {"x": np.arange(20, dtype=np.float32).reshape(5, 4), **{k: np.asarray(v) for k, v in arrays.items()}}


def test_samples_that_cannot_be_used_are_counted_or_refused():
    data = samples(labels=[0, 1, 7, 2, -1])
    result = af.evaluate_model(small(), data, "m1")
    assert result.samples == 3
    assert [*result.failed] == [2, 4]
    assert "label 7 is not a class; expected a whole number from 0 to 2" in result.failed[2]
    with pytest.raises(SampleError, match=r"sample 2: label 7 is not a class; expected"):
        af.evaluate_model(small(), data, "m1", strict=True)


def test_labels_that_do_not_fit_in_number_are_refused():
    with pytest.raises(AneforgeError, match=r"different numbers of samples \(x 5, labels 4\)"):
        af.evaluate_model(small(), samples(labels=[0, 1, 2, 0]), "m1")


def test_samples_of_another_shape_are_named():
    data = {"x": np.zeros((3, 5), np.float32), "labels": np.zeros(3, int)}
    result = af.evaluate_model(small(), data, "m1")
    assert result.samples == 0
    assert "has shape [5]; the model takes [1, 4]" in result.failed[0]
    assert "no sample has a score" in str(result)


def test_a_metric_that_raises_is_counted(tmp_path):
    own = tmp_path / "own.py"
    own.write_text("def fails(outputs, label, reference):\n    return 1 / int(label)\n")
    result = af.evaluate_model(small(), samples(labels=[0, 1, 2, 1, 0]), "m1", f"{own}:fails")
    assert [*result.failed] == [0, 4]
    assert "failed: ZeroDivisionError" in result.failed[0]
    assert result.scores["m1"][f"{own}:fails"].value == pytest.approx((1 + 0.5 + 1) / 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "top9"}, "metric 'top9' is unknown"),
        ({"metric": "top1"}, "top1 needs labels, and data has none"),
        ({"metric": "cosine", "reference": "none"}, "cosine needs a reference"),
        ({"reference": "tensorflow"}, "'tensorflow' is unknown"),
        ({"reference": "onnx"}, "must be .onnx"),
        ({"samples": 0}, "0 is not a count"),
        ({"shard": "1/2"}, "Give out, a folder"),
        ({"shard": "3/2", "out": "x"}, "expected i/n"),
        ({"mode": "quick"}, "'quick' is not a mode"),
        ({"compress": "int3"}, "'int3' is unknown"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(AneforgeError, match=message):
        af.evaluate_model(small(), samples(), "m1", **settings)


def test_calibration_and_evaluation_are_kept_apart():
    data = samples(labels=[0, 1, 2, 0, 1])
    seen = {"x": data["x"][3:4], "labels": data["labels"][3:4]}
    with pytest.raises(AneforgeError, match="sample 3: is also sample 0 of the calibration data"):
        af.evaluate_model(small(), data, "m1", calibration=seen)
    fresh = {"x": data["x"][3:4] + 1, "labels": data["labels"][3:4]}
    assert af.evaluate_model(small(), data, "m1", calibration=fresh).samples == 5


# Data sets.


def test_rows_of_a_packed_archive_are_read_one_at_a_time(tmp_path):
    file = tmp_path / "x.npz"
    x = np.random.default_rng(0).standard_normal((9, 1, 4)).astype(np.float32)
    np.savez_compressed(file, x=x, y=np.arange(9))
    data = open_data(file, small())
    for number in (0, 4, 8, 2, 2, 5):
        sample = data.read(number)
        assert np.array_equal(sample.feeds["x"], x[number])
        assert sample.label == number


def test_a_damaged_archive_is_refused_or_counted(tmp_path):
    file = tmp_path / "x.npz"
    np.savez(file, x=np.zeros((4000, 4), np.float32), labels=np.zeros(4000, int))
    whole = file.read_bytes()
    file.write_bytes(whole[:100])
    with pytest.raises(AneforgeError, match="not a file of named arrays"):
        af.evaluate_model(small(), file, "m1")
    broken = bytearray(whole)
    broken[5000] ^= 255  # found by the sum at the end of the entry
    file.write_bytes(bytes(broken))
    result = af.evaluate_model(small(), file, "m1", samples=4000, reference="none", explain=False)
    assert 0 < len(result.failed) < 4000
    assert "cannot be read" in next(iter(result.failed.values()))


def test_folders_and_manifests_of_arrays(tmp_path):
    x = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
    for number, row in enumerate(x):
        folder = tmp_path / "data" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{number}.npy", row)
    (tmp_path / "data/class0/9.npy").write_bytes(b"nothing")
    data = open_data(tmp_path / "data", small())
    assert [data.reader.read(n)[1] for n in (0, 1, 3, 4)] == [0, 0, 1, 1]
    with pytest.raises(SampleError, match=r"9\.npy: cannot be read"):
        data.read(2)
    manifest = tmp_path / "list.csv"
    manifest.write_text("path,label\ndata/class0/0.npy,2\ndata/class1/1.npy,1\n")
    listed = open_data(manifest, small())
    assert [listed.read(n).label for n in (0, 1)] == [2, 1]
    assert np.array_equal(listed.read(1).feeds["x"][0], x[1])
    manifest.write_text("path,label\na.npy,cat\n")
    with pytest.raises(AneforgeError, match="label 'cat' is not a class"):
        open_data(manifest, small())


def test_parquet_files(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    table = pyarrow.table({"x": x.tolist(), "label": [0, 1, 2]})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    data = open_data(tmp_path / "x.parquet", small())
    assert [data.read(n).label for n in (0, 2)] == [0, 2]
    assert np.array_equal(data.read(2).feeds["x"], x[2:3])


def test_images_go_into_image_ports(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    pillow.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no image")
    x = af.input((1, 3, 6, 5), dtype="uint8", name="x")
    data = open_data(tmp_path, af.Graph.of(af.cast(x, "fp16") * 1.0))
    assert np.array_equal(data.read(0).feeds["x"][0], pixels.transpose(2, 0, 1))
    with pytest.raises(SampleError, match="not an image"):
        data.read(1)


# Metrics.


def test_metrics_are_what_their_names_say():
    scores = np.array([[0.1, 0.5, 0.5, 0.2, 0.0, -1.0]])
    for label, top1, top5 in ((1, 1, 1), (2, 0, 1), (4, 0, 1), (5, 0, 0)):
        answer = SampleAnswer({"y": scores}, np.int64(label), None)
        assert [*METRICS["top1"].score(answer), *METRICS["top5"].score(answer)] == [top1, top5]
    one, two = {"y": np.array([3.0, 4.0])}, {"y": np.array([4.0, 3.0])}
    assert METRICS["cosine"].score(SampleAnswer(one, None, two)) == [24 / 25]
    noisy = [METRICS["psnr"].score(SampleAnswer({"y": np.array([1.0, 0.1])}, None, {"y": np.array([1.0, 0.0])}))]
    assert score_of(METRICS["psnr"], np.array(noisy)).value == pytest.approx(10 * np.log10(200))
    planes = np.zeros((1, 2, 2, 2))
    planes[0, 1, 0] = 1  # the upper row is class 1
    counts = METRICS["miou"].score(SampleAnswer({"y": planes}, np.array([[1, 1], [1, 255]]), None))
    assert counts == [0.0, 2.0, 1.0, 3.0]
    assert score_of(METRICS["miou"], np.array([counts])).value == pytest.approx(1 / 3)


@given(st.integers(0, 40), st.integers(0, 40))
def test_the_paired_test_of_shares_is_the_binomial_one(won, lost):
    first = np.array([[0.0]] * won + [[1.0]] * lost + [[1.0]] * 5)
    second = np.array([[1.0]] * won + [[0.0]] * lost + [[1.0]] * 5)
    test = paired_test(METRICS["top1"], first, second)
    assert test.difference == pytest.approx((won - lost) / (won + lost + 5))
    from math import comb

    total, fewer = won + lost, min(won, lost)
    exact = min(1.0, sum(comb(total, k) for k in range(total + 1) if min(k, total - k) <= fewer) / 2**total)
    if won != lost:
        assert test.p == pytest.approx(exact)
    else:
        assert test.p == 1.0


def test_intervals_hold_what_they_promise():
    """Of data sets drawn from a known share and a known mean, about 95 of 100 intervals hold it."""
    rng = np.random.default_rng(3)
    own = metric_of("cosine")
    held = [0, 0]
    for _ in range(200):
        shares = (rng.random((80, 1)) < 0.85).astype(float)
        found = score_of(METRICS["top1"], shares)
        held[0] += found.low <= 0.85 <= found.high
    for _ in range(40):
        found = score_of(own, rng.normal(0.4, 0.1, (60, 1)))
        held[1] += found.low <= 0.4 <= found.high
    assert held[0] > 180
    assert held[1] > 33


def test_the_reference_is_a_run_of_its_own(digits):
    result = af.evaluate_model(digits.graph, digits.file, "m1", samples=10, reference="float32")
    assert result.runs == [REFERENCE, "m1"]
    want = [
        af.evaluate(digits.graph, [image[None]])[0].argmax() == label
        for image, label in zip(digits.images[:10], digits.labels[:10], strict=True)
    ]
    assert result.scores[REFERENCE]["top1"].value == np.mean(want)


def test_the_command(digits, tmp_path, monkeypatch, capsys):
    graph = tmp_path / "net.aneforge"
    digits.graph.save(graph)

    def command(line: str) -> tuple[int, str, str]:
        return run(line, monkeypatch, capsys)

    asked = f"evaluate {graph} --data {digits.file} --samples 8 --json --out {tmp_path / 'run'}"
    status, out, _ = command(asked)
    document = json.loads(out)
    assert (status, document["samples"], document["whole"]) == (0, 8, True)
    assert json.loads((tmp_path / "run/summary.json").read_text()) == document
    status, out, _ = command(f"evaluate merge {tmp_path / 'run'}")
    assert status == 0
    assert "8 samples" in out
    status, out, _ = command(f"report {graph} --target m1 --evaluation {tmp_path / 'run'}")
    assert "Accuracy on a data set" in out
    status, out, err = command(f"evaluate {graph} --data {tmp_path / 'absent.npz'}")
    assert (status, out) == (2, "")
    assert "no such file or folder" in err
