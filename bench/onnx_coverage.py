# pyright: reportMissingImports=false
"""How much of the ONNX standard is read: the tests that the onnx package brings, op by op.

``python bench/onnx_coverage.py`` loads every test model, evaluates the graph in float64 and compares it with the
expected outputs. A test is

- *passed*: every op is in the graph language, so the verdicts and the simulator cover it;
- *host*: it loads and gives the expected numbers, with some ops left to the host;
- *unsupported*: it does not load, with one reason;
- *wrong*: it loads and gives other numbers. This has to be zero.

Figures only, nothing is asserted. ``--markdown`` prints the page of the documentation.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import aneforge as af
from aneforge.errors import AneforgeError
from aneforge.frontends import load

__all__ = ["LABELS", "SUITES", "coverage_page", "outcomes"]

TOLERANCE = 5e-3  # weights and constants are fp16, everything else here is float64
LARGEST = 60000.0  # beyond it fp16 has no numbers
LABELS = ("passed", "host", "unsupported", "wrong")
SUITES = ("node", "pytorch-converted", "pytorch-operator", "simple", "light")

STORED = {
    "AffineGrid": (0,),
    "BatchNormalization": (1, 2, 3, 4),
    "Clip": (1, 2),
    "DequantizeLinear": (0, 1, 2),
    "GridSample": (1,),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "MatMulInteger": (1, 2, 3),
    "QLinearConv": (1, 2, 3, 4, 5, 6, 7, 8),
    "QLinearMatMul": (1, 2, 3, 4, 5, 6, 7),
    "QuantizeLinear": (1, 2),
    "Resize": (1, 2),
    "RoiAlign": (1,),
    "STFT": (2,),
    "Upsample": (1,),
}
"""Inputs that a model stores as weights or settings and a test hands over at run time: they may be fixed here."""

STATIC = {
    *("BlackmanWindow", "Constant", "ConstantOfShape", "EyeLike", "HammingWindow", "HannWindow", "MelWeightMatrix"),
    *("Range", "Shape", "Size"),
}
"""Ops whose result is known when a model is read: nothing of them is left to run."""


@dataclass
class Case:
    """One test: a model in a file, inputs by name and expected outputs."""

    suite: str
    name: str
    ops: tuple[str, ...]
    file: Path
    inputs: dict[str, np.ndarray]
    outputs: list[np.ndarray]
    stored: frozenset[str]


def cases(suite: str, part: str, folder: Path) -> Iterator[Case | tuple[str, str]]:
    """The tests of a suite; one whose data are no tensors comes as its name and the reason."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    if suite == "light":
        yield from _light(part)
        return
    for test in load_model_tests(kind=suite):
        if part not in test.name:
            continue
        if test.model is None:
            file = Path(test.model_dir) / "model.onnx"
            model, data = onnx.load(str(file)), _read(Path(test.model_dir) / "test_data_set_0")
        else:
            file = folder / "model.onnx"
            model, data = test.model, test.data_sets[0]
        try:
            if test.model is not None:
                onnx.save(model, str(file))
            yield _case(suite, test.name, file, model, data[0], data[1])
        except (TypeError, ValueError, AttributeError) as error:
            yield test.name, f"its data are no tensors ({type(error).__name__})"


def _read(folder: Path) -> tuple[list[Any], list[Any]]:
    import onnx

    def tensors(kind: str) -> list[Any]:
        files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
        return [onnx.numpy_helper.to_array(onnx.load_tensor(str(file))) for file in files]

    return tensors("input"), tensors("output")


def _case(suite: str, name: str, file: Path, model: Any, inputs: Any, outputs: Any) -> Case:
    weights = {each.name for each in model.graph.initializer}
    ports = [port.name for port in model.graph.input if port.name not in weights]
    given = {port: _array(each) for port, each in zip(ports, inputs, strict=False)}
    stored = {
        node.input[place]
        for node in model.graph.node
        for place in STORED.get(node.op_type, ())
        if place < len(node.input) and node.input[place] in given
    }
    ops = tuple(dict.fromkeys(node.op_type for node in model.graph.node))
    return Case(suite, name, ops, file, given, [_array(each) for each in outputs], frozenset(stored))


def _array(value: Any) -> np.ndarray:
    """An array of numbers; lists (sequences), nothing (optionals) and strings are none."""
    if not isinstance(value, np.ndarray) and not np.isscalar(value):
        raise TypeError("a sequence or an optional")
    return np.asarray(value)


def _light(part: str) -> Iterator[Case]:
    """Full models whose weights are made by nodes; their expected outputs are for an input that counts up to one."""
    import onnx

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for file in sorted(folder.glob("*.onnx")):
        if part not in file.stem:
            continue
        model = onnx.load(str(file))
        weights = {each.name for each in model.graph.initializer}
        inputs = []
        for port in model.graph.input:
            if port.name not in weights:
                shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
                inputs.append(_light_input(shape))
        answer = onnx.load_tensor(str(file.with_name(f"{file.stem}_output_0.pb")))
        yield _case("light", file.stem, file, model, inputs, [onnx.numpy_helper.to_array(answer)])


def _light_input(shape: list[int]) -> np.ndarray:
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def outcome(case: Case) -> tuple[str, str]:
    """The best that one of the ways to hand the inputs over gives; any wrong number counts."""
    found: list[tuple[str, str]] = []
    for fixed in _ways(case):
        found.append(_attempt(case, fixed))
        if found[-1][0] in ("passed", "wrong"):
            return found[-1]
    return min(found, key=lambda each: LABELS.index(each[0]))


def _ways(case: Case) -> Iterator[dict[str, np.ndarray]]:
    """Whole numbers and truth values are settings (axes, shapes, indices) in most models; weights are stored."""
    settings = {name: each for name, each in case.inputs.items() if each.dtype.kind in "iub"}
    known = settings | {name: case.inputs[name] for name in case.stored}
    if len(settings) < len(case.inputs):
        yield settings
    if known != settings and len(known) < len(case.inputs):
        yield known
    if set(case.ops) <= STATIC:
        yield dict(case.inputs)
    elif settings or not case.inputs:
        yield {}


def _attempt(case: Case, fixed: Mapping[str, np.ndarray]) -> tuple[str, str]:
    try:
        graph = load(case.file, fixed=fixed)
        names = graph.names()
        feeds = [case.inputs[names[node.uid]].astype(np.float64) for node in graph.inputs]
        found = af.evaluate(graph, feeds)
    except AneforgeError as error:
        return "unsupported", _reason(str(error), case)
    except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
        return "unsupported", f"test data: {type(error).__name__}"
    differs = _difference(found if isinstance(found, list) else [found], case.outputs)
    if differs:
        return "wrong", differs
    hosted = [node.attrs["reason"] for node in graph.nodes if node.op == "host"]
    return ("host", hosted[0]) if hosted else ("passed", "")


def _reason(message: str, case: Case) -> str:
    """What is behind the file's and the node's name."""
    text = message.removeprefix(f"{case.file.name}: ")
    head, mark, tail = text.partition("): ")
    return tail if mark and "(" in head and len(head) < 80 else text


def _difference(found: list[Any], wanted: list[np.ndarray]) -> str:
    for one, two in zip(found, wanted, strict=False):
        made, want = np.asarray(one, np.float64), np.asarray(two).astype(np.float64)
        if made.shape != want.shape and not (want.shape == () and made.shape == (1,)):
            return f"shape {list(made.shape)}, expected {list(want.shape)}"
        made = made.reshape(want.shape)
        usable = np.isfinite(want) & (np.abs(want) < LARGEST)
        scale = np.abs(want[usable]).max() if usable.any() else 0.0
        if not np.allclose(made[usable], want[usable], rtol=TOLERANCE, atol=TOLERANCE * scale + 1e-6):
            return f"differs by {np.abs(made[usable] - want[usable]).max():.3g} of {scale:.3g}"
    return "" if len(found) == len(wanted) else f"{len(found)} outputs, expected {len(wanted)}"


@dataclass
class Told:
    """What became of one test."""

    suite: str
    ops: tuple[str, ...]
    label: str
    reason: str


def outcomes(part: str = "", suites: tuple[str, ...] = ("node",)) -> dict[str, Told]:
    """Every test whose name contains something, with its outcome."""
    told: dict[str, Told] = {}
    with tempfile.TemporaryDirectory() as scratch, np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for suite in suites:
            for case in cases(suite, part, Path(scratch)):
                if isinstance(case, Case):
                    told[case.name] = Told(suite, case.ops, *outcome(case))
                else:
                    told[case[0]] = Told(suite, (), "unsupported", case[1])
    return told


def by_op(told: Mapping[str, Told]) -> dict[str, Counter[str]]:
    """Labels for each op that a test of the standard is named for; tests of the function bodies count there too."""
    import onnx

    known = {schema.name.lower(): schema.name for schema in onnx.defs.get_all_schemas()}
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name, each in told.items():
        kind = each.ops[0] if len(each.ops) == 1 else _named_for(name, known)
        found[kind][each.label] += 1
    return dict(sorted(found.items()))


def _named_for(test: str, known: Mapping[str, str]) -> str:
    words = test.removeprefix("test_").removesuffix("_expanded").split("_")
    for count in range(len(words), 0, -1):
        name = known.get("".join(words[:count]))
        if name:
            return name
    return {"sce": "SoftmaxCrossEntropyLoss", "nllloss": "NegativeLogLikelihoodLoss"}.get(words[0], words[0])


def coverage_page() -> str:
    """The page of the documentation: totals, a row for each op, and a reason for what is not passed."""
    import onnx

    told = outcomes(suites=SUITES)
    lines = [
        "# ONNX: what is read",
        "",
        f"Generated by `bench/onnx_coverage.py` from the tests in the `onnx` package {onnx.__version__} (opset "
        f"{onnx.defs.onnx_opset_version()}). Every test model is loaded, evaluated in float64 with fp16 constants and "
        f"compared with the expected outputs (tolerance {TOLERANCE:g} of the largest number).",
        "",
        "*Passed*: every op is in the graph language, so verdicts, simulation and costs cover it. *Host*: it loads "
        "and gives the expected numbers, with ops left to the host. *Unsupported*: one clear error. *Wrong*: other "
        "numbers; this has to be zero. Whole numbers and truth values are taken as settings that are fixed when the "
        "model is read, where the tests hand them over at run time; so are inputs that models store as weights ("
        + ", ".join(sorted(STORED))
        + "). A test that passes only without them fixed counts the same.",
        "",
        "| tests | " + " | ".join(LABELS) + " | all |",
        "| --- |" + " ---: |" * 5,
    ]
    for suite in SUITES:
        counts = Counter(each.label for each in told.values() if each.suite == suite)
        lines.append(f"| {suite} | " + " | ".join(str(counts[each]) for each in LABELS) + f" | {counts.total()} |")
    nodes = {name: each for name, each in told.items() if each.suite == "node"}
    lines += ["", "## By op (node tests)", "", "| op | " + " | ".join(LABELS) + " | what is left, and why |"]
    lines.append("| --- |" + " ---: |" * 4 + " --- |")
    why = _reasons_by_op(nodes)
    for kind, counts in by_op(nodes).items():
        row = " | ".join(str(counts[each] or "") for each in LABELS)
        lines.append(f"| {kind} | {row} | {why.get(kind, '')} |")
    return "\n".join(lines) + "\n"


def _reasons_by_op(told: Mapping[str, Told]) -> dict[str, str]:
    """The commonest reason for each op's tests that are not passed."""
    import onnx

    known = {schema.name.lower(): schema.name for schema in onnx.defs.get_all_schemas()}
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for name, each in told.items():
        if each.reason:
            kind = each.ops[0] if len(each.ops) == 1 else _named_for(name, known)
            found[kind][each.reason] += 1
    return {kind: counts.most_common(1)[0][0].replace("|", "\\|")[:160] for kind, counts in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="every test with its outcome and reason")
    parser.add_argument("--markdown", action="store_true", help="the page of the documentation")
    parser.add_argument("--op", default="", help="only tests whose name contains this")
    parser.add_argument("--suite", default="node", choices=(*SUITES, "all"), help="which tests of the package")
    asked = parser.parse_args()
    if asked.markdown:
        print(coverage_page(), end="")
        return
    told = outcomes(asked.op, SUITES if asked.suite == "all" else (asked.suite,))
    if asked.json:
        print(json.dumps({name: vars(each) for name, each in told.items()}, indent=1))
        return
    for name, each in told.items():
        if each.label == "wrong" or asked.op:
            print(f"{each.label:12} {name}: {each.reason}")
    if not asked.op:
        for kind, counts in by_op(told).items():
            print(f"{kind:28}" + "".join(f"{counts[each] or '':>6}" for each in LABELS))
    counts = Counter(each.label for each in told.values())
    print(", ".join(f"{counts[label]} {label}" for label in LABELS), f"of {len(told)}")


if __name__ == "__main__":
    main()
