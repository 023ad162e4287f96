"""A sweep on a real Dask scheduler with real workers gives what a sweep on this machine gives."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import sweep_kit

from aneforge.errors import AneforgeError
from aneforge.sweep import sweep
from aneforge.sweep.table import read_table

pytest.importorskip("distributed", reason="needs the extra 'cluster' (Dask distributed)")


def start(folder, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "dask", *words, "--scheduler-file", str(folder / "scheduler.json")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=sweep_kit.environment(),
        cwd=folder,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The address of a scheduler with two workers, and their processes."""
    folder = tmp_path_factory.mktemp("cluster")
    processes = [start(folder, "scheduler", "--port", "0", "--no-dashboard", "--host", "127.0.0.1")]
    deadline = time.monotonic() + 90
    while not (folder / "scheduler.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    options = ("--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--local-directory", str(folder))
    processes += [start(folder, "worker", *options) for _ in range(2)]
    address = json.loads((folder / "scheduler.json").read_text())["address"]
    wait = f"from distributed import Client; Client({address!r}, timeout=60).wait_for_workers(2, timeout=90)"
    subprocess.run([sys.executable, "-c", wait], check=True, timeout=150)
    yield address
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(sweep_kit.ROOT / "examples" / "detector.onnx", tmp_path / "detector.onnx")
    for channels in (4, 5, 6):
        sweep_kit.write_net(tmp_path / f"net{channels}.py", channels)
    (tmp_path / "bad.onnx").write_text("hello")
    names = ("detector.onnx", "net4.py", "net5.py", "net6.py", "bad.onnx")
    return [str(tmp_path / name) for name in names]


def test_a_run_on_the_cluster_is_a_run_here(cluster, zoo, tmp_path):
    done = sweep_kit.run("sweep", *zoo, "--target", "m1,m5", "--out", "there", "--scheduler", cluster, cwd=tmp_path)
    assert done.returncode == 1, done.stderr  # one model is bad
    here = sweep(zoo, "m1,m5", "here", workers=2)
    assert read_table("there") == here.table
    assert len(here.table.rows) == 10
    again = sweep_kit.run("sweep", *zoo, "--target", "m1,m5", "--out", "there", "--scheduler", cluster, cwd=tmp_path)
    assert "0 models done" in again.stderr


def test_limits_and_deaths_hold_on_the_cluster(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slow = sweep_kit.write_net(tmp_path / "slow.py", before="import time; time.sleep(600)")
    dead = sweep_kit.write_net(
        tmp_path / "dead.py", before=f"import os; open({str(tmp_path / 'tries')!r}, 'a').write('x'); os._exit(7)"
    )
    words = ("sweep", slow, dead, "--target", "m1", "--out", "out", "--scheduler", cluster, "--max-seconds", "5")
    done = sweep_kit.run(*words, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    failed = read_table("out").failed
    assert failed[str(slow)] == "took more than 5 seconds, the limit of time"
    assert failed[str(dead)] == "its process ended with status 7 before it was done"
    assert (tmp_path / "tries").read_text() == "xx"


def test_a_scheduler_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("aneforge.sweep.cluster._PATIENCE", "1s")
    sweep_kit.write_net(tmp_path / "net.py")
    with pytest.raises(AneforgeError, match=r"--scheduler tcp://127.0.0.1:9: cannot be reached"):
        sweep(["net.py"], "m1", "out", scheduler="tcp://127.0.0.1:9")
