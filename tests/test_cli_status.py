"""How commands end: 0 fine, 1 a check found something, 2 the command or its input is wrong. An error is one line on
stderr, and nothing is on stdout."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

import kit_standin
import numpy as np
import pytest
from cli_kit import run
from docpages.commands import command_names

ROOT = Path(__file__).resolve().parents[1]
NET = """
import numpy as np
import aneforge as af

x = af.input((2, 4, 6, 6), name="x", max_abs=8)
out = af.conv(x, np.full((4, 4, 1, 1), 0.1)).relu().named("conv_0")
loss = (x * af.parameter(np.full((1, 4, 6, 6), 0.5), name="w")).mean()
warp = af.affine(out, np.zeros((2, 6)), 8, 8).named("warp")
wide = af.input((1, 1, 1, 20000)).relu()
huge = (af.input((1, 4), name="x", max_abs=60000) * 16.0).named("huge")
apart = (af.input((1, 64), name="x", max_abs=16000)[:, 1:] * 1.5).named("apart")
lost = (x * 1e-7 * af.parameter(np.full((1, 4, 6, 6), 0.5), name="w")).mean()
"""
LAYER = {"op": "conv", "n": 1, "cin": 64, "cout": 64, "h": 56, "w": 56, "kh": 3, "kw": 3, "stride": 1, "pad": [1, 1]}
SHAPE = [[1, 64, 56, 56]]
TIMES = [{"chip": "M1", "layers": [LAYER], "inputs": SHAPE, "outputs": SHAPE, "latency_us": 400.0}]
VERDICTS = [{"op": "relu", "shapes": [[1, 8, 4, 4]], "chip": "M1", "route": "conversion", "verdict": "accept"}]
PLAN = [{"operatorName": "relu", "preferredComputeDevice": "cpu"}]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    np.savez("samples.npz", x=np.ones((2, 2, 4, 6, 6), np.float32))
    np.savez("data.npz", x=np.ones((4, 4, 6, 6), np.float32))
    for name in ("a.hwx", "conv.hwx"):
        shutil.copy(ROOT / "examples" / "conv.hwx", name)
    shutil.copy(ROOT / "examples" / "add.hwx", "add.hwx")
    Path("times.json").write_text(json.dumps({"rows": TIMES}))
    Path("verdicts.json").write_text(json.dumps({"rows": VERDICTS}))
    Path("plan.json").write_text(json.dumps(PLAN))
    kit_standin.written(kit_standin.results("M3", {"X06": 2}, only={"X06", "X33", "X50", "X51"}), Path("results.json"))
    kit_standin.checkout(Path("here"))
    Path("empty.onnx").write_bytes(b"")
    Path("text.onnx").write_text("this is not a model\n")
    Path("folder").mkdir()
    Path("folder.onnx").mkdir()
    Path("file").write_text("a file\n")
    return tmp_path


FINE = {
    "targets": "targets m1",
    "hal": "hal m1 0x1b8",
    "ops": "ops sin",
    "explain": "explain C03",
    "probe": "probe --target m1",
    "cache": "cache",
    "check": "check net.py --target m1",
    "validate": "validate net.py --target m1",
    "partition": "partition net.py",
    "risks": "risks net.py --out safe.aneforge",
    "plan": "plan net.py -o plan.json",
    "report": "report net.py --target m1 --changes 0 -o r.md",
    "compile": "compile net.py --out folder/build",
    "compile ": "compile net.py --out net.anef",
    "lower": "lower net.py -o net.mlir",
    "opt": "opt net.mlir",
    "inspect": "inspect conv.hwx",
    "tune": "tune net.py --budget 1 --out tuned.aneforge",
    "compress": "compress net.py --target m2 --runtimes coreml --out smaller.aneforge",
    "split": "split net.py --target m1",
    "run": "run net.py -o y.npz",
    "compare": "compare net.py --target m1,m5",
    "train": "train net.py:loss --data data.npz --steps 2 -o run.ckpt",
    "gradcheck": "gradcheck net.py:loss --target m1 --samples 1",
    "evaluate run": "evaluate net.py --data samples.npz --target m1 --out scores",
    "evaluate merge": "evaluate merge scores",
    "estimate": "estimate net.py --target m1 --changes 0",
    "plot": "plot net.py chips --target m1 -o x.svg",
    "contribute": "contribute plan.json --target m1 --os 'macOS 26.1' -o rows.json",
    "measure cost": "measure cost times.json",
    "measure gate": "measure gate verdicts.json",
    "measure kit": "measure kit results.json",
    "kit write": "kit -o kit --about X75 --target m1",
    "kit list": "kit list --about X75 --target m1",
    "kit apply": "kit apply results.json --checkout here --accept",
    "verify": "verify net.py",
    "measure machine": "measure machine 16384:151 4194304:2410 --target m4",
    "lifecycle": "lifecycle net.py --target m1",
    "export": "export net.py -o net.plist",
    "ci record": "ci record net.py --target m1 --skip numerics",
    "ci check": "ci check net.py",
    "ci update": "ci update net.py --target m1 --skip numerics",
    "sweep run": "sweep net.py --target m1 --out results --workers 1",
    "sweep merge": "sweep merge results --out table.csv",
    "sweep compare": "sweep compare results results",
}
BEFORE = {
    "evaluate merge": [FINE["evaluate run"]],
    "opt": ["lower net.py -o net.mlir"],
    "ci check": ["ci record net.py --target m1 --skip numerics"],
    "sweep merge": [FINE["sweep run"]],
    "sweep compare": [FINE["sweep run"]],
}
FOUND = {
    "explain": "explain 'nothing that anybody knows'",
    "check": "check net.py:wide --target m1",
    "validate": "validate net.py:warp --target m1",
    "risks": "risks net.py:huge --target m1",
    "compile": "compile net.py:wide --target m1",
    "inspect": "inspect conv.hwx --compare add.hwx",
    "compare": "compare net.py:apart --target m1,m5 --fail-above 0",
    "gradcheck": "gradcheck net.py:lost --target m1 --samples 1",
    "kit apply": "kit apply results.json --checkout here",
    "ci check": "ci check net.py --max-us m1=0.001",
    "ci record": "ci record net.py --target m1 --skip numerics --max-us m1=0.001",
    "ci update": "ci update net.py --target m1 --skip numerics --max-us m1=0.001",
    "sweep run": "sweep text.onnx --target m1 --out results --workers 1",
}
ELSEWHERE = {
    "ci compare": "tests/test_package.py",
    "mcp": "tests/test_mcp.py",
    "serve": "tests/test_serve.py",
    "doctor": "test_cli_vocabulary.py: it depends on the machine",
}


def test_every_command_is_here():
    assert {name.strip() for name in FINE} | set(ELSEWHERE) == set(command_names())


@pytest.mark.parametrize("name", FINE)
def test_0_is_fine(name, home, monkeypatch, capsys):
    monkeypatch.setattr("aneforge.study.probes.readings", lambda chip: [])  # seconds a chip
    for line in (*BEFORE.get(name, ()), FINE[name]):
        status, _, err = run(line, monkeypatch, capsys)
        assert status == 0, (line, err)


@pytest.mark.parametrize("name", FOUND)
def test_1_is_something_found(name, home, monkeypatch, capsys):
    for line in BEFORE.get(name, ()):
        assert run(line, monkeypatch, capsys)[0] == 0
    status, out, err = run(FOUND[name], monkeypatch, capsys)
    assert status == 1, (out, err)
    assert out or name == "compile"


BAD_MODELS = ("missing.onnx", "folder", "folder.onnx", "empty.onnx", "text.onnx", "missing.py:out", "net.py:nothing")


def bad_models(line: str):
    """The same command with files that are no models."""
    for path in (
        "missing.onnx",
        "folder",
        "folder.onnx",
        "empty.onnx",
        "text.onnx",
        "missing.py:out",
        "net.py:nothing",
    ):
        words = shlex.split(line)
        place = next(number for number, word in enumerate(words) if word.startswith("net.py"))
        yield shlex.join([*words[:place], path, *words[place + 1 :]])


def bad_files(line: str):
    """The same command with other files that cannot be read: missing, a folder, empty, not of its format."""
    words = shlex.split(line)
    given = ("data.npz", "plan.json", "times.json", "verdicts.json", "conv.hwx", "net.mlir", "results")
    for number, word in enumerate(words):
        if word in given and words[number - 1] not in ("-o", "--out"):
            for path in ("missing.npz", "folder", "empty.onnx", "text.onnx"):
                yield shlex.join([*words[:number], path, *words[number + 1 :]])


def bad_outputs(line: str):
    """The same command with outputs that cannot be written: in a folder that is a file, or a folder themselves."""
    words = shlex.split(line)
    for number, word in enumerate(words):
        if words[number - 1] in ("-o", "--out"):
            name = Path(word).name
            yield shlex.join([*words[:number], f"file/{name}", *words[number + 1 :]])
            if Path(word).suffix:  # else a folder is what is written
                yield shlex.join([*words[:number], f"taken/{name}", *words[number + 1 :]])


def bad_words(name: str, line: str):
    words = shlex.split(line)
    yield shlex.join([*words, "--nope"])
    yield shlex.join([*words, "--color", "blue"])
    if "--target" in words:
        place = words.index("--target") + 1
        yield shlex.join([*words[:place], "m55", *words[place + 1 :]])
    elif "net.py" in line and name not in ("opt",):
        yield shlex.join([*words, "--target", "m55"])


NOT_AN_ERROR = {
    "sweep run": tuple(path for path in BAD_MODELS if path != "folder"),
}
"""One bad model never stops a sweep: it is a row, with status 1 (``FOUND``)."""


def refused():
    for name, line in FINE.items():
        lines = [*bad_words(name, line), *bad_files(line), *bad_outputs(line)]
        if "net.py" in line:
            lines += [each for each in bad_models(line) if shlex.split(each)[1] not in NOT_AN_ERROR.get(name, ())]
        yield from (pytest.param(name, each, id=each) for each in dict.fromkeys(lines))


@pytest.mark.parametrize(("name", "line"), list(refused()))
def test_2_is_a_wrong_command_or_input(name, line, home, monkeypatch, capsys):
    for before in BEFORE.get(name, ()):
        if before.startswith("sweep"):
            Path("results").mkdir()
            continue  # a folder without results is refused just the same
        assert run(before, monkeypatch, capsys)[0] == 0
    for word in shlex.split(line):
        if word.startswith("taken/"):
            (home / word).mkdir(parents=True)
    left = files_in(home)
    status, out, err = run(line, monkeypatch, capsys)
    assert (status, out) == (2, ""), (out, err)
    assert err.count("\n") == 1, err
    assert err.startswith("aneforge: ")
    assert "Traceback" not in err
    assert files_in(home) == left  # nothing half-written


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("chek", "No such command 'chek'. Did you mean 'check'"),
        ("ci nope", "No such command 'nope'. Run aneforge ci --help to see what it takes."),
        ("check", "Missing argument 'MODEL'. Run aneforge check --help to see what it takes."),
        ("check net.py --targt m1", "No such option: --targt (Possible options: --target). Run aneforge check --help"),
        ("train net.py", "Missing option '--data'. Run aneforge train --help"),
        ("tune net.py --budget many", "Invalid value for '--budget'"),
        ("sweep net.py", "Missing option '--out' / '-o'. Run aneforge sweep run --help"),
    ],
)
def test_a_command_line_that_cannot_be_used_says_where_to_look(line, told, home, monkeypatch, capsys):
    status, out, err = run(line, monkeypatch, capsys)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"aneforge: {told}")


@pytest.mark.parametrize("line", ["", "ci", "measure", "sweep"])
def test_nothing_asked_is_answered_with_the_help(line, home, monkeypatch, capsys):
    status, out, err = run(line, monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert err.startswith(f"Usage: aneforge {line}".rstrip())


def files_in(folder: Path) -> set[str]:
    return {
        os.path.join(place, name)
        for place, folders, names in os.walk(folder)
        for name in (*folders, *names)
        if "__pycache__" not in place and name != "__pycache__"
    }


@pytest.mark.parametrize("words", ["report net.py -o folder/page.html", "plan net.py -o folder/plan.json"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(home, words, monkeypatch, capsys):
    allowed = os.access
    # The tests may run as root, who can write everywhere: what the system would tell another user.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "folder" and allowed(path, mode))
    monkeypatch.setattr("aneforge.formats.load", lambda *_, **__: pytest.fail("the model was read"))
    monkeypatch.setattr("runpy.run_path", lambda *_, **__: pytest.fail("the model was read"))
    status, _, told = run(words, monkeypatch, capsys)
    assert status == 2
    assert "the folder folder cannot be written" in told
    assert not list(Path("folder").iterdir())
