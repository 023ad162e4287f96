"""Sweeps: every model has an answer or an error, the same one however the work was cut, stopped or shared."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import sweep_kit
from sweep_kit import write_net
from typer.testing import CliRunner

import aneforge as af
from aneforge.cli.app import app
from aneforge.cli.sweep import _bar
from aneforge.errors import AneforgeError
from aneforge.graph import Graph
from aneforge.report import report
from aneforge.sweep import compare, merge, sweep
from aneforge.sweep.models import models_of
from aneforge.sweep.plan import Options, Shard, task_key
from aneforge.sweep.run import Progress
from aneforge.sweep.summary import chips_of_table, markdown, models_of_table, summary
from aneforge.sweep.table import COLUMNS, Table, read_table
from aneforge.sweep.task import NEEDED, graph_key, rows_of
from aneforge.workers import Limits

EXAMPLES = sweep_kit.ROOT / "examples"
CHIPS = "m1,m5"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def zoo(home):
    """Four models: one of them is refused, and two are the same graph in different files."""
    shutil.copy(EXAMPLES / "detector.onnx", home / "detector.onnx")
    write_net(home / "net.py")
    write_net(home / "same.py", before="# other words")
    (home / "bad.onnx").write_text("hello")
    return ["detector.onnx", "net.py", "same.py", "bad.onnx"]


# Which models.


def test_models_come_from_paths_patterns_folders_and_manifests(home):
    for name in ("a.onnx", "b.mlmodel", "deep/c.pt2", "deep/d.aneforge", "deep/notes.txt", "deep/run.py"):
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_text("x")
    (home / "deep" / "e.mlpackage" / "Data").mkdir(parents=True)
    (home / "deep" / "e.mlpackage" / "Data" / "inner.mlmodel").write_text("x")

    def paths(*named):
        return [model.path for model in models_of(named)]

    assert paths("a.onnx", "b.mlmodel", "a.onnx") == ["a.onnx", "b.mlmodel"]
    assert paths("*.onnx") == ["a.onnx"]
    assert paths("**/*.pt2") == ["deep/c.pt2"]
    assert paths("deep") == ["deep/c.pt2", "deep/d.aneforge", "deep/e.mlpackage"]  # and no Python file
    assert paths("deep/e.mlpackage") == ["deep/e.mlpackage"]
    assert paths("*") == ["a.onnx", "b.mlmodel", "deep/c.pt2", "deep/d.aneforge", "deep/e.mlpackage"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("zoo.json", '[{"path": "a.onnx", "revision": 7, "dims": {"n": 2, "m": 3}}, "b.onnx"]'),
        ("zoo.json", '{"models": [{"path": "a.onnx", "revision": "7", "sizes": "m=3,n=2"}, {"path": "b.onnx"}]}'),
        ("zoo.jsonl", '{"path": "a.onnx", "revision": "7", "dims": {"n": 2, "m": 3}}\n\n{"path": "b.onnx"}\n'),
        ("zoo.csv", 'path,revision,dims\na.onnx,7,"n=2,m=3"\nb.onnx,,\n'),
    ],
)
def test_a_manifest_has_paths_revisions_and_sizes(home, name, text):
    (home / "lists").mkdir()
    (home / "lists" / name).write_text(text)
    first, second = models_of([f"lists/{name}"])
    assert (first.path, first.revision, first.dims, first.sizes) == ("a.onnx", "7", {"n": 2, "m": 3}, "m=3,n=2")
    assert (second.path, second.revision, second.dims) == ("b.onnx", "", {})
    assert first.file == Path("lists/a.onnx")  # relative to the manifest
    assert models_of([f"lists/{name}"], {"k": 1})[1].dims == {"k": 1}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("zoo.json", "[1]", "expected a record with a path"),
        ("zoo.json", "{}", "expected a list"),
        ("zoo.json", "{", "not a manifest"),
        ("zoo.json", '[{"path": "a", "color": "red"}]', "'color' is not a key"),
        ("zoo.json", '[{"path": "a", "dims": {"n": 0}}]', "dims must be sizes by name"),
        ("zoo.csv", "path,dims\na,n=x\n", "dims must be sizes by name"),
        ("zoo.jsonl", "[" * 200_000, "not a manifest"),
    ],
)
def test_a_wrong_manifest_is_one_line(home, name, text, told):
    (home / name).write_text(text)
    with pytest.raises(AneforgeError, match=told):
        models_of([name])


def test_names_that_stand_for_no_models_are_refused(home):
    (home / "empty").mkdir()
    refused = (("*.onnx", "matches no file"), ("empty", "has no model files"), ("zoo.csv", "No such file"))
    for name, told in refused:
        with pytest.raises(AneforgeError, match=told):
            models_of([name])


# Answers.


def test_rows_are_what_a_report_says(home):
    done = sweep([EXAMPLES / "detector.onnx"], CHIPS, "out", workers=1)
    told = report(EXAMPLES / "detector.onnx", CHIPS, changes=0)
    assert [row["target"] for row in done.table.rows] == ["m1", "m5"]
    for row, chip in zip(done.table.rows, told.chips, strict=True):
        assert row["verdict"] == chip.verdict.partition(":")[0]
        assert (row["ops"], row["engine_ops"]) == (chip.ops, chip.engine_ops)
        assert row["host_ops"] == chip.ops - chip.engine_ops
        assert row["us"] == pytest.approx(chip.us, rel=1e-3)
        assert (row["us_low"], row["us_high"]) == pytest.approx(chip.interval, rel=1e-3)
        assert row["energy_mj"] == pytest.approx(chip.energy_mj, rel=1e-3)
        assert (row["memory_bytes"], row["peak_l2"], row["weight_bytes"]) == (
            chip.memory_bytes,
            chip.peak_l2,
            chip.weight_bytes,
        )
        rules = {f"{one.grade}:{one.rule}" for one in told.findings if chip.name in one.chips}
        assert set(row["rules"].split()) == rules
    assert {row["verdict"] for row in done.table.rows} == {"in part", "yes"}


def test_one_bad_model_is_a_row_and_stops_nothing(zoo):
    done = sweep([*zoo, "missing.onnx"], CHIPS, "out", workers=2)
    assert not done.ok
    assert len(done.table.rows) == 2 * 5
    assert set(done.table.failed) == {"bad.onnx", "missing.onnx"}
    assert "not an ONNX model" in done.table.failed["bad.onnx"]
    assert done.table.failed["missing.onnx"] == "cannot be read (No such file or directory)"
    verdicts = {(row["model"], row["target"]): row["verdict"] for row in done.table.rows}
    assert verdicts["net.py", "m1"] == "yes"
    assert verdicts["bad.onnx", "m1"] == "error"
    assert [row["us"] for row in done.table.rows if row["model"] == "bad.onnx"] == [None, None]


def test_sizes_of_symbolic_dimensions_make_other_results(home):
    shutil.copy(EXAMPLES / "tiny_encoder.onnx", home)
    manifest = [{"path": "tiny_encoder.onnx", "dims": {"batch": size}} for size in (1, 2)]
    (home / "zoo.json").write_text(json.dumps(manifest))
    done = sweep(["zoo.json"], "m1", "out", workers=1)
    assert done.ok, done.table.failed
    assert [row["dims"] for row in done.table.rows] == ["batch=1", "batch=2"]
    assert len({row["graph"] for row in done.table.rows}) == 2


def test_equal_graphs_are_done_once(home):
    for name in ("a.py", "b.py", "c.py"):
        write_net(home / name, before=f"# {name}")
    write_net(home / "other.py", channels=6)
    one = sweep(["a.py", "b.py", "c.py", "other.py"], "m1", "one", workers=1)
    two = sweep(["a.py", "b.py", "c.py", "other.py"], "m1", "two", workers=2)
    assert one.shared == two.shared == 2
    assert one.table == two.table
    assert len({row["graph"] for row in one.table.rows}) == 2
    assert len({row["key"] for row in one.table.rows}) == 4
    write_net(home / "d.py", before="# later")
    assert sweep(["a.py", "d.py"], "m1", "one", workers=1).shared == 1  # also with one that was done before


def test_the_model_that_waited_takes_over_when_the_one_it_waited_for_fails(home, monkeypatch):
    """Which of two workers asks first is chance, so this one plays both."""
    from aneforge.workers import Outcome

    def two_workers(function, tasks, count, limits, answer):
        first, second = tasks.popleft(), tasks.popleft()
        assert (answer(first, "g"), answer(second, "g")) == (NEEDED, "soon")
        assert answer(first, "g") == NEEDED  # it is tried again after its process died
        value = {"graph": "g", "beside": {}}
        yield second, Outcome(value)
        assert not tasks
        yield first, Outcome(None, "died", "its process ended")
        assert list(tasks) == [second]
        assert answer(tasks.popleft(), "g") == NEEDED
        row = {"target": "m1", "chip": "M1", "verdict": "yes", "rules": []}
        yield second, Outcome({**value, "rows": [row]})

    monkeypatch.setattr("aneforge.sweep.run.run_all", two_workers)
    write_net(home / "first.py", padding=99)
    write_net(home / "second.py")
    done = sweep(["first.py", "second.py"], "m1", "out")
    assert done.table.failed == {"first.py": "its process ended"}
    assert [row["verdict"] for row in done.table.rows] == ["error", "yes"]
    assert (done.progress.done, done.progress.failed, done.shared) == (2, 1, 0)


def test_the_largest_model_is_first(home, monkeypatch):
    order = []

    def no_workers(function, tasks, count, limits, answer):
        order.extend(task["path"] for task in tasks)
        yield from ()

    monkeypatch.setattr("aneforge.sweep.run.run_all", no_workers)
    for name, padding in (("a.py", 10), ("b.py", 1000), ("c.py", 100)):
        write_net(home / name, padding=padding)
    done = sweep(["a.py", "b.py", "c.py"], "m1", "out")
    assert order == ["b.py", "c.py", "a.py"]
    assert {row["verdict"] for row in done.table.rows} == {"not done"}


def test_graphs_that_differ_in_names_only_are_equal():
    def graph(name, size=8, value=0.5):
        x = af.input((1, 4, size, size), name=name)
        return Graph([af.conv(x, np.full((4, 4, 1, 1), value)).relu().named(f"{name}_out")])

    assert graph_key(graph("x")) == graph_key(graph("y"))
    assert len({graph_key(graph("x")), graph_key(graph("x", 9)), graph_key(graph("x", value=0.25))}) == 3
    assert rows_of(graph("x"), {"m1": "M1"}, "coreml_call") == rows_of(graph("y"), {"m1": "M1"}, "coreml_call")


def test_copies_of_a_file_share_a_result_and_keep_their_names(home):
    (home / "bad.onnx").write_text("hello")
    (home / "copy.onnx").write_text("hello")
    done = sweep(["bad.onnx", "copy.onnx"], "m1", "out", workers=1)
    assert done.progress.done == 1
    assert len(list((home / "out" / "results").iterdir())) == 1
    assert all("bad.onnx" not in error for error in done.table.failed.values())


# Resuming.


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
    m1, m5 = Options({"m1": "M1"}, "coreml_call"), Options({"m5": "M5"}, "coreml_call")
    keys = [task_key("c", one, m1) for one in (model, sized, named, picked)]
    keys += [task_key("d", model, m1), task_key("c", model, m5)]
    assert len(set(keys)) == len(keys)
    assert task_key("c", model, m1) == keys[0]


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
    write_net(home / "slow.py", before="import time; time.sleep(3)")
    short = sweep(["slow.py"], "m1", "out", workers=1, limits=Limits(1.0))
    assert short.table.failed == {"slow.py": "took more than 1 seconds, the limit of time"}
    assert sweep(["slow.py"], "m1", "out", workers=1, limits=Limits(1.0)).progress.done == 0
    longer = sweep(["slow.py"], "m1", "out", workers=1, limits=Limits(120.0))
    assert longer.ok
    (home / "bad.onnx").write_text("hello")
    sweep(["bad.onnx"], "m1", "out", workers=1)
    assert sweep(["bad.onnx"], "m1", "out", workers=1).progress.done == 0
    assert sweep(["bad.onnx"], "m1", "out", workers=1, retry=True).progress.done == 1


def test_memory_and_death_are_rows_and_a_dead_worker_is_tried_once_more(home):
    write_net(home / "large.py", before="import numpy; kept = numpy.ones(3 << 30, numpy.uint8)")
    write_net(home / "dead.py", before="import os; open('tries', 'a').write('x'); os._exit(7)")
    write_net(home / "fine.py", channels=7)
    done = sweep(["large.py", "dead.py", "fine.py"], "m1", "out", workers=2, limits=Limits(120, 2 << 30))
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


# Shards, tables and differences.


def test_shards_are_the_whole(zoo, home):
    for channels in range(10, 16):
        write_net(home / f"net{channels}.py", channels)
    models = [*zoo, *(f"net{channels}.py" for channels in range(10, 16))]
    whole = sweep(models, "m1", "whole", workers=2)
    parts = [sweep(models, "m1", f"part{number}", shard=f"{number}/3", workers=2) for number in (1, 2, 3)]
    sizes = [len(part.table.rows) for part in parts]
    assert sum(sizes) == len(models)
    assert max(sizes) < len(models)
    joined = merge(["part1", "part2", "part3"])
    assert joined == merge(["whole"])
    assert sorted(joined.rows, key=str) == sorted(whole.table.rows, key=str)
    for number in (1, 2, 3):  # in one folder too
        sweep(models, "m1", "together", shard=f"{number}/3", workers=2)
    assert merge(["together"]) == joined
    sweep(models, "m1", "together", workers=2)
    assert [file.name for file in (home / "together").glob("plan*.json")] == ["plan.json"]
    assert merge(["together"]) == joined


def test_a_model_stays_in_its_shard_when_others_come(home):
    names = [f"net{number}.py" for number in range(40)]
    few, many = models_of(names[:20]), models_of(names)
    for number in (1, 2, 3):
        shard = Shard.of(f"{number}/3")
        assert {one.path for one in few if shard.has(one)} <= {one.path for one in many if shard.has(one)}
    assert sum(Shard.of(f"{number}/3").has(one) for one in many for number in (1, 2, 3)) == 40


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/3", "1/3/3"])
def test_a_shard_that_is_not_one_is_refused(text):
    with pytest.raises(AneforgeError, match="expected i/n"):
        Shard.of(text)


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_table_is_read_as_it_was_written(zoo, home, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow", reason="Parquet needs the extra 'sweep' (pyarrow)")
    (home / "=cmd().onnx").write_text("hello")
    table = sweep([*zoo, "=cmd().onnx"], CHIPS, "out", workers=2).table
    table.save(f"results.{suffix}")
    assert read_table(f"results.{suffix}") == table
    assert merge([f"results.{suffix}", "out"]) == merge(["out"])
    if suffix == "csv":
        rows = list(csv.reader((home / "results.csv").read_text().splitlines()))
        assert rows[0] == list(COLUMNS)
        assert not any(cell.startswith("=") for row in rows for cell in row)


def test_parquet_without_pyarrow_says_what_to_install(zoo, home, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(AneforgeError, match=r"results.parquet: Parquet needs pyarrow. Install it with .*\[sweep\]"):
        Table([]).save("results.parquet")


def test_results_that_contradict_each_other_are_not_merged(home):
    write_net(home / "net.py")
    sweep(["net.py"], "m1", "before", workers=1)
    write_net(home / "net.py", channels=6)
    sweep(["net.py"], "m1", "after", workers=1)
    with pytest.raises(AneforgeError, match=r"net.py on m1: before and after have different results"):
        merge(["before", "after"])


def test_the_difference_of_two_runs_names_model_value_and_chips(home):
    write_net(home / "net.py")
    write_net(home / "other.py", channels=6)
    sweep(["net.py", "other.py"], CHIPS, "before", workers=1)
    same = compare("before", "before")
    assert same.ok
    assert str(same) == "the sweeps agree in 4 rows; numbers within 0 per cent"
    write_net(home / "net.py", channels=512)
    (home / "other.py").write_text("out = 3")
    sweep(["net.py", "other.py"], CHIPS, "after", workers=1)
    found = compare("before", "after")
    assert not found.ok
    changes = {(change.model, change.what): change for change in found.changes}
    assert changes["other.py", "verdict"].chips == ("M1", "M5")
    assert (changes["other.py", "verdict"].before, changes["other.py", "verdict"].after) == ("yes", "error")
    assert ("net.py", "weight_bytes") in changes
    assert ("net.py", "us") not in {(one.model, one.what) for one in compare("before", "after", 1e9).changes}
    assert compare("after", "before").changes[0].before == found.changes[0].after
    gone = compare("before", Table(read_table("before").rows[:2]))
    assert [change.after for change in gone.changes] == ["not there"]


# What is printed.


def test_the_summary_counts_by_chip_and_by_model(zoo):
    table = sweep(zoo, CHIPS, "out", workers=2).table
    m1, m5 = chips_of_table(table)
    assert (m1.chip, m1.models, m1.whole, m1.in_part, m1.no, m1.failed) == ("M1", 4, 2, 1, 0, 1)
    assert (m5.whole, m5.in_part) == (3, 0)
    models = {one.model: one for one in models_of_table(table)}
    assert models["detector.onnx"].fastest["chip"] == "M5"
    assert models["bad.onnx"].error
    assert models["bad.onnx"].fastest is None
    for text in (summary(table), markdown(table)):
        assert "detector.onnx" in text
        assert "not an ONNX model" in text


def test_the_page_needs_nothing_else_and_obeys_no_name(home):
    name = "<img src=x onerror=alert(1)>.onnx"
    (home / name).write_text("hello")
    done = CliRunner().invoke(app, ["sweep", name, "--target", "m1", "--out", "out"])
    assert done.exit_code == 1
    page = (home / "out" / "summary.html").read_text()
    assert "<img" not in page
    assert "\\u003cimg src=x" in page
    assert "http://" not in page
    assert "https://" not in page
    assert "<img" not in (home / "out" / "summary.md").read_text().replace("\\<", "")


def test_the_bar_has_rate_and_time_left():
    assert _bar(Progress(10, 2)) == "[####                    ] 2/10 models"
    assert _bar(Progress(10, 2, 4, 1, 8.0)) == "[##############          ] 6/10 models, 1 failed, 0.5/s, 8 s left"


def test_commands(zoo, home):
    def run(*words):
        return CliRunner().invoke(app, ["sweep", *words])

    first = run(*zoo, "--target", "m1", "--out", "out")
    assert first.exit_code == 1
    assert "without an answer: 1" in first.stdout
    assert run("net.py", "--target", "m1", "--out", "fine").exit_code == 0
    as_json = json.loads(run("run", "net.py", "--target", "m1", "--out", "fine", "--json", "-q").stdout)
    assert [row["model"] for row in as_json["rows"]] == ["net.py"]
    assert run("merge", "fine", "--out", "fine.csv").exit_code == 0
    assert run("merge", "out", "--out", "out.json").exit_code == 1
    assert run("diff", "fine", "fine.csv").exit_code == 0
    assert run("diff", "fine", "out").exit_code == 1
    assert "aneforge sweep MODELS... --out FOLDER" in " ".join(run("--help").stdout.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("net.py", "--out", "net.py"), "cannot be a folder of results"),
        (("net.py", "--out", "out", "--target", "m77"), "m77"),
        (("net.py", "--out", "out", "--scope", "week"), "not a scope"),
        (("net.py", "--out", "out", "--shard", "9/2"), "expected i/n"),
        (("net.py", "--out", "out", "--workers", "0"), "Give 1 or more"),
        (("net.py", "--out", "out", "--max-memory", "much"), "not a size"),
        (("net.py", "--out", "out", "--max-seconds", "0"), "more than 0"),
        (("net.py", "--out", "out", "--dim", "n"), "NAME=SIZE"),
        (("*.zip", "--out", "out"), "matches no file"),
        (("merge", "nowhere", "--out", "x.csv"), "no such file or folder"),
        (("merge", ".", "--out", "x.csv"), "not a folder of a sweep"),
        (("merge", "net.py", "--out", "x.txt"), "not a format of tables"),
        (("diff", "net.py", "net.py"), "not a format of tables"),
        (("diff", "broken.json", "broken.json"), "not a table of a sweep"),
        (("diff", "broken.json", "broken.json", "--tolerance", "-1"), "not a percentage"),
    ],
)
def test_bad_input_is_one_line(home, words, told):
    write_net(home / "net.py")
    (home / "broken.json").write_text("[]")
    done = CliRunner().invoke(app, ["sweep", *words])
    assert isinstance(done.exception, AneforgeError), done.output
    assert told in str(done.exception)


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(home, monkeypatch):
    write_net(home / "net.py", before="raise SystemExit('it was read')")
    monkeypatch.setattr("aneforge.sweep.results.os.access", lambda place, mode: False)
    with pytest.raises(AneforgeError, match="the folder cannot be written"):
        sweep(["net.py"], "m1", "out")


def test_a_plan_that_is_damaged_is_one_line(home):
    write_net(home / "net.py")
    sweep(["net.py"], "m1", "out", workers=1)
    (home / "out" / "plan.json").write_text('{"schema": 1}')
    with pytest.raises(AneforgeError, match="not a plan of a sweep"):
        read_table("out")


def test_a_task_says_that_its_file_is_not_where_the_worker_is(home):
    from aneforge.sweep.task import run

    assert run({"place": "elsewhere.onnx", "file": "elsewhere.onnx"}, lambda graph: NEEDED) == {"missing": True}
