"""The gate for CI: a model against its committed baseline. Every change is found, told and, where it is bad, fails."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import aneforge as af
from aneforge.baseline import (
    CHECKS,
    RULES,
    BaselineError,
    Limits,
    Outcome,
    Plan,
    Report,
    chip_list,
    compare,
    load_baseline,
    observe,
    save_baseline,
)
from aneforge.baseline.file import baseline_text
from aneforge.baseline.junit import junit_text
from aneforge.baseline.record import Apart, OutputRecord
from aneforge.baseline.sarif import sarif_text
from aneforge.cli.ci import Options, run
from aneforge.cli.model_file import ModelFile
from aneforge.errors import AneforgeError, UnknownNameError
from aneforge.graph.graph import Graph
from aneforge.output.files import write_whole
from aneforge.sim.inputs import drawn_sample

ROOT = Path(__file__).resolve().parents[1]
NET = """\
import numpy as np
import aneforge as af
x = af.input((1, 4, {size}, {size}), name="x")
weight = np.random.default_rng(7).normal(0, 0.2, (8, 4, {kernel}, {kernel})) * {gain}
stem = af.conv(x, weight, stride={stride}).named("stem")
out = stem.{op}().named("result")
"""
PLAIN = {"size": 18, "kernel": 3, "stride": 1, "gain": 1.0, "op": "tanh"}
# Kernels are at most 13 wide on an M1 (the printed limit of the compiler), 16 pass on an M5.
WIDE = {**PLAIN, "size": 32, "kernel": 16, "stride": 16}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write()
    return tmp_path


def write(**changes):
    Path("net.py").write_text(NET.format(**{**PLAIN, **changes}))


def gate(capsys=None, model="net.py", dims=(), write=False, update=False, **options):
    action = "record" if write else "update" if update else "check"
    status = run(ModelFile(model, dims), Options(action, **options))
    return (status, capsys.readouterr().out) if capsys else status


def outcomes(capsys, **options):
    """Exit status, and outcomes by rule."""
    status, printed = gate(capsys, as_json=True, **options)
    report = json.loads(printed)
    assert report["ok"] == (not report["counts"]["error"])
    found = {}
    for each in report["outcomes"]:
        found.setdefault(each["rule"], []).append(each)
    return status, found


def edit(change, file="net.py.baseline.json"):
    document = json.loads(Path(file).read_text())
    change(document)
    Path(file).write_text(json.dumps(document))


# Writing and reading.


def test_what_was_written_is_what_is_found_again(home, capsys):
    assert gate(write=True) == 0
    first = Path("net.py.baseline.json").read_bytes()
    capsys.readouterr()
    status, printed = gate(capsys)
    assert status == 0
    assert "no change" in printed
    for chip in ("h13 (M1)", "h14g (M2)", "h15 (M3)", "h16g (M4)", "h17 (M5)", "h18g (M6)"):
        assert re.search(rf"^{re.escape(chip)} +same +same +same +same$", printed, re.MULTILINE)
    assert gate(update=True) == 0
    assert Path("net.py.baseline.json").read_bytes() == first


def test_the_file_says_what_it_is_and_names_no_place(home):
    gate(write=True, target="m1,m5")
    content = Path("net.py.baseline.json").read_text()
    document = json.loads(content)
    assert document["format"] == 1
    assert document["aneforge"] == af.__version__
    assert document["model"]["name"] == "net.py"
    assert document["seed"] == 0
    assert list(document["targets"]) == ["h13", "h17"]
    assert str(home) not in content
    again = load_baseline("net.py.baseline.json")
    assert baseline_text(again) == content


def test_moving_code_changes_nothing(home):
    gate(write=True, target="m1")
    Path("net.py").write_text("\n\n\n" + NET.format(**PLAIN))
    before = Path("net.py.baseline.json").read_bytes()
    gate(update=True)
    assert Path("net.py.baseline.json").read_bytes() == before


def test_without_a_baseline_the_command_says_how_to_make_one(home):
    with pytest.raises(
        AneforgeError, match=r"base\.json: there is not a baseline yet\. Create one with: aneforge ci record net\.py "
    ):
        gate(baseline="base.json")


def test_a_baseline_is_never_replaced_unasked(home):
    gate(write=True, target="m1")
    before = Path("net.py.baseline.json").read_bytes()
    write(gain=2.0)
    with pytest.raises(AneforgeError, match=r"the baseline exists\. Use aneforge ci update"):
        gate(write=True, target="m1")
    assert gate() == 1
    with pytest.raises(AneforgeError, match="the file exists and was not changed"):
        save_baseline(load_baseline("net.py.baseline.json"), "net.py.baseline.json")
    assert Path("net.py.baseline.json").read_bytes() == before
    assert gate(update=True) == 0
    assert Path("net.py.baseline.json").read_bytes() != before


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_half(home, monkeypatch, broken):
    Path("kept.json").write_text("old")

    def full(handle):
        raise OSError(28, "No space left on device")

    def refuse(path, target):
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(*((os, "fsync", full) if broken == "fsync" else (Path, "replace", refuse)))
    with pytest.raises(AneforgeError, match=r"kept\.json: cannot be written \((No space|Permission)"):
        write_whole("kept.json", "new and longer")
    monkeypatch.undo()
    assert {each.name: each.read_text() for each in home.glob("*.json")} == {"kept.json": "old"}
    assert not list(home.glob(".kept*"))


def test_a_link_is_followed_and_a_folder_refused(home):
    Path("real.json").write_text("old")
    Path("link.json").symlink_to("real.json")
    write_whole("link.json", "new")
    assert Path("link.json").is_symlink()
    assert Path("real.json").read_text() == "new"
    for bad in (".", "nowhere/file.json", "real.json/file"):
        with pytest.raises(AneforgeError, match=re.escape(bad)):
            write_whole(bad, "new")


def test_writing_twice_gives_the_same_bytes_in_other_processes(home):
    code = "from aneforge.cli.ci import *; run('net.py', Options(baseline='{}', target='m1,m5', action='record'))"
    for file, settings in (("a.json", {"PYTHONHASHSEED": "1"}), ("b.json", {"ANEFORGE_NATIVE": "0"})):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
        subprocess.run([sys.executable, "-c", code.format(file)], check=True, env=environment, capture_output=True)
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()


# Broken and foreign files.


def damaged(change):
    def apply(document):
        change(document["targets"]["h13"])

    return apply


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda d: d.update(format=2, aneforge="9.9"),
            r"format 2.*reads format 1.*by aneforge 9\.9.*aneforge ci update",
        ),
        (lambda d: d.pop("kind"), "not a baseline of aneforge"),
        (lambda d: d.pop("targets"), "the file has no 'targets'"),
        (lambda d: d.update(seed="0"), "'seed' is '0', not a whole number"),
        (lambda d: d.update(seed=True), "'seed' is True, not a whole number"),
        (lambda d: d.update(checks=["verdict", "speed"]), "'checks' holds 'speed'"),
        (lambda d: d.update(against="h99"), "'h99' is named and not among the targets"),
        (lambda d: d["targets"].update(h99=d["targets"]["h13"]), "target 'h99' is none that aneforge"),
        (damaged(lambda t: t["estimate"].update(us="fast")), r"'targets\.h13\.estimate\.us' is 'fast', not a number"),
        (damaged(lambda t: t["estimate"].update(us=0)), r"targets\.h13\.estimate\.us' is 0\.0, not a time"),
        (damaged(lambda t: t["verdict"].pop("runs")), r"'targets\.h13\.verdict' has no 'runs'"),
        (damaged(lambda t: t["numerics"]["result"].update(sample="xyz")), "not a text of fp16 bits"),
        (damaged(lambda t: t.update(numerics=[])), r"'targets\.h13\.numerics' is \[\], not a record"),
    ],
)
def test_a_damaged_baseline_is_one_clear_error(home, change, told):
    gate(write=True, target="m1")
    edit(change)
    with pytest.raises(BaselineError, match=told):
        gate()


@pytest.mark.parametrize("content", [b"", b"{", b"

def test_the_reference_lists_every_option():
    page = (ROOT / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    parts = [part for part in page.split("\n### ") if part.startswith("aneforge ci ")]
    shared = {"--json"}  # of every command, said at the top of the page
    options = {name for part in parts for name in re.findall(r"^\| `(--[a-z-]+)", part, re.MULTILINE)} | shared
    spelled = {"inputs": "input", "as_json": "json", "max_us": "max-us"}
    assert options == {f"--{spelled.get(name, name)}" for name in Options.__dataclass_fields__ if name != "action"}


def test_the_workflow_uses_the_command_as_it_is():
    text = (ROOT / "examples" / "ci" / "aneforge.yml").read_text(encoding="utf-8")
    yaml = pytest.importorskip("yaml")
    steps = yaml.safe_load(text)["jobs"]["aneforge"]["steps"]
    command = next(step["run"] for step in steps if "aneforge ci check" in step.get("run", ""))
    used = {word.removeprefix("--") for word in command.split() if word.startswith("--")}
    assert used <= set(Options.__dataclass_fields__)
    uploaded = next(step for step in steps if "upload-sarif" in step.get("uses", ""))
    assert uploaded["with"]["sarif_file"] in command
