"""The command line as a user types it: real processes, real exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aneforge.chips import all_targets, target


def run(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", "aneforge", *words], capture_output=True, text=True, check=False, timeout=60, **options
    )


def out(*words):
    result = run(*words)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def test_targets_lists_all():
    lines = out("targets").splitlines()
    listed = [line.split()[0] for line in lines[2:] if line and line.split()[0] in {t.name for t in all_targets()}]
    assert listed == [each.name for each in all_targets() if each.constructible]
    every = out("targets", "--all")
    assert all(each.name in every for each in all_targets())


def test_targets_json_carries_evidence():
    records = json.loads(out("targets", "--json"))
    h16 = next(record for record in records if record["name"] == "h16")
    assert h16["hardware_version"]["value"] == 7
    assert h16["hardware_version"]["conflict"] == "C01"
    assert h16["hardware_version"]["losers"][0]["value"] == 8


@pytest.mark.parametrize("name", ["m2", "M1 Max", "h18g", "target:m9", "u1", "t8103", "h20", "h15m", "a20 pro"])
def test_one_target_tells_everything(name):
    text = out("targets", name)
    assert target(name).name in text
    assert "identity" in text
    record = json.loads(out("targets", name, "--json"))
    assert record["target"] == target(name).name
    assert record["identity"]["td_generation"]["value"] == target(name).td_generation


def test_one_target_in_words():
    text = out("targets", "m2")
    for wanted in (
        "M2 is h14g [measured: M6.name; C03, not h14]",
        "0x81d texture_engine",
        "conv_kernel_w_fp16",
        "blockwise",
        "width-offset slice saturates above 4094",
        "sin ",
        "&BGA",
        "behind the labels",
    ):
        assert wanted in text, wanted


def test_hal_one_field():
    text = out("hal", "h13", "0x1b8")
    assert text.startswith("h13 HAL 0x1b8 max_operand_bytes = 2097152  [decoded: S24, GA]")
    assert "0x1d8 in build 10.26.6" in text
    assert "ZinMirMatMul::LowerNEMatMulToNEConv" in text
    record = json.loads(out("hal", "h13", "0x1b8", "--json"))
    assert (record["value"], record["field"]["name"]) == (2097152, "max_operand_bytes")
    assert "bit clear" in out("hal", "m1", "texture_engine")
    assert "not published" in out("hal", "m1", "chaining_enable")
    assert "never read" in out("hal", "m1", "0x18")


def test_hal_whole_and_difference():
    assert "max_tensor_width" in out("hal", "m1")
    assert "chaining_enable" not in out("hal", "m1")
    assert "chaining_enable" in out("hal", "m1", "--unknowns")
    assert "texture_engine" in out("hal", "h13", "--compare", "h17s")
    rows = json.loads(out("hal", "h13", "--compare", "h17s", "--json"))["differences"]
    assert {row["field"]["name"] for row in rows} >= {"texture_engine", "max_tensor_width", "num_nes"}
    assert json.loads(out("hal", "m6", "--json"))["build"] == "10.26.6"
    assert "0x158" in out("hal", "h13", "max_tensor_width", "--build", "10.26.6")


def test_ops_matrix():
    text = out("ops", "--target", "m1,m2,m5")
    assert "m1 (h13)" in text
    assert "conv " in text
    short = out("ops", "--target", "m1,m2,m5", "--differ")
    assert "topk" in short
    assert "matmul" not in short
    records = json.loads(out("ops", "--target", "m1,m5", "--json"))
    sine = next(record for record in records if record["op"] == "sin")
    assert sine["targets"]["m1"]["conversion"]["value"] == "decompose"
    assert sine["targets"]["m1"]["direct"]["value"] == "reject"
    assert sine["targets"]["m5"]["conversion"]["value"] == "native"


def test_ops_by_name():
    text = out("ops", "sin", "topk", "cross_product", "--target", "m1,m6")
    assert "floor F4" in text
    assert "decided by gated op" in text
    assert "layer" in text
    assert "reject" in out("ops", "sin", "--target", "m1", "--route", "direct")


MODEL = """
import numpy as np
import aneforge as af

x = af.input((1, 8, 32, 32), name="x")
out = af.conv(x, np.full((8, 8, 3, 3), 0.1), pad=1).relu().named("stem")
wave = out.sin().named("wave")
sampled = af.affine(out, np.zeros((1, 6)), 8, 8).named("warp")
wide = af.input((1, 1, 1, 20000)).relu()
both = [out, wave]
count = 3

def build():
    return wave

def broken():
    return 1 / 0
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return str(path)


@pytest.mark.parametrize(
    ("name", "chips", "fail_on", "code"),
    [
        ("out", "m1..m6,macs", "reject,oversize", 0),
        ("out", "all", "reject,oversize", 0),
        ("", "m1", "reject", 0),
        ("wave", "m1", "reject", 0),
        ("wave", "m1", "decompose", 1),
        ("wave", "m3", "decompose", 0),
        ("build", "m1,m5", "decompose", 1),
        ("both", "m5", "decompose", 0),
        ("sampled", "m1,m2", "reject", 1),
        ("sampled", "m2", "reject", 0),
        ("sampled", "m1", "none", 0),
        ("wide", "m3", "oversize", 1),
        ("wide", "m4", "oversize", 0),
    ],
)
def test_check_exits_1_when_a_chip_does_worse_than_allowed(model, name, chips, fail_on, code):
    spec = f"{model}:{name}" if name else model
    result = run("check", spec, "--target", chips, "--fail-on", fail_on)
    assert (result.returncode, result.stderr) == (code, ""), result.stdout
    assert "chips" in result.stdout
    record = json.loads(run("check", spec, "--target", chips, "--fail-on", fail_on, "--json").stdout)
    assert record["ok"] == (code == 0)


def test_check_tells_the_node_the_line_and_the_cure(model):
    text = run("check", f"{model}:sampled", "--target", "m1,m5").stdout
    assert "reject: warp (affine [1, 8, 8, 8], net.py:8)" in text
    assert "do: " in text
    assert "fails on reject: M1" in text


def test_check_takes_a_saved_graph(tmp_path):
    import aneforge as af

    path = tmp_path / "saved.graph"
    af.input((1, 8), name="x").relu().graph().save(path)
    assert run("check", str(path), "--target", "m1").returncode == 0


@pytest.mark.parametrize(
    ("spec", "options", "told"),
    [
        ("missing.py:out", (), "missing.py: no such file"),
        ("{model}:nothing", (), "'nothing' is not defined. Choose one: x, out"),
        ("{model}:count", (), "is a int"),
        ("{model}:broken", (), "ZeroDivisionError"),
        ("{model}:out", ("--target", "zzz"), "nearest"),
        ("{model}:out", ("--target", ""), "needs a chip"),
        (
            "{model}:out",
            ("--fail-on", "everything"),
            "--fail-on: 'everything' is not a list of outcomes",
        ),
        ("{bad}", (), "SyntaxError"),
        ("{empty}", (), "none of graph, out, output, model is defined there. Name one: empty.py:NAME"),
        ("{junk}", (), "not an aneforge graph file"),
    ],
)
def test_check_refuses_what_it_cannot_read(model, tmp_path, spec, options, told):
    for name, contents in (("bad.py", "x = ("), ("empty.py", ""), ("junk.graph", "not a zip")):
        (tmp_path / name).write_text(contents)
    paths = {
        "model": model,
        "bad": tmp_path / "bad.py",
        "empty": tmp_path / "empty.py",
        "junk": tmp_path / "junk.graph",
    }
    result = run("check", spec.format(**paths), *options)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert told in result.stderr


@pytest.mark.parametrize("name", ["resnet", "vit", "unet_block", "lstm"])
def test_the_examples_are_checked_on_all_chips(name):
    path = Path(__file__).resolve().parent.parent / "examples" / f"{name}.py"
    record = json.loads(run("check", str(path), "--target", "all", "--json", "--fail-on", "none").stdout)
    assert len(record["targets"]) == 28
    assert record["targets"]["h17s"]["ok"]


@pytest.mark.parametrize(
    ("contents", "told"),
    [
        ("{", "not JSON"),
        ("{}", "'rows'"),
        ('{"rows": [{"op": 3}]}', "rows[0].op' is 3, not a text"),
        (None, "cannot be read"),
    ],
)
def test_measure_gate_refuses_bad_files(tmp_path, contents, told):
    path = tmp_path / "rows.json"
    if contents is not None:
        path.write_text(contents)
    result = run("measure", "gate", str(path))
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert told in result.stderr


TEXT = """"builtin.module"() ({
  "anec.A13"() ({
    %0 = "anec.live_in"() {name = "x"} : () -> tensor<1x1x8x4x4xf16>
    %1 = "anec.relu"(%0) : (tensor<1x1x8x4x4xf16>) -> tensor<1x1x8x4x4xf16> loc("a")
    %2 = "anec.relu"(%1) : (tensor<1x1x8x4x4xf16>) -> tensor<1x1x8x4x4xf16> loc("b")
    "anec.live_out"(%2) {names = ["y"]} : (tensor<1x1x8x4x4xf16>) -> ()
  }) {target = "h13"} : () -> ()
}) : () -> ()
"""


def test_opt_runs_passes_on_text(tmp_path):
    path = tmp_path / "net.mlir"
    path.write_text(TEXT)
    text = out("opt", str(path), "--pass", "merge-activations", "--target", "h17s")
    assert text.count("anec.relu") == 1
    assert '"anec.A17"' in text
    result = run("opt", "-", "--pass", "fuse", "-v", input=TEXT)
    assert result.returncode == 0
    assert 'slot = "primary"' in result.stdout
    assert "// label-layers" in result.stderr
    assert "label-layers" in out("opt")
    assert json.loads(out("opt", "--json"))[0]["phase"] == 0
    for words, told in (
        (("opt", str(path), "--pass", "drop-copy"), "nearest: drop-copies"),
        (("opt", str(path), "--pass", "nope"), "lists them"),
        (("opt", "missing.mlir", "--pass", "fuse"), "cannot be read"),
        (("opt", str(path), "--pass", "fuse", "--target", "zzz"), "nearest"),
    ):
        failed = run(*words)
        assert (failed.returncode, failed.stdout) == (2, "")
        assert told in failed.stderr


def test_lower_prints_the_model_for_a_chip(model):
    text = out("lower", f"{model}:wave", "--target", "m1")
    assert '"anec.convolution"' in text
    assert '"anec.sin"' not in text  # rewritten below its floor
    assert 'loc("stem")' in text
    assert '"anec.sin"' in out("lower", f"{model}:wave", "--target", "m5")
    result = run("lower", f"{model}:wave", "--target", "m1", "--pass", "fuse", "-v")
    assert result.returncode == 0
    assert 'slot = "post_activation"' in result.stdout
    assert "// rewritten wave: sin-horner" in result.stderr
    refused = run("lower", f"{model}:sampled", "--target", "m1")
    assert refused.returncode == 2
    assert "affine transform is not supported on this architecture" in refused.stderr


def test_explain():
    assert "Device reads win" in out("explain", "c03")
    assert "To settle" not in out("explain", "U08")
    assert "h16s, h16c and h17c" in out("explain", "U08")
    assert "ch.35" in out("explain", "S35")
    assert json.loads(out("explain", "U01", "--json"))["conflict"] == "C16"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("targets", "M7"), "nearest: "),
        (("targets", "A13"), "ambiguous"),
        (("targets", ""), "chip name"),
        (("hal", "h13x"), "h13"),
        (("hal", "h20"), "no build constructs"),
        (("hal", "h13", "0x1bb"), "inside max_operand_bytes"),
        (("hal", "h13", "0xfff"), "outside the table"),
        (("hal", "h13", "texture_engin"), "texture_engine"),
        (("hal", "h13", "0x1b8", "--compare", "h14"), "Give one of the two"),
        (("hal", "h13", "--build", "1.0"), "9.509"),
        (("hal", "h13", "--compare", "nope"), "nearest"),
        (("ops", "convv"), "conv"),
        (("ops", "--target", "m1,zzz"), "zzz"),
        (("ops", "--target", ","), "needs a chip"),
        (("ops", "--target", "u1"), "no family"),
        (("ops", "sin", "--route", "door"), "choose one: conversion, direct"),
        (("explain", "C199"), "nearest"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(words, told):
    result = run(*words)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("aneforge: ")
    assert told in result.stderr


@pytest.mark.parametrize("words", [("nonsense",), ("hal",), ("targets", "--nope")])
def test_usage_errors_exit_2_without_a_traceback(words):
    result = run(*words)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_help_and_version():
    assert "targets" in out("--help")
    for command in ("targets", "hal", "ops", "check", "explain"):
        assert "Examples" in out(command, "--help")
    assert out("--version").startswith("aneforge 0.")


def test_a_closed_pipe_is_no_error_message():
    shell = f"{sys.executable} -m aneforge targets --json | head -n 1"
    result = subprocess.run(shell, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert result.stdout.startswith("[")
    assert result.stderr == ""
