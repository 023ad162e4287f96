"""Checkpoints, interrupts and progress: a run that stops and goes on has the bits of one that never stopped."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

import aneforge as af
from aneforge.errors import AneforgeError, LoadError
from aneforge.train.loop import batch_of

DATA = np.random.default_rng(5).standard_normal((40, 6)), np.eye(3)[np.arange(40) % 3]


def network(width=5, constant=1.0, seed=0):
    draw = np.random.default_rng(seed)
    x, target = af.input((8, 6), name="x"), af.input((8, 3), name="target")
    w = af.parameter(draw.standard_normal((6, width)), name="w")
    v = af.parameter(draw.standard_normal((width, 3)), name="v")
    return af.softmax_cross_entropy((x @ w).relu() * constant @ v, target), [w, v]


def trainer(chip="m1", **options):
    net = {key: options.pop(key) for key in ("width", "constant", "seed") if key in options}
    objective, params = network(**net)
    return af.Trainer(objective, params, 0.1, loss_scale=64.0, target=chip, **options)


KINDS = [
    {},
    {"optimizer": "adam"},
    {"device_optimizer": True},
    {"optimizer": "adam", "device_optimizer": True},
    {"optimizer": "adam", "device_optimizer": True, "resident_state": True},
]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(options, tmp_path):
    whole = trainer(**options)
    losses = whole.fit(DATA, 14, progress=False).losses
    first = trainer(**options)
    before = first.fit(DATA, 6, checkpoint=tmp_path / "run.ckpt", progress=False).losses
    second = trainer(seed=9, **options)  # other start values: all come from the file
    second.load(tmp_path / "run.ckpt")
    assert second.steps == 6
    after = second.fit(DATA, 14, progress=False).losses
    assert before + after == losses
    for expected, found in zip(whole.state.values, second.state.values, strict=True):
        assert expected.dtype == found.dtype
        np.testing.assert_array_equal(expected, found)
    for name, arrays in whole.state.slots.items():
        for expected, found in zip(arrays, second.state.slots[name], strict=True):
            np.testing.assert_array_equal(expected, found)


def test_rate_scale_and_counters_are_resumed(tmp_path):
    one, other = trainer(), trainer()
    one.lr, one.loss_scale = 0.1 / 3, 96.0
    one.fit(DATA, 2, progress=False)
    one.save(tmp_path / "a.ckpt")
    other.load(tmp_path / "a.ckpt")
    assert (other.lr, other.loss_scale, other.steps, other.skipped) == (one.lr, one.loss_scale, 2, 0)


def test_equal_states_give_equal_files(tmp_path):
    for name in ("a", "b"):
        run = trainer()
        run.fit(DATA, 3, progress=False)
        run.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_checkpoint_of_another_model_or_optimiser_is_refused(tmp_path):
    file = tmp_path / "run.ckpt"
    trainer().save(file)
    for other, message in (
        (trainer(width=6), r"run.ckpt: a checkpoint of another model \(parameters w, v\)"),
        (trainer(constant=2.0), "a checkpoint of another model"),
        (trainer(optimizer="adam"), "is of sgd on the host; this trainer has adam on the host"),
        (trainer(device_optimizer=True), "is of sgd on the host; this trainer has sgd on the engine"),
    ):
        with pytest.raises(LoadError, match=message):
            other.load(file)
        assert other.steps == 0
    another_chip = trainer("m5")
    another_chip.load(file)  # the state goes on under another arithmetic


def test_damaged_files_are_one_clear_line(tmp_path):
    file = tmp_path / "run.ckpt"
    run = trainer()
    run.save(file)
    content = file.read_bytes()
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}

    def rewritten(changed):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for name, data in {**parts, **changed}.items():
                if data is not None:
                    archive.writestr(name, data)
        return stream.getvalue()

    manifest = json.loads(parts["checkpoint.json"])
    array = bytearray(parts["values/0.npy"])
    array[-1] ^= 1
    cases = {
        "not a checkpoint": b"hello",
        "not a checkpoint that aneforge saved": content[: len(content) // 2],
        "checkpoint of version 99": rewritten(
            {"checkpoint.json": json.dumps({**manifest, "aneforge_checkpoint": 99}).encode()}
        ),
        r"values/0.npy has other bytes than were written": rewritten({"values/0.npy": bytes(array)}),
        "the entries are not those that were written": rewritten({"values/1.npy": None}),
        "has no checkpoint.json": rewritten({"checkpoint.json": None}),
    }
    for message, data in cases.items():
        file.write_bytes(data)
        with pytest.raises(LoadError, match=message):
            run.load(file)
    with pytest.raises(AneforgeError, match="none"):
        run.load(tmp_path / "none.ckpt")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "run.ckpt"
    run = trainer()
    run.save(file)
    before = file.read_bytes()
    run.fit(DATA, 2, progress=False)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(AneforgeError, match="cannot be written"):
        run.save(file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.ckpt"]


@pytest.mark.parametrize("options", KINDS[:1] + KINDS[-1:], ids=str)
def test_ctrl_c_leaves_a_checkpoint_that_goes_on(options, tmp_path):
    file, whole = tmp_path / "run.ckpt", trainer(**options)
    losses = whole.fit(DATA, 9, progress=False).losses
    heard = []

    def interrupt(done, total, what):
        heard.append((done, total, what.partition(",")[0]))
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(**options).fit(DATA, 9, checkpoint=file, progress=interrupt)
    assert heard == [(step, 9, f"loss {loss:.4g}") for step, loss in enumerate(losses[:4], 1)]
    resumed = trainer(**options)
    resumed.load(file)
    assert resumed.steps == 4
    assert resumed.fit(DATA, 9, progress=False).losses == losses[4:]


def test_an_interrupt_inside_a_step_leaves_the_state_before_it(tmp_path, monkeypatch):
    run = trainer()
    run.fit(DATA, 3, progress=False)
    before = run.state

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(run._optimiser), "updated", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run.fit(DATA, 5, checkpoint=tmp_path / "run.ckpt", progress=False)
    assert run.state is before
    resumed = trainer()
    resumed.load(tmp_path / "run.ckpt")
    assert resumed.steps == 3


def test_checkpoints_are_written_on_the_way(tmp_path):
    file, seen = tmp_path / "run.ckpt", []

    def look(done, *_):
        seen.append(file.exists())

    trainer().fit(DATA, 5, checkpoint=file, every=2, progress=look)
    assert seen == [False, False, True, True, True]


def test_batches_depend_on_seed_and_step_only():
    epoch = np.concatenate([batch_of(20, 6, 3, step) for step in range(3)])
    assert len(set(epoch.tolist())) == 18
    np.testing.assert_array_equal(batch_of(20, 6, 3, 7), batch_of(20, 6, 3, 7))
    assert batch_of(20, 6, 3, 0).tolist() != batch_of(20, 6, 3, 3).tolist()
    assert batch_of(20, 6, 3, 0).tolist() != batch_of(20, 6, 4, 0).tolist()


def test_progress_that_is_asked_for_is_a_few_lines_where_there_is_no_terminal(capsys):
    trainer().fit(DATA, 30, progress=True)
    told = capsys.readouterr().err
    lines = told.splitlines()
    assert 10 <= len(lines) <= 12  # the first step, and one for each tenth
    assert lines[-1].startswith("[########################] 30/30 (100 %)  loss ")
    assert "steps/s" in lines[-1]
    assert "\r" not in told
    trainer().fit(DATA, 3)
    assert capsys.readouterr().err == ""
