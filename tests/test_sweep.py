"""Sweeps: every model has an answer or an error, the same one however the work was cut, stopped or shared."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
import sweep_kit
from sweep_kit import write_net
from typer.testing import CliRunner

import aneforge as af
from aneforge.cli.app import app
from aneforge.cli.sweep import _in_words
from aneforge.errors import AneforgeError
from aneforge.graph import Graph
from aneforge.reports import report
from aneforge.reports.sweep import compare, merge, sweep
from aneforge.reports.sweep.plan import Shard, guess_operations, models_of
from aneforge.reports.sweep.run import Progress
from aneforge.reports.sweep.summary import chips_of_table, markdown, models_of_table, short_names, summary
from aneforge.reports.sweep.table import COLUMNS, Table, read_table
from aneforge.reports.sweep.task import NEEDED, graph_key, rows_of

EXAMPLES = sweep_kit.ROOT / "examples"
CHIPS = "m1,m5"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def zoo(home):
    return sweep_kit.write_zoo(home)


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
    from aneforge.reports.workers import WorkerOutcome

    def two_workers(function, tasks, count, limits, answer):
        first, second = tasks.popleft(), tasks.popleft()
        assert (answer(first, "g"), answer(second, "g")) == (NEEDED, "soon")
        assert answer(first, "g") == NEEDED  # it is tried again after its process died
        value = {"graph": "g", "beside": {}}
        yield second, WorkerOutcome(value)
        assert not tasks
        yield first, WorkerOutcome(None, "died", "its process ended")
        assert list(tasks) == [second]
        assert answer(tasks.popleft(), "g") == NEEDED
        row = {"target": "m1", "chip": "M1", "verdict": "yes", "rules": []}
        yield second, WorkerOutcome({**value, "rows": [row]})

    monkeypatch.setattr("aneforge.reports.sweep.run.run_all", two_workers)
    write_net(home / "first.py", padding=99)
    write_net(home / "second.py")
    done = sweep(["first.py", "second.py"], "m1", "out")
    assert done.table.failed == {"first.py": "its process ended"}
    assert [row["verdict"] for row in done.table.rows] == ["error", "yes"]
    assert (done.progress.done, done.progress.failed, done.shared) == (2, 1, 0)


def test_a_model_that_waited_is_done_when_the_other_failed_before_it_came_back(home, monkeypatch):
    from aneforge.reports.workers import WorkerOutcome

    def two_workers(function, tasks, count, limits, answer):
        first, second = tasks.popleft(), tasks.popleft()
        assert (answer(first, "g"), answer(second, "g")) == (NEEDED, "soon")
        yield first, WorkerOutcome(None, "died", "its process ended")
        yield second, WorkerOutcome({"graph": "g", "beside": {}})
        assert list(tasks) == [second]
        assert answer(tasks.popleft(), "g") == NEEDED
        row = {"target": "m1", "chip": "M1", "verdict": "yes", "rules": []}
        yield second, WorkerOutcome({"graph": "g", "beside": {}, "rows": [row]})

    monkeypatch.setattr("aneforge.reports.sweep.run.run_all", two_workers)
    write_net(home / "first.py", padding=99)
    write_net(home / "second.py")
    done = sweep(["first.py", "second.py"], "m1", "out")
    assert [row["verdict"] for row in done.table.rows] == ["error", "yes"]


def test_the_largest_model_is_first(home, monkeypatch):
    order = []

    def no_workers(function, tasks, count, limits, answer):
        order.extend(task["path"] for task in tasks)
        yield from ()

    monkeypatch.setattr("aneforge.reports.sweep.run.run_all", no_workers)
    for name, padding in (("a.py", 10), ("b.py", 1000), ("c.py", 100)):
        write_net(home / name, padding=padding)
    done = sweep(["a.py", "b.py", "c.py"], "m1", "out")
    assert order == ["b.py", "c.py", "a.py"]
    assert {row["verdict"] for row in done.table.rows} == {"not done"}


def test_large_means_many_operations_not_many_weights(home):
    def save(name, layers, channels):
        x = af.input((1, channels, 8, 8), name="x")
        for number in range(layers):
            x = af.conv(x, np.full((channels, channels, 1, 1), 0.1 + number)).relu()
        Graph([x]).save(home / name)
        return home / name

    deep, wide = save("deep.aneforge", 20, 8), save("wide.aneforge", 1, 256)
    assert deep.stat().st_size < wide.stat().st_size
    assert guess_operations(deep) > guess_operations(wide)
    assert guess_operations(EXAMPLES / "tiny_encoder.onnx") > guess_operations(EXAMPLES / "detector.onnx") > 10
    (home / "package.mlpackage").mkdir()
    (home / "package.mlpackage" / "weight.bin").write_bytes(bytes(100_000))
    (home / "package.mlpackage" / "model.mlmodel").write_bytes(bytes(2000))
    assert guess_operations(home / "package.mlpackage") == 10
    for name, content in (("bad.onnx", b"hello"), ("empty.onnx", b""), ("bad.pt2", b"PK\x03\x04")):
        (home / name).write_bytes(content)
        assert guess_operations(home / name) == 0
    assert guess_operations(home / "nothing.onnx") == 0


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


def test_the_bar_says_what_it_counts_and_how_fast():
    assert _in_words(Progress(10, done=3, is_planned=False)) == "models read"
    assert _in_words(Progress(10, 2)) == "models"
    assert _in_words(Progress(10, 2, 4, 1, 8.0)) == "models, 1 failed, 0.5 a second"


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("sweep", "net.py", "--out", "net.py/below"), "--out net.py/below: cannot be a folder of results"),
        (("sweep", "net.py", "--out", "/proc/results"), "--out /proc/results: cannot be a folder of results"),
        (("sweep", "merge", "done", "--out", "folder.csv"), "folder.csv: a folder; give the name of a file"),
        (("sweep", "merge", "done", "--out", "nowhere/t.csv"), "nowhere/t.csv: cannot be written (No such file"),
        (("sweep", "empty", "--out", "out"), "empty: the folder has no model files"),
        (("sweep", "folder.csv", "--out", "out"), "folder.csv: the manifest cannot be read (Is a directory)"),
    ],
)
def test_output_that_cannot_be_written_and_folders_for_files_are_one_line(home, words, message):
    write_net(home / "net.py")
    for name in ("folder.csv", "empty"):
        (home / name).mkdir()
    sweep(["net.py"], "m1", "done", workers=1)
    ended = sweep_kit.run(*words, cwd=home)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_folder_with_the_name_of_a_model_file_is_a_row(home):
    (home / "net.onnx").mkdir()
    (home / "net.onnx" / "weights.bin").write_text("x")
    write_net(home / "fine.py")
    done = sweep(["net.onnx", "fine.py"], "m1", "out", workers=1)
    assert set(done.table.failed) == {"net.onnx"}
    assert "folder" in done.table.failed["net.onnx"]


def test_a_disk_that_is_full_stops_the_sweep_and_leaves_whole_results(home, monkeypatch):
    from aneforge.reports.sweep.results import Folder

    write = Folder.write

    def full_after_one(folder, key, result):
        if list((home / "out" / "results").iterdir()):
            raise AneforgeError("out: cannot be written (No space left on device)")
        write(folder, key, result)

    names = [str(write_net(home / f"net{channels}.py", channels)) for channels in (4, 5, 6)]
    monkeypatch.setattr(Folder, "write", full_after_one)
    with pytest.raises(AneforgeError, match="No space left"):
        sweep(names, "m1", "out", workers=2)
    monkeypatch.undo()
    assert sorted(row["verdict"] for row in read_table(home / "out").rows) == ["not done", "not done", "yes"]
    again = sweep(names, "m1", home / "out", workers=2)
    assert again.ok
    assert again.progress.done == 2


def test_ctrl_c_while_the_models_are_read_is_one_line(home, monkeypatch, capsys):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("aneforge.reports.sweep.run.plan_of", interrupted)
    write_net(home / "net.py")
    assert CliRunner().invoke(app, ["sweep", "net.py", "--out", "out"]).exit_code == 130
    assert not list((home / "out" / "results").iterdir())


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(home, monkeypatch):
    write_net(home / "net.py", before="raise SystemExit('it was read')")
    monkeypatch.setattr("aneforge.reports.sweep.results.os.access", lambda place, mode: False)
    with pytest.raises(AneforgeError, match="the folder cannot be written"):
        sweep(["net.py"], "m1", "out")


def test_a_plan_that_is_damaged_is_one_line(home):
    write_net(home / "net.py")
    sweep(["net.py"], "m1", "out", workers=1)
    (home / "out" / "plan.json").write_text('{"schema": 1}')
    with pytest.raises(AneforgeError, match="not a plan of a sweep"):
        read_table("out")


def test_a_task_says_that_its_file_is_not_where_the_worker_is(home):
    from aneforge.reports.sweep.task import run

    assert run({"place": "elsewhere.onnx", "file": "elsewhere.onnx"}, lambda graph: NEEDED) == {"missing": True}


def test_names_on_the_page_of_a_sweep_are_short():
    assert short_names(["/a/b/c.onnx", "d/e.onnx"]) == ["c.onnx", "e.onnx"]
    assert short_names(["/a/b/c.onnx", "/a/d/c.onnx", "e.py:c.onnx"]) == ["b/c.onnx", "d/c.onnx", "e.py:c.onnx"]
    assert short_names(["b/c.onnx", "c.onnx"]) == ["b/c.onnx", "c.onnx"]
    assert short_names(["/a/b/c.onnx"]) == ["c.onnx"]
    assert short_names(["c.onnx", "d.onnx"]) == ["c.onnx", "d.onnx"]
    assert short_names([]) == []
