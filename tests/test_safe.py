"""A model file is a stranger's: it cannot crash a command, write into a log, choose a path or run for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import aneforge as af
from aneforge import cli
from aneforge.baseline.junit import junit_text
from aneforge.baseline.outcome import Outcome, Report
from aneforge.baseline.sarif import sarif_text
from aneforge.errors import AneforgeError, UnknownNameError, first_line, shown
from aneforge.frontends import onnx_graph
from aneforge.numerics import diverges, risks
from aneforge.output import text
from aneforge.output.files import write_arrays, write_folder, write_whole, written_file, written_folder

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402

EVIL = "a\n::error file=x\x1b[31m\u202e"
SAFE = "a\\n::error file=x\\x1b[31m\\u202e"


def command(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "aneforge", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


def port(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, initializers=(), opset=17, name="g"):
    graph = helper.make_graph(nodes, name, inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def small(name="y", node="n"):
    return model([helper.make_node("Relu", ["x"], [name], name=node)], [port("x", [2, 3])], [port(name, [2, 3])])


# Sound input that once crashed.


@pytest.mark.parametrize("indices", [[0, 0, 1], [3, 1, 3, 3], [2, 2]])
def test_a_gather_of_repeated_indices_has_ranges(indices):
    x = af.input((4, 8), max_abs=4.0)
    y = af.gather(x, indices, 0).exp()
    assert "gather" not in str(risks(y, "m1"))  # to pick rows loses nothing
    assert "-4 to 4" in str(diverges(y, "m1", "m5"))  # nor widens what it picks from


def test_or_of_comparisons_of_whole_numbers_runs(tmp_path):
    nodes = [
        helper.make_node("Greater", ["a", "b"], ["g"]),
        helper.make_node("Equal", ["a", "b"], ["e"]),
        helper.make_node("Or", ["g", "e"], ["y"]),
    ]
    ports = [port(name, [4], TensorProto.UINT16) for name in "ab"]
    graph = onnx_graph(model(nodes, ports, [port("y", [4], TensorProto.BOOL)]))
    a, b = np.array([1, 2, 3, 60000], np.uint16), np.array([2, 2, 2, 60000], np.uint16)
    found = af.partition(graph, "m1").run({"a": a, "b": b})
    assert list(found) == ["y"]
    assert found["y"].tolist() == [False, True, True, True]


def test_drawn_numbers_are_refused_by_name_in_an_export(tmp_path):
    pytest.importorskip("coremltools")
    drawn = af.random_uniform((1, 4, 8)).named("noise")
    with pytest.raises(AneforgeError, match=r"^noise \(random_uniform \[1, 4, 8\]\): numbers drawn at run time"):
        af.export_coreml(af.input((1, 4, 8)) + drawn, tmp_path / "x.mlpackage")
    assert list(tmp_path.iterdir()) == []


def test_an_output_may_be_called_file(tmp_path):
    onnx.save(small("file"), tmp_path / "m.onnx")
    done = command("run", tmp_path / "m.onnx", "--output", tmp_path / "out.npz")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as held:
        assert held.files == ["file"]
        assert held["file"].shape == (2, 3)


# Names and messages.


def test_shown_is_one_line_that_nothing_obeys():
    assert shown(EVIL) == SAFE
    assert shown("plain é ✓ name/0") == "plain é ✓ name/0"
    assert shown("\r\t\x00\x9b\u2028\u2066\u200f\ud800") == "\\r\\t\\x00\\x9b\\u2028\\u2066\\u200f\\ud800"


def test_errors_are_one_line():
    assert str(AneforgeError(f"no {EVIL}")) == f"no {SAFE}"
    assert str(UnknownNameError(f"no {EVIL}")) == f"no {SAFE}"
    assert first_line(ValueError("\x1b[2Jx\nmore")) == "\\x1b[2Jx"


def test_names_of_an_onnx_file_cannot_start_a_line(tmp_path):
    graph = onnx_graph(small(node=EVIL))
    assert "\n::error" not in str(graph)
    named = model([helper.make_node("Relu", [EVIL], ["y"])], [port(EVIL, [2])], [port("y", [2])])
    assert [each.name for each in onnx_graph(named).inputs] == [SAFE]
    onnx.save(model([helper.make_node("Nope", ["x"], ["y"], name=EVIL)], [port("x", [2])], [port("y", [2])]), "m.onnx")
    Path("m.onnx").rename(tmp_path / "m.onnx")
    done = command("check", tmp_path / "m.onnx", "--target", "m1")
    assert done.returncode == 2
    assert SAFE in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_names_of_a_graph_file_cannot_start_a_line(tmp_path):
    y = af.input((2, 3), name="x").relu().named("y")
    y.graph().save(tmp_path / "m.graph")
    with zipfile.ZipFile(tmp_path / "m.graph") as archive:
        document = json.loads(archive.read("graph.json"))
    for record in document["nodes"]:
        record["name"] = f"{record['name']}{EVIL}"
    with zipfile.ZipFile(tmp_path / "evil.graph", "w") as archive:
        archive.writestr("graph.json", json.dumps(document))
    done = command("run", tmp_path / "evil.graph")
    assert done.returncode == 0, done.stderr
    assert SAFE in done.stdout
    for letter in "\x1b\u202e":
        assert letter not in done.stdout + done.stderr
    assert not any(line.lstrip().startswith("::") for line in (done.stdout + done.stderr).splitlines())


def test_tables_and_reports_show_escapes():
    assert text.columns(("name",), [(EVIL,)]).splitlines()[2] == SAFE
    assert SAFE in text.pairs([(EVIL, "1", "x")])
    outcome = Outcome("bits-changed", "h13", EVIL, EVIL, None, f"{EVIL} has other bits")
    report = Report(EVIL, ("h13",), (outcome,))
    for written in (junit_text(report), sarif_text(report, "m.onnx", "0")):
        assert "::error" in written
        assert not any(line.lstrip().startswith("::") for line in written.splitlines())
        assert not {"\x1b", "\u202e"} & set(written)
    assert "\\n::error" not in sarif_text(report, "m.onnx", "0").replace("\\\\n", "")  # no line end in its texts


# The handler at the top.


def status_of(monkeypatch, capsys, failure):
    from aneforge.cli import app

    def fail(**settings):
        if isinstance(failure, BaseException):
            raise failure
        return failure

    monkeypatch.setattr(app, "app", fail)
    monkeypatch.delenv("ANEFORGE_TRACEBACK", raising=False)
    with pytest.raises(SystemExit) as left:
        cli.main()
    return left.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("failure", "status", "words"),
    [
        (None, 0, ""),
        (1, 1, ""),
        (AneforgeError(f"no {EVIL}"), 2, f"aneforge: no {SAFE}\n"),
        (PermissionError(13, "Permission denied", "m.onnx"), 2, "aneforge: m.onnx: Permission denied\n"),
        (MemoryError(), 2, "aneforge: not enough memory"),
        (KeyError("y\nz"), 3, "aneforge: internal error in aneforge/cli/__init__.py:"),
        (RecursionError("too deep"), 3, "please report"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_every_failure_is_one_line_and_a_status(monkeypatch, capsys, failure, status, words):
    code, said = status_of(monkeypatch, capsys, failure)
    assert code == status
    assert words in said
    assert len(said.splitlines()) == (1 if words else 0)


def test_a_fault_tells_more_when_asked(monkeypatch, capsys):
    status_of(monkeypatch, capsys, None)
    monkeypatch.setenv("ANEFORGE_TRACEBACK", "1")
    from aneforge.cli import app

    monkeypatch.setattr(app, "app", lambda **settings: {}["y"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "Traceback" in capsys.readouterr().err


def test_wrong_words_are_status_2():
    for words in (["nope"], ["targets", "--nope"], ["run", "nowhere.onnx"]):
        done = command(*words)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert done.stderr


@pytest.mark.skipif(os.name != "posix", reason="pipes of POSIX")
def test_a_reader_that_goes_is_no_finding():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-m", "aneforge", "ops"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_under_the_output_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "aneforge", "targets"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == ["aneforge: No space left on device"]


# The one writer.


def listed(folder):
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("x")])
def test_a_failure_leaves_the_old_file(tmp_path, failure):
    (tmp_path / "f").write_bytes(b"old")

    def half():
        with written_file(tmp_path / "f") as stream:
            stream.write(b"half")
            raise failure

    with pytest.raises((AneforgeError, KeyboardInterrupt, ValueError)):
        half()
    assert listed(tmp_path) == {"f": b"old"}


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_folder(tmp_path, failure):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a").write_bytes(b"old")

    def half():
        with written_folder(tmp_path / "p") as fresh:
            (fresh / "a").write_bytes(b"new")
            raise failure

    with pytest.raises((AneforgeError, KeyboardInterrupt)):
        half()
    assert listed(tmp_path) == {"p/a": b"old"}


def test_a_folder_is_swapped_as_a_unit(tmp_path, monkeypatch):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "gone").write_bytes(b"old")
    real = Path.rename

    def refuse(path, target):
        if path.name.endswith(".part") and Path(target).name == "p" and (path / "a").exists():
            raise OSError(5, "Input/output error")
        return real(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refuse)
        with pytest.raises(AneforgeError, match="Input/output error"), written_folder(tmp_path / "p") as fresh:
            (fresh / "a").write_bytes(b"new")
    assert listed(tmp_path) == {"p/gone": b"old"}  # put back
    with written_folder(tmp_path / "p") as fresh:
        (fresh / "a").write_bytes(b"new")
    assert listed(tmp_path) == {"p/a": b"new"}


def test_two_writers_do_not_meet(tmp_path):
    with written_file(tmp_path / "f") as one, written_file(tmp_path / "f") as two:
        one.write(b"one")
        two.write(b"two")
    assert listed(tmp_path) == {"f": b"one"}  # the last to finish


def test_a_build_keeps_what_else_is_in_its_folder(tmp_path):
    (tmp_path / "mine").write_bytes(b"mine")
    write_folder(tmp_path, {"a": "1"})
    write_folder(tmp_path / "new", {"a": "2"})
    assert listed(tmp_path) == {"mine": b"mine", "a": b"1", "new/a": b"2"}


def test_permissions_of_a_file_stay(tmp_path):
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / "f").chmod(0o640)
    write_whole(tmp_path / "f", "new")
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o640


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_archives_are_the_same_bytes_at_any_time(tmp_path, monkeypatch):
    arrays = {"file": np.arange(3.0), "a/../b": np.ones((2, 2), np.float16)}
    graph = (af.input((2, 3), name="x") * np.ones((2, 3), np.float16)).graph()
    for number, moment in enumerate((1e9, 1.5e9)):
        monkeypatch.setattr("time.time", lambda moment=moment: moment)
        write_arrays(tmp_path / f"{number}.npz", arrays)
        graph.save(tmp_path / f"{number}.graph")
    for end in ("npz", "graph"):
        assert (tmp_path / f"0.{end}").read_bytes() == (tmp_path / f"1.{end}").read_bytes()
    with np.load(tmp_path / "0.npz") as held:
        assert {name: held[name].tolist() for name in held.files} == {k: v.tolist() for k, v in arrays.items()}
    assert str(af.load_graph(tmp_path / "1.graph")).count("\n") == str(graph).count("\n")


def test_exports_are_the_same_bytes(tmp_path):
    pytest.importorskip("coremltools")
    x = af.input((1, 4, 8, 8), name="x")
    y = af.conv(x, np.arange(40 * 36, dtype=np.float16).reshape(40, 4, 3, 3) / 1000).relu().softmax()
    y.graph().save(tmp_path / "m.graph")
    for seed in ("1", "2"):  # the order of a protobuf map follows the process
        (tmp_path / seed).mkdir()
        done = command(
            "export", tmp_path / "m.graph", tmp_path / seed / "m.mlpackage", env={**os.environ, "PYTHONHASHSEED": seed}
        )
        assert done.returncode == 0, done.stderr
    assert listed(tmp_path / "1") == listed(tmp_path / "2")
    assert len(listed(tmp_path / "1")) == 3
