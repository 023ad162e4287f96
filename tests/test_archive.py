"""The archive of a compiled program: saved, loaded, run to the bit; damaged files give a clear error."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest

import aneforge as af
from aneforge.errors import AneforgeError, LoadError

rng = np.random.default_rng(5)


def halves(*shape):
    return (0.2 * rng.normal(size=shape)).astype(np.float16)


def network():
    x = af.input((1, 8, 8, 8), name="x")
    y = af.batch_norm(af.conv(x, halves(16, 8, 3, 3), pad=1), *(1 + np.abs(halves(4, 16)))).relu().named("maps")
    return (y.mean((2, 3)).reshape(1, 16).linear(halves(4, 16)) * 2.0).softmax(-1).named("probs")


@pytest.fixture
def saved(tmp_path):
    model = af.compile(network(), target="h14", _check_precision=False)
    model.save(tmp_path / "net.anef")
    return model, tmp_path / "net.anef"


def sample():
    return {"x": rng.normal(size=(1, 8, 8, 8)).astype(np.float16)}


def test_a_loaded_program_is_the_one_that_was_saved(saved):
    model, path = saved
    again = af.load_program(path)
    assert again.target == model.target
    assert (again.route, again.mode) == (model.route, model.mode)
    assert again.program.mlir == model.program.mlir
    assert again.program.fingerprint == model.program.fingerprint
    feeds = sample()
    assert again.run(feeds).outputs["probs"].tobytes() == model.run(feeds).outputs["probs"].tobytes()
    assert again.estimate() == model.estimate()
    stories = [str(known.explain("maps")).partition("\n")[2] for known in (again, model)]
    assert stories[0] == stories[1] != ""


def test_a_program_runs_in_the_mode_that_is_asked_for(saved):
    model, path = saved
    fast = af.load_program(path, mode="fast")
    assert fast.mode == "fast"
    feeds = sample()
    assert fast.run(feeds).outputs["probs"].tobytes() == model.run_fast(feeds).outputs["probs"].tobytes()


def test_a_saved_program_is_also_a_saved_graph(saved):
    model, path = saved
    assert af.load(path).to_json() == model.graph.to_json()


def test_several_outputs_keep_their_names(tmp_path):
    x = af.input((1, 8, 8, 8), name="x")
    model = af.compile_multi({"a": x.relu(), "b": x.tanh()}, target="m1")
    model.save(tmp_path / "net.anef")
    again = af.load_program(tmp_path / "net.anef")
    x = sample()["x"]
    for name, value in model(x).items():
        assert (again(x)[name] == value).all()


def test_saving_twice_gives_the_same_bytes(saved, tmp_path):
    model, path = saved
    model.save(tmp_path / "again.anef")
    assert (tmp_path / "again.anef").read_bytes() == path.read_bytes()


def rewritten(path, change):
    """The archive with its entries changed by a function, and every checksum left as it was."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    change(entries)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    path.write_bytes(stream.getvalue())


def set_manifest(entries, **values):
    entries["program.json"] = json.dumps({**json.loads(entries["program.json"]), **values}).encode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entries: set_manifest(entries, aneforge_program=2), "version 2"),
        (lambda entries: entries.pop("program.json"), "use af.load"),
        (lambda entries: entries.pop("program.mlir"), "entries are not those"),
        (lambda entries: entries.update({"extra.txt": b"?"}), "extra.txt"),
        (lambda entries: entries.update({"program.mlir": entries["program.mlir"] + b" "}), "other bytes"),
        (lambda entries: set_manifest(entries, inputs=[{}]), "cannot be read"),
        (lambda entries: entries.update({"program.json": b"[]"}), "version None"),
        (lambda entries: entries.update({"program.json": b"{"}), "not JSON"),
    ],
)
def test_a_changed_archive_is_refused(saved, change, message):
    _, path = saved
    rewritten(path, change)
    with pytest.raises(LoadError, match=message):
        af.load_program(path)


def test_any_cut_or_flipped_byte_is_an_error_or_harmless(saved):
    model, path = saved
    data = path.read_bytes()
    feeds = sample()
    expected = model.run(feeds).outputs["probs"].tobytes()
    for place in rng.integers(0, len(data), 40):
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(flipped))
        try:
            again = af.load_program(path)
        except AneforgeError:
            continue
        assert again.run(feeds).outputs["probs"].tobytes() == expected
    for length in (0, 3, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(AneforgeError):
            af.load_program(path)


def test_files_that_are_no_programs_are_named(tmp_path):
    (tmp_path / "text.anef").write_text("hello")
    with pytest.raises(LoadError, match=r"text.anef: neither"):
        af.load_program(tmp_path / "text.anef")
    with pytest.raises(LoadError, match="no such file"):
        af.load_program(tmp_path / "none.anef")
    with pytest.raises(AneforgeError, match="no known ending"):
        af.compile(network(), target="m1", _check_precision=False).save(tmp_path / "net.bin")
    with pytest.raises(AneforgeError, match="mode"):
        af.load_program(tmp_path / "text.anef", mode="slow")


def test_a_container_loads_as_a_model_that_runs(tmp_path):
    model = af.compile(network(), target="m1", _check_precision=False)
    model.save(tmp_path / "net.hwx")
    again = af.load_program(tmp_path / "net.hwx")
    feeds = sample()
    assert again.run(feeds).outputs["probs"].tobytes() == model.run(feeds).outputs["probs"].tobytes()
    assert again.run(feeds, trace=True).trace
    for ask in (again.estimate, again.explain):
        with pytest.raises(AneforgeError, match="a program from a container cannot be"):
            ask()
    (tmp_path / "cut.hwx").write_bytes((tmp_path / "net.hwx").read_bytes()[:5000])
    with pytest.raises(LoadError, match=r"cut.hwx: offset"):
        af.load_program(tmp_path / "cut.hwx")


def command(*words):
    return subprocess.run(
        [sys.executable, "-m", "aneforge", *map(str, words)], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize("ending", ["anef", "hwx"])
def test_the_command_line_writes_and_runs_programs(tmp_path, ending):
    graph, file = tmp_path / "net.graph", tmp_path / f"net.{ending}"
    network().graph().save(graph)
    written = command("compile", graph, "--target", "h13", "--out", file)
    assert written.returncode == 0, written.stderr
    assert f"wrote {file}" in written.stderr
    assert command("run", file, "--seed", 3, "--out", tmp_path / "a.npz").returncode == 0
    assert command("run", graph, "--target", "h13", "--seed", 3, "--out", tmp_path / "b.npz").returncode == 0
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        assert a["probs"].tobytes() == b["probs"].tobytes()
    if ending == "anef":
        assert command("estimate", file, "--target", "m1").returncode == 0
    else:
        refused = command("run", file, "--target", "m5")
        assert refused.returncode != 0
        assert "is for h13" in refused.stderr
