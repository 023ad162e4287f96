# pyright: reportMissingImports=false
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
from aneforge import cli, text
from aneforge import files as budgets
from aneforge.errors import AneforgeError, LoadError, UnknownNameError, first_line, shown
from aneforge.files import write_arrays, write_folder, write_whole, written_file, written_folder
from aneforge.formats import onnx_graph
from aneforge.formats.onnx.language import cost_of
from aneforge.reports.baseline.outcome import BaselineReport, ChangeOutcome, junit_text, sarif_text
from aneforge.sim.inputs import read_arrays
from aneforge.study import divergences_between, risks_on

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

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
    assert not risks_on(y, "m1")  # to pick rows loses nothing, nor widens what it picks from: exp would overflow
    assert not divergences_between(y, "m1", "m5").real


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
    done = command("run", tmp_path / "m.onnx", "--out", tmp_path / "out.npz")
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
    outcome = ChangeOutcome("bits-changed", "h13", EVIL, EVIL, None, f"{EVIL} has other bits")
    report = BaselineReport(EVIL, ("h13",), (outcome,))
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
        (ImportError("x.so: failed to map segment from shared object"), 2, "aneforge: not enough memory"),
        (ImportError("x.so: undefined symbol: y", name="x"), 2, "cannot be loaded (x.so: undefined symbol: y)"),
        (ImportError("cannot import name", name="aneforge.x"), 3, "please report"),
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
            "export",
            tmp_path / "m.graph",
            "--out",
            tmp_path / seed / "m.mlpackage",
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert done.returncode == 0, done.stderr
    assert listed(tmp_path / "1") == listed(tmp_path / "2")
    assert len(listed(tmp_path / "1")) == 3


# Paths.


def outside(location, name="w"):
    """A weight of 4 numbers that is in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=str(location))
    return tensor


def with_weight(tensor, name="g"):
    add = helper.make_node("Add", ["x", tensor.name], ["y"])
    return model([add], [port("x", [4])], [port("y", [4])], [tensor], name=name)


def test_a_model_in_memory_chooses_no_folder(tmp_path):
    np.arange(4, dtype=np.float32).tofile(tmp_path / "w.bin")
    held = with_weight(outside("w.bin"), name=str(tmp_path / "model"))  # graph.name was the folder once
    with pytest.raises(LoadError, match="has no folder; name the folder"):
        af.onnx_to_tensor(held)
    (x,), y = af.onnx_to_tensor(held, folder=tmp_path)
    assert (x.shape, getattr(y, "shape", None)) == ((4,), (4,))
    with pytest.raises(LoadError, match="points outside the model's folder"):
        af.onnx_to_tensor(with_weight(outside(tmp_path / ".." / "w.bin")), folder=tmp_path)


def test_folder_is_for_models_in_memory(tmp_path):
    onnx.save(small(), tmp_path / "m.onnx")
    with pytest.raises(LoadError, match="folder is only for a ModelProto"):
        af.onnx_to_tensor(tmp_path / "m.onnx", folder=tmp_path)


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "in").mkdir()
    np.arange(4, dtype=np.float32).tofile(tmp_path / "secret")
    (tmp_path / "in" / "w.bin").symlink_to(tmp_path / "secret")
    onnx.save(with_weight(outside("w.bin")), tmp_path / "in" / "m.onnx")
    with pytest.raises(LoadError, match="points outside the model's folder"):
        af.load(tmp_path / "in" / "m.onnx")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
@pytest.mark.parametrize("name", ["m.onnx", "m.mlmodel", "m.mil", "m.pt2", "m.plist", "m.graph"])
def test_a_pipe_is_not_opened(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(LoadError, match=rf"{name}: not a regular file"):
        af.load(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_of_weights_or_arrays_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "w.bin")
    onnx.save(with_weight(outside("w.bin")), tmp_path / "m.onnx")
    with pytest.raises(LoadError, match="not a regular file"):
        af.load(tmp_path / "m.onnx")
    with pytest.raises(LoadError, match="not a regular file"):
        read_arrays(str(tmp_path / "w.bin"))
    with pytest.raises(LoadError, match="not a regular file"):
        af.load_graph(tmp_path / "w.bin")


# Budgets.


def whole(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def folded(*nodes, given=()):
    """A model whose only work is to compute a constant."""
    last = nodes[-1].output[0]
    more = [
        helper.make_node("Cast", [last], ["float"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["float"], ["most"], keepdims=0),
        helper.make_node("Add", ["x", "most"], ["y"]),
    ]
    return model([*nodes, *more], [port("x", [1])], [port("y", [1])], given)


BOMBS = {
    "constant": folded(helper.make_node("ConstantOfShape", ["s"], ["c"]), given=[whole("s", [1 << 31])]),
    "range": folded(
        helper.make_node("Range", ["a", "b", "d"], ["c"]), given=[whole("a", 0), whole("b", 1 << 32), whole("d", 1)]
    ),
    "tile": folded(
        helper.make_node("Tile", ["o", "r"], ["c0"]),
        helper.make_node("Tile", ["c0", "r"], ["c"]),
        given=[whole("o", [1]), whole("r", [100_000])],
    ),
    "expand": folded(
        helper.make_node("Expand", ["o", "s"], ["c"]), given=[whole("o", [1]), whole("s", [1 << 16] * 2)]
    ),
    "broadcast": folded(
        helper.make_node("ConstantOfShape", ["s"], ["c0"]),
        helper.make_node("ConstantOfShape", ["t"], ["c1"]),
        helper.make_node("Add", ["c0", "c1"], ["c"]),
        given=[whole("s", [1 << 16, 1]), whole("t", [1 << 16])],
    ),
    "convolution": folded(
        helper.make_node("ConstantOfShape", ["s"], ["c0"]),
        helper.make_node("ConstantOfShape", ["t"], ["c1"]),
        helper.make_node("Conv", ["c0", "c1"], ["c"]),
        given=[whole("s", [1, 64, 256, 256]), whole("t", [64, 64, 63, 63])],
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_constants_have_a_budget(name):
    budget = "folded_work" if name == "convolution" else "folded_bytes"
    with pytest.raises(LoadError, match=rf"over the budget {budget} of .* ANEFORGE_MAX_{budget.upper()}=\d+ or use"):
        onnx_graph(BOMBS[name])


def test_a_long_chain_of_small_constants_has_a_budget_too():
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["c0"])]
    nodes += [helper.make_node("Neg", [f"c{i}"], [f"c{i + 1}"]) for i in range(40)]
    chain = folded(*nodes, given=[whole("s", [1000])])
    onnx_graph(chain)
    with budgets.allow(folded_bytes=100_000), pytest.raises(LoadError, match=r"Neg_.*folded_bytes"):
        onnx_graph(chain)


@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "made"),
    [
        ("Gather", [np.zeros((50, 8)), np.zeros(3, np.int64)], {}, 24),
        ("Gather", [np.zeros((50, 8)), np.zeros(3, np.int64)], {"axis": 1}, 150),
        ("GatherND", [np.zeros((5, 6, 7)), np.zeros((4, 2), np.int64)], {}, 28),
        ("Expand", [np.zeros((4, 1)), np.array([4, 9])], {}, 36),
        ("Pad", [np.zeros((2, 3)), np.array([0, 1, 0, 1])], {}, 10),
        ("MatMul", [np.zeros((5, 2, 3)), np.zeros((5, 3, 4))], {}, 40),
        ("Gemm", [np.zeros((3, 2)), np.zeros((4, 3))], {"transA": 1, "transB": 1}, 8),
        ("Tile", [np.zeros((2, 3)), np.array([2, 2])], {}, 24),
        ("Resize", [np.zeros((1, 1, 4, 4)), None, np.array([1.0, 1.0, 2.0, 2.0], np.float32)], {}, 64),
        ("Add", [np.zeros((3, 1)), np.zeros(4)], {}, 12),
    ],
)
def test_sizes_of_constants_are_told_exactly(kind, inputs, attrs, made):
    names = ["" if value is None else f"x{place}" for place, value in enumerate(inputs)]
    node = helper.make_node(kind, names, ["y"], **attrs)
    assert cost_of(onnx, node, [helper.make_opsetid("", 21)], inputs, attrs)[0] == made


def test_a_number_without_end_is_refused(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"\xff" * 2_000_000)
    with pytest.raises(LoadError, match="the number at byte 0 has more than 10 bytes"):
        af.load(tmp_path / "m.onnx")


def test_loops_and_nodes_have_a_budget():
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Sin", ["v"], ["w"])],
        "body",
        [port("i", [], TensorProto.INT64), port("go", [], TensorProto.BOOL), port("v", [2])],
        [port("on", [], TensorProto.BOOL), port("w", [2])],
    )
    loop = helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)
    held = model([loop], [port("x", [2])], [port("y", [2])], [whole("count", 50)])
    assert len(onnx_graph(held).operations) == 50
    with budgets.allow(rounds=49), pytest.raises(LoadError, match="50 is over the budget rounds of 49"):
        onnx_graph(held)
    with budgets.allow(nodes=100), pytest.raises(LoadError, match="101 is over the budget nodes of 100"):
        onnx_graph(held)
    with budgets.allow(depth=0), pytest.raises(LoadError, match="1 is over the budget depth of 0"):
        onnx_graph(held)


@pytest.mark.parametrize("read", [af.load_graph, lambda file: read_arrays(str(file))])
def test_archives_have_a_budget(tmp_path, read):
    with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("graph.json", b" " * (1 << 24))
    with pytest.raises(LoadError, match=r"entry 'graph.json': .* over the budget archive_ratio of 200"):
        read(tmp_path / "bomb")
    with (
        budgets.allow(archive_ratio=10**6, unpacked_bytes=1 << 20),
        pytest.raises(LoadError, match="16,777,216 is over the budget unpacked_bytes of 1,048,576"),
    ):
        read(tmp_path / "bomb")


def test_budgets_are_set_from_outside(monkeypatch):
    monkeypatch.setenv("ANEFORGE_MAX_NODES", "2k")
    assert budgets.limit("nodes") == 2048
    with budgets.allow(nodes=7):
        assert budgets.limit("nodes") == 7
    assert budgets.limit("nodes") == 2048
    monkeypatch.setenv("ANEFORGE_MAX_NODES", "many")
    with pytest.raises(AneforgeError, match="ANEFORGE_MAX_NODES='many' is not a whole number"):
        budgets.limit("nodes")
    for wrong in ({"bytes": 1}, {"nodes": -1}, {"nodes": True}):
        with pytest.raises(AneforgeError), budgets.allow(**wrong):
            pass


def test_the_page_lists_every_budget():
    page = (Path(__file__).parents[1] / "docs" / "guide" / "budgets.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{name}` | {each.default} | {each.counts} |" for name, each in budgets.LIMITS.items()]


# What breaks the standard.


def attribute(**settings):
    node = helper.make_node("LeakyRelu", ["x"], ["y"], name="n", **settings)
    return model([node], [port("x", [2])], [port("y", [2])])


def twice():
    held = attribute(alpha=0.5)
    held.graph.node[0].attribute.add().CopyFrom(held.graph.node[0].attribute[0])
    return held


def untyped():
    held = attribute(alpha=0.5)
    held.graph.node[0].attribute[0].type = 0
    return held


RELU = helper.make_node("Relu", ["x"], ["y"], name="n")


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (attribute(alpha=1), r"n \(LeakyRelu\): attribute 'alpha' is INT; expected FLOAT"),
        (attribute(alpha="a"), "attribute 'alpha' is STRING"),
        (attribute(alpha=float("nan")), "attribute 'alpha' is not finite"),
        (attribute(alpha=float("inf")), "attribute 'alpha' is not finite"),
        (twice(), "attribute 'alpha' is given twice"),
        (untyped(), "attribute 'alpha' is UNDEFINED"),
        (model([RELU, RELU], [port("x", [2])], [port("y", [2])]), "value 'y' is defined more than once"),
        (model([RELU], [port("x", [2])], [port("y", [2])] * 2), "output 'y' is defined more than once"),
        (model([RELU], [port("x", [2])] * 2, [port("y", [2])]), "value 'x' is defined more than once"),
        (
            model([helper.make_node("Relu", ["x", "x"], ["y"])], [port("x", [2])], [port("y", [2])]),
            "the node has 2 inputs; expected 1",
        ),
        (
            model([helper.make_node("Relu", ["z"], ["y"])], [port("x", [2])], [port("y", [2])]),
            "reads 'z', which no input",
        ),
    ],
)
def test_what_breaks_the_standard_is_refused(held, words):
    with pytest.raises(LoadError, match=words):
        onnx_graph(held)


def test_a_python_file_is_not_blamed_for_a_machine_without_memory(tmp_path, monkeypatch, capsys):
    (tmp_path / "net.py").write_text("raise ImportError('x.so: cannot allocate memory in static TLS block')\n")
    monkeypatch.setattr(sys, "argv", ["aneforge", "check", str(tmp_path / "net.py"), "--target", "m1"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("aneforge: not enough memory")
