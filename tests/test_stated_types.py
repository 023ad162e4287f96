"""Packages of one attention block in fp32, in fp16, and in fp16 around a softmax in fp32 (as granite on an M4)."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from cli_kit import run

import aneforge as af
from aneforge.study.study import Study

coreml_kit = pytest.importorskip("coreml_kit")
from coreml_kit import mb, package  # noqa: E402 - it needs coremltools

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
ROWS, WIDTH = 16, 32


def block(inner: str, softmax: str):
    """Attention and a linear layer that compute in one type, with a softmax that may compute in another."""
    draw = np.random.default_rng(0)
    dtype = np.float16 if inner == "fp16" else np.float32

    def weight():
        return (draw.standard_normal((WIDTH, WIDTH)) / 8).astype(dtype)

    def build(x):
        x = mb.cast(x=x, dtype="fp16") if inner == "fp16" else x
        queries, keys = mb.linear(x=x, weight=weight()), mb.linear(x=x, weight=weight())
        scores = mb.matmul(x=queries, y=keys, transpose_y=True, name="scores")
        scores = mb.cast(x=scores, dtype="fp32") if softmax != inner else scores
        scores = mb.softmax(x=scores, axis=-1, name="probabilities")
        scores = mb.cast(x=scores, dtype="fp16") if softmax != inner else scores
        mixed = mb.linear(x=mb.matmul(x=scores, y=x, name="mixed"), weight=weight(), name="last")
        return mb.cast(x=mixed, dtype="fp32") if inner == "fp16" else mixed

    return build


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    kinds = {"fp32": ("fp32", "fp32"), "mixed": ("fp16", "fp32"), "fp16": ("fp16", "fp16")}
    feeds = [np.zeros((1, ROWS, WIDTH), np.float32)]
    return {name: str(package(tmp_path_factory.mktemp(name), block(*types), feeds)) for name, types in kinds.items()}


@pytest.mark.parametrize("runtime", [None, "coreai"])
@pytest.mark.parametrize("chip", ["m1", "m4"])
def test_what_a_file_states_in_fp32_is_off_the_engine(packages, chip, runtime):
    outcomes = {name: af.check(path, chip, runtime=runtime).outcomes[chip] for name, path in packages.items()}
    assert {name: outcome.kind for name, outcome in outcomes.items()} == {
        "fp32": "no",
        "mixed": "in part",
        "fp16": "yes",
    }
    assert outcomes["mixed"].ops - outcomes["mixed"].on_engine == 1


def test_the_softmax_is_named_with_a_command_that_helps(packages, tmp_path, monkeypatch, capsys):
    status, text, _ = run(f"check {packages['mixed']} --target m4", monkeypatch, capsys)
    assert status == 1
    assert "placement: probabilities (softmax" in text
    assert "aneforge export MODEL -o fp16.mlpackage" in " ".join(text.split())
    cured = tmp_path / "cured.mlpackage"
    assert run(f"export {packages['mixed']} --out {cured}", monkeypatch, capsys)[0] == 0
    assert run(f"check {cured} --target m4", monkeypatch, capsys)[0] == 0


def test_its_time_is_not_that_of_its_fp16_twin(packages):
    """A region of the host and two crossings more."""
    mixed, twin = (Study(packages[name], "m4", scope="coreml_call").estimates()[0]["m4"] for name in ("mixed", "fp16"))
    assert mixed.us > twin.us
    assert len(Study(packages["mixed"], "m4").judged()["m4"].regions) == 3
    assert "nothing of it runs" in str(Study(packages["fp32"], "m4").estimates()[1]["m4"])


def test_the_engine_itself_takes_the_fp32_file(packages):
    """Authored directly, without a runtime that keeps its types, it is a program in fp16."""
    assert af.check(packages["fp32"], "m4", runtime="direct").outcomes["m4"].kind in ("yes", "in part")


def test_only_the_runtime_that_was_asked_about_is_told_of(packages, monkeypatch, capsys):
    """C75 is about Core AI: a question about Core ML does not hear of it."""
    text = run(f"check {packages['fp16']} --target m5 --os 27.2", monkeypatch, capsys)[1]
    assert "Core AI" not in text
    record = json.loads(run(f"check {packages['fp16']} --target m5 --runtime coreai --json", monkeypatch, capsys)[1])
    assert record["verdicts"] == {"m5": "no"}
    assert record["os"] == "27.2"


@pytest.mark.parametrize(("kind", "told"), [(np.float32, True), (np.float16, False)])
def test_a_file_that_is_converted_says_what_the_conversion_does(kind, told, tmp_path):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    port = helper.make_tensor_value_info("x", element, [1, 8])
    result = helper.make_tensor_value_info("y", element, [1, 8])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [port], [result])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), tmp_path / "net.onnx"
    )
    loaded = af.load(tmp_path / "net.onnx")
    assert ("conversion to fp16" in str(af.check(loaded, "m5"))) is told
    loaded.save(tmp_path / "net.aneforge")
    assert af.load(tmp_path / "net.aneforge").file.stated == loaded.file.stated


@pytest.mark.parametrize("command", ["check", "partition", "estimate", "plan"])
def test_every_command_gives_the_verdict_by_the_runtime(command, packages, monkeypatch, capsys):
    text = run(f"{command} {packages['mixed']} --target m4", monkeypatch, capsys)[1]
    assert re.search(r"in part: \d+ of \d+", text)
    assert "by Core ML" in text.replace("By", "by")
    assert "the engine can take it" not in text
