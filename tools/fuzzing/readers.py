"""Every kind of file that a command reads: how a sound one is made, and the commands that read it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from aneforge.files import write_arrays
from aneforge.graph.encoding import Encoded
from aneforge.reports.kit.runner.run import seal

EXAMPLES, TESTS = (Path(__file__).resolve().parents[2] / name for name in ("examples", "tests"))
Aneforge = Callable[[str], object]
"""Runs a command line of the program; it must end well."""

_SMALL, _DETECTOR = EXAMPLES / "small.py", EXAMPLES / "detector.onnx"
_LAYER = {"op": "conv", "n": 1, "cin": 64, "cout": 64, "h": 56, "w": 56, "kh": 3, "kw": 3, "stride": 1, "pad": [1, 1]}
_SHAPES = {"inputs": [[1, 64, 56, 56]], "outputs": [[1, 64, 56, 56]]}
_TIMES = {"chip": "M1", "op_class": "conv", "layers": [_LAYER], **_SHAPES}
_TRAINED = """
import numpy as np
import aneforge as af

loss = (af.input((2, 4), name="x", max_abs=8) * af.parameter(np.full((1, 4), 0.5), name="w")).mean()
"""


@dataclass(frozen=True)
class Reader:
    """A kind of file. FILE in a command is the damaged one, FOLDER where it lies; the other files there are whole."""

    name: str
    file: str
    """Its place in the folder, as a pattern."""
    make: Callable[[Path, Aneforge], object]
    """Makes the files in a folder, the one that is damaged among them."""
    commands: tuple[str, ...]
    needs: str = ""
    """A package that reads such files."""
    forge: Callable[[bytes], bytes] | None = None
    """What makes the file's own digest fit again; without it damage would get no farther than the digest."""


def _copy(*names: str) -> Callable[[Path, Aneforge], object]:
    return lambda folder, run: [shutil.copy(EXAMPLES / name, folder / name) for name in names]


def _by(*lines: str) -> Callable[[Path, Aneforge], object]:
    return lambda folder, run: [run(line.replace("@", f"{folder}/")) for line in lines]


def _json(name: str, document: object) -> Callable[[Path, Aneforge], object]:
    return lambda folder, run: (folder / name).write_text(json.dumps(document))


def _arrays(name: str, **shapes: tuple[int, ...]) -> Callable[[Path, Aneforge], object]:
    arrays = {key: np.linspace(-1, 1, int(np.prod(shape))).reshape(shape) for key, shape in shapes.items()}
    return lambda folder, run: write_arrays(folder / name, arrays)


def _trained(folder: Path, run: Aneforge) -> None:
    (folder / "net.py").write_text(_TRAINED)
    np.savez(folder / "data.npz", x=np.arange(16, dtype=np.float32).reshape(4, 4) / 8)
    run(f"train {folder}/net.py:loss --data {folder}/data.npz --steps 2 --out {folder}/run.ckpt -q")


def _evaluated(folder: Path, run: Aneforge) -> None:
    np.savez(folder / "samples.npz", x=np.ones((3, 1, 8, 16, 16), np.float32))
    run(f"evaluate {_SMALL} --data {folder}/samples.npz --target m1 --out {folder}/scores -q")


def _onnx(folder: Path, run: Aneforge) -> None:
    """A model small enough that damage hits something, with a subgraph, attributes of all kinds and an initializer."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    branch = [helper.make_node(op, ["h"], ["z"], f"{op}_in") for op in ("Relu", "Neg")]
    branches = [helper.make_graph([node], node.op_type, [], [onnx.ValueInfoProto(name="z")]) for node in branch]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Cast", ["c"], ["h"], "cast", to=TensorProto.FLOAT),
        helper.make_node("If", ["yes"], ["y"], "if", then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Gemm", ["f", "g"], ["o"], "gemm", alpha=0.5, transB=1),
        helper.make_node("Flatten", ["y"], ["f"], "flat"),
    ]
    weights = [
        numpy_helper.from_array(np.ones((4, 2, 3, 3), np.float32), "w"),
        numpy_helper.from_array(np.array(True), "yes"),
        numpy_helper.from_array(np.ones((3, 64), np.float16).astype(np.float32), "g"),
    ]
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4])]
    order = [nodes[0], nodes[1], nodes[2], nodes[4], nodes[3]]
    graph = helper.make_graph(order, "g", ports, [onnx.ValueInfoProto(name="o")], weights)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(folder / "m.onnx"))


def _mlmodel(folder: Path, run: Aneforge) -> None:
    run(f"export {_SMALL} --out {folder}/whole.mlpackage --target m1")
    shutil.copy(next((folder / "whole.mlpackage").rglob("*.mlmodel")), folder / "m.mlmodel")


def _graph(folder: Path, run: Aneforge) -> None:
    import aneforge as af

    x = af.input((1, 4, 6, 6), name="x", max_abs=4)
    codes, scale = np.arange(-72, 72, dtype=np.int8).reshape(4, 4, 3, 3), np.full((4, 1, 1, 1), 0.01)
    y = af.conv(x, Encoded.affine(codes, scale, axis=0), pad=1)
    af.Graph([(y.relu() + x).softmax(-1).named("y")]).save(folder / "g.npz")


def _log(folder: Path, run: Aneforge) -> None:
    (folder / "log.txt").write_text("ANECCompile() FAILED (11)\nerror code: -14 0x20004\n")


def _results(folder: Path, run: Aneforge) -> None:
    """What a stand-in for a Mac wrote, and the profile of its machine."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))
    standin = import_module("kit_standin")
    document = standin.results("M3", only={"X06", "X33", "X50", "X51", "X66", "X75"})
    for row in document["results"]:
        row["times_ns"] = row.get("times_ns", [])[:8]
    standin.written(standin.sealed(document), folder / "results.json")
    standin.checkout(folder)
    run(f"measure kit {folder}/results.json --profile {folder}/mine.json -q")


def _sealed(data: bytes) -> bytes:
    document = json.loads(data)
    return json.dumps({**document, "digest": seal(document)}).encode()


_CHECK = "check FILE --target m1,m5 -q --no-cache"
_RUN = "run FILE --target m1 -q --no-cache"
_SWEEP = f"sweep {_SMALL} --target m1,m5 --out @results --workers 1 -q"
_SWEEP_AGAIN = f"sweep {_SMALL} --target m1,m5 --out FOLDER/results --workers 1 -q"
_ROWS = {"rows": [{"op": "relu", "shapes": [[1, 8, 4, 4]], "route": "conversion", "verdict": "accept", "chip": "M1"}]}
_PLAN = [
    {"name": "bank", "operatorName": "conv", "preferredComputeDevice": "neuralEngine", "estimatedCost": 0.9},
    {"name": "best", "operatorName": "topk", "preferredComputeDevice": "cpu", "estimatedCost": 0.1},
]
READERS = (
    Reader("ONNX", "m.onnx", _onnx, (_CHECK, _RUN), "onnx"),
    Reader("Core ML", "m.mlmodel", _mlmodel, (_CHECK,), "coremltools"),
    Reader("netplist", "convnet.plist", _copy("convnet.plist", "convnet.weights.bin"), (_CHECK, _RUN)),
    Reader("saved graph", "g.npz", _graph, (_CHECK, _RUN)),
    Reader(
        "saved program",
        "p.anef",
        _by(f"compile {_SMALL} --target m1 --out @p.anef -q"),
        ("run FILE --target m1 -q", _CHECK, "inspect FILE -q"),
    ),
    Reader(
        "backend text",
        "p.mlir",
        _by(f"lower {_SMALL} --target m1 --out @p.mlir -q"),
        ("opt FILE --pass fuse -q",),
    ),
    Reader("compiled program", "conv.hwx", _copy("conv.hwx"), ("inspect FILE -q", "run FILE -q")),
    Reader(
        "driver file",
        "p.anec",
        _by(f"compile {_SMALL} --target m1 --out @p.anec --allow-text -q"),
        ("inspect FILE -q", "run FILE -q"),
    ),
    Reader(
        "report",
        "r.json",
        _by(f"report {_SMALL} --target m1,m5 --changes 0 --out @r.json -q"),
        (
            f"report {_SMALL} --target m1,m5 --changes 0 --compare FILE --out d.md -q",
            "report FILE --out page.html -q",
        ),
    ),
    Reader(
        "baseline",
        "b.json",
        _by(f"ci record {_SMALL} --target m1 --skip numerics --baseline @b.json -q"),
        (f"ci check {_SMALL} --baseline FILE -q",),
    ),
    Reader("sweep result", "results/results/*.json", _by(_SWEEP), ("sweep merge FOLDER/results --out table.csv -q",)),
    Reader("sweep plan", "results/plan.json", _by(_SWEEP), ("sweep merge FOLDER/results -q", _SWEEP_AGAIN)),
    Reader("sweep digests", "results/digests.json", _by(_SWEEP), (_SWEEP_AGAIN,)),
    Reader(
        "sweep table", "t.csv", _by(_SWEEP, "sweep merge @results --out @t.csv -q"), ("sweep compare FILE FILE -q",)
    ),
    Reader(
        "sweep table as JSON",
        "t.json",
        _by(_SWEEP, "sweep merge @results --out @t.json -q"),
        ("sweep compare FILE FILE -q", "sweep compare FOLDER/results FILE -q"),
    ),
    Reader(
        "list of models",
        "zoo.json",
        _json("zoo.json", [{"path": str(_SMALL), "name": "small"}]),
        ("sweep FILE --target m1 --out swept --workers 1 -q",),
    ),
    Reader("times", "t.json", _json("t.json", {"rows": [{**_TIMES, "latency_us": 400.0}]}), ("measure cost FILE -q",)),
    Reader("verdicts", "v.json", _json("v.json", _ROWS), ("measure gate FILE -q",)),
    Reader(
        "compute plan",
        "plan.json",
        _json("plan.json", _PLAN),
        (
            f"contribute FILE --target m1 --os 'macOS 26.1' --model {_DETECTOR} -o rows.json -q",
            f"report {_DETECTOR} --target m1 --changes 0 --measured FILE --out r.md -q",
        ),
    ),
    Reader("inputs", "x.npz", _arrays("x.npz", x=(1, 8, 16, 16)), (f"run {_SMALL} --target m1 --input FILE -q",)),
    Reader(
        "samples",
        "s.npz",
        _arrays("s.npz", x=(3, 1, 8, 16, 16)),
        (f"evaluate {_SMALL} --data FILE --target m1 -q",),
    ),
    Reader("scores", "scores/samples/*.json", _evaluated, ("evaluate merge FOLDER/scores -q",)),
    Reader("evaluation", "scores/plan.json", _evaluated, ("evaluate merge FOLDER/scores -q",)),
    Reader(
        "figures",
        "scores/summary.json",
        _evaluated,
        (f"report {_SMALL} --target m1 --changes 0 --evaluation FOLDER/scores --out r.html -q",),
    ),
    Reader(
        "checkpoint",
        "run.ckpt",
        _trained,
        ("train FOLDER/net.py:loss --data FOLDER/data.npz --steps 3 --resume FILE -q",),
    ),
    Reader(
        "results of a kit",
        "results.json",
        _results,
        ("contribute FILE -q", "measure kit FILE -q", "kit apply FILE --checkout FOLDER -q"),
        forge=_sealed,
    ),
    Reader("profile of a machine", "mine.json", _results, (f"estimate {_SMALL} --target m3 --machine FILE -q",)),
    Reader("log", "log.txt", _log, ("explain --file FILE -q",)),
)
