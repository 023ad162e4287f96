"""Every command's ``--help`` is enough to use it: what it does, examples that run, a word and a meaning for each
option, the same for the same option everywhere."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import defaultdict
from pathlib import Path

import kit_standin
import numpy as np
import pytest
from docpages.commands import command_names
from typer.main import get_command
from typer.testing import CliRunner

from aneforge.cli import say
from aneforge.cli.app import app
from aneforge.cli.commands import words_and_examples

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = command_names()
runner = CliRunner()


def command_of(name: str):
    command = get_command(app)
    for word in name.split():
        command = command.commands[word]  # type: ignore[attr-defined]
    return command


def help_of(name: str) -> str:
    done = runner.invoke(app, [*name.split(), "--help"], terminal_width=100)
    assert done.exit_code == 0
    return done.output


def examples(name: str) -> list[str]:
    return words_and_examples(command_of(name).help)[1]


def options_of(name: str) -> set[str]:
    return {
        spelling for parameter in command_of(name).params for spelling in (*parameter.opts, *parameter.secondary_opts)
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_stand_on_lines_of_their_own_and_are_of_the_command(name):
    _, _, after = help_of(name).partition("\nExamples:\n")
    assert [line.strip() for line in after.partition("\n\n")[0].splitlines()] == examples(name)
    assert len(examples(name)) >= 2
    for example in examples(name):
        words = shlex.split(example)
        # A group's default command goes without its name.
        spelled = name.removesuffix(" run").removesuffix(" write").split()
        assert words[: 1 + len(spelled)] == ["aneforge", *spelled], example
        assert {word for word in words if re.match(r"--?[a-z]", word)} <= options_of(name), example


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_what_the_command_does_and_what_every_option_means(name):
    text = help_of(name)
    purpose = text.split("\n\n")[1].strip()
    assert purpose[0].isupper()
    assert len(purpose) > 30
    assert text.startswith(f"Usage: aneforge {name}")
    for option in re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE):
        assert re.search(rf"{option}[^\n]*\s{{2,}}\S|{option}[^\n]*\n\s{{4,}}\S", text), f"{name} {option}"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_word_says_what_an_option_or_argument_takes(name):
    usage, _, rest = help_of(name).partition("\n\n")
    assert not re.search(r"<\w+>|\{", usage)
    assert not re.search(r"^ +(-\w, )?(--[a-z-]+|[A-Z]+) <", rest, re.MULTILINE)
    for parameter in command_of(name).params:
        if parameter.param_type_name == "argument" or parameter.required:
            assert parameter.metavar in usage  # what has to be written is in the first line


DIFFERENT = {
    "--all": "what is left out without it",
    "--out": "what is written",
    "--target": "how many chips it takes",
    "--seed": "inputs or batches",
    "--samples": "of the inputs, or of numbers of a parameter",
    "--tolerance": "of an estimate, or of any number",
    "--layers": "by time, or by encoding",
    "--compare": "another chip, or another program",
    "--input": "read, or run for the ranges",
    "--target-error": "its default",
    "--route": "its default",
    "--os": "the system that a verdict is about, and the one that gave a plan",
    "--data": "with a loss, or with labels",
    "--metric": "of a table, or of a data set",
    "--reference": "a chip, or the float model",
    "--calibration": "what weights are fitted to, or were",
    "--strict": "what is refused",
    "--device": "where it is simulated, or where the optimiser is",
    "--model": "an argument, and an option of contribute",
}
"""Options whose meaning differs between commands, and in what."""


def test_the_same_option_has_the_same_words_everywhere():
    words: dict[str, set[str]] = defaultdict(set)
    for name in COMMANDS:
        for parameter in command_of(name).params:
            if parameter.param_type_name == "option":
                words[max(parameter.opts, key=len)].add(str(parameter.help))
    assert {option for option, said in words.items() if len(said) > 1} <= set(DIFFERENT)
    for option in ("--route", "--target-error"):  # alike but for the default
        assert len({re.sub(r" \(default: .*\)", "", said) for said in words[option]}) == 1


def test_a_command_that_can_end_with_1_says_when():
    """The sources say which ones can."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "aneforge/cli/verbs").glob("*.py"))
    declared = dict(re.findall(r"^def (\w+)\((.*?)(?=^@|\Z)", text, re.MULTILINE | re.DOTALL))
    can_fail = {name for name, body in declared.items() if "typer.Exit(" in body}
    assert len(can_fail) > 8
    for name in can_fail:
        assert "Exit status: 0 " in declared[name], name
        assert "; 1 " in declared[name], name


# The examples are run.

NET = """
import numpy as np
import aneforge as af

x = af.input((2, 4, 6, 6), name="x", max_abs=8)
out = af.conv(x, np.full((4, 4, 1, 1), 0.1)).relu().named("conv_0")
logits = af.matmul(x.mean((2, 3)).reshape((2, 4)), af.parameter(np.full((4, 3), 0.1), name="w"))
loss = (x * af.parameter(np.full((1, 4, 6, 6), 0.5), name="w")).mean()
"""
PLAN = [
    {"name": "bank", "operatorName": "conv", "preferredComputeDevice": "neuralEngine", "estimatedCost": 0.9},
    {"name": "bank_relu", "operatorName": "relu6", "preferredComputeDevice": "cpu", "estimatedCost": 0.1},
]
LAYER = {"op": "conv", "n": 1, "cin": 64, "cout": 64, "h": 56, "w": 56, "kh": 3, "kw": 3, "stride": 1, "pad": [1, 1]}
SHAPE = [[1, 64, 56, 56]]
TIMES = [
    {"chip": chip, "op_class": "conv", "layers": [LAYER], "inputs": SHAPE, "outputs": SHAPE, "latency_us": us}
    for chip, us in (("M1", 400.0), ("M5", 200.0))
]
VERDICTS = [{"op": "relu", "shapes": [[1, 8, 4, 4]], "chip": "M1", "route": "conversion", "verdict": "accept"}]


def invoke(line: str):
    say.set_voice()
    return runner.invoke(app, shlex.split(line)[1:], catch_exceptions=False)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Every file that an example names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("aneforge.study.probes.readings", lambda chip: [])  # seconds a chip, and tested elsewhere
    own = ROOT / "examples"
    Path("net.py").write_text(NET)
    shutil.copy(own / "decoder.py", "decoder.py")
    for name in ("model.onnx", "old.onnx", "new.onnx"):
        shutil.copy(own / "detector.onnx", name)
    shutil.copy(own / "tiny_encoder.onnx", "bert.onnx")
    for name in ("before.hwx", "after.hwx", "net.hwx", "conv.hwx"):
        shutil.copy(own / "conv.hwx", name)
    shutil.copy(own / "convnet.plist", "net.plist")
    shutil.copy(own / "convnet.weights.bin", "convnet.weights.bin")
    x = np.random.default_rng(0).standard_normal((2, 4, 6, 6)).astype(np.float32)
    np.savez("x.npz", x=x)
    np.savez("batch.npz", x=x)
    np.savez("samples.npz", x=np.stack([x, x]))
    np.savez("digits.npz", x=np.concatenate([x, x]), target=np.array([0, 1, 2, 0]))
    np.savez("labelled.npz", x=x, target=np.eye(3, dtype=np.float32)[:2])
    for name, rows in (("times.json", TIMES), ("rows.json", VERDICTS)):
        Path(name).write_text(json.dumps({"schema": 1, "rows": rows}))
    Path("plan.json").write_text(json.dumps(PLAN))
    kit_standin.written(kit_standin.results("M3", only={"X06", "X50", "X51"}), Path("results.json"))
    kit_standin.checkout(Path())
    Path("zoo.csv").write_text("path\nmodel.onnx\nold.onnx\n")
    Path("models").mkdir()
    shutil.copy("net.plist", "models/net.plist")
    shutil.copy("convnet.weights.bin", "models/convnet.weights.bin")
    shutil.copy("model.onnx", "models/model.onnx")
    return tmp_path


BEFORE = {
    "opt": ["aneforge lower net.py --target h13 --out net.mlir"],
    "ci check": ["aneforge ci record model.onnx --target m1,m5 --skip numerics"],
    "ci update": ["aneforge ci record model.onnx --target m1 --skip numerics"],
    "sweep merge": [f"aneforge sweep models/ --target m1 --out results-{part} --workers 1" for part in (1, 2)],
    "evaluate merge": [f"aneforge evaluate net.py --data samples.npz --shard {n}/2 --out part-{n}" for n in (1, 2)],
    "sweep compare": [
        f"aneforge sweep models/ --target m1 --out {name} --workers 1" for name in ("last-week", "today")
    ],
}
"""What has to be there before the examples of a command run."""

NOT_RUN = {
    "aneforge serve": "it serves until it is stopped: tests/test_serve.py",
    "aneforge serve --port 0 --target macs": "it serves until it is stopped: tests/test_serve.py",
    "aneforge ci compare model.onnx --base origin/main -o comment.md": "it needs a repository: tests/test_package.py",
    "aneforge ci compare model.onnx --target m1,m5": "it needs a repository: tests/test_package.py",
    "aneforge cache --clear": "it is of the person who runs the tests",
    "aneforge sweep merge results-1 results-2 --out results.parquet": "it needs an extra: tests/test_sweep.py",
}
WITH_1 = {
    "aneforge check model.onnx --target all",
    "aneforge check model.onnx --target m1,m5 --json",
    "aneforge validate net.plist --target all",
    "aneforge validate model.onnx --route conversion",
    "aneforge kit apply results.json",
}
"""Examples that find something in these files."""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_run(name, files, request):
    assert set(NOT_RUN) <= {example for each in COMMANDS for example in examples(each)}
    for line in BEFORE.get(name, ()):
        assert invoke(line).exit_code == 0, line
    for example in examples(name):
        if example in NOT_RUN:
            continue
        done = invoke(example)
        assert done.exit_code == int(example in WITH_1), f"{example}\n{done.output}"
        out = re.search(r"(?:--out|-o) (\S+)", example)
        assert out is None or Path(out[1]).exists(), example
        if "--json" in example:
            assert json.loads(done.stdout)
