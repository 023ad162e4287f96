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
import re
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import aneforge as af
from aneforge.errors import AneforgeError
from aneforge.formats import load
from aneforge.graph.node import MAX_RANK

__all__ = ["LABELS", "SUITES", "coverage_page", "outcomes"]

TOLERANCE = 5e-3  # weights and constants are fp16, everything else here is float64
LARGEST = 60000.0  # beyond it fp16 has no numbers
LABELS = ("passed", "host", "unsupported", "wrong")
SUITES = ("node", "pytorch-converted", "pytorch-operator", "simple", "light")

STORED = {
    "AffineGrid": (0,),
    "BatchNormalization": (1, 2, 3, 4),
    "CastLike": (1,),
    "Clip": (1, 2),
    "DequantizeLinear": (1, 2),
    "Dropout": (1, 2),
    "GridSample": (1,),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "MatMulInteger": (1, 2, 3),
    "OneHot": (1, 2),
    "Pad": (1, 2),
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


RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
"""Ops whose numbers the standard leaves to the runtime: only shapes are compared."""


@dataclass
class Case:
    """One test: a model in a file, inputs by name and expected outputs."""

    suite: str
    name: str
    kind: str
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
        data: Any
        if test.model is None:
            own = Path(str(test.model_dir))
            model, data = _recent(onnx.load(str(own / "model.onnx"))), _read(own / "test_data_set_0")
        else:
            model, data = _recent(test.model), (test.data_sets or [([], [])])[0]
        file = folder / "model.onnx"
        try:
            onnx.save(model, str(file))
            yield _case(suite, test.name, file, model, data[0], data[1])
        except (TypeError, ValueError, AttributeError):
            yield test.name, "its data are sequences, optional values or text"


def _recent(model: Any) -> Any:
    """A model of an opset before those that are read, converted to one of them: what the reader's error advises."""
    from onnx import version_converter

    versions = [each.version for each in model.opset_import if each.domain in ("", "ai.onnx")]
    if not versions or min(versions) >= 7:
        return model
    try:
        return version_converter.convert_version(model, 9)
    except Exception:  # the converter lacks some ops: the test stays as it is and is told as unsupported
        return model


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
    read = {each for node in model.graph.node for each in node.input}
    stored |= {port for port in given if port not in read}
    ops = tuple(dict.fromkeys(node.op_type for node in model.graph.node))
    kind = ops[0] if len(ops) == 1 else _named_for(name)
    return Case(suite, name, kind, ops, file, given, [_array(each) for each in outputs], frozenset(stored))


def _array(value: Any) -> np.ndarray:
    """An array of numbers; lists (sequences), nothing (optionals) and strings are none."""
    import onnx

    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
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
    for place, fixed in enumerate(_ways(case)):
        found.append(_attempt(case, fixed))
        if found[-1][0] == "wrong":
            return found[-1]
        if place > 0 and any(label == "passed" for label, _ in found):
            break
    return min(found, key=lambda each: LABELS.index(each[0]))


def _ways(case: Case) -> Iterator[dict[str, np.ndarray]]:
    """Whole numbers and truth values are settings (axes, shapes, indices) in most models; weights are stored."""
    settings = {name: each for name, each in case.inputs.items() if each.dtype.kind in "iub"}
    known = settings | {name: case.inputs[name] for name in case.stored}
    first = next(iter(case.inputs), None)
    ways = [known, settings, {name: each for name, each in known.items() if name != first}, {}]
    if case.kind in STATIC:
        ways.append(dict(case.inputs))
    tried: list[set[str]] = []
    for way in ways:
        if set(way) in tried or (way and len(way) == len(case.inputs) and case.kind not in STATIC):
            continue
        tried.append(set(way))
        yield way


def _attempt(case: Case, fixed: Mapping[str, np.ndarray]) -> tuple[str, str]:
    try:
        graph = load(case.file, fixed=fixed)
        tallest = max(node.ndim for node in graph.nodes)
        if tallest > MAX_RANK:
            return "unsupported", f"a tensor of rank {tallest}; no engine takes more than {MAX_RANK}"
        names = graph.names()
        feeds = [case.inputs[names[node.uid]].astype(np.float64).reshape(node.shape) for node in graph.inputs]
        found = af.evaluate(graph, feeds)
    except AneforgeError as error:
        return "unsupported", _reason(str(error), case)
    except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
        return "unsupported", f"test data: {type(error).__name__}"
    listed = found if isinstance(found, list) else [found]
    differs = _difference(listed, case.outputs, numbers=not RANDOM.intersection(case.ops))
    if differs:
        return "wrong", differs
    hosted = [_reason(node.attrs["reason"], case) for node in graph.nodes if node.op == "host"]
    return ("host", hosted[0]) if hosted else ("passed", "")


def _reason(message: str, case: Case) -> str:
    """What is behind the file's and the node's name."""
    text = re.sub(rf"^{re.escape(case.file.name)}: ", "", message)
    text = re.sub(r"^\S+ \(\w+\): ", "", text)
    return re.sub(r" at \w+\.py:\d+", "", text)


def _difference(found: list[Any], wanted: list[np.ndarray], numbers: bool = True) -> str:
    for one, two in zip(found, wanted, strict=False):
        made, want = np.asarray(one, np.float64), np.asarray(two).astype(np.float64)
        if made.shape != want.shape and not (want.shape == () and made.shape == (1,)):
            return f"shape {list(made.shape)}, expected {list(want.shape)}"
        made = made.reshape(want.shape)
        if not numbers:
            continue
        usable = np.isfinite(want) & (np.abs(want) < LARGEST)
        scale = np.abs(want[usable]).max() if usable.any() else 0.0
        if not np.allclose(made[usable], want[usable], rtol=TOLERANCE, atol=TOLERANCE * scale + 1e-6):
            return f"differs by {np.abs(made[usable] - want[usable]).max():.3g} of {scale:.3g}"
    return "" if len(found) == len(wanted) else f"{len(found)} outputs, expected {len(wanted)}"


@dataclass
class Told:
    """What became of one test."""

    suite: str
    kind: str
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
                    told[case.name] = Told(suite, case.kind, *outcome(case))
                else:
                    told[case[0]] = Told(suite, _named_for(case[0]), "unsupported", case[1])
    return told


def by_op(told: Mapping[str, Told]) -> dict[str, Counter[str]]:
    """Labels for each op that a test of the standard is about; tests of its function's body count there too."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for each in told.values():
        found[each.kind][each.label] += 1
    return dict(sorted(found.items()))


@lru_cache
def _known_ops() -> dict[str, str]:
    import onnx

    return {schema.name.lower(): schema.name for schema in onnx.defs.get_all_schemas()}


_NICKNAMES = {
    "adagrad": "Adagrad",
    "gridsample": "GridSample",
    "loop11": "Loop",
    "loop13": "Loop",
    "loop16": "Loop",
    "mvn": "MeanVarianceNormalization",
    "nesterov": "Momentum",
    "nllloss": "NegativeLogLikelihoodLoss",
    "sce": "SoftmaxCrossEntropyLoss",
    "training": "Dropout",
}


def _named_for(test: str) -> str:
    """The op in the name of a test."""
    words = test.removeprefix("test_").removesuffix("_expanded").split("_")
    for count in range(len(words), 0, -1):
        name = _known_ops().get("".join(words[:count]))
        if name:
            return name
    return _NICKNAMES.get(words[0], words[0])


def coverage_page(told: Mapping[str, Told] | None = None) -> str:
    """The page of the documentation: totals, a row for each op, and a reason for what is not passed."""
    import onnx

    told = outcomes(suites=SUITES) if told is None else told
    lines = [
        "# ONNX: what is read",
        "",
        f"Generated by `bench/onnx_coverage.py` from the tests in the `onnx` package {onnx.__version__} (opset "
        f"{onnx.defs.onnx_opset_version()}). Every test model is loaded, evaluated in float64 with fp16 constants and "
        f"compared with the expected outputs (tolerance {TOLERANCE:g} of the largest number).",
        "",
        "*Passed*: every op is in the graph language, so verdicts, simulation and costs cover it. *Host*: it loads "
        "and gives the expected numbers, with ops left to the host, which the ONNX reference evaluator computes. "
        "*Unsupported*: one clear error. *Wrong*: other numbers; this has to be zero.",
        "",
        "The tests hand everything over at run time. Here each is tried in up to four ways: with the inputs fixed "
        "that are whole numbers or truth values (axes, shapes, indices), with those fixed too that models store as "
        "weights or settings ("
        + ", ".join(sorted(STORED))
        + "), with its first input left open, and with nothing fixed. The "
        "best of them counts, and a wrong number in any makes it wrong. Of random numbers only the shape is "
        "compared. "
        "Models of opsets before 7 are converted by the package first. Ops that are known when a model is read "
        f"({', '.join(sorted(STATIC))}) are passed if the constant is right.",
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
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for each in told.values():
        if each.reason:
            found[each.kind][each.reason] += 1
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
