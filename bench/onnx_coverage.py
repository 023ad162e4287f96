# pyright: reportMissingImports=false
"""How much of the ONNX standard is read: the node tests of the onnx package, op by op.

``python bench/onnx_coverage.py`` loads every test model, evaluates the graph in float64 and compares it with the
expected outputs. A test is *passed*, *unsupported* (with a reason) or *wrong*. Figures only, nothing is asserted;
wrong has to be zero.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import aneforge as af
from aneforge.errors import AneforgeError
from aneforge.frontends import load

TOLERANCE = 2e-2  # weights and constants are fp16
LARGEST = 60000.0  # beyond it fp16 has no numbers


def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return load_model_tests(kind="node")


def outcome(case: Any, folder: Path) -> tuple[str, str]:
    """passed, unsupported or wrong, and why."""
    import onnx

    file = folder / "model.onnx"
    try:
        onnx.save(case.model, str(file))
        stored = {each.name for each in case.model.graph.initializer}
        ports = [port.name for port in case.model.graph.input if port.name not in stored]
        inputs, outputs = case.data_sets[0]
        given = {name: np.asarray(each) for name, each in zip(ports, inputs, strict=False)}
        # Whole numbers are parameters here (axes, shapes, indices); the tests hand them over as inputs.
        fixed = {name: each for name, each in given.items() if each.dtype.kind in "iub"}
        if len(fixed) == len(given):
            return "unsupported", "an op of whole numbers or truth values alone: the host computes it"
        graph = load(file, fixed=fixed)
        want = [np.asarray(each).astype(np.float64) for each in outputs]
        names = graph.names()
        found = af.evaluate(graph, [given[names[node.uid]].astype(np.float64) for node in graph.inputs])
    except AneforgeError as error:
        return "unsupported", str(error).partition(": ")[2]
    except (TypeError, ValueError, AttributeError, NotImplementedError) as error:
        return "unsupported", f"test data: {type(error).__name__}"
    found = found if isinstance(found, list) else [found]
    for one, two in zip(found, want, strict=True):
        made = np.asarray(one, np.float64)
        if made.shape != two.shape:
            return "wrong", f"shape {list(made.shape)}, expected {list(two.shape)}"
        usable = np.isfinite(two) & (np.abs(two) < LARGEST)
        if not np.allclose(made[usable], two[usable], rtol=TOLERANCE, atol=TOLERANCE):
            return "wrong", f"differs by {np.abs(made[usable] - two[usable]).max():.3g}"
    return "passed", ""


def outcomes(part: str = "") -> dict[str, tuple[str, str]]:
    """Every test whose name contains something, with its outcome."""
    with tempfile.TemporaryDirectory() as scratch, np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: outcome(case, Path(scratch)) for case in cases() if part in case.name}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="every test with its outcome and reason")
    parser.add_argument("--op", default="", help="only tests whose name contains this")
    asked = parser.parse_args()
    told = outcomes(asked.op)
    if asked.json:
        print(json.dumps(told, indent=1))
        return
    for name, (label, reason) in told.items():
        if label == "wrong" or asked.op:
            print(f"{label:12} {name}: {reason}")
    counts = Counter(label for label, _ in told.values())
    print(", ".join(f"{counts[label]} {label}" for label in ("passed", "unsupported", "wrong")), f"of {len(told)}")


if __name__ == "__main__":
    main()
