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
from aneforge.reports.sweep import sweep
from aneforge.reports.sweep.table import read_table
from aneforge.reports.workers import WorkerLimits

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


def start_cluster(folder):
    """The address of a new scheduler with two workers, and their processes."""
    processes = [start(folder, "scheduler", "--port", "0", "--no-dashboard", "--host", "127.0.0.1")]
    wait_for((folder / "scheduler.json").exists)
    options = ("--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--local-directory", str(folder))
    processes += [start(folder, "worker", *options) for _ in range(2)]
    address = json.loads((folder / "scheduler.json").read_text())["address"]
    wait = f"from distributed import Client; Client({address!r}, timeout=60).wait_for_workers(2, timeout=90)"
    subprocess.run([sys.executable, "-c", wait], check=True, timeout=150)
    return address, processes


def end(processes):
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(condition):
    deadline = time.monotonic() + 90
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    address, processes = start_cluster(tmp_path_factory.mktemp("cluster"))
    yield address
    end(processes)


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


def test_equal_graphs_are_done_once_on_the_cluster_as_here(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [sweep_kit.write_net(tmp_path / f"{name}.py", before=f"# {name}") for name in "abcde"]
    names += [sweep_kit.write_net(tmp_path / f"other{name}.py", 6, f"# {name}") for name in "ab"]
    there = sweep(names, "m1", "there", scheduler=cluster)
    here = sweep(names, "m1", "here", workers=2)
    assert there.ok
    assert there.shared == here.shared == 5
    assert there.table == here.table
    later = [*names, sweep_kit.write_net(tmp_path / "later.py", before="# later")]
    for folder, options in (("there", {"scheduler": cluster}), ("here", {"workers": 2})):
        done = sweep(later, "m1", folder, **options)
        assert (done.progress.done, done.shared) == (1, 1), folder  # its graph was done before


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


def test_without_dask_the_command_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "distributed", None)
    sweep_kit.write_net(tmp_path / "net.py")
    with pytest.raises(AneforgeError, match=r"needs Dask distributed. Install it with .*\[cluster\]"):
        sweep(["net.py"], "m1", "out", scheduler="tcp://127.0.0.1:9")


def test_workers_with_other_code_are_refused(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep_kit.write_net(tmp_path / "net.py")
    monkeypatch.setattr("aneforge.reports.sweep.cluster.code_digest", lambda: "edited")
    with pytest.raises(AneforgeError, match="has other files of aneforge"):
        sweep(["net.py"], "m1", "out", scheduler=cluster)


def test_a_scheduler_that_is_not_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("aneforge.reports.sweep.cluster._PATIENCE", "1s")
    sweep_kit.write_net(tmp_path / "net.py")
    with pytest.raises(AneforgeError, match=r"--scheduler tcp://127.0.0.1:9: cannot be reached"):
        sweep(["net.py"], "m1", "out", scheduler="tcp://127.0.0.1:9")


def waiting_net(file, channels, started):
    """A model that says that it is being read, and never ends."""
    before = f"import time; open({str(started)!r}, 'w').close(); time.sleep(600)"
    return sweep_kit.write_net(file, channels, before)


def test_ctrl_c_leaves_whole_results_and_a_cluster_that_is_free(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fine = sweep_kit.write_net(tmp_path / "fine.py", padding=5000)
    slow = waiting_net(tmp_path / "slow.py", 5, tmp_path / "started")
    words = sweep_kit.command("sweep", fine, slow, "--target", "m1", "--out", "out", "--scheduler", cluster)
    with subprocess.Popen(words, cwd=tmp_path, env=sweep_kit.environment(), stderr=subprocess.PIPE) as running:
        results = tmp_path / "out" / "results"
        wait_for(lambda: (tmp_path / "started").exists() and len(list(results.glob("*.json"))) == 1)
        running.send_signal(signal.SIGINT)
        printed = running.communicate(timeout=60)[1].decode()
    assert running.returncode == 130
    assert "stopped with 1 of 2 models done" in printed
    assert set(read_table("out").failed) == {str(slow)}
    assert sweep([fine, tmp_path / "fine.py"], "m5", "next", scheduler=cluster, limits=WorkerLimits(60)).ok


def test_a_scheduler_that_ends_in_the_middle_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    address, processes = start_cluster(tmp_path)
    try:
        slow = waiting_net(tmp_path / "slow.py", 5, tmp_path / "started")
        words = sweep_kit.command("sweep", slow, "--target", "m1", "--out", "out", "--scheduler", address)
        environment = {**sweep_kit.environment(), "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"}
        with subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as running:
            wait_for((tmp_path / "started").exists)
            end(processes[:1])
            printed = running.communicate(timeout=120)[1].decode()
        assert running.returncode == 2, printed
        assert "the connection is lost; results so far are kept" in printed
        assert "Traceback" not in printed
    finally:
        end(processes[1:])


def test_a_worker_of_the_cluster_that_is_killed_costs_no_answer(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log, go = tmp_path / "workers", tmp_path / "go"
    waits = f"import os, time\nopen({str(log)!r}, 'a').write(f'{{os.getppid()}}\\n')\n"
    net = sweep_kit.write_net(
        tmp_path / "net.py", before=waits + f"while not os.path.exists({str(go)!r}): time.sleep(0.02)"
    )
    words = sweep_kit.command("sweep", net, "--target", "m1", "--out", "out", "--scheduler", cluster)
    with subprocess.Popen(words, cwd=tmp_path, env=sweep_kit.environment(), stderr=subprocess.PIPE) as running:
        wait_for(lambda: log.exists() and log.read_text().endswith("\n"))
        os.kill(int(log.read_text()), signal.SIGKILL)
        wait_for(lambda: log.read_text().count("\n") == 2)  # another one has it
        go.touch()
        printed = running.communicate(timeout=120)[1].decode()
    assert running.returncode == 0, printed
    assert [row["verdict"] for row in read_table("out").rows] == ["yes"]
