"""A sweep goes on where it was, and keeps no result of what has changed since."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import sweep_kit
from sweep_kit import write_net

from aneforge.reports.sweep import merge, sweep
from aneforge.reports.sweep.plan import SweepOptions, models_of, task_key
from aneforge.reports.sweep.table import read_table
from aneforge.reports.workers import WorkerLimits

EXAMPLES = sweep_kit.ROOT / "examples"
CHIPS = "m1,m5"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def zoo(home):
    return sweep_kit.write_zoo(home)


def test_what_is_done_is_skipped(zoo, home):
    first = sweep(zoo, CHIPS, "out", workers=2)
    stamps = {file.name: file.stat().st_mtime_ns for file in (home / "out" / "results").iterdir()}
    second = sweep(zoo, CHIPS, "out", workers=2)
    assert (first.progress.done, second.progress.done, second.progress.skipped) == (4, 0, 4)
    assert second.table == first.table
    assert stamps == {file.name: file.stat().st_mtime_ns for file in (home / "out" / "results").iterdir()}


def test_a_changed_model_a_damaged_result_and_other_options_are_done_again(zoo, home):
    sweep(zoo, CHIPS, "out", workers=1)
    write_net(home / "net.py", channels=5)
    assert sweep(zoo, CHIPS, "out", workers=1).progress.done == 1
    for file in (home / "out" / "results").iterdir():
        file.write_text(file.read_text()[:-9])
    assert sweep(zoo, CHIPS, "out", workers=1).progress.done == 4
    assert sweep(zoo, CHIPS, "out", "direct_call", workers=1).progress.done == 4
    assert sweep(zoo, "m1", "out", workers=1).progress.done == 4


def test_a_key_covers_content_sizes_function_and_options(home):
    write_net(home / "net.py")
    (model,) = models_of(["net.py"])
    (sized,) = models_of(["net.py"], {"n": 1})
    (named,) = models_of(["net.py"], None, "main")
    (picked,) = models_of(["net.py:out"])
    (home / "zoo.json").write_text('[{"path": "net.py", "revision": "v2"}]')
    (revised,) = models_of(["zoo.json"])
    m1, m5 = SweepOptions({"m1": "M1"}, "coreml_call"), SweepOptions({"m5": "M5"}, "coreml_call")
    keys = [task_key("c", one, m1) for one in (model, sized, named, picked, revised)]
    keys += [task_key("d", model, m1), task_key("c", model, m5)]
    assert len(set(keys)) == len(keys)
    assert task_key("c", model, m1) == keys[0]


def test_a_key_covers_the_code_of_aneforge(home, monkeypatch):
    write_net(home / "net.py")
    first = sweep(["net.py"], "m1", "out", workers=1)
    monkeypatch.setattr("aneforge.reports.sweep.plan.code_digest", lambda: "edited")
    second = sweep(["net.py"], "m1", "out", workers=1)
    assert second.progress.done == 1
    assert second.table.rows[0]["key"] != first.table.rows[0]["key"]


def test_a_new_revision_is_a_new_result(home):
    write_net(home / "net.py")
    keys = set()
    for revision in ("v1", "v2", "v2"):
        (home / "zoo.csv").write_text(f"path,revision\nnet.py,{revision}\n")
        done = sweep(["zoo.csv"], "m1", "out", workers=1)
        keys.add(done.table.rows[0]["key"])
    assert len(keys) == 2
    assert done.progress.done == 0


# What a Python model reads.

BLOCKS = "import pathlib; channels = int(pathlib.Path('{folder}/width.txt').read_text())"


def python_model(folder: Path, width: str) -> str:
    """A model whose channels come from a module beside it, which reads them from a file."""
    folder.mkdir(exist_ok=True)
    (folder / "width.txt").write_text(width)
    (folder / "blocks.py").write_text(BLOCKS.format(folder=folder))
    net = sweep_kit.NET.format(channels="blocks.channels")
    (folder / "net.py").write_text(f"import blocks\n{net}")
    return str(folder / "net.py")


def test_a_python_model_is_done_again_when_a_file_that_it_read_changes(home):
    model = python_model(home / "a", "4")

    def run():
        return sweep([model], "m1", "out", workers=1)

    first = run()
    assert first.ok, first.table.failed
    assert run().progress.done == 0
    (home / "a" / "width.txt").write_text("6")
    second = run()
    assert second.progress.done == 1
    assert second.table.rows[0]["weight_bytes"] != first.table.rows[0]["weight_bytes"]
    assert run().progress.done == 0
    (home / "a" / "blocks.py").write_text("channels = 8")
    assert run().progress.done == 1
    (home / "a" / "unused.py").write_text("channels = 9")
    assert run().progress.done == 0


def test_a_link_that_leads_elsewhere_is_seen(home):
    model = python_model(home / "a", "4")
    for width in ("6", "8"):
        (home / f"blocks{width}.py").write_text(f"channels = {width}")
        (home / "a" / "blocks.py").unlink()
        (home / "a" / "blocks.py").symlink_to(home / f"blocks{width}.py")
        assert sweep([model], "m1", "out", workers=1).progress.done == 1
        assert sweep([model], "m1", "out", workers=1).progress.done == 0


def test_a_model_that_reads_what_is_no_file_ends(home):
    os.mkfifo(home / "pipe")
    reading = "import os; os.close(os.open('pipe', os.O_RDONLY | os.O_NONBLOCK)); os.listdir('.')"
    write_net(home / "net.py", before=reading)
    assert sweep(["net.py"], "m1", "out", workers=1, limits=WorkerLimits(60)).ok
    assert sweep(["net.py"], "m1", "out", workers=1).progress.done == 0


def test_modules_of_the_same_name_beside_two_models_are_two(home):
    models = [python_model(home / name, width) for name, width in (("a", "4"), ("b", "6"))]
    done = sweep(models, "m1", "out", workers=1)  # one process reads both
    assert len({row["graph"] for row in done.table.rows}) == 2
    (home / "b" / "blocks.py").write_text("channels = 5")
    assert sweep(models, "m1", "out", workers=1).progress.done == 1
    (home / "a" / "other.py").write_text((home / "a" / "net.py").read_text() + "# other")
    both = [models[0], str(home / "a" / "other.py")]
    assert sweep(both, "m1", "out", workers=1).progress.done == 1
    (home / "a" / "blocks.py").write_text("channels = 7")  # was read for each of them, not only for the first
    assert sweep(both, "m1", "out", workers=1).progress.done == 2


def test_a_python_model_that_failed_is_done_again(home):
    model = python_model(home / "a", "4")
    (home / "a" / "blocks.py").unlink()
    assert "No module named 'blocks'" in sweep([model], "m1", "out", workers=1).table.failed[model]
    (home / "a" / "blocks.py").write_text("channels = 4")
    assert sweep([model], "m1", "out", workers=1).ok


def test_equal_files_with_other_weights_beside_them_are_two_models(home):
    weights = bytearray((EXAMPLES / "convnet.weights.bin").read_bytes())
    for name in ("a", "b"):
        (home / name).mkdir()
        shutil.copy(EXAMPLES / "convnet.plist", home / name)
        weights[0] ^= 1
        (home / name / "convnet.weights.bin").write_bytes(weights)
    done = sweep(["a/convnet.plist", "b/convnet.plist"], "m1", "out", workers=1)
    assert done.ok
    assert len({row["graph"] for row in done.table.rows}) == 2


def test_a_missing_file_of_weights_that_comes_later_is_seen(home):
    shutil.copy(EXAMPLES / "convnet.plist", home)
    first = sweep(["convnet.plist"], "m1", "out", workers=1)
    assert "does not exist" in first.table.failed["convnet.plist"]
    assert sweep(["convnet.plist"], "m1", "out", workers=1).progress.done == 0
    shutil.copy(EXAMPLES / "convnet.weights.bin", home)
    assert sweep(["convnet.plist"], "m1", "out", workers=1).ok


def test_weights_beside_a_model_belong_to_it(home):
    for name in ("convnet.plist", "convnet.weights.bin"):
        shutil.copy(EXAMPLES / name, home)
    assert sweep(["convnet.plist"], "m1", "out", workers=1).ok
    assert sweep(["convnet.plist"], "m1", "out", workers=1).progress.done == 0
    weights = bytearray((home / "convnet.weights.bin").read_bytes())
    weights[0] ^= 1
    (home / "convnet.weights.bin").write_bytes(weights)
    assert sweep(["convnet.plist"], "m1", "out", workers=1).progress.done == 1


def test_failures_are_final_until_more_is_allowed_or_asked_for(home):
    shutil.copy(EXAMPLES / "detector.onnx", home)
    short = sweep(["detector.onnx"], "m1", "out", workers=1, limits=WorkerLimits(0.01))  # no process starts so fast
    assert short.table.failed == {"detector.onnx": "took more than 0.01 seconds, the limit of time"}
    assert sweep(["detector.onnx"], "m1", "out", workers=1, limits=WorkerLimits(0.01)).progress.done == 0
    longer = sweep(["detector.onnx"], "m1", "out", workers=1, limits=WorkerLimits(120.0))
    assert longer.ok
    (home / "bad.onnx").write_text("hello")
    sweep(["bad.onnx"], "m1", "out", workers=1)
    assert sweep(["bad.onnx"], "m1", "out", workers=1).progress.done == 0
    assert sweep(["bad.onnx"], "m1", "out", workers=1, retry=True).progress.done == 1


def test_memory_and_death_are_rows_and_a_dead_worker_is_tried_once_more(home):
    write_net(home / "large.py", before="import numpy; kept = numpy.ones(3 << 30, numpy.uint8)")
    write_net(home / "dead.py", before="import os; open('tries', 'a').write('x'); os._exit(7)")
    write_net(home / "fine.py", channels=7)
    done = sweep(["large.py", "dead.py", "fine.py"], "m1", "out", workers=2, limits=WorkerLimits(120, 2 << 30))
    assert done.table.failed == {
        "large.py": "needs more than 2.00 GB, the limit of memory",
        "dead.py": "its process ended with status 7 before it was done",
    }
    assert (home / "tries").read_text() == "xx"
    assert [row["verdict"] for row in done.table.rows] == ["error", "error", "yes"]


def waiting_net(file: Path, channels: int) -> None:
    """A model that is read only when a file named go is there."""
    loop = "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.02)"
    write_net(file, channels, loop)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_was_stopped_goes_on_with_the_same_table(home, number):
    for channels in range(4, 8):
        write_net(home / "zoo" / f"net{channels}.py", channels, padding=1000)
    waiting_net(home / "zoo" / "last.py", 9)
    models = sorted(f"zoo/{file.name}" for file in (home / "zoo").iterdir())
    words = ["sweep", *models, "--target", CHIPS, "--out", "stopped", "--workers", "2"]
    with subprocess.Popen(
        sweep_kit.command(*words), cwd=home, env=sweep_kit.environment(), stderr=subprocess.PIPE, text=True
    ) as running:
        results = home / "stopped" / "results"
        deadline = time.monotonic() + 120
        while (not results.is_dir() or len(list(results.glob("*.json"))) < 4) and time.monotonic() < deadline:
            time.sleep(0.02)
        running.send_signal(number)
        told = running.communicate(timeout=60)[1]
    assert len(list(results.glob("*.json"))) == 4
    if number == signal.SIGINT:
        assert running.returncode == 130
        assert "stopped with 4 of 5 models done" in told
        assert "Run the same command again to go on." in told
        assert not list((home / "stopped").rglob("*.part"))
    partial = merge(["stopped"])
    assert set(partial.failed) == {"zoo/last.py"}
    (home / "go").touch()
    again = sweep_kit.run(*words, cwd=home)
    assert again.returncode == 0, again.stderr
    assert "1 models done, 4 had a result" in again.stderr
    assert sweep(models, CHIPS, "whole", workers=1).table == read_table("stopped")
