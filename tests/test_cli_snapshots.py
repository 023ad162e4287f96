"""What every command prints on a small example, to the letter. ``make snapshots`` writes the files anew: read the
difference before you commit it.

A snapshot holds the commands of one verb, each with its status where that is not 0, what it prints on stdout, and what
it prints on stderr with ``! `` in front.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import kit_standin
import numpy as np
import pytest
from cli_kit import run
from docpages import written
from docpages.commands import command_names

from aneforge.version import __version__

SNAPSHOTS = Path(__file__).resolve().parent / "snapshots"
SMALL, DETECTOR = "examples/small.py", "examples/detector.onnx"
NET = """
import numpy as np
import aneforge as af

x = af.input((2, 4), name="x", max_abs=8)
loss = (x * af.parameter(np.full((1, 4), 0.5), name="w")).mean()
apart = (af.input((1, 16), name="x", max_abs=16000)[:, 1:] * 1.5).named("apart")
"""
LAYER = {"op": "conv", "n": 1, "cin": 64, "cout": 64, "h": 56, "w": 56, "kh": 3, "kw": 3, "stride": 1, "pad": [1, 1]}
SHAPE = [[1, 64, 56, 56]]
TIMES = [
    {"chip": chip, "op_class": "conv", "layers": [LAYER], "inputs": SHAPE, "outputs": SHAPE, "latency_us": us}
    for chip, us in (("M1", 400.0), ("M5", 200.0))
]
ROW = {"op": "relu", "shapes": [[1, 8, 4, 4]], "route": "conversion", "verdict": "accept"}
PLAN = [
    {"name": "bank", "operatorName": "conv", "preferredComputeDevice": "neuralEngine", "estimatedCost": 0.9},
    {"name": "bank_relu", "operatorName": "relu6", "preferredComputeDevice": "cpu", "estimatedCost": 0.1},
]

# -q leaves out notes on this machine's kernel.
COMMANDS = {
    "targets": ["targets", "targets m1..m3 --json", "targets m77"],
    "hal": ["hal h13 0x1b8", "hal m1 --compare m2"],
    "ops": ["ops sin topk --target m1,m5", "ops --target m1,m5 --differ"],
    "explain": ["explain C03", "explain S35 --json", "explain C199", f"explain -14 --model {SMALL} --target m1"],
    "lifecycle": [f"lifecycle {DETECTOR} --target m1", f"lifecycle {SMALL} --target m5 --runtime coreai --json"],
    "split": [
        "split examples/decoder.py --target m4,a17-pro --context 64",
        "split examples/decoder.py --target m1 --context 0",
    ],
    "check": [f"check {SMALL} --target m1,m2,m5", f"check {DETECTOR} --target all"],
    "validate": [
        f"validate {SMALL} --target m1,m5",
        """validate Softmax --params '{"Dimension": "Channel"}' --shapes 1x8x4x4 --target all""",
        "validate Topk",
    ],
    "partition": [f"partition {DETECTOR} --target m1"],
    "risks": [f"risks {DETECTOR} --target m1 --max-abs 10000"],
    "plan": [f"plan {SMALL} --target m1"],
    "report": [f"report {SMALL} --target m1,m5 --changes 0"],
    "compile": [f"compile {SMALL} --target m1", f"compile {SMALL} --target all", f"compile {SMALL} --explain wide"],
    "lower": [f"lower {SMALL} --target m1 -v"],
    "opt": ["opt", f"lower {SMALL} --out small.mlir", "opt small.mlir --pass fuse -v"],
    "inspect": ["inspect examples/conv.hwx", "inspect examples/conv.hwx --task 0"],
    "tune": [f"tune {SMALL} --target m1"],
    "compress": [f"compress {SMALL} --target m2"],
    "run": [f"run {SMALL} --target m1 -q", f"run {SMALL} --target m1,m5 -q"],
    "compare": [f"compare {SMALL} --target m1,m2,m5 -q", "compare net.py:apart --target m1,m5 --fail-above 0 -q"],
    "evaluate run": [f"evaluate {SMALL} --data samples.npz --target m1,m5 --compress int8 --out scores -q"],
    "evaluate merge": [
        f"evaluate {SMALL} --data samples.npz --target m1,m5 --shard 1/2 --out one -q",
        f"evaluate {SMALL} --data samples.npz --target m1,m5 --shard 2/2 --out two -q",
        "evaluate merge one two",
        "evaluate merge one",
    ],
    "train": ["train net.py:loss --data data.npz --steps 3 --out run.ckpt -q"],
    "gradcheck": ["gradcheck net.py:loss --target m1,m5 --samples 2 -q"],
    "estimate": [f"estimate {SMALL} --target m1,m5 --layers"],
    "plot": [f"plot {SMALL} chips --out chips.svg"],
    "contribute": [
        f"contribute plan.json --target m1 --os 'macOS 26.1' --model {DETECTOR} -o rows.json",
        "contribute plan.json --os 'macOS 26.1' -o rows.json",
        "contribute results.json -o kit-rows.json",
    ],
    "measure cost": ["measure cost times.json"],
    "measure gate": ["measure gate verdicts.json"],
    "kit write": ["kit -o kit --about X75 --target m1", "kit -o kit --about speed"],
    "kit list": ["kit list --about U40 --target m4"],
    "kit apply": ["kit apply results.json --checkout nowhere", "kit apply plan.json --checkout here"],
    "measure kit": ["measure kit results.json --profile mine.json", "measure kit plan.json"],
    "verify": [f"verify {SMALL}"],
    "measure machine": ["measure machine 16384:151 262144:284 4194304:2410 --target m4"],
    "export": ["export examples/convnet.plist --out again.plist --target m1", f"export {SMALL} --out small.txt"],
    "ci record": [f"ci record {SMALL} --target m1,m5 --skip numerics --baseline small.json"],
    "ci check": [
        f"ci record {SMALL} --target m1,m5 --skip numerics --baseline small.json -q",
        f"ci check {SMALL} --baseline small.json",
        f"ci check {SMALL} --baseline small.json --max-us m1=1",
        f"ci check {DETECTOR} --baseline none.json",
    ],
    "ci update": [f"ci update {SMALL} --target m1 --skip numerics --baseline small.json"],
    "sweep run": [f"sweep {SMALL} {DETECTOR} missing.onnx --target m1,m5 --out results --workers 1"],
    "sweep merge": [f"sweep {SMALL} --target m1 --out one --workers 1 -q", "sweep merge one --out table.csv"],
    "sweep compare": [
        f"sweep {SMALL} --target m1 --out one --workers 1 -q",
        f"sweep {SMALL} --target m5 --out two --workers 1 -q",
        "sweep compare one two",
    ],
}
NOT_KEPT = {
    "ci compare": "it needs a repository: tests/test_package.py",
    "doctor": "it describes the machine",
    "mcp": "it speaks a protocol: tests/test_mcp.py",
    "cache": "it describes the machine",
    "serve": "it serves until it is stopped",
    "probe": "docs/guide shows it whole, and it takes seconds",
}


def test_every_command_has_a_snapshot():
    assert set(COMMANDS) | set(NOT_KEPT) == set(command_names())
    kept = {file.stem.replace("-", " ") for file in SNAPSHOTS.glob("*.txt")}
    assert kept - {"api"} == set(COMMANDS)  # the public names are kept beside them: tests/test_supply_chain.py


@pytest.fixture
def place(tmp_path, monkeypatch):
    written.prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    Path("net.py").write_text(NET)
    np.savez("data.npz", x=np.arange(16, dtype=np.float32).reshape(4, 4) / 8)
    np.savez("samples.npz", x=np.random.default_rng(4).normal(size=(6, 1, 8, 16, 16)).astype(np.float32))
    Path("times.json").write_text(json.dumps({"rows": TIMES}))
    rows = [{**ROW, "chip": "M1"}, {**ROW, "chip": "M5", "verdict": "reject"}]
    Path("verdicts.json").write_text(json.dumps({"rows": rows}))
    Path("plan.json").write_text(json.dumps(PLAN))
    kit_standin.written(kit_standin.results("M3", {"X06": 2}, only={"X06", "X33", "X50", "X51"}), Path("results.json"))
    kit_standin.checkout(Path("here"))
    return tmp_path


def printed(line: str, monkeypatch, capsys) -> str:
    status, out, err = run(line, monkeypatch, capsys)
    head = f"$ aneforge {line}" + (f"  # exit status {status}" if status else "")
    notes = "".join(f"! {note}\n" for note in err.splitlines())
    text = f"{head}\n{out}{notes}".replace(__version__, "VERSION")
    return re.sub(r"\b\d(\.\d+)?e-1\d\b", "TINY", text)  # roundings of float64, which differ between machines


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_its_snapshot_says(name, place, monkeypatch, capsys, request):
    now = "\n".join(printed(line, monkeypatch, capsys) for line in COMMANDS[name])
    assert "Traceback" not in now
    assert str(place) not in now
    file = SNAPSHOTS / f"{name.replace(' ', '-')}.txt"
    if request.config.getoption("--write-snapshots"):
        file.write_text(now, encoding="utf-8")
    kept = file.read_text(encoding="utf-8") if file.exists() else ""
    assert now == kept, f"{file.name}: the output has changed; make snapshots writes it anew if that is meant"


def test_snapshots_name_commands_of_their_verb():
    for name, lines in COMMANDS.items():
        verb = re.sub(" (run|write)$", "", name).split()  # which go without saying
        assert any(shlex.split(line)[: len(verb)] == verb for line in lines), name
        assert re.fullmatch(r"[a-z ]+", name)
