"""Import once: the second load reads no model file, gives the same graph, and nothing that happens to the folder of
the cache can make a load fail or give other numbers."""

from __future__ import annotations

import gc
import json
import os
import plistlib
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import aneforge as af
from aneforge import files as budgets
from aneforge import formats as frontends
from aneforge.cli.app import app
from aneforge.errors import AneforgeError, LoadError
from aneforge.formats import cache
from aneforge.formats.cache import entry, keys, store
from aneforge.formats.cache import entry as place
from aneforge.graph.encoding import Encoded

RNG = np.random.default_rng(5)
KERNEL = (RNG.standard_normal((8, 4, 3, 3)) * 0.5).astype(np.float16)
X = (RNG.standard_normal((1, 4, 6, 6))).astype(np.float16)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cache, turned on, in a folder of its own."""
    monkeypatch.delenv(place.OFF)
    monkeypatch.setenv(place.FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def imports(monkeypatch):
    """The files that readers were asked for."""
    read = []
    original = frontends.Format._read

    def counted(self, file, options):
        read.append(file.name)
        return original(self, file, options)

    monkeypatch.setattr(frontends.Format, "_read", counted)
    return read


def netplist(home: Path, kernel=KERNEL, name="net.plist", slope=0.125) -> Path:
    """A convolution and an activation, with weights in a file beside the model: no package is needed."""
    home.mkdir(exist_ok=True)
    (home / "weights.bin").write_bytes(kernel.tobytes())
    bits = int(np.array(slope, np.float16).view(np.uint16))
    conv = {"Type": "Conv", "KernelWidth": 3, "KernelHeight": 3, "KernelIndex": 0, "KernelOffset": 0, "Step": [1, 1]}
    pads = {"PadLeft": 1, "PadRight": 1, "PadTop": 1, "PadBot": 1}
    network = {
        "Units": ["conv", "act"],
        "Weights": ["weights.bin"],
        "conv": {
            **{"Type": "Conv", "Bottom": "x", "Params": {**conv, **pads}, "OutputType": "Float16"},
            **{"OutputChannels": 8, "NumGroups": 1},
        },
        "act": {
            **{"Type": "Neuron", "Bottom": ["conv"], "OutputType": "Float16"},
            "Params": {"Type": "LeakyReLU", "ReluSlope": bits},
        },
        "y": {"Bottom": "act"},
    }
    sizes = {"BatchSize": 1, "InputChannels": 4, "InputHeight": 6, "InputWidth": 6, "InputDepth": 1}
    procedure = {
        "Name": "main",
        "InputList": [{"InputName": "x", "InputType": "Float16", **sizes}],
        "OperationList": [{"NetworkName": "net", "OperationName": "op"}],
        "OutputList": [{"OutputName": "y", "OutputType": "Float16"}],
    }
    file = home / name
    file.write_bytes(
        plistlib.dumps({"Version": "1.0.10", "Networks": ["net"], "ProcedureList": [procedure], "net": network})
    )
    return file


def numbers(graph):
    return [np.asarray(value) for value in af.evaluate(graph, {"x": X})]


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.graph"))


# The second load.


def test_the_second_load_reads_nothing_and_gives_the_same_graph(tmp_path, folder, imports):
    file = netplist(tmp_path)
    with cache.off():
        imported = af.load(file)
    assert not folder.exists()
    shown, document, expected = str(imported), imported.to_json(), numbers(imported)
    places = [node.where for node in imported]
    first = af.load(file)
    assert imports == ["net.plist"] * 2
    second = af.load(file)
    assert imports == ["net.plist"] * 2
    for graph in (first, second):
        assert str(graph) == shown
        assert graph.to_json() == document
        assert [node.where for node in graph] == places
        assert all(np.array_equal(a, b) for a, b in zip(numbers(graph), expected, strict=True))
    assert len(entries(folder)) == 1


def test_every_way_to_name_a_file_uses_the_cache(tmp_path, folder, imports):
    file = netplist(tmp_path)
    af.load(file)
    assert af.check(file, "m1").ok
    af.estimate(str(file), target="m1")
    assert CliRunner().invoke(app, ["check", str(file), "--target", "m1"]).exit_code == 0
    assert imports == ["net.plist"]


def test_a_change_of_the_file_or_of_a_file_beside_it_is_seen(tmp_path, folder, imports):
    file = netplist(tmp_path)
    before = numbers(af.load(file))
    netplist(tmp_path, slope=0.25)
    assert not np.array_equal(numbers(af.load(file))[0], before[0])
    netplist(tmp_path)
    assert np.array_equal(numbers(af.load(file))[0], before[0])
    assert imports == ["net.plist"] * 2  # the first content is still known
    times = (tmp_path / "weights.bin").stat()
    netplist(tmp_path, kernel=KERNEL * np.float16(2))
    os.utime(tmp_path / "weights.bin", ns=(times.st_atime_ns, times.st_mtime_ns))  # same size, same time
    assert not np.array_equal(numbers(af.load(file))[0], before[0])
    assert imports == ["net.plist"] * 3


def test_a_missing_file_beside_the_model_is_an_error_of_the_reader(tmp_path, folder):
    file = netplist(tmp_path)
    af.load(file)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(LoadError, match="does not exist"):
        af.load(file)


def test_overwriting_the_model_leaves_the_numbers_of_a_loaded_graph(tmp_path, folder):
    """Without the cache the weights are mapped from the user's file, and change with it."""
    file = netplist(tmp_path)
    graph = af.load(file)
    before = numbers(graph)
    with (tmp_path / "weights.bin").open("r+b") as stream:
        stream.write(bytes(KERNEL.nbytes))
    assert before[0].any()
    assert np.array_equal(numbers(graph)[0], before[0])


def test_a_graph_outlives_its_entry(tmp_path, folder):
    graph = af.load(netplist(tmp_path))
    cache.clear()
    assert not entries(folder)
    assert numbers(graph)[0].any()


# What an entry holds.


def encoded_weights():
    codes = RNG.integers(-8, 8, (8, 4, 1, 1))
    scale = np.full(8, 0.5, np.float16)
    palette = Encoded.palette(RNG.integers(0, 16, (8, 4, 1, 1)), RNG.standard_normal(16).astype(np.float16), 4)
    mask = RNG.random((8, 4, 1, 1)) > 0.5
    return [
        Encoded.affine(codes, scale, axis=0),
        Encoded.blockwise(codes, np.full((8, 2, 1, 1), 0.25, np.float16), bits=4),
        palette,
        Encoded.sparse(mask, RNG.standard_normal(int(mask.sum())).astype(np.float16)),
    ]


@pytest.mark.parametrize("weight", encoded_weights(), ids=lambda weight: weight.form)
def test_weights_keep_the_form_they_came_in(tmp_path, weight):
    x = af.input((1, 4, 6, 6), name="x")
    graph = af.Graph([af.conv(x, weight).named("y")])
    document, expected = graph.to_json(), numbers(graph)
    _, write = entry.plan(graph, {})
    with (tmp_path / "e").open("w+b") as stream:
        write(stream)
    del graph
    _, build = entry.read(tmp_path / "e")
    copy = build()
    (stored,) = copy.weights.values()
    assert stored.encoded is not None
    assert stored.encoding == weight.name
    assert copy.to_json() == document
    assert np.array_equal(numbers(copy)[0], expected[0])


def test_attributes_states_and_parameters_survive(tmp_path):
    x = af.input((1, 4), name="x", max_abs=3.5)
    state = af.input((1, 4), name="cache")
    new = (state + x).named("cache_out")
    y = (new * af.parameter(np.ones((1, 4)), name="p")).clip(-float("inf"), 6.0).named("y")
    graph = af.Graph([y, new], {"cache": "cache_out"})
    size, write = entry.plan(graph, {"model": "m"})
    with (tmp_path / "e").open("w+b") as stream:
        write(stream)
    assert (tmp_path / "e").stat().st_size == size
    about, build = entry.read(tmp_path / "e")
    copy = build()
    assert about["model"] == "m"
    assert copy.states == graph.states
    assert copy.to_json() == graph.to_json()
    assert [output.name for output in copy.outputs] == ["y", "cache_out"]


def test_ops_of_the_host_run_from_the_cache(tmp_path, folder, imports):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    table = onnx.numpy_helper.from_array(RNG.standard_normal((16, 8)).astype(np.float32), "table")
    nodes = [helper.make_node("Gather", ["table", "ids"], ["h"], "embed"), helper.make_node("Relu", ["h"], ["y"], "r")]
    ports = [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [1, 5])]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name="y")], [table])
    file = tmp_path / "host.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(file))
    with cache.off():
        imported = af.partition(af.load(file), "m1").run({"ids": np.arange(5).reshape(1, 5)})
    af.load(file)
    count = len(imports)
    loaded = af.load(file)
    assert len(imports) == count
    assert "host" in loaded.kinds
    again = af.partition(loaded, "m1").run({"ids": np.arange(5).reshape(1, 5)})
    assert np.array_equal(again["y"], imported["y"])


# Keys.


def test_what_changes_the_graph_changes_the_key(tmp_path, folder, monkeypatch):
    file = netplist(tmp_path)
    plain = {"dims": {}, "fixed": {}, "function": None}
    found = {
        keys.key_of(file, options, folder)
        for options in (
            plain,
            {**plain, "dims": {"batch": 1}},
            {**plain, "dims": {"batch": 2}},
            {**plain, "function": "main"},
            {**plain, "fixed": {"axes": np.array([1, 2])}},
            {**plain, "fixed": {"axes": np.array([2, 1])}},
            {**plain, "fixed": {"axes": np.array([1.0, 2.0])}},
        )
    }
    assert len(found) == 7
    with budgets.allow(nodes=3):
        found.add(keys.key_of(file, plain, folder))
    monkeypatch.setattr(keys, "_code", lambda: "another version")
    found.add(keys.key_of(file, plain, folder))
    found.add(keys.key_of(netplist(tmp_path, name="other.plist"), plain, folder))
    assert len(found) == 10


def test_a_low_budget_refuses_a_file_that_the_cache_has(tmp_path, folder):
    file = tmp_path / "chain.onnx"
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    nodes = [helper.make_node("Relu", [f"h{i}" if i else "x"], [f"h{i + 1}"]) for i in range(6)]
    ports = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8])]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name="h6")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(file))
    af.load(file)
    with budgets.allow(nodes=3), pytest.raises(LoadError, match="budget nodes"):
        af.load(file)


def test_the_content_of_a_settled_file_is_hashed_once(tmp_path, folder, monkeypatch):
    file = netplist(tmp_path)
    old = time.time() - 60
    monkeypatch.setattr(keys, "_SETTLED_NS", -1)  # the time of the last change of an inode cannot be set back
    os.utime(file, (old, old))
    content = keys.content_of(file, folder)
    monkeypatch.setattr(keys, "_update", None)
    assert keys.content_of(file, folder) == content


def test_a_file_that_changes_now_is_hashed_each_time(tmp_path, folder):
    file = netplist(tmp_path)
    keys.content_of(file, folder)
    assert not (folder / "files.json").exists()


def test_a_folder_has_the_content_of_its_files_and_names(tmp_path, folder):
    package = tmp_path / "m.mlpackage"
    (package / "Data").mkdir(parents=True)
    found = set()
    for name, content in (("a", b"1"), ("a", b"2"), ("b", b"2"), ("Data/c", b"2")):
        (package / name).write_bytes(content)
        found.add(keys.content_of(package, folder))
    (package / "b").rename(package / "d")
    found.add(keys.content_of(package, folder))
    assert len(found) == 5


# Damage.


def damaged(path: Path, kind: str) -> None:
    content = path.read_bytes()
    changed = bytearray(content)
    if kind == "a byte of the head":
        changed[3] ^= 1
    elif kind == "a byte of the graph":
        changed[len(content) // 8] ^= 1
    elif kind == "cut off in the weights":
        changed = changed[:-1]
    elif kind == "cut off in the head":
        changed = changed[:10]
    elif kind == "longer":
        changed += b"\0"
    elif kind == "something else":
        changed = bytearray(b"hello")
    else:
        changed = bytearray()
    path.write_bytes(changed)


DAMAGE = ["a byte of the head", "a byte of the graph", "cut off in the weights", "cut off in the head", "longer"]


@pytest.mark.parametrize("kind", [*DAMAGE, "something else", "empty"])
def test_a_damaged_entry_is_built_again(tmp_path, folder, imports, kind, recwarn):
    file = netplist(tmp_path)
    before = numbers(af.load(file))
    (path,) = entries(folder)
    whole = path.read_bytes()
    damaged(path, kind)
    assert np.array_equal(numbers(af.load(file))[0], before[0])
    assert imports == ["net.plist"] * 2
    (path,) = entries(folder)
    assert path.read_bytes() == whole
    assert not recwarn.list


def test_a_damaged_index_is_forgotten(tmp_path, folder, monkeypatch):
    folder.mkdir()
    for content in (b"", b"[1", b"[]", b'{"a": 1}', b"\xff"):
        (folder / "files.json").write_bytes(content)
        af.load(netplist(tmp_path))


@pytest.mark.parametrize("setting", ["a file", "no room"])
def test_a_folder_that_cannot_be_written_is_no_cache(tmp_path, monkeypatch, imports, setting, folder, recwarn):
    file = netplist(tmp_path)
    if setting == "a file":
        (tmp_path / "taken").write_bytes(b"")
        monkeypatch.setenv(place.FOLDER, str(tmp_path / "taken" / "cache"))
        assert "cannot be written" in str(cache.report())
    else:
        monkeypatch.setenv(place.SIZE, "100")
    for _ in range(2):
        assert numbers(af.load(file))[0].any()
    assert imports == ["net.plist"] * 2
    assert not recwarn.list


def test_a_size_that_is_no_number_is_refused(tmp_path, monkeypatch, folder):
    monkeypatch.setenv(place.SIZE, "much")
    with pytest.raises(AneforgeError, match="ANEFORGE_CACHE_SIZE='much' is not a whole number of bytes"):
        cache.report()
    with pytest.raises(AneforgeError, match="ANEFORGE_CACHE_SIZE='much'"):
        af.load(netplist(tmp_path))


# Size.


def test_the_least_recently_used_goes_first(tmp_path, folder, monkeypatch, imports):
    files = [netplist(tmp_path / f"{i}", kernel=KERNEL * np.float16(i + 1), name=f"{i}.plist") for i in range(3)]
    af.load(files[0])
    size = entries(folder)[0].stat().st_size
    monkeypatch.setenv(place.SIZE, str(2 * size + size // 2))
    af.load(files[1])
    for age, path in enumerate(sorted(entries(folder), key=lambda path: store.entry.read_about(path)["model"])):
        os.utime(path, (1000 - age, 1000 - age))  # 1.plist is the older one
    af.load(files[0])
    af.load(files[2])
    assert {item.model for item in cache.report().entries} == {"0.plist", "2.plist"}
    assert cache.report().bytes <= 2 * size + size // 2
    del imports[:]
    af.load(files[0])
    assert imports == []
    af.load(files[1])
    assert imports == ["1.plist"]


# Several processes.

LOADER = """
import sys, numpy as np, aneforge as af
graph = af.load(sys.argv[1])
print(float(np.asarray(af.evaluate(graph, {"x": np.ones((1, 4, 6, 6))})[0]).sum()))
"""


def test_several_processes_at_once(tmp_path, folder):
    file = netplist(tmp_path)
    words = [sys.executable, "-c", LOADER, str(file)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    results = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0] * 4, results
    assert len({out for out, _ in results}) == 1
    assert not any(error for _, error in results)
    assert len(entries(folder)) == 1
    assert not list(folder.glob(".*.part"))


def test_what_a_killed_process_left_is_removed_later(tmp_path, folder):
    folder.mkdir()
    old, fresh = folder / ".a.graph.1.part", folder / ".b.graph.2.part"
    for path in (old, fresh):
        path.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    af.load(netplist(tmp_path))
    assert not old.exists()
    assert fresh.exists()


# Commands.


def run(*words):
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.output


def test_a_command_without_the_cache_imports_and_stores_nothing(tmp_path, folder, imports):
    file = str(netplist(tmp_path))
    run("check", file, "--target", "m1", "--no-cache")
    assert not entries(folder)
    run("check", file, "--target", "m1")
    run("check", file, "--target", "m1", "--no-cache")
    assert imports == ["net.plist"] * 3
    run("check", file, "--target", "m1")
    assert imports == ["net.plist"] * 3


def test_the_variable_turns_the_cache_off(tmp_path, folder, monkeypatch):
    monkeypatch.setenv(place.OFF, "1")
    af.load(netplist(tmp_path))
    assert not folder.exists()
    assert not cache.report().is_on
    assert "ANEFORGE_NO_CACHE is set" in run("cache")


def test_the_command_shows_and_clears(tmp_path, folder):
    af.load(netplist(tmp_path))
    shown = run("cache")
    assert str(folder) in shown
    assert "net.plist" in shown
    document = json.loads(run("cache", "--json"))
    assert document["entries"][0]["model"] == "net.plist"
    assert document["entries"][0]["operations"] == 2
    assert document["bytes"] == entries(folder)[0].stat().st_size
    assert "removed 1 model\n" in run("cache", "--clear")
    assert json.loads(run("cache", "--clear", "--json"))["removed"] == 0
    assert not entries(folder)


def test_the_default_place_follows_the_desktop_standard(monkeypatch, tmp_path):
    monkeypatch.delenv(place.FOLDER)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert place.folder() == tmp_path / "aneforge" / "graphs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place.folder() == tmp_path / ".cache" / "aneforge" / "graphs"


# What others may have done to the folder.


def flipped(file: Path, back: int) -> None:
    """Change one byte, so far from the end."""
    data = bytearray(file.read_bytes())
    data[-back] ^= 0x10
    file.write_bytes(data)


ONE_DIGEST = 16


def test_a_damaged_weight_is_refused_when_it_is_first_read_and_imported_anew(tmp_path, folder, imports):
    file = netplist(tmp_path)
    with cache.off():
        expected = numbers(af.load(file))
    af.load(file)
    (stored,) = entries(folder)
    flipped(stored, ONE_DIGEST + 8)  # in the last weight
    gc.collect()  # a whole weight that is still in memory would be taken instead
    graph = af.load(file)
    assert graph.operations  # what does not read the numbers needs no digest
    with pytest.raises(LoadError, match=r"net.plist: its copy in the cache is damaged.* load the model again"):
        numbers(graph)
    assert not entries(folder)
    del graph
    assert all(np.array_equal(a, b) for a, b in zip(numbers(af.load(file)), expected, strict=True))


def test_a_damaged_digest_is_a_damaged_entry(tmp_path, folder, imports):
    file = netplist(tmp_path)
    af.load(file)
    (stored,) = entries(folder)
    flipped(stored, 3)
    numbers(af.load(file))
    assert imports == ["net.plist"] * 2


@pytest.mark.parametrize("part", ["codes", "scale"])
def test_no_part_of_a_stored_weight_is_trusted(tmp_path, folder, part):
    weight = Encoded.affine(RNG.integers(-127, 128, (64, 32), np.int8), RNG.uniform(0.01, 0.02, (64, 1)))
    graph = af.Graph([af.input((1, 32), name="x") @ weight.T])
    key, about = "k" * 40, {"model": "net.onnx", "operations": 1, "files": {}}
    assert store.put(folder, key, graph, about)
    (stored,) = entries(folder)
    places = entry.read_about(stored)["weights"]
    (record,) = places.values()
    begin = record["parts"][part][-1]
    data = bytearray(stored.read_bytes())
    arrays = [place for record in places.values() for place in record["parts"].values()]
    end = len(data) - ONE_DIGEST * len(arrays)
    last = max(arrays, key=lambda place: place[2])
    start = end - last[2] - np.dtype(last[0]).itemsize * int(np.prod(last[1]))
    data[start + begin] ^= 1
    del graph, weight
    stored.write_bytes(data)
    again = store.get(folder, key, lambda about: True)
    if part == "scale":
        assert again is None  # small parts are checked at once: rules read them
        return
    assert again is not None
    (weight,) = again.weights.values()
    encoded = weight.encoded
    assert encoded is not None
    for read in (lambda: weight.array, lambda: encoded.parts, encoded.to_bytes):
        with pytest.raises(LoadError, match="damaged"):
            read()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners on this system")
def test_a_folder_that_others_can_write_in_is_not_used(tmp_path, folder, imports):
    file = netplist(tmp_path)
    af.load(file)
    folder.chmod(0o777)
    af.load(file)
    assert imports == ["net.plist"] * 2
    assert "others can write" in str(cache.report())
    folder.chmod(0o700)
    af.load(file)
    assert imports == ["net.plist"] * 2


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners on this system")
def test_what_others_could_write_is_not_used_and_nothing_is_written_so(tmp_path, folder, imports):
    """A folder of a user's own may let a group in; its files do not, even where the process lets a group write."""
    before = os.umask(0o002)
    try:
        folder.mkdir(mode=0o755)
        file = netplist(tmp_path)
        old = time.time() - 60
        os.utime(file, (old, old))
        af.load(file)
        stored = list(folder.iterdir())
        assert stored
        assert not any(path.stat().st_mode & 0o077 for path in stored)
        for path in stored:
            path.chmod(0o664)
        af.load(file)
        assert imports == ["net.plist"] * 2
        assert not any(path.stat().st_mode & 0o077 for path in folder.iterdir() if path.suffix == ".graph")
        af.load(file)
        assert imports == ["net.plist"] * 2
    finally:
        os.umask(before)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners on this system")
def test_an_entry_of_another_user_is_not_used(tmp_path, folder, imports, monkeypatch):
    file = netplist(tmp_path)
    af.load(file)
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    af.load(file)
    assert imports == ["net.plist"] * 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path, folder, imports):
    file = netplist(tmp_path)
    af.load(file)
    (stored,) = entries(folder)
    for path in (stored, folder / "files.json"):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    numbers(af.load(file))
    assert cache.report().most_bytes > 0
